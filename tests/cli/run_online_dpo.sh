#!/bin/bash
# run_online_dpo.sh REIN: preferences over the policy's own responses, from outside. It learns; a run that stopped and resumed, on other threads,
# has the files of one that did not; every loss; recorded groups; what has no effect is refused before anything is written. Ends with
# 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
cd "$work" || exit 1

# value RUN STEP NAME: a metric of history.jsonl
value() { python3 -c 'import json, sys; print(next(r[sys.argv[3]] for r in map(json.loads, open(sys.argv[1] + "/history.jsonl")) if r["step"] == int(sys.argv[2])))' "$@"; }
true_of() { if python3 -c "import sys; sys.exit(not ($2))"; then pass; else fail "$1" "$2"; fi; }
same_policy() { # same_policy TITLE RUN RUN STEP: the files that the next step depends on
    for file in adapter_model.safetensors optimizer.safetensors; do
        if cmp -s "$2/checkpoints/$4/$file" "$3/checkpoints/$4/$file"; then pass; else fail "$1: $file"; fi
    done
}

small=(--model "$sums" --task sums --prompts 12 --samples 4 --max-tokens 40 --learning-rate 2e-3 --seed 3 --keep-last 0)
online=("${small[@]}" --preset online-dpo --eval-prompts 40 --eval-steps 0)

does "online dpo" rein run one "${online[@]}" --steps 10
true_of "it begins at the reference" "abs($(value one 1 loss) - 0.6931471805599453) < 1e-12 and $(value one 1 rewards/margins) == 0"
true_of "it learns" "$(value one 10 eval/accuracy) > 0.45 and $(value one 10 accuracy) > 0.3 + $(value one 1 accuracy)"
true_of "pairs and ties" "$(value one 1 pairs) + $(value one 1 pairs/ties) == 12 and $(value one 1 pairs) > 2 and $(value one 1 pairs/ties) > 0"
true_of "ties are the groups of equal rewards" "abs($(value one 1 frac_reward_zero_std) - $(value one 1 pairs/ties) / 12) < 1e-12"
if grep -q '"ratio/mean"\|"loss/surrogate"\|"kl":' one/history.jsonl; then fail "metrics of the surrogate"; else pass; fi
if grep -q '"advantages"' one/trajectories/train/0001.jsonl; then fail "advantages"; else pass; fi
true_of "all responses are written" "$(grep -o '"reward"' one/trajectories/train/0001.jsonl | wc -l) == 48"
does "a part" rein run two "${online[@]}" --steps 4 --threads 1
does "the rest" rein run two --steps 10 --threads 3
same_policy "resumed, other threads" one two 0010
does "without an activation cache" rein run three "${online[@]}" --steps 2 --activation-cache 0
same_policy "without an activation cache" one three 0002

for loss in cdpo robust hinge ipo_mean ipo_sum simpo cpo orpo kto; do
    extra=()
    if [ "$loss" = cdpo ] || [ "$loss" = robust ]; then extra=(--label-smoothing 0.1); fi
    does "$loss" rein run "$loss" "${small[@]}" --preset online-dpo --preference-loss "$loss" "${extra[@]}" --steps 3 --eval-prompts 0
    true_of "$loss: the margin grows" "$(value "$loss" 3 rewards/margins) > $(value "$loss" 1 rewards/margins)"
done
true_of "simpo computes no reference" "$(value simpo 1 time/reference 2>/dev/null || echo 0) == 0"
true_of "kto has a KL" "$(value kto 1 kl) == 0 and $(value kto 2 kl) >= 0"
does "a step as reference" rein run lagged "${online[@]}" --steps 3 --kl-penalty-step-lag 1
true_of "a step as reference" "$(value lagged 3 logps/chosen) == $(value one 3 logps/chosen) and $(value lagged 3 rewards/margins) != $(value one 3 rewards/margins)"
does "a budget" rein run budget "${online[@]}" --steps 2 --shape budget --token-budget 30 --budget-penalty-coef 0.1
true_of "a budget breaks ties" "$(value budget 1 pairs) > $(value one 1 pairs) and $(value budget 1 budget/share_over) > 0"
does "sampling again" rein run again "${online[@]}" --steps 2 --dynamic-sampling 3
true_of "sampling again replaces ties" "$(value again 1 pairs) == 12 and $(value again 1 pairs/ties) == 0"
does "a truncated sampler" rein run nucleus "${online[@]}" --steps 2 --top-p 0.9
does "a truncated policy" rein run truncated "${online[@]}" --steps 2 --top-p 0.9 --truncation policy

# Recorded groups: the step of the run that recorded them, but for log-probs that were computed then.
does "recorded groups" rein train recorded --model "$sums" --groups one/trajectories/train/0001.jsonl --preset online-dpo --learning-rate 2e-3 --seed 3
same_policy "recorded groups" one recorded 0001
does "recorded groups, dry" rein train dry --model "$sums" --groups one/trajectories/train/0001.jsonl --preset online-dpo --dry-run
has "recorded groups, dry" out 'online-dpo'
python3 - <<'PYTHON'
import json
with open("ties.jsonl", "w") as ties:
    for line in open("one/trajectories/train/0001.jsonl"):
        group = json.loads(line)
        for trajectory in group["trajectories"]: trajectory["reward"] = 0.5
        ties.write(json.dumps(group) + "\n")
PYTHON
does "ties alone" rein train ties --model "$sums" --groups ties.jsonl --preset online-dpo
true_of "ties alone" "$(value ties 1 pairs) == 0 and $(value ties 1 pairs/ties) == 12 and $(value ties 1 grad_norm) == 0"

no() { # no TITLE PATTERN OPTION...: refused, and nothing was written
    local title=$1 pattern=$2
    shift 2
    refused "$title" "$pattern" rein run none "${small[@]}" "$@"
    if [ -e none ]; then fail "$title: something was written" && rm -rf none; else pass; fi
}
no "another objective" 'surrogate has no effect: preference_loss replaces the objective, of which only shape remains' --preset online-dpo --surrogate clip
no "a KL" 'kl-loss-coef has no effect: preference_loss' --preset online-dpo --kl-loss-coef 0.1
no "a constant of another loss" 'cpo-alpha has no effect: it needs preference_loss cpo' --preset online-dpo --cpo-alpha 1
no "a constant without a loss" 'beta has no effect: it needs a preference_loss' --preset rloo --beta 1
no "a missing constant" 'label_smoothing is required' --preset online-dpo --preference-loss cdpo
no "epochs" 'epochs must be 1 with preference_loss' --preset online-dpo --epochs 2
no "cut responses" 'mask-truncated-completions has no effect with preference_loss' --preset online-dpo --mask-truncated-completions
no "no reference" 'kl-penalty-step-lag has no effect: preference_loss simpo has no reference' --preset online-dpo --preference-loss simpo --kl-penalty-step-lag 1
no "a metric" 'there is no kl with preference_loss; eval/kl is measured' --preset online-dpo --stop-at 'kl>1'
refused "a loss of tokens" 'preference_loss is a loss over pairs, not over tokens' rein objective policy-loss <<<'{"preset": "online-dpo", "log_probs": [-1, -2], "old_log_probs": [-1, -2], "sequence_lengths": [1, 1], "rewards": [1, 0]}'
does "explain" rein explain online-dpo
has "explain" out 'rein run RUN --preset online-dpo --model DIR --task TASK'
finish
