/* gemm_block.c - one block of a product, in tiles whose sums stay in registers: 6 rows and 16 columns, with AVX-512 8 and 48; compiled per
 * instruction set.
 *
 * The order is Goto's (Goto and van de Geijn 2008): a stretch of k, some columns of b as panels, some rows of a packed so that a tile reads
 * them one after the other; the panels of a tile stay in the first cache, or come from the second, while the rows, in the second, go by.
 * Panels of f32 and bf16, with AVX-512 of f16 too, are read where they are. With few rows or few columns packing a would cost more than it
 * saves: its rows are read in place. */
#include "gemm_block.h"

#include "gemm_wide.h"

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

/* The lines of a tile, contiguous along k; what each row of eight has too many, the next one overwrites. */
INLINE void turn_lines(float *to, const float *from, size_t line, size_t lines) {
    V rows[LANES] = {{0}};
#pragma GCC unroll 8
    for (size_t r = 0; r < TILE_ROWS; r++) rows[r] = r < lines ? load(from + r * line, LANES) : splat(0);
    transpose(rows);
#pragma GCC unroll 8
    for (size_t l = 0; l < LANES; l++) store(to + l * TILE_ROWS, rows[l], LANES);
}

/* to [⌈m/tall⌉][depth][TILE_ROWS] and GEMM_SPILL more: the rows [first, first + m) of the product's a, its columns from `from`; `tall` of
 * them go into a tile. */
static void pack_left(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const rein_matrix *a = &t->a;
    for (size_t i = first; i < first + m; i += tall) {
        const size_t rows = first + m - i < tall ? first + m - i : tall;
        const float *data = a->data;
        size_t k = 0;
        if (a->storage == REIN_STORED_F32 && a->column == 1)
            for (; k + LANES <= depth; k += LANES, to += LANES * TILE_ROWS)
                turn_lines(to, data + i * a->row + from + k, a->row, rows);
        for (; k < depth; k++, to += TILE_ROWS)
            for (size_t r = 0; r < rows; r++) to[r] = stored_at(a, i + r, from + k);
    }
}

/* The same of f32 that is transposed, whose lines lie along the rows: some lines at a time go through all tiles, lest the caches lose them
 * between two tiles; where a row is written as eight but has six, tile by tile. */
static void pack_lines(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const float *data = (const float *)t->a.data + from * t->a.column;
    const size_t some = TILE_ROWS == LANES ? 16 : depth;
    for (size_t k = 0; k < depth; k += some)
        for (size_t i = first, n = 0; i < first + m; i += tall, n++)
            for (size_t l = k; l < depth && l < k + some; l++)
                store(to + (n * depth + l) * TILE_ROWS, load(data + i + l * t->a.column, t->m - i), LANES);
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

/* ---- panels that are there already */

/* Of row k of bf16 the column j. */
static size_t place_in_row(size_t k, size_t j) { return k * GEMM_PANEL + 2 * (j % LANES) + j / LANES; }

static float panel_at(const void *panel, size_t k, size_t j, rein_storage storage) {
    const rein_matrix numbers = {panel, 0, 1, storage};
    return stored_at(&numbers, 0, storage == REIN_STORED_BF16 ? place_in_row(k, j) : k * GEMM_PANEL + j);
}

/* Sixteen by sixteen: to[k][j] of the rows j of a panel. */
INLINE void turn_panel(float *to, const void *panel, const rein_storage storage) {
    for (size_t j = 0; j < GEMM_PANEL; j += LANES) {
        V low[LANES], high[LANES];
#pragma GCC unroll 8
        for (size_t r = 0; r < LANES; r++) halves_of_row(&low[r], &high[r], panel, (j + r) * GEMM_PANEL, storage);
        transpose(low);
        transpose(high);
#pragma GCC unroll 8
        for (size_t l = 0; l < LANES; l++) {
            store(to + l * GEMM_PANEL + j, low[l], LANES);
            store(to + (LANES + l) * GEMM_PANEL + j, high[l], LANES);
        }
    }
}

/* The same of bf16 that stays bf16. */
#ifdef __AVX512F__
typedef uint16_t H __attribute__((vector_size(64))); /* two rows */

/* Registers that differ in one bit of their number swap it with bit `bit` of the places in them. */
INLINE void swap_bit(H x[8], const size_t apart, const unsigned bit, const int last) {
    uint16_t low[32], high[32];
#pragma GCC unroll 32
    for (unsigned i = 0; i < 32; i++) {
        /* The last time they are put in order: column j of a row goes to 2·(j % 8) + j / 8. By then bits 1 to 3 of a place are those of j
         * above its lowest, which is bit 4; bit 0 is the highest of the row's number. */
        const unsigned j = i % 16 / 2 + i % 2 * 8, row = i / 16, at = last ? row | (j >> 1) << 1 | (j & 1) << 4 : i;
        const unsigned from = at & ~(1u << bit), other = at >> bit & 1 ? 32 : 0;
        low[i] = (uint16_t)(from + other), high[i] = (uint16_t)((from | 1u << bit) + other);
    }
    H take_low, take_high;
    memcpy(&take_low, low, sizeof low), memcpy(&take_high, high, sizeof high);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        if (i & apart) continue;
        const __m512i a = (__m512i)x[i], b = (__m512i)x[i + apart];
        x[i] = (H)_mm512_permutex2var_epi16(a, (__m512i)take_low, b);
        x[i + apart] = (H)_mm512_permutex2var_epi16(a, (__m512i)take_high, b);
    }
}

INLINE void turn_halves(uint16_t *to, const uint16_t *panel) {
    H x[8];
    memcpy(x, panel, sizeof x);
    swap_bit(x, 1, 1, 0);
    swap_bit(x, 2, 2, 0);
    swap_bit(x, 4, 3, 1);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        memcpy(to + i * GEMM_PANEL, &x[i], sizeof x[i] / 2);
        memcpy(to + (i + 8) * GEMM_PANEL, (const char *)&x[i] + sizeof x[i] / 2, sizeof x[i] / 2);
    }
}
#else
static void turn_halves(uint16_t *to, const uint16_t *panel) { (void)to, (void)panel; }
#endif

/* to [depth][16]: the columns [first, first + 16) of what the panels are the transpose of; `from` is a multiple of 16. */
INLINE void pack_turned(void *to, const rein_gemm_task *t, size_t first, size_t from, size_t depth, const rein_storage storage,
                        const int halves) {
    const size_t columns = t->n - first < GEMM_PANEL ? t->n - first : GEMM_PANEL, size = rein_storage_size(storage);
    for (size_t k = 0; k < depth; k += GEMM_PANEL) {
        const char *panel = (const char *)t->b.data + ((from + k) * t->panel + first * GEMM_PANEL) * size;
        float *numbers = (float *)to + k * GEMM_PANEL;
        uint16_t *raw = (uint16_t *)to + k * GEMM_PANEL;
        if (columns == GEMM_PANEL && k + GEMM_PANEL <= depth) {
            if (halves) turn_halves(raw, (const uint16_t *)(const void *)panel);
            else turn_panel(numbers, panel, storage);
            continue;
        }
        for (size_t l = 0; l < GEMM_PANEL && k + l < depth; l++)
            for (size_t j = 0; j < GEMM_PANEL; j++) {
                if (halves) raw[place_in_row(l, j)] = j < columns ? ((const uint16_t *)(const void *)panel)[place_in_row(j, l)] : 0;
                else numbers[l * GEMM_PANEL + j] = j < columns ? panel_at(panel, j, l, storage) : 0;
            }
    }
}

/* What columns are packed as. */
static rein_storage packed_storage(const rein_gemm_task *t) {
    return WIDE_TURN && t->turned && t->b.storage == REIN_STORED_BF16 ? REIN_STORED_BF16 : REIN_STORED_F32;
}

rein_storage KERNEL(rein_pack_columns)(void *to, const rein_gemm_task *t, size_t first, size_t from, size_t depth) {
    const rein_storage storage = t->b.storage;
    if (!t->panel) pack_panel(to, &t->b, first, t->n, from, depth);
    else if (t->turned && storage == REIN_STORED_F32) pack_turned(to, t, first, from, depth, REIN_STORED_F32, 0);
    else if (t->turned && storage == REIN_STORED_BF16) pack_turned(to, t, first, from, depth, REIN_STORED_BF16, WIDE_TURN);
    else if (t->turned) pack_turned(to, t, first, from, depth, REIN_STORED_F16, 0);
    else /* other panels are read where they are */
        for (size_t k = 0; k < depth; k++)
            wide_store((float *)to + k * GEMM_PANEL,
                       wide_row(t->b.data, first * t->panel + (from + k) * GEMM_PANEL, REIN_STORED_F16), GEMM_PANEL);
    return packed_storage(t);
}

/* ---- a tile */

/* Element (r, k) is at data[r·row + k·step]. */
typedef struct left_factor {
    const float *data;
    size_t row, step;
} left_factor;

/* Panels, `bytes` apart, whose rows of 16 columns are `step` numbers apart: 16, or more where they are columns of a view. */
typedef struct right_factor {
    const void *data;
    size_t step, bytes;
} right_factor;

/* Some rows of some panels; of the last panel `last` columns. */
INLINE void tile(float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage, size_t depth, size_t last,
                 int from_c, const size_t rows, const size_t panels) {
    wide sum[TILE_ROWS * TILE_PANELS] = {wide_zero()};
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * panels; i++) {
        const size_t p = i % panels;
        sum[i] = from_c ? wide_load(c + i / panels * stride + p * GEMM_PANEL, p + 1 == panels ? last : GEMM_PANEL) : wide_zero();
    }
#pragma GCC unroll 2
    for (size_t k = 0; k < depth; k++) {
        wide row[TILE_PANELS] = {wide_zero()};
#pragma GCC unroll 3
        for (size_t p = 0; p < panels; p++) row[p] = wide_row((const char *)b.data + p * b.bytes, k * b.step, storage);
#pragma GCC unroll 24
        for (size_t i = 0; i < rows * panels; i++)
            sum[i] = wide_fmadd(a.data[i / panels * a.row + k * a.step], row[i % panels], sum[i]);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * panels; i++) {
        const size_t p = i % panels;
        wide_store(c + i / panels * stride + p * GEMM_PANEL, sum[i], p + 1 == panels ? last : GEMM_PANEL);
    }
}

INLINE void tile_rows(size_t rows, float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage, size_t depth,
                      size_t last, int from_c, const size_t panels) {
    switch (rows) {
    case 1: tile(c, stride, a, b, storage, depth, last, from_c, 1, panels); break;
    case 2: tile(c, stride, a, b, storage, depth, last, from_c, 2, panels); break;
    case 3: tile(c, stride, a, b, storage, depth, last, from_c, 3, panels); break;
    case 4: tile(c, stride, a, b, storage, depth, last, from_c, 4, panels); break;
    case 5: tile(c, stride, a, b, storage, depth, last, from_c, 5, panels); break;
#ifdef __AVX512F__
    case 6: tile(c, stride, a, b, storage, depth, last, from_c, 6, panels); break;
    case 7: tile(c, stride, a, b, storage, depth, last, from_c, 7, panels); break;
#endif
    default: tile(c, stride, a, b, storage, depth, last, from_c, TILE_ROWS, panels); break;
    }
}

/* How many of the next columns a tile takes: those of TILE_PANELS, or of one. */
INLINE size_t tile_columns(size_t left) {
    const size_t most = left > (TILE_PANELS - 1) * GEMM_PANEL ? TILE_PANELS * GEMM_PANEL : GEMM_PANEL;
    return left < most ? left : most;
}

INLINE void tile_of(size_t rows, size_t columns, float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage,
                    size_t depth, int from_c) {
    if (TILE_PANELS == 1 || columns <= GEMM_PANEL) tile_rows(rows, c, stride, a, b, storage, depth, columns, from_c, 1);
    else tile_rows(rows, c, stride, a, b, storage, depth, columns - (TILE_PANELS - 1) * GEMM_PANEL, from_c, TILE_PANELS);
}

/* to[r·to_row + j·to_column], for tiles that have fewer columns, or lie across. Not inlined: where gcc sees how few they are, it does
 * worse. */
static __attribute__((noinline)) void copy_tile(float *to, size_t to_row, size_t to_column, const float *from, size_t from_row,
                                                size_t from_column, size_t rows, size_t columns) {
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
            halves_of_row(&b0, &b1, b + (size_t)p * panel_bytes, k * GEMM_PANEL, storage);
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
    rein_storage storage;
    int from_c;
} block;

/* What the next tile will begin with: far apart as its rows are, the processor does not guess them. */
INLINE void prefetch_tile(const float *c, size_t stride, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j += GEMM_PANEL) __builtin_prefetch(c + r * stride + j, 1);
}

/* The strides as constants, so that the compiler sees them: of a when it is packed, of b when it is panels. */
INLINE void multiply_as(const block *t, const rein_storage storage, const int packed, const int panels) {
    const char *b = t->b.data;
    size_t j = 0;
    if (!packed && t->m <= 2) {
        for (; t->m == 1 && j + 4 * GEMM_PANEL <= t->n; j += 4 * GEMM_PANEL, b += 4 * t->b.bytes)
            stripe(t->c + j, t->stride, t->a, b, t->b.bytes, storage, t->depth, t->from_c, 1, 4);
        for (; t->m == 2 && j + 2 * GEMM_PANEL <= t->n; j += 2 * GEMM_PANEL, b += 2 * t->b.bytes)
            stripe(t->c + j, t->stride, t->a, b, t->b.bytes, storage, t->depth, t->from_c, 2, 2);
    }
    for (size_t columns; j < t->n; j += columns, b += (columns + GEMM_PANEL - 1) / GEMM_PANEL * t->b.bytes) {
        const right_factor right = {b, panels ? GEMM_PANEL : t->b.step, t->b.bytes};
        columns = tile_columns(t->n - j);
        for (size_t i = 0, n = 0; i < t->m; i += t->tall, n++) {
            const left_factor rows = {t->a.data + (packed ? n * TILE_ROWS * t->depth : i * t->a.row), packed ? 1 : t->a.row,
                                      packed ? TILE_ROWS : 1};
            const size_t m = t->m - i < t->tall ? t->m - i : t->tall;
            float *c = t->c + i * t->stride + j, part[TILE_ROWS * GEMM_PANEL];
            const int apart = !WIDE_PARTS && columns < GEMM_PANEL; /* the tile, from c and back into it */
            if (packed && t->depth >= PREFETCH_DEPTH && i + t->tall < t->m)
                prefetch_tile(c + t->tall * t->stride, t->stride, t->tall, columns);
            if (apart) memset(part, 0, sizeof part), copy_tile(part, GEMM_PANEL, 1, c, t->stride, 1, m, columns);
            tile_of(m, columns, apart ? part : c, apart ? GEMM_PANEL : t->stride, rows, right, storage, t->depth, t->from_c);
            if (apart) copy_tile(c, t->stride, 1, part, GEMM_PANEL, 1, m, columns);
        }
    }
}

/* At the start of a cache line, wherever the linker puts it: elsewhere its loops were 1 % slower. */
static __attribute__((aligned(64))) void multiply(const block *t, int packed) {
    if (t->b.step != GEMM_PANEL) multiply_as(t, REIN_STORED_F32, 1, 0);
    else if (packed && t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 1, 1);
    else if (packed && WIDE_F16 && t->storage == REIN_STORED_F16) multiply_as(t, REIN_STORED_F16, 1, 1);
    else if (packed) multiply_as(t, REIN_STORED_BF16, 1, 1);
    else if (t->storage == REIN_STORED_F32) multiply_as(t, REIN_STORED_F32, 0, 1);
    else if (t->storage == REIN_STORED_BF16) multiply_as(t, REIN_STORED_BF16, 0, 1);
    else multiply_as(t, REIN_STORED_F16, 0, 1);
}

/* ---- at most 8 columns, rows in place: half a panel is nothing but padding. Sixteen rows at a time were slower. */
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

static void multiply_narrow(const block *t) {
    size_t i = 0;
    for (; i + NARROW_ROWS <= t->m; i += NARROW_ROWS) {
        const left_factor rows = {t->a.data + i * t->a.row, t->a.row, 1};
        float *c = t->c + i * t->stride, part[NARROW_ROWS * LANES];
        if (t->n < LANES) memset(part, 0, sizeof part), copy_tile(part, LANES, 1, c, t->stride, 1, NARROW_ROWS, t->n);
        narrow_tile(t->n < LANES ? part : c, t->n < LANES ? LANES : t->stride, rows, t->b.data, t->depth, t->from_c);
        if (t->n < LANES) copy_tile(c, t->stride, 1, part, LANES, 1, NARROW_ROWS, t->n);
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
    const size_t tall = piece_of(t->n, TILE_ROWS, 1);
    for (size_t i = 0, columns; i < t->m; i += columns) {
        columns = tile_columns(t->m - i);
        for (size_t j = 0; j < t->n; j += tall) {
            const size_t rows = t->n - j < tall ? t->n - j : tall;
            const left_factor of_b = {(const float *)t->b.data + j, 1, t->b.row};
            const right_factor of_a = {(const float *)t->a.data + i, t->a.column, GEMM_PANEL * sizeof(float)};
            float *c = t->c + i * t->stride + j, part[TILE_ROWS * TILE_PANELS * GEMM_PANEL];
            if (t->add) copy_tile(part, columns, 1, c, 1, t->stride, rows, columns);
            tile_of(rows, columns, part, columns, of_b, of_a, REIN_STORED_F32, t->k, t->add);
            copy_tile(c, 1, t->stride, part, columns, 1, rows, columns);
        }
    }
}

/* ---- how to go about it */
_Static_assert(0 <= GEMM_ROWS * GEMM_DEPTH - BLOCK_ROWS * BLOCK_DEPTH, "room for the rows of a block");
_Static_assert(0 <= GEMM_COLUMNS * GEMM_DEPTH - BLOCK_COLUMNS * BLOCK_DEPTH, "room for its columns");

typedef struct plan {
    int in_place; /* rows of a */
    int ready;    /* columns of b: panels, or a view that few rows read once */
    size_t depth, rows, columns, tall;
} plan;

static int stored_along(const rein_matrix *x, size_t along) { return x->storage == REIN_STORED_F32 && along == 1; }

static plan plan_of(const rein_gemm_task *t) {
    const int few = t->m <= FEW_ROWS;
    plan p = {.in_place = (few || t->n <= GEMM_NARROW) && stored_along(&t->a, t->a.column)};
    p.ready = t->panel && !t->turned && (t->b.storage != REIN_STORED_F16 || WIDE_F16 || (few && p.in_place));
    if (!t->panel && t->m <= 2 * TILE_ROWS && t->n % GEMM_PANEL == 0 && stored_along(&t->b, t->b.column))
        p.ready = 1, p.in_place = 0;
    const size_t deepest = few && p.in_place && p.ready        ? t->k + 1
                           : 2 * t->m <= BLOCK_ROWS && p.ready ? 2 * BLOCK_DEPTH
                                                               : BLOCK_DEPTH;
    p.depth = piece_of(t->k, deepest, GEMM_PANEL);
    p.rows = piece_of(t->m, BLOCK_ROWS, TILE_ROWS);
    p.columns = p.ready ? t->n : piece_of(t->n, BLOCK_COLUMNS, TILE_PANELS * GEMM_PANEL);
    p.tall = t->m < BLOCK_ROWS ? piece_of(t->m, TILE_ROWS, 1) : TILE_ROWS;
    return p;
}

/* Panels of the columns from j, packed unless they can be read where they are. */
static void set_panels(block *to, const rein_gemm_task *t, size_t j, size_t from, float *scratch, int ready) {
    to->storage = packed_storage(t);
    to->b = (right_factor){scratch, GEMM_PANEL, to->depth * GEMM_PANEL * rein_storage_size(to->storage)};
    if (ready && t->panel) {
        const size_t size = rein_storage_size(t->b.storage);
        to->b.data = (const char *)t->b.data + (j * t->panel + from * GEMM_PANEL) * size;
        to->b.bytes = t->panel * GEMM_PANEL * size, to->storage = t->b.storage;
        return;
    }
    if (ready) {
        to->b = (right_factor){(const float *)t->b.data + from * t->b.row + j, t->b.row, GEMM_PANEL * sizeof *scratch};
        return;
    }
    for (size_t p = 0; p < to->n; p += GEMM_PANEL)
        (void)KERNEL(rein_pack_columns)((char *)scratch + p / GEMM_PANEL * to->b.bytes, t, j + p, from, to->depth);
}

/* `to` as pack_left has it. */
static void pack_rows(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const int along_rows = stored_along(&t->a, t->a.row) && t->a.column != 1;
    (along_rows ? pack_lines : pack_left)(to, t, first, m, tall, from, depth);
}

static void multiply_rows(block *b, const rein_gemm_task *t, const plan *p, size_t from) {
    for (size_t i = 0; i < t->m; i += p->rows) {
        block some = *b;
        some.m = t->m - i < p->rows ? t->m - i : p->rows;
        some.c += i * t->stride;
        some.a = (left_factor){(const float *)t->a.data + i * t->a.row + from, t->a.row, 1};
        if (!p->in_place) {
            pack_rows(t->scratch, t, i, some.m, p->tall, from, b->depth);
            some.a.data = t->scratch;
        }
        if (p->in_place && t->n <= LANES && some.storage == REIN_STORED_F32 && some.m >= NARROW_ROWS) multiply_narrow(&some);
        else multiply(&some, !p->in_place);
    }
}

/* ---- rows that were packed before */
static size_t tiles_of(size_t rows, size_t tall) { return (rows + tall - 1) / tall; }

void KERNEL(rein_pack_unit)(const rein_gemm_task *t, size_t unit) {
    const rein_left *left = &t->left;
    const size_t first = unit * left->rows, rows = t->m - first < left->rows ? t->m - first : left->rows;
    float *to = left->data + unit * left->size;
    for (size_t from = 0; from < t->k; from += left->depth) {
        const size_t depth = t->k - from < left->depth ? t->k - from : left->depth;
        pack_rows(to, t, first, rows, left->tall, from, depth);
        to += tiles_of(rows, left->tall) * TILE_ROWS * depth;
    }
}

/* Some units, a stretch of k, all columns. */
static void multiply_some_units(const rein_gemm_task *t, size_t first, size_t end, size_t from) {
    const rein_left *left = &t->left;
    const size_t size = rein_storage_size(t->b.storage);
    block b = {.stride = t->stride, .tall = left->tall, .storage = t->b.storage, .from_c = t->add || from > 0};
    b.depth = t->k - from < left->depth ? t->k - from : left->depth;
    for (size_t j = 0; j < t->n; j += b.n) {
        b.n = tile_columns(t->n - j);
        b.b = (right_factor){(const char *)t->b.data + (j * t->panel + from * GEMM_PANEL) * size, GEMM_PANEL,
                             t->panel * GEMM_PANEL * size};
        for (size_t unit = first; unit < end; unit++) {
            const size_t i = unit * left->rows;
            b.m = t->m - i < left->rows ? t->m - i : left->rows;
            b.c = t->c + i * t->stride + j;
            b.a.data = left->data + unit * left->size + tiles_of(b.m, left->tall) * TILE_ROWS * from;
            multiply(&b, 1);
        }
    }
}

static void multiply_units(const rein_gemm_task *t) {
    const size_t units = rein_left_units(t), some = BLOCK_ROWS / t->left.rows; /* a unit is smaller */
    for (size_t from = 0; from < t->k; from += t->left.depth)
        for (size_t unit = 0; unit < units; unit += some)
            multiply_some_units(t, unit, unit + some < units ? unit + some : units, from);
}

void KERNEL(rein_gemm_block)(const rein_gemm_task *task) {
    rein_gemm_task rest = *task;
    if (task->left.data) {
        multiply_units(task);
        return;
    }
    if (!task->panel && task->n <= 2 * TILE_ROWS && stored_along(&task->a, task->a.row) && task->a.column != 1 &&
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
