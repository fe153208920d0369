/* generator_step.c - a step of the generator: the prompts of new requests and the last token of every running sample go through
 * the layers as one batch of rows; then a token is chosen for each sample from its row of logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "choose.h"
#include "generator.h"
#include "nn/norm.h"

enum { MAX_LOGITS = 1 << 24 };

/* The batch of a step. A query is the last token of a running sample, or a prompt, from whose last row all samples of the request
 * begin. */
typedef struct step {
    rein_generator *g;
    rein_batch_rows batch;
    rein_kept kept;
    rein_selected_rows selected; /* the last row of each query */
    rein_query *queries;
    rein_slot *slots;
    int32_t *positions, *ids;
    float *x, *hidden, *inner;
    rein_head head;
    int caches;     /* rows of this step go to the activation cache */
    uint64_t *keys; /* [rows] of the sample, 0: not cached */
    float **rows;   /* [rows] of the cache, or NULL */
    float *y;       /* [rows][hidden], as x */
} step;

static int has_prompt(const rein_generator_sample *s) { return s->n == 0 && s->index == 0; }

static uint64_t key_of(const rein_generator_sample *s) { return s->of->activation_key ? s->of->activation_key + s->index : 0; }

/* Counts rows and queries, and finds the largest number of keys. */
static void measure(step *s) {
    for (size_t i = 0; i < s->g->n_samples; i++) {
        rein_generator_sample *one = &s->g->samples[i];
        const size_t length = one->of->r.n_prompt + one->n;
        if (one->n || has_prompt(one)) {
            s->caches |= rein_activation_cache_has(s->g->cache, key_of(one));
            s->batch.n_queries++;
            s->batch.rows += one->n ? 1 : one->of->r.n_prompt;
        }
        one->query = s->batch.n_queries - 1;
        if (length > s->batch.keys) s->batch.keys = length;
    }
}

static int extend_angles(rein_generator *g, size_t positions) {
    if (positions <= g->n_angles) return 1;
    const size_t n = positions > 2 * g->n_angles ? positions : 2 * g->n_angles;
    float *cosine = realloc(g->angles.cosine, n * g->angles.half * sizeof *cosine);
    if (cosine) g->angles.cosine = cosine;
    float *sine = realloc(g->angles.sine, n * g->angles.half * sizeof *sine);
    if (sine) g->angles.sine = sine;
    if (!cosine || !sine) return 0;
    rein_angles_fill(&g->angles, g->policy.model->frequencies, g->n_angles, n);
    g->n_angles = n;
    return 1;
}

static void take_memory(step *s, rein_arena *arena) {
    const rein_generator *g = s->g;
    const rein_model *model = g->policy.model;
    const size_t rows = s->batch.rows, queries = s->batch.n_queries, hidden = (size_t)model->config.hidden_size;
    s->batch.queries = s->queries = rein_arena_take(arena, queries * sizeof *s->queries);
    s->batch.slots = s->slots = rein_arena_take(arena, rows * sizeof *s->slots);
    s->batch.positions = s->positions = rein_arena_take(arena, rows * sizeof *s->positions);
    s->ids = rein_arena_take(arena, rows * sizeof *s->ids);
    s->x = rein_arena_floats(arena, rows * hidden);
    s->hidden = rein_arena_floats(arena, queries * hidden);
    s->head =
        (rein_head){&model->head, rein_adapter_lora(g->policy.adapter, 0, REIN_HEAD_MODULE), (float)(1 / g->policy.temperature)};
    s->inner = s->head.lora ? rein_arena_floats(arena, queries * s->head.lora->rank) : NULL;
    rein_batch_take(&s->batch, arena);
    rein_kept_take(&s->kept, &s->batch, s->caches, arena);
    s->keys = s->caches ? rein_arena_take(arena, rows * sizeof *s->keys) : NULL;
    s->rows = s->caches ? rein_arena_take(arena, rows * sizeof *s->rows) : NULL;
    s->y = s->caches ? rein_arena_floats(arena, rows * hidden) : NULL;
    s->kept.x = s->x;
}

static rein_status prepare(step *s, rein_error *err) {
    rein_generator *g = s->g;
    s->batch = (rein_batch_rows){.model = g->policy.model,
                                 .adapter = g->policy.adapter,
                                 .layer_stride = rein_key_block_floats(&g->policy.model->heads),
                                 .run = {rein_kernels_of(g->exec.isa), g->exec, NULL}};
    measure(s);
    int had = extend_angles(g, s->batch.keys);
    for (size_t i = 0; had && i < g->n_samples; i++) had = g->samples[i].n == 0 || rein_generator_reserve_key(g, &g->samples[i]);
    s->batch.angles = g->angles;
    rein_arena_reset(&g->arena);
    take_memory(s, &g->arena);
    if (had && !g->arena.failed) return REIN_OK;
    return rein_fail(err, REIN_ENOMEM, "no memory for the keys and activations of %zu samples", g->n_samples);
}

static size_t add_row(step *s, size_t row, int32_t id, size_t position, const rein_keys *keys, size_t slot, uint64_t key) {
    if (s->caches) {
        s->keys[row] = key;
        rein_activation_cache_add(s->g->cache, key, position, id);
    }
    s->ids[row] = id;
    s->positions[row] = (int32_t)position;
    s->slots[row] = (rein_slot){keys->data, slot};
    return row + 1;
}

static void fill(step *s) {
    size_t row = 0;
    for (size_t i = 0; i < s->g->n_samples; i++) {
        rein_generator_sample *one = &s->g->samples[i];
        rein_generator_request *r = one->of;
        if (has_prompt(one)) {
            s->queries[one->query] = (rein_query){row, r->r.n_prompt, 0, r->keys, r->n_keys};
            for (size_t t = 0; t < r->r.n_prompt; t++)
                row = add_row(s, row, r->prompt[t], t, &r->keys[t / REIN_KEY_BLOCK], t % REIN_KEY_BLOCK, key_of(one));
        } else if (one->n) {
            const size_t position = r->r.n_prompt + one->n - 1;
            rein_keys *keys = &one->keys[one->n_keys - 1];
            s->queries[one->query] = (rein_query){row, 1, position, one->keys, one->n_keys};
            row = add_row(s, row, one->last, position, keys, keys->count++, key_of(one));
        }
    }
    for (size_t i = 0; s->caches && i < row; i++) /* only now, because adding a row may have dropped an earlier request */
        s->rows[i] = rein_activation_cache_row(s->g->cache, s->keys[i], (size_t)s->positions[i]);
}

static rein_status select_last_rows(step *s, rein_error *err) {
    rein_query *last = rein_arena_take(&s->g->arena, s->batch.n_queries * sizeof *last);
    for (size_t q = 0; last && q < s->batch.n_queries; q++) {
        const rein_query *all = &s->queries[q];
        last[q] = (rein_query){all->first + all->count - 1, 1, all->before + all->count - 1, all->keys, all->n_keys};
    }
    if (last) rein_selected_rows_take(&s->selected, &s->batch, last, s->batch.n_queries, &s->g->arena);
    return s->g->arena.failed ? rein_fail(err, REIN_ENOMEM, "no memory for the rows of %zu samples", s->g->n_samples) : REIN_OK;
}

/* Computes all layers for all rows, as training needs them, and puts their activations into the cache. */
static void layers_forward_cached(step *s, size_t layers, size_t hidden) {
    float *out = s->y;
    for (size_t l = 0; l < layers; l++) {
        float *in = s->kept.x;
        rein_layer_forward(out, &s->kept, l, &s->batch);
        rein_activation_cache_put(s->g->cache, s->rows, l, &s->kept, &s->batch);
        s->kept.x = out, out = in;
    }
    rein_activation_cache_put_last(s->g->cache, s->rows, s->kept.x, &s->batch);
    for (size_t q = 0; q < s->batch.n_queries; q++)
        memcpy(s->hidden + q * hidden, s->kept.x + s->selected.from[q] * hidden, hidden * sizeof(float));
}

static void layers_forward(step *s) {
    const rein_batch_rows *b = &s->batch;
    const size_t layers = (size_t)b->model->config.n_layers, hidden = (size_t)b->model->config.hidden_size;
    rein_embed(s->x, b->model, s->ids, b->rows, &b->run);
    if (s->caches) layers_forward_cached(s, layers, hidden);
    else {
        for (size_t l = 0; l + 1 < layers; l++) rein_layer_forward(s->x, &s->kept, l, b);
        rein_last_layer_forward(s->hidden, &s->kept, &s->selected, b);
    }
    rein_norm_forward(s->hidden, NULL, s->hidden, b->model->norm, b->n_queries, hidden, (float)b->model->config.rms_norm_eps,
                      &b->run);
}

/* -------------------------------------------------------------------------------------------------------------------- choosing */

typedef struct choosing {
    rein_generator *g;
    size_t first_sample, first_query;
    const float *x;                   /* [queries][vocabulary] */
    const rein_softmax_stats *masses; /* [queries][chunks] */
    size_t vocabulary, chunks;
    rein_logit *candidates; /* [threads][vocabulary], or NULL */
} choosing;

static void choose_one(void *context, size_t piece, int thread) {
    const choosing *c = context;
    const rein_generator_sample *s = &c->g->samples[c->first_sample + piece];
    rein_choice *top = c->g->tops + s->top;
    const rein_request *r = &s->of->r;
    const size_t q = s->query - c->first_query;
    const rein_logits_row row = {c->x + q * c->vocabulary, c->masses + q * c->chunks, c->vocabulary, c->chunks, c->g->exec.isa};
    const double u = rein_random_uniform(r->sampling.seed, REIN_RANDOM_SAMPLING, r->step, r->prompt_index, s->index, s->n);
    const rein_chosen_token chosen =
        rein_choose(&row, &r->sampling, u, c->candidates ? c->candidates + (size_t)thread * c->vocabulary : NULL);
    if (r->sampling.top_log_probs) rein_choose_top(top, r->sampling.top_log_probs, &row);
    c->g->events[c->first_sample + piece] = (rein_sampled){.request = s->of->number,
                                                           .sample = s->index,
                                                           .position = s->n,
                                                           .id = chosen.id,
                                                           .log_prob = chosen.log_prob,
                                                           .sampler_log_prob = chosen.sampler_log_prob,
                                                           .top = top,
                                                           .n_top = r->sampling.top_log_probs,
                                                           .activation_key = key_of(s)};
}

static rein_status make_events(rein_generator *g, rein_error *err) {
    size_t tops = 1; /* at least 1, so that the array exists */
    for (size_t i = 0; i < g->n_samples; i++) {
        g->samples[i].top = tops;
        tops += g->samples[i].of->r.sampling.top_log_probs;
    }
    if (g->n_samples > g->events_capacity) {
        rein_sampled *events = realloc(g->events, g->n_samples * sizeof *events);
        if (!events) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", g->n_samples);
        g->events = events, g->events_capacity = g->n_samples;
    }
    if (tops > g->tops_capacity) {
        rein_choice *choices = realloc(g->tops, tops * sizeof *choices);
        if (!choices) return rein_fail(err, REIN_ENOMEM, "no memory for the log-probabilities of %zu tokens", tops);
        g->tops = choices, g->tops_capacity = tops;
    }
    return REIN_OK;
}

/* Computes the logits of a few queries at a time. Samples are in the order of their queries. */
static rein_status choose_all(step *s, rein_error *err) {
    rein_generator *g = s->g;
    const size_t vocabulary = s->head.linear->out, queries = s->batch.n_queries;
    size_t at_once = MAX_LOGITS / vocabulary > 1 ? MAX_LOGITS / vocabulary : 1, to = 0;
    if (at_once > queries) at_once = queries;
    choosing c = {.g = g, .vocabulary = vocabulary, .chunks = rein_head_chunks(&s->head)};
    int truncates = 0;
    for (size_t i = 0; i < g->n_samples; i++) truncates |= rein_truncates(&g->samples[i].of->r.sampling);
    float *x = rein_arena_floats(&g->arena, at_once * vocabulary);
    rein_softmax_stats *masses = rein_arena_take(&g->arena, at_once * c.chunks * sizeof *masses);
    if (truncates) c.candidates = rein_arena_take(&g->arena, (size_t)g->exec.threads * vocabulary * sizeof *c.candidates);
    if (g->arena.failed) return rein_fail(err, REIN_ENOMEM, "no memory for the logits of %zu samples", g->n_samples);
    c.x = x, c.masses = masses;
    for (; c.first_query < queries; c.first_query += at_once) {
        const size_t some = queries - c.first_query < at_once ? queries - c.first_query : at_once;
        rein_head_logits(x, masses, s->inner, s->hidden + c.first_query * s->head.linear->in, some, &s->head, &s->batch.run);
        for (c.first_sample = to; to < g->n_samples && g->samples[to].query < c.first_query + some;) to++;
        rein_parallel(g->exec.threads, to - c.first_sample, choose_one, &c);
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------ results */

static rein_finish finish_of(const rein_generator *g, const rein_generator_sample *s, int stopped) {
    const rein_sampling *sampling = &s->of->r.sampling;
    for (size_t i = 0; i < sampling->n_end_ids; i++)
        if (s->of->end_ids[i] == s->last) return REIN_FINISH_END_TOKEN;
    if (stopped) return REIN_FINISH_STOP_TEXT;
    if (s->n >= sampling->max_tokens) return REIN_FINISH_MAX_TOKENS;
    return s->of->r.n_prompt + s->n >= (size_t)g->policy.model->config.max_positions ? REIN_FINISH_CONTEXT : REIN_FINISH_NONE;
}

static rein_status take_result(rein_generator *g, size_t i, rein_error *err) {
    rein_generator_sample *s = &g->samples[i];
    rein_sampled *event = &g->events[i];
    const char *const *stops = (const char *const *)s->of->stops;
    const size_t n_stops = s->of->r.sampling.n_stops;
    int stopped;
    if (!isfinite(event->log_prob))
        return rein_fail(
            err, REIN_ERANGE,
            "the log-probability of token %zu of request %zu is not a finite number: weights of the model or adapter are "
            "too large or not finite",
            event->position, event->request);
    s->last = event->id;
    s->n++;
    rein_status status = rein_growing_push(&stopped, &s->text, event->id, stops, n_stops, err);
    if (status) return status;
    event->finish = finish_of(g, s, stopped);
    if (event->finish && !stopped && (status = rein_growing_finish(&stopped, &s->text, stops, n_stops, err))) return status;
    if (stopped && event->finish > REIN_FINISH_STOP_TEXT) event->finish = REIN_FINISH_STOP_TEXT;
    s->finished = event->finish != REIN_FINISH_NONE;
    event->text = s->text.text.data ? s->text.text.data + s->text.reported : "";
    event->length = s->text.certain - s->text.reported;
    s->text.reported = s->text.certain;
    return REIN_OK;
}

static rein_status run(rein_generator *g, rein_error *err) {
    step s = {.g = g};
    rein_status status = rein_generator_admit(g, err);
    if (status || g->n_samples == 0) return status;
    if ((status = rein_model_pack(g->policy.model, &g->exec, err)) || (status = prepare(&s, err)) || (status = make_events(g, err)))
        return status;
    fill(&s);
    if ((status = select_last_rows(&s, err))) return status;
    layers_forward(&s);
    status = choose_all(&s, err);
    for (size_t i = 0; i < g->n_samples && !status; i++) status = take_result(g, i, err);
    return status;
}

rein_status rein_generator_step(const rein_sampled **sampled, size_t *n, rein_generator *g, rein_error *err) {
    *sampled = NULL, *n = 0;
    if (g->failed) return rein_fail(err, REIN_EINVAL, "the generator failed in an earlier step: it can only be closed");
    rein_generator_remove_finished(g); /* not earlier, because the caller could still read their texts */
    const rein_status status = run(g, err);
    g->failed = status != REIN_OK;
    if (status) rein_activation_cache_clear(g->cache);
    if (!status) *sampled = g->events, *n = g->n_samples;
    return status;
}
