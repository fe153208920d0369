#!/bin/bash
# run_stories.sh REIN: examples/stories from outside. stories260K is written back into llama2.c's files (llama2c.py) and converted
# again: the same weights and the same tokens. Then it learns to end its stories within a budget, as the example has it, and stays
# near what it was. Where ../shared does not have the model, what is left is what the converter says of wrong files, and the judge.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
example=$(realpath "$here/../../examples/stories")
stories=$here/../../../shared/models/stories260K
if ! command -v python3 >/dev/null; then
    echo "NOTE: python3 is absent: the converter and the judge of examples/stories were not tested"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
cd "$work" || exit 1

convert() { python3 "$example/convert.py" "$@"; }
# does TITLE COMMAND…: status 0, nothing on stderr; its output in $work/out
does() {
    local title=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" -eq 0 ] && [ ! -s "$work/err" ]; then pass; else fail "$title" "status $status" "$(head -3 "$work/err")"; fi
}
# same TITLE MODEL MODEL COMMAND…: what the command prints with each of them; compared byte for byte
same() {
    local title=$1 model=$2 again=$3
    shift 3
    if "$@" --model "$model" >one 2>"$work/err" && "$@" --model "$again" >other 2>>"$work/err" && [ -s one ] && cmp -s one other; then pass
    else fail "$title" "$(head -3 "$work/err")" "$(cmp one other 2>&1)"; fi
}
# true_of TITLE PYTHON: statements that assert; $work is the directory they run in, and convert.py can be imported
true_of() { if PYTHONPATH=$example python3 -c "$2" >"$work/err" 2>&1; then pass; else fail "$1" "$(tail -3 "$work/err")"; fi; }

# -------------------------------------------------------------------------------------------------------------- wrong files

python3 "$here/stories_files.py" "$example/convert.py" >cases 2>"$work/err" || fail "stories_files.py" "$(tail -1 "$work/err")"
while read -r verdict title; do
    if [ "$verdict" = ok ]; then pass; else fail "convert.py: $title"; fi
done <cases
says "a tiny model" '^parameters  *1172 ' rein inspect tiny
says "a head of its own" '^tied head  *no$' rein inspect separate
says "its type" '^type  *BF16$' rein inspect separate
refused "one line, status 2" '^convert.py: tokenizer.bin is no checkpoint of llama2.c: ' convert tokenizer.bin model.bin none
status=0
convert nowhere.bin tokenizer.bin none >out 2>err || status=$?
if [ "$status" -eq 1 ] && grep -q "^convert.py: .*No such file or directory: 'nowhere.bin'" err; then pass; else fail "no file" "status $status" "$(cat err)"; fi

# --------------------------------------------------------------------------------------------------------------- the judge

judged() { # judged REWARD TOKENS TRUNCATED RESPONSE: the response as JSON has it
    ids=$((ids + 1))
    echo "{\"id\": $ids, \"prompt\": \"a\", \"response\": \"$4\", \"tokens\": $2, \"truncated\": $3}" >>responses
    echo "{\"id\": $ids, \"reward\": $1}" >>rewards
}
ids=0
judged 1.0 10 false 'It was good.'
judged 1.0 3 false 'It was good!\n'
judged 1.0 10 false 'She said, \"Oh?\"'
judged 1.0 10 false 'She said, “Oh?”'
judged 0.0 11 false 'It was good.'
judged 0.0 10 true 'It was good.'
judged 0.0 3 false 'It was'
judged 0.0 3 false 'It was \"'
judged 0.0 1 false ''
python3 "$example/judge.py" 10 <responses >out 2>err
if cmp -s rewards out && [ ! -s err ]; then pass; else fail "the judge" "$(diff rewards out | head -3)" "$(tail -1 err)"; fi

# ------------------------------------------------------------------------------------------------------------- a real model

if [ ! -d "$stories" ]; then
    echo "NOTE: $stories is absent: the tests on a real model did not run"
    finish
    exit
fi

texts=300 forms=("" old separate)
[ -z "${REIN_TEST_FAST:-}" ] || texts=40 forms=("")
# Texts of all kinds, and what SentencePiece makes of them: of all neighbours that make a piece, those of the best one are joined.
python3 - "$stories" "$texts" <<'PYTHON' || fail "texts"
import json, random, sys
model = json.load(open(sys.argv[1] + "/tokenizer.json"))["model"]
score = {text: -token for text, token in model["vocab"].items() if token >= 259}
def encode(text):
    symbols = ["▁"] if text else []
    for c in text.replace(" ", "▁"):
        symbols += [c] if c in score else [f"<0x{b:02X}>" for b in c.encode()]
    while True:
        pairs = [(score.get(a + b, -1e9), -i) for i, (a, b) in enumerate(zip(symbols, symbols[1:]))]
        best, at = max(pairs, default=(-1e9, 0))
        if best == -1e9:
            return [1, *(model["vocab"][s] for s in symbols)]
        symbols[-at : -at + 2] = [symbols[-at] + symbols[-at + 1]]
random.seed(1)
words = "Once upon a time, there was the littlest girl named Lily. She didn't want \"to\" play! One day 42 <unk naïve ▁ 日本 😀 é\u0301 \t \n é".split(" ")
with open("texts.jsonl", "w") as texts, open("ids.jsonl", "w") as ids:
    for i in range(int(sys.argv[2])):
        text = random.choice(["", " ", "  "]).join(random.choice(words) for _ in range(random.randrange(12)))
        texts.write(json.dumps({"text": text}) + "\n")
        ids.write(json.dumps({"ids": encode(text)}) + "\n")
PYTHON

for how in "${forms[@]}"; do
    # shellcheck disable=SC2086 # words
    does "llama2.c's files $how" python3 "$here/llama2c.py" "$stories" "files$how" $how
    does "converted $how" convert "files$how/model.bin" "files$how/tokenizer.bin" "model$how"
    same "texts: $how" "$stories" "model$how" rein score texts.jsonl
    same "greedy: $how" "$stories" "model$how" rein generate --prompt "" --greedy --max-tokens 300 --ignore-end --json
done
same "as SentencePiece has it" model model rein score texts.jsonl
rein score --model model ids.jsonl >ids
if cmp -s one ids; then pass; else fail "as SentencePiece has it" "$(diff one ids | head -2 | cut -c1-300)"; fi
does "in bfloat16" convert files/model.bin files/tokenizer.bin half --dtype bf16
says "in bfloat16" '^type  *BF16$' rein inspect half
says "it ends with the begin token" '^end ids  *1 "<s>"$' rein inspect model
true_of "the same merges, whichever of a piece's pairs comes first" '
import json
merges = [json.load(open(d + "/tokenizer.json"))["model"]["merges"] for d in ("model", "'"$stories"'")]
assert sorted(merges[0]) == sorted(merges[1]) and ["".join(m.split()) for m in merges[0]] == ["".join(m.split()) for m in merges[1]]
'

# ------------------------------------------------------------------------------------------------------------------ it learns

if [ -n "${REIN_TEST_FAST:-}" ]; then
    echo "NOTE: REIN_TEST_FAST is set: the run of the example was left out"
    finish
    exit
fi
# The example as it stands, with a budget for this model's longer tokens, larger steps and fewer of them.
if REIN=rein MODEL=model BUDGET=224 "$example/run.sh" run --learning-rate 1.2e-3 --lora-rank 8 --lora-alpha 16 --prompts 8 --steps 4 \
    --eval-samples 4 >out 2>err; then pass; else fail "run.sh" "$(tail -3 err)"; fi
figures() { true_of "$1" 'import json; s = json.load(open("run/summary.json")); base, final = s["base"], s["final"]; '"$2"; }
figures "few stories end in time before" 'assert base["accuracy"] < 0.2, base'
figures "three times as many after" 'assert final["accuracy"] > max(0.5, 3 * base["accuracy"]) and final["accuracy_low"] > base["accuracy_high"], (base, final)'
figures "it stays near: less than 0.06 nats a token" 'assert 0 < final["kl"] < 0.06, final'
figures "true on-policy" 'assert s["on_policy_max_gap"] == 0 and s["steps"] == 4, s'
true_of "what it wrote before is still likely" '
lines = dict(line.split() for line in open("out").read().replace("the model ", "model ").splitlines()[-3:])
assert list(lines) == ["model", "0004", "difference"] and -0.06 < float(lines["difference"]) < 0, lines'
finish
