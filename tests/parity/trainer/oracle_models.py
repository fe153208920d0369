"""oracle_models.py - tiny reward models of transformers with lively weights, for the vocabulary of models/sums."""

import torch
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 97
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=None,
    eos_token_id=0,
    num_labels=1,
)
CONFIGS = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, dict(head_dim=8)),
    "mistral": (MistralConfig, dict(sliding_window=None)),
    "gemma2": (Gemma2Config, dict(head_dim=8, sliding_window=4)),
    "gemma3": (
        Gemma3TextConfig,
        dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    ),
}


def reward_model(family, seed, pad=None):
    """pad: a character of the vocabulary, whose id is found in models/sums; None: the last token."""
    kind, more = CONFIGS[family]
    config = kind(**SIZES, **more, pad_token_id=VOCABULARY - 1 if pad is None else pad_id(pad))
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.1 if name.endswith("norm.weight") else 0, 0.3)
    return model


def pad_id(character):
    import json
    from pathlib import Path

    path = Path(__file__).resolve().parents[3] / "models" / "sums" / "tokenizer.json"
    return json.loads(path.read_text())["model"]["vocab"][character]
