/* reference_cache.c - a table of chains by hash, its entries in a queue by age. */
#include "reference_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "rollout/trajectory.h"

enum { CHAINS = 1 << 12 };

/* What log-probs depend on. */
typedef struct question {
    const rein_trajectory *trajectory;
    int64_t identity; /* of the policy */
    double temperature;
    size_t n;     /* tokens of all histories */
    size_t chain; /* by the hash of all that */
} question;

/* Behind the lengths of the histories stand float log_probs [n], int32_t ids [n] and uint8_t mask [n]. */
typedef struct entry {
    struct entry *next;  /* of its chain */
    struct entry *newer; /* of the queue */
    size_t chain;
    int64_t identity;
    double temperature;
    size_t n, n_histories;
    size_t lengths[]; /* [n_histories] */
} entry;

static float *log_probs_of(entry *e) { return (float *)(e->lengths + e->n_histories); }
static int32_t *ids_of(entry *e) { return (int32_t *)(log_probs_of(e) + e->n); }
static uint8_t *mask_of(entry *e) { return (uint8_t *)(ids_of(e) + e->n); }

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

static size_t size_of(size_t n, size_t n_histories) {
    return sizeof(entry) + n_histories * sizeof(size_t) + n * (sizeof(float) + sizeof(int32_t) + sizeof(uint8_t));
}

static uint64_t hash_of(const question *q) {
    struct {
        int64_t identity;
        double temperature;
    } policy = {q->identity, q->temperature};
    uint64_t hash = rein_hash(&policy, sizeof policy);
    for (size_t i = 0; i < q->trajectory->n_histories; i++) {
        const rein_history *h = &q->trajectory->histories[i];
        const uint64_t parts[] = {hash, h->n, rein_hash(h->ids, h->n * sizeof *h->ids), rein_hash(h->mask, h->n)};
        hash = rein_hash(parts, sizeof parts);
    }
    return hash;
}

static question question_of(const rein_trajectory *t, double temperature, int64_t identity) {
    question q = {.trajectory = t, .identity = identity, .temperature = temperature};
    for (size_t i = 0; i < t->n_histories; i++) q.n += t->histories[i].n;
    q.chain = hash_of(&q) % CHAINS;
    return q;
}

/* 1 if the entry has the log-probs in question: the tokens themselves are compared, since different ones may have the same hash. */
static int is_answer(entry *e, const question *q) {
    const rein_trajectory *t = q->trajectory;
    if (e->identity != q->identity || e->n != q->n || e->n_histories != t->n_histories) return 0;
    if (memcmp(&e->temperature, &q->temperature, sizeof e->temperature) != 0) return 0;
    for (size_t i = 0, at = 0; i < t->n_histories; at += t->histories[i++].n) {
        const rein_history *h = &t->histories[i];
        if (e->lengths[i] != h->n || memcmp(ids_of(e) + at, h->ids, h->n * sizeof *h->ids) != 0 ||
            memcmp(mask_of(e) + at, h->mask, h->n) != 0)
            return 0;
    }
    return 1;
}

/* NULL: not known. */
static entry *find(const rein_reference_cache *cache, const question *q) {
    entry *e = cache->chains[q->chain];
    while (e && !is_answer(e, q)) e = e->next;
    return e;
}

static void drop_oldest(rein_reference_cache *cache) {
    entry *e = cache->oldest, **link = &cache->chains[e->chain];
    while (*link != e) link = &(*link)->next;
    *link = e->next;
    cache->oldest = e->newer;
    if (!cache->oldest) cache->newest = NULL;
    cache->counts.bytes -= size_of(e->n, e->n_histories);
    free(e);
}

void rein_reference_cache_free(rein_reference_cache *cache) {
    while (cache && cache->oldest) drop_oldest(cache);
    free(cache);
}

static void fill(entry *e, const question *q, const float *log_probs) {
    const rein_trajectory *t = q->trajectory;
    *e = (entry){
        .chain = q->chain, .identity = q->identity, .temperature = q->temperature, .n = q->n, .n_histories = t->n_histories};
    memcpy(log_probs_of(e), log_probs, q->n * sizeof *log_probs);
    for (size_t i = 0, at = 0; i < t->n_histories; at += t->histories[i++].n) {
        const rein_history *h = &t->histories[i];
        e->lengths[i] = h->n;
        memcpy(ids_of(e) + at, h->ids, h->n * sizeof *h->ids);
        memcpy(mask_of(e) + at, h->mask, h->n);
    }
}

/* Without memory nothing is kept; it is computed again. */
static void keep(rein_reference_cache *cache, const question *q, const float *log_probs) {
    const size_t size = size_of(q->n, q->trajectory->n_histories);
    if (size > cache->most || find(cache, q)) return;
    while (cache->counts.bytes + size > cache->most) drop_oldest(cache);
    entry *e = malloc(size);
    if (!e) return;
    fill(e, q, log_probs);
    e->next = cache->chains[q->chain];
    cache->chains[q->chain] = e;
    if (cache->newest) cache->newest->newer = e;
    else cache->oldest = e;
    cache->newest = e;
    cache->counts.bytes += size;
}

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

/* The trajectories that are not known, in groups as they were: what a group shares is still shared. */
typedef struct unknown {
    rein_groups groups;            /* borrows the histories */
    rein_trajectory *trajectories; /* [n] of all groups */
    question *questions;           /* [n] */
    float **places;                /* [n] where the log-probs of each belong */
    size_t n, tokens;
    float *log_probs; /* [tokens] */
} unknown;

static void release(unknown *u) {
    free(u->groups.groups);
    free(u->trajectories);
    free(u->questions);
    free(u->places);
    free(u->log_probs);
}

static rein_status make_room(unknown *u, const rein_groups *groups, rein_error *err) {
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    u->groups.groups = calloc(groups->n + 1, sizeof *u->groups.groups);
    u->trajectories = calloc(n + 1, sizeof *u->trajectories);
    u->questions = calloc(n + 1, sizeof *u->questions);
    u->places = calloc(n + 1, sizeof *u->places);
    if (u->groups.groups && u->trajectories && u->questions && u->places) return REIN_OK;
    return rein_fail(err, REIN_ENOMEM, "no memory for a list of %zu trajectories", n);
}

/* Writes what is known, and lists the others. */
static void look_up(unknown *u, float *log_probs, rein_reference_cache *cache, double temperature, int64_t identity,
                    const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++) {
        rein_group part = {.trajectories = u->trajectories + u->n};
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            const rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            const question q = question_of(trajectory, temperature, identity);
            entry *e = find(cache, &q);
            if (e) {
                memcpy(log_probs, log_probs_of(e), q.n * sizeof *log_probs);
                cache->counts.known += q.n;
            } else {
                u->trajectories[u->n] = *trajectory, u->questions[u->n] = q, u->places[u->n++] = log_probs;
                u->tokens += q.n;
                part.n++;
            }
            log_probs += q.n;
        }
        if (part.n) u->groups.groups[u->groups.n++] = part;
    }
}

static void take(unknown *u, rein_reference_cache *cache) {
    const float *from = u->log_probs;
    for (size_t i = 0; i < u->n; i++) {
        const question *q = &u->questions[i];
        memcpy(u->places[i], from, q->n * sizeof *from);
        keep(cache, q, from);
        from += q->n;
    }
    cache->counts.computed += u->tokens;
}

rein_status rein_reference_cache_log_probs(float *log_probs, rein_reference_cache *cache, rein_trainer *trainer,
                                           const rein_policy *policy, int64_t identity, const rein_groups *groups,
                                           rein_error *err) {
    const rein_groups_use use = {.model = policy->model, .no_log_probs = 1};
    unknown u = {0};
    rein_status status = rein_groups_check(groups, &use, err); /* here, where errors name the place in all of the groups */
    if (!status) status = make_room(&u, groups, err);
    if (!status) look_up(&u, log_probs, cache, policy->temperature, identity, groups);
    if (!status && u.groups.n > 0) {
        u.log_probs = malloc((u.tokens + 1) * sizeof *u.log_probs);
        status = u.log_probs ? rein_trainer_log_probs(u.log_probs, NULL, trainer, policy, &u.groups, err)
                             : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", u.tokens);
        if (!status) take(&u, cache);
    }
    release(&u);
    return status;
}
