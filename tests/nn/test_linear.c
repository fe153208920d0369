/* test_linear.c - y = x·Wᵀ + bias + s·(x·Aᵀ)·Bᵀ: element by element the chain that linear.h promises, against double, its gradients
 * against central differences; W in f32, bf16 and f16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/linear.h"

/* Measured: 3e-7; 2e-6 for A and B, whose gradients are sums that may all but cancel. */
#define FORWARD 1e-6
#define BACKWARD 1e-6
#define BACKWARD_LORA 5e-6

typedef struct layer {
    size_t rows;
    rein_linear linear;
    rein_lora lora; /* rank 0: none */
    int add;
    float *x, *before, *dy; /* before: what y held */
} layer;

static rein_linear make_linear(size_t in, size_t out, rein_storage storage, int bias) {
    rein_linear l = {.in = in, .out = out, .bias = bias ? numbers(out, 1) : NULL};
    l.weight = (rein_matrix){stored_numbers(in * out, storage, 1), in, 1, storage};
    const rein_matrix transposed = {l.weight.data, 1, in, storage};
    l.packed = rein_pack(room(rein_packed_size(in, out, storage), 1), &transposed, in, out);
    return l;
}

static rein_lora make_lora(size_t in, size_t out, size_t rank) {
    rein_lora l = {.rank = rank, .scale = 0.5f + (float)below(4)};
    if (!rank) return l;
    l.a = numbers(rank * in, 1), l.b = numbers(out * rank, 1);
    rein_lora_pack(&l, floats(rein_lora_packed_size(&l, in, out)), in, out);
    return l;
}

static layer make(size_t rows, size_t in, size_t out, size_t rank) {
    layer l = {.rows = rows, .linear = make_linear(in, out, (rein_storage)below(3), (int)below(2)), .add = (int)below(2)};
    l.lora = make_lora(in, out, rank);
    l.x = numbers(rows * in, 1), l.before = numbers(rows * out, 1), l.dy = numbers(rows * out, 1);
    return l;
}

/* Without a LoRA: NULL, or one of rank 0. */
static const rein_lora *lora_of(const layer *l) { return l->lora.rank || l->add ? &l->lora : NULL; }

static float *begin_of(const layer *l) {
    return l->add ? copy_of(l->before, l->rows * l->linear.out) : floats(l->rows * l->linear.out);
}

static float *forward(const layer *l, float *inner, const rein_nn_context *run) {
    float *y = begin_of(l);
    rein_linear_forward(y, inner, l->x, l->rows, &l->linear, lora_of(l), l->add, run);
    return y;
}

/* ---- the chain: what was there, bias, W, then B */
static float element(const layer *l, size_t r, size_t o) {
    const size_t in = l->linear.in, rank = l->lora.rank;
    float sum = l->add ? l->before[r * l->linear.out + o] : 0;
    if (l->linear.bias) sum += l->linear.bias[o];
    for (size_t i = 0; i < in; i++)
        sum = fmaf(l->x[r * in + i], (float)plain(l->linear.weight.data, o * in + i, l->linear.weight.storage), sum);
    for (size_t k = 0; k < rank; k++) {
        float inner = 0;
        for (size_t i = 0; i < in; i++) inner = fmaf(l->x[r * in + i], l->lora.a[k * in + i], inner);
        sum = fmaf(inner * l->lora.scale, l->lora.b[o * rank + k], sum);
    }
    return sum;
}

static const size_t WIDTHS[] = {1, 2, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 65};
static const size_t RANKS[] = {0, 0, 1, 2, 7, 8, 16, 17};

static size_t width(void) { return WIDTHS[below(COUNT(WIDTHS))]; }

static void test_chains(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 30 : 200); round++) {
        const layer l = round % 20 ? make(1 + below(20), width(), width(), RANKS[below(COUNT(RANKS))])
                                   : make(190 + below(11), 250 + below(50), 1 + below(20), RANKS[below(COUNT(RANKS))]);
        const size_t out = l.linear.out;
        float *wanted = floats(l.rows * out), *plainest = NULL;
        for (size_t i = 0; i < l.rows * out; i++) wanted[i] = element(&l, i / out, i % out);
        for (size_t m = 0; m < n_machines; m++) {
            float *inner = floats(l.rows * l.lora.rank);
            const float *y = forward(&l, inner, &machines[m]);
            same_bits("y", y, wanted, l.rows * out);
            if (m) same_bits("inner", inner, plainest, l.rows * l.lora.rank);
            else plainest = inner;
        }
        float *inner = floats(l.lora.rank);
        for (size_t r = 0; r < l.rows; r += 1 + l.rows / 5) { /* a row alone */
            layer one = l;
            one.rows = 1, one.x += r * l.linear.in, one.before += r * out;
            same_bits("y of a row alone", forward(&one, inner, best()), wanted + r * out, out);
            same_bits("inner of a row alone", inner, plainest + r * l.lora.rank, l.lora.rank);
        }
        clear();
    }
}

enum { MOST_PARTS = 9 };

/* Rows cut into parts, each with its own LoRA of its own rank, or none. */
static void check_parts(const layer *layers, size_t n, const rein_nn_context *run) {
    rein_linear_call calls[4];
    rein_lora loras[MOST_PARTS][4];
    rein_lora_rows parts[MOST_PARTS];
    const size_t rows = layers[0].rows;
    size_t n_parts = 0;
    for (size_t first = 0; first < rows; n_parts++) {
        const size_t left = rows - first, some = n_parts + 1 == MOST_PARTS ? left : 1 + below((unsigned)left);
        for (size_t i = 0; i < n; i++)
            loras[n_parts][i] = make_lora(layers[i].linear.in, layers[i].linear.out, RANKS[below(COUNT(RANKS))]);
        parts[n_parts] = (rein_lora_rows){below(4) ? loras[n_parts] : NULL, first, some};
        first += some;
    }
    for (size_t i = 0; i < n; i++)
        calls[i] =
            (rein_linear_call){begin_of(&layers[i]), floats(rows * rein_lora_rows_rank(parts, n_parts, i)), &layers[i].linear, i};
    rein_linears_forward(calls, n, layers[0].x, rows, layers[0].add, parts, n_parts, run);
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < n; i++) {
            layer l = layers[i];
            const size_t in = l.linear.in, out = l.linear.out;
            l.lora = parts[p].loras ? loras[p][i] : (rein_lora){0};
            l.rows = parts[p].rows, l.x += parts[p].first * in, l.before += parts[p].first * out;
            const float *alone = forward(&l, floats(l.rows * l.lora.rank), run);
            same_bits("y of rows with another adapter", calls[i].y + parts[p].first * out, alone, l.rows * out);
        }
}

/* Layers that see the same x, up to four of them at a time, each row with one of up to nine adapters: the same bits as one layer and
 * one adapter after the other. */
static void test_together(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 10 : 60); round++) {
        const size_t n = 1 + below(4), rows = round % 10 ? 1 + below(20) : 200, in = round % 10 ? width() : 130;
        layer layers[4];
        const float *wanted[4];
        float *inner[4];
        for (size_t i = 0; i < n; i++) {
            layers[i] = make(rows, in, width(), RANKS[below(COUNT(RANKS))]);
            layers[i].x = layers[0].x, layers[i].add = layers[0].add;
            inner[i] = floats(rows * layers[i].lora.rank);
            wanted[i] = forward(&layers[i], inner[i], &machines[0]);
        }
        for (size_t m = 0; m < n_machines; m++) {
            rein_linear_call calls[4];
            rein_lora loras[4];
            const rein_lora_rows all = {loras, 0, rows};
            for (size_t i = 0; i < n; i++) {
                const layer *l = &layers[i];
                loras[i] = l->lora;
                calls[i] = (rein_linear_call){begin_of(l), floats(rows * l->lora.rank), &l->linear, i};
            }
            rein_linears_forward(calls, n, layers[0].x, rows, layers[0].add, &all, 1, &machines[m]);
            for (size_t i = 0; i < n; i++) {
                same_bits("y of several layers", calls[i].y, wanted[i], rows * layers[i].linear.out);
                same_bits("inner of several layers", calls[i].inner, inner[i], rows * layers[i].lora.rank);
            }
            check_parts(layers, n, &machines[m]);
        }
        clear();
    }
}

/* ---- in double */
typedef struct reference {
    const layer *l;
    double *x, *w, *bias, *a, *b, *y;
} reference;

static reference in_double(const layer *l) {
    const size_t in = l->linear.in, out = l->linear.out, rank = l->lora.rank;
    reference r = {.l = l, .x = as_doubles(l->x, l->rows * in), .w = doubles(in * out), .y = doubles(l->rows * out)};
    for (size_t i = 0; i < in * out; i++) r.w[i] = plain(l->linear.weight.data, i, l->linear.weight.storage);
    r.bias = l->linear.bias ? as_doubles(l->linear.bias, out) : NULL;
    r.a = rank ? as_doubles(l->lora.a, rank * in) : NULL;
    r.b = rank ? as_doubles(l->lora.b, out * rank) : NULL;
    return r;
}

static void compute(reference *f) {
    const layer *l = f->l;
    const size_t in = l->linear.in, out = l->linear.out, rank = l->lora.rank;
    double inner[32];
    for (size_t r = 0; r < l->rows; r++) {
        const double *x = f->x + r * in;
        for (size_t k = 0; k < rank; k++) {
            inner[k] = 0;
            for (size_t i = 0; i < in; i++) inner[k] += (double)l->lora.scale * x[i] * f->a[k * in + i];
        }
        for (size_t o = 0; o < out; o++) {
            double sum = (l->add ? (double)l->before[r * out + o] : 0) + (f->bias ? f->bias[o] : 0);
            for (size_t i = 0; i < in; i++) sum += x[i] * f->w[o * in + i];
            for (size_t k = 0; k < rank; k++) sum += inner[k] * f->b[o * rank + k];
            f->y[r * out + o] = sum;
        }
    }
}

static double loss(void *context, size_t place) {
    reference *f = context;
    double sum = 0;
    (void)place;
    compute(f);
    for (size_t i = 0; i < f->l->rows * f->l->linear.out; i++) sum += (double)f->l->dy[i] * f->y[i];
    return sum;
}

typedef struct gradients {
    float *dx, *weight, *bias, *a, *b;
} gradients;

static gradients no_gradients(const layer *l) {
    const size_t in = l->linear.in, out = l->linear.out, rank = l->lora.rank;
    return (gradients){floats(l->rows * in), zeros(in * out), zeros(out), zeros(rank * in), zeros(out * rank)};
}

/* The gradients of rows [first, first + rows), added to g. inner is that of all rows. */
static void backward(gradients *g, const layer *l, const float *inner, size_t first, size_t rows, const rein_nn_context *run) {
    const size_t in = l->linear.in, out = l->linear.out, rank = l->lora.rank;
    const rein_linear_gradient to = {g->weight, l->linear.bias ? g->bias : NULL, rank ? g->a : NULL, rank ? g->b : NULL};
    rein_linear_backward(g->dx + first * in, 0, &to, floats(rows * rank), l->dy + first * out, l->x + first * in,
                         inner + first * rank, rows, &l->linear, lora_of(l), run);
}

static void test_against_double(void **state) {
    (void)state;
    step = 1e-2; /* the loss is linear in each number */
    for (int round = 0; round < (quick() ? 15 : 120); round++) {
        const layer l = make(1 + below(round % 10 ? 8 : 200), width(), round % 10 ? width() : 5, RANKS[below(COUNT(RANKS))]);
        const size_t in = l.linear.in, out = l.linear.out, rank = l.lora.rank;
        reference f = in_double(&l);
        float *inner = floats(l.rows * rank);
        const float *y = forward(&l, inner, best());
        compute(&f);
        check("linear", apart(y, f.y, l.rows * out), FORWARD);
        gradients g = no_gradients(&l);
        backward(&g, &l, inner, 0, l.rows, best());
        check("linear, dx", gradient_error(g.dx, f.x, l.rows * in, 10, loss, &f, 0), BACKWARD);
        check("linear, dW", gradient_error(g.weight, f.w, in * out, 10, loss, &f, 0), BACKWARD);
        if (f.bias) check("linear, dbias", gradient_error(g.bias, f.bias, out, 10, loss, &f, 0), BACKWARD);
        if (rank) check("linear, dA", gradient_error(g.a, f.a, rank * in, 10, loss, &f, 0), BACKWARD_LORA);
        if (rank) check("linear, dB", gradient_error(g.b, f.b, out * rank, 10, loss, &f, 0), BACKWARD_LORA);
        clear();
    }
}

static void same_gradients(const gradients *g, const gradients *wanted, const layer *l) {
    const size_t in = l->linear.in, out = l->linear.out, rank = l->lora.rank;
    same_bits("dx", g->dx, wanted->dx, l->rows * in);
    same_bits("dW", g->weight, wanted->weight, in * out);
    same_bits("dbias", g->bias, wanted->bias, out);
    same_bits("dA", g->a, wanted->a, rank * in);
    same_bits("dB", g->b, wanted->b, out * rank);
}

static void test_one_answer(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 6 : 20); round++) {
        const layer l = round % 2 ? make(2 + below(199), 130, 33 + below(20), RANKS[below(COUNT(RANKS))])
                                  : make(2 + below(30), width(), width(), RANKS[below(COUNT(RANKS))]);
        float *inner = floats(l.rows * l.lora.rank);
        forward(&l, inner, best());
        gradients plainest = no_gradients(&l);
        backward(&plainest, &l, inner, 0, l.rows, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            gradients g = no_gradients(&l);
            backward(&g, &l, inner, 0, l.rows, &machines[m]);
            same_gradients(&g, &plainest, &l);
        }
        const size_t first = 1 + below(l.rows - 1); /* in two calls */
        gradients g = no_gradients(&l);
        backward(&g, &l, inner, 0, first, best());
        backward(&g, &l, inner, first, l.rows - first, best());
        same_gradients(&g, &plainest, &l);
        for (size_t r = 0; r < l.rows; r += 1 + l.rows / 4) { /* dx of a row alone */
            backward(&g, &l, inner, r, 1, best());
            same_bits("dx of a row alone", g.dx + r * l.linear.in, plainest.dx + r * l.linear.in, l.linear.in);
        }
        clear();
    }
}

/* dx is added to when that is asked for; and what is not wanted is not touched: no gradient but dx, or none of dx. */
static void test_what_is_wanted(void **state) {
    (void)state;
    for (size_t rank = 0; rank <= 3; rank += 3) {
        layer l = make(9, 21, 19, rank);
        const rein_linear_gradient nothing = {0};
        float *inner = floats(9 * rank), *before = numbers(9 * 21, 1), *dx = copy_of(before, 9 * 21);
        double *wanted = doubles(9 * 21);
        forward(&l, inner, best());
        gradients g = no_gradients(&l), without = no_gradients(&l);
        backward(&g, &l, inner, 0, 9, best());
        rein_linear_backward(dx, 1, &nothing, floats(9 * rank), l.dy, l.x, inner, 9, &l.linear, &l.lora, best());
        for (size_t i = 0; i < 9 * 21; i++) wanted[i] = (double)before[i] + (double)g.dx[i];
        check("linear, dx added", apart(dx, wanted, 9 * 21), BACKWARD);
        const rein_linear_gradient all = {without.weight, l.linear.bias ? without.bias : NULL, rank ? without.a : NULL,
                                          rank ? without.b : NULL};
        rein_linear_backward(NULL, 0, &all, floats(9 * rank), l.dy, l.x, inner, 9, &l.linear, &l.lora, best());
        memcpy(without.dx, g.dx, 9 * 21 * sizeof(float));
        same_gradients(&without, &g, &l);
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains), cmocka_unit_test(test_together),
                                       cmocka_unit_test(test_against_double), cmocka_unit_test(test_one_answer),
                                       cmocka_unit_test(test_what_is_wanted)};
    return cmocka_run_group_tests_name("linear", tests, open_machines, close_machines);
}
