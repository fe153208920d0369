#!/bin/bash
# run_ranks_kills.sh REIN-WITH-MPI: kill -9 of any rank at random moments. Each time the job ends within seconds, and the run resumes on another
# number of ranks; in the end it has the bits of a run that nobody killed. REIN_TEST_KILLS kills (5; `make soak` makes 50), whose moments
# depend on REIN_TEST_SEED. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$(dirname "$0")/ranks.sh"
kills=${REIN_TEST_KILLS:-5}
RANDOM=${REIN_TEST_SEED:-28}
steps=$((kills * 200))
long=("${small[@]}" --eval-prompts 0 --preset grpo)
numbers=(3 2 4 1)
done_kills=0
restarts=0

# The moment is drawn anew until a kill has hit a run that was at work.
while [ "$done_kills" -lt "$kills" ] && [ "$restarts" -lt $((4 * kills)) ]; do
    n=${numbers[restarts % 4]}
    victim=$((RANDOM % n))
    before=$(newest killed)
    restarts=$((restarts + 1))
    if [ "$n" = 1 ]; then OMPI_COMM_WORLD_RANK=0 setsid rein run killed "${long[@]}" --steps "$steps" >out 2>err &
    else mpirun -n "$n" rein run killed "${long[@]}" --steps "$steps" >out 2>err & fi
    job=$!
    process=
    for _ in $(seq 200); do
        if process=$(process_of killed "$victim"); then break; fi
        sleep 0.05
    done
    sleep "0.$((RANDOM % 500 + 100))"
    if [ -n "$process" ] && kill -9 "$process" 2>/dev/null; then
        done_kills=$((done_kills + 1))
        SECONDS=0
        if wait $job 2>/dev/null; then fail "kill $done_kills: rank $victim of $n: status 0"; else pass; fi
        if [ "$SECONDS" -le 10 ]; then pass; else fail "kill $done_kills: rank $victim of $n: the others ended after $SECONDS s"; fi
        if [[ $(newest killed) < $before ]]; then fail "kill $done_kills: step $before was lost"; else pass; fi
    else wait $job; fi
done
if [ "$done_kills" -eq "$kills" ]; then pass; else fail "$done_kills of $kills kills hit a rank" "$(tail -3 out)" "$(head -5 err)"; fi
last=$(newest killed)
steps=$((10#$last + 5))
does "resumed on 2" ranks 2 run killed --steps "$steps"
does "never killed" ranks 1 run whole "${long[@]}" --steps "$steps"
same "killed $done_kills times" whole killed
finish
