#!/bin/bash
# run_report.sh REIN: report from outside. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
cd "$work" || exit 1

mkdir -p runs/first runs/second none
printf '{"step": 1, "reward": 0.25}\n{"step": 2, "reward": 0.75}\n' | tee runs/first/history.jsonl >runs/second/history.jsonl
printf 'model: m\n' >runs/first/config.yaml

# holds TITLE FILE TEXT…
holds() {
    local title=$1 file=$2
    shift 2
    for text in "$@"; do if ! grep -qF -- "$text" "$file"; then fail "$title" "$text is not in $file" && return; fi; done
    pass
}

says "report: the path is printed" '^runs/first/report.html$' rein report runs/first
holds "report: the page" runs/first/report.html '<title>first · rein</title>' '"reward":{"steps":[1,2],"values":[0.25,0.75]}' '["model","m"]'
# The page's policy has the hash of each style and each script, as a browser computes it.
if python3 - runs/first/report.html 2>err <<'PYTHON'
import base64, hashlib, re, sys
page = open(sys.argv[1], newline="").read()
policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
directives = {words[0]: words[1:] for words in (part.split() for part in policy.split(";"))}
for tag in ("style", "script"):
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    wanted = ["'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in texts]
    assert len(wanted) == 2 and directives[tag + "-src"] == wanted, (tag, directives[tag + "-src"], wanted)
PYTHON
then pass; else fail "report: the hashes of the policy" "$(tail -1 err)"; fi
says "report: a slash at the end" '^runs/second/report.html$' rein report runs/second/
says "report: --output" '^both.html$' rein report runs/first runs/second --output both.html
holds "report: two runs" both.html '<title>first, second · rein</title>' '"name":"second"'
rm -r runs/first/report.html
(cd runs/first && rein report . >"$work/out") && holds "report: where one stands" "$work/out" './report.html' &&
    holds "report: the name of where one stands" runs/first/report.html '<title>first · rein</title>'

refused "report: several runs need a file" '^rein report: --output is missing: a page about several runs needs a file of its own' rein report runs/first runs/second
refused "report: no run" 'the directory of a run is needed' rein report
refused "report: nothing there" 'nothing: cannot be opened: No such file' rein report runs/nothing
refused "report: no directory" 'is not a directory|cannot be opened' rein report runs/first/config.yaml
refused "report: not a run" 'none is not a run' rein report none
refused "report: one of two is no run" 'none is not a run' rein report runs/first none --output both.html
refused "report: an empty name" 'is empty' rein report runs/first --output ''
refused "report: nowhere to write" 'cannot be written' rein report runs/first --output nowhere/report.html
# shellcheck disable=SC2046
refused "report: too many" 'unexpected argument' rein report $(yes runs/first | head -17) --output many.html
refused "report: an option misspelt" 'did you mean --output' rein report runs/first --ouput x
if [ -e none/report.html ]; then fail "report: a refusal writes nothing"; else pass; fi
says "report: help" 'needs nothing but a browser' rein report --help
narrow "report --help"
completes report rein rep
completes --output rein report --o
finish
