/* key_store.c - takes blocks from an arena and keeps a list of free ones. */
#include "key_store.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 1 << 30 }; /* bytes that stay with a model that has no generator */

static void destroy(rein_key_store *store) {
    if (!store) return;
    rein_arena_free(&store->arena);
    free(store->free);
    free(store);
}

rein_key_store *rein_key_store_open(const rein_model *model, int kept) {
    rein_key_store *store = kept ? atomic_exchange(&model->spare->keys, NULL) : NULL;
    if (store) return store;
    store = calloc(1, sizeof *store);
    if (store) store->floats = (size_t)model->config.n_layers * rein_key_block_floats(&model->heads);
    return store;
}

/* The list of free blocks has room for all blocks, so giving one back cannot fail. */
float *rein_key_store_take(rein_key_store *s) {
    if (s->n_free) return s->free[--s->n_free];
    if (s->blocks == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 64;
        float **list = realloc(s->free, capacity * sizeof *list);
        if (!list) return NULL;
        s->free = list, s->capacity = capacity;
    }
    float *block = rein_arena_floats(&s->arena, s->floats); /* fresh pages: zeros, so that no slot holds a NaN */
    if (block) s->blocks++;
    return block;
}

void rein_key_store_give(rein_key_store *s, float *block, int spoiled) {
    if (spoiled) memset(block, 0, s->floats * sizeof *block);
    s->free[s->n_free++] = block;
}

void rein_key_store_close(rein_key_store *store, const rein_model *model, int keep) {
    const int small = store && store->blocks * store->floats <= MAX_KEPT / sizeof(float);
    if (small && keep) store = atomic_exchange(&model->spare->keys, store);
    destroy(store);
}
