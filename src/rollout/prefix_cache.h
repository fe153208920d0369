/* prefix_cache.h - blocks of keys that finished requests leave behind, found again by the tokens they were computed from. Private.
 *
 * The blocks form a tree for each policy. A node holds up to REIN_KEY_BLOCK tokens and their keys; the tokens from the root to a node
 * are a prefix. Of layers with a window a request leaves only the keys of the window before the end of its prompt and of its completion. So a
 * prefix can be used up to a position only if the keys of the window before that position are there. Keys depend only on the policy's weights and on the tokens up to their position, so a request that begins with the same
 * tokens gets the same bits from the cache as from computing them. */
#ifndef REIN_ROLLOUT_PREFIX_CACHE_H
#define REIN_ROLLOUT_PREFIX_CACHE_H

#include "model/key_store.h"

typedef struct rein_prefix {
    struct rein_prefix *parent, *children, *next; /* next: of the parent's children */
    struct rein_prefix *older, *newer;            /* in the order of their last use */
    size_t users;                                 /* requests that hold it: its block and those of its ancestors stay */
    uint64_t model, adapter;                      /* of a root: the versions of the weights */
    rein_keys
        keys; /* count 0: a root. The part of layers with a window is there if it was given, and for the last window before an end */
    int32_t ids[REIN_KEY_BLOCK];
} rein_prefix;

/* {0}, with store, max_bytes and window set, is empty. One thread at a time. */
typedef struct rein_prefix_cache {
    rein_key_store *store;
    size_t max_bytes, bytes, nodes; /* bytes: of keys. There are at most max_bytes of nodes, too: some have no keys */
    size_t window;                  /* of layers that have one */
    rein_prefix *roots, *oldest, *newest;
} rein_prefix_cache;

/* What is known of a list of tokens. */
typedef struct rein_prefix_match {
    rein_prefix *node;    /* the last node that matches completely and can be used, or the root of the policy */
    size_t tokens;        /* up to its end */
    rein_prefix *partial; /* a child of which only the first tokens match, or NULL */
    size_t partial_tokens;
    size_t known; /* tokens that match, also where keys of layers with a window are missing */
} rein_prefix_match;

/* Finds the longest prefix of ids [n]; node is NULL if there is no memory for a root. */
rein_prefix_match rein_prefix_find(rein_prefix_cache *cache, const rein_policy *policy, const int32_t *ids, size_t n);

/* Holds a node, so that it is not evicted; and no longer. node may be NULL. */
void rein_prefix_hold(rein_prefix *node);
void rein_prefix_drop(rein_prefix *node);

/* The child of `parent` with the tokens ids [keys->count] and their block. If it exists already, it takes only the part that it lacks; else
 * it is made, evicting others if the cache is full. *taken has bit 1 << part for each part that is no longer the caller's. NULL: there is no
 * room. The caller holds parent. */
rein_prefix *rein_prefix_add(int *taken, rein_prefix_cache *cache, rein_prefix *parent, const int32_t *ids, const rein_keys *keys);

/* Gives the block of the node that was not used for the longest time back to the store; 0: all are in use. */
int rein_prefix_evict(rein_prefix_cache *cache);

/* Gives all blocks back and frees all nodes; no node is held. */
void rein_prefix_close(rein_prefix_cache *cache);

#endif
