#!/usr/bin/env python3
"""A judge in Python: 1 for the right answer between <answer> and </answer>, 0.1 for a wrong one there, 0 for none.

    --reward 'python3 examples/rewards/judge.py'

Each response is a line of JSON on stdin; the answer is a line of JSON on stdout. docs/rewards.md has the fields. The
program is started once, so import slow modules at the top. rein shows what it prints to stderr, with its name.
"""

import json
import re
import sys


def judge(request):
    found = re.search(r"<answer>(.*?)</answer>", request["response"], re.DOTALL)
    if not found:
        return 0.0
    return 1.0 if found[1].strip() == request["answer"] else 0.1


for line in sys.stdin.buffer:  # bytes: the lines are UTF-8 in every locale
    request = json.loads(line)
    # flush: otherwise the answer would stay in the buffer
    print(json.dumps({"id": request["id"], "reward": judge(request)}), flush=True)
