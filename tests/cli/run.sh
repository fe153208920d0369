#!/bin/bash
# run.sh REIN: the command line from outside. Worked values, every class of wrong input, help, manual, completion.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"

# same TITLE WANTED GOT: numbers to 1e-12, the rest literally; brackets and commas do not count
same() {
    if awk -v want="$2" -v got="$3" 'BEGIN {
        gsub(/[][,]/, " ", want); gsub(/[][,]/, " ", got)
        n = split(want, w, " "); m = split(got, g, " ")
        if (n != m || n == 0) exit 1
        for (i = 1; i <= n; i++) {
            if (w[i] == g[i]) continue
            if (w[i] !~ /^[-+0-9.e]+$/ || g[i] !~ /^[-+0-9.e]+$/) exit 1
            d = w[i] - g[i]; if (d < 0) d = -d
            size = w[i] < 0 ? -w[i] : w[i]; if (size < 1) size = 1
            if (!(d <= 1e-12 * size)) exit 1
        }
    }'; then pass; else fail "$1" "wanted $2" "got    $3"; fi
}

# field NAME: its value in the JSON object on stdin
field() { awk -v name="\"$1\": " '{ i = index($0, name); if (!i) exit; s = substr($0, i + length(name)); j = match(s, /, "|}/); print substr(s, 1, j - 1) }'; }

# gives TITLE OPERATION JSON FIELD WANTED [OPTION…]
gives() {
    local title=$1 operation=$2 json=$3 name=$4 wanted=$5 out
    shift 5
    if out=$(printf '%s' "$json" | rein objective "$operation" "$@" 2>"$work/err"); then
        same "$title: $name" "$wanted" "$(printf '%s' "$out" | field "$name")"
    else
        fail "$title" "$(cat "$work/err")"
    fi
}

# wrong TITLE PATTERN OPERATION JSON [OPTION…]
wrong() {
    local title=$1 pattern=$2 operation=$3 json=$4
    shift 4
    printf '%s' "$json" >"$work/in"
    refused "$title" "$pattern" rein objective "$operation" "$@" <"$work/in"
}

# ------------------------------------------------------------------------------------------------------------ worked values

budget() { # budget REWARDS LOG_PROBS OLD LENGTHS B TAU LAMBDA
    printf '{"rewards":%s,"log_probs":%s,"old_log_probs":%s,"response_lengths":%s,"token_budget":%s,"kl_coef":%s,"budget_penalty_coef":%s}' "$@"
}
b1=$(budget '[[1,0.5]]' '[[-1,-1.5]]' '[[-1.2,-1.3]]' '[[150,80]]' 100 0.1 0.01)
b2=$(budget '[[1,2]]' '[[-0.5,-0.8]]' '[[-0.5,-0.8]]' '[[50,60]]' 100 0.1 0.01)
b3=$(budget '[[1,0.5],[0.8,1.2]]' '[[-1,-1.2],[-0.8,-0.9]]' '[[-1.1,-1.1],[-0.7,-1]]' '[[120,80],[90,110]]' 100 0.05 0.02)
gives "worked 1.1 a" budget-loss "$b1" loss 0.0004
gives "worked 1.1 a" budget-loss "$b1" adjusted_rewards '0.5 0.5'
gives "worked 1.1 a" budget-loss "$b1" advantages '0 0'
gives "worked 1.1 a" budget-loss "$b1" baselines 0.5
gives "worked 1.1 a" budget-loss "$b1" grad_log_probs '0.002 -0.002' --grad
gives "worked 1.1 b" budget-loss "$b2" loss 0.25
gives "worked 1.1 b" budget-loss "$b2" grad_log_probs '0.05 -0.05' --grad
gives "worked 1.1 c" budget-loss "$b3" loss 0.005525
gives "worked 1.1 c" budget-loss "$b3" loss 0.005525 --threads 1
gives "budgets one a response" budget-loss "$(budget '[[1,0.5]]' '[[-1,-1.5]]' '[[-1.2,-1.3]]' '[[150,80]]' '[[140,80]]' 0.1 0.01)" adjusted_rewards '0.9 0.5'
gives "ragged rows" budget-loss "$(budget '[[1,0.5],[3]]' '[[-1,-1.5],[-1]]' '[[-1,-1.5],[-1]]' '[[1,1],[1]]' 100 0.1 0.01)" baselines '0.75 3'
gives "truncate" budget-loss '{"rewards":[[1,0.5]],"log_probs":[[-1,-1]],"old_log_probs":[[-1,-1]],"response_lengths":[[150,80]],"token_budget":100,"kl_coef":0.1,"budget_rule":"truncate","budget_penalty":0.7}' adjusted_rewards '-0.7 0.5'

gpo() { # gpo RATIOS ADVANTAGES CURRENT REF EPSILON BETA [MORE]
    printf '{"ratios":%s,"advantages":%s,"pi_current":%s,"pi_ref":%s,"epsilon":%s,"beta":%s%s}' "$1" "$2" "$3" "$4" "$5" "$6" "${7:-}"
}
g1=$(gpo '[1.2,0.8,1.1]' '[1,1,1]' '[0.9,1.1,1]' '[1,0.5,1.5]' 0.2 0.01)
g2=$(gpo '[1,1,1]' '[1,1,1]' '[0.5,0.5,0.5]' '[0.5,0.5,0.5]' 0.2 0.01)
g3=$(gpo '[1.1,0.9,1]' '[2,-1.5,0.5]' '[0.4,0.6,0.5]' '[0.5,0.5,0.5]' 0.2 0.05)
gives "worked 1.2 a" gpo "$g1" objective 1.0319499610574991
gives "worked 1.2 b" gpo "$g2" objective 1
gives "worked 1.2 b" gpo "$g2" kl 0
gives "worked 1.2 b" gpo "$g2" grad_ratios '0.33333333333333333 0.33333333333333333 0.33333333333333333' --grad
gives "worked 1.2 b" gpo "$g2" grad_pi_current '0 0 0' --grad
gives "worked 1.2 c" gpo "$g3" objective 0.44931052491114881
gives "default direction" gpo "$(gpo '[1]' '[1]' '[0.5]' '[0.25]' 0.2 1 ',"kl_direction":"current_over_ref"')" kl 0.30685281944005469
gives "published direction" gpo "$(gpo '[1]' '[1]' '[0.5]' '[0.25]' 0.2 1 ',"kl_direction":"ref_over_current"')" kl 0.19314718055994531

u1='{"weights":[1,1],"rewards":[1,1],"policy_log_probs":[-1.5,-1.5],"ref_log_probs":[-1.5,-1.5],"log_prob_grads":[[0.5,-0.5],[0.5,-0.5]],"beta":1,"lr":0.1}'
gives "worked 1.3" rlhf-update "$u1" weights '1.05 0.95'

k1='{"advantages":[1,1,-1],"log_probs":[-0.5,-1,-2],"ref_log_probs":[-1,-1,-1.5],"mask":[1,1,1],"kl_penalty_coef":0.1}'
gives "kl-advantage" kl-advantage "$k1" advantages '0.95 1 -0.95'
gives "kl-advantage" kl-advantage "$k1" kl_policy_ref 0
gives "kl-advantage, mask" kl-advantage '{"advantages":[1,2,3],"log_probs":[-0.5,null,-2],"ref_log_probs":[-1,null,-1],"mask":[true,false,1],"kl_penalty_coef":0.1}' advantages '0.925 2 3.075'
gives "kl-advantage, sequence" kl-advantage '{"advantages":[1,1,1],"log_probs":[-1,-2,-3],"ref_log_probs":[-1,-1,-1],"kl_penalty_coef":1,"kl_scope":"sequence","sequence_lengths":[2,1]}' advantages '0.5 1.5 1'
gives "kl-advantage, group" kl-advantage '{"advantages":[1,1,1],"log_probs":[-1,-2,-3],"ref_log_probs":[-1,-1,-1],"kl_penalty_coef":1,"kl_scope":"group","sequence_lengths":[1,1,1],"group_sizes":[2,1]}' advantages '0.5 1.5 1'
gives "no penalty, no reference" kl-advantage '{"advantages":[1,2],"log_probs":[-1,-1],"kl_penalty_coef":0}' advantages '1 2'
gives "no penalty, no reference" kl-advantage '{"advantages":[1,2],"log_probs":[-1,-1],"kl_penalty_coef":0}' kl_policy_ref 0
gives "budget-control" budget-control '{"multiplier":0.01,"response_lengths":[150,80,220],"target_length":100,"step_size":0.0001}' multiplier 0.015
gives "budget-control, never below 0" budget-control '{"multiplier":0.01,"response_lengths":[10],"target_length":100,"step_size":1}' multiplier 0

dpo='{"loss":"dpo","chosen_log_probs":[-10],"rejected_log_probs":[-10],"ref_chosen_log_probs":[-12],"ref_rejected_log_probs":[-12]}'
gives "preference-loss, equal" preference-loss "$dpo" loss 0.69314718055994529
gives "preference-loss, equal" preference-loss "$dpo" grad_chosen_log_probs '-0.050000000000000003' --grad
gives "preference-loss, metrics" preference-loss "$dpo" rewards/chosen 0.20000000000000001
gives "preference-loss, kto" preference-loss '{"loss":"kto","log_probs":[-1],"ref_log_probs":[-1],"labels":[1],"kl":-1}' grad_log_probs '-0.025000000000000001' --grad
gives "preference-loss, cpo with both lengths" preference-loss '{"loss":"cpo","chosen_log_probs":[-4],"rejected_log_probs":[-4],"chosen_lengths":[2],"rejected_lengths":[2],"cpo_alpha":0}' loss 0.69314718055994529
gives "reward-loss" reward-loss '{"chosen_rewards":[500,1],"rejected_rewards":[-500,3],"margins":[0,-2]}' accuracy 0.5
gives "reward-loss" reward-loss '{"chosen_rewards":[1],"rejected_rewards":[1],"center_rewards_coefficient":0.5}' grad_rejected_rewards 2.5 --grad
gives "value-loss" value-loss '{"values":[0.5,2],"old_values":[0.5,1],"returns":[1,1]}' loss 0.3125
gives "value-loss, mask" value-loss '{"values":[0.5,null],"old_values":[0.5,null],"returns":[1,null],"mask":[1,0],"value_clip":0}' grad_values '-0.5 0' --grad
gives "value-loss, nothing trains" value-loss '{"values":[null],"old_values":[null],"returns":[null],"mask":[0]}' loss 0

# The same loss by its name and as a composition.
k2='{"preset":"k2","log_probs":[-1,-1.5],"old_log_probs":[-1.2,-1.3],"sequence_lengths":[1,1],"rewards":[1,0.5],"response_lengths":[150,80],"token_budget":100,"options":{"tau":0.1,"budget_penalty_coef":0.01}}'
gives "policy-loss k2 is budget-loss" policy-loss "$k2" loss 0.0004
gives "policy-loss k2 is budget-loss" policy-loss "$k2" grad_log_probs '0.002 -0.002' --grad
gives "token_budget in options" policy-loss "${k2/\"token_budget\":100,\"options\":\{/\"options\":\{\"token_budget\":100,}" loss 0.0004
gives "token_budget one a sequence" policy-loss "${k2/\"token_budget\":100/\"token_budget\":[100,100]}" loss 0.0004
gives "metrics" policy-loss "$k2" budget/share_over 0.5
gives "metrics" policy-loss "$k2" completions/mean_length 115
plain='"log_probs":[-1,-2,null],"old_log_probs":[-1,-2,null],"mask":[1,1,0],"sequence_lengths":[1,2],"rewards":[1,0]'
gives "masked null" policy-loss "{$plain}" grad_log_probs '-0.5 0 0' --grad
gives "scale_rewards" policy-loss "{$plain,\"options\":{\"scale_rewards\":false}}" grad_log_probs '-0.25 0.25 0' --grad
gives "one baseline a group" policy-loss "{$plain,\"baseline_rewards\":[0.5],\"options\":{\"advantage\":\"remax\"}}" grad_log_probs '-0.25 0.25 0' --grad
gives "one baseline a sequence" policy-loss "{$plain,\"baseline_rewards\":[0.5,0.5],\"options\":{\"advantage\":\"remax\"}}" grad_log_probs '-0.25 0.25 0' --grad
gives "reward components" policy-loss '{"log_probs":[-1],"old_log_probs":[-1],"reward_components":[[1,2]],"reward_weights":[1,0.5]}' reward 2
gives "entropies" policy-loss '{"log_probs":[-1],"old_log_probs":[-1],"rewards":[1],"entropies":[0.5],"options":{"entropy_coef":0.1}}' grad_entropies '-0.1' --grad
gives "exact KL" policy-loss '{"log_probs":[-1],"old_log_probs":[-1],"rewards":[1],"exact_kl":[0.5],"options":{"kl_loss_coef":0.1,"kl_estimator":"exact"}}' grad_exact_kl '0.1' --grad
gives "rewards whose squares overflow" policy-loss '{"preset":"dapo","log_probs":[-1,-1],"old_log_probs":[-1,-1],"sequence_lengths":[1,1],"rewards":[1e300,0]}' advantages '0.70710678118654752 -0.70710678118654752'
gives "rewards whose squares overflow" policy-loss '{"preset":"dapo","log_probs":[-1,-1],"old_log_probs":[-1,-1],"sequence_lengths":[1,1],"rewards":[1e300,0]}' reward_std 7.0710678118654752e299
wrong "rewards too large to whiten" "rewards are too large" policy-loss '{"log_probs":[-1,-1],"old_log_probs":[-1,-1],"sequence_lengths":[1,1],"rewards":[1e300,0],"options":{"advantage":"reinforce++"}}'
gives "advantages made elsewhere" policy-loss '{"log_probs":[-1,-2],"old_log_probs":[-1,-2],"advantages":[1,-3]}' grad_log_probs '-0.5 1.5' --grad
wrong "advantages made twice" "advantages has no effect" policy-loss '{"log_probs":[-1],"advantages":[1],"rewards":[1],"options":{"advantage":"none"}}'
nothing='{"log_probs":[null],"old_log_probs":[null],"mask":[0],"rewards":[1]}'
gives "nothing to train" policy-loss "$nothing" nothing_to_train true
gives "nothing to train" policy-loss "$nothing" loss 0
if printf '%s' "$nothing" | rein objective policy-loss 2>&1 >/dev/null | grep -q '^rein objective policy-loss: note: '; then pass; else fail "nothing to train: a note"; fi
printf '%s' "$b1" >"$work/b1.json"
same "a file" "$(rein objective budget-loss <"$work/b1.json")" "$(rein objective budget-loss "$work/b1.json")"
same "a file named -" "$(rein objective budget-loss <"$work/b1.json")" "$(rein objective budget-loss - <"$work/b1.json")"
same "numbers read back exactly" "$(rein objective budget-control <<<'{"multiplier":0.1,"response_lengths":[3],"target_length":3,"step_size":1}')" '{"multiplier": 0.10000000000000001}'

# ------------------------------------------------------------------------------------------------------------- wrong input

p='^rein objective budget-loss: '
wrong "empty" "${p}the input is empty" budget-loss ''
wrong "blank" "${p}the input is empty" budget-loss $' \n\t '
wrong "no object" "${p}the input does not start with \{: a JSON object is needed" budget-loss '[1]'
wrong "a bare number" "${p}the input does not start with \{" budget-loss '5'
wrong "no argument" "${p}rewards is missing" budget-loss '{}'
wrong "missing scalar" "${p}kl_coef is missing" budget-loss "${b1/\"kl_coef\":0.1,/}"
wrong "a text for a number" "${p}rewards\[0\]\[1\] is \"x\": a number is needed\$" budget-loss "${b1/\[\[1,0.5\]\]/[[1,\"x\"]]}"
wrong "second row" "${p}rewards\[1\]\[0\] is \"x\": a number is needed\$" budget-loss "${b3/\[0.8,1.2\]/[\"x\",1.2]}"
wrong "null for a number" "${p}log_probs\[0\]\[0\] is null" budget-loss "${b1/\[\[-1,/[[null,}"
wrong "true for a number" "${p}log_probs\[0\]\[0\] is true" budget-loss "${b1/\[\[-1,/[[true,}"
wrong "array for a number" "${p}kl_coef is an array" budget-loss "${b1/\"kl_coef\":0.1/\"kl_coef\":[]}"
wrong "number for rows" "${p}rewards is 1: an array of rows" budget-loss "${b1/\[\[1,0.5\]\]/1}"
wrong "number for a row" "${p}rewards\[0\] is 1: a row" budget-loss "${b1/\[\[1,0.5\]\]/[1]}"
wrong "no rows" "${p}rewards is empty" budget-loss "${b1/\[\[1,0.5\]\]/[]}"
wrong "an empty row" "${p}rewards\[0\] is empty" budget-loss "${b1/\[\[1,0.5\]\]/[[]]}"
wrong "rows disagree" "${p}old_log_probs has 1 rows, rewards has 2" budget-loss "${b3/\[\[-1.1,-1.1\],\[-0.7,-1\]\]/[[-1.1,-1.1]]}"
wrong "entries disagree" "${p}log_probs\[0\] has 1 entries, rewards\[0\] has 2" budget-loss "${b1/\[\[-1,-1.5\]\]/[[-1]]}"
wrong "negative length" "${p}response_lengths\[0\]\[1\] is -80: a whole number, 0 or more" budget-loss "${b1/80/-80}"
wrong "half a token" "${p}response_lengths\[0\]\[1\] is 0.5: a whole number" budget-loss "${b1/150,80/150,0.5}"
wrong "endless length" "${p}response_lengths\[0\]\[1\] is 1e\+300" budget-loss "${b1/150,80/150,1e300}"
wrong "negative budget" "${p}token_budget is -1" budget-loss "${b1/\"token_budget\":100/\"token_budget\":-1}"
wrong "negative budget of one" "${p}token_budget\[0\]\[1\] is -1" budget-loss "${b1/\"token_budget\":100/\"token_budget\":[[1,-1]]}"
wrong "negative tau" "${p}kl_coef is -0.1" budget-loss "${b1/\"kl_coef\":0.1/\"kl_coef\":-0.1}"
wrong "negative lambda" "${p}budget_penalty_coef is -0.01" budget-loss "${b1/\"budget_penalty_coef\":0.01/\"budget_penalty_coef\":-0.01}"
wrong "idle penalty" "${p}budget_penalty has no effect" budget-loss "${b1/\}/,\"budget_penalty\":1\}}"
wrong "idle coefficient" "${p}budget_penalty_coef has no effect" budget-loss "${b1/\}/,\"budget_rule\":\"truncate\",\"budget_penalty\":1\}}"
wrong "unknown rule" "${p}budget_rule is \"square\": it is one of linear, truncate" budget-loss "${b1/\}/,\"budget_rule\":\"square\"\}}"
wrong "unknown key, near" "${p}reward is unknown here: did you mean \"rewards\"\?" budget-loss '{"reward":[[1]]}'
wrong "unknown key, hyphen" "did you mean \"kl_coef\"" budget-loss '{"kl-coef":1}'
wrong "unknown key, far" "${p}zebra is unknown here: it is one of rewards" budget-loss '{"zebra":1}'
wrong "unknown key, nasty" "${p}a.u000ab is unknown" budget-loss '{"a\nb":1}'
wrong "duplicate key" "${p}rewards is given twice, again at line 1, column 26" budget-loss '{"rewards":[[1]],"rewards":[[1]]}'
wrong "duplicate long key" "${p}budget_penalty_coef is given twice" budget-loss "${b1/\}/,\"budget_penalty_coef\":1\}}"
wrong "text after" "${p}line 1, column [0-9]+: there is text after the JSON value" budget-loss "$b1 x"
wrong "second object" "${p}line 1, column [0-9]+: there is text after the JSON value" budget-loss "$b1$b1"
wrong "cut short" "${p}rewards\[0\]\[1\] \(line 1, column [0-9]+\): the input ends" budget-loss '{"rewards":[[1,'
wrong "line and column" "${p}kl_coef \(line 3, column [0-9]+\): " budget-loss $'{"rewards":[[1]],\n\n"kl_coef":?}'
wrong "huge" "${p}rewards\[0\]\[1\] \(line 1, column [0-9]+\): 1e999 is beyond" budget-loss '{"rewards":[[1,1e999]]}'
wrong "hugely negative" "${p}rewards\[0\]\[0\] .*beyond" budget-loss '{"rewards":[[-1e999]]}'
wrong "NaN" "${p}rewards\[0\]\[1\] \(line 1, column [0-9]+\): NaN is not a finite number" budget-loss '{"rewards":[[1,NaN]]}'
wrong "Infinity" "${p}kl_coef \(line 1, column [0-9]+\): Infinity is not a finite number" budget-loss '{"kl_coef":Infinity}'
wrong "-Infinity" "${p}kl_coef \(line 1, column [0-9]+\): " budget-loss '{"kl_coef":-Infinity}'
wrong "unquoted key" "${p}line 1, column" budget-loss '{rewards:1}'
wrong "comma too many" "${p}rewards.*line 1, column" budget-loss '{"rewards":[[1,]]}'
wrong "deep nesting" "${p}rewards\[0\].*nested too deep" budget-loss "{\"rewards\":$(printf '[%.0s' {1..5000})"
wrong "deep objects" "nested too deep" budget-loss "$(printf '{"a":%.0s' {1..5000})"
wrong "u0000" "${p}.*u0000" budget-loss '{"budget_rule":"a\u0000b"}'
wrong "overflow of the result" "${p}.+" budget-loss "$(budget '[[1e300,-1e300]]' '[[-1,-1]]' '[[-1,-1]]' '[[1,1]]' 100 0.1 0.01)"
printf '{"rewards":[[1]]\0}' >"$work/in"
refused "NUL byte" "${p}the input: byte 16 is 0" rein objective budget-loss <"$work/in"
printf '{"rew\377ards":[[1]]}' >"$work/in"
refused "invalid UTF-8" "${p}line 1, column" rein objective budget-loss <"$work/in"
head -c 100000 /dev/urandom >"$work/in"
refused "noise" "${p}.+" rein objective budget-loss <"$work/in"

p='^rein objective gpo: '
wrong "gpo shapes" "${p}advantages has 2 entries, ratios has 3: they must agree" gpo "${g2/\"advantages\":\[1,1,1\]/\"advantages\":[1,1]}"
wrong "gpo empty" "${p}ratios is empty" gpo "$(gpo '[]' '[]' '[]' '[]' 0.2 0.01)"
wrong "pi 0" "${p}pi_current\[1\] is 0" gpo "$(gpo '[1,1]' '[1,1]' '[1,0]' '[1,1]' 0.2 0.01)"
wrong "pi below 0" "${p}pi_ref\[0\] is -1" gpo "$(gpo '[1,1]' '[1,1]' '[1,1]' '[-1,1]' 0.2 0.01)"
wrong "negative epsilon" "${p}epsilon is -0.2" gpo "$(gpo '[1]' '[1]' '[1]' '[1]' -0.2 0.01)"
wrong "negative beta" "${p}beta is -1" gpo "$(gpo '[1]' '[1]' '[1]' '[1]' 0.2 -1)"
wrong "direction" "${p}kl_direction is \"up\": it is one of current_over_ref, ref_over_current" gpo "$(gpo '[1]' '[1]' '[1]' '[1]' 0.2 1 ',"kl_direction":"up"')"
wrong "direction is no text" "${p}kl_direction is 1" gpo "$(gpo '[1]' '[1]' '[1]' '[1]' 0.2 1 ',"kl_direction":1')"

p='^rein objective rlhf-update: '
wrong "grads too few rows" "${p}log_prob_grads has 1 entries, rewards has 2" rlhf-update "${u1/\[\[0.5,-0.5\],\[0.5,-0.5\]\]/[[0.5,-0.5]]}"
wrong "grads too narrow" "${p}log_prob_grads\[1\] has 1 entries, weights has 2" rlhf-update "${u1/\[\[0.5,-0.5\],\[0.5,-0.5\]\]/[[0.5,-0.5],[1]]}"
wrong "grads no number" "${p}log_prob_grads\[1\]\[0\] is \"a\"" rlhf-update "${u1/\[\[0.5,-0.5\],\[0.5,-0.5\]\]/[[0.5,-0.5],[\"a\",1]]}"
wrong "grads no row" "${p}log_prob_grads\[0\] is 1: a row" rlhf-update "${u1/\[\[0.5,-0.5\],\[0.5,-0.5\]\]/[1,2]}"
wrong "no sample" "${p}rewards is empty" rlhf-update '{"weights":[1],"rewards":[],"policy_log_probs":[],"ref_log_probs":[],"log_prob_grads":[],"beta":1,"lr":1}'
wrong "no gradient" "${p}--grad" rlhf-update "$u1" --grad

p='^rein objective kl-advantage: '
wrong "no gradient" "${p}--grad" kl-advantage "$k1" --grad
wrong "negative c" "${p}kl_penalty_coef is -0.1" kl-advantage "${k1/\"kl_penalty_coef\":0.1/\"kl_penalty_coef\":-0.1}"
wrong "null where it trains" "${p}log_probs\[1\] is null: a number is needed where mask is 1" kl-advantage "${k1/-0.5,-1,-2/-0.5,null,-2}"
wrong "null without a mask" "${p}log_probs\[0\] is null: a number is needed\$" kl-advantage '{"advantages":[1],"log_probs":[null],"ref_log_probs":[-1],"kl_penalty_coef":1}'
wrong "mask of 2" "${p}mask\[1\] is 2: 0, 1, false or true" kl-advantage "${k1/\"mask\":\[1,1,1\]/\"mask\":[1,2,1]}"
wrong "mask of text" "${p}mask\[1\] is \"1\"" kl-advantage "${k1/\"mask\":\[1,1,1\]/\"mask\":[1,\"1\",1]}"
wrong "no reference" "${p}ref_log_probs is missing" kl-advantage '{"advantages":[1],"log_probs":[-1],"kl_penalty_coef":1}'
wrong "idle sequence_lengths" "${p}sequence_lengths has no effect" kl-advantage "${k1/\}/,\"sequence_lengths\":[3]\}}"
wrong "idle group_sizes" "${p}group_sizes has no effect" kl-advantage "${k1/\}/,\"kl_scope\":\"sequence\",\"sequence_lengths\":[3],\"group_sizes\":[1]\}}"
wrong "no sequence_lengths" "${p}sequence_lengths is missing" kl-advantage "${k1/\}/,\"kl_scope\":\"sequence\"\}}"
wrong "no group_sizes" "${p}group_sizes is missing" kl-advantage "${k1/\}/,\"kl_scope\":\"group\",\"sequence_lengths\":[3]\}}"
wrong "lengths do not add up" "${p}sequence_lengths add up to 2, advantages has 3" kl-advantage "${k1/\}/,\"kl_scope\":\"sequence\",\"sequence_lengths\":[1,1]\}}"
wrong "lengths far beyond" "${p}sequence_lengths add up to" kl-advantage "${k1/\}/,\"kl_scope\":\"sequence\",\"sequence_lengths\":[9007199254740992,9007199254740992]\}}"
wrong "unknown scope" "${p}kl_scope is \"token\"" kl-advantage "${k1/\}/,\"kl_scope\":\"token\"\}}"

p='^rein objective budget-control: '
wrong "no gradient" "${p}--grad" budget-control '{}' --grad
wrong "negative length" "${p}response_lengths\[0\] is -1" budget-control '{"multiplier":0,"response_lengths":[-1],"target_length":1,"step_size":1}'
wrong "no lengths" "${p}response_lengths is empty" budget-control '{"multiplier":0,"response_lengths":[],"target_length":1,"step_size":1}'
wrong "negative multiplier" "${p}multiplier is -1" budget-control '{"multiplier":-1,"response_lengths":[1],"target_length":1,"step_size":1}'

p='^rein objective preference-loss: '
wrong "no loss" "${p}loss is missing" preference-loss '{}'
wrong "unknown loss" "${p}loss is \"ppo\": it is one of dpo, cdpo" preference-loss '{"loss":"ppo"}'
wrong "no log-probs" "${p}chosen_log_probs is missing" preference-loss '{"loss":"dpo"}'
wrong "no reference" "${p}ref_chosen_log_probs is missing" preference-loss '{"loss":"dpo","chosen_log_probs":[-1],"rejected_log_probs":[-1]}'
wrong "no pairs" "${p}chosen_log_probs is empty" preference-loss "${dpo//\[-1[02]\]/[]}"
wrong "other lengths" "${p}rejected_log_probs has 2 entries, chosen_log_probs has 1" preference-loss '{"loss":"dpo","chosen_log_probs":[-1],"rejected_log_probs":[-1,-2]}'
wrong "idle option" "${p}simpo_gamma has no effect with loss dpo" preference-loss "${dpo/\}/,\"simpo_gamma\":1\}}"
wrong "idle lengths" "${p}chosen_lengths has no effect with loss \"dpo\"" preference-loss "${dpo/\}/,\"chosen_lengths\":[1]\}}"
wrong "idle reference" "${p}ref_chosen_log_probs has no effect with loss \"orpo\"" preference-loss "${dpo/\"dpo\"/\"orpo\"}"
wrong "kto has no pairs" "${p}chosen_log_probs has no effect with loss \"kto\"" preference-loss "${dpo/\"dpo\"/\"kto\"}"
wrong "no label_smoothing" "${p}label_smoothing is missing: loss cdpo" preference-loss "${dpo/\"dpo\"/\"cdpo\"}"
wrong "beta 0" "${p}beta is 0: it must be above 0" preference-loss "${dpo/\}/,\"beta\":0\}}"
wrong "certain completion" "${p}chosen_log_probs\[0\] is 0: orpo" preference-loss '{"loss":"orpo","chosen_log_probs":[0],"rejected_log_probs":[-1],"chosen_lengths":[1],"rejected_lengths":[1]}'
wrong "length 0" "${p}rejected_lengths\[0\] is 0" preference-loss '{"loss":"simpo","chosen_log_probs":[-1],"rejected_log_probs":[-1],"chosen_lengths":[1],"rejected_lengths":[0]}'
wrong "no kl" "${p}kl is missing" preference-loss '{"loss":"kto","log_probs":[-1],"ref_log_probs":[-1],"labels":[1]}'
wrong "no rewards" "^rein objective reward-loss: chosen_rewards is empty" reward-loss '{"chosen_rewards":[],"rejected_rewards":[]}'
wrong "negative centring" "^rein objective reward-loss: center_rewards_coefficient is -1" reward-loss '{"chosen_rewards":[1],"rejected_rewards":[1],"center_rewards_coefficient":-1}'
wrong "no values" "^rein objective value-loss: values is empty" value-loss '{"values":[],"old_values":[],"returns":[]}'
wrong "negative clip" "^rein objective value-loss: value_clip is -0.5" value-loss '{"values":[1],"old_values":[1],"returns":[1],"value_clip":-0.5}'

p='^rein objective policy-loss: '
wrong "unknown preset" "${p}.*gropo.*did you mean .*grpo" policy-loss '{"preset":"gropo"}'
wrong "preset is no text" "${p}preset is 1: a text" policy-loss '{"preset":1}'
wrong "unknown option" "${p}.*espilon.*did you mean.*epsilon" policy-loss "{$plain,\"options\":{\"espilon\":1}}"
wrong "option of a wrong type" "${p}options.epsilon is null" policy-loss "{$plain,\"options\":{\"epsilon\":null}}"
wrong "a number as text" "${p}options.epsilon is \"0.2\": a number is needed" policy-loss "{$plain,\"options\":{\"surrogate\":\"clip\",\"epsilon\":\"0.2\"}}"
wrong "a choice as a number" "${p}options.surrogate is 1" policy-loss "{$plain,\"options\":{\"surrogate\":1}}"
wrong "option of no choice" "${p}surrogate is \"clap\"" policy-loss "{$plain,\"options\":{\"surrogate\":\"clap\"}}"
wrong "options is no object" "${p}options is 1: an object" policy-loss "{$plain,\"options\":1}"
wrong "option twice" "${p}options.epsilon is given twice" policy-loss "{$plain,\"options\":{\"epsilon\":1,\"epsilon\":2}}"
wrong "idle option" "${p}epsilon has no effect" policy-loss "{$plain,\"options\":{\"epsilon\":0.1}}"
wrong "alias and original" "${p}.*advantage" policy-loss "{$plain,\"options\":{\"advantage\":\"group-mean\",\"scale_rewards\":true}}"
wrong "negative epsilon" "${p}epsilon is -0.1" policy-loss "{$plain,\"options\":{\"surrogate\":\"clip\",\"epsilon\":-0.1}}"
wrong "required option" "${p}budget_penalty_coef is required, as is tau" policy-loss "{$plain,\"preset\":\"k2\",\"token_budget\":1}"
wrong "token_budget twice" "${p}token_budget is given twice" policy-loss "{$plain,\"token_budget\":1,\"options\":{\"token_budget\":1}}"
wrong "token_budget is a text" "${p}token_budget is \"x\": a number" policy-loss "{$plain,\"token_budget\":\"x\"}"
wrong "rewards are missing" "${p}rewards is missing" policy-loss '{"log_probs":[-1],"old_log_probs":[-1]}'
wrong "two kinds of rewards" "${p}rewards and reward_components" policy-loss "{$plain,\"reward_components\":[[1],[2]]}"
wrong "idle weights" "${p}reward_weights has no effect" policy-loss "{$plain,\"reward_weights\":[1]}"
wrong "weights disagree" "${p}reward_weights has 1 entries, a row of reward_components has 2" policy-loss '{"log_probs":[-1],"old_log_probs":[-1],"reward_components":[[1,2]],"reward_weights":[1]}'
wrong "rewards without lengths" "${p}rewards has 2 entries, sequence_lengths \(absent" policy-loss '{"log_probs":[-1,-1],"old_log_probs":[-1,-1],"rewards":[1,2]}'
wrong "groups do not add up" "${p}group_sizes add up to 3, sequence_lengths has 2" policy-loss "{$plain,\"group_sizes\":[3]}"
wrong "baselines of no kind" "${p}baseline_rewards has 3 entries: one a group \(1\) or one a sequence \(2\)" policy-loss "{$plain,\"baseline_rewards\":[1,2,3]}"
wrong "a missing reward is no 0" "${p}rewards\[1\] is null" policy-loss '{"log_probs":[-1,-1],"old_log_probs":[-1,-1],"sequence_lengths":[1,1],"rewards":[1,null]}'
wrong "needs a reference" "${p}ref_log_probs" policy-loss "{$plain,\"options\":{\"kl_loss_coef\":0.1}}"
wrong "needs old_log_probs" "${p}old_log_probs" policy-loss '{"log_probs":[-1],"rewards":[1],"options":{"surrogate":"clip"}}'
wrong "positive log-prob" "${p}.+" policy-loss '{"log_probs":[-1e308],"old_log_probs":[1e308],"rewards":[1e308],"options":{"surrogate":"squared","tau":1e9}}'

# ----------------------------------------------------------------------------------------------------------- errors as JSON

# fails_with TITLE STATUS CODE FIELD INDEX COMMAND…: one line of JSON on stderr, nothing on stdout; FIELD and INDEX as Python has them
fails_with() {
    local title=$1 wanted="$2 $3 $4 $5" got=0
    shift 5
    "$@" >"$work/out" 2>"$work/err" || got=$?
    got="$got $(python3 -c '
import json, sys
lines = open(sys.argv[1]).read().splitlines()
error = json.loads(lines[0])["error"]
assert len(lines) == 1 and list(error) == ["code", "field", "index", "message"] and error["message"]
print(error["code"], error["field"], error["index"])' "$work/err" 2>&1 | tail -1)"
    if [ -s "$work/out" ]; then fail "$title" "stdout is not empty"; else same "$title" "$got" "$wanted"; fi
}
negative=$(gpo '[1,-2]' '[1,1]' '[1,1]' '[1,1]' 0.2 0.01)
fails_with "JSON error: a position" 2 EINVAL ratios 1 rein objective gpo --json <<<"$negative"
same "JSON error: the same sentence" "$(rein objective gpo --json <<<"$negative" 2>&1 | python3 -c 'import json; print(json.loads(input())["error"]["message"])')" \
    "$(rein objective gpo <<<"$negative" 2>&1 | sed 's/^rein objective gpo: //')"
fails_with "JSON error: nested" 2 EINVAL 'rewards[0]' 1 rein objective budget-loss --json <<<"${b1/\[\[1,0.5\]\]/[[1,\"x\"]]}"
fails_with "JSON error: of the library, nested" 2 EINVAL 'token_budget[0]' 1 rein objective budget-loss --json \
    <<<"${b1/\"token_budget\":100/\"token_budget\":[[1,-1]]}"
fails_with "JSON error: a syntax error" 2 EINVAL 'rewards[0]' 1 rein objective budget-loss --json <<<'{"rewards":[[1,NaN]]}'
fails_with "JSON error: a scalar" 2 EINVAL kl_coef None rein objective budget-loss --json <<<"${b1/\"kl_coef\":0.1/\"kl_coef\":-0.1}"
fails_with "JSON error: an unknown key" 2 EINVAL zebra None rein objective budget-loss --json <<<'{"zebra":1}'
fails_with "JSON error: an option" 2 EINVAL --threads None rein objective gpo --json --threads x
fails_with "JSON error: an option before --json" 2 EINVAL --grad None rein objective gpo --grad --grad --json
fails_with "JSON error: a word" 2 EINVAL None None rein explain grp --json
fails_with "JSON error: a file" 2 EINVAL None None rein inspect "$work/none" --json
# Every command that has --json: how it fails in its own work, and the field that the error names. A new command needs a line.
declare -A fails=(
    [objective]="EINVAL None gpo $work/none" [explain]="EINVAL None nothing" [inspect]="EINVAL None $work/none"
    [generate]="EINVAL model --model $work/none --prompt a" [score]="EINVAL --temperature --model $work --text a --temperature 0"
    [run]="EINVAL steps $work/run --steps 0" [train]="EINVAL None $work/run --model $work/none"
    [sft]="EINVAL --batch-size $work/run --model $work --data $work/none --batch-size 0"
    [dpo]="EINVAL --loss $work/run --model $work --data $work/none --loss nosuch"
    [reward]="EINVAL --batch-size $work/run --model $work --data $work/none --batch-size 0"
    [distill]="EINVAL --batch-size $work/run --model $work --teacher $work --data $work/none --batch-size 0"
    [eval]="EINVAL --against --model $work --against x --against y" [task]="EINVAL --split sums --split neither" [bench]="EINVAL --rounds fma --rounds 0"
    [export]="EINVAL model $work/none --to $work/there" [bundle]="EINVAL run $work/none" [serve]="EINVAL model $work/none"
)
for command in $(rein --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }'); do
    if ! rein "$command" --help | grep -q -- '^  --json '; then continue; fi
    read -r code where rest <<<"${fails[$command]:-missing missing}"
    # shellcheck disable=SC2086 # words
    fails_with "JSON error: $command" 2 "$code" "$where" None rein "$command" --json $rest </dev/null
    # shellcheck disable=SC2086
    fails_with "JSON error: $command, after the others" 2 "$code" "$where" None rein "$command" $rest --json </dev/null
    fails_with "JSON error: $command, an unknown option" 2 EINVAL None None rein "$command" --zebra --json
done
# What names a file or a policy is the field of an error about it, and a judge has its place among the others.
sums=$(dirname "$0")/../../models/sums
mkdir "$work/empty"
fails_with "JSON error: a policy" 2 EINVAL model None rein score --model "$work/none" --text a --json
fails_with "JSON error: a directory without a model" 2 EIO model None rein generate --model "$work/empty" --prompt a --json
fails_with "JSON error: an adapter" 2 EIO adapter None rein generate --model "$sums" --adapter "$work/none" --prompt a --json
fails_with "JSON error: a run" 2 EINVAL run None rein eval "$work/none" --json
fails_with "JSON error: a model is no run" 2 EINVAL run None rein bundle "$sums" --json
fails_with "JSON error: another run" 2 EINVAL --against None rein eval --model "$sums" --task sums --against "$work/none" --json
fails_with "JSON error: data" 2 EIO data None rein sft "$work/run" --model "$sums" --data "$work/none" --json
fails_with "JSON error: pairs" 2 EIO data None rein dpo "$work/run" --model "$sums" --data "$work/none" --json
fails_with "JSON error: groups" 2 EIO groups None rein train "$work/run" --model "$sums" --groups "$work/none" --json
fails_with "JSON error: settings" 2 EIO config None rein run "$work/run" --config "$work/none" --json
fails_with "JSON error: a task" 2 EIO task None rein run "$work/run" --model "$sums" --task "$work/none.jsonl" --json
fails_with "JSON error: a task of evaluations" 2 EIO eval_task None rein run "$work/run" --model "$sums" --task sums --eval-task "$work/none.jsonl" --json
fails_with "JSON error: more data" 2 EIO ptx_data None rein run "$work/run" --model "$sums" --task sums --ptx-data "$work/none" --ptx-coef 0.1 --json
for judge in 'regex:(' length:x nosuch regex: exact:5; do
    fails_with "JSON error: reward $judge" 2 EINVAL reward 1 rein run "$work/run" --model "$sums" --task sums --reward number --reward "$judge" --json
done
refused "--json of another command is no JSON" '^rein help: unknown option --json' rein help --json

# ------------------------------------------------------------------------------------------------------------------- usage

refused "no command" '^rein: a command is needed' rein </dev/null
refused "unknown command" '^rein: unknown command "objectve": did you mean "objective"\?' rein objectve
refused "swapped letters" 'did you mean "explain"' rein epxlain
refused "far command" '^rein: unknown command "zzzzzz": rein --help' rein zzzzzz
refused "unknown option" '^rein objective: unknown option --gard: did you mean --grad\?' rein objective gpo --gard
refused "unknown option with value" 'did you mean --threads\?' rein objective gpo --thread=2
refused "short option" '^rein explain: unknown option -\?: did you mean --help\?' rein explain '-?'
refused "option first" '^rein: unknown option --vesrion: did you mean --version\?' rein --vesrion
refused "option twice" '^rein objective: --grad is given twice' rein objective gpo --grad --grad
refused "switch with value" '^rein objective: --grad takes no value' rein objective gpo --grad=1
says "-h" '^Usage: rein COMMAND' rein -h
says "-V" '^rein [0-9]' rein -V
says "-h of a command" '^Usage: rein objective' rein objective -h
refused "option without value" '^rein objective: --threads needs a value' rein objective gpo --threads
for n in -1 x 1x 99999999999999999999 ''; do refused "threads $n" '^rein objective: --threads is ' rein objective gpo --threads "$n"; done
refused "unknown operation" '^rein objective: unknown operation "budgetloss": did you mean "budget-loss"\?' rein objective budgetloss </dev/null
refused "operation needed" '^rein objective: a name is needed' rein objective
refused "too many words" '^rein objective: unexpected argument "c"' rein objective gpo b c
refused "no such file" "^rein objective gpo: cannot open \"$work/none\": " rein objective gpo "$work/none"
refused "a directory" '^rein objective gpo: cannot read ' rein objective gpo "$work"
says "explain an option with its dashes" '^learning_rate: of AdamW .default 3e-4; with --full 1e-5.$' rein explain --learning-rate
refused "unknown preset" '^rein explain: unknown name "gropo": did you mean "grpo"\?' rein explain gropo
refused "preset needed" '^rein explain: a preset, an operation or an option is needed' rein explain
refused "all and one" '^rein explain: --all' rein explain --all grpo
refused "unknown shell" '^rein completion: unknown shell "bsh": did you mean "bash"' rein completion bsh
refused "shell needed" '^rein completion: a shell is needed' rein completion
refused "help of nothing" '^rein help: unknown command "x"' rein help x
refused "version alone" '^rein: --version takes no arguments' rein --version x
refused "seed" '^rein demo: --seed is "-1"' rein demo --seed -1
same "after --, a file" "$(rein objective budget-loss -- "$work/b1.json")" "$(rein objective budget-loss "$work/b1.json")"
same "--threads=N" "$(rein objective budget-loss --threads=2 "$work/b1.json")" "$(rein objective budget-loss "$work/b1.json")"

says "version" '^rein [0-9]+\.[0-9]+\.[0-9]+$' rein --version
says "help" '^  objective ' rein --help
narrow "help"
if [ -e /dev/full ]; then
    status=0
    rein --help >/dev/full 2>"$work/err" || status=$?
    if [ "$status" -eq 1 ] && grep -q 'cannot write to stdout' "$work/err"; then pass; else fail "a full disk" "status $status"; fi
fi

# Every example is run as it stands.
for command in objective explain completion help; do
    says "help of $command" "^Usage: rein $command" rein "$command" --help
    narrow "help of $command"
    same "rein help $command" "$(rein "$command" --help)" "$(rein help "$command")"
    sed '1,/^Example:$/d' "$work/out" >"$work/example"
    if [ -s "$work/example" ] && (cd "$work" && bash -eu "$work/example") >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ]; then pass
    else fail "example of $command" "$(cat "$work/example")" "$(head -3 "$work/err")"; fi
done
for operation in budget-loss gpo rlhf-update kl-advantage policy-loss budget-control preference-loss reward-loss value-loss; do
    says "explain $operation" "^$operation: " rein explain "$operation"
    narrow "explain $operation"
    sed '1,/^Try it:$/d' "$work/out" >"$work/example"
    if [ -s "$work/example" ] && bash -eu "$work/example" 2>&1 | grep -q '^{"'; then pass; else fail "example of $operation"; fi
    says "explain $operation --json" "^\{\"operation\": \"$operation\"" rein explain "$operation" --json
done

presets=$(rein explain --all | awk 'NR > 1 { print $1 }')
for preset in reinforce rloo reinforce++ ppo grpo dr-grpo dapo bnpo gspo gmpo cispo sapo k1.5 k2 deepseek-v3.2 art; do
    if grep -qxF -- "$preset" <<<"$presets"; then pass; else fail "preset $preset is in --all"; fi
done
for preset in $presets; do
    says "explain $preset" '^  source ' rein explain "$preset"
    narrow "explain $preset"
    says "explain $preset --json" '"kl_bias": \[' rein explain "$preset" --json
done
for loss in dpo cdpo robust hinge ipo_mean ipo_sum simpo cpo orpo kto; do
    says "explain $loss" '^  beta  ' rein explain "$loss"
    narrow "explain $loss"
    says "explain $loss --json" "^\{\"loss\": \"$loss\".*\"options\": \{\"beta\": " rein explain "$loss" --json
done
says "explain robust" '^  label_smoothing  *required ' rein explain robust
says "an option" '^kl_loss_coef: ' rein explain kl-loss-coef
says "an option: its presets" '^  presets   .*grpo 0.04' rein explain kl_loss_coef
says "an option: its choices" 'dapo clip, bnpo clip' rein explain surrogate
says "an option: the exact KL" '^    variance of the sampled token, which k1, k2 and k3 have' rein explain kl_estimator
says "an option: a KL in the reward" '^  k1 detached, in the reward$' rein explain kl-reward-coef
says "a setting" '^  written   --learning-rate X$' rein explain learning-rate
says "a setting: who takes it" '^  taken by  rein run, rein eval$' rein explain max-tokens
says "a setting: who refuses it" '^  taken by  rein run, rein serve, rein train$' rein explain critic
says "a switch that is on: how to turn it off" '--whiten-advantages=no' rein explain whiten_advantages
if grep -q nan <<<"$(rein explain beta)"; then fail "a constant of a loss has no number in a preset"; else pass; fi
for command in sft dpo reward distill; do
    if grep -Eq -- '--(critic|epochs|kl-target|surrogate|preset) ' <<<"$(rein "$command" --help)"; then fail "$command: its help shows what it refuses"; else pass; fi
done
says "distill: its help" '^  --teacher DIR' rein distill --help
says "dpo: its help" '^  --kl-ref-adapter-path DIR' rein dpo --help
says "symbols" '^  ρ  ' rein explain symbols
narrow "explain symbols"
for option in $(rein completion fish | sed -nE "s/.*__fish_seen_subcommand_from run.* -l ([a-z0-9-]+) .*/\1/p" | grep -vE '^(help|json|config|fork|trust|dry-run|accept-changed)$'); do
    name=$option
    if [ "$option" = preference-loss ]; then name=preference_loss; fi # with a dash it is the operation
    says "explain $name" "^${option//-/_}: " rein explain "$name"
    narrow "explain $name"
    says "explain $name --json" "^\{\"option\": \"${option//-/_}\", " rein explain "$name" --json
done
says "required" '^  tau  *required' rein explain k2
says "required" '"required": \["token_budget", "budget_penalty_coef", "tau"\]' rein explain k2 --json
says "published" '^  epsilon_high  *0.28 ' rein explain dapo
says "KL row" 'forward KL' rein explain grpo
says "gpo's directions" 'current_over_ref.*χ²' rein explain gpo
says "--all --json" '^\[\{"preset": ' rein explain --all --json

rein help --man >"$work/rein.1"
if grep -q '^\.TH REIN 1' "$work/rein.1"; then pass; else fail "man page"; fi
if command -v mandoc >/dev/null; then
    if mandoc -T lint -W warning "$work/rein.1" >"$work/out" 2>&1; then pass; else fail "mandoc" "$(head -5 "$work/out")"; fi
elif command -v man >/dev/null; then
    if LC_ALL=C.UTF-8 man --warnings -l "$work/rein.1" 2>"$work/err" >/dev/null && [ ! -s "$work/err" ]; then pass; else fail "man --warnings" "$(head -5 "$work/err")"; fi
fi

completes objective rein obj
completes --version rein --v
completes budget-loss rein objective bud
completes --grad rein objective gpo --g
completes deepseek-v3.2 rein explain deep
completes fish rein completion f
for shell in zsh fish; do
    says "completion $shell" 'budget-loss' rein completion "$shell"
    if command -v "$shell" >/dev/null; then
        if "$shell" -n "$work/out" 2>"$work/err"; then pass; else fail "completion $shell parses" "$(cat "$work/err")"; fi
    fi
done

# the page says what each metric of policy-loss is called in a run
page=$(dirname "$0")/../../docs/json.md
echo '{"preset": "grpo", "log_probs": [-1, -2], "old_log_probs": [-1, -2], "ref_log_probs": [-1, -2], "entropies": [1, 1],
  "sequence_lengths": [1, 1], "rewards": [1, 0]}' | rein objective policy-loss >"$work/out"
for name in $(grep -o '"metrics": {[^}]*}' "$work/out" | grep -oE '"[a-z_0-9/]+":' | tr -d '":' | grep -vx metrics); do
    if sed -n '/^### The names of the metrics/,/^A preset/p' "$page" | grep -qF "\`$name\`"; then pass; else fail "docs/json.md has no \`$name\`"; fi
done

finish
