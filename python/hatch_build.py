"""The part of the wheel that hatchling cannot make: runs make for librein.so and the program rein.

One wheel serves every Python, because the library is called through ctypes. CC, CFLAGS and LDFLAGS of the environment
are respected. `make wheel` gives the wheel its manylinux tag.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = "build-wheel"


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        self.build(root)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
        build_data["shared_scripts"][str(root / BUILD / "rein")] = "rein"
        build_data["shared_data"][str(root / "models" / "sums")] = "share/rein/models/sums"
        library = root / BUILD / "librein.so"
        if version == "editable":
            beside = root / "python" / "rein" / library.name
            beside.unlink(missing_ok=True)  # never write into a file that a process has mapped
            shutil.copy2(library, beside)
        else:
            build_data["force_include"][str(library)] = f"rein/{library.name}"

    def build(self, root: Path) -> None:
        """Jansson, PCRE2, utf8proc and LibYAML are linked in, with hidden symbols, so that other copies in the process
        do not conflict. Where their archives are missing, the libraries of the system are used."""
        targets = [f"{BUILD}/librein.so", f"{BUILD}/rein"]
        make(root, f"{BUILD}/librein.a")  # fails here if a source does not compile
        try:
            make(root, "STATIC=1", *targets)
        except subprocess.CalledProcessError:
            self.app.display_warning("no archives of the libraries that rein needs: those of the system are used")
            make(root, "STATIC=", *targets)


def make(root: Path, *arguments: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD")}
    environment.setdefault("CFLAGS", "-O3")
    command = ["make", f"BUILD={BUILD}", *arguments]
    subprocess.run(command, cwd=root, env=environment, check=True, stdout=sys.stderr)
