#!/bin/sh
# run.sh RUN [SETTING…]: stories15M learns to end its stories within 128 tokens, with the settings of stories.yaml; then its drift is measured.
# RUN is the directory of the run; an existing run resumes. Settings are those of `rein run` and override stories.yaml.
# MODEL is the directory of the model (default: stories15M; get.sh fetches it if it is not there), BUDGET the tokens of a story,
# REIN the program (default: rein, or the one that `make` built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-stories15M}
budget=${BUDGET:-128}
rein=${REIN:-rein}
[ -n "${REIN:-}" ] || command -v rein >/dev/null || rein=$here/../../build/rein

fail() {
    echo "run.sh: $*" >&2
    exit 1
}
[ $# -ge 1 ] || fail "usage: run.sh RUN [SETTING...]"
command -v "$rein" >/dev/null || fail "$rein is not there: make builds it, REIN=PATH names another one"
command -v python3 >/dev/null || fail "python3 is not installed: the judge and the measurements need it"
run=$1
shift
[ -e "$model/config.json" ] || "$here/get.sh" "$model"

judge=$(printf %s "$here/judge.py" | sed 's/[^[:alnum:]_./-]/\\&/g') # quoted for the shell
"$rein" run "$run" --config "$here/stories.yaml" --model "$model" --task "$here/prompts.jsonl" --reward "python3 $judge $budget" \
    --token-budget "$budget" --max-tokens $((budget * 9 / 8)) "$@"
python3 "$here/drift.py" "$rein" "$run" "$model"
