#!/bin/bash
# ranks.sh PART REIN-WITH-MPI: measures runs on several ranks. PART:
#
#     pace    2 ranks with 1 thread each beside 1 rank with 2 threads, in turns: a step of RL and a step of training. Wanted: 0.93 or more
#     link    hosts that are network namespaces, with links of 1 Gbit/s: the share of an RL step that exchanges an adapter of rank 8 of SmolLM2's
#             shape (135 M). Wanted: 2 % or less
#     model   the cost model of docs/cluster.md (ranks_model.py) beside runs on 2 and 4 hosts with links of 100 Mbit/s and 1 Gbit/s, an adapter
#             and all weights. Wanted: within 15 %
#
# ROUNDS (5) turns of `pace`, STEPS (6) steps of each run: medians. Run it on a machine that does nothing else. Everything is made in a directory of
# its own, which is deleted; link and model need root.
set -u
part=${1:?usage: $0 pace|link|model REIN-WITH-MPI}
rein=$(realpath "${2:?usage: $0 pace|link|model REIN-WITH-MPI}")
home=$(realpath "$(dirname "$0")")
rounds=${ROUNDS:-5}
steps=${STEPS:-6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
sums=$home/../models/sums

# model DIRECTORY HIDDEN WIDTH LAYERS HEADS KEY-HEADS: random weights, with the tokenizer of the shipped model
model() {
    mkdir "$1" && cp "$sums"/{tokenizer,tokenizer_config}.json "$1"
    printf '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": %d, "intermediate_size": %d,
        "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "max_position_embeddings": 256,
        "tie_word_embeddings": true, "eos_token_id": 0, "initializer_range": 0.02}' "${@:2}" >"$1/config.json"
    "$rein" init "$1" >/dev/null || exit 1
}

# must COMMAND…: its last lines if it fails
must() { "$@" >out 2>&1 </dev/null || { tail -5 out && exit 1; }; }

# median RUN METRIC: over its steps but the first
median() {
    python3 -c '
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1] + "/history.jsonl")][1:]
print(statistics.median(s[sys.argv[2]] for s in steps))' "$1" "$2"
}

# pace_of TITLE COMMAND RUN-WORD…: the same command, in turns
pace_of() {
    local title=$1 command=$2 ratios=
    shift 2
    for _ in $(seq "$rounds"); do
        rm -rf one two
        must "$rein" "$command" one "$@" --threads 2
        must mpirun -n 2 "$rein" "$command" two "$@" --threads 1
        ratios="$ratios $(python3 -c "print($(median one step_time) / $(median two step_time))")"
    done
    # shellcheck disable=SC2086 # several words
    python3 - "$title" "$(median one step_time)" "$(median two step_time)" "$(median two time/wait)" "$(median two time/exchange)" $ratios <<'PYTHON'
import statistics, sys
title, one, two, wait, exchange, *ratios = sys.argv[1], *map(float, sys.argv[2:])
print(f"{title}: 2 ranks have {statistics.median(ratios):.3f} of the pace of 2 threads ({min(ratios):.3f} to {max(ratios):.3f}); last turn: "
      f"{one:.3f} s and {two:.3f} s a step, of which {wait:.3f} s waiting and {exchange:.3f} s exchange")
PYTHON
}

pace() {
    "$rein" task sums --demonstrations --count 400 --json >examples.jsonl
    model small 384 1024 6 6 6
    pace_of "RL step, shipped model" run --model "$sums" --task sums --preset grpo --kl-loss-coef 0.04 --prompts 32 --samples 8 --max-tokens 64 --eval-prompts 0 \
        --steps "$((steps + 1))" --save-steps 1000
    pace_of "training step, adapter, 6 x 384" sft --model small --data examples.jsonl --batch-size 32 --max-steps "$((steps + 1))" --save-steps 1000
    pace_of "training step, all weights, 6 x 384" sft --model small --full --data examples.jsonl --batch-size 32 --max-steps "$((steps + 1))" --save-steps 1000
}

network() {
    # shellcheck source-path=SCRIPTDIR source=../tests/cli/hosts.sh
    . "$home/../tests/cli/hosts.sh"
    if ! hosts_allowed; then echo "no hosts can be made here: $hosts_why" && exit 1; fi
    hosts_up 4
}

# measure_link N RATE: its constants, in link.json
measure_link() {
    hosts_rate "$2"
    must hosts_mpirun "$1" python3 "$home/ranks_link.py" "$(dirname "$rein")/librein.so"
    grep '^{' out >link.json
    hosts_idle 10
}

# beside TITLE N FLOATS RUN-WORD…: a run on N hosts beside the model, whose constants are in link.json
beside() {
    local title=$1 n=$2 floats=$3
    shift 3
    rm -rf measured
    must hosts_mpirun "$n" "$rein" run measured "$@"
    hosts_idle 10
    echo "$title: $(python3 "$home/ranks_model.py" compare measured link.json --floats "$floats" --reference)"
}

case $part in
pace) pace ;;
link)
    network
    model smollm 576 1536 30 9 3
    for n in 2 4; do
        measure_link "$n" 1gbit
        beside "adapter of rank 8 of SmolLM2's shape, $n hosts, 1 Gbit/s" "$n" 2442240 --model smollm --task sums --reward 'regex:[0-2]' --reward length:9 --preset grpo --kl-loss-coef 0.04 --lora-rank 8 \
            --prompts 16 --samples 8 --max-tokens 32 --eval-prompts 0 --steps "${STEPS:-2}" --save-steps 1000 --threads 1
    done
    hosts_down
    ;;
model)
    network
    model small 384 1024 6 6 6
    for rate in 100mbit 1gbit; do
        for n in 2 4; do
            measure_link "$n" "$rate"
            common=(--model small --task sums --reward 'regex:[0-2]' --reward length:9 --preset grpo --prompts 8 --samples 4 --max-tokens 12 --eval-prompts 0 --steps "$((steps + 1))" --save-steps 1000 --threads 1)
            beside "adapter, $n hosts, $rate" "$n" 1400832 "${common[@]}" --lora-rank 32
            beside "all weights, $n hosts, $rate" "$n" 10659072 "${common[@]}" --full
        done
    done
    hosts_down
    ;;
*) echo "there is no part $part: pace, link or model" >&2 && exit 2 ;;
esac
