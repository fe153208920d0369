"""oracle.py - models of transformers with random weights, and what torch says of them: log-probs, entropies, gradients.

Used by the tests here and by tests/model/fixtures/engine/generate.py. Two precisions: float32 is transformers as it
comes; in float64 transformers would still norm, rotate, route and softmax in float32, so these four are done again
here, in float64. Positions times frequencies stay a float32 product, because that is how the published models were
trained. The masks are those of transformers. Experts, which transformers keep as one tensor in memory, are modules of
their own here, with the names that they have in files.
"""

import copy
import json
import math
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.masking_utils import eager_mask
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED_MODULES = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]  # of Phi


# ---- the four in float64
def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, softcap=None, **_):
    """Eager attention without the softmax in float32."""
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = (query @ key.transpose(2, 3)) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(attention_mask != 0, -math.inf).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def norm(module, x):
    return module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon))


def gemma_norm(module, x):
    return (1 + module.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.eps))


def rotary(module, x, position_ids, layer_type=None):
    prefix = f"{layer_type}_" if layer_type else ""
    frequencies, scaling = getattr(module, f"{prefix}inv_freq"), getattr(module, f"{prefix}attention_scaling")
    if module.rope_type == "longrope":
        frequencies, _ = ROPE_INIT_FUNCTIONS["longrope"](module.config, seq_len=int(position_ids.max()) + 1)
    angles = position_ids[..., None].float() * frequencies.float()
    angles = torch.cat((angles, angles), dim=-1).to(x.dtype)
    return angles.cos() * scaling, angles.sin() * scaling


def router(module, x):
    logits = x.reshape(-1, module.hidden_dim) @ module.weight.T
    weights, chosen = logits.softmax(-1).topk(module.top_k, dim=-1)
    if module.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return logits, weights, chosen


AttentionInterface.register("exact", attention)
AttentionMaskInterface.register("exact", eager_mask)
FORWARD = {"RMSNorm": norm, "RotaryEmbedding": rotary, "TopKRouter": router}


def exact(model):
    """A float64 copy."""
    twin = unfused(model).double()
    twin.config._attn_implementation = "exact"
    for module in twin.modules():
        kind = type(module).__name__
        for ending, forward in FORWARD.items():
            if kind.endswith(ending):
                forward = gemma_norm if kind.startswith("Gemma") and forward is norm else forward
                module.forward = forward.__get__(module)
    return twin


def plain(model):
    """A float32 copy: transformers as it comes."""
    return unfused(model).float()


# ---- experts as modules
class Expert(nn.Module):
    def __init__(self, gate_up, down, activation):
        super().__init__()
        gate, up = gate_up.chunk(2)
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(*weight.shape[::-1], bias=False, dtype=weight.dtype) for weight in (gate, up, down)
        )
        for module, weight in zip((self.gate_proj, self.up_proj, self.down_proj), (gate, up, down)):
            module.weight.data = weight.detach().clone()
        self.activation = activation

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.ModuleList):
    def forward(self, x, chosen, weights):
        out = torch.zeros_like(x)
        for e, expert in enumerate(self):
            rows, place = torch.where(chosen == e)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


def unfused(model):
    """A copy in which every expert is a module."""
    twin = copy.deepcopy(model)
    for path, module in list(twin.named_modules()):
        if hasattr(module, "gate_up_proj") and hasattr(module, "num_experts"):
            pairs = zip(module.gate_up_proj, module.down_proj)
            twin.set_submodule(path, Experts([Expert(gate_up, down, module.act_fn) for gate_up, down in pairs]))
    return twin


# ---- models and adapters
def randomize(model, seed):
    """Weights that make a lively model: hidden states near 1, log-probs between -0.1 and -10, no norm or bias idle."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                around = 0 if name.endswith("bias") or model.config.model_type.startswith("gemma") else 1
                p.copy_(0.3 * noise + around)
            elif "embed" in name or "lm_head" in name:
                p.copy_(noise * 1.5 / math.sqrt(p.shape[1]))
            else:
                p.copy_(noise / math.sqrt(p.shape[-1]))


def make(config, dtype=torch.float32, seed=0):
    config = copy.deepcopy(config)
    config._attn_implementation = config._experts_implementation = "eager"
    config.dtype = dtype
    model = AutoModelForCausalLM.from_config(config).float().eval()
    randomize(model, seed)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None  # torch would leave out the gradient of that row
        if hasattr(module, "embed_scale"):  # it was rounded to dtype
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float32)
    for (
        p
    ) in model.parameters():  # not model.to(dtype): that would round the rotary frequencies too, which no loader does
        p.data = p.data.to(dtype)
    return model


@dataclass
class Adapter:
    """LoRA as PEFT has it: factors by the path of their module."""

    scale: float
    factors: dict  # "model.layers.0.self_attn.q_proj" → (A [r, in], B [out, r])

    def to(self, dtype):
        cast = {k: tuple(f.detach().to(dtype).requires_grad_() for f in v) for k, v in self.factors.items()}
        return Adapter(self.scale, cast)

    def named(self):
        """(name as rein has it, tensor), in the order of layers and modules."""
        for path, (a, b) in self.factors.items():
            yield path + ".lora_A", a
            yield path + ".lora_B", b

    def attach(self, model):
        """Returns what detaches it."""
        hooks = []
        for path, (a, b) in self.factors.items():
            hooks.append(
                model.get_submodule(path).register_forward_hook(
                    lambda _, x, y, a=a, b=b: y + self.scale * (x[0] @ a.T) @ b.T
                )
            )
        return lambda: [hook.remove() for hook in hooks]


def adapter_config(rank, alpha, modules=MODULES, rank_stabilized=False, base=""):
    """adapter_config.json with every field that PEFT 0.18 writes."""
    none = [
        "auto_mapping", "corda_config", "eva_config", "exclude_modules", "layer_replication", "layers_pattern",
        "layers_to_transform", "megatron_config", "modules_to_save", "revision", "target_parameters",
        "trainable_token_indices",
    ]  # fmt: skip
    config = dict.fromkeys(none) | dict(
        alpha_pattern={},
        base_model_name_or_path=base,
        bias="none",
        fan_in_fan_out=False,
        inference_mode=True,
        init_lora_weights=True,
        loftq_config={},
        lora_alpha=alpha,
        lora_bias=False,
        lora_dropout=0.0,
        megatron_core="megatron.core",
        peft_type="LORA",
        qalora_group_size=16,
        r=rank,
        rank_pattern={},
        target_modules=list(modules),
        task_type="CAUSAL_LM",
        use_dora=False,
        use_qalora=False,
        use_rslora=rank_stabilized,
    )
    return dict(sorted(config.items()))


def save_adapter(folder, model, rank, alpha, seed, modules=MODULES, rank_stabilized=False, size=0.3):
    """Random factors as PEFT's files; `size` of the noise in both."""
    folder.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(seed)
    tensors = {}
    for path, module in model.named_modules():
        if path.rsplit(".", 1)[-1] in modules:
            out, into = module.weight.shape
            a, b = torch.randn(rank, into, generator=g), torch.randn(out, rank, generator=g)
            tensors[f"base_model.model.{path}.lora_A.weight"] = a * size / math.sqrt(into) * math.sqrt(rank)
            tensors[f"base_model.model.{path}.lora_B.weight"] = b * size
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = adapter_config(rank, alpha, modules, rank_stabilized)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_adapter(folder, model):
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    scale = config["lora_alpha"] / (math.sqrt(config["r"]) if config["use_rslora"] else config["r"])
    factors = {}
    for path, _ in model.named_modules():
        key = f"base_model.model.{path}.lora_%s.weight"
        if key % "A" in tensors:
            factors[path] = (tensors[key % "A"], tensors[key % "B"])
    assert 2 * len(factors) == len(tensors)
    return Adapter(scale, factors)


# ---- tokens in segments
@dataclass
class Tokens:
    segments: list  # of lists of ids
    parents: list  # -1: none

    def path(self, s):
        """Ids before segment s, and those of it."""
        before, at = [], self.parents[s]
        while at >= 0:
            before, at = self.segments[at] + before, self.parents[at]
        return before, self.segments[s]

    def wanted(self):
        """Whether a token has a log-probability: not the first of a root."""
        return [t > 0 or parent >= 0 for ids, parent in zip(self.segments, self.parents) for t in range(len(ids))]

    def count(self):
        return sum(map(len, self.segments))


def random_tokens(lengths, parents, vocabulary, seed):
    g = torch.Generator().manual_seed(seed)
    return Tokens([torch.randint(vocabulary, (n,), generator=g).tolist() for n in lengths], list(parents))


def coefficients(n):
    """d loss/d log_prob and d loss/d entropy of token t of a batch, as floats: neither zero, nor of one sign."""
    c = torch.tensor([math.cos(0.5 + 1.3 * t) for t in range(n)])
    e = torch.tensor([0.3 * math.sin(0.2 + 0.7 * t) for t in range(n)])
    return c, e


# ---- what torch says
def logits(model, tokens):
    """[tokens, vocabulary]: of the position that predicts each token; nothing (NaN) for the first token of a root."""
    rows = []
    for s in range(len(tokens.segments)):
        before, ids = tokens.path(s)
        z = model(torch.tensor([before + ids]), use_cache=False).logits[0]
        if not before:
            z = torch.cat([torch.full_like(z[:1], math.nan), z])
        rows.append(z[max(len(before) - 1, 0) :][: len(ids)])
    return torch.cat(rows)


def log_probs(model, tokens, temperature):
    """log_probs, entropies [tokens], 0 where there is none."""
    ids = torch.tensor(sum(tokens.segments, []))
    there = torch.tensor(tokens.wanted())
    x = (logits(model, tokens)[there] / temperature).log_softmax(-1)
    zeros = torch.zeros(len(ids), dtype=x.dtype)
    lp = zeros.masked_scatter(there, x.gather(1, ids[there, None])[:, 0])
    return lp, zeros.masked_scatter(there, -(x.exp() * x).sum(-1))


def gradients(model, adapter, tokens, temperature, dlog_probs, dentropies=None):
    """log_probs, entropies, {name: gradient} of what trains: the adapter's factors, or, without one, all weights."""
    detach = adapter.attach(model) if adapter else list
    lp, entropies = log_probs(model, tokens, temperature)
    detach()
    loss = (lp * dlog_probs).sum()
    if dentropies is not None:
        loss = loss + (entropies * dentropies).sum()
    named = dict(adapter.named() if adapter else model.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    return lp.detach(), entropies.detach(), dict(zip(named, found))
