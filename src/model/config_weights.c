/* config_weights.c - the tensors of a model: names and shapes follow from its config, one row for each kind of tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "config.h"

static const char EMBEDDING[] = "model.embed_tokens.weight", NORM[] = "model.norm.weight", HEAD[] = "lm_head.weight",
                  SCORE[] = "score.weight", LAYERS[] = "model.layers.";

/* A size that the config gives. */
typedef enum size_of {
    NONE,
    HIDDEN,
    MIDDLE,
    TWO_MIDDLE,
    QUERIES,
    KEYS,
    QUERIES_KEYS_VALUES,
    Q_NORM,
    K_NORM,
    EXPERTS,
    EXPERT_MIDDLE
} size_of;

/* When a tensor is present. */
typedef enum needs {
    ALWAYS,
    SPLIT,
    FUSED,
    DENSE, /* no experts */
    DENSE_SPLIT,
    DENSE_FUSED,
    SPARSE, /* experts */
    QKV_BIAS,
    O_BIAS,
    MLP_BIAS,
    QK_NORM,
    BEFORE,
    AFTER,
    ONLY_BEFORE,
    BEFORE_AND_AFTER
} needs;

static const struct row {
    const char *name;
    size_of rows, columns;
    needs when;
    rein_weight_kind kind;
    int to; /* rein_module or rein_norm_place */
} layer_rows[] = {
    {"input_layernorm.weight", HIDDEN, NONE, BEFORE, REIN_NORM, REIN_NORM_ATTENTION},
    {"self_attn.qkv_proj.weight", QUERIES_KEYS_VALUES, HIDDEN, FUSED, REIN_MATRIX, REIN_Q},
    {"self_attn.q_proj.weight", QUERIES, HIDDEN, SPLIT, REIN_MATRIX, REIN_Q},
    {"self_attn.q_proj.bias", QUERIES, NONE, QKV_BIAS, REIN_BIAS, REIN_Q},
    {"self_attn.k_proj.weight", KEYS, HIDDEN, SPLIT, REIN_MATRIX, REIN_K},
    {"self_attn.k_proj.bias", KEYS, NONE, QKV_BIAS, REIN_BIAS, REIN_K},
    {"self_attn.v_proj.weight", KEYS, HIDDEN, SPLIT, REIN_MATRIX, REIN_V},
    {"self_attn.v_proj.bias", KEYS, NONE, QKV_BIAS, REIN_BIAS, REIN_V},
    {"self_attn.q_norm.weight", Q_NORM, NONE, QK_NORM, REIN_NORM, REIN_NORM_Q},
    {"self_attn.k_norm.weight", K_NORM, NONE, QK_NORM, REIN_NORM, REIN_NORM_K},
    {"self_attn.o_proj.weight", HIDDEN, QUERIES, ALWAYS, REIN_MATRIX, REIN_O},
    {"self_attn.o_proj.bias", HIDDEN, NONE, O_BIAS, REIN_BIAS, REIN_O},
    {"post_attention_layernorm.weight", HIDDEN, NONE, ONLY_BEFORE, REIN_NORM, REIN_NORM_MLP},
    {"post_attention_layernorm.weight", HIDDEN, NONE, AFTER, REIN_NORM, REIN_NORM_ATTENTION_OUT},
    {"pre_feedforward_layernorm.weight", HIDDEN, NONE, BEFORE_AND_AFTER, REIN_NORM, REIN_NORM_MLP},
    {"mlp.gate.weight", EXPERTS, HIDDEN, SPARSE, REIN_ROUTER, 0},
    {"mlp.gate_up_proj.weight", TWO_MIDDLE, HIDDEN, DENSE_FUSED, REIN_MATRIX, REIN_GATE},
    {"mlp.gate_proj.weight", MIDDLE, HIDDEN, DENSE_SPLIT, REIN_MATRIX, REIN_GATE},
    {"mlp.gate_proj.bias", MIDDLE, NONE, MLP_BIAS, REIN_BIAS, REIN_GATE},
    {"mlp.up_proj.weight", MIDDLE, HIDDEN, DENSE_SPLIT, REIN_MATRIX, REIN_UP},
    {"mlp.up_proj.bias", MIDDLE, NONE, MLP_BIAS, REIN_BIAS, REIN_UP},
    {"mlp.down_proj.weight", HIDDEN, MIDDLE, DENSE, REIN_MATRIX, REIN_DOWN},
    {"mlp.down_proj.bias", HIDDEN, NONE, MLP_BIAS, REIN_BIAS, REIN_DOWN},
    {"post_feedforward_layernorm.weight", HIDDEN, NONE, AFTER, REIN_NORM, REIN_NORM_MLP_OUT},
};
enum { LAYER_ROWS = sizeof layer_rows / sizeof *layer_rows };

/* After them, those of each expert. */
static const struct {
    const char *name;
    size_of rows, columns;
} expert_rows[] = {{"gate_proj", EXPERT_MIDDLE, HIDDEN}, {"up_proj", EXPERT_MIDDLE, HIDDEN}, {"down_proj", HIDDEN, EXPERT_MIDDLE}};

static size_t size(const rein_model_config *c, size_of which) {
    const size_t queries = (size_t)(c->n_heads * c->head_dim), keys = (size_t)(c->n_kv_heads * c->head_dim);
    switch (which) {
    case NONE: break;
    case HIDDEN: return (size_t)c->hidden_size;
    case MIDDLE: return (size_t)c->intermediate_size;
    case TWO_MIDDLE: return 2 * (size_t)c->intermediate_size;
    case QUERIES: return queries;
    case KEYS: return keys;
    case QUERIES_KEYS_VALUES: return queries + 2 * keys;
    case Q_NORM: return c->qk_norm == REIN_QK_WHOLE ? queries : (size_t)c->head_dim;
    case K_NORM: return c->qk_norm == REIN_QK_WHOLE ? keys : (size_t)c->head_dim;
    case EXPERTS: return (size_t)c->n_experts;
    case EXPERT_MIDDLE: return (size_t)c->expert_size;
    }
    return 0;
}

static int is_sparse(const rein_model_config *c, size_t layer) { return (c->layers[layer] & REIN_LAYER_EXPERTS) != 0; }

/* Of a layer with experts (sparse), or without. */
static int present(const rein_model_config *c, int sparse, needs when) {
    const rein_norm_places norms = c->family->norms;
    switch (when) {
    case ALWAYS: break;
    case SPLIT: return !c->family->fused;
    case FUSED: return c->family->fused;
    case DENSE: return !sparse;
    case DENSE_SPLIT: return !sparse && !c->family->fused;
    case DENSE_FUSED: return !sparse && c->family->fused;
    case SPARSE: return sparse;
    case QKV_BIAS: return c->qkv_bias;
    case O_BIAS: return c->o_bias;
    case MLP_BIAS: return c->mlp_bias && !sparse;
    case QK_NORM: return c->qk_norm != REIN_QK_NONE;
    case BEFORE: return norms != REIN_NORMS_AFTER;
    case AFTER: return norms != REIN_NORMS_BEFORE;
    case ONLY_BEFORE: return norms == REIN_NORMS_BEFORE;
    case BEFORE_AND_AFTER: return norms == REIN_NORMS_BEFORE_AND_AFTER;
    }
    return 1;
}

static size_t layer_weights(const rein_model_config *c, int sparse) {
    size_t n = sparse ? 3 * (size_t)c->n_experts : 0;
    for (int i = 0; i < LAYER_ROWS; i++) n += present(c, sparse, layer_rows[i].when) != 0;
    return n;
}

static size_t all_layers(const rein_model_config *c) {
    const size_t each[2] = {layer_weights(c, 0), layer_weights(c, 1)};
    size_t n = 0;
    for (size_t l = 0; l < (size_t)c->n_layers; l++) n += each[is_sparse(c, l)];
    return n;
}

size_t rein_model_weights(const rein_model_config *c) { return 2 + all_layers(c) + (c->score || !c->tie_word_embeddings ? 1 : 0); }

static rein_weight matrix(const char *name, size_t rows, size_t columns, rein_weight_kind kind) {
    rein_weight w = {.n_dims = columns ? 2 : 1, .shape = {rows, columns}, .kind = kind};
    snprintf(w.name, sizeof w.name, "%s", name);
    return w;
}

static rein_weight expert_weight(const rein_model_config *c, size_t layer, size_t i) {
    char name[96];
    const size_t j = i % 3;
    snprintf(name, sizeof name, "%s%zu.mlp.experts.%zu.%s.weight", LAYERS, layer, i / 3, expert_rows[j].name);
    rein_weight w = matrix(name, size(c, expert_rows[j].rows), size(c, expert_rows[j].columns), REIN_EXPERT);
    w.layer = layer, w.to = (int)i;
    return w;
}

static rein_weight layer_weight(const rein_model_config *c, size_t layer, size_t i) {
    char name[96];
    int row = 0;
    while (row < LAYER_ROWS && (!present(c, is_sparse(c, layer), layer_rows[row].when) || i-- > 0)) row++;
    if (row == LAYER_ROWS) return expert_weight(c, layer, i);
    const struct row *r = &layer_rows[row];
    snprintf(name, sizeof name, "%s%zu.%s", LAYERS, layer, r->name);
    rein_weight w = matrix(name, size(c, r->rows), size(c, r->columns), r->kind);
    w.layer = layer, w.to = r->to;
    return w;
}

void rein_model_weight(rein_weight *weight, const rein_model_config *c, size_t i) {
    const size_t vocabulary = (size_t)c->vocab_size, hidden = (size_t)c->hidden_size;
    if (i == 0) {
        *weight = matrix(EMBEDDING, vocabulary, hidden, REIN_EMBEDDING);
        return;
    }
    const size_t each[2] = {layer_weights(c, 0), layer_weights(c, 1)};
    size_t layer = 0;
    for (i--; layer < (size_t)c->n_layers && i >= each[is_sparse(c, layer)]; layer++) i -= each[is_sparse(c, layer)];
    if (layer < (size_t)c->n_layers) *weight = layer_weight(c, layer, i);
    else if (i == 0) *weight = matrix(NORM, hidden, 0, REIN_LAST_NORM);
    else *weight = c->score ? matrix(SCORE, 1, hidden, REIN_SCORE) : matrix(HEAD, vocabulary, hidden, REIN_HEAD);
}

/* --------------------------------------------------------------------------------------------------------------------- modules */

int rein_module_count(const rein_model_config *c, rein_module module) {
    if (module == REIN_HEAD_MODULE) return !c->score;
    if (!c->family->fused || module == REIN_O || module == REIN_DOWN) return 1;
    return module == REIN_Q ? 3 : module == REIN_GATE ? 2 : 0;
}

rein_module rein_slot_module(const rein_model_config *c, size_t slot) {
    const size_t in_layer = slot % rein_layer_slots(c);
    if (slot + 1 == rein_slots(c)) return REIN_HEAD_MODULE;
    return in_layer < REIN_LAYER_MODULES ? (rein_module)in_layer
                                         : (rein_module)(REIN_GATE + (int)((in_layer - REIN_LAYER_MODULES) % 3));
}

int rein_slot_count(const rein_model_config *c, size_t slot) {
    const size_t layer = slot / rein_layer_slots(c), in_layer = slot % rein_layer_slots(c);
    const rein_module module = rein_slot_module(c, slot);
    if (module == REIN_HEAD_MODULE || in_layer < REIN_GATE) return rein_module_count(c, module);
    if (in_layer >= REIN_LAYER_MODULES) return is_sparse(c, layer);
    return is_sparse(c, layer) ? 0 : rein_module_count(c, module);
}

const char *rein_slot_name(char to[REIN_SLOT_NAME], const rein_model_config *c, size_t slot) {
    const size_t layer = slot / rein_layer_slots(c), in_layer = slot % rein_layer_slots(c);
    const rein_module module = rein_slot_module(c, slot);
    if (module == REIN_HEAD_MODULE) snprintf(to, REIN_SLOT_NAME, "%s", rein_module_path(c, module));
    else if (in_layer < REIN_LAYER_MODULES) snprintf(to, REIN_SLOT_NAME, "%s%zu.%s", LAYERS, layer, rein_module_path(c, module));
    else
        snprintf(to, REIN_SLOT_NAME, "%s%zu.mlp.experts.%zu.%s", LAYERS, layer, (in_layer - REIN_LAYER_MODULES) / 3,
                 rein_module_name(c, module));
    return to;
}

const char *rein_module_path(const rein_model_config *c, rein_module module) {
    static const char *const plain[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    "lm_head"};
    static const char *const fused[] = {"self_attn.qkv_proj", "",       "", "self_attn.o_proj", "mlp.gate_up_proj", "",
                                        "mlp.down_proj",      "lm_head"};
    return (c && c->family->fused ? fused : plain)[module];
}

const char *rein_module_name(const rein_model_config *c, rein_module module) {
    const char *path = rein_module_path(c, module), *point = strchr(path, '.');
    return point ? point + 1 : path;
}

/* ------------------------------------------------------------------------------------------------------------ tensors of files */

static int ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Splits "12.rest". Returns 1 if 12 is a layer of the model, without leading zeros; *rest is what follows the dot. */
static int layer_of(size_t *found, const rein_model_config *c, const char *name, const char **rest) {
    int64_t layer = 0;
    const char *digit = name;
    for (; *digit >= '0' && *digit <= '9' && layer < c->n_layers; digit++) layer = layer * 10 + (*digit - '0');
    *rest = digit + 1, *found = (size_t)layer;
    return digit > name && *digit == '.' && layer < c->n_layers && (*name != '0' || digit == name + 1);
}

/* A text model inside a larger one: transformers 4 writes language_model.model.… and language_model.lm_head, transformers 5
 * model.language_model.…; this is the name without the prefix. */
static const char *plain_name(char to[160], const rein_model_config *c, const char *name) {
    static const char old[] = "language_model.", now[] = "model.language_model.";
    if (!c->family->nested) return name;
    if (!strncmp(name, old, strlen(old))) return name + strlen(old);
    if (strncmp(name, now, strlen(now)) != 0 || strlen(name) >= 150) return name;
    snprintf(to, 160, "model.%s", name + strlen(now));
    return to;
}

const rein_tensor *rein_model_tensor(const rein_model_config *c, const rein_tensors *tensors, const char *name) {
    char prefixed[160];
    const rein_tensor *found = rein_tensors_find(tensors, name);
    if (found || !c->family->nested) return found;
    snprintf(prefixed, sizeof prefixed, "language_model.%s", name);
    if ((found = rein_tensors_find(tensors, prefixed)) || strncmp(name, "model.", 6) != 0) return found;
    snprintf(prefixed, sizeof prefixed, "model.language_model.%s", name + 6);
    return rein_tensors_find(tensors, prefixed);
}

/* Whether the rest of a name is "mlp.experts.N.gate_proj.weight" or the like, of an expert that the model has. */
static int is_expert(const rein_model_config *c, const char *rest) {
    static const char experts[] = "mlp.experts.";
    char wanted[80];
    if (strncmp(rest, experts, strlen(experts)) != 0) return 0;
    const unsigned long e = strtoul(rest + strlen(experts), NULL, 10);
    for (int j = 0; j < 3 && e < (unsigned long)c->n_experts; j++) {
        snprintf(wanted, sizeof wanted, "%s%lu.%s.weight", experts, e, expert_rows[j].name);
        if (!strcmp(rest, wanted)) return 1;
    }
    return 0;
}

rein_weight_use rein_model_weight_use(const rein_model_config *c, const char *whole) {
    char buffer[160];
    const char *rest, *name = plain_name(buffer, c, whole);
    size_t layer;
    if (!strcmp(name, EMBEDDING) || !strcmp(name, NORM)) return REIN_WEIGHT_USED;
    if (!strcmp(name, HEAD)) return c->tie_word_embeddings || c->score ? REIN_WEIGHT_TIED : REIN_WEIGHT_USED;
    if (!strcmp(name, SCORE)) return c->score ? REIN_WEIGHT_USED : REIN_WEIGHT_IGNORED;
    if (ends_with(name, "rotary_emb.inv_freq")) return REIN_WEIGHT_BUFFER;
    if (strncmp(name, LAYERS, strlen(LAYERS)) != 0 || !layer_of(&layer, c, name + strlen(LAYERS), &rest))
        return REIN_WEIGHT_IGNORED;
    for (int i = 0; i < LAYER_ROWS; i++)
        if (!strcmp(rest, layer_rows[i].name) && present(c, is_sparse(c, layer), layer_rows[i].when)) return REIN_WEIGHT_USED;
    return is_sparse(c, layer) && is_expert(c, rest) ? REIN_WEIGHT_USED : REIN_WEIGHT_IGNORED;
}

static rein_status missing(const rein_model_config *c, const rein_weight *weight, const rein_tensors *tensors, rein_error *err) {
    char shown[REIN_PATH_SHOWN], shape[REIN_SHAPE_SHOWN];
    size_t absent = 0;
    const size_t n = rein_model_weights(c);
    for (size_t i = 0; i < n; i++) {
        rein_weight w;
        rein_model_weight(&w, c, i);
        absent += !rein_model_tensor(c, tensors, w.name);
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
                     weight->name, shape, absent - 1, n, c->family->model_type, (long long)c->n_layers);
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
    const rein_tensor *found = rein_model_tensor(c, tensors, weight->name);
    if (!found && weight->kind == REIN_SCORE) return REIN_OK;
    if (!found) return missing(c, weight, tensors, err);
    int same = found->n_dims == weight->n_dims;
    for (int i = 0; same && i < weight->n_dims; i++) same = found->shape[i] == weight->shape[i];
    if (!same) return wrong_shape(c, weight, found, err);
    return rein_tensors_weight(&found, tensors, found->name, err);
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
