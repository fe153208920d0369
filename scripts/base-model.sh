#!/bin/bash
# base-model.sh REIN [--check]: trains the shipped model, models/sums, from random weights: supervised training on the demonstrations of
# the task "sums". The result is the same bit for bit every time. --check compares it with the existing weights and changes nothing.
set -euo pipefail
rein=$1
check=${2:-}
model=models/sums
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/start"
cp $model/config.json $model/tokenizer.json $model/tokenizer_config.json "$work/start"
"$rein" init "$work/start" --seed 1
"$rein" task sums --demonstrations --json --count 48000 --seed 1 >"$work/data.jsonl"
"$rein" sft "$work/run" --model "$work/start" --data "$work/data.jsonl" --full --batch-size 32 --max-steps 1500 --learning-rate 3e-3 \
    --lr-scheduler-type cosine --warmup-steps 20 --adam-beta2 0.98 --save-steps 100 --keep-last 1
weights=$work/run/checkpoints/1500/model.safetensors
if [ "$check" = --check ]; then
    cmp "$weights" $model/model.safetensors
    echo "$model/model.safetensors is reproduced bit for bit"
else
    cp "$weights" $model/model.safetensors
    sha256sum $model/model.safetensors
fi
"$rein" eval --model $model --task sums --eval-prompts 2000 --max-tokens 128 --token-budget 36
"$rein" eval --model $model --task sums --eval-prompts 2000 --max-tokens 128 --token-budget 36 --greedy
