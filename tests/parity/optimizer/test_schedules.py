"""Learning rates against transformers' get_*_schedule_with_warmup."""

import random

import pytest
import stepper
import torch
from transformers import optimization

CONSTANT, LINEAR, COSINE = range(3)


def theirs(make, rate, steps, *arguments, **named):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
    schedule = make(optimizer, *arguments, **named)
    rates = []
    for _ in range(steps):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return rates


def cases(n=20):
    numbers = random.Random(5)
    for _ in range(n):
        total = numbers.randint(1, 200)
        yield 10 ** numbers.uniform(-6, 0), numbers.randint(0, total - 1), total, numbers.choice([0.1, 0.25, 0.5, 1.0])


def agree(ours, rates, rate):
    assert len(ours) == len(rates)
    assert ours == pytest.approx(rates, rel=0, abs=4e-16 * rate)


def test_constant():
    for rate, warmup, total, _ in cases():
        rates = theirs(optimization.get_constant_schedule_with_warmup, rate, total + 5, warmup)
        assert stepper.rates(CONSTANT, rate, warmup, 0, 0.0, total + 5) == rates


def test_linear():
    for rate, warmup, total, _ in cases():
        rates = theirs(optimization.get_linear_schedule_with_warmup, rate, total + 5, warmup, total)
        assert stepper.rates(LINEAR, rate, warmup, total, 0.0, total + 5) == rates


def test_linear_to_a_share():
    """A polynomial of power 1; it may not rise, so theirs wants the end below the beginning."""
    for rate, warmup, total, share in cases():
        if share < 1:
            make = optimization.get_polynomial_decay_schedule_with_warmup
            rates = theirs(make, rate, total + 5, warmup, total, lr_end=rate * share, power=1.0)
            agree(stepper.rates(LINEAR, rate, warmup, total, share, total + 5), rates, rate)


def test_cosine():
    """Up to the end: after it theirs rises again."""
    for rate, warmup, total, _ in cases():
        rates = theirs(optimization.get_cosine_schedule_with_warmup, rate, total + 1, warmup, total)
        agree(stepper.rates(COSINE, rate, warmup, total, 0.0, total + 1), rates, rate)


def test_cosine_to_a_share():
    for rate, warmup, total, share in cases():
        make = optimization.get_cosine_with_min_lr_schedule_with_warmup
        rates = theirs(make, rate, total + 1, warmup, total, min_lr_rate=share)
        agree(stepper.rates(COSINE, rate, warmup, total, share, total + 1), rates, rate)
