#!/bin/bash
# run_serve.sh REIN: rein serve over HTTP. serving.py makes a small chat model, a run of two steps and an adapter that calls a tool;
# serve.py does the rest. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
cd "$work" || exit 1

does "a model, a run, and an adapter that calls a tool" python3 "$here/serving.py" "$rein"
says "help" 'Usage: rein serve' rein serve --help
refused "no policy" 'RUN, or --model DIR' rein serve
refused "a foreign address needs a key" '^rein serve: --host is "0.0.0.0": other machines could use the server' rein serve --model chatty --host 0.0.0.0
refused "a name for an address" '^rein serve: --host is "example": a numeric address' rein serve --model chatty --host example
refused "an adapter without a name" '^rein serve: --adapter is "x": NAME=DIR' rein serve --model chatty --adapter x
refused "an adapter called base" '^rein serve: --adapter is "base": a name without @ that no other model has' rein serve --model chatty --adapter base=caller/checkpoints/0060
refused "an adapter that is not there" '^rein serve: --adapter: ' rein serve --model chatty --adapter a=none
refused "a run called base" '^rein serve: --name is "base": clients ask for the model' rein serve one --name base
refused "an address of another machine" '^rein serve: --host is 192.0.2.1: this machine does not have' env REIN_API_KEY=k rein serve --model chatty --host 192.0.2.1
refused "files that are no certificate" '^rein serve: --tls-cert and --tls-key must name the files' rein serve --model chatty --tls-cert tools.jsonl --tls-key tools.jsonl
status=0
(ulimit -n 6 && exec rein serve --model chatty --port 0) 2>"$work/err" || status=$?
if [ "$status" = 1 ]; then pass; else fail "too few open files: status $status, not 1"; fi
has "too few open files" "$work/err" '^rein serve: .*Too many open files'
refused "half of TLS" '^rein serve: --tls-cert needs --tls-key too' rein serve --model chatty --tls-cert x

python3 "$here/serve.py" "$rein" >"$work/report" 2>&1
grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$work/report"
read -r ok _ wrong _ < <(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/report" || echo "0 passed, 1 failed")
passed=$((passed + ok)) failed=$((failed + wrong))
finish
