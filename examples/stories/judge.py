"""A judge of stories, for `rein run --reward 'python3 judge.py BUDGET'`: 1 if the story ended by itself, within BUDGET
tokens and with a complete last sentence; otherwise 0.

For each response rein writes a line of JSON and reads a line: docs/rewards.md has the protocol.
"""

import json
import sys

CLOSING = "\"'”’)"  # may follow the full stop
FULL_STOPS = (".", "!", "?")


def is_right(story, budget):
    if story["truncated"] or story["tokens"] > budget:
        return False
    return story["response"].rstrip().rstrip(CLOSING).endswith(FULL_STOPS)


def main():
    budget = int(sys.argv[1])
    for line in sys.stdin:
        story = json.loads(line)
        print(json.dumps({"id": story["id"], "reward": float(is_right(story, budget))}), flush=True)


if __name__ == "__main__":
    main()
