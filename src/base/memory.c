/* memory.c - an account of memory: one counter below a ceiling, changed atomically; and the memory that the machine has left. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/base.h"

struct rein_memory {
    size_t limit;
    atomic_size_t used;
};

rein_status rein_memory_open(rein_memory **memory, size_t max_bytes, rein_error *err) {
    *memory = NULL;
    if (!max_bytes) return rein_fail_at(err, REIN_EINVAL, "max_bytes", -1, "is 0: 1 or more");
    rein_memory *m = calloc(1, sizeof *m);
    if (!m) return rein_fail(err, REIN_ENOMEM, "no memory for an account of memory");
    m->limit = max_bytes;
    *memory = m;
    return REIN_OK;
}

void rein_memory_close(rein_memory *memory) { free(memory); }

int rein_memory_take(rein_memory *m, size_t bytes) {
    if (!m) return 1;
    size_t used = atomic_load(&m->used);
    do {
        if (bytes > m->limit - used) return 0;
    } while (!atomic_compare_exchange_weak(&m->used, &used, used + bytes));
    return 1;
}

void rein_memory_give(rein_memory *m, size_t bytes) {
    if (m) atomic_fetch_sub(&m->used, bytes);
}

size_t rein_memory_used(const rein_memory *m) { return atomic_load(&m->used); }

size_t rein_memory_limit(const rein_memory *m) { return m->limit; }

/* The number that follows a label in a file; INFINITY if there is none, as in "max". */
static double number_in(const char *path, const char *label) {
    char text[4096];
    double number = INFINITY;
    FILE *file = fopen(path, "r");
    if (!file) return number;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *at = strstr(text, label);
    if (at && sscanf(at + strlen(label), "%lf", &number) != 1) number = INFINITY;
    return number;
}

size_t rein_memory_available(void) {
    const double kilobytes = number_in("/proc/meminfo", "MemAvailable:"), limit = number_in("/sys/fs/cgroup/memory.max", ""),
                 old_limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", ""),
                 bytes = fmin(1024 * kilobytes, fmin(limit, old_limit));
    return bytes < (double)(SIZE_MAX / 2) ? (size_t)bytes : SIZE_MAX / 2;
}
