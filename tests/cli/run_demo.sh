#!/bin/bash
# run_demo.sh REIN: what `rein demo` claims, asked of `rein eval` on prompts that the run never saw; and that the commands it suggests work.
# Left out under REIN_TEST_FAST: it takes about a minute.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"

if [ -n "${REIN_TEST_FAST:-}" ]; then
    echo 'skipped: the demo takes about a minute'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
cd "$work" || exit 1

# holds TITLE EXPRESSION: of summary.json (s), its two sides, the history, and what rein eval printed (e).
holds() {
    if python3 - "$2" <<'PY'
import json, sys
s, e = json.load(open("rein-demo/summary.json")), json.load(open("eval.json"))
base, final = s["base"], s["final"]
history = [json.loads(line) for line in open("rein-demo/history.jsonl")]
sys.exit(0 if eval(sys.argv[1]) else 1)
PY
    then pass; else fail "$1" "$2: $(tr -d '\n' <rein-demo/summary.json)"; fi
}

if rein demo >told 2>err.demo; then pass; else fail "the demo" "$(tail -3 err.demo)"; fi
if rein eval rein-demo --json >eval.json 2>err; then pass; else fail "its evaluation" "$(tail -3 err)"; fi
holds "the initial policy is plausible" '0.40 <= base["accuracy"] <= 0.65 and base["mean_length"] > s["budget"]'
holds "accuracy" 'final["accuracy"] >= 0.90 and final["accuracy_low"] > base["accuracy_high"]'
holds "length" 'final["mean_length"] < s["budget"]'
holds "over budget" 'final["share_over_budget"] < 0.05 and base["share_over_budget"] > 0.5'
holds "held-out prompts" 'final["n"] >= 500 and e["prompts"] == final["n"]'
holds "near the initial policy" '0 < final["kl"] <= 0.1'
holds "true on-policy" 's["on_policy_max_gap"] == 0 and all(h["on_policy/max_gap"] == 0 for h in history)'
holds "all steps" 's["steps"] == len(history) and s["seconds"] > 0'
holds "rein eval says the same" 'e["accuracy"] == final["accuracy"] and e["mean_length"] == final["mean_length"]'
if [ -s rein-demo/report.html ]; then pass; else fail "there is a report"; fi

sed '/^What to try next/,$d' told >out # the commands below it stay in one line each
narrow "the demo's result"
sed '/^rein-demo/,$d' err.demo >out
narrow "the demo's introduction"

# What to try next: as it is printed, but the third, another run, with few steps.
sed -n '/^What to try next/,$p' told | sed 1d | sed 's/--kl-penalty-coef 0.3/& --steps 6/' >next
if [ "$(wc -l <next)" = 3 ] && bash -eu next >out 2>err; then pass; else fail "what to try next" "$(tail -3 err)"; fi
if [ -s rein-demo-kl/summary.json ]; then pass; else fail "the run with more KL penalty"; fi

finish
