#!/bin/sh
# parity.sh: are the goldens what their generator makes? The generator is plain Python and shares nothing with the C code.
set -u
set -- tests/golden/*.txt
files=$#
if said=$(python3 tests/golden/generate.py --check 2>&1); then
    failed=0
else
    echo "$said"
    failed=$(echo "$said" | sed -n 's/^out of date: //p' | tr ',' '\n' | grep -c .)
    [ "$failed" -gt 0 ] || failed=$files # it broke before it could say
fi
echo "$((files - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
