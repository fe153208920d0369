"""What the peers of `rein bench` share: a peer is called with the name of a row and prints one line of JSON,
{"value": …, "memory": …} in the row's unit and in MB of its process's peak, or {} for a row that it does not do.

A peer must be as good as it can be made: threads on cores of their own, a malloc that keeps its memory (otherwise one
measures page faults), warm before it is timed, the best of several rounds.
"""

import json
import os
import resource
import subprocess
import sys
import time

ALLOWED = os.sched_getaffinity(0)  # before OpenMP binds this thread
CORES = len(ALLOWED)
THREADS = {
    "OMP_NUM_THREADS": str(CORES),
    "OPENBLAS_NUM_THREADS": str(CORES),
    "OMP_PROC_BIND": "true",
}
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
SHAPES = {
    "small": dict(
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        vocab_size=4096,
    ),
    "smollm": dict(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
    ),
    "gemma": dict(
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        vocab_size=262144,
        sliding_window=512,
    ),
    "experts": dict(
        hidden_size=768,
        moe_intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        vocab_size=8192,
        num_experts=64,
        num_experts_per_tok=8,
        norm_topk_prob=True,
    ),
}


def row_of():
    """The row that the command line asks for, also in several words."""
    return " ".join(word for word in sys.argv[1:] if not word.startswith("--"))


def tune():
    """Restarts the program with the environment of a fair peer: malloc and OpenMP read theirs at their start. For
    rows about memory malloc stays as it is: it then gives back what is free."""
    if os.environ.get("REIN_BENCH_TUNED") != str(CORES):
        wanted = {**THREADS, **({} if row_of().startswith("memory ") else KEPT), "REIN_BENCH_TUNED": str(CORES)}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def best(work, rounds=10, warm=2, seconds=20.0):
    """The shortest time of `work` in at most so many rounds and seconds, at least three rounds."""
    for _ in range(warm):
        work()
    shortest, began = float("inf"), time.perf_counter()
    for done in range(rounds):
        start = time.perf_counter()
        if done >= 3 and start - began > seconds:
            break
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def peak_memory():
    """MB of this process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def memory_of(row):
    """What the row takes with a malloc that gives back what is free: asked of another process, on all cores."""
    left_out = {*KEPT, "REIN_BENCH_TUNED"}
    ran = subprocess.run(
        [sys.executable, *(word for word in sys.argv if word == sys.argv[0] or word.startswith("--")), f"memory {row}"],
        env={name: value for name, value in os.environ.items() if name not in left_out},
        preexec_fn=lambda: os.sched_setaffinity(0, ALLOWED),
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(ran.stdout)["value"]


def answer(row, rows, frugal=()):
    """Does the row and says so. A row about memory is the work of another, whose peak is its value; that of a row among
    `frugal` is taken where malloc is frugal too."""
    work = rows.get(row.removeprefix("memory "))
    if work is None:
        print("{}")
        return
    lowest = memory_of(row) if row in frugal else float("inf")
    value = work()
    memory = min(lowest, peak_memory())
    print(json.dumps({"value": memory if row.startswith("memory ") else value, "memory": memory}))
