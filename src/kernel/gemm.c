/* gemm.c - products are packed, and cut into blocks for the threads. The cuts affect only the time, never the bits. */
#include "gemm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "../base/scratch.h"
#include "block_panel.h"
#include "gemm_block.h"
#include "kernels.h"

static size_t panels(size_t n) { return (n + GEMM_PANEL - 1) / GEMM_PANEL; }

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---------------------------------------------------------------------------------------------------- packing a right factor */

size_t rein_packed_size(size_t k, size_t n, rein_storage storage) {
    return rein_storage_bytes(storage, panels(n) * GEMM_PANEL * k);
}

typedef struct packing {
    char *to;
    rein_gemm_task task; /* only b, n and k are set */
    const rein_gemm_kernels *kernels;
} packing;

static void pack_bf16_panel(uint16_t *to, const rein_matrix *b, size_t first, size_t columns, size_t k) {
    const uint16_t *from = (const uint16_t *)b->data + first * b->column;
    for (size_t i = 0; i < k; i++, to += GEMM_PANEL, from += b->row)
        for (size_t j = 0; j < GEMM_PANEL; j++) to[rein_bf16_place(j)] = j < columns ? from[j * b->column] : 0;
}

/* Copies numbers of any other type as they are, and blocks as panel blocks. */
static void pack_block_panel(char *to, const rein_matrix *b, size_t first, size_t columns, size_t k) {
    const size_t elements = rein_storage_elements(b->storage), bytes = rein_storage_bytes(b->storage, elements);
    for (size_t i = 0; i < k; i += elements, to += GEMM_PANEL * bytes)
        for (size_t j = 0; j < GEMM_PANEL; j++) {
            const char *from = (const char *)b->data + rein_storage_bytes(b->storage, i * b->row + (first + j) * b->column);
            if (elements > 1) rein_put_block((uint8_t *)to, j < columns ? (const uint8_t *)from : NULL, b->storage, j);
            else if (j < columns) memcpy(to + j * bytes, from, bytes);
            else memset(to + j * bytes, 0, bytes);
        }
}

static void pack_one_panel(void *context, size_t panel, int thread) {
    const packing *p = context;
    const rein_matrix *b = &p->task.b;
    const size_t first = panel * GEMM_PANEL, columns = smaller(p->task.n - first, GEMM_PANEL), k = p->task.k;
    char *to = p->to + rein_storage_bytes(b->storage, first * k);
    (void)thread;
    if (b->storage == REIN_STORED_F32) p->kernels->pack_panel((float *)(void *)to, &p->task, first, 0, k);
    else if (b->storage == REIN_STORED_BF16) pack_bf16_panel((uint16_t *)(void *)to, b, first, columns, k);
    else pack_block_panel(to, b, first, columns, k);
}

rein_packed rein_pack(void *to, const rein_matrix *b, size_t k, size_t n) {
    const rein_exec here = {1, rein_isa_best()};
    return rein_pack_on(to, b, k, n, &here);
}

rein_packed rein_pack_on(void *to, const rein_matrix *b, size_t k, size_t n, const rein_exec *exec) {
    packing p = {to, {.b = *b, .n = n, .k = k}, rein_kernels_of(exec->isa)->gemm};
    rein_parallel(k * n < 65536 ? 1 : exec->threads, panels(n), pack_one_panel, &p);
    return (rein_packed){to, k, n, b->storage};
}

/* ------------------------------------------------------------------------------------------------------- blocks for the threads */

size_t rein_gemm_scratch(const rein_exec *exec) { return (size_t)exec->threads * GEMM_SCRATCH * sizeof(float); }

/* A product and its blocks. */
typedef struct cut {
    rein_gemm_task whole;
    size_t rows, columns; /* of a block */
    size_t down, across;  /* blocks */
} cut;

typedef struct batch {
    const rein_gemm_kernels *kernels;
    cut cuts[REIN_MAX_PRODUCTS];
    size_t n;
} batch;

static const double SMALL = 1e5; /* multiplications; below, starting the threads costs more than it saves */

static double work_of(const rein_gemm_task *t) { return (double)t->m * (double)t->n * (double)t->k; }

static void multiply_block(const cut *p, size_t block, const rein_gemm_kernels *kernels, int thread) {
    const size_t i = block % p->down * p->rows, j = block / p->down * p->columns;
    rein_gemm_task t = p->whole;
    t.m = smaller(t.m - i, p->rows), t.n = smaller(t.n - j, p->columns);
    t.c += i * t.stride + j;
    t.a.data = (const char *)t.a.data + rein_storage_bytes(t.a.storage, i * t.a.row);
    if (t.transposed) t.first_column += j;
    else t.b.data = (const char *)t.b.data + rein_storage_bytes(t.b.storage, j * (t.panel ? t.panel : t.b.column));
    t.scratch += (size_t)thread * GEMM_SCRATCH;
    kernels->multiply(&t);
}

static void multiply_piece(void *context, size_t piece, int thread) {
    const batch *all = context;
    const cut *p = &all->cuts[piece % all->n];
    const size_t block = piece / all->n;
    if (block < p->down * p->across) multiply_block(p, block, all->kernels, thread);
}

/* n cut into `parts` parts: the size of a part, a multiple of `unit`. */
static size_t part_size(size_t n, size_t parts, size_t unit) { return ((n + parts - 1) / parts + unit - 1) / unit * unit; }

/* Chooses the cheapest grid of blocks. Each block packs its rows and columns, which costs about as much as 8 more columns or rows. */
static void choose_blocks(cut *p, size_t threads, size_t unit_rows) {
    const size_t m = p->whole.m, n = p->whole.n;
    double least = INFINITY;
    for (size_t down = 1; down <= threads; down++) {
        const size_t across = (threads + down - 1) / down, each = (down * across + threads - 1) / threads;
        const size_t rows = part_size(m, down, unit_rows), columns = part_size(n, across, GEMM_PANEL);
        const double cost = (double)each * ((double)rows * (double)columns + 8.0 * (double)(rows + columns));
        if (cost < least) least = cost, p->rows = rows, p->columns = columns;
    }
    p->down = (m + p->rows - 1) / p->rows, p->across = (n + p->columns - 1) / p->columns;
}

/* ------------------------------------------------------------------------------------------------------- shared right factors
 * A right factor that is a view or transposed has to be packed. Where several threads would each pack the same columns, they pack the whole
 * factor together first, and multiply with its panels. */
enum { SHARE_ROWS = 64, SHARE_BYTES = 8 << 20 };    /* fewer rows do not repay it; the most memory for all panels */
enum { PIECE_PANELS = 4, STRETCH = 64, LINE = 64 }; /* panels and rows packed in one go, which are close in memory; a cache line */

typedef struct sharing {
    const rein_gemm_kernels *kernels;
    rein_gemm_task tasks[REIN_MAX_PRODUCTS]; /* as they were */
    float *to[REIN_MAX_PRODUCTS];
    size_t pieces[REIN_MAX_PRODUCTS], n;
} sharing;

static void pack_shared_piece(void *context, size_t piece, int thread) {
    const sharing *s = context;
    size_t i = 0;
    (void)thread;
    for (; piece >= s->pieces[i]; i++) piece -= s->pieces[i];
    const rein_gemm_task *t = &s->tasks[i];
    const size_t first = piece * PIECE_PANELS * GEMM_PANEL, end = smaller(first + PIECE_PANELS * GEMM_PANEL, t->n);
    for (size_t from = 0; from < t->k; from += STRETCH)
        for (size_t j = first; j < end; j += GEMM_PANEL)
            s->kernels->pack_panel(s->to[i] + j * t->k + from * GEMM_PANEL, t, j, from, smaller(t->k - from, STRETCH));
}

static int shares_right_factor(const rein_gemm_task *t) {
    return t->m >= SHARE_ROWS && t->k > 0 && (!t->panel || t->transposed) && work_of(t) >= 40 * SMALL;
}

static size_t panels_size(const rein_gemm_task *t) { return rein_packed_size(t->k, t->n, REIN_STORED_F32); }

/* Replaces right factors by shared panels. Returns their memory, to be given back after the products; NULL: nothing is shared. */
static void *share_right_factors(batch *all, const rein_exec *exec) {
    sharing s = {.kernels = all->kernels};
    size_t bytes = 0, pieces = 0, offsets[REIN_MAX_PRODUCTS] = {0}, products[REIN_MAX_PRODUCTS] = {0};
    for (size_t i = 0; i < all->n; i++) {
        const rein_gemm_task *t = &all->cuts[i].whole;
        if (!shares_right_factor(t) || bytes + panels_size(t) > SHARE_BYTES) continue;
        products[s.n] = i, offsets[s.n++] = bytes, bytes += panels_size(t);
    }
    void *memory = bytes ? rein_scratch_take(bytes + LINE) : NULL;
    if (!memory) return NULL;
    char *aligned = (char *)memory + (LINE - (uintptr_t)memory % LINE);
    for (size_t i = 0; i < s.n; i++) {
        rein_gemm_task *t = &all->cuts[products[i]].whole;
        s.tasks[i] = *t, s.to[i] = (float *)(void *)(aligned + offsets[i]);
        pieces += s.pieces[i] = (panels(t->n) + PIECE_PANELS - 1) / PIECE_PANELS;
        t->b = (rein_matrix){s.to[i], 0, 0, REIN_STORED_F32}, t->panel = t->k, t->transposed = 0;
    }
    rein_parallel(exec->threads, pieces, pack_shared_piece, &s);
    return memory;
}

/* ------------------------------------------------------------------------------------------------------------------ products */

static rein_gemm_task task_of(const rein_product *p, void *scratch) {
    rein_gemm_task t = {.c = p->c, .stride = p->stride, .a = p->a, .b = p->b.view, .m = p->m, .n = p->b.n, .k = p->b.k};
    t.add = p->add, t.scratch = scratch;
    if (p->b.view.data) return t;
    t.b = (rein_matrix){p->b.packed.data, 0, 0, p->b.packed.storage}, t.panel = p->b.packed.k, t.transposed = p->b.transposed;
    return t;
}

void rein_gemm_batch(const rein_product *list, size_t n, void *scratch, const rein_exec *exec) {
    batch all = {.kernels = rein_kernels_of(exec->isa)->gemm};
    double work = 0;
    size_t blocks = 1;
    for (size_t i = 0; i < n; i++)
        if (list[i].m && list[i].b.n) all.cuts[all.n++].whole = task_of(&list[i], scratch);
    if (!all.n) return;
    for (size_t i = 0; i < all.n; i++) work += work_of(&all.cuts[i].whole);
    const int threads = work < SMALL ? 1 : exec->threads;
    void *shared = threads > 1 ? share_right_factors(&all, exec) : NULL;
    for (size_t i = 0; i < all.n; i++) {
        cut *p = &all.cuts[i];
        choose_blocks(p, (size_t)threads, all.kernels->tile_rows);
        if (p->down * p->across > blocks) blocks = p->down * p->across;
    }
    rein_parallel(threads, blocks * all.n, multiply_piece, &all);
    rein_scratch_give(shared);
}

void rein_gemm(float *c, size_t stride, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add,
               void *scratch, const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.view = *b, .k = k, .n = n}, m, add};
    rein_gemm_batch(&one, 1, scratch, exec);
}

void rein_gemm_packed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.packed = *b, .k = b->k, .n = b->n}, m, add};
    rein_gemm_batch(&one, 1, scratch, exec);
}

void rein_gemm_packed_transposed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add,
                                 void *scratch, const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.packed = *b, .transposed = 1, .k = b->n, .n = b->k}, m, add};
    rein_gemm_batch(&one, 1, scratch, exec);
}
