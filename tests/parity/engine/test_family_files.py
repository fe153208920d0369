"""The same model in the ways that its files may be written: config.json as transformers 4 wrote it, without the fields
that have their default, and Gemma 3 beside a vision tower. The log-probabilities are the same, bit for bit."""

import copy
import json
import shutil
import subprocess

import engine
import oracle
import pytest
import torch
from decoder_checks import SIZES, largest, make_case
from families import CHOSEN, FAMILIES, FULL, SLIDING
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration


@pytest.fixture(scope="module", params=CHOSEN)
def case(request, tmp_path_factory):
    return make_case(request.param, tmp_path_factory.mktemp("model"), *FAMILIES[request.param])


def log_probs(folder, tokens):
    return engine.evaluate(folder, tokens).log_probs.view(torch.int32)


def same_weights(case, config, to):
    """A copy of the model with another config.json."""
    shutil.copytree(case.folder, to, ignore=shutil.ignore_patterns("config.json", "adapter"))
    (to / "config.json").write_text(json.dumps(config))
    return to


def meaning(config, folder):
    """What transformers makes of a config.json; None if it refuses."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    try:
        read = AutoConfig.from_pretrained(folder).to_dict()
    except (ValueError, IndexError, StrictDataclassError):
        return None
    for key in ("transformers_version", "_sliding_window_pattern", "_name_or_path", "partial_rotary_factor"):
        read.pop(key, None)
    read["rope_parameters"] = {k: v for k, v in read["rope_parameters"].items() if k != "type"}
    return read


def old_rope(old, kind):
    """rope_theta outside, the rest in rope_scaling (null if there is none)."""
    rope = old.pop("rope_parameters")
    if FULL in rope:
        old["rope_local_base_freq"] = rope[SLIDING]["rope_theta"]
        rope = rope[FULL]
    old["rope_theta"] = rope.pop("rope_theta")
    if rope.get("partial_rotary_factor", 1.0) != 1:
        old["partial_rotary_factor"] = rope["partial_rotary_factor"]
    rope.pop("partial_rotary_factor", None)
    rope[kind] = rope.pop("rope_type")
    if rope[kind] == "longrope":
        rope.pop("original_max_position_embeddings")  # it stands outside
    old["rope_scaling"] = None if rope[kind] == "default" else rope


def old_spelling(folder, kind):
    """As version 4 wrote it; layer_types only if they do not follow from other fields."""
    old = json.loads((folder / "config.json").read_text())
    old_rope(old, kind)
    old["torch_dtype"] = old.pop("dtype")
    if "num_local_experts" in old:
        old["num_experts"] = old.pop("num_local_experts")
    if old["model_type"] == "olmo3":
        old.pop("rope_local_base_freq")
    return old


@pytest.mark.parametrize("kind", ["rope_type", "type"])
def test_as_version_4_wrote_it(case, tmp_path, kind):
    now = json.loads((case.folder / "config.json").read_text())
    if kind == "type" and FULL in now["rope_parameters"]:
        pytest.skip("families with two ropes are younger than that name")
    old = old_spelling(case.folder, kind)
    assert meaning(old, tmp_path / "a") == meaning(now, tmp_path / "b")
    same_weights(case, old, tmp_path / "old")
    assert torch.equal(log_probs(tmp_path / "old", case.tokens), log_probs(case.folder, case.tokens))


def test_fields_that_are_absent(case, tmp_path):
    """All those without which transformers reads the same."""
    config = json.loads((case.folder / "config.json").read_text())
    wanted, dropped = meaning(config, tmp_path / "a"), []
    for key in sorted(config.keys() - {"model_type", "architectures", "transformers_version", "dtype"}):
        less = {k: v for k, v in config.items() if k != key}
        if meaning(copy.deepcopy(less), tmp_path / "a") == wanted:
            config = less
            dropped.append(key)
    assert "rms_norm_eps" in dropped or config["rms_norm_eps"] > 1e-5
    same_weights(case, config, tmp_path / "less")
    assert torch.equal(log_probs(tmp_path / "less", case.tokens), log_probs(case.folder, case.tokens)), dropped


def test_longrope_ends_where_its_long_factors_begin(tmp_path):
    """With more positions transformers would turn all angles, also those of tokens that are there already."""
    case = make_case("phi3", tmp_path / "phi3", *FAMILIES["phi3, longrope"])
    at_most = case.model.config.rope_parameters["original_max_position_embeddings"]
    engine.evaluate(case.folder, oracle.random_tokens([at_most], [-1], case.vocabulary, seed=1))
    with pytest.raises(engine.Refused, match=f"the model has {at_most} positions"):
        engine.evaluate(case.folder, oracle.random_tokens([at_most + 1], [-1], case.vocabulary, seed=1))


# ---- Gemma 3 with a vision tower
VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
)


@pytest.fixture(scope="module", params=["tied", "untied"])
def vision(request, tmp_path_factory):
    """A folder, its text model, tokens."""
    tied = request.param == "tied"
    name = "gemma3"
    kind, settings, dtype, _ = FAMILIES[name]
    text = kind(**(SIZES | copy.deepcopy(settings)), tie_word_embeddings=tied)
    model = oracle.make(text, dtype, seed=9)
    whole = Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=text.to_dict(),
            vision_config=VISION,
            image_token_index=text.vocab_size - 1,
            mm_tokens_per_image=4,
            tie_word_embeddings=tied,
        )
    )
    whole.model.language_model.load_state_dict(model.model.state_dict())
    whole.lm_head.load_state_dict(model.lm_head.state_dict())
    folder = tmp_path_factory.mktemp("vision")
    whole.save_pretrained(folder)
    return folder, model, oracle.random_tokens([80, 1, 30, 9], [-1, -1, -1, 2], text.vocab_size - 1, seed=3)


def in_memory_names(folder, to):
    """Tensors as some versions saved them."""
    to.mkdir()
    shutil.copy(folder / "config.json", to)
    names = {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head."}
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for old, new in names.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        else:
            name = "model." + name
        tensors[name] = tensor
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    return to


@torch.no_grad()
def test_text_of_a_vision_model(vision, tmp_path):
    folder, model, tokens = vision
    ours = engine.evaluate(folder, tokens).log_probs
    assert largest(ours, oracle.log_probs(oracle.exact(model), tokens, 1.0)[0]) < 1e-5
    model.save_pretrained(tmp_path / "text")
    assert torch.equal(ours.view(torch.int32), log_probs(tmp_path / "text", tokens))
    assert torch.equal(ours.view(torch.int32), log_probs(in_memory_names(folder, tmp_path / "memory"), tokens))


@torch.no_grad()
def test_saved_text_of_a_vision_model(vision, tmp_path):
    """What is saved is the text model: transformers opens it, and it says the same."""
    folder, model, tokens = vision
    rein = str(engine.made("build/rein"))
    subprocess.run([rein, "export", str(folder), "--to", str(tmp_path / "saved")], check=True, capture_output=True)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    assert type(saved) is type(model)
    ids = torch.tensor([tokens.segments[0]])
    assert largest(saved(ids).logits, model.float()(ids).logits) < 1e-5
    ours = engine.evaluate(folder, tokens).log_probs
    assert torch.equal(ours.view(torch.int32), log_probs(tmp_path / "saved", tokens))
