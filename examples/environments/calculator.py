#!/usr/bin/env python3
"""An environment with a tool: the model answers an arithmetic question, and may call a calculator before it does.

    --task 'env: python3 examples/environments/calculator.py'

The chat template of the model shows it the tool, and calls come back as `tool_calls`, as in OpenAI's API. The reward
is 1 for the right number, and 0.1 for a call that the calculator could answer, once in an episode.
"""

import ast
import json
import operator
import random
import re
import sys

TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Computes an arithmetic expression",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "such as 12 * (3 + 4)"}},
            "required": ["expression"],
        },
    },
}
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}

games = {}  # by episode: the right answer, and whether a call was rewarded


def compute(node):
    """The value of a parsed expression of whole numbers, +, - and *; what a model writes is never evaluated as code."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**9:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](compute(node.left), compute(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](compute(node.operand))
    raise ValueError("only whole numbers, +, - and *")


def call(function):
    """What the calculator answers, and whether it could."""
    try:
        expression = json.loads(function["arguments"])["expression"]
        if function["name"] != "calculate" or len(expression) > 100:
            raise ValueError("there is one tool, calculate")
        return str(compute(ast.parse(expression, mode="eval").body)), True
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        return f"error: {error}", False


def reset(event):
    dice = random.Random(f"{event['seed']} {event['split']} {event['index']}")
    a, b, c = dice.randint(12, 99), dice.randint(12, 99), dice.randint(2, 9)
    games[event["episode"]] = [a * c + b, False]
    question = f"What is {a} * {c} + {b}? Use the tool, then answer with the number."
    return {"messages": [{"role": "user", "content": question}], "tools": [TOOL]}


def step(event):
    game = games[event["episode"]]
    calls = event["message"].get("tool_calls")
    if not calls:
        numbers = re.findall(r"-?\d+", event["message"]["content"] or "")
        right = bool(numbers) and int(numbers[-1]) == game[0]
        return {"messages": [], "reward": float(right), "done": True}
    messages, reward = [], 0.0
    for one in calls:
        text, could = call(one["function"])
        messages.append({"role": "tool", "tool_call_id": one["id"], "content": text})
        if could and not game[1]:
            reward, game[1] = 0.1, True
    return {"messages": messages, "reward": reward, "done": False}


for line in sys.stdin.buffer:
    event = json.loads(line)
    if event["event"] == "describe":
        answer = {"train": None, "held_out": None}
    elif event["event"] == "reset":
        answer = reset(event)
    elif event["event"] == "step":
        answer = step(event)
    else:
        answer = {"reward": 0}
    if answer.get("done") or event["event"] == "end":
        games.pop(event["episode"])
    if "episode" in event:
        answer["episode"] = event["episode"]
    print(json.dumps(answer), flush=True)
