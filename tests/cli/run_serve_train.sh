#!/bin/bash
# run_serve_train.sh REIN: training over HTTP. serving.py makes a small chat model; serve_train.py does the rest. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
cd "$work" || exit 1

does "a model with a chat template" python3 "$here/serving.py" "$rein" chatty
refused "settings without a run" '^rein serve: --lora-rank has no effect: there is no run to train' rein serve --model chatty --lora-rank 4
refused "a step has its own model" '^rein serve: --model has no effect with RUN@STEP' rein serve run@1 --model chatty
refused "a new run needs a model" '^rein serve: model is missing' rein serve new
refused "a setting that contradicts" '^rein serve: --lora-rank has no effect with full' rein serve new --model chatty --full --lora-rank 4
[ ! -e new ] && pass || fail "a refused run was written"

python3 "$here/serve_train.py" "$rein" >"$work/report" 2>&1
grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$work/report"
read -r ok _ wrong _ < <(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/report" || echo "0 passed, 1 failed")
passed=$((passed + ok)) failed=$((failed + wrong))
finish
