#!/bin/bash
# run_serve_page.sh REIN: the live page and its routes, without a browser. serving.py makes a small chat model and a run; serve_page.py does the
# rest. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
cd "$work" || exit 1

does "a model, and a run of two steps" python3 "$here/serving.py" "$rein"
python3 "$here/serve_page.py" "$rein" >"$work/report" 2>&1
grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$work/report"
read -r ok _ wrong _ < <(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/report" || echo "0 passed, 1 failed")
passed=$((passed + ok)) failed=$((failed + wrong))
finish
