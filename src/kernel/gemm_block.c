/* gemm_block.c - one block of a product, in tiles of 6 rows and 16 columns whose sums stay in registers; compiled per instruction set.
 *
 * A tile needs six rows of a, of which one number at a time is spread over a vector, and a panel of b, 16 columns side by side. Rows of f32
 * are read where they are; everything else is made f32 in the scratch first, but for few rows: then b is read once and never again, and
 * it is converted on the way. */
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

static void pack_rows(float *to, const rein_matrix *a, size_t m, size_t from, size_t depth) { /* [m][depth] */
    size_t whole_rows = 0, whole_depth = 0;
    if (a->storage == REIN_STORED_F32 && a->row == 1) { /* transposed: lines along the rows */
        whole_rows = m / LANES * LANES, whole_depth = depth / LANES * LANES;
        for (size_t i = 0; i < whole_rows; i += LANES)
            for (size_t k = 0; k < whole_depth; k += LANES)
                turn(to + i * depth + k, depth, (const float *)a->data + i + (from + k) * a->column, a->column, REIN_STORED_F32);
    }
    for (size_t i = 0; i < m; i++)
        for (size_t k = i < whole_rows ? whole_depth : 0; k < depth; k++) to[i * depth + k] = stored_at(a, i, from + k);
}

INLINE void pack_panel_stored(float *to, const rein_matrix *b, size_t first, size_t columns, size_t from, size_t depth,
                              const rein_storage storage) { /* [depth][16] */
    size_t k = 0;
    if (columns == GEMM_PANEL && b->column == 1) {
        for (; k < depth; k++, to += GEMM_PANEL) {
            const size_t at = (from + k) * b->row + first;
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

static void convert_panel(float *to, const void *panel, rein_storage storage, size_t depth) {
    for (size_t i = 0; i < depth * GEMM_PANEL; i += LANES) store(to + i, load_stored(panel, i, storage), LANES);
}

/* ---- a tile */
typedef struct left_factor {
    const float *data;
    size_t row;
} left_factor;

INLINE void tile(float *c, size_t stride, size_t columns, left_factor a, const void *b, const rein_storage storage, size_t depth,
                 int from_c, const int rows) {
    const size_t low = columns < LANES ? columns : LANES, high = columns - low;
    V sum[GEMM_TILE_ROWS][2] = {{{0}}};
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        sum[r][0] = from_c ? load(c + (size_t)r * stride, low) : splat(0);
        sum[r][1] = from_c && high ? load(c + (size_t)r * stride + LANES, high) : splat(0);
    }
    for (size_t k = 0; k < depth; k++) {
        const V b0 = load_stored(b, k * GEMM_PANEL, storage), b1 = load_stored(b, k * GEMM_PANEL + LANES, storage);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const V x = splat(a.data[(size_t)r * a.row + k]);
            sum[r][0] = fmadd(x, b0, sum[r][0]);
            sum[r][1] = fmadd(x, b1, sum[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        store(c + (size_t)r * stride, sum[r][0], low);
        if (high) store(c + (size_t)r * stride + LANES, sum[r][1], high);
    }
}

INLINE void tile_of(size_t rows, float *c, size_t stride, size_t columns, left_factor a, const void *b, const rein_storage storage,
                    size_t depth, int from_c) {
    switch (rows) {
    case 1: tile(c, stride, columns, a, b, storage, depth, from_c, 1); break;
    case 2: tile(c, stride, columns, a, b, storage, depth, from_c, 2); break;
    case 3: tile(c, stride, columns, a, b, storage, depth, from_c, 3); break;
    case 4: tile(c, stride, columns, a, b, storage, depth, from_c, 4); break;
    case 5: tile(c, stride, columns, a, b, storage, depth, from_c, 5); break;
    default: tile(c, stride, columns, a, b, storage, depth, from_c, 6); break;
    }
}

/* ---- a block */
static left_factor rows_of(const rein_gemm_task *t, size_t from, size_t depth, float *scratch) {
    if (t->a.storage == REIN_STORED_F32 && t->a.column == 1) return (left_factor){(const float *)t->a.data + from, t->a.row};
    pack_rows(scratch, &t->a, t->m, from, depth);
    return (left_factor){scratch, depth};
}

static const float *panel_of(const rein_gemm_task *t, size_t first, size_t from, size_t depth, float *scratch) {
    if (!t->panel) {
        pack_panel(scratch, &t->b, first, t->n, from, depth);
        return scratch;
    }
    const char *panel = (const char *)t->b.data + (first * t->panel + from * GEMM_PANEL) * rein_storage_size(t->b.storage);
    if (t->b.storage == REIN_STORED_F32) return (const float *)(const void *)panel;
    convert_panel(scratch, panel, t->b.storage, depth);
    return scratch;
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
            const char *at = b + (size_t)p * panel_bytes;
            const V b0 = load_stored(at, k * GEMM_PANEL, storage), b1 = load_stored(at, k * GEMM_PANEL + LANES, storage);
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

INLINE void few_rows_stored(const rein_gemm_task *t, const rein_storage storage) {
    const size_t panel_bytes = t->panel * GEMM_PANEL * rein_storage_size(storage);
    for (size_t from = 0; from == 0 || from < t->k; from += GEMM_DEPTH) {
        const size_t depth = t->k - from < GEMM_DEPTH ? t->k - from : GEMM_DEPTH;
        const left_factor a = rows_of(t, from, depth, t->scratch);
        const char *b = (const char *)t->b.data + from * GEMM_PANEL * rein_storage_size(storage);
        const int from_c = t->add || from > 0;
        size_t j = 0;
        for (; t->m == 1 && j + 4 * GEMM_PANEL <= t->n; j += 4 * GEMM_PANEL)
            stripe(t->c + j, t->stride, a, b + j / GEMM_PANEL * panel_bytes, panel_bytes, storage, depth, from_c, 1, 4);
        for (; t->m == 2 && j + 2 * GEMM_PANEL <= t->n; j += 2 * GEMM_PANEL)
            stripe(t->c + j, t->stride, a, b + j / GEMM_PANEL * panel_bytes, panel_bytes, storage, depth, from_c, 2, 2);
        for (; j < t->n; j += GEMM_PANEL)
            tile_of(t->m, t->c + j, t->stride, t->n - j < GEMM_PANEL ? t->n - j : GEMM_PANEL, a, b + j / GEMM_PANEL * panel_bytes,
                    storage, depth, from_c);
    }
}

static void few_rows(const rein_gemm_task *t) {
    if (t->b.storage == REIN_STORED_F32) few_rows_stored(t, REIN_STORED_F32);
    else if (t->b.storage == REIN_STORED_BF16) few_rows_stored(t, REIN_STORED_BF16);
    else few_rows_stored(t, REIN_STORED_F16);
}

void KERNEL(rein_gemm_block)(const rein_gemm_task *t) {
    float *const of_a = t->scratch, *const of_b = t->scratch + GEMM_ROWS * GEMM_DEPTH;
    if (t->panel && t->m <= GEMM_TILE_ROWS) {
        few_rows(t);
        return;
    }
    for (size_t from = 0; from == 0 || from < t->k; from += GEMM_DEPTH) {
        const size_t depth = t->k - from < GEMM_DEPTH ? t->k - from : GEMM_DEPTH;
        const left_factor a = rows_of(t, from, depth, of_a);
        for (size_t j = 0; j < t->n; j += GEMM_PANEL) {
            const size_t columns = t->n - j < GEMM_PANEL ? t->n - j : GEMM_PANEL;
            const float *panel = panel_of(t, j, from, depth, of_b);
            for (size_t i = 0; i < t->m; i += GEMM_TILE_ROWS) {
                const left_factor rows = {a.data + i * a.row, a.row};
                tile_of(t->m - i < GEMM_TILE_ROWS ? t->m - i : GEMM_TILE_ROWS, t->c + i * t->stride + j, t->stride, columns, rows,
                        panel, REIN_STORED_F32, depth, t->add || from > 0);
            }
        }
    }
}
