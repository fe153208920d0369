#!/bin/bash
# run_ranks.sh REIN-WITH-MPI: runs on 1, 2, 3 and 4 ranks have the same bits in weights, moments, trajectories, history and evaluations; a run
# that lost a rank resumes on another number of ranks; what is made for one process says so. Without MPI, which it installs if it may,
# everything is skipped, with a message. Ends with 'N passed, N failed'.
set -u
here=$(realpath "$(dirname "$0")")
if ! (cd "$here/../.." && make mpi) >/dev/null 2>&1; then
    echo "SKIPPED: MPI cannot be installed or built here (make mpi): no run on several ranks was compared"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$here/cases.sh"
sums=$here/../../models/sums
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
    print(json.dumps({k: v for k, v in json.loads(line).items() if not k.startswith("time/") and k not in ("step_time", "tokens_per_second", "peak_memory")}))' "$1"
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

mkdir fresh && cp "$sums"/{tokenizer,tokenizer_config}.json fresh
cat >fresh/config.json <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": false, "eos_token_id": 0, "initializer_range": 0.2}
JSON
rein init fresh >/dev/null || fail "init"
rein task sums --demonstrations --count 20 --json >examples.jsonl

# --------------------------------------------------------------------------------------------------------- the same bits on any number

small=(--model fresh --task sums --reward 'regex:[0-2]' --reward length:9 --stop a --stop b --prompts 5 --samples 3 --max-tokens 20
    --threads 1 --keep-last 0)
# A KL to a checkpoint, evaluations, dynamic sampling, the budget controller, several optimizer steps.
rich=("${small[@]}" --learning-rate 0.02 --eval-prompts 5 --eval-steps 2 --steps 3 --preset k2 --tau 0.5 --token-budget 15 --budget-penalty-coef 0.02 --budget-target 12
    --kl-penalty-coef 0.1 --kl-penalty-step-lag 1 --dynamic-sampling 2 --minibatches 2)
# Supervised examples in every step, a reward with the KL, entropies.
mixed=("${small[@]}" --learning-rate 0.02 --eval-prompts 0 --steps 2 --preset dapo --overlong-max 20 --overlong-cushion 5 --entropy-coef 0.01 --kl-reward-coef 0.05
    --kl-penalty-reference-step 0 --ptx-data examples.jsonl --ptx-batch 3 --epochs 2)
full=("${small[@]}" --full --learning-rate 0.001 --eval-prompts 4 --eval-steps 0 --steps 2 --preset grpo --kl-loss-coef 0.1)

# compare NAME RANKS WORD…: a run on so many ranks is that on one, which is made first
compare() {
    local name=$1 n
    local -a numbers
    read -ra numbers <<<"$2"
    shift 2
    does "$name on 1" ranks 1 run "$name-1" "$@"
    for n in "${numbers[@]}"; do
        does "$name on $n" ranks "$n" run "$name-$n" "$@"
        same "$name: $n ranks" "$name-1" "$name-$n"
    done
}
compare rich "3 4" "${rich[@]}"
compare mixed 2 "${mixed[@]}"
compare full "2 3" "${full[@]}"
if grep -q '^shards: "8"$' full-1/config.yaml; then pass; else fail "all weights have 8 shards"; fi

cat rich-1/trajectories/train/000[12].jsonl >groups.jsonl
for n in 1 3; do
    does "sft on $n" ranks "$n" sft "sft-$n" --model fresh --data examples.jsonl --batch-size 6 --max-steps 3 --threads 1
    does "train on $n" ranks "$n" train "train-$n" --model fresh --groups groups.jsonl --preset grpo --kl-loss-coef 0.1 --threads 1
done
same "sft" sft-1 sft-3
same "train" train-1 train-3

# The instruction set of one rank.
does "another instruction set" mpirun -n 1 -x REIN_KERNEL=ref rein run kernel "${rich[@]}" : -n 1 rein run kernel "${rich[@]}"
same "another instruction set" rich-1 kernel

# ----------------------------------------------------------------------------------------------------------------- a rank that dies

long=("${small[@]}" --eval-prompts 0 --steps 40 --preset grpo)
does "long on 1" ranks 1 run long-1 "${long[@]}"
mpirun -n 3 rein run long-3 "${long[@]}" >out 2>err &
job=$!
until_step long-3 0002
# Of the processes of this run, the one with rank 2.
victim=
for process in $(pgrep -f 'run long-3'); do
    if tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx OMPI_COMM_WORLD_RANK=2; then victim=$process; fi
done
if [ -n "$victim" ] && kill -9 "$victim"; then
    wait $job && fail "a rank was killed: status 0"
    last=$(find long-3/checkpoints -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort | tail -1)
    if [[ $last < 0040 ]]; then pass; else fail "a rank was killed: the run has ended all the same"; fi
    does "resumed on 2" ranks 2 run long-3 --steps 39
    does "resumed on 1" ranks 1 run long-3 --steps 40
    same "killed and resumed" long-1 long-3
else
    wait $job
    fail "rank 2 of long-3 was not found"
fi

# --------------------------------------------------------------------------------------------------------------------- what is refused

# says_once TITLE PATTERN COMMAND…: a failure that one line of stderr explains
says_once() {
    local title=$1 pattern=$2
    shift 2
    if "$@" >out 2>err </dev/null; then fail "$title: status 0"
    elif [ "$(grep -cE "$pattern" err)" -eq 1 ]; then pass
    else fail "$title" "wanted once: $pattern" "$(head -5 err)"; fi
}
says_once "serve" '^rein serve: 2 ranks were started: rein serve works as one process' ranks 2 serve rich-1
says_once "eval" '^rein eval: 2 ranks were started: rein eval works as one process' ranks 2 eval rich-1
says_once "dry run" '^rein run: --dry-run is for one process' ranks 2 run new "${rich[@]}" --dry-run
says_once "a wrong setting" '^rein run: --model is "nothing"' ranks 2 run new --model nothing --task sums
says_once "other settings" '^rein run: the settings or the files of rank 2 differ from those of the other ranks$' \
    mpirun -n 2 rein run new "${small[@]}" --seed 1 : -n 1 rein run new "${small[@]}" --seed 2
says_once "a rank that cannot start" '^rein run: rank 1: --model is "nothing"' \
    mpirun -n 1 rein run new "${small[@]}" : -n 1 rein run new --model nothing --task sums
absent "nothing was written" new
if [ -x "$here/../../build/rein" ]; then
    says_once "without MPI" '2 ranks were started, and this rein was built without MPI: .make mpi. builds' \
        mpirun -n 2 "$here/../../build/rein" run new "${small[@]}"
fi
finish
