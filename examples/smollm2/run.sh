#!/bin/sh
# run.sh RUN [SETTING…]: SmolLM2-135M-Instruct learns to add, on the quantised weights of its GGUF file, with the settings of
# smollm2.yaml; then the trained model is written to RUN.gguf and answers a question.
# RUN is the directory of the run; an existing run resumes. Settings are those of `rein run` and override smollm2.yaml.
# MODEL is the GGUF file (default: smollm2.gguf; get.sh fetches it if it is not there), TYPE the type of RUN.gguf (default: q8_0),
# REIN the program (default: rein, or the one that `make` built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-smollm2.gguf}
type=${TYPE:-q8_0}
rein=${REIN:-rein}
[ -n "${REIN:-}" ] || command -v rein >/dev/null || rein=$here/../../build/rein
question='What is 23 + 45?'

fail() {
    echo "run.sh: $*" >&2
    exit 1
}
[ $# -ge 1 ] || fail "usage: run.sh RUN [SETTING...]"
command -v "$rein" >/dev/null || fail "$rein is not there: make builds it, REIN=PATH names another one"
run=${1%/}
shift
[ -e "$model" ] || "$here/get.sh" "$model"

# Every sum of two numbers of two digits; a tenth of them is held out, and never trained on.
awk 'BEGIN {
    for (a = 10; a < 100; a++)
        for (b = 10; b < 100; b++) printf "{\"prompt\": \"What is %d + %d?\", \"answer\": %d}\n", a, b, a + b
}' >"$run.jsonl"
"$rein" run "$run" --config "$here/smollm2.yaml" --model "$model" --task "$run.jsonl" "$@"
[ -e "$run.gguf" ] || "$rein" export "$run" --to "$run.gguf" --type "$type"

echo "$question"
for policy in "$model" "$run.gguf"; do
    echo "$policy: $(echo "$question" | "$rein" chat "$policy" --temperature 0 --max-tokens 64)"
done
