/* generator_prefix.c - what a generator puts into its prefix cache and takes from it. A block belongs either to a request or to the cache:
 * when the cache takes one, the request still reads it, and holds its node. */
#include <stdlib.h>

#include "generator.h"

rein_prefix_match rein_generator_find_prefix(rein_generator *g, rein_generator_request *r) {
    if (!g->prefixes.max_bytes || r->r.prompt_log_probs) return (rein_prefix_match){0};
    /* The last token of the prompt is always computed: its row predicts the first token of the completion. */
    const rein_prefix_match match = rein_prefix_find(&g->prefixes, &r->policy, r->prompt, r->r.n_prompt - 1);
    if (match.node) rein_prefix_hold(match.node);
    r->prefix = match.node;
    return match;
}

/* Replaces *held by its child with these tokens. *taken: the parts that the cache took. 0: the cache has no room, and *held stays, because the
 * request may read blocks that the cache took before. */
static int share(int *taken, rein_generator *g, rein_prefix **held, const int32_t *ids, const rein_keys *keys) {
    rein_prefix *child = rein_prefix_add(taken, &g->prefixes, *held, ids, keys);
    if (!child) return 0;
    rein_prefix_hold(child);
    rein_prefix_drop(*held);
    *held = child;
    return 1;
}

void rein_generator_share_prompt(rein_generator *g, rein_generator_request *r) {
    size_t position = r->shared;
    if (!r->prefix) return;
    for (size_t i = r->n_shared; i < r->n_keys; position += r->keys[i++].count) {
        int taken;
        if (!share(&taken, g, &r->prefix, r->prompt + position, &r->keys[i])) {
            r->unshared = 1;
            return;
        }
        const size_t bytes = rein_key_bytes(g, taken >> REIN_KEYS_ALL & 1, taken >> REIN_KEYS_WINDOW & 1);
        r->owned[i] &= (unsigned char)~taken;
        r->promised -= bytes, g->promised -= bytes;
    }
}

void rein_generator_share_sample(rein_generator *g, rein_generator_sample *s) {
    rein_prefix *held = s->of->prefix;
    size_t position = 0;
    if (!held || s->of->unshared || !s->ids) return; /* a part of the prompt is missing before it */
    rein_prefix_hold(held);
    for (size_t i = s->of->n_keys; i < s->n_keys; position += s->keys[i++].count) {
        int taken;
        if (!share(&taken, g, &held, s->ids + position, &s->keys[i])) break;
        for (int part = 0; part < REIN_KEY_PARTS; part++)
            if (taken >> part & 1) s->keys[i].data[part] = NULL; /* no longer the sample's */
    }
    rein_prefix_drop(held);
}

int rein_generator_note_token(const rein_generator *g, rein_generator_sample *s, int32_t id) {
    if (!g->prefixes.max_bytes) return 1;
    if (s->n == s->ids_capacity) {
        const size_t capacity = s->n ? 2 * s->n : 64;
        int32_t *ids = realloc(s->ids, capacity * sizeof *ids);
        if (!ids) return 0;
        s->ids = ids, s->ids_capacity = capacity;
    }
    s->ids[s->n] = id;
    return 1;
}
