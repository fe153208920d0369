#!/bin/sh
# run.sh DIRECTORY: a reward model is trained on pairs, a policy learns from it, and what a reader truly likes is measured beside it: without a KL
# penalty, with one, and with the mean of two reward models. Everything is made in DIRECTORY; finished parts are not made again, and what was
# interrupted resumes. It needs python3 and no network; on two cores it takes some minutes.
# STEPS is the number of steps of each policy (default 41), REIN the program (default: rein, or the one that `make` built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rein=${REIN:-rein}
[ -n "${REIN:-}" ] || command -v rein >/dev/null || rein=$here/../../build/rein
steps=${STEPS:-41}

fail() {
    echo "run.sh: $*" >&2
    exit 1
}
[ $# = 1 ] || fail "usage: run.sh DIRECTORY"
command -v "$rein" >/dev/null || fail "$rein is not there: make builds it, REIN=PATH names another one"
command -v python3 >/dev/null || fail "python3 is not installed: the reader and the table need it"
rein=$(command -v "$rein")
case $rein in /*) ;; *) rein=$PWD/$rein ;; esac
mkdir -p "$1"
cd "$1"
diary=$here/diary.py
reader="python3 $(printf %s "$diary" | sed 's/[^[:alnum:]_./-]/\\&/g') judge" # quoted for the shell

# A writer of diaries: the shipped model learns their lines.
if [ ! -e base/config.json ]; then
    python3 "$diary" write 3000 1 >lines.jsonl
    "$rein" sft writer --model "$here/../../models/sums" --data lines.jsonl --full --learning-rate 2e-3 --lr-scheduler-type cosine \
        --batch-size 32 --num-train-epochs 4 --save-steps 100
    "$rein" export writer --to base
fi

# Its lines in pairs, and two reward models of different pairs.
if [ ! -e pairs-held-out.jsonl ]; then
    "$rein" generate --model base --prompt 'mon: ' --samples 600 --max-tokens 110 --seed 5 --json >sampled.jsonl
    python3 "$diary" label sampled.jsonl a 1500 >pairs-a.jsonl
    python3 "$diary" label sampled.jsonl b 1500 >pairs-b.jsonl
    python3 "$diary" label sampled.jsonl held-out 200 >pairs-held-out.jsonl
fi
python3 "$diary" prompts 7 >days.jsonl
for model in a b; do
    "$rein" reward "judge-$model" --model base --full --data "pairs-$model.jsonl" --held-out pairs-held-out.jsonl \
        --seed "$([ $model = a ] && echo 1 || echo 2)" --learning-rate 1e-3 --batch-size 25 --num-train-epochs 3 --save-steps 100
done

# policy RUN WEIGHTS SETTING...: the last judge is the reader, with weight 0: it is measured and not learned from
policy() {
    run=$1 weights=$2
    shift 2
    "$rein" run "$run" --model base --full --task days.jsonl --eval-task days.jsonl "$@" --reward "$reader" --reward-weights "$weights" --preset grpo \
        --learning-rate 5e-4 --steps "$steps" --prompts 7 --samples 8 --max-tokens 110 --eval-steps 5 --eval-prompts 7 --eval-samples 8 \
        --save-steps 20
}
policy one-model 1,0 --reward model:judge-a --kl-loss-coef 0
policy with-kl 1,0 --reward model:judge-a --kl-loss-coef 0.3
policy two-models 0.5,0.5,0 --reward model:judge-a --reward model:judge-b --kl-loss-coef 0
python3 "$diary" table one-model with-kl two-models
