#!/usr/bin/env python3
"""A judge in Python: 1 for the right answer between <answer> and </answer>, 0.1 for a wrong one there, 0 for none.

    --reward 'python3 examples/rewards/judge.py'

One JSON object a line comes in for each response, one goes out; docs/rewards.md has the fields. Import what is slow
to load at the top: the program is started once. What it prints to stderr is shown with its name.
"""

import json
import re
import sys


def judge(request):
    found = re.search(r"<answer>(.*?)</answer>", request["response"], re.DOTALL)
    if not found:
        return 0.0
    return 1.0 if found[1].strip() == request["answer"] else 0.1


for line in sys.stdin.buffer:  # bytes: the lines are UTF-8, whatever the locale says
    request = json.loads(line)
    # flush: an answer that waits in a buffer is an answer that does not come
    print(json.dumps({"id": request["id"], "reward": judge(request)}), flush=True)
