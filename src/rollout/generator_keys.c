/* generator_keys.c - the memory of the keys of a generator. Keys and values are stored in blocks of 64 positions; the samples of a request
 * share those of its prompt.
 *
 * A block has two parts (key_store.h). That of layers without a window stays for as long as the request or sample does. That of layers with
 * a window is taken when its first position is computed, and given back when it is behind the window of the next position: of a sample only
 * its window is stored, of a prompt its pieces (max_prompt_tokens) with the window before them, and then the window before its end.
 *
 * With a prefix cache one block more is kept, because a conversation is often continued a few tokens before its end; and the window before
 * the place where a prompt leaves a prefix that the cache knows only without these keys: the next prompt that leaves it there finds them.
 *
 * With a ceiling of memory the bytes that a request, and each of its samples, may come to need are promised before it begins. */
#include <stdlib.h>
#include <string.h>

#include "generator.h"

static size_t blocks_of(size_t tokens) { return (tokens + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* ----------------------------------------------------------------------------------------------------------------------- bytes */

size_t rein_key_bytes(const rein_generator *g, size_t all, size_t window) {
    return all * rein_key_store_bytes(g->store, REIN_KEYS_ALL) + window * rein_key_store_bytes(g->store, REIN_KEYS_WINDOW);
}

/* The first position whose keys in layers with a window are kept while `position` is the next to be computed. */
static size_t kept_from(const rein_generator *g, size_t position) {
    return position + 1 > g->window ? position + 1 - g->window : 0;
}

size_t rein_prompt_bytes(const rein_generator *g, size_t tokens) {
    const size_t blocks = blocks_of(tokens), piece = rein_key_blocks_touched(g->window + g->max_prompt_tokens);
    return rein_key_bytes(g, blocks, least(blocks, piece + (g->prefixes.max_bytes ? rein_key_blocks_touched(g->window) : 0)));
}

size_t rein_sample_bytes(const rein_generator *g, const rein_request *r) {
    const size_t room = (size_t)g->policy.model->config.max_positions - r->n_prompt;
    const size_t blocks = blocks_of(least(r->sampling.max_tokens, room));
    return rein_key_bytes(g, blocks, least(blocks, rein_key_blocks_touched(g->window)));
}

int rein_generator_promise(rein_generator *g, size_t bytes) {
    for (;;) {
        const size_t all = g->promised + g->prefixes.bytes + bytes;
        if (!g->memory || all <= g->charged) break;
        if (rein_memory_take(g->memory, all - g->charged)) g->charged = all;
        else if (!rein_prefix_evict(&g->prefixes)) return 0;
    }
    g->promised += bytes;
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------------------- prompts */

/* Lists the blocks that the prefix cache has, in the order of the positions. */
static void list_shared(rein_generator_request *r) {
    const rein_prefix *node = r->prefix;
    r->n_keys = r->n_shared;
    for (size_t i = r->n_shared; i > 0; node = node->parent) {
        r->keys[--i] = node->keys;
        r->shared += node->keys.count;
    }
}

static int take_part(rein_generator *g, rein_generator_request *r, size_t block, rein_key_part part) {
    if (!rein_key_store_take(&r->keys[block].data[part], g->store, part)) return 0;
    if (r->keys[block].data[part]) r->owned[block] |= (unsigned char)(1 << part);
    return 1;
}

/* Copies the keys of a block of the prefix cache of which the first tokens match. */
static int copy_partial(rein_generator *g, rein_generator_request *r, const rein_prefix *partial) {
    rein_keys *keys = &r->keys[r->n_shared];
    if (!take_part(g, r, r->n_shared, REIN_KEYS_WINDOW)) return 0;
    for (int part = 0; part < REIN_KEY_PARTS; part++)
        if (keys->data[part])
            memcpy(keys->data[part], partial->keys.data[part], rein_key_store_bytes(g->store, (rein_key_part)part));
    return 1;
}

int rein_generator_take_prompt(rein_generator *g, rein_generator_request *r, const rein_prefix_match *match) {
    const size_t own = blocks_of(r->r.n_prompt - match->tokens);
    for (const rein_prefix *node = r->prefix; node && node->parent; node = node->parent) r->n_shared++;
    r->keys = calloc(r->n_shared + own, sizeof *r->keys);
    r->owned = calloc(r->n_shared + own, 1);
    if (!r->keys || !r->owned) return 0;
    list_shared(r);
    for (size_t at = r->shared; at < r->r.n_prompt; at += REIN_KEY_BLOCK) {
        r->keys[r->n_keys++] = (rein_keys){.count = least(r->r.n_prompt - at, REIN_KEY_BLOCK)};
        if (!take_part(g, r, r->n_keys - 1, REIN_KEYS_ALL)) return 0;
    }
    r->cached = r->computed = r->shared + match->partial_tokens;
    r->known = match->known > r->computed ? match->known : 0;
    return !match->partial || copy_partial(g, r, match->partial);
}

/* Bytes of its blocks that are not in the prefix cache. */
static size_t owned_bytes(const rein_generator *g, const rein_generator_request *r) {
    size_t parts[REIN_KEY_PARTS] = {0};
    for (size_t i = r->n_shared; i < r->n_keys; i++)
        for (int part = 0; part < REIN_KEY_PARTS; part++) parts[part] += r->owned[i] >> part & 1;
    return rein_key_bytes(g, parts[REIN_KEYS_ALL], parts[REIN_KEYS_WINDOW]);
}

size_t rein_generator_held_bytes(const rein_generator *g, const rein_generator_request *r) {
    size_t parts[REIN_KEY_PARTS] = {0}; /* of the prefix cache */
    for (size_t i = 0; i < r->n_keys; i++)
        for (int part = 0; part < REIN_KEY_PARTS; part++)
            parts[part] += r->keys[i].data[part] != NULL && !(r->owned[i] >> part & 1);
    return rein_key_bytes(g, parts[REIN_KEYS_ALL], parts[REIN_KEYS_WINDOW]) + r->promised;
}

void rein_generator_drop_part(rein_generator *g, rein_generator_request *r, size_t block, rein_key_part part, int spoiled) {
    if (!(r->owned[block] >> part & 1)) return;
    rein_key_store_give(g->store, part, r->keys[block].data[part], spoiled);
    r->keys[block].data[part] = NULL;
    r->owned[block] &= (unsigned char)~(1 << part);
}

void rein_generator_trim_prompt(rein_generator *g, rein_generator_request *r) {
    const size_t from = kept_from(g, r->computed), known_from = kept_from(g, r->known);
    const int complete = r->computed == r->r.n_prompt; /* else no log-probability has shown yet that its keys are finite */
    for (size_t i = r->n_shared, at = r->shared; i < r->n_keys; at += r->keys[i++].count)
        if (at + r->keys[i].count <= from && (at >= r->known || at + r->keys[i].count <= known_from))
            rein_generator_drop_part(g, r, i, REIN_KEYS_WINDOW, !complete);
    if (!complete) return;
    const size_t held = owned_bytes(g, r);
    g->promised -= r->promised - held;
    r->promised = held;
}

/* Takes the window parts of the blocks that the next piece of a prompt fills. */
static int reserve_piece(rein_generator *g, rein_generator_request *r) {
    const size_t first = (r->computed - r->shared) / REIN_KEY_BLOCK, end = blocks_of(r->computed + r->piece - r->shared);
    if (!r->piece) return 1;
    rein_generator_trim_prompt(g, r);
    for (size_t i = r->n_shared + first; i < r->n_shared + end; i++)
        if (!r->keys[i].data[REIN_KEYS_WINDOW] && !take_part(g, r, i, REIN_KEYS_WINDOW)) return 0;
    return 1;
}

/* ---------------------------------------------------------------------------------------------------------------------- samples */

/* Gives back what is behind the window of the next position. */
static void trim_sample(rein_generator *g, rein_generator_sample *s) {
    const size_t position = s->of->r.n_prompt + s->n - 1, from = kept_from(g, position);
    while (s->behind + 1 < s->n_keys && s->of->r.n_prompt + (s->behind + 1 - s->of->n_keys) * REIN_KEY_BLOCK <= from) {
        rein_keys *keys = &s->keys[s->behind++];
        rein_key_store_give(g->store, REIN_KEYS_WINDOW, keys->data[REIN_KEYS_WINDOW], 0);
        keys->data[REIN_KEYS_WINDOW] = NULL;
    }
}

static int reserve_key(rein_generator *g, rein_generator_sample *s) {
    if (s->n == 1) memcpy(s->keys, s->of->keys, s->of->n_keys * sizeof *s->keys); /* not earlier: the prompt is complete now */
    trim_sample(g, s);
    if (s->n_keys > s->of->n_keys && s->keys[s->n_keys - 1].count < REIN_KEY_BLOCK) return 1;
    if (s->n_keys == s->capacity) {
        const size_t capacity = 2 * s->capacity;
        rein_keys *keys = realloc(s->keys, capacity * sizeof *keys);
        if (!keys) return 0;
        s->keys = keys, s->capacity = capacity;
    }
    rein_keys *keys = &s->keys[s->n_keys++];
    *keys = (rein_keys){0};
    return rein_key_store_take(&keys->data[REIN_KEYS_ALL], g->store, REIN_KEYS_ALL) &&
           rein_key_store_take(&keys->data[REIN_KEYS_WINDOW], g->store, REIN_KEYS_WINDOW);
}

static void fail_request(rein_generator *g, rein_generator_request *r) {
    rein_fail(&r->error, REIN_ENOMEM, "no memory for the keys and samples of request %zu", r->number);
    rein_generator_end(g, r);
}

void rein_generator_reserve_keys(rein_generator *g) {
    for (rein_generator_request *r = g->stepping, *next; r; r = next) {
        next = r->step_next;
        if (!reserve_piece(g, r)) fail_request(g, r);
    }
    for (size_t i = 0; i < g->n_samples;) {
        rein_generator_sample *s = &g->samples[i];
        if (s->n == 0 || reserve_key(g, s)) i++;
        else fail_request(g, s->of), i = 0;
    }
}
