"""The policy loss: shapes, types, masks, advantages, steps, errors."""

import numpy as np
import pytest
import reference

import rein

SHAPE = (8, 12)


def batch(dtype=np.float64, seed=3):
    """Padded, with gaps, and NaN wherever nothing trains."""
    generator = np.random.default_rng(seed)
    old = generator.normal(-1, 0.4, SHAPE)
    log_probs = old + generator.normal(0, 0.2, SHAPE)
    ref = old + generator.normal(0, 0.2, SHAPE)
    mask = np.arange(SHAPE[1]) < generator.integers(3, SHAPE[1], (SHAPE[0], 1))
    mask[:, 1] &= generator.random(SHAPE[0]) < 0.5
    arrays = {"log_probs": log_probs, "old_log_probs": old, "ref_log_probs": ref}
    for array in arrays.values():
        array[~mask] = np.nan
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    return {**arrays, "mask": mask, "rewards": generator.random(SHAPE[0]), "group_sizes": 4}


def packed(padded):
    """The same sequences as flat arrays, without masked tokens."""
    mask = padded["mask"]
    tokens = {
        n: a[mask] for n, a in padded.items() if isinstance(a, np.ndarray) and a.shape == mask.shape and n != "mask"
    }
    return {**tokens, "sequence_lengths": mask.sum(axis=1), "rewards": padded["rewards"], "group_sizes": 4}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_grpo_reference(dtype):
    given = batch(dtype)
    result = rein.policy_loss("grpo", **given)
    names = ("log_probs", "old_log_probs", "ref_log_probs")
    loss, gradient = reference.grpo(*(given[n].astype(float) for n in names), given["mask"], given["rewards"], 4)
    tolerance = 2e-5 if dtype == np.float32 else 1e-12
    assert result.loss == pytest.approx(loss, rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(result.grad_log_probs, gradient, rtol=tolerance, atol=tolerance / 100)
    assert result.grad_log_probs.dtype == dtype and result.grad_log_probs.shape == SHAPE
    assert (result.grad_log_probs[~given["mask"]] == 0).all()
    assert not result.nothing_to_train and result.advantages is None and result.grad_entropies is None


def test_worked_value_of_the_json_contract():
    null = float("nan")
    result = rein.policy_loss(
        "grpo",
        [-0.5, -1, null, -2, -0.7],
        [-0.6, -1, null, -1.8, -0.7],
        ref_log_probs=[-0.7, -1.1, None, -1.9, -0.7],
        mask=[1, 1, 0, 1, 1],
        sequence_lengths=[3, 2],
        rewards=[1, 0],
        return_advantages=True,
    )
    assert result.loss == pytest.approx(-0.050348483266674904, rel=1e-14)
    expected = [-0.19355549387380425, -0.17582481947735001, 0, 0.14368060300369714, 0.17677644529699041]
    np.testing.assert_allclose(result.grad_log_probs, expected, rtol=1e-14)
    np.testing.assert_allclose(result.advantages, [0.70710578118796164] * 3 + [-0.70710578118796164] * 2, rtol=1e-14)
    assert result.metrics["ratio_p99"] == pytest.approx(1.0982851403078258)
    assert result.metrics["trained_tokens"] == 4 and result.metrics["groups"] == 1


def test_padded_is_packed():
    given = batch()
    padded, tight = rein.policy_loss("grpo", **given), rein.policy_loss("grpo", **packed(given))
    assert padded.loss == pytest.approx(tight.loss, rel=1e-14)
    np.testing.assert_allclose(padded.grad_log_probs[given["mask"]], tight.grad_log_probs, rtol=1e-14)
    different = {
        name for name in padded.metrics if padded.metrics[name] != pytest.approx(tight.metrics[name], rel=1e-12)
    }
    assert different == {"tokens"}


def test_a_loss_over_pairs_is_not_one_of_tokens():
    with pytest.raises(ValueError, match="preference_loss is a loss over pairs, not over tokens"):
        rein.policy_loss("online-dpo", **batch())


@pytest.mark.parametrize("preset", [name for name in rein.presets() if name != "online-dpo"])
def test_every_preset_padded_is_packed_and_has_its_gradient(preset):
    given = batch()
    given["values"] = given["log_probs"] * 0.1
    options = {name: {"token_budget": 5, "tau": 0.2}.get(name, 0.1) for name in rein.explain(preset).required}
    if preset != "ppo":
        del given["values"]
    padded = rein.policy_loss(preset, **given, **options)
    tight = rein.policy_loss(preset, **packed(given), **options)
    assert padded.loss == pytest.approx(tight.loss, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(padded.grad_log_probs[given["mask"]], tight.grad_log_probs, rtol=1e-11, atol=1e-15)
    assert rein.policy_loss(preset, **given, **options, return_grad=False).grad_log_probs is None


def test_every_kind_of_array_gives_the_same_bits():
    given = batch()
    expected = rein.policy_loss("grpo", **given)
    kinds = [
        lambda a: a.tolist(),
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
        lambda a: a.astype(object),
    ]
    for kind in kinds:
        arrays = {name: kind(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
        result = rein.policy_loss("grpo", **arrays)
        assert result.loss == expected.loss
        np.testing.assert_array_equal(result.grad_log_probs, expected.grad_log_probs)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_masks_of_every_type(dtype):
    given = batch()
    expected = rein.policy_loss("grpo", **given).loss
    given["mask"] = given["mask"].astype(dtype)
    assert rein.policy_loss("grpo", **given).loss == expected


def test_options_in_three_ways():
    given = batch()
    names = rein.policy_loss("grpo", **given, epsilon=0.1)
    assert rein.policy_loss({"preset": "grpo", "epsilon": 0.1}, **given).loss == names.loss
    assert rein.policy_loss(rein.Options("grpo", epsilon=0.1), **given).loss == names.loss
    assert rein.policy_loss({"preset": "grpo"}, **given, epsilon=0.1).loss == names.loss
    assert rein.policy_loss("grpo", **given, epsilon=np.float64(0.1), kl_clamp=None).loss == names.loss
    assert rein.policy_loss("grpo", **given).loss != names.loss
    plain = rein.policy_loss({}, given["log_probs"], rewards=given["rewards"], mask=given["mask"])
    assert rein.policy_loss(None, given["log_probs"], rewards=given["rewards"], mask=given["mask"]).loss == plain.loss


def test_advantages_given():
    given = batch()
    rewards = given.pop("rewards")
    own = rein.advantages("group-std", rewards, group_sizes=4)
    expected = rein.policy_loss("grpo", **given, rewards=rewards)
    for advantages, more in (
        (own, {}),
        (np.repeat(own[:, None], SHAPE[1], axis=1), {}),
        (own, {"rewards": rewards}),
        (own.astype(np.float32).astype(float), {}),
    ):
        result = rein.policy_loss("grpo", **given, advantages=advantages, **more)
        assert result.loss == pytest.approx(expected.loss, rel=1e-6)
        np.testing.assert_allclose(result.grad_log_probs, expected.grad_log_probs, rtol=1e-6, atol=1e-9)
        assert (result.metrics["reward"] != 0) == bool(more)
    for preset in ("gmpo", "gspo", "dapo", "rloo", "k1.5"):
        options = {} if preset != "k1.5" else {"tau": 0.1}
        assert np.isfinite(rein.policy_loss(preset, **given, advantages=own, **options).loss)
    with pytest.raises(ValueError, match="shape has no effect"):
        rein.policy_loss("grpo", **given, advantages=own, shape="budget", token_budget=3, budget_penalty_coef=0.1)
    with pytest.raises(ValueError, match="advantages has no effect"):
        rein.policy_loss("grpo", **given, advantages=own, advantage="group-mean")
    with pytest.raises(ValueError, match=r"^advantages\[3\] is not a finite number"):
        rein.policy_loss("grpo", **given, advantages=np.where(np.arange(8) == 3, np.nan, own))
    bad = given["log_probs"].copy()
    bad[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"^log_probs\[2\]\[0\] is NaN"):
        rein.policy_loss("grpo", **{**given, "log_probs": bad}, advantages=own)
    with pytest.raises(ValueError, match=r"advantages has shape \[7\]: one per sequence, \[8\], or one per token"):
        rein.policy_loss("grpo", **given, advantages=own[:7])


def test_entropies_and_advantages_out():
    given = batch()
    entropies = np.where(given["mask"], 0.5, np.nan)
    result = rein.policy_loss("grpo", **given, entropies=entropies, entropy_coef=0.01, return_advantages=True)
    assert result.grad_entropies.shape == SHAPE and (result.grad_entropies[given["mask"]] < 0).all()
    assert (result.grad_entropies[~given["mask"]] == 0).all()
    assert result.metrics["entropy"] == pytest.approx(0.5)
    assert result.advantages.shape == SHAPE
    one = rein.advantages("group-std", given["rewards"], group_sizes=4)
    np.testing.assert_allclose(result.advantages[:, 0], one, rtol=1e-12)


def test_threads_and_repetition_change_no_bit():
    given = batch()
    generator = np.random.default_rng(0)
    big = generator.normal(-1, 0.3, (64, 2048)).astype(np.float32)
    results = [
        rein.policy_loss("dapo", big, big * 0.99, rewards=np.arange(64.0), group_sizes=8, threads=n)
        for n in (1, 2, 3, 0)
    ]
    assert len({result.loss for result in results}) == 1
    for result in results[1:]:
        np.testing.assert_array_equal(result.grad_log_probs, results[0].grad_log_probs)
    assert rein.policy_loss("grpo", **given).metrics == rein.policy_loss("grpo", **given).metrics


def test_nothing_to_train():
    result = rein.policy_loss(
        "dapo", np.full((2, 3), np.nan), np.full((2, 3), np.nan), mask=np.zeros((2, 3)), rewards=[1, 0]
    )
    assert result.nothing_to_train and result.loss == 0 and (result.grad_log_probs == 0).all()


@pytest.mark.parametrize("cuts", [[0, 8], [0, 1, 8], [0, 3, 4, 8], list(range(9))])
@pytest.mark.parametrize("form", [lambda given: given, packed])
def test_step_is_the_whole(cuts, form):
    given = form(batch())
    whole = rein.policy_loss("grpo", **given)
    log_probs = given.pop("log_probs")
    starts = np.concatenate([[0], np.cumsum(given.get("sequence_lengths", [1] * 8))])
    step = rein.Step("grpo", **given)
    parts = [step.loss(log_probs[starts[a] : starts[b]], a, b) for a, b in zip(cuts, cuts[1:])]
    np.testing.assert_array_equal(np.concatenate(parts), whole.grad_log_probs)
    finished = step.finish()
    assert finished.loss == whole.loss and finished.metrics == whole.metrics
    assert step.n_sequences == 8 and step.dtype == np.float64


def test_step_with_entropies_and_its_errors():
    given = batch(np.float32)
    entropies = np.full(SHAPE, 0.3, np.float32)
    whole = rein.policy_loss("grpo", **given, entropies=entropies, entropy_coef=0.1)
    log_probs = given.pop("log_probs")
    step = rein.Step("grpo", **given, entropy_coef=0.1)
    gradient, of_entropies = step.loss(log_probs, 0, 8, entropies)
    np.testing.assert_array_equal(gradient, whole.grad_log_probs)
    np.testing.assert_array_equal(of_entropies, whole.grad_entropies)
    assert gradient.dtype == np.float32
    step = rein.Step("grpo", **given)
    with pytest.raises(ValueError, match="first is 3: the next micro-batch begins with sequence 0"):
        step.loss(log_probs[3:4], 3, 4)
    with pytest.raises(ValueError, match=r"log_probs has shape \[2, 12\], sequences 0 to 1 has \[1, 12\]"):
        step.loss(log_probs[:2], 0, 1)
    with pytest.raises(ValueError, match="sequences 7 to 9: the step has sequences 0 to 8"):
        step.loss(log_probs[:2], 7, 9)
    bad = log_probs.copy()
    bad[2, 0] = np.nan
    step.loss(bad[:1], 0, 1)
    with pytest.raises(ValueError, match=r"^log_probs\[2\]\[0\] is NaN"):
        step.loss(bad[1:4], 1, 4)
    with pytest.raises(ValueError, match="the step failed before"):
        step.loss(bad[1:4], 1, 4)
    with pytest.raises(ValueError, match="the step's shape is unknown"):
        rein.Step("reinforce", rewards=[1])
    alone = rein.Step("reinforce", rewards=[1, 2], sequence_lengths=[1, 2], dtype=np.float32)
    assert alone.loss([-1.0, -2, -3], 0, 2).dtype == np.float32


def wrong(match, **changes):
    with pytest.raises(ValueError, match=match):
        rein.policy_loss(changes.pop("preset", "grpo"), **{**batch(), **changes})


def test_errors_name_field_and_position():
    given = batch()
    place = tuple(np.argwhere(given["mask"])[20])
    where = rf"\[{place[0]}\]\[{place[1]}\]"
    for name in ("log_probs", "old_log_probs", "ref_log_probs"):
        for value, said in ((np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "-infinite")):
            bad = given[name].copy()
            bad[place] = value
            wrong(rf"^{name}{where} is {said}: a trained token needs", **{name: bad})
    far = given["log_probs"].copy()
    far[place] = 800
    wrong(
        rf"^log_probs{where}: .*log_probs - old_log_probs is 80",
        log_probs=far,
        rewards=-given["rewards"],
        kl_loss_coef=0,
    )
    wrong(r"^rewards\[2\] is not a finite number", rewards=np.where(np.arange(8) == 2, np.nan, 1.0))
    wrong(r"^rewards has shape \[7\], but there are 8 sequences", rewards=np.ones(7))
    wrong(r"^mask\[1\]\[2\] is 0.5: 0 or 1 is needed", mask=np.where(np.arange(96).reshape(SHAPE) == 14, 0.5, 1))
    wrong(r"^mask has shape \[8, 11\], the batch has \[8, 12\]", mask=np.ones((8, 11)))
    wrong(r"^old_log_probs has shape \[8, 11\], the batch has \[8, 12\]", old_log_probs=np.ones((8, 11)))
    wrong("group_sizes is 3: 8 sequences cannot be cut", group_sizes=3)
    wrong(r"^group_sizes adds up to 9, but there are 8 sequences", group_sizes=[4, 5])
    wrong(r"group_sizes\[1\] is of an empty group", group_sizes=[4, 0, 4])
    wrong(r"^group_sizes\[1\] is -4: it must be 0 or more", group_sizes=[4, -4, 8])
    wrong("sequence_lengths has no effect with", sequence_lengths=[12] * 8)
    wrong("rewards is missing", rewards=None)
    wrong("ref_log_probs is missing: kl_loss_coef needs it", ref_log_probs=None)
    wrong("old_log_probs is missing: the surrogate needs it", old_log_probs=None)
    wrong(r"^response_lengths\[0\] is -1: ", response_lengths=[-1] * 8)
    wrong("token_budget is missing: shape budget needs it", preset="k2", tau=0.1, budget_penalty_coef=0.1)
    wrong("is given twice", preset={"preset": "grpo", "token_budget": 3}, token_budget=4)
    wrong(r"^reward_components\[1\]\[1\] is not", rewards=None, reward_components=[[1, 1], [1, np.nan]] * 4)
    wrong("rewards and reward_components", reward_components=[[1, 2]] * 8)
    wrong("reward_weights has no effect without", reward_weights=[1])
    wrong("threads is -1", threads=-1)
    wrong(r"log_probs has shape \[\]", log_probs=np.array(1.0))
    wrong("log_probs is not an array of numbers", log_probs=[[1, 2], [3]])
    wrong("values has no effect", values=given["log_probs"])


def test_packed_errors():
    with pytest.raises(ValueError, match=r"^sequence_lengths adds up to 2, but there are 3 tokens"):
        rein.policy_loss("dapo", [-1.0, -2, -3], [-1.0, -2, -3], sequence_lengths=[1, 1], rewards=[1, 2])
    with pytest.raises(ValueError, match=r"^log_probs\[2\] is NaN"):
        rein.policy_loss("dapo", [-1.0, -2, np.nan], [-1.0, -2, -3], sequence_lengths=[1, 2], rewards=[1, 2])


def test_remax_gdpo_and_lengths():
    given = batch()
    per_group = rein.policy_loss("dapo", **given, advantage="remax", baseline_rewards=[0.3, 0.4])
    per_sequence = rein.policy_loss("dapo", **given, advantage="remax", baseline_rewards=[0.3] * 4 + [0.4] * 4)
    assert per_group.loss == per_sequence.loss
    components = np.stack([given.pop("rewards"), np.arange(8) % 3.0], axis=1)
    result = rein.policy_loss("dapo", **given, reward_components=components, reward_weights=[1, 0.5], advantage="gdpo")
    assert np.isfinite(result.loss)
    lengths = rein.policy_loss(
        "k2", **batch(), tau=0.1, budget_penalty_coef=0.01, token_budget=[5] * 8, response_lengths=[9] * 8
    )
    assert lengths.metrics["share_over_budget"] == 1 and lengths.metrics["length_mean"] == 9


def test_advantages_alone():
    rewards = np.array([1, 0, 0.5, 0.25])
    np.testing.assert_allclose(rein.advantages("leave-one-out", rewards, group_sizes=2), [1, -1, 0.25, -0.25])
    np.testing.assert_allclose(rein.advantages("none", rewards), rewards)
    np.testing.assert_allclose(
        rein.advantages("opo", rewards, response_lengths=[3, 1, 2, 2], group_sizes=[2, 2])[0], 0.25
    )
    np.testing.assert_allclose(
        rein.advantages("remax", rewards, baseline_rewards=[0.5, 0], group_sizes=2)[2:], [0.5, 0.25]
    )
    assert rein.advantages("group-mean", rewards.astype(np.float32)).dtype == np.float32
    whitened = rein.advantages("reinforce++", rewards)
    assert whitened.shape == (4,) and abs(whitened.mean()) < 1e-12
    tokens = rein.advantages("reinforce++", rewards, sequence_lengths=[1, 2, 3, 4])
    assert tokens.shape == (10,) and abs(tokens.mean()) < 1e-12
    values = np.array([[0.1, 0.2, np.nan], [0.3, 0.2, 0.1]])
    gae = rein.advantages("gae", [1, 0], values=values, mask=[[1, 1, 0], [1, 1, 1]], gae_lambda=1)
    np.testing.assert_allclose(gae, [[0.9, 0.8, 0], [-0.3, -0.2, -0.1]], atol=1e-12)
    for match, arguments in (
        ("rewards is missing", {"rewards": None}),
        ("response_lengths is missing", {"estimator": "opo"}),
        ("values is missing", {"estimator": "gae"}),
        ("token arrays have no effect", {"mask": np.ones((4, 2))}),
        ("advantage is", {"estimator": "guess"}),
    ):
        with pytest.raises(ValueError, match=match):
            rein.advantages(**{"estimator": "group-mean", "rewards": rewards, **arguments})


def test_shape_rewards_alone():
    lengths = [150, 80]
    shaped = rein.shape_rewards("truncate", [1, 1], lengths, token_budget=[100, 70], budget_penalty=2)
    assert shaped.tolist() == [-2, -2]
    overlong = rein.shape_rewards("overlong", [1, 1], lengths, overlong_max=160, overlong_cushion=20)
    assert overlong.tolist() == [0.5, 1]
    length = rein.shape_rewards("k1.5-length", [1, 0], lengths, length_weight=1, correct=[True, False])
    assert length.tolist() == [0.5, 0]
    assert rein.shape_rewards("none", np.ones(2, np.float32), lengths, reward_clip=0.5).dtype == np.float32
    with pytest.raises(ValueError, match="rewards is empty"):
        rein.shape_rewards("none", [], [])
    with pytest.raises(ValueError, match=r"response_lengths has shape \[1\]"):
        rein.shape_rewards("none", [1, 2], [3])


def test_an_argument_that_is_misspelt():
    log_probs = np.full((2, 3), -1.0)
    with pytest.raises(ValueError, match=r"^no argument named reward: did you mean rewards\?"):
        rein.policy_loss("grpo", log_probs, reward=[1, 0])
    with pytest.raises(ValueError, match=r"^no argument named ref_logprobs: did you mean ref_log_probs\?"):
        rein.policy_loss("grpo", log_probs, rewards=[1, 0], ref_logprobs=log_probs)
    with pytest.raises(ValueError, match=r"^epsilom is not an option: did you mean epsilon\?"):
        rein.policy_loss("grpo", log_probs, rewards=[1, 0], epsilom=0.1)


def test_teacher():
    arrays = dict(log_probs=[[-0.5, -1.0], [-2.0, -0.7]], old_log_probs=[[-0.5, -1.0], [-2.0, -0.7]])
    given = dict(mask=[[1, 1], [1, 0]], rewards=[0, 0])
    options = dict(surrogate="clip", teacher_coef=2.0, divergence="jsd")
    divergence = [[0.5, 0.25], [0.125, np.nan]]
    result = rein.policy_loss(options, **arrays, **given, teacher_divergence=divergence)
    assert result.metrics["teacher_divergence"] == pytest.approx((0.5 + 0.25 + 0.125) / 3)
    assert result.loss == pytest.approx(2 * (0.5 + 0.25 + 0.125) / 3)
    np.testing.assert_allclose(result.grad_teacher_divergence, [[2 / 3, 2 / 3], [2 / 3, 0]], rtol=1e-15)
    step = rein.Step(options, arrays["old_log_probs"], **given, teacher_divergence=divergence)
    np.testing.assert_array_equal(step.teacher_gradient(), result.grad_teacher_divergence)
    sampled = rein.policy_loss(
        dict(surrogate="clip", teacher_coef=2.0, teacher_discount=0.5),
        **arrays,
        **given,
        teacher_log_probs=[[-0.7, -1.5], [-1.0, np.nan]],
        return_advantages=True,
    )
    np.testing.assert_allclose(sampled.advantages, [[-2 * (0.2 + 0.5 * 0.5), -2 * 0.5], [2, 0]], atol=1e-15)
    with pytest.raises(ValueError, match="teacher_divergence is missing"):
        rein.policy_loss(options, **arrays, **given)
    with pytest.raises(ValueError, match="teacher_log_probs has no effect"):
        rein.policy_loss(options, **arrays, **given, teacher_divergence=divergence, teacher_log_probs=divergence)


def test_exact_kl():
    arrays = dict(log_probs=[[-0.5, -1.0], [-2.0, -0.7]], old_log_probs=[[-0.5, -1.0], [-2.0, -0.7]])
    given = dict(exact_kl=[[0.5, 0.25], [0.125, np.nan]], mask=[[1, 1], [1, 0]], rewards=[0, 0])
    options = dict(surrogate="clip", kl_estimator="exact", kl_loss_coef=2.0, kl_reward_exact=3.0)
    result = rein.policy_loss(options, **arrays, **given, return_advantages=True)
    assert result.metrics["kl_exact"] == pytest.approx((0.5 + 0.25 + 0.125) / 3)
    assert result.metrics["kl_loss"] == pytest.approx(2 * (0.5 + 0.25 + 0.125) / 3)
    np.testing.assert_allclose(result.advantages, [[-0.75, 0], [0, 0]], atol=1e-15)
    np.testing.assert_allclose(result.grad_exact_kl, [[2 / 3, 2 / 3], [2 / 3, 0]], rtol=1e-15)
    step = rein.Step(options, arrays["old_log_probs"], **given)
    np.testing.assert_array_equal(step.exact_kl_gradient(), result.grad_exact_kl)
    with pytest.raises(ValueError, match="exact_kl is missing"):
        rein.policy_loss(options, **arrays, rewards=[0, 0])
    with pytest.raises(ValueError, match="exact_kl has no effect"):
        rein.policy_loss("dapo", **arrays, **given, overlong_max=8, overlong_cushion=2)
