/* test_scratch.c - memory kept for a thread's next call: used again, larger when it must be, another's while it is taken, freed with its
 * thread (the sanitizers look). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/scratch.h"

static void *take(size_t bytes, int mark) {
    void *memory = rein_scratch_take(bytes);
    assert_non_null(memory);
    return memset(memory, mark, bytes);
}

static void used_again(void **state) {
    (void)state;
    void *first = take(1000, 1);
    rein_scratch_give(first);
    assert_ptr_equal(take(1000, 2), first);
    rein_scratch_give(first);
    assert_ptr_equal(take(10, 3), first); /* less is there, too */
    rein_scratch_give(first);
    rein_scratch_give(take(100000, 4));
    rein_scratch_give(take(0, 0));
    rein_scratch_give(NULL);
}

static void taken_is_taken(void **state) {
    (void)state;
    unsigned char *outer = take(500, 7), *inner = take(500, 8), *innermost = take(5, 9);
    assert_true(inner != outer && innermost != inner);
    rein_scratch_give(inner);
    for (int i = 0; i < 500; i++) assert_int_equal(outer[i], 7);
    rein_scratch_give(outer);
    assert_ptr_equal(take(500, 7), outer);
    rein_scratch_give(innermost);
    rein_scratch_give(outer);
}

static void too_large_to_keep(void **state) {
    (void)state;
    void *small = take(100, 1);
    rein_scratch_give(small);
    void *large = rein_scratch_take((size_t)REIN_SCRATCH_KEPT + 1);
    assert_non_null(large);
    assert_ptr_equal(take(100, 1), small); /* the large one is not it */
    rein_scratch_give(large);
    rein_scratch_give(small);
}

static void *in_thread(void *outer) {
    unsigned char *memory = take(300, 5);
    const int same = memory == outer;
    rein_scratch_give(memory);
    rein_scratch_give(take(400, 6));
    return (void *)(intptr_t)same;
}

static void threads_have_their_own(void **state) {
    void *mine = take(300, 1), *same;
    pthread_t thread;
    (void)state;
    rein_scratch_give(mine); /* not taken, and still no other thread's */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, in_thread, mine), 0);
        assert_int_equal(pthread_join(thread, &same), 0);
        assert_null(same);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(used_again),
        cmocka_unit_test(taken_is_taken),
        cmocka_unit_test(too_large_to_keep),
        cmocka_unit_test(threads_have_their_own),
    };
    return cmocka_run_group_tests_name("scratch", tests, NULL, NULL);
}
