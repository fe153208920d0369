"""The PEP 517 backend of rein-rl: runs make, packs wheels and sdists. Standard library only, so it works offline.

One wheel serves every Python from 3.9 on: the library inside is called through ctypes. It is tagged with the glibc its
symbols need. What the library needs besides glibc is linked into it, or else brought along. CC, CFLAGS and LDFLAGS of
the environment are respected.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from elf import GLIBC, Elf

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "rein"
BUILD = "build-wheel"
NAME = "rein_rl"


def version() -> str:
    """The version in the library's header."""
    header = (ROOT / "include" / "rein" / "base.h").read_text()
    return ".".join(re.findall(r"#define REIN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def metadata() -> str:
    return f"""Metadata-Version: 2.1
Name: rein-rl
Version: {version()}
Summary: Objectives of reinforcement learning for language models, with exact gradients: C, numpy, PyTorch
License: MIT
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Provides-Extra: torch
Requires-Dist: torch>=2.0; extra == "torch"
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{(ROOT / "docs" / "python.md").read_text()}"""


# --------------------------------------------------------------------------------------------------------- the library


def make(*arguments: str) -> None:
    """Runs make in a build directory of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD")}
    environment.setdefault("CFLAGS", "-O3")
    # DT_RPATH, not DT_RUNPATH: it also applies to the libraries that the bundled libraries need.
    rpath = "-Wl,-rpath,'$$ORIGIN',--disable-new-dtags"
    flags = f"{rpath} {environment.pop('LDFLAGS', '')}".strip()
    command = ["make", f"BUILD={BUILD}", f"LDFLAGS={flags}", *arguments]
    print(" ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)


def build_library() -> Path:
    """librein.so with jansson, PCRE2, utf8proc and LibYAML inside; they do not conflict with other copies."""
    library = f"{BUILD}/librein.so"
    make(f"{BUILD}/librein.a")  # fails here if a source does not compile
    try:
        make("STATIC=1", library)
    except subprocess.CalledProcessError:
        print("no archives that fit into a shared library: the libraries are copied beside librein.so", flush=True)
        make("STATIC=", library)
    return ROOT / library


def find_library(name: str) -> Path:
    """The path of a library by its soname: where the compiler finds it, or else in the system's directories."""
    compiler = os.environ.get("CC", "cc").split()
    found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    places = [Path(found.stdout.strip())] if found.returncode == 0 else []
    for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"):
        places += [Path(folder, name), *Path(folder).glob(f"*-linux-gnu*/{name}")]
    for place in places:
        if place.is_absolute() and place.exists():
            return place.resolve()
    raise FileNotFoundError(f"{name} is needed by librein.so, but cannot be found")


def with_dependencies(library: Path) -> dict[str, Path]:
    """The library and all libraries it needs except glibc, by the names under which they are needed."""
    found, waiting = {library.name: library}, [library]
    while waiting:
        for name in Elf(waiting.pop()).needed():
            if not GLIBC.match(name) and name not in found:
                found[name] = find_library(name)
                waiting.append(found[name])
    return found


def licences_of(libraries: dict[str, Path]) -> dict[str, str]:
    """The licences of rein, of the libraries inside librein.so, and of the libraries copied beside it."""
    licences = {"LICENSE": (ROOT / "LICENSE").read_text()}
    licences["uplot.txt"] = (ROOT / "third_party" / "uplot" / "LICENSE").read_text()
    licences.update((path.name, path.read_text()) for path in (ROOT / "third_party" / "licences").glob("*.txt"))
    for name, path in libraries.items():
        licence = None if name == "librein.so" else licence_of(path)
        if licence:
            licences[f"{name}.txt"] = licence
    return licences


def licence_of(library: Path) -> str | None:
    """Debian's copyright file of an installed library."""
    for path in (str(library), str(library).removeprefix("/usr")):  # dpkg knows the path that was installed
        try:
            owner = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        copyright_file = Path("/usr/share/doc", owner.split(":")[0], "copyright")
        return copyright_file.read_text() if copyright_file.exists() else None
    return None


def platform_tag(libraries: dict[str, Path]) -> str:
    """manylinux_2_XX_…, with the version of glibc that the libraries need, at least 2.17."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    newest = max(Elf(path).glibc() for path in libraries.values())
    if newest == (0, 0) or not platform.startswith("linux_"):
        return platform
    major, minor = max(newest, (2, 17))
    return f"manylinux_{major}_{minor}_{platform[len('linux_') :]}"


# ------------------------------------------------------------------------------------------------------------ archives


def timestamp() -> int:
    """The time of all files in an archive: a constant, unless SOURCE_DATE_EPOCH is set."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # 1980, the earliest time in a zip file


class Wheel:
    """A reproducible wheel."""

    def __init__(self, directory: str, tag: str) -> None:
        self.info = f"{NAME}-{version()}.dist-info"
        self.name = f"{NAME}-{version()}-{tag}.whl"
        self.record: list[str] = []
        self.zip = zipfile.ZipFile(Path(directory, self.name), "w", zipfile.ZIP_DEFLATED)
        self.tag = tag

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        entry = zipfile.ZipInfo(name, time.gmtime(timestamp())[:6])
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, licences: dict[str, str]) -> str:
        for name, text in sorted(licences.items()):
            self.add(f"{self.info}/licenses/{name}", text.encode())
        self.add(f"{self.info}/METADATA", metadata().encode())
        self.add(f"{self.info}/WHEEL", wheel_file(self.tag).encode())
        lines = "\n".join([*self.record, f"{self.info}/RECORD,,", ""])
        self.add(f"{self.info}/RECORD", lines.encode())
        self.zip.close()
        return self.name


def wheel_file(tag: str) -> str:
    return f"Wheel-Version: 1.0\nGenerator: rein {version()}\nRoot-Is-Purelib: false\nTag: {tag}\n"


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """PEP 517: the package with the library and the libraries it needs."""
    libraries = with_dependencies(build_library())
    wheel = Wheel(wheel_directory, f"py3-none-{platform_tag(libraries)}")
    for path in sorted([*PACKAGE.glob("*.py"), PACKAGE / "py.typed"]):
        wheel.add(f"rein/{path.name}", path.read_bytes())
    for name, path in sorted(libraries.items()):
        wheel.add(f"rein/{name}", path.read_bytes(), 0o755)
    return wheel.close(licences_of(libraries))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """PEP 660: copies the library into this directory; the wheel holds its path."""
    libraries = with_dependencies(build_library())
    for name, path in libraries.items():
        (PACKAGE / name).unlink(missing_ok=True)  # never write into a file that a process has mapped
        shutil.copy2(path, PACKAGE / name)
    wheel = Wheel(wheel_directory, f"py3-none-{platform_tag(libraries)}")
    wheel.add("__editable__.rein_rl.pth", f"{PACKAGE.parent}\n".encode())
    return wheel.close({"LICENSE": (ROOT / "LICENSE").read_text()})


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """PEP 517: the metadata without building anything."""
    info = Path(metadata_directory, f"{NAME}-{version()}.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(metadata())
    (info / "WHEEL").write_text(wheel_file("py3-none-any"))
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


# --------------------------------------------------------------------------------------------------------------- sdist

MADE = re.compile(r"(build|build-.*|\.git|__pycache__|\..*_cache|.*\.egg-info|dist)$")


def source_files() -> list[Path]:
    """The files of the project: those of git or, in an unpacked sdist, all that were not built."""
    try:
        git = ["git", "-C", str(ROOT)]
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout
        listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
        if Path(top.strip()).resolve() == ROOT:
            return sorted({Path(name) for name in names if name and (ROOT / name).is_file()})
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not MADE.match(name)]
        found += [Path(folder, name).relative_to(ROOT) for name in files if not re.search(r"\.(pyc|so(\..*)?)$", name)]
    return sorted(path for path in found if str(path) != "PKG-INFO")


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """PEP 517: an archive of the whole project, from which a wheel can be built."""
    base = f"{NAME}-{version()}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in source_files():
            source = ROOT / path
            executable = os.access(source, os.X_OK)
            add_file(archive, f"{base}/{path.as_posix()}", source.read_bytes(), 0o755 if executable else 0o644)
        add_file(archive, f"{base}/PKG-INFO", metadata().encode(), 0o644)
    with open(Path(sdist_directory, f"{base}.tar.gz"), "wb") as out:
        out.write(gzip.compress(packed.getvalue(), mtime=timestamp()))  # a constant time in its header
    return f"{base}.tar.gz"


def add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, timestamp()
    archive.addfile(entry, io.BytesIO(data))
