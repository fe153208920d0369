#!/bin/bash
# run_quantize.sh REIN: --quantize from outside, for a model, a run and an evaluation. What trains, samples and scores is one policy. Ends with
# 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
cd "$work" || exit 1

# holds TITLE EXPRESSION: of out, one JSON object a line (o)
holds() {
    if python3 -c 'import json, sys; o = [json.loads(line) for line in open("out")]; sys.exit(not eval(sys.argv[1]))' "$2"; then pass
    else fail "$1" "$2" "$(head -c 400 out)"; fi
}

text=(--prompt 'Q:21+17=?' --samples 2 --max-tokens 12 --seed 3 --json)
does "a quantised model" rein generate --model "$sums" --quantize q8_0 "${text[@]}"
cp out samples
does "its score" rein score --model "$sums" --quantize q8_0 samples
holds "sampling and scoring agree bit for bit" '[s["logprobs"][-len(g["logprobs"]):] for s, g in zip(o, map(json.loads, open("samples")))] == [g["logprobs"] for g in map(json.loads, open("samples"))]'
does "the score of the model as it is" rein score --model "$sums" samples
holds "another policy" 'all(s["logprobs"][-3:] != json.loads(g)["logprobs"][-3:] for s, g in zip(o, open("samples")))'

train=(--task sums --preset grpo --prompts 2 --samples 4 --max-tokens 16 --eval-prompts 0)
does "a run" rein run one --model "$sums" --quantize q8_0 "${train[@]}" --steps 1
has "a run: it is stored" one/config.yaml '^quantize: "?q8_0"?$'
has "a run: sampler and trainer are one policy" one/history.jsonl '"on_policy/max_gap":0\.0[,}]'
does "resumed" rein run one --steps 2
refused "what made the policy" '^rein run: --quantize is "q4_0", but the run was started with "q8_0"' rein run one --quantize q4_0
does "the policy of the run" rein generate --model one "${text[@]}"
does "its evaluation" rein eval one --eval-prompts 2
refused "a run has its own" '^rein generate: --quantize and a run are both given' rein generate --model one --quantize q8_0 --prompt x
refused "an evaluation of a run" '^rein eval: --quantize and a run are both given' rein eval one --quantize q8_0 --eval-prompts 2
refused "a type that is only read" '^rein generate: quantize is "q4_k": q8_0 and q4_0 are known' rein generate --model "$sums" --quantize q4_k --prompt x
refused "all weights" '^rein run: --quantize and full contradict' rein run full --model "$sums" --quantize q8_0 --full "${train[@]}"
refused "serve: a run has its own" '^rein serve: --quantize has no effect with RUN@STEP' rein serve one@1 --quantize q8_0
finish
