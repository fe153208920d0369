/* reference_cache.c - a table of chains by hash, its entries in a queue by age. */
#include "reference_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"

enum { CHAINS = 1 << 12 };

typedef struct entry {
    struct entry *next;  /* of its chain */
    struct entry *newer; /* of the queue */
    uint64_t key;
    size_t n;
    float log_probs[]; /* [n] */
} entry;

struct rein_reference_cache {
    size_t most;
    rein_reference_cache_counts counts;
    entry *oldest, *newest;
    entry *chains[CHAINS];
};

rein_reference_cache *rein_reference_cache_new(size_t most) {
    rein_reference_cache *cache = calloc(1, sizeof *cache);
    if (cache) cache->most = most;
    return cache;
}

rein_reference_cache_counts rein_reference_cache_count(const rein_reference_cache *cache) { return cache->counts; }

/* --------------------------------------------------------------------------------------------------------------------- the table */

static size_t size_of(size_t n) { return sizeof(entry) + n * sizeof(float); }

/* The link to the entry, or to where its chain ends. */
static entry **find(rein_reference_cache *cache, uint64_t key, size_t n) {
    entry **link = &cache->chains[key % CHAINS];
    while (*link && ((*link)->key != key || (*link)->n != n)) link = &(*link)->next;
    return link;
}

static void drop_oldest(rein_reference_cache *cache) {
    entry *e = cache->oldest;
    *find(cache, e->key, e->n) = e->next;
    cache->oldest = e->newer;
    if (!cache->oldest) cache->newest = NULL;
    cache->counts.bytes -= size_of(e->n);
    free(e);
}

void rein_reference_cache_free(rein_reference_cache *cache) {
    while (cache && cache->oldest) drop_oldest(cache);
    free(cache);
}

/* Where there is no memory, nothing is kept, and nothing is lost. */
static void keep(rein_reference_cache *cache, uint64_t key, const float *log_probs, size_t n) {
    if (size_of(n) > cache->most || *find(cache, key, n)) return;
    while (cache->counts.bytes + size_of(n) > cache->most) drop_oldest(cache);
    entry *e = malloc(size_of(n));
    if (!e) return;
    *e = (entry){.key = key, .n = n};
    memcpy(e->log_probs, log_probs, n * sizeof *log_probs);
    *find(cache, key, n) = e;
    if (cache->newest) cache->newest->newer = e;
    else cache->oldest = e;
    cache->newest = e;
    cache->counts.bytes += size_of(n);
}

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

static size_t tokens_of(const rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++) n += t->histories[i].n;
    return n;
}

static uint64_t key_of(const rein_trajectory *t, double temperature, int64_t identity) {
    struct {
        int64_t identity;
        double temperature;
    } policy = {identity, temperature};
    uint64_t key = rein_hash(&policy, sizeof policy);
    for (size_t i = 0; i < t->n_histories; i++) {
        const rein_history *h = &t->histories[i];
        const uint64_t parts[] = {key, h->n, rein_hash(h->ids, h->n * sizeof *h->ids), rein_hash(h->mask, h->n)};
        key = rein_hash(parts, sizeof parts);
    }
    return key;
}

/* The trajectories that are not known, in groups as they were: what a group shares is still shared. */
typedef struct unknown {
    rein_groups groups;            /* borrows the histories */
    rein_trajectory *trajectories; /* [n] of all groups */
    uint64_t *keys;                /* [n] */
    float **places;                /* [n] where the log-probs of each belong */
    size_t n, tokens;
    float *log_probs; /* [tokens] */
} unknown;

static void release(unknown *u) {
    free(u->groups.groups);
    free(u->trajectories);
    free(u->keys);
    free(u->places);
    free(u->log_probs);
}

static rein_status make_room(unknown *u, const rein_groups *groups, rein_error *err) {
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    u->groups.groups = calloc(groups->n + 1, sizeof *u->groups.groups);
    u->trajectories = calloc(n + 1, sizeof *u->trajectories);
    u->keys = calloc(n + 1, sizeof *u->keys);
    u->places = calloc(n + 1, sizeof *u->places);
    if (u->groups.groups && u->trajectories && u->keys && u->places) return REIN_OK;
    return rein_fail(err, REIN_ENOMEM, "no memory for a list of %zu trajectories", n);
}

/* Writes what is known, and lists the others. */
static void look_up(unknown *u, float *log_probs, rein_reference_cache *cache, double temperature, int64_t identity,
                    const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++) {
        rein_group part = {.trajectories = u->trajectories + u->n};
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            const rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            const size_t n = tokens_of(trajectory);
            const uint64_t key = key_of(trajectory, temperature, identity);
            const entry *e = *find(cache, key, n);
            if (e) {
                memcpy(log_probs, e->log_probs, n * sizeof *log_probs);
                cache->counts.known += n;
            } else {
                u->trajectories[u->n] = *trajectory, u->keys[u->n] = key, u->places[u->n++] = log_probs;
                u->tokens += n;
                part.n++;
            }
            log_probs += n;
        }
        if (part.n || groups->groups[g].n == 0) u->groups.groups[u->groups.n++] = part; /* an empty group is an error, not here */
    }
}

static void take(unknown *u, rein_reference_cache *cache) {
    const float *from = u->log_probs;
    for (size_t i = 0; i < u->n; i++) {
        const size_t n = tokens_of(&u->trajectories[i]);
        memcpy(u->places[i], from, n * sizeof *from);
        keep(cache, u->keys[i], from, n);
        from += n;
    }
    cache->counts.computed += u->tokens;
}

rein_status rein_reference_cache_log_probs(float *log_probs, rein_reference_cache *cache, rein_trainer *trainer,
                                           const rein_policy *policy, int64_t identity, const rein_groups *groups,
                                           rein_error *err) {
    unknown u = {0};
    rein_status status = make_room(&u, groups, err);
    if (!status) look_up(&u, log_probs, cache, policy->temperature, identity, groups);
    if (!status && (u.groups.n > 0 || groups->n == 0)) {
        u.log_probs = malloc((u.tokens + 1) * sizeof *u.log_probs);
        status = u.log_probs ? rein_trainer_log_probs(u.log_probs, NULL, trainer, policy, &u.groups, err)
                             : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", u.tokens);
        if (!status) take(&u, cache);
        else if (status == REIN_EINVAL) status = rein_trainer_log_probs(log_probs, NULL, trainer, policy, groups, err);
    }
    release(&u);
    return status;
}
