/* test_decode.c - blocks of quantised weights decode to the bits that PyPI gguf gives, on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernels.h"
#include "support/check.h"
#include "support/random.h"

static const char *const names[] = {
#define NAME(name, decode, elements, bytes) #name,
    REIN_STORAGE_TYPES(NAME)
#undef NAME
};

static rein_storage storage_of(const char *name) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(name, names[i])) return (rein_storage)i;
    fail_msg("%s is no storage type", name);
    return REIN_STORED_F32;
}

static size_t read_bytes(uint8_t *to, const char *text) {
    size_t n = 0;
    for (unsigned byte; sscanf(text + 2 * n, "%2x", &byte) == 1; n++) to[n] = (uint8_t)byte;
    return n;
}

/* A block at an odd address, decoded alone and as the second of three. */
static void check_block(rein_storage storage, const uint8_t *block, const uint8_t *values, const rein_kernels *kernels) {
    const size_t bytes = rein_storage_bytes(storage, rein_storage_elements(storage)), elements = rein_storage_elements(storage);
    uint8_t stored[3 * 256 + 1] = {0};
    float got[3 * REIN_STORAGE_BLOCK + 1];
    memcpy(stored + 1 + bytes, block, bytes);
    got[3 * elements] = 77;
    kernels->decode(got, stored + 1, storage, 3 * elements);
    assert_memory_equal(got + elements, values, elements * sizeof *got);
    for (size_t i = 0; i < elements; i++) assert_true(got[i] == 0 && got[2 * elements + i] == 0);
    assert_true(got[3 * elements] == 77);
    kernels->decode(got, stored + 1 + bytes, storage, elements);
    assert_memory_equal(got, values, elements * sizeof *got);
}

static void test_blocks(void **unused) {
    FILE *file = fopen("tests/kernel/fixtures/blocks.txt", "r");
    char name[10], block[600], values[2100];
    uint8_t bytes[300], bits[1050];
    size_t seen[REIN_STORAGE_COUNT] = {0};
    (void)unused;
    assert_non_null(file);
    while (fscanf(file, "%9s %599s %2099s", name, block, values) == 3) {
        const rein_storage storage = storage_of(name);
        const size_t elements = rein_storage_elements(storage);
        assert_int_equal(read_bytes(bytes, block), rein_storage_bytes(storage, elements));
        assert_int_equal(read_bytes(bits, values), elements * sizeof(float));
        for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
            if (rein_isa_available((rein_isa)isa)) check_block(storage, bytes, bits, rein_kernels_of((rein_isa)isa));
        seen[storage]++;
    }
    fclose(file);
    for (size_t i = 0; i < REIN_STORAGE_COUNT; i++) assert_int_equal(seen[i] > 0, rein_storage_elements((rein_storage)i) > 1);
}

/* Any bits at all, among them scales that are infinite or NaN: all instruction sets agree on what is finite, infinite and NaN. */
static void test_any_bits(void **unused) {
    enum { BLOCKS = 3 };
    uint8_t stored[BLOCKS * 256];
    float wanted[BLOCKS * REIN_STORAGE_BLOCK], got[BLOCKS * REIN_STORAGE_BLOCK];
    (void)unused;
    for (int round = 0; round < (quick() ? 100 : 2000); round++) {
        const rein_storage storage = (rein_storage)below(REIN_STORAGE_COUNT);
        const size_t n = BLOCKS * rein_storage_elements(storage);
        for (size_t i = 0; i < sizeof stored; i++) stored[i] = (uint8_t)random_bits();
        rein_kernels_of(REIN_ISA_REF)->decode(wanted, stored, storage, n);
        for (int isa = REIN_ISA_REF + 1; isa < REIN_ISA_COUNT; isa++) {
            if (!rein_isa_available((rein_isa)isa)) continue;
            rein_kernels_of((rein_isa)isa)->decode(got, stored, storage, n);
            for (size_t i = 0; i < n; i++)
                assert_true(memcmp(&got[i], &wanted[i], sizeof *got) == 0 || (got[i] != got[i] && wanted[i] != wanted[i]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_any_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
