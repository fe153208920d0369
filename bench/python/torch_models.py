"""Models of transformers for the peers in PyTorch: random weights in the shapes that `rein bench` has, and LoRA."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from peer import SHAPES
from torch import nn
from torch.nn.functional import linear

if importlib.util.find_spec("transformers") is None:  # `make parity` keeps it beside its environment
    sys.path.append(str(Path(__file__).parents[2] / "build-parity/packages/huggingface"))
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

LINEAR = {"self_attn": ["q_proj", "k_proj", "v_proj", "o_proj"], "mlp": ["gate_proj", "up_proj", "down_proj"]}


def make_model(shape, dtype=torch.float32):
    torch.manual_seed(0)
    families = {"gemma": (Gemma3TextConfig, Gemma3ForCausalLM), "experts": (Qwen3MoeConfig, Qwen3MoeForCausalLM)}
    config, model = families.get(shape, (LlamaConfig, LlamaForCausalLM))
    return model(config(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=4096)).to(dtype)


def make_ids(shape, *size):
    count = torch.Size(size).numel()
    return (torch.arange(count) * 7919 % SHAPES[shape]["vocab_size"]).reshape(size)


class Lora(nn.Module):
    """PEFT's arithmetic, without PEFT: y + alpha/r·B(A(x)) beside a linear layer."""

    enabled = True  # of all of them: without adapters the model is the reference

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        y = self.base(x)
        return y + linear(linear(x, self.a), self.b) * self.scale if Lora.enabled else y

    def merged(self, out):
        """The weight of one linear layer that does the same."""
        torch.addmm(self.base.weight, self.b, self.a, alpha=self.scale, out=out)


def add_lora(model, rank=8, alpha=16):
    """An adapter beside every linear layer but the head; nothing else trains. Returns what does."""
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part, names in LINEAR.items():
            parent = getattr(layer, part)
            for name in names:
                setattr(parent, name, Lora(getattr(parent, name), rank, alpha))
    return [p for p in model.parameters() if p.requires_grad]


@torch.no_grad()
def merge(into, model):
    """Writes the weights that `model` has with its adapters to `into`, a model of the same shape without: decoding with
    two small products less for each linear layer."""
    for to, layer in zip(into.model.layers, model.model.layers):
        for part, names in LINEAR.items():
            for name in names:
                getattr(layer, part).get_submodule(name).merged(getattr(to, part).get_submodule(name).weight)
