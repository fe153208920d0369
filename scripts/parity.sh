#!/bin/sh
# parity.sh [--all]: compares rein with code that shares nothing with it.
#   1. the goldens with their generator (plain Python)
#   2. the Python package, built and installed by pip: its own tests, types and style
#   3. every preset and every stage with PyTorch autograd on the published formulas
#   4. model files, adapters, tokenizers, learning rates and the engine with those of Hugging Face, the optimizer with PyTorch's,
#      steps of RL with PEFT and autograd
#   5. event files with TensorBoard's own reader
#   6. the HTML report and the live page of rein serve in Chromium, pixel by pixel
#   7. the losses of TRL, verl, Liger, Tinker cookbook and ART, called without changes; TRL's reward functions, an offline run of wandb and a
#      notebook with rein.run; rein serve with the clients of OpenAI (the last of version 2, and the newest) and LiteLLM, /metrics with Prometheus'
#      parser; ART's own programs and clients with rein.art and rein serve
# No part begins after fifteen minutes: the rest is skipped and counted. A part that has begun may take ten minutes more, on a slow machine.
# Tests that fail run once more; if they pass then, a line 'unsteady: …' says so. --all has no time limit, and compares
# 100,000 texts per tokenizer instead of 10,000, and all published tokenizers and chat templates instead of a core of them.
# Environments live in build-parity/ and are made again when their requirements change. Without a package registry the parts that need
# one are skipped, with a message. Every package is pinned and installed without its dependencies, except torch: a package that depends
# on torch would fetch another build of it.
set -u
cd "$(dirname "$0")/.." || exit 1
case "$*" in
'') all=0 ;;
--all) all=1 ;;
*) echo "usage: parity.sh [--all]" >&2 && exit 2 ;;
esac

home=$PWD/build-parity # absolute: a notebook starts in a directory of its own
suite=tests/parity
frameworks="trl verl liger tinker art art_backend wandb notebook"
clients="openai2 openai3 litellm prometheus" # of rein serve
start=$(date +%s)
passed=0 failed=0 skipped=0

left() { # left SECONDS: how many of them remain since the start, at least 1; --all: a day
    [ "$all" = 0 ] || { echo 86400 && return; }
    remains=$((start + $1 - $(date +%s)))
    echo $((remains > 1 ? remains : 1))
}
stamp() { cat "$@" | cat - "$home/interpreter" | sha256sum | cut -d' ' -f1; }
tests_of() { grep -rhc '^def test_' "$@" | awk '{ n += $1 } END { print n + 0 }'; }
reason() { grep -v '^ *$' "$1" | grep -i 'error' | tail -1 | cut -c1-160; }
skip() { # skip NAME WHY FILE…: counts the test functions in the files as skipped
    name=$1 why=$2
    shift 2
    n=$(tests_of "$@")
    skipped=$((skipped + n))
    echo "skipped: $name: $n tests: $why"
}

check_goldens() {
    set -- tests/golden/*.txt
    files=$# out=0
    if ! said=$(python3 tests/golden/generate.py --check 2>&1); then
        echo "$said"
        out=$(echo "$said" | sed -n 's/^out of date: //p' | tr ',' '\n' | grep -c .)
        [ "$out" -gt 0 ] || out=$files # it failed before it compared
    fi
    passed=$((passed + files - out)) failed=$((failed + out))
    echo "goldens: $((files - out)) passed, $out failed"
}

pip_install() { # pip_install LOG ARGUMENTS…
    log=$1
    shift
    timeout "$(left 400)" "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --retries 1 "$@" >"$log" 2>&1
}

make_environment() {
    mkdir -p "$home/logs" "$home/packages"
    python3 -c 'import sys; print(sys.version)' >"$home/interpreter"
    [ "$(stamp $suite/requirements/base.txt)" = "$(cat "$home/venv.stamp" 2>/dev/null)" ] && return 0
    rm -rf "$home/venv" "$home/venv.stamp"
    python3 -m venv "$home/venv" >"$home/logs/venv.log" 2>&1 &&
        pip_install "$home/logs/torch.log" torch==2.13.0 &&
        pip_install "$home/logs/base.log" --no-deps -r $suite/requirements/base.txt -c $suite/requirements/constraints.txt &&
        stamp $suite/requirements/base.txt >"$home/venv.stamp"
}

packages() { # packages NAME: installs the pinned packages of a framework into their own directory
    directory=$home/packages/$1 list=$suite/requirements/$1.txt
    [ "$(stamp "$list")" = "$(cat "$directory.stamp" 2>/dev/null)" ] && return 0
    rm -rf "$directory" "$directory.stamp"
    pip_install "$home/logs/$1.log" --no-deps --target "$directory" -r "$list" -c $suite/requirements/constraints.txt &&
        stamp "$list" >"$directory.stamp"
}

pytest_run() { # pytest_run NAME ARGUMENT…: runs pytest; sets good, bad and left_out to its counts, and log to the file of its output
    report=$home/logs/$1.xml log=$home/logs/$1.log cache=$home/cache/${1%.again}
    shift
    rm -f "$report"
    PYTHONPYCACHEPREFIX=$home/pycache timeout "$(left 1500)" "$home/venv/bin/python" -m pytest -q -rs \
        -o cache_dir="$cache" --junitxml="$report" "$@" >"$log" 2>&1
    status=$?
    counts=$(sed -n 's/.*<testsuite [^>]*errors="\([0-9]*\)" failures="\([0-9]*\)" skipped="\([0-9]*\)" tests="\([0-9]*\)".*/\1 \2 \3 \4/p' \
        "$report" 2>/dev/null)
    # shellcheck disable=SC2086
    set -- ${counts:-1 0 0 1} # no report: pytest failed, or ran out of time
    [ "$status" -eq 0 ] || [ $(($1 + $2)) -gt 0 ] || set -- 1 0 0 1
    good=$(($4 - $1 - $2 - $3)) bad=$(($1 + $2)) left_out=$3
}

run() { # run NAME FILE…: runs pytest, what fails twice, and adds up its counts
    name=$1 began=$(date +%s)
    shift
    rm -rf "$home/cache/$name"
    pytest_run "$name" "$@"
    grep '^SKIPPED' "$log"
    if [ "$bad" -gt 0 ]; then
        tail -60 "$log"
        first_good=$good first_bad=$bad first_left_out=$left_out
        pytest_run "$name.again" --last-failed "$@"
        if [ "$bad" -eq 0 ] && [ "$good" -gt 0 ]; then
            echo "unsteady: $name: $first_bad tests failed and passed when they ran again"
            good=$((first_good + first_bad)) left_out=$first_left_out
        else
            tail -60 "$log"
            good=$first_good bad=$first_bad left_out=$first_left_out
        fi
    fi
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left_out))
    echo "$name: $good passed, $bad failed, $left_out skipped ($(($(date +%s) - began)) s)"
}

check_sources() { # types and style of the Python sources
    for check in mypy 'ruff check python tests/python tests/parity examples bench' 'ruff format --check python tests/python tests/parity examples bench'; do
        # shellcheck disable=SC2086
        if "$home/venv/bin/python" -m $check >"$home/logs/sources.log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "$check: failed"
            tail -20 "$home/logs/sources.log"
        fi
    done
}

too_late() { [ "$(left 860)" -le 1 ]; } # on a slow machine. A part that was started and does not end in time is a failure

run_framework() { # run_framework NAME [TESTS]: with the packages of NAME, test_TESTS.py, which is test_NAME.py if not given
    tests=$suite/frameworks/test_${2:-$1}.py
    if too_late; then
        skip "$1" "the fifteen minutes are over" "$tests"
    elif ! packages huggingface; then
        skip "$1" "the packages it needs cannot be installed: $(reason "$home/logs/huggingface.log")" "$tests"
    elif ! packages "$1"; then
        skip "$1" "cannot be installed: $(reason "$home/logs/$1.log")" "$tests"
    else
        PYTHONPATH=$home/packages/$1:$home/packages/huggingface run "$1" "$tests"
    fi
}

finish() {
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" -eq 0 ]
    exit
}

check_goldens
if ! make_environment; then
    why=$(cat "$home"/logs/venv.log "$home"/logs/torch.log "$home"/logs/base.log 2>/dev/null >"$home/logs/all.log"; reason "$home/logs/all.log")
    skip "everything else" "no environment for it: ${why:-the registry did not answer in time}" tests/python $suite
    finish
fi
unset PYTHONPATH
for list in huggingface gguf tensorboard $frameworks $clients; do packages "$list"; done # all of them first: installing has its own time limit
if ! pip_install "$home/logs/package.log" --no-deps --no-build-isolation --force-reinstall .; then
    echo "package: pip install . failed"
    tail -30 "$home/logs/package.log"
    failed=$((failed + 1))
    skip "everything else" "there is no package" tests/python $suite
    finish
fi
export OMP_NUM_THREADS=1 # for torch: on small batches more threads only wait for each other
[ "$all" = 1 ] || export REIN_PARITY_TEXTS="${REIN_PARITY_TEXTS:-10000}" # per tokenizer; the default of the tests is 100,000
[ "$all" = 0 ] || export REIN_PARITY_ALL=1                              # every published tokenizer and chat template, not a core of them
if [ "$all" = 1 ]; then # for engine/test_real_models.py and test_llama_cpp.py, which say so when they have to skip
    packages real_models
    export CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF" # of llama.cpp, which is compiled: a quarter of an hour
    packages llama
fi
make build/librein.a build/rein >"$home/logs/library.log" 2>&1 # once, for all parts below

with_huggingface() { # with_huggingface PART…
    for part in "$@"; do
        if too_late; then skip "$part" "the fifteen minutes are over" "$suite/$part"
        elif packages huggingface; then PYTHONPATH=$home/packages/gguf:$home/packages/real_models:$home/packages/llama:$home/packages/huggingface run "$part" "$suite/$part"
        else skip "$part" "the packages it needs cannot be installed: $(reason "$home/logs/huggingface.log")" "$suite/$part"; fi
    done
}
# Two lanes of about the same length run at the same time.
first_lane() {
    check_sources
    unset OMP_NUM_THREADS # test the package with torch's default settings
    run python tests/python
    export OMP_NUM_THREADS=1
    with_huggingface engine optimizer
    events=$suite/report/test_tensorboard.py
    if packages tensorboard; then PYTHONPATH=$home/packages/tensorboard:$home/packages/trl run events "$events"
    else skip events "the packages it needs cannot be installed: $(reason "$home/logs/tensorboard.log")" "$events"; fi
    for framework in trl verl art_backend; do run_framework "$framework"; done
    run_framework trl trl_preferences
    run_framework trl trl_distill
}
second_lane() {
    set -- "$suite/report/test_page.py" "$suite/report/test_live.py"
    if command -v chromium >/dev/null; then run report "$@"
    else skip report "there is no Chromium" "$@"; fi
    run oracles "$suite" --ignore="$suite/frameworks" --ignore="$suite/model_files" --ignore="$suite/tokenizers" \
        --ignore="$suite/optimizer" --ignore="$suite/adapters" --ignore="$suite/engine" --ignore="$suite/trainer" --ignore="$suite/report"
    with_huggingface tokenizers model_files adapters trainer
    for framework in liger tinker art wandb notebook litellm prometheus; do run_framework "$framework"; done
    for version in openai2 openai3; do run_framework "$version" openai; done
}
# Each lane writes its own counts to a file.
before="$passed $failed $skipped"
passed=0 failed=0 skipped=0
rm -f "$home"/logs/*.counts
{ first_lane; echo "$passed $failed $skipped" >"$home/logs/first.counts"; } &
{ second_lane; echo "$passed $failed $skipped" >"$home/logs/second.counts"; } &
wait
for lane in first second; do [ -f "$home/logs/$lane.counts" ] || echo 0 1 0 >"$home/logs/$lane.counts"; done # the lane failed
totals=$(echo "$before" | cat - "$home/logs/first.counts" "$home/logs/second.counts" | awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }')
# shellcheck disable=SC2086
set -- $totals
passed=$1 failed=$2 skipped=$3
finish
