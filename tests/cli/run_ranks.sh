#!/bin/bash
# run_ranks.sh REIN-WITH-MPI: runs on 1, 2, 3, 4 and 8 ranks have the same bits in weights, moments, trajectories, history and evaluations;
# what is made for one process says so. Without MPI, which it installs if it may, everything is skipped, with a message. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$(dirname "$0")/ranks.sh"
rein task sums --demonstrations --count 20 --json >examples.jsonl

# --------------------------------------------------------------------------------------------------------- the same bits on any number

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

# Where the time of several ranks goes: in every line of the history, and in no line of one rank's.
if python3 - <<'PYTHON'; then pass; else fail "the times of ranks" "$(tail -1 rich-3/history.jsonl)"; fi
import json
for line in map(json.loads, open("rich-3/history.jsonl")):
    wait, longest, exchange = line["time/wait"], line["time/wait_max"], line["time/exchange"]
    assert 0 < wait <= longest < line["step_time"] and 0 < exchange < line["step_time"], line
    assert line["exchange/bytes"] > 1000 and line["exchange/calls"] > 10, line
for line in map(json.loads, open("rich-1/history.jsonl")):
    assert not any(name.startswith(("exchange/", "time/wait", "time/exchange")) for name in line), line
PYTHON
does "inspect" rein inspect rich-3
has "inspect shows the wait" out '^ *time/wait +[0-9.e-]+$'
compare mixed "2 8" "${mixed[@]}"
compare full "2 3" "${full[@]}"
# Pairs of the responses: which groups are ties decides which rank trains on which.
compare online "2 4" "${small[@]}" --learning-rate 0.02 --eval-prompts 0 --steps 3 --preset online-dpo --shape budget --token-budget 15 --budget-penalty-coef 0.02
compare online-full 3 "${small[@]}" --full --learning-rate 0.001 --eval-prompts 0 --steps 2 --preset online-dpo --preference-loss kto
# So many parameters that the part of a rank travels in several stretches.
compare long "2 3" --model "$sums" --task sums --preset grpo --full --learning-rate 0.001 --prompts 6 --samples 4 --max-tokens 12 --steps 2 --eval-prompts 0 \
    --threads 1
# The model of the cost counts the same bytes, within 1 %, and the same exchanges. Constants of a network are not needed for that.
printf '{"ranks": 2, "latency": 1, "latency_exchange": 1, "bytes_per_second_gather": 1, "bytes_per_second_exchange": 1}' >link.json
if python3 "$ranks_home/../../bench/ranks_model.py" compare long-2 link.json --floats 341760 --reference >out && python3 - <<'PYTHON'; then pass; else fail "the model of the cost" "$(cat out)"; fi
import json
out = json.load(open("out"))
measured, predicted = out["bytes"]
assert abs(measured - predicted) < 0.01 * measured and out["calls"][0] == out["calls"][1], out
PYTHON
if grep -q '^shards: "8"$' full-1/config.yaml; then pass; else fail "all weights have 8 shards"; fi

cat rich-1/trajectories/train/000[12].jsonl >groups.jsonl
for n in 1 3; do
    does "sft on $n" ranks "$n" sft "sft-$n" --model fresh --data examples.jsonl --batch-size 6 --max-steps 3 --threads 1
    does "train on $n" ranks "$n" train "train-$n" --model fresh --groups groups.jsonl --preset grpo --kl-loss-coef 0.1 --threads 1
done
same "sft" sft-1 sft-3
same "train" train-1 train-3

# Preferences: pairs with an adapter, and all weights on labels, whose KL needs a pass of its own.
python3 - <<'PYTHON'
import json
rows = [(f"{a}+{b}=", str(a + b), str(a + b + 1)) for a in range(3) for b in range(3)]
with open("pairs.jsonl", "w") as pairs, open("labels.jsonl", "w") as labels:
    for prompt, chosen, rejected in rows:
        pairs.write(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n")
        for completion in chosen, rejected:
            labels.write(json.dumps({"prompt": prompt, "completion": completion, "label": completion == chosen}) + "\n")
PYTHON
preferences=(--model fresh --threads 1 --batch-size 6 --keep-last 0)
for n in 1 3; do
    does "dpo on $n" ranks "$n" dpo "dpo-$n" "${preferences[@]}" --data pairs.jsonl --learning-rate 0.01
    does "reward on $n" ranks "$n" reward "reward-$n" "${preferences[@]}" --data pairs.jsonl --held-out pairs.jsonl --learning-rate 0.01
    does "kto on $n" ranks "$n" dpo "kto-$n" "${preferences[@]}" --full --loss kto --data labels.jsonl --max-steps 2 --learning-rate 0.001
done
same "dpo" dpo-1 dpo-3
same "reward" reward-1 reward-3
same "kto" kto-1 kto-3
does "dpo resumed on 2" ranks 2 dpo dpo-1 --num-train-epochs 2
does "dpo resumed on 1" ranks 1 dpo dpo-3 --num-train-epochs 2
same "dpo, resumed" dpo-1 dpo-3

# A teacher: on given data and own samples, and beside a reward.
for n in 1 3; do
    does "distill on $n" ranks "$n" distill "distill-$n" --model fresh --teacher "$sums" --data examples.jsonl --divergence jsd --lambda 0.5 \
        --max-new-tokens 12 --batch-size 6 --max-steps 4 --learning-rate 0.01 --threads 1
done
same "distill" distill-1 distill-3
for divergence in sampled reverse; do
    compare "teacher-$divergence" 3 "${small[@]}" --learning-rate 0.02 --eval-prompts 0 --steps 2 --preset grpo --teacher "$sums" --teacher-coef 1 \
        --divergence "$divergence"
done

# The instruction set of one rank.
does "another instruction set" mpirun -n 1 -x REIN_KERNEL=ref rein run kernel "${rich[@]}" : -n 1 rein run kernel "${rich[@]}"
same "another instruction set" rich-1 kernel

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
if [ -x "$ranks_home/../../build/rein" ]; then
    says_once "without MPI" '2 ranks were started, and this rein was built without MPI: .make mpi. builds' \
        mpirun -n 2 "$ranks_home/../../build/rein" run new "${small[@]}"
fi
finish
