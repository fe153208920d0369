#!/bin/bash
# run_reward.sh REIN: reward models from outside. A run that stopped and resumed has the files of one that did not; threads change nothing; what it
# wrote rewards the completions of another run; a mistake in the options or anywhere in the data is reported before anything is written.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
example=$(realpath "$(dirname "$0")/../../examples/overoptimization")
guess=$(realpath "$(dirname "$0")/../../examples/environments/guess.py")
cd "$work" || exit 1

# value RUN STEP NAME: a metric of history.jsonl
value() { python3 -c 'import json, sys; print(next(r[sys.argv[3]] for r in map(json.loads, open(sys.argv[1] + "/history.jsonl")) if r["step"] == int(sys.argv[2])))' "$@"; }
# true_of TITLE EXPRESSION: in Python
true_of() { if python3 -c "import sys; sys.exit(not ($2))"; then pass; else fail "$1" "$2"; fi; }
# same_policy TITLE RUN RUN STEP: the files that the next step depends on
same_policy() {
    for file in adapter_model.safetensors optimizer.safetensors reward_model.json; do
        if cmp -s "$2/checkpoints/$4/$file" "$3/checkpoints/$4/$file"; then pass; else fail "$1: $file"; fi
    done
}

python3 - <<'PYTHON'
import json
def write(name, *rows):
    open(name + ".jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows))
rows = [{"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(4) for b in range(5)]
write("pairs", *rows)
write("others", *({"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 1)} for a in range(5, 8) for b in range(4)))
write("implicit", *({"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]} for row in rows))
write("margins", *({**row, "margin": 3} for row in rows))
write("prompts", *({"prompt": row["prompt"], "answer": row["chosen"]} for row in rows))
chat = lambda role, content: {"role": role, "content": content}
write("chats", *({"prompt": [chat("user", row["prompt"])], "chosen": [chat("assistant", row["chosen"])],
                  "rejected": [chat("assistant", row["rejected"])]} for row in rows))
write("whole_chats", *({side: [chat("user", row["prompt"]), chat("assistant", row[side])] for side in ("chosen", "rejected")} for row in rows))
good = rows[0]
write("equal", good, {**good, "rejected": good["chosen"]})
write("same_ids", good, {**good, "rejected": good["chosen"] + "<end>"})
write("empty_answer", good, {**good, "chosen": ""})
write("no_room", good, {**good, "prompt": "1" * 3000})
write("too_long", good, {**good, "chosen": "1" * 3000})
write("missing", good, {"prompt": "1+1=", "chosen": "2"})
write("margin_text", good, {**good, "margin": "much"})
open("blank.jsonl", "w").write("\n \n")
PYTHON
new=(--model "$sums" --learning-rate 3e-3 --batch-size 6)

# ---------------------------------------------------------------------------------------------------------------------- a run
does "reward" rein reward one --data pairs.jsonl --held-out others.jsonl "${new[@]}" --num-train-epochs 4 --keep-last 0
has "lines" err '^step 1/16  loss 0\.[0-9]+  accuracy [01]\.'
has "the table" out '^held out     12 pairs: accuracy [01]\.[0-9]+, margin .*, loss .*, calibration error 0\.'
true_of "the loss falls" "$(value one 16 loss) < 0.5 * $(value one 1 loss) and $(value one 16 accuracy) == 1"
true_of "it generalises" "$(value one 16 eval/accuracy) > 0.7 and 0 <= $(value one 16 eval/calibration_error) < 0.5"
true_of "rewards" "$(value one 1 min_reward) <= $(value one 1 mean_reward) <= $(value one 1 max_reward)"
has "the plan is kept" one/reward.json '"held_out": ".*others.jsonl"'
has "the form is kept" one/checkpoints/0016/reward_model.json '"end_token_id": 0'
has "PEFT's config" one/checkpoints/0016/adapter_config.json '"task_type": "SEQ_CLS"'
if grep -q '"completions/\|"loss/surrogate"\|"kl/' one/history.jsonl; then fail "metrics of completions"; else pass; fi
does "watch" rein watch one --once
does "report" rein report one

does "a part" rein reward two --data pairs.jsonl "${new[@]}" --num-train-epochs 4 --keep-last 0 --max-steps 5 --threads 1
does "the rest" rein reward two --num-train-epochs 4 --threads 3
has "the rest" err '^rein reward: resuming after step 5 of 16$'
same_policy "resumed, other threads" one two 0016
does "nothing left" rein reward two
has "nothing left" err '^rein reward: nothing to do: two has made its 16 steps'
does "an implicit prompt" rein reward implicit --data implicit.jsonl "${new[@]}" --max-steps 2 --keep-last 0
same_policy "an implicit prompt" one implicit 0002
does "chats" rein reward chats --data chats.jsonl "${new[@]}" --max-steps 2 --chat-format raw
does "whole chats" rein reward whole --data whole_chats.jsonl "${new[@]}" --max-steps 2 --chat-format raw
same_policy "whole chats" chats whole 0002
has "the chat format is kept" chats/checkpoints/0002/reward_model.json '"chat_format": "raw"'
does "margins" rein reward margins --data margins.jsonl "${new[@]}" --max-steps 1
true_of "a margin raises the loss" "$(value margins 1 loss) > 2 + $(value one 1 loss)"
does "centring" rein reward centred --data pairs.jsonl "${new[@]}" --max-steps 1 --center-rewards-coefficient 1
true_of "centring raises the loss" "$(value centred 1 loss) > $(value one 1 loss) + 1e-3"
does "all weights" rein reward full --data pairs.jsonl --model "$sums" --full --batch-size 20 --max-steps 3 --learning-rate 1e-4
has "all weights" full/checkpoints/0003/config.json 'LlamaForSequenceClassification'
does "inspect" rein inspect full/checkpoints/0003
has "inspect" out '^head +a score: a reward model$'
does "a reward model continues" rein reward further --data pairs.jsonl --model full/checkpoints/0003 --batch-size 20 --max-steps 1 --learning-rate 1e-4
true_of "a reward model continues" "$(value further 1 loss) < $(value full 3 loss)"
does "export" rein export one --to exported
has "export" exported/config.json '"pad_token_id": 96'
has "what loads it" err "AutoModelForSequenceClassification.from_pretrained"
has "what it is for" err "rein run RUN --reward model:exported"
does "export all weights" rein export full --to exported-full
has "what loads them" err "AutoModelForSequenceClassification.from_pretrained"
refused "no GGUF" 'a model with a score head cannot be written as GGUF: a directory can have it' rein export full --to full.gguf

# ------------------------------------------------------------------------------------------------------------------ as a judge
task=(--model "$sums" --task prompts.jsonl --max-tokens 12)
does "a run" rein run policy "${task[@]}" --reward model:one --preset grpo --steps 2 --prompts 4 --samples 4 --eval-steps 0
has "its checkpoint is kept" policy/config.yaml 'reward: "model:/.*/one/checkpoints/0016"'
true_of "the name of the judge" "abs($(value policy 1 rewards/one/mean) - $(value policy 1 reward)) < 1e-12"
reward_of() { rein eval "${task[@]}" --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["reward"])'; }
one=$(reward_of --reward model:one) full=$(reward_of --reward model:full@3)
true_of "an ensemble is the mean" "abs($(reward_of --reward model:one --reward model:full --reward-weights 0.5,0.5) - ($one + $full) / 2) < 1e-9"
true_of "an exported model scores the same" "abs($(reward_of --reward model:exported) - $one) < 1e-4"
true_of "so do all weights, bit for bit" "$(reward_of --reward model:exported-full) == $full"
true_of "a chat is another text" "$(reward_of --reward model:chats --chat --chat-format raw) != $one"
memory_of() { rein run dry "${task[@]}" --preset grpo --prompts 4 --dry-run --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory_bytes"])'; }
true_of "its memory is counted" "$(memory_of --reward model:one) > $(memory_of --reward number) + 300000"
mkdir elsewhere
does "resumed elsewhere" bash -c "cd elsewhere && rein run ../policy --steps 3"
cp -r policy changed
cp full/checkpoints/0003/optimizer.safetensors one/checkpoints/0016/optimizer.safetensors
does "the optimizer does not count" rein run policy --steps 4
cp one/checkpoints/0001/adapter_model.safetensors one/checkpoints/0016/adapter_model.safetensors
refused "another reward model" 'reward is not what the run was made with: reward_model/0/adapter_model.safetensors was' rein run policy --steps 5

# The reader of examples/overoptimization: happy words count once, sad ones against, and pairs differ.
liking() { python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import diary; print(diary.liking(sys.argv[2]))' "$example" "$1"; }
true_of "a happy word" "$(liking 'a warm dog ran, a old cat sat.') == 1"
true_of "a happy word twice" "$(liking 'a warm dog ran, a warm cat sat.') == 0"
true_of "a sad word" "$(liking 'a warm dog ran, a grim cat sat, a cold man ate.') == -1"
does "its prompts" python3 "$example/diary.py" prompts 7
does "its lines" python3 "$example/diary.py" write 5 1
does "its script" sh -n "$example/run.sh"

# ------------------------------------------------------------------------------------------------------- before anything is written
does "dry run" rein reward dry --data pairs.jsonl --held-out others.jsonl "${new[@]}" --dry-run
has "dry run" out '^pairs        20$'
no() { # no TITLE PATTERN OPTION...: refused, and nothing was written
    local title=$1 pattern=$2
    shift 2
    refused "$title" "$pattern" rein reward dry "${new[@]}" "$@"
    if [ -e dry ]; then fail "$title: something was written" && rm -rf dry; else pass; fi
}
no "equal answers" 'equal.jsonl: line 2: rejected is the same as chosen: a pair needs two different answers' --data equal.jsonl
no "equal tokens" 'same_ids.jsonl: line 2: rejected has the same tokens as chosen' --data same_ids.jsonl
no "an empty answer" 'empty_answer.jsonl: line 2: chosen is empty' --data empty_answer.jsonl
no "no room" 'no_room.jsonl: line 2: prompt has [0-9]+ tokens and leaves no room for an answer: the model has 256 positions' --data no_room.jsonl
no "too long" 'too_long.jsonl: line 2: chosen has [0-9]+ tokens with its prompt: the model has 256 positions' --data too_long.jsonl
no "no rejected" 'missing.jsonl: line 2: rejected is missing' --data missing.jsonl
no "a margin that is no number" 'margin_text.jsonl: line 2: margin is "much": a number is needed' --data margin_text.jsonl
no "no chat format" 'chats.jsonl: line 1: chosen: .*template' --data chats.jsonl
no "no pairs" 'blank.jsonl has no example' --data blank.jsonl
no "no file" 'none.jsonl' --data none.jsonl
no "held-out pairs too" 'equal.jsonl: line 2: rejected is the same' --data pairs.jsonl --held-out equal.jsonl
no "another objective" 'has no effect here: the objective is the loss of a reward model' --data pairs.jsonl --preset grpo
no "a temperature" 'temperature has no effect here: a score has no temperature' --data pairs.jsonl --temperature 2
no "a reference" 'kl.ref.adapter.path has no effect' --data pairs.jsonl --kl-ref-adapter-path one/checkpoints/0001
no "the head" 'lora.modules names lm_head, which a reward model does not use' --data pairs.jsonl --lora-modules q_proj,lm_head
no "a negative coefficient" 'center-rewards-coefficient is .*-1' --data pairs.jsonl --center-rewards-coefficient -1
refused "another coefficient" 'was started with 0: changing it needs a new run' rein reward two --center-rewards-coefficient 1
refused "a policy's adapter" 'adapter has no score head' rein reward dry --data pairs.jsonl --model "$sums" --adapter policy/checkpoints/0000
refused "no reward model" 'has no tensor score.weight: a reward model has it' rein eval "${task[@]}" --reward "model:$sums"
refused "a policy" 'is an adapter of a language model' rein eval "${task[@]}" --reward model:policy
refused "a step that is not there" 'one has no step 99' rein eval "${task[@]}" --reward model:one@99
refused "a judge that is gone" 'gone does not exist: a run of rein reward, .* only the last keep_last checkpoints stay' \
    rein eval "${task[@]}" --reward model:gone
no "best of what is not measured" 'keep.best names "eval/kl": a reward model has loss, accuracy, margin' --data pairs.jsonl --keep-best eval/kl
no "a critic" 'critic has no effect here: pairs have no advantages' --data pairs.jsonl --critic same
does "best of held-out pairs" rein reward best --data pairs.jsonl --held-out others.jsonl "${new[@]}" --num-train-epochs 2 --keep-best -eval/loss
log_probs='it has scores and no log-probs'
for command in generate eval; do
    case $command in
    generate) more=(--prompt 1+1=) ;;
    eval) more=(--task prompts.jsonl --reward exact) ;;
    esac
    refused "a reward model does not write: $command" "adapter is that of a reward model .*$log_probs" rein "$command" --model "$sums" --adapter best/checkpoints/0008 "${more[@]}"
done
refused "a reward model is no policy" "adapter is that of a reward model .*$log_probs" rein run dry "${task[@]}" --reward exact --adapter best/checkpoints/0008
refused "a reward model is no reference" "kl.ref.adapter.path is the adapter of a reward model .*$log_probs" \
    rein run dry "${task[@]}" --reward exact --kl-loss-coef 0.1 --kl-ref-adapter-path best/checkpoints/0008
if [ -e dry ]; then fail "a reward model as a policy: something was written"; else pass; fi
refused "an environment" 'a reward model scores one answer to one prompt, and the task is an environment' rein eval --model "$sums" --task "env: python3 $guess" --reward model:full
refused "a reward model is no policy" 'is a reward model' rein generate --model full/checkpoints/0003 --prompt 1
finish
