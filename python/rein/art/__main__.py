"""`python -m rein.art SCRIPT.py [ARGUMENT...]`: runs a script of ART with rein's LocalBackend in place of art.local."""

from __future__ import annotations

import os
import runpy
import sys

from ._replace import replace_local

USAGE = "usage: python -m rein.art SCRIPT.py [ARGUMENT...]"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE, file=sys.stderr if len(sys.argv) < 2 else sys.stdout)
        raise SystemExit(2 if len(sys.argv) < 2 else 0)
    script = sys.argv[1]
    if not os.path.exists(script):
        raise SystemExit(f"rein.art: there is no file {script}")
    replace_local()
    del sys.argv[0]  # the script sees its own name and arguments, as with `python SCRIPT.py`
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
