#!/bin/bash
# bench.sh REIN [ARGUMENT…]: runs `rein bench` with every peer that is installed. `make bench-peers` installs the peers; torch and numpy
# can also be those of `make parity`.
# bench.sh REIN serve [OPTION…]: `rein serve` with 64 clients (bench/python/serve.py has the options); llama.cpp's server with --gguf FILE.
set -u
cd "$(dirname "$0")/.." || exit 1
rein=${1:?usage: bench.sh REIN [ARGUMENT...]}
shift
peers=()
if [ "${1:-}" = serve ]; then
    shift
    python=python3
    if build-bench/venv/bin/python -c 'import llama_cpp.server' 2>/dev/null; then python=build-bench/venv/bin/python; fi
    exec "$python" bench/python/serve.py --rein "$rein" "$@"
fi

# peer NAME MODULE SCRIPT [OPTION]: adds a peer, with the first interpreter that has the module
peer() {
    local name=$1 module=$2 script=bench/python/$3 python
    [ -f "$script" ] || return
    for python in build-bench/venv/bin/python build-parity/venv/bin/python; do
        if [ -x "$python" ] && "$python" -c "import $module" 2>/dev/null; then
            peers+=(--peer "$name=$python $script${4:+ $4}")
            return
        fi
    done
    echo "bench: without $name: make bench-peers installs it" >&2
}
peer torch torch torch_peer.py
peer torch-compile torch torch_peer.py --compile
peer numpy numpy numpy_peer.py
peer llama llama_cpp llama_peer.py

exec "$rein" bench ${peers[@]+"${peers[@]}"} "$@"
