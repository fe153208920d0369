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

/* ---- products cut into blocks, one for each thread. Where the cuts are changes nothing but the time. A block whose rows are packed for
 * all threads may be cut again: most of its columns are one piece, the others small ones, which a thread that is done takes from another
 * whose core is slower, or needed by somebody else. */
typedef struct cut {
    rein_gemm_task whole;
    size_t rows, columns; /* of a block */
    size_t down, across;  /* blocks */
    size_t main;          /* columns of its first piece */
    size_t small_rows, small_columns, small_down, small_pieces;
} cut;

typedef struct products {
    const rein_kernels *kernels;
    cut cuts[REIN_PRODUCTS];
    size_t n, parts;
    size_t pieces; /* of a block: a first one of each product, then the small ones of each */
} products;

static const double SMALL = 1e5; /* multiplications that are not worth the threads */

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Rows [i, i + m) and columns [j, j + n), or what there is of them. */
static void do_region(const cut *p, size_t i, size_t m, size_t j, size_t n, rein_gemm_fn *multiply, int thread) {
    rein_gemm_task t = p->whole;
    const size_t size = rein_storage_size(t.b.storage);
    if (i >= t.m || j >= t.n) return;
    t.m = smaller(t.m - i, m), t.n = smaller(t.n - j, n);
    t.c += i * t.stride + j;
    t.a.data = (const char *)t.a.data + i * t.a.row * rein_storage_size(t.a.storage);
    t.b.data = (const char *)t.b.data + j * (t.turned ? GEMM_PANEL : t.panel ? t.panel : t.b.column) * size;
    if (t.left.data) t.left.data += i / t.left.rows * t.left.size;
    t.scratch += (size_t)thread * GEMM_SCRATCH;
    multiply(&t);
}

/* The first piece of a block, and a small one. */
static void do_first(const cut *p, size_t block, rein_gemm_fn *multiply, int thread) {
    if (block < p->down * p->across)
        do_region(p, block % p->down * p->rows, p->rows, block / p->down * p->columns, p->main, multiply, thread);
}
static void do_small(const cut *p, size_t block, size_t small, rein_gemm_fn *multiply, int thread) {
    const size_t i = small % p->small_down * p->small_rows, j = p->main + small / p->small_down * p->small_columns;
    if (block < p->down * p->across)
        do_region(p, block % p->down * p->rows + i, smaller(p->small_rows, p->rows - i), block / p->down * p->columns + j,
                  smaller(p->small_columns, p->columns - j), multiply, thread);
}

static void do_piece(void *context, size_t piece, int thread) {
    const products *all = context;
    const size_t block = piece / all->pieces;
    size_t of_block = piece % all->pieces, i = 0;
    if (of_block < all->n) {
        do_first(&all->cuts[of_block], block, all->kernels->gemm, thread);
        return;
    }
    for (of_block -= all->n; of_block >= all->cuts[i].small_pieces; i++) of_block -= all->cuts[i].small_pieces;
    do_small(&all->cuts[i], block, of_block, all->kernels->gemm, thread);
}

/* n in `parts` pieces, each a multiple of `unit`. */
static size_t share(size_t n, size_t parts, size_t unit) { return ((n + parts - 1) / parts + unit - 1) / unit * unit; }

/* Rows and columns are packed once for each block, which costs about as much as 8 more columns or rows. */
static void cut_for(cut *p, size_t parts, size_t unit_rows) {
    const size_t m = p->whole.m, n = p->whole.n;
    double least = INFINITY;
    for (size_t down = 1; down <= parts; down++) {
        const size_t across = (parts + down - 1) / down, each = (down * across + parts - 1) / parts;
        const size_t rows = share(m, down, unit_rows), columns = share(n, across, GEMM_PANEL);
        const double cost = (double)each * ((double)rows * (double)columns + 8.0 * (double)(rows + columns));
        if (cost < least) least = cost, p->rows = rows, p->columns = columns;
    }
    p->down = (m + p->rows - 1) / p->rows, p->across = (n + p->columns - 1) / p->columns;
    p->main = p->columns, p->small_pieces = 0;
}

/* A quarter of the columns in small pieces, of a million multiplications or so. */
enum { SMALL_UNITS = 4, ENOUGH = 1 << 20 };
static void cut_again(cut *p) {
    const rein_left *left = &p->whole.left;
    p->main = p->columns / GEMM_PANEL * 3 / 4 * GEMM_PANEL;
    p->small_rows = smaller(p->rows, SMALL_UNITS * left->rows);
    p->small_columns = GEMM_PANEL * (1 + ENOUGH / (p->small_rows * GEMM_PANEL * p->whole.k + 1));
    p->small_down = (p->rows + p->small_rows - 1) / p->small_rows;
    p->small_pieces = p->small_down * ((p->columns - p->main + p->small_columns - 1) / p->small_columns);
}

/* ---- right factors that each thread would have to pack for itself, and, where there are many columns, rows again for every some of
 * them: the threads pack them together first, and what they multiply with is in panels. The same for rows. */
enum { SHARE_ROWS = 64, SHARE_LEFT = 24, SHARED = 8 << 20 }; /* rows that it pays for; bytes of either at most */
enum { TOGETHER = 4, STRETCH = 64, LINE = 64 };              /* panels and rows that are packed in one go: neighbours in memory */

typedef struct sharing {
    const rein_kernels *kernels;
    rein_gemm_task right[REIN_PRODUCTS], left[REIN_PRODUCTS]; /* whose factor is packed */
    char *to[REIN_PRODUCTS];
    size_t right_pieces[REIN_PRODUCTS], left_pieces[REIN_PRODUCTS], n_right, n_left;
} sharing;

static void pack_right(const sharing *s, size_t i, size_t piece) {
    const rein_gemm_task *t = &s->right[i];
    rein_pack_fn *const pack = s->kernels->pack;
    const size_t first = piece * TOGETHER * GEMM_PANEL, end = first + TOGETHER * GEMM_PANEL;
    const size_t size = rein_storage_size(pack(NULL, t, 0, 0, 0));
    for (size_t from = 0; from < t->k; from += STRETCH)
        for (size_t j = first; j < end && j < t->n; j += GEMM_PANEL)
            (void)pack(s->to[i] + (j * t->k + from * GEMM_PANEL) * size, t, j, from, t->k - from < STRETCH ? t->k - from : STRETCH);
}

static void pack_shared(void *context, size_t piece, int thread) {
    const sharing *s = context;
    (void)thread;
    for (size_t i = 0; i < s->n_right; piece -= s->right_pieces[i++])
        if (piece < s->right_pieces[i]) {
            pack_right(s, i, piece);
            return;
        }
    size_t i = 0;
    for (; piece >= s->left_pieces[i]; i++) piece -= s->left_pieces[i];
    s->kernels->left(&s->left[i], piece);
}

static int is_large(const rein_gemm_task *t) { return (double)t->m * (double)t->n * (double)t->k >= 40 * SMALL; }

static int can_share_right(const rein_gemm_task *t) {
    return t->m >= SHARE_ROWS && t->k > 0 && (!t->panel || t->turned) && is_large(t);
}

/* Bytes of a right factor's panels, whole lines. */
static size_t right_size(const rein_gemm_task *t) {
    return (panels(t->n) * GEMM_PANEL * t->k * sizeof(float) + LINE - 1) / LINE * LINE;
}

/* Of a task whose right factor is panels, or will be. Rows that lie across come out cold; the threads that need them pack them better. */
static int can_share_left(const rein_gemm_task *t, const rein_kernels *kernels) {
    return kernels->left && t->a.column == 1 && t->m >= SHARE_LEFT && t->n > GEMM_NARROW && t->b.storage != REIN_STORED_F16 &&
           is_large(t);
}

enum { UNIT_TILES = 8 };
/* How the rows of a task would be packed. */
static rein_left left_of(const rein_gemm_task *t, size_t tile_rows) {
    const size_t tiles = (t->m + tile_rows - 1) / tile_rows, stretches = (t->k + GEMM_DEPTH - 1) / GEMM_DEPTH;
    const size_t tall = t->m < GEMM_ROWS ? (t->m + tiles - 1) / tiles : tile_rows;
    const size_t size = share(UNIT_TILES * tile_rows * t->k + GEMM_SPILL, 1, LINE / sizeof(float));
    return (rein_left){NULL, UNIT_TILES * tall, size, share(t->k, stretches, GEMM_PANEL), tall};
}

static int same_rows(const rein_gemm_task *a, const rein_gemm_task *b) {
    return a->a.data == b->a.data && a->a.row == b->a.row && a->a.column == b->a.column && a->a.storage == b->a.storage &&
           a->m == b->m && a->k == b->k;
}

/* The rows of a task that others of those before it have too, or NULL. */
static const rein_gemm_task *shared_before(const sharing *s, const rein_gemm_task *t) {
    for (size_t i = 0; i < s->n_left; i++)
        if (same_rows(&s->left[i], t)) return &s->left[i];
    return NULL;
}

/* Returns what is to be given back when the products are done; NULL: every thread packs for itself. */
static void *share_factors(products *all, const rein_exec *exec) {
    sharing s = {.kernels = all->kernels};
    size_t right = 0, left = 0, pieces = 0;
    int shares_right[REIN_PRODUCTS] = {0}, shares_left[REIN_PRODUCTS] = {0};
    for (size_t i = 0; i < all->n; i++) {
        rein_gemm_task *t = &all->cuts[i].whole;
        shares_right[i] = can_share_right(t) && right + right_size(t) <= SHARED;
        if (shares_right[i]) right += right_size(t);
        if (!(shares_right[i] || (t->panel && !t->turned)) || !can_share_left(t, all->kernels)) continue;
        t->left = left_of(t, all->kernels->tile_rows);
        const size_t size = rein_left_units(t) * t->left.size * sizeof(float);
        if (!shared_before(&s, t)) {
            if (left + size > SHARED) continue;
            s.left_pieces[s.n_left] = rein_left_units(t), pieces += rein_left_units(t), s.left[s.n_left++] = *t, left += size;
        }
        shares_left[i] = 1;
    }
    void *memory = right + left ? rein_scratch_take(right + left + LINE) : NULL;
    if (!memory) return NULL;
    char *to = (char *)memory + (LINE - (uintptr_t)memory % LINE);
    for (size_t i = 0; i < s.n_left; i++)
        s.left[i].left.data = (float *)(void *)to, to += rein_left_units(&s.left[i]) * s.left[i].left.size * sizeof(float);
    for (size_t i = 0; i < all->n; i++) {
        rein_gemm_task *t = &all->cuts[i].whole;
        if (shares_left[i]) t->left = shared_before(&s, t)->left;
        if (!shares_right[i]) continue;
        s.right[s.n_right] = *t, s.to[s.n_right] = to, to += right_size(t);
        pieces += s.right_pieces[s.n_right] = (panels(t->n) + TOGETHER - 1) / TOGETHER;
        t->b = (rein_matrix){s.to[s.n_right], 0, 0, s.kernels->pack(NULL, t, 0, 0, 0)}, t->panel = t->k, t->turned = 0;
        s.n_right++;
    }
    rein_parallel(exec->threads, pieces, pack_shared, &s);
    return memory;
}

static void add_product(products *all, rein_gemm_task task) {
    if (task.m && task.n) all->cuts[all->n++].whole = task;
}

static void run(products *all, const rein_exec *exec) {
    double work = 0;
    size_t blocks = 1;
    for (size_t i = 0; i < all->n; i++)
        work += (double)all->cuts[i].whole.m * (double)all->cuts[i].whole.n * (double)all->cuts[i].whole.k;
    if (!all->n) return;
    all->parts = work < SMALL ? 1 : (size_t)exec->threads;
    void *shared = all->parts > 1 ? share_factors(all, exec) : NULL;
    all->pieces = all->n;
    for (size_t i = 0; i < all->n; i++) {
        cut *p = &all->cuts[i];
        cut_for(p, all->parts, p->whole.left.data ? p->whole.left.rows : all->kernels->tile_rows);
        if (p->whole.left.data) cut_again(p);
        all->pieces += p->small_pieces;
        if (p->down * p->across > blocks) blocks = p->down * p->across;
    }
    rein_parallel(all->parts > 1 ? exec->threads : 1, blocks * all->pieces, do_piece, all);
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
