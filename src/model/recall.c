/* recall.c - a tree of rows, each behind the one before it; a table finds the next. */
#include "recall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { FEWEST = 1024, MOST_LOST = 1 << 16, MOST_FIELDS = 15 + REIN_LAYER_MODULES };

typedef struct node {
    int64_t before;
    int32_t id;
    uint64_t owner;
    float *row; /* NULL: lost; who comes with the same tokens gets another node */
} node;

struct rein_recall {
    size_t most; /* bytes */
    int recompute;
    uint64_t model, adapter;              /* versions of the policy that computed the rows; model 0: nobody did */
    uint64_t age;                         /* how often it began anew */
    size_t layers, hidden, layer, floats; /* floats: of what a layer leaves, and of a row */
    rein_arena arena;                     /* the rows */
    uint64_t owners;
    node *nodes;
    size_t n, capacity, live; /* live: not lost */
    float **free;             /* [capacity] rows that were lost */
    size_t n_free;
    int64_t *table; /* [2·capacity]: places in nodes, or REIN_NO_ROW */
};

/* The first number of a file, behind a text; INFINITY when there is none, as in "max". */
static double number_in(const char *path, const char *behind) {
    char text[4096];
    double number = INFINITY;
    FILE *file = fopen(path, "r");
    if (!file) return number;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *at = strstr(text, behind);
    if (at && sscanf(at + strlen(behind), "%lf", &number) != 1) number = INFINITY;
    return number;
}

/* Bytes that this process may use, as far as the system says: what is available, and what a container allows. */
static double memory_at_hand(void) {
    const double kilobytes = number_in("/proc/meminfo", "MemAvailable:"), limit = number_in("/sys/fs/cgroup/memory.max", ""),
                 old_limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
    return fmin(1024 * kilobytes, fmin(limit, old_limit));
}

rein_status rein_recall_open(rein_recall **recall, size_t most_bytes, int recompute, rein_error *err) {
    *recall = calloc(1, sizeof **recall);
    if (!*recall) return rein_fail(err, REIN_ENOMEM, "no memory for a recall");
    const double quarter = memory_at_hand() / 4;
    (*recall)->most = (double)most_bytes < quarter ? most_bytes : (size_t)quarter;
    (*recall)->recompute = recompute;
    return REIN_OK;
}

void rein_recall_close(rein_recall *r) {
    if (!r) return;
    rein_arena_free(&r->arena);
    free(r->nodes);
    free(r->free);
    free(r->table);
    free(r);
}

size_t rein_recall_tokens(const rein_recall *r) { return r && r->model ? r->live : 0; }

/* ---------------------------------------------------------------------------------------------------------------------- fields */

typedef struct field {
    float *data; /* [rows][width] */
    size_t width;
} field;

/* What a layer leaves, what goes in first. Arrays of kept may be NULL when only widths are wanted. */
static size_t fields_of(field fields[MOST_FIELDS], const rein_kept *kept, const rein_model *model, const rein_adapter *adapter) {
    const rein_heads *h = &model->heads;
    const size_t hidden = (size_t)model->config.hidden_size, middle = (size_t)model->config.intermediate_size;
    const size_t queries = h->n * h->dim, keys = h->n_kv * h->dim, normed = model->config.qk_norm != 0;
    const field own[] = {{kept->x, hidden},
                         {kept->middle, hidden},
                         {kept->q, queries},
                         {kept->k, keys},
                         {kept->v, keys},
                         {kept->o, queries},
                         {kept->gate, middle},
                         {kept->up, middle},
                         {kept->q_raw, normed * queries},
                         {kept->k_raw, normed * keys},
                         {kept->q_scale, normed * h->n},
                         {kept->k_scale, normed * h->n_kv},
                         {kept->softmax_stats, 2 * h->n},
                         {kept->scale, 1},
                         {kept->middle_scale, 1}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].width) fields[n++] = own[i];
    for (int m = 0; m < REIN_LAYER_MODULES; m++) {
        const rein_lora *lora = rein_adapter_lora(adapter, 0, (rein_module)m);
        if (lora) fields[n++] = (field){kept->inner[m], lora->rank};
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

static uint64_t version_of(const rein_adapter *adapter) { return adapter ? adapter->version : 0; }

static int is_of(const rein_recall *r, const rein_policy *policy) {
    return r->model == policy->model->version && r->adapter == version_of(policy->adapter);
}

static void begin(rein_recall *r, const rein_policy *policy) {
    field fields[MOST_FIELDS];
    const size_t all = fields_of(fields, &(rein_kept){0}, policy->model, policy->adapter), n = r->recompute ? 1 : all;
    r->model = policy->model->version, r->adapter = version_of(policy->adapter);
    r->age++;
    r->layers = (size_t)policy->model->config.n_layers, r->hidden = (size_t)policy->model->config.hidden_size;
    r->layer = 0;
    for (size_t i = 0; i < n; i++) r->layer += fields[i].width;
    r->floats = r->layers * r->layer + r->hidden;
    r->n = r->live = r->n_free = 0;
    rein_arena_reset(&r->arena);
    for (size_t i = 0; i < 2 * r->capacity; i++) r->table[i] = REIN_NO_ROW;
}

rein_owner rein_recall_enter(rein_recall *r, const rein_policy *policy) {
    if (!r) return (rein_owner){0};
    if (!is_of(r, policy) || r->n > 8 * r->live + MOST_LOST) begin(r, policy); /* or far more were lost than are there */
    return (rein_owner){r->age, r->owners++};
}

void rein_recall_forget(rein_recall *r) {
    if (r) r->model = 0;
}

/* Where in the table a row is, or would be. The table is at most half full. */
static size_t place_of(const rein_recall *r, int64_t before, int32_t id) {
    uint64_t h = ((uint64_t)before + 2) * 0x9e3779b97f4a7c15u ^ ((uint64_t)(uint32_t)id + 1) * 0xc2b2ae3d27d4eb4fu;
    h ^= h >> 32;
    for (size_t at = h * 0x9e3779b97f4a7c15u >> 20;; at++) {
        const size_t place = at & (2 * r->capacity - 1);
        const int64_t number = r->table[place];
        if (number == REIN_NO_ROW || (r->nodes[number].before == before && r->nodes[number].id == id)) return place;
    }
}

static int grow(rein_recall *r) {
    const size_t capacity = r->capacity ? 2 * r->capacity : FEWEST;
    node *nodes = realloc(r->nodes, capacity * sizeof *nodes);
    if (nodes) r->nodes = nodes;
    float **list = realloc(r->free, capacity * sizeof *list);
    if (list) r->free = list;
    int64_t *table = nodes && list ? malloc(2 * capacity * sizeof *table) : NULL;
    if (!table) return 0;
    free(r->table);
    r->table = table, r->capacity = capacity;
    for (size_t i = 0; i < 2 * capacity; i++) table[i] = REIN_NO_ROW;
    for (size_t i = 0; i < r->n; i++) table[place_of(r, nodes[i].before, nodes[i].id)] = (int64_t)i;
    return 1;
}

/* All rows of the oldest owner that has some. */
static void lose_oldest(rein_recall *r) {
    uint64_t oldest = UINT64_MAX;
    for (size_t i = 0; i < r->n; i++)
        if (r->nodes[i].row && r->nodes[i].owner < oldest) oldest = r->nodes[i].owner;
    for (size_t i = 0; i < r->n; i++) {
        if (!r->nodes[i].row || r->nodes[i].owner != oldest) continue;
        r->free[r->n_free++] = r->nodes[i].row;
        r->nodes[i].row = NULL;
        r->live--;
    }
}

/* NULL: there is none, also for want of the row before it, which may have been lost just now. */
static float *room_behind(rein_recall *r, int64_t before) {
    if (!r->n_free && (r->n + 1) * r->floats * sizeof(float) > r->most && r->live) lose_oldest(r);
    if (before >= 0 && !r->nodes[before].row) return NULL;
    if (r->n_free) return r->free[--r->n_free];
    return (r->n + 1) * r->floats * sizeof(float) > r->most ? NULL : rein_arena_floats(&r->arena, r->floats);
}

int64_t rein_recall_add(int64_t *fresh, rein_recall *r, const rein_owner *owner, int64_t before, int32_t id) {
    *fresh = REIN_NO_ROW;
    if (before == REIN_NO_ROW || owner->age != r->age) return REIN_NO_ROW;
    if (before >= 0 && !r->nodes[before].row) return REIN_NO_ROW;
    if (r->n == r->capacity && !grow(r)) return REIN_NO_ROW;
    const size_t place = place_of(r, before, id);
    const int64_t known = rein_recall_find(r, before, id);
    if (known != REIN_NO_ROW) { /* from now on it is the younger one's */
        if (r->nodes[known].owner < owner->number) r->nodes[known].owner = owner->number;
        return known;
    }
    float *row = room_behind(r, before);
    if (!row) return REIN_NO_ROW;
    r->nodes[r->n] = (node){before, id, owner->number, row};
    r->live++;
    return *fresh = r->table[place] = (int64_t)r->n++;
}

int rein_recall_of_inputs(const rein_recall *r) { return r->recompute; }

int rein_recall_serves(const rein_recall *r, const rein_policy *policy, int recompute) {
    return r && is_of(r, policy) && r->live && (recompute || !r->recompute);
}

int64_t rein_recall_find(const rein_recall *r, int64_t before, int32_t id) {
    const int64_t number = r->table[place_of(r, before, id)];
    return number == REIN_NO_ROW || !r->nodes[number].row ? REIN_NO_ROW : number;
}

/* --------------------------------------------------------------------------------------------------------------- to and from it */

typedef struct moving {
    field fields[MOST_FIELDS];
    size_t n, rows, offset; /* offset: of the first field in a row */
    const node *nodes;
    const int64_t *numbers; /* [rows] */
} moving;

static void put_rows(void *context, size_t piece, int thread) {
    const moving *m = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < m->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        float *to = m->numbers[r] == REIN_NO_ROW ? NULL : m->nodes[m->numbers[r]].row;
        if (!to) continue;
        to += m->offset;
        for (size_t i = 0; i < m->n; to += m->fields[i++].width)
            memcpy(to, m->fields[i].data + r * m->fields[i].width, m->fields[i].width * sizeof *to);
    }
}

static void get_rows(void *context, size_t piece, int thread) {
    const moving *m = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < m->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        const float *from = m->nodes[m->numbers[r]].row + m->offset;
        for (size_t i = 0; i < m->n; from += m->fields[i++].width)
            memcpy(m->fields[i].data + r * m->fields[i].width, from, m->fields[i].width * sizeof *from);
    }
}

/* A layer's arrays, or with inputs_only what goes into it. */
static void move_layer(rein_work *work, const rein_recall *r, const int64_t *rows, size_t layer, const rein_kept *kept,
                       int inputs_only, const rein_batch_rows *b) {
    moving m = {.rows = b->rows, .offset = layer * r->layer, .nodes = r->nodes, .numbers = rows};
    m.n = fields_of(m.fields, kept, b->model, b->adapter);
    if (inputs_only) m.n = 1;
    rein_parallel(rein_row_threads(&b->run, b->rows, r->layer), rein_row_pieces(b->rows), work, &m);
}

static void move_last(rein_work *work, const rein_recall *r, const int64_t *rows, float *x, const rein_batch_rows *b) {
    moving m = {
        .fields = {{x, r->hidden}}, .n = 1, .rows = b->rows, .offset = r->layers * r->layer, .nodes = r->nodes, .numbers = rows};
    rein_parallel(rein_row_threads(&b->run, b->rows, r->hidden), rein_row_pieces(b->rows), work, &m);
}

void rein_recall_put(const rein_recall *r, const int64_t *rows, size_t layer, const rein_kept *kept, const rein_batch_rows *b) {
    move_layer(put_rows, r, rows, layer, kept, r->recompute, b);
}

void rein_recall_put_last(const rein_recall *r, const int64_t *rows, const float *x, const rein_batch_rows *b) {
    move_last(put_rows, r, rows, (float *)(uintptr_t)x, b);
}

void rein_recall_get(const rein_kept *kept, int inputs_only, const rein_recall *r, const int64_t *rows, size_t layer,
                     const rein_batch_rows *b) {
    move_layer(get_rows, r, rows, layer, kept, inputs_only, b);
}

void rein_recall_get_last(float *x, const rein_recall *r, const int64_t *rows, const rein_batch_rows *b) {
    move_last(get_rows, r, rows, x, b);
}
