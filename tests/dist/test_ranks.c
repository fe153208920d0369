/* test_ranks.c - what ranks exchange, and that ranks which fail, or do different things, end with one error on all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "dist/ranks.h"
#include "support/thread_ranks.h"

enum { LONG = 3 * REIN_RANKS_PIECE + 5 };

/* What each rank found; checked by the main thread. */
typedef struct found {
    int bad[MOST_RANKS];
    rein_status status[MOST_RANKS];
    rein_error err[MOST_RANKS];
    size_t which; /* the rank that is different */
} found;

static unsigned char byte_of(size_t i, size_t rank) { return (unsigned char)(i * 7 + rank * 31 + i / 1000); }

/* ---- exchanges */
static int wrong_part(const unsigned char *array, const size_t *begins, size_t ranks) {
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = begins[r]; i < begins[r + 1]; i++)
            if (array[i] != byte_of(i - begins[r], r)) return 1;
    return 0;
}

static void exchange(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t n = rein_ranks_size(ranks), rank = rein_ranks_rank(ranks);
    size_t begins[MOST_RANKS + 1], sizes[MOST_RANKS] = {0};
    unsigned char *array = calloc(LONG, 1), *own = malloc(LONG);
    int any = 0, number = rank ? 0 : 41, *bad = &f->bad[rank];
    /* Parts of very different lengths: some empty, one longer than a piece. */
    for (size_t r = 0; r <= n; r++) begins[r] = r == n ? LONG : r < 2 ? r * 3 : LONG - 9 * (n - r);
    if (n == 1) begins[1] = LONG;
    for (size_t r = 0; r < n; r++) sizes[r] = begins[r + 1] - begins[r];
    for (size_t i = 0; i < sizes[rank]; i++) array[begins[rank] + i] = own[i] = byte_of(i, rank);
    *bad |= rein_ranks_share(array, begins, ranks, NULL) || wrong_part(array, begins, n);
    memset(array, 0, LONG);
    *bad |= rein_ranks_gather_parts(array, own, sizes, ranks, NULL) || wrong_part(array, begins, n);
    memset(array, 0, LONG);
    memcpy(array + begins[rank], own, sizes[rank]);
    *bad |= rein_ranks_collect(array, begins, ranks, NULL) || (!rank && wrong_part(array, begins, n));
    *bad |= rank && begins[rank] && array[0] != 0; /* only rank 0 gets them */
    *bad |= rein_ranks_tell(ranks, &number, sizeof number, NULL) || number != 41;
    *bad |= rein_ranks_any(&any, ranks, 0, NULL) || any;
    *bad |= rein_ranks_any(&any, ranks, rank == n - 1, NULL) || !any;
    *bad |= rein_ranks_compare(ranks, 77, "the numbers", NULL) != REIN_OK;
    *bad |= rein_ranks_agree(ranks, REIN_OK, NULL) != REIN_OK;
    *bad |= rein_ranks_end(ranks, 0, NULL, NULL) != REIN_OK;
    free(array), free(own);
}

static void test_exchange(void **state) {
    (void)state;
    for (size_t n = 1; n <= 8; n++) {
        found f = {{0}, {0}, {{0}}, 0};
        run_ranks(n, exchange, &f);
        for (size_t r = 0; r < n; r++)
            if (f.bad[r]) fail_msg("rank %zu of %zu got something else", r, n);
    }
}

/* ---- failures */
static void one_fails(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    rein_error *err = &f->err[rank];
    rein_status mine = REIN_OK;
    if (rank == f->which) mine = rein_fail_at(err, REIN_ERANGE, "ids", 7, "is %d: too large", 9);
    f->status[rank] = rein_ranks_agree(ranks, mine, err);
    f->bad[rank] = rein_ranks_agree(ranks, REIN_OK, NULL) == REIN_OK; /* nothing is exchanged any more */
}

static void all_fail(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    f->status[rank] = rein_ranks_agree(ranks, rein_fail_at(&f->err[rank], REIN_EINVAL, "ids", 7, "is 9: too large"), &f->err[rank]);
}

static void one_leaves(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    char bytes[8] = "";
    if (rank == f->which) f->status[rank] = rein_ranks_end(ranks, 1, "no room on this machine", &f->err[rank]);
    else f->status[rank] = rein_ranks_tell(ranks, bytes, sizeof bytes, &f->err[rank]);
    f->bad[rank] = rein_ranks_end(ranks, 1, "again", NULL) != REIN_OK;
}

static void one_does_else(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    int any;
    char bytes[8] = "";
    if (rank == f->which) f->status[rank] = rein_ranks_any(&any, ranks, 0, &f->err[rank]);
    else f->status[rank] = rein_ranks_tell(ranks, bytes, sizeof bytes, &f->err[rank]);
}

static void other_length(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    char bytes[8] = "";
    f->status[rank] = rein_ranks_tell(ranks, bytes, rank == f->which ? 7 : 8, &f->err[rank]);
}

static void other_weights(rein_ranks *ranks, void *user) {
    found *f = user;
    const size_t rank = rein_ranks_rank(ranks);
    f->status[rank] = rein_ranks_compare(ranks, rank == f->which ? 5 : 6, "the weights", &f->err[rank]);
}

/* All ranks must fail with this message. */
static void expect_failure(size_t n, size_t which, void (*work)(rein_ranks *, void *), rein_status code, const char *message) {
    found f = {{0}, {0}, {{0}}, which};
    run_ranks(n, work, &f);
    for (size_t r = 0; r < n; r++) {
        if (f.status[r] != code || strcmp(f.err[r].message, message) != 0)
            fail_msg("rank %zu of %zu: %d \"%s\", not \"%s\"", r, n, (int)f.status[r], f.err[r].message, message);
        assert_false(f.bad[r]);
    }
}

static void test_failures(void **state) {
    (void)state;
    expect_failure(3, 2, one_fails, REIN_ERANGE, "rank 2: ids[7] is 9: too large");
    expect_failure(3, 0, one_fails, REIN_ERANGE, "ids[7] is 9: too large");
    expect_failure(3, 0, all_fail, REIN_EINVAL, "ids[7] is 9: too large");
    expect_failure(4, 3, one_leaves, REIN_ESYSTEM, "rank 3: no room on this machine");
    expect_failure(4, 0, one_leaves, REIN_ESYSTEM, "no room on this machine");
    expect_failure(4, 2, one_does_else, REIN_ESYSTEM,
                   "rank 2 does not do what rank 0 does: all ranks must run the same command with the same rein");
    expect_failure(2, 1, other_length, REIN_ESYSTEM,
                   "rank 1 does not do what rank 0 does: all ranks must run the same command with the same rein");
}

static void test_compare(void **state) {
    (void)state;
    for (size_t n = 3; n <= 5; n++)
        for (size_t which = 0; which < n; which++) {
            char message[200];
            snprintf(message, sizeof message, "the weights of rank %zu differ from those of the other ranks", which);
            expect_failure(n, which, other_weights, REIN_ESYSTEM, message);
        }
    expect_failure(2, 1, other_weights, REIN_ESYSTEM,
                   "the weights of rank 1 and rank 0 differ, and too few ranks agree to tell which is right");
    expect_failure(2, 0, other_weights, REIN_ESYSTEM,
                   "the weights of rank 1 and rank 0 differ, and too few ranks agree to tell which is right");
}

static void test_parts(void **state) {
    (void)state;
    for (size_t size = 1; size < 10; size++)
        for (size_t n = 0; n < 40; n++) {
            assert_true(rein_ranks_part(n, 0, size) == 0 && rein_ranks_part(n, size, size) == n);
            for (size_t r = 0; r < size; r++) {
                const size_t from = rein_ranks_part(n, r, size), to = rein_ranks_part(n, r + 1, size);
                assert_true(from <= to && to - from <= n / size + 1 && to - from >= n / size);
                for (size_t i = from; i < to; i++) assert_true(rein_ranks_owner(i, n, size) == r);
            }
        }
}

/* NULL is a single rank; a library without MPI says so. */
static void test_single(void **state) {
    (void)state;
    rein_error err = {0};
    rein_transport transport = {.rank = 2, .size = 2};
    rein_ranks *ranks;
    int any, number = 3;
    assert_true(rein_ranks_rank(NULL) == 0 && rein_ranks_size(NULL) == 1 && !rein_ranks_several(NULL));
    assert_true(rein_ranks_agree(NULL, REIN_ENOMEM, NULL) == REIN_ENOMEM && !rein_ranks_tell(NULL, &number, sizeof number, NULL));
    assert_true(!rein_ranks_any(&any, NULL, 1, NULL) && any && !rein_ranks_compare(NULL, 1, "x", NULL));
    assert_true(!rein_ranks_end(NULL, 1, "x", NULL));
    rein_ranks_abort(NULL, 1);
    rein_ranks_close(NULL);
    assert_true(rein_ranks_open(&ranks, &transport, &err) == REIN_EINVAL && !ranks);
#ifndef REIN_MPI
    assert_true(rein_transport_mpi(&transport, &err) == REIN_EINVAL && strstr(err.message, "make mpi"));
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_single),  cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
