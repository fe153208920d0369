"""Published chat templates are recognised, and rendered as Jinja renders them: what stands in
tests/model/fixtures/tokenizer_chat is what
the templates of today's packages make."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="SKIPPED LOUDLY: the Python package jinja2 is not installed")

from published import HOME, ROOT, fetch
from test_tokenizers import compile_program

FIXTURES = ROOT / "tests" / "model" / "fixtures" / "tokenizer_chat"


@pytest.fixture(scope="session")
def recognise():
    return compile_program("recognise")


@pytest.mark.parametrize("name, expected", [("qwen2_5", "qwen2.5"), ("qwen3", "qwen3"), ("llama3_2", "llama3.1")])
def test_recognised(recognise, name, expected):
    said = subprocess.run([recognise, fetch(name)], capture_output=True, text=True, check=True).stdout
    format_name, system = said.rstrip("\n").split("\t")
    assert format_name == expected
    assert system == (
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant." if name == "qwen2_5" else ""
    )


def test_changed_default_system(recognise, tmp_path):
    """A fine-tune that changes the default system message is still qwen2.5; one that changes anything else is not."""
    source = fetch("qwen2_5")
    (tmp_path / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    config = json.loads((source / "tokenizer_config.json").read_text())
    template = config["chat_template"]
    old = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    config["chat_template"] = template.replace(
        old, "Please reason step by step, and put your final answer within \\\\boxed{}."
    )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    said = subprocess.run([recognise, tmp_path], capture_output=True, text=True, check=True).stdout
    assert said == "qwen2.5\tPlease reason step by step, and put your final answer within \\boxed{}.\n"
    config["chat_template"] = template.replace("<tool_call>", "<call>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    said = subprocess.run([recognise, tmp_path], capture_output=True, text=True)
    assert said.returncode == 1 and "give that name" in said.stderr


def test_fixture_is_what_jinja_makes():
    for name in ("qwen2_5", "qwen3", "llama3_2"):
        fetch(name)
    spec = importlib.util.spec_from_file_location("chat_cases", FIXTURES / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    written = [json.loads(line) for line in (FIXTURES / "cases.jsonl").read_text().rstrip("\n").split("\n")]
    assert list(generate.cases(Path(HOME))) == written
