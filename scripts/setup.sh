#!/bin/sh
# setup.sh [base|test|lint|fuzz|count|peers|browser|mpi]: installs the Debian packages that a target needs; prints nothing when all are there.
# It looks for the command or header itself, not for the package.
set -u

kind=${1:-base}
cc=${CC:-cc}
clang=${CLANG:-clang}
missing=

need() { # need PACKAGE PROBE…
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
have() { command -v "$1"; }
header() { printf '#include <%s>\n' "$1" | $cc -E -x c -; }
fuzzer_runtime() { ls "$($clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a; }

by_hand() {
    echo "setup: $1; please install these Debian packages by hand:$missing" >&2
    exit 1
}

install_missing() {
    [ -n "$missing" ] || return 0
    have apt-get >/dev/null || by_hand "there is no apt-get"
    root=
    if [ "$(id -u)" -ne 0 ]; then
        { have sudo >/dev/null && { sudo -n true 2>/dev/null || sudo -v; }; } || by_hand "neither root nor sudo"
        root=sudo
    fi
    echo "setup: installing$missing" >&2
    apt="$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y"
    # The package lists are fetched only if the installation fails with those that are there.
    # shellcheck disable=SC2086
    $apt install --no-install-recommends $missing >/dev/null 2>&1 ||
        { $apt update && $apt install --no-install-recommends $missing; } >/dev/null ||
        by_hand "apt-get could not install them"
    missing=
}

case $kind in
base | test | lint | fuzz | count | peers | browser | mpi) ;;
*) echo "usage: setup.sh [base|test|lint|fuzz|count|peers|browser|mpi]" >&2 && exit 2 ;;
esac

need gcc have gcc
need make have make
need pkg-config have pkg-config
case $kind in
test) need g++ have g++; need python3 have python3; need tmux have tmux; need strace have strace ;;
lint) need g++ have g++; need clang have "$clang"; need clang-format have clang-format ;;
fuzz) need clang have "$clang"; need python3 have python3 ;;
count) need valgrind have valgrind ;;
peers) need g++ have g++; need python3 have python3; need cmake have cmake; need ninja-build have ninja ;;
browser) need chromium have chromium ;;
mpi) need openmpi-bin have mpirun; need libopenmpi-dev pkg-config --exists ompi-c; need iproute2 have tc; need util-linux have nsenter ;;
esac
install_missing # the search for headers below needs a compiler

need libc6-dev header stdio.h
need libjansson-dev header jansson.h
need libpcre2-dev header pcre2posix.h
need libutf8proc-dev header utf8proc.h
need libyaml-dev header yaml.h
need libxxhash-dev header xxhash.h
need libmicrohttpd-dev header microhttpd.h
case $kind in
test | lint) need libcmocka-dev header cmocka.h ;;
fuzz) need "libclang-rt-$("$clang" -dumpversion | cut -d. -f1)-dev" fuzzer_runtime ;;
esac
install_missing
