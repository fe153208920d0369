#!/bin/bash
# run_distill.sh REIN: learning from a teacher, on given data, on own samples and beside a reward. A run that was killed or stopped and resumed has
# the files of one that was not; threads change nothing; a mistake is reported before anything is written. Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
cd "$work" || exit 1

# value RUN STEP NAME: a metric of history.jsonl
value() { python3 -c 'import json, sys; print(next(r[sys.argv[3]] for r in map(json.loads, open(sys.argv[1] + "/history.jsonl")) if r["step"] == int(sys.argv[2])))' "$@"; }
# true_of TITLE EXPRESSION: in Python
true_of() { if python3 -c "import sys; sys.exit(not ($2))"; then pass; else fail "$1" "$2"; fi; }
# same_policy TITLE RUN RUN STEP: the files that the next step depends on
same_policy() {
    for file in adapter_model.safetensors optimizer.safetensors; do
        if cmp -s "$2/checkpoints/$4/$file" "$3/checkpoints/$4/$file"; then pass; else fail "$1: $file"; fi
    done
}

# The teacher: the same model after some steps on the shortest demonstrations.
rein task sums --demonstrations --json --count 300 >data.jsonl
python3 - <<'PYTHON'
import json, os, shutil
rows = [json.loads(line) for line in open("data.jsonl")]
short = sorted(rows, key=lambda row: len(row["completion"]))[:120]
open("short.jsonl", "w").write("".join(json.dumps(row) + "\n" for row in short))
open("few.jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows[:40]))
PYTHON
does "a teacher" rein sft taught --model "$sums" --data short.jsonl --full --learning-rate 1e-3 --num-train-epochs 2
does "its model" rein export taught --to teacher
does "as GGUF" rein export taught --to teacher.gguf --type f32
python3 - <<'PYTHON'
import json, shutil
shutil.copytree("teacher", "other")
path = "other/tokenizer.json"
text = json.load(open(path))
vocabulary = text["model"]["vocab"]
names = [name for name in vocabulary if vocabulary[name] in (40, 41)]
vocabulary[names[0]], vocabulary[names[1]] = vocabulary[names[1]], vocabulary[names[0]]
json.dump(text, open(path, "w"))
PYTHON
new=(--model "$sums" --teacher teacher --learning-rate 1e-3)

# ---------------------------------------------------------------------------------------------------------------- given data
does "distill" rein distill one --data data.jsonl "${new[@]}" --batch-size 30 --keep-last 0
has "lines" err '^step 1/10  loss [0-9.]+  divergence [0-9.]+  '
has "the table" out '^divergence   0\.'
has "the plan is kept" one/distill.json '"lambda": 0'
has "the settings are kept" one/config.yaml 'divergence: "forward"'
true_of "the divergence falls" "$(value one 10 teacher/divergence) < 0.8 * $(value one 1 teacher/divergence)"
true_of "the loss is the divergence" "abs($(value one 3 loss) - $(value one 3 teacher/divergence)) < 1e-6"
does "a part" rein distill two --data data.jsonl "${new[@]}" --batch-size 30 --keep-last 0 --max-steps 4 --threads 1
does "the rest" rein distill two --num-train-epochs 1 --threads 3
has "the rest" err '^rein distill: resuming after step 4 of 10$'
same_policy "resumed, other threads" one two 0010
constant=(--data data.jsonl --batch-size 30 --max-steps 1 --aggregation dr-grpo)
for lmax in 10 20; do
    does "divided by a constant, $lmax" rein distill "constant$lmax" "${new[@]}" "${constant[@]}" --max-response-length "$lmax"
    does "sft, divided by a constant, $lmax" rein sft "sft$lmax" --model "$sums" "${constant[@]}" --max-response-length "$lmax"
done
true_of "half as much" "abs($(value constant10 1 loss) - 2 * $(value constant20 1 loss)) < 1e-6 < $(value constant20 1 loss)"
true_of "sft, half as much" "abs($(value sft10 1 loss) - 2 * $(value sft20 1 loss)) < 1e-6 < $(value sft20 1 loss)"
does "a GGUF teacher" rein distill gguf --data data.jsonl --model "$sums" --teacher teacher.gguf --learning-rate 1e-3 --batch-size 30 --keep-last 0 --max-steps 2
same_policy "a GGUF teacher" one gguf 0002
for divergence in reverse jsd; do
    does "$divergence" rein distill "$divergence" --data data.jsonl "${new[@]}" --divergence "$divergence" --batch-size 60
    true_of "$divergence falls" "$(value "$divergence" 5 teacher/divergence) < $(value "$divergence" 1 teacher/divergence)"
done
does "all weights" rein distill full --data data.jsonl --model "$sums" --teacher teacher --full --learning-rate 1e-4 --batch-size 60
true_of "all weights" "$(value full 5 teacher/divergence) < $(value full 1 teacher/divergence)"
does "with a log-likelihood" rein distill nll --data data.jsonl "${new[@]}" --nll-coef 0.5 --batch-size 60 --max-steps 1
true_of "with a log-likelihood" "$(value nll 1 loss) > $(value nll 1 loss/teacher) > 0"
does "the policy itself" rein distill itself --model "$sums" --teacher "$sums" --data few.jsonl --max-steps 1
true_of "the policy itself" "$(value itself 1 teacher/divergence) == 0"

# --------------------------------------------------------------------------------------------------------------- own samples
own=(--data data.jsonl "${new[@]}" --batch-size 10 --max-new-tokens 64 --keep-last 0)
does "mixed" rein distill mixed "${own[@]}" --divergence jsd --lambda 0.5 --max-steps 8
python3 - <<'PYTHON' && pass || fail "some steps sample, and some do not"
import json
sampled = ["time/sample" in json.loads(line) for line in open("mixed/history.jsonl")]
assert 0 < sum(sampled) < len(sampled)
PYTHON
rein distill killed "${own[@]}" --divergence jsd --lambda 0.5 --max-steps 8 >/dev/null 2>&1 &
until_step killed 0003
kill -9 $! 2>/dev/null
wait 2>/dev/null
does "after a kill" rein distill killed --threads 1
same_policy "after a kill" mixed killed 0008
does "sampled" rein distill sampled "${own[@]}" --lambda 1 --divergence sampled --max-steps 3
true_of "sampled" "$(value sampled 3 on_policy/max_gap) == 0 and $(value sampled 3 teacher/divergence) > 0"

# ------------------------------------------------------------------------------------------------------------ beside a reward
run=(--model "$sums" --task sums --samples 4 --prompts 8 --max-tokens 64 --preset grpo --eval-prompts 0 --learning-rate 1e-3)
for divergence in sampled reverse; do
    does "run, $divergence" rein run "run-$divergence" "${run[@]}" --steps 2 --teacher teacher --teacher-coef 0.5 --divergence "$divergence"
    true_of "run, $divergence" "$(value "run-$divergence" 2 teacher/divergence) > 0 and $(value "run-$divergence" 1 on_policy/max_gap) == 0"
done
# In expectation over the policy's own samples the two are the same.
true_of "sampled and exact agree" "abs($(value run-sampled 1 teacher/divergence) / $(value run-reverse 1 teacher/divergence) - 1) < 0.5"
does "run, a part" rein run part "${run[@]}" --steps 4 --teacher teacher --teacher-coef 1 --teacher-discount 0.9 --keep-last 0 --minibatches 2
does "run, shorter" rein run rest "${run[@]}" --steps 2 --teacher teacher --teacher-coef 1 --teacher-discount 0.9 --keep-last 0 --minibatches 2
does "run, the rest" rein run rest --steps 4 --threads 1
same_policy "run, resumed" part rest 0004
does "a teacher alone" rein run alone "${run[@]}" --steps 2 --teacher teacher --teacher-coef 1 --divergence reverse --reward task --reward-weights 0
true_of "a teacher alone" "$(value alone 2 reward) == 0 and $(value alone 2 grad_norm) > 0"

# ------------------------------------------------------------------------------------------------------- before anything is written
does "dry run" rein distill dry --data few.jsonl "${new[@]}" --dry-run
has "dry run" out '^examples     40, '
no() { # no TITLE PATTERN OPTION...: refused, and nothing was written
    local title=$1 pattern=$2
    shift 2
    refused "$title" "$pattern" rein distill dry --data few.jsonl --model "$sums" "$@"
    if [ -e dry ]; then fail "$title: something was written" && rm -rf dry; else pass; fi
}
no "no teacher" 'teacher is missing'
no "no such teacher" 'teacher is "none".*not a directory' --teacher none
no "another vocabulary" 'teacher has another vocabulary: token 40 is ".*" for the policy, and ".*" for the teacher' --teacher other
no "sampled on given data" 'divergence sampled needs --lambda 1' --teacher teacher --divergence sampled
no "sampled on some of it" 'divergence sampled needs --lambda 1' --teacher teacher --divergence sampled --lambda 0.5
no "an idle beta" 'jsd.beta has no effect' --teacher teacher --jsd-beta 0.5
no "beta 1" 'jsd.beta is 1' --teacher teacher --divergence jsd --jsd-beta 1
no "an idle length" 'max-new-tokens has no effect without --lambda' --teacher teacher --max-new-tokens 5
no "an idle log-likelihood" 'nll-coef has no effect with --lambda 1' --teacher teacher --lambda 1 --nll-coef 1
no "lambda 2" 'lambda is .*2' --teacher teacher --lambda 2
no "a preset" 'has no effect here: the objective is the divergence from the teacher' --teacher teacher --preset grpo
no "another objective" 'entropy.coef has no effect here' --teacher teacher --entropy-coef 0.1
refused "another lambda" '\-\-lambda is 1, but the run was started with another' rein distill one --lambda 1
refused "a teacher without a coefficient" 'teacher has no effect without teacher.coef' rein run dry "${run[@]}" --steps 2 --teacher teacher
refused "a coefficient without a teacher" 'teacher is missing: teacher.coef needs' rein run dry "${run[@]}" --steps 2 --teacher-coef 1
refused "an idle divergence" 'divergence has no effect' rein run dry "${run[@]}" --steps 2 --divergence jsd
refused "a sequence ratio" 'divergence sampled changes the advantage of each token' rein run dry "${run[@]}" --surrogate luspo --steps 2 --teacher teacher --teacher-coef 1
printf x >>teacher/model.safetensors
refused "another teacher" 'teacher is not what the run was made with|teacher: ' rein distill one --max-steps 20
finish
