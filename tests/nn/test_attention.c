/* test_attention.c - attention over trees of segments, against softmax(q·k/√d)·v in double, one query at a time over the list of its keys;
 * its gradients against central differences of that. Then the promise of attention.h, bit for bit: the result of a query depends on its
 * keys alone, however they are cut into blocks, shared or repeated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/attention.h"
#include "nn/layers.h"

/* Measured: 2e-7 forward; 4e-7 for dq, 8e-7 for dk, 2e-6 for dv, which is a sum over all queries that see it. */
#define FORWARD 1e-6
#define BACKWARD 5e-6

/* ---- trees */
enum { MOST_SEGMENTS = 64 };
typedef struct forest {
    size_t n, n_trees, rows, keys; /* segments; rows in all; the longest way from a root */
    rein_segment segments[MOST_SEGMENTS];
    size_t trees[MOST_SEGMENTS + 1];
} forest;

static void add_segment(forest *f, int64_t parent, size_t count) {
    assert_true(f->n < MOST_SEGMENTS);
    rein_segment *s = &f->segments[f->n];
    *s = (rein_segment){f->rows, count, 0, parent};
    if (parent >= 0) s->before = f->segments[parent].before + f->segments[parent].count;
    else f->trees[f->n_trees++] = f->n;
    f->rows += count;
    if (s->before + count > f->keys) f->keys = s->before + count;
    f->trees[f->n_trees] = ++f->n;
}

/* A few trees: a root, children, and children of those, each up to `longest`. */
static forest random_forest(size_t trees, size_t longest) {
    forest f = {0};
    for (size_t t = 0; t < trees; t++) {
        const size_t root = f.n;
        add_segment(&f, REIN_NO_PARENT, 1 + below(longest));
        for (size_t k = below(5); k > 0; k--) add_segment(&f, (int64_t)(root + below(f.n - root)), 1 + below(longest));
    }
    return f;
}

/* ---- a layer */
typedef struct layer {
    rein_heads heads;
    forest f;
    float *q, *k, *v, *d_o;
    size_t width, kv_width; /* of a row of q, of k */
} layer;

static layer make(rein_heads heads, forest f, float size) {
    layer l = {.heads = heads, .f = f, .width = heads.n * heads.dim, .kv_width = heads.n_kv * heads.dim};
    l.q = numbers(f.rows * l.width, size), l.k = numbers(f.rows * l.kv_width, size);
    l.v = numbers(f.rows * l.kv_width, 1), l.d_o = numbers(f.rows * l.width, 1);
    return l;
}

/* Blocks of a segment: of 64 positions and a rest, or of any number of them. */
typedef struct blocks {
    rein_query queries[MOST_SEGMENTS];
    size_t offset;
} blocks;

static void fill_block(float *data, const layer *l, size_t first, size_t count, size_t offset) {
    for (size_t i = 0; i < count; i++)
        rein_keys_put(data + offset, i, l->k + (first + i) * l->kv_width, l->v + (first + i) * l->kv_width, &l->heads);
}

static blocks make_blocks(const layer *l, int anyhow) {
    blocks b = {.offset = anyhow ? below(3) * rein_key_block_floats(&l->heads) : 0};
    for (size_t s = 0; s < l->f.n; s++) {
        const rein_segment *segment = &l->f.segments[s];
        const rein_query *parent = segment->parent >= 0 ? &b.queries[segment->parent] : NULL;
        const size_t from_parent = parent ? parent->n_keys : 0;
        rein_keys *keys = room(from_parent + segment->count, sizeof *keys);
        size_t n = from_parent;
        if (parent) memcpy(keys, parent->keys, n * sizeof *keys);
        for (size_t at = 0; at < segment->count; at += keys[n++].count) {
            const size_t left = segment->count - at, most = anyhow ? 1 + below(REIN_KEY_BLOCK) : REIN_KEY_BLOCK;
            keys[n] = (rein_keys){.count = left < most ? left : most};
            keys[n].data[rein_key_part_of(&l->heads)] = floats(b.offset + rein_key_block_floats(&l->heads));
            fill_block(keys[n].data[rein_key_part_of(&l->heads)], l, segment->first + at, keys[n].count, b.offset);
        }
        b.queries[s] = (rein_query){segment->first, segment->count, segment->before, keys, n};
    }
    return b;
}

typedef struct results {
    float *o, *softmax_stats, *dq, *dk, *dv;
} results;

static void forward(results *r, const layer *l, const blocks *b, const rein_nn_context *run) {
    r->o = floats(l->f.rows * l->width), r->softmax_stats = floats(2 * l->f.rows * l->heads.n);
    rein_attention_forward(r->o, r->softmax_stats, l->q, b->queries, l->f.n, b->offset, &l->heads, room(l->f.n + 1, sizeof(size_t)),
                           floats(rein_attention_scratch(&l->heads, l->f.keys, run)), l->f.keys, run);
}

static void backward(results *r, const layer *l, const rein_nn_context *run) {
    r->dq = floats(l->f.rows * l->width), r->dk = floats(l->f.rows * l->kv_width), r->dv = floats(l->f.rows * l->kv_width);
    rein_attention_backward(r->dq, r->dk, r->dv, l->d_o, l->q, l->k, l->v, r->softmax_stats, l->f.segments, l->f.trees,
                            l->f.n_trees, &l->heads, l->f.rows, floats(rein_attention_backward_scratch(&l->heads, l->f.keys, run)),
                            l->f.keys, run);
}

static results run_layer(const layer *l, int anyhow, const rein_nn_context *run) {
    results r = {0};
    const blocks b = make_blocks(l, anyhow);
    forward(&r, l, &b, run);
    backward(&r, l, run);
    return r;
}

/* ---- in double */
typedef struct reference {
    const layer *l;
    double *q, *k, *v;
    size_t *segment_of;         /* [rows] */
    size_t *way[MOST_SEGMENTS]; /* rows from the root to the end of the segment */
    double *scores;             /* [keys] */
} reference;

static reference in_double(const layer *l) {
    reference f = {.l = l, .segment_of = room(l->f.rows, sizeof(size_t)), .scores = doubles(l->f.keys)};
    f.q = as_doubles(l->q, l->f.rows * l->width);
    f.k = as_doubles(l->k, l->f.rows * l->kv_width), f.v = as_doubles(l->v, l->f.rows * l->kv_width);
    for (size_t s = 0; s < l->f.n; s++) {
        const rein_segment *segment = &l->f.segments[s];
        f.way[s] = room(segment->before + segment->count, sizeof(size_t));
        for (size_t i = 0; i < segment->before; i++) f.way[s][i] = f.way[segment->parent][i];
        for (size_t i = 0; i < segment->count; i++)
            f.way[s][segment->before + i] = segment->first + i, f.segment_of[segment->first + i] = s;
    }
    return f;
}

/* o [dim] of one query; the maximum and the sum. */
static void attend(double *o, double softmax_stats[2], const reference *f, size_t row, size_t head) {
    const rein_heads *h = &f->l->heads;
    const size_t s = f->segment_of[row], dim = h->dim, kv = head / (h->n / h->n_kv);
    const size_t n = f->l->f.segments[s].before + (row - f->l->f.segments[s].first) + 1;
    const size_t first = h->window && n > h->window ? n - h->window : 0;
    double most = -HUGE_VAL, sum = 0;
    for (size_t j = first; j < n; j++) {
        const double *q = f->q + row * f->l->width + head * dim, *k = f->k + f->way[s][j] * f->l->kv_width + kv * dim;
        f->scores[j] = 0;
        for (size_t d = 0; d < dim; d++) f->scores[j] += q[d] * k[d];
        f->scores[j] *= h->scale > 0 ? (double)h->scale : 1 / sqrt((double)dim);
        if (h->cap > 0) f->scores[j] = (double)h->cap * tanh(f->scores[j] / (double)h->cap);
        most = fmax(most, f->scores[j]);
    }
    for (size_t j = first; j < n; j++) sum += exp(f->scores[j] - most);
    for (size_t d = 0; d < dim; d++) o[d] = 0;
    for (size_t j = first; j < n; j++) {
        const double p = exp(f->scores[j] - most) / sum, *v = f->v + f->way[s][j] * f->l->kv_width + kv * dim;
        for (size_t d = 0; d < dim; d++) o[d] += p * v[d];
    }
    softmax_stats[0] = most, softmax_stats[1] = 1 / sum;
}

static double query_loss(const reference *f, size_t row, size_t head) {
    const size_t dim = f->l->heads.dim;
    double o[256], softmax_stats[2], sum = 0;
    attend(o, softmax_stats, f, row, head);
    for (size_t d = 0; d < dim; d++) sum += (double)f->l->d_o[row * f->l->width + head * dim + d] * o[d];
    return sum;
}

/* A number of q moves one query; one of k or v those that see it, of the heads that share it. */
static double loss_by_q(void *context, size_t place) {
    const reference *f = context;
    return query_loss(f, place / f->l->width, place % f->l->width / f->l->heads.dim);
}

static double loss_by_key(void *context, size_t place) {
    const reference *f = context;
    const rein_heads *h = &f->l->heads;
    const size_t key = place / f->l->kv_width, kv = place % f->l->kv_width / h->dim, group = h->n / h->n_kv;
    const size_t at = f->l->f.segments[f->segment_of[key]].before + key - f->l->f.segments[f->segment_of[key]].first;
    double sum = 0;
    for (size_t row = key; row < f->l->f.rows; row++) {
        const rein_segment *s = &f->l->f.segments[f->segment_of[row]];
        if (s->before + row - s->first < at || f->way[f->segment_of[row]][at] != key) continue;
        for (size_t head = kv * group; head < (kv + 1) * group; head++) sum += query_loss(f, row, head);
    }
    return sum;
}

static void check_layer(const layer *l, size_t tries) {
    reference f = in_double(l);
    const results r = run_layer(l, (int)below(2), best());
    const size_t heads = l->heads.n, dim = l->heads.dim;
    double *o = doubles(l->f.rows * l->width), *softmax_stats = doubles(2 * l->f.rows * heads);
    for (size_t i = 0; i < l->f.rows * heads; i++) attend(o + i * dim, softmax_stats + 2 * i, &f, i / heads, i % heads);
    check("attention", apart(r.o, o, l->f.rows * l->width), FORWARD);
    check("attention, softmax_stats", apart(r.softmax_stats, softmax_stats, 2 * l->f.rows * heads), FORWARD);
    check("attention, dq", gradient_error(r.dq, f.q, l->f.rows * l->width, 4 * tries, loss_by_q, &f, 1e-3), BACKWARD);
    check("attention, dk", gradient_error(r.dk, f.k, l->f.rows * l->kv_width, tries, loss_by_key, &f, 1e-3), BACKWARD);
    check("attention, dv", gradient_error(r.dv, f.v, l->f.rows * l->kv_width, tries, loss_by_key, &f, 1e-3), BACKWARD);
    clear();
}

static const size_t DIMS[] = {2, 10, 20, 48, 80, 128, 130}, GROUPS[] = {1, 2, 3, 7, 8};

static rein_heads some_heads(void) {
    const size_t n_kv = 1 + below(3), windows[] = {0, 0, 1, 5, 16, 40, 100};
    return (rein_heads){n_kv * GROUPS[below(COUNT(GROUPS))], n_kv, DIMS[below(COUNT(DIMS))], below(2) ? 0 : 0.2f, below(3) ? 0 : 2,
                        windows[below(COUNT(windows))]};
}

static void test_against_double(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(DIMS); d++) /* every size of heads and groups */
        for (size_t g = 0; g < COUNT(GROUPS); g++) {
            const layer l =
                make((rein_heads){.n = 2 * GROUPS[g], .n_kv = 2, .dim = DIMS[d]}, random_forest(2, quick() ? 5 : 12), 1);
            check_layer(&l, quick() ? 5 : 60);
        }
    const size_t many[] = {64, 97, 200}; /* heads that share one key: a block of queries is then fewer rows, or one */
    for (size_t i = 0; i < COUNT(many); i++) {
        const layer l = make((rein_heads){.n = many[i], .n_kv = 1, .dim = 4}, random_forest(2, 8), 1);
        check_layer(&l, 10);
    }
    for (int round = 0; round < (quick() ? 1 : 10); round++) { /* long enough for several blocks of keys, and of queries */
        const layer l = make((rein_heads){.n = 1 + (size_t)round % 3, .n_kv = 1, .dim = 10}, random_forest(1, 200), 1);
        check_layer(&l, quick() ? 2 : 10);
    }
}

/* Windows shorter and longer than blocks of keys and queries, capped scores, and both. */
static void test_windows_and_caps(void **state) {
    (void)state;
    const size_t windows[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 130};
    for (size_t i = 0; i < COUNT(windows); i += quick() ? 3 : 1)
        for (int capped = 0; capped < 2; capped++) {
            const rein_heads heads = {3, 1, 10, capped ? 0.5f : 0, capped ? 1.5f : 0, windows[i]};
            const layer l = make(heads, random_forest(2, 150), 1);
            check_layer(&l, quick() ? 2 : 8);
        }
}

/* A prompt with three answers, one of which is continued twice; all borders of blocks. */
static void test_block_borders(void **state) {
    (void)state;
    const size_t lengths[] = {1, 63, 64, 65, 128, 129};
    for (size_t i = 0; i < COUNT(lengths); i += quick() ? 3 : 1) {
        forest f = {0};
        add_segment(&f, REIN_NO_PARENT, lengths[i]);
        add_segment(&f, 0, 1), add_segment(&f, 0, 64), add_segment(&f, 0, 5);
        add_segment(&f, 2, 3), add_segment(&f, 2, 62), add_segment(&f, 4, 1);
        const layer l = make((rein_heads){.n = 4, .n_kv = 2, .dim = 10}, f, 1);
        check_layer(&l, quick() ? 1 : 8);
    }
}

/* Scores in the hundreds, where all weight is on one key; and far below: what has no weight has no gradient, and nothing is NaN. */
static void test_extreme_scores(void **state) {
    (void)state;
    const float sizes[] = {0, 8, 30, 1e15f};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const layer l = make((rein_heads){.n = 4, .n_kv = 2, .dim = 20}, random_forest(3, 40), sizes[i]);
        const reference f = in_double(&l);
        const results r = run_layer(&l, 0, best());
        double *o = doubles(l.f.rows * l.width), softmax_stats[2];
        for (size_t k = 0; k < l.f.rows * 4; k++) attend(o + k * 20, softmax_stats, &f, k / 4, k % 4);
        /* A score of 1000 is rounded by 3e-5, and so is e^score. Beyond that, which key wins is the rounding's to say. */
        if (sizes[i] < 1e10f) check("attention, extreme scores", apart(r.o, o, l.f.rows * l.width), 1e-4);
        for (size_t k = 0; k < l.f.rows * l.width; k++) assert_true(isfinite(r.o[k]) && isfinite(r.dq[k]));
        for (size_t k = 0; k < l.f.rows * l.kv_width; k++) assert_true(isfinite(r.dk[k]) && isfinite(r.dv[k]));
        clear();
    }
}

/* ---- bit for bit */
static void same_results(const results *r, const results *wanted, const layer *l) {
    same_bits("o", r->o, wanted->o, l->f.rows * l->width);
    same_bits("softmax_stats", r->softmax_stats, wanted->softmax_stats, 2 * l->f.rows * l->heads.n);
    same_bits("dq", r->dq, wanted->dq, l->f.rows * l->width);
    same_bits("dk", r->dk, wanted->dk, l->f.rows * l->kv_width);
    same_bits("dv", r->dv, wanted->dv, l->f.rows * l->kv_width);
}

static void test_one_answer(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 8 : 15);) {
        const rein_heads heads = some_heads();
        const forest f = random_forest(1 + below(4), round % 5 ? 30 : 150);
        if (f.rows * f.keys * heads.n * heads.dim > 1000000) continue; /* the plain kernels take long */
        const layer l = make(heads, f, 1);
        const results plainest = run_layer(&l, 0, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            const results r = run_layer(&l, (int)(m % 2), &machines[m]); /* blocks cut anyhow, at any offset */
            same_results(&r, &plainest, &l);
        }
        clear();
        round++;
    }
}

/* Rows asked one at a time with the same keys, as a decoder does; and without softmax_stats. */
static void test_step_by_step(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 5 : 20); round++) {
        const layer l = make(some_heads(), random_forest(2, 70), 1);
        const blocks b = make_blocks(&l, 0);
        results all;
        forward(&all, &l, &b, best());
        float *o = floats(l.f.rows * l.width), *scratch = floats(rein_attention_scratch(&l.heads, l.f.keys, best()));
        for (size_t s = 0; s < l.f.n; s++)
            for (size_t i = 0; i < l.f.segments[s].count; i++) {
                rein_query one = b.queries[s];
                size_t pieces[2];
                one.first += i, one.before += i, one.count = 1;
                rein_attention_forward(o, NULL, l.q, &one, 1, 0, &l.heads, pieces, scratch, l.f.keys, best());
            }
        same_bits("o, step by step", o, all.o, l.f.rows * l.width);
        clear();
    }
}

/* Each way from a root to an end, as a sequence without a tree. */
static void test_shared_or_repeated(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 5 : 15); round++) {
        const layer l = make(some_heads(), random_forest(2, round % 3 ? 20 : 80), 1);
        const reference f = in_double(&l);
        const results shared = run_layer(&l, 0, best());
        for (size_t s = 0; s < l.f.n; s++) {
            const size_t n = l.f.segments[s].before + l.f.segments[s].count;
            forest flat = {0};
            add_segment(&flat, REIN_NO_PARENT, n);
            const layer alone = make(l.heads, flat, 1);
            for (size_t i = 0; i < n; i++) {
                const size_t row = f.way[s][i];
                memcpy(alone.q + i * l.width, l.q + row * l.width, l.width * sizeof(float));
                memcpy(alone.k + i * l.kv_width, l.k + row * l.kv_width, l.kv_width * sizeof(float));
                memcpy(alone.v + i * l.kv_width, l.v + row * l.kv_width, l.kv_width * sizeof(float));
                memcpy(alone.d_o + i * l.width, l.d_o + row * l.width, l.width * sizeof(float));
            }
            const results r = run_layer(&alone, 0, best());
            for (size_t i = 0; i < n; i++) {
                same_bits("o of a sequence", r.o + i * l.width, shared.o + f.way[s][i] * l.width, l.width);
                same_bits("dq of a sequence", r.dq + i * l.width, shared.dq + f.way[s][i] * l.width, l.width);
            }
        }
        clear();
    }
}

/* A tree alone, with its segments numbered from 0. */
static void test_tree_alone(void **state) {
    (void)state;
    const layer l = make((rein_heads){.n = 6, .n_kv = 2, .dim = 20}, random_forest(5, 60), 1);
    const results all = run_layer(&l, 0, best());
    for (size_t t = 0; t < l.f.n_trees; t++) {
        const size_t first = l.f.trees[t], row = l.f.segments[first].first;
        layer one = l;
        one.f = (forest){0};
        for (size_t s = first; s < l.f.trees[t + 1]; s++)
            add_segment(&one.f, l.f.segments[s].parent < 0 ? -1 : l.f.segments[s].parent - (int64_t)first, l.f.segments[s].count);
        one.q += row * l.width, one.d_o += row * l.width, one.k += row * l.kv_width, one.v += row * l.kv_width;
        const results r = run_layer(&one, 0, best());
        const results wanted = {all.o + row * l.width, all.softmax_stats + 2 * row * l.heads.n, all.dq + row * l.width,
                                all.dk + row * l.kv_width, all.dv + row * l.kv_width};
        same_results(&r, &wanted, &one);
    }
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_double),     cmocka_unit_test(test_windows_and_caps),
                                       cmocka_unit_test(test_block_borders),      cmocka_unit_test(test_extreme_scores),
                                       cmocka_unit_test(test_one_answer),         cmocka_unit_test(test_step_by_step),
                                       cmocka_unit_test(test_shared_or_repeated), cmocka_unit_test(test_tree_alone)};
    return cmocka_run_group_tests_name("attention", tests, open_machines, close_machines);
}
