#!/bin/bash
# run-tests.sh RUNNER…: runs cmocka programs and scripts, one per core at a time. Prints one line for each that passes, the whole output
# of each that fails, and the sums in the last line. A script gets the path of the program and ends with 'N passed, N failed'.
# A runner that fails is run once more, alone, after all others. If it passes then, it depended on a busy machine: it is named in a line
# 'unsteady: …' and counted there, and the sums take the second run.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL # a script may call make, but not as a part of the make that runs this
umask 022
export BUILD=${BUILD:-build}

# cmocka prints '[  PASSED  ] 3 test(s).' and '[  FAILED  ] 1 test(s), listed below:' once for each group of tests.
counts() {
    awk '/^\[  PASSED  \] .*[0-9]+ test\(s\)/   { passed += number($0) }
         /^\[  FAILED  \] .*[0-9]+ test\(s\),/  { failed += number($0) }
         /^\[  SKIPPED \] .*[0-9]+ test\(s\),/  { skipped += number($0) }
         /^[0-9]+ passed, [0-9]+ failed/        { passed += $1; failed += $3; if ($6 == "skipped") skipped += $5 }
         END { print passed + 0, failed + 0, skipped + 0 }
         function number(line) { match(line, /[0-9]+ test\(s\)/); return substr(line, RSTART) + 0 }' "$1"
}

run_one() { # run_one RUNNER: its counts go to $RESULTS/counts; a failure, which runs again, to $RESULTS/failed
    local runner=$1 status=0 start=$EPOCHREALTIME log seconds passed failed skipped
    log=$(mktemp "$RESULTS/log.XXXXXX")
    local command=(env --default-signal "$runner") # under nohup, or started in the background, signals are ignored
    if [[ $runner == *.sh ]]; then command+=("$BUILD/rein"); fi
    "${command[@]}" >"$log" 2>&1 </dev/null || status=$?
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    read -r passed failed skipped < <(counts "$log")
    if ((status == 0 && passed + skipped == 0)); then echo "$runner: ran no test" >>"$log"; fi
    # A crash counts as a failure, and so does a runner that ran no test.
    if ((failed == 0 && (status != 0 || passed + skipped == 0))); then failed=1; fi
    if ((failed > 0)) && [ -z "${AGAIN:-}" ]; then echo "$runner" >>"$RESULTS/failed"
    else echo "$passed $failed $skipped" >>"$RESULTS/counts"; fi
    {
        if ((failed > 0)); then cat "$log"; fi
        printf '%-44s %5d passed, %d failed' "${runner#"$BUILD"/}" "$passed" "$failed"
        if ((skipped > 0)); then printf ', %d skipped' "$skipped"; fi
        if ((failed > 0 && status > 0)); then printf ' (exit status %d)' "$status"; fi
        printf '  %6s s\n' "$seconds"
    } >"$log.line"
    cat "$log.line" # at once, so that lines of parallel runs do not mix
}

RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS"' EXIT
export RESULTS
export -f run_one counts
: >"$RESULTS/counts"
# shellcheck disable=SC2016
printf '%s\0' "$@" | xargs -0 -r -n 1 -P "$(nproc 2>/dev/null || echo 2)" bash -c 'run_one "$0"'

unsteady=0
if [ -s "$RESULTS/failed" ]; then
    echo "again, alone:"
    while IFS= read -r runner; do
        AGAIN=1 run_one "$runner"
        if [ "$(tail -n 1 "$RESULTS/counts" | cut -d' ' -f2)" = 0 ]; then
            unsteady=$((unsteady + 1))
            echo "unsteady: ${runner#"$BUILD"/} failed beside other tests and passed alone"
        fi
    done <"$RESULTS/failed"
    echo "unsteady: $unsteady of $# runners"
fi

awk '{ passed += $1; failed += $2; skipped += $3 }
     END {
         printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : ""
         exit failed > 0 || passed + skipped == 0
     }' "$RESULTS/counts"
