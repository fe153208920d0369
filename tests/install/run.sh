#!/bin/bash
# run.sh [BUILD]: what a user of the installed library sees. Installs BUILD (default: build; a path of a program in it will do) into an
# empty prefix, builds examples/c through pkg-config, shared and static, and runs it; compiles every public header as C++. Ends with
# 'N passed, N failed'.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
[ -d "$build" ] || build=$(dirname "$build")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
prefix=$temp/prefix
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cc=${CC:-cc}
cxx=${CXX:-g++}
passed=0
failed=0

check() { # check TITLE COMMAND…: quiet if it succeeds
    local title=$1 said
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s\nFAIL  %s\n' "$said" "$title"
    fi
}

# -o all: what is built stays as it is, other tests are running on it.
install_into() { make -o all install BUILD="$build" PREFIX="$prefix" "$@"; }

is_complete() { # is_complete ROOT
    local file missing=0
    for file in bin/rein lib/librein.a lib/librein.so lib/librein.so.0 lib/pkgconfig/rein.pc share/man/man1/rein.1 \
        share/bash-completion/completions/rein share/zsh/site-functions/_rein share/fish/vendor_completions.d/rein.fish; do
        [ -s "$1/$file" ] || { echo "$file is missing or empty" && missing=1; }
    done
    diff -r include/rein "$1/include/rein" || missing=1
    return $missing
}

versions_agree() {
    local said
    said=$("$prefix/bin/rein" --version) || return 1
    echo "rein --version: $said; pkg-config: $(pkg-config --modversion rein)"
    [[ $said == *"$(pkg-config --modversion rein)"* ]]
}

rises() { # rises PROGRAM: the reward of its last line is well above that of its first
    "$@" >"$temp/curve" || return 1
    cat "$temp/curve"
    awk '{ for (i = 1; i < NF; i++) if ($i == "reward") { if (!n++) first = $(i + 1); last = $(i + 1) } }
         END { exit !(n > 3 && last > first + 0.2) }' "$temp/curve"
}

shared_example() {
    # shellcheck disable=SC2046 # flags are words
    "$cc" -std=c11 -O2 -Wall -Wextra -Werror -o "$temp/shared" examples/c/toy.c $(pkg-config --cflags --libs rein) -lm &&
        rises env LD_LIBRARY_PATH="$prefix/lib" "$temp/shared" &&
        LD_LIBRARY_PATH=$prefix/lib ldd "$temp/shared" | grep -F "$prefix/lib/librein.so.0"
}

# The same prefix without the shared library: what is left for -lrein is the archive.
static_example() {
    local static=$temp/static
    mkdir -p "$static" && cp -r "$prefix/include" "$prefix/lib" "$static" && rm "$static"/lib/librein.so* || return 1
    # shellcheck disable=SC2046
    "$cc" -std=c11 -O2 -Wall -Wextra -Werror -o "$temp/alone" examples/c/toy.c \
        $(pkg-config --define-variable=prefix="$static" --static --cflags --libs rein) &&
        rises "$temp/alone" && ! ldd "$temp/alone" | grep librein
}

# shellcheck disable=SC2046
header_as_cplusplus() { "$cxx" -x c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only $(pkg-config --cflags rein) "$1"; }

cplusplus_program() {
    printf '%s\n' '#include <rein/rein.h>' '#include <cstdio>' \
        'int main() { rein_options *o; rein_error e; std::puts(rein_version()); int s = rein_options_new(&o, "grpo", &e); rein_options_free(o); return s; }' >"$temp/main.cpp"
    # shellcheck disable=SC2046
    "$cxx" -Wall -Wextra -Werror -o "$temp/main" "$temp/main.cpp" $(pkg-config --cflags --libs rein) && LD_LIBRARY_PATH=$prefix/lib "$temp/main"
}

# Tokenizer, model and training: their symbols are there, and what they need is found.
engine_program() { # engine_program OUT FLAGS…
    local out=$1
    shift
    cat >"$temp/engine.c" <<'END'
#include <rein/rein.h>
int main(void) {
    rein_error e;
    rein_tokenizer *tokenizer;
    rein_model *model;
    rein_schedule schedule = {REIN_SCHEDULE_CONSTANT, 0.5, 0, 0, 0};
    double rate;
    return rein_tokenizer_open(&tokenizer, "/nowhere", &e) != REIN_EIO || rein_model_open(&model, "/nowhere", 0, &e) != REIN_EIO ||
           rein_learning_rate(&rate, &schedule, 1, &e) != REIN_OK || rate != 0.5;
}
END
    "$cc" -std=c11 -Wall -Wextra -Werror -o "$out" "$temp/engine.c" "$@" && LD_LIBRARY_PATH=$prefix/lib "$out"
}

# shellcheck disable=SC2046
shared_engine() { engine_program "$temp/engine" $(pkg-config --cflags --libs rein); }

# shellcheck disable=SC2046 # the prefix that static_example made
static_engine() { engine_program "$temp/engine-alone" $(pkg-config --define-variable=prefix="$temp/static" --static --cflags --libs rein); }

exports_only_rein() { ! nm -D --defined-only "$prefix/lib/librein.so" | awk '{ print $NF }' | grep -vE '^rein_'; }

is_empty() { [ -z "$(find "$1" -type f -o -type l)" ] || { find "$1" -type f -o -type l && false; }; }

check "make install" install_into
check "what is installed is complete" is_complete "$prefix"
check "versions agree" versions_agree
check "the library exports rein_* alone" exports_only_rein
check "examples/c with the shared library" shared_example
check "examples/c with the archive" static_example
check "the engine with the shared library" shared_engine
check "the engine with the archive" static_engine
for header in "$prefix"/include/rein/*.h; do check "$(basename "$header") as C++" header_as_cplusplus "$header"; done
check "a C++ program" cplusplus_program
check "make install below DESTDIR" install_into DESTDIR="$temp/below"
check "what is below DESTDIR is complete" is_complete "$temp/below$prefix"
check "make uninstall" make uninstall PREFIX="$prefix"
check "nothing is left behind" is_empty "$prefix"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
