#!/bin/bash
# run_calls.sh REIN: rein is killed at a system call, or the system call fails (strace -e inject). Nothing of the run is lost: the same
# command afterwards makes the run what it would have been, byte for byte. REIN_TEST_CALLS says how many calls of each command are tried
# (8; "all" tries every one). Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
sums=$here/../../models/sums
wanted=${REIN_TEST_CALLS:-8}
cd "$work" || exit 1
# Containers may forbid tracing, and the leak sanitizer cannot be traced.
if ! strace -f -o trace rein --version >out 2>err || ! strace -f -o trace rein task sums >out 2>err; then
    echo "run_calls: strace cannot trace rein here: $(head -1 err)"
    echo "0 passed, 0 failed, 1 skipped" && exit
fi
small=(--model "$sums" --task sums --prompts 2 --samples 2 --max-tokens 6 --eval-prompts 2 --eval-steps 1 --learning-rate 0.001 --threads 1)
for i in 1 2 3 4 5 6; do echo "{\"prompt\": \"$i+2=\", \"completion\": \"$((i + 2))\"}"; done >examples.jsonl
taught=(--model "$sums" --data examples.jsonl --batch-size 3 --num-train-epochs 1 --learning-rate 0.001 --threads 1)

# What may differ is a time, or depends on the memory.
content() { sed -E 's/"(step_time|time\/[a-z]+|seconds|tokens_per_second|peak_memory)": ?[^,}]*//g' "$1"; }
# as_it_should_be RUN RIGHT: settings, history, checkpoints and the names of all files; says what differs. Checkpoints that were
# set aside do not count.
as_it_should_be() {
    if ! cmp "$1/config.yaml" "$2/config.yaml"; then return 1; fi
    if ! cmp <(content "$1/history.jsonl") <(content "$2/history.jsonl"); then return 1; fi
    rm -rf "$1"/checkpoints/*.bad
    diff -r "$1/checkpoints" "$2/checkpoints" && diff <(cd "$1" && find . -not -path '*/tensorboard/*' | sort) <(cd "$2" && find . -not -path '*/tensorboard/*' | sort)
}

# The system calls of the last trace, as NAME N: the N-th call of this name. Those before the run's directory is first used are the loader's,
# and those after it are not rein's either where a coverage build writes its counts. How often the heap grows (brk) differs from one process
# to the next, with its random address.
calls() {
    awk -v run="$1" '{ name = $2; sub(/\(.*/, "", name) }
                     name !~ /^[a-z][a-z0-9_]*$/ || name == "execve" || name == "exit_group" || name == "brk" { next }
                     /\.gcda/ { exit }
                     { n[name]++ }
                     index($0, run) { ours = 1 }
                     ours { print name, n[name] }' trace
}
# points: of the calls on stdin, those to try
points() {
    if [ "$wanted" = all ]; then cat; else awk -v wanted="$wanted" '{ line[NR] = $0 } END { for (i = 0; i < wanted && i < NR; i++) print line[1 + int(i * NR / wanted)] }'; fi
}
# The errors that a call can have; nothing for a call that touches neither files nor memory.
errors_of() {
    case $1 in
    openat | open) echo EIO EMFILE ENOSPC ;;
    write | writev | pwrite64 | mkdir | mkdirat | ftruncate | rename | renameat | renameat2 | fsync | fdatasync) echo EIO ENOSPC ;;
    read | pread64 | close | lseek | getdents64 | unlink | unlinkat | rmdir | flock | newfstatat | statx | fstat | fcntl) echo EIO ;;
    mmap | mremap) echo ENOMEM ;;
    esac
}

# prepare: `failing` as it is before the command
prepare() {
    rm -rf failing
    if [ -n "$before" ]; then cp -r "$before" failing; fi
}
# repeated TITLE COMMAND…: the command succeeds now, and the run is as it should be
repeated() {
    local title=$1
    shift
    if ! timeout 60 "$@" >out 2>err </dev/null; then fail "$title: it cannot be repeated" "$(tail -2 err)"
    elif ! as_it_should_be failing "$right" >different 2>&1; then fail "$title: another run" "$(head -3 different)"
    else pass; fi
}
# unharmed TITLE: the lines of the history are whole and as before. A checkpoint that cannot be read is set aside, and its step is made again.
unharmed() {
    if [ -z "$before" ] || grep -q 'the last good checkpoint is of step' err || head -n "$(wc -l <"$before/history.jsonl")" failing/history.jsonl | cmp -s - "$before/history.jsonl"; then return 0; fi
    fail "$1: the history lost lines"
    return 1
}

# killed and wrong: COMMAND… makes `failing` what $right is, starting from $before (nothing if empty)
killed() {
    local title=$1 name n
    shift
    while read -r name n; do
        prepare
        { timeout 60 strace -f -o trace -e trace="$name" -e inject="$name:signal=KILL:when=$n" "$@" >out 2>err </dev/null; } 2>shell
        if ! grep -q 'killed by SIGKILL' trace; then fail "$title: killed at $name $n" "it was not killed" && continue; fi
        if unharmed "$title: killed at $name $n"; then repeated "$title: killed at $name $n" "$@"; fi
    done < <(points <all_calls)
}
wrong() {
    local title=$1 name n error status
    shift
    while read -r name n error; do
        prepare
        timeout 60 strace -f -o trace -e trace="$name" -e inject="$name:error=$error:when=$n" "$@" >out 2>err </dev/null
        status=$?
        # 1 is for a failing system (docs/cli.md). A failure that does no harm, such as that of close after reading, may be 0.
        if [ $status -gt 1 ]; then fail "$title: $error of $name $n" "status $status" "$(tail -2 err)" && continue; fi
        if [ $status -eq 1 ] && ! grep -q '^rein' err; then fail "$title: $error of $name $n" "no message" && continue; fi
        if unharmed "$title: $error of $name $n"; then repeated "$title: $error of $name $n" "$@"; fi
    done < <(while read -r name n; do for error in $(errors_of "$name"); do echo "$name $n $error"; done; done <all_calls | points)
}
attacked() {
    local title=$1
    shift
    prepare
    strace -f -o trace "$@" >out 2>err </dev/null
    if ! as_it_should_be failing "$right" >different 2>&1; then fail "$title, traced" "$(head -3 different)" && return; fi
    calls failing >all_calls
    if [ "$(wc -l <all_calls)" -lt 100 ]; then fail "$title" "$(wc -l <all_calls) system calls" && return; fi
    killed "$title" "$@"
    wrong "$title" "$@"
}

# at TITLE PATH CALL ERROR PATTERN COMMAND…: every such call on this path fails; status 1, with a reason
at() {
    local title=$1 path=$2 call=$3 error=$4 pattern=$5 status=0
    shift 5
    timeout 60 strace -f -o trace -P "$path" -e trace="$call" -e inject="$call:error=$error" "$@" >out 2>err </dev/null || status=$?
    if ! grep -q INJECTED trace; then fail "$title" "no such call"
    elif [ $status -ne 1 ]; then fail "$title" "status $status" "$(tail -2 err)"
    elif ! grep -q "$pattern" err; then fail "$title" "wanted $pattern" "$(tail -2 err)"
    else pass; fi
}

does "a run" rein run two "${small[@]}" --steps 2
cp -r two four
does "the run, resumed" rein run four "${small[@]}" --steps 4
does "supervised training" rein sft school "${taught[@]}"

# A failing disk is not a missing file, nor another's.
before=two right=four
prepare
again=(rein run failing "${small[@]}" --steps 4)
lock=$work/failing/.lock steps=$work/failing/checkpoints weights=$sums/model.safetensors
at "a lock that cannot be read" "$lock" read EIO 'failing/.lock: cannot be read: Input/output error' "${again[@]}"
at "a lock that cannot be looked at" "$lock" newfstatat EIO 'failing.*: Input/output error' "${again[@]}"
at "checkpoints that cannot be listed" "$steps" getdents64 EIO 'checkpoints: the directory cannot be read: Input/output error' "${again[@]}"
at "checkpoints that cannot be looked at" "$steps" newfstatat EIO 'checkpoints: .*Input/output error' "${again[@]}"
at "weights that cannot be looked at" "$(realpath "$weights")" newfstatat EIO 'model.safetensors: .*Input/output error' "${again[@]}"
at "settings that cannot be read" "$work/failing/config.yaml" read EIO 'config.yaml: .*Input/output error' "${again[@]}"
repeated "after a failing disk" "${again[@]}"

before='' right=two
attacked "a new run" rein run failing "${small[@]}" --steps 2
before=two right=four
attacked "a resumed run" rein run failing "${small[@]}" --steps 4
before='' right=school
attacked "supervised training" rein sft failing "${taught[@]}"

finish
