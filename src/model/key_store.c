/* key_store.c - takes blocks from an arena and keeps lists of free ones. */
#include "key_store.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 1 << 30 }; /* bytes that stay with a model that has no generator */

size_t rein_key_part_floats(const rein_model_config *c, const rein_heads *heads, rein_key_part part) {
    size_t layers = 0;
    for (int64_t l = 0; l < c->n_layers; l++)
        layers += (c->layers[l] & REIN_LAYER_WINDOW ? REIN_KEYS_WINDOW : REIN_KEYS_ALL) == part;
    return layers * rein_key_block_floats(heads);
}

static void destroy(rein_key_store *store) {
    if (!store) return;
    rein_arena_free(&store->arena);
    for (int p = 0; p < REIN_KEY_PARTS; p++) free(store->parts[p].free);
    free(store);
}

rein_key_store *rein_key_store_open(const rein_model *model, int kept) {
    rein_key_store *store = kept ? atomic_exchange(&model->spare->keys, NULL) : NULL;
    if (store) return store;
    store = calloc(1, sizeof *store);
    for (int p = 0; store && p < REIN_KEY_PARTS; p++)
        store->parts[p].floats = rein_key_part_floats(&model->config, &model->heads, (rein_key_part)p);
    return store;
}

/* The list of free blocks has room for all blocks, so giving one back cannot fail. */
int rein_key_store_take(float **block, rein_key_store *s, rein_key_part part) {
    rein_key_parts *p = &s->parts[part];
    *block = NULL;
    if (!p->floats) return 1;
    if (p->n_free) return *block = p->free[--p->n_free], 1;
    if (p->blocks == p->capacity) {
        const size_t capacity = p->capacity ? 2 * p->capacity : 64;
        float **list = realloc(p->free, capacity * sizeof *list);
        if (!list) return 0;
        p->free = list, p->capacity = capacity;
    }
    *block = rein_arena_floats(&s->arena, p->floats); /* fresh pages: zeros, so that no slot holds a NaN */
    p->blocks += *block != NULL;
    return *block != NULL;
}

void rein_key_store_give(rein_key_store *s, rein_key_part part, float *block, int spoiled) {
    rein_key_parts *p = &s->parts[part];
    if (!block) return;
    if (spoiled) memset(block, 0, p->floats * sizeof *block);
    p->free[p->n_free++] = block;
}

void rein_key_store_close(rein_key_store *store, const rein_model *model, int keep) {
    size_t floats = 0;
    for (int p = 0; store && p < REIN_KEY_PARTS; p++) floats += store->parts[p].blocks * store->parts[p].floats;
    if (store && keep && floats <= MAX_KEPT / sizeof(float)) store = atomic_exchange(&model->spare->keys, store);
    destroy(store);
}
