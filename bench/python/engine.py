"""The engine against transformers on PyTorch (eager, f32), on models of random weights: training steps, full and LoRA,
and decoding.

Both sides have two threads, each on a core of its own, and torch a malloc that keeps its memory: otherwise one measures
page faults and the scheduler. Each measurement is a process of its own, so that its peak memory is its own; the best of
a few runs counts. Ours are the rows of build/bench/engine, in the same run.

    python bench/python/engine.py [small] [smollm]
"""

import json
import os
import resource
import subprocess
import sys
import time

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "OMP_NUM_THREADS": "2",
    "OMP_PROC_BIND": "true",
}
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
}
WORK = ["decode 1", "decode 16", "lora", "full"]
ROWS = {
    "decode 1": "decode bf16, batch 1",
    "decode 16": "decode bf16, batch 16",
    "lora": "training step, LoRA r 8",
    "full": "training step, full, AdamW",
}


def make_model(shape):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=2048)
    return LlamaForCausalLM(config).float()


def add_lora(model, rank=8, alpha=16):
    """PEFT's arithmetic, without PEFT: y + alpha/r·B(A(x)) beside every linear layer but the head."""
    import torch

    class Lora(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = torch.nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
            self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, self.a), self.b) * (
                alpha / rank
            )

    model.requires_grad_(False)
    for layer in model.model.layers:
        for parent, names in (
            (layer.self_attn, ["q_proj", "k_proj", "v_proj", "o_proj"]),
            (layer.mlp, ["gate_proj", "up_proj", "down_proj"]),
        ):
            for name in names:
                setattr(parent, name, Lora(getattr(parent, name)))


def train(shape, lora):
    import torch

    model = make_model(shape)
    if lora:
        add_lora(model)
    ids = (torch.arange(1024) * 7919 % SHAPES[shape]["vocab_size"]).reshape(4, 256)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), fused=True)
    best = float("inf")
    for _ in range(4 if shape == "smollm" else 8):
        start = time.perf_counter()
        logits = model(ids).logits[:, :-1]
        log_probs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])
        (-log_probs.sum() / ids.numel()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        best = min(best, time.perf_counter() - start)
    return ids.numel() / best


def decode(shape, batch):
    import torch

    model = make_model(shape).eval()
    ids = (torch.arange(16) * 7919 % SHAPES[shape]["vocab_size"]).repeat(batch, 1)
    best = float("inf")
    with torch.no_grad():
        out = model(ids, use_cache=True)
        for _ in range(24):
            start = time.perf_counter()
            chosen = torch.multinomial(torch.softmax(out.logits[:, -1], -1), 1)
            out = model(chosen, past_key_values=out.past_key_values, use_cache=True)
            best = min(best, time.perf_counter() - start)
    return batch / best


def measure(shape, work):
    import torch

    torch.set_num_threads(2)
    rate = train(shape, work == "lora") if work in ("lora", "full") else decode(shape, int(work.split()[1]))
    print(json.dumps({"rate": rate, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    shapes = [name for name in sys.argv[1:] if name in SHAPES] or list(SHAPES)
    if len(sys.argv) > 2 and sys.argv[1] == "--measure":
        return measure(sys.argv[2], " ".join(sys.argv[3:]))
    environment = {**os.environ, **TUNED}
    for shape in shapes:
        ours = json.loads(
            subprocess.run(["build/bench/engine", "--json", shape], check=True, capture_output=True).stdout
        )
        rates = {row["name"]: row for row in ours}
        for work in WORK:
            command = [sys.executable, __file__, "--measure", shape, *work.split()]
            theirs = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
            row = rates[f"{shape} {ROWS[work]}"]
            print(
                f"{shape:8} {ROWS[work]:28} {row['value']:9.1f} tok/s, torch {theirs['rate']:8.1f}: "
                f"{row['value'] / theirs['rate']:.2f} times; {100 * row['share_of_limit']:.0f} % of the limit; "
                f"torch's peak memory {theirs['memory'] / 1e6:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
