#!/bin/bash
# cases.sh: what the tests of the command line share. A script sources it with the path of rein as its argument: then `rein` is that
# program, $work an empty directory, and `finish` ends with 'N passed, N failed'.
rein=$(realpath "${1:?usage: $0 PATH-OF-REIN}")
[ -x "$rein" ] || { echo "$rein: no such program" && echo "0 passed, 1 failed" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$rein" "$work/bin/rein"
export PATH="$work/bin:$PATH" LC_ALL=C.UTF-8
unset NO_COLOR REIN_KERNEL
passed=0
failed=0

pass() { passed=$((passed + 1)); }
fail() { # fail TITLE DETAIL…
    failed=$((failed + 1))
    printf 'FAIL %s\n' "$1"
    shift
    if [ $# -gt 0 ]; then printf '     %s\n' "$@"; fi
}

# refused TITLE PATTERN COMMAND…: status 2, nothing on stdout, one line on stderr that matches; stdin is passed on
refused() {
    local title=$1 pattern=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -ne 2 ]; then fail "$title" "status $status, not 2" "$(head -c 300 "$work/err")"
    elif [ -s "$work/out" ]; then fail "$title" "stdout is not empty"
    elif [ "$(wc -l <"$work/err")" -ne 1 ]; then fail "$title" "not one line:" "$(head -5 "$work/err")"
    elif ! grep -qE -- "$pattern" "$work/err"; then fail "$title" "wanted $pattern" "got    $(cat "$work/err")"
    else pass; fi
}

# says TITLE PATTERN COMMAND…: status 0, nothing on stderr, stdout matches
says() {
    local title=$1 pattern=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" -ne 0 ] || [ -s "$work/err" ]; then fail "$title" "status $status" "$(head -3 "$work/err")"
    elif ! grep -qE -- "$pattern" "$work/out"; then fail "$title" "wanted $pattern" "$(head -5 "$work/out")"
    else pass; fi
}
# does TITLE COMMAND…: status 0; its output in $work/out and $work/err
does() {
    local title=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" -eq 0 ]; then pass; else fail "$title" "status $status" "$(head -3 "$work/err")"; fi
}
# has TITLE FILE PATTERN
has() { if grep -qE -- "$3" "$2"; then pass; else fail "$1" "wanted $3" "$(head -c 500 "$2")"; fi; }
# until_step RUN STEP: waits until the run has this checkpoint, or a later one: retention may have deleted it
until_step() {
    local newest
    for _ in $(seq 1200); do
        newest=$(find "$1/checkpoints" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2>/dev/null | sort | tail -1)
        if [[ -n $newest && ! $newest < $2 ]]; then return; fi
        sleep 0.05
    done
    fail "$1 came to no step $2"
}
# absent TITLE PATH…
absent() {
    local title=$1
    shift
    for path in "$@"; do if [ -e "$path" ]; then fail "$title" "$path exists" && return; fi; done
    pass
}
# equal TITLE RUN RUN STEP: the checkpoints of a step have the same bytes
equal() {
    if [ -d "$2/checkpoints/$4" ] && diff -r "$2/checkpoints/$4" "$3/checkpoints/$4" >"$work/different" 2>&1; then pass
    else fail "$1" "$(head -3 "$work/different")"; fi
}

narrow() { # narrow TITLE: nothing in $work/out is wider than 80 columns
    if [ "$(wc -L <"$work/out")" -le 80 ]; then pass; else fail "$1: wider than 80 columns" "$(awk 'length($0) > 80' "$work/out" | head -3)"; fi
}

completes() { # completes WANTED WORD…: the completion of the last word holds WANTED
    local wanted=$1
    shift
    if bash -eu -c 'source <(rein completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rein; printf "%s\n" "${COMPREPLY[@]}"' - "$@" 2>"$work/err" |
        grep -xF -- "$wanted" >"$work/found" && [ ! -s "$work/err" ]; then pass; else fail "completion of $*" "$(cat "$work/err")"; fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
