"""rein.torch.policy_loss against the same loss in PyTorch, eager and under torch.compile: forward and backward, f32,
CPU.

The loss is GRPO as TRL writes it: ratio, clip at 0.2, k3 at 0.04, mean over the trained tokens of the batch, advantages
given, one a sequence; about 3 of 4 places train. The outputs are checked equal before anything is timed. Both sides
have two threads, each on a core of its own, and a malloc that keeps its memory: otherwise one measures page faults and
the scheduler. The two take turns, and the best run of each counts.

    python bench/python/policy_loss.py [--tokens 1 16] [--skip-compile]        tokens in millions
"""

import argparse
import os
import sys
import threading
import time

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "OMP_NUM_THREADS": "2",
}
if any(os.environ.get(name) != value for name, value in TUNED.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})

import torch  # noqa: E402

import rein.torch  # noqa: E402

WIDTH = 1024
OPTIONS = {"preset": "bnpo", "kl_loss_coef": 0.04}
TARGETS = {"eager": 20, "compiled": 4}


def trl_style(log_probs, old, ref, advantages, mask, epsilon=0.2, beta=0.04):
    """The loss of a GRPO trainer, term by term."""
    ratio = torch.exp(log_probs - old)
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    per_token = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
    per_token_kl = torch.exp(ref - log_probs) - (ref - log_probs) - 1
    per_token = per_token + beta * per_token_kl
    return (per_token * mask).sum() / mask.sum().clamp(min=1.0)


def batch(tokens):
    generator = torch.Generator().manual_seed(0)
    shape = (tokens // WIDTH, WIDTH)
    old = torch.randn(shape, generator=generator) * 0.5 - 1.5
    log_probs = old + 0.1 * torch.randn(shape, generator=generator)
    ref = old + 0.1 * torch.randn(shape, generator=generator)
    lengths = torch.randint(WIDTH // 2, WIDTH + 1, (shape[0], 1), generator=generator)
    mask = torch.arange(WIDTH) < lengths
    return log_probs.requires_grad_(), old, ref, torch.randn(shape[0], generator=generator), mask


def ours(log_probs, old, ref, advantages, mask):
    return rein.torch.policy_loss(
        log_probs, old, ref_log_probs=ref, advantages=advantages, mask=mask, threads=2, **OPTIONS
    )


def bind_threads(cores):
    """The calling thread on the first core, the workers of both libraries, which never work at once, on the second."""
    main = threading.get_native_id()
    for task in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(task, {cores[0] if task == main else cores[1]})


def both_ways(loss, tensors):
    """One forward and backward, as a trainer does it."""
    tensors[0].grad = None
    value = loss(*tensors)
    value.backward()
    return value


def milliseconds(losses, rounds):
    """The best time of each (loss, its tensors), in turns: noise meets all of them alike. OpenMP's threads look for
    work for some milliseconds after they had some, on a core that the next one needs: each loss starts after that is
    over."""
    best = [float("inf")] * len(losses)
    for _ in range(rounds):
        for i, (loss, tensors) in enumerate(losses):
            time.sleep(0.03)
            started = time.perf_counter()
            both_ways(loss, tensors)
            best[i] = min(best[i], time.perf_counter() - started)
    return [seconds * 1e3 for seconds in best]


def check(tensors, float_tensors, losses):
    """The same loss and gradient from everybody, to what f32 can promise."""
    expected = both_ways(ours, tensors).item()
    gradient = tensors[0].grad.clone()
    for name, loss in losses.items():
        value = both_ways(loss, float_tensors).item()
        worst = (tensors[0].grad - gradient).abs().max() / gradient.abs().max()
        assert abs(value - expected) < 1e-4 * abs(expected) + 1e-6, (name, value, expected)
        assert worst < 1e-5, (name, worst)


def rows(tokens, losses, rounds, cores):
    tensors = batch(tokens)
    float_tensors = (*tensors[:4], tensors[4].float())  # a float mask is what the formula multiplies by
    check(tensors, float_tensors, losses)
    if len(cores) > 1:
        bind_threads(cores)
    own, *others = milliseconds([(ours, tensors), *((loss, float_tensors) for loss in losses.values())], rounds)
    yield f"{tokens / 2**20:5.0f} M   rein.torch.policy_loss           {own:9.2f} ms"
    for name, theirs in zip(losses, others):
        wanted = f"target {TARGETS[name]}" if tokens > 2**22 else ""
        yield f"{'':10}PyTorch, {name:24}{theirs:9.2f} ms   {theirs / own:6.1f} x   {wanted}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16], help="in millions")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--skip-compile", action="store_true")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    torch.set_num_threads(2)
    losses = {"eager": trl_style}
    if not arguments.skip_compile:
        losses["compiled"] = torch.compile(trl_style, dynamic=False)
    print(f"forward and backward, f32, 2 threads, PyTorch {torch.__version__}; ratio: their time over ours")
    for millions in arguments.tokens:
        for row in rows(millions << 20, losses, arguments.rounds, cores):
            print(row, flush=True)


if __name__ == "__main__":
    main()
