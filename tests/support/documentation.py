"""The Markdown pages of the project as blocks, for the tests that run them (tests/cli/docs.py, tests/python/test_pages.py).

A note is an HTML comment on the lines directly before a block. Readers of the page do not see it. There are four:

    <!-- file: NAME -->             the block is a file that later blocks of the page use
    <!-- not run: REASON -->        the block is not run
    <!-- status: N -->              its commands end with this exit status
    <!-- not compared: REASON -->   the output of the block before is not compared with this one
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTE = re.compile(r"<!-- (file|not run|status|not compared): (.+?) -->")


@dataclass
class Block:
    """A fenced block of a page; `language` is the word after the fence, `line` that of its first line of text."""

    page: str
    line: int
    language: str
    text: str
    notes: dict = field(default_factory=dict)
    follows: bool = False  # only blank lines and notes stand between it and the block before

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def pages():
    """README.md and docs/ first, then the other pages; paths relative to the project."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    found += [ROOT / "CHANGELOG.md", *sorted(ROOT.glob("models/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found if path.exists()]


def read_notes(lines, place):
    """The notes in the lines directly before a fence."""
    notes = {}
    for line in reversed(lines):
        if not line.startswith("<!--"):
            break
        match = NOTE.fullmatch(line.strip())
        if not match:
            raise ValueError(f"{place}: {line.strip()}: tests/support/documentation.py lists the notes")
        notes[match[1]] = match[2]
    return notes


def split(page, text):
    """The blocks of a page, and its other lines as (number, line)."""
    blocks, prose, lines = [], [], text.split("\n")
    number, since = 0, []  # `since`: lines after the last block
    while number < len(lines):
        fence = re.match(r"(\s*)```(\w*)", lines[number])
        if not fence:
            prose.append((number + 1, lines[number]))
            since.append(lines[number])
            number += 1
            continue
        end = number + 1
        while end < len(lines) and lines[end].strip() != "```":
            end += 1
        notes = read_notes(since, f"{page}:{number + 1}")
        follows = bool(blocks) and all(not line.strip() or line.startswith("<!--") for line in since)
        body = [line.removeprefix(fence[1]) for line in lines[number + 1 : end]]
        blocks.append(Block(page, number + 2, fence[2], "\n".join(body) + "\n", notes, follows))
        number, since = end + 1, []
    return blocks, prose


def read(page):
    return split(page, (ROOT / page).read_text())


def same_output(wanted, got):
    """Whether `got` is what the page shows. Blanks and line breaks do not count; … stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("…")]
    return re.fullmatch(r"\s*" + r"\s*.*?\s*".join(parts) + r"\s*", " ".join(got.split()), re.DOTALL) is not None
