"""The four operations and the controllers: worked values, a numpy reference, every kind of array, every kind of
mistake."""

import numpy as np
import pytest
import reference

import rein

GENERATOR = np.random.default_rng(1)
BUDGET_ROWS = (
    ([[1, 0.5]], [[-1, -1.5]], [[-1.2, -1.3]], [[150, 80]], 100, 0.1, 0.01, 0.0004),
    ([[1, 2]], [[-0.5, -0.8]], [[-0.5, -0.8]], [[50, 60]], 100, 0.1, 0.01, 0.25),
    (
        [[1, 0.5], [0.8, 1.2]],
        [[-1, -1.2], [-0.8, -0.9]],
        [[-1.1, -1.1], [-0.7, -1]],
        [[120, 80], [90, 110]],
        100,
        0.05,
        0.02,
        0.005525,
    ),
)
GPO_ROWS = (
    ([1.2, 0.8, 1.1], [1, 1, 1], [0.9, 1.1, 1], [1, 0.5, 1.5], 0.2, 0.01, 1.0319499611),
    ([1, 1, 1], [1, 1, 1], [0.5] * 3, [0.5] * 3, 0.2, 0.01, 1.0),
    ([1.1, 0.9, 1], [2, -1.5, 0.5], [0.4, 0.6, 0.5], [0.5] * 3, 0.2, 0.05, 0.4493105249),
)


def budget_batch(shape=(5, 7), dtype=np.float64):
    rewards, log_probs, old = (GENERATOR.normal(0, 1, shape).astype(dtype) for _ in range(3))
    return rewards, log_probs, old, GENERATOR.integers(0, 200, shape)


def layouts(array):
    """The same numbers in other types and layouts."""
    strided = np.repeat(array, 2, axis=-1)[..., ::2]
    locked = array.copy()
    locked.flags.writeable = False
    return {
        "plain": array,
        "list": array.tolist(),
        "fortran": np.asfortranarray(array),
        "strided": strided,
        "read-only": locked,
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
    }


@pytest.mark.parametrize("row", BUDGET_ROWS)
def test_budget_worked_values(row):
    assert rein.rl_budget_loss(*row[:-1]) == pytest.approx(row[-1], abs=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", ["plain", "list", "fortran", "strided", "read-only", "big-endian"])
def test_budget_reference(dtype, layout):
    batch = budget_batch(dtype=dtype)
    loss, gradient = reference.rl_budget_loss(*(a.astype(np.float64) for a in batch), 100, 0.3, 0.01)
    given = [layouts(array)[layout] for array in batch]
    before = [np.array(array) for array in given]
    found, found_gradient = rein.rl_budget_loss(*given, 100, 0.3, 0.01, return_grad=True)
    tolerance = 1e-5 if dtype == np.float32 and layout != "list" else 1e-12
    assert found == pytest.approx(loss, rel=tolerance)
    np.testing.assert_allclose(found_gradient, gradient, rtol=tolerance, atol=tolerance)
    assert found_gradient.dtype == (np.float64 if layout in ("list", "big-endian") else dtype)
    assert rein.rl_budget_loss(*given, 100, 0.3, 0.01) == found
    for array, copy in zip(given, before):
        np.testing.assert_array_equal(array, copy)


def test_budget_ragged_is_rows_alone():
    rows = [[1.0, 0.5, 0.2], [2.0], [0.3, 0.4]]
    log_probs = [[-1.0, -2, -3], [-1.5], [-0.5, -0.6]]
    old = [[-1.1, -2, -2.9], [-1.5], [-0.4, -0.8]]
    lengths = [[150, 80, 99], [120], [7, 300]]
    loss, gradient = rein.rl_budget_loss(rows, log_probs, old, lengths, 100, 0.3, 0.01, return_grad=True)
    total, pieces = 0.0, []
    for row in zip(rows, log_probs, old, lengths):
        alone, piece = reference.rl_budget_loss(*(np.array([x]) for x in row), 100, 0.3, 0.01)
        total += alone * len(row[0]) / 6
        pieces.append(piece[0] * len(row[0]) / 6)
    assert loss == pytest.approx(total, rel=1e-14)
    assert [len(row) for row in gradient] == [3, 1, 2]
    for mine, theirs in zip(gradient, pieces):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13)


def test_budget_for_each_response():
    rewards, log_probs, old, lengths = budget_batch((2, 3))
    budgets = np.array([[10, 20, 30], [40, 50, 60]])
    loss, _ = reference.rl_budget_loss(rewards, log_probs, old, lengths, budgets, 0.3, 0.01)
    assert rein.rl_budget_loss(rewards, log_probs, old, lengths, budgets, 0.3, 0.01) == pytest.approx(loss, rel=1e-14)
    assert rein.rl_budget_loss(rewards, log_probs, old, lengths, budgets.tolist(), 0.3, 0.01) == pytest.approx(loss)


def budget_error(**changes):
    good = {
        "rewards": [[1, 0.5, 2], [0.8, 1.2, 3]],
        "log_probs": [[-1, -1.2, -2], [-0.8, -0.9, -1]],
        "old_log_probs": [[-1.1, -1.1, -2], [-0.7, -1, -1]],
        "response_lengths": [[120, 80, 1], [90, 110, 2]],
        "token_budget": 100,
        "kl_coef": 0.1,
        "budget_penalty_coef": 0.01,
    }
    with pytest.raises(ValueError) as caught:
        rein.rl_budget_loss(**{**good, **changes})
    return str(caught.value)


def test_errors_are_data():
    """Field and position as attributes, in the user's terms: in arrays, in ragged rows, and by the user's name."""
    nan = float("nan")
    ragged = {"rewards": [[1, 2], [nan]], "log_probs": [[-1, -2], [-3]], "old_log_probs": [[-1, -2], [-3]]}
    cases = [
        (
            "rewards",
            (1, 0),
            lambda: rein.rl_budget_loss(
                **ragged, response_lengths=[[1, 2], [3]], token_budget=1, kl_coef=0, budget_penalty_coef=0
            ),
        ),
        ("beta", None, lambda: rein.gpo_objective([1.0], [1.0], [1.0], [1.0], 0.2, -1)),
        ("pi_ref", 1, lambda: rein.gpo_objective([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, -1.0], 0.2, 1)),
        (
            "log_prob_grads",
            (1, 0),
            lambda: rein.rlhf_weight_update([1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [[1.0], [nan]], 0.1, 0.1),
        ),
        ("lengths", 1, lambda: rein.budget_control(0.1, [1, -1], 1, 1)),
    ]
    for field, index, call in cases:
        with pytest.raises(rein.ArgumentError) as caught:
            call()
        assert (caught.value.field, caught.value.index) == (field, index)
        assert isinstance(caught.value, ValueError)
        places = () if index is None else index if isinstance(index, tuple) else (index,)
        assert str(caught.value).startswith(field + "".join(f"[{i}]" for i in places) + " is ")


def test_budget_errors_name_field_and_position():
    nan, inf = float("nan"), float("inf")
    assert budget_error(rewards=[[1, 0.5, 2], [nan, 1.2, 3]]) == "rewards[1][0] is not a finite number"
    assert budget_error(old_log_probs=[[1, 0.5, inf], [1, 1.2, 3]]) == "old_log_probs[0][2] is not a finite number"
    assert budget_error(response_lengths=[[1, 2, 3], [4, -5, 6]]).startswith("response_lengths[1][1] is -5: ")
    assert budget_error(token_budget=[[1, 2, 3], [4, 5, -6]]).startswith("token_budget[1][2] is -6: ")
    assert (
        budget_error(response_lengths=[[1, 2, 3], [4, 5.5, 6]])
        == "response_lengths[1][1] is 5.5: a whole number is needed"
    )
    assert "response_lengths[0][1] is nan" in budget_error(response_lengths=[[1, nan, 3], [4, 5, 6]])
    assert budget_error(kl_coef=-1).startswith("kl_coef is -1: ")
    assert budget_error(kl_coef="x") == "kl_coef is 'x': a number is needed"
    assert budget_error(token_budget=nan).startswith("token_budget is ")
    assert budget_error(log_probs=[[1, 2, 3]]) == "log_probs has shape [1, 3], rewards has [2, 3]: they must agree"
    assert "not finite" in budget_error(kl_coef=1e300)
    ragged = {"rewards": [[1, 2], [3]], "log_probs": [[-1, -2], [-3]], "old_log_probs": [[-1, -2], [-3]]}
    assert budget_error(**ragged) == "response_lengths[0] has 3 entries, rewards[0] has 2: they must agree"
    ragged["response_lengths"] = [[1, 2], [3]]
    assert budget_error(**ragged, token_budget=-1).startswith("token_budget is -1: ")
    assert budget_error(**{**ragged, "log_probs": [[-1, -2], [nan]]}) == "log_probs[1][0] is not a finite number"
    assert budget_error(**{**ragged, "log_probs": [[-1, -2]]}).startswith("log_probs has 1 rows")
    assert (
        budget_error(**{**ragged, "rewards": [[1, 2], []]}) == "rewards[1] is empty: a prompt has at least one response"
    )


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_arrays_are_errors(shape):
    empty = np.empty(shape)
    with pytest.raises(ValueError, match="rewards is empty"):
        rein.rl_budget_loss(empty, empty, empty, empty.astype(int), 100, 0.1, 0.01)
    with pytest.raises(ValueError, match="ratios is empty"):
        rein.gpo_objective(empty, empty, empty, empty, 0.2, 0.1)
    with pytest.raises(ValueError, match="advantages is empty"):
        rein.kl_penalized_advantages(empty, empty, empty, None, 0.1)
    with pytest.raises(ValueError, match="log_probs is empty"):
        rein.policy_loss("dapo", empty, empty, rewards=[1])
    with pytest.raises(ValueError, match="is empty"):
        rein.rlhf_weight_update([], [1], [1], [1], [[]], 1, 1)
    with pytest.raises(ValueError, match="is empty"):
        rein.rlhf_weight_update([1], [], [], [], np.empty((0, 1)), 1, 1)


@pytest.mark.parametrize("row", GPO_ROWS)
def test_gpo_worked_values(row):
    assert rein.gpo_objective(*row[:-1]) == pytest.approx(row[-1], abs=5e-11)


@pytest.mark.parametrize("direction", ["current_over_ref", "ref_over_current"])
@pytest.mark.parametrize("layout", ["plain", "list", "fortran", "strided", "read-only"])
def test_gpo_reference(direction, layout):
    ratios, current, ref = (np.exp(GENERATOR.normal(0, 0.3, (4, 6))) for _ in range(3))
    advantages = GENERATOR.normal(0, 1, (4, 6))
    given = [layouts(array)[layout] for array in (ratios, advantages, current, ref)]
    value = rein.gpo_objective(*given, 0.2, 0.3, kl_direction=direction)
    expected = reference.gpo_objective(ratios, advantages, current, ref, 0.2, 0.3, direction)
    assert value == pytest.approx(expected, rel=1e-12)
    same, gradients = rein.gpo_objective(*given, 0.2, 0.3, kl_direction=direction, return_grad=True)
    assert same == value
    for array, gradient in zip((ratios, current), gradients):
        step = 1e-6
        for place in ((0, 0), (2, 3), (3, 5)):
            moved = array.copy()
            moved[place] += step
            arguments = [moved if other is array else other for other in (ratios, advantages, current, ref)]
            rise = reference.gpo_objective(*arguments, 0.2, 0.3, direction) - expected
            assert gradient[place] == pytest.approx(rise / step, rel=1e-3, abs=1e-6)


def test_gpo_f32_and_errors():
    arrays = [np.full((2, 2), 0.5, np.float32) for _ in range(4)]
    _, gradients = rein.gpo_objective(*arrays, 0.2, 0.1, return_grad=True)
    assert gradients[0].dtype == np.float32
    with pytest.raises(ValueError, match=r"^pi_current\[1\]\[0\] is 0: it must be above 0"):
        rein.gpo_objective(np.ones((2, 2)), np.ones((2, 2)), [[1, 1], [0, 1]], np.ones((2, 2)), 0.2, 0.1)
    with pytest.raises(ValueError, match="kl_direction is 'sideways'"):
        rein.gpo_objective([1], [1], [1], [1], 0.2, 0.1, kl_direction="sideways")
    with pytest.raises(ValueError, match="epsilon is -1"):
        rein.gpo_objective([1], [1], [1], [1], -1, 0.1)
    with pytest.raises(ValueError, match=r"advantages has shape \[2\], ratios has \[1\]"):
        rein.gpo_objective([1], [1, 2], [1], [1], 0.2, 0.1)
    with pytest.raises(ValueError, match="ratios has type"):
        rein.gpo_objective(["a"], [1], [1], [1], 0.2, 0.1)
    with pytest.raises(ValueError, match="ratios has type complex128"):
        rein.gpo_objective([1j], [1], [1], [1], 0.2, 0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", ["plain", "list", "fortran", "strided", "read-only"])
def test_update_reference(dtype, layout):
    arrays = [GENERATOR.normal(0, 1, shape).astype(dtype) for shape in ((9,), (5,), (5,), (5,), (5, 9))]
    expected = reference.rlhf_weight_update(*(a.astype(np.float64) for a in arrays), 0.5, 0.1)
    given = [layouts(array)[layout] for array in arrays]
    updated = rein.rlhf_weight_update(*given, 0.5, 0.1)
    assert updated.dtype == (np.float64 if layout == "list" else dtype)
    np.testing.assert_allclose(updated, expected, rtol=1e-5 if dtype == np.float32 else 1e-13)
    np.testing.assert_array_equal(given[0], arrays[0])


def test_update_worked_value_and_errors():
    good = [[1, 1], [1, 1], [-1.5, -1.5], [-1.5, -1.5], [[0.5, -0.5], [0.5, -0.5]], 1, 0.1]
    np.testing.assert_allclose(rein.rlhf_weight_update(*good), [1.05, 0.95], rtol=1e-15)
    for place, value, message in (
        (4, [[1, 2, 3]], r"log_prob_grads has shape \[1, 3\]: \[2, 2\] is needed"),
        (4, [[1, 2], [3, np.nan]], r"^log_prob_grads\[1\]\[1\] is not a finite number$"),
        (1, [1, np.inf], r"^rewards\[1\] is not a finite number$"),
        (2, [1], r"policy_log_probs has shape \[1\]"),
        (5, -1, "beta is -1"),
        (6, np.nan, "lr is"),
    ):
        bad = list(good)
        bad[place] = value
        with pytest.raises(ValueError, match=message):
            rein.rlhf_weight_update(*bad)


@pytest.mark.parametrize("scope", ["batch", "group", "sequence"])
@pytest.mark.parametrize("packed", [False, True])
def test_kl_advantages_reference(scope, packed):
    shape = (6, 5)
    advantages, log_probs, ref = (GENERATOR.normal(0, 1, shape) for _ in range(3))
    mask = GENERATOR.random(shape) < 0.7
    scopes = {"batch": np.zeros(shape), "group": np.arange(6)[:, None] // 2 + np.zeros(shape)}
    scopes["sequence"] = np.arange(6)[:, None] + np.zeros(shape)
    expected, mean = reference.kl_penalized_advantages(advantages, log_probs, ref, mask, 0.3, scopes[scope])
    log_probs[~mask] = np.nan
    more = {"group_sizes": 2} if scope == "group" else {}
    arrays = [advantages, log_probs, ref, mask]
    if packed:
        arrays = [array.ravel() for array in arrays]
        more.update({"sequence_lengths": [5] * 6} if scope != "batch" else {})
    found, kl = rein.kl_penalized_advantages(*arrays, 0.3, kl_scope=scope, **more)
    np.testing.assert_allclose(found.reshape(shape), expected, rtol=1e-13)
    assert kl == pytest.approx(mean, rel=1e-12) and found.shape == arrays[0].shape


def test_kl_advantages_zero_coefficient_and_errors():
    adjusted, kl = rein.kl_penalized_advantages([1.0, 2.0], None, None, None, 0)
    assert adjusted.tolist() == [1, 2] and kl == 0
    arrays = ([[1.0, 2], [3, 4]], [[-1.0, -2], [-3, np.nan]], [[-1.0, -2], [-3, -4]])
    with pytest.raises(ValueError, match=r"^log_probs\[1\]\[1\] is not a finite number"):
        rein.kl_penalized_advantages(*arrays, None, 0.1)
    rein.kl_penalized_advantages(*arrays, [[1, 1], [1, 0]], 0.1)
    with pytest.raises(ValueError, match=r"^mask\[0\]\[1\] is 2: 0 or 1 is needed"):
        rein.kl_penalized_advantages(*arrays, [[1, 2], [1, 0]], 0.1)
    with pytest.raises(ValueError, match="sequence_lengths is missing"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, 0.1, kl_scope="sequence")
    with pytest.raises(ValueError, match="group_sizes is missing"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, 0.1, kl_scope="group", sequence_lengths=[1])
    with pytest.raises(ValueError, match="group_sizes has no effect"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, 0.1, group_sizes=1)
    with pytest.raises(ValueError, match="sequence_lengths adds up to 3, but there are 1 tokens"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, 0.1, kl_scope="sequence", sequence_lengths=[3])
    with pytest.raises(ValueError, match="kl_penalty_coef is -1"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, -1)
    with pytest.raises(ValueError, match="kl_scope is 'token'"):
        rein.kl_penalized_advantages([1.0], [1], [1], None, 1, kl_scope="token")


def test_controllers():
    assert rein.budget_control(0.01, [150, 80, 220], 100, 1e-4) == pytest.approx(0.015)
    assert rein.budget_control(0.001, np.array([1, 2], np.int32), 100, 1.0) == 0
    with pytest.raises(ValueError, match=r"^lengths\[1\] is -2: "):
        rein.budget_control(0.01, [1, -2], 100, 1e-4)
    with pytest.raises(ValueError, match="lengths is empty"):
        rein.budget_control(0.01, [], 100, 1e-4)
    assert rein.entropy_control(0.01, 0.5, 0.2, 0.005) == pytest.approx(0.005)
    assert rein.entropy_control(0.0, 0.5, 0.2, 0.005) == 0
    with pytest.raises(ValueError, match="mean_entropy"):
        rein.entropy_control(0.01, np.nan, 0.2, 0.005)
