"""decoder_checks.py - a random model, what the engine and torch say of it, and how near they must be.

The oracle is float64. Beside it stands torch in float32, which makes errors of its own: ours may be four times as
large, or below a floor. A single tensor's ratio is that of two accidents, and thin tensors have wild ones; over all
tensors of a gradient our errors may be twice torch's."""

import copy
import statistics
from types import SimpleNamespace

import engine
import oracle
import torch

SIZES = dict(
    vocab_size=311,
    hidden_size=96,
    intermediate_size=200,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
LENGTHS = [150, 1, 70, 20, 1, 65]  # two sequences, one of one token, and a tree of three levels
PARENTS = [-1, -1, -1, 2, 2, 3]

# Relative to the norm of what is compared, but for log-probs and entropies, which are absolute.
FLOOR = dict(log_probs=1e-5, entropies=1e-5, logits=2e-6, gradient=1e-5)


def make_case(name, folder, kind, settings, dtype, adapter_settings, lengths=LENGTHS):
    config = kind(**(SIZES | copy.deepcopy(settings)))
    model = oracle.make(config, dtype, seed=len(name))
    model.save_pretrained(folder, max_shard_size="200KB")  # sharded, all of them
    apart = oracle.unfused(model)
    oracle.save_adapter(folder / "adapter", apart, seed=7, **adapter_settings)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return SimpleNamespace(
        name=name,
        folder=folder,
        tokens=oracle.random_tokens(lengths, PARENTS, config.vocab_size, seed=3),
        vocabulary=config.vocab_size,
        exact=oracle.exact(model),
        plain=oracle.plain(model),
        model=model,
        adapter=oracle.load_adapter(folder / "adapter", apart),
    )


def largest(a, b):
    return (a.double() - b).abs().max().item()


def distance(a, b):
    """Of nothing from nothing, as the gradient of an expert that no token chose: 0."""
    off = (a.double() - b).norm()
    return (off / b.norm()).item() if off else 0.0


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
        if right.norm():
            ratios.append(off[0] / off[1])
    assert statistics.geometric_mean(ratios) < 2


def check_gradients(case, trains, temperature):
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


def check_logits(case):
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
def check_oracle(case):
    """The float64 model is that of transformers, but for what transformers rounds to float32 inside of it."""
    tokens = oracle.Tokens(case.tokens.segments[2:4], [-1, 0])
    lp, entropies = oracle.log_probs(case.exact, tokens, 1.0)
    for near, tolerance in ((copy.deepcopy(case.model).float(), 1e-4), (copy.deepcopy(case.model).double(), 2e-5)):
        theirs = oracle.log_probs(near, tokens, 1.0)
        assert largest(theirs[0], lp) < tolerance and largest(theirs[1], entropies) < tolerance
