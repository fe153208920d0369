#!/usr/bin/env python3
"""mutate.py [--count N] [--seed N] [--files N] [SOURCE...]: does a test notice when the code is wrong?

Makes small mistakes in a source, one at a time: a comparison or an operator is another, a condition is negated, a call
is left out. For each, the tests of its folder (tests/FOLDER/test_*.c) are built and run until one fails; those that
bear its name come first. A mistake that no test notices survives, and is printed. Without SOURCE, N files of src/base,
src/train, src/report and src/rollout are drawn. Works in a copy of the tree, with the objects of build/.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDERS = ["src/base", "src/train", "src/report", "src/rollout"]
# What stands in the code, and what is put in its place.
SWAPS = [
    (" == ", " != "), (" != ", " == "), (" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "),
    (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "), ("if (", "if (!"), ("++", "--"),
    ("return 0;", "return 1;"), ("return 1;", "return 0;"),
]
CALL = re.compile(r"^    +[a-z_]+\([^=]*\);$")


def blank(text):
    """The code with strings and comments blanked, so that nothing in them is found."""
    unread = r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])+\'|/\*.*?\*/'
    return re.sub(unread, lambda match: re.sub(r"[^\n]", "_", match[0]), text, flags=re.S)


def mistakes(text):
    """All mistakes: (line number, position in the text, what is there, what replaces it)."""
    found, start = [], 0
    for number, line in enumerate(blank(text).splitlines(keepends=True), 1):
        if line.startswith("    ") or line.startswith("static inline"):
            if CALL.match(line.rstrip("\n")):
                found.append((number, start, line.rstrip("\n"), ";"))
            for old, new in SWAPS:
                for match in re.finditer(re.escape(old), line):
                    if old == "if (":  # around the whole condition
                        end = closing(line, match.end())
                        if end:
                            inner = text[start + match.end():start + end]
                            found.append((number, start + match.end(), inner, f"!({inner})"))
                    else:
                        found.append((number, start + match.start(), old, new))
        start += len(line)
    return found


def closing(line, at):
    """The position of the parenthesis that closes the one before `at`, or 0 if it is on another line."""
    depth = 1
    for i in range(at, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if depth == 0:
            return i
    return 0


def tests_of(root, source):
    """The test programs of a source's folder, those of its name first."""
    folder, stem = source.split("/")[1], Path(source).stem
    names = [path.stem for path in sorted((root / "tests" / folder).glob("test_*.c"))]
    first = stem.split("_")[0]
    names.sort(key=lambda name: (name != "test_" + stem, first not in name, name))
    return [f"build/tests/{folder}/{name}" for name in names]


def notices(work, test):
    """The name of what notices the mistake: the compiler or the test; None if the test passes."""
    made = subprocess.run(["make", "-j2", test], cwd=work, capture_output=True)
    if made.returncode:
        return "compiler"
    try:
        fast = {**os.environ, "REIN_TEST_FAST": "1"}
        ran = subprocess.run([work / test], cwd=work, capture_output=True, timeout=120, env=fast)
    except subprocess.TimeoutExpired:
        return "time"
    return Path(test).name if ran.returncode else None


def attack(work, source, chosen, original):
    """The mistakes of `chosen` that no test notices."""
    survivors, path = [], work / source
    for number, at, old, new in chosen:
        path.write_text(original[:at] + new + original[at + len(old):])
        who = next((who for test in tests_of(work, source) if (who := notices(work, test))), None)
        line = original.splitlines()[number - 1].strip()
        print(f"{source}:{number}: {old.strip()} -> {new.strip()}: {who or 'SURVIVED'}   {line[:100]}", flush=True)
        if not who:
            survivors.append((number, old, new))
    path.write_text(original)
    return survivors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="mistakes in each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=10, help="files, if none is given")
    parser.add_argument("sources", nargs="*")
    given = parser.parse_args()
    draw, root = random.Random(given.seed), Path(__file__).resolve().parent.parent
    everywhere = [str(path.relative_to(root)) for folder in FOLDERS for path in sorted((root / folder).glob("*.c"))]
    sources = given.sources or draw.sample(everywhere, given.files)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "rein"
        shutil.copytree(root, work, symlinks=True, ignore=shutil.ignore_patterns(".git", "build-*", "dist"))
        made = survived = 0
        for source in sources:
            original = (work / source).read_text()
            everything = mistakes(original)
            chosen = sorted(draw.sample(everything, min(given.count, len(everything))))
            made, survived = made + len(chosen), survived + len(attack(work, source, chosen, original))
    print(f"{made} mistakes in {len(sources)} files, {made - survived} noticed, {survived} survived")
    sys.exit(survived > 0)


if __name__ == "__main__":
    main()
