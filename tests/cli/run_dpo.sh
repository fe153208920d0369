#!/bin/bash
# run_dpo.sh REIN: training on pairs from outside. A run that stopped and resumed has the files of one that did not; threads change nothing; a
# mistake in the options or anywhere in the data is reported before anything is written. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
cd "$work" || exit 1

# value RUN STEP NAME: a metric of history.jsonl
value() { python3 -c 'import json, sys; print(next(r[sys.argv[3]] for r in map(json.loads, open(sys.argv[1] + "/history.jsonl")) if r["step"] == int(sys.argv[2])))' "$@"; }
# true_of TITLE EXPRESSION: in Python
true_of() { if python3 -c "import sys; sys.exit(not ($2))"; then pass; else fail "$1" "$2"; fi; }
# same_policy TITLE RUN RUN STEP: the files that the next step depends on
same_policy() {
    for file in adapter_model.safetensors optimizer.safetensors; do
        if cmp -s "$2/checkpoints/$4/$file" "$3/checkpoints/$4/$file"; then pass; else fail "$1: $file"; fi
    done
}

python3 - <<'PYTHON'
import json
def write(name, *rows):
    open(name + ".jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows))
rows = [{"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(4) for b in range(5)]
write("pairs", *rows)
json.dump(rows, open("pairs.json", "w"))
write("implicit", *({"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + "x"} for row in rows))
write("explicit", *({**row, "rejected": "x"} for row in rows))
chat = lambda role, content: {"role": role, "content": content}
write("chats", *({"prompt": [chat("user", row["prompt"])], "chosen": [chat("assistant", row["chosen"])],
                  "rejected": [chat("assistant", row["rejected"])]} for row in rows))
write("whole_chats", *({side: [chat("user", row["prompt"]), chat("assistant", row[side])] for side in ("chosen", "rejected")} for row in rows))
good = rows[0]
write("equal", good, {**good, "rejected": good["chosen"]})
write("empty_answer", good, {**good, "chosen": ""})
write("empty_message", {"prompt": [chat("user", "1")], "chosen": [chat("assistant", "")], "rejected": [chat("assistant", "2")]})
write("nothing_left", {"chosen": "1+1=2", "rejected": "1+1=2 "}, good)
write("no_room", good, {**good, "prompt": "1" * 3000})
write("too_long", good, {**good, "chosen": "1" * 3000})
write("mixed", good, {**good, "rejected": [chat("assistant", "3")]})
write("missing", good, {"prompt": "1+1=", "chosen": "2"})
write("number", {**good, "chosen": 2})
write("nobody", {"prompt": [chat("user", "1")], "chosen": [chat("user", "2")], "rejected": [chat("assistant", "3")]})
label = lambda row, side: {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
write("labels", *(label(row, side) for row in rows for side in ("chosen", "rejected")))
write("label_chats", *({"prompt": [chat("user", row["prompt"])], "completion": [chat("assistant", row[side])], "label": side == "chosen"}
                       for row in rows for side in ("chosen", "rejected")))
write("two", label(rows[3], "chosen"), label(rows[9], "rejected"))
write("crossed", {"prompt": rows[3]["prompt"], "response": rows[9]["rejected"] + "<end>"}, {"prompt": rows[9]["prompt"], "response": rows[3]["chosen"] + "<end>"})
write("no_label", label(good, "chosen"), {"prompt": "1+1=", "completion": "2"})
write("one_label", *(label(row, "chosen") for row in rows))
write("empty_completion", label(good, "chosen"), {"prompt": "1+1=", "completion": "", "label": False})
open("blank.jsonl", "w").write("\n \n")
PYTHON
plain=(--model "$sums" --data pairs.jsonl)
new=(--model "$sums" --learning-rate 1e-3 --batch-size 6)

# ---------------------------------------------------------------------------------------------------------------------- a run
does "dpo" rein dpo one --data pairs.jsonl "${new[@]}" --num-train-epochs 3 --keep-last 0
has "lines" err '^step 1/12  loss 0.6931  accuracy 0.00  '
has "the table" out '^accuracy     [01]\.'
true_of "the policy begins at the reference" "abs($(value one 1 loss) - 0.6931471805599453) < 1e-12 and $(value one 1 rewards/margins) == 0"
true_of "the loss falls" "$(value one 12 loss) < 0.6 and $(value one 12 rewards/margins) > 0.2"
true_of "the reference is computed once" "$(value one 9 time/reference) < 0.5 * $(value one 1 time/reference)"
has "the loss is kept" one/dpo.json '"loss": "dpo"'
if grep -q '"ratio/mean"\|"loss/surrogate"' one/history.jsonl; then fail "metrics of the surrogate"; else pass; fi
has "trajectories" one/trajectories/train/0001.jsonl '"reward": 1.0.*"reward": 0.0\}\]\}$'

does "a part" rein dpo two --data pairs.jsonl "${new[@]}" --num-train-epochs 3 --keep-last 0 --max-steps 5 --threads 1
does "the rest" rein dpo two --num-train-epochs 3 --threads 3
has "the rest" err '^rein dpo: resuming after step 5 of 12$'
same_policy "resumed, other threads" one two 0012
does "nothing left" rein dpo two
has "nothing left" err '^rein dpo: nothing to do: two has made its 12 steps'
does "an array" rein dpo array --data pairs.json "${new[@]}" --max-steps 2 --keep-last 0
same_policy "an array" one array 0002
does "an implicit prompt" rein dpo implicit --data implicit.jsonl "${new[@]}" --max-steps 1
does "an explicit one" rein dpo explicit --data explicit.jsonl "${new[@]}" --max-steps 1
same_policy "an implicit prompt" implicit explicit 0001
does "chats" rein dpo chats --data chats.jsonl "${new[@]}" --max-steps 1 --chat-format chatml
does "whole chats" rein dpo whole --data whole_chats.jsonl "${new[@]}" --max-steps 1 --chat-format chatml
same_policy "the common messages are the prompt" chats whole 0001

for loss in cdpo robust hinge ipo_mean ipo_sum simpo cpo orpo; do
    extra=()
    if [ "$loss" = cdpo ] || [ "$loss" = robust ]; then extra=(--label-smoothing 0.1); fi
    does "$loss" rein dpo "$loss" "${plain[@]}" --loss "$loss" "${extra[@]}" --batch-size 20 --learning-rate 1e-3 --num-train-epochs 4
    true_of "$loss: the loss falls" "$(value "$loss" 4 loss) < $(value "$loss" 1 loss)"
    true_of "$loss: the margin grows" "$(value "$loss" 4 rewards/margins) > $(value "$loss" 1 rewards/margins)"
done
true_of "no reference is computed" "'time/reference' not in '$(head -1 simpo/history.jsonl)' or $(value simpo 1 time/reference 2>/dev/null || echo 0) == 0"

does "the best margin is kept" rein dpo best --data pairs.jsonl "${new[@]}" --max-steps 4 --keep-last 1 --keep-best rewards/margins
does "all weights" rein dpo full "${plain[@]}" --full --batch-size 20 --max-steps 2 --learning-rate 1e-5
true_of "all weights: the reference is the start" "abs($(value full 1 loss) - 0.6931471805599453) < 1e-9 and $(value full 2 loss) < 0.6931"
does "a reference of its own" rein dpo reference --data pairs.jsonl "${new[@]}" --max-steps 1 --kl-ref-adapter-path one/checkpoints/0012
true_of "a reference of its own" "abs($(value reference 1 loss) - 0.6931) > 0.01"
does "a step as reference" rein dpo lagged --data pairs.jsonl "${new[@]}" --max-steps 3 --kl-penalty-step-lag 1
true_of "a step as reference" "$(value lagged 3 rewards/margins) < $(value one 3 rewards/margins)"

# ----------------------------------------------------------------------------------------------------------- labelled completions
kto=("${new[@]}" --loss kto --data labels.jsonl --num-train-epochs 2 --keep-last 0)
does "kto" rein dpo kto "${kto[@]}"
true_of "kto begins at a half" "abs($(value kto 1 loss) - 0.5) < 1e-12 and $(value kto 1 kl) == 0"
true_of "kto: the loss falls" "$(value kto 14 loss) < 0.49 and $(value kto 13 rewards/margins) > 0.1"
if grep -q 'rewards/accuracies' kto/history.jsonl; then fail "accuracies of labels"; else pass; fi
does "kto, a part" rein dpo kto_part "${kto[@]}" --max-steps 4 --threads 1
does "kto, the rest" rein dpo kto_part --num-train-epochs 2 --threads 3
same_policy "kto, resumed" kto kto_part 0014
does "kto on chats" rein dpo kto_chats "${new[@]}" --loss kto --data label_chats.jsonl --chat-format chatml --max-steps 2
does "kto, weights" rein dpo kto_weights "${new[@]}" --loss kto --data labels.jsonl --max-steps 1 --desirable-weight 2 --undesirable-weight 0
desirable() { python3 -c 'import json, sys; print(sum(json.loads(line)["trajectories"][0]["reward"] > 0 for line in open(sys.argv[1])))' "$1"; }
true_of "kto, weights" "abs($(value kto_weights 1 loss) - $(desirable kto_weights/trajectories/train/0001.jsonl) / 6) < 1e-12"
# The KL of two examples: each prompt with the completion of the other, whatever their order.
does "kto, two examples" rein dpo kto_two --model "$sums" --loss kto --data two.jsonl --learning-rate 5e-2 --batch-size 2 --num-train-epochs 3 --keep-last 0
mean() { rein score --model "$1" crossed.jsonl | python3 -c 'import json, sys; print(sum(json.loads(line)["sum"] for line in sys.stdin) / 2)'; }
true_of "the KL is that of mismatched pairs" "abs($(value kto_two 3 kl) - max(0, $(mean kto_two@2) - $(mean "$sums"))) < 1e-4 and $(value kto_two 3 kl) > 0"
does "kto, steps of one" rein dpo kto_one --model "$sums" --loss kto --data two.jsonl --batch-size 1
has "kto, steps of one" err '^rein dpo: a step has one completion \(--batch-size 1\): its KL cannot be estimated and is 0$'
does "kto, a last step of one" rein dpo kto_last --model "$sums" --loss kto --data labels.jsonl --batch-size 39 --dry-run
has "kto, a last step of one" err 'the last step of an epoch has one completion'
has "kto, dry run" out '^desirable    20$'

# ------------------------------------------------------------------------------------------------------- before anything is written
does "dry run" rein dpo dry --data pairs.jsonl "${new[@]}" --dry-run
has "dry run" out '^pairs        20, the longest trains '
no() { # no TITLE PATTERN OPTION...: refused, and nothing was written
    local title=$1 pattern=$2
    shift 2
    refused "$title" "$pattern" rein dpo dry "${new[@]}" "$@"
    if [ -e dry ]; then fail "$title: something was written" && rm -rf dry; else pass; fi
}
no "equal answers" 'equal.jsonl: line 2: rejected is the same as chosen: a pair needs two different answers' --data equal.jsonl
no "an empty answer" 'empty_answer.jsonl: line 2: chosen is empty' --data empty_answer.jsonl
no "an empty message" 'empty_message.jsonl: line 1: chosen is empty' --data empty_message.jsonl --chat-format chatml
no "nothing after the common text" 'nothing_left.jsonl: line 1: chosen is empty after what both answers begin with' --data nothing_left.jsonl
no "no room" 'no_room.jsonl: line 2: prompt has [0-9]+ tokens and leaves no room for an answer: the model has [0-9]+ positions' --data no_room.jsonl
no "too long" 'too_long.jsonl: line 2: chosen has [0-9]+ tokens after a prompt of [0-9]+: together they are more than' --data too_long.jsonl
no "text and messages" 'mixed.jsonl: line 2: rejected is .*: a text is needed, as chosen is' --data mixed.jsonl
no "no rejected" 'missing.jsonl: line 2: rejected is missing' --data missing.jsonl
no "a number" 'number.jsonl: line 1: chosen is 2: a text or a list of messages is needed' --data number.jsonl
no "no assistant" 'nobody.jsonl: line 1: chosen: .*no turn of an assistant' --data nobody.jsonl --chat-format chatml
no "no label" 'no_label.jsonl: line 2: label is missing: true \(desirable\) or false \(undesirable\) is needed' --loss kto --data no_label.jsonl
no "one label" 'one_label.jsonl: every label is true: desirable and undesirable completions are needed' --loss kto --data one_label.jsonl
no "an empty completion" 'empty_completion.jsonl: line 2: completion is empty' --loss kto --data empty_completion.jsonl
no "pairs for kto" 'pairs.jsonl: line 1: completion is missing' --loss kto --data pairs.jsonl
no "a weight of pairs" 'desirable.weight has no effect with loss dpo' --data pairs.jsonl --desirable-weight 2
no "no pairs" 'blank.jsonl has no example: one JSON object a line is needed, \{"prompt": ..., "chosen"' --data blank.jsonl
no "no file" 'none.jsonl' --data none.jsonl
no "a metric of ratios" 'keep-best has no effect: there is no ratio/mean with a loss over pairs' --data pairs.jsonl --keep-best ratio/mean
no "a KL that dpo has not" 'keep-best has no effect: there is no kl with this loss over pairs' --data pairs.jsonl --keep-best kl
no "rewards of given pairs" 'keep-best has no effect: there is no reward where the pairs are given' --data pairs.jsonl --keep-best reward
no "accuracies of kto" 'keep-best has no effect: there is no rewards/accuracies with the loss kto' --loss kto --data labels.jsonl --keep-best rewards/accuracies
no "an unknown loss" '\-\-loss is "ppo": it is one of dpo, cdpo' --data pairs.jsonl --loss ppo
no "a constant of another loss" 'simpo.gamma has no effect with loss dpo' --data pairs.jsonl --simpo-gamma 1
no "a missing constant" 'label.smoothing is missing: loss robust needs it' --data pairs.jsonl --loss robust
no "beta 0" 'beta is 0: it must be above 0' --data pairs.jsonl --beta 0
no "a reference that does not act" 'kl-ref-adapter-path has no effect: loss simpo has no reference' --data pairs.jsonl --loss simpo --kl-ref-adapter-path one/checkpoints/0012
no "another objective" 'has no effect here: the objective is the loss over pairs' --data pairs.jsonl --preset grpo
no "an aggregation" 'aggregation has no effect here' --data pairs.jsonl --aggregation token-mean
no "epochs of a step" 'epochs has no effect here' --data pairs.jsonl --epochs 2
refused "another loss" '\-\-loss is hinge, but the run was started with dpo' rein dpo one --loss hinge
refused "another beta" '\-\-beta is 0.5, but the run was started with another value' rein dpo one --beta 0.5
finish
