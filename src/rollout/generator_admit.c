/* generator_admit.c - the samples of a generator, and when they begin.
 *
 * Requests are served in the order in which they were added: all samples of one, then those of the next. With `reserved` places they take
 * turns: each that waits begins one sample, goes to the end of the list, and a request without a sample at work has places that others may
 * not take. At most one prompt is computed in part.
 *
 * With a ceiling of memory a request begins, and then each of its samples, when all the keys that it may come to need are charged: what
 * has begun can finish. Of requests that take turns several may hold the keys of their prompts; a sample of each must have room beside them.
 */
#include <stdlib.h>
#include <string.h>

#include "generator.h"

/* ------------------------------------------------------------------------------------------------------------------------- samples */

static void close_sample(rein_generator *g, rein_generator_sample *s) {
    rein_generator_request *r = s->of;
    r->open--;
    if (s->finished && !r->error.code) rein_generator_share_sample(g, s);
    for (size_t i = r->n_keys; i < s->n_keys; i++)
        for (int part = 0; part < REIN_KEY_PARTS; part++)
            rein_key_store_give(g->store, (rein_key_part)part, s->keys[i].data[part], r->error.code == REIN_ERANGE);
    g->promised -= rein_sample_bytes(g, &r->r);
    free(s->keys);
    free(s->ids);
    rein_growing_close(&s->text);
}

void rein_generator_remove(rein_generator *g, const rein_generator_request *of) {
    size_t kept = 0;
    for (size_t i = 0; i < g->n_samples; i++) {
        rein_generator_sample *s = &g->samples[i];
        if (of ? s->of == of : s->finished) {
            close_sample(g, s);
            if (!of && !s->of->open && !s->of->left) rein_generator_release(g, s->of);
        } else g->samples[kept++] = *s;
    }
    g->n_samples = kept;
}

static void fail_request(rein_generator *g, rein_generator_request *r) {
    rein_fail(&r->error, REIN_ENOMEM, "no memory for the keys and samples of request %zu", r->number);
    rein_generator_end(g, r);
}

/* --------------------------------------------------------------------------------------------------------------------------- begin */

typedef enum admission { NEXT, LAST, FAILED } admission; /* the next request may begin too; none after this one; no memory */

static admission begin_request(rein_generator *g, rein_generator_request *r) {
    const rein_prefix_match match = rein_generator_find_prefix(g, r);
    const size_t own = rein_prompt_bytes(g, r->r.n_prompt - match.tokens);
    if (match.partial) rein_prefix_hold(match.partial); /* promising may evict others */
    const int room = rein_generator_promise(g, own);
    rein_prefix_drop(match.partial);
    if (!room) {
        rein_prefix_drop(r->prefix);
        r->prefix = NULL;
        return LAST;
    }
    r->promised = own;
    if (!rein_generator_take_prompt(g, r, &match)) return FAILED;
    r->activation_key = rein_activation_cache_begin(g->cache, &g->policy, r->r.n_prompt, r->r.samples);
    return NEXT;
}

static int reserve_samples(rein_generator *g, size_t n) {
    if (n <= g->samples_capacity) return 1;
    const size_t capacity = n > 2 * g->samples_capacity ? n : 2 * g->samples_capacity;
    rein_generator_sample *samples = realloc(g->samples, capacity * sizeof *samples);
    if (!samples) return 0;
    g->samples = samples, g->samples_capacity = capacity;
    return 1;
}

static int begin_sample(rein_generator *g, rein_generator_request *r) {
    if (!reserve_samples(g, g->n_samples + 1)) return 0;
    rein_generator_sample *s = &g->samples[g->n_samples];
    *s = (rein_generator_sample){.of = r, .index = r->begun, .n_keys = r->n_keys, .behind = r->n_keys, .capacity = r->n_keys + 4};
    s->keys = malloc(s->capacity * sizeof *s->keys);
    if (!s->keys || rein_growing_open(&s->text, g->tokenizer, NULL)) {
        free(s->keys);
        return 0;
    }
    g->n_samples++, r->begun++, r->open++, r->fresh++;
    return 1;
}

/* Samples that begin in a later step need the last row of the prompt. */
static int keep_last_row(const rein_generator *g, rein_generator_request *r) {
    if (r->last || r->begun == r->r.samples) return 1;
    r->last = malloc((size_t)g->policy.model->config.hidden_size * sizeof *r->last);
    return r->last != NULL;
}

static int has_place(const rein_generator *g, const rein_generator_request *r) {
    return g->n_samples < (r->open ? g->max_active - g->reserved : g->max_active);
}

/* 1 if the prompt will be complete after this step. */
static int is_complete(const rein_generator_request *r) { return r->keys && r->computed + r->piece == r->r.n_prompt; }

/* 1 if the prompt of r has room beside those of the others that wait, and then the longest sample among them. */
static int may_hold(const rein_generator *g, const rein_generator_request *r) {
    if (!g->memory || !g->reserved) return 1; /* one after another: the request was checked when it was added */
    size_t bytes = rein_prompt_bytes(g, r->r.n_prompt), longest = rein_sample_bytes(g, &r->r);
    for (const rein_generator_request *other = g->waiting; other; other = other->next) {
        if (!other->keys) continue;
        const size_t sample = rein_sample_bytes(g, &other->r);
        bytes += rein_generator_held_bytes(g, other);
        if (sample > longest) longest = sample;
    }
    return bytes + longest <= rein_memory_limit(g->memory) - g->step_bytes;
}

/* Begins up to `most` samples of a request whose prompt will be complete after this step. */
static admission begin_samples(rein_generator *g, rein_generator_request *r, size_t most) {
    const size_t bytes = rein_sample_bytes(g, &r->r);
    for (; most && r->begun < r->r.samples && has_place(g, r); most--) {
        if (!rein_generator_promise(g, bytes)) return LAST;
        if (begin_sample(g, r)) continue;
        g->promised -= bytes;
        return FAILED;
    }
    return NEXT;
}

/* Admits a request that waits, or a part of it. *tokens: of prompts, that this step may still compute. */
static admission admit_one(size_t *tokens, rein_generator *g, rein_generator_request *r) {
    const admission later = g->reserved ? NEXT : LAST; /* while this one waits, others may have their turn */
    if (!has_place(g, r) || (!is_complete(r) && !*tokens)) return later;
    if (!r->keys) {
        if (!may_hold(g, r)) return *tokens = 0, later; /* and no prompt begins before it */
        const admission begun = begin_request(g, r);
        if (begun != NEXT) return begun;
    }
    const size_t left = r->r.n_prompt - r->computed;
    r->piece = left < *tokens ? left : *tokens;
    *tokens -= r->piece;
    if (r->piece < left) return later;
    const admission begun = begin_samples(g, r, g->reserved ? 1 : SIZE_MAX);
    return begun == NEXT && r->begun < r->r.samples ? later : begun;
}

/* One more sample of each request, as long as there is room. Returns 0 when there is none. */
static int take_turns(rein_generator *g) {
    const size_t before = g->n_samples;
    for (rein_generator_request *r = g->waiting, *next; r; r = next) {
        next = r->next;
        const admission begun = is_complete(r) ? begin_samples(g, r, 1) : NEXT;
        if (begun == FAILED) fail_request(g, r);
        else if (begun == LAST) return 0;
    }
    return g->n_samples > before;
}

/* Samples are in the order of their requests in the list. */
static void sort_fresh(rein_generator *g) {
    for (size_t i = 1; i < g->n_samples; i++) {
        const rein_generator_sample one = g->samples[i];
        size_t at = i;
        for (; !one.n && at > 0 && !g->samples[at - 1].n && g->samples[at - 1].of->rank > one.of->rank; at--)
            g->samples[at] = g->samples[at - 1];
        g->samples[at] = one;
    }
}

/* Lists the requests of which something begins. */
static void line_up(rein_generator *g) {
    rein_generator_request **end = &g->stepping;
    size_t rank = 0;
    for (int pieces = 0; pieces < 2; pieces++)
        for (rein_generator_request *r = g->waiting; r; r = r->next)
            if (pieces ? r->piece != 0 : r->fresh && !r->piece) *end = r, end = &r->step_next, r->rank = rank++;
    *end = NULL;
    sort_fresh(g);
}

/* Those that had their turn go to the end of the list. */
static void rotate(rein_generator *g) {
    rein_generator_request *served = NULL, **served_end = &served, **at = &g->waiting;
    while (*at) {
        rein_generator_request *r = *at;
        if (r->fresh) *at = r->next, *served_end = r, served_end = &r->next;
        else at = &r->next;
    }
    *served_end = NULL;
    *at = served;
    g->waiting_end = served ? served_end : at;
}

/* The tokens of prompts that this step may compute. Beside samples at work each prompt that could begin has its share: of a burst of requests
 * all begin at nearly the same time, and their samples fill the batch together. In pieces of one share they would begin one by one, and end
 * one by one, in batches that are half empty. */
static size_t prompt_tokens(const rein_generator *g) {
    size_t tokens = 0, places = g->max_active - g->n_samples;
    if (!g->n_samples) return g->max_prompt_tokens;
    for (const rein_generator_request *r = g->waiting; r && places && tokens < g->max_prompt_tokens; r = r->next)
        if (!is_complete(r)) tokens += g->beside, places--;
    return tokens < g->max_prompt_tokens ? tokens : g->max_prompt_tokens;
}

static void admit_waiting(rein_generator *g) {
    size_t tokens = prompt_tokens(g);
    admission admitted = NEXT;
    for (rein_generator_request *r = g->waiting; r; r = r->next) r->fresh = 0;
    for (rein_generator_request *r = g->waiting, *next; r && admitted != LAST; r = next) {
        next = r->next;
        if ((admitted = admit_one(&tokens, g, r)) == FAILED) fail_request(g, r);
    }
    while (g->reserved && admitted != LAST && take_turns(g)) continue;
    for (rein_generator_request *r = g->waiting, *next; r; r = next) {
        next = r->next;
        if (is_complete(r) && !keep_last_row(g, r)) fail_request(g, r);
    }
    line_up(g);
    if (g->reserved) rotate(g);
}

/* Nothing is at work whose end would give memory back: a step may have become larger since the request was added, or others share the
 * account. */
static int is_stuck(const rein_generator *g) {
    const rein_generator_request *r = g->waiting;
    while (r && !r->piece) r = r->next;
    return g->waiting && !r && !g->n_samples;
}

static void fail_stuck(rein_generator *g, rein_generator_request *r) {
    const size_t bytes = rein_prompt_bytes(g, r->r.n_prompt) + rein_sample_bytes(g, &r->r);
    rein_fail(&r->error, REIN_ENOMEM,
              "request %zu cannot begin: the keys of a sample may need %zu bytes, and of the %zu bytes of the memory %zu are used",
              r->number, bytes, rein_memory_limit(g->memory), rein_memory_used(g->memory));
    rein_generator_end(g, r);
}

void rein_generator_admit(rein_generator *g) {
    admit_waiting(g);
    while (is_stuck(g)) fail_stuck(g, g->waiting), admit_waiting(g);
}
