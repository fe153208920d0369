/* config.c - reads config.json, as transformers 4 and 5 write it, into a rein_model_config. Unsupported settings are errors that
 * name them; absent ones have the default of the family's configuration class in transformers (as of 5.22). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "gguf.h"
#include "weight_type.h"

/* Limits, far above any model: the product of two of these, times 8 bytes, stays below 2^63. */
enum { MAX_TOKENS = 1 << 26, MAX_WIDTH = 1 << 24, MAX_HEADS = 1 << 14, MAX_HEAD_DIM = 1 << 14, MAX_ALL_EXPERTS = 1 << 16 };
static const int64_t MAX_POSITIONS = (int64_t)1 << 40;

/* ----------------------------------------------------------------------------------------------------------------- family */

static void refuse_family(rein_fields *in, const char *key, const json_t *value) {
    char names[320];
    size_t n = 0;
    const rein_family *family;
    for (size_t i = 0; (family = rein_family_at(i)) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s",
                              !i                      ? ""
                              : rein_family_at(i + 1) ? ", "
                                                      : " and ",
                              family->architecture);
    rein_fields_wrong(in, key, value, "not supported; %s are", names);
}

static void read_family(rein_model_config *to, rein_fields *in) {
    const json_t *architectures = rein_fields_array(in, "architectures"), *first = json_array_get(architectures, 0);
    const char *model_type = rein_fields_string_or(in, "model_type", NULL), *architecture = json_string_value(first);
    const json_t *type = json_object_get(in->object, "model_type");
    if (in->status) return;
    if (first && (!architecture || json_array_size(architectures) != 1))
        rein_fields_wrong(in, "architectures", architectures, "the name of one architecture is needed");
    else if (!first && !model_type) rein_fields_wrong(in, "architectures", NULL, "the name of one architecture is needed");
    if (in->status) return;
    to->family = rein_family_find(model_type, architecture);
    if (!to->family) refuse_family(in, first ? "architectures[0]" : "model_type", first ? first : type);
    else if (model_type && strcmp(model_type, to->family->model_type) != 0)
        rein_fields_wrong(in, "model_type", type, "with %s it is \"%s\"", architecture, to->family->model_type);
    to->classifies = architecture && rein_is_classifier(architecture);
}

/* num_labels, or the size of id2label, or 2, as transformers reads them. */
static void read_labels(rein_model_config *to, rein_fields *in) {
    const json_t *names = json_object_get(in->object, "id2label");
    const int64_t labels = json_is_object(names) && json_object_size(names) ? (int64_t)json_object_size(names) : 2;
    to->labels = to->classifies ? rein_fields_integer_or(in, "num_labels", 1, MAX_WIDTH, labels) : 0;
}

/* Others write numbers that no token has, such as -1 or the size of the vocabulary. */
static void read_pad(rein_model_config *to, const json_t *json) {
    const json_t *pad = json_object_get(json, "pad_token_id");
    to->pad = json_is_integer(pad) ? json_integer_value(pad) : -1;
}

/* Goes on in the object that describes the text model, if the family has one. */
static void enter_nested(const rein_model_config *c, rein_fields *in) {
    if (in->status || !c->family->nested) return;
    const json_t *inside = rein_fields_object(in, c->family->nested);
    if (!inside) rein_fields_wrong(in, c->family->nested, NULL, "an object is needed: it describes the text model");
    else in->object = inside, in->path = "text_config.";
}

/* ------------------------------------------------------------------------------------------------------------- unsupported settings */

static void refuse_quantization(rein_fields *in) {
    const json_t *quantization = rein_fields_object(in, "quantization_config");
    const json_t *method = json_object_get(quantization, "quant_method");
    char types[REIN_WEIGHT_TYPES_SHOWN];
    if (!quantization) return;
    rein_weight_types_show(types, "and");
    if (json_is_string(method))
        rein_fields_wrong(in, "quantization_config.quant_method", method, "quantized weights are not supported; %s are", types);
    else rein_fields_wrong(in, "quantization_config", quantization, "quantized weights are not supported; %s are", types);
}

static void refuse_experts(rein_fields *in) {
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size", NULL};
    for (int i = 0; keys[i]; i++) {
        const json_t *value = json_object_get(in->object, keys[i]);
        if (value && !json_is_null(value) && json_number_value(value) != 0)
            rein_fields_wrong(in, keys[i], value, "mixtures of experts are not supported in this family");
    }
}

static void read_activation(rein_model_config *to, rein_fields *in) {
    const char *key = to->family->activation_key ? to->family->activation_key : "hidden_act";
    const int silu = to->family->activation == REIN_SILU;
    const char *name = rein_fields_string_or(in, key, NULL);
    to->activation = to->family->activation;
    if (!name || !strcmp(name, silu ? "silu" : "gelu_pytorch_tanh")) return;
    if (silu && !strcmp(name, "swish")) return; /* another name of silu */
    rein_fields_wrong(in, key, json_object_get(in->object, key), "not supported; \"%s\" is", silu ? "silu" : "gelu_pytorch_tanh");
}

double rein_config_cap(rein_fields *in, const char *key, double fallback) {
    return json_is_null(json_object_get(in->object, key)) ? 0 : rein_fields_number_or(in, key, 0, fallback);
}

void rein_config_check_experts(rein_model_config *to, rein_fields *in) {
    int any = 0;
    for (int64_t l = 0; l < to->n_layers; l++) any |= to->layers[l] & REIN_LAYER_EXPERTS;
    if (!any) to->n_experts = 0;
    if (any && to->experts_per_token > to->n_experts)
        rein_fields_wrong(in, "num_experts_per_tok", json_object_get(in->object, "num_experts_per_tok"),
                          "at most as many as there are experts, %lld, are needed", (long long)to->n_experts);
    if (to->n_experts * to->n_layers > MAX_ALL_EXPERTS)
        rein_fields_wrong(in, "num_hidden_layers", json_object_get(in->object, "num_hidden_layers"),
                          "with %lld experts in a layer, at most %lld layers are supported", (long long)to->n_experts,
                          (long long)(MAX_ALL_EXPERTS / to->n_experts));
}

void rein_config_refuse(rein_fields *in, const char *key) {
    const json_t *value = json_object_get(in->object, key);
    if (value && !json_is_null(value) && !json_is_false(value)) rein_fields_wrong(in, key, value, "not supported; null is");
}

/* -------------------------------------------------------------------------------------------------------------------- sizes */

static void read_heads(rein_model_config *to, rein_fields *in) {
    const rein_family *family = to->family;
    const json_t *given = json_object_get(in->object, "num_key_value_heads");
    to->n_heads = family->heads ? rein_fields_integer_or(in, "num_attention_heads", 1, MAX_HEADS, family->heads)
                                : rein_fields_integer(in, "num_attention_heads", 1, MAX_HEADS);
    const int64_t kv_heads = given || !family->kv_heads ? to->n_heads : family->kv_heads; /* null and absent differ */
    to->n_kv_heads = rein_fields_integer_or(in, "num_key_value_heads", 1, MAX_HEADS, kv_heads);
    if (in->status) return;
    if (to->n_heads % to->n_kv_heads != 0)
        rein_fields_wrong(in, "num_attention_heads", json_object_get(in->object, "num_attention_heads"),
                          "a multiple of num_key_value_heads, %lld, is needed", (long long)to->n_kv_heads);
    const int stated = rein_fields_has(in, "head_dim") || family->head_dim;
    if (!stated && to->hidden_size % to->n_heads != 0)
        rein_fields_wrong(in, "hidden_size", json_object_get(in->object, "hidden_size"),
                          "without head_dim, a multiple of num_attention_heads, %lld, is needed", (long long)to->n_heads);
    to->head_dim = rein_fields_integer_or(in, "head_dim", 2, MAX_HEAD_DIM,
                                          family->head_dim ? family->head_dim : to->hidden_size / to->n_heads);
    if (!in->status && (to->head_dim % 2 != 0 || to->head_dim > MAX_HEAD_DIM))
        rein_fields_wrong(in, stated ? "head_dim" : "hidden_size", json_object_get(in->object, stated ? "head_dim" : "hidden_size"),
                          "the width of a head is %lld; an even number up to %d is needed", (long long)to->head_dim, MAX_HEAD_DIM);
}

static void read_sizes(rein_model_config *to, rein_fields *in) {
    const rein_family *family = to->family;
    to->vocab_size = family->vocab_size ? rein_fields_integer_or(in, "vocab_size", 1, MAX_TOKENS, family->vocab_size)
                                        : rein_fields_integer(in, "vocab_size", 1, MAX_TOKENS);
    to->hidden_size = rein_fields_integer(in, "hidden_size", 1, MAX_WIDTH);
    to->intermediate_size = rein_fields_integer(in, "intermediate_size", 1, MAX_WIDTH);
    to->n_layers = rein_fields_integer(in, "num_hidden_layers", 1, REIN_MAX_LAYERS);
    if (!in->status) read_heads(to, in);
    to->max_positions = rein_fields_integer_or(in, "max_position_embeddings", 1, MAX_POSITIONS, family->max_positions);
    to->rms_norm_eps = rein_fields_number_or(in, "rms_norm_eps", 0, family->norm_epsilon > 0 ? family->norm_epsilon : 1e-6);
}

static void read_switches(rein_model_config *to, rein_fields *in) {
    const rein_family *family = to->family;
    const int bias = family->bias_by_config && rein_fields_bool_or(in, "attention_bias", 0);
    to->tie_word_embeddings = rein_fields_bool_or(in, "tie_word_embeddings", family->tied);
    to->qkv_bias = bias || family->qkv_bias;
    to->o_bias = bias;
    to->mlp_bias = family->mlp_bias && rein_fields_bool_or(in, "mlp_bias", 0);
    to->qk_norm = family->qk_norm;
    to->initializer_range = rein_fields_number_or(in, "initializer_range", 0, 0.02);
    to->embedding_scale = family->scaled_embedding ? sqrt((double)to->hidden_size) : 1;
    to->residual_scale = to->logit_divisor = 1;
}

/* ------------------------------------------------------------------------------------------------------------- tokens and types */

static int64_t token(rein_fields *in, const char *key, const json_t *value, int64_t vocab_size) {
    const int64_t id = json_integer_value(value);
    if (json_is_integer(value) && id >= 0 && id < vocab_size) return id;
    rein_fields_wrong(in, key, value, "a token id from 0 to %lld (vocab_size - 1) is needed", (long long)vocab_size - 1);
    return -1;
}

static void read_eos(rein_model_config *to, rein_fields *in, const json_t *value) {
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (n > REIN_MAX_EOS) rein_fields_wrong(in, "eos_token_id", value, "at most %d tokens are supported", REIN_MAX_EOS);
    to->n_eos = 0;
    for (size_t i = 0; i < n && !in->status; i++) {
        char key[40] = "eos_token_id";
        if (json_is_array(value)) snprintf(key, sizeof key, "eos_token_id[%zu]", i);
        to->eos[to->n_eos++] = token(in, key, json_is_array(value) ? json_array_get(value, i) : value, to->vocab_size);
    }
}

/* An absent field changes nothing; neither does null in generation_config.json. null in config.json means none. */
static void read_tokens(rein_model_config *to, rein_fields *in, int null_is_none) {
    const json_t *bos = json_object_get(in->object, "bos_token_id"), *eos = json_object_get(in->object, "eos_token_id");
    if (in->status) return;
    if (bos && !json_is_null(bos)) to->bos = token(in, "bos_token_id", bos, to->vocab_size);
    else if (bos && null_is_none) to->bos = -1;
    if (eos && !json_is_null(eos)) read_eos(to, in, eos);
    else if (eos && null_is_none) to->n_eos = 0;
}

static void default_tokens(rein_model_config *to) {
    const rein_family *family = to->family;
    to->bos = family->bos < to->vocab_size ? family->bos : -1;
    to->n_eos = family->eos >= 0 && family->eos < to->vocab_size;
    to->eos[0] = family->eos;
}

/* The larger model's own settings take precedence. */
static void read_switches_outside(rein_model_config *to, rein_fields *in) {
    to->tie_word_embeddings = rein_fields_bool_or(in, "tie_word_embeddings", to->tie_word_embeddings);
    read_tokens(to, in, 0);
}

static void read_dtype(rein_model_config *to, rein_fields *in) {
    const char *now = rein_fields_string_or(in, "dtype", NULL), *old = rein_fields_string_or(in, "torch_dtype", NULL);
    const char *key = now ? "dtype" : "torch_dtype", *name = now ? now : old;
    char words[REIN_WEIGHT_TYPES_SHOWN];
    if (in->status || !name) return;
    if (now && old && strcmp(now, old) != 0)
        rein_fields_wrong(in, "torch_dtype", json_object_get(in->object, "torch_dtype"), "dtype is \"%.40s\": they must agree",
                          now);
    if (!strncmp(name, "torch.", 6)) name += 6;
    const rein_weight_type *type;
    for (size_t i = 0; (type = rein_weight_type_at(i)) && !to->has_dtype; i++)
        if (type->word && !strcmp(name, type->word)) to->has_dtype = 1, to->dtype = type->dtype;
    if (!to->has_dtype)
        rein_fields_wrong(in, key, json_object_get(in->object, key), "not supported; %s are", rein_weight_words_show(words, "and"));
}

/* -------------------------------------------------------------------------------------------------------------- files */

/* Reads what the text model is made of. */
static void read_model(rein_model_config *c, rein_fields *in) {
    if (!c->family->experts) refuse_experts(in);
    read_activation(c, in);
    if (!in->status) read_sizes(c, in);
    if (!in->status) read_switches(c, in);
    if (!in->status && c->family->read) c->family->read(c, in);
    if (!in->status) rein_config_read_windows(c, in);
    if (!in->status) rein_config_read_rope(c, in);
    default_tokens(c);
    read_tokens(c, in, 1);
}

rein_status rein_model_config_parse(rein_model_config *config, const char *file, const json_t *json, const char *generation_file,
                                    const json_t *generation, rein_error *err) {
    rein_model_config c = {0};
    rein_fields in = {.object = json, .file = file, .path = "", .err = err};
    read_family(&c, &in);
    if (!in.status) read_labels(&c, &in);
    refuse_quantization(&in);
    enter_nested(&c, &in);
    if (!in.status) read_model(&c, &in);
    in.object = json, in.path = "";
    read_dtype(&c, &in);
    read_pad(&c, json);
    if (!in.status && c.family->nested) read_switches_outside(&c, &in);
    if (!in.status && generation) {
        in = (rein_fields){.object = generation, .file = generation_file, .path = "", .err = err};
        read_tokens(&c, &in, 0);
    }
    if (!in.status) *config = c;
    return in.status;
}

/* Reads DIRECTORY/NAME, or what a model in GGUF has in its place. If it is optional and does not exist, *json is NULL. */
static rein_status read_json(json_t **json, char **path, const char *directory, const char *name, int optional, rein_error *err) {
    const int gguf = rein_gguf_is(directory);
    *json = NULL;
    *path = gguf ? strdup(directory) : rein_path_join(directory, name);
    if (!*path) return rein_no_memory(err);
    if (gguf) return rein_gguf_json(json, directory, name, err);
    return optional && !rein_file_exists(*path) ? REIN_OK : rein_json_read(json, *path, REIN_JSON_NEEDS_OBJECT, err);
}

rein_status rein_model_config_read(rein_model_config *config, const char *directory, rein_error *err) {
    char *file = NULL, *generation_file = NULL;
    json_t *json = NULL, *generation = NULL;
    rein_status status = read_json(&json, &file, directory, "config.json", 0, err);
    if (!status) status = read_json(&generation, &generation_file, directory, "generation_config.json", 1, err);
    if (!status) status = rein_model_config_parse(config, file, json, generation_file, generation, err);
    json_decref(json);
    json_decref(generation);
    free(file);
    free(generation_file);
    return status;
}

/* Sets the type under the name that the file has, dtype or torch_dtype, or under both; if it has neither, as torch_dtype, which
 * every version reads. */
static int set_dtype(json_t *json, const rein_model_config *before, rein_tensor_type dtype) {
    const char *name = rein_weight_type_of(dtype)->word;
    if (before->has_dtype && before->dtype == dtype) return 0;
    const int now = json_object_get(json, "dtype") != NULL, old = json_object_get(json, "torch_dtype") != NULL;
    if (now && json_object_set_new(json, "dtype", json_string(name)) != 0) return -1;
    return old || !now ? json_object_set_new(json, "torch_dtype", json_string(name)) : 0;
}

/* The configuration of the text model alone, which is what is written; the larger model's own settings take precedence. */
static json_t *text_model(const json_t *json, const rein_model_config *c) {
    static const char *const outside[] = {"bos_token_id", "eos_token_id", "tie_word_embeddings", "dtype", "torch_dtype"};
    const rein_family *family = c->family->text;
    json_t *text = json_deep_copy(json_object_get(json, c->family->nested));
    int failed = !text || json_object_set_new(text, "architectures", json_pack("[s]", family->architecture)) != 0 ||
                 json_object_set_new(text, "model_type", json_string(family->model_type)) != 0;
    for (size_t i = 0; i < sizeof outside / sizeof *outside && !failed; i++) {
        json_t *value = json_object_get(json, outside[i]);
        if (value && !json_is_null(value)) failed = json_object_set(text, outside[i], value) != 0;
    }
    if (failed) json_decref(text);
    return failed ? NULL : text;
}

/* One label: transformers writes the names of the labels, of which their number follows. */
static int set_classifier(json_t *json, const rein_family *family, int64_t pad) {
    char name[REIN_ARCHITECTURE];
    const json_t *type = json_object_get(json, "model_type");
    json_object_del(json, "num_labels");
    return json_object_set_new(json, "architectures", json_pack("[s]", rein_family_classifier(name, family))) ||
           (!type && json_object_set_new(json, "model_type", json_string(family->model_type))) ||
           json_object_set_new(json, "pad_token_id", json_integer(pad)) ||
           json_object_set_new(json, "id2label", json_pack("{s:s}", "0", "LABEL_0")) ||
           json_object_set_new(json, "label2id", json_pack("{s:i}", "LABEL_0", 0));
}

static rein_status change(json_t *json, const char *file, rein_tensor_type dtype, int tie, int64_t pad, rein_error *err) {
    rein_model_config before;
    const rein_status status = rein_model_config_parse(&before, file, json, NULL, NULL, err);
    if (status) return status;
    if (set_dtype(json, &before, dtype) != 0) return rein_no_memory(err);
    if (!before.tie_word_embeddings != !tie && json_object_set_new(json, "tie_word_embeddings", json_boolean(tie)) != 0)
        return rein_no_memory(err);
    return pad >= 0 && set_classifier(json, before.family, pad) ? rein_no_memory(err) : REIN_OK;
}

/* Replaces a configuration by that of its text model, if it has one inside. */
static rein_status take_text_model(json_t **json, const char *file, rein_error *err) {
    rein_model_config c;
    const rein_status status = rein_model_config_parse(&c, file, *json, NULL, NULL, err);
    if (status || !c.family->nested) return status;
    json_t *text = text_model(*json, &c);
    json_decref(*json);
    *json = text;
    return text ? REIN_OK : rein_no_memory(err);
}

rein_status rein_model_config_write(const char *to_directory, const char *from_directory, rein_tensor_type dtype,
                                    int tie_word_embeddings, int64_t pad, rein_error *err) {
    char *from = NULL, *to = NULL;
    json_t *json = NULL;
    char types[REIN_WEIGHT_TYPES_SHOWN];
    const rein_weight_type *type = rein_weight_type_of(dtype);
    if (!type || !type->word) return rein_fail(err, REIN_EINVAL, "a model is written as %s", rein_weight_types_show(types, "or"));
    rein_status status = read_json(&json, &from, from_directory, "config.json", 0, err);
    if (!status) status = take_text_model(&json, from, err);
    if (!status) status = change(json, from, dtype, tie_word_embeddings, pad, err);
    if (!status) to = rein_path_join(to_directory, "config.json");
    if (!status) status = to ? rein_json_file_write(to, json, err) : rein_no_memory(err);
    json_decref(json);
    free(from);
    free(to);
    return status;
}
