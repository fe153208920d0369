#!/bin/bash
# run_memory.sh REIN: one allocation of a command fails, in rein or in a library below it. The command succeeds and its output is what it always
# is, or it fails with a message; and in both cases nothing of the run is lost. REIN_TEST_ALLOCATIONS says how many allocations of each command
# are tried (12; "all" tries every one). Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
preload=$(realpath "$(dirname "$rein")")/tests/support/fail_malloc.so
sums=$here/../../models/sums
wanted=${REIN_TEST_ALLOCATIONS:-12}
cd "$work" || exit 1
if [ ! -f "$preload" ] || ! LD_PRELOAD=$preload rein --version >out 2>err; then # a sanitizer has its own allocator
    echo "0 passed, 0 failed, 1 skipped" && exit
fi
small=(--model "$sums" --task sums --prompts 2 --samples 2 --max-tokens 6 --eval-prompts 2 --learning-rate 0.001)
does "a run" rein run two "${small[@]}" --steps 2 --threads 1
rm -f two/report.html
cp -r two four
cp -r two before
for i in 1 2 3; do echo "{\"prompt\": \"Q:$i+$i=\", \"completion\": \"$((i + i))\"}"; done >lessons.jsonl
school=(--model "$sums" --data lessons.jsonl --batch-size 2 --learning-rate 0.001 --threads 1)
does "supervised training" rein sft taught "${school[@]}"
does "the run, resumed" rein run four --steps 4 --threads 1

# What may differ is a time, or depends on the memory.
content() { sed -E 's/"(step_time|time\/[a-z]+|seconds|tokens_per_second|peak_memory)": ?[^,}]*//g; s/"?(step_time|seconds)"? +[0-9.e+-]+//g' "$1"; }

# with N COMMAND…: the N-th allocation fails
with() {
    local n=$1
    shift
    timeout 120 env REIN_FAIL_AT="$n" LD_PRELOAD="$preload" "$@" >out 2>err </dev/null
}
# points COMMAND…: the allocations to try, spread over all that the command makes
points() {
    REIN_FAIL_COUNT=$work/count LD_PRELOAD=$preload "$@" >out 2>err </dev/null
    if [ "$wanted" = all ]; then seq "$(cat count)"; else seq 1 "$(($(cat count) / wanted + 1))" "$(cat count)"; fi
}

# ends TITLE N STATUS: a status of rein, with a message if it failed
ends() {
    if [ "$3" -gt 2 ]; then fail "$1: allocation $2" "status $3" "$(tail -2 err)" && return 1; fi
    if [ "$3" -gt 0 ] && ! grep -qi 'memory' err; then fail "$1: allocation $2" "status $3 without a reason" "$(tail -2 err)" && return 1; fi
}

# prints TITLE COMMAND…: what it prints if it succeeds is what it prints without a failure
prints() {
    local title=$1 n status
    shift
    "$@" >right 2>err
    for n in $(points "$@"); do
        with "$n" "$@"
        status=$?
        ends "$title" "$n" $status || continue
        if [ $status -eq 0 ] && ! cmp -s out right; then fail "$title: allocation $n" "another output"
        else pass; fi
    done
}

prints "inspect" rein inspect two
prints "inspect --json" rein inspect two --json
prints "inspect a checkpoint" rein inspect two/checkpoints/0002 --json
wanted=all prints "watch" rein watch two --once # quick enough for every one
prints "task" rein task sums --json
prints "eval" rein eval two --eval-samples 2 --threads 1 --json
prints "generate" rein generate --model "$sums" --prompt '12+34=' --max-tokens 4 --greedy --threads 1 --json

# What is written is whole and the same, or absent. whole TITLE FILE COMMAND…
whole() {
    local title=$1 file=$2 n status
    shift 2
    "$@" >out 2>err
    mv "$file" right
    for n in $(points "$@"); do
        rm -f "$file"
        with "$n" "$@"
        status=$?
        ends "$title" "$n" $status || continue
        if [ $status -eq 0 ] && ! cmp -s "$file" right; then fail "$title: allocation $n" "another file"
        elif [ $status -ne 0 ] && [ -e "$file" ]; then fail "$title: allocation $n" "status $status, and a file"
        else pass; fi
    done
}
whole "report" page.html rein report two --output page.html
whole "bundle" two.tar rein bundle two
if diff -r two before >different; then pass; else fail "the run that was read has changed" "$(head -3 different)"; fi

# as TITLE N RUN WANTED: the run has the history, checkpoints and settings of another
as() {
    if ! cmp -s <(content "$3/history.jsonl") <(content "$4/history.jsonl"); then fail "$1: allocation $2" "another history"
    elif ! diff -r "$3/checkpoints" "$4/checkpoints" >different; then fail "$1: allocation $2" "$(head -2 different)"
    elif ! cmp -s "$3/config.yaml" "$4/config.yaml"; then fail "$1: allocation $2" "other settings"
    else pass; fi
}

# A run that fails keeps its lines, and resumes to what it would have been.
rm -rf failing && cp -r two failing
for n in $(points rein run failing --steps 4 --threads 1); do
    rm -rf failing && cp -r two failing
    with "$n" rein run failing --steps 4 --threads 1
    ends "run" "$n" $? || continue
    if ! head -n 2 failing/history.jsonl | cmp -s - two/history.jsonl; then fail "run: allocation $n" "the history lost lines" && continue; fi
    if ! cmp -s failing/config.yaml four/config.yaml && ! cmp -s failing/config.yaml two/config.yaml; then
        fail "run: allocation $n" "other settings" && continue
    fi
    if ! rein run failing --steps 4 --threads 1 >out 2>err; then fail "run: allocation $n" "it does not resume" "$(tail -2 err)" && continue; fi
    as "run" "$n" failing four
done

# A new run that fails is made by the same command, whatever there is of it. begins TITLE WANTED COMMAND…: the command makes the run `failing`
begins() {
    local title=$1 wanted_run=$2 n
    shift 2
    rm -rf failing
    for n in $(points "$@"); do
        rm -rf failing
        with "$n" "$@"
        ends "$title" "$n" $? || continue
        if ! "$@" >out 2>err; then fail "$title: allocation $n" "it cannot be made again" "$(tail -2 err)" && continue; fi
        as "$title" "$n" failing "$wanted_run"
    done
}
begins "a new run" two rein run failing "${small[@]}" --steps 2 --threads 1
begins "sft" taught rein sft failing "${school[@]}"
if cmp -s failing/sft.json taught/sft.json; then pass; else fail "sft: sft.json"; fi

finish
