#!/bin/sh
# run.sh DIR: a model of 60 thousand parameters learns to add from one of 340 thousand, the shipped model after reinforcement learning. Both have
# the vocabulary of models/sums. Everything is made in DIR; what is there is not made again.
# REIN is the program (default: rein, or the one that `make` built), STEPS the steps of each student (default: 500).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sums=$here/../../models/sums
steps=${STEPS:-500}
rein=${REIN:-rein}
[ -n "${REIN:-}" ] || command -v rein >/dev/null || rein=$here/../../build/rein

[ $# -eq 1 ] || {
    echo "usage: run.sh DIR" >&2
    exit 1
}
mkdir -p "$1"
cd "$1"

# The teacher: the shipped model, which is right about half of the time, after 40 steps of reinforcement learning.
[ -e teacher ] || {
    "$rein" run teach --model "$sums" --task sums --full --preset grpo --learning-rate 3e-4 --steps 40 --prompts 16 --max-tokens 96 \
        --eval-prompts 0
    "$rein" export teach --to teacher
}

# The student: random weights, then supervised training on demonstrations, of which two in five are wrong.
[ -e demonstrations.jsonl ] || "$rein" task sums --demonstrations --json --count 6000 >demonstrations.jsonl
[ -e student ] || {
    mkdir -p start
    cp "$here/student.json" start/config.json
    cp "$sums/tokenizer.json" "$sums/tokenizer_config.json" start
    "$rein" init start --seed 1
    "$rein" sft begin --model start --data demonstrations.jsonl --full --batch-size 32 --num-train-epochs 3 --learning-rate 4e-3 \
        --lr-scheduler-type cosine --warmup-steps 20 --save-steps 100
    "$rein" export begin --to student
}

# Four copies of the student train for the same number of steps, on the same number of examples.
common="--model student --data demonstrations.jsonl --full --batch-size 32 --max-steps $steps --learning-rate 4e-3
    --lr-scheduler-type cosine --warmup-steps 10 --save-steps 100"
# shellcheck disable=SC2086
{
    "$rein" sft more $common
    "$rein" distill given $common --teacher teacher --divergence forward
    "$rein" distill mixed $common --teacher teacher --divergence jsd --lambda 0.5 --max-new-tokens 96
    "$rein" distill own $common --teacher teacher --divergence reverse --lambda 1 --max-new-tokens 96
}

accuracy() { # accuracy MODEL
    "$rein" eval --model "$1" --task sums --eval-prompts 1000 --max-tokens 96 --seed 7 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
low, high = (100 * r[name] for name in ("accuracy_low", "accuracy_high"))
print("%5.1f %%  (%.1f to %.1f)  %5.1f" % (100 * r["accuracy"], low, high, r["mean_length"]))'
}
printf '%-44s %s\n' "" "correct, 95 %          mean length"
printf '%-44s %s\n' "teacher" "$(accuracy teacher)"
printf '%-44s %s\n' "student" "$(accuracy student)"
while read -r run name; do
    [ -e "$run-model" ] || "$rein" export "$run" --to "$run-model" >/dev/null 2>&1
    printf '%-44s %s\n' "$name" "$(accuracy "$run-model")"
done <<NAMES
more more demonstrations (rein sft)
given forward KL on demonstrations
mixed jsd, half of the steps on own samples
own reverse KL on own samples
NAMES
