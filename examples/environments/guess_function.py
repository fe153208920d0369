"""The guessing game as a Python function: rein.rollout plays it, and a run on the disk trains on it.

python examples/environments/guess_function.py [MODEL [RUN [STEPS]]]

The function is called once for each episode, and plays it from the first message to the reward. The same command again
resumes the run, bit for bit.
"""

import asyncio
import re
import sys
from pathlib import Path

import rein

SUMS = Path(__file__).parents[2] / "models/sums"
NUMBERS = [1, 2, 3] * 3


def say(text):
    return {"role": "user", "content": text}


async def play(client, number):
    messages = [say("I think of a whole number from 1 to 3. Answer with the number only.")]
    for guesses in range(2):
        answer = await client.chat.completions.create(messages=messages, max_tokens=12)
        message = answer.choices[0].message
        found = re.findall(r"\d", message.content)
        guess = int(found[0]) if found else None
        if guess == number:
            return 1 - 0.1 * guesses, {"found": 1}
        hint = "That is not a number." if guess is None else "Higher." if guess < number else "Lower."
        messages += [message, say(hint)]
    return 0, {"found": 0}


async def main(model=SUMS, directory="guess-run", steps="30"):
    chat = {"chat_format": "raw"} if Path(model) == SUMS else {}  # it has no chat template
    with rein.open_run(directory, model=model, preset="grpo", learning_rate=1e-3, **chat) as run:
        while run.step < int(steps):
            groups = await rein.rollout(run, play, NUMBERS, samples=8, max_turns=2, max_tokens=24)
            made = run.train(groups)
            print(f"step {made['step']:2}   reward {made['reward']:.3f}   found {groups.metrics['found']:.2f}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
