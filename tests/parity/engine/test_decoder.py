"""Log-probabilities, entropies, logits and gradients of random models against torch: Llama and what differs least from
it. The other families are in test_families.py."""

import copy

import engine
import oracle
import pytest
import torch
from decoder_checks import SIZES, check_gradients, check_logits, check_oracle, largest, make_case, within
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
LINEAR = dict(rope_type="linear", rope_theta=1e4, factor=4.0)
MODELS = {  # name: (class, settings, type, settings of the adapter)
    "llama": (LlamaConfig, {}, torch.float32, dict(rank=8, alpha=16)),
    "llama, tied, head_dim 20": (
        LlamaConfig,
        dict(tie_word_embeddings=True, head_dim=20, vocab_size=1100),
        torch.float32,
        dict(rank=3, alpha=5, modules=["q_proj", "v_proj"]),
    ),
    "llama, head_dim 48, one kv head": (
        LlamaConfig,
        dict(head_dim=48, num_key_value_heads=1, hidden_size=120, rms_norm_eps=1e-5),
        torch.bfloat16,
        dict(rank=4, alpha=8, rank_stabilized=True),
    ),
    "llama, head_dim 80, no groups": (
        LlamaConfig,
        dict(head_dim=80, num_attention_heads=2, num_key_value_heads=2, vocab_size=2300),
        torch.float32,
        dict(rank=5, alpha=5, modules=["k_proj", "down_proj", "lm_head"]),
    ),
    "llama, biases": (
        LlamaConfig,
        dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        torch.float16,
        dict(rank=1, alpha=1),
    ),
    "llama3 rope": (
        LlamaConfig,
        dict(rope_parameters=LLAMA3, head_dim=32),
        torch.float32,
        dict(rank=8, alpha=4),
    ),
    "linear rope, tied": (
        LlamaConfig,
        dict(rope_parameters=LINEAR, tie_word_embeddings=True),
        torch.bfloat16,
        dict(rank=2, alpha=2, modules=["gate_proj", "up_proj", "lm_head"]),
    ),
    "mistral": (
        MistralConfig,
        dict(sliding_window=None, head_dim=20, num_attention_heads=4),
        torch.float32,
        dict(rank=16, alpha=16),
    ),
    "qwen2": (Qwen2Config, dict(tie_word_embeddings=True), torch.float32, dict(rank=8, alpha=16)),
    "qwen2, head_dim 48": (
        Qwen2Config,
        dict(hidden_size=192, num_attention_heads=4, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        torch.bfloat16,
        dict(rank=4, alpha=8),
    ),
    "qwen3": (Qwen3Config, dict(head_dim=32, tie_word_embeddings=True), torch.float32, dict(rank=8, alpha=16)),
    "qwen3, head_dim 80, bias": (
        Qwen3Config,
        dict(head_dim=80, attention_bias=True, num_attention_heads=2, num_key_value_heads=1),
        torch.float16,
        dict(rank=2, alpha=8, rank_stabilized=True),
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request, tmp_path_factory):
    return make_case(request.param, tmp_path_factory.mktemp("model"), *MODELS[request.param])


@pytest.mark.parametrize("trains, temperature", [("weights", 0.6), ("adapter", 0.6), ("adapter", 1.0)])
def test_log_probs_and_gradients(case, trains, temperature):
    check_gradients(case, trains, temperature)


def test_logits(case):
    check_logits(case)


def test_oracle_is_transformers(case):
    check_oracle(case)


@torch.no_grad()
@pytest.mark.parametrize("rope", [dict(rope_type="default", rope_theta=5e5), LLAMA3], ids=["default", "llama3"])
def test_far_positions(tmp_path, rope):
    """The floor is what an ulp of a frequency makes of an angle of 2000: torch takes its powers in float32."""
    config = LlamaConfig(**(SIZES | dict(head_dim=64, num_hidden_layers=2, max_position_embeddings=4096)))
    config.rope_parameters = copy.deepcopy(rope)
    model = oracle.make(config, seed=1)
    model.save_pretrained(tmp_path)
    tokens = oracle.random_tokens([2000], [-1], config.vocab_size, seed=5)
    exact, plain = (oracle.log_probs(m, tokens, 1.0)[0] for m in (oracle.exact(model), model))
    ours = engine.evaluate(tmp_path, tokens).log_probs
    within("2000 positions: log_probs", largest(ours, exact), largest(plain, exact), 3e-5)
