/* rows.h - operations of a decoder on one row at a time: norms, rotations, gates, softmax. Private.
 *
 * The result of each function depends only on its own row, and every instruction set gives the same bits. */
#ifndef REIN_KERNEL_ROWS_H
#define REIN_KERNEL_ROWS_H

#include "kernels.h"

/* The softmax statistics of some numbers x: their maximum m, Σ e^(x−m), and Σ e^(x−m)·(x−m). */
typedef struct rein_softmax_stats {
    float maximum, sum, weighted;
} rein_softmax_stats;

typedef struct rein_row_kernels {
    /* RMSNorm: y = x·s·w with s = 1/√(mean x² + epsilon) and w = offset + weight. Returns s. y may be x. */
    float (*norm)(float *y, const float *x, const float *weight, size_t n, float offset, float epsilon);
    /* dx += dy·w·s − x·s³/n·Σ dy·w·x */
    void (*norm_backward)(float *dx, const float *dy, const float *x, const float *weight, size_t n, float offset, float s);
    /* dweight += Σ dy·x·s over the rows, in their order. Rows are `stride` apart; row r has the scale s[r]. */
    void (*norm_weight_backward)(float *dweight, const float *dy, const float *x, const float *s, size_t rows, size_t stride,
                                 size_t n);
    /* dbias += Σ dy over the rows, in their order. */
    void (*add_rows)(float *dbias, const float *dy, size_t rows, size_t stride, size_t n);

    /* RoPE of one head, x [2·half]: (x1, x2) → (x1·cos − x2·sin, x2·cos + x1·sin). direction −1 negates sin: the backward pass. */
    void (*rotate)(float *x, const float *cosine, const float *sine, size_t half, float direction);

    /* h = g·σ(g)·u */
    void (*swiglu)(float *h, const float *g, const float *u, size_t n);
    /* dg = dh·u·σ(g)·(1 + g·(1 − σ(g))), du = dh·g·σ(g). dg may be g, du may be u. */
    void (*swiglu_backward)(float *dg, float *du, const float *dh, const float *g, const float *u, size_t n);
    /* The same with gelu(g) = g·σ(t), t = √(8/π)·(g + 0.044715·g³), in place of g·σ(g): h = gelu(g)·u. It equals GELU's tanh form. */
    void (*geglu)(float *h, const float *g, const float *u, size_t n);
    void (*geglu_backward)(float *dg, float *du, const float *dh, const float *g, const float *u, size_t n);

    /* x ← cap·tanh(scale·x/cap) */
    void (*soft_cap)(float *x, size_t n, float scale, float cap);
    /* slope = 1 − (x/cap)²: the derivative of cap·tanh(z/cap) where its value is x. slope may be x. */
    void (*soft_cap_slope)(float *slope, const float *x, size_t n, float cap);
    void (*multiply)(float *x, const float *y, size_t n); /* x ← x·y */

    /* x ← e^(scale·x − m) with m = max scale·x. Returns m; *sum is the sum of the new x. */
    float (*softmax_exp)(float *sum, float *x, size_t n, float scale);
    /* x ← e^(scale·x − m)·factor, with the maximum m and factor = 1/sum of an earlier pass. */
    void (*softmax_from_stats)(float *x, size_t n, float scale, float m, float factor);
    /* ds = p·(dp − Σ p·dp)·scale; ds may be dp. */
    void (*softmax_backward)(float *ds, const float *p, const float *dp, size_t n, float scale);

    /* x ← scale·x; returns its statistics. Without `weighted` the weighted sum is 0. */
    rein_softmax_stats (*softmax_stats)(float *x, size_t n, float scale, int weighted);
    /* e = e^(x − m), and unless y is NULL, y = e·(x − m). e may be x. */
    void (*exp_shifted)(float *e, float *y, const float *x, size_t n, float m);
    /* dz = −p·(dlp + dh·(log p + entropy))·scale with p = e^(x − log_sum): d loss/d logits without the term dlp·scale of the target token.
     * dz may be x. */
    void (*logits_backward)(float *dz, const float *x, size_t n, float log_sum, float entropy, float dlp, float dh, float scale);

    /* From x, y and their log Σ e: p = e^(x − log_sum), q = e^(y − its own), m = (1 − beta)·p + beta·q. t = p·(log p − log m), whose sum is
     * *toward; returns beta·Σ q·(log q − log m) + (1 − beta)·Σ p·(log p − log m), never below 0. t may be y. */
    double (*jensen_shannon)(float *t, double *toward, const float *x, float log_sum, const float *y, float log_sum_of_y, size_t n,
                             float beta);

    double (*dot)(const float *a, const float *b, size_t n);              /* Σ a·b */
    void (*scale)(float *x, size_t n, float factor);                      /* x ← factor·x */
    void (*add_scaled)(float *y, const float *x, size_t n, float factor); /* y += factor·x */
} rein_row_kernels;

#define REIN_TABLE(isa, NAME, machines) extern const rein_row_kernels rein_row_kernels_##isa##_f32;
REIN_ISA_LIST(REIN_TABLE)
#undef REIN_TABLE

#endif
