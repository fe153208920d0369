"""Every chat template of the packages, run by rein and by jinja2 as transformers sets it up: byte for byte the same
text, or an error of both."""

import datetime
import json
import os
import random
import subprocess

import pytest

pytest.importorskip("jinja2", reason="SKIPPED LOUDLY: the Python package jinja2 is not installed")
utilities = pytest.importorskip(
    "transformers.utils.chat_template_utils", reason="SKIPPED LOUDLY: the Python package transformers is not installed"
)

import conversations  # noqa: E402
from published import EVERYTHING, NAMES, fetch  # noqa: E402
from test_tokenizers import compile_program  # noqa: E402

DRAWN = int(os.environ.get("REIN_PARITY_CONVERSATIONS", "1000" if EVERYTHING else "100"))
NOW = datetime.datetime(2026, 11, 18, 9, 5, 7)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


@pytest.fixture(scope="session")
def program():
    return compile_program("render")


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch):
    monkeypatch.setattr(utilities, "datetime", Clock)


def templates_of(config):
    """(name, template) of all that tokenizer_config.json has."""
    given = config.get("chat_template")
    if isinstance(given, str):
        return [("default", given)]
    return [(entry["name"], entry["template"]) for entry in given or []]


def tokens_of(config):
    """The special tokens that transformers gives a template."""
    names = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
    found = {name: config[name] for name in names if config.get(name)}
    return {name: token["content"] if isinstance(token, dict) else token for name, token in found.items()}


def cases(template, tokens):
    draw = random.Random(7)
    for name, messages, tools in [*conversations.fixed(), *conversations.drawn(DRAWN, 8)]:
        for prompt in (True, False):
            yield {
                "name": name,
                "template": template,
                "tokens": tokens,
                "messages": messages,
                "tools": tools,
                "documents": draw.choice([None, None, conversations.DOCUMENTS]),
                "variables": conversations.variables(draw),
                "add_generation_prompt": prompt,
                "date": NOW.strftime("%Y-%m-%d %H:%M:%S"),
            }


def by_transformers(case):
    try:
        return utilities._compile_jinja_template(case["template"]).render(
            messages=case["messages"],
            tools=case["tools"],
            documents=case["documents"],
            add_generation_prompt=case["add_generation_prompt"],
            **case["tokens"],
            **case["variables"],
        )
    except Exception as error:  # whatever it is: both must refuse
        return error


def by_rein(program, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    said = subprocess.run([program], input=lines, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    answers = [json.loads(line) for line in said.split("\n")[:-1]]
    assert len(answers) == len(rows)
    return answers


def compare(program, title, template, tokens):
    """How many texts were compared, how many both refuse, and how many differ, which are printed."""
    rows = list(cases(template, tokens))
    wrong = refused = 0
    for row, answer in zip(rows, by_rein(program, rows)):
        expected = by_transformers(row)
        refused += isinstance(expected, Exception) and "error" in answer
        error = answer.get("error", "")
        assert "not supported" not in error or "refuses this conversation" in error, answer
        if isinstance(expected, Exception) != ("error" in answer) or ("text" in answer and answer["text"] != expected):
            wrong += 1
            if wrong <= 5:
                print(
                    f"{title}, {row['name']}, {row['variables']}:\n  rein         {answer}\n  transformers {expected!r}"
                )
    return len(rows), refused, wrong


@pytest.mark.parametrize("package", NAMES)
def test_templates(program, package):
    config = json.loads((fetch(package) / "tokenizer_config.json").read_text(encoding="utf-8"))
    found = templates_of(config)
    for name, template in found:
        texts, refused, wrong = compare(program, f"{package}, {name}", template, tokens_of(config))
        print(f"{package}, {name}: {wrong} of {texts} conversations differ, both refuse {refused}")
        assert wrong == 0
        assert refused < texts  # something was rendered
    if not found:
        print(f"{package}: no chat template")
