#!/bin/bash
# fuzz.sh fuzz-smoke|fuzz BUILD [NAME...]: runs every fuzzer in BUILD, or those named. Smoke: 8 seconds each. Fuzz: each until 600 seconds
# bring no new coverage.
# Seeds are tests/fuzz/corpus_NAME; what is found on the way is kept in BUILD/corpus_NAME, an input that breaks something in BUILD/. The
# words that a format is made of are those in quotes in the sources that its fuzzer names; it may also say how long inputs get.
set -u
mode=$1
build=$2
shift 2
smoke_seconds=${FUZZ_SECONDS:-8}
quiet_seconds=${FUZZ_QUIET_SECONDS:-600}

shopt -s nullglob
fuzzers=()
for source in tests/fuzz/fuzz_*.c; do
    name=${source#*/fuzz_}
    if (($# == 0)) || [[ " $* " == *" ${name%.c} "* ]]; then fuzzers+=("$build/${source%.c}"); fi
done
if ((${#fuzzers[@]} == 0)); then echo "fuzz: no such fuzzer in tests/fuzz" && exit 2; fi

# What the corpus covers before anything new is tried, and at the end.
at_start() { sed -nE 's/.*INITED cov: ([0-9]+).*/\1/p' "$1"; }
at_end() { sed -nE 's/.*cov: ([0-9]+).*/\1/p' "$1" | tail -1; }

words_of() { # words_of NAME: as libFuzzer's dictionary, bare and as JSON has them
    local sources
    sources=$(sed -nE 's|^/\* words: (.*) \*/$|\1|p' "tests/fuzz/fuzz_$1.c")
    [ -n "$sources" ] || return 0
    # shellcheck disable=SC2086 # patterns
    grep -ohE '"[A-Za-z_|<][A-Za-z0-9_./|<>-]{1,39}"' $sources | grep -v '\.h"$' | sort -u | sed -E 's/^"(.*)"$/"\1"\n"\\"\1\\""/'
}

round() { # round FUZZER SECONDS LOG
    local name=${1##*/fuzz_} log=$3
    mkdir -p "$build/corpus_$name"
    local seeds=(tests/fuzz/corpus_"$name") more=() longest
    words_of "$name" >"$build/$name.dict"
    if [ -s "$build/$name.dict" ]; then more+=(-dict="$build/$name.dict"); fi
    longest=$(sed -nE 's|^/\* longest: ([0-9]+) .*|\1|p' "tests/fuzz/fuzz_$name.c")
    if [ -n "$longest" ]; then more+=(-max_len="$longest"); fi
    "$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$build/" \
        "${more[@]}" "$build/corpus_$name" "${seeds[@]}" >"$log" 2>&1 && return
    tail -60 "$log"
    echo "fuzz: $name failed; the input that did it is in $build/"
    exit 1
}

fuzz_one() { # fuzz_one FUZZER
    local name=${1##*/fuzz_} log total=0 seconds=$quiet_seconds before after
    log=$build/fuzz_$name.log
    [ "$mode" = fuzz ] || seconds=$smoke_seconds
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

# As many at a time as there are cores.
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
