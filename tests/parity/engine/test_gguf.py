"""Quantised models in GGUF: log-probabilities, entropies and gradients of an adapter against torch on the weights that
PyPI's gguf decodes. The files are written by `rein export` and by gguf."""

from types import SimpleNamespace

import engine
import gguf_models
import oracle
import pytest
import torch
from decoder_checks import LENGTHS, PARENTS, compare

MODULES = dict(phi3=oracle.FUSED_MODULES)
CASES = [  # family, who writes, type of the matrices
    ("llama", "rein", "Q4_0"),
    ("llama, tied", "gguf", "Q8_0"),
    ("llama", "gguf", "Q4_K"),
    ("qwen2", "gguf", "Q4_1"),
    ("qwen3", "gguf", "Q5_K"),
    ("gemma2", "gguf", "Q6_K"),
    ("gemma3", "rein", "Q8_0"),
    ("phi3", "gguf", "Q5_1"),
    ("olmo2", "rein", "BF16"),
    ("granite", "gguf", "Q5_0"),
    ("smollm3", "rein", "F16"),
    ("qwen3_moe", "rein", "Q8_0"),
]


@pytest.fixture(scope="module", params=CASES, ids="{0[0]}, {0[2]} by {0[1]}".format)
def case(request, tmp_path_factory):
    family, writer, kind = request.param
    folder = tmp_path_factory.mktemp("model")
    model = oracle.make(gguf_models.config_of(family), seed=len(family))
    model.save_pretrained(folder)
    oracle.save_adapter(
        folder / "adapter", oracle.unfused(model), 4, 8, seed=7, modules=MODULES.get(family, oracle.MODULES)
    )
    if writer == "rein":
        path = gguf_models.export(folder, folder / "model.gguf", "--type", kind.lower())
    else:
        plain = gguf_models.export(folder, folder / "plain.gguf", "--type", "f32")
        path = gguf_models.requantize(plain, folder / "model.gguf", kind)
    decoded, types = gguf_models.model_of(path, model)
    return SimpleNamespace(
        name=f"{family}, {kind}",
        path=path,
        kind=kind,
        types=types,
        before=model,
        folder=folder,
        tokens=oracle.random_tokens(LENGTHS, PARENTS, model.config.vocab_size, seed=3),
        exact=oracle.exact(decoded),
        plain=oracle.plain(decoded),
        adapter=oracle.load_adapter(folder / "adapter", oracle.unfused(model)),
    )


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_log_probs_and_gradients(case, temperature):
    c, e = oracle.coefficients(case.tokens.count())
    adapter = str(case.folder / "adapter")
    ours = engine.evaluate(case.path, case.tokens, temperature, adapter=adapter, dlog_probs=c, dentropies=e)
    theirs = [
        oracle.gradients(model, case.adapter.to(dtype), case.tokens, temperature, c, e)
        for model, dtype in ((case.plain, torch.float32), (case.exact, torch.float64))
    ]
    compare(case, (ours.log_probs, ours.entropies, ours.gradient), *theirs)


def test_matrices_have_the_type(case):
    matrices = [kind for name, kind in case.types.items() if "norm" not in name and "bias" not in name]
    of_the_type = sum(kind == case.kind for kind in matrices)
    assert of_the_type >= len(matrices) - 3, case.types  # the embedding or the head, and routers


@torch.no_grad()
def test_quantised_is_another_model(case):
    """The weights are not those before: a test that reads the wrong file would see it."""
    before, after = (oracle.log_probs(model, case.tokens, 1.0)[0] for model in (case.before, case.plain))
    assert (before - after).abs().max() > 1e-4
