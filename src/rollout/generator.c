/* generator.c - the requests and samples of a generator: requests wait, their samples run, and are removed when they finish. Keys
 * and values are stored in blocks of 64 positions; the samples of a request share those of its prompt. */
#include "generator.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "choose.h"

enum { MAX_ACTIVE = 256, MAX_PROMPT_ROWS = 4096, MAX_SAMPLES = 1 << 20 };

rein_sampling rein_sampling_plain(void) { return (rein_sampling){.top_p = 1, .max_tokens = 256}; }

static void give_blocks(rein_generator *g, const rein_keys *keys, size_t n) {
    for (size_t i = 0; i < n; i++) rein_key_store_give(g->store, keys[i].data);
}

/* ------------------------------------------------------------------------------------------------------------- open and close */

rein_status rein_generator_open(rein_generator **generator, const rein_policy *policy, const rein_tokenizer *tokenizer,
                                const rein_generator_options *options, rein_error *err) {
    rein_exec exec;
    *generator = NULL;
    rein_status status = rein_policy_check(policy, err);
    if (!status) status = rein_exec_resolve(&exec, options ? &options->exec : NULL, REIN_SERIAL, err);
    if (status) return status;
    rein_generator *g = calloc(1, sizeof *g);
    if (g) g->store = rein_key_store_open(policy->model);
    if (!g || !g->store) {
        free(g);
        return rein_fail(err, REIN_ENOMEM, "no memory for a generator");
    }
    g->policy = *policy, g->tokenizer = tokenizer, g->exec = exec;
    g->cache = options ? options->activation_cache : NULL;
    g->max_active = options && options->max_active ? options->max_active : MAX_ACTIVE;
    g->waiting_end = &g->waiting;
    g->angles.half = policy->model->heads.dim / 2;
    *generator = g;
    return REIN_OK;
}

static void free_request(rein_generator_request *r) {
    if (!r) return;
    for (size_t i = 0; r->stops && i < r->r.sampling.n_stops; i++) free(r->stops[i]);
    free(r->stops);
    free(r->prompt);
    free(r->end_ids);
    free(r->keys);
    free(r);
}

/* Frees a sample and its blocks, and with the last sample of a request the request and the blocks of its prompt. */
static void close_sample(rein_generator *g, rein_generator_sample *s) {
    rein_generator_request *r = s->of;
    if (s->n_keys > r->n_keys) give_blocks(g, s->keys + r->n_keys, s->n_keys - r->n_keys);
    free(s->keys);
    rein_growing_close(&s->text);
    if (--r->left) return;
    give_blocks(g, r->keys, r->n_keys);
    free_request(r);
}

void rein_generator_close(rein_generator *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_samples; i++) close_sample(g, &g->samples[i]);
    for (rein_generator_request *r = g->waiting, *next; r; r = next) {
        next = r->next;
        give_blocks(g, r->keys, r->n_keys);
        free_request(r);
    }
    free(g->samples);
    free(g->events);
    free(g->tops);
    free(g->angles.cosine);
    free(g->angles.sine);
    rein_arena_free(&g->arena);
    rein_key_store_close(g->store, g->policy.model, !g->failed);
    free(g);
}

/* ----------------------------------------------------------------------------------------------------------------------- requests */

static rein_status check_sampling(const rein_sampling *s, int64_t vocabulary, int has_tokenizer, rein_error *err) {
    if (s->top_k < 0) return rein_fail_at(err, REIN_EINVAL, "top_k", -1, "is %lld: 0 (all) or more", (long long)s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return rein_fail_at(err, REIN_EINVAL, "top_p", -1, "is %g: above 0, at most 1 (all)", s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1))
        return rein_fail_at(err, REIN_EINVAL, "min_p", -1, "is %g: 0 (all) or more, below 1", s->min_p);
    if (s->greedy && rein_truncates(s))
        return rein_fail_at(err, REIN_EINVAL, "greedy", -1, "with top_k, top_p or min_p: they would have no effect");
    if (s->max_tokens == 0) return rein_fail_at(err, REIN_EINVAL, "max_tokens", -1, "is 0: 1 or more");
    if (s->top_log_probs > (size_t)vocabulary)
        return rein_fail_at(err, REIN_EINVAL, "top_log_probs", -1, "is %zu: the model has %lld tokens", s->top_log_probs,
                            (long long)vocabulary);
    for (size_t i = 0; i < s->n_end_ids; i++)
        if (s->end_ids[i] < 0 || s->end_ids[i] >= vocabulary)
            return rein_fail_at(err, REIN_EINVAL, "end_ids", (int64_t)i, "is %d: the model's vocabulary is 0 to %lld",
                                s->end_ids[i], (long long)vocabulary - 1);
    for (size_t i = 0; i < s->n_stops; i++)
        if (!*s->stops[i]) return rein_fail_at(err, REIN_EINVAL, "stops", (int64_t)i, "is empty: it would stop every completion");
    if (s->n_stops && !has_tokenizer)
        return rein_fail_at(err, REIN_EINVAL, "stops", -1, "are texts: the generator needs a tokenizer for them");
    return REIN_OK;
}

static rein_status check_request(const rein_generator *g, const rein_request *r, rein_error *err) {
    const rein_model_config *c = &g->policy.model->config;
    if (r->n_prompt == 0) return rein_fail_at(err, REIN_EINVAL, "prompt", -1, "is empty: at least a begin token is needed");
    if (r->samples == 0 || r->samples > MAX_SAMPLES)
        return rein_fail_at(err, REIN_EINVAL, "samples", -1, "is %zu: 1 to %d", r->samples, MAX_SAMPLES);
    if (r->n_prompt >= (size_t)c->max_positions)
        return rein_fail_at(err, REIN_EINVAL, "prompt", -1,
                            "has %zu tokens: the model has %lld positions, which leaves no room for a completion", r->n_prompt,
                            (long long)c->max_positions);
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= c->vocab_size)
            return rein_fail_at(err, REIN_EINVAL, "prompt", (int64_t)i, "is %d: the model's vocabulary is 0 to %lld", r->prompt[i],
                                (long long)c->vocab_size - 1);
    return check_sampling(&r->sampling, c->vocab_size, g->tokenizer != NULL, err);
}

static void *copy(const void *from, size_t bytes) {
    void *to = malloc(bytes ? bytes : 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static rein_generator_request *copy_request(const rein_request *from) {
    const rein_sampling *s = &from->sampling;
    rein_generator_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->r = *from;
    r->left = from->samples;
    r->prompt = copy(from->prompt, from->n_prompt * sizeof *r->prompt);
    r->end_ids = copy(s->end_ids, s->n_end_ids * sizeof *r->end_ids);
    r->stops = calloc(s->n_stops ? s->n_stops : 1, sizeof *r->stops);
    int whole = r->prompt && r->end_ids && r->stops;
    for (size_t i = 0; whole && i < s->n_stops; i++) whole = (r->stops[i] = copy(s->stops[i], strlen(s->stops[i]) + 1)) != NULL;
    if (whole) return r;
    free_request(r);
    return NULL;
}

rein_status rein_generator_add(size_t *number, rein_generator *g, const rein_request *from, rein_error *err) {
    if (g->failed) return rein_fail(err, REIN_EINVAL, "the generator failed in an earlier step: it can only be closed");
    const rein_status status = check_request(g, from, err);
    if (status) return status;
    rein_generator_request *r = copy_request(from);
    if (!r) return rein_fail(err, REIN_ENOMEM, "no memory for a request");
    *number = r->number = g->n_requests++;
    *g->waiting_end = r;
    g->waiting_end = &r->next;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------ samples */

void rein_generator_remove_finished(rein_generator *g) {
    size_t kept = 0;
    for (size_t i = 0; i < g->n_samples; i++) {
        if (g->samples[i].finished) close_sample(g, &g->samples[i]);
        else g->samples[kept++] = g->samples[i];
    }
    g->n_samples = kept;
}

static int take_prompt_keys(rein_generator *g, rein_generator_request *r) {
    const size_t blocks = (r->r.n_prompt + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK;
    r->keys = calloc(blocks, sizeof *r->keys);
    while (r->keys && r->n_keys < blocks) {
        const size_t left = r->r.n_prompt - r->n_keys * REIN_KEY_BLOCK;
        float *block = rein_key_store_take(g->store);
        if (!block) return 0;
        r->keys[r->n_keys++] = (rein_keys){block, left < REIN_KEY_BLOCK ? left : REIN_KEY_BLOCK};
    }
    return r->keys != NULL;
}

static int begin_sample(rein_generator *g, rein_generator_request *r, size_t index, rein_error *err) {
    rein_generator_sample *s = &g->samples[g->n_samples];
    *s = (rein_generator_sample){.of = r, .index = index, .n_keys = r->n_keys, .capacity = r->n_keys + 4};
    s->keys = malloc(s->capacity * sizeof *s->keys);
    if (!s->keys || rein_growing_open(&s->text, g->tokenizer, err)) {
        free(s->keys);
        return 0;
    }
    memcpy(s->keys, r->keys, r->n_keys * sizeof *s->keys);
    g->n_samples++;
    return 1;
}

/* Begins all samples of a request, after those that are running. */
static int begin_request(rein_generator *g, rein_generator_request *r, rein_error *err) {
    r->activation_key = rein_activation_cache_begin(g->cache, &g->policy, r->r.n_prompt, r->r.samples);
    if (g->n_samples + r->r.samples > g->samples_capacity) {
        rein_generator_sample *samples = realloc(g->samples, (g->n_samples + r->r.samples) * sizeof *samples);
        if (!samples) return 0;
        g->samples = samples, g->samples_capacity = g->n_samples + r->r.samples;
    }
    if (!take_prompt_keys(g, r)) return 0;
    for (size_t k = 0; k < r->r.samples; k++)
        if (!begin_sample(g, r, k, err)) {
            r->left = k; /* those that were started are closed one by one */
            return 0;
        }
    return 1;
}

rein_status rein_generator_admit(rein_generator *g, rein_error *err) {
    for (size_t rows = 0; g->waiting; rows += g->samples[g->n_samples - 1].of->r.n_prompt) {
        rein_generator_request *r = g->waiting;
        if (g->n_samples && (g->n_samples + r->r.samples > g->max_active || rows + r->r.n_prompt > MAX_PROMPT_ROWS)) break;
        const int started = begin_request(g, r, err), owned = started || (r->left > 0 && r->left < r->r.samples);
        if (owned) g->waiting = r->next; /* owned by its samples; else it still waits, and is freed with the generator */
        if (!g->waiting) g->waiting_end = &g->waiting;
        if (!started) return rein_fail(err, REIN_ENOMEM, "no memory for the samples of a request");
    }
    return REIN_OK;
}

int rein_generator_reserve_key(rein_generator *g, rein_generator_sample *s) {
    if (s->n_keys > s->of->n_keys && s->keys[s->n_keys - 1].count < REIN_KEY_BLOCK) return 1;
    if (s->n_keys == s->capacity) {
        const size_t capacity = 2 * s->capacity;
        rein_keys *keys = realloc(s->keys, capacity * sizeof *keys);
        if (!keys) return 0;
        s->keys = keys, s->capacity = capacity;
    }
    float *block = rein_key_store_take(g->store);
    if (!block) return 0;
    s->keys[s->n_keys++] = (rein_keys){block, 0};
    return 1;
}
