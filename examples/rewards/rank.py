#!/usr/bin/env python3
"""A judge of whole groups: among the responses that contain the answer, the shorter, the better.

    --reward 'group: python3 examples/rewards/rank.py'

All responses to one prompt come in together, so they can be compared with each other: 1 for the shortest right one,
less for each that was beaten, 0 for what is wrong. Equals get the same.
"""

import json
import sys


def judge(request):
    answer, responses = request["answer"], request["responses"]
    lengths = [r["tokens"] if answer and answer in r["response"] else None for r in responses]
    right = [length for length in lengths if length is not None]
    return [
        0.0 if length is None else 1.0 - sum(other < length for other in right) / len(responses) for length in lengths
    ]


for line in sys.stdin.buffer:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "rewards": judge(request)}), flush=True)
