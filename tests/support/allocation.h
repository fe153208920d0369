/* allocation.h - memory allocations that fail when a test asks for it. The Makefile links every test that includes this file with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc; without those flags can_fail() is 0 and the test skips itself. jansson can use the same
 * functions. LeakSanitizer finds the leaks. Include cmocka.h first. */
#ifndef REIN_TESTS_SUPPORT_ALLOCATION_H
#define REIN_TESTS_SUPPORT_ALLOCATION_H

#include <jansson.h>
#include <stdlib.h>

#include "rein/base.h"

extern void *__real_malloc(size_t size) __attribute__((weak));
extern void *__real_calloc(size_t n, size_t size) __attribute__((weak));
extern void *__real_realloc(void *memory, size_t size) __attribute__((weak));
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static long left = -1; /* how many more allocations succeed; below 0: all of them */
static int once;       /* 1: only the next allocation fails; 0: all that follow fail */
static int failures;

static int fails_now(void) {
    if (left < 0) return 0;
    if (left > 0) return left--, 0;
    if (once) left = -1;
    return ++failures;
}

void *__wrap_malloc(size_t size) { return fails_now() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails_now() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *memory, size_t size) { return fails_now() ? NULL : __real_realloc(memory, size); }

static void give_back(void *memory) { free(memory); }

static int can_fail(void) { return __real_malloc && __real_calloc && __real_realloc; }

static long fail_each(rein_status (*act)(void *context, rein_error *err), void *context) {
    for (long n = 0;; n++) {
        rein_error err = {0};
        left = n, failures = 0;
        const rein_status status = act(context, &err);
        left = -1;
        if (status == REIN_OK && failures == 0) return n;
        if (status != REIN_ENOMEM || !*err.message || failures == 0)
            fail_msg("allocation %ld fails: status %d, %s", n, (int)status, err.message);
    }
}

/* Calls act(context) with the first, the second, … allocation failing, until the call succeeds; jansson's are among them. The first round
 * fails one allocation at a time, the second also all later ones. Each failing call must return REIN_ENOMEM with a message. Returns the
 * number of allocations. */
static long fail_each_allocation(rein_status (*act)(void *context, rein_error *err), void *context) {
    json_set_alloc_funcs(__wrap_malloc, give_back);
    once = 1;
    const long alone = fail_each(act, context);
    once = 0;
    const long all = fail_each(act, context);
    json_set_alloc_funcs(__real_malloc, give_back);
    return all < alone ? alone : all;
}

#endif
