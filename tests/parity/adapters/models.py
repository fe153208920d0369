"""models.py - tiny models of transformers, and PEFT around them, with numbers in every factor."""

import copy

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
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

SIZES = dict(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
FAMILIES = {
    "llama": (LlamaConfig, dict(attention_bias=True)),
    "mistral": (MistralConfig, dict(sliding_window=None)),
    "mistral, window": (MistralConfig, dict(sliding_window=4)),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, dict(head_dim=8)),
    "gemma2": (Gemma2Config, dict(head_dim=8, sliding_window=4)),
    "gemma3": (
        Gemma3TextConfig,
        dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    ),
    "phi3": (Phi3Config, dict(pad_token_id=0, eos_token_id=2)),
    "olmo2": (Olmo2Config, dict(pad_token_id=0, eos_token_id=2)),
    "olmo3": (Olmo3Config, dict(pad_token_id=0, eos_token_id=2, sliding_window=4)),
    "smollm3": (SmolLM3Config, dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, no_rope_layers=[1, 0])),
    "granite": (GraniteConfig, dict(attention_bias=True, embedding_multiplier=2.0, residual_multiplier=0.5)),
}
EXPERTS = {
    "qwen3_moe": (
        Qwen3MoeConfig,
        dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=8, mlp_only_layers=[0]),
    ),
    "olmoe": (OlmoeConfig, dict(num_experts=3, num_experts_per_tok=2, pad_token_id=0, eos_token_id=2)),
}
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED_MODULES = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TOKENS = torch.arange(1, 19).view(2, 9) * 5 % 48


def make(folder, family="llama", dtype=torch.float32, tied=False):
    """A model with weights that are not small, saved to the folder."""
    kind, more = (FAMILIES | EXPERTS)[family]
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(
        kind(**SIZES, **copy.deepcopy(more), tie_word_embeddings=tied, dtype=dtype)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def modules_of(family):
    return FUSED_MODULES if family == "phi3" else MODULES


def around(model, to=None, adapter_dtype=None, **options):
    """PEFT around it, with numbers in B too; saved to `to`."""
    modules = modules_of(model.config.model_type)
    options = dict(r=4, lora_alpha=10, target_modules=modules, task_type="CAUSAL_LM") | options
    wrapped = get_peft_model(model, LoraConfig(**options))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
                if adapter_dtype:
                    parameter.data = parameter.data.to(adapter_dtype)
    wrapped.eval()
    if to:
        wrapped.save_pretrained(to)
    return wrapped


def wrap(model, folder):
    return PeftModel.from_pretrained(model, folder).eval()


@torch.no_grad()
def logits(model):
    return model(input_ids=TOKENS).logits.float()
