/* config_weights.c - the tensors of a model: names and shapes follow from its config, one row for each kind of tensor. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "config.h"

static const char EMBEDDING[] = "model.embed_tokens.weight", NORM[] = "model.norm.weight", HEAD[] = "lm_head.weight",
                  LAYERS[] = "model.layers.";

/* A size that the config gives. */
typedef enum size_of { NONE, HIDDEN, MIDDLE, QUERIES, KEYS, HEAD_WIDTH } size_of;

typedef enum needs { ALWAYS, QKV_BIAS, O_BIAS, MLP_BIAS, QK_NORM } needs;

static const struct row {
    const char *name;
    size_of rows, columns;
    needs when;
} layer_rows[] = {
    {"input_layernorm.weight", HIDDEN, NONE, ALWAYS},       {"self_attn.q_proj.weight", QUERIES, HIDDEN, ALWAYS},
    {"self_attn.q_proj.bias", QUERIES, NONE, QKV_BIAS},     {"self_attn.k_proj.weight", KEYS, HIDDEN, ALWAYS},
    {"self_attn.k_proj.bias", KEYS, NONE, QKV_BIAS},        {"self_attn.v_proj.weight", KEYS, HIDDEN, ALWAYS},
    {"self_attn.v_proj.bias", KEYS, NONE, QKV_BIAS},        {"self_attn.q_norm.weight", HEAD_WIDTH, NONE, QK_NORM},
    {"self_attn.k_norm.weight", HEAD_WIDTH, NONE, QK_NORM}, {"self_attn.o_proj.weight", HIDDEN, QUERIES, ALWAYS},
    {"self_attn.o_proj.bias", HIDDEN, NONE, O_BIAS},        {"post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS},
    {"mlp.gate_proj.weight", MIDDLE, HIDDEN, ALWAYS},       {"mlp.gate_proj.bias", MIDDLE, NONE, MLP_BIAS},
    {"mlp.up_proj.weight", MIDDLE, HIDDEN, ALWAYS},         {"mlp.up_proj.bias", MIDDLE, NONE, MLP_BIAS},
    {"mlp.down_proj.weight", HIDDEN, MIDDLE, ALWAYS},       {"mlp.down_proj.bias", HIDDEN, NONE, MLP_BIAS},
};
enum { LAYER_ROWS = sizeof layer_rows / sizeof *layer_rows };

static size_t size(const rein_model_config *c, size_of which) {
    switch (which) {
    case NONE: break;
    case HIDDEN: return (size_t)c->hidden_size;
    case MIDDLE: return (size_t)c->intermediate_size;
    case QUERIES: return (size_t)(c->n_heads * c->head_dim);
    case KEYS: return (size_t)(c->n_kv_heads * c->head_dim);
    case HEAD_WIDTH: return (size_t)c->head_dim;
    }
    return 0;
}

static int present(const rein_model_config *c, needs when) {
    switch (when) {
    case ALWAYS: break;
    case QKV_BIAS: return c->qkv_bias;
    case O_BIAS: return c->o_bias;
    case MLP_BIAS: return c->mlp_bias;
    case QK_NORM: return c->qk_norm;
    }
    return 1;
}

static size_t layer_weights(const rein_model_config *c) {
    size_t n = 0;
    for (int i = 0; i < LAYER_ROWS; i++) n += present(c, layer_rows[i].when) != 0;
    return n;
}

size_t rein_model_weights(const rein_model_config *c) {
    return 2 + (size_t)c->n_layers * layer_weights(c) + (c->tie_word_embeddings ? 0 : 1);
}

static rein_weight matrix(const char *name, size_t rows, size_t columns) {
    rein_weight w = {.n_dims = columns ? 2 : 1, .shape = {rows, columns}};
    snprintf(w.name, sizeof w.name, "%s", name);
    return w;
}

static rein_weight layer_weight(const rein_model_config *c, size_t layer, size_t i) {
    char name[96];
    int row = 0;
    while (!present(c, layer_rows[row].when) || i-- > 0) row++;
    snprintf(name, sizeof name, "%s%zu.%s", LAYERS, layer, layer_rows[row].name);
    return matrix(name, size(c, layer_rows[row].rows), size(c, layer_rows[row].columns));
}

void rein_model_weight(rein_weight *weight, const rein_model_config *c, size_t i) {
    const size_t each = layer_weights(c), layered = (size_t)c->n_layers * each;
    const size_t vocabulary = (size_t)c->vocab_size, hidden = (size_t)c->hidden_size;
    if (i == 0) *weight = matrix(EMBEDDING, vocabulary, hidden);
    else if (i <= layered) *weight = layer_weight(c, (i - 1) / each, (i - 1) % each);
    else *weight = i == layered + 1 ? matrix(NORM, hidden, 0) : matrix(HEAD, vocabulary, hidden);
}

/* ------------------------------------------------------------------------------------------------------------ tensors of files */

static int ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Splits "12.rest". Returns 1 if 12 is a layer of the model, without leading zeros; *rest is what follows the dot. */
static int layer_of(const rein_model_config *c, const char *name, const char **rest) {
    int64_t layer = 0;
    const char *digit = name;
    for (; *digit >= '0' && *digit <= '9' && layer < c->n_layers; digit++) layer = layer * 10 + (*digit - '0');
    *rest = digit + 1;
    return digit > name && *digit == '.' && layer < c->n_layers && (*name != '0' || digit == name + 1);
}

rein_weight_use rein_model_weight_use(const rein_model_config *c, const char *name) {
    const char *rest;
    if (!strcmp(name, EMBEDDING) || !strcmp(name, NORM)) return REIN_WEIGHT_USED;
    if (!strcmp(name, HEAD)) return c->tie_word_embeddings ? REIN_WEIGHT_TIED : REIN_WEIGHT_USED;
    if (ends_with(name, "rotary_emb.inv_freq")) return REIN_WEIGHT_BUFFER;
    if (strncmp(name, LAYERS, strlen(LAYERS)) != 0 || !layer_of(c, name + strlen(LAYERS), &rest)) return REIN_WEIGHT_IGNORED;
    for (int i = 0; i < LAYER_ROWS; i++)
        if (!strcmp(rest, layer_rows[i].name) && present(c, layer_rows[i].when)) return REIN_WEIGHT_USED;
    return REIN_WEIGHT_IGNORED;
}

static rein_status missing(const rein_model_config *c, const rein_weight *weight, const rein_tensors *tensors, rein_error *err) {
    char shown[REIN_PATH_SHOWN], shape[REIN_SHAPE_SHOWN];
    size_t absent = 0;
    const size_t n = rein_model_weights(c);
    for (size_t i = 0; i < n; i++) {
        rein_weight w;
        rein_model_weight(&w, c, i);
        absent += !rein_tensors_find(tensors, w.name);
    }
    rein_path_show(shown, rein_tensors_name(tensors));
    rein_shape_show(shape, weight->shape, weight->n_dims);
    if (!strcmp(weight->name, HEAD))
        return rein_fail(
            err, REIN_EINVAL,
            "%s: %s %s is missing: according to config.json the head is not tied to the embedding (tie_word_embeddings)", shown,
            weight->name, shape);
    return rein_fail(err, REIN_EINVAL,
                     "%s: %s %s is missing, as are %zu more of the %zu tensors that config.json requires (%s, %lld layers)", shown,
                     weight->name, shape, absent - 1, n, rein_family_name(c->family), (long long)c->n_layers);
}

static rein_status wrong_shape(const rein_model_config *c, const rein_weight *weight, const rein_tensor *found, rein_error *err) {
    char shown[REIN_PATH_SHOWN], shape[REIN_SHAPE_SHOWN], needed[REIN_SHAPE_SHOWN], why[120] = "";
    const int head = !strcmp(weight->name, EMBEDDING) || !strcmp(weight->name, HEAD);
    rein_path_show(shown, found->file);
    rein_shape_show(shape, found->shape, found->n_dims);
    rein_shape_show(needed, weight->shape, weight->n_dims);
    if (head && found->n_dims == 2 && found->shape[0] != weight->shape[0])
        snprintf(why, sizeof why, " (vocab_size is %lld)", (long long)c->vocab_size);
    return rein_fail(err, REIN_EINVAL, "%s: %s is %s: config.json requires %s%s", shown, weight->name, shape, needed, why);
}

static rein_status check_weight(const rein_model_config *c, const rein_weight *weight, const rein_tensors *tensors,
                                rein_error *err) {
    const rein_tensor *found = rein_tensors_find(tensors, weight->name);
    if (!found) return missing(c, weight, tensors, err);
    int same = found->n_dims == weight->n_dims;
    for (int i = 0; same && i < weight->n_dims; i++) same = found->shape[i] == weight->shape[i];
    if (!same) return wrong_shape(c, weight, found, err);
    return rein_tensors_weight(&found, tensors, weight->name, err);
}

rein_status rein_model_check(const rein_model_config *c, const rein_tensors *tensors, rein_error *err) {
    const size_t n = rein_model_weights(c);
    rein_status status = REIN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        rein_weight weight;
        rein_model_weight(&weight, c, i);
        status = check_weight(c, &weight, tensors, err);
    }
    return status;
}
