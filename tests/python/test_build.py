"""The build backend: a correct, reproducible, self-contained wheel; an sdist that builds the same wheel; metadata."""

import base64
import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"
BUILDER = PYTHON / "build_backend.py"

if not BUILDER.exists() or not shutil.which("make") or not shutil.which(os.environ.get("CC", "cc").split()[0]):
    pytest.skip("needs the project, make and a C compiler", allow_module_level=True)


def load(name, path):
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


backend = load("build_backend", BUILDER)
elf = load("elf", PYTHON / "elf.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    return folder / backend.build_wheel(str(folder))


def test_the_wheel_is_reproducible(wheel, tmp_path, monkeypatch):
    assert (tmp_path / backend.build_wheel(str(tmp_path))).read_bytes() == wheel.read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    later = tmp_path / backend.build_wheel(str(tmp_path))
    with zipfile.ZipFile(later) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_record_and_names(wheel):
    assert re.match(rf"rein_rl-{re.escape(backend.version())}-py3-none-(manylinux_2_\d+|linux)_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, digest, size in rows:
            data = archive.read(name)
            if name != record:
                code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={code}", str(len(data)))
        assert {"rein/librein.so", "rein/py.typed", "rein/torch.py"} <= set(names)
        metadata = archive.read(record.replace("RECORD", "METADATA")).decode()
        assert "\nName: rein-rl\n" in metadata and "\nRequires-Dist: numpy" in metadata
        assert f"\nVersion: {backend.version()}\n" in metadata and "\n\n# Python" in metadata


def has_archives():
    """Whether jansson, PCRE2 and utf8proc are installed as archives, as in Debian's packages."""
    compiler = os.environ.get("CC", "cc").split()
    for name in ("libjansson.a", "libpcre2-8.a", "libutf8proc.a", "libyaml.a"):
        said = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        if not os.path.isabs(said.stdout.strip()):
            return False
    return True


def test_the_library_needs_glibc_alone(wheel, tmp_path):
    if not has_archives():
        pytest.skip("no archives of jansson, PCRE2 and utf8proc")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        library = Path(archive.extract("rein/librein.so", tmp_path))
    assert [name for name in names if ".so" in name] == ["rein/librein.so"]
    needed = elf.Elf(library).needed()
    assert {"libc.so.6", "libm.so.6"} <= set(needed) and all(map(elf.GLIBC.match, needed))
    if shutil.which("nm"):
        nm = ["nm", "-D", "--defined-only", str(library)]
        shown = subprocess.run(nm, capture_output=True, text=True, check=True).stdout.split("\n")
        assert shown and all(line.split()[-1].startswith("rein_") for line in shown if line)


def test_the_licences_of_what_is_inside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if "/licenses/" in name}
    assert {"LICENSE", "jansson.txt", "pcre2.txt", "utf8proc.txt", "libyaml.txt", "uplot.txt"} <= set(texts)
    assert "Petri Lehtinen" in texts["jansson.txt"] and "Permission is hereby granted" in texts["jansson.txt"]
    assert "Leon Sorokin" in texts["uplot.txt"] and "Permission is hereby granted" in texts["uplot.txt"]
    assert "University of Cambridge" in texts["pcre2.txt"] and "Zoltan Herczeg" in texts["pcre2.txt"]
    assert "Steven G. Johnson" in texts["utf8proc.txt"] and "Unicode, Inc." in texts["utf8proc.txt"]


def test_without_archives_the_libraries_go_beside(tmp_path, monkeypatch):
    make = backend.make

    def without_archives(*arguments):
        if "STATIC=1" in arguments:
            raise subprocess.CalledProcessError(2, "make")
        make(*arguments)

    monkeypatch.setattr(backend, "make", without_archives)
    wheel = tmp_path / backend.build_wheel(str(tmp_path))
    check_alone(wheel, tmp_path)
    brought = {path.name for path in (tmp_path / "rein").glob("*.so*")}
    assert {name.split(".so")[0] for name in brought} == {
        "librein",
        "libjansson",
        "libpcre2-8",
        "libutf8proc",
        "libyaml-0",
    }


def test_the_wheel_works_alone(wheel, tmp_path):
    check_alone(wheel, tmp_path)


def check_alone(wheel, tmp_path):
    """It needs only the glibc of its tag and the libraries in the wheel, and finds them where the wheel is unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    libraries = sorted((tmp_path / "rein").glob("*.so*"))
    brought = {path.name for path in libraries}
    for path in libraries:
        for name in elf.Elf(path).needed():
            assert elf.GLIBC.match(name) or name in brought, (path.name, name)
    newest = max(elf.Elf(path).glibc() for path in libraries)
    tag = re.search(r"manylinux_(\d+)_(\d+)", wheel.name)
    assert tag and (int(tag[1]), int(tag[2])) == max(newest, (2, 17))
    loaded = ctypes.CDLL(str(tmp_path / "rein" / "librein.so"))
    loaded.rein_version.restype = ctypes.c_char_p
    assert loaded.rein_version().decode() == backend.version()
    code = (
        "import rein, numpy; print(rein.policy_loss('dapo', [[-1.0]], [[-1.0]], rewards=[1]).loss, rein.__file__);"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line})"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("REIN_LIBRARY", "LD_LIBRARY_PATH")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, mapped = done.stdout.splitlines()
    assert str(tmp_path) in first
    assert {path for path in mapped.split() if Path(path).name in brought} == {str(path) for path in libraries}


def test_objdump_agrees(wheel, tmp_path):
    if not shutil.which("objdump"):
        pytest.skip("objdump is missing")
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract("rein/librein.so", tmp_path))
    said = subprocess.run(["objdump", "-p", str(library)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED +(\S+)", said) == elf.Elf(library).needed()
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", said)}
    assert max(versions) == elf.Elf(library).glibc()


def test_a_library_that_is_not_glibc_is_brought_along(tmp_path):
    """A small library that needs another one, as an OpenMP build of librein would."""
    for name, text in (
        ("inner", "int inner(void) { return 7; }"),
        ("outer", "int inner(void); int outer(void) { return inner(); }"),
    ):
        (tmp_path / f"{name}.c").write_text(text)
    compiler = os.environ.get("CC", "cc").split()
    shared = [*compiler, "-shared", "-fPIC"]
    inner, outer = tmp_path / "libinner.so.1", tmp_path / "libouter.so"
    subprocess.run([*shared, "-Wl,-soname,libinner.so.1", "-o", inner, tmp_path / "inner.c"], check=True)
    rpath = "-Wl,-rpath,$ORIGIN,--disable-new-dtags"
    subprocess.run([*shared, "-o", outer, tmp_path / "outer.c", inner, rpath], check=True)
    assert "libinner.so.1" in elf.Elf(outer).needed()
    with pytest.raises(FileNotFoundError, match=r"libinner\.so\.1 is needed by librein.so"):
        backend.with_dependencies(outer)
    found = backend.find_library("libgcc_s.so.1")
    assert found.exists() and elf.Elf(found).dynamic(elf.DT_SONAME) == ["libgcc_s.so.1"]


def test_an_sdist_makes_the_same_wheel(wheel, tmp_path):
    name = backend.build_sdist(str(tmp_path))
    first = (tmp_path / name).read_bytes()
    assert backend.build_sdist(str(tmp_path)) == name and (tmp_path / name).read_bytes() == first
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    project = tmp_path / name.replace(".tar.gz", "")
    assert (project / "PKG-INFO").read_text() == backend.metadata()
    inner = load("inner_backend", project / "python" / "build_backend.py")
    assert (tmp_path / inner.build_wheel(str(tmp_path))).read_bytes() == wheel.read_bytes()
    again = inner.build_sdist(str(project))
    with tarfile.open(tmp_path / name) as a, tarfile.open(project / again) as b:
        made = {f"{project.name}/{again}"}
        assert set(b.getnames()) - made == set(a.getnames())


def test_metadata_alone(tmp_path):
    info = backend.prepare_metadata_for_build_wheel(str(tmp_path))
    assert (tmp_path / info / "METADATA").read_text() == backend.metadata()
