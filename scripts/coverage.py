"""coverage.py BUILD FOLDER PERCENT: branch coverage of FOLDER, measured by the tests in BUILD; fails below PERCENT.

A source is compiled in several variants (per type, per instruction set) and a header into several objects. A branch counts as taken
when any of them took it.
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
        output = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", data], check=True, capture_output=True)
        for document in output.stdout.splitlines():
            yield from json.loads(document)["files"]


def merged(build, folder):
    """{file: {(line, index of the branch): taken}}, {file: {line: run}}."""
    branches, lines = defaultdict(dict), defaultdict(dict)
    for record in records(build):
        name = os.path.normpath(record["file"])
        if not name.startswith(folder):
            continue
        for line in record["lines"]:
            number = line["line_number"]
            lines[name][number] = lines[name].get(number, 0) + line["count"]
            for index, branch in enumerate(line["branches"]):
                key = (number, index)
                branches[name][key] = branches[name].get(key, 0) + branch["count"]
    return branches, lines


def main():
    build, folder, least = sys.argv[1], os.path.normpath(sys.argv[2]) + "/", float(sys.argv[3])
    branches, lines = merged(build, folder)
    print(f"{'file':<40} {'lines':>14} {'branches':>16}   lines with a branch not taken")
    reached = total = 0
    for name in sorted(lines):
        taken, runs = branches[name], lines[name]
        hit = sum(count > 0 for count in taken.values())
        run = sum(count > 0 for count in runs.values())
        missed = sorted({line for (line, _), count in taken.items() if count == 0})
        where = " ".join(map(str, missed[:20])) + (" …" if len(missed) > 20 else "")
        print(f"{name:<40} {run:>6} / {len(runs):<5} {hit:>7} / {len(taken):<6}   {where}")
        reached, total = reached + hit, total + len(taken)
    percent = 100 * reached / total if total else 0
    print(f"branch coverage of {folder[:-1]}: {percent:.1f} % ({reached} of {total}); at least {least:g} % is required")
    sys.exit(percent < least)


if __name__ == "__main__":
    main()
