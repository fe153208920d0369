"""Reinforcement learning of a language model in a custom loop: sample, reward, forward_backward, optim_step.

python examples/python/custom_loop.py [MODEL_DIRECTORY [OUTPUT_DIRECTORY]]

The task is so simple that every model can learn it in seconds: repeat the same token. The default model is a tiny
fixture of the tests, so prompts are token ids; with a tokenizer they can be texts or lists of chat messages.
"""

import sys
from pathlib import Path

import rein

TINY = Path(__file__).parents[2] / "tests/model/fixtures/engine/llama"
PROMPTS = [[1, 5], [1, 9, 4], [1, 12, 3, 8], [1, 20]]


def reward(sample):
    return 1 - len(set(sample.response_ids)) / len(sample.response_ids)


def main(model=TINY, output=None):
    policy = rein.Policy(model, lora_rank=8, seed=1)
    reference = policy.copy()
    for step in range(20):
        groups = policy.sample(PROMPTS, samples=16, max_tokens=12, step=step)
        trajectories = [[sample.trajectory(reward(sample)) for sample in group] for group in groups]
        result = policy.forward_backward(trajectories, "grpo", reference=reference, kl_loss_coef=0.01)
        if not result.nothing_to_train:
            policy.optim_step(learning_rate=0.01)
        if step % 3 == 0 or step == 19:
            kl = result.metrics["kl_ref_k3"]
            print(f"step {step:2}   reward {result.metrics['reward']:.3f}   KL to the reference {kl:.3f}")
    if output:
        policy.save(output)  # an adapter that PEFT loads


if __name__ == "__main__":
    main(*sys.argv[1:])
