#!/bin/bash
# run_runs.sh REIN: directories of runs from outside. Files of others stay; a run resumes with the files it was made with, wherever they are;
# commands of strangers do not run; a call that does nothing writes nothing. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
sums=$here/../../models/sums
cd "$work" || exit 1

# fails TITLE PATTERN COMMAND…: status 1, and one line on stderr that matches
fails() {
    local title=$1 pattern=$2 status=0
    shift 2
    "$@" >out 2>err </dev/null || status=$?
    if [ "$status" -ne 1 ]; then fail "$title" "status $status, not 1" "$(head -c 300 err)"; else has "$title" err "$pattern"; fi
}
# files RUN: every file of a run with its time and hash, but not the lock
files() { (cd "$1" && find . -type f ! -name .lock -printf '%p %T@ ' -exec md5sum {} \; | sort); }
# still TITLE RUN COMMAND…: the command does not change the run
still() {
    local title=$1 run=$2
    shift 2
    files "$run" >before
    does "$title" "$@"
    files "$run" >after
    if cmp -s before after; then pass; else fail "$title: something was written" "$(diff before after | head -4)"; fi
}

mkdir fresh && cp "$sums"/{tokenizer,tokenizer_config}.json fresh
cat >fresh/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false, "eos_token_id": 0, "initializer_range": 0.2}
JSON
does "a model" rein init fresh
for i in $(seq 20); do echo "{\"prompt\": \"Q$i:\", \"answer\": \"$i\"}"; done >prompts.jsonl
for i in $(seq 6); do echo "{\"prompt\": \"Q$i:\", \"completion\": \"$i\"}"; done >data.jsonl
small=(--model fresh --task prompts.jsonl --reward 'regex:[0-2]' --prompts 2 --samples 2 --max-tokens 6 --eval-prompts 2 --held-out 0.3 --preset grpo)
tuned=(--model fresh --data data.jsonl --batch-size 2 --learning-rate 0.01)

# --------------------------------------------------------------------------------------------------------- directories of others

mkdir -p home/.ssh project/checkpoints/.git linked && echo key >home/.ssh/id && echo main >project/checkpoints/.git/HEAD && echo x >home/.bashrc
does "a run" rein run linked "${small[@]}" --steps 1
mv linked/checkpoints linked-checkpoints && ln -s ../home linked/checkpoints
refused "a linked directory" 'linked/checkpoints is a link: a run has its own directory checkpoints$' rein run linked --steps 2
refused "a directory of another project" 'project is not a run, and not empty' rein sft project "${tuned[@]}"
for file in home/.ssh/id home/.bashrc project/checkpoints/.git/HEAD; do if [ -s "$file" ]; then pass; else fail "$file is gone"; fi; done
does "a run" rein run inner "${small[@]}" --steps 1
mkdir -p outside
for name in trajectories trajectories/train trajectories/eval tensorboard; do
    rm -rf changed && cp -r inner changed && rm -rf "changed/$name" && ln -s "$work/outside" "changed/$name"
    echo x >outside/.0007.jsonl-1-0.tmp
    refused "a linked $name" "changed/$name is a link: a run has its own directory $name\$" rein run changed --steps 2
    if [ "$(ls -A outside)" = .0007.jsonl-1-0.tmp ]; then pass; else fail "a linked $name" "$(ls -A outside)"; fi
done
does "a run" rein run locked "${small[@]}" --steps 1
echo precious >precious && ln -sf ../precious locked/.lock
refused "a linked lock" 'locked/.lock: cannot be opened for writing' rein run locked --steps 2
has "a linked lock" precious '^precious$'

# A run that moves while it is written: the one that takes its name is left alone.
rein run live "${small[@]}" --steps 100000 --eval-steps 0 >/dev/null 2>live.err &
for _ in $(seq 600); do if [ -d live/checkpoints/0002 ]; then break; fi; sleep 0.05; done
mv live away
does "another run of its name" rein run live "${small[@]}" --steps 1 --eval-steps 0
status=0
wait $! || status=$?
if [ "$status" -eq 1 ]; then pass; else fail "moved" "status $status"; fi
has "moved" live.err 'live was moved or replaced while it was being written: nothing more is written; resume the run where it is now'
if [ "$(ls live/checkpoints)" = "$(printf '0000\n0001')" ]; then pass; else fail "moved" "$(ls live/checkpoints)"; fi
does "moved: it resumes" rein run away --steps 3 --eval-steps 0

# --------------------------------------------------------------------------------------------------------------- nothing to do

does "a run" rein run one "${small[@]}" --steps 3
does "inspect" rein inspect one/checkpoints/0003
has "inspect: the files" out '^made with +5 files$'
has "inspect: a file" out '^  task +[0-9]+ bytes with hash [0-9a-f]{16}$'
still "nothing to do" one rein run one
still "nothing to do, other settings" one rein run one --learning-rate 0.5 --max-tokens 3 --temperature 2
for setting in "--max-tokens 3" "--eval-prompts 3" "--stop x" "--eval-samples 2" "--reward length:3"; do
    # shellcheck disable=SC2086
    refused "an evaluation that means something else" "^rein run: ${setting%% *} is \".*\", but the evaluations of the run were made with" rein run one --steps 4 $setting
done
cp -r one meaning
does "an evaluation that means something else, accepted" rein run meaning --steps 4 --max-tokens 3 --accept-changed
still "nothing to do, fewer steps" one rein run one --steps 2
has "nothing to do" err '^rein run: nothing to do: one has made its 3 steps'
rm one/summary.json
does "an end that is missing" rein run one
if [ -s one/summary.json ]; then pass; else fail "an end that is missing is made"; fi
does "supervised" rein sft taught "${tuned[@]}"
still "supervised, nothing to do" taught rein sft taught --learning-rate 0.5
if [ taught/sft.json -nt taught/config.yaml ]; then fail "sft.json is written before config.yaml"; else pass; fi
cp -r one lost && rm -r lost/checkpoints/*
refused "no checkpoint" 'lost has a history and no checkpoint: put one of its checkpoints back' rein run lost --steps 4

# Supervised data are checked when the run starts, and not at the step that takes the bad example.
cp data.jsonl ptx.jsonl && python3 -c 'print("{\"prompt\": \"" + "1+" * 100 + "\", \"completion\": \"1\"}")' >>ptx.jsonl
refused "an example that is too long" 'ptx.jsonl: example 7 has 20[0-9] tokens: the model has 64 positions$' rein run mixed "${small[@]}" --ptx-data ptx.jsonl --ptx-coef 0.1 --steps 1
absent "an example that is too long" mixed

# ------------------------------------------------------------------------------------------------------- other files, and moved ones

cp -r fresh other && printf '\1' | dd of=other/model.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null
mv fresh kept && mv other fresh
refused "other weights" '^rein run: model is not what the run was made with: .*/fresh/model.safetensors was [0-9]+ bytes with hash [0-9a-f]{16}, and is ' rein run one --steps 4
refused "other weights, eval" '^rein eval: model is not what the run was made with: ' rein eval one
refused "other weights, against" '^rein eval: model is not what the run was made with: ' rein eval one --against one@1
refused "other weights, sft" '^rein sft: model is not what the run was made with: ' rein sft taught --num-train-epochs 2
refused "other weights, checked" '^rein sft: model is not what the run was made with: ' rein sft taught --num-train-epochs 2 --dry-run
does "other weights, eval, accepted" rein eval one --accept-changed
cp -r one two
does "other weights, accepted" rein run two --steps 4 --accept-changed
does "other weights, recorded" rein run two --steps 5
mv fresh other && mv kept elsewhere
refused "gone" '/fresh", which is not a directory' rein run one --steps 4
does "moved" rein run one --steps 4 --model elsewhere
has "moved" one/config.yaml '/elsewhere"$'
does "moved, and stays there" rein run one --steps 5

# A finished run moves too, and stores nothing else.
mv elsewhere third
refused "a finished run, gone" '/elsewhere, the model of one, is not there: rein run one --model NEWPLACE relocates it$' rein generate --model one --prompt Q1
cp one/config.yaml before.yaml
does "a finished run, moved" rein run one --model third --learning-rate 0.5
has "a finished run, moved" err '^rein run: note: model moved to .*/third$'
has "a finished run, moved" err '^rein run: one has made its 5 steps'
if diff <(grep -v ^model: before.yaml) <(grep -v ^model: one/config.yaml) >/dev/null; then pass; else fail "a finished run, moved: other settings stay"; fi
does "a finished run, moved: generate" rein generate --model one --prompt Q1 --max-tokens 2
still "a finished run, moved twice" one rein run one --model third
refused "a finished run, another model" '^rein run: --model is not what the run was made with: ' rein run one --model other
does "a finished run, moved back" bash -c 'mv third elsewhere && rein run one --model elsewhere'
refused "another model" '^rein run: --model is not what the run was made with: ' rein run one --steps 6 --model other
mkdir place && mv prompts.jsonl place/moved.jsonl
does "a task that moved" rein run one --steps 6 --task place/moved.jsonl
sed 's/Q1/Z1/' place/moved.jsonl >place/changed.jsonl
refused "another task" '^rein run: --task is not what the run was made with: ' rein run one --steps 7 --task place/changed.jsonl
mv data.jsonl place
does "data that moved" rein sft taught --num-train-epochs 2 --data place/data.jsonl --model elsewhere
sed -i 's/Q1/Z1/' place/data.jsonl
refused "other data" '^rein sft: data is not what the run was made with: ' rein sft taught --num-train-epochs 3
does "other data, accepted" rein sft taught --num-train-epochs 3 --accept-changed
refused "nothing to accept" '^rein run: --accept-changed has no effect: the run is new' rein run new "${small[@]}" --accept-changed
refused "nothing to trust" '^rein eval: --trust has no effect: there is no run' rein eval --model elsewhere --task sums --trust
mv elsewhere fresh && mv place/moved.jsonl prompts.jsonl

# -------------------------------------------------------------------------------------------------------------------- commands

mkdir judges
printf 'import sys\nfor line in sys.stdin: print(\x27{"reward": 1}\x27, flush=True)\n' >judges/judge.py
does "a program" bash -c 'cd judges && rein run ../judged --model ../fresh --task ../prompts.jsonl --reward "python3 judge.py" --prompts 2 --samples 2 --max-tokens 6 --eval-prompts 2 --held-out 0.3 --preset grpo --steps 1'
does "a program, from elsewhere" bash -c "cd / && rein run '$work/judged' --steps 2"
does "a program, eval from elsewhere" bash -c "cd / && rein eval '$work/judged'"
mkdir -p place judges2 && cp prompts.jsonl place && cp judges/judge.py judges2
does "a program, and a task that moved" rein run judged --steps 3 --task place/prompts.jsonl
does "a program that moved" rein run judged --steps 4 --working-directory judges2
mv judges2 judges3
refused "a program whose directory is gone" 'cannot be started in .*/judges2, which is not a directory: --working-directory DIR gives another' rein run judged --steps 5
does "a finished run with a program, moved" rein run judged --steps 4 --working-directory judges3
has "a finished run with a program, moved" judged/config.yaml '^working_directory: ".*/judges3"$'
mv judges3 judges2 && rein run judged --working-directory judges2 >/dev/null 2>&1
rm judges/judge.py
does "a program that moved, from elsewhere" bash -c "cd / && rein run '$work/judged' --steps 5"
refused "a missing working directory" '^rein run: --working-directory is "nowhere", which is not a directory$' rein run judged --steps 6 --working-directory nowhere
cp judges2/judge.py judges
cp -a judged strange && sed -i 's/^reward: .*/reward: "touch owned; cat"/' strange/config.yaml
for command in "run strange --steps 3" "eval strange" "run forked --fork strange@0" "train strange --groups judged/trajectories/train/0001.jsonl"; do
    # shellcheck disable=SC2086
    refused "a stranger's commands: $command" 'strange was not made here by this user, and it runs commands: touch owned; cat; look at its config.yaml, then --trust runs them$' rein $command
done
absent "a stranger's commands" owned judges/owned forked
cp -a judged copied
does "trusted, eval" rein eval copied --trust
does "trusted" rein run copied --steps 6 --trust
does "trusted, and stays so" rein run copied --steps 7

# A program that cannot be started is found before anything is written or sampled.
judge=(--model fresh --task prompts.jsonl --prompts 2 --samples 2 --max-tokens 6 --preset grpo --steps 1 --eval-prompts)
refused "no program" '^rein run: nofile.py: the program ended with exit status 127; the last line of its log: .*not found' rein run none "${judge[@]}" 2 --held-out 0.3 --reward ./nofile.py
absent "no program" none
touch plain.py
refused "a program that may not be executed" '^rein run: plain.py: the program ended with exit status 126; ' rein run none "${judge[@]}" 2 --held-out 0.3 --reward ./plain.py
refused "no script" "^rein run: nofile.sh: the program ended with exit status [0-9]+; " rein run none "${judge[@]}" 2 --held-out 0.3 --reward "sh nofile.sh"
absent "no script" none

# A command that failed at its first answer is the one of the run until another is given.
printf 'import sys\nsys.stdin.readline()\nsys.exit(3)\n' >judges/fails.py
does "a command" rein run failing "${judge[@]}" 0 --reward "python3 judges/judge.py"
fails "a command that fails" 'fails.py: .*ended with exit status 3' rein run failing --steps 2 --reward "python3 judges/fails.py"
fails "a command that fails again" 'fails.py: .*ended with exit status 3' rein run failing
refused "a command that fails: eval" '^rein eval: reward is not what the run was made with: it was "python3 judges/judge.py", and is "python3 judges/fails.py"; --accept-changed' rein eval failing --eval-prompts 2 --held-out 0.3
does "a command that works" rein run failing --reward "python3 judges/judge.py"

# ----------------------------------------------------------------------------------------------------------- the machine fails

fails "too many open files" 'Too many open files$' bash -c 'ulimit -n 5; exec rein run full --model fresh --task sums --preset grpo --steps 1'
finish
