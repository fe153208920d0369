/* test_near.c - the short exponential in f32, whose coefficients are fitted; that of f64 is tested beside the other exponentials. */
#define REAL_F32
#include "near.h"

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
