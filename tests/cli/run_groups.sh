#!/bin/bash
# run_groups.sh REIN: trajectory groups from outside: what `rein inspect` shows of a file, and what it says of a wrong one.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
fixtures=$here/../train/fixtures/groups
model=$fixtures/tokenizer
cd "$work" || exit 1 # messages cut long paths

# has TITLE LINE…: out has each of the lines, whole
has() {
    local title=$1 line
    shift
    for line in "$@"; do
        if grep -qxF -- "$line" out; then pass; else fail "$title: $line" "$(head -40 out)"; fi
    done
}

cat >exact.jsonl <<'LINES'
{"trajectories": [{"prompt_ids": [11, 12], "response_ids": [13, 14, 15], "logprobs": [-1, -2, -0.5], "mask": [1, 0, 1], "reward": 1, "policy_step": 3}, {"prompt_ids": [11, 12], "response_ids": [16], "logprobs": [-1], "reward": 0, "policy_step": 3}]}

{"trajectories": [{"prompt_ids": [11], "response_ids": [17, 18], "logprobs": [null, -1], "reward": 1, "truncated": true, "policy_step": 3}, {"prompt_ids": [11, 12], "response_ids": [16], "mask": [0], "reward": 1, "policy_step": 3}]}
LINES
cat >talk.jsonl <<'LINES'
{"trajectories": [{"messages_and_choices": [{"role": "user", "content": "What is 2+2?"}, {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "It is\n4."}}, {"role": "user", "content": "\u001b[31mAnd?"}, {"finish_reason": "length", "index": 0, "message": {"role": "assistant", "content": "the"}}], "reward": 0.5, "metrics": {}, "metadata": {}, "tools": null, "logs": []}]}
LINES

# ---------------------------------------------------------------------------------------------------------------- what is shown

says "token ids" '^trajectories      4$' rein inspect exact.jsonl
narrow "token ids"
has "token ids" "groups            2" "histories         4" "tokens            14" "trained tokens    5 (35.7 %)" \
    "truncated         1 (25 % of the trajectories)" "equal rewards     1 (50 % of the groups)" \
    "reward            mean 0.75, deviation 0.433, from 0 to 1" "trained length    mean 1.25, from 0 to 2" "policy step       3" \
    "warning: 1 of 4 trajectories have 0 % trainable tokens: they teach nothing" \
    "warning: 1 of 4 trajectories have 100 % trainable tokens: is the prompt masked?" \
    "warning: 1 of 5 trained tokens have no log-probability: the current policy" \
    "         0  ██████████████ 1" "         1  ████████████████████████████████████████ 3" \
    "What trains is between ⟦ and ⟧." "group 1, trajectory 1: reward 1, 2 tokens train" "  11 12 ⟦13⟧ 14 ⟦15⟧" \
    "group 2, trajectory 1: reward 1, 2 tokens train, truncated" "  11 ⟦17 18⟧" "  11 12 16"
says "from standard input" '^trajectories      4$' bash -c "rein inspect - <'exact.jsonl'"
says "messages" '^histories         1$' rein inspect talk.jsonl --model "$model"
narrow "messages"
has "messages" "  <|im_start|>user↵" "  What is 2+2?<|im_end|>↵" "  ⟦It is↵" "  4.<|im_end|>⟧↵" "  ·[31mAnd?<|im_end|>↵" "  ⟦the⟧" \
    "warning: 1 of 1 groups have one trajectory: there is nothing to compare it with" "policy step       not known"
says "in another format" '^  What is 2\+2\?⟦It is↵$' rein inspect talk.jsonl --model "$model" --chat-format raw
cp exact.jsonl named_otherwise
says "known by its first byte" '^groups            2$' rein inspect named_otherwise
for ((i = 0; i < 12; i++)); do echo "{\"trajectories\": [{\"prompt_ids\": [1, 2], \"response_ids\": [3], \"reward\": $i}]}"; done >many.jsonl
says "many rewards" '^rewards, from$' rein inspect many.jsonl
has "many rewards" "     1.375  ████████████████████ 1" "… and 8 trajectories more"
python3 -c 'print("{\"trajectories\": [{\"prompt_ids\": %s, \"response_ids\": %s, \"reward\": 1}]}" % (list(range(1000)), list(range(1000))))' >long.jsonl
says "a long one" '^  … 800 801 ' rein inspect long.jsonl
says "its end" '⟧ … 800 more$' rein inspect long.jsonl
narrow "a long one"

says "JSON" '"warnings": \["1 of 4 trajectories have 0 % trainable' rein inspect exact.jsonl --json
if python3 - out <<'PYTHON'; then pass; else fail "JSON" "$(cat out)"; fi
import json, sys
a = json.load(open(sys.argv[1]))
wanted = {"groups": 2, "trajectories": 4, "histories": 4, "tokens": 14, "trained_tokens": 5, "log_probs_missing": 1, "truncated": 1, "untrained": 1, "all_trained": 1, "single_groups": 0, "equal_groups": 1,
          "length_min": 0, "length_max": 2, "length_mean": 1.25, "reward_mean": 0.75, "reward_std": 0.1875**0.5, "reward_min": 0, "reward_max": 1, "policy_step_min": 3, "policy_step_max": 3, "policy_step_unknown": 0}
sys.exit({k: v for k, v in a.items() if k != "warnings"} != wanted or len(a["warnings"]) != 3)
PYTHON
if command -v script >/dev/null; then # a terminal has colours
    script -qec "NO_COLOR= TERM=xterm rein inspect 'exact.jsonl'" /dev/null </dev/null >out 2>&1
    if grep -qF $'  11 12 \033[32m13\033[0m 14 \033[32m15\033[0m' out && ! grep -q '⟦' out; then pass; else fail "colours" "$(tail -20 out | cat -v)"; fi
    script -qec "NO_COLOR=1 TERM=xterm rein inspect 'exact.jsonl'" /dev/null </dev/null >out 2>&1
    if grep -q '⟦13⟧' out && ! grep -q $'\033' out; then pass; else fail "NO_COLOR"; fi
fi

# ---------------------------------------------------------------------------------------------------------------- what is wrong

bad() { # bad TITLE PATTERN LINE: a file of this line
    printf '%s\n' "$3" >bad.jsonl
    refused "$1" "^rein inspect: bad.jsonl: line 1: $2" rein inspect bad.jsonl --model "$model"
}
bad "no reward" 'trajectories\[0\]\.reward is missing: a number is needed$' '{"trajectories": [{"prompt_ids": [1], "response_ids": [2]}]}'
bad "a count that disagrees" 'trajectories\[0\]\.logprobs has 1 entries, response_ids has 2: they must agree$' '{"trajectories": [{"prompt_ids": [1], "response_ids": [2, 3], "logprobs": [-1], "reward": 1}]}'
bad "no role" 'trajectories\[0\]\.messages_and_choices\[0\]\.role is missing' '{"trajectories": [{"messages_and_choices": [{}], "reward": 1}]}'
bad "tools" 'trajectories\[0\]\.tools: the chat format chatml has no place' '{"trajectories": [{"messages_and_choices": [{"role": "user", "content": "?"}], "tools": [{}], "reward": 1}]}'
refused "no tokenizer" 'tokenizer is missing: .* cannot be read without one .*: give --model DIR$' rein inspect talk.jsonl
refused "a format without a tokenizer" '^rein inspect: --chat-format needs a tokenizer: give --model DIR$' rein inspect talk.jsonl --chat-format raw
refused "an unknown format" '--chat-format is "mistral": raw, chatml' rein inspect talk.jsonl --model "$model" --chat-format mistral
refused "a format of a model" '^rein inspect: --chat-format is for a file of trajectories$' rein inspect "$model" --chat-format raw
refused "nothing there" '^rein inspect: cannot open "/nowhere\.jsonl"' rein inspect /nowhere.jsonl
: >empty.jsonl
refused "an empty file" '^rein inspect: .*empty\.jsonl has no group' rein inspect empty.jsonl
printf '{\n  "trajectories": []\n}\n' >pretty.jsonl
refused "JSON of several lines" 'line 1.*column .*: the line ends here, inside the JSON: a line holds a whole value$' rein inspect pretty.jsonl
printf 'PAR1\0\0PAR1' >art.parquet
refused "Parquet" '^rein inspect: .*art\.parquet is Parquet: JSON lines are needed, which python3 -c "' rein inspect art.parquet

# The conversion that it says, where Python can do it.
if python3 -c 'import pyarrow.parquet' 2>/dev/null; then
    python3 - art.parquet <<'PYTHON'
import sys, pyarrow as pa, pyarrow.parquet as pq
message = lambda role, content, trainable: {"role": role, "content": content, "tool_calls": None, "tool_call_id": None, "trainable": trainable}
rows = [{"group_index": g, "reward": float(g), "metrics": None, "tools": None, "messages": [message("user", "?", False), message("assistant", "4", True)]} for g in (0, 0, 1)]
pq.write_table(pa.Table.from_pylist(rows), sys.argv[1])
PYTHON
    rein inspect art.parquet 2>err
    code=$(sed -n 's/.*python3 -c "\(.*\)" FILE\.parquet.*/\1/p' err)
    python3 -c "$code" art.parquet >converted.jsonl
    says "converted" '^trained tokens    3 ' rein inspect converted.jsonl --model "$model"
    has "converted" "groups            2" "trajectories      3"
fi
finish
