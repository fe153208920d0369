"""A tour of rein in numpy: the four operations, a policy loss with its gradient, presets, and a step in micro-batches.

python examples/python/numpy_tour.py
"""

import numpy as np

import rein


def title(text):
    print(f"\n{text}\n{'-' * len(text)}")


def four_operations():
    title("1. The four operations")
    loss, gradient = rein.rl_budget_loss(
        rewards=[[1, 0.5], [0.8, 1.2]],
        log_probs=[[-1, -1.2], [-0.8, -0.9]],
        old_log_probs=[[-1.1, -1.1], [-0.7, -1]],
        response_lengths=[[120, 80], [90, 110]],
        token_budget=100,
        kl_coef=0.05,
        budget_penalty_coef=0.02,
        return_grad=True,
    )
    print(f"budget-constrained loss   {loss:.6f}, its gradient {gradient.round(5).tolist()}")
    objective = rein.gpo_objective([1.1, 0.9, 1], [2, -1.5, 0.5], [0.4, 0.6, 0.5], [0.5, 0.5, 0.5], 0.2, 0.05)
    print(f"group policy objective    {objective:.6f}")
    weights = rein.rlhf_weight_update([1, 1], [1, 1], [-1.5, -1.5], [-1.5, -1.5], [[0.5, -0.5], [0.5, -0.5]], 1, 0.1)
    print(f"RLHF weight update        {weights.tolist()}")
    advantages, kl = rein.kl_penalized_advantages([1, 1, -1], [-0.5, -1, -2], [-1, -1, -1.5], [1, 1, 1], 0.1)
    print(f"KL-penalised advantages   {advantages.round(4).tolist()}, mean KL {kl:.3f}")


def sampled_batch():
    """Two prompts with four answers each, padded to twelve tokens. Padding is NaN, which is never read."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(4, 13, 8)
    mask = np.arange(12) < lengths[:, None]
    old = np.where(mask, generator.normal(-1, 0.4, (8, 12)), np.nan).astype(np.float32)
    current = old + generator.normal(0, 0.15, old.shape).astype(np.float32)
    ref = old + generator.normal(0, 0.1, old.shape).astype(np.float32)
    return current, old, ref, mask, generator.integers(0, 2, 8).astype(float)


def policy_losses():
    title("2. One batch, every preset that needs nothing more")
    current, old, ref, mask, rewards = sampled_batch()
    print(f"{'preset':15}{'loss':>10}{'|gradient|':>12}{'clipped':>9}{'KL to ref':>11}")
    for name in rein.presets():
        if rein.explain(name).required or name in ("ppo", "online-dpo"):  # they need a critic's values, and pairs
            continue
        result = rein.policy_loss(name, current, old, ref_log_probs=ref, mask=mask, rewards=rewards, group_sizes=4)
        metrics = result.metrics
        clipped = metrics["clip_low"] + metrics["clip_high"]
        size = float(np.abs(result.grad_log_probs).sum())
        print(f"{name:15}{result.loss:10.4f}{size:12.4f}{clipped:9.1%}{metrics['kl_ref_k3']:11.4f}")


def micro_batches():
    title("3. A step in micro-batches: every split gives the same bits")
    current, old, ref, mask, rewards = sampled_batch()
    whole = rein.policy_loss("grpo", current, old, ref_log_probs=ref, mask=mask, rewards=rewards, group_sizes=4)
    step = rein.Step("grpo", old, ref_log_probs=ref, mask=mask, rewards=rewards, group_sizes=4)
    parts = [step.loss(current[first:last], first, last) for first, last in ((0, 3), (3, 4), (4, 8))]
    print(f"whole {whole.loss:.9f}, in three parts {step.finish().loss:.9f}")
    print(f"gradients equal: {np.array_equal(np.concatenate(parts), whole.grad_log_probs)}")


def budget():
    title("4. A budget as a constraint: dual ascent on the mean length")
    multiplier, mean = 0.0, 277.0
    for step in range(5):
        multiplier = rein.budget_control(multiplier, [int(mean)], target_length=180, step_size=1e-5)
        print(f"mean length {mean:5.0f}   penalty per token {multiplier:.5f}")
        mean -= 40 - 5 * step


def explanation():
    title("5. The description of a preset")
    print(rein.explain("grpo"))
    title("6. Error messages")
    for name, options in (("grpo", {"epsilom": 0.1}), ("grpo", {"tau": 0.1}), ("k2", {})):
        try:
            rein.Options(name, **options).resolve()
        except ValueError as problem:
            print(f"{name} with {options or 'nothing'}: {problem}")


if __name__ == "__main__":
    print(f"rein {rein.__version__}")
    four_operations()
    policy_losses()
    micro_batches()
    budget()
    explanation()
