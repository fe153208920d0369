/* prefix_cache.c - the trees of the prefix cache, and the list of their nodes by last use. A node is evicted before its ancestors, because
 * they are used whenever it is. */
#include "prefix_cache.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------------------- the order of use */

static void take_out(rein_prefix_cache *c, rein_prefix *node) {
    if (node->older) node->older->newer = node->newer;
    else c->oldest = node->newer;
    if (node->newer) node->newer->older = node->older;
    else c->newest = node->older;
}

static void put_newest(rein_prefix_cache *c, rein_prefix *node) {
    node->older = c->newest, node->newer = NULL;
    if (c->newest) c->newest->newer = node;
    else c->oldest = node;
    c->newest = node;
}

/* The node first and its root last, so that ancestors are newer than their descendants. */
static void touch(rein_prefix_cache *c, rein_prefix *node) {
    for (; node; node = node->parent) take_out(c, node), put_newest(c, node);
}

/* -------------------------------------------------------------------------------------------------------------------------- nodes */

static size_t part_bytes(const rein_prefix_cache *c, const rein_keys *keys, int part) {
    return keys->data[part] ? rein_key_store_bytes(c->store, (rein_key_part)part) : 0;
}

static rein_prefix *make_node(rein_prefix_cache *c, rein_prefix *parent) {
    rein_prefix *node = calloc(1, sizeof *node);
    if (!node) return NULL;
    rein_prefix **list = parent ? &parent->children : &c->roots;
    node->parent = parent, node->next = *list;
    *list = node;
    put_newest(c, node);
    c->nodes++;
    return node;
}

static void remove_node(rein_prefix_cache *c, rein_prefix *node) {
    rein_prefix **at = node->parent ? &node->parent->children : &c->roots;
    while (*at != node) at = &(*at)->next;
    *at = node->next;
    take_out(c, node);
    for (int part = 0; part < REIN_KEY_PARTS; part++) {
        c->bytes -= part_bytes(c, &node->keys, part);
        rein_key_store_give(c->store, (rein_key_part)part, node->keys.data[part], 0);
    }
    c->nodes--;
    free(node);
}

static rein_prefix *root_of(rein_prefix_cache *c, const rein_policy *policy) {
    const uint64_t model = policy->model->version, adapter = policy->adapter ? policy->adapter->version : 0;
    rein_prefix *root = c->roots;
    while (root && (root->model != model || root->adapter != adapter)) root = root->next;
    if (!root && (root = make_node(c, NULL))) root->model = model, root->adapter = adapter;
    return root;
}

static size_t common(const rein_prefix *node, const int32_t *ids, size_t n) {
    size_t same = 0;
    while (same < node->keys.count && same < n && node->ids[same] == ids[same]) same++;
    return same;
}

/* --------------------------------------------------------------------------------------------------------------------------- API */

/* A search: the keys of layers with a window are there from `from` to the end of the node, if it has such keys. */
typedef struct search {
    const rein_prefix_cache *cache;
    const rein_prefix *node;
    size_t end, from;
} search;

static int has_windows(const rein_prefix_cache *c) { return rein_key_store_bytes(c->store, REIN_KEYS_WINDOW) != 0; }

/* The search after a child of its node. */
static search after(const search *s, const rein_prefix *child) {
    search next = {s->cache, child, s->end + child->keys.count, s->from};
    if (!child->keys.data[REIN_KEYS_WINDOW]) next.from = next.end;
    return next;
}

/* 1 if all the keys that the next `position` sees are there; it is in the node of the search, or at its end. */
static int is_usable(const search *s, size_t position) {
    const size_t seen = s->cache->window - 1;
    return !has_windows(s->cache) || s->from <= (position > seen ? position - seen : 0);
}

/* The child that matches completely, or NULL; of those that match in part, the longest match that can be used. */
static rein_prefix *search_children(rein_prefix_match *match, const search *s, const int32_t *ids, size_t n) {
    for (rein_prefix *child = s->node->children; child; child = child->next) {
        const size_t same = common(child, ids + s->end, n - s->end);
        const search next = after(s, child);
        if (s->end + same > match->known) match->known = s->end + same;
        if (same == child->keys.count) return child;
        if (same <= match->partial_tokens || match->node != s->node || !is_usable(&next, s->end + same)) continue;
        match->partial = child, match->partial_tokens = same;
    }
    return NULL;
}

rein_prefix_match rein_prefix_find(rein_prefix_cache *c, const rein_policy *policy, const int32_t *ids, size_t n) {
    rein_prefix_match match = {.node = root_of(c, policy)};
    search s = {c, match.node, 0, 0};
    for (rein_prefix *child; s.node && (child = search_children(&match, &s, ids, n));) {
        s = after(&s, child);
        if (is_usable(&s, s.end)) match = (rein_prefix_match){.node = child, .tokens = s.end, .known = match.known};
    }
    if (match.node) touch(c, match.node);
    return match;
}

void rein_prefix_hold(rein_prefix *node) { node->users++; }

void rein_prefix_drop(rein_prefix *node) {
    if (node) node->users--;
}

/* Evicts others until there is room. */
static int make_room(rein_prefix_cache *c, size_t bytes) {
    while (c->bytes + bytes > c->max_bytes || c->nodes >= c->max_bytes / sizeof(rein_prefix))
        if (!rein_prefix_evict(c)) return 0;
    return 1;
}

static void take_key_part(int *taken, rein_prefix_cache *c, rein_prefix *node, const rein_keys *keys, int part) {
    if (!keys->data[part]) return;
    node->keys.data[part] = keys->data[part];
    c->bytes += part_bytes(c, keys, part);
    *taken |= 1 << part;
}

/* The window part of a node that was left without it; it is not needed for anything else, so it may be refused. */
static void complete_node(int *taken, rein_prefix_cache *c, rein_prefix *node, const rein_keys *keys) {
    if (node->keys.data[REIN_KEYS_WINDOW] || !keys->data[REIN_KEYS_WINDOW]) return;
    rein_prefix_hold(node);
    if (make_room(c, part_bytes(c, keys, REIN_KEYS_WINDOW))) take_key_part(taken, c, node, keys, REIN_KEYS_WINDOW);
    rein_prefix_drop(node);
}

rein_prefix *rein_prefix_add(int *taken, rein_prefix_cache *c, rein_prefix *parent, const int32_t *ids, const rein_keys *keys) {
    const size_t n = keys->count;
    *taken = 0;
    for (rein_prefix *child = parent->children; child; child = child->next)
        if (child->keys.count == n && common(child, ids, n) == n) return complete_node(taken, c, child, keys), child;
    if (!make_room(c, part_bytes(c, keys, REIN_KEYS_ALL) + part_bytes(c, keys, REIN_KEYS_WINDOW))) return NULL;
    rein_prefix *node = make_node(c, parent);
    if (!node) return NULL;
    node->keys.count = n;
    memcpy(node->ids, ids, n * sizeof *ids);
    for (int part = 0; part < REIN_KEY_PARTS; part++) take_key_part(taken, c, node, keys, part);
    touch(c, node);
    return node;
}

int rein_prefix_evict(rein_prefix_cache *c) {
    for (rein_prefix *node = c->oldest, *newer; node; node = newer) {
        newer = node->newer;
        if (node->users || node->children) continue;
        const int has_block = node->parent != NULL;
        remove_node(c, node);
        if (has_block) return 1;
        newer = c->oldest; /* a root without children is removed on the way */
    }
    return 0;
}

void rein_prefix_close(rein_prefix_cache *c) {
    while (c->oldest) {
        rein_prefix *node = c->oldest;
        while (node->children) node = node->children;
        remove_node(c, node);
    }
}
