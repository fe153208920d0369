/* gemm.c - a product cut into blocks that depend on its shape alone; threads take whole blocks. */
#include "gemm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "rows.h"

const rein_kernels *rein_kernels_of(rein_isa isa) {
#ifdef REIN_HAVE_AVX2
    if (isa == REIN_ISA_AVX512) return &rein_kernels_avx512_f32;
    if (isa == REIN_ISA_AVX2) return &rein_kernels_avx2_f32;
#endif
    (void)isa;
    return &rein_kernels_ref_f32;
}

static size_t panels(size_t n) { return (n + GEMM_PANEL - 1) / GEMM_PANEL; }

size_t rein_packed_size(size_t k, size_t n, rein_storage storage) {
    return panels(n) * k * GEMM_PANEL * rein_storage_size(storage);
}

typedef struct packing {
    char *to;
    const rein_matrix *b;
    size_t k, n;
    rein_pack_fn *pack;
} packing;

static void pack_halves(uint16_t *to, const rein_matrix *b, size_t first, size_t n, size_t k) {
    const uint16_t *from = (const uint16_t *)b->data + first * b->column;
    const size_t columns = n - first < GEMM_PANEL ? n - first : GEMM_PANEL;
    for (size_t i = 0; i < k; i++, to += GEMM_PANEL, from += b->row)
        for (size_t j = 0; j < GEMM_PANEL; j++)
            to[b->storage == REIN_STORED_BF16 ? 2 * (j % 8) + j / 8 : j] = j < columns ? from[j * b->column] : 0;
}

static void do_panel(void *context, size_t piece, int thread) {
    const packing *p = context;
    char *to = p->to + piece * p->k * GEMM_PANEL * rein_storage_size(p->b->storage);
    (void)thread;
    if (p->b->storage == REIN_STORED_F32) p->pack((float *)(void *)to, p->b, piece * GEMM_PANEL, p->n, p->k);
    else pack_halves((uint16_t *)(void *)to, p->b, piece * GEMM_PANEL, p->n, p->k);
}

rein_packed rein_pack(void *to, const rein_matrix *b, size_t k, size_t n) {
    const rein_exec here = {1, rein_isa_best()};
    return rein_pack_on(to, b, k, n, &here);
}

rein_packed rein_pack_on(void *to, const rein_matrix *b, size_t k, size_t n, const rein_exec *exec) {
    packing p = {to, b, k, n, rein_kernels_of(exec->isa)->pack};
    rein_parallel(k * n < 65536 ? 1 : exec->threads, panels(n), do_panel, &p);
    return (rein_packed){to, k, n, b->storage};
}

size_t rein_gemm_scratch(const rein_exec *exec) { return (size_t)exec->threads * GEMM_SCRATCH * sizeof(float); }

/* ---- products cut into blocks, one for each thread. Where the cuts are changes nothing but the time. */
typedef struct cut {
    rein_gemm_task whole;
    size_t rows, columns; /* of a block */
    size_t down, across;  /* blocks */
} cut;

typedef struct products {
    const rein_kernels *kernels;
    cut cuts[REIN_PRODUCTS];
    size_t n, parts;
} products;

static const double SMALL = 1e5; /* multiplications that are not worth the threads */

static void do_block(const cut *p, size_t block, rein_gemm_fn *multiply, int thread) {
    const size_t i = block % p->down * p->rows, j = block / p->down * p->columns;
    const size_t size = rein_storage_size(p->whole.b.storage);
    rein_gemm_task t = p->whole;
    t.m = p->whole.m - i < p->rows ? p->whole.m - i : p->rows;
    t.n = p->whole.n - j < p->columns ? p->whole.n - j : p->columns;
    t.c += i * t.stride + j;
    t.a.data = (const char *)t.a.data + i * t.a.row * rein_storage_size(t.a.storage);
    t.b.data = (const char *)t.b.data + j * (t.turned ? GEMM_PANEL : t.panel ? t.panel : t.b.column) * size;
    t.scratch += (size_t)thread * GEMM_SCRATCH;
    multiply(&t);
}

/* A block of each product. */
static void do_blocks(void *context, size_t piece, int thread) {
    const products *all = context;
    for (size_t i = 0; i < all->n; i++)
        for (size_t block = piece; block < all->cuts[i].down * all->cuts[i].across; block += all->parts)
            do_block(&all->cuts[i], block, all->kernels->gemm, thread);
}

/* n in `parts` pieces, each a multiple of `unit`. */
static size_t share(size_t n, size_t parts, size_t unit) { return ((n + parts - 1) / parts + unit - 1) / unit * unit; }

/* Rows and columns are packed once for each block, which costs about as much as 8 more columns or rows. */
static void cut_for(cut *p, size_t parts, size_t tile_rows) {
    const size_t m = p->whole.m, n = p->whole.n;
    double least = INFINITY;
    for (size_t down = 1; down <= parts; down++) {
        const size_t across = (parts + down - 1) / down, each = (down * across + parts - 1) / parts;
        const size_t rows = share(m, down, tile_rows), columns = share(n, across, GEMM_PANEL);
        const double cost = (double)each * ((double)rows * (double)columns + 8.0 * (double)(rows + columns));
        if (cost < least) least = cost, p->rows = rows, p->columns = columns;
    }
    p->down = (m + p->rows - 1) / p->rows, p->across = (n + p->columns - 1) / p->columns;
}

static void add_product(products *all, rein_gemm_task task) {
    if (task.m && task.n) all->cuts[all->n++].whole = task;
}

static void run(products *all, const rein_exec *exec) {
    double work = 0;
    for (size_t i = 0; i < all->n; i++)
        work += (double)all->cuts[i].whole.m * (double)all->cuts[i].whole.n * (double)all->cuts[i].whole.k;
    if (!all->n) return;
    all->parts = work < SMALL ? 1 : (size_t)exec->threads;
    for (size_t i = 0; i < all->n; i++) cut_for(&all->cuts[i], all->parts, all->kernels->tile_rows);
    rein_parallel(exec->threads, all->parts, do_blocks, all);
}

static rein_gemm_task task_of(const rein_product *p, void *scratch) {
    rein_gemm_task t = {.c = p->c, .stride = p->stride, .a = p->a, .b = p->b.view, .m = p->m, .n = p->b.n, .k = p->b.k};
    t.add = p->add, t.scratch = scratch;
    if (!p->b.view.data) t.b = (rein_matrix){p->b.packed.data, 0, 0, p->b.packed.storage}, t.panel = p->b.packed.k;
    return t;
}

void rein_gemm_each(const rein_product *list, size_t n, void *scratch, const rein_exec *exec) {
    products all = {.kernels = rein_kernels_of(exec->isa)};
    for (size_t i = 0; i < n; i++) add_product(&all, task_of(&list[i], scratch));
    run(&all, exec);
}

void rein_gemm(float *c, size_t stride, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add,
               void *scratch, const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {*b, {0}, k, n}, m, add};
    rein_gemm_each(&one, 1, scratch, exec);
}

void rein_gemm_packed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {{0}, *b, b->k, b->n}, m, add};
    rein_gemm_each(&one, 1, scratch, exec);
}

void rein_gemm_turned(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec) {
    products all = {.kernels = rein_kernels_of(exec->isa)};
    rein_gemm_task t = {.c = c, .stride = stride, .a = *a, .m = m, .n = b->k, .k = b->n, .turned = 1, .add = add};
    t.b = (rein_matrix){b->data, 0, 0, b->storage}, t.panel = b->k, t.scratch = scratch;
    add_product(&all, t);
    run(&all, exec);
}
