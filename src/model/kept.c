/* kept.c - the arrays that a layer keeps for its backward pass, one row each: rein_kept_take takes them, the activation cache copies them. */
#include <stdint.h>

#include "decoder.h"

typedef enum width { ONE, HIDDEN, INTERMEDIATE, QUERIES, KEYS, HEADS, KV_HEADS, STATS } width;

/* When an array is present; 0: in every pass. */
enum {
    GIVEN = 1,   /* the caller sets it */
    NORMED = 2,  /* in models with a norm of q and k */
    BACKWARD = 4 /* in passes kept for backward */
};

typedef struct row {
    size_t offset;
    width width;
    int when;
    size_t otherwise; /* the array that is used where this one is absent; NO_ARRAY: NULL */
} row;

#define AT(field) offsetof(rein_kept, field)
#define NO_ARRAY SIZE_MAX

static const row ROWS[] = {
    {AT(x), HIDDEN, GIVEN, NO_ARRAY}, /* the first: a cache of inputs has only this one */
    {AT(middle), HIDDEN, 0, NO_ARRAY},
    {AT(q), QUERIES, 0, NO_ARRAY},
    {AT(k), KEYS, 0, NO_ARRAY},
    {AT(v), KEYS, 0, NO_ARRAY},
    {AT(o), QUERIES, 0, NO_ARRAY},
    {AT(gate), INTERMEDIATE, 0, NO_ARRAY},
    {AT(up), INTERMEDIATE, 0, NO_ARRAY},
    {AT(q_raw), QUERIES, NORMED | BACKWARD, AT(q)},
    {AT(k_raw), KEYS, NORMED | BACKWARD, AT(k)},
    {AT(q_scale), HEADS, NORMED, NO_ARRAY},
    {AT(k_scale), KV_HEADS, NORMED, NO_ARRAY},
    {AT(softmax_stats), STATS, BACKWARD, NO_ARRAY},
    {AT(scale), ONE, 0, NO_ARRAY},
    {AT(middle_scale), ONE, 0, NO_ARRAY},
};
enum { N_ROWS = sizeof ROWS / sizeof *ROWS }; /* then come the inner arrays of the modules */
_Static_assert((int)N_ROWS + (int)REIN_LAYER_MODULES == (int)REIN_KEPT_ARRAYS, "every array of rein_kept has a row");

static size_t offset_of(size_t i) { return i < N_ROWS ? ROWS[i].offset : AT(inner) + (i - N_ROWS) * sizeof(float *); }

static float **array_at(rein_kept *kept, size_t offset) { return (float **)(void *)((char *)kept + offset); }

float *rein_kept_array(const rein_kept *kept, size_t i) {
    return *(float *const *)(const void *)((const char *)kept + offset_of(i));
}

static size_t width_of(width width, const rein_model *model) {
    const rein_heads *h = &model->heads;
    switch (width) {
    case ONE: return 1;
    case HIDDEN: return (size_t)model->config.hidden_size;
    case INTERMEDIATE: return (size_t)model->config.intermediate_size;
    case QUERIES: return h->n * h->dim;
    case KEYS: return h->n_kv * h->dim;
    case HEADS: return h->n;
    case KV_HEADS: return h->n_kv;
    case STATS: break;
    }
    return 2 * h->n;
}

size_t rein_kept_width(size_t i, const rein_model *model, const rein_adapter *adapter) {
    if (i < N_ROWS) return ROWS[i].when & NORMED && !model->config.qk_norm ? 0 : width_of(ROWS[i].width, model);
    const rein_lora *lora = rein_adapter_lora(adapter, 0, (rein_module)(i - N_ROWS));
    return lora ? lora->rank : 0;
}

void rein_kept_take(rein_kept *kept, const rein_batch_rows *b, int for_backward, rein_arena *arena) {
    for (size_t i = 0; i < REIN_KEPT_ARRAYS; i++) {
        const int when = i < N_ROWS ? ROWS[i].when : 0;
        const size_t otherwise = i < N_ROWS ? ROWS[i].otherwise : NO_ARRAY, width = rein_kept_width(i, b->model, b->adapter);
        float **array = array_at(kept, offset_of(i));
        if (when & GIVEN) continue;
        if (width && (for_backward || !(when & BACKWARD))) *array = rein_arena_floats(arena, b->rows * width);
        else *array = otherwise == NO_ARRAY ? NULL : *array_at(kept, otherwise);
    }
}
