/* test_gemm_blocks.c - a product with quantised weights has the bits of the product with the same weights in f32: packed, and packed as its
 * transpose; for any shape, number of threads and instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernel/gemm.h"
#include "kernel/kernels.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/random.h"

/* Blocks of any bits whose scales are finite: no f16 with an exponent of ones, wherever it lies. */
static uint8_t *random_blocks(rein_storage storage, size_t n) {
    const size_t bytes = rein_storage_bytes(storage, n);
    uint8_t *blocks = some(bytes, 1);
    for (size_t i = 0; i < bytes; i++) blocks[i] = (uint8_t)(random_bits() & 0xbf);
    return blocks;
}

typedef struct shape {
    size_t m, out, in; /* the weights are [out][in], in blocks along `in` */
} shape;

static void check_product(const shape *s, const uint8_t *blocks, const float *decoded, rein_storage storage, int transposed,
                          const rein_exec *e) {
    const size_t k = transposed ? s->out : s->in, n = transposed ? s->in : s->out, stride = n + 3;
    const int add = (int)below(2);
    const rein_matrix stored = {blocks, 1, s->in, storage}, plain = {decoded, 1, s->in, REIN_STORED_F32};
    void *scratch = aligned_alloc(64, rein_gemm_scratch(e));
    void *panels = some(rein_packed_size(s->in, s->out, storage), 1),
         *plain_panels = some(rein_packed_size(s->in, s->out, REIN_STORED_F32), 1);
    float *a = some(s->m * k, sizeof *a), *c = some(s->m * stride, sizeof *c), *wanted = some(s->m * stride, sizeof *c);
    const rein_packed b = rein_pack_on(panels, &stored, s->in, s->out, e),
                      plain_b = rein_pack_on(plain_panels, &plain, s->in, s->out, e);
    const rein_matrix left = {a, k, 1, REIN_STORED_F32};
    for (size_t i = 0; i < s->m * k; i++) a[i] = (float)uniform(-1, 1);
    for (size_t i = 0; i < s->m * stride; i++) c[i] = wanted[i] = (float)uniform(-1, 1);
    (transposed ? rein_gemm_packed_transposed : rein_gemm_packed)(c, stride, &left, &b, s->m, add, scratch, e);
    (transposed ? rein_gemm_packed_transposed : rein_gemm_packed)(wanted, stride, &left, &plain_b, s->m, add, scratch, e);
    if (memcmp(c, wanted, s->m * stride * sizeof *c) != 0)
        fail_msg("%zu x %zu x %zu of storage %d, transposed %d, %d threads, %s", s->m, s->out, s->in, (int)storage, transposed,
                 e->threads, rein_isa_name(e->isa));
    free(scratch), free(panels), free(plain_panels), free(a), free(c), free(wanted);
}

static void check_shape(const shape *s, rein_storage storage, int everywhere) {
    uint8_t *blocks = random_blocks(storage, s->out * s->in);
    float *decoded = some(s->out * s->in, sizeof *decoded);
    rein_kernels_of(REIN_ISA_REF)->decode(decoded, blocks, storage, s->out * s->in);
    for (int isa = everywhere ? REIN_ISA_REF : REIN_ISA_REF + 1; isa < REIN_ISA_COUNT; isa++)
        if (rein_isa_available((rein_isa)isa))
            for (int transposed = 0; transposed < 2; transposed++)
                check_product(s, blocks, decoded, storage, transposed, &(rein_exec){1 + (int)below(3), (rein_isa)isa});
    free(blocks), free(decoded);
}

static void test_blocks(void **unused) {
    static const size_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17}, columns[] = {1, 5, 15, 16, 17, 31, 33, 48, 65, 100};
    (void)unused;
    for (size_t storage = 0; storage < REIN_STORAGE_COUNT; storage++) {
        const size_t elements = rein_storage_elements((rein_storage)storage);
        if (elements == 1) continue;
        for (int round = 0; round < (quick() ? 3 : 20); round++)
            check_shape(&(shape){rows[below(COUNT(rows))], columns[below(COUNT(columns))], elements * (1 + below(512 / elements))},
                        (rein_storage)storage, 1);
        check_shape(&(shape){1, 700, 512}, (rein_storage)storage, 0);
        check_shape(&(shape){15, 700, 512}, (rein_storage)storage, 0);  /* tiles of 8, 4, 2 and 1 rows */
        check_shape(&(shape){70, 300, 1024}, (rein_storage)storage, 0); /* right factors shared by threads, several parts */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
