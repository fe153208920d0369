/* gemm.c - a product cut into blocks that depend on its shape alone; threads take whole blocks. */
#include "gemm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "../base/scratch.h"
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
    rein_gemm_task task; /* its right factor */
    size_t k;
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
    const rein_matrix *b = &p->task.b;
    char *to = p->to + piece * p->k * GEMM_PANEL * rein_storage_size(b->storage);
    (void)thread;
    if (b->storage == REIN_STORED_F32) (void)p->pack(to, &p->task, piece * GEMM_PANEL, 0, p->k);
    else pack_halves((uint16_t *)(void *)to, b, piece * GEMM_PANEL, p->task.n, p->k);
}

rein_packed rein_pack(void *to, const rein_matrix *b, size_t k, size_t n) {
    const rein_exec here = {1, rein_isa_best()};
    return rein_pack_on(to, b, k, n, &here);
}

rein_packed rein_pack_on(void *to, const rein_matrix *b, size_t k, size_t n, const rein_exec *exec) {
    packing p = {to, {.b = *b, .n = n}, k, rein_kernels_of(exec->isa)->pack};
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

/* ---- right factors that each thread would have to pack for itself, and, where there are many columns, rows again for every some of
 * them: the threads pack them together first, and what they multiply with is in panels. */
enum { SHARE_ROWS = 64, SHARED = 8 << 20 };     /* rows that it pays for; bytes of panels at most */
enum { TOGETHER = 4, STRETCH = 64, LINE = 64 }; /* panels and rows that are packed in one go: neighbours in memory */

typedef struct sharing {
    rein_pack_fn *pack;
    rein_gemm_task tasks[REIN_PRODUCTS];
    char *to[REIN_PRODUCTS];
    size_t pieces[REIN_PRODUCTS], n;
} sharing;

static void pack_shared(void *context, size_t piece, int thread) {
    const sharing *s = context;
    size_t i = 0;
    (void)thread;
    for (; piece >= s->pieces[i]; i++) piece -= s->pieces[i];
    const rein_gemm_task *t = &s->tasks[i];
    const size_t first = piece * TOGETHER * GEMM_PANEL, end = first + TOGETHER * GEMM_PANEL;
    const size_t size = rein_storage_size(s->pack(NULL, t, 0, 0, 0));
    for (size_t from = 0; from < t->k; from += STRETCH)
        for (size_t j = first; j < end && j < t->n; j += GEMM_PANEL)
            (void)s->pack(s->to[i] + (j * t->k + from * GEMM_PANEL) * size, t, j, from,
                          t->k - from < STRETCH ? t->k - from : STRETCH);
}

static int can_share(const rein_gemm_task *t) {
    return t->m >= SHARE_ROWS && t->k > 0 && (!t->panel || t->turned) && (double)t->m * (double)t->n * (double)t->k >= 40 * SMALL;
}

/* Bytes of a right factor's panels, whole lines. */
static size_t shared_size(const rein_gemm_task *t) {
    return (panels(t->n) * GEMM_PANEL * t->k * sizeof(float) + LINE - 1) / LINE * LINE;
}

/* Returns what is to be given back when the products are done; NULL: every thread packs for itself. */
static void *share_right(products *all, const rein_exec *exec) {
    sharing s = {.pack = all->kernels->pack};
    size_t used = 0, pieces = 0, which[REIN_PRODUCTS];
    for (size_t i = 0; i < all->n; i++) {
        const rein_gemm_task *t = &all->cuts[i].whole;
        if (!can_share(t) || used + shared_size(t) > SHARED) continue;
        which[s.n] = i, s.tasks[s.n] = *t, s.pieces[s.n] = (panels(t->n) + TOGETHER - 1) / TOGETHER;
        used += shared_size(t), pieces += s.pieces[s.n++];
    }
    void *memory = s.n ? rein_scratch_take(used + LINE) : NULL;
    if (!memory) return NULL;
    char *to = (char *)memory + (LINE - (uintptr_t)memory % LINE);
    for (size_t i = 0; i < s.n; i++) {
        rein_gemm_task *t = &all->cuts[which[i]].whole;
        s.to[i] = to, to += shared_size(t);
        t->b = (rein_matrix){s.to[i], 0, 0, s.pack(NULL, t, 0, 0, 0)}, t->panel = t->k, t->turned = 0;
    }
    rein_parallel(exec->threads, pieces, pack_shared, &s);
    return memory;
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
    void *shared = all->parts > 1 ? share_right(all, exec) : NULL;
    for (size_t i = 0; i < all->n; i++) cut_for(&all->cuts[i], all->parts, all->kernels->tile_rows);
    rein_parallel(exec->threads, all->parts, do_blocks, all);
    rein_scratch_give(shared);
}

static rein_gemm_task task_of(const rein_product *p, void *scratch) {
    rein_gemm_task t = {.c = p->c, .stride = p->stride, .a = p->a, .b = p->b.view, .m = p->m, .n = p->b.n, .k = p->b.k};
    t.add = p->add, t.scratch = scratch;
    if (p->b.view.data) return t;
    t.b = (rein_matrix){p->b.packed.data, 0, 0, p->b.packed.storage}, t.panel = p->b.packed.k, t.turned = p->b.turned;
    return t;
}

void rein_gemm_each(const rein_product *list, size_t n, void *scratch, const rein_exec *exec) {
    products all = {.kernels = rein_kernels_of(exec->isa)};
    for (size_t i = 0; i < n; i++) add_product(&all, task_of(&list[i], scratch));
    run(&all, exec);
}

void rein_gemm(float *c, size_t stride, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add,
               void *scratch, const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.view = *b, .k = k, .n = n}, m, add};
    rein_gemm_each(&one, 1, scratch, exec);
}

void rein_gemm_packed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.packed = *b, .k = b->k, .n = b->n}, m, add};
    rein_gemm_each(&one, 1, scratch, exec);
}

void rein_gemm_turned(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec) {
    const rein_product one = {c, stride, *a, {.packed = *b, .turned = 1, .k = b->n, .n = b->k}, m, add};
    rein_gemm_each(&one, 1, scratch, exec);
}
