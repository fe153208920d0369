#!/bin/bash
# run_task.sh REIN: what `rein task` shows of built-in tasks, files and programs, and what it says of wrong ones.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
cd "$work" || exit 1 # messages cut long paths

# prints TITLE WANTED COMMAND…: status 0, nothing on stderr, stdout is WANTED
prints() {
    local title=$1 wanted=$2 status=0
    shift 2
    "$@" >out 2>err </dev/null || status=$?
    if [ "$status" -eq 0 ] && [ ! -s err ] && [ "$(cat out)" = "$wanted" ]; then pass; else
        fail "$title" "status $status" "$(head -3 err)" "$(head -20 out)"
    fi
}
lines() { # lines TITLE N: out has N lines
    if [ "$(wc -l <out)" -eq "$2" ]; then pass; else fail "$1: not $2 lines" "$(head -5 out)"; fi
}
python() { # python TITLE PROGRAM: it runs, with the path of out as its argument
    if python3 -c "$2" out 2>err; then pass; else fail "$1" "$(tail -3 err)" "$(head -3 out)"; fi
}

# --------------------------------------------------------------------------------------------------------------------- built-in

says "the list" '^sums +add ' rein task
narrow "the list"
for name in sums sort format; do
    if grep -q "^$name  *[a-z]" out; then pass; else fail "the list has $name"; fi
done
says "the list as JSON" '^\{"name": "sums", "help": "add ' rein task --json
python "the list as JSON" 'import json, sys
assert [json.loads(line)["name"] for line in open(sys.argv[1])] == ["sums", "sort", "format"]'

prints "an example" 'train 0
  prompt      Q:sort csqotj
              A:
  answer      cjoqst' rein task sort --count 1
prints "two examples" 'train 2
  prompt      Q:sort 29,3,48
              A:
  answer      3,29,48

train 3
  prompt      Q:sort 45,66,63
              A:
  answer      45,63,66' rein task sort --from 2 --count 2
rein task sort --count 1 >first
rein task sort >five
if cmp -s first <(head -n 4 five) && [ "$(grep -c '^train' five)" -eq 5 ]; then pass; else fail "five by default"; fi
if cmp -s five <(rein task sort --seed 1) && ! cmp -s five <(rein task sort --seed 2); then pass; else fail "seeds"; fi
says "held out" '^held-out 4$' rein task format --split held-out
says "the last number there is" '^train 18446744073709551614$' rein task sums --from 18446744073709551614 --count 3
if [ "$(grep -c '^train' out)" -eq 2 ]; then pass; else fail "after the last number"; fi

says "demonstrations" '^  completion  .*=cjoqst$' rein task sort --demonstrations --count 1
says "they are verified" '^  verified    right$' rein task format --demonstrations --count 1
says "a pupil's mistakes" '^  verified    wrong$' rein task sums --demonstrations --count 20

says "JSON" '^\{"prompt": "Q:sort csqotj\\nA:", "answer": "cjoqst"\}$' rein task sort --json --count 1
says "many of both splits" '^\{"prompt": "Q:' bash -c 'rein task sums --json --count 500 && rein task sums --json --count 500 --split held-out'
lines "many of both splits" 1000
python "nothing is asked on both sides" 'import json, sys
all = [json.loads(line) for line in open(sys.argv[1])]
assert not {e["prompt"] for e in all[:500]} & {e["prompt"] for e in all[500:]}
assert all[0].keys() == {"prompt", "answer"}
for e in all: assert sum(map(int, e["prompt"][2:-5].split("+"))) == int(e["answer"]), e'
says "sorting is sorting" '^\{"prompt": "Q:sort' rein task sort --json --count 500
python "sorting is sorting" 'import json, sys
for e in map(json.loads, open(sys.argv[1])):
    asked = e["prompt"][7:-3]
    wanted = ",".join(map(str, sorted(map(int, asked.split(","))))) if asked[0].isdigit() else "".join(sorted(asked))
    assert e["answer"] == wanted, e'
says "demonstrations as JSON" '^\{"prompt": "Q:sort csqotj\\nA:", "completion": ".*=cjoqst"\}$' rein task sort --json --demonstrations --count 200
lines "demonstrations as JSON" 200
python "demonstrations as JSON" 'import json, sys
for e in map(json.loads, open(sys.argv[1])): assert e.keys() == {"prompt", "completion"} and "=" in e["completion"]'

# ------------------------------------------------------------------------------------------------------------------------ files

cat >data.jsonl <<'LINES'
{"prompt": "What is 2+2?", "answer": 4, "budget": 30, "source": "school"}

{"messages": [{"role": "system", "content": "Be brief.\nVery."}, {"role": "user", "content": "\u001b[31mHi\u009b\u0007"}]}
{"prompt": "Grüße, so  weit"}
LINES
prints "a file" 'train 0
  prompt      What is 2+2?
  answer      4
  budget      30 tokens

train 1
  system      Be brief.
              Very.
  user        ·[31mHi··

train 2
  prompt      Grüße, so  weit' rein task data.jsonl
says "a file as JSON" '^\{"prompt": "What is 2\+2\?", "answer": 4, "budget": 30, "source": "school"\}$' rein task data.jsonl --json
cp out again.jsonl
rein task data.jsonl >shown
if cmp -s shown <(rein task again.jsonl); then pass; else fail "what is printed is a file again"; fi
for ((i = 0; i < 100; i++)); do echo "{\"prompt\": \"question $i\"}"; done >many.jsonl
says "shares" '^\{"prompt": "question' bash -c "rein task many.jsonl --json --count 1000 --held-out 0.3 --split held-out"
held_out=$(wc -l <out)
says "shares" '^\{"prompt": "question' bash -c "rein task many.jsonl --json --count 1000 --held-out 0.3"
if [ $((held_out + $(wc -l <out))) -eq 100 ] && [ "$held_out" -gt 15 ] && [ "$held_out" -lt 45 ]; then pass; else fail "$held_out of 100 held out"; fi

# --------------------------------------------------------------------------------------------------------------------- programs

cat >program <<'PROGRAM'
#!/bin/sh
while read -r line; do
    case $line in
    *'"index": 2,'*) echo '{"end": true}' ;;
    *) echo "{\"prompt\": \"a\", \"asked\": $line}" ;;
    esac
done
PROGRAM
chmod +x program
prints "a program" '{"prompt": "a", "asked": {"split": "held_out", "index": 0, "seed": 7}}
{"prompt": "a", "asked": {"split": "held_out", "index": 1, "seed": 7}}' rein task ./program --json --seed 7 --split held-out

# ---------------------------------------------------------------------------------------------------------------- what is wrong

refused "a name, nearly" '^rein task: task "sum" is unknown: did you mean sums\?$' rein task sum
refused "a name" '^rein task: task "zebra" is unknown: there are sums, sort, format, files' rein task zebra
refused "two names" '^rein task: unexpected argument "sort"' rein task sums sort
refused "no task" '^rein task: --count needs a task: rein task \[NAME' rein task --count 3
refused "count" '^rein task: --count is "0": it must be a whole number between 1 and ' rein task sums --count 0
refused "split" '^rein task: --split is "test": it must be train or held-out$' rein task sums --split test
refused "share" '^rein task: --held-out is "1": it must be a number above 0 and below 1$' rein task many.jsonl --held-out 1
refused "share of what has none" '^rein task: --held-out is 0.5: it has no effect' rein task sums --held-out 0.5
refused "timeout of what has none" '^rein task: --timeout is 5: it has no effect' rein task many.jsonl --timeout 5
refused "nothing held out" "^rein task: many.jsonl has no held-out examples: held_out is 0\$" rein task many.jsonl --split held-out
refused "a share that is too small" "^rein task: many.jsonl: held_out 1e-06 holds out none of 100 examples: " rein task many.jsonl --held-out 0.000001
refused "beyond the end" "^rein task: data.jsonl has 3 train examples: there is no number 3 " rein task data.jsonl --from 3
refused "no file" '^rein task: .*nowhere.jsonl.*No such file' rein task nowhere.jsonl
mkdir data && echo '[{"prompt": "a", "answer": "2"}, {"question": "b"}]' >data/train.json
prints "a JSON array" '{"prompt": "a", "answer": "2"}
{"question": "b"}' rein task data/train.json --json --count 2
printf 'question,answer\na,2\n' >data/train.csv && echo '{"prompt": 1}' >data/object.json
refused "CSV" 'data/train.csv is CSV: JSON lines are needed: python3 -c .import pandas; pandas.read_csv' rein task data/train.csv
refused "CSV: the command has the name" "read_csv\\(\"data/train.csv\"\\).to_json\\(\"data/train.jsonl\"" rein task data/train.csv
long=data/$(printf 'x%.0s' {1..120}).csv
for name in "$long" "data/it's.csv"; do
    cp data/train.csv "$name"
    refused "CSV: a command for any name" 'read_csv\("FILE.csv"\).to_json\("FILE.jsonl", orient="records", lines=True\)' rein task "$name"
done
printf 'touch %s/owned\n' "$work" >data/plain.txt && cp data/plain.txt data/noext
for name in plain.txt noext; do
    refused "a file without an ending: $name" "^rein task: task \"data/$name\" is a file that cannot be executed: the name of examples ends in .jsonl " rein task "data/$name"
done
absent "a file that is not run" owned
refused "an object" 'data/object.json is not a JSON array' rein task data/object.json
refused "data that is not there" 'nowhere.json.*No such file' rein task data/nowhere.json
echo '{"questions": "a"}' >bad.jsonl
refused "a wrong line" "^rein task: bad.jsonl: line 1: prompt is missing: a text is needed, or messages in its place\$" rein task bad.jsonl
refused "demonstrations of a file" "^rein task: task data.jsonl has no demonstrations: only built-in tasks have them\$" rein task data.jsonl --demonstrations
refused "a program that ends" '^rein task: task "exit 3; true", train example 0: the program ended with exit status 3$' rein task 'exit 3; true'
refused "a program that hangs" '^rein task: task "sleep 100", train example 0: the program did not answer within 0.2 seconds$' rein task 'sleep 100' --timeout 0.2
refused "a program that chats" '^rein task: task "read -r x; echo hello; cat", train example 0 does not start with \{: .*; the program wrote: hello$' rein task 'read -r x; echo hello; cat'

says "help" '^Usage: rein task ' rein task --help
narrow "help"
completes sums rein task su
completes --demonstrations rein task sums --dem

finish
