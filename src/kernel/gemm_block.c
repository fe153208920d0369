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

/* to [⌈m/6⌉][depth][6] and GEMM_SPILL more: the rows [first, first + m) of the product's a, its columns from `from`. */
static void pack_left(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t from, size_t depth) {
    const rein_matrix *a = &t->a;
    for (size_t i = first; i < first + m; i += GEMM_TILE_ROWS) {
        const size_t rows = first + m - i < GEMM_TILE_ROWS ? first + m - i : GEMM_TILE_ROWS;
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
INLINE void ahead(const void *p) { __builtin_prefetch(p); }

INLINE void pack_panel_stored(float *to, const rein_matrix *b, size_t first, size_t columns, size_t from, size_t depth,
                              const rein_storage storage) { /* [depth][16] */
    size_t k = 0;
    if (columns == GEMM_PANEL && b->column == 1) {
        for (; k < depth; k++, to += GEMM_PANEL) {
            const size_t at = (from + k) * b->row + first;
            ahead((const char *)b->data + (at + AHEAD * b->row) * rein_storage_size(storage));
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
/* Row k of a panel. Of bf16 the columns i and 8 + i lie side by side: one load, and each half is in place after one instruction. */
INLINE void panel_row(V *b0, V *b1, const void *panel, size_t k, const rein_storage storage) {
    if (storage == REIN_STORED_BF16) {
        U both;
        memcpy(&both, (const uint16_t *)panel + k * GEMM_PANEL, sizeof both);
        *b0 = (V)(both << 16), *b1 = (V)(both & 0xffff0000u);
    } else {
        *b0 = load_stored(panel, k * GEMM_PANEL, storage);
        *b1 = load_stored(panel, k * GEMM_PANEL + LANES, storage);
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
        for (size_t r = 0; r < LANES; r++) panel_row(&low[r], &high[r], panel, j + r, storage);
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

INLINE void tile(float *c, size_t stride, left_factor a, const void *b, const rein_storage storage, size_t depth, int from_c,
                 const int rows) {
    V sum[GEMM_TILE_ROWS][2] = {{{0}}};
    if (from_c) {
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            sum[r][0] = load(c + (size_t)r * stride, LANES);
            sum[r][1] = load(c + (size_t)r * stride + LANES, LANES);
        }
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < depth; k++) {
        V b0, b1;
        panel_row(&b0, &b1, b, k, storage);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const V x = splat(a.data[(size_t)r * a.row + k * a.step]);
            sum[r][0] = fmadd(x, b0, sum[r][0]);
            sum[r][1] = fmadd(x, b1, sum[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        store(c + (size_t)r * stride, sum[r][0], LANES);
        store(c + (size_t)r * stride + LANES, sum[r][1], LANES);
    }
}

/* With the strides as constants, so that the compiler sees them. */
INLINE void tile_of(size_t rows, float *c, size_t stride, left_factor a, const void *b, const rein_storage storage, size_t depth,
                    int from_c, const int packed) {
    if (packed) a.row = 1, a.step = GEMM_TILE_ROWS;
    else a.step = 1;
    switch (rows) {
    case 1: tile(c, stride, a, b, storage, depth, from_c, 1); break;
    case 2: tile(c, stride, a, b, storage, depth, from_c, 2); break;
    case 3: tile(c, stride, a, b, storage, depth, from_c, 3); break;
    case 4: tile(c, stride, a, b, storage, depth, from_c, 4); break;
    case 5: tile(c, stride, a, b, storage, depth, from_c, 5); break;
    default: tile(c, stride, a, b, storage, depth, from_c, 6); break;
    }
}

/* A copy of a tile that has fewer columns, and back. */
static void copy_tile(float *to, size_t to_row, const float *from, size_t from_row, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) to[r * to_row + j] = from[r * from_row + j];
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
            panel_row(&b0, &b1, b + (size_t)p * panel_bytes, k, storage);
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
    const char *b;
    size_t panel_bytes;
    rein_storage storage;
    int from_c;
} block;

INLINE void multiply_stored(const block *t, const rein_storage storage, const int packed) {
    const char *b = t->b;
    size_t j = 0;
    if (!packed && t->m <= 2) {
        for (; t->m == 1 && j + 4 * GEMM_PANEL <= t->n; j += 4 * GEMM_PANEL, b += 4 * t->panel_bytes)
            stripe(t->c + j, t->stride, t->a, b, t->panel_bytes, storage, t->depth, t->from_c, 1, 4);
        for (; t->m == 2 && j + 2 * GEMM_PANEL <= t->n; j += 2 * GEMM_PANEL, b += 2 * t->panel_bytes)
            stripe(t->c + j, t->stride, t->a, b, t->panel_bytes, storage, t->depth, t->from_c, 2, 2);
    }
    for (; j < t->n; j += GEMM_PANEL, b += t->panel_bytes)
        for (size_t i = 0; i < t->m; i += GEMM_TILE_ROWS) {
            const left_factor rows = {t->a.data + i * (packed ? t->depth : t->a.row), t->a.row, 1};
            const size_t m = t->m - i < GEMM_TILE_ROWS ? t->m - i : GEMM_TILE_ROWS, columns = t->n - j;
            float *c = t->c + i * t->stride + j, part[GEMM_TILE_ROWS * GEMM_PANEL];
            if (columns < GEMM_PANEL) memset(part, 0, sizeof part), copy_tile(part, GEMM_PANEL, c, t->stride, m, columns);
            tile_of(m, columns < GEMM_PANEL ? part : c, columns < GEMM_PANEL ? GEMM_PANEL : t->stride, rows, b, storage, t->depth,
                    t->from_c, packed);
            if (columns < GEMM_PANEL) copy_tile(c, t->stride, part, GEMM_PANEL, m, columns);
        }
}

static void multiply(const block *t, int packed) {
    if (packed && t->storage == REIN_STORED_F32) multiply_stored(t, REIN_STORED_F32, 1);
    else if (packed) multiply_stored(t, REIN_STORED_BF16, 1);
    else if (t->storage == REIN_STORED_F32) multiply_stored(t, REIN_STORED_F32, 0);
    else if (t->storage == REIN_STORED_BF16) multiply_stored(t, REIN_STORED_BF16, 0);
    else multiply_stored(t, REIN_STORED_F16, 0);
}

/* n in pieces of at most `most`, nearly equal, each a multiple of `unit`. */
static size_t piece_of(size_t n, size_t most, size_t unit) {
    const size_t pieces = n ? (n + most - 1) / most : 1;
    return n ? ((n + pieces - 1) / pieces + unit - 1) / unit * unit : unit;
}

/* Panels of the columns from j, f32 unless they can be read where they are. */
static void set_panels(block *to, const rein_gemm_task *t, size_t j, size_t from, float *scratch, int where_they_are) {
    const size_t size = rein_storage_size(t->b.storage);
    const char *panels = (const char *)t->b.data + (j * t->panel + from * GEMM_PANEL) * size;
    if (where_they_are) {
        to->b = panels, to->panel_bytes = t->panel * GEMM_PANEL * size, to->storage = t->b.storage;
        return;
    }
    to->b = (const char *)scratch, to->panel_bytes = to->depth * GEMM_PANEL * sizeof *scratch, to->storage = REIN_STORED_F32;
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

void KERNEL(rein_gemm_block)(const rein_gemm_task *t) {
    float *const of_a = t->scratch, *const of_b = t->scratch + GEMM_ROWS * GEMM_DEPTH + GEMM_SPILL;
    const int few = t->m <= GEMM_TILE_ROWS || t->n <= GEMM_NARROW;
    const int in_place = few && t->a.storage == REIN_STORED_F32 && t->a.column == 1;
    const int ready = t->panel && !t->turned && (t->b.storage != REIN_STORED_F16 || (in_place && t->m <= GEMM_TILE_ROWS));
    const size_t deepest = in_place && t->m <= GEMM_TILE_ROWS ? t->k + 1
                           : 2 * t->m <= GEMM_ROWS && ready   ? 2 * GEMM_DEPTH
                                                              : GEMM_DEPTH;
    const size_t depth = piece_of(t->k, deepest, GEMM_PANEL), rows = piece_of(t->m, GEMM_ROWS, GEMM_TILE_ROWS),
                 columns = ready ? t->n : piece_of(t->n, GEMM_COLUMNS, GEMM_PANEL);
    for (size_t from = 0; from == 0 || from < t->k; from += depth)
        for (size_t j = 0; j < t->n; j += columns) {
            block b = {.stride = t->stride, .from_c = t->add || from > 0};
            b.depth = t->k - from < depth ? t->k - from : depth;
            b.n = t->n - j < columns ? t->n - j : columns;
            set_panels(&b, t, j, from, of_b, ready);
            for (size_t i = 0; i < t->m; i += rows) {
                b.m = t->m - i < rows ? t->m - i : rows;
                b.c = t->c + i * t->stride + j;
                b.a = (left_factor){(const float *)t->a.data + i * t->a.row + from, t->a.row, 1};
                if (!in_place) {
                    pack_left(of_a, t, i, b.m, from, b.depth);
                    b.a.data = of_a;
                }
                multiply(&b, !in_place);
            }
        }
}
