/* test_gemm.c - every element of a product is one chain of fma, k ascending: bit for bit, for any shape, layout, storage, number of
 * threads and instruction set, a row alone or among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernel/gemm.h"
#include "support/check.h"
#include "support/random.h"

static float some_number(void) { return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1); }

/* ---- 16-bit numbers, the slow and plain way */
static float plain_f16(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double size = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                        : exponent     ? ldexp(1 + mantissa / 1024.0, exponent - 15)
                                       : ldexp(mantissa / 1024.0, -14);
    return (float)(h >> 15 ? -size : size);
}
static float plain_bf16(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float at(const rein_matrix *x, size_t i, size_t j) {
    const size_t k = i * x->row + j * x->column;
    if (x->storage == REIN_STORED_F32) return ((const float *)x->data)[k];
    const uint16_t h = ((const uint16_t *)x->data)[k];
    return x->storage == REIN_STORED_BF16 ? plain_bf16(h) : plain_f16(h);
}

/* ---- matrices of any layout, with room around their rows; of one storage, or any */
enum { ANY = -1 };
static rein_matrix make(size_t rows, size_t columns, int storage) {
    const size_t gap = below(3);
    rein_matrix x = {NULL, 1, 1, (rein_storage)(storage == ANY ? (int)below(3) : storage)};
    if (below(2)) x.row = columns + gap;
    else x.column = rows + gap;
    const size_t n = (rows + gap + 1) * (columns + gap + 1);
    void *data = calloc(n, 4);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        if (x.storage == REIN_STORED_F32) ((float *)data)[i] = some_number();
        else if (x.storage == REIN_STORED_BF16) ((uint16_t *)data)[i] = (uint16_t)(0x3e00 + below(0x200) + (below(2) << 15));
        else ((uint16_t *)data)[i] = (uint16_t)(below(0x4000) + (below(2) << 15)); /* subnormals too */
    }
    x.data = data;
    return x;
}

/* f32, each row in one piece. */
static rein_matrix make_lines(size_t m, size_t n) {
    float *data = malloc(m * n * sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < m * n; i++) data[i] = some_number();
    return (rein_matrix){data, n, 1, REIN_STORED_F32};
}

static float *chain(const float *c, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add) {
    float *out = malloc((m * n + 1) * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = add ? c[i * n + j] : 0;
            for (size_t l = 0; l < k; l++) sum = fmaf(at(a, i, l), at(b, l, j), sum);
            out[i * n + j] = sum;
        }
    return out;
}

static void assert_bits(const float *got, size_t stride, const float *wanted, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            if (memcmp(&got[i * stride + j], &wanted[i * n + j], sizeof *got) != 0)
                fail_msg("(%zu, %zu) of %zu x %zu is %a, not %a", i, j, m, n, (double)got[i * stride + j],
                         (double)wanted[i * n + j]);
}

static void *scratch_for(const rein_exec *e) {
    void *scratch = aligned_alloc(64, rein_gemm_scratch(e));
    assert_non_null(scratch);
    return scratch;
}

/* One product on one machine: not packed, packed, packed as its transpose; nothing outside of it may change. */
static void check(const float *before, const float *wanted, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n,
                  size_t k, int add, const rein_exec *e) {
    const size_t stride = n + 3;
    float *c = malloc((m + 1) * stride * sizeof *c);
    void *scratch = scratch_for(e), *panels = malloc(rein_packed_size(k, n, b->storage) + 1),
         *transposed_panels = malloc(rein_packed_size(n, k, b->storage) + 1);
    assert_non_null(c), assert_non_null(panels), assert_non_null(transposed_panels);
    const rein_matrix transpose = {b->data, b->column, b->row, b->storage};
    const rein_packed packed = rein_pack(panels, b, k, n), transposed = rein_pack(transposed_panels, &transpose, n, k);
    for (int way = 0; way < 3; way++) {
        for (size_t i = 0; i < (m + 1) * stride; i++) c[i] = 77;
        for (size_t i = 0; i < m; i++) memcpy(c + i * stride, before + i * n, n * sizeof *c);
        if (way == 2) rein_gemm_packed_transposed(c, stride, a, &transposed, m, add, scratch, e);
        else if (way) rein_gemm_packed(c, stride, a, &packed, m, add, scratch, e);
        else rein_gemm(c, stride, a, b, m, n, k, add, scratch, e);
        assert_bits(c, stride, wanted, m, n);
        for (size_t i = 0; i < m; i++) assert_true(c[i * stride + n] == 77 && c[i * stride + n + 2] == 77);
        assert_true(c[m * stride] == 77);
    }
    free(c), free(scratch), free(panels), free(transposed_panels);
}

static void check_stored(size_t m, size_t n, size_t k, int storage_a, int storage_b) {
    const rein_matrix a = make(m, k, storage_a), b = make(k, n, storage_b);
    const int add = (int)below(2);
    float *before = malloc((m * n + 1) * sizeof *before);
    assert_non_null(before);
    for (size_t i = 0; i < m * n; i++) before[i] = some_number();
    float *wanted = chain(before, &a, &b, m, n, k, add);
    for (int threads = 1; threads <= 3; threads++)
        for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
            if (rein_isa_available((rein_isa)isa) && (isa != REIN_ISA_REF || threads == 2))
                check(before, wanted, &a, &b, m, n, k, add, &(rein_exec){threads, (rein_isa)isa});
    free((void *)(uintptr_t)a.data), free((void *)(uintptr_t)b.data), free(before), free(wanted);
}

static void check_everywhere(size_t m, size_t n, size_t k, int f32) {
    check_stored(m, n, k, f32 ? REIN_STORED_F32 : ANY, f32 ? REIN_STORED_F32 : ANY);
}

static void test_chains(void **unused) {
    (void)unused;
    const size_t edges[] = {1, 2, 5, 6, 7, 8, 15, 16, 17, 31, 33};
    for (int round = 0; round < (quick() ? 60 : 600); round++)
        check_everywhere(edges[below(11)], edges[below(11)], below(40), round % 2);
    for (int round = 0; round < (quick() ? 2 : 12); round++) check_everywhere(1 + below(250), 1 + below(300), 200 + below(400), 0);
    check_everywhere(3, 5, 0, 0);
    check_everywhere(1, 700, 513, 0);
    check_everywhere(193, 257, 257, 0);
}

/* Tiles of every number of rows, with one panel or several, whole and not; deeper and taller than what is packed at a time. */
static void test_tiles(void **unused) {
    (void)unused;
    const size_t widths[] = {8, 16, 17, 31, 32, 33, 47, 48, 49, 64, 95, 96, 97, 130};
    for (int storage = REIN_STORED_F32; storage <= REIN_STORED_F16; storage++) {
        for (size_t m = 1; m <= 17; m++)
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i += quick() ? 3 : 1)
                check_stored(m, widths[i], 13 + below(20), REIN_STORED_F32, storage);
        const size_t large[][3] = {{9, 160, 800}, {16, 52, 1550}, {41, 145, 790}, {81, 50, 400}, {163, 400, 60}, {170, 150, 390}};
        for (size_t i = 0; i < sizeof large / sizeof *large; i += quick() ? 2 : 1)
            check_stored(large[i][0], large[i][1], large[i][2], REIN_STORED_F32, storage);
    }
}

/* Few rows or few columns, and much of the rest: the shapes of decoding and of LoRAs, in every layout of f32 by chance. */
static void test_lean(void **unused) {
    (void)unused;
    const size_t shapes[][3] = {{100, 8, 70},  {100, 5, 40},   {8, 96, 700}, {12, 64, 650}, {5, 32, 2100},
                                {2, 600, 700}, {100, 130, 33}, {67, 12, 90}, {1, 80, 1400}, {16, 144, 650}};
    for (int round = 0; round < (quick() ? 1 : 12); round++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_everywhere(shapes[i][0], shapes[i][1], shapes[i][2], 1);
}

/* Several at once, whose right factors the threads pack together as far as there is room: the last one has none. */
static void test_together(void **unused) {
    (void)unused;
    enum { N = 4 };
    const size_t m = 66, n[N] = {1000, 130, 1000, 1200}, k[N] = {900, 500, 840, 400};
    rein_matrix a[N], b[N];
    float *wanted[N], *c[N];
    void *transposed[N];
    for (size_t i = 0; i < N; i++) {
        a[i] = make(m, k[i], REIN_STORED_F32), b[i] = make(k[i], n[i], i % 2 ? REIN_STORED_BF16 : REIN_STORED_F32);
        c[i] = malloc(m * n[i] * sizeof *c[i]), transposed[i] = malloc(rein_packed_size(n[i], k[i], b[i].storage));
        assert_non_null(c[i]), assert_non_null(transposed[i]);
        wanted[i] = chain(NULL, &a[i], &b[i], m, n[i], k[i], 0);
    }
    for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++) {
        const rein_exec e = {2, (rein_isa)isa};
        rein_product products[N];
        if (!rein_isa_available(e.isa)) continue;
        for (size_t i = 0; i < N; i++) {
            const rein_matrix transpose = {b[i].data, b[i].column, b[i].row, b[i].storage};
            rein_right_factor right = {.view = b[i], .k = k[i], .n = n[i]};
            if (i % 2)
                right = (rein_right_factor){
                    .packed = rein_pack(transposed[i], &transpose, n[i], k[i]), .transposed = 1, .k = k[i], .n = n[i]};
            products[i] = (rein_product){c[i], n[i], a[i], right, m, 0};
        }
        void *scratch = scratch_for(&e);
        rein_gemm_batch(products, N, scratch, &e);
        for (size_t i = 0; i < N; i++) assert_bits(c[i], n[i], wanted[i], m, n[i]);
        free(scratch);
    }
    for (size_t i = 0; i < N; i++)
        free((void *)(uintptr_t)a[i].data), free((void *)(uintptr_t)b[i].data), free(wanted[i]), free(c[i]), free(transposed[i]);
}

/* Several that read the same rows, which the threads pack together, and one that is added to what is there: blocks cut again into pieces
 * that any thread may take, the last rows and columns not whole. */
static void test_same_rows(void **unused) {
    (void)unused;
    enum { N = 3 };
    const size_t sizes[] = {26, 160, 421}, n[N] = {577, 190, 402}, k = 650;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s += quick() ? 2 : 1) {
        const size_t m = sizes[s];
        const rein_matrix a = make_lines(m, k);
        rein_matrix b[N];
        float *before[N], *wanted[N], *c[N];
        void *panels[N];
        for (size_t i = 0; i < N; i++) {
            b[i] = make(k, n[i], i ? REIN_STORED_BF16 : REIN_STORED_F32);
            before[i] = malloc(m * n[i] * sizeof *before[i]), c[i] = malloc(m * n[i] * sizeof *c[i]);
            panels[i] = malloc(rein_packed_size(k, n[i], b[i].storage));
            assert_non_null(before[i]), assert_non_null(c[i]), assert_non_null(panels[i]);
            for (size_t j = 0; j < m * n[i]; j++) before[i][j] = some_number();
            wanted[i] = chain(before[i], &a, &b[i], m, n[i], k, i == 1);
        }
        for (int way = 0; way <= 4 * (REIN_ISA_COUNT - REIN_ISA_AVX2); way++) { /* ref, then each other set with 2 to 5 threads */
            const rein_exec e = {way ? 2 + (way - 1) % 4 : 2, (rein_isa)(way ? REIN_ISA_AVX2 + (way - 1) / 4 : REIN_ISA_REF)};
            if (!rein_isa_available(e.isa) || (way == 0 && s > 0)) continue; /* plain C is slow */
            rein_product products[N];
            void *scratch = scratch_for(&e);
            for (size_t i = 0; i < N; i++) {
                const rein_packed packed = rein_pack(panels[i], &b[i], k, n[i]);
                memcpy(c[i], before[i], m * n[i] * sizeof *c[i]);
                products[i] = (rein_product){c[i], n[i], a, {.packed = packed, .k = k, .n = n[i]}, m, i == 1};
            }
            rein_gemm_batch(products, N, scratch, &e);
            for (size_t i = 0; i < N; i++) assert_bits(c[i], n[i], wanted[i], m, n[i]);
            free(scratch);
        }
        for (size_t i = 0; i < N; i++)
            free((void *)(uintptr_t)b[i].data), free(before[i]), free(wanted[i]), free(c[i]), free(panels[i]);
        free((void *)(uintptr_t)a.data);
    }
}

/* A row alone, and among others. */
static void test_row_alone(void **unused) {
    (void)unused;
    const size_t m = 50, n = 70, k = 300;
    rein_matrix a = make(m, k, ANY), b = make(k, n, ANY);
    const rein_exec e = {2, REIN_ISA_BEST};
    const rein_exec resolved = {2, rein_isa_best()};
    float *all = malloc(m * n * sizeof *all), one[70];
    void *scratch = scratch_for(&e);
    assert_non_null(all);
    rein_gemm(all, n, &a, &b, m, n, k, 0, scratch, &resolved);
    for (size_t i = 0; i < m; i++) {
        rein_matrix row = a;
        row.data = (const char *)a.data + rein_storage_bytes(a.storage, i * a.row);
        rein_gemm(one, n, &row, &b, 1, n, k, 0, scratch, &resolved);
        assert_memory_equal(one, all + i * n, n * sizeof *one);
    }
    free(all), free(scratch), free((void *)(uintptr_t)a.data), free((void *)(uintptr_t)b.data);
}

/* Every 16-bit number, by way of a product with 1. */
static void test_halves(void **unused) {
    (void)unused;
    uint16_t *all = malloc(65536 * sizeof *all);
    float *c = malloc(65536 * sizeof *c);
    const float one = 1;
    const rein_exec e = {1, REIN_ISA_REF};
    void *scratch = scratch_for(&e);
    assert_non_null(all), assert_non_null(c);
    for (size_t i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
        for (int storage = REIN_STORED_BF16; storage <= REIN_STORED_F16 && rein_isa_available((rein_isa)isa); storage++) {
            const rein_matrix a = {&one, 1, 1, REIN_STORED_F32}, b = {all, 65536, 1, (rein_storage)storage};
            rein_gemm(c, 65536, &a, &b, 1, 65536, 1, 0, scratch, &(rein_exec){1, (rein_isa)isa});
            for (size_t i = 0; i < 65536; i++) {
                const float wanted = at(&b, 0, i);
                assert_true(isnan(wanted) ? isnan(c[i]) : c[i] == wanted);
            }
        }
    free(all), free(c), free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),    cmocka_unit_test(test_tiles),
                                       cmocka_unit_test(test_lean),      cmocka_unit_test(test_together),
                                       cmocka_unit_test(test_same_rows), cmocka_unit_test(test_row_alone),
                                       cmocka_unit_test(test_halves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
