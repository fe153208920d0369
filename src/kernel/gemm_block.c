/* gemm_block.c - one block of a product, in tiles of 6 rows and 16 columns whose sums stay in registers; compiled per instruction set.
 *
 * The order is Goto's (Goto and van de Geijn 2008): a stretch of k, some columns of b as panels, some rows of a packed so that a tile reads
 * them one after the other; a panel stays in the first cache while the rows, in the second, go by. Panels of f32 and bf16 are read where
 * they are. With few rows or few columns packing a would cost more than it saves: its rows are read in place. */
#include "gemm_block.h"

#include "stored.h"

/* ---- packing: f32 in the order in which it will be read */

/* Eight by eight: to[l][r] of eight lines that are contiguous along l. */
INLINE void turn(float *to, size_t to_row, const void *from, size_t line, const rein_storage storage) {
    V rows[LANES];
#pragma GCC unroll 8
    for (size_t r = 0; r < LANES; r++) rows[r] = load_stored(from, r * line, storage);
    transpose(rows);
#pragma GCC unroll 8
    for (size_t l = 0; l < LANES; l++) store(to + l * to_row, rows[l], LANES);
}

/* Up to six lines that are contiguous along k; what each row of eight has too many, the next one overwrites. */
INLINE void turn_six(float *to, const float *from, size_t line, size_t lines) {
    V rows[LANES] = {{0}};
#pragma GCC unroll 6
    for (size_t r = 0; r < GEMM_TILE_ROWS; r++) rows[r] = r < lines ? load(from + r * line, LANES) : splat(0);
    transpose(rows);
#pragma GCC unroll 8
    for (size_t l = 0; l < LANES; l++) store(to + l * GEMM_TILE_ROWS, rows[l], LANES);
}

/* to [⌈m/tall⌉][depth][6] and GEMM_SPILL more: the rows [first, first + m) of the product's a, its columns from `from`; `tall` of them, at
 * most six, go into a tile. */
static void pack_left(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const rein_matrix *a = &t->a;
    for (size_t i = first; i < first + m; i += tall) {
        const size_t rows = first + m - i < tall ? first + m - i : tall;
        const float *data = a->data;
        size_t k = 0;
        if (a->storage == REIN_STORED_F32 && a->column == 1)
            for (; k + LANES <= depth; k += LANES, to += LANES * GEMM_TILE_ROWS)
                turn_six(to, data + i * a->row + from + k, a->row, rows);
        else if (a->storage == REIN_STORED_F32 && a->row == 1) /* transposed: lines along the rows */
            for (; k < depth; k++, to += GEMM_TILE_ROWS) store(to, load(data + i + (from + k) * a->column, t->m - i), LANES);
        for (; k < depth; k++, to += GEMM_TILE_ROWS)
            for (size_t r = 0; r < rows; r++) to[r] = stored_at(a, i + r, from + k);
    }
}

enum { AHEAD = 16 }; /* lines: they are far apart, and the processor does not guess them */

INLINE void pack_panel_stored(float *to, const rein_matrix *b, size_t first, size_t columns, size_t from, size_t depth,
                              const rein_storage storage) { /* [depth][16] */
    size_t k = 0;
    if (columns == GEMM_PANEL && b->column == 1) {
        for (; k < depth; k++, to += GEMM_PANEL) {
            const size_t at = (from + k) * b->row + first;
            __builtin_prefetch((const char *)b->data + (at + AHEAD * b->row) * rein_storage_size(storage));
            store(to, load_stored(b->data, at, storage), LANES);
            store(to + LANES, load_stored(b->data, at + LANES, storage), LANES);
        }
    } else if (columns == GEMM_PANEL && b->row == 1) {
        const char *lines = (const char *)b->data + (first * b->column + from) * rein_storage_size(storage);
        for (; k + LANES <= depth; k += LANES, to += LANES * GEMM_PANEL)
            for (size_t j = 0; j < GEMM_PANEL; j += LANES)
                turn(to + j, GEMM_PANEL, lines + (j * b->column + k) * rein_storage_size(storage), b->column, storage);
    }
    for (; k < depth; k++, to += GEMM_PANEL)
        for (size_t j = 0; j < GEMM_PANEL; j++) to[j] = j < columns ? stored_at(b, from + k, first + j) : 0;
}

static void pack_panel(float *to, const rein_matrix *b, size_t first, size_t n, size_t from, size_t depth) {
    const size_t columns = n - first < GEMM_PANEL ? n - first : GEMM_PANEL;
    if (b->storage == REIN_STORED_F32) pack_panel_stored(to, b, first, columns, from, depth, REIN_STORED_F32);
    else if (b->storage == REIN_STORED_BF16) pack_panel_stored(to, b, first, columns, from, depth, REIN_STORED_BF16);
    else pack_panel_stored(to, b, first, columns, from, depth, REIN_STORED_F16);
}

void KERNEL(rein_pack_panel)(float *to, const rein_matrix *b, size_t first, size_t n, size_t k) {
    pack_panel(to, b, first, n, 0, k);
}

/* ---- panels that are there already */

/* A row of a panel, which is at panel[at]. Of bf16 the columns i and 8 + i lie side by side: one load, and each half is in place after one
 * instruction. */
INLINE void panel_row(V *b0, V *b1, const void *panel, size_t at, const rein_storage storage) {
    if (storage == REIN_STORED_BF16) {
        U both;
        memcpy(&both, (const uint16_t *)panel + at, sizeof both);
        *b0 = (V)(both << 16), *b1 = (V)(both & 0xffff0000u);
    } else {
        *b0 = load_stored(panel, at, storage);
        *b1 = load_stored(panel, at + LANES, storage);
    }
}

static float panel_at(const void *panel, size_t k, size_t j, rein_storage storage) {
    const size_t at = k * GEMM_PANEL + (storage == REIN_STORED_BF16 ? 2 * (j % LANES) + j / LANES : j);
    const rein_matrix numbers = {panel, 0, 1, storage};
    return stored_at(&numbers, 0, at);
}

/* Sixteen by sixteen: to[k][j] of the rows j of a panel. */
INLINE void turn_panel(float *to, const void *panel, const rein_storage storage) {
    for (size_t j = 0; j < GEMM_PANEL; j += LANES) {
        V low[LANES], high[LANES];
#pragma GCC unroll 8
        for (size_t r = 0; r < LANES; r++) panel_row(&low[r], &high[r], panel, (j + r) * GEMM_PANEL, storage);
        transpose(low);
        transpose(high);
#pragma GCC unroll 8
        for (size_t l = 0; l < LANES; l++) {
            store(to + l * GEMM_PANEL + j, low[l], LANES);
            store(to + (LANES + l) * GEMM_PANEL + j, high[l], LANES);
        }
    }
}

/* to [depth][16]: the columns [first, first + 16) of what the panels are the transpose of; `from` is a multiple of 16. */
INLINE void pack_turned(float *to, const rein_gemm_task *t, size_t first, size_t from, size_t depth, const rein_storage storage) {
    const size_t columns = t->n - first < GEMM_PANEL ? t->n - first : GEMM_PANEL, size = rein_storage_size(storage);
    for (size_t k = 0; k < depth; k += GEMM_PANEL, to += GEMM_PANEL * GEMM_PANEL) {
        const char *panel = (const char *)t->b.data + ((from + k) * t->panel + first * GEMM_PANEL) * size;
        if (columns == GEMM_PANEL && k + GEMM_PANEL <= depth) turn_panel(to, panel, storage);
        else
            for (size_t l = 0; l < GEMM_PANEL && k + l < depth; l++)
                for (size_t j = 0; j < GEMM_PANEL; j++) to[l * GEMM_PANEL + j] = j < columns ? panel_at(panel, j, l, storage) : 0;
    }
}

/* ---- a tile */

/* Element (r, k) is at data[r·row + k·step]. */
typedef struct left_factor {
    const float *data;
    size_t row, step;
} left_factor;

/* Rows of 16 columns, `step` numbers apart: 16 in a panel. */
typedef struct right_factor {
    const void *data;
    size_t step;
} right_factor;

/* Up to 6 rows of 16 columns (halves 2), or 8 of 8. */
INLINE void tile(float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage, size_t depth, int from_c,
                 const int rows, const int halves) {
    V sum[8][2] = {{{0}}};
    if (from_c) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) sum[r][h] = load(c + (size_t)r * stride + (size_t)h * LANES, LANES);
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < depth; k++) {
        V row[2];
        panel_row(&row[0], &row[1], b.data, k * b.step, storage);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const V x = splat(a.data[(size_t)r * a.row + k * a.step]);
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) sum[r][h] = fmadd(x, row[h], sum[r][h]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) store(c + (size_t)r * stride + (size_t)h * LANES, sum[r][h], LANES);
}

INLINE void tile_of(size_t rows, float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage, size_t depth,
                    int from_c) {
    switch (rows) {
    case 1: tile(c, stride, a, b, storage, depth, from_c, 1, 2); break;
    case 2: tile(c, stride, a, b, storage, depth, from_c, 2, 2); break;
    case 3: tile(c, stride, a, b, storage, depth, from_c, 3, 2); break;
    case 4: tile(c, stride, a, b, storage, depth, from_c, 4, 2); break;
    case 5: tile(c, stride, a, b, storage, depth, from_c, 5, 2); break;
    default: tile(c, stride, a, b, storage, depth, from_c, 6, 2); break;
    }
}

/* to[r·to_row + j·to_column], for tiles that have fewer columns, or lie across. */
static void copy_tile(float *to, size_t to_row, size_t to_column, const float *from, size_t from_row, size_t from_column,
                      size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) to[r * to_row + j * to_column] = from[r * from_row + j * from_column];
}

/* ---- few rows: b goes by once, from end to end. Several panels at a time: a panel has two sums a row, too few to keep the units busy. */
INLINE void stripe(float *c, size_t stride, left_factor a, const char *b, size_t panel_bytes, const rein_storage storage,
                   size_t depth, int from_c, const int rows, const int panels) {
    V sum[8][2] = {{{0}}};
#pragma GCC unroll 8
    for (int i = 0; i < rows * panels; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            sum[i][h] = from_c
                            ? load(c + (size_t)(i / panels) * stride + (size_t)(i % panels) * GEMM_PANEL + (size_t)h * LANES, LANES)
                            : splat(0);
    for (size_t k = 0; k < depth; k++) {
        V x[2] = {{0}};
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) x[r] = splat(a.data[(size_t)r * a.row + k]);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            V b0, b1;
            panel_row(&b0, &b1, b + (size_t)p * panel_bytes, k * GEMM_PANEL, storage);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                sum[r * panels + p][0] = fmadd(x[r], b0, sum[r * panels + p][0]);
                sum[r * panels + p][1] = fmadd(x[r], b1, sum[r * panels + p][1]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows * panels; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            store(c + (size_t)(i / panels) * stride + (size_t)(i % panels) * GEMM_PANEL + (size_t)h * LANES, sum[i][h], LANES);
}

/* ---- a block: some rows, some columns, a stretch of k */
typedef struct block {
    float *c;
    size_t stride, m, n, depth;
    left_factor a;
    size_t tall; /* rows of a tile */
    right_factor b;
    size_t panel_bytes;
    rein_storage storage;
    int from_c;
} block;

/* The strides as constants, so that the compiler sees them: of a when it is packed, of b when it is panels. */
INLINE void multiply_as(const block *t, const rein_storage storage, const int packed, const int panels) {
    const char *b = t->b.data;
    size_t j = 0;
    if (!packed && t->m <= 2) {
        for (; t->m == 1 && j + 4 * GEMM_PANEL <= t->n; j += 4 * GEMM_PANEL, b += 4 * t->panel_bytes)
            stripe(t->c + j, t->stride, t->a, b, t->panel_bytes, storage, t->depth, t->from_c, 1, 4);
        for (; t->m == 2 && j + 2 * GEMM_PANEL <= t->n; j += 2 * GEMM_PANEL, b += 2 * t->panel_bytes)
            stripe(t->c + j, t->stride, t->a, b, t->panel_bytes, storage, t->depth, t->from_c, 2, 2);
    }
    for (; j < t->n; j += GEMM_PANEL, b += t->panel_bytes)
        for (size_t i = 0, n = 0; i < t->m; i += t->tall, n++) {
            const left_factor rows = {t->a.data + (packed ? n * GEMM_TILE_ROWS * t->depth : i * t->a.row), packed ? 1 : t->a.row,
                                      packed ? GEMM_TILE_ROWS : 1};
            const right_factor columns = {b, panels ? GEMM_PANEL : t->b.step};
            const size_t m = t->m - i < t->tall ? t->m - i : t->tall, left = t->n - j;
            float *c = t->c + i * t->stride + j, part[GEMM_TILE_ROWS * GEMM_PANEL];
            if (left < GEMM_PANEL) memset(part, 0, sizeof part), copy_tile(part, GEMM_PANEL, 1, c, t->stride, 1, m, left);
            tile_of(m, left < GEMM_PANEL ? part : c, left < GEMM_PANEL ? GEMM_PANEL : t->stride, rows, columns, storage, t->depth,
                    t->from_c);
            if (left < GEMM_PANEL) copy_tile(c, t->stride, 1, part, GEMM_PANEL, 1, m, left);
        }
}

static void multiply(const block *t, int packed) {
    if (t->b.step != GEMM_PANEL) multiply_as(t, REIN_STORED_F32, 1, 0);
    else if (packed && t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 1, 1);
    else if (packed) multiply_as(t, REIN_STORED_BF16, 1, 1);
    else if (t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 0, 1);
    else if (t->storage == REIN_STORED_BF16) multiply_as(t, REIN_STORED_BF16, 0, 1);
    else multiply_as(t, REIN_STORED_F16, 0, 1);
}

/* At most 8 columns, rows in place: half a panel is nothing but padding. */
static void multiply_narrow(const block *t) {
    size_t i = 0;
    for (; i + 8 <= t->m; i += 8) {
        const left_factor rows = {t->a.data + i * t->a.row, t->a.row, 1};
        const right_factor columns = {t->b.data, GEMM_PANEL};
        float *c = t->c + i * t->stride, part[8 * LANES];
        if (t->n < LANES) memset(part, 0, sizeof part), copy_tile(part, LANES, 1, c, t->stride, 1, 8, t->n);
        tile(t->n < LANES ? part : c, t->n < LANES ? LANES : t->stride, rows, columns, REIN_STORED_F32, t->depth, t->from_c, 8, 1);
        if (t->n < LANES) copy_tile(c, t->stride, 1, part, LANES, 1, 8, t->n);
    }
    block rest = *t;
    rest.m -= i, rest.c += i * t->stride, rest.a.data += i * t->a.row;
    if (rest.m) multiply(&rest, 0);
}

/* n in pieces of at most `most`, nearly equal, each a multiple of `unit`. */
static size_t piece_of(size_t n, size_t most, size_t unit) {
    const size_t pieces = n ? (n + most - 1) / most : 1;
    return n ? ((n + pieces - 1) / pieces + unit - 1) / unit * unit : unit;
}

/* ---- few columns and a transposed: a tile lies across, its 16 columns are rows of c, and both factors are read where they are. */
static void multiply_across(const rein_gemm_task *t) { /* m is a multiple of 16 */
    const size_t tall = piece_of(t->n, GEMM_TILE_ROWS, 1);
    for (size_t i = 0; i < t->m; i += GEMM_PANEL)
        for (size_t j = 0; j < t->n; j += tall) {
            const size_t rows = t->n - j < tall ? t->n - j : tall;
            const left_factor of_b = {(const float *)t->b.data + j, 1, t->b.row};
            const right_factor of_a = {(const float *)t->a.data + i, t->a.column};
            float *c = t->c + i * t->stride + j, part[GEMM_TILE_ROWS * GEMM_PANEL];
            if (t->add) copy_tile(part, GEMM_PANEL, 1, c, 1, t->stride, rows, GEMM_PANEL);
            tile_of(rows, part, GEMM_PANEL, of_b, of_a, REIN_STORED_F32, t->k, t->add);
            copy_tile(c, 1, t->stride, part, GEMM_PANEL, 1, rows, GEMM_PANEL);
        }
}

/* ---- how to go about it */
typedef struct plan {
    int in_place; /* rows of a */
    int ready;    /* columns of b: panels, or a view that few rows read once */
    size_t depth, rows, columns, tall;
} plan;

static int stored_along(const rein_matrix *x, size_t along) { return x->storage == REIN_STORED_F32 && along == 1; }

static plan plan_of(const rein_gemm_task *t) {
    const int few = t->m <= GEMM_TILE_ROWS;
    plan p = {.in_place = (few || t->n <= GEMM_NARROW) && stored_along(&t->a, t->a.column)};
    p.ready = t->panel && !t->turned && (t->b.storage != REIN_STORED_F16 || (few && p.in_place));
    if (!t->panel && t->m <= 2 * GEMM_TILE_ROWS && t->n % GEMM_PANEL == 0 && stored_along(&t->b, t->b.column))
        p.ready = 1, p.in_place = 0;
    const size_t deepest = few && p.in_place && p.ready ? t->k + 1 : 2 * t->m <= GEMM_ROWS && p.ready ? 2 * GEMM_DEPTH : GEMM_DEPTH;
    p.depth = piece_of(t->k, deepest, GEMM_PANEL);
    p.rows = piece_of(t->m, GEMM_ROWS, GEMM_TILE_ROWS);
    p.columns = p.ready ? t->n : piece_of(t->n, GEMM_COLUMNS, GEMM_PANEL);
    p.tall = t->m < GEMM_ROWS ? piece_of(t->m, GEMM_TILE_ROWS, 1) : GEMM_TILE_ROWS;
    return p;
}

/* Panels of the columns from j, f32 unless they can be read where they are. */
static void set_panels(block *to, const rein_gemm_task *t, size_t j, size_t from, float *scratch, int ready) {
    const size_t size = rein_storage_size(t->b.storage);
    const char *panels = (const char *)t->b.data + (j * t->panel + from * GEMM_PANEL) * size;
    to->b = (right_factor){scratch, GEMM_PANEL}, to->panel_bytes = to->depth * GEMM_PANEL * sizeof *scratch;
    to->storage = REIN_STORED_F32;
    if (ready && t->panel) {
        to->b.data = panels, to->panel_bytes = t->panel * GEMM_PANEL * size, to->storage = t->b.storage;
        return;
    }
    if (ready) {
        to->b = (right_factor){(const float *)t->b.data + from * t->b.row + j, t->b.row};
        to->panel_bytes = GEMM_PANEL * sizeof *scratch;
        return;
    }
    for (size_t p = 0; p < to->n; p += GEMM_PANEL, scratch += to->depth * GEMM_PANEL) {
        if (t->turned && t->b.storage == REIN_STORED_F32) pack_turned(scratch, t, j + p, from, to->depth, REIN_STORED_F32);
        else if (t->turned && t->b.storage == REIN_STORED_BF16) pack_turned(scratch, t, j + p, from, to->depth, REIN_STORED_BF16);
        else if (t->turned) pack_turned(scratch, t, j + p, from, to->depth, REIN_STORED_F16);
        else if (!t->panel) pack_panel(scratch, &t->b, j + p, t->n, from, to->depth);
        else
            for (size_t i = 0; i < to->depth * GEMM_PANEL; i += LANES)
                store(scratch + i, load_stored(panels + p * t->panel * size, i, t->b.storage), LANES);
    }
}

static void multiply_rows(block *b, const rein_gemm_task *t, const plan *p, size_t from) {
    for (size_t i = 0; i < t->m; i += p->rows) {
        block some = *b;
        some.m = t->m - i < p->rows ? t->m - i : p->rows;
        some.c += i * t->stride;
        some.a = (left_factor){(const float *)t->a.data + i * t->a.row + from, t->a.row, 1};
        if (!p->in_place) {
            pack_left(t->scratch, t, i, some.m, p->tall, from, b->depth);
            some.a.data = t->scratch;
        }
        if (p->in_place && t->n <= LANES && some.storage == REIN_STORED_F32 && some.m >= 8) multiply_narrow(&some);
        else multiply(&some, !p->in_place);
    }
}

void KERNEL(rein_gemm_block)(const rein_gemm_task *task) {
    rein_gemm_task rest = *task;
    if (!task->panel && task->n <= 2 * GEMM_TILE_ROWS && stored_along(&task->a, task->a.row) && task->a.column != 1 &&
        stored_along(&task->b, task->b.column) && task->k > 0) {
        rest.m = task->m / GEMM_PANEL * GEMM_PANEL;
        multiply_across(&rest);
        rest.c += rest.m * task->stride, rest.a.data = (const float *)task->a.data + rest.m, rest.m = task->m - rest.m;
        if (!rest.m) return;
    }
    const rein_gemm_task *t = &rest;
    const plan p = plan_of(t);
    for (size_t from = 0; from == 0 || from < t->k; from += p.depth)
        for (size_t j = 0; j < t->n; j += p.columns) {
            block b = {.c = t->c + j, .stride = t->stride, .tall = p.tall, .from_c = t->add || from > 0};
            b.depth = t->k - from < p.depth ? t->k - from : p.depth;
            b.n = t->n - j < p.columns ? t->n - j : p.columns;
            set_panels(&b, t, j, from, t->scratch + GEMM_ROWS * GEMM_DEPTH + GEMM_SPILL, p.ready);
            multiply_rows(&b, t, &p, from);
        }
}
