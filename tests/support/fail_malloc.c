/* fail_malloc.c - preloaded (LD_PRELOAD), fails one allocation of a process, whoever makes it: rein, the libraries it links, or libc.
 * REIN_FAIL_AT=N: the N-th from 1. REIN_FAIL_COUNT=FILE: their number is written there at the end. Counted are the allocations within main(): what
 * the loader and the coverage build's recorder allocate is not rein's. Programs that the process starts are not affected. Needs glibc, whose own
 * allocator has names besides those replaced here. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

typedef int main_fn(int argc, char **argv, char **environment);
typedef int start_fn(main_fn *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*loader_fini)(void),
                     void *stack);

static atomic_long made, fails_at;
static main_fn *real_main;

static void write_count(const char *file) {
    char text[32];
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666), n = snprintf(text, sizeof text, "%ld\n", made);
    if (fd < 0 || write(fd, text, (size_t)n) != n) abort();
    close(fd);
}

static int counted_main(int argc, char **argv, char **environment) {
    const char *at = getenv("REIN_FAIL_AT"), *file = getenv("REIN_FAIL_COUNT");
    unsetenv("LD_PRELOAD");
    atomic_store(&made, 0);
    atomic_store(&fails_at, at ? atol(at) : 0);
    const int status = real_main(argc, argv, environment);
    atomic_store(&fails_at, 0);
    if (file) write_count(file);
    return status;
}

static int fails_now(void) {
    if (atomic_fetch_add(&made, 1) + 1 != atomic_load(&fails_at)) return 0;
    errno = ENOMEM;
    return 1;
}

#pragma GCC visibility push(default) /* the flags of the build hide what is not exported */
int __libc_start_main(main_fn *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*loader_fini)(void),
                      void *stack) {
    start_fn *start;
    *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return start(counted_main, argc, argv, init, fini, loader_fini, stack);
}

void *malloc(size_t size) { return fails_now() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fails_now() ? NULL : __libc_calloc(n, size); }
void *realloc(void *memory, size_t size) { return fails_now() ? NULL : __libc_realloc(memory, size); }
void *aligned_alloc(size_t alignment, size_t size) { return fails_now() ? NULL : __libc_memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size) {
    if (fails_now()) return ENOMEM;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}
