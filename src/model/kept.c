/* kept.c - the arrays that a layer keeps for its backward pass, one row each: rein_kept_take takes them, the activation cache copies them. */
#include <stdint.h>

#include "decoder.h"

typedef enum width { ONE, HIDDEN, INTERMEDIATE, QUERIES, KEYS, Q_SCALES, K_SCALES, STATS, EXPERTS, EXPERT_MIDDLES } width;

/* When an array is present; 0: in every pass. */
enum {
    GIVEN = 1,    /* the caller sets it */
    NORMED = 2,   /* in models with a norm of q and k */
    BACKWARD = 4, /* in passes kept for backward */
    AFTER = 8,    /* in models with norms after attention and MLP */
    DENSE = 16,   /* in models that have layers without experts */
    SPARSE = 32   /* in models that have layers with experts */
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
    {AT(gate), INTERMEDIATE, DENSE, NO_ARRAY},
    {AT(up), INTERMEDIATE, DENSE, NO_ARRAY},
    {AT(q_raw), QUERIES, NORMED | BACKWARD, AT(q)},
    {AT(k_raw), KEYS, NORMED | BACKWARD, AT(k)},
    {AT(q_scale), Q_SCALES, NORMED, NO_ARRAY},
    {AT(k_scale), K_SCALES, NORMED, NO_ARRAY},
    {AT(softmax_stats), STATS, BACKWARD, NO_ARRAY},
    {AT(scale), ONE, 0, NO_ARRAY},
    {AT(middle_scale), ONE, 0, NO_ARRAY},
    {AT(attention_out), HIDDEN, AFTER, NO_ARRAY},
    {AT(mlp_out), HIDDEN, AFTER, NO_ARRAY},
    {AT(attention_out_scale), ONE, AFTER, NO_ARRAY},
    {AT(mlp_out_scale), ONE, AFTER, NO_ARRAY},
    {AT(router), EXPERTS, SPARSE, NO_ARRAY},
    {AT(expert_gate), EXPERT_MIDDLES, SPARSE | BACKWARD, NO_ARRAY},
    {AT(expert_up), EXPERT_MIDDLES, SPARSE | BACKWARD, NO_ARRAY},
};
enum { N_ROWS = sizeof ROWS / sizeof *ROWS, N_INNER = N_ROWS + REIN_LAYER_MODULES };
/* Then come the inner arrays of the modules, and up to REIN_KEPT_ARRAYS those of the experts. */
_Static_assert((int)N_INNER + 3 == (int)REIN_KEPT_ARRAYS, "every array of rein_kept has a row");

static size_t offset_of(size_t i) {
    if (i < N_ROWS) return ROWS[i].offset;
    return i < N_INNER ? AT(inner) + (i - N_ROWS) * sizeof(float *) : AT(expert_inner) + (i - N_INNER) * sizeof(float *);
}

/* The first slot whose LoRA has inner array i; SIZE_MAX: there is none. Layers and experts do not differ in the rank of a module. */
static size_t inner_slot(size_t i, const rein_model_config *c) {
    const size_t m = i - N_ROWS; /* those of experts have the slots after the modules */
    const size_t layer = m < REIN_GATE ? 0 : rein_first_layer(c, m >= REIN_LAYER_MODULES);
    return layer < (size_t)c->n_layers ? layer * rein_layer_slots(c) + m : SIZE_MAX;
}

/* How often a row has inner array i. */
static size_t inner_count(size_t i, const rein_model_config *c) { return i < N_INNER ? 1 : (size_t)c->experts_per_token; }

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
    case Q_SCALES: return model->config.qk_norm == REIN_QK_WHOLE ? 1 : h->n;
    case K_SCALES: return model->config.qk_norm == REIN_QK_WHOLE ? 1 : h->n_kv;
    case EXPERTS: return (size_t)model->config.n_experts;
    case EXPERT_MIDDLES: return (size_t)(model->config.experts_per_token * model->config.expert_size);
    case STATS: break;
    }
    return 2 * h->n;
}

static int is_present(int when, const rein_model *model) {
    if (when & NORMED && model->config.qk_norm == REIN_QK_NONE) return 0;
    if (when & SPARSE && !model->config.n_experts) return 0;
    if (when & DENSE && rein_first_layer(&model->config, 0) == (size_t)model->config.n_layers) return 0;
    return !(when & AFTER) || model->config.family->norms != REIN_NORMS_BEFORE;
}

size_t rein_kept_width(size_t i, const rein_model *model, const rein_adapter *adapter) {
    if (i < N_ROWS) return is_present(ROWS[i].when, model) ? width_of(ROWS[i].width, model) : 0;
    const size_t slot = inner_slot(i, &model->config);
    const rein_lora *lora = slot == SIZE_MAX ? NULL : rein_adapter_slot(adapter, slot);
    return lora ? lora->rank * inner_count(i, &model->config) : 0;
}

static size_t inner_width(size_t i, const rein_batch_rows *b) {
    const size_t slot = inner_slot(i, &b->model->config);
    return slot == SIZE_MAX ? 0 : rein_lora_rows_rank(b->parts, b->n_parts, slot) * inner_count(i, &b->model->config);
}

void rein_kept_take(rein_kept *kept, const rein_batch_rows *b, int for_backward, rein_arena *arena) {
    for (size_t i = 0; i < REIN_KEPT_ARRAYS; i++) {
        const int when = i < N_ROWS ? ROWS[i].when : i < N_INNER ? 0 : BACKWARD;
        const size_t otherwise = i < N_ROWS ? ROWS[i].otherwise : NO_ARRAY;
        const size_t width = i < N_ROWS ? rein_kept_width(i, b->model, NULL) : inner_width(i, b);
        float **array = array_at(kept, offset_of(i));
        if (when & GIVEN) continue;
        if (width && (for_backward || !(when & BACKWARD))) *array = rein_arena_floats(arena, b->rows * width);
        else *array = otherwise == NO_ARRAY ? NULL : *array_at(kept, otherwise);
    }
}
