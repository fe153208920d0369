#!/bin/bash
# run_terminal.sh REIN: the live view in terminals of 50, 80 and 200 columns that change their size. Needs tmux. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")")/../../models/sums
cd "$work" || exit 1
if ! command -v tmux >/dev/null; then echo "skipped: there is no tmux" && finish && exit; fi
screen() { tmux -L "rein$$-${columns:-0}" -f /dev/null "$@"; }
trap 'screen kill-server 2>/dev/null; rm -rf "$work"' EXIT
small=(--model "$sums" --task sums --preset grpo --prompts 2 --samples 2 --max-tokens 8 --eval-prompts 4 --steps 100000)

# waits PATTERN: until the screen shows it, at most 60 seconds
waits() {
    for _ in $(seq 600); do
        screen capture-pane -p >shown
        if grep -qE -- "$1" shown; then return; fi
        sleep 0.1
    done
}
# one TITLE: exactly one picture is on the screen, not wrapped, within 60 seconds; what an older one left would stay
one() {
    local bars=0
    for _ in $(seq 600); do
        screen capture-pane -p >shown
        bars=$(grep -cE '^[█░]+ [0-9]+/' shown)
        if [ "$bars" -eq 1 ] && [ "$(grep -c '^  reward' shown)" -eq 1 ] && [ "$(grep -c '^  kl' shown)" -eq 1 ]; then pass && return; fi
        sleep 0.1
    done
    fail "$1: $bars pictures" "$(cat shown)"
}

for columns in 50 80 200; do
    screen new-session -d -x "$columns" -y 40 env TERM=screen rein run "live$columns" "${small[@]}"
    waits '^  entropy'
    one "$columns columns"
    for to in 40 120 60 "$columns"; do
        screen resize-window -x "$to" -y 40
        sleep 0.8
        one "$columns, then $to columns"
    done
    screen kill-server && sleep 0.3
done

columns=80w
does "a run" rein run done "${small[@]:0:14}" --steps 3
cp -r done waiting && sed -i 's/^steps: .*/steps: "9"/' waiting/config.yaml
screen new-session -d -x 80 -y 40 "rein watch waiting 2>watch.err; sleep 5"
sleep 1
screen send-keys C-c
sleep 0.5
if grep -q 'finishing the step' watch.err; then fail "watch: Ctrl-C"; else pass; fi

# Nothing is left of the picture after Ctrl-C: the message is part of it.
screen kill-server 2>/dev/null
columns=80c
prompts=$([ -n "${REIN_TEST_FAST:-}" ] && echo 8 || echo 64) # a sanitizer is slow, and a step must take longer than a key press
screen new-session -d -x 80 -y 24 "env TERM=screen rein run stops --model $sums --task sums --preset grpo --prompts $prompts --samples 16 --max-tokens 128 --eval-prompts 0 --steps 1000; sleep 100"
waits '^  entropy'
screen pipe-pane "cat >typed" # a step may end before the screen is looked at
screen send-keys C-c
for _ in $(seq 600); do if grep -qs 'finishing the step' typed; then break; else sleep 0.1; fi; done
has "Ctrl-C: the picture says what happens" typed 'finishing the step; interrupt again to stop now'
waits '^rein run: stopped after step'
has "Ctrl-C: the run stops" shown '^rein run: stopped after step'
if grep -qE '[█░▁▂▃▄▅▆▇]|finishing' shown; then fail "Ctrl-C: part of the picture is left" "$(cat shown)"; else pass; fi

# A run that was killed: watch says once that no process is writing it.
screen kill-server 2>/dev/null
columns=80d
screen new-session -d -x 80 -y 24 "env TERM=screen rein watch waiting"
waits 'no process'
sleep 1.2
screen capture-pane -p >shown
if [ "$(grep -c '^rein watch: no process is writing waiting: resume with rein run waiting$' shown)" -eq 1 ]; then pass
else fail "watch: a dead run" "$(cat shown)"; fi
does "watch --once: a dead run" rein watch waiting --once
has "watch --once: a dead run" err '^rein watch: no process is writing waiting: resume with rein run waiting$'
flock -n waiting/.lock rein watch waiting --once >out 2>err
if grep -q 'no process' err; then fail "watch: a run that is being written"; else pass; fi

# The curves of a resumed run begin with its first step.
terminal() { env TERM=xterm NO_COLOR=1 python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@"; }
does "resumed on a terminal" terminal rein run done --steps 5
has "resumed on a terminal: five points" out '^  length +[0-9.]+  [▁▂▃▄▅▆▇█]{5} '
finish
