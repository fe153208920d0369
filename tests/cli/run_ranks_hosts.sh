#!/bin/bash
# run_ranks_hosts.sh REIN-WITH-MPI: ranks on hosts with a network between them (hosts.sh), limited to 1 Gbit/s. A run on 2 and on 4 hosts has the
# bits of one without ranks; a cable that is pulled ends the job within seconds, its last checkpoint is whole, and `rein run RUN` resumes,
# on all hosts or on one. Where namespaces are not allowed everything is skipped, with a message. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$(dirname "$0")/ranks.sh"
# shellcheck source-path=SCRIPTDIR source=hosts.sh
. "$ranks_home/hosts.sh"
if ! hosts_allowed; then
    echo "SKIPPED: no hosts can be made here ($hosts_why): no run over a network was compared, no cable pulled"
    echo "0 passed, 0 failed, 10 skipped"
    exit 0
fi
hosts_up 4
hosts_rate 1gbit

# What a host has sent over its cable, in bytes.
sent_by() { inside "$1" ip -s -j link show eth0 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'; }

# --------------------------------------------------------------------------------------------------------- the same bits on any number

lora=("${small[@]}" --learning-rate 0.02 --eval-prompts 5 --eval-steps 2 --steps 3 --preset k2 --tau 0.5 --token-budget 15 --budget-penalty-coef 0.02
    --kl-penalty-coef 0.1 --kl-penalty-step-lag 1 --dynamic-sampling 2)
full=("${small[@]}" --full --learning-rate 0.001 --eval-prompts 4 --eval-steps 0 --steps 2 --preset grpo --kl-loss-coef 0.1)
does "lora without ranks" rein run lora-1 "${lora[@]}"
does "full without ranks" rein run full-1 "${full[@]}"
for n in 2 4; do
    does "lora on $n hosts" hosts_mpirun "$n" rein run "lora-$n" "${lora[@]}"
    same "lora: $n hosts" lora-1 "lora-$n"
    does "full on $n hosts" hosts_mpirun "$n" rein run "full-$n" "${full[@]}"
    same "full: $n hosts" full-1 "full-$n"
done
bytes=$(sent_by 4)
if [ "$bytes" -gt 100000 ]; then pass; else fail "node4 has sent $bytes bytes: the ranks did not use the network"; fi

# ---------------------------------------------------------------------------------------------------------------- a cable is pulled

long=("${small[@]}" --eval-prompts 0 --preset grpo)
hosts_mpirun 3 rein run pulled "${long[@]}" --steps 100000 >out 2>err &
job=$!
until_step pulled 0003
hosts_cable 3 down
SECONDS=0
if wait $job; then fail "a cable was pulled: status 0"; else pass; fi
if [ "$SECONDS" -le 15 ]; then pass; else fail "a cable was pulled: the job ended after $SECONDS s"; fi
has "the reason" err 'lost communication with a remote daemon'
if hosts_idle 10; then pass; else fail "a cable was pulled: some processes are still there" "$(pgrep -fa 'rein run pulled')"; fi
hosts_cable 3 up
steps=$((10#$(newest pulled) + 2))
does "resumed on 3 hosts" hosts_mpirun 3 rein run pulled --steps $((steps - 1))
does "resumed without ranks" rein run pulled --steps "$steps"
does "with no cable pulled" rein run whole "${long[@]}" --steps "$steps"
same "pulled and resumed" whole pulled
hosts_down
finish
