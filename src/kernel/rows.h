/* rows.h - what a decoder does to one row at a time: norms, rotations, gates, softmax. Private.
 *
 * Each function's result depends on its own row and nothing else, and every instruction set gives the same bits. */
#ifndef REIN_KERNEL_ROWS_H
#define REIN_KERNEL_ROWS_H

#include "gemm_block.h"

/* What softmax and the head need of a stretch of numbers x: their maximum m, Σ e^(x−m), and Σ e^(x−m)·(x−m). */
typedef struct rein_mass {
    float maximum, sum, weighted;
} rein_mass;

typedef struct rein_kernels {
    rein_gemm_fn *gemm; /* one block of a product */
    rein_pack_fn *pack; /* one panel */
    rein_left_fn *left; /* one unit of rows; NULL: every thread packs the rows it needs */
    size_t tile_rows;   /* rows that a block is best a multiple of */

    /* y = x·s·weight with s = 1/√(mean x² + epsilon); returns s. y may be x. */
    float (*norm)(float *y, const float *x, const float *weight, size_t n, float epsilon);
    /* dx += dy·weight·s − x·s³/n·Σ dy·weight·x */
    void (*norm_backward)(float *dx, const float *dy, const float *x, const float *weight, size_t n, float s);
    /* dweight += Σ over rows, in their order, of dy·x·s; rows are `stride` apart, row r has scale s[r] */
    void (*norm_weight_backward)(float *dweight, const float *dy, const float *x, const float *s, size_t rows, size_t stride,
                                 size_t n);
    /* dbias += Σ over rows, in their order, of dy */
    void (*add_rows)(float *dbias, const float *dy, size_t rows, size_t stride, size_t n);

    /* One head, x [2·half]: (x1, x2) → (x1·cos − x2·sin, x2·cos + x1·sin). Backward: the same with −sin. */
    void (*rotate)(float *x, const float *cosine, const float *sine, size_t half, float direction);

    /* h = g·σ(g)·u */
    void (*gate)(float *h, const float *g, const float *u, size_t n);
    /* dg = dh·u·σ(g)·(1 + g·(1 − σ(g))), du = dh·g·σ(g). dg may be g, du may be u. */
    void (*gate_backward)(float *dg, float *du, const float *dh, const float *g, const float *u, size_t n);

    /* x ← e^(scale·x − m), m = max scale·x; returns m, and the sum in *sum. */
    float (*soften)(float *sum, float *x, size_t n, float scale);
    /* x ← e^(scale·x − m)·factor for a maximum that is known already */
    void (*soften_again)(float *x, size_t n, float scale, float m, float factor);
    /* ds = p·(dp − Σ p·dp)·scale; ds may be dp */
    void (*soften_backward)(float *ds, const float *p, const float *dp, size_t n, float scale);

    /* x ← scale·x; its mass. The weighted sum is left out (0) unless asked for. */
    rein_mass (*mass)(float *x, size_t n, float scale, int weighted);
    /* e ← e^(x − m); with y also y ← e·(x − m). e may be x. */
    void (*powers)(float *e, float *y, const float *x, size_t n, float m);
    /* dz = −p·(dlp + dh·(log p + entropy))·scale with p = e^(x − log_sum): dloss/dlogits, but for dlp·scale of the target. dz may be x. */
    void (*logits_backward)(float *dz, const float *x, size_t n, float log_sum, float entropy, float dlp, float dh, float scale);

    void (*scale)(float *x, size_t n, float factor);                      /* x ← factor·x */
    void (*add_scaled)(float *y, const float *x, size_t n, float factor); /* y += factor·x */
    /* to [n] f32 of a row that is stored otherwise */
    void (*widen)(float *to, const void *from, rein_storage storage, size_t n);
} rein_kernels;

/* The table of an instruction set that was resolved. */
const rein_kernels *rein_kernels_of(rein_isa isa);

extern const rein_kernels rein_kernels_ref_f32, rein_kernels_avx2_f32, rein_kernels_avx512_f32;

#endif
