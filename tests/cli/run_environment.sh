#!/bin/bash
# run_environment.sh REIN: environments: a game of several turns is learned; limits, tools, histories; the same bits in any order; every fault of
# a program has its message. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
sums=$here/../../models/sums
play() { echo "env: python3 $here/environment.py $*"; }
cd "$work" || exit 1
common=(--model "$sums" --chat-format raw --preset grpo --prompts 8 --samples 8 --max-tokens 24 --learning-rate 1e-3)

# ---- learning
does "a game is learned" rein run game "${common[@]}" --task "$(play guess)" --steps 24 --eval-prompts 32
if python3 - <<'END'
import json
steps = [json.loads(line) for line in open("game/history.jsonl")]
assert all(s["on_policy/max_gap"] == 0 for s in steps if "on_policy/max_gap" in s)
summary = json.load(open("game/summary.json"))
assert summary["base"]["accuracy"] < 0.2 and summary["final"]["greedy_accuracy"] >= 0.6, summary
END
then pass; else fail "a game is learned"; fi
does "the same in any order, with another number of threads" rein run mixed "${common[@]}" --task "$(play shuffled)" --steps 2 --eval-prompts 0 --threads 3
does "the same, plainly" rein run plain "${common[@]}" --task "$(play guess)" --steps 2 --eval-prompts 0 --threads 1
for file in checkpoints/0002/adapter_model.safetensors trajectories/train/0002.jsonl; do
    if cmp -s "mixed/$file" "plain/$file"; then pass; else fail "in any order: $file differs"; fi
done
does "resumed" rein run halves "${common[@]}" --task "$(play guess)" --steps 1 --eval-prompts 0
does "resumed" rein run halves --steps 2
if cmp -s halves/checkpoints/0002/adapter_model.safetensors plain/checkpoints/0002/adapter_model.safetensors; then pass; else fail "resumed: other bits"; fi

# ---- killed in the middle of a step
does "three steps" rein run whole "${common[@]}" --task "$(play guess)" --steps 3 --eval-prompts 0
"$rein" run killed "${common[@]}" --task "$(play guess)" --steps 3 --eval-prompts 0 >/dev/null 2>&1 &
until [ -e killed/checkpoints/0001 ] || ! kill -0 $!; do sleep 0.02; done
kill -9 $!
wait $! 2>/dev/null
absent "the end of the killed run" killed/checkpoints/0003
does "resumed after kill -9" rein run killed --steps 3
if cmp -s killed/checkpoints/0003/adapter_model.safetensors whole/checkpoints/0003/adapter_model.safetensors; then pass; else fail "after kill -9: other bits"; fi

# ---- what is written
if python3 - <<'END'
import json
turns = 0
for line in open("plain/trajectories/train/0002.jsonl"):
    for t in json.loads(line)["trajectories"]:
        n = len(t["response_ids"])
        assert len(t["mask"]) == n == len(t["advantages"]) == len(t["metadata"]["pieces"]), t
        assert [m["role"] for m in t["messages"]][::2] == ["user"] * ((len(t["messages"]) + 1) // 2)
        assert t["metrics"]["turns"] == sum(m["role"] == "assistant" for m in t["messages"])
        assert all(a == 0 for a, m in zip(t["advantages"], t["mask"]) if not m)
        if t["metrics"]["turns"] == 2:
            turns += 1
            assert 0 in t["mask"] and "Q:" in "".join(t["metadata"]["pieces"]), t
        assert t["reward"] == t["metrics"]["task"]
        assert len(t["turn_rewards"]) == t["metrics"]["turns"] and sum(t["turn_rewards"]) == t["reward"], t
assert turns > 8
END
then pass; else fail "what is written"; fi
does "the report" rein report plain
has "the report has the turns" plain/report.html '"mask"'
does "the groups can be read again" rein inspect plain/trajectories/train/0002.jsonl

# ---- limits; the reward tells how an episode ended
ended() { # ended TITLE REWARD OPTION…
    local title=$1 reward=$2
    shift 2
    rm -rf limits
    does "$title" rein run limits --model "$sums" --chat-format raw --preset reinforce --prompts 2 --samples 2 --steps 1 --eval-prompts 0 --task "$(play endless)" "$@"
    if python3 -c "
import json
rewards = [t['reward'] for line in open('limits/trajectories/train/0001.jsonl') for t in json.loads(line)['trajectories']]
assert set(rewards) == {$reward}, rewards"; then pass; else fail "$title"; fi
}
ended "two turns" 10 --max-turns 2 --max-tokens 200
ended "four tokens" 11 --max-turns 1000 --max-tokens 4
ended "the model's positions" 12 --max-turns 1000 --max-tokens 100000
does "a task of few episodes" rein run few --model "$sums" --chat-format raw --preset grpo --prompts 4 --samples 2 --max-tokens 8 --task "$(play few)" --steps 1 --eval-prompts 8
if [ "$(cat few/trajectories/eval/0000.jsonl | wc -l)" -eq 2 ]; then pass; else fail "all that are held out" "$(ls few few/trajectories/*)"; fi
says "an example" 'Q:n=' rein task "$(play guess)" --count 1

does "evaluated with fewer turns" rein eval --model "$sums" --chat-format raw --task "$(play endless)" --max-turns 3 --max-tokens 200 --eval-prompts 2 --json
has "the limit of turns ended the episodes" "$work/out" '"reward": 10'
refused "an evaluation without an environment" '--max-turns has no effect: the task is not an environment' rein eval --model "$sums" --task sums --max-turns 2

# ---- tools, and a template that rewrites earlier turns
does "files of a model with a template" python3 "$here/serving.py" "$rein" chatty
printf '{"prompt": "T1\\nu:go<end>\\na:", "completion": "hm <tool_call>{\\"name\\": \\"add\\", \\"arguments\\": {\\"a\\": 3}}</tool_call>"}\n' >tools.jsonl
does "a model that calls a tool" rein sft caller --model chatty --data tools.jsonl --batch-size 1 --num-train-epochs 60 --save-steps 60 --learning-rate 5e-3 --lora-rank 16
does "a tool is called" rein eval caller --task "$(play tools)" --eval-prompts 2 --greedy --max-tokens 90 --json
has "its arguments and content reach the program" "$work/out" '"accuracy": 1'
cp -r chatty forgetful
sed "s/{{ m.content }}/{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% else %}-{% endif %}/" chatty/tokenizer_config.json >forgetful/tokenizer_config.json
does "a template that rewrites" rein run forget --model forgetful --preset reinforce --prompts 2 --samples 2 --steps 1 --eval-prompts 0 --max-turns 3 --max-tokens 60 --task "$(play endless)"
if python3 -c "
import json
for line in open('forget/trajectories/train/0001.jsonl'):
    for t in json.loads(line)['trajectories']:
        assert len(t.get('additional_histories', [])) == t['metrics']['turns'] - 1, t['metrics']"; then pass; else fail "histories"; fi

# ---- faults: status 1 (the program), one line, nothing committed
fault() { # fault MODE PATTERN
    local status=0
    rm -rf broken
    rein run broken "${common[@]}" --task "$(play "$1")" --steps 1 --eval-prompts 0 --reward-timeout "${3:-20}" >out 2>err </dev/null || status=$?
    if [ "$status" -ne 0 ] && grep -qE -- "$2" err && ! [ -e broken/checkpoints/0001 ]; then pass; else fail "fault $1: status $status, wanted $2" "$(tail -3 err)"; fi
}
fault garbage 'environment "python3 .*: .*the program wrote: this is no JSON'
fault list 'object'
fault no-episode 'episode is missing, or not a number: the program wrote: '
fault stranger 'episode is 999, which is not an episode that waits for an answer'
fault twice 'episode is [0-9]+, which (has its answer already|is not an episode that waits)'
fault no-reward 'episode [0-9]+ \(train [0-9]+\), turn 1: reward is missing'
fault null-reward 'turn 1: reward is null: a number is needed'
fault no-done 'turn 1: done is missing'
fault text-done 'turn 1: done is "no": true or false is needed'
fault no-messages 'turn 1: messages is an array: one message or more is needed, unless done is true'
fault assistant 'turn 1: messages\[0\].role is "assistant": only the model writes'
fault no-content 'turn 1: .*messages\[0\].content'
fault unknown-key 'turn 1: .*score'
fault crash 'the program ended with exit status 3; the last line of its log: boom: no such game'
fault slow 'the program did not answer within 0.3 seconds' 0.3
fault describe 'describe: train is 0'
fault undescribed 'describe: held_out is missing'
fault guess/../nothing 'environment "python3 '
refused "no command" 'has no command: env: COMMAND' rein run none "${common[@]}" --task 'env: '
refused "max_turns without an environment" '--max-turns has no effect: the task is not an environment' rein run none --model "$sums" --task sums --max-turns 2
refused "no chat format" 'chat_format|chat template' rein run none --model "$sums" --task "$(play guess)" --preset grpo
absent "refused runs" none
finish
