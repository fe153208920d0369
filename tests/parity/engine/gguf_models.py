"""gguf_models.py - GGUF files of random models, written by `rein export` or by PyPI's gguf, and what PyPI's gguf reads
in them, as models of transformers.

Names are those of gguf's own map from transformers' names. What llama.cpp's converter changes is undone here: the rows
of q and k of llama-type models, the 1 in the norms of Gemma, experts in one tensor.
"""

import copy
import re
import subprocess

import engine
import families
import gguf
import numpy as np
import torch
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

SIZES = dict(  # rows of whole blocks of 256
    vocab_size=311,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=512,
)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
FAMILIES = {  # name: (class, settings)
    "llama": (LlamaConfig, {}),
    "llama, tied": (LlamaConfig, dict(tie_word_embeddings=True)),
    "qwen2": (Qwen2Config, dict(head_dim=None, tie_word_embeddings=True)),
    "qwen3": (Qwen3Config, {}),
    "gemma2": (families.Gemma2Config, dict(sliding_window=16, query_pre_attn_scalar=64)),
    "gemma3": (families.Gemma3TextConfig, dict(sliding_window=16, query_pre_attn_scalar=64)),
    "phi3": (families.Phi3Config, dict(head_dim=None)),
    "olmo2": (families.Olmo2Config, dict(head_dim=None)),
    "granite": (
        families.GraniteConfig,
        dict(
            head_dim=None,
            embedding_multiplier=3.5,
            logits_scaling=0.4,
            residual_multiplier=0.6,
            attention_multiplier=0.15,
        ),
    ),
    "smollm3": (families.SmolLM3Config, dict(head_dim=None, num_hidden_layers=4)),
    "qwen3_moe": (
        families.Qwen3MoeConfig,
        dict(moe_intermediate_size=64, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
    ),
}
PERMUTED = {"llama", "granite", "smollm3"}


def config_of(family):
    kind, settings = FAMILIES[family]
    merged = SIZES | SPECIAL | copy.deepcopy(settings)
    return kind(**{key: value for key, value in merged.items() if value is not None})


def export(source, to, *options):
    """The path of a GGUF file that `rein export` wrote."""
    command = [engine.made("build/rein"), "export", source, "--to", to, *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to


# ---- written by PyPI's gguf
SCALES = {"Q4_K": (3e-4, 8), "Q5_K": (1.5e-4, 16), "Q6_K": (5e-5, 0)}  # d, and dmin / d


def random_blocks(shape, kind, generator):
    """Bytes of blocks of 256, all of whose bits are drawn; the weights are of a size that suits a matrix."""
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=np.uint8)
    scale, least = SCALES[kind]
    d = (generator.uniform(0.5, 1, blocks.shape[:-1]) * scale).astype(np.float16)
    if least:
        both = np.stack([d, (d.astype(np.float32) * least).astype(np.float16)], axis=-1)
        blocks[..., :4] = both.view(np.uint8).reshape(*d.shape, 4)
    else:
        blocks[..., -2:] = d[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def requantize(source, to, kind):
    """The file with its matrices in another type, by PyPI's gguf; types that it cannot write get random blocks."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of_array = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=of_array)
    generator, wanted = np.random.default_rng(1), gguf.GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        shape = [int(n) for n in tensor.shape[::-1]]
        x = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if len(shape) == 1 or "ffn_gate_inp" in tensor.name:
            writer.add_tensor(tensor.name, x)
        else:
            blocks = random_blocks(shape, kind, generator) if kind in SCALES else gguf.quantize(x, wanted)
            writer.add_tensor(tensor.name, blocks, raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


# ---- read by PyPI's gguf
class Decoded:
    """The tensors of a file in float32, by transformers' names."""

    def __init__(self, path, config):
        reader = gguf.GGUFReader(path)
        self.architecture, self.config = reader.fields["general.architecture"].contents(), config
        kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
        self.names = gguf.get_tensor_name_map(kinds[self.architecture], config.num_hidden_layers)
        self.types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
        self.tensors = {
            tensor.name: torch.from_numpy(
                gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(tensor.shape[::-1].tolist())
            )
            for tensor in reader.tensors
        }

    def take(self, name):
        found = self.names.get_name(name, try_suffixes=(".weight", ".bias"))
        return self.tensors.pop(found)

    def experts(self, layer, kind):
        return self.tensors.pop(f"blk.{layer}.ffn_{kind}_exps.weight")

    def parameter(self, name):
        fused = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj", name)
        if fused:
            layer, kind = fused.groups()
            kinds = ["gate", "up"] if kind == "gate_up" else ["down"]
            return torch.cat([self.experts(layer, one) for one in kinds], dim=1)
        x = self.take(name)
        if self.architecture.startswith("gemma") and name.endswith("norm.weight"):
            return x - 1
        heads = dict(q_proj=self.config.num_attention_heads, k_proj=self.config.num_key_value_heads)
        module = name.split(".")[-2]
        if self.architecture in PERMUTED and module in heads:
            return x.view(heads[module], -1, 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)
        return x


@torch.no_grad()
def model_of(path, like):
    """A copy of the model with the weights of the file, in float32; and the types of its tensors."""
    decoded = Decoded(path, like.config)
    twin = copy.deepcopy(like).float()
    for name, parameter in twin.named_parameters():
        parameter.copy_(decoded.parameter(name))
    assert not decoded.tensors.keys() - {"rope_freqs.weight"}, decoded.tensors.keys()
    return twin, decoded.types
