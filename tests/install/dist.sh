#!/bin/bash
# dist.sh TARBALL: what a user of the tarball has. Unpacks it into a root directory that holds nothing else, and runs it there without a network:
# the demo learns, the server answers. Ends with 'N passed, N failed'.
set -u
tarball=$(realpath "${1:?usage: $0 TARBALL}")
name=$(basename "$tarball" .tar.gz)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
passed=0 failed=0
mkdir "$root/proc" "$root/tmp"
tar -C "$root" -xzf "$tarball" || exit 1

check() { # check TITLE PATTERN FILE
    if grep -qE -- "$2" "$3"; then passed=$((passed + 1)); else failed=$((failed + 1)) && printf 'FAIL  %s: wanted %s, got\n' "$1" "$2" && head -n 20 "$3"; fi
}

if ldd "$root/$name/bin/rein" >"$root/ldd" 2>&1; then echo "linked with libraries" >>"$root/ldd"; fi
check "one static program" "not a dynamic executable" "$root/ldd"
for file in LICENSE README.md CHANGELOG.md licences/libmicrohttpd.txt licences/jansson.txt share/man/man1/rein.1 share/rein/models/sums/model.safetensors; do
    if [ ! -s "$root/$name/$file" ]; then failed=$((failed + 1)) && echo "FAIL  $file is missing or empty"; fi
done
if ! unshare -nmpf --mount-proc true 2>"$root/err"; then
    echo "SKIPPED: no namespaces here ($(head -n 1 "$root/err"))"
    echo "$passed passed, $failed failed, 2 skipped" && exit $((failed > 0))
fi

# Commands without a shell inside: the root has none.
inside() { chroot "$root" "/$name/bin/rein" "$@"; }
export root name
export -f inside
unshare -nmpf bash -c 'mount -t proc proc "$root/proc"; inside demo /tmp/run --steps 6' >"$root/demo" 2>&1
check "the demo" '^final +6 +[0-9.]+ %' "$root/demo"
# shellcheck disable=SC2016 # expanded by the inner shell
timeout 120 unshare -nmpf bash -c '
    mount -t proc proc "$root/proc"; ip link set lo up
    chroot "$root" "/$name/bin/rein" serve --model "/$name/share/rein/models/sums" --port 0 >"$root/address" 2>"$root/log" &
    server=$!
    until grep -q http "$root/address"; do sleep 0.1; done
    port=$(sed -n "s/.*://p" "$root/address"); body="{\"model\": \"sums\", \"prompt\": \"Q:1+2=?\", \"max_tokens\": 20, \"temperature\": 0}"
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:$port\r\nContent-Type: application/json\r\nContent-Length: ${#body}\r\nConnection: close\r\n\r\n$body" >&3
    cat <&3 >"$root/answer"
    kill -TERM $server; wait $server; echo "status $?"' >"$root/status" 2>"$root/errors"
check "the server's end" '^status 0' "$root/status"
check "its answer" '"text": "[^"]*[0-9]' "$root/answer"
echo "$passed passed, $failed failed"
exit $((failed > 0))
