"""What a call from Python costs beyond the C library's own work, on a 4x8 batch (grpo, k3, mask; f32).

The C part is measured as the same three library calls with every argument prepared, less what ctypes takes to call a
function that does nothing. The rest is ours: looking at the arguments, finding addresses, making outputs.

    python bench/python/overhead.py
"""

import ctypes
import timeit

import numpy as np

import rein
from rein import _library as c
from rein._arrays import address
from rein._batch import make_inputs

TARGET = 15.0


def microseconds(call, number=200, repeat=200):
    """The best of many short runs: everything else is the machine's doing."""
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number * 1e6


def batch():
    generator = np.random.default_rng(0)
    old = generator.normal(-1, 0.3, (4, 8)).astype(np.float32)
    log_probs = old + generator.normal(0, 0.05, old.shape).astype(np.float32)
    ref = old + generator.normal(0, 0.05, old.shape).astype(np.float32)
    mask = np.arange(8) < np.array([[8], [5], [7], [3]])
    return log_probs, old, ref, mask, np.array([1.0, 0.0, 0.0, 1.0])


def library_alone(log_probs, old, ref, mask, rewards):
    """The three calls of a step, prepared; and ctypes' own time for as many calls that fail at once."""
    tokens = (("log_probs", log_probs), ("old_log_probs", old), ("ref_log_probs", ref))
    inputs = make_inputs("grpo", (4, 8), np.dtype("f4"), tokens, {}, mask=mask, rewards=rewards, group_sizes=2)
    size = c.step_size(inputs.reference, inputs.options.address, None)
    workspace, gradient, step = np.empty(size, np.uint8), np.empty_like(log_probs), ctypes.c_void_p()
    loss, error = ctypes.byref(c.Loss()), ctypes.byref(c.Error())
    work, out, chosen, reference = address(workspace), address(gradient), inputs.options.address, inputs.reference
    step_pointer = ctypes.byref(step)

    def calls():
        c.step_begin(step_pointer, work, size, reference, chosen, None, error)
        c.step_loss(step, 0, 4, None, None, out, None, None, error)
        c.step_finish(loss, step, error)

    calls()
    assert step.value

    def nothing():
        for _ in range(3):
            c.option_at(10**6)

    return microseconds(calls), microseconds(nothing)


def main():
    log_probs, old, ref, mask, rewards = arrays = batch()
    whole = microseconds(
        lambda: rein.policy_loss("grpo", log_probs, old, ref_log_probs=ref, mask=mask, rewards=rewards, group_sizes=2)
    )
    prepared, empty = library_alone(*arrays)
    own = prepared - empty
    print(f"rein.policy_loss, 4x8, grpo with k3 and mask   {whole:6.1f} us")
    print(f"  the C library's work                         {own:6.1f} us")
    print(f"  everything else, ctypes included             {whole - own:6.1f} us   target {TARGET:.0f}")
    torch_overhead(arrays, own)


def torch_overhead(arrays, own):
    try:
        import torch

        from rein.torch import policy_loss
    except ImportError:
        return
    log_probs, old, ref, mask, rewards = (torch.from_numpy(array) for array in arrays)
    log_probs.requires_grad_()

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gradient, inputs):
            ctx.save_for_backward(gradient)
            return torch.scalar_tensor(0.0)

        @staticmethod
        def backward(ctx, grad_output):
            return None, ctx.saved_tensors[0]

    def forward():
        return policy_loss(log_probs, old, preset="grpo", ref_log_probs=ref, mask=mask, rewards=rewards, group_sizes=2)

    def both():
        log_probs.grad = None
        forward().backward()

    def torch_alone():
        log_probs.grad = None
        Nothing.apply(old, log_probs).backward()

    print(f"rein.torch.policy_loss, the same, beyond C     {microseconds(forward) - own:6.1f} us")
    print(f"  with backward()                              {microseconds(both) - own:6.1f} us")
    print(f"  an autograd.Function that does nothing, so   {microseconds(torch_alone):6.1f} us")


if __name__ == "__main__":
    main()
