#!/bin/bash
# run_engine.sh REIN: generate, score and inspect from outside. What a model says is known beforehand: from a model that says one thing
# (parrot.py), from what float64 made of tiny models of every family (tests/model/fixtures/engine), and, where ../shared has it, from the
# text that was published of stories260K. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
fixtures=$here/../model/fixtures
stories=$here/../../../shared/models/stories260K
parrot=$work/parrot
python3 "$here/parrot.py" "$parrot" || fail "parrot.py"

# prints TITLE WANTED COMMAND…: status 0, nothing on stderr, exactly this on stdout
prints() {
    local title=$1 wanted=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" -ne 0 ] || [ -s "$work/err" ]; then fail "$title" "status $status" "$(head -3 "$work/err")"
    elif ! printf '%s\n' "$wanted" | cmp -s - "$work/out"; then fail "$title" "wanted $wanted" "got    $(head -c 500 "$work/out")"
    else pass; fi
}

# holds TITLE EXPRESSION FILE…: in Python, with `a`, `b`, … the JSON lines of the files and `near` for lists of numbers, beside those of math
holds() {
    local title=$1 expression=$2
    shift 2
    if python3 - "$expression" "$@" 2>"$work/err" <<'PYTHON'; then pass; else fail "$title" "$expression" "$(tail -1 "$work/err")"; fi
import json, math, sys
def near(x, y, tolerance):
    return len(x) == len(y) and all(abs(p - q) <= tolerance for p, q in zip(x, y))
names = {chr(ord("a") + i): [json.loads(line) for line in open(path)] for i, path in enumerate(sys.argv[2:])}
sys.exit(not eval(sys.argv[1], {**vars(math), "near": near, **names}))
PYTHON
}

# keep NAME COMMAND…: its output in $work/NAME
keep() {
    local name=$1
    shift
    "$@" >"$work/$name" 2>"$work/err" </dev/null || fail "$*" "$(head -3 "$work/err")"
}

parrot() { rein generate --model "$parrot" "$@"; }

# ------------------------------------------------------------------------------------------------------- what the parrot says

newline=$'\n'
prints "greedy" "Hi_😀,you.Z" parrot --prompt "x$newline" --greedy
prints "temperature 0 is greedy" "Hi_😀,you.Z" parrot --prompt "x$newline" --temperature 0
prints "chat" "Hi_😀,you." parrot --prompt x --chat --greedy
prints "chat by a format's name" "Hi_😀,you." parrot --prompt x --chat-format chatml --greedy
prints "chat with a system message" "Hi_😀,you." parrot --prompt x --system "Be brief." --greedy
prints "the begin token alone" "Z" parrot --prompt 'a<|im_end|>' --greedy
prints "stop" "Hi_" parrot --prompt "$newline" --greedy --stop 😀
prints "the first of several stops" "Hi" parrot --prompt "$newline" --greedy --stop you --stop _ --stop=z
prints "a stop that begins and does not come" "Hi_😀,you.Z" parrot --prompt "$newline" --greedy --stop ",yes"
prints "half a character" "Hi_�" parrot --prompt "$newline" --greedy --max-tokens 5
printf 'a\n\n' >"$work/prompt"
prints "a file, its last newline gone" "Hi_😀,you.Z" parrot --prompt-file "$work/prompt" --greedy
prints "ids" "Hi_😀,you.Z" parrot --prompt-ids 259,10 --greedy
prints "ids as JSON has them" "Hi_😀,you.Z" parrot --prompt-ids '[259, 10]' --greedy
echo '[{"role": "system", "content": "x"}, {"role": "user", "content": "x"}]' >"$work/messages"
prints "messages" "Hi_😀,you." parrot --messages "$work/messages" --greedy
if [ "$(printf 'a\n\n' | parrot --prompt-file - --greedy)" = "Hi_😀,you.Z" ]; then pass; else fail "a prompt from standard input"; fi
if [ "$(parrot --messages - --greedy <"$work/messages")" = "Hi_😀,you." ]; then pass; else fail "messages from standard input"; fi

keep a parrot --prompt 'x<|im_end|>' --chat --greedy --json
holds "a chat's contents are text" 'bytes(i for i in a[0]["prompt_ids"] if i < 256) == b"user\nx<|im_end|>\nassistant\n" and a[0]["prompt_ids"].count(257) == 1' "$work/a"
holds "what JSON has" 'list(a[0]) == ["sample", "prompt_ids", "response_ids", "logprobs", "text", "finish"]' "$work/a"
holds "finish: end, of the turn" 'a[0]["finish"] == "end" and a[0]["response_ids"][-1] == 257 and a[0]["text"] == "Hi_😀,you."' "$work/a"
holds "log-probabilities" 'near(a[0]["logprobs"], [8 - log(exp(8) + 259)] * 13, 1e-6)' "$work/a"
keep a parrot --prompt x --chat-format raw --greedy --json
holds "a raw chat is plain text" 'a[0]["prompt_ids"] == [259, 120]' "$work/a"
keep a parrot --prompt x --chat-format qwen3 --no-thinking --greedy --json
holds "no thinking" 'bytes(i for i in a[0]["prompt_ids"] if i < 256).endswith(b"assistant\n<think>\n\n</think>\n\n")' "$work/a"
keep a parrot --prompt "x<|im_start|>$newline" --greedy --json
holds "a plain prompt's special tokens" 'a[0]["prompt_ids"] == [259, 120, 256, 10] and a[0]["response_ids"][-1] == 258 and a[0]["finish"] == "end"' "$work/a"
keep a parrot --prompt "$newline" --greedy --json --stop 😀
holds "finish: stop" 'a[0]["finish"] == "stop" and a[0]["text"] == "Hi_" and a[0]["response_ids"] == [72, 105, 95, 240, 159, 152, 128]' "$work/a"
keep a parrot --prompt "$newline" --greedy --json --max-tokens 3
holds "finish: length" 'a[0]["finish"] == "length" and len(a[0]["response_ids"]) == 3' "$work/a"
keep a parrot --prompt "$newline" --greedy --json --ignore-end
holds "finish: context" 'a[0]["finish"] == "context" and len(a[0]["prompt_ids"] + a[0]["response_ids"]) == 64' "$work/a"
keep a parrot --prompt "$newline" --greedy --json --top-log-probs 2 --max-tokens 2
holds "top_logprobs" '[[c["id"] for c in t] for t in a[0]["top_logprobs"]] == [[72, 0], [105, 0]] and a[0]["top_logprobs"][0][0]["token"] == "H"' "$work/a"
holds "top_logprobs" '[t[0]["logprob"] for t in a[0]["top_logprobs"]] == a[0]["logprobs"]' "$work/a"
keep a parrot --prompt "$newline" --json --top-k 3 --samples 4
holds "sampler_logprobs" 'all(p <= s <= 0 for x in a for p, s in zip(x["logprobs"], x["sampler_logprobs"]))' "$work/a"
keep b parrot --prompt "$newline" --json --min-p 0.5
holds "a sampler with one choice" 'set(b[0]["sampler_logprobs"]) == {0} and b[0]["text"] == "Hi_😀,you.Z"' "$work/a" "$work/b"
keep a parrot --prompt "$newline" --json --top-p 0.9
holds "top-p" 'a[0]["text"] == "Hi_😀,you.Z"' "$work/a"

# --------------------------------------------------------------------------------------------------------------- the same again

keep eight parrot --prompt "$newline" --json --samples 8 --seed 7
keep again parrot --prompt "$newline" --json --samples 8 --seed 7 --threads 1
keep all parrot --prompt "$newline" --json --samples 8 --seed 7 --threads 0 # every core
keep four parrot --prompt "$newline" --json --samples 4 --seed 7 --threads 3
REIN_KERNEL=ref keep ref parrot --prompt "$newline" --json --samples 8 --seed 7
keep other parrot --prompt "$newline" --json --samples 8 --seed 8
if cmp -s "$work/eight" "$work/again"; then pass; else fail "the same seed, the same samples"; fi
if cmp -s "$work/eight" "$work/all"; then pass; else fail "--threads 0, the same samples"; fi
if cmp -s "$work/eight" "$work/ref"; then pass; else fail "REIN_KERNEL=ref, the same samples"; fi
if head -4 "$work/eight" | cmp -s - "$work/four"; then pass; else fail "--samples 4 is the first four of --samples 8"; fi
if cmp -s "$work/eight" "$work/other"; then fail "another seed, the same samples"; else pass; fi
holds "numbers of samples" '[x["sample"] for x in a] == list(range(8))' "$work/eight"
parrot --prompt "$newline" --samples 2 --greedy >"$work/out" 2>"$work/err"
if [ "$(cat "$work/out")" = "Hi_😀,you.Z${newline}Hi_😀,you.Z" ] && grep -qx 'rein generate: sample 1: 15 tokens, end' "$work/err"; then pass
else fail "several samples" "$(cat "$work/out" "$work/err")"; fi

# agrees TITLE LINES SCORE-OPTION…: score prints the very digits that generate printed
agrees() {
    local title=$1 lines=$2 threads digits
    shift 2
    digits=$(sed -E 's/.*"logprobs": \[([^]]*)\].*/\1/' "$lines")
    for threads in 1 2 3; do
        if ! rein score "$@" --threads "$threads" "$lines" >"$work/scores" 2>"$work/err"; then fail "$title" "$(cat "$work/err")"
        elif [ "$digits" = "$(sed -E 's/.*"logprobs": \[(null, )*([^]]*)\].*/\2/' "$work/scores")" ]; then pass
        else fail "$title: score and generate differ with $threads threads"; fi
    done
}
agrees "parrot" "$work/eight" --model "$parrot"
keep warm parrot --prompt "$newline" --json --samples 3 --temperature 1.5 --top-p 0.95
agrees "parrot at 1.5, top-p" "$work/warm" --model "$parrot" --temperature 1.5

# -------------------------------------------------------------------------------------------- every family, as float64 has it

# golden MODEL: score against golden.json, whose segments are roots or continue one; a line 'ok TITLE' or 'FAIL TITLE' each
golden() {
    python3 - "$1" <<'PYTHON'
import json, pathlib, subprocess, sys
model = pathlib.Path(sys.argv[1])
golden = json.loads((model / "golden.json").read_text())
segments, parents = golden["segments"], golden["parents"]
line = lambda ids, parent: {"ids": ids} if parent < 0 else {"prompt_ids": segments[parent], "response_ids": ids}
lines = "".join(json.dumps(line(ids, parent)) + "\n" for ids, parent in zip(segments, parents))
for result in golden["results"]:
    options = ["--model", model, "--entropy", "--temperature", str(result["temperature"])] + ["--adapter", model / "adapter"] * result["adapter"]
    said = subprocess.run(["rein", "score", *options], input=lines, capture_output=True, text=True).stdout
    scores = [json.loads(score) for score in said.splitlines()]
    for name, wanted in ("logprobs", result["log_probs"]), ("entropies", result["entropies"]):
        got = [x or 0 for score, ids in zip(scores, segments) for x in score[name][-len(ids):]]
        same = len(got) == len(wanted) and all(abs(x - y) <= 2e-5 for x, y in zip(got, wanted))
        print("ok" if same else "FAIL", model.name, "temperature", result["temperature"], "adapter", result["adapter"], name)
PYTHON
}
for model in "$fixtures"/engine/*/; do
    golden "${model%/}" >"$work/golden" 2>"$work/err" || fail "golden.json of $model" "$(tail -1 "$work/err")"
    while read -r verdict title; do
        if [ "$verdict" = ok ]; then pass; else fail "$title"; fi
    done <"$work/golden"
done
tiny=$fixtures/engine/llama
keep ids rein generate --model "$tiny" --prompt-ids 1,5,7 --max-tokens 9 --seed 3
keep lines rein generate --model "$tiny" --prompt-ids 1,5,7 --max-tokens 9 --seed 3 --json
holds "without a tokenizer: ids" '"text" not in a[0] and len(a) == 1' "$work/lines"
if [ "$(cat "$work/ids")" = "$(sed -E 's/.*"response_ids": \[([^]]*)\].*/\1/; s/ //g' "$work/lines")" ]; then pass; else fail "without a tokenizer: ids" "$(cat "$work/ids")"; fi
agrees "tiny" "$work/lines" --model "$tiny"
keep adapted rein generate --model "$tiny" --adapter "$tiny/adapter" --prompt-ids 1,5,7 --max-tokens 40 --seed 3 --json --samples 5
agrees "tiny with its adapter" "$work/adapted" --model "$tiny" --adapter "$tiny/adapter"
keep plain rein generate --model "$tiny" --prompt-ids 1,5,7 --max-tokens 40 --seed 3 --json --samples 5
holds "an adapter changes what is said" '[x["response_ids"] for x in a] != [x["response_ids"] for x in b]' "$work/adapted" "$work/plain"

# ---------------------------------------------------------------------------------------------------------------- a real model

if [ -d "$stories" ]; then
    python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))))' "$stories/greedy.json" >"$work/greedy"
    keep story rein generate --model "$stories" --prompt "" --greedy --max-tokens 199 --json
    holds "stories260K, ids" 'a[0]["ids"] == b[0]["prompt_ids"] + b[0]["response_ids"]' "$work/greedy" "$work/story"
    holds "stories260K, log-probabilities" 'near(a[0]["logprobs"], b[0]["logprobs"], 1e-4)' "$work/greedy" "$work/story"
    holds "stories260K, text" 'a[0]["text"] == b[0]["text"] and b[0]["finish"] == "length"' "$work/greedy" "$work/story"
    prints "stories260K, as it is written" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["text"])' "$work/greedy")" \
        rein generate --model "$stories" --prompt "" --greedy --max-tokens 199
    agrees "stories260K" "$work/story" --model "$stories"
    keep stories rein generate --model "$stories" --prompt "One day" --samples 6 --json
    agrees "stories260K, six stories" "$work/stories" --model "$stories"
    keep whole rein score --model "$stories" --ids "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ids"])' "$work/greedy")"
    holds "the whole story" 'b[0]["logprobs"][0] is None and near(a[0]["logprobs"], b[0]["logprobs"][1:], 1e-4)' "$work/greedy" "$work/whole"
    ln -s "$stories" "$work/stories260K"
    for command in generate score inspect; do # the examples, as they stand
        rein "$command" --help | sed '1,/^Example:$/d' >"$work/example"
        if [ -s "$work/example" ] && (cd "$work" && bash -eu "$work/example") >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] && [ -s "$work/out" ]; then pass
        else fail "example of $command" "$(cat "$work/example")" "$(head -3 "$work/err")"; fi
    done
else
    echo "NOTE: $stories is absent: the tests on a real model did not run"
fi

# ----------------------------------------------------------------------------------------------------------------------- score

score() { rein score --model "$parrot" "$@"; }
keep a score --text "x$newline"
holds "a text" 'a[0]["ids"] == [259, 120, 10] and a[0]["tokens"] == ["<|begin|>", "x", "Ċ"] and a[0]["logprobs"][0] is None' "$work/a"
holds "sum, mean, perplexity" 'near([a[0]["sum"], a[0]["mean"], a[0]["perplexity"]], [sum(a[0]["logprobs"][1:]), sum(a[0]["logprobs"][1:]) / 2, 260], 1e-3)' "$work/a" # both are one of 260
printf 'x\n\n' >"$work/text"
keep b score --file "$work/text"
holds "a file" 'a == b' "$work/a" "$work/b"
keep b score --ids 259,120,10
holds "ids" 'a == b' "$work/a" "$work/b"
printf '{"text": "x\\n"}\n\n  \n{"ids": [259, 120, 10]}\r\n{"prompt": "x", "response": "\\n"}\n{"prompt_ids": [259, 120], "response_ids": [10]}' >"$work/lines"
keep b score "$work/lines"
holds "lines" 'len(b) == 4 and b[0] == b[1] == a[0] and b[2] == b[3] and b[2]["logprobs"] == [None, None, a[0]["logprobs"][2]] and near([b[2]["sum"]], b[2]["logprobs"][2:], 1e-6)' "$work/a" "$work/b"
score <"$work/lines" >"$work/c" && score - <"$work/lines" >"$work/d"
if cmp -s "$work/b" "$work/c" && cmp -s "$work/b" "$work/d"; then pass; else fail "lines from standard input"; fi
keep a score --text "" --entropy
holds "nothing to score" 'a[0]["logprobs"] == [None] and a[0]["sum"] == 0 and a[0]["mean"] is None and a[0]["perplexity"] is None' "$work/a"
keep a score --ids 10,72 --entropy
holds "entropies" 'a[0]["entropies"][0] is None and near(a[0]["entropies"][1:], [log(exp(8) + 259) - 8 * exp(8) / (exp(8) + 259)], 1e-5)' "$work/a"
keep a score --ids 10,72 --temperature 2
holds "temperature" 'near(a[0]["logprobs"][1:], [4 - log(exp(4) + 259)], 1e-6)' "$work/a"

printf '{"text": "a"}\n{"text": 5}\n{"text": "b"}\n' >"$work/lines"
status=0
score "$work/lines" >"$work/out" 2>"$work/err" || status=$?
if [ "$status" -eq 2 ] && [ "$(wc -l <"$work/out")" -eq 1 ] && grep -qx 'rein score: line 2: text is 5: a text is needed' "$work/err"; then pass
else fail "a bad line after a good one" "status $status" "$(cat "$work/err")"; fi

line() { # line TITLE PATTERN LINE
    printf '\n%s\n' "$3" >"$work/lines"
    refused "$1" "^rein score: $2" score "$work/lines"
}
line "no object" 'line 2 is not a JSON object such as .*--file FILE scores plain text' '[1]'
line "plain text" 'line 2 is not a JSON object' 'Once upon a time'
line "nothing in it" 'line 2: one is needed: text, ids, prompt with response' '{}'
line "two in it" 'line 2: only one is needed' '{"text": "a", "ids": [1]}'
line "no response" 'line 2: response is missing' '{"prompt": "a"}'
line "no prompt_ids" 'line 2: prompt_ids is missing' '{"response_ids": [1]}'
line "unknown key" 'line 2: txt is unknown here: did you mean "text"' '{"txt": "a"}'
line "an id too large" 'line 2: ids\[1\] is 260: the model.s tokens are 0 to 259' '{"ids": [1, 260]}'
line "a negative id" 'line 2: ids\[0\] is -1: the model.s tokens are 0 to 259$' '{"ids": [-1]}'
line "half an id" 'line 2: response_ids\[1\] is 0.5' '{"prompt_ids": [1], "response_ids": [1, 0.5]}'
line "no ids" 'line 2: ids has no token' '{"ids": []}'
line "no prompt" 'line 2: prompt_ids has no token' '{"prompt_ids": [], "response_ids": [1]}'
line "too long" 'line 2: there are 81 tokens: the model has 64 positions' "{\"text\": \"$(printf 'x%.0s' {1..80})\"}"
line "cut short" 'line 2: ids\[1\] \(column [0-9]+\): ' '{"ids": [1, '
line "given twice" 'line 2: text is given twice, again at column' '{"text": "a", "text": "b"}'
line "a NUL in a text" 'line 2: text has .u0000 in it: texts have no such character' '{"text": "a\u0000"}'
printf '{"text": "a\0"}\n' >"$work/lines"
refused "a NUL" 'rein score: line 1: byte 11 is 0' score "$work/lines"
refused "no such file" '^rein score: cannot open "/nowhere/lines": ' score /nowhere/lines
refused "a directory of lines" '^rein score: cannot read ' score "$work"
refused "text and ids" '^rein score: --ids and --text are both given' score --text a --ids 1
refused "text and lines" '^rein score: --text and a file of JSON lines are both given' score --text a -
refused "ids too large" '^rein score: --ids\[2\] is 260: ' score --ids 1,2,260
refused "too long" '^rein score: there are 65 tokens: the model has 64 positions' score --ids "$(seq -s, 1 65)"
refused "not UTF-8" '^rein score: byte 1 of the text \(0xFF\) is not UTF-8' score --text $'a\xff'
refused "text without a tokenizer" '^rein score: .* has no tokenizer: the text must be given as --ids' rein score --model "$tiny" --text a
echo '{"prompt": "a", "response": "b"}' >"$work/lines"
refused "lines without a tokenizer" '^rein score: line 1: prompt is a text, and the model has no tokenizer.json' rein score --model "$tiny" "$work/lines"
for t in 0 -1 x nan 2000 ''; do refused "temperature $t" '^rein score: --temperature is "'"$t"'": it must be a number between 0.001 and 1000' score --text a --temperature "$t"; done

# --------------------------------------------------------------------------------------------------- mistakes with generate

refused "no model" '^rein generate: a policy is needed: --model PATH' rein generate --prompt a
refused "no prompt" '^rein generate: a prompt is needed' parrot
refused "two prompts" '^rein generate: --prompt and --prompt-ids are both given' parrot --prompt a --prompt-ids 1
refused "ids in a chat" '^rein generate: --prompt-ids and --chat are both given: a chat needs a text' parrot --prompt-ids 1 --chat
refused "two system messages" '^rein generate: --system and --messages' parrot --messages "$work/messages" --system a
for ids in '' x 1,x 1,,2 '1;2' -1 '[1' '1 2' 1,99999999999 1.5; do
    refused "ids $ids" '^rein generate: --prompt-ids' parrot --prompt-ids "$ids"
done
refused "where in the ids" 'entry 1 is "x": token ids such as 1,2,3' parrot --prompt-ids 1,x
refused "an id too large" '^rein generate: --prompt-ids\[1\] is 260: the model.s tokens are 0 to 259' parrot --prompt-ids 1,260
refused "longer than the context" '^rein generate: the prompt has 64 tokens: the model has 64 positions' parrot --prompt-ids "$(seq -s, 1 64)"
refused "not UTF-8" '^rein generate: byte 0 of the text' parrot --prompt $'\xff'
refused "greedy and top-k" '^rein generate: --top-k has no effect with --greedy, which takes' parrot --prompt a --greedy --top-k 3
refused "greedy and min-p" '^rein generate: --min-p has no effect with --temperature 0, which takes' parrot --prompt a --temperature 0 --min-p 0.1
refused "an empty stop" '^rein generate: --stop is ""' parrot --prompt a --stop a --stop ''
# shellcheck disable=SC2046 # words
refused "too many stops" '^rein generate: --stop is given too often: at most 16 times' parrot --prompt a $(printf -- '--stop x%.0s ' {1..17})
refused "the beginning of an option" '^rein generate: unknown option --temp: did you mean --temperature' parrot --temp 0
refused "twice" '^rein generate: --seed is given twice' parrot --prompt a --seed 1 --seed 1
refused "top-log-probs without JSON" '^rein generate: --top-log-probs needs --json' parrot --prompt a --top-log-probs 2
refused "top-log-probs beyond" '"field": "--top-log-probs", "index": null, "message": "--top-log-probs is 261: the model has 260' parrot --prompt a --json --top-log-probs 261
refused "thinking" '^rein generate: --no-thinking has no effect with the chat format chatml: qwen3 is needed' parrot --prompt a --no-thinking
refused "a format of other models" '^rein generate: the chat format llama3 ends turns with <\|eot_id\|>, and the tokenizer has no such token' parrot --prompt a --chat-format llama3
refused "chat format" '^rein generate: --chat-format is "chatlm": raw, chatml' parrot --prompt a --chat-format chatlm
refused "prompt file" '^rein generate: cannot open "/nowhere": ' parrot --prompt-file /nowhere
refused "prompt directory" '^rein generate: cannot read ' parrot --prompt-file "$work"
for n in 0 -1 x 1.5 ''; do
    for option in samples max-tokens top-log-probs; do
        refused "$option $n" "^rein generate: --$option is \"$n\": it must be a whole number between 1 and " parrot --prompt a "--$option" "$n"
    done
done
for n in -1 x 1.5 '' 99999999999999999999; do
    refused "threads $n" "^rein generate: --threads is \"$n\": it must be a whole number between 0 and 256" parrot --prompt a --threads "$n"
    refused "seed $n" "^rein generate: --seed is \"$n\": it must be a whole number between 0 and " parrot --prompt a --seed "$n"
    refused "top-k $n" "^rein generate: --top-k is \"$n\": it must be a whole number between 0 and " parrot --prompt a --top-k "$n"
done
for p in x nan inf -0.1 1.5 ''; do
    refused "top-p $p" "^rein generate: --top-p is \"$p\": it must be a number above 0 and at most 1" parrot --prompt a --top-p "$p"
    refused "min-p $p" "^rein generate: --min-p is \"$p\": it must be a number from 0 to below 1" parrot --prompt a --min-p "$p"
    refused "temperature $p" "^rein generate: --temperature is \"${p/1.5/1e9}\": it must be a number between 0.001 and 1000" parrot --prompt a --temperature "${p/1.5/1e9}"
done
REIN_KERNEL=sse refused "kernel" '^rein generate: the environment variable REIN_KERNEL is "sse": on this machine it can be one of ref' parrot --prompt a

messages() { # messages TITLE PATTERN JSON
    printf '%s' "$3" >"$work/messages"
    refused "messages: $1" "^rein generate: .*/messages: $2" parrot --messages "$work/messages"
}
messages "an object" 'an array of messages is needed' '{"role": "user", "content": "a"}'
messages "empty" 'an array of messages is needed' '[]'
messages "no role" 'messages\[0\].role is missing' '[{"content": "a"}]'
messages "no content" 'messages\[1\].content is 5: a text is needed' '[{"role": "user", "content": "a"}, {"role": "user", "content": 5}]'
messages "unknown key" 'tols is unknown here: did you mean "tools"' '{"messages": [{"role": "user", "content": "a"}], "tols": []}'
messages "cut short" '\[0\]' '[{"role"'
echo '[{"role": "usr", "content": "a"}]' >"$work/messages"
refused "messages: role" '^rein generate: messages\[0\].role is unknown: system, user, assistant or tool' parrot --messages "$work/messages"

# ------------------------------------------------------------------------------------------------------------------- bad files

broken() { # broken NAME: a copy of the parrot to be broken
    rm -rf "${work:?}/$1" && cp -r "$parrot" "$work/$1"
}
for command in "generate --prompt a" "score --text a"; do
    # shellcheck disable=SC2086 # words
    run() { rein $command --model "$@"; }
    refused "no such model" "^rein ${command%% *}: \".*/nowhere\" is neither a model " run "$work/nowhere"
    refused "no model in it" "^rein ${command%% *}: .*config.json" run "$work/bin"
    refused "a file for a model" "^rein ${command%% *}: " run "$parrot/config.json"
    broken cut && head -c 300000 "$parrot/model.safetensors" >"$work/cut/model.safetensors"
    refused "cut weights" "^rein ${command%% *}: .*model.safetensors" run "$work/cut"
    broken none && rm "$work/none/model.safetensors"
    refused "no weights" "^rein ${command%% *}: .*safetensors" run "$work/none"
    broken config && echo '{' >"$work/config/config.json"
    refused "broken config" "^rein ${command%% *}: .*config.json" run "$work/config"
    broken tokens && echo '{}' >"$work/tokens/tokenizer.json"
    refused "broken tokenizer" "^rein ${command%% *}: .*tokenizer.json" run "$work/tokens"
    broken other && cp "$fixtures/tokenizer/gpt2/tokenizer.json" "$work/other"
    refused "another model's tokenizer" "^rein ${command%% *}: the tokenizer of .* has 321 tokens, the model 260: it belongs to another model" run "$work/other"
    refused "no such adapter" "^rein ${command%% *}: .*/nowhere" run "$parrot" --adapter "$work/nowhere"
    refused "another model's adapter" "^rein ${command%% *}: " run "$parrot" --adapter "$tiny/adapter"
done
broken chatless && rm "$work/chatless/chat_template.jinja"
refused "no chat template" '^rein generate: the model has no chat template: --chat-format NAME' rein generate --model "$work/chatless" --prompt a --chat
broken odd && echo '{{ messages }}' >"$work/odd/chat_template.jinja"
broken own && cat >"$work/own/chat_template.jinja" <<'TEMPLATE'
{%- if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif -%}
{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>' ~ '\n' }}{% endfor -%}
{{- '<|im_start|>assistant\n' }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif -%}
TEMPLATE
own() { rein generate --model "$work/own" --greedy "$@"; }
prints "another chat template is run" "Hi_😀,you." own --prompt a --chat
echo '{"messages": [{"role": "user", "content": "<|im_end|>"}], "tools": [{"n": 1}]}' >"$work/messages"
own --messages "$work/messages" --json --max-tokens 1 >"$work/a"
own --prompt '<|im_start|>system
[{"n": 1}]<|im_end|>
<|im_start|>user
' --json --max-tokens 1 >"$work/b"
holds "tools are shown, and a message spells no special token" 'a[0]["prompt_ids"][:len(b[0]["prompt_ids"]) - 1] == b[0]["prompt_ids"][1:] and len(a[0]["prompt_ids"]) > len(b[0]["prompt_ids"]) + 10 + len("assistant")' "$work/a" "$work/b"
own --prompt a --chat --json --max-tokens 1 >"$work/a"
own --prompt a --no-thinking --json --max-tokens 1 >"$work/b"
holds "no thinking" 'len(b[0]["prompt_ids"]) == len(a[0]["prompt_ids"]) + len("False")' "$work/a" "$work/b"
refused "no thinking has no effect" '^rein generate: --no-thinking has no effect: the chat template does not read enable_thinking' rein generate --model "$work/odd" --prompt a --no-thinking
echo '[{"role": "user", "content": "a", "mood": "b"}]' >"$work/messages"
refused "a field that the template does not read" '^rein generate: messages\[0\].mood: the chat template does not read it' parrot --messages "$work/messages"
broken loop && echo '{% for m in messages %}{{ m.content }}' >"$work/loop/chat_template.jinja"
refused "a template that cannot be run" '^rein generate: the chat template cannot be run: the chat template, line 1, column 39' rein generate --model "$work/loop" --prompt a --chat
prints "another chat template, named" "Hi_😀,you." rein generate --model "$work/odd" --prompt a --chat-format chatml --greedy
refused "text without a tokenizer" '^rein generate: .* has no tokenizer: the prompt must be given as --prompt-ids' rein generate --model "$tiny" --prompt a
refused "stop without a tokenizer" '^rein generate: .* has no tokenizer.json, and --stop is a text' rein generate --model "$tiny" --prompt-ids 1 --stop a
broken nan && python3 - "$work/nan/model.safetensors" <<'PYTHON'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + int.from_bytes(data[:8], "little")
data[start:start + 400000] = b"\xff" * 400000 # not a number, and nowhere in the header
open(sys.argv[1], "wb").write(data)
PYTHON
for command in "generate --prompt a --json" "score --text a"; do
    status=0
    # shellcheck disable=SC2086 # words
    rein $command --model "$work/nan" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -eq 1 ] && [ ! -s "$work/out" ] && grep -q 'not a finite number' "$work/err"; then pass; else fail "weights that are no numbers: $command" "status $status" "$(cat "$work/err")"; fi
done
if [ -e /dev/full ]; then
    for options in "" --json "--samples 2"; do
        status=0
        # shellcheck disable=SC2086 # words
        parrot --prompt a $options >/dev/full 2>"$work/err" || status=$?
        if [ "$status" -eq 1 ] && grep -q 'cannot write to stdout' "$work/err"; then pass; else fail "a full disk $options" "status $status"; fi
    done
fi

# --------------------------------------------------------------------------------------------------------------------- inspect

says "a model" '^parameters  *139620 \(139.6 thousand\)$' rein inspect "$parrot"
for line in 'family  *llama' 'type  *F32' 'bytes  *558480 \(545.4 KiB\)' 'layers  *1' 'vocabulary  *260' 'context  *64' 'tied head  *no' 'end ids  *258 "<\|end\|>"' \
    'tokenizer  *byte-level BPE' 'tokenizer size  *260' 'chat format  *chatml' 'ignored tensors  *0'; do
    if grep -qxE "$line" "$work/out"; then pass; else fail "inspect: $line"; fi
done
keep a rein inspect "$parrot" --json
holds "a model as JSON" 'a[0]["parameters"] == 139620 and a[0]["end_ids"] == [258] and a[0]["begin_id"] == 259 and a[0]["chat_format"] == "chatml" and a[0]["tied_head"] is False' "$work/a"
says "a template of its own" '^chat format  *template$' rein inspect "$work/odd"
keep a rein inspect "$tiny" --json
holds "without a tokenizer" 'a[0]["tokenizer"] is None and a[0]["family"] == "llama"' "$work/a"
keep a rein inspect "$tiny" --json
names=$(rein inspect "$tiny" | cut -c1-18 | sed 's/ *$//; s/ /_/g' | uniq | tr '\n' ' ')
if [ "$names" = "$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])), end=" ")' "$work/a")" ]; then pass
else fail "the fields of the text are those of the JSON" "$names"; fi
says "its layers" '^attention  *layers? 0' rein inspect "$tiny"
says "what can train" '^lora modules  *q_proj k_proj' rein inspect "$tiny"
says "its memory" '^memory full  *[0-9]+ \(' rein inspect "$tiny" --tokens 16 --samples 4
refused "more tokens than the context" '^rein inspect: --tokens is "99999999"' rein inspect "$tiny" --tokens 99999999
refused "sizes of an adapter" '^rein inspect: --samples is for the directory of a model' rein inspect "$tiny/adapter" --samples 2
if ! rein run "$work/large" --model "$tiny" --task sums --dry-run --lora-rank 4096 --shards 4096 >/dev/null 2>"$work/err" &&
    grep -qE '^rein run: note: the run needs [0-9.]+ [GT]iB of memory by estimate, and [0-9.]+ [MGT]iB are available' "$work/err"; then pass
else fail "a run that will not fit" "$(head -3 "$work/err")"; fi
says "an adapter alone" '^modules  *q_proj k_proj v_proj o_proj gate_proj up_proj down_proj$' rein inspect "$tiny/adapter"
says "its scale" '^scale  *1.5$' rein inspect "$tiny/adapter"
keep a rein inspect "$tiny/adapter" --json
keep b rein inspect "$tiny/adapter" --json --model "$tiny"
holds "an adapter and its model" 'b[0].pop("fits").endswith("llama") and a[0]["rank"] == 2 and a[0]["alpha"] == 3 and {**a[0], "base": 0} == {**b[0], "base": 0}' "$work/a" "$work/b"
refused "an adapter of another model" '^rein inspect: ' rein inspect "$tiny/adapter" --model "$parrot"
refused "no path" '^rein inspect: a path is needed' rein inspect
refused "nothing there" '^rein inspect: cannot open "/nowhere": ' rein inspect /nowhere
refused "neither" '^rein inspect: ".*/bin" is not one of these: a model \(a directory with config.json, or a GGUF file\), the directory of an adapter' rein inspect "$work/bin"
refused "a file" '^rein inspect: ".*safetensors" is not a directory: ' rein inspect "$parrot/model.safetensors"
refused "no adapter" '^rein inspect: .* has no adapter_config.json: --model is for an adapter' rein inspect "$parrot" --model "$parrot"
refused "cut weights" '^rein inspect: .*model.safetensors' rein inspect "$work/cut"
cp -r "$tiny/adapter" "$work/adapter"
head -c 100 "$tiny/adapter/adapter_model.safetensors" >"$work/adapter/adapter_model.safetensors"
refused "a cut adapter" '^rein inspect: .*adapter_model.safetensors: .* was it cut short\?$' rein inspect "$work/adapter"
cp "$tiny/adapter/adapter_model.safetensors" "$work/adapter/"
echo '{"peft_type": "IA3"}' >"$work/adapter/adapter_config.json"
refused "no LoRA" '^rein inspect: .*peft_type is "IA3": not supported; "LORA" is$' rein inspect "$work/adapter"

# ------------------------------------------------------------------------------------------------------------ help and terminal

for command in generate score inspect; do
    says "help of $command" "^Usage: rein $command" rein "$command" --help
    narrow "help of $command"
done
completes --prompt-ids rein generate --prompt-i
completes --entropy rein score --model x --e
mkdir "$work/here" && cd "$work/here" && mkdir a_model || exit 1
completes a_model rein inspect a_
if command -v script >/dev/null; then # a terminal of its own
    export parrot
    # shellcheck disable=SC2016
    script -qec 'rein generate --model "$parrot" --prompt "
" --greedy' /dev/null </dev/null 2>/dev/null | tr -d '\r' >"$work/out"
    if [ "$(head -1 "$work/out")" = "Hi_😀,you.Z" ] && grep -qE '^rein generate: 15 tokens in [0-9.]+ s, [0-9.]+ tokens/s$' "$work/out"; then pass
    else fail "on a terminal" "$(cat "$work/out")"; fi
fi

finish
