"""capitals.py MODEL [STEPS]: a small chat model learns to answer questions about capitals, correctly and briefly.

This is a script for ART; nothing in it is about rein. `python -m rein.art capitals.py MODEL` runs it without a GPU.
MODEL is a directory; get.sh fetches one."""

import asyncio
import sys

import art
from art.local import LocalBackend

TRAIN = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo", "China": "Beijing",
    "Russia": "Moscow", "England": "London", "Egypt": "Cairo", "Greece": "Athens", "Ireland": "Dublin",
    "Cuba": "Havana",
}  # fmt: skip
HELD_OUT = {
    "Portugal": "Lisbon", "Poland": "Warsaw", "Austria": "Vienna", "Norway": "Oslo", "Sweden": "Stockholm",
    "Hungary": "Budapest", "Canada": "Ottawa", "Peru": "Lima",
}  # fmt: skip
SAMPLES = 8


async def ask(model, country, capital):
    """One answer. Its reward is 1 if it has the right city, minus 0.05 for each word."""
    messages = [{"role": "user", "content": f"What is the capital of {country}?"}]
    completion = await model.openai_client().chat.completions.create(
        messages=messages, model=model.get_inference_name(), max_tokens=20, temperature=1
    )
    choice = completion.choices[0]
    text = choice.message.content or ""
    right, words = capital in text, len(text.split())
    return art.Trajectory(
        messages_and_choices=[*messages, choice],
        reward=right - 0.05 * words,
        metrics={"right": right, "words": words},
    )


async def ask_all(model, capitals):
    """A group of answers to each question."""
    return await art.gather_trajectory_groups(
        art.TrajectoryGroup(ask(model, *pair) for _ in range(SAMPLES)) for pair in capitals.items()
    )


def show(title, groups):
    answers = [trajectory for group in groups for trajectory in group]
    means = {name: sum(one.metrics[name] for one in answers) / len(answers) for name in ("right", "words")}
    text = (answers[0].messages_and_choices[-1].message.content or "").replace("\n", " ")[:60]
    print(f"{title}: {100 * means['right']:.0f} % right, {means['words']:.1f} words, for example: {text}", flush=True)


async def main(base_model, steps):
    async with LocalBackend(path=".art") as backend:
        model = art.TrainableModel(name="capitals", project="examples", base_model=base_model)
        await model.register(backend)
        for step in range(await model.get_step(), steps + 1):
            if step in (0, steps):
                held_out = await ask_all(model, HELD_OUT)
                await model.log(held_out, split="val")
                show(f"held out, step {step}", held_out)
            if step == steps:
                break
            groups = await ask_all(model, TRAIN)
            result = await backend.train(
                model, groups, learning_rate=2e-4, kl_penalty_coef=0.05, kl_penalty_reference_step=0
            )
            await model.log(groups, metrics=result.metrics, step=result.step, split="train")
            show(f"step {result.step}", groups)


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12))
