/* test_arena.c - memory taken piece by piece: where the pieces lie, that pages are used again, marks, and what happens when there is none.
 * Chunks come from mmap, which the wrappers of allocation.h do not see: its failures are made by asking for more than there can be; those
 * of the list of chunks, by the wrappers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "rein/base.h"
#include "support/random.h"

#include "support/allocation.h"

enum { MEGABYTE = 1 << 20, PIECES = 300 };

typedef struct piece {
    unsigned char *data;
    size_t bytes;
    unsigned char mark;
} piece;

static piece take(rein_arena *a, size_t bytes) {
    piece p = {rein_arena_take(a, bytes), bytes, (unsigned char)below(256)};
    assert_non_null(p.data);
    assert_true((uintptr_t)p.data % 64 == 0);
    memset(p.data, p.mark, bytes);
    return p;
}

static void assert_untouched(const piece *p) {
    for (size_t i = 0; i < p->bytes; i++)
        if (p->data[i] != p->mark) fail_msg("byte %zu of %zu was overwritten", i, p->bytes);
}

/* Of any size, nothing overlaps, and all of it can be written. */
static void test_pieces(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 4096, 100000, MEGABYTE - 1, MEGABYTE, MEGABYTE + 1, 3 * MEGABYTE};
    rein_arena a = {0};
    piece pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) pieces[i] = take(&a, i % 20 ? below(5000) : sizes[below(12)]);
    for (size_t i = 0; i < PIECES; i++) assert_untouched(&pieces[i]);
    assert_false(a.failed);
    rein_arena_free(&a);
    assert_true(rein_arena_bytes(&a) == 0);
    rein_arena_free(&a);       /* harmless */
    pieces[0] = take(&a, 100); /* and it begins again */
    assert_untouched(&pieces[0]);
    rein_arena_free(&a);
}

static void test_floats(void **state) {
    (void)state;
    rein_arena a = {0};
    float *x = rein_arena_floats(&a, 1000), *y = rein_arena_floats(&a, 17);
    assert_non_null(x), assert_non_null(y);
    assert_true((char *)y - (char *)x >= 4000 && (uintptr_t)y % 64 == 0);
    x[999] = 1, y[16] = 2;
    assert_true(x[999] == 1);
    rein_arena_free(&a);
}

/* What a step took, the next finds at the same place: no page is asked for twice. */
static void test_reuse(void **state) {
    (void)state;
    rein_arena a = {0};
    void *first[PIECES];
    size_t sizes[PIECES], bytes = 0;
    for (size_t i = 0; i < PIECES; i++) sizes[i] = i % 50 ? below(3000) : below(3 * MEGABYTE);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < PIECES; i++) {
            void *at = rein_arena_take(&a, sizes[i]);
            if (step == 0) first[i] = at;
            assert_ptr_equal(at, first[i]);
        }
        if (step == 0) bytes = rein_arena_bytes(&a);
        assert_true(bytes == rein_arena_bytes(&a));
        rein_arena_reset(&a);
    }
    /* A step that needs less, then one that needs more than any chunk has. */
    rein_arena_take(&a, 10);
    rein_arena_reset(&a);
    const piece large = take(&a, 2 * bytes);
    assert_untouched(&large);
    assert_true(rein_arena_bytes(&a) > 2 * bytes);
    rein_arena_free(&a);
}

static void test_marks(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        rein_arena a = {0};
        piece before[10];
        const size_t n = below(10), largest = round % 10 ? 3000 : 2 * MEGABYTE;
        for (size_t i = 0; i < n; i++) before[i] = take(&a, below(largest));
        const rein_mark mark = rein_arena_mark(&a);
        void *after = rein_arena_take(&a, 100);
        for (int again = 0; again < 3; again++) {
            rein_arena_release(&a, mark);
            assert_ptr_equal(rein_arena_take(&a, 100), after);
            const rein_mark inner = rein_arena_mark(&a);
            void *deeper = rein_arena_take(&a, 70);
            for (size_t i = below(5); i > 0; i--) take(&a, below(largest)); /* into chunks that are new, or were there */
            rein_arena_release(&a, inner);
            assert_ptr_equal(rein_arena_take(&a, 70), deeper);
        }
        for (size_t i = 0; i < n; i++) assert_untouched(&before[i]);
        rein_arena_free(&a);
    }
}

/* More than there can be: once it failed, everything fails, until it is reset; what was there is still there. */
static void assert_sticky(rein_arena *a, const piece *kept, rein_mark mark) {
    assert_true(a->failed);
    assert_null(rein_arena_take(a, 1));
    assert_null(rein_arena_take(a, 0));
    assert_null(rein_arena_floats(a, 1));
    rein_arena_release(a, mark);
    assert_true(a->failed);
    assert_null(rein_arena_take(a, 1));
    assert_untouched(kept);
    rein_arena_reset(a);
    assert_false(a->failed);
    assert_ptr_equal(rein_arena_take(a, 64), kept->data);
}

static void test_huge(void **state) {
    (void)state;
    const size_t huge[] = {(size_t)1 << 47,  (size_t)1 << 60, SIZE_MAX / 4 - 200, SIZE_MAX / 4,
                           SIZE_MAX / 4 + 1, SIZE_MAX / 2,    SIZE_MAX - 63,      SIZE_MAX};
    rein_arena a = {0};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        const piece kept = take(&a, 64);
        const rein_mark mark = rein_arena_mark(&a);
        assert_null(rein_arena_take(&a, huge[i]));
        assert_sticky(&a, &kept, mark);
        rein_arena_reset(&a);
        const piece again = take(&a, 64);
        assert_null(rein_arena_floats(&a, huge[i]));
        assert_sticky(&a, &again, mark);
        rein_arena_reset(&a);
    }
    assert_null(rein_arena_floats(&a, SIZE_MAX / 4 + 2)); /* in bytes this would be 4 */
    rein_arena_free(&a);
    rein_arena empty = {0};
    assert_null(rein_arena_take(&empty, SIZE_MAX));
    assert_true(rein_arena_bytes(&empty) == 0);
    rein_arena_free(&empty);
}

/* A limit on the address space of the process: the chunk that doubles cannot be had, one that is just enough can. Not under a sanitizer,
 * whose shadow is larger than any limit. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static size_t address_space(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return (size_t)pages * 4096;
}

static void test_limit(void **state) {
    struct rlimit before;
    rein_arena a = {0};
    (void)state;
    if (SANITIZED || !address_space() || getrlimit(RLIMIT_AS, &before) != 0) skip();
    take(&a, 40 * MEGABYTE);
    const struct rlimit tight = {address_space() + 20 * MEGABYTE, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    const piece kept = take(&a, 5 * MEGABYTE); /* 80 are not there */
    void *none = rein_arena_take(&a, 30 * MEGABYTE);
    const int failed = a.failed;
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_null(none);
    assert_true(failed);
    assert_untouched(&kept);
    rein_arena_reset(&a);
    take(&a, 30 * MEGABYTE);
    rein_arena_free(&a);
}

/* No memory for the list of chunks, or for an entry of it. */
static rein_status take_many(void *context, rein_error *err) {
    rein_arena a = {0};
    (void)context;
    for (size_t i = 0; i < 9; i++) rein_arena_take(&a, (size_t)MEGABYTE << i); /* each in a chunk of its own: the list grows once */
    const int failed = a.failed;
    rein_arena_free(&a);
    return failed ? rein_fail(err, REIN_ENOMEM, "failed") : REIN_OK;
}

static void test_lists(void **state) {
    (void)state;
    if (!can_fail()) skip();
    assert_int_equal(fail_each_allocation(take_many, NULL), 11); /* 9 chunks, their list twice */
}

/* Zeros, few and many of them; nothing to give back is harmless; too much is refused. */
static void test_pages(void **unused) {
    (void)unused;
    const size_t sizes[] = {1, 4096, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *pages = rein_pages_take(sizes[i]);
        assert_non_null(pages);
        assert_true((uintptr_t)pages % 4096 == 0);
        for (size_t j = 0; j < sizes[i]; j += 511) assert_true(pages[j] == 0);
        memset(pages, 1, sizes[i]);
        rein_pages_free(pages, sizes[i]);
    }
    rein_pages_free(NULL, 0);
    assert_null(rein_pages_take(SIZE_MAX / 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages), cmocka_unit_test(test_pieces), cmocka_unit_test(test_floats),
                                       cmocka_unit_test(test_reuse), cmocka_unit_test(test_marks),  cmocka_unit_test(test_huge),
                                       cmocka_unit_test(test_limit), cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
