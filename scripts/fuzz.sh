#!/bin/bash
# fuzz.sh fuzz-smoke|fuzz BUILD [TARGET...]: runs every fuzz target in BUILD, or only those named. fuzz-smoke runs each target for 5 seconds;
# fuzz runs each until 600 seconds bring no new coverage.
# The seeds of a target are tests/fuzz/TARGET.seeds (scripts/seeds.py); they are unpacked into BUILD/seeds_TARGET. New inputs that reach new
# code are kept in BUILD/corpus_TARGET, inputs that break something in BUILD/. `scripts/seeds.py add TARGET FILE` makes a file a seed.
# The dictionary of a target is every quoted word in the sources that its "words:" comment lists; its "longest:" comment limits the length
# of inputs.
set -u
mode=$1
build=$2
shift 2
smoke_seconds=${FUZZ_SECONDS:-5}
quiet_seconds=${FUZZ_QUIET_SECONDS:-600}

shopt -s nullglob
fuzzers=()
for source in tests/fuzz/fuzz_*.c; do
    name=${source#*/fuzz_}
    if (($# == 0)) || [[ " $* " == *" ${name%.c} "* ]]; then fuzzers+=("$build/${source%.c}"); fi
done
if ((${#fuzzers[@]} == 0)); then echo "fuzz: tests/fuzz has no target of this name: $*" && exit 2; fi

# Coverage of the corpus at the start of a log, and at its end.
at_start() { sed -nE 's/.*INITED cov: ([0-9]+).*/\1/p' "$1"; }
at_end() { sed -nE 's/.*cov: ([0-9]+).*/\1/p' "$1" | tail -1; }

words_of() { # words_of TARGET: a dictionary for libFuzzer; each word as it is and in quotes, as in JSON
    local sources
    sources=$(sed -nE 's|^/\* words: (.*) \*/$|\1|p' "tests/fuzz/fuzz_$1.c")
    [ -n "$sources" ] || return 0
    # shellcheck disable=SC2086 # patterns
    grep -ohE '"[A-Za-z_|<][A-Za-z0-9_./|<>-]{1,39}"' $sources | grep -v '\.h"$' | sort -u | sed -E 's/^"(.*)"$/"\1"\n"\\"\1\\""/'
}

round() { # round FUZZER SECONDS LOG
    local name=${1##*/fuzz_} log=$3
    local more=() longest
    mkdir -p "$build/corpus_$name"
    words_of "$name" >"$build/$name.dict"
    if [ -s "$build/$name.dict" ]; then more+=(-dict="$build/$name.dict"); fi
    longest=$(sed -nE 's|^/\* longest: ([0-9]+) .*|\1|p' "tests/fuzz/fuzz_$name.c")
    if [ -n "$longest" ]; then more+=(-max_len="$longest"); fi
    "$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$build/" \
        "${more[@]}" "$build/corpus_$name" "$build/seeds_$name" >"$log" 2>&1 && return
    tail -60 "$log"
    echo "fuzz: $name failed; the input that broke it is in $build/"
    exit 1
}

fuzz_one() { # fuzz_one FUZZER
    local name=${1##*/fuzz_} log total=0 seconds=$quiet_seconds before after
    log=$build/fuzz_$name.log
    [ "$mode" = fuzz ] || seconds=$smoke_seconds
    rm -rf "$build/seeds_$name"
    scripts/seeds.py unpack "$name" "$build/seeds_$name" || exit 1
    while :; do
        round "$1" "$seconds" "$log"
        total=$((total + $(sed -nE 's/^stat::number_of_executed_units: *//p' "$log")))
        before=$(at_start "$log")
        after=$(at_end "$log")
        [ "$mode" = fuzz ] || break
        echo "fuzz: $name: $total inputs, coverage $before -> $after in the last $seconds s"
        [ "$before" != "$after" ] || break
    done
    local kept=("$build/corpus_$name"/*)
    echo "fuzz: $name: $total inputs, coverage $after, ${#kept[@]} kept beside the seeds, no failure"
}

# One process per core.
running=0 failed=0
for fuzzer in "${fuzzers[@]}"; do
    fuzz_one "$fuzzer" &
    running=$((running + 1))
    if ((running >= $(nproc 2>/dev/null || echo 2))); then
        wait -n || failed=1
        running=$((running - 1))
    fi
done
while ((running > 0)); do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
