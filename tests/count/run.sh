#!/bin/bash
# run.sh LOOPS [--accept]: the instructions of five hot loops, counted by valgrind, against those of expected.txt, within 3 %. A count does
# not depend on how busy the machine is, so it shows what a clock cannot. It depends on the compiler: expected.txt has lines "COMPILER NAME
# COUNT", and without one for this compiler all is skipped. --accept writes what is counted now. Ends with 'N passed, N failed'.
set -u
loops=${1:?usage: $0 PATH-OF-LOOPS [--accept]}
accept=${2:-}
table=$(dirname "$0")/expected.txt
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is counted: a function and all it calls.
functions() {
    case $1 in
    head) echo rein_head_forward ;;
    attention) echo rein_attention_forward rein_attention_backward ;;
    *) echo counted ;;
    esac
}

count() { # count NAME: prints the number, or nothing and why on stderr
    local options=() function
    for function in $(functions "$1"); do options+=("--toggle-collect=$function"); done
    mkdir "$work/$1"
    valgrind --tool=callgrind "${options[@]}" --callgrind-out-file="$work/$1.out" "$loops" "$1" "$work/$1" >"$work/log" 2>&1 ||
        { tail -5 "$work/log" >&2 && return; }
    # 0: there is no such function any more.
    awk '/^totals: / && $2 > 0 { print $2 }' "$work/$1.out"
}

names="gemm decode head policy-loss attention"
skip() {
    echo "skipped: the counts of instructions: $1"
    echo "0 passed, 0 failed, 5 skipped"
    exit 0
}
grep -qw avx2 /proc/cpuinfo 2>/dev/null || skip "this machine has no AVX2"
# shellcheck disable=SC2086 # it may be more than a word
compiler=$(printf '#ifdef __clang__\nclang-__clang_major__\n#else\ngcc-__GNUC__\n#endif\n' | $cc -E -P -x c - | tr -d ' \n')
[ -n "$compiler" ] || skip "$cc does not work"
if [ "$accept" != --accept ] && ! grep -q "^$compiler " "$table"; then
    skip "$compiler is not one of $(cut -d' ' -f1 "$table" | sort -u | paste -sd ' '): make count ACCEPT=1 writes its own"
fi

passed=0 failed=0
{ grep -v "^$compiler " "$table" 2>/dev/null || true; } >"$work/table"
for name in $names; do
    wanted=$(awk -v c="$compiler" -v n="$name" '$1 == c && $2 == n { print $3 }' "$table" 2>/dev/null)
    counted=$(count "$name")
    change=$(awk -v a="${wanted:-0}" -v b="${counted:-0}" 'BEGIN { if (a > 0) printf "%+.1f %%", 100 * (b / a - 1) }')
    echo "$compiler $name $counted" >>"$work/table"
    if [ -z "$counted" ]; then
        failed=$((failed + 1))
        echo "FAIL  $name: not counted: is there still a function $(functions "$name" | sed 's/ / and /')?"
    elif [ "$accept" = --accept ] ||
        awk -v a="${wanted:-0}" -v b="$counted" 'BEGIN { exit !(b <= 1.03 * a && b >= 0.97 * a) }'; then
        passed=$((passed + 1))
        printf 'ok    %-12s %10d  %s\n' "$name" "$counted" "$change"
    else
        failed=$((failed + 1))
        echo "FAIL  $name: $counted instructions, not ${wanted:-known}${change:+ ($change)}: make count ACCEPT=1 if that is meant"
    fi
done
if [ "$accept" = --accept ] && [ "$failed" -eq 0 ]; then LC_ALL=C sort "$work/table" >"$table"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
