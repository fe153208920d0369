"""Twenty steps of AdamW on a small batch, ours beside torch in float32, both beside torch in float64."""

import copy

import engine
import oracle
import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

SIZES = dict(
    vocab_size=200,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "qwen3, tied": Qwen3Config(**SIZES, head_dim=20, tie_word_embeddings=True),
}
STEPS, DECAY = 20, 0.01


def train(model, adapter, tokens, dlog_probs, rate):
    """Losses before each step, and {name: weight}. Norms and biases do not decay."""
    named = dict(adapter.named() if adapter else model.named_parameters())
    groups = [
        dict(params=[p for p in named.values() if p.dim() == 2], weight_decay=DECAY),
        dict(params=[p for p in named.values() if p.dim() == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        lp, _, found = oracle.gradients(model, adapter, tokens, 1.0, dlog_probs)
        losses.append((lp * dlog_probs).sum().item())
        for name, p in named.items():
            p.grad = found[name]
        optimizer.step()
    return losses, {name: p.detach().double() for name, p in named.items()}


def moved(now, then, right):
    """How far from where it should be, relative to how far it should have gone."""
    off = sum((now[k].double().view_as(then[k]) - right[k]).norm() ** 2 for k in right)
    gone = sum((right[k] - then[k]).norm() ** 2 for k in right)
    return (off / gone).sqrt().item()


@pytest.mark.parametrize("trains", ["adapter", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps(tmp_path, name, trains):
    model = oracle.make(MODELS[name], seed=11)
    model.save_pretrained(tmp_path)
    oracle.save_adapter(tmp_path / "adapter", model, rank=8, alpha=16, seed=12, size=0.1)
    tokens = oracle.random_tokens([40, 25, 30, 12, 7], [-1, -1, -1, 2, 2], SIZES["vocab_size"], seed=13)
    n = sum(tokens.wanted())
    dlog_probs = torch.tensor([-1.0 / n if there else 0.0 for there in tokens.wanted()])
    adapter = oracle.load_adapter(tmp_path / "adapter", model) if trains == "adapter" else None
    rate = 5e-3 if adapter else 1e-3
    ours = engine.evaluate(
        tmp_path,
        tokens,
        adapter=str(tmp_path / "adapter") if adapter else None,
        train=adapter is None,
        dlog_probs=dlog_probs,
        optimizer=dict(steps=STEPS, learning_rate=rate, weight_decay=DECAY),
    )
    start = {k: p.detach().double() for k, p in (adapter.named() if adapter else model.named_parameters())}
    start = copy.deepcopy(start)
    exact = train(oracle.exact(model), adapter and adapter.to(torch.float64), tokens, dlog_probs.double(), rate)
    plain = train(copy.deepcopy(model), adapter and adapter.to(torch.float32), tokens, dlog_probs, rate)
    assert exact[0][-1] < 0.8 * exact[0][0]  # it learns
    curve = [max(abs(a - b) for a, b in zip(losses, exact[0])) for losses in (ours.losses, plain[0])]
    weights = [moved(values, start, exact[1]) for values in (ours.values, plain[1])]
    print(
        f"{name}, {trains}: loss {exact[0][0]:.3f} to {exact[0][-1]:.3f}; off by {curve[0]:.1e}, torch {curve[1]:.1e}"
    )
    print(f"{name}, {trains}: weights off by {weights[0]:.1e} of the way, torch {weights[1]:.1e}")
    assert curve[0] <= max(4 * curve[1], 1e-5)
    assert weights[0] <= max(4 * weights[1], 1e-4)
