/* generator.c - the requests of a generator: they are checked and copied, wait, and end by themselves, by a failure or by the caller. */
#include "generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "choose.h"

enum { MAX_SAMPLES = 1 << 20 };

rein_sampling rein_sampling_plain(void) { return (rein_sampling){.top_p = 1, .max_tokens = 256}; }

/* ------------------------------------------------------------------------------------------------------------- open and close */

static int has_windows(const rein_generator *g) { return g->store->parts[REIN_KEYS_WINDOW].floats != 0; }

rein_status rein_generator_open(rein_generator **generator, const rein_policy *policy, const rein_tokenizer *tokenizer,
                                const rein_generator_options *options, rein_error *err) {
    const rein_generator_options o = options ? *options : (rein_generator_options){0};
    rein_exec exec;
    *generator = NULL;
    rein_status status = rein_policy_check(policy, err);
    if (!status) status = rein_policy_check_head(policy, err);
    if (!status && o.prefix_cache && o.activation_cache)
        status = rein_fail_at(err, REIN_EINVAL, "prefix_cache", -1,
                              "is set together with an activation cache, which needs prompts to be computed");
    if (!status) status = rein_exec_resolve(&exec, &o.exec, REIN_SERIAL, err);
    if (status) return status;
    rein_generator *g = calloc(1, sizeof *g);
    if (g) g->store = rein_key_store_open(policy->model, !o.memory);
    if (!g || !g->store) {
        free(g);
        return rein_fail(err, REIN_ENOMEM, "no memory for a generator");
    }
    g->policy = *policy, g->tokenizer = tokenizer, g->exec = exec;
    g->cache = o.activation_cache, g->memory = o.memory;
    g->max_active = o.max_active ? o.max_active : REIN_MAX_ACTIVE;
    g->max_prompt_tokens = o.max_prompt_tokens ? o.max_prompt_tokens : REIN_MAX_PROMPT_TOKENS;
    g->beside = g->max_prompt_tokens;
    g->waiting_end = &g->waiting;
    for (int r = 0; r < REIN_ROPES; r++) g->angles[r] = rein_angles_of(policy->model, r);
    g->prefixes = (rein_prefix_cache){.store = g->store, .window = (size_t)policy->model->config.window};
    if (o.prefix_cache >= rein_key_bytes(g, 1, 1)) g->prefixes.max_bytes = o.prefix_cache;
    g->window = has_windows(g) ? g->prefixes.window + (g->prefixes.max_bytes ? REIN_KEY_BLOCK : 0) : SIZE_MAX / 2;
    status = g->memory ? rein_generator_charge_step(g, err) : REIN_OK;
    if (status) rein_generator_close(g);
    else *generator = g;
    return status;
}

rein_status rein_generator_take_turns(rein_generator *g, size_t reserved, size_t beside, rein_error *err) {
    if (!reserved || reserved >= g->max_active)
        return rein_fail_at(err, REIN_EINVAL, "reserved", -1, "is %zu: it must be 1 or more, and less than max_active (%zu)",
                            reserved, g->max_active);
    if (!beside || beside > g->max_prompt_tokens)
        return rein_fail_at(err, REIN_EINVAL, "beside", -1, "is %zu: it must be between 1 and max_prompt_tokens (%zu)", beside,
                            g->max_prompt_tokens);
    if (g->n_requests) return rein_fail(err, REIN_EINVAL, "the generator has requests already");
    g->reserved = reserved, g->beside = beside;
    return REIN_OK;
}

static void free_request(rein_generator_request *r) {
    if (!r) return;
    for (size_t i = 0; r->stops && i < r->r.sampling.n_stops; i++) free(r->stops[i]);
    free(r->stops);
    free(r->prompt);
    free(r->end_ids);
    free(r->keys);
    free(r->owned);
    free(r->last);
    free(r->log_probs);
    free(r->top);
    free(r);
}

void rein_generator_close(rein_generator *g) {
    if (!g) return;
    rein_generator_remove(g, NULL);
    while (g->n_samples) rein_generator_end(g, g->samples[0].of);
    while (g->waiting) rein_generator_end(g, g->waiting);
    while (g->failures) rein_generator_failed(&(size_t){0}, g, NULL);
    rein_prefix_close(&g->prefixes);
    free(g->samples);
    free(g->events);
    free(g->tops);
    for (int r = 0; r < REIN_ROPES; r++) free(g->angles[r].cosine), free(g->angles[r].sine);
    rein_arena_free(&g->arena);
    rein_memory_give(g->memory, g->step_bytes + g->charged);
    rein_key_store_close(g->store, g->policy.model, !g->memory);
    free(g);
}

/* ----------------------------------------------------------------------------------------------------------------------- requests */

static rein_status check_sampling(const rein_sampling *s, int64_t vocabulary, int has_tokenizer, rein_error *err) {
    if (s->top_k < 0)
        return rein_fail_at(err, REIN_EINVAL, "top_k", -1, "is %lld: it must be 0 (all) or more", (long long)s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return rein_fail_at(err, REIN_EINVAL, "top_p", -1, "is %g: it must be above 0 and at most 1 (all)", s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1))
        return rein_fail_at(err, REIN_EINVAL, "min_p", -1, "is %g: it must be 0 (all) or more, and below 1", s->min_p);
    if (s->greedy && rein_truncates(s))
        return rein_fail_at(err, REIN_EINVAL, "greedy", -1,
                            "takes the most probable token: top_k, top_p and min_p would have no effect");
    if (s->max_tokens == 0) return rein_fail_at(err, REIN_EINVAL, "max_tokens", -1, "is 0: it must be 1 or more");
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

static rein_status check_address(const rein_address *a, rein_error *err) {
    if (a->purpose != REIN_PURPOSE_TRAINING && a->purpose != REIN_PURPOSE_EVALUATION)
        return rein_fail_at(err, REIN_EINVAL, "address.purpose", -1, "is %d: 0 (training) or 1 (evaluation)", (int)a->purpose);
    if (a->purpose == REIN_PURPOSE_EVALUATION && a->step)
        return rein_fail_at(err, REIN_EINVAL, "address.step", -1, "is %llu: it would have no effect in an evaluation",
                            (unsigned long long)a->step);
    return REIN_OK;
}

static rein_status check_policy(const rein_generator *g, const rein_policy *p, rein_error *err) {
    if (!p) return REIN_OK;
    rein_status status = rein_policy_check(p, err);
    if (!status) status = rein_policy_check_head(p, err);
    if (status) return status;
    if (p->model != g->policy.model) return rein_fail_at(err, REIN_EINVAL, "policy.model", -1, "is not the generator's model");
    if (g->cache && (p->adapter != g->policy.adapter || p->temperature != g->policy.temperature))
        return rein_fail_at(err, REIN_EINVAL, "policy", -1,
                            "differs from the generator's, whose activations are cached for training");
    return REIN_OK;
}

static rein_status check_request(const rein_generator *g, const rein_request *r, rein_error *err) {
    const rein_model_config *c = &g->policy.model->config;
    if (r->n_prompt == 0) return rein_fail_at(err, REIN_EINVAL, "prompt", -1, "is empty: at least a begin token is needed");
    if (r->samples == 0 || r->samples > MAX_SAMPLES)
        return rein_fail_at(err, REIN_EINVAL, "samples", -1, "is %zu: it must be between 1 and %d", r->samples, MAX_SAMPLES);
    if (r->n_prompt >= (size_t)c->max_positions)
        return rein_fail_at(err, REIN_EINVAL, "prompt", -1,
                            "has %zu tokens: the model has %lld positions, which leaves no room for a completion", r->n_prompt,
                            (long long)c->max_positions);
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= c->vocab_size)
            return rein_fail_at(err, REIN_EINVAL, "prompt", (int64_t)i, "is %d: the model's vocabulary is 0 to %lld", r->prompt[i],
                                (long long)c->vocab_size - 1);
    rein_status status = check_address(&r->address, err);
    if (!status) status = check_policy(g, r->policy, err);
    return status ? status : check_sampling(&r->sampling, c->vocab_size, g->tokenizer != NULL, err);
}

static void *copy(const void *from, size_t bytes) {
    void *to = malloc(bytes ? bytes : 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

/* Room for the log-probs of the prompt; 0: there is no memory. */
static int take_log_probs(rein_generator_request *r) {
    if (!r->r.prompt_log_probs) return 1;
    const size_t n = r->r.n_prompt, top = r->r.sampling.top_log_probs;
    r->log_probs = malloc(n * sizeof *r->log_probs);
    if (top) r->top = calloc(n * top, sizeof *r->top);
    if (r->log_probs) r->log_probs[0] = NAN;
    return r->log_probs && (r->top || !top);
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
    if (whole && take_log_probs(r)) return r;
    free_request(r);
    return NULL;
}

/* The longest sample of the request, alone in the generator, must fit. */
static rein_status check_memory(const rein_generator *g, const rein_request *r, rein_error *err) {
    if (!g->memory) return REIN_OK;
    const size_t room = rein_memory_limit(g->memory) - g->step_bytes;
    const size_t bytes = rein_prompt_bytes(g, r->n_prompt) + rein_sample_bytes(g, r);
    if (bytes <= room) return REIN_OK;
    return rein_fail_at(err, REIN_ENOMEM, "max_tokens", -1,
                        "is %zu: with a prompt of %zu tokens the keys of a sample may need %zu bytes, and there are at most %zu",
                        r->sampling.max_tokens, r->n_prompt, bytes, room);
}

rein_status rein_generator_add(size_t *number, rein_generator *g, const rein_request *from, rein_error *err) {
    rein_status status = check_request(g, from, err);
    if (!status) status = check_memory(g, from, err);
    if (status) return status;
    rein_generator_request *r = copy_request(from);
    if (!r) return rein_fail(err, REIN_ENOMEM, "no memory for a request");
    r->policy = from->policy ? *from->policy : g->policy;
    *g->waiting_end = r;
    g->waiting_end = &r->next;
    *number = r->number = g->n_requests++;
    g->unfinished++;
    return REIN_OK;
}

size_t rein_generator_unfinished(const rein_generator *g) { return g->unfinished; }

/* ---------------------------------------------------------------------------------------------------------------------------- ends */

void rein_generator_take_out(rein_generator *g, const rein_generator_request *r) {
    rein_generator_request **at = &g->waiting;
    while (*at && *at != r) at = &(*at)->next;
    if (*at && !(*at = r->next)) g->waiting_end = at;
    at = &g->stepping;
    while (*at && *at != r) at = &(*at)->step_next;
    if (*at) *at = r->step_next;
}

/* A prompt that is not complete may have keys that are not finite, and no logits have shown it yet. */
static int is_spoiled(const rein_generator_request *r) { return r->error.code == REIN_ERANGE || r->computed < r->r.n_prompt; }

void rein_generator_release(rein_generator *g, rein_generator_request *r) {
    for (size_t i = 0; i < r->n_keys; i++)
        for (int part = 0; part < REIN_KEY_PARTS; part++) rein_generator_drop_part(g, r, i, (rein_key_part)part, is_spoiled(r));
    g->promised -= r->promised;
    rein_prefix_drop(r->prefix);
    if (!r->error.code) {
        free_request(r);
        return;
    }
    rein_generator_request **end = &g->failures;
    while (*end) end = &(*end)->next;
    *end = r;
    r->next = NULL;
}

void rein_generator_end(rein_generator *g, rein_generator_request *r) {
    g->unfinished -= r->left > 0;
    rein_generator_take_out(g, r);
    rein_generator_remove(g, r);
    rein_activation_cache_drop(g->cache, r->activation_key);
    rein_generator_release(g, r);
}

void rein_generator_cancel(rein_generator *g, size_t number) {
    rein_generator_request *r = g->waiting;
    while (r && r->number != number) r = r->next;
    for (size_t i = 0; i < g->n_samples && !r; i++)
        if (g->samples[i].of->number == number && !g->samples[i].finished) r = g->samples[i].of;
    if (r) rein_generator_end(g, r);
}

rein_status rein_generator_failed(size_t *number, rein_generator *g, rein_error *err) {
    rein_generator_request *r = g->failures;
    if (!r) return REIN_OK;
    const rein_status status = r->error.code;
    g->failures = r->next;
    *number = r->number;
    if (err) *err = r->error;
    free_request(r);
    return status;
}
