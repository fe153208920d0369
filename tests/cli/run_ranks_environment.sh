#!/bin/bash
# run_ranks_environment.sh REIN-WITH-MPI: environments on several ranks: each plays its own episodes with its own program, and a run has the same
# bits on 1, 2, 3 and 4 ranks; a fault of one rank's program ends the job with its message, and the run resumes. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$(dirname "$0")/ranks.sh"
play() { echo "env: python3 $ranks_home/environment.py $*"; }
game=(--model "$sums" --chat-format raw --preset grpo --prompts 4 --samples 3 --max-tokens 24 --learning-rate 1e-3 --threads 1 --keep-last 0)

does "on 1" ranks 1 run game-1 "${game[@]}" --task "$(play guess)" --steps 3 --eval-prompts 5 --eval-steps 2
for n in 2 3 4; do
    does "on $n" ranks "$n" run "game-$n" "${game[@]}" --task "$(play guess)" --steps 3 --eval-prompts 5 --eval-steps 2
    same "$n ranks" game-1 "game-$n"
done
if [ "$(grep -c . game-4/trajectories/train/0003.jsonl)" -eq 4 ]; then pass; else fail "four groups"; fi
# A program that answers in random order.
cat >shuffled.sh <<SH
#!/bin/sh
exec python3 "$ranks_home/environment.py" "\${GAME:-guess}"
SH
chmod +x shuffled.sh
does "in any order, without ranks" ranks 1 run mixed-1 "${game[@]}" --task "env: $work/shuffled.sh" --steps 2 --eval-prompts 0
does "in any order" env GAME=shuffled mpirun -n 3 -x GAME rein run mixed-3 "${game[@]}" --task "env: $work/shuffled.sh" --steps 2 --eval-prompts 0
same "in any order: 3 ranks" mixed-1 mixed-3

# fault MODE RANK PATTERN: the program of one rank fails; the job ends with one line, nothing is committed
fault() {
    local title="$1 on rank $2"
    rm -rf broken
    if timeout 60 mpirun -n 3 rein run broken "${game[@]}" --task "$(play "$1" "$2")" --steps 1 --eval-prompts 0 --reward-timeout 5 >out 2>err </dev/null; then
        fail "$title: status 0"
    elif [ "$(grep -cE "$3" err)" -eq 1 ] && [ ! -e broken/checkpoints/0001 ]; then pass
    else fail "$title" "wanted once: $3" "$(head -5 err)"; fi
}
fault crash 2 '^rein run: rank 2: environment "python3 .*boom: no such game'
fault slow 1 '^rein run: rank 1: environment "python3 .*the program did not answer within 5 seconds'
fault no-reward 0 '^rein run: environment "python3 .*turn 1: reward is missing'
fault few 1 '^rein run: the numbers of examples of rank 1 differ from those of the other ranks$'

# A fault in a later step leaves the checkpoint before it.
cat >program.sh <<SH
#!/bin/sh
if [ -e "$work/break" ] && [ "\${OMPI_COMM_WORLD_RANK:-0}" = 1 ]; then exec python3 "$ranks_home/environment.py" crash-reset; fi
exec python3 "$ranks_home/environment.py" guess
SH
chmod +x program.sh
does "two steps" ranks 3 run again "${game[@]}" --task "env: $work/program.sh" --steps 2 --eval-prompts 0
touch break
if ranks 2 run again --steps 4 >out 2>err </dev/null; then fail "a fault in a later step: status 0"; else pass; fi
has "its message" err '^rein run: rank 1: environment .*boom: no such game'
rm break
does "resumed on 2" ranks 2 run again --steps 4
does "never broken" ranks 1 run whole "${game[@]}" --task "env: $work/program.sh" --steps 4 --eval-prompts 0
same "broken and resumed" whole again
finish
