"""coverage.py BUILD PERCENT FOLDER...: branch coverage of src/ and cli/, measured by the tests in BUILD.

Fails if one of the FOLDERs is below PERCENT. The others are printed only.
A source is compiled in several variants (per type, per instruction set) and a header into several objects. A branch
counts as taken when any of them took it.
"""
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def records(build):
    """The reports of gcov on every object that ran: one dict per source file."""
    for data in sorted(Path(build).rglob("*.gcda")):
        command = ["gcov", "--json-format", "--branch-probabilities", "--stdout", data]
        output = subprocess.run(command, check=True, capture_output=True)
        for document in output.stdout.splitlines():
            yield from json.loads(document)["files"]


def merged(build):
    """{file: {(line, index of the branch): taken}}, {file: {line: run}}."""
    branches, lines = defaultdict(dict), defaultdict(dict)
    for record in records(build):
        name = os.path.normpath(record["file"])
        if not name.startswith(("src/", "cli/")):
            continue
        for line in record["lines"]:
            number = line["line_number"]
            lines[name][number] = lines[name].get(number, 0) + line["count"]
            for index, branch in enumerate(line["branches"]):
                key = (number, index)
                branches[name][key] = branches[name].get(key, 0) + branch["count"]
    return branches, lines


def show(name, taken, runs):
    """One line for a file; returns the number of branches taken."""
    hit = sum(count > 0 for count in taken.values())
    run = sum(count > 0 for count in runs.values())
    missed = sorted({line for (line, _), count in taken.items() if count == 0})
    where = " ".join(map(str, missed[:20])) + (" …" if len(missed) > 20 else "")
    print(f"{name:<40} {run:>6} / {len(runs):<5} {hit:>7} / {len(taken):<6}   {where}")
    return hit


def share(reached, total):
    return f"{100 * reached / max(total, 1):.1f} % ({reached} of {total})"


def main():
    build, least, required = sys.argv[1], float(sys.argv[2]), [os.path.normpath(folder) for folder in sys.argv[3:]]
    branches, lines = merged(build)
    print(f"{'file':<40} {'lines':>14} {'branches':>16}   lines with a branch not taken")
    reached, total = defaultdict(int), defaultdict(int)
    for name in sorted(lines):
        folder = os.path.dirname(name)
        reached[folder] += show(name, branches[name], lines[name])
        total[folder] += len(branches[name])
    low = [folder for folder in required if not total[folder] or 100 * reached[folder] < least * total[folder]]
    for folder in sorted(total):
        note = f"; at least {least:g} % is required" if folder in required else ""
        print(f"branch coverage of {folder}: {share(reached[folder], total[folder])}{note}")
    in_src = [folder for folder in total if folder.startswith("src/")]
    print(f"branch coverage of src: {share(sum(reached[f] for f in in_src), sum(total[f] for f in in_src))}")
    if low:
        print("too low: " + ", ".join(low))
    sys.exit(bool(low))


if __name__ == "__main__":
    main()
