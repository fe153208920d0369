/* test_head.c - log-probabilities, entropies and their directions against a softmax over the whole vocabulary in double; the gradients of
 * a head that trains against central differences of that; and one answer for what rows, threads and instruction sets there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/head.h"
#include "nn/layers.h"

/* The worst of 40 other streams of random numbers: 7e-7 forward; 5e-6 for u, 8e-6 for v, a difference of averages; 1.2e-5 for what the
 * backward pass gives. */
#define FORWARD 1e-6
#define DIRECTIONS 1e-5
#define BACKWARD 2e-5

typedef struct layer layer;
struct layer {
    size_t rows, hidden, vocabulary;
    rein_linear linear;
    rein_lora lora;
    rein_head head; /* points at the two above: set by head_of */
    float *h, *dlog_probs, *dentropies, *dkl;
    int32_t *targets;
    struct layer *beside; /* the reference, or NULL */
    rein_divergence divergence;
    float beta;
};

static const rein_head *head_of(layer *l) {
    l->head.linear = &l->linear, l->head.lora = l->lora.rank || l->rows % 2 ? &l->lora : NULL; /* of rank 0, or none */
    return &l->head;
}

static layer make(size_t rows, size_t hidden, size_t vocabulary, rein_storage storage, size_t rank, float temperature) {
    layer l = {.rows = rows,
               .hidden = hidden,
               .vocabulary = vocabulary,
               .head = {.inverse_temperature = 1 / temperature, .cap = below(3) ? 0 : 3}};
    l.linear = (rein_linear){.in = hidden, .out = vocabulary};
    l.linear.weight = (rein_matrix){stored_numbers(hidden * vocabulary, storage, 1), hidden, 1, storage};
    const rein_matrix transposed = {l.linear.weight.data, 1, hidden, storage};
    l.linear.packed = rein_pack(room(rein_packed_size(hidden, vocabulary, storage), 1), &transposed, hidden, vocabulary);
    l.lora = (rein_lora){.rank = rank, .scale = 0.5f};
    if (rank) {
        l.lora.a = numbers(rank * hidden, 1), l.lora.b = numbers(vocabulary * rank, 0.5f);
        rein_lora_pack(&l.lora, floats(rein_lora_packed_size(&l.lora, hidden, vocabulary)), hidden, vocabulary);
    }
    l.h = numbers(rows * hidden, 4 / sqrtf((float)hidden)); /* logits of a few units */
    l.dlog_probs = numbers(rows, 1), l.dentropies = numbers(rows, 1), l.dkl = numbers(rows, 1);
    l.targets = room(rows, sizeof *l.targets);
    for (size_t r = 0; r < rows; r++) l.targets[r] = (int32_t)below(vocabulary);
    return l;
}

/* ---- what the head makes of rows [first, first + n) */
typedef struct results {
    rein_head_out out;
    float *inner;
} results;

enum { ENTROPIES = 1, LOG_SUMS = 2, U = 4, V = 8, TRAINS = ENTROPIES | LOG_SUMS, FROZEN = ENTROPIES | U | V };

/* What a layer beside another one gives; w only where u is wanted. */
static void beside(results *r, layer *l, size_t first, size_t n, int wanted) {
    rein_head_reference *other = room(1, sizeof *other);
    *other = (rein_head_reference){head_of(l->beside), l->beside->h + first * l->beside->hidden, floats(n * l->beside->lora.rank),
                                   l->divergence ? l->divergence : REIN_DIVERGENCE_REVERSE, l->beta};
    r->out.reference = other;
    r->out.kl = floats(n), r->out.reference_log_probs = floats(n), r->out.reference_log_sums = floats(n);
    if (wanted & U) r->out.w = floats(n * l->hidden);
    if (l->divergence != REIN_DIVERGENCE_JSD) return;
    if (!r->out.log_sums) r->out.log_sums = floats(n);
    r->out.toward_mixture = floats(n);
}

static results forward(layer *l, size_t first, size_t n, int wanted, const rein_nn_context *run) {
    results r = {.inner = floats(n * l->lora.rank)};
    r.out.log_probs = floats(n);
    if (wanted & ENTROPIES) r.out.entropies = floats(n);
    if (wanted & LOG_SUMS) r.out.log_sums = floats(n);
    if (wanted & U) r.out.u = floats(n * l->hidden);
    if (wanted & V) r.out.v = floats(n * l->hidden);
    if (l->beside) beside(&r, l, first, n, wanted);
    rein_head_forward(&r.out, r.inner, l->h + first * l->hidden, l->targets + first, n, head_of(l),
                      floats(rein_head_scratch(&r.out, run)), run);
    return r;
}

typedef struct gradients {
    float *dh, *weight, *a, *b;
} gradients;

static gradients no_gradients(const layer *l) {
    return (gradients){floats(l->rows * l->hidden), zeros(l->vocabulary * l->hidden), zeros(l->lora.rank * l->hidden),
                       zeros(l->vocabulary * l->lora.rank)};
}

/* Rows [first, first + n), of which `f` is the forward pass; W and the LoRA train. */
static void backward(gradients *g, layer *l, const results *f, size_t first, size_t n, int entropies, const rein_nn_context *run) {
    const rein_linear_gradient to = {.weight = g->weight, .a = l->lora.rank ? g->a : NULL, .b = l->lora.rank ? g->b : NULL};
    rein_head_backward(g->dh + first * l->hidden, &to, floats(n * l->lora.rank), l->dlog_probs + first,
                       entropies ? l->dentropies + first : NULL, l->beside ? l->dkl + first : NULL, &f->out, f->inner,
                       l->h + first * l->hidden, l->targets + first, n, head_of(l), floats(n * REIN_BACKWARD_CHUNK),
                       l->beside ? floats(n * REIN_BACKWARD_CHUNK) : NULL, run);
}

/* ---- in double */
typedef struct reference reference;
struct reference {
    const layer *l;
    double *h, *w, *a, *b, *x, *inner;
    reference *beside; /* of the layer's */
};

static reference in_double(const layer *l) {
    const size_t n = l->vocabulary * l->hidden;
    reference f = {.l = l, .h = as_doubles(l->h, l->rows * l->hidden), .w = doubles(n), .x = doubles(l->vocabulary)};
    for (size_t i = 0; i < n; i++) f.w[i] = plain(l->linear.weight.data, i, l->linear.weight.storage);
    f.inner = doubles(l->lora.rank);
    if (l->lora.rank)
        f.a = as_doubles(l->lora.a, l->lora.rank * l->hidden), f.b = as_doubles(l->lora.b, l->vocabulary * l->lora.rank);
    if (l->beside) {
        f.beside = room(1, sizeof *f.beside);
        *f.beside = in_double(l->beside);
    }
    return f;
}

typedef struct answer {
    double log_prob, entropy, log_sum, kl, reference_log_prob;
} answer;

/* Of one token of the vocabulary. */
static double term_of(const layer *l, double log_p, double log_q) {
    const double p = exp(log_p), q = exp(log_q), beta = (double)l->beta;
    if (l->divergence == REIN_DIVERGENCE_FORWARD) return q * (log_q - log_p);
    if (l->divergence != REIN_DIVERGENCE_JSD) return p * (log_p - log_q);
    const double m = (1 - beta) * p + beta * q;
    return (q > 0 ? beta * q * (log_q - log(m)) : 0) + (p > 0 ? (1 - beta) * p * (log_p - log(m)) : 0);
}

static answer row_of(const reference *f, size_t r) {
    const layer *l = f->l;
    const double *h = f->h + r * l->hidden;
    double most = -HUGE_VAL, sum = 0, weighted = 0;
    for (size_t k = 0; k < l->lora.rank; k++) {
        f->inner[k] = 0;
        for (size_t i = 0; i < l->hidden; i++) f->inner[k] += (double)l->lora.scale * h[i] * f->a[k * l->hidden + i];
    }
    for (size_t v = 0; v < l->vocabulary; v++) {
        double z = 0;
        for (size_t i = 0; i < l->hidden; i++) z += h[i] * f->w[v * l->hidden + i];
        for (size_t k = 0; k < l->lora.rank; k++) z += f->inner[k] * f->b[v * l->lora.rank + k];
        if (l->head.cap > 0) z = (double)l->head.cap * tanh(z / (double)l->head.cap);
        f->x[v] = z * (double)l->head.inverse_temperature;
        most = fmax(most, f->x[v]);
    }
    for (size_t v = 0; v < l->vocabulary; v++) {
        const double e = exp(f->x[v] - most);
        sum += e;
        if (e > 0) weighted += e * (f->x[v] - most);
    }
    answer a = {f->x[l->targets[r]] - most - log(sum), log(sum) - weighted / sum, most + log(sum), 0, 0};
    if (!l->beside) return a;
    const double reference = row_of(f->beside, r).log_sum;
    a.reference_log_prob = f->beside->x[l->targets[r]] - reference;
    for (size_t v = 0; v < l->vocabulary; v++) a.kl += term_of(l, f->x[v] - a.log_sum, f->beside->x[v] - reference);
    return a;
}

static double log_prob(void *context, size_t place) {
    const reference *f = context;
    return row_of(f, place / f->l->hidden).log_prob;
}
static double entropy(void *context, size_t place) {
    const reference *f = context;
    return row_of(f, place / f->l->hidden).entropy;
}
static double kl_of(void *context, size_t place) {
    const reference *f = context;
    return row_of(f, place / f->l->hidden).kl;
}
static double log_sum_of(void *context, size_t place) {
    const reference *f = context;
    return row_of(f, place / f->l->hidden).log_sum;
}
static double row_loss(const reference *f, size_t r) {
    const answer a = row_of(f, r); /* its KL is 0 without a layer beside it */
    return (double)f->l->dlog_probs[r] * a.log_prob + (double)f->l->dentropies[r] * a.entropy + (double)f->l->dkl[r] * a.kl;
}
static double loss_by_h(void *context, size_t place) {
    const reference *f = context;
    return row_loss(f, place / f->l->hidden);
}
static double loss(void *context, size_t place) {
    const reference *f = context;
    double sum = 0;
    (void)place;
    for (size_t r = 0; r < f->l->rows; r++) sum += row_loss(f, r);
    return sum;
}

static void check_forward(const results *r, const reference *f, double tolerance) {
    const size_t n = f->l->rows;
    double *log_probs = doubles(n), *entropies = doubles(n), *log_sums = doubles(n);
    for (size_t i = 0; i < n; i++) {
        const answer a = row_of(f, i);
        log_probs[i] = a.log_prob, entropies[i] = a.entropy, log_sums[i] = a.log_sum;
    }
    check("head, log-probabilities", apart_at_least(r->out.log_probs, log_probs, n, 1), tolerance);
    if (r->out.entropies) check("head, entropies", apart_at_least(r->out.entropies, entropies, n, 1), tolerance);
    if (r->out.log_sums) check("head, log-sums", apart_at_least(r->out.log_sums, log_sums, n, 1), tolerance);
    for (size_t i = 0; i < n && r->out.kl; i++) log_probs[i] = row_of(f, i).reference_log_prob, entropies[i] = row_of(f, i).kl;
    if (r->out.kl) check("head, the reference", apart_at_least(r->out.reference_log_probs, log_probs, n, 1), tolerance);
    if (r->out.kl) check("head, KL", apart_at_least(r->out.kl, entropies, n, 1), tolerance);
}

/* Where the probability of the target is near 1, a direction is a small difference of numbers of the size of W/T. */
static double least(const layer *l) { return 0.05 * (double)l->head.inverse_temperature; }

static const size_t VOCABULARIES[] = {1, 5, 511, 512, 513, 1500}, HIDDEN[] = {1, 2, 7, 8, 17, 24, 33, 48};
static const float TEMPERATURES[] = {0.5f, 1, 2};

static size_t some_hidden(void) { return HIDDEN[below(COUNT(HIDDEN))]; }
static float some_temperature(void) { return TEMPERATURES[below(3)]; }

/* The terms that add up to w are about as large as the KL. */
static double greatest_kl(const results *r, size_t rows) {
    double most = 0;
    for (size_t i = 0; i < rows; i++) most = fmax(most, (double)r->out.kl[i]);
    return most;
}

static void check_frozen(layer *l, size_t tries) {
    reference f = in_double(l);
    const results r = forward(l, 0, l->rows, FROZEN | LOG_SUMS, best());
    const size_t n = l->rows * l->hidden;
    check_forward(&r, &f, FORWARD);
    check("head, u", gradient_error(r.out.u, f.h, n, tries, log_prob, &f, least(l)), DIRECTIONS);
    check("head, v", gradient_error(r.out.v, f.h, n, tries, entropy, &f, least(l)), DIRECTIONS);
    if (l->beside)
        check("head, w", gradient_error(r.out.w, f.h, n, tries, kl_of, &f, least(l)), DIRECTIONS * (1 + greatest_kl(&r, l->rows)));
    clear();
}

static void test_frozen(void **state) {
    (void)state;
    for (size_t v = 0; v < COUNT(VOCABULARIES); v++)
        for (size_t t = 0; t < 3; t++)
            for (int storage = 0; storage < 3; storage++) {
                layer l = make(1 + below(20), some_hidden(), VOCABULARIES[v], (rein_storage)storage, 0, TEMPERATURES[t]);
                check_frozen(&l, quick() ? 6 : 40);
            }
    const size_t rows[] = {95, 96, 97, 192, 200};
    for (size_t i = 0; i < COUNT(rows); i++) {
        layer l = make(rows[i], 9, quick() ? 40 : 700, REIN_STORED_BF16, 0, 1);
        check_frozen(&l, quick() ? 6 : 40);
    }
    layer wide = make(3, 1100, 530, REIN_STORED_F16, 0, 1); /* hidden states wider than a chunk of the vocabulary */
    check_frozen(&wide, 10);
}

static void check_trained(layer *l, size_t tries) {
    reference f = in_double(l);
    const results r = forward(l, 0, l->rows, TRAINS, best());
    const size_t n = l->rows * l->hidden, rank = l->lora.rank;
    gradients g = no_gradients(l);
    check_forward(&r, &f, FORWARD);
    backward(&g, l, &r, 0, l->rows, 1, best());
    check("head, dh", gradient_error(g.dh, f.h, n, tries, loss_by_h, &f, least(l)), BACKWARD);
    check("head, dW", gradient_error(g.weight, f.w, l->vocabulary * l->hidden, tries, loss, &f, 1e-4), BACKWARD);
    if (rank) check("head, dA", gradient_error(g.a, f.a, rank * l->hidden, tries, loss, &f, least(l)), BACKWARD);
    if (rank) check("head, dB", gradient_error(g.b, f.b, l->vocabulary * rank, tries, loss, &f, 1e-4), BACKWARD);
}

static void test_trained(void **state) {
    (void)state;
    const size_t vocabularies[] = {1, 5, 511, 512, 513, 1500, 2048, 2049, 4100}, ranks[] = {0, 1, 4, 9};
    for (size_t v = 0; v < COUNT(vocabularies); v++)
        for (size_t k = 0; k < COUNT(ranks); k++) {
            const size_t big = vocabularies[v] > 600;
            layer l = make(1 + below(big ? 4 : 12), big ? 1 + below(9) : some_hidden(), vocabularies[v], (rein_storage)below(3),
                           ranks[k], some_temperature());
            check_trained(&l, 12);
            clear();
        }
    layer many = make(200, 5, 60, REIN_STORED_F32, 3, 1);
    check_trained(&many, quick() ? 5 : 40);
    clear();
}

/* Beside a head of the same vocabulary: another width, storage, temperature, cap and LoRA. */
static layer another(const layer *l, size_t rank) {
    layer other = make(l->rows, some_hidden(), l->vocabulary, (rein_storage)below(3), rank, some_temperature());
    memcpy(other.targets, l->targets, l->rows * sizeof *l->targets);
    return other;
}

static const float BETAS[] = {0.1f, 0.5f, 0.9f};

static void test_beside(void **state) {
    (void)state;
    const size_t vocabularies[] = {1, 5, 512, 513, 1500, 2049};
    for (size_t v = 0; v < COUNT(vocabularies); v++)
        for (size_t rank = 0; rank < 6; rank += 3) {
            layer frozen = make(1 + below(12), some_hidden(), vocabularies[v], (rein_storage)below(3), 0, some_temperature()),
                  of_frozen = another(&frozen, rank);
            frozen.beside = &of_frozen;
            check_frozen(&frozen, 20);
            layer trained = make(1 + below(4), 1 + below(9), vocabularies[v], (rein_storage)below(3), rank, some_temperature()),
                  of_trained = another(&trained, 3 - rank);
            trained.beside = &of_trained;
            check_trained(&trained, 10);
            clear();
        }
}

static void test_divergences(void **state) {
    (void)state;
    const size_t vocabularies[] = {1, 5, 512, 513, 1500, 2049};
    for (int divergence = REIN_DIVERGENCE_FORWARD; divergence <= REIN_DIVERGENCE_JSD; divergence++)
        for (size_t v = 0; v < COUNT(vocabularies); v++)
            for (size_t rank = 0; rank < 6; rank += 3) {
                layer frozen = make(1 + below(12), some_hidden(), vocabularies[v], (rein_storage)below(3), 0, some_temperature()),
                      of_frozen = another(&frozen, rank);
                frozen.beside = &of_frozen, frozen.divergence = (rein_divergence)divergence, frozen.beta = BETAS[below(3)];
                check_frozen(&frozen, 20);
                layer trained = make(1 + below(4), 1 + below(9), vocabularies[v], (rein_storage)below(3), rank, some_temperature()),
                      of_trained = another(&trained, 3 - rank);
                trained.beside = &of_trained, trained.divergence = (rein_divergence)divergence, trained.beta = BETAS[below(3)];
                check_trained(&trained, 10);
                clear();
            }
}

/* The same head beside itself: a KL of exactly 0, without a gradient. */
static void test_beside_itself(void **state) {
    (void)state;
    for (size_t rank = 0; rank <= 2; rank += 2) {
        layer l = make(40, 11, 1200, REIN_STORED_BF16, rank, 2), same = l;
        l.beside = &same;
        const results r = forward(&l, 0, l.rows, rank ? TRAINS : FROZEN, best()),
                      alone = forward(&same, 0, l.rows, LOG_SUMS, best());
        for (size_t i = 0; i < l.rows; i++) assert_true(r.out.kl[i] == 0);
        for (size_t i = 0; r.out.w && i < l.rows * l.hidden; i++) assert_true(r.out.w[i] == 0);
        same_bits("the reference's log-probabilities", r.out.reference_log_probs, alone.out.log_probs, l.rows);
        clear();
    }
}

/* What does not train has no gradient; dh is the same. */
static void test_what_is_wanted(void **state) {
    (void)state;
    for (size_t rank = 0; rank <= 2; rank += 2) {
        layer l = make(5, 11, 530, REIN_STORED_BF16, rank, 2);
        const results f = forward(&l, 0, 5, TRAINS, best());
        const rein_linear_gradient nothing = {0};
        gradients g = no_gradients(&l);
        float *dh = floats(5 * 11);
        backward(&g, &l, &f, 0, 5, 1, best());
        rein_head_backward(dh, &nothing, floats(5 * rank), l.dlog_probs, l.dentropies, NULL, &f.out, f.inner, l.h, l.targets, 5,
                           head_of(&l), floats(5 * REIN_BACKWARD_CHUNK), NULL, best());
        same_bits("dh alone", dh, g.dh, 5 * 11);
        clear();
    }
}

/* Two ways to the same gradient: directions, and through the logits. Without entropies too. */
static void test_two_ways(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 10 : 40); round++) {
        layer l = make(1 + below(120), some_hidden(), VOCABULARIES[below(COUNT(VOCABULARIES))], (rein_storage)below(3), 0,
                       some_temperature());
        const int entropies = (int)below(2);
        const results frozen = forward(&l, 0, l.rows, FROZEN, best()),
                      trains = forward(&l, 0, l.rows, entropies ? TRAINS : LOG_SUMS, best());
        gradients g = no_gradients(&l);
        double *wanted = doubles(l.rows * l.hidden);
        backward(&g, &l, &trains, 0, l.rows, entropies, best());
        for (size_t i = 0; i < l.rows * l.hidden; i++) {
            wanted[i] = (double)l.dlog_probs[i / l.hidden] * (double)frozen.out.u[i];
            if (entropies) wanted[i] += (double)l.dentropies[i / l.hidden] * (double)frozen.out.v[i];
        }
        const double size = least(&l) * sqrt((double)(l.rows * l.hidden));
        check("head, two ways to dh", apart_at_least(g.dh, wanted, l.rows * l.hidden, size), BACKWARD);
        clear();
    }
}

/* ---- logits that are far apart: hidden [1, 0, …], so that the first column of W is the logits */
static void set_logits(layer *l, float (*logit)(size_t v)) {
    float *w = (float *)(uintptr_t)l->linear.weight.data;
    for (size_t v = 0; v < l->vocabulary; v++) w[v * l->hidden] = logit(v);
    for (size_t i = 0; i < l->rows * l->hidden; i++) l->h[i] = i % l->hidden == 0;
    const rein_matrix transposed = {w, 1, l->hidden, REIN_STORED_F32};
    rein_pack((void *)(uintptr_t)l->linear.packed.data, &transposed, l->hidden, l->vocabulary);
}
static float alternating(size_t v) { return v % 2 ? 80 : -80; }
static float one_far_above(size_t v) { return v == 700 ? 80 : v == 3 ? -80 : 0; }
static float masked(size_t v) { return v % 3 ? -1e30f : (float)(v % 7); }
static float masked_chunk(size_t v) { return v < 512 ? -1e30f : (float)(v % 5); } /* the maximum grows by 1e30 */
static float masked_last(size_t v) { return v < 512 ? (float)(v % 5) : -1e30f; }
static float rising(size_t v) { return (float)v / 10; } /* every chunk brings a new maximum */
static float falling(size_t v) { return -(float)v / 10; }

static void test_extreme_logits(void **state) {
    (void)state;
    float (*const all[])(size_t) = {alternating, one_far_above, masked, masked_chunk, masked_last, rising, falling};
    for (size_t k = 0; k < COUNT(all); k++)
        for (size_t t = 0; t < 3; t++) {
            layer l = make(7, 6, 1500, REIN_STORED_F32, 0, TEMPERATURES[t]);
            l.head.cap = 0; /* the slope of a cap that is reached is 0 */
            set_logits(&l, all[k]);
            for (size_t r = 0; r < l.rows; r++) l.targets[r] = (int32_t)(r * 240 + (r == 4)); /* 0, 240, …; some masked */
            reference f = in_double(&l);
            const results frozen = forward(&l, 0, l.rows, FROZEN | LOG_SUMS, best());
            gradients g = no_gradients(&l);
            check_forward(&frozen, &f, FORWARD);
            backward(&g, &l, &frozen, 0, l.rows, 1, best());
            for (size_t i = 0; i < l.rows * l.hidden; i++) {
                assert_true(isfinite(frozen.out.u[i]) && isfinite(frozen.out.v[i]) && isfinite(g.dh[i]));
                if (i % l.hidden == 0) continue; /* by the column of W that holds the logits: numbers of 1e30 */
                /* Of a masked target the log-probability is −1e30, and its difference 0: in two parts, then. */
                const double of_target = f.w[(size_t)l.targets[i / l.hidden] * l.hidden + i % l.hidden] / (double)TEMPERATURES[t];
                const double by_lp = of_target - difference(f.h, i, log_sum_of, &f), by_h = difference(f.h, i, entropy, &f);
                const double size = 1 / (double)TEMPERATURES[t];
                check("head, u of extreme logits", fabs((double)frozen.out.u[i] - by_lp) / size, DIRECTIONS);
                check("head, v of extreme logits", fabs((double)frozen.out.v[i] - by_h) / size, DIRECTIONS);
            }
            for (size_t i = 0; i < l.vocabulary * l.hidden; i++) assert_true(isfinite(g.weight[i]));
            clear();
        }
}

/* ---- bit for bit */
static void same_forward(const results *r, const results *wanted, size_t first, size_t n, const layer *l) {
    const size_t at = first * l->hidden;
    same_bits("log-probabilities", r->out.log_probs, wanted->out.log_probs + first, n);
    if (r->out.entropies) same_bits("entropies", r->out.entropies, wanted->out.entropies + first, n);
    if (r->out.log_sums) same_bits("log-sums", r->out.log_sums, wanted->out.log_sums + first, n);
    if (r->out.u) same_bits("u", r->out.u, wanted->out.u + at, n * l->hidden);
    if (r->out.v) same_bits("v", r->out.v, wanted->out.v + at, n * l->hidden);
    if (r->out.kl) same_bits("kl", r->out.kl, wanted->out.kl + first, n);
    if (r->out.w) same_bits("w", r->out.w, wanted->out.w + at, n * l->hidden);
}

static float thousand(size_t v) { return v % 5 ? -500 : 500; }

/* Distributions that are hundreds of nats apart, and masked tokens: finite, and as in double. */
static void test_divergences_of_extreme_logits(void **state) {
    (void)state;
    float (*const all[])(size_t) = {alternating, one_far_above, rising, falling, thousand, masked, masked_chunk, masked_last};
    enum { ALL = COUNT(all), PLAIN = ALL - 3 }; /* beyond: a KL of 1e30 has no digits left for the tokens that count */
    for (size_t k = 0; k < ALL * ALL; k++)
        for (int divergence = REIN_DIVERGENCE_REVERSE; divergence <= REIN_DIVERGENCE_JSD; divergence++) {
            if (divergence != REIN_DIVERGENCE_JSD && (k % ALL >= PLAIN || k / ALL >= PLAIN)) continue;
            layer l = make(3, 6, 1500, REIN_STORED_F32, 0, 1), other = make(3, 6, 1500, REIN_STORED_F32, 0, 2);
            l.head.cap = other.head.cap = 0;
            set_logits(&l, all[k % ALL]), set_logits(&other, all[k / ALL]);
            l.beside = &other, l.divergence = (rein_divergence)divergence, l.beta = BETAS[k % 3];
            reference f = in_double(&l);
            memcpy(other.targets, l.targets, l.rows * sizeof *l.targets);
            const results r = forward(&l, 0, l.rows, FROZEN | LOG_SUMS, best());
            for (size_t i = 0; i < l.rows; i++) {
                const answer a = row_of(&f, i);
                /* Logits are floats: those of the size of log_sum are rounded by as much. */
                const double rounding = 0x1p-24 * fmax(fabs(a.log_sum), fabs(row_of(f.beside, i).log_sum));
                const double error = fabs((double)r.out.kl[i] - a.kl) / fmax(1, a.kl);
                check("head, divergences of extreme logits", fdim(error, rounding), FORWARD);
            }
            for (size_t i = 0; i < l.rows * l.hidden; i++) assert_true(isfinite(r.out.w[i]));
            clear();
        }
}

static void test_one_answer(void **state) {
    (void)state;
    const int combinations[] = {0, ENTROPIES, LOG_SUMS, U, U | V, U | ENTROPIES, TRAINS};
    for (int round = 0; round < (quick() ? 4 : 12); round++) {
        layer l = make(1 + below(quick() ? 30 : 200), some_hidden(), VOCABULARIES[(size_t)round % 6], (rein_storage)below(3),
                       round % 4 ? 0 : 3, some_temperature()),
              other = another(&l, (size_t)round % 3);
        const int wanted = l.lora.rank ? TRAINS : FROZEN | LOG_SUMS;
        if (round % 2) l.beside = &other, l.divergence = (rein_divergence)(1 + round / 2 % 3), l.beta = 0.3f;
        const results plainest = forward(&l, 0, l.rows, wanted, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            const results r = forward(&l, 0, l.rows, wanted, &machines[m]);
            same_forward(&r, &plainest, 0, l.rows, &l);
        }
        for (size_t r = 0; r < l.rows; r += 1 + l.rows / 5) {
            const results one = forward(&l, r, 1, wanted, best());
            same_forward(&one, &plainest, r, 1, &l);
        }
        for (size_t c = 0; c < COUNT(combinations); c++) { /* what else is asked for changes nothing */
            if ((combinations[c] & wanted) != combinations[c]) continue;
            const results r = forward(&l, 0, l.rows, combinations[c], best());
            same_forward(&r, &plainest, 0, l.rows, &l);
        }
        clear();
    }
}

/* The logits of a sampler: the same log-probability comes out of them. */
static void test_logits(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 6 : 15); round++) {
        layer l = make(1 + below(round % 5 ? 10 : 200), some_hidden(), VOCABULARIES[(size_t)round % 6], (rein_storage)below(3),
                       round % 3 ? 0 : 5, some_temperature());
        const rein_head *head = head_of(&l);
        const size_t chunks = rein_head_chunks(head->linear), n = l.rows * l.vocabulary;
        const results trained = forward(&l, 0, l.rows, LOG_SUMS, best());
        float *plainest = NULL;
        assert_int_equal(chunks, (l.vocabulary + 511) / 512);
        for (size_t m = 0; m < n_machines; m++) {
            float *x = floats(n);
            rein_softmax_stats *masses = room(l.rows * chunks, sizeof *masses);
            const size_t half = l.rows / 2;
            const rein_lora_rows parts[] = {{head->lora, 0, half}, {head->lora, half, l.rows - half}};
            float *inverse = floats(l.rows);
            for (size_t r = 0; r < l.rows; r++) inverse[r] = head->inverse_temperature;
            rein_head_logits(x, masses, floats(l.rows * l.lora.rank), l.h, inverse, l.rows, head->linear, head->cap, 0, parts, 2,
                             &machines[m]);
            if (m) same_bits("logits", x, plainest, n);
            else plainest = x;
            for (size_t r = 0; r < l.rows; r++) {
                const rein_softmax_total total = rein_head_total(masses + r * chunks, chunks, machines[m].exec.isa);
                const double log_sum = rein_head_log_sum(&total, machines[m].exec.isa);
                const float log_prob_of_target = (float)((double)x[r * l.vocabulary + (size_t)l.targets[r]] - log_sum),
                            sum = (float)log_sum;
                same_bits("a sampler's log-probability", &log_prob_of_target, &trained.out.log_probs[r], 1);
                same_bits("a sampler's log-sum", &sum, &trained.out.log_sums[r], 1);
            }
        }
        clear();
    }
}

static void same_gradients(const gradients *g, const gradients *wanted, const layer *l) {
    same_bits("dh", g->dh, wanted->dh, l->rows * l->hidden);
    same_bits("dW", g->weight, wanted->weight, l->vocabulary * l->hidden);
    same_bits("dA", g->a, wanted->a, l->lora.rank * l->hidden);
    same_bits("dB", g->b, wanted->b, l->vocabulary * l->lora.rank);
}

static void test_one_gradient(void **state) {
    (void)state;
    const size_t vocabularies[] = {5, 513, 1500, 2100};
    for (int round = 0; round < (quick() ? 4 : 8); round++) {
        layer l = make(2 + below(quick() ? 8 : 40), 1 + below(20), vocabularies[(size_t)round % 4], (rein_storage)below(3),
                       round % 2 ? 0 : 3, some_temperature()),
              other = another(&l, (size_t)round % 3);
        l.beside = &other, l.divergence = (rein_divergence)(1 + round % 3), l.beta = 0.3f;
        const results f = forward(&l, 0, l.rows, TRAINS, best());
        gradients plainest = no_gradients(&l), parts = no_gradients(&l);
        backward(&plainest, &l, &f, 0, l.rows, 1, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            gradients g = no_gradients(&l);
            backward(&g, &l, &f, 0, l.rows, 1, &machines[m]);
            same_gradients(&g, &plainest, &l);
        }
        for (size_t first = 0, n; first < l.rows; first += n) { /* in several calls that add up */
            n = 1 + below(l.rows - first);
            const results some = forward(&l, first, n, TRAINS, best());
            backward(&parts, &l, &some, first, n, 1, best());
        }
        same_gradients(&parts, &plainest, &l);
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frozen),         cmocka_unit_test(test_trained),
                                       cmocka_unit_test(test_beside),         cmocka_unit_test(test_divergences),
                                       cmocka_unit_test(test_beside_itself),  cmocka_unit_test(test_divergences_of_extreme_logits),
                                       cmocka_unit_test(test_what_is_wanted), cmocka_unit_test(test_two_ways),
                                       cmocka_unit_test(test_extreme_logits), cmocka_unit_test(test_one_answer),
                                       cmocka_unit_test(test_logits),         cmocka_unit_test(test_one_gradient)};
    return cmocka_run_group_tests_name("head", tests, open_machines, close_machines);
}
