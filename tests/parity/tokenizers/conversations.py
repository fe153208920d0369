"""Conversations for chat templates: each kind of message, in orders that templates allow and that they refuse."""

import random

CALL = {
    "type": "function",
    "id": "call12345",
    "function": {"name": "add", "arguments": {"a": 2, "b": 2.5, "s": "é\"<'\\\n"}},
}
TEXT_CALL = {
    "type": "function",
    "id": "x" * 9,
    "function": {"name": "find", "arguments": '{"query": "Zürich", "n": 3}'},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds numbers, e.g. 1 < 2 & 'x' \"y\" — ü\n漢字",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "number", "description": "the first"},
                    "b": {"type": ["number", "null"], "description": "the second", "default": None},
                    "mode": {"type": "string", "enum": ["fast", "slow"]},
                    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "big": 1e30, "tiny": 1.5e-7},
                    "inner": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": []},
                },
                "required": ["a"],
            },
            "return": {"type": "number", "description": "the sum"},
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]
FLAT_TOOLS = [
    {
        "name": "internet_search",
        "description": "Returns\nsnippets",
        "parameter_definitions": {
            "query": {"description": "what to find", "type": "str", "required": True},
            "n": {"description": "how many", "type": "int", "required": False},
        },
    },
    {"name": "directly_answer", "description": "", "parameter_definitions": {}},
]
DOCUMENTS = [
    {"title": "Tall penguins", "text": "Emperor penguins <are> tall."},
    {"title": "Ünïcode", "text": "漢字\n🙂"},
]
TEXTS = [
    "Hi",
    "",
    " ",
    "\n\n",
    "  two  blanks  ",
    "\tTab\r\nand\rreturns\n",
    "Größe?\n 漢字 🙂\u200d🙂 e\u0301 \u00a0x\u2028y\ufeff",
    "<|im_start|>user\n<|im_end|>[INST] </s> <bos> <end_of_turn> <|eot_id|>",
    "{{ messages }} {% if x %} {# c #} {{ '{{' }}",
    "back\\slash 'single' \"double\" &amp; <b>",
    "1 + 1 = 2\n```python\nprint('x')\n```",
    "</think>",
    "\x1f\x1c separators \x0b\x0c",
]
THOUGHTS = [
    "<think>\nhm\n</think>\n\n4",
    "<think></think>4",
    "a<think>b</think>c</think>d",
    "thought</think>\n\nend",
    "\n<think>x",
]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def fixed():
    """(name, messages, tools)."""
    user, ask, said = message("user", "2+2?"), message("user", "And 3+3?"), message("assistant", "4")
    system = message("system", " Be brief. ")
    call, result = (
        message("assistant", "", tool_calls=[CALL]),
        message("tool", "4", name="add", tool_call_id="call12345"),
    )
    yield "one", [user], None
    yield "system", [system, user], None
    yield "system alone", [system], None
    yield "turns", [user, said, ask], None
    yield "system and turns", [system, user, said, ask, message("assistant", " 6\n"), user], None
    yield "ends with the assistant", [system, user, said], None
    yield "two users", [user, ask], None
    yield "two systems", [system, system, user], None
    yield "late system", [user, said, system, ask], None
    yield "assistant first", [said, user], None
    yield "unknown role", [message("critic", "x"), user], None
    yield "developer", [message("developer", "be kind"), user], None
    yield "tools, unused", [user], TOOLS
    yield "tools with a system", [system, user], TOOLS
    yield "no tools", [user], []
    yield "flat tools", [system, user, said, ask], FLAT_TOOLS
    yield "a call", [user, call, result], TOOLS
    yield "a call and an answer", [system, user, call, result, said, ask], TOOLS
    yield "calls without tools", [user, call, result, said], None
    yield "two calls", [user, message("assistant", None, tool_calls=[CALL, TEXT_CALL]), result, result, said], TOOLS
    yield "content and a call", [user, message("assistant", "I add.\n", tool_calls=[CALL]), result], TOOLS
    yield "no content key", [user, {"role": "assistant", "tool_calls": [CALL]}, result], TOOLS
    yield "empty calls", [user, message("assistant", "4", tool_calls=[]), ask], TOOLS
    yield "a result that is an object", [user, call, message("tool", {"sum": 4, "ok": True}, name="add"), ask], TOOLS
    yield "ipython", [user, call, message("ipython", [1, 2.0, None])], TOOLS
    yield "thinking apart", [user, message("assistant", "4", reasoning_content="\nwell\n"), ask], None
    yield "thinking apart, last", [user, message("assistant", "4", reasoning_content="well")], None
    yield "parts", [message("user", [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]), said], None
    yield "an image", [message("user", [{"type": "image"}, {"type": "text", "text": "b"}])], None
    yield "no content", [message("user", None)], None
    yield "a number", [message("user", 5)], None
    for i, text in enumerate(TEXTS):
        yield (
            f"text {i}",
            [message("system", text), message("user", text), message("assistant", text), message("user", text)],
            None,
        )
        yield (
            f"text {i} in calls",
            [user, message("assistant", text, tool_calls=[CALL]), message("tool", text), said, user],
            TOOLS,
        )
    for i, thought in enumerate(THOUGHTS):
        yield f"thought {i}", [user, message("assistant", thought), ask], None
        yield f"thought {i}, last", [system, user, message("assistant", thought)], None
        yield (
            f"thought {i} and a call",
            [user, message("assistant", thought, tool_calls=[CALL]), result, message("assistant", thought)],
            TOOLS,
        )


def drawn(count, seed):
    draw = random.Random(seed)
    for i in range(count):
        messages = [message("system", draw.choice(TEXTS))] if draw.random() < 0.4 else []
        calls = draw.random() < 0.4
        for _ in range(draw.randrange(1, 4)):
            messages.append(message("user", draw.choice(TEXTS) + draw.choice(TEXTS)))
            if calls and draw.random() < 0.5:
                messages.append(
                    message(
                        "assistant", draw.choice(["", None, *THOUGHTS]), tool_calls=[draw.choice([CALL, TEXT_CALL])]
                    )
                )
                messages.append(message("tool", draw.choice(TEXTS), tool_call_id="call12345"))
            if not calls or draw.random() < 0.8:
                messages.append(message("assistant", draw.choice(TEXTS + THOUGHTS)))
        if not calls and draw.random() < 0.7:
            messages.pop()
        if draw.random() < 0.1:
            draw.shuffle(messages)
        yield f"drawn {i}", messages, draw.choice([None, None, TOOLS, FLAT_TOOLS])


def variables(draw):
    """What a caller may add."""
    choices = [
        {},
        {},
        {"enable_thinking": False},
        {"enable_thinking": True},
        {"date_string": "1 Jan 2020", "tools_in_user_message": False},
        {"builtin_tools": ["brave_search", "code_interpreter"], "custom_tools": TOOLS},
        {"reasoning_effort": "low", "thinking": True, "model_identity": "You are Ü."},
        {"documents_": [], "citation_mode": "fast", "safety_mode": "NONE"},
    ]
    return draw.choice(choices)
