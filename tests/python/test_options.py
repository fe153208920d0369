"""Options, presets and explanations."""

import ctypes

import pytest

import rein
from rein import _library, _options


def test_presets_and_explanations():
    assert len(rein.presets()) == 17 and "deepseek-v3.2" in rein.presets()
    for name in rein.presets():
        explained = rein.explain(name)
        text = str(explained)
        assert text.startswith(f"{name}: ") and explained.formula and explained.source in text
        for option in explained.required:
            assert f"{option:22}required" in text
    grpo = rein.explain("grpo")
    assert grpo.options["kl_loss_coef"] == 0.04 and grpo.kl_bias[0].on_policy.startswith("wrong")
    assert "tau" not in grpo.options and rein.explain("dapo").kl_bias == ()
    assert "No KL term" in str(rein.explain("dapo"))
    with pytest.raises(ValueError, match="grpo"):
        rein.explain("grpp")


def test_options_know_their_values():
    options = rein.Options("grpo", epsilon=0.1, top_entropy=0.2)
    assert options.get("epsilon") == 0.1 and options.get("epsilon_high") is None
    assert options.resolve().get("epsilon_high") == 0.1
    values = options.as_dict()
    assert values["epsilon"] == 0.1 and values["advantage"] == "group-std" and "tau" not in values
    assert repr(options) == "rein.Options('grpo', epsilon=0.1, top_entropy=0.2)"
    more = rein.Options(options, epsilon=0.3)
    assert more.get("epsilon") == 0.3 and options.get("epsilon") == 0.1
    assert rein.Options({"preset": "grpo"}).preset == "grpo" and rein.Options().preset == "none"
    assert rein.Options("grpo", scale_rewards=False).get("advantage") == "group-mean"
    assert rein.Options("grpo", epsilon=None).given == {}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"preset": "grpq"}, "did you mean grpo"),
        ({"preset": "grpo", "epsilom": 1}, "epsilom is not an option: did you mean epsilon"),
        ({"preset": "grpo", "epsilon": "0.1"}, "epsilon is '0.1': a number is needed"),
        ({"preset": "grpo", "epsilon": True}, 'epsilon is "true": it must be a number'),
        ({"preset": "grpo", "epsilon": [1]}, r"epsilon is \[1\]: a number or a string is needed"),
        ({"preset": "grpo", "epsilon": -1}, "epsilon is -1: it must be 0 or more"),
        ({"preset": "grpo", "epsilon": float("nan")}, "epsilon is not a finite number"),
        ({"preset": "grpo", "surrogate": 3}, "surrogate is 3: one of reinforce|clip"),
        ({"preset": "grpo", "surrogate": "clop"}, 'surrogate is "clop": it must be one of reinforce'),
        ({"preset": "grpo", "tau": 1}, "tau has no effect: it needs surrogate squared"),
        ({"preset": "grpo", "ratio": "token", "importance_sampling_level": "token"}, "are the same option"),
        ({"preset": "k2"}, "budget_penalty_coef.* required"),
    ],
)
def test_wrong_options(options, match):
    with pytest.raises(ValueError, match=match.replace("|", r"\|")):
        rein.Options(options).resolve()
    with pytest.raises(ValueError, match=match.replace("|", r"\|")):
        rein.policy_loss(options, [-1.0], [-1.0], ref_log_probs=[-1.0], rewards=[1], token_budget=5)


def test_wrong_kinds_of_preset():
    with pytest.raises(TypeError, match="preset is 3: a name, a dict or rein.Options is needed"):
        rein.Options(3)
    with pytest.raises(ValueError, match="epsilon is given twice"):
        rein.Options({"preset": "grpo", "epsilon": 0.1}, epsilon=0.2)
    with pytest.raises(ValueError, match="token_budget is given twice"):
        rein.policy_loss(rein.Options("grpo", token_budget=1), [-1.0], [-1.0], rewards=[1], token_budget=3)
    with pytest.raises(ValueError, match="nothing is not an option"):
        rein.Options("grpo").get("nothing")


def test_options_are_freed():
    first = rein.Options("grpo", epsilon=0.1)
    for i in range(20000):
        assert rein.Options(first, epsilon=i / 20000).get("epsilon") == i / 20000
    assert first.get("epsilon") == 0.1
    with pytest.raises(ValueError, match="grpo"):
        rein.Options("grpp")


def test_structs_of_another_size_are_refused():
    class Short(ctypes.Structure):
        _fields_ = [("n", ctypes.c_size_t)]

    with pytest.raises(ImportError, match="rein_batch has [0-9]+ bytes in .*, and 8 in the Python package"):
        _library.check_sizes({"rein_batch": Short})
    with pytest.raises(ImportError, match="no_such_struct has 0 bytes"):
        _library.check_sizes({"no_such_struct": Short})


def test_the_cache_tells_values_and_types_apart_and_is_bounded():
    def loss(**options):
        return rein.policy_loss(
            "dapo", [-1.0, -2.0], [-1.5, -1.0], rewards=[1, 0], sequence_lengths=[1, 1], **options
        ).loss

    assert loss(epsilon=1) != loss(epsilon=0.01)
    loss(epsilon=1)
    with pytest.raises(ValueError, match="it must be a number"):
        loss(epsilon=True)
    for i in range(600):
        loss(epsilon=i / 1000)
    assert len(_options._cache) <= 256
    preset = {"preset": "dapo", "epsilon": 0.01}
    first = rein.policy_loss(preset, [-1.0, -2.0], [-1.5, -1.0], rewards=[1, 0], sequence_lengths=[1, 1]).loss
    preset["epsilon"] = 1
    second = rein.policy_loss(preset, [-1.0, -2.0], [-1.5, -1.0], rewards=[1, 0], sequence_lengths=[1, 1]).loss
    assert (first, second) == (loss(epsilon=0.01), loss(epsilon=1))
