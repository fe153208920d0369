/* generator_step.c - a step of the generator: the last token of every running sample and pieces of prompts go through the layers as one
 * batch of rows; then a token is chosen for each sample from its row of logits.
 *
 * All memory is taken before the first row is computed. If there is not enough, the newest request fails, and the others try again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "choose.h"
#include "generator.h"
#include "nn/norm.h"

/* The batch of a step. A query is the last token of a running sample, or a piece of a prompt. Queries are in the order of the samples,
 * which is that of their adapters, and then of the list `stepping`, so that only the last can be of a prompt that is not complete yet.
 * Each other query has a row of the head, or with prompt_log_probs one for each token of the piece; and so have prompts that earlier
 * steps completed, for samples that begin now: they come after the running samples. */
typedef struct step {
    rein_generator *g;
    rein_batch_rows batch;
    rein_kept kept;
    rein_selected_rows selected;        /* head_queries */
    rein_query *queries, *head_queries; /* head_queries: the rows of each query that go to the head: the last, or all */
    rein_lora_rows *parts, *head_parts, *chunk_parts; /* of the batch, of the head's rows, and of those computed at once */
    size_t n_head_parts, selected_rows;
    float *inverse_temperatures; /* [head_rows] */
    rein_slot *slots;
    int32_t *positions, *ids;
    float *x, *hidden, *inner;
    size_t late;    /* prompts that earlier steps completed, of which samples begin now */
    size_t running; /* samples that have a token: the first ones, and their queries */
    size_t head_rows, at_once;
    const rein_linear *head;
    float *logits; /* [at_once][vocabulary] */
    rein_softmax_stats *masses;
    rein_logit *candidates; /* [threads][vocabulary], or NULL */
    int caches;             /* rows of this step go to the activation cache */
    uint64_t *keys;         /* [rows] of the sample, 0: not cached */
    float **rows;           /* [rows] of the cache, or NULL */
    float *y;               /* [rows][hidden], as x */
} step;

static uint64_t key_of(const rein_generator_sample *s) { return s->of->activation_key ? s->of->activation_key + s->index : 0; }

/* How many rows of a piece of a prompt go to the head. */
static size_t piece_head_rows(const rein_generator_request *r) {
    return r->r.prompt_log_probs ? r->piece : r->computed + r->piece == r->r.n_prompt;
}

static void add_query(step *s, size_t rows, size_t keys, uint64_t activation_key) {
    s->caches |= rein_activation_cache_has(s->g->cache, activation_key);
    s->batch.n_queries++;
    s->batch.rows += rows;
    if (keys > s->batch.keys) s->batch.keys = keys;
}

/* Counts rows and queries, and finds the largest number of keys. */
static void measure(step *s) {
    rein_generator *g = s->g;
    for (; s->running < g->n_samples && g->samples[s->running].n; s->running++) {
        rein_generator_sample *one = &g->samples[s->running];
        one->row = s->running;
        add_query(s, 1, one->of->r.n_prompt + one->n, key_of(one));
    }
    s->head_rows = s->running;
    size_t i = s->running;
    for (rein_generator_request *r = g->stepping; r; r = r->step_next) {
        if (r->piece) r->query = s->batch.n_queries, add_query(s, r->piece, r->computed + r->piece, r->activation_key);
        else s->late++;
        r->head = s->head_rows;
        s->head_rows += r->piece ? piece_head_rows(r) : 1;
        for (; i < g->n_samples && g->samples[i].of == r; i++) g->samples[i].row = s->head_rows - 1;
    }
    s->selected_rows = s->head_rows + 1; /* the row of an incomplete prompt is selected, and not used */
}

static int extend_table(float **table, size_t floats) {
    float *longer = realloc(*table, floats * sizeof *longer);
    if (longer) *table = longer;
    return longer != NULL;
}

static int extend_angles(rein_generator *g, size_t positions) {
    if (positions <= g->n_angles) return 1;
    const size_t n = positions > 2 * g->n_angles ? positions : 2 * g->n_angles;
    for (int r = 0; r < REIN_ROPES; r++) {
        rein_angles *angles = &g->angles[r];
        if (!angles->half) continue;
        if (!extend_table(&angles->cosine, n * angles->half) || !extend_table(&angles->sine, n * angles->half)) return 0;
        rein_angles_fill(angles, g->policy.model->ropes[r].values, g->n_angles, n);
    }
    g->n_angles = n;
    return 1;
}

/* -------------------------------------------------------------------------------------------------- the adapters of the rows */

static size_t head_number(const rein_model *model) { return rein_adapter_slots(model) - 1; }

/* Appends rows of an adapter to parts [n]. */
static void add_part(rein_lora_rows *parts, size_t *n, const rein_adapter *adapter, size_t rows) {
    const rein_lora *loras = adapter ? adapter->loras : NULL;
    const size_t first = *n ? parts[*n - 1].first + parts[*n - 1].rows : 0;
    if (*n && parts[*n - 1].loras == loras) parts[*n - 1].rows += rows;
    else parts[(*n)++] = (rein_lora_rows){loras, first, rows};
}

static void add_head_rows(step *s, const rein_generator_request *r, size_t rows, size_t *row) {
    if (!rows) return;
    add_part(s->head_parts, &s->n_head_parts, r->policy.adapter, rows);
    for (size_t i = 0; i < rows; i++)
        s->inverse_temperatures[(*row)++] = rein_inverse_temperature(r->policy.model, r->policy.temperature);
}

static void list_parts(step *s) {
    const rein_generator *g = s->g;
    size_t row = 0;
    for (size_t i = 0; i < s->running; i++) {
        add_part(s->parts, &s->batch.n_parts, g->samples[i].of->policy.adapter, 1);
        add_head_rows(s, g->samples[i].of, 1, &row);
    }
    for (const rein_generator_request *r = g->stepping; r; r = r->step_next) {
        if (r->piece) add_part(s->parts, &s->batch.n_parts, r->policy.adapter, r->piece);
        add_head_rows(s, r, r->piece ? piece_head_rows(r) : 1, &row);
    }
    if (!s->batch.n_parts) add_part(s->parts, &s->batch.n_parts, g->policy.adapter, s->batch.rows); /* to be measured only */
    s->batch.parts = s->parts;
}

static void take_memory(step *s, rein_arena *arena) {
    const rein_generator *g = s->g;
    const rein_model *model = g->policy.model;
    const size_t rows = s->batch.rows, queries = s->batch.n_queries, hidden = (size_t)model->config.hidden_size;
    s->batch.queries = s->queries = rein_arena_take(arena, queries * sizeof *s->queries);
    s->head_queries = rein_arena_take(arena, queries * sizeof *s->head_queries);
    s->parts = rein_arena_take(arena, (queries + 1) * sizeof *s->parts);
    s->head_parts = rein_arena_take(arena, (queries + 1) * sizeof *s->head_parts);
    s->chunk_parts = rein_arena_take(arena, (queries + 1) * sizeof *s->chunk_parts);
    s->inverse_temperatures = rein_arena_floats(arena, s->head_rows);
    s->batch.slots = s->slots = rein_arena_take(arena, rows * sizeof *s->slots);
    s->batch.positions = s->positions = rein_arena_take(arena, rows * sizeof *s->positions);
    s->ids = rein_arena_take(arena, rows * sizeof *s->ids);
    s->x = rein_arena_floats(arena, rows * hidden);
    s->hidden = rein_arena_floats(arena, s->selected_rows * hidden);
    s->head = &model->head;
    if (arena->failed) return;
    list_parts(s);
    const size_t rank = rein_lora_rows_rank(s->head_parts, s->n_head_parts, head_number(model));
    s->inner = rank ? rein_arena_floats(arena, s->head_rows * rank) : NULL;
    rein_batch_take(&s->batch, arena);
    rein_kept_take(&s->kept, &s->batch, s->caches, arena);
    s->keys = s->caches ? rein_arena_take(arena, rows * sizeof *s->keys) : NULL;
    s->rows = s->caches ? rein_arena_take(arena, rows * sizeof *s->rows) : NULL;
    s->y = s->caches ? rein_arena_floats(arena, rows * hidden) : NULL;
    s->kept.x = s->x;
}

static void take_head_memory(step *s, int truncates, rein_arena *arena) {
    const size_t vocabulary = s->head->out;
    s->at_once = REIN_MAX_LOGITS / vocabulary > 1 ? REIN_MAX_LOGITS / vocabulary : 1;
    if (s->at_once > s->head_rows) s->at_once = s->head_rows;
    s->logits = rein_arena_floats(arena, s->at_once * vocabulary);
    s->masses = rein_arena_take(arena, s->at_once * rein_head_chunks(s->head) * sizeof *s->masses);
    s->candidates = truncates ? rein_arena_take(arena, (size_t)s->g->exec.threads * vocabulary * sizeof *s->candidates) : NULL;
}

static step begin_step(rein_generator *g) {
    return (step){.g = g,
                  .batch = {.model = g->policy.model,
                            .adapter = g->policy.adapter,
                            .layer_stride = rein_key_block_floats(&g->policy.model->heads),
                            .run = {rein_kernels_of(g->exec.isa), g->exec, NULL}}};
}

/* `rows` of the query, its last, go to the head. */
static size_t put_query(step *s, size_t number, size_t rows, rein_query query) {
    const size_t before = query.count - rows;
    s->queries[number] = query;
    s->head_queries[number] = (rein_query){query.first + before, rows, query.before + before, query.keys, query.n_keys};
    return query.first + query.count;
}

static void put_queries(step *s) {
    const rein_generator *g = s->g;
    size_t row = 0;
    for (size_t i = 0; i < s->running; i++) {
        const rein_generator_sample *one = &g->samples[i];
        row = put_query(s, i, 1, (rein_query){row, 1, one->of->r.n_prompt + one->n - 1, one->keys, one->n_keys});
    }
    for (const rein_generator_request *r = g->stepping; r; r = r->step_next)
        if (r->piece)
            row = put_query(s, r->query, r->r.prompt_log_probs ? r->piece : 1,
                            (rein_query){row, r->piece, r->computed, r->keys, r->n_keys});
}

/* Takes all the memory of a step that is measured; 0: there is not enough. */
static int take_step(step *s, int truncates) {
    rein_arena *arena = &s->g->arena;
    rein_arena_reset(arena);
    take_memory(s, arena);
    take_head_memory(s, truncates, arena);
    if (arena->failed) return 0;
    for (size_t q = 0; q < s->batch.n_queries; q++) s->head_queries[q] = (rein_query){.count = 1};
    put_queries(s);
    rein_selected_rows_take(&s->selected, &s->batch, s->head_queries, s->batch.n_queries, arena);
    return !arena->failed;
}

/* The largest step: every sample runs, at the last position, and prompts are all that a step may have of them. */
rein_status rein_generator_charge_step(rein_generator *g, rein_error *err) {
    step s = begin_step(g);
    s.batch.keys = (size_t)g->policy.model->config.max_positions;
    s.batch.rows = g->max_active + g->max_prompt_tokens;
    s.batch.n_queries = s.head_rows = g->max_active + 1; /* of each sample, or the prompt it begins with; and a piece of a prompt */
    s.caches = g->cache != NULL;
    const int taken = take_step(&s, 1);
    const size_t bytes = rein_arena_bytes(&g->arena);
    if (taken && rein_memory_take(g->memory, bytes)) return g->step_bytes = bytes, REIN_OK;
    return rein_fail(
        err, REIN_ENOMEM,
        "a step of %zu samples (max_active) and %zu tokens of prompts (max_prompt_tokens) needs %zu bytes, and of the %zu "
        "bytes of the memory %zu are used",
        g->max_active, g->max_prompt_tokens, bytes, rein_memory_limit(g->memory), rein_memory_used(g->memory));
}

static size_t add_row(step *s, size_t row, int32_t id, size_t position, const rein_keys *keys, size_t slot, uint64_t key) {
    if (s->caches) {
        s->keys[row] = key;
        rein_activation_cache_add(s->g->cache, key, position, id);
    }
    s->ids[row] = id;
    s->positions[row] = (int32_t)position;
    s->slots[row] = (rein_slot){{keys->data[REIN_KEYS_ALL], keys->data[REIN_KEYS_WINDOW]}, slot};
    return row + 1;
}

static void fill(step *s) {
    size_t row = 0;
    for (size_t i = 0; i < s->running; i++) {
        rein_generator_sample *one = &s->g->samples[i];
        rein_keys *keys = &one->keys[one->n_keys - 1];
        row = add_row(s, row, one->last, one->of->r.n_prompt + one->n - 1, keys, keys->count++, key_of(one));
    }
    for (const rein_generator_request *r = s->g->stepping; r; r = r->step_next)
        for (size_t t = r->computed; t < r->computed + r->piece; t++)
            row = add_row(s, row, r->prompt[t], t, &r->keys[r->n_shared + (t - r->shared) / REIN_KEY_BLOCK],
                          (t - r->shared) % REIN_KEY_BLOCK, r->activation_key);
    for (size_t i = 0; s->caches && i < row; i++) /* only now, because adding a row may have dropped an earlier request */
        s->rows[i] = rein_activation_cache_row(s->g->cache, s->keys[i], (size_t)s->positions[i]);
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
    for (size_t q = 0; q < s->selected.batch.rows; q++)
        memcpy(s->hidden + q * hidden, s->kept.x + s->selected.from[q] * hidden, hidden * sizeof(float));
}

/* Keeps the last rows of prompts for samples that begin later, and puts in those of earlier ones. */
static void exchange_last_rows(step *s) {
    const size_t hidden = s->head->in, rows = s->selected.batch.rows;
    for (const rein_generator_request *r = s->g->stepping; r; r = r->step_next)
        if (r->last && r->piece && r->computed + r->piece == r->r.n_prompt)
            memcpy(r->last, s->hidden + (r->head + piece_head_rows(r) - 1 - s->late) * hidden, hidden * sizeof *r->last);
    if (!s->late) return;
    float *at = s->hidden + s->running * hidden;
    memmove(at + s->late * hidden, at, (rows - s->running) * hidden * sizeof *at);
    for (const rein_generator_request *r = s->g->stepping; r && !r->piece; r = r->step_next, at += hidden)
        memcpy(at, r->last, hidden * sizeof *at);
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
    rein_norm_forward(s->hidden, NULL, s->hidden, &b->model->norm, s->selected.batch.rows, hidden, &b->run);
}

/* -------------------------------------------------------------------------------------------------------------------- choosing */

typedef struct choosing {
    rein_generator *g;
    size_t first_sample, first_row;
    float *x;                   /* [rows][vocabulary] */
    rein_softmax_stats *masses; /* [rows][chunks] */
    size_t vocabulary, chunks;
    rein_logit *candidates; /* [threads][vocabulary], or NULL */
} choosing;

static rein_logits_row row_of(const choosing *c, size_t head_row) {
    const size_t q = head_row - c->first_row;
    return (rein_logits_row){.x = c->x + q * c->vocabulary,
                             .masses = c->masses + q * c->chunks,
                             .vocabulary = c->vocabulary,
                             .chunks = c->chunks,
                             .isa = c->g->exec.isa};
}

/* Part of the results of every seed: evaluations have the last number, which no step of training reaches. */
static uint64_t random_step(const rein_address *a) { return a->purpose == REIN_PURPOSE_EVALUATION ? UINT64_MAX : a->step; }

static void choose_one(void *context, size_t piece, int thread) {
    const choosing *c = context;
    const rein_generator_sample *s = &c->g->samples[c->first_sample + piece];
    rein_choice *top = c->g->tops + s->top;
    const rein_request *r = &s->of->r;
    rein_logits_row row = row_of(c, s->row);
    if (s->n < r->sampling.min_tokens) row.banned = s->of->end_ids, row.n_banned = r->sampling.n_end_ids;
    const double u = rein_random_uniform(r->sampling.seed, REIN_RANDOM_SAMPLING, random_step(&r->address), r->address.prompt,
                                         s->index + r->address.sample, s->n + r->address.position);
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
                                                           .activation_key = key_of(s),
                                                           .cached_tokens = s->of->cached,
                                                           .prompt_log_probs = s->n ? NULL : s->of->log_probs,
                                                           .prompt_top = s->n ? NULL : s->of->top};
}

/* ---- log-probs of the tokens of a prompt: the row of each token predicts the next */
typedef struct scoring {
    const choosing *c;
    rein_generator_request *of;
    size_t first; /* row of the head */
} scoring;

static void score_one(void *context, size_t piece, int thread) {
    const scoring *s = context;
    rein_generator_request *r = s->of;
    const size_t head_row = s->first + piece, token = r->computed + (head_row - r->head) + 1, top = r->r.sampling.top_log_probs;
    (void)thread;
    if (token >= r->r.n_prompt) return;
    const rein_logits_row row = row_of(s->c, head_row);
    r->log_probs[token] = rein_choose_log_prob(&row, r->prompt[token]);
    if (top) rein_choose_top(r->top + token * top, top, &row);
}

static void score_prompts(const choosing *c, size_t rows) {
    for (rein_generator_request *r = c->g->stepping; r; r = r->step_next) {
        const size_t end = r->head + r->piece, last = c->first_row + rows;
        const size_t from = r->head > c->first_row ? r->head : c->first_row, to = end < last ? end : last;
        scoring s = {c, r, from};
        if (r->log_probs && from < to) rein_parallel(c->g->exec.threads, to - from, score_one, &s);
    }
}

/* Makes room for the events of all samples; 0: there is no memory. */
static int make_events(rein_generator *g) {
    size_t tops = 1; /* at least 1, so that the array exists */
    for (size_t i = 0; i < g->n_samples; i++) {
        g->samples[i].top = tops;
        tops += g->samples[i].of->r.sampling.top_log_probs;
    }
    if (g->n_samples > g->events_capacity) {
        rein_sampled *events = realloc(g->events, g->n_samples * sizeof *events);
        if (!events) return 0;
        g->events = events, g->events_capacity = g->n_samples;
    }
    if (tops > g->tops_capacity) {
        rein_choice *choices = realloc(g->tops, tops * sizeof *choices);
        if (!choices) return 0;
        g->tops = choices, g->tops_capacity = tops;
    }
    return 1;
}

/* The logits of `some` rows of the head from `first` on. */
static void compute_logits(step *s, size_t first, size_t some) {
    rein_lora_rows *parts = s->chunk_parts;
    size_t n = 0;
    for (size_t p = 0; p < s->n_head_parts; p++) {
        const rein_lora_rows *all = &s->head_parts[p];
        const size_t from = all->first > first ? all->first : first;
        const size_t to = all->first + all->rows < first + some ? all->first + all->rows : first + some;
        if (from < to) parts[n++] = (rein_lora_rows){all->loras, from - first, to - from};
    }
    rein_head_logits(s->logits, s->masses, s->inner, s->hidden + first * s->head->in, s->inverse_temperatures + first, some,
                     s->head, (float)s->batch.model->config.logit_cap, head_number(s->batch.model), parts, n, &s->batch.run);
}

/* Computes the logits of a few rows at a time. Samples are in the order of their rows. */
static void choose_all(step *s) {
    rein_generator *g = s->g;
    choosing c = {.g = g,
                  .x = s->logits,
                  .masses = s->masses,
                  .vocabulary = s->head->out,
                  .chunks = rein_head_chunks(s->head),
                  .candidates = s->candidates};
    for (size_t to = 0; c.first_row < s->head_rows; c.first_row += s->at_once) {
        const size_t left = s->head_rows - c.first_row, some = left < s->at_once ? left : s->at_once;
        compute_logits(s, c.first_row, some);
        for (c.first_sample = to; to < g->n_samples && g->samples[to].row < c.first_row + some;) to++;
        rein_parallel(g->exec.threads, to - c.first_sample, choose_one, &c);
        score_prompts(&c, some);
    }
}

/* ------------------------------------------------------------------------------------------------------------ results */

static rein_finish finish_of(const rein_generator *g, const rein_generator_sample *s, int32_t id, int stopped) {
    const rein_sampling *sampling = &s->of->r.sampling;
    for (size_t i = 0; i < sampling->n_end_ids; i++)
        if (s->of->end_ids[i] == id) return REIN_FINISH_END_TOKEN;
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
    if (!rein_generator_note_token(g, s, event->id))
        return rein_fail(err, REIN_ENOMEM, "no memory for the tokens of request %zu", event->request);
    s->last = event->id;
    s->n++;
    rein_status status = rein_growing_push(&stopped, &s->text, event->id, stops, n_stops, err);
    if (status) return status;
    event->finish = finish_of(g, s, event->id, stopped);
    if (event->finish && !stopped && (status = rein_growing_finish(&stopped, &s->text, stops, n_stops, err))) return status;
    if (stopped && event->finish > REIN_FINISH_STOP_TEXT) event->finish = REIN_FINISH_STOP_TEXT;
    s->finished = event->finish != REIN_FINISH_NONE;
    event->text = s->text.text.data ? s->text.text.data + s->text.reported : "";
    event->length = s->text.certain - s->text.reported;
    s->text.reported = s->text.certain;
    return REIN_OK;
}

/* -------------------------------------------------------------------------------------------------------------------------- a step */

/* Requests with a larger adapter than the generator's, or with prompt_log_probs, may make a step larger than was charged. */
static int charge_more(rein_generator *g) {
    const size_t bytes = rein_arena_bytes(&g->arena);
    if (!g->memory || bytes <= g->step_bytes) return 1;
    if (!rein_memory_take(g->memory, bytes - g->step_bytes)) return 0;
    return g->step_bytes = bytes, 1;
}

/* Everything that can fail for want of memory. */
static int prepare(step *s, rein_generator *g) {
    int truncates = 0;
    *s = begin_step(g);
    measure(s);
    for (size_t i = 0; i < g->n_samples; i++) {
        const rein_sampling *sampling = &g->samples[i].of->r.sampling;
        truncates |= rein_truncates(sampling) || sampling->min_tokens;
    }
    if (!extend_angles(g, s->batch.keys) || !make_events(g) || !take_step(s, truncates) || !charge_more(g)) return 0;
    memcpy(s->batch.angles, g->angles, sizeof g->angles);
    memcpy(s->selected.batch.angles, g->angles, sizeof g->angles);
    return 1;
}

/* Gives memory back to the others. */
static void fail_newest(rein_generator *g) {
    rein_generator_request *newest = NULL;
    for (size_t i = 0; i < g->n_samples; i++)
        if (!newest || g->samples[i].of->number > newest->number) newest = g->samples[i].of;
    for (rein_generator_request *r = g->stepping; r; r = r->step_next)
        if (!newest || r->number > newest->number) newest = r;
    rein_fail(&newest->error, REIN_ENOMEM, "no memory for the activations of request %zu, among %zu samples", newest->number,
              g->n_samples);
    rein_generator_end(g, newest);
}

static int has_work(const rein_generator *g) { return g->n_samples || g->stepping; }

/* Prompts are computed as far as this step did; requests of which all samples have begun wait no longer. */
static void finish_pieces(rein_generator *g) {
    for (rein_generator_request *r = g->stepping, *next; r; r = next) {
        next = r->step_next;
        r->computed += r->piece;
        r->piece = 0;
        if (r->begun == r->r.samples) rein_generator_take_out(g, r);
    }
    g->stepping = NULL;
}

/* Ends the requests that failed, and takes their tokens away. Returns the number of events that are left. */
static size_t end_failed(rein_generator *g) {
    size_t events = 0;
    for (size_t i = 0; i < g->n_samples; i++)
        if (!g->samples[i].of->error.code) g->events[events++] = g->events[i];
    for (size_t i = 0; i < g->n_samples;) {
        if (g->samples[i].of->error.code) rein_generator_end(g, g->samples[i].of), i = 0;
        else i++;
    }
    return events;
}

static size_t take_results(rein_generator *g) {
    int failed = 0;
    for (size_t i = 0; i < g->n_samples; i++) {
        rein_generator_request *r = g->samples[i].of;
        if (r->error.code) continue;
        failed |= take_result(g, i, &r->error) != REIN_OK;
        if (g->samples[i].finished && --r->left == 0) g->unfinished--;
        /* Not earlier: a finite log-probability shows that the keys of the prompt are finite. */
        if (!r->error.code && g->samples[i].index == 0 && g->samples[i].n == 1)
            rein_generator_trim_prompt(g, r), rein_generator_share_prompt(g, r);
    }
    return failed ? end_failed(g) : g->n_samples;
}

/* Keeps the samples of an adapter together, in the order in which they began. They are nearly in order. */
static void sort_by_adapter(rein_generator *g) {
    for (size_t i = 1; i < g->n_samples; i++) {
        const rein_generator_sample one = g->samples[i];
        const uintptr_t adapter = (uintptr_t)one.of->policy.adapter;
        size_t at = i;
        for (; at > 0 && (uintptr_t)g->samples[at - 1].of->policy.adapter > adapter; at--) g->samples[at] = g->samples[at - 1];
        g->samples[at] = one;
    }
}

rein_status rein_generator_step(const rein_sampled **sampled, size_t *n, rein_generator *g, rein_error *err) {
    step s;
    *sampled = NULL, *n = 0;
    rein_generator_remove(g, NULL); /* not earlier, because the caller could still read their texts */
    sort_by_adapter(g);
    const rein_status status = g->unfinished ? rein_model_pack(g->policy.model, &g->exec, err) : REIN_OK;
    if (status) return status;
    rein_generator_admit(g);
    rein_generator_reserve_keys(g);
    while (has_work(g) && !prepare(&s, g)) fail_newest(g);
    if (!has_work(g)) return REIN_OK;
    fill(&s);
    if (s.batch.rows) layers_forward(&s); /* else all samples begin after a prompt of an earlier step */
    exchange_last_rows(&s);
    choose_all(&s);
    finish_pieces(g);
    *n = take_results(g);
    *sampled = g->events;
    return REIN_OK;
}
