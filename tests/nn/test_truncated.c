/* test_truncated.c - the head of a truncated policy: log-probabilities, entropies and directions against a softmax over the kept tokens in
 * double, the kept set held constant; its log-probabilities against the sampler's, bit for bit; the expected gradient by enumeration; one
 * answer for what rows, threads and instruction sets there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/truncate.h"
#include "rollout/choose.h"

#define FORWARD 2e-6
#define DIRECTIONS 1e-5

typedef struct layer {
    size_t rows, hidden, vocabulary;
    rein_linear linear;
    rein_head head;
    float *h;
    int32_t *targets;
} layer;

static const rein_head *head_of(layer *l) {
    l->head.linear = &l->linear;
    return &l->head;
}

static layer make(size_t rows, size_t hidden, size_t vocabulary, rein_storage storage, float temperature, float cap) {
    layer l = {
        .rows = rows, .hidden = hidden, .vocabulary = vocabulary, .head = {.inverse_temperature = 1 / temperature, .cap = cap}};
    l.linear = (rein_linear){.in = hidden, .out = vocabulary};
    l.linear.weight = (rein_matrix){stored_numbers(hidden * vocabulary, storage, 1), hidden, 1, storage};
    const rein_matrix transposed = {l.linear.weight.data, 1, hidden, storage};
    l.linear.packed = rein_pack(room(rein_packed_size(hidden, vocabulary, storage), 1), &transposed, hidden, vocabulary);
    l.h = numbers(rows * hidden, 6 / sqrtf((float)hidden));
    l.targets = room(rows, sizeof *l.targets);
    return l;
}

/* ---- the sampler's row */
typedef struct sampled {
    float *x;
    rein_softmax_stats *masses;
    size_t chunks;
} sampled;

static sampled logits_of(layer *l, const rein_nn_context *run) {
    const rein_head *head = head_of(l);
    sampled s = {floats(l->rows * l->vocabulary), NULL, rein_head_chunks(head->linear)};
    float *inverse = floats(l->rows);
    s.masses = room(l->rows * s.chunks, sizeof *s.masses);
    for (size_t r = 0; r < l->rows; r++) inverse[r] = head->inverse_temperature;
    rein_head_logits(s.x, s.masses, NULL, l->h, inverse, l->rows, head->linear, head->cap, 0, NULL, 0, run);
    return s;
}

static rein_logits_row row_of(const sampled *s, const layer *l, size_t r, const rein_nn_context *run) {
    return (rein_logits_row){s->x + r * l->vocabulary, s->masses + r * s->chunks, l->vocabulary, s->chunks, run->exec.isa, NULL, 0};
}

/* Tokens that the sampler draws become the targets; their log-probabilities are returned. */
static float *draw(layer *l, const rein_truncation *t, const rein_nn_context *run) {
    const rein_sampling sampling = {.top_k = t->top_k, .top_p = t->top_p, .min_p = t->min_p, .max_tokens = 1};
    const sampled s = logits_of(l, run);
    rein_logit *candidates = room(l->vocabulary, sizeof *candidates);
    float *log_probs = floats(l->rows);
    for (size_t r = 0; r < l->rows; r++) {
        const rein_logits_row row = row_of(&s, l, r, run);
        const rein_chosen_token chosen = rein_choose(&row, &sampling, (double)(random_bits() >> 11) * 0x1p-53, candidates);
        l->targets[r] = chosen.id, log_probs[r] = chosen.sampler_log_prob;
    }
    return log_probs;
}

static rein_head_out forward(layer *l, const rein_truncation *t, size_t first, size_t n, const rein_nn_context *run) {
    const rein_head_out out = {
        .log_probs = floats(n), .entropies = floats(n), .u = floats(n * l->hidden), .v = floats(n * l->hidden)};
    rein_head_truncated(&out, l->h + first * l->hidden, l->targets + first, n, head_of(l), t,
                        floats(rein_head_truncated_scratch(head_of(l), run)), run);
    return out;
}

/* ---- in double, over a kept set that stays */
typedef struct reference {
    const layer *l;
    double *h, *w, *x;
    uint8_t *kept; /* [rows][vocabulary] */
} reference;

static reference in_double(layer *l, const rein_truncation *t) {
    const size_t n = l->vocabulary * l->hidden;
    reference f = {l, as_doubles(l->h, l->rows * l->hidden), doubles(n), doubles(l->vocabulary), room(l->rows * l->vocabulary, 1)};
    const sampled s = logits_of(l, best());
    rein_logit *kept = room(l->vocabulary, sizeof *kept);
    for (size_t i = 0; i < n; i++) f.w[i] = plain(l->linear.weight.data, i, l->linear.weight.storage);
    memset(f.kept, 0, l->rows * l->vocabulary);
    for (size_t r = 0; r < l->rows; r++) {
        const rein_logits_row row = row_of(&s, l, r, best());
        const rein_softmax_total total = rein_head_total(row.masses, row.chunks, row.isa);
        double mass;
        const size_t n_kept = rein_truncate(kept, &mass, &row, &total, t);
        for (size_t i = 0; i < n_kept; i++) f.kept[r * l->vocabulary + (size_t)kept[i].id] = 1;
    }
    return f;
}

/* x becomes log p of the kept tokens. */
static void fill(const reference *f, size_t r) {
    const layer *l = f->l;
    double sum = 0, most = -HUGE_VAL;
    for (size_t v = 0; v < l->vocabulary; v++) {
        double z = 0;
        for (size_t i = 0; i < l->hidden; i++) z += f->h[r * l->hidden + i] * f->w[v * l->hidden + i];
        if (l->head.cap > 0) z = (double)l->head.cap * tanh(z / (double)l->head.cap);
        f->x[v] = z * (double)l->head.inverse_temperature;
        if (f->kept[r * l->vocabulary + v]) most = fmax(most, f->x[v]);
    }
    for (size_t v = 0; v < l->vocabulary; v++)
        if (f->kept[r * l->vocabulary + v]) sum += exp(f->x[v] - most);
    for (size_t v = 0; v < l->vocabulary; v++) f->x[v] -= most + log(sum);
}

static double log_prob(void *context, size_t place) {
    const reference *f = context;
    fill(f, place / f->l->hidden);
    return f->x[f->l->targets[place / f->l->hidden]];
}

static double entropy(void *context, size_t place) {
    const reference *f = context;
    const size_t r = place / f->l->hidden;
    double sum = 0;
    fill(f, r);
    for (size_t v = 0; v < f->l->vocabulary; v++)
        if (f->kept[r * f->l->vocabulary + v]) sum -= exp(f->x[v]) * f->x[v];
    return sum;
}

static const rein_truncation TRUNCATIONS[] = {{5, 1, 0},   {1, 1, 0},        {40, 0.9, 0},  {0, 0.8, 0},
                                              {0, 1, 0.1}, {30, 0.95, 0.05}, {0, 0.999, 0}, {0, 1, 0}};

static void check_layer(layer *l, const rein_truncation *t) {
    const float *drawn = draw(l, t, best());
    const rein_head_out out = forward(l, t, 0, l->rows, best());
    reference f = in_double(l, t);
    double *wanted = doubles(l->rows), *entropies = doubles(l->rows);
    const size_t n = l->rows * l->hidden;
    const double least = 0.05 * (double)l->head.inverse_temperature;
    if (rein_truncates(&(rein_sampling){.top_k = t->top_k, .top_p = t->top_p, .min_p = t->min_p}))
        same_bits("the sampler's log-probabilities", out.log_probs, drawn, l->rows);
    for (size_t r = 0; r < l->rows; r++) wanted[r] = log_prob(&f, r * l->hidden), entropies[r] = entropy(&f, r * l->hidden);
    check("truncated, log-probabilities", apart_at_least(out.log_probs, wanted, l->rows, 1), FORWARD);
    check("truncated, entropies", apart_at_least(out.entropies, entropies, l->rows, 1), FORWARD);
    check("truncated, u", gradient_error(out.u, f.h, n, 20, log_prob, &f, least), DIRECTIONS);
    check("truncated, v", gradient_error(out.v, f.h, n, 20, entropy, &f, least), DIRECTIONS);
}

static void test_truncated(void **state) {
    (void)state;
    const size_t vocabularies[] = {7, 60, 513, 1300};
    for (size_t v = 0; v < COUNT(vocabularies); v++)
        for (size_t t = 0; t < COUNT(TRUNCATIONS); t++) {
            layer l =
                make(1 + below(20), 3 + below(12), vocabularies[v], (rein_storage)below(3), below(2) ? 1 : 1.6f, below(3) ? 0 : 3);
            check_layer(&l, &TRUNCATIONS[t]);
            clear();
        }
    layer wide = make(3, 1100, 530, REIN_STORED_F16, 1, 0); /* hidden states wider than a chunk */
    check_layer(&wide, &TRUNCATIONS[3]);
    clear();
}

/* A token outside of the kept ones has no probability. */
static void test_outside(void **state) {
    (void)state;
    layer l = make(9, 8, 100, REIN_STORED_F32, 1, 0);
    (void)draw(&l, &TRUNCATIONS[1], best()); /* the greatest */
    for (size_t r = 0; r < l.rows; r++) l.targets[r] = (l.targets[r] + 1) % 100;
    const rein_head_out out = forward(&l, &TRUNCATIONS[1], 0, l.rows, best());
    for (size_t r = 0; r < l.rows; r++) assert_true(isinf(out.log_probs[r]) && out.log_probs[r] < 0);
    clear();
}

/* Every kept token as a target: Σ p·u = 0, and of rewards and of the KL to any reference the expected gradient is the true one, that of
 * Σ_S p·r and of Σ_S p·(log p − log ref). With the log-probabilities of the policy that is not truncated it is not. */
static void test_enumeration(void **state) {
    (void)state;
    enum { VOCABULARY = 12, HIDDEN = 6 };
    const rein_truncation t = {0, 0.8, 0}, none = {0, 1, 0};
    layer one = make(1, HIDDEN, VOCABULARY, REIN_STORED_F32, 1, 0), l = one;
    double reward[VOCABULARY], reference_lp[VOCABULARY], truth[2][HIDDEN], mean[4][HIDDEN] = {{0}}, size[2] = {0}, off[4] = {0};
    l.rows = VOCABULARY, l.h = floats(VOCABULARY * HIDDEN), l.targets = room(VOCABULARY, sizeof *l.targets);
    for (size_t v = 0; v < VOCABULARY; v++) {
        memcpy(l.h + v * HIDDEN, one.h, HIDDEN * sizeof(float));
        l.targets[v] = (int32_t)v, reward[v] = (double)number(), reference_lp[v] = -2 + (double)number();
    }
    const rein_head_out out = forward(&l, &t, 0, VOCABULARY, best()), whole = forward(&l, &none, 0, VOCABULARY, best());
    reference f = in_double(&one, &t);
    size_t kept = 0;
    for (size_t v = 0; v < VOCABULARY; v++) {
        if (!f.kept[v]) continue;
        const double p = exp((double)out.log_probs[v]), kl = (double)out.log_probs[v] - reference_lp[v];
        kept++;
        for (size_t i = 0; i < HIDDEN; i++) {
            mean[0][i] += p * reward[v] * (double)out.u[v * HIDDEN + i];
            mean[1][i] += p * kl * (double)out.u[v * HIDDEN + i];
            mean[2][i] += p * (double)out.u[v * HIDDEN + i];
            mean[3][i] += p * reward[v] * (double)whole.u[v * HIDDEN + i];
        }
    }
    assert_true(kept > 2 && kept < VOCABULARY);
    for (size_t i = 0; i < HIDDEN; i++) {
        double ends[2][2] = {{0}};
        for (int side = 0; side < 2; side++) {
            const double at = f.h[i];
            f.h[i] = at + (side ? 1e-5 : -1e-5);
            fill(&f, 0);
            for (size_t v = 0; v < VOCABULARY; v++)
                if (f.kept[v]) ends[side][0] += exp(f.x[v]) * reward[v], ends[side][1] += exp(f.x[v]) * (f.x[v] - reference_lp[v]);
            f.h[i] = at;
        }
        for (int k = 0; k < 2; k++) truth[k][i] = (ends[1][k] - ends[0][k]) / 2e-5, size[k] += truth[k][i] * truth[k][i];
    }
    for (size_t i = 0; i < HIDDEN; i++) {
        for (int k = 0; k < 2; k++) off[k] += (mean[k][i] - truth[k][i]) * (mean[k][i] - truth[k][i]);
        off[2] += mean[2][i] * mean[2][i], off[3] += (mean[3][i] - truth[0][i]) * (mean[3][i] - truth[0][i]);
    }
    assert_true(sqrt(off[0] / size[0]) < 1e-5 && sqrt(off[1] / size[1]) < 1e-5 && sqrt(off[2] / size[0]) < 1e-5);
    assert_true(sqrt(off[3] / size[0]) > 0.1); /* trap 12 */
    clear();
}

static void test_one_answer(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT(TRUNCATIONS); t++) {
        layer l = make(1 + below(40), 9, 700, REIN_STORED_BF16, 1, t % 2 ? 0 : 3);
        (void)draw(&l, &TRUNCATIONS[t], best());
        const rein_head_out plainest = forward(&l, &TRUNCATIONS[t], 0, l.rows, &machines[0]);
        for (size_t m = 1; m <= n_machines; m++) {
            const size_t first = m < n_machines ? 0 : l.rows / 2; /* at last, the second half alone */
            const rein_head_out out = forward(&l, &TRUNCATIONS[t], first, l.rows - first, m < n_machines ? &machines[m] : best());
            same_bits("log-probabilities", out.log_probs, plainest.log_probs + first, l.rows - first);
            same_bits("entropies", out.entropies, plainest.entropies + first, l.rows - first);
            same_bits("u", out.u, plainest.u + first * l.hidden, (l.rows - first) * l.hidden);
            same_bits("v", out.v, plainest.v + first * l.hidden, (l.rows - first) * l.hidden);
        }
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_truncated), cmocka_unit_test(test_outside),
                                       cmocka_unit_test(test_enumeration), cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("truncated head", tests, open_machines, close_machines);
}
