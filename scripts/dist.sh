#!/bin/sh
# dist.sh [DIRECTORY]: rein as a tarball in DIRECTORY (dist), for any x86-64 Linux: one static program, the shipped model, the manual page and
# the completions. libmicrohttpd comes as source from Debian and is built without TLS, because Debian's own archive needs GnuTLS.
set -eu
cd "$(dirname "$0")/.."
to=${1:-dist}
home=build-dist
mhd=$home/libmicrohttpd
[ "$(uname -m)" = x86_64 ] || { echo "dist.sh: this makes a tarball for x86-64, and this machine is $(uname -m)" >&2 && exit 2; }
mkdir -p "$home" "$to"

fetch_source() { # the newest of Debian 12, into $home/source; apt checks its signature
    rm -rf "$home/source" && mkdir -p "$home/source/lists/partial"
    (
        cd "$home/source"
        mirror=$(sed -n 's/^URIs: *\(.*\/debian\/\{0,1\}\)$/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\/debian\/\{0,1\}\) .*/\2/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:?no Debian mirror in /etc/apt} bookworm main" >source.list
        set -- -qq -o Dir::Etc::sourcelist="$PWD/source.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists"
        apt-get "$@" update
        apt-get "$@" --download-only source libmicrohttpd
        tar -xf libmicrohttpd_*.orig.tar.*
    ) >"$home/fetch.log" 2>&1 || { cat "$home/fetch.log" >&2 && exit 1; }
}

build_server_library() {
    [ ! -f "$mhd/lib/libmicrohttpd.a" ] || return 0
    fetch_source
    prefix=$PWD/$mhd
    (
        cd "$home"/source/libmicrohttpd-*/
        ./configure --prefix="$prefix" --disable-https --disable-shared --disable-doc --disable-examples --disable-curl \
            --disable-dauth --disable-bauth --disable-postprocessor --without-gnutls CFLAGS='-O2'
        make
        make install
        cp COPYING "$prefix/COPYING"
    ) >"$home/libmicrohttpd.log" 2>&1 || { tail -n 20 "$home/libmicrohttpd.log" >&2 && exit 1; }
}

build_server_library
make BUILD="$home" CFLAGS=-O3 DIST="$mhd" "$home/rein"
version=$("$home/rein" --version | cut -d' ' -f2)
name=rein-$version-linux-x86_64
root=$home/$name
rm -rf "$root"
mkdir -p "$root/licences"
make -o "$home/rein" BUILD="$home" DIST="$mhd" PREFIX= DESTDIR="$PWD/$root" install-program
strip "$root/bin/rein"
cp README.md CHANGELOG.md LICENSE "$root"
cp third_party/licences/*.txt "$root/licences"
cp third_party/uplot/LICENSE "$root/licences/uplot.txt"
cp "$mhd/COPYING" "$root/licences/libmicrohttpd.txt"
cat >"$root/licences/README" <<TEXT
bin/rein contains Jansson, LibYAML, PCRE2, utf8proc, uPlot, libmicrohttpd and the GNU C library; their licences are in this directory
(the GNU C library has the same one as libmicrohttpd, the LGPL 2.1). To link it with another version of one of these, run make dist in
the source of rein $version.
TEXT
tar -C "$home" --owner=0 --group=0 --sort=name --mtime="@$(git log -1 --format=%ct)" -czf "$to/$name.tar.gz" "$name"
echo "$to/$name.tar.gz"
