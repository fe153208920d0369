#!/bin/bash
# ranks.sh: what the tests of several ranks share, over cases.sh. A script sources it with the path of a rein that has MPI as its argument. If MPI
# cannot be installed or built here, the script ends with a message: everything in it is skipped.
ranks_home=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
if ! (cd "$ranks_home/../.." && flock "${TMPDIR:-/tmp}" make mpi) >/dev/null 2>&1; then
    echo "SKIPPED: MPI cannot be installed or built here (make mpi): no run on several ranks was compared"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$ranks_home/cases.sh"
sums=$ranks_home/../../models/sums
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_orte_abort_print_stack=0

ranks() { # ranks N WORD…: rein on N ranks; without mpirun if N is 1
    local n=$1
    shift
    if [ "$n" = 1 ]; then rein "$@"; else mpirun -n "$n" rein "$@"; fi
}

# The lines of a history or of evaluations without what a clock or the system measured.
plain() {
    python3 -c '
import json, sys
for line in open(sys.argv[1]):
    print(json.dumps({k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "exchange/")) and k not in ("step_time", "tokens_per_second", "peak_memory")}))' "$1"
}

# same TITLE RUN RUN: every file of every checkpoint, the trajectories, the history and the evaluations
same() {
    local part
    if [ ! -d "$2/checkpoints" ] || [ ! -d "$3/checkpoints" ]; then fail "$1" "there is no run" && return; fi
    for part in checkpoints trajectories; do
        if ! diff -r "$2/$part" "$3/$part" >different 2>&1; then fail "$1: $part" "$(head -3 different)" && return; fi
    done
    for part in history.jsonl evaluations.jsonl; do
        if [ ! -e "$2/$part" ] && [ ! -e "$3/$part" ]; then continue; fi
        if ! diff <(plain "$2/$part") <(plain "$3/$part") >different 2>&1; then fail "$1: $part" "$(head -c 600 different)" && return; fi
    done
    pass
}

# newest RUN: its last checkpoint
newest() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2>/dev/null | sort | tail -1; }

# process_of RUN RANK: the process of a rank of `rein run RUN`
process_of() {
    local process
    for process in $(pgrep -f "rein run $1( |\$)"); do
        if [ "/proc/$process/cwd" -ef . ] && tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then
            echo "$process" && return
        fi
    done
    return 1
}

# fresh: a model that has learnt nothing, small enough for many steps
mkdir fresh && cp "$sums"/{tokenizer,tokenizer_config}.json fresh
cat >fresh/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": false, "eos_token_id": 0, "initializer_range": 0.2}
JSON
rein init fresh >/dev/null || fail "init"
# shellcheck disable=SC2034 # used by the scripts that source this
small=(--model fresh --task sums --reward 'regex:[0-2]' --reward length:9 --stop a --stop b --prompts 5 --samples 3 --max-tokens 20
    --threads 1 --keep-last 0)
