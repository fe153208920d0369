"""Log-probabilities, entropies, logits and gradients of random models of every family against torch.

The oracle is float64. Beside it stands torch in float32, which makes errors of its own: ours may be four times as
large, or below a floor. A single tensor's ratio is that of two accidents, and thin tensors have wild ones; over all
tensors of a gradient our errors may be twice torch's."""

import copy
import statistics
from types import SimpleNamespace

import engine
import oracle
import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

SIZES = dict(
    vocab_size=311,
    hidden_size=96,
    intermediate_size=200,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
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
LENGTHS = [150, 1, 70, 20, 1, 65]  # two sequences, one of one token, and a tree of three levels
PARENTS = [-1, -1, -1, 2, 2, 3]

# Relative to the norm of what is compared, but for log-probs and entropies, which are absolute.
FLOOR = dict(log_probs=1e-5, entropies=1e-5, logits=2e-6, gradient=1e-5)


@pytest.fixture(scope="module", params=MODELS)
def case(request, tmp_path_factory):
    kind, settings, dtype, adapter_settings = MODELS[request.param]
    folder = tmp_path_factory.mktemp("model")
    config = kind(**(SIZES | copy.deepcopy(settings)))
    model = oracle.make(config, dtype, seed=len(request.param))
    model.save_pretrained(folder, max_shard_size="200KB")  # sharded, all of them
    oracle.save_adapter(folder / "adapter", model, seed=7, **adapter_settings)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    tokens = oracle.random_tokens(LENGTHS, PARENTS, config.vocab_size, seed=3)
    return SimpleNamespace(
        name=request.param,
        folder=folder,
        tokens=tokens,
        vocabulary=config.vocab_size,
        exact=oracle.exact(model),
        plain=copy.deepcopy(model).float(),
        adapter=oracle.load_adapter(folder / "adapter", model),
    )


def largest(a, b):
    return (a.double() - b).abs().max().item()


def distance(a, b):
    return ((a.double() - b).norm() / b.norm()).item()


def within(what, ours, torchs, floor):
    """Says both, for -s."""
    print(f"{what:58s} ours {ours:.1e}  torch {torchs:.1e}")
    assert ours <= max(4 * torchs, floor), f"{what}: off by {ours:.2e}; torch in float32 by {torchs:.2e}"


def compare(case, ours, plain, exact):
    """log_probs, entropies, gradients of each."""
    within(f"{case.name}: log_probs", largest(ours[0], exact[0]), largest(plain[0], exact[0]), FLOOR["log_probs"])
    within(f"{case.name}: entropies", largest(ours[1], exact[1]), largest(plain[1], exact[1]), FLOOR["entropies"])
    assert ours[2].keys() == exact[2].keys()
    ratios = []
    for name, right in exact[2].items():
        off = distance(ours[2][name].view_as(right), right), distance(plain[2][name], right)
        within(f"{case.name}: {name}", *off, FLOOR["gradient"])
        ratios.append(off[0] / off[1])
    assert statistics.geometric_mean(ratios) < 2


@pytest.mark.parametrize("trains, temperature", [("weights", 0.6), ("adapter", 0.6), ("adapter", 1.0)])
def test_log_probs_and_gradients(case, trains, temperature):
    adapter = trains == "adapter"
    c, e = oracle.coefficients(case.tokens.count())
    if temperature == 1:  # and without the entropies' part
        e = None
    ours = engine.evaluate(
        case.folder,
        case.tokens,
        temperature,
        adapter=str(case.folder / "adapter") if adapter else None,
        train=not adapter,
        dlog_probs=c,
        dentropies=e,
        recompute=temperature == 1,
    )
    theirs = [
        oracle.gradients(model, case.adapter.to(dtype) if adapter else None, case.tokens, temperature, c, e)
        for model, dtype in ((case.plain, torch.float32), (case.exact, torch.float64))
    ]
    compare(case, (ours.log_probs, ours.entropies, ours.gradient), *theirs)


def test_logits(case):
    found = []
    for model, dtype in ((case.plain, torch.float32), (case.exact, torch.float64)):
        detach = case.adapter.to(dtype).attach(model)
        with torch.no_grad():
            found.append(oracle.logits(model, case.tokens)[torch.tensor(case.tokens.wanted())] / 0.6)
        detach()
    adapter = str(case.folder / "adapter")
    ours = engine.evaluate(case.folder, case.tokens, 0.6, vocabulary=case.vocabulary, adapter=adapter).logits
    within(f"{case.name}: logits", distance(ours, found[1]), distance(found[0], found[1]), FLOOR["logits"])


@torch.no_grad()
def test_oracle_is_transformers(case):
    """The float64 model is that of transformers, but for what transformers rounds to float32 inside of it."""
    tokens = oracle.Tokens(case.tokens.segments[2:4], [-1, 0])
    lp, entropies = oracle.log_probs(case.exact, tokens, 1.0)
    for near, tolerance in ((case.plain, 1e-4), (copy.deepcopy(case.plain).double(), 2e-5)):
        theirs = oracle.log_probs(near, tokens, 1.0)
        assert largest(theirs[0], lp) < tolerance and largest(theirs[1], entropies) < tolerance


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
