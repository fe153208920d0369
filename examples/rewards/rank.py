#!/usr/bin/env python3
"""A judge of whole groups: among the responses that contain the answer, the shorter, the better.

    --reward 'group: python3 examples/rewards/rank.py'

All responses to one prompt arrive together, so they can be compared: 1 for the shortest correct one, less for each
longer one, 0 for wrong ones. Responses of equal length get the same reward.
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
