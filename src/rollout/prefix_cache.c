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

static rein_prefix *make_node(rein_prefix_cache *c, rein_prefix *parent) {
    rein_prefix *node = calloc(1, sizeof *node);
    if (!node) return NULL;
    rein_prefix **list = parent ? &parent->children : &c->roots;
    node->parent = parent, node->next = *list;
    *list = node;
    put_newest(c, node);
    return node;
}

static void remove_node(rein_prefix_cache *c, rein_prefix *node) {
    rein_prefix **at = node->parent ? &node->parent->children : &c->roots;
    while (*at != node) at = &(*at)->next;
    *at = node->next;
    take_out(c, node);
    if (node->block) rein_key_store_give(c->store, node->block, 0), c->blocks--;
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
    while (same < node->n && same < n && node->ids[same] == ids[same]) same++;
    return same;
}

/* --------------------------------------------------------------------------------------------------------------------------- API */

rein_prefix_match rein_prefix_find(rein_prefix_cache *c, const rein_policy *policy, const int32_t *ids, size_t n) {
    rein_prefix_match match = {.node = root_of(c, policy)};
    for (rein_prefix *child = match.node ? match.node->children : NULL; child;) {
        const size_t same = common(child, ids + match.tokens, n - match.tokens);
        if (same == child->n) {
            match = (rein_prefix_match){.node = child, .tokens = match.tokens + same};
            child = child->children;
            continue;
        }
        if (same > match.partial_tokens) match.partial = child, match.partial_tokens = same;
        child = child->next;
    }
    if (match.node) touch(c, match.node);
    return match;
}

void rein_prefix_hold(rein_prefix *node) { node->users++; }

void rein_prefix_drop(rein_prefix *node) {
    if (node) node->users--;
}

rein_prefix *rein_prefix_add(int *taken, rein_prefix_cache *c, rein_prefix *parent, const int32_t *ids, size_t n, float *block) {
    *taken = 0;
    for (rein_prefix *child = parent->children; child; child = child->next)
        if (child->n == n && common(child, ids, n) == n) return child;
    if (c->blocks >= c->max_blocks && !rein_prefix_evict(c)) return NULL;
    rein_prefix *node = make_node(c, parent);
    if (!node) return NULL;
    node->block = block, node->n = n;
    memcpy(node->ids, ids, n * sizeof *ids);
    c->blocks++;
    touch(c, node);
    return *taken = 1, node;
}

int rein_prefix_evict(rein_prefix_cache *c) {
    for (rein_prefix *node = c->oldest, *newer; node; node = newer) {
        newer = node->newer;
        if (node->users || node->children) continue;
        const int has_block = node->block != NULL;
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
