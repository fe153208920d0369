/* gemm_block.c - one block of a product on one thread; compiled per instruction set.
 *
 * The loops are those of Goto and van de Geijn (2008): a stretch of k, some columns of b as panels, some rows of a packed for the tiles. The
 * panels of a tile stay in the first-level cache while the packed rows, in the second-level cache, pass by. Panels of f32 and bf16 are read
 * where they are. With few rows or few columns packing a would cost more than it saves, so its rows are read in place. */
#include "gemm_block.h"

#include "gemm_blocks.h"
#include "gemm_pack.h"

/* ---- a part of the product: some rows, some columns, a stretch of k */
typedef struct part {
    float *c;
    size_t stride, m, n, depth;
    left_factor a;
    size_t tall; /* rows of a tile */
    right_factor b;
    rein_storage storage;
    int from_c;
} part;

/* Prefetches a tile of C: its rows are too far apart for the processor to predict. */
INLINE void prefetch_tile(const float *c, size_t stride, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j += GEMM_PANEL) __builtin_prefetch(c + r * stride + j, 1);
}

/* The constants let the compiler see the strides: of a when it is packed, of b when it is in panels. */
INLINE void multiply_as(const part *t, const rein_storage storage, const int packed, const int panels) {
    const char *b = t->b.data;
    for (size_t j = 0, columns; j < t->n; j += columns, b += (columns + GEMM_PANEL - 1) / GEMM_PANEL * t->b.bytes) {
        const right_factor right = {b, panels ? GEMM_PANEL : t->b.step, t->b.bytes};
        columns = tile_columns(t->n - j, t->m);
        for (size_t i = 0, n = 0; i < t->m; i += t->tall, n++) {
            const left_factor rows = {t->a.data + (packed ? n * TILE_ROWS * t->depth : i * t->a.row), packed ? 1 : t->a.row,
                                      packed ? TILE_ROWS : 1};
            const size_t m = t->m - i < t->tall ? t->m - i : t->tall;
            float *c = t->c + i * t->stride + j, copy[TILE_ROWS * GEMM_PANEL];
            const int copied = !PARTIAL_ROWS && columns < GEMM_PANEL;
            if (packed && t->depth >= PREFETCH_DEPTH && i + t->tall < t->m)
                prefetch_tile(c + t->tall * t->stride, t->stride, t->tall, columns);
            if (copied) memset(copy, 0, sizeof copy), copy_tile(copy, GEMM_PANEL, 1, c, t->stride, 1, m, columns);
            tile_of(m, columns, copied ? copy : c, copied ? GEMM_PANEL : t->stride, rows, right, storage, t->depth, t->from_c);
            if (copied) copy_tile(c, t->stride, 1, copy, GEMM_PANEL, 1, m, columns);
        }
    }
}

/* Aligned to a cache line: elsewhere its loops were 1 % slower. */
static __attribute__((aligned(64))) void multiply_part(const part *t, int packed) {
    if (t->b.step != GEMM_PANEL) multiply_as(t, REIN_STORED_F32, 1, 0);
    else if (packed && t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 1, 1);
    else if (packed) multiply_as(t, REIN_STORED_BF16, 1, 1);
    else if (t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 0, 1);
    else multiply_as(t, REIN_STORED_BF16, 0, 1);
}

/* ---- at most 8 columns, such as those of a LoRA of rank 8, with rows in place: tiles of 8 columns, half a panel */
enum { NARROW_ROWS = 8 };

INLINE void narrow_tile(float *c, size_t stride, left_factor a, const float *b, size_t depth, int from_c) {
    V sum[NARROW_ROWS];
#pragma GCC unroll 8
    for (size_t r = 0; r < NARROW_ROWS; r++) sum[r] = from_c ? load(c + r * stride, LANES) : splat(0);
#pragma GCC unroll 4
    for (size_t k = 0; k < depth; k++) {
        const V row = load(b + k * GEMM_PANEL, LANES);
#pragma GCC unroll 8
        for (size_t r = 0; r < NARROW_ROWS; r++) sum[r] = fmadd(splat(a.data[r * a.row + k]), row, sum[r]);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < NARROW_ROWS; r++) store(c + r * stride, sum[r], LANES);
}

static void multiply_narrow(const part *t) {
    size_t i = 0;
    for (; i + NARROW_ROWS <= t->m; i += NARROW_ROWS) {
        const left_factor rows = {t->a.data + i * t->a.row, t->a.row, 1};
        float *c = t->c + i * t->stride, copy[NARROW_ROWS * LANES];
        const int copied = t->n < LANES;
        if (copied) memset(copy, 0, sizeof copy), copy_tile(copy, LANES, 1, c, t->stride, 1, NARROW_ROWS, t->n);
        narrow_tile(copied ? copy : c, copied ? LANES : t->stride, rows, t->b.data, t->depth, t->from_c);
        if (copied) copy_tile(c, t->stride, 1, copy, LANES, 1, NARROW_ROWS, t->n);
    }
    part rest = *t;
    rest.m -= i, rest.c += i * t->stride, rest.a.data += i * t->a.row;
    if (rest.m) multiply_part(&rest, 0);
}

/* ---- cutting a block into parts */
_Static_assert(0 <= GEMM_ROWS * GEMM_DEPTH - PART_ROWS * PART_DEPTH, "room for the rows of a part");
_Static_assert(0 <= GEMM_COLUMNS * GEMM_DEPTH - PART_COLUMNS * PART_DEPTH, "room for its columns");

/* The rows of decoded panels that few rows of a read once: they and four panels stay in the first-level cache. */
enum { FEW_DEPTH = 96 };

/* n cut into parts of at most `most`, nearly equal, each a multiple of `unit`. */
static size_t part_size(size_t n, size_t most, size_t unit) {
    if (!n) return unit;
    const size_t parts = (n + most - 1) / most, size = ((n + parts - 1) / parts + unit - 1) / unit * unit;
    return size <= most || most < unit ? size : most / unit * unit;
}

typedef struct plan {
    int rows_in_place;    /* a is not packed */
    int columns_in_place; /* nor is b: it is panels, or a view that few rows read once */
    size_t depth, rows, columns, tall;
} plan;

static plan plan_of(const rein_gemm_task *t) {
    const int few = t->m <= FEW_ROWS;
    plan p = {.rows_in_place = (few || t->n <= GEMM_NARROW) && is_contiguous_f32(&t->a, t->a.column)};
    p.columns_in_place = t->panel && !t->transposed && is_read_in_place(t->b.storage);
    if (!t->panel && t->m <= 2 * TILE_ROWS && t->n % GEMM_PANEL == 0 && is_contiguous_f32(&t->b, t->b.column))
        p.columns_in_place = 1, p.rows_in_place = 0;
    if (few && p.rows_in_place && p.columns_in_place) { /* one part; attention has many such products, and they are small */
        p.depth = t->k + 1, p.rows = p.tall = t->m, p.columns = t->n;
        return p;
    }
    const size_t deepest = few && p.rows_in_place                        ? FEW_DEPTH
                           : 2 * t->m <= PART_ROWS && p.columns_in_place ? 2 * PART_DEPTH
                                                                         : PART_DEPTH;
    p.depth = part_size(t->k, deepest, GEMM_PANEL);
    p.rows = part_size(t->m, PART_ROWS, TILE_ROWS);
    p.columns = p.columns_in_place       ? t->n
                : few && p.rows_in_place ? FEW_PANELS * GEMM_PANEL /* decoded, read once: they stay in the first-level cache */
                                         : part_size(t->n, PART_COLUMNS, TILE_PANELS * GEMM_PANEL);
    p.tall = t->m < PART_ROWS ? part_size(t->m, TILE_ROWS, 1) : TILE_ROWS;
    return p;
}

/* The panels of the columns from j on, packed unless they are read in place. */
static void set_panels(part *to, const rein_gemm_task *t, size_t j, size_t from, float *scratch, int in_place) {
    if (in_place && t->panel) {
        to->storage = t->b.storage;
        to->b = (right_factor){(const char *)t->b.data + rein_storage_bytes(to->storage, j * t->panel + from * GEMM_PANEL),
                               GEMM_PANEL, rein_storage_bytes(to->storage, t->panel * GEMM_PANEL)};
        return;
    }
    to->storage = REIN_STORED_F32;
    if (in_place) {
        to->b = (right_factor){(const float *)t->b.data + from * t->b.row + j, t->b.row, GEMM_PANEL * sizeof *scratch};
        return;
    }
    to->b = (right_factor){scratch, GEMM_PANEL, to->depth * GEMM_PANEL * sizeof *scratch};
    for (size_t p = 0; p < to->n; p += GEMM_PANEL) pack_panel(scratch + p * to->depth, t, j + p, from, to->depth);
}

static void multiply_rows(const part *columns, const rein_gemm_task *t, const plan *p, size_t from) {
    for (size_t i = 0; i < t->m; i += p->rows) {
        part some = *columns;
        some.m = t->m - i < p->rows ? t->m - i : p->rows;
        some.c += i * t->stride;
        some.a = (left_factor){(const float *)t->a.data + i * t->a.row + from, t->a.row, 1};
        if (!p->rows_in_place) {
            pack_rows(t->scratch, t, i, some.m, p->tall, from, some.depth);
            some.a.data = t->scratch;
        }
        if (p->rows_in_place && t->n <= LANES && some.storage == REIN_STORED_F32) multiply_narrow(&some);
        else multiply_part(&some, !p->rows_in_place);
    }
}

/* ---- few columns and a transposed, as in the gradient of a LoRA: c is computed transposed, in tiles whose 16 columns are rows of c. Both
 * factors are read in place. m is a multiple of 16. */
static void multiply_few_columns(const rein_gemm_task *t) {
    const size_t tall = part_size(t->n, TILE_ROWS, 1);
    for (size_t i = 0, columns; i < t->m; i += columns) {
        columns = tile_columns(t->m - i, t->n);
        for (size_t j = 0; j < t->n; j += tall) {
            const size_t rows = t->n - j < tall ? t->n - j : tall;
            const left_factor of_b = {(const float *)t->b.data + j, 1, t->b.row};
            const right_factor of_a = {(const float *)t->a.data + i, t->a.column, GEMM_PANEL * sizeof(float)};
            float *c = t->c + i * t->stride + j, copy[TILE_ROWS * TILE_PANELS * GEMM_PANEL];
            if (t->add) copy_tile(copy, columns, 1, c, 1, t->stride, rows, columns);
            tile_of(rows, columns, copy, columns, of_b, of_a, REIN_STORED_F32, t->k, t->add);
            copy_tile(c, 1, t->stride, copy, columns, 1, rows, columns);
        }
    }
}

static int has_few_columns(const rein_gemm_task *t) {
    return !t->panel && t->n <= 2 * TILE_ROWS && is_contiguous_f32(&t->a, t->a.row) && t->a.column != 1 &&
           is_contiguous_f32(&t->b, t->b.column) && t->k > 0;
}

static void multiply_parts(const rein_gemm_task *t) {
    const plan p = plan_of(t);
    for (size_t from = 0; from == 0 || from < t->k; from += p.depth)
        for (size_t j = 0; j < t->n; j += p.columns) {
            part columns = {.c = t->c + j, .stride = t->stride, .tall = p.tall, .from_c = t->add || from > 0};
            columns.depth = t->k - from < p.depth ? t->k - from : p.depth;
            columns.n = t->n - j < p.columns ? t->n - j : p.columns;
            set_panels(&columns, t, j, from, t->scratch + GEMM_ROWS * GEMM_DEPTH + GEMM_SPILL, p.columns_in_place);
            multiply_rows(&columns, t, &p, from);
        }
}

static void multiply(const rein_gemm_task *task) {
    if (has_few_rows_of_blocks(task)) {
        multiply_few_rows_of_blocks(task);
        return;
    }
    if (!has_few_columns(task)) {
        multiply_parts(task);
        return;
    }
    rein_gemm_task t = *task;
    t.m = task->m / GEMM_PANEL * GEMM_PANEL;
    multiply_few_columns(&t);
    t.c += t.m * task->stride, t.a.data = (const float *)task->a.data + t.m, t.m = task->m - t.m;
    if (t.m) multiply_parts(&t);
}

const rein_gemm_kernels KERNEL(rein_gemm_kernels) = {.tile_rows = TILE_ROWS, .multiply = multiply, .pack_panel = pack_panel};
