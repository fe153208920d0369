#!/bin/bash
# soak.sh ROUNDS PROGRAM...: runs each test program ROUNDS times and stops at the first failure. REIN_TEST_SEED is the number of the
# round, so that every round draws other moments.
set -u
rounds=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "$@"; do
    for ((round = 1; round <= rounds; round++)); do
        if ! REIN_TEST_SEED=$round "$program" >"$log" 2>&1; then
            cat "$log"
            echo "soak: $program failed in round $round"
            exit 1
        fi
    done
    echo "soak: $program: $rounds rounds passed"
done
