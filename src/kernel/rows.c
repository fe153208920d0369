/* rows.c - the kernels of rows.h; compiled per instruction set. */
#include "rows.h"

#include "explog.h"

#define EACH(i, n) for (size_t i = 0; i < (n); i += LANES)

/* ---- norm */
static double dot(const float *a, const float *b, size_t n) {
    V sums[4] = {{0}};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t c = 0; c < 4; c++) sums[c] = fmadd(load(a + i + c * LANES, LANES), load(b + i + c * LANES, LANES), sums[c]);
    for (; i < n; i += LANES) sums[0] = fmadd(load(a + i, n - i), load(b + i, n - i), sums[0]);
    return add_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static float norm(float *y, const float *x, const float *weight, size_t n, float offset, float epsilon) {
    const float s = (float)(1 / sqrt(dot(x, x, n) / (double)n + (double)epsilon));
    EACH(i, n) store(y + i, (load(x + i, n - i) * s) * (load(weight + i, n - i) + offset), n - i);
    return s;
}

static void norm_backward(float *dx, const float *dy, const float *x, const float *weight, size_t n, float offset, float s) {
    V sum = {0};
    EACH(i, n) sum = fmadd(load(dy + i, n - i) * (load(weight + i, n - i) + offset), load(x + i, n - i), sum);
    const float along = (float)(-add_lanes(sum) * (double)s * (double)s * (double)s / (double)n);
    EACH(i, n) {
        const V across = load(dy + i, n - i) * (load(weight + i, n - i) + offset) * s;
        store(dx + i, load(dx + i, n - i) + fmadd(load(x + i, n - i), splat(along), across), n - i);
    }
}

static void norm_weight_backward(float *dweight, const float *dy, const float *x, const float *s, size_t rows, size_t stride,
                                 size_t n) {
    EACH(i, n) {
        V sum = load(dweight + i, n - i);
        for (size_t r = 0; r < rows; r++)
            sum = fmadd(load(dy + r * stride + i, n - i), load(x + r * stride + i, n - i) * s[r], sum);
        store(dweight + i, sum, n - i);
    }
}

static void add_rows(float *dbias, const float *dy, size_t rows, size_t stride, size_t n) {
    EACH(i, n) {
        V sum = load(dbias + i, n - i);
        for (size_t r = 0; r < rows; r++) sum = sum + load(dy + r * stride + i, n - i);
        store(dbias + i, sum, n - i);
    }
}

/* ---- RoPE and gates */
static void rotate(float *x, const float *cosine, const float *sine, size_t half, float direction) {
    EACH(i, half) {
        const size_t left = half - i;
        const V c = load(cosine + i, left), s = load(sine + i, left) * direction;
        const V a = load(x + i, left), b = load(x + half + i, left);
        store(x + i, fmadd(a, c, -(b * s)), left);
        store(x + half + i, fmadd(b, c, a * s), left);
    }
}

INLINE V sigmoid(V g) { return 1 / (1 + exp_lanes(-g)); }

static void swiglu(float *h, const float *g, const float *u, size_t n) {
    EACH(i, n) {
        const V x = load(g + i, n - i);
        store(h + i, x * sigmoid(x) * load(u + i, n - i), n - i);
    }
}

static void swiglu_backward(float *dg, float *du, const float *dh, const float *g, const float *u, size_t n) {
    EACH(i, n) {
        const V x = load(g + i, n - i), up = load(u + i, n - i), d = load(dh + i, n - i), s = sigmoid(x);
        store(dg + i, d * up * (s * fmadd(x, 1 - s, splat(1))), n - i);
        store(du + i, d * (x * s), n - i);
    }
}

#define GELU_A 1.5957691216057308f /* √(8/π) */
#define GELU_B 0.044715f

/* Beyond ±12, σ(t) is 0 or 1, and the cube of a large number would be infinite. */
INLINE V gelu_range(V x) { return clamp(x, splat(-12), splat(12)); }

static void geglu(float *h, const float *g, const float *u, size_t n) {
    EACH(i, n) {
        const V x = load(g + i, n - i), c = gelu_range(x), t = c * GELU_A * fmadd(c * c, splat(GELU_B), splat(1));
        store(h + i, x * sigmoid(t) * load(u + i, n - i), n - i);
    }
}

static void geglu_backward(float *dg, float *du, const float *dh, const float *g, const float *u, size_t n) {
    EACH(i, n) {
        const V x = load(g + i, n - i), up = load(u + i, n - i), d = load(dh + i, n - i), c = gelu_range(x), square = c * c;
        const V t = c * GELU_A * fmadd(square, splat(GELU_B), splat(1)), dt = GELU_A * fmadd(square, splat(3 * GELU_B), splat(1));
        const V s = sigmoid(t);
        store(dg + i, d * up * fmadd(x * (s * (1 - s)), dt, s), n - i);
        store(du + i, d * (x * s), n - i);
    }
}

/* ---- soft caps */

/* tanh x = 1 − 2/(e^2x + 1); near 0 that cancels, and a polynomial of x² takes its place (Cephes' tanhf). */
INLINE V tanh_lanes(V x) {
    const V z = x * x;
    V p = fmadd(splat(-5.70498872745e-3f), z, splat(2.06390887954e-2f));
    p = fmadd(p, z, splat(-5.37397155531e-2f));
    p = fmadd(p, z, splat(1.33314422036e-1f));
    p = fmadd(p, z, splat(-3.33332819422e-1f));
    const V near = fmadd(p * z, x, x), far = 1 - 2 / (exp_lanes(2 * x) + 1);
    return pick(z < splat(0.625f * 0.625f), near, far);
}

static void soft_cap(float *x, size_t n, float scale, float cap) {
    EACH(i, n) store(x + i, tanh_lanes(load(x + i, n - i) * scale / cap) * cap, n - i);
}

static void soft_cap_slope(float *slope, const float *x, size_t n, float cap) {
    EACH(i, n) {
        const V t = load(x + i, n - i) / cap;
        store(slope + i, fmadd(-t, t, splat(1)), n - i);
    }
}

static void multiply(float *x, const float *y, size_t n) {
    EACH(i, n) store(x + i, load(x + i, n - i) * load(y + i, n - i), n - i);
}

/* ---- softmax */
static float maximum_lane(V v) {
    float m = v[0];
    for (int l = 1; l < LANES; l++) m = v[l] > m ? v[l] : m;
    return m;
}

/* x ← scale·x, in place; returns the maximum. With a NaN in x the maximum is unspecified; the sums become NaN, and the caller of the
 * model reports that. */
static float scale_and_max(float *x, size_t n, float scale) {
    V m = splat(x[0] * scale);
    EACH(i, n) {
        const V y = load(x + i, n - i) * scale;
        store(x + i, y, n - i);
        if (n - i >= LANES) m = most(y, m);
        else
            for (size_t l = 0; l < n - i; l++) m[0] = y[l] > m[0] ? y[l] : m[0];
    }
    return maximum_lane(m);
}

static float softmax_exp(float *sum, float *x, size_t n, float scale) {
    const float m = scale_and_max(x, n, scale);
    V total = {0};
    EACH(i, n) {
        const V e = keep(first_lanes(n - i), exp_lanes(load(x + i, n - i) - m));
        store(x + i, e, n - i);
        total = total + e;
    }
    *sum = (float)add_lanes(total);
    return m;
}

static void softmax_from_stats(float *x, size_t n, float scale, float m, float factor) {
    EACH(i, n) store(x + i, exp_lanes(load(x + i, n - i) * scale - m) * factor, n - i);
}

static void softmax_backward(float *ds, const float *p, const float *dp, size_t n, float scale) {
    const float mean = (float)dot(p, dp, n);
    EACH(i, n) store(ds + i, load(p + i, n - i) * (load(dp + i, n - i) - mean) * scale, n - i);
}

static rein_softmax_stats softmax_stats(float *x, size_t n, float scale, int weighted) {
    const float m = scale_and_max(x, n, scale);
    V sum = {0}, product = {0};
    EACH(i, n) {
        const M inside = first_lanes(n - i);
        const V shifted = load(x + i, n - i) - m, e = keep(inside, exp_lanes(shifted));
        sum = sum + e;
        if (weighted) product = product + keep(inside & (e > splat(0)), e * shifted); /* 0·(−∞) is 0 here */
    }
    return (rein_softmax_stats){m, (float)add_lanes(sum), (float)add_lanes(product)};
}

static void exp_shifted(float *e, float *y, const float *x, size_t n, float m) {
    EACH(i, n) {
        const V shifted = load(x + i, n - i) - m, power = exp_lanes(shifted);
        if (y) store(y + i, keep(power > splat(0), power * shifted), n - i);
        store(e + i, power, n - i);
    }
}

static void logits_backward(float *dz, const float *x, size_t n, float log_sum, float entropy, float dlp, float dh, float scale) {
    EACH(i, n) {
        const V log_p = load(x + i, n - i) - log_sum, p = exp_lanes(log_p);
        const V weight = fmadd(log_p + entropy, splat(-dh), splat(-dlp));
        store(dz + i, keep(p > splat(0), p * weight) * scale, n - i);
    }
}

/* Every token of the vocabulary adds beta·q·(e^r − 1 − r) with r = log(m/q), and (1 − beta)·p·(e^s − 1 − s) with s = log(m/p): what the squares
 * add over beta·q·log(q/m) + (1 − beta)·p·log(p/m) is m − beta·q − (1 − beta)·p, which is 0. No term is below 0, so nothing cancels. Where p
 * and q are far apart, e^s would overflow, and nothing cancels either. */
static double jensen_shannon(float *t, double *toward, const float *x, float log_sum, const float *y, float log_sum_of_y, size_t n,
                             float beta) {
    V all = {0}, of_p = {0};
    EACH(i, n) {
        const M inside = first_lanes(n - i);
        const V log_p = load(x + i, n - i) - log_sum, log_q = load(y + i, n - i) - log_sum_of_y, apart = log_q - log_p;
        const V p = keep(inside, exp_lanes(log_p)), q = keep(inside, exp_lanes(log_q)), near = -magnitude(apart);
        const M below = apart <= splat(0);
        V excess, excess_p, excess_q;
        const V power = exp_excess(near, &excess), change = pick(near > splat(-0.25f), near + excess, power - 1);
        const V mixed =
            log1p_lanes(pick(below, splat(beta), splat(1 - beta)) * change); /* log m minus the greater of log p, log q */
        const V of_m_p = pick(below, mixed, apart + mixed), of_m_q = pick(below, mixed - apart, mixed);
        (void)exp_excess(of_m_p, &excess_p), (void)exp_excess(of_m_q, &excess_q);
        const M close = near > splat(-1);
        const V term_p = keep(p > splat(0), p * pick(close, excess_p, -of_m_p)),
                term_q = keep(q > splat(0), q * pick(close, excess_q, -of_m_q));
        const V weighted = keep(p > splat(0), p * -of_m_p);
        store(t + i, weighted, n - i);
        of_p = of_p + weighted;
        all = all + fmadd(term_q, splat(beta), term_p * (1 - beta));
    }
    *toward = add_lanes(of_p);
    return add_lanes(all);
}

/* ---- sums */
static void scale_row(float *x, size_t n, float factor) { EACH(i, n) store(x + i, load(x + i, n - i) * factor, n - i); }

static void add_scaled(float *y, const float *x, size_t n, float factor) {
    EACH(i, n) store(y + i, fmadd(load(x + i, n - i), splat(factor), load(y + i, n - i)), n - i);
}

const rein_row_kernels KERNEL(rein_row_kernels) = {
    .norm = norm,
    .norm_backward = norm_backward,
    .norm_weight_backward = norm_weight_backward,
    .add_rows = add_rows,
    .rotate = rotate,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .geglu = geglu,
    .geglu_backward = geglu_backward,
    .soft_cap = soft_cap,
    .soft_cap_slope = soft_cap_slope,
    .multiply = multiply,
    .softmax_exp = softmax_exp,
    .softmax_from_stats = softmax_from_stats,
    .softmax_backward = softmax_backward,
    .softmax_stats = softmax_stats,
    .exp_shifted = exp_shifted,
    .logits_backward = logits_backward,
    .jensen_shannon = jensen_shannon,
    .dot = dot,
    .scale = scale_row,
    .add_scaled = add_scaled,
};
