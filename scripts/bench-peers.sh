#!/bin/sh
# bench-peers.sh: installs the programs that `rein bench` compares rein with into build-bench/venv: PyTorch with transformers, numpy and
# llama.cpp. They are installed again only when bench/python/requirements.txt, this script or the interpreter changes. A peer that cannot
# be installed is left out with a message; the exit status is 0 if at least one is there. llama.cpp is compiled for this machine's
# instruction set, which takes 15 minutes: a portable build would be slower.
set -u
cd "$(dirname "$0")/.." || exit 1

home=build-bench
list=bench/python/requirements.txt
shared=tests/parity/requirements
llama='llama-cpp-python==0.3.36'
mkdir -p "$home/logs"

reason() { grep -i 'error' "$1" | tail -1 | cut -c1-160; }
pip_install() { # pip_install LOG ARGUMENTS…
    log=$home/logs/$1.log
    shift
    "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --retries 1 "$@" >"$log" 2>&1
}
stamp() { { cat "$list" scripts/bench-peers.sh && python3 -c 'import sys; print(sys.version)'; } | sha256sum | cut -d' ' -f1; }
peer() { # peer NAME LOG COMMAND…: installs a peer with the command; reports a failure
    name=$1 log=$home/logs/$2.log
    shift 2
    if "$@"; then
        peers="$peers $name"
    else
        echo "bench-peers: LEFT OUT: $name cannot be installed: $(reason "$log")" >&2
        left_out="$left_out $name"
    fi
}

install_torch() { # first, with this exact version, so that no later package brings another build
    pip_install torch torch==2.13.0 && pip_install transformers -c $shared/constraints.txt -c $shared/huggingface.txt "$(of transformers)"
}
install_numpy() { pip_install numpy "$(of numpy)"; }
install_llama() {
    pip_install gguf "$(of numpy)" "$(of gguf)" &&
        CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" pip_install llama --no-binary llama-cpp-python "$llama"
}
of() { grep "^$1==" "$list"; }

if [ "$(stamp)" = "$(cat "$home/stamp" 2>/dev/null)" ]; then
    echo "bench-peers: $(cat "$home/peers") in $home/venv, as before"
    exit 0
fi
rm -rf "$home/venv" "$home/stamp"
if ! python3 -m venv "$home/venv" >"$home/logs/venv.log" 2>&1; then
    echo "bench-peers: cannot make a virtual environment: $(reason "$home/logs/venv.log")" >&2
    exit 1
fi
peers='' left_out=''
peer torch torch install_torch
peer numpy numpy install_numpy
peer llama.cpp llama install_llama
echo "bench-peers:${peers:- none} in $home/venv"
echo "${peers# }" >"$home/peers"
[ -n "$left_out" ] || stamp >"$home/stamp" # the next run tries the missing ones again
[ -n "$peers" ]
