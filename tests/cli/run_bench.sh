#!/bin/bash
# run_bench.sh REIN: tests `rein bench` on rows that take little time: its output, its messages, peers, and that no file is left behind.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
mkdir "$work/tmp"
export TMPDIR="$work/tmp"

python() { # python TITLE PROGRAM: it runs, with what $work/out has, as JSON, in `rows`
    if python3 -c "import json, math, sys; rows = json.load(open(sys.argv[1])); $2" "$work/out" 2>"$work/err"; then pass
    else fail "$1" "$(tail -3 "$work/err")" "$(head -3 "$work/out")"; fi
}
script() { # script NAME: an executable from stdin
    cat >"$work/$1"
    chmod +x "$work/$1"
}

# ------------------------------------------------------------------------------------------------------------------------- rows

says "the list" '^decode smollm 16 +16 responses at a time$' rein bench --list
narrow "the list"
if [ "$(cut -c-26 "$work/out" | sed 's/ *$//' | sort -u | wc -l)" -eq 50 ]; then pass; else fail "50 rows, each once"; fi
says "the beginning of names" '^train small lora ' rein bench --list train
if [ "$(wc -l <"$work/out")" -eq 9 ]; then pass; else fail "nine rows begin with train" "$(cat "$work/out")"; fi
says "a whole name" '^decode smollm 1 ' rein bench --list 'decode smollm 1'
if [ "$(wc -l <"$work/out")" -eq 1 ]; then pass; else fail "a whole name is one row" "$(cat "$work/out")"; fi

says "a table" '^fma +[0-9.]+ GFLOP/s +– +–$' rein bench fma start --rounds 1
has "the machine comes first" <(head -1 "$work/out") '^[0-9]+ threads?, (ref|avx2|avx512)$'
has "the start has a limit" "$work/out" '^start +[0-9.]+ ms +5\.00 +[0-9]+ %$'
narrow "a table"
if [ "$(wc -l <"$work/out")" -eq 4 ]; then pass; else fail "a machine, a head and two rows" "$(cat "$work/out")"; fi

says "JSON" '^\[\{"name": "fma", ' rein bench start fma --rounds 1 --json
python "JSON" '
fma, start = rows
assert list(fma) == list(start) == ["name", "value", "unit", "limit", "share_of_limit", "peers"]
assert fma["value"] > 0.01 and fma["unit"] == "GFLOP/s" and fma["limit"] is fma["share_of_limit"] is None and fma["peers"] == {}
assert start["value"] > 0.1 and start["unit"] == "ms" and start["limit"] == 5
assert math.isclose(start["share_of_limit"], 5 / start["value"])'

# Models, too slow without optimization: the shipped one, which stands beside the program in the project alone; random weights and a limit.
if [ -z "${REIN_TEST_FAST:-}" ]; then
    if [ -d "$(dirname "$rein")/../models/sums" ]; then
        says "a step of reinforcement learning" '^\[\{"name": "rl step sums", ' rein bench 'rl step sums' --rounds 1 --json
        python "its seconds" 'assert rows[0]["unit"] == "s" and 0.01 < rows[0]["value"] < 600'
        says "and where they go" '^  sample [0-9.]+, reference [0-9.]+, forward [0-9.]+, backward [0-9.]+, optimizer [0-9.]+ s$' rein bench 'rl step sums' --rounds 1
    fi
    says "training" '^\[\{"name": "train small lora", ' rein bench 'train small lora' --rounds 1 --json
    python "below what the machine can do" '
assert rows[0]["value"] > 1 and math.isclose(rows[0]["share_of_limit"], rows[0]["value"] / rows[0]["limit"])'
fi

# ------------------------------------------------------------------------------------------------------------------------ peers

script peer <<'PEER'
#!/bin/sh
echo "$#:$*" >>"$(dirname "$0")/asked"
case $2 in
fma) echo '{"value": 0.001, "memory": 7}' ;;
start) echo '{"value": 1e6}' ;;
*) echo '{}' ;;
esac
PEER
script failing <<'PEER'
#!/bin/sh
echo first words >&2
echo 'no such thing' >&2
exit 3
PEER
says "a peer" '^\[\{"name": "fma", ' rein bench fma start triad --rounds 1 --json --peer "slow=$work/peer --slow"
python "ratios: how many times as good" '
fma, triad, start = rows
assert fma["peers"] == {"slow": {"value": 0.001, "ratio": fma["peers"]["slow"]["ratio"]}} and triad["peers"] == {}
assert math.isclose(fma["peers"]["slow"]["ratio"], fma["value"] / 0.001)
assert math.isclose(start["peers"]["slow"]["ratio"], 1e6 / start["value"])'
if [ "$(cat "$work/asked")" = $'2:--slow fma\n2:--slow triad\n2:--slow start' ]; then pass; else fail "how it is asked" "$(cat "$work/asked")"; fi
says "a peer in the table" '^fma .* slow [0-9]+×$' rein bench fma --rounds 1 --peer "slow=$work/peer --slow"

# complains TITLE PATTERN PEER: status 0, one line on stderr, the row without an entry
complains() {
    does "$1" rein bench fma --rounds 1 --json --peer "bad=$3"
    has "$1" "$work/err" "^rein bench: peer bad: row fma: $2\$"
    if [ "$(wc -l <"$work/err")" -eq 1 ]; then pass; else fail "$1: not one line" "$(head -5 "$work/err")"; fi
    python "$1" 'assert rows[0]["name"] == "fma" and rows[0]["peers"] == {}'
}
complains "a peer that fails" 'exit status 3: no such thing' "$work/failing"
complains "a peer that is killed" 'ended by signal 9' "$(script killed <<<$'#!/bin/sh\nkill -9 $$')$work/killed"
complains "a peer that is not there" 'it cannot be started: No such file or directory' "$work/nowhere"
complains "a peer that says nothing" 'it printed nothing: .*' "$(type -P true)"
complains "a peer that chats" 'its output is not JSON: .*' "$(type -P echo)"
complains "a peer without a number" '\{"value": NUMBER, .*' "$(script text <<<$'#!/bin/sh\necho \'{"value": "fast"}\'')$work/text"
complains "a peer that does not end" 'its output has more than 64 KiB: .*' "$(type -P yes)"

# ---------------------------------------------------------------------------------------------------------------- what is wrong

refused "a row, nearly" '^rein bench: there is no row "strat": did you mean "start"\?$' rein bench strat
refused "a longer one" '^rein bench: there is no row "decode smolm 16": did you mean "decode smollm 16"\?$' rein bench 'decode smolm 16'
refused "no row" '^rein bench: there is no row "zebra": rein bench --list lists them$' rein bench zebra
refused "an empty row" '^rein bench: there is no row "": ' rein bench ''
refused "rounds" '^rein bench: --rounds is "0": it must be a whole number between 1 and 1000$' rein bench fma --rounds 0
refused "a peer without a command" '^rein bench: --peer is "torch": NAME=COMMAND is needed' rein bench fma --peer torch
refused "a peer without a name" '^rein bench: --peer is "=true": NAME=COMMAND is needed' rein bench fma --peer =true
refused "a blank command" '^rein bench: --peer is "a= ": NAME=COMMAND is needed' rein bench fma --peer 'a= '
refused "two of a name" '^rein bench: there are two peers named a$' rein bench fma --peer a=true --peer a=false
refused "a list of results" '"message": "--list measures nothing: leave out --json"' rein bench --list --json

status=0
TMPDIR=$work/nowhere rein bench fma --rounds 1 >"$work/out" 2>"$work/err" || status=$?
if [ "$status" -eq 1 ] && grep -q '^rein bench: cannot make .*nowhere/rein-bench-.*: No such file' "$work/err"; then pass
else fail "no place for models" "status $status" "$(cat "$work/err")"; fi

# A row that fails, the next one that does not: no file may grow beyond a megabyte.
status=0
(ulimit -f 1024 && trap '' XFSZ && rein bench 'train small lora' fma --rounds 1 --json) >"$work/out" 2>"$work/err" || status=$?
if [ "$status" -eq 1 ] && grep -q '"message": "row train small lora: cannot write a model to .*: File too large"' "$work/err"; then pass
else fail "a row that fails" "status $status" "$(cat "$work/err")"; fi
python "the others are measured" 'assert [r["name"] for r in rows] == ["fma"]'

# Interrupted while a peer hangs.
script hanging <<<$'#!/bin/sh\necho $$ >"$(dirname "$0")/hangs"\nexec sleep 100'
rein bench fma start --rounds 1 --peer "hanging=$work/hanging" >"$work/out" 2>"$work/err" &
bench=$!
for ((i = 0; i < 200; i++)); do if [ -s "$work/hangs" ]; then break; fi; sleep 0.05; done
kill -TERM $bench
status=0
wait $bench || status=$?
if [ "$status" -eq 1 ] && grep -qx 'rein bench: stopped' "$work/err" && ! kill -0 "$(cat "$work/hangs")" 2>/dev/null; then pass
else fail "an interrupt" "status $status" "$(cat "$work/err")"; fi

says "help" '^Usage: rein bench ' rein bench --help
narrow "help"
completes policy-loss rein bench pol
completes --peer rein bench fma --p
if [ -z "$(ls -A "$TMPDIR")" ]; then pass; else fail "something is left behind" "$(ls "$TMPDIR")"; fi

finish
