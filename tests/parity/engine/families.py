"""families.py - shapes of models of every family, for the tests of the engine and of files.

FAMILIES: {name: (class, settings, type, settings of the adapter)}, settings on top of decoder_checks.SIZES.
`make parity` runs those in CORE; `make parity-all` sets REIN_PARITY_ALL and runs all."""

import os

import torch
from oracle import FUSED_MODULES
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoeConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
FULL, SLIDING = "full_attention", "sliding_attention"
PHI = dict(pad_token_id=0, eos_token_id=2)  # its defaults are beyond a small vocabulary
OLMO = dict(pad_token_id=0, eos_token_id=2)


def longrope(original, rotary, **more):
    """Factors of which no two are equal."""
    n = rotary // 2
    return dict(
        rope_type="longrope",
        rope_theta=1e4,
        short_factor=[1.0 + 0.05 * i for i in range(n)],
        long_factor=[1.5 + 0.7 * i for i in range(n)],
        original_max_position_embeddings=original,
        **more,
    )


YARN = dict(
    rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1
)

FAMILIES = {
    "mistral, window 5": (MistralConfig, dict(sliding_window=5), F32, dict(rank=8, alpha=16)),
    "mistral, window 70, one kv head, head_dim 20": (
        MistralConfig,
        dict(sliding_window=70, head_dim=20, num_key_value_heads=1, tie_word_embeddings=True),
        BF16,
        dict(rank=3, alpha=5, modules=["q_proj", "v_proj", "down_proj"]),
    ),
    "mistral, window 1": (MistralConfig, dict(sliding_window=1), F32, dict(rank=1, alpha=1)),
    "mistral, window 64": (MistralConfig, dict(sliding_window=64, head_dim=10), F16, dict(rank=4, alpha=4)),
    "qwen2, window 16 from layer 1": (
        Qwen2Config,
        dict(use_sliding_window=True, sliding_window=16, max_window_layers=1, num_hidden_layers=3),
        F32,
        dict(rank=8, alpha=16),
    ),
    "qwen3, window 70 by types": (
        Qwen3Config,
        dict(
            use_sliding_window=True,
            sliding_window=70,
            num_hidden_layers=3,
            layer_types=[SLIDING, FULL, SLIDING],
            head_dim=24,
            tie_word_embeddings=True,
        ),
        F16,
        dict(rank=2, alpha=8, rank_stabilized=True),
    ),
    "gemma2": (
        Gemma2Config,
        dict(sliding_window=16, head_dim=24, query_pre_attn_scalar=20, attn_logit_softcapping=3.0),
        F32,
        dict(rank=8, alpha=16),
    ),
    "gemma2, one kv head, biases, untied": (
        Gemma2Config,
        dict(
            sliding_window=5,
            head_dim=10,
            num_key_value_heads=1,
            num_hidden_layers=3,
            query_pre_attn_scalar=96,
            attn_logit_softcapping=1.5,
            final_logit_softcapping=4.0,
            attention_bias=True,
            tie_word_embeddings=False,
            rms_norm_eps=1e-3,
        ),
        BF16,
        dict(rank=3, alpha=5, modules=["q_proj", "k_proj", "o_proj", "up_proj", "lm_head"]),
    ),
    "gemma2, no caps": (
        Gemma2Config,
        dict(
            sliding_window=70,
            head_dim=48,
            num_attention_heads=3,
            num_key_value_heads=3,
            layer_types=[FULL, SLIDING],
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
        ),
        F16,
        dict(rank=2, alpha=2),
    ),
    "gemma3": (
        Gemma3TextConfig,
        dict(
            sliding_window=16,
            head_dim=24,
            query_pre_attn_scalar=24,
            num_hidden_layers=3,
            layer_types=[SLIDING, SLIDING, FULL],
        ),
        F32,
        dict(rank=8, alpha=16),
    ),
    "gemma3, linear rope, one kv head": (
        Gemma3TextConfig,
        dict(
            sliding_window=5,
            head_dim=20,
            query_pre_attn_scalar=16,
            num_key_value_heads=1,
            layer_types=[FULL, SLIDING],
            rope_parameters={
                FULL: dict(rope_type="linear", rope_theta=1e5, factor=8.0),
                SLIDING: dict(rope_type="default", rope_theta=1e3),
            },
            final_logit_softcapping=5.0,
        ),
        BF16,
        dict(rank=3, alpha=5, rank_stabilized=True),
    ),
    "gemma3, six layers, biases, untied": (
        Gemma3TextConfig,
        dict(
            sliding_window=70,
            head_dim=10,
            num_hidden_layers=6,
            hidden_size=48,
            attention_bias=True,
            tie_word_embeddings=False,
            rms_norm_eps=1e-2,
        ),
        F16,
        dict(rank=2, alpha=4, modules=["q_proj", "gate_proj", "lm_head"]),
    ),
    "phi3": (Phi3Config, PHI, F32, dict(rank=8, alpha=16, modules=FUSED_MODULES)),
    "phi3, three quarters, window 16": (
        Phi3Config,
        PHI
        | dict(
            rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75),
            sliding_window=16,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        ),
        BF16,
        dict(rank=3, alpha=5, modules=["qkv_proj", "down_proj"]),
    ),
    "phi3, longrope": (
        Phi3Config,
        PHI
        | dict(
            hidden_size=120,
            rope_parameters=longrope(256, 14, partial_rotary_factor=0.7),
            original_max_position_embeddings=256,
            max_position_embeddings=4096,
        ),
        F32,
        dict(rank=4, alpha=4, modules=["gate_up_proj", "o_proj"]),
    ),
    "phi3, longrope, own attention factor, window 70": (
        Phi3Config,
        PHI
        | dict(
            rope_parameters=longrope(180, 16, attention_factor=1.3, factor=2.0),
            original_max_position_embeddings=180,
            num_key_value_heads=6,
            sliding_window=70,
        ),
        F16,
        dict(rank=1, alpha=1, modules=FUSED_MODULES),
    ),
    "olmo2": (Olmo2Config, OLMO, F32, dict(rank=8, alpha=16)),
    "olmo2, one kv head, biases, tied": (
        Olmo2Config,
        OLMO | dict(num_key_value_heads=1, attention_bias=True, tie_word_embeddings=True, hidden_size=120),
        BF16,
        dict(rank=3, alpha=5),
    ),
    "olmo3": (
        Olmo3Config,
        OLMO | dict(sliding_window=16, num_hidden_layers=4),
        F32,
        dict(rank=8, alpha=16),
    ),
    "olmo3, yarn": (
        Olmo3Config,
        OLMO
        | dict(
            sliding_window=70,
            layer_types=[SLIDING, FULL],
            rope_parameters={FULL: YARN, SLIDING: dict(rope_type="default", rope_theta=5e5)},
            num_attention_heads=3,
            num_key_value_heads=1,
        ),
        BF16,
        dict(rank=2, alpha=8),
    ),
    "smollm3": (
        SmolLM3Config,
        dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, num_hidden_layers=4),
        F32,
        dict(rank=8, alpha=16),
    ),
    "smollm3, no rope first, biases": (
        SmolLM3Config,
        dict(
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            num_hidden_layers=3,
            no_rope_layers=[0, 1, 0],
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            use_sliding_window=True,
            sliding_window=16,
        ),
        BF16,
        dict(rank=3, alpha=5, rank_stabilized=True),
    ),
    "granite": (
        GraniteConfig,
        dict(embedding_multiplier=3.5, logits_scaling=0.4, residual_multiplier=0.6, attention_multiplier=0.15),
        F32,
        dict(rank=8, alpha=16),
    ),
    "granite, biases, tied, one kv head": (
        GraniteConfig,
        dict(
            embedding_multiplier=12,
            logits_scaling=1.7,
            residual_multiplier=0.22,
            attention_multiplier=0.5,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            num_key_value_heads=1,
        ),
        F16,
        dict(rank=3, alpha=5, modules=["q_proj", "o_proj", "down_proj", "lm_head"]),
    ),
    "qwen3_moe": (
        Qwen3MoeConfig,
        dict(
            moe_intermediate_size=40,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            head_dim=20,
        ),
        F32,
        dict(rank=4, alpha=8),
    ),
    "qwen3_moe, some layers dense": (
        Qwen3MoeConfig,
        dict(
            moe_intermediate_size=24,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            decoder_sparse_step=2,
            num_hidden_layers=4,
            mlp_only_layers=[3],
            head_dim=10,
            num_key_value_heads=1,
            attention_bias=True,
            tie_word_embeddings=True,
        ),
        BF16,
        dict(rank=2, alpha=2),
    ),
    "qwen3_moe, window 16, attention only": (
        Qwen3MoeConfig,
        dict(
            moe_intermediate_size=33,
            num_experts=16,
            num_experts_per_tok=1,
            use_sliding_window=True,
            sliding_window=16,
            head_dim=16,
        ),
        F16,
        dict(rank=2, alpha=2, modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    ),
    "olmoe": (
        OlmoeConfig,
        OLMO | dict(num_experts=6, num_experts_per_tok=2, intermediate_size=40),
        F32,
        dict(rank=4, alpha=8),
    ),
    "olmoe, normalised, groups": (
        OlmoeConfig,
        OLMO
        | dict(num_experts=4, num_experts_per_tok=4, intermediate_size=20, norm_topk_prob=True, num_key_value_heads=3),
        BF16,
        dict(rank=1, alpha=1, modules=["q_proj", "gate_proj", "up_proj", "down_proj"]),
    ),
}
CORE = [
    "mistral, window 5",
    "qwen2, window 16 from layer 1",
    "gemma2",
    "gemma3",
    "phi3, longrope",
    "olmo2",
    "olmo3",
    "smollm3",
    "granite",
    "qwen3_moe",
    "olmoe",
]
CHOSEN = list(FAMILIES) if os.environ.get("REIN_PARITY_ALL") else CORE
