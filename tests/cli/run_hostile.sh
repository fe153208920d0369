#!/bin/bash
# run_hostile.sh REIN: rein in surroundings that are against it: closed descriptors, a reader that goes away, a terminal that is closed, limits
# on files, descriptors and the stack, pipes and sparse files in place of a run's files. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
sums=$here/../../models/sums
cd "$work" || exit 1
small=(--model "$sums" --task sums --prompts 2 --samples 2 --max-tokens 6 --eval-prompts 0 --learning-rate 0.001)

# fails TITLE STATUS PATTERN COMMAND…: this status, and a message that matches
fails() {
    local title=$1 wanted=$2 pattern=$3 status=0
    shift 3
    timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" -ne "$wanted" ]; then fail "$title" "status $status, not $wanted" "$(head -c 300 "$work/err")"
    elif ! grep -qE -- "$pattern" "$work/err"; then fail "$title" "wanted $pattern" "got    $(head -3 "$work/err")"
    else pass; fi
}
# same TITLE RUN RUN: two runs have the same history, apart from times and memory, and the same last checkpoint
same() {
    if python3 - "$2" "$3" <<'PYTHON'
import json, sys
def lines(run):
    measured = lambda name: "time" in name or "second" in name or name == "peak_memory"
    return [{k: v for k, v in json.loads(line).items() if not measured(k)} for line in open(run + "/history.jsonl")]
sys.exit(lines(sys.argv[1]) != lines(sys.argv[2]))
PYTHON
    then pass; else fail "$1: the histories differ" "$(tail -n +5 "$3/history.jsonl" | head -c 300)"; fi
    equal "$1: checkpoint" "$2" "$3" "$(ls "$2/checkpoints" | tail -1)"
}

does "a run as it should be" rein run good "${small[@]}" --steps 4

# ------------------------------------------------------------------------------------------------------------------- descriptors

# Without standard files, the files of the run have only what belongs into them, and the run can be resumed.
rein run closed "${small[@]}" --steps 2 <&- >&- 2>&-
does "resumed after closed descriptors" rein run closed --steps 4
same "closed descriptors" good closed
rein run silent "${small[@]}" --steps 4 2>&- >/dev/null </dev/null
same "a closed stderr" good silent
rein explain grpo >&- 2>"$work/err"
if [ $? -eq 1 ] && grep -q 'cannot write to stdout: Bad file descriptor' err; then pass; else fail "a closed stdout is an error" "$(cat err)"; fi
fails "a closed stdin is an error" 2 'cannot read standard input: Bad file descriptor' bash -c 'exec rein objective gpo <&-'
for files in 4 5; do
    fails "$files descriptors" 1 'Too many open files' bash -c 'ulimit -n $1; shift; exec rein run few "$@" --steps 1' - $files "${small[@]}"
done

# ----------------------------------------------------------------------------------------------------------------------- signals

# Ctrl-C under `2>&1 | tee log` ends the reader first; the step is saved all the same.
mkfifo pipe
rein run piped "${small[@]}" --steps 4000 >pipe 2>&1 &
process=$!
(exec <pipe; until [ -d piped/checkpoints/0002 ]; do read -r -t 1 _; done)
kill -INT $process
wait $process
status=$?
if [ $status -eq 1 ]; then pass; else fail "Ctrl-C without a reader" "status $status"; fi
steps=$(ls piped/checkpoints | tail -1)
if [ "$(wc -l <piped/history.jsonl)" -eq $((10#$steps)) ]; then pass; else fail "the step of the interrupt is saved" "$steps"; fi
for signal in HUP TERM; do
    env --default-signal=HUP rein run "by$signal" "${small[@]}" --steps 4000 >out 2>err & # also under nohup
    process=$!
    until_step "by$signal" 0002
    kill -$signal $process
    if [ $signal = HUP ]; then sleep 0.01 && kill -HUP $process 2>kill; fi # a shell and the kernel both send it
    wait $process
    status=$?
    if [ $status -eq 1 ]; then pass; else fail "SIG$signal is one Ctrl-C" "status $status" "$(tail -3 err)"; fi
    has "SIG$signal: how to resume" err "stopped after step [0-9]+ of 4000, which is saved; resume with rein run by$signal"
done
(trap '' HUP; exec rein run nohup "${small[@]}" --steps 4) >out 2>err &
process=$!
until_step nohup 0001
kill -HUP $process 2>kill
if wait $process; then pass; else fail "nohup" "$(tail -3 err)"; fi

# Programs that rein starts have the default effects of signals.
cat >ignored.sh <<'SH'
while read -r _; do grep -i SigIgn /proc/self/status >"$1"; echo '{"reward": 1}'; done
SH
does "a reward program" rein run program "${small[@]}" --steps 1 --reward "sh $work/ignored.sh $work/ignored"
has "its signals" ignored '^SigIgn:[[:space:]]*[0-9a-f]*[08]0000000$' # 32 and 33 belong to libc
rein explain grpo 2>err | true
if [ "${PIPESTATUS[0]}" -le 1 ]; then pass; else fail "a reader that is gone" "status ${PIPESTATUS[0]}"; fi

# ------------------------------------------------------------------------------------------------------------------------- limits

fails "a file size limit at the start" 1 'File too large' bash -c 'ulimit -f 1; exec rein run limited "$@" --steps 2' - "${small[@]}"
fails "a file size limit for a report" 1 'File too large' bash -c 'ulimit -f 1; exec rein report good --output limited.html'
absent "half a report" limited.html
if ls -A | grep -q '\.tmp$'; then fail "temporary files" "$(ls -A)"; else pass; fi

# Not with a sanitizer, which needs more stack, keeps freed memory and reserves address space.
limited=(bash -c 'ulimit -v 1000000; exec "$@"' -)
if "${limited[@]}" rein --version >out 2>&1; then
    shallow=(bash -c 'ulimit -s 64; exec "$@"' -)
    does "a stack of 64 KB: run" "${shallow[@]}" rein run shallow "${small[@]}" --steps 1
    # Operations, on one thread and on several, whose stacks are as small.
    python3 - <<'PYTHON'
import json
def write(name, **fields): json.dump(fields, open(name + ".json", "w"))
n, p = 8, 40000
row, rows = [0.5] * p, [[1, 1]] * p
write("gpo", ratios=row, advantages=row, pi_current=row, pi_ref=row, epsilon=0.2, beta=0.01)
write("budget-loss", rewards=rows, log_probs=rows, old_log_probs=rows, response_lengths=rows, token_budget=1, kl_coef=0.1, budget_penalty_coef=0.01)
write("rlhf-update", weights=row, rewards=[1] * n, policy_log_probs=[-1] * n, ref_log_probs=[-1] * n, log_prob_grads=[row] * n, beta=1, lr=0.1)
write("kl-advantage", advantages=row, log_probs=row, ref_log_probs=row, kl_penalty_coef=0.1)
write("budget-control", multiplier=0.01, response_lengths=[1] * p, target_length=100, step_size=0.0001)
write("policy-loss", log_probs=row, old_log_probs=row, ref_log_probs=row, sequence_lengths=[p // n] * n, rewards=list(range(n)), options={"kl_loss_coef": 0.1})
write("preference-loss", loss="simpo", chosen_log_probs=row, rejected_log_probs=row, chosen_lengths=[1] * p, rejected_lengths=[1] * p)
write("reward-loss", chosen_rewards=row, rejected_rewards=row, margins=row)
write("value-loss", values=row, old_values=row, returns=row)
PYTHON
    for operation in gpo budget-loss rlhf-update kl-advantage budget-control policy-loss preference-loss reward-loss value-loss; do
        for threads in 1 3; do
            does "a stack of 64 KB: $operation" "${shallow[@]}" rein objective $operation $operation.json --threads $threads
        done
    done
    rein generate --model "$sums" --prompt '1+1=' --max-tokens 4 --json >completions.jsonl
    echo '{"prompt": "1+1=", "completion": "2"}' >sft.jsonl
    echo '{"trajectories": [{"prompt_ids": [1, 2], "response_ids": [3], "logprobs": [-1], "reward": 1}, {"prompt_ids": [1, 2], "response_ids": [4], "logprobs": [-1], "reward": 0}]}' >groups.jsonl
    while read -r command; do
        # shellcheck disable=SC2086 # words
        does "a stack of 64 KB: $command" "${shallow[@]}" rein $command
    done <<LIST
help run
help --man
completion bash
explain grpo
explain --all
explain --all --json
task sums
inspect $sums
inspect shallow
inspect groups.jsonl
watch shallow --once
generate --model $sums --prompt 1+1= --samples 3 --max-tokens 4 --threads 3
score --model $sums completions.jsonl --json
sft shallow-sft --model $sums --data sft.jsonl --max-steps 1
train shallow-train --model $sums --groups groups.jsonl
eval shallow --eval-prompts 2
report shallow
export shallow --to shallow-export
bundle shallow
LIST
    # Memory does not grow from step to step: neither where something trains, nor where nothing does.
    for reward in number 'regex:^no such text'; do
        rm -rf steady
        does "steady: $reward" rein run steady "${small[@]}" --reward "$reward" --steps 300 --save-steps 1000
        if python3 - <<'PYTHON'
import json, sys
peak = [json.loads(line)["peak_memory"] for line in open("steady/history.jsonl")]
sys.exit(not 0 < peak[-1] - peak[99] + 1 < 500e3)
PYTHON
        then pass; else fail "steady: $reward" "$(sed -n '100p;300p' steady/history.jsonl | grep -o '"peak_memory":[^,]*')"; fi
    done
fi

# ---------------------------------------------------------------------------------------------------------------- files to write

# Something else than a file is not replaced by one: neither a pipe nor what a link leads to.
mkfifo output
ln -s output linked
for name in output linked; do
    fails "report into a pipe: $name" 2 "$name is not a regular file" rein report good --output $name
    fails "bundle into a pipe: $name" 2 "$name is not a regular file" rein bundle good --output $name
done
if [ -p output ] && [ -L linked ]; then pass; else fail "a pipe was replaced" "$(ls -l output linked)"; fi

# --------------------------------------------------------------------------------------------------------------- files of a run

# damaged NAME: a copy of the run, without its NAME
damaged() { rm -rf bad && cp -r good bad && rm -f "bad/$1"; }
# A pipe in place of a file does not block.
for file in history.jsonl evaluations.jsonl config.yaml summary.json; do
    damaged $file && mkfifo bad/$file
    timeout 60 rein report bad >out 2>err </dev/null
    status=$?
    if [ $status -eq 0 ]; then pass; else fail "report: $file is a pipe" "status $status" "$(cat err)"; fi
    if grep -aq "$file" bad/report.html; then pass; else fail "report: $file is a pipe: no note"; fi
done
damaged history.jsonl && mkfifo bad/history.jsonl
fails "inspect: a pipe" 2 'bad/history.jsonl is not a regular file' rein inspect bad
fails "watch: a pipe" 2 'bad/history.jsonl is not a regular file' rein watch bad --once
fails "run: a pipe" 2 'bad/history.jsonl is not a regular file' rein run bad --steps 5
damaged config.yaml && mkfifo bad/config.yaml
fails "inspect: settings in a pipe" 2 'bad/config.yaml' rein inspect bad
fails "watch: settings in a pipe" 2 'bad/config.yaml' rein watch bad --once

fails "run: evaluations in a pipe" 2 'bad/evaluations.jsonl is not a regular file' bash -c 'rm -rf bad && cp -r good bad && mkfifo bad/evaluations.jsonl && exec rein run bad --steps 5'
# A MANIFEST that is no file makes its checkpoint a bad one; the one before it is taken.
rm -rf bad && cp -r good bad && rm bad/checkpoints/0004/MANIFEST && mkfifo bad/checkpoints/0004/MANIFEST
does "run: a MANIFEST that is a pipe" timeout 60 rein run bad --steps 5
has "run: a MANIFEST that is a pipe" err 'the last good checkpoint is of step 3'

# Files of any size, in bounded memory. The limit is far below their size.
# A line of 6 GB, in sparse files.
if "${limited[@]}" rein --version >out 2>&1; then
    for file in history.jsonl evaluations.jsonl config.yaml summary.json; do
        damaged $file && truncate -s 6G bad/$file
        does "report: a sparse $file" "${limited[@]}" timeout 60 rein report bad
    done
    damaged history.jsonl && truncate -s 6G bad/history.jsonl
    fails "inspect: a sparse history" 2 'history.jsonl: line 1 is longer than 16 MB' "${limited[@]}" rein inspect bad
    fails "watch: a sparse history" 2 'history.jsonl: line 1 is longer than 16 MB' "${limited[@]}" rein watch bad --once
    fails "run: a sparse history" 2 'history.jsonl: line 1 is longer than 16 MB' "${limited[@]}" rein run bad --steps 5
    damaged history.jsonl && truncate -s 6G bad/history.jsonl && rm -r bad/checkpoints/0*
    fails "run: a sparse history and no checkpoint" 2 'bad has a history and no checkpoint' "${limited[@]}" rein run bad --steps 5
    damaged evaluations.jsonl && truncate -s 6G bad/evaluations.jsonl
    fails "run: sparse evaluations" 2 'evaluations.jsonl: line 1 is longer than 16 MB' "${limited[@]}" rein run bad --steps 5
    damaged checkpoints/0004/MANIFEST && truncate -s 6G bad/checkpoints/0004/MANIFEST
    does "run: a sparse MANIFEST" "${limited[@]}" timeout 60 rein run bad --steps 5
    has "run: a sparse MANIFEST" err 'the last good checkpoint is of step 3'
    damaged config.yaml && truncate -s 6G bad/config.yaml
    fails "inspect: sparse settings" 2 'bad/config.yaml is larger than 16 MB' "${limited[@]}" rein inspect bad
fi
# A line of 2 GB in files of examples, which are mapped: no more of them is read than a line may have. Memory is measured, because it is not
# allocated.
truncate -s 2G sparse.jsonl
# modest TITLE PATTERN COMMAND…: status 2, a message that matches, and less than 600 MB
modest() {
    local title=$1 pattern=$2
    shift 2
    if python3 - "$pattern" "$@" <<'PYTHON' >out 2>&1
import re, resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(done.returncode, kilobytes, done.stderr)
sys.exit(done.returncode != 2 or not re.search(sys.argv[1], done.stderr) or kilobytes > 600000)
PYTHON
    then pass; else fail "$title" "$(head -3 out)"; fi
}
if "${limited[@]}" rein --version >out 2>&1; then # not with a sanitizer
    long='sparse.jsonl: line 1 is longer than 256 MB'
    modest "task: a sparse file" "$long" rein task sparse.jsonl
    modest "run: a sparse task" "$long" rein run sparse --model "$sums" --task sparse.jsonl --steps 1
    modest "sft: sparse data" "$long" rein sft sparse --model "$sums" --data sparse.jsonl
    modest "run: sparse data" "$long" rein run sparse "${small[@]}" --steps 1 --ptx-data sparse.jsonl --ptx-coef 0.1
    modest "score: a sparse file" "$long" rein score --model "$sums" sparse.jsonl
fi
# A history of 100,000 lines: as many bytes as a long run writes, read in memory for one line.
damaged none
python3 - <<'PYTHON'
import json
line = json.loads(open("bad/history.jsonl").readlines()[-1])
with open("bad/history.jsonl", "a") as file:
    for step in range(5, 100005): file.write(json.dumps({**line, "step": step}) + "\n")
PYTHON
limited=(bash -c 'ulimit -v 400000; exec "$@"' -)
if "${limited[@]}" rein --version >out 2>&1; then
    does "inspect: a long history" "${limited[@]}" timeout 60 rein inspect bad
    does "report: a long history" "${limited[@]}" timeout 60 rein report bad
    does "run: a long history" "${limited[@]}" timeout 60 rein run bad --steps 5 --threads 1
    if [ "$(wc -l <bad/history.jsonl)" -eq 5 ]; then pass; else fail "run: a long history" "$(wc -l bad/history.jsonl)"; fi
fi
# Deep nesting takes no time that grows with its square.
damaged config.yaml
python3 -c 'print("a: " + "[" * 100000 + "]" * 100000)' >bad/config.yaml
does "report: nested settings" timeout 20 rein report bad
has "report: nested settings are noted" bad/report.html 'config.yaml is nested too deep'

# --------------------------------------------------------------------------------------------------------------- terminal escapes

# On a terminal, control characters of files are shown and not sent; a pipe gets the bytes of the file.
cp -r good "$(printf 'odd\033[2Jrun')"
odd=$(echo odd*run)
printf 'system: "a\\e]0;title\\ab\\x9bc"\n' >>"$odd/config.yaml"
touch "$odd/checkpoints/0004/$(printf 'odd\033[2Jfile')"
on_terminal() { script -qec "$*" /dev/null </dev/null >out 2>&1; }
escapes() { LC_ALL=C grep -qaP '\x1b|\x07|\xc2\x9b' "$1"; }
for command in "rein inspect 'odd[2Jrun'" "rein inspect 'odd[2Jrun' --json" "rein watch 'odd[2Jrun' --once" "rein report 'odd[2Jrun'"; do
    on_terminal "TERM=xterm NO_COLOR=1 ${command//'\x1b'/$(printf '\033')}"
    sed -Ei 's/\x1b\[([0-9]+A|K|J)//g' out # the live view's own
    if escapes out; then fail "escapes of $command" "$(head -5 out | cat -v)"; else pass; fi
    has "shown: $command" out 'odd\\(x|u00)1b'
done
rein inspect "$odd" >out
if escapes out; then pass; else fail "a pipe gets the bytes as they are"; fi
rein inspect good/../"$odd"/checkpoints/0004 >out
has "labels are always shown" out '^  odd\\x1b\[2Jfile '

finish
