"""Several threads at once, forked children, and torch's OpenMP in the same process."""

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest

import rein


def work(seed, size=(64, 2048)):
    generator = np.random.default_rng(seed)
    log_probs = generator.normal(-1, 0.3, size).astype(np.float32)
    return rein.policy_loss(
        "dapo", log_probs, log_probs * np.float32(0.99), rewards=np.arange(float(size[0])), group_sizes=8
    )


def test_threads_side_by_side():
    expected = [work(seed).loss for seed in range(4)]
    found = {}

    def run(seed):
        found[seed] = [work(seed).loss for _ in range(5)]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: [expected[seed]] * 5 for seed in range(4)}


def ticks_during(call):
    """How often another Python thread ran during the call."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    call()
    ended = time.perf_counter()
    stop.set()
    ticker.join()
    return sum(started < tick < ended for tick in ticks)


def test_the_interpreter_runs_on_while_the_library_works():
    grads, weights, small = np.ones((64, 1 << 18)), np.ones(1 << 18), np.ones(64)
    # A busy machine may give the other thread no time; a call that kept the GIL would never give it any.
    assert any(
        ticks_during(lambda: rein.rlhf_weight_update(weights, small, small, small, grads, 0.1, 0.1)) >= 3
        for _ in range(50)
    )


def child(queue, seed):
    queue.put(work(seed).loss)


@pytest.mark.parametrize("with_torch", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children(with_torch):
    if with_torch:
        torch = pytest.importorskip("torch")
        torch.randn(500, 500) @ torch.randn(500, 500)
    expected = work(7).loss
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        queue = context.Queue()
        children = [context.Process(target=child, args=(queue, 7)) for _ in range(2)]
        for process in children:
            process.start()
        assert [queue.get(timeout=60) for _ in children] == [expected] * 2
        for process in children:
            process.join(60)
            assert process.exitcode == 0
    assert work(7).loss == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_another_thread_works():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            work(1)

    thread = threading.Thread(target=busy)
    thread.start()
    expected = work(2).loss
    try:
        for _ in range(5):
            process = os.fork()
            if process == 0:
                os._exit(0 if work(2).loss == expected else 1)
            deadline = time.monotonic() + 60
            done, status = os.waitpid(process, os.WNOHANG)
            while not done and time.monotonic() < deadline:
                time.sleep(0.01)
                done, status = os.waitpid(process, os.WNOHANG)
            if not done:
                os.kill(process, 9)
                os.waitpid(process, 0)
            assert done and status == 0
    finally:
        stop.set()
        thread.join()


def test_beside_torch():
    torch = pytest.importorskip("torch")
    expected = work(3).loss
    matrix = torch.randn(400, 400)
    product = matrix @ matrix
    for _ in range(5):
        assert torch.equal(matrix @ matrix, product)
        assert work(3).loss == expected
