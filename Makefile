# The build of rein. `make help` lists the targets. All output goes to $(BUILD).

BUILD  ?= build
CFLAGS ?= -O3 -g
PREFIX ?= /usr/local
CLANG  ?= clang
V      ?=
VERSION = $(shell awk '/define REIN_VERSION_M|define REIN_VERSION_P/ { printf "%s%s", dot, $$3; dot = "." }' include/rein/base.h)
Q      := $(if $(V),,@)

MAKEFLAGS += --no-print-directory
# One process per core by default; make -j1 changes that.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

# ------------------------------------------------------------------------------------------------------------------- sources

# TYPED sources are compiled once per type, LANED ones once per type and instruction set, LANED_F32 ones once per instruction set in f32.
# All other sources of src/ are PLAIN: compiled once.
TYPED := src/objective/budget.c src/objective/gpo.c src/objective/kl_advantage.c src/objective/update.c \
         src/objective/value.c
LANED := src/kernel/explog.c src/objective/token_loss.c src/objective/gpo_pass.c
LANED_F32 := src/kernel/decode.c src/kernel/gemm_block.c src/kernel/rows.c src/train/adamw_pass.c
# Sources that gain from AVX-512.
WIDE      := src/objective/token_loss.c
WIDE_F32  := src/kernel/decode.c src/kernel/gemm_block.c src/kernel/rows.c
X86   := $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null || uname -m))
# The tables of instruction sets of other architectures.
ABSENT := $(if $(X86),,src/isa/avx2.c src/isa/avx512.c)
PLAIN := $(filter-out $(TYPED) $(LANED) $(LANED_F32) $(ABSENT),$(wildcard src/*/*.c))

TYPES := f32 f64
LANES := ref_f32 ref_f64 $(if $(X86),avx2_f32 avx2_f64)

objects_of = $(patsubst %.c,$(BUILD)/obj/%$(2).o,$(1))
LIB_OBJS  := $(call objects_of,$(PLAIN)) \
             $(foreach type,$(TYPES),$(call objects_of,$(TYPED),.$(type))) \
             $(foreach lane,$(LANES),$(call objects_of,$(LANED),.$(lane))) \
             $(foreach lane,$(filter %_f32,$(LANES)),$(call objects_of,$(LANED_F32),.$(lane))) \
             $(if $(X86),$(call objects_of,$(WIDE) $(WIDE_F32),.avx512_f32) $(call objects_of,$(WIDE),.avx512_f64))
# The program rein: the command line, the server, and `rein bench`.
CLI_OBJS  := $(call objects_of,$(wildcard cli/*.c server/*.c bench/*.c))
# Tests of the command line link its objects too, except main().
CLI_PARTS := $(filter-out $(BUILD)/obj/cli/main.o,$(CLI_OBJS))

# One test program per tests/FOLDER/test_NAME.c, one fuzz target per tests/fuzz/fuzz_NAME.c.
TEST_SOURCES := $(wildcard tests/*/test_*.c)
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
TESTS   := $(TEST_SOURCES:%.c=$(BUILD)/%)
FUZZERS := $(FUZZ_SOURCES:%.c=$(BUILD)/%)
OTHER_OBJS := $(call objects_of,$(TEST_SOURCES) $(FUZZ_SOURCES) $(wildcard tests/count/*.c examples/*/*.c python/*.c))
OBJECTS    := $(LIB_OBJS) $(CLI_OBJS) $(OTHER_OBJS)
# Test scripts, which `make check` runs along with the test programs.
RUNNERS    ?= $(filter-out tests/cli/run_ranks%,$(wildcard tests/cli/run*.sh)) tests/install/run.sh

# --------------------------------------------------------------------------------------------------------------------- flags

# Results must not depend on the compiler: it may use fma only where the source calls fma.
# MPI=1, for build-mpi: ranks that exchange over MPI. Without it nothing looks for MPI.
MPI_FLAGS := $(if $(MPI),-DREIN_MPI $(shell pkg-config --cflags ompi-c | sed 's/-I/-isystem /g'))
MPI_LIBS  := $(if $(MPI),$(shell pkg-config --libs ompi-c))
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wno-psabi
ALWAYS   := -std=c11 -ffp-contract=off -fno-math-errno -pthread -fPIC -fvisibility=hidden -D_POSIX_C_SOURCE=200809L $(MPI_FLAGS)
ERRORS   := $(if $(or $(WERROR),$(CI)),-Werror)
# cli/, server/ and examples/ see the public headers only; cli/ also sees the header of server/, bench/ those of cli/, and tests/ everything.
INCLUDES  = -Iinclude $(if $(filter src/%,$<),-Isrc) $(if $(filter bench/% cli/%,$<),-I.) $(if $(filter tests/%,$<),-Isrc -Itests -I.)
# The program works on a stack of 64 KB. Sanitizers and -O0 take larger frames.
FRAMES    = $(if $(findstring -O3,$(CFLAGS)),$(if $(filter tests/%,$<),,-Wframe-larger-than=20480))
COMPILE   = $(CC) $(CFLAGS) $(CPPFLAGS) $(ALWAYS) $(WARNINGS) $(FRAMES) $(ERRORS) $(INCLUDES) -MMD -MP
LINK      = $(CC) $(CFLAGS) -pthread $(LDFLAGS)
LIBS     := $(shell pkg-config --libs jansson libpcre2-8 libutf8proc yaml-0.1 2>/dev/null || echo -ljansson -lpcre2-8 -lutf8proc -lyaml) $(MPI_LIBS)
# STATIC=1, for the Python wheel: librein.so and rein contain the libraries they need; in librein.so their symbols are hidden.
BUNDLED  := -Wl,-Bstatic $(LIBS) -Wl,-Bdynamic
HIDDEN   := $(BUILD)/obj/python/stdin.o -Wl,--wrap=stdin -Wl,--exclude-libs,ALL $(BUNDLED)
SO_LIBS  := $(if $(STATIC),$(HIDDEN),$(LIBS)) -lm
CLI_LIBS := $(if $(STATIC),$(BUNDLED),$(LIBS)) -lm -ldl
# DIST=DIR, for the tarball: rein is one static program with the libmicrohttpd that is installed in DIR.
ifneq ($(DIST),)
CPPFLAGS += -DREIN_STATIC -isystem $(DIST)/include
CLI_LIBS := -static $(DIST)/lib/libmicrohttpd.a $(LIBS) -lm
endif
CMOCKA    = $(shell pkg-config --libs cmocka 2>/dev/null || echo -lcmocka)

# --------------------------------------------------------------------------------------------------------------------- build

.PHONY: all demo test check asan tsan fuzz fuzz-smoke fuzzers soak count lint format syntax coverage parity parity-all base-model bench \
        bench-peers mpi ranks dist wheel install install-program uninstall clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(BUILD)/librein.a $(BUILD)/librein.so $(BUILD)/rein

# These two files change only when the flags do. A change of flags compiles everything again; a change of libs links again.
$(BUILD)/flags: private TEXT = $(CC) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(ALWAYS)
$(BUILD)/libs: private TEXT = $(SO_LIBS)
$(BUILD)/flags $(BUILD)/libs: FORCE
	@mkdir -p $(@D)
	@echo '$(TEXT)' | cmp -s - $@ || echo '$(TEXT)' > $@

# $(1): what stands between the name and .o. $(2): the flags of this variant.
define variant
$$(BUILD)/obj/%$(1).o: %.c $$(BUILD)/flags
	@mkdir -p $$(@D)
	@echo '  cc   $$<$(if $(1), ($(1:.%=%)))'
	$$(Q)$$(COMPILE) $(2) -c -o $$@ $$<
endef
$(eval $(call variant,,))
$(eval $(call variant,.f32,-DREAL_F32))
$(eval $(call variant,.f64,-DREAL_F64))
# $(1): an instruction set. $(2): its flags.
define instruction_set
$(call variant,.$(1)_f32,-DREAL_F32 -DREIN_SUFFIX=$(1)_f32 $(2))
$(call variant,.$(1)_f64,-DREAL_F64 -DREIN_SUFFIX=$(1)_f64 $(2))
endef
$(eval $(call instruction_set,ref))
$(eval $(call instruction_set,avx2,-mavx2 -mfma))
$(eval $(call instruction_set,avx512,-mavx2 -mfma -mavx512f -mavx512vl -mavx512dq -mavx512bw))
-include $(OBJECTS:.o=.d)
# Files included by .incbin, which the compiler does not report as dependencies.
$(BUILD)/obj/src/report/html_assets.o: $(wildcard src/report/assets/* third_party/uplot/*)

$(BUILD)/librein.a: $(LIB_OBJS)
	@echo '  ar   $@'
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJS)

$(BUILD)/librein.so: $(LIB_OBJS) $(if $(STATIC),$(BUILD)/obj/python/stdin.o) $(BUILD)/libs
	@echo '  ld   $@'
	$(Q)$(LINK) -shared -Wl,-soname,librein.so.0 -Wl,-z,nodelete -o $@ $(LIB_OBJS) $(SO_LIBS)

$(BUILD)/rein: $(CLI_OBJS) $(BUILD)/librein.a $(BUILD)/libs
	@echo '  ld   $@'
	$(Q)$(LINK) -o $@ $(CLI_OBJS) $(BUILD)/librein.a $(CLI_LIBS)

# Tests in which allocations fail: those that define wrappers or include tests/support/allocation.h.
STARVED := $(shell grep -lE '__wrap_malloc|allocation\.h' $(TEST_SOURCES))
$(STARVED:%.c=$(BUILD)/%): private WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
# Tests in which the disk fails: those that include tests/train/crash.h. Calls that change files go through its wrappers.
CRASHED := $(shell grep -lE 'include .*crash(_scenarios)?\.h' $(TEST_SOURCES))
DISK_CALLS := open write fsync rename mkdir rmdir unlink ftruncate close openat creat fopen pwrite writev fdatasync truncate link linkat \
              renameat mkdirat unlinkat remove
$(CRASHED:%.c=$(BUILD)/%): private WRAP += $(DISK_CALLS:%=-Wl,--wrap=%)
CLI_TESTS := $(filter $(BUILD)/tests/cli/%,$(TESTS))
$(CLI_TESTS): $(CLI_PARTS)
$(CLI_TESTS): private PARTS = $(CLI_PARTS)
# Tests of the server link its objects, and so does the fuzz target of its border.
SERVER_TESTS := $(filter $(BUILD)/tests/server/% $(BUILD)/tests/fuzz/fuzz_http,$(TESTS) $(FUZZERS))
SERVER_PARTS := $(call objects_of,$(wildcard server/*.c))
$(SERVER_TESTS): $(SERVER_PARTS)
$(SERVER_TESTS): private PARTS = $(SERVER_PARTS)
$(TESTS): $(BUILD)/%: $(BUILD)/obj/%.o $(BUILD)/librein.a
	@mkdir -p $(@D)
	$(Q)$(LINK) $(WRAP) -o $@ $< $(PARTS) $(BUILD)/librein.a $(CMOCKA) $(LIBS) -lm -ldl

$(FUZZERS): $(BUILD)/%: $(BUILD)/obj/%.o $(BUILD)/librein.a
	@mkdir -p $(@D)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $< $(PARTS) $(BUILD)/librein.a $(LIBS) -lm -ldl

$(BUILD)/tests/count/loops: $(BUILD)/obj/tests/count/loops.o $(BUILD)/librein.a
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $< $(BUILD)/librein.a $(LIBS) -lm

# --------------------------------------------------------------------------------------------------------------------- tests

SETUP = @CC='$(CC)' CLANG='$(CLANG)' scripts/setup.sh
ASAN  = -O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=address,undefined
TSAN  = -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread

demo:
	$(SETUP) base
	@$(MAKE) all
	@$(BUILD)/rein demo

test:
	$(SETUP) test
	@$(MAKE) all
	@$(MAKE) check

# Preloaded, it makes an allocation fail (tests/cli/run_memory.sh).
$(BUILD)/tests/support/fail_malloc.so: tests/support/fail_malloc.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MF $(@:.so=.d) -shared -o $@ $<

# The tests of one build directory, without setup. Scripts come first, because some take long.
check: $(BUILD)/rein $(TESTS) $(BUILD)/tests/support/fail_malloc.so
	@BUILD=$(BUILD) scripts/run-tests.sh $(RUNNERS) $(TESTS)

asan:
	$(SETUP) test
	@REIN_TEST_FAST=1 $(MAKE) check BUILD=build-asan CFLAGS='$(ASAN)' RUNNERS='$(filter-out %install/run.sh %run_docs.sh,$(RUNNERS))'

# The tests that use several threads, with the thread sanitizer.
THREADED := $(shell grep -lE 'threads|pthread' $(TEST_SOURCES))
tsan:
	$(SETUP) test
	@REIN_TEST_FAST=1 TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 $(MAKE) check BUILD=build-tsan CFLAGS='$(TSAN)' TEST_SOURCES='$(THREADED)' RUNNERS='tests/cli/run_serve.sh tests/cli/run_serve_train.sh'

fuzz-smoke fuzz:
	$(SETUP) fuzz
	@$(MAKE) fuzzers BUILD=build-fuzz CC='$(CLANG)' CFLAGS='$(ASAN) -fsanitize=fuzzer-no-link'
	@scripts/fuzz.sh $@ build-fuzz $(ONLY)

fuzzers: $(FUZZERS)

# ROUNDS repeats of the tests that kill a process and cut the power; every allocation failing once; a kill and an error at every system call;
# kills and full disks at random moments; a server under load for an hour; then the sanitizers (threads too), then `make fuzz`. Takes hours.
ROUNDS ?= 100
soak:
	$(SETUP) test
	@$(MAKE) $(BUILD)/tests/train/test_kill $(BUILD)/tests/train/test_crash
	@scripts/soak.sh $(ROUNDS) $(BUILD)/tests/train/test_kill $(BUILD)/tests/train/test_crash
	@$(MAKE) $(BUILD)/rein $(BUILD)/tests/support/fail_malloc.so
	@REIN_TEST_ALLOCATIONS=all tests/cli/run_memory.sh $(BUILD)/rein
	@REIN_TEST_CALLS=all tests/cli/run_calls.sh $(BUILD)/rein
	@REIN_TEST_KILLS=50 tests/cli/run_ranks_kills.sh build-mpi/rein
	@python3 tests/soak/kills.py $(BUILD)/rein 500
	@python3 tests/soak/server.py $(BUILD)/rein 60
	@$(MAKE) asan
	@$(MAKE) tsan
	@$(MAKE) fuzz

# Counts the instructions of the hot loops and compares with tests/count/expected.txt; ACCEPT=1 writes that file.
count:
	$(SETUP) count
	@$(MAKE) $(BUILD)/tests/count/loops
	@CC='$(CC)' tests/count/run.sh $(BUILD)/tests/count/loops $(if $(ACCEPT),--accept)

# The program with ranks over MPI, and its tests: with kills, and on hosts that are network namespaces.
mpi:
	$(SETUP) mpi
	@$(MAKE) all BUILD=build-mpi MPI=1

ranks:
	@BUILD=build-mpi scripts/run-tests.sh $(wildcard tests/cli/run_ranks*.sh)

lint:
	$(SETUP) lint
	@CLANG='$(CLANG)' MAKE='$(MAKE)' scripts/lint.sh

format:
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' ':!third_party' | xargs clang-format -i

# Compiles every variant of every source; `make lint` uses it for the warnings.
syntax: $(OBJECTS)

# Measured for all of src/ and cli/. The scripts take part: most of what the program does when memory or a disk fails is theirs to reach.
COVERED = src/base src/objective src/report src/rollout src/train
coverage:
	$(SETUP) test
	@rm -f $$(find build-cov -name '*.gcda' 2>/dev/null)
	@REIN_TEST_FAST=1 REIN_TEST_ALLOCATIONS=200 REIN_TEST_CALLS=100 $(MAKE) check BUILD=build-cov CC=gcc CFLAGS='-O0 -g --coverage' \
	    RUNNERS='$(filter-out %install/run.sh %run_docs.sh,$(RUNNERS))'
	@python3 scripts/coverage.py build-cov 90 $(COVERED)

# A tarball in dist/ with one static program, for any x86-64 Linux.
dist:
	$(SETUP) base
	@scripts/dist.sh
	@tests/install/dist.sh dist/rein-$(VERSION)-linux-x86_64.tar.gz

# A wheel in dist/ that installs on other machines: pip builds it, auditwheel checks what it needs and gives it its manylinux tag.
wheel:
	$(SETUP) base
	@scripts/wheel.sh

parity parity-all:
	$(SETUP) test
	$(SETUP) browser || true # without Chromium its tests are skipped, with a message
	@scripts/parity.sh $(if $(filter parity-all,$@),--all)

# Trains the shipped model from random weights; CHECK=1 only compares.
base-model:
	$(SETUP) base
	@$(MAKE) all
	@scripts/base-model.sh $(BUILD)/rein $(if $(CHECK),--check)

# The performance table, with the peers that are installed. ARGS='train --rounds 3' measures a part of it.
bench: $(BUILD)/rein
	@scripts/bench.sh $(BUILD)/rein $(ARGS)

# The programs that bench compares with: PyTorch, numpy and llama.cpp, in their own environment.
bench-peers:
	$(SETUP) peers
	@scripts/bench-peers.sh

# ------------------------------------------------------------------------------------------------------------------- install

INSTALLED = bin/rein lib/librein.a lib/librein.so lib/librein.so.0 lib/pkgconfig/rein.pc include/rein \
            share/man/man1/rein.1 share/bash-completion/completions/rein share/zsh/site-functions/_rein \
            share/fish/vendor_completions.d/rein.fish share/rein
TO        = $(DESTDIR)$(PREFIX)

install: all install-program
	@install -d $(TO)/lib/pkgconfig $(TO)/include/rein
	@install -m 644 $(BUILD)/librein.a $(TO)/lib/librein.a
	@install -m 755 $(BUILD)/librein.so $(TO)/lib/librein.so.0
	@ln -sf librein.so.0 $(TO)/lib/librein.so
	@install -m 644 include/rein/*.h $(TO)/include/rein
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' rein.pc.in > $(TO)/lib/pkgconfig/rein.pc
	@echo 'installed rein $(VERSION) into $(TO)'

# What a user of the program needs: no library and no headers.
install-program: $(BUILD)/rein
	@install -d $(TO)/bin $(TO)/share/man/man1 $(TO)/share/bash-completion/completions $(TO)/share/zsh/site-functions \
	    $(TO)/share/fish/vendor_completions.d $(TO)/share/rein/models/sums
	@install -m 755 $(BUILD)/rein $(TO)/bin/rein
	@install -m 644 models/sums/* $(TO)/share/rein/models/sums
	@$(BUILD)/rein help --man > $(TO)/share/man/man1/rein.1
	@$(BUILD)/rein completion bash > $(TO)/share/bash-completion/completions/rein
	@$(BUILD)/rein completion zsh > $(TO)/share/zsh/site-functions/_rein
	@$(BUILD)/rein completion fish > $(TO)/share/fish/vendor_completions.d/rein.fish

uninstall:
	rm -rf $(INSTALLED:%=$(TO)/%)

clean:
	rm -rf build build-mpi build-asan build-tsan build-cov build-fuzz build-lint build-wheel build-dist build-parity build-bench dist python/rein/*.so*

help:
	@echo 'make             builds librein.a, librein.so and rein in build/ (CC=clang, CFLAGS=…; V=1 shows commands)'
	@echo 'make demo        trains a small model to answer correctly within a token budget; writes a report'
	@echo 'make test        runs every test'
	@echo 'make asan        runs the tests with the address and undefined-behaviour sanitizers'
	@echo 'make tsan        runs the tests that use several threads with the thread sanitizer'
	@echo 'make fuzz-smoke  runs every fuzz target for 5 s'
	@echo 'make fuzz        fuzzes until 10 minutes bring no new coverage; ONLY="config chat" picks targets'
	@echo 'make soak        kills, power cuts, failing allocations and system calls (ROUNDS=100), asan, tsan, fuzz; takes hours'
	@echo 'make count       compares instruction counts of the hot loops, within 3 % (ACCEPT=1 accepts new ones)'
	@echo 'make mpi         installs Open MPI and builds build-mpi/rein, which shares its work among ranks (docs/cluster.md)'
	@echo 'make ranks       runs on 1 to 4 ranks and on hosts with a network, bit for bit, with kills; skipped, with a message, without MPI'
	@echo 'make lint        format, warnings of gcc and clang, public headers as C and C++, folder order'
	@echo 'make format      runs clang-format over every C file'
	@echo 'make coverage    branch coverage of src/ and cli/; at least 90 % of $(COVERED)'
	@echo 'make parity      compares with PyTorch, Hugging Face, TRL, verl, Liger, Tinker, ART, wandb and OpenAI clients in 15 minutes'
	@echo 'make parity-all  the same without a time limit, with ten times as many tokenizer texts'
	@echo 'make base-model  trains the shipped model, models/sums, again (CHECK=1 compares with the existing one)'
	@echo 'make bench       the performance table of this machine (ARGS=… selects rows), with installed peers'
	@echo 'make bench-peers installs those peers: PyTorch, numpy and llama.cpp (15 minutes)'
	@echo 'make dist        builds a tarball in dist/ with one static program, for any x86-64 Linux, and tries it in an empty root'
	@echo 'make wheel       builds the Python package, with the program rein in it, as a wheel in dist/'
	@echo 'make install     installs into PREFIX (/usr/local) below DESTDIR; make uninstall removes it'
	@echo 'make clean       removes everything that was built'
