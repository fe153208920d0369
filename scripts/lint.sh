#!/bin/bash
# lint.sh: checks the sources without running them. Prints what passed; ends with 'N passed, N failed'.
set -u
clang=${CLANG:-clang}
make=${MAKE:-make}
passed=0
failed=0

check() { # check TITLE COMMAND…: shows the output of the command only if it fails
    local title=$1 output
    shift
    if output=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok    $title"
    else
        failed=$((failed + 1))
        printf '%s\nFAIL  %s\n' "$output" "$title"
    fi
}

# Files of the project: tracked, or new and not ignored.
sources() { git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do [ ! -e "$file" ] || echo "$file"; done; }

format() { sources '*.c' '*.h' ':!third_party' | xargs -r clang-format --dry-run --Werror; }

# Compiles with make, because each variant has its own flags; writes no objects.
warnings() { # warnings COMPILER
    "$make" -k syntax BUILD="build-lint/$1" CC="$1" CFLAGS=-fsyntax-only WERROR=1 | grep -v '^  cc '
    return "${PIPESTATUS[0]}"
}

headers() { # headers LANGUAGE COMPILER…
    local language=$1 bad=0 header
    shift
    for header in include/rein/*.h; do
        "$@" -x "$language" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude "$header" || bad=1
    done
    return $bad
}

# The library never prints, exits or reads the environment, nor a terminal (python/stdin.c relies on it).
library_is_silent() { ! grep -nE '\bstd(in|out|err)\b|\b(v?f?printf|puts|fputs|putchar|perror|v?dprintf|_?exit|_Exit|quick_exit|abort|(secure_)?getenv)\(' -r src --include='*.[ch]'; }

# The folders of src/ in order: each may include headers of earlier folders only.
folder_order() {
    local order=(base kernel objective operation nn model rollout report dist train isa) bad=0 i later
    for i in "${!order[@]}"; do
        for later in "${order[@]:i+1}"; do
            if [ -d "src/${order[i]}" ] && grep -nE "#include \"(\.\./)?$later/" -r "src/${order[i]}"; then bad=1; fi
        done
    done
    return $bad
}

# Public headers name no type of the libraries that src/ is built on.
headers_are_own() { ! grep -nE '\bjson_t\b|\bpcre2_|\butf8proc_|\byaml_' include/rein/*.h; }

# A type has one meaning: no header defines a name that another header defines, public or private.
type_names() {
    local twice
    twice=$(git ls-files 'include/*.h' 'src/*.h' | while IFS= read -r header; do
        grep -ohE 'typedef (struct|enum|union) rein_[a-z0-9_]+' "$header" | awk '{ print $3 }' | sort -u
    done | sort | uniq -d)
    [ -z "$twice" ] || { echo "defined twice: $twice" && return 1; }
}

# No identifier is a keyword of C++, which clang-format would take for one. Comments and strings may have these words.
cplusplus_words() {
    sources '*.c' '*.h' ':!third_party' | python3 -c '
import re, sys
words = """and and_eq bitand bitor catch class compl const_cast constexpr decltype delete dynamic_cast explicit export friend mutable namespace
    new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_cast template this throw try
    typeid typename using virtual xor xor_eq""".split()
skipped = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|\x27(?:[^\x27\\\n]|\\.)+\x27", re.S)
found = 0
for path in sys.stdin.read().split("\n")[:-1]:
    text = skipped.sub(lambda match: "\n" * match[0].count("\n"), open(path).read())
    for number, line in enumerate(text.split("\n"), 1):
        for word in re.findall(r"\b(?:%s)\b" % "|".join(words), line):
            found = print(f"{path}:{number}: {word} is a keyword of C++") or 1
sys.exit(found)'
}

scripts() { sources '*.sh' .ci/run | xargs -r shellcheck; }

check "clang-format" format
check "warnings of gcc, every variant" warnings gcc
check "warnings of clang, every variant" warnings "$clang"
check "public headers alone, C11" headers c gcc -std=c11
check "public headers alone, C++11" headers c++ g++ -std=c++11
check "src/ never prints, exits or reads the environment" library_is_silent
check "public headers name no type of other libraries" headers_are_own
check "every type is defined in one header" type_names
check "folders include only what comes before them" folder_order
check "no identifier is a keyword of C++" cplusplus_words
if command -v shellcheck >/dev/null; then check "shellcheck" scripts; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
