"""docs.py REIN: runs the shell blocks and C blocks of every page, compares their output with what the page shows, and checks that
commands, options and links exist. Ends with 'N passed, N failed'.

The blocks of a page run one after the other in a directory of their own, which looks like the project's: models/, examples/ and tests/
are there, MODEL is the shipped model, CHAT_MODEL the same with a chat template, my-run and other-run are short runs of it (unless the page makes my-run itself), problems.jsonl,
examples.jsonl, pairs.jsonl and groups.jsonl are small files. `rein run` makes two small steps whatever the page asks for, and `make`
only checks that the Makefile has the target. Python blocks are run by tests/python/test_pages.py."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from documentation import ROOT, pages, read, same_output  # noqa: E402
from serving import make_model  # noqa: E402

STORIES = ROOT.parent / "shared/models/stories260K"
KNOWN = {"sh", "c", "python", "json", "jsonl", "yaml", "text", "cff"}
WIDEST = 400  # characters of a line of prose; rows of tables cannot be broken
COMMAND = re.compile(r"\s{4,}(\$ )?(build/)?(rein|make|python3?|pip|pkg-config|cc|echo) [^:]")
SHORT_RUN = """#!/bin/bash
# `rein run` makes a short run; every other command is rein itself.
[ "${1-}" = run ] || exec REIN "$@"
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --steps | --prompts | --samples | --eval-prompts | --eval-steps) shift ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
exec REIN "${arguments[@]}" --steps 2 --prompts 4 --samples 4 --eval-prompts 8 --eval-steps 0
"""
CHECK_TARGET = """#!/bin/bash
# `make TARGET NAME=VALUE` checks that the Makefile has the target and uses the name.
for word in "$@"; do
    case $word in
    -*) ;;
    *=*) grep -qE "[$][(]${word%%=*}[)]|^${word%%=*} *[?:]?=" ROOT/Makefile ;;
    *) sed -n '/^.PHONY/,/[^\\\\]$/p' ROOT/Makefile | grep -qw -- "$word" ;;
    esac || { echo "the Makefile has no $word" && exit 1; }
done
"""
FRAGMENT = """#include <rein/rein.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    rein_error err;
    (void)err;
%s}
"""


def with_free_ports(text):
    """The commands, with ports on which nothing listens: another test may run the same page at the same time."""
    for port in sorted(set(re.findall(r"--port ([1-9]\d*)", text))):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            text = re.sub(rf"\b{port}\b", str(s.getsockname()[1]), text)
    return text


class Report:
    """Counts, and prints what failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, title, *details):
        if good:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAIL {title}")
        for detail in details:
            print("     " + "\n     ".join(str(detail).rstrip().split("\n")[:30]))


class Place:
    """Where the blocks of pages run: the tools, and what each page finds in its directory."""

    def __init__(self, rein, top):
        self.rein, self.top = rein, top
        self.tools, self.given = top / "tools", top / "given"
        self.has_stories = STORIES.exists()
        self.tools.mkdir()
        self.given.mkdir()
        self.write_tool("rein", SHORT_RUN)
        self.write_tool("make", CHECK_TARGET)
        self.environment = {
            **os.environ,
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "PKG_CONFIG_PATH": str(top / "prefix/lib/pkgconfig"),
            "LD_LIBRARY_PATH": str(top / "prefix/lib"),
        }
        self.environment.pop("REIN_KERNEL", None)
        self.install()
        self.make_files()

    def write_tool(self, name, text):
        path = self.tools / name
        path.write_text(text.replace("REIN", str(self.rein)).replace("ROOT", str(ROOT)))
        path.chmod(0o755)

    def install(self):
        """The library as `make install` leaves it, for pkg-config."""
        prefix = self.top / "prefix"
        (prefix / "lib/pkgconfig").mkdir(parents=True)
        (prefix / "include").symlink_to(ROOT / "include")
        shared = self.rein.parent / "librein.so"
        for name in ("librein.so", "librein.so.0"):
            (prefix / "lib" / name).symlink_to(shared)
        text = (ROOT / "rein.pc.in").read_text().replace("@PREFIX@", str(prefix)).replace("@VERSION@", "0")
        (prefix / "lib/pkgconfig/rein.pc").write_text(text)

    def make_files(self):
        (self.given / "MODEL").symlink_to(ROOT / "models/sums")
        make_model(self.top)
        (self.given / "CHAT_MODEL").symlink_to(self.top / "chatty")
        if self.has_stories:
            (self.given / "stories260K").symlink_to(STORIES)
        else:
            print(f"{STORIES} is absent: what the pages do with stories260K is not run")
        (self.given / "build").symlink_to(self.tools)
        for name in ("models", "examples", "tests", "scripts"):
            (self.given / name).symlink_to(ROOT / name)
        commands = """
            rein task sums --json --count 60 > problems.jsonl
            rein task sums --demonstrations --json --count 40 > examples.jsonl
            sed -E 's/"completion": ("[^"]*")/"chosen": \\1, "rejected": "no"/' examples.jsonl > pairs.jsonl
            rein run my-run --model MODEL --task sums --preset grpo --max-tokens 64 --learning-rate 1e-3
            rein run other-run --model MODEL --task sums --preset k2 --tau 0.5 --token-budget 36 --budget-penalty-coef 0.02
            cp my-run/trajectories/train/0001.jsonl groups.jsonl
        """
        done = self.shell(commands, self.given)
        if done.returncode:
            raise SystemExit(f"docs.py: its files cannot be made:\n{done.stdout}\n0 passed, 1 failed")

    def directory(self, page, text):
        where = self.top / page.replace("/", "-").removesuffix(".md")
        shutil.copytree(self.given, where, symlinks=True)
        if "rein run my-run --model" in text:
            shutil.rmtree(where / "my-run")
        return where

    def shell(self, text, where):
        """Runs commands. What they leave running ends with them."""
        command = ["bash", "-eu", "-o", "pipefail", "-c", with_free_ports(text)]
        process = subprocess.Popen(
            command, cwd=where, env=self.environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + "\nkilled after 300 s\n"
        return subprocess.CompletedProcess(command, process.returncode, output)

    def program(self, text, where):
        """Compiles a C block, the inside of main() if it has none, and runs it."""
        (where / "block.c").write_text(text if "main(" in text else FRAGMENT % text)
        compile_it = (
            "cc -std=c11 -Wall -Wextra -Werror block.c $(pkg-config --cflags --libs rein) -lm -o block && ./block"
        )
        return self.shell(compile_it, where)


def run_page(report, place, page, blocks):
    where = place.directory(page, "".join(block.text for block in blocks))
    output = None  # of the block before
    for block in blocks:
        if "file" in block.notes:
            path = where / block.notes["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            output = None
        elif block.language in ("sh", "c"):
            skipped = "not run" in block.notes or ("stories260K" in block.text and not place.has_stories)
            output = None if skipped else run_block(report, place, block, where)
        elif block.language in ("text", "json") and block.follows and output is not None:
            if "not compared" not in block.notes:
                good = same_output(block.text, output)
                report.check(good, f"{block.place}: the output is another", "shown:", block.text, "is:", output)
            output = None
        else:
            output = None


def run_block(report, place, block, where):
    """Its output, or None if it failed."""
    done = (place.program if block.language == "c" else place.shell)(block.text, where)
    wanted = int(block.notes.get("status", 0))
    good = done.returncode == wanted
    report.check(good, f"{block.place}: status {done.returncode}, not {wanted}", block.text, done.stdout)
    return done.stdout if good else None


def check_blocks(report, page, blocks, prose):
    """Every block has a known language, data can be read, and no command stands outside of a block that is run."""
    for block in blocks:
        report.check(block.language in KNOWN, f"{block.place}: a block of {block.language or 'no language'}: {KNOWN}")
        if block.language == "jsonl":
            for number, line in enumerate(block.text.splitlines()):
                report.check(reads(line), f"{page}:{block.line + number}: not JSON", line)
    for number, line in prose:
        report.check(not COMMAND.match(line), f"{page}:{number}: a command outside of a ```sh block", line)
        report.check(line.startswith("|") or len(line) <= WIDEST, f"{page}:{number}: {len(line)} characters in a line")


def reads(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    return {slug(line.lstrip("#")) for _, line in read(page)[1] if line.startswith("#")}


def check_links(report, page, prose):
    for number, line in prose:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            whole = (ROOT / page).parent / path if path else ROOT / page
            good = whole.exists()
            if good and anchor:
                good = anchor in anchors(os.path.relpath(whole.resolve(), ROOT))
            report.check(good, f"{page}:{number}: {target} does not exist")


def options_of(place):
    """The options of each command, from its help."""
    listed = place.shell("rein --help", place.given).stdout
    names = re.findall(r"^  ([a-z]+) ", listed.split("Commands:")[1].split("Options:")[0], re.MULTILINE)
    helps = {name: place.shell(f"{place.rein} {name} --help", place.given).stdout for name in names}
    return {name: set(re.findall(r"--[a-z][\w-]*", text)) for name, text in helps.items()}


def check_options(report, known, page, prose):
    """In the text, `rein COMMAND --option` names a command that exists and options that it has."""
    every = set().union(*known.values()) | {"--help", "--version"}
    for number, line in prose:
        for code in re.findall(r"`([^`]+)`", line):
            words = re.match(r"rein ([a-z]+)(?= |$)", code)
            if words:
                report.check(words[1] in known, f"{page}:{number}: rein has no command {words[1]}", code)
            allowed = known.get(words[1], every) if words else every
            if words or re.match(r"--[a-z]", code):
                for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
                    report.check(option in allowed | {"--help"}, f"{page}:{number}: no option {option}", code)


def check_index(report):
    """docs/README.md leads to every page."""
    index = (ROOT / "docs/README.md").read_text()
    for path in sorted((ROOT / "docs").glob("*.md")):
        report.check(path.name == "README.md" or f"({path.name})" in index, f"docs/README.md does not list {path.name}")


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as top:
        place = Place(Path(sys.argv[1]).resolve(), Path(top))
        known = options_of(place)
        check_index(report)
        for page in sys.argv[2:] or pages():
            blocks, prose = read(page)
            check_blocks(report, page, blocks, prose)
            check_links(report, page, prose)
            check_options(report, known, page, prose)
            run_page(report, place, page, blocks)
    print(f"{report.passed} passed, {report.failed} failed")
    return report.failed > 0


if __name__ == "__main__":
    sys.exit(main())
