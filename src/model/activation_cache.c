/* activation_cache.c - requests with their keys, the memory of their rows, and copies to and from a batch. */
#include "activation_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { FIRST_CAPACITY = 32 };

/* The prompt of a request, or one of its completions. */
typedef struct part {
    int32_t *ids;
    float **rows;
    size_t n, capacity;
} part;

typedef struct request {
    uint64_t first_key;
    size_t n_prompt, samples;
    part *parts; /* [1 + samples]: the prompt, then the completions */
} request;

struct rein_activation_cache {
    size_t max_bytes;
    int recompute;
    uint64_t model, adapter; /* versions of the policy that computed the rows; model 0: there was none yet */
    uint64_t next_key;
    request *requests; /* [n_requests], oldest first, so that keys ascend */
    size_t n_requests, requests_capacity;
    size_t layers, hidden, layer_floats, row_floats;
    rein_arena arena; /* [n_rows] */
    size_t n_rows;
    float **free; /* [n_free] rows that no request uses; there is room for all n_rows */
    size_t n_free, free_capacity;
};

rein_status rein_activation_cache_open(rein_activation_cache **cache, size_t max_bytes, int recompute, rein_error *err) {
    *cache = calloc(1, sizeof **cache);
    if (!*cache) return rein_fail(err, REIN_ENOMEM, "no memory for an activation cache");
    const size_t quarter = rein_memory_available() / 4;
    (*cache)->max_bytes = max_bytes < quarter ? max_bytes : quarter;
    (*cache)->recompute = recompute;
    (*cache)->next_key = 1;
    return REIN_OK;
}

void rein_activation_cache_close(rein_activation_cache *c) {
    if (!c) return;
    rein_activation_cache_clear(c);
    rein_arena_free(&c->arena);
    free(c->requests);
    free(c->free);
    free(c);
}

size_t rein_activation_cache_tokens(const rein_activation_cache *c) { return c ? c->n_rows - c->n_free : 0; }

int rein_activation_cache_inputs_only(const rein_activation_cache *c) { return c->recompute; }

/* ---------------------------------------------------------------------------------------------------------------------- fields */

typedef struct field {
    float *data; /* [rows][width] */
    size_t width;
} field;

/* The arrays that a layer keeps, its input first. The arrays of kept may be NULL when only the widths are needed. */
static size_t fields_of(field fields[REIN_KEPT_ARRAYS], const rein_kept *kept, const rein_model *model,
                        const rein_adapter *adapter) {
    size_t n = 0;
    for (size_t i = 0; i < REIN_KEPT_ARRAYS; i++) {
        const size_t width = rein_kept_width(i, model, adapter);
        if (width) fields[n++] = (field){rein_kept_array(kept, i), width};
    }
    return n;
}

/* -------------------------------------------------------------------------------------------------------------------- requests */

static request *find_request(const rein_activation_cache *c, uint64_t key) {
    size_t low = 0, high = c->n_requests; /* the last request whose first key is at most this one */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->requests[middle].first_key <= key) low = middle + 1;
        else high = middle;
    }
    return low && key - c->requests[low - 1].first_key < c->requests[low - 1].samples ? &c->requests[low - 1] : NULL;
}

/* Where a position of a sequence is: *position becomes its index in the part. */
static part *part_of(const request *r, uint64_t key, size_t *position) {
    if (*position < r->n_prompt) return &r->parts[0];
    *position -= r->n_prompt;
    return &r->parts[1 + key - r->first_key];
}

static void drop_request(rein_activation_cache *c, request *r) {
    for (size_t p = 0; p <= r->samples; p++) {
        for (size_t i = 0; i < r->parts[p].n; i++) c->free[c->n_free++] = r->parts[p].rows[i];
        free(r->parts[p].ids);
        free(r->parts[p].rows);
    }
    free(r->parts);
    const size_t at = (size_t)(r - c->requests);
    memmove(r, r + 1, (--c->n_requests - at) * sizeof *r);
}

void rein_activation_cache_drop(rein_activation_cache *c, uint64_t key) {
    request *r = c ? find_request(c, key) : NULL;
    if (r) drop_request(c, r);
}

void rein_activation_cache_clear(rein_activation_cache *c) {
    while (c && c->n_requests) drop_request(c, &c->requests[c->n_requests - 1]);
}

static uint64_t version_of(const rein_adapter *adapter) { return adapter ? adapter->version : 0; }

static int is_of(const rein_activation_cache *c, const rein_policy *policy) {
    return c->model == policy->model->version && c->adapter == version_of(policy->adapter);
}

static void begin_policy(rein_activation_cache *c, const rein_policy *policy) {
    field fields[REIN_KEPT_ARRAYS];
    const size_t all = fields_of(fields, &(rein_kept){0}, policy->model, policy->adapter), n = c->recompute ? 1 : all;
    rein_activation_cache_clear(c);
    rein_arena_reset(&c->arena);
    c->n_rows = c->n_free = 0;
    c->model = policy->model->version, c->adapter = version_of(policy->adapter);
    c->layers = (size_t)policy->model->config.n_layers, c->hidden = (size_t)policy->model->config.hidden_size;
    c->layer_floats = 0;
    for (size_t i = 0; i < n; i++) c->layer_floats += fields[i].width;
    c->row_floats = c->layers * c->layer_floats + c->hidden;
}

uint64_t rein_activation_cache_begin(rein_activation_cache *c, const rein_policy *policy, size_t n_prompt, size_t samples) {
    if (!c) return 0;
    if (!is_of(c, policy)) begin_policy(c, policy);
    if (c->n_requests == c->requests_capacity) {
        const size_t capacity = c->requests_capacity ? 2 * c->requests_capacity : FIRST_CAPACITY;
        request *requests = realloc(c->requests, capacity * sizeof *requests);
        if (!requests) return 0;
        c->requests = requests, c->requests_capacity = capacity;
    }
    part *parts = calloc(1 + samples, sizeof *parts);
    if (!parts) return 0;
    const request made = {c->next_key, n_prompt, samples, parts};
    c->requests[c->n_requests++] = made;
    c->next_key += samples;
    return made.first_key;
}

int rein_activation_cache_has(const rein_activation_cache *c, uint64_t key) { return c && find_request(c, key); }

/* ------------------------------------------------------------------------------------------------------------------------ rows */

static int is_full(const rein_activation_cache *c) {
    return c->arena.failed || (c->n_rows + 1) * c->row_floats * sizeof(float) > c->max_bytes;
}

/* A row that no request has had yet. The list of free rows grows with the rows: dropping a request needs no memory. */
static float *new_row(rein_activation_cache *c) {
    if (is_full(c)) return NULL;
    if (c->n_rows == c->free_capacity) {
        const size_t capacity = c->free_capacity ? 2 * c->free_capacity : FIRST_CAPACITY;
        float **list = realloc(c->free, capacity * sizeof *list);
        if (!list) return NULL;
        c->free = list, c->free_capacity = capacity;
    }
    float *row = rein_arena_floats(&c->arena, c->row_floats);
    c->n_rows += row != NULL;
    return row;
}

static float *take_row(rein_activation_cache *c) {
    while (!c->n_free && c->n_requests && is_full(c)) drop_request(c, &c->requests[0]);
    return c->n_free ? c->free[--c->n_free] : new_row(c);
}

static int reserve(part *p) {
    if (p->n < p->capacity) return 1;
    const size_t capacity = p->capacity ? 2 * p->capacity : FIRST_CAPACITY;
    int32_t *ids = realloc(p->ids, capacity * sizeof *ids);
    if (ids) p->ids = ids;
    float **rows = realloc(p->rows, capacity * sizeof *rows);
    if (rows) p->rows = rows;
    if (!ids || !rows) return 0;
    p->capacity = capacity;
    return 1;
}

void rein_activation_cache_add(rein_activation_cache *c, uint64_t key, size_t position, int32_t id) {
    if (!rein_activation_cache_has(c, key)) return;
    float *row = take_row(c);
    request *r = find_request(c, key); /* again: it may have been the oldest */
    part *p = r ? part_of(r, key, &position) : NULL;
    if (row && p && reserve(p)) {
        p->ids[p->n] = id, p->rows[p->n++] = row;
        return;
    }
    if (row) c->free[c->n_free++] = row;
    if (r) drop_request(c, r);
}

float *rein_activation_cache_row(const rein_activation_cache *c, uint64_t key, size_t position) {
    const request *r = find_request(c, key);
    const part *p = r ? part_of(r, key, &position) : NULL;
    return p && position < p->n ? p->rows[position] : NULL;
}

int rein_activation_cache_serves(const rein_activation_cache *c, const rein_policy *policy, int recompute) {
    return c && is_of(c, policy) && c->n_requests && (recompute || !c->recompute);
}

int rein_activation_cache_find(float **rows, const rein_activation_cache *c, uint64_t key, size_t position, const int32_t *ids,
                               size_t count) {
    const request *r = find_request(c, key);
    for (size_t i = 0; r && i < count; i++) {
        size_t at = position + i;
        const part *p = part_of(r, key, &at);
        if (at >= p->n || p->ids[at] != ids[i]) return 0;
        if (rows) rows[i] = p->rows[at];
    }
    return r != NULL;
}

/* ---------------------------------------------------------------------------------------------------------------------- copies */

typedef struct copying {
    field fields[REIN_KEPT_ARRAYS];
    size_t n, n_rows, offset; /* offset: of the first field in a row */
    float *const *rows;       /* [n_rows] */
} copying;

static void put_rows(void *context, size_t piece, int thread) {
    const copying *m = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < m->n_rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        if (!m->rows[r]) continue;
        float *to = m->rows[r] + m->offset;
        for (size_t i = 0; i < m->n; to += m->fields[i++].width)
            memcpy(to, m->fields[i].data + r * m->fields[i].width, m->fields[i].width * sizeof *to);
    }
}

static void get_rows(void *context, size_t piece, int thread) {
    const copying *m = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < m->n_rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        const float *from = m->rows[r] + m->offset;
        for (size_t i = 0; i < m->n; from += m->fields[i++].width)
            memcpy(m->fields[i].data + r * m->fields[i].width, from, m->fields[i].width * sizeof *from);
    }
}

static void copy_layer(rein_work *work, const rein_activation_cache *c, float *const *rows, size_t layer, const rein_kept *kept,
                       int inputs_only, const rein_batch_rows *b) {
    copying m = {.n_rows = b->rows, .offset = layer * c->layer_floats, .rows = rows};
    m.n = fields_of(m.fields, kept, b->model, b->adapter);
    if (inputs_only) m.n = 1;
    rein_parallel(rein_row_threads(&b->run, b->rows, c->layer_floats), rein_row_pieces(b->rows), work, &m);
}

static void copy_last(rein_work *work, const rein_activation_cache *c, float *const *rows, float *x, const rein_batch_rows *b) {
    copying m = {.fields = {{x, c->hidden}}, .n = 1, .n_rows = b->rows, .offset = c->layers * c->layer_floats, .rows = rows};
    rein_parallel(rein_row_threads(&b->run, b->rows, c->hidden), rein_row_pieces(b->rows), work, &m);
}

void rein_activation_cache_put(const rein_activation_cache *c, float *const *rows, size_t layer, const rein_kept *kept,
                               const rein_batch_rows *b) {
    copy_layer(put_rows, c, rows, layer, kept, c->recompute, b);
}

void rein_activation_cache_put_last(const rein_activation_cache *c, float *const *rows, const float *x, const rein_batch_rows *b) {
    copy_last(put_rows, c, rows, (float *)(uintptr_t)x, b);
}

void rein_activation_cache_get(const rein_kept *kept, int inputs_only, const rein_activation_cache *c, float *const *rows,
                               size_t layer, const rein_batch_rows *b) {
    copy_layer(get_rows, c, rows, layer, kept, inputs_only, b);
}

void rein_activation_cache_get_last(float *x, const rein_activation_cache *c, float *const *rows, const rein_batch_rows *b) {
    copy_last(get_rows, c, rows, x, b);
}
