"""How likely a policy finds the stories that the model wrote before training: python3 drift.py REIN RUN MODEL

The stories are those of the run's first evaluation, RUN/trajectories/eval/0000.jsonl; `rein score` gives their
log-probabilities under the model and under the run's last checkpoint. The difference is KL(model‖policy) per token.
"""

import json
import subprocess
import sys
from pathlib import Path


def stories(run):
    """One line per story, in the format of `rein score`."""
    groups = map(json.loads, (Path(run) / "trajectories/eval/0000.jsonl").read_text().splitlines())
    for group in groups:
        for story in group["trajectories"]:
            yield json.dumps({key: story[key] for key in ("prompt_ids", "response_ids")})


def mean(lines, *policy):
    """The mean of the log-probabilities of all tokens, and their number."""
    output = subprocess.run([*policy], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True).stdout
    numbers = [x for line in output.splitlines() for x in json.loads(line)["logprobs"] if x is not None]
    return sum(numbers) / len(numbers), len(numbers)


def main(rein, run, model):
    lines = list(stories(run))
    last = max((Path(run) / "checkpoints").glob("[0-9]*[0-9]"), key=lambda path: int(path.name))
    score = [rein, "score", "--model", model]
    before, tokens = mean(lines, *score)
    after, _ = mean(lines, *score, "--adapter", last)
    print(f"log-probability of {len(lines)} stories that the model wrote before, nats per token ({tokens} tokens)")
    for name, value in ("the model", before), (last.name, after), ("difference", after - before):
        print(f"  {name:12} {value:+.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
