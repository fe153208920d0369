#!/bin/bash
# run_train.sh REIN: train and sft from outside. A run that was stopped, by whatever, and resumed has the files of one that was not; a mistake
# is reported before anything is written. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
stories=$here/../../../shared/models/stories260K
parrot=$work/parrot
python3 "$here/parrot.py" "$parrot" || fail "parrot.py"
cd "$work" || exit 1

# value RUN STEP NAME: a metric of history.jsonl
value() { python3 -c 'import json, sys; print(next(r[sys.argv[3]] for r in map(json.loads, open(sys.argv[1] + "/history.jsonl")) if r["step"] == int(sys.argv[2])))' "$@"; }
# true_of TITLE EXPRESSION: in Python
true_of() { if python3 -c "import sys; sys.exit(not ($2))"; then pass; else fail "$1" "$2"; fi; }

python3 - <<'PYTHON'
import json
def line(**fields):
    return json.dumps(fields) + "\n"
def trajectory(response, reward, **more):
    return {"prompt_ids": [259, 120, 10], "response_ids": [ord(c) for c in response], "reward": reward, **more}
with open("groups.jsonl", "w") as f:
    f.write(line(trajectories=[trajectory("Hi", 1.0), trajectory("Ho", 0.0)]))
    f.write(line(trajectories=[trajectory("abc", 0.5), trajectory("abd", 1.0), trajectory("x", 0.0)]))
open("equal.jsonl", "w").write(line(trajectories=[trajectory("Hi", 1.0), trajectory("Ho", 1.0)]))
open("messages.jsonl", "w").write(line(trajectories=[{"reward": r, "messages_and_choices": [{"role": "user", "content": "x"}, {
    "finish_reason": "stop", "index": 0, "logprobs": None, "message": {"role": "assistant", "content": c}}]} for c, r in (("Hi", 1), ("Ho", 0))]))
open("long.jsonl", "w").write(line(trajectories=[trajectory("x" * 70, 1.0)]))
open("beyond.jsonl", "w").write(line(trajectories=[{**trajectory("x", 1.0), "response_ids": [300]}]))
open("cut.jsonl", "w").write('{"trajectories": [')
with open("chats.jsonl", "w") as f:
    for i in range(10):
        f.write(line(messages=[{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": "ja"}]))
with open("texts.jsonl", "w") as f:
    for i in range(10):
        f.write(line(prompt=f"{i}", completion=" nein"))
open("ids.jsonl", "w").write("\n" + line(prompt_ids=[1, 2], response_ids=[3, 4]) * 3)
open("empty.jsonl", "w").write("\n \n")
open("far.jsonl", "w").write(line(prompt="a", completion="b") + line(prompt="a", completion="b" * 80))
open("foreign.jsonl", "w").write(line(prompt_ids=[1, 2], response_ids=[3]) + line(prompt_ids=[1, 2], response_ids=[99999]))
open("bad.jsonl", "w").write(line(prompt="a", completion="b") + line(prompt="a", completion=5))
PYTHON

new=(--model "$parrot" --groups groups.jsonl --learning-rate 0.01)
head=(--lora-modules lm_head) # the parrot's layers are 0, and what is added to them has no gradient

# ----------------------------------------------------------------------------------------------------------------------- train

does "train" rein train one "${new[@]}" "${head[@]}" --preset grpo
has "train: the table" out '^step         1$'
has "train: the checkpoint" out '^checkpoint   one/checkpoints/0001$'
has "train: missing log-probs are reported" err 'warning: .*log-prob'
does "train again, from elsewhere" bash -c 'mkdir -p there && cd there && rein train ../one --groups ../groups.jsonl --json'
has "train again" out '^\{"step": 2, "nothing_to_train": false, "checkpoint": "../one/checkpoints/0002", "metrics": \{"reward": 0.5'
has "the settings stay" one/config.yaml '^preset: "grpo"'
does "the same again" rein train two "${new[@]}" "${head[@]}" --preset grpo --threads 1
does "the same again" rein train two --groups groups.jsonl --threads 2
equal "train twice: one answer" one two 0002
# the format of the messages belongs to the run: a second step reads them as the first did
chats=(--groups messages.jsonl "${head[@]}" --preset grpo)
does "a chat format" rein train raw --model "$parrot" "${chats[@]}" --chat-format raw
has "a chat format is kept" raw/config.yaml '^chat_format: "raw"'
does "a chat format, the next step" rein train raw --groups messages.jsonl
true_of "a chat format, the next step" 'open("raw/trajectories/train/0001.jsonl").read().split("response_ids")[0] == open("raw/trajectories/train/0002.jsonl").read().split("response_ids")[0]'
refused "an unknown chat format" '^rein train: --chat-format is "chatlm": raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 is needed$' rein train none --model "$parrot" "${chats[@]}" --chat-format chatlm

REIN_KERNEL=ref does "without vector instructions" rein train scalar "${new[@]}" "${head[@]}" --preset grpo
REIN_KERNEL=ref does "without vector instructions" rein train scalar --groups groups.jsonl
equal "without vector instructions: one answer" one scalar 0002
if cmp -s one/checkpoints/0001/adapter_model.safetensors one/checkpoints/0002/adapter_model.safetensors; then fail "train: the policy is as it was"; else pass; fi
does "other settings" rein train two --groups groups.jsonl --learning-rate 0.5 --keep-last 1
has "other settings are kept" two/config.yaml '^learning_rate: "0.5"'
absent "retention" two/checkpoints/0001 two/checkpoints/0002
if [ -d two/checkpoints/0000 ] && [ -d two/checkpoints/0003 ]; then pass; else fail "retention keeps the first and the last"; fi
does "messages" rein train chat --model "$parrot" --groups messages.jsonl --preset grpo
does "messages in a format" rein train raw --model "$parrot" --groups messages.jsonl --preset grpo --chat-format raw
does "all weights" rein train full "${new[@]}" --preset grpo --full
does "ART's names" rein train art "${new[@]}" --scale-rewards true --importance-sampling-level sequence --surrogate clip --epsilon 0.2 --epsilon-high=0.3 --advantage-balance 0.1
has "ART's names" art/config.yaml '^ratio: "sequence"'
does "keep_best waits" rein train best "${new[@]}" --preset grpo --keep-best budget/share_over
has "keep_best waits" err '^rein train: note: keep_best is "budget/share_over": no step that was saved has that metric yet'
does "a reference" rein train one --groups groups.jsonl --kl-penalty-coef 0.1 --kl-penalty-reference-step 1
has "a reference" out '^kl  '
does "nothing to learn" rein train equal --model "$parrot" --groups equal.jsonl --preset grpo
has "nothing to learn" out '^step         1, nothing to train$'
has "nothing to learn" err '^rein train: nothing to train: '
if grep -q '^speed' out; then fail "nothing to learn: no speed"; else pass; fi
has "nothing to learn" err 'warning: .*all rewards are equal'
if cmp -s equal/checkpoints/0000/adapter_model.safetensors equal/checkpoints/0001/adapter_model.safetensors; then pass; else fail "nothing to learn: the policy changed"; fi
does "no objective" rein train plain "${new[@]}"
has "no objective is reported" err 'note: no preset'

printf 'preset: dapo\nlearning_rate: 0.001\nlora_modules: [q_proj, v_proj]\nlora_rank: 2\n' >c.yaml
does "a config" rein train config --model "$parrot" --groups groups.jsonl --config c.yaml --lora-rank 3 --preset=grpo
has "a config: the list" config/config.yaml '^lora_modules: "q_proj,v_proj"'
has "a config: the command line takes precedence" config/config.yaml '^lora_rank: "3"'
has "a config: its preset is replaced" config/config.yaml '^preset: "grpo"'
has "a config: the rest stays" config/config.yaml '^learning_rate: "0.001'

does "dry run" rein train dry "${new[@]}" --preset grpo --dry-run
has "dry run" out '^Nothing was written.$'
has "dry run" out '^run          dry, new$'
has "dry run" out '^tokens  .* of which 11 train$'
absent "dry run" dry
does "dry run as JSON" rein train dry "${new[@]}" --preset grpo --dry-run --json
has "dry run as JSON" out '^\{"dry_run": true, "new_run": true, "groups": 2, "trajectories": 5'
cp -r one before
does "dry run of a run" rein train one --groups groups.jsonl --dry-run --learning-rate 1
has "dry run of a run" out '^run          one, resumes$'
if diff -r one before >different; then pass; else fail "a dry run wrote" "$(head -3 different)"; fi

# ---------------------------------------------------------------------------------------------- mistakes, before anything is written

wrong() { # wrong TITLE PATTERN ARGUMENT…: of a new run
    local title=$1 pattern=$2
    shift 2
    refused "$title" "^rein train: $pattern" rein train none "$@"
    absent "$title" none
}
REIN_KERNEL=sse refused "kernel" '^rein train: the environment variable REIN_KERNEL is "sse"' rein train three "${new[@]}"
refused "no run" '^rein train: a run is needed: rein train RUN' rein train
wrong "no model" 'model is missing: a new run needs the directory of a model' --groups groups.jsonl
wrong "no groups" 'trajectory groups are needed' --model "$parrot"
wrong "no such model" '--model is "nowhere", which is not a directory: a local directory with' --model nowhere --groups groups.jsonl
wrong "no such groups" 'nowhere: cannot be opened' --model "$parrot" --groups nowhere
wrong "groups cut short" 'cut.jsonl: line 1' --model "$parrot" --groups cut.jsonl
wrong "too long" 'long.jsonl: groups.0..trajectories.0..* has 73 tokens: the model has 64 positions' --model "$parrot" --groups long.jsonl
wrong "beyond the vocabulary" 'beyond.jsonl: .* is 300: the model.s tokens are 0 to 259' --model "$parrot" --groups beyond.jsonl
wrong "misspelt" 'unknown option --lora-rnk: did you mean --lora-rank' "${new[@]}" --lora-rnk 8
wrong "misspelt option of the objective" 'unknown option --kl-los-coef: did you mean --kl-loss-coef' "${new[@]}" --kl-los-coef 8
wrong "no number" '--lora-rank is "x": ' "${new[@]}" --lora-rank x
wrong "out of range" '--lora-rank is 0: ' "${new[@]}" --lora-rank 0
wrong "no value" '--lora-rank needs a value' "${new[@]}" --lora-rank
wrong "twice" '--seed is given twice' "${new[@]}" --seed 1 --seed=1
wrong "yes or no" '--full is "maybe"' "${new[@]}" --full=maybe
wrong "contradiction" '--lora-rank has no effect with full' "${new[@]}" --full --lora-rank 4
wrong "no effect" '--epsilon has no effect: it needs' "${new[@]}" --epsilon 0.2
wrong "a reference without effect" '--kl-penalty-step-lag has no effect' "${new[@]}" --kl-penalty-step-lag 2
wrong "two references" '--kl-penalty-reference-step and kl_penalty_step_lag are two references' "${new[@]}" --kl-penalty-coef 1 --kl-penalty-step-lag 2 --kl-penalty-reference-step 0
wrong "no such step" '--kl-penalty-reference-step is 3: the run has no checkpoint' "${new[@]}" --kl-penalty-coef 1 --kl-penalty-reference-step 3
wrong "no such reference" '--kl-ref-adapter-path is "nowhere", which is not a directory' "${new[@]}" --kl-penalty-coef 1 --kl-ref-adapter-path nowhere
wrong "no such adapter" '--adapter is "nowhere", which is not a directory' "${new[@]}" --adapter nowhere
wrong "no adapter" '.*adapter_config.json' "${new[@]}" --adapter .
wrong "no such preset" '--preset "gropo" does not exist: did you mean grpo' "${new[@]}" --preset gropo
wrong "save_steps" '--save-steps has no effect here: one step is made' "${new[@]}" --save-steps 2
wrong "no such metric" '--keep-best names "rewrad": no step has such a metric' "${new[@]}" --keep-best rewrad
wrong "no such metric here" '--keep-best has no effect: there is no kl without a KL' "${new[@]}" --keep-best=-kl
wrong "no such module" '.*zap' "${new[@]}" --lora-modules zap
wrong "alias and original" '.*are the same option' "${new[@]}" --advantage group-mean --scale-rewards true
wrong "required" '.*budget_penalty_coef.* required' "${new[@]}" --shape budget --token-budget 3
wrong "what the data does not have" '.*baseline_rewards is missing' "${new[@]}" --advantage remax
wrong "more parts than groups" '--minibatches is 7: there are only 2 groups' "${new[@]}" --minibatches 7
wrong "schedule" '.*needs' "${new[@]}" --lr-scheduler-type linear
wrong "no such config" 'nowhere' "${new[@]}" --config nowhere
echo 'lora_rnk: 3' >bad.yaml
wrong "config, misspelt" 'bad.yaml: line 1: .*did you mean lora_rank' "${new[@]}" --config bad.yaml
echo 'epsilon: 0.3' >bad.yaml
wrong "config, then a preset" '--preset would overwrite' "${new[@]}" --config bad.yaml --preset grpo
refused "what made the policy" '^rein train: --lora-rank is "4", but the run was started with "8"' rein train one --groups groups.jsonl --lora-rank 4
refused "a file" '^rein train: c.yaml is a file' rein train c.yaml "${new[@]}"
refused "other files" '^rein train: there2 is not a run, and not empty' bash -c 'mkdir there2 && touch there2/x && rein train there2 --model parrot --groups groups.jsonl'
refused "where nothing can be written" '^rein train: ' rein train /proc/none "${new[@]}"
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod 500 closed
    refused "a read-only directory" '^rein train: closed/run' rein train closed/run "${new[@]}"
fi

# ------------------------------------------------------------------------------------------------------------------------- sft

sft=(--model "$parrot" --learning-rate 0.05 "${head[@]}")
does "sft on chats" rein sft chats --data chats.jsonl "${sft[@]}" --batch-size 4 --num-train-epochs 6
has "sft: lines" err '^step 1/18  loss '
has "sft: lines" err '^step 18/18  loss '
has "sft: the table" out '^steps        18 of 18$'
true_of "sft: the loss falls" "$(value chats 18 loss) < 0.7 * $(value chats 1 loss)"
if [ "$(cd chats/checkpoints && echo *)" = "0000 0016 0017 0018" ]; then pass; else fail "sft keeps three checkpoints and the first" "$(ls chats/checkpoints)"; fi
does "sft on texts" rein sft texts --data texts.jsonl "${sft[@]}" --batch-size=100 --max-steps 1 --aggregation seq-mean-token-mean
does "what texts cost" rein sft nll --data texts.jsonl "${sft[@]}" --batch-size=100 --json
rein score --model "$parrot" <(sed 's/"completion": " nein"/"response": " nein<|end|>"/' texts.jsonl) >scores
true_of "the loss is the negative log-likelihood" "abs($(value nll 1 loss) + $(python3 -c 'import json; r = [json.loads(l) for l in open("scores")]; n = sum(sum(x is not None for x in s["logprobs"]) for s in r); print(sum(s["sum"] for s in r) / n)')) < 1e-6"
python3 -c 'import json; json.dump([json.loads(line) for line in open("texts.jsonl")], open("texts.json", "w"))'
does "sft on an array" rein sft array --data texts.json "${sft[@]}" --batch-size=100 --max-steps 1 --aggregation seq-mean-token-mean
if cmp -s {texts,array}/checkpoints/0001/adapter_model.safetensors; then pass; else fail "sft on an array"; fi
printf 'prompt,completion\na,b\n' >texts.csv
refused "sft on CSV" '/texts.csv is CSV: JSON lines are needed: .*read_csv.".*(texts|FILE).csv".*to_json.".*(texts|FILE).jsonl"' rein sft csv --data texts.csv "${sft[@]}"
does "sft on ids" rein sft ids --data ids.jsonl --model "$parrot" --full --keep-last 0
does "sft, linear" rein sft linear --data chats.jsonl "${sft[@]}" --batch-size 4 --lr-scheduler-type linear --num-train-epochs 2
has "sft knows its steps" linear/config.yaml '^total_steps: "6"'
true_of "sft, linear" "0 < $(value linear 6 learning_rate) < $(value linear 1 learning_rate)"

does "sft, a part" rein sft parts --data chats.jsonl "${sft[@]}" --batch-size 4 --num-train-epochs 6 --max-steps 5
does "sft, the rest" bash -c 'cd there && rein sft ../parts --num-train-epochs 6'
has "sft, the rest" err '^rein sft: resuming after step 5 of 18$'
equal "resumed is uninterrupted" chats parts 0018
does "sft, nothing left" rein sft parts
has "sft, nothing left" err '^rein sft: nothing to do: parts has made its 18 steps'

# Steps of a run being made, until a checkpoint is there: wait_for RUN STEP
wait_for() { for _ in $(seq 600); do if [ -d "$1/checkpoints/$2" ]; then return; fi; sleep 0.1; done; }
rein sft killed --data chats.jsonl "${sft[@]}" --batch-size 4 --num-train-epochs 40 --keep-last 0 >/dev/null 2>&1 &
wait_for killed 0003
refused "a run being written" "being written by process $!" rein sft killed
refused "a run being written" "being written by process $!" rein train killed --groups groups.jsonl
kill -9 $!
wait $! 2>/dev/null
does "after kill -9" rein sft killed --num-train-epochs 6 --keep-last 0
[ -d killed/checkpoints/0018 ] || does "after kill -9" rein sft killed --num-train-epochs 40
equal "killed is uninterrupted" chats killed 0018

rein sft seldom --data chats.jsonl "${sft[@]}" --batch-size 4 --num-train-epochs 40 --keep-last 0 --save-steps 6 >/dev/null 2>&1 &
wait_for seldom 0006
kill -9 $!
wait $! 2>/dev/null
absent "a step between" seldom/checkpoints/0005
does "after kill -9, saved seldom" rein sft seldom --num-train-epochs 6
equal "killed between checkpoints is uninterrupted" chats seldom 0018

rein sft stopped --data chats.jsonl "${sft[@]}" --batch-size 4 --num-train-epochs 400 --keep-last 0 --save-steps 2 >out 2>err &
wait_for stopped 0002
kill -INT $!
status=0
wait $! || status=$?
if [ "$status" -eq 1 ]; then pass; else fail "Ctrl-C" "status $status"; fi
has "Ctrl-C" err '^rein sft: stopped after step [0-9]+ of 1200, which is saved; resume with rein sft stopped$'
last=$(sed -n 's/^rein sft: stopped after step \([0-9]*\) of.*/\1/p' err)
if [ -d "stopped/checkpoints/$(printf %04d "$last")" ]; then pass; else fail "Ctrl-C" "step $last is not saved"; fi

does "sft, dry run" rein sft none --data chats.jsonl "${sft[@]}" --batch-size 4 --dry-run
has "sft, dry run" out '^steps        3, 3 an epoch$'
absent "sft, dry run" none
wrong_sft() { # of a new run
    local title=$1 pattern=$2
    shift 2
    refused "sft: $title" "^rein sft: $pattern" rein sft none "${sft[@]}" "$@"
    absent "sft: $title" none
}
wrong_sft "no data" 'data is needed: --data FILE'
wrong_sft "no such data" 'nowhere: cannot be opened' --data nowhere
wrong_sft "no example" '.*empty.jsonl has no example' --data empty.jsonl
wrong_sft "a bad line" '.*bad.jsonl: line 2: completion is 5' --data bad.jsonl
wrong_sft "too long" '.*far.jsonl: example 2 has 8[0-9] tokens: the model has 64 positions$' --data far.jsonl
wrong_sft "no such token" '.*foreign.jsonl: example 2: token 2 is 99999: the model.s tokens are 0 to [0-9]+$' --data foreign.jsonl
wrong_sft "groups" '.*groups.jsonl: line 1: one is needed: messages' --data groups.jsonl
wrong_sft "a preset" '--preset grpo has no effect here' --data chats.jsonl --preset grpo
wrong_sft "an objective" '--surrogate has no effect here: supervised' --data chats.jsonl --surrogate clip
wrong_sft "epochs" '--epochs has no effect here: --num-train-epochs' --data chats.jsonl --epochs 2
wrong_sft "minibatches" '--minibatches has no effect here: --batch-size' --data chats.jsonl --minibatches 2
wrong_sft "batch size" '--batch-size is "0": it must be a whole number between 1 and 1000000$' --data chats.jsonl --batch-size 0
wrong_sft "more warm-up than steps" '--warmup-steps is 9: it must be less than total_steps, 2' --data chats.jsonl --lr-scheduler-type linear --warmup-steps 9
wrong_sft "steps" '--max-steps is "0"' --data chats.jsonl --max-steps 0
refused "sft: another batch size" '^rein sft: --batch-size is 5, but the run was started with 4' rein sft parts --batch-size 5
refused "sft: other data" '^rein sft: .*ids.jsonl has 3 examples, but the run was started with 10' rein sft parts --data ids.jsonl
refused "sft: a run of another kind" '^rein sft: preset grpo has no effect here' rein sft two --data chats.jsonl

# ---------------------------------------------------------------------------------------------------------------- help and more

# ----------------------------------------------------------------------------------------------------------------------- forks

does "a fork" rein train branch --fork two@0 --groups groups.jsonl --learning-rate 0.01 --json
has "a fork counts from 0" out '^\{"step": 1, '
has "a fork has the settings of its trunk" branch/config.yaml '^preset: "grpo"'
has "a fork has settings of its own" branch/config.yaml '^learning_rate: "0.01'
if cmp -s branch/checkpoints/0001/adapter_model.safetensors one/checkpoints/0001/adapter_model.safetensors; then pass; else fail "a fork continues as its trunk did"; fi
does "a fork resumes" rein train branch --groups groups.jsonl
has "a fork resumes" out '^step         2$'
says "a fork, looked at" '^forked from       /.*/two@0$' rein inspect branch
does "a fork, dry" rein train none --fork one@1 --groups groups.jsonl --kl-penalty-reference-step 0 --dry-run
has "a fork, dry" out '^run          none, forked$'
absent "a fork, dry" none
fork() { # fork TITLE PATTERN RUN ARGUMENT…: refused
    local title=$1 pattern=$2 run=$3
    shift 3
    refused "a fork: $title" "^rein train: $pattern" rein train "$run" --groups groups.jsonl "$@"
}
fork "no step" '--fork is "one": it must be a run and one of its steps, as in RUN@7$' none --fork one
fork "no number" '--fork is "one@x": ' none --fork one@x
fork "no run" 'nowhere is not a run: ' none --fork nowhere@1
fork "no such step" '.*/two has no checkpoint of step 7; it has 0, 3' none --fork two@7
fork "into a run" 'one is a run already: a fork needs a directory that is new or empty' one --fork two@0
fork "another policy" '--lora-rank is "3", but the run was started with "8": a fork keeps the policy' none --fork two@0 --lora-rank 3
fork "a step of another run" 'kl_penalty_reference_step is 1 in the run that is forked' none --fork one@1
absent "a fork" none

# ---------------------------------------------------------------------------------------------------------- a run, looked at

steps=$(wc -l <one/history.jsonl)
says "a run" "^steps             $steps\$" rein inspect one
for line in 'run               one' 'trains            an adapter' "checkpoints       $((steps + 1))" '  0000  good' "last good         $steps" \
    '  preset                    grpo' '  learning_rate             0.01' 'metrics           of the last step' '  reward                    0.5'; do
    if grep -qxF -- "$line" out; then pass; else fail "inspect, a run: $line" "$(cat out)"; fi
done
sed -i '/^ *model  *\//d' out # a path is as long as it is
narrow "a run"
does "a run as JSON" rein inspect one --json
true_of "a run as JSON" "(lambda r: r['steps'] == $steps and r['settings']['preset'] == 'grpo' and r['last_good'] == $steps and r['metrics']['reward'] == 0.5 and r['checkpoints'][1] == {'step': 1, 'good': True, 'problem': None} and len(r['checkpoints']) == $steps + 1)(__import__('json').load(open('out')))"
says "a checkpoint" '^good              yes$' rein inspect one/checkpoints/0002
for line in 'checkpoint        one/checkpoints/0002' 'step              2' 'files             5' 'optimizer steps   2' 'kind              LoRA' 'modules           lm_head'; do
    if grep -qxF -- "$line" out; then pass; else fail "inspect, a checkpoint: $line" "$(cat out)"; fi
done
says "a checkpoint from inside" '^step              2$' bash -c 'cd one/checkpoints/0002 && rein inspect .'
says "a checkpoint of all weights" '^family            llama$' rein inspect full/checkpoints/0001
does "a checkpoint as JSON" rein inspect one/checkpoints/0002 --json
true_of "a checkpoint as JSON" "(lambda r: r['step'] == 2 and r['good'] is True and r['problem'] is None and r['state']['optimizer_steps'] == 2 and r['files']['state.json'] > 10 and r['rank'] == 8)(__import__('json').load(open('out')))"
says "as an adapter" '^fits ' rein inspect one/checkpoints/0002 --model "$parrot"
cp -r one spoilt
printf x >>spoilt/checkpoints/0002/optimizer.safetensors
says "a run with a bad checkpoint" '^  0002  not good: spoilt/checkpoints/0002/optimizer.safetensors has [0-9]+ bytes, and [0-9]+ were written$' rein inspect spoilt
says "a run with a bad checkpoint" "^last good         $steps\$" rein inspect spoilt
status=0
rein inspect spoilt/checkpoints/0002 >out 2>err || status=$?
if [ "$status" -eq 1 ]; then pass; else fail "a bad checkpoint" "status $status"; fi
has "a bad checkpoint" out '^good              no$'
has "a bad checkpoint" out '^problem           .*optimizer.safetensors has '
has "a bad checkpoint" err '^rein inspect: .*optimizer.safetensors has '
rm spoilt/checkpoints/0001/MANIFEST
true_of "a checkpoint without its MANIFEST" "$(rein inspect spoilt --json | python3 -c 'import json, sys; c = json.load(sys.stdin)["checkpoints"]; print([x["good"] for x in c][:3] == [True, False, False] and "MANIFEST" in c[1]["problem"])')"
mkdir none
refused "an empty directory" '^rein inspect: "none" is not one of these: ' rein inspect none
rmdir none

for command in train sft; do
    says "help of $command" "^Usage: rein $command RUN" rein "$command" --help
    narrow "help of $command"
    says "help of $command" '^Objective \(rein explain --all\):$' rein "$command" --help
    says "help of $command: a default" 'rank of the adapter \(default 8\)' rein "$command" --help
    completes --aggregation rein "$command" run --agg
done
completes --kl-loss-coef rein train run --kl
completes --importance-sampling-level rein train run --imp
if rein sft --help | grep -q kl-loss-coef; then fail "sft shows an option that it refuses"; else pass; fi
rein help --man >rein.1
has "the manual has the settings" rein.1 '^\.SH SETTINGS'

if [ -d "$stories" ]; then
    does "stories260K" rein sft story --model "$stories" --data texts.jsonl --learning-rate 0.003 --num-train-epochs 8 --batch-size 5
    true_of "stories260K: the loss falls" "$(value story 16 loss) < 0.5 * $(value story 1 loss)"
    rein generate --model "$stories" --prompt "One day" --samples 4 --max-tokens 20 --json >samples
    python3 -c 'import json; rows = [json.loads(l) for l in open("samples")]
print(json.dumps({"trajectories": [{"prompt_ids": r["prompt_ids"], "response_ids": r["response_ids"], "logprobs": r["logprobs"], "policy_step": 0, "reward": i} for i, r in enumerate(rows)]}))' >sampled.jsonl
    does "on policy" rein train on-policy --model "$stories" --groups sampled.jsonl --preset grpo
    has "on policy: no gap" out '^gap          0 between'
    ln -s "$stories" stories260K && cp texts.jsonl examples.jsonl
    for command in train sft; do # the examples, as they stand
        rein "$command" --help | sed '1,/^Example:$/d' >example
        rm -rf my-run
        does "example of $command" bash -eu example
    done
else
    echo "NOTE: $stories is absent: the tests on a real model did not run"
fi

finish
