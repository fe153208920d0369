"""Fifty steps of AdamW against torch.optim.AdamW and torch.nn.utils.clip_grad_norm_, called as they are."""

import numpy
import pytest
import stepper
import torch

SHAPES = [(64, 33, True), (1, 77, False), (5, 5, True), (1, 1, False)]
SIZE = sum(rows * columns for rows, columns, _ in SHAPES)
STEPS = 50
CASES = [  # rate, beta1, beta2, epsilon, weight_decay, max_gradient_norm
    (1e-3, 0.9, 0.999, 1e-8, 1e-2, 0.0),
    (1e-6, 0.9, 0.999, 1e-8, 0.0, 1.0),
    (3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0),
    (2e-2, 0.8, 0.99, 1e-5, 0.5, 0.1),
    (1e-3, 0.5, 0.9, 1e-8, 1e-2, 0.0),
    (1e-3, 0.2, 0.3, 1e-8, 1e-2, 30.0),
    (1e-2, 0.0, 0.999, 1e-8, 0.0, 0.0),
]


def parts(numbers):
    ends = numpy.cumsum([rows * columns for rows, columns, _ in SHAPES])[:-1]
    return [
        torch.from_numpy(part.copy()).reshape(rows, columns)
        for part, (rows, columns, _) in zip(numpy.split(numbers, ends), SHAPES)
    ]


def together(tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).numpy()


def numbers(seed):
    """Values, rates and gradients of many magnitudes, whose scale changes on the way."""
    random = numpy.random.default_rng(seed)
    values = random.standard_normal(SIZE).astype(numpy.float32)
    sizes = 10 ** random.uniform(-5, 0, SIZE)
    gradients = random.standard_normal((STEPS, SIZE)) * sizes * 10 ** random.uniform(-1, 1, (STEPS, 1))
    gradients[:20, ::13] = 0  # as a token that has not come up has them
    return values, gradients.astype(numpy.float32)


def torch_steps(case, values, rates, gradients):
    _, beta1, beta2, epsilon, decay, most = case
    parameters = [p.requires_grad_() for p in parts(values)]
    groups = [{"params": [p], "weight_decay": decay if d else 0} for p, (_, _, d) in zip(parameters, SHAPES)]
    optimizer = torch.optim.AdamW(groups, betas=(beta1, beta2), eps=epsilon)
    for rate, step in zip(rates, gradients):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for p, g in zip(parameters, parts(step)):
            p.grad = g
        norm = torch.nn.utils.clip_grad_norm_(parameters, most or float("inf")).item()
        optimizer.step()
        states = [optimizer.state[p] for p in parameters]
        moments = [together([s[name] for s in states]) for name in ("exp_avg", "exp_avg_sq")]
        yield norm, together(parameters), *moments


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fifty_steps(case):
    values, gradients = numbers(CASES.index(case))
    rates = [case[0] * (1 - step / (2 * STEPS)) for step in range(STEPS)]
    ours = stepper.adamw(case[1:], SHAPES, values, rates, gradients)
    # Without clipping the moments see the same numbers, and torch's vector kernels round where ours do.
    exact = case[-1] == 0 and torch.backends.cpu.get_cpu_capability() == "AVX2"
    largest = numpy.zeros(SIZE)  # gradient so far, clipped: what a moment's rounding is measured by
    for step, (norm, value, first, second) in enumerate(torch_steps(case, values, rates, gradients)):
        got = ours[step]
        largest = numpy.maximum(largest, abs(gradients[step]) * min(1, (case[-1] or norm) / norm))
        assert abs(got["norm"] - norm) <= 1e-6 * norm
        if exact:
            assert (got["first"] == first).all() and (got["second"] == second).all()
        assert (abs(got["first"] - first) <= 1e-6 * largest).all()
        assert (abs(got["second"] - second) <= 2e-6 * second).all()
        # A value's rounding and its step's, each time: torch's root (MKL) is sometimes off by the last bit.
        room = (step + 1) * 2.0**-22 * (abs(value) + 10 * case[0])
        assert (abs(got["value"] - value) <= room).all(), (step, (abs(got["value"] - value) / room).max())


def test_unclipped_below_the_limit():
    values, gradients = numbers(100)
    rates = [1e-3] * STEPS
    free = stepper.adamw((0.9, 0.999, 1e-8, 0.01, 0.0), SHAPES, values, rates, gradients)
    bound = stepper.adamw((0.9, 0.999, 1e-8, 0.01, 1e9), SHAPES, values, rates, gradients)
    assert free.tobytes() == bound.tobytes()


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_torch_would_go_on(bad):
    values, gradients = numbers(101)
    gradients[3, 64 * 33 + 5] = float(bad)
    with pytest.raises(stepper.Refused, match=r"parameters\[1\]\.gradient\[5\] is .*1x77x0, row 0, column 5"):
        stepper.adamw((0.9, 0.999, 1e-8, 0.01, 1.0), SHAPES, values, [1e-3] * STEPS, gradients)
    *_, (norm, value, _, _) = torch_steps((0, 0.9, 0.999, 1e-8, 0.01, 1.0), values, [1e-3] * STEPS, gradients)
    assert numpy.isnan(value).any()
