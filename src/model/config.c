/* config.c - reads config.json, as transformers 4 and 5 write it, into a rein_model_config. Unsupported settings are errors that
 * name them; absent ones have the default of the family's configuration class in transformers (as of 5.22). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "weight_type.h"

/* A family is a row. The numbers are the defaults of its configuration class; kv_heads 0: as many as heads. */
static const struct family {
    const char *model_type, *architecture;
    int64_t kv_heads, head_dim, max_positions;
    int64_t bos, eos;       /* -1: none */
    int bias_by_config;     /* attention_bias of config.json turns on biases of q, k, v and o */
    int qkv_bias, mlp_bias; /* qkv_bias: q, k and v always have one; mlp_bias: config.json may turn it on */
    int qk_norm;
    int64_t sliding_window; /* the default if absent; 0: the family has none */
    int window_by_flag;     /* the window is used only if use_sliding_window is true */
} families[REIN_FAMILIES] = {
    [REIN_LLAMA] = {"llama", "LlamaForCausalLM", .max_positions = 2048, .bos = 1, .eos = 2, .bias_by_config = 1, .mlp_bias = 1},
    [REIN_MISTRAL] = {"mistral", "MistralForCausalLM", .kv_heads = 8, .max_positions = 131072, .bos = 1, .eos = 2,
                      .sliding_window = 4096},
    [REIN_QWEN2] = {"qwen2", "Qwen2ForCausalLM", .kv_heads = 32, .max_positions = 32768, .bos = -1, .eos = -1, .qkv_bias = 1,
                    .sliding_window = 4096, .window_by_flag = 1},
    [REIN_QWEN3] = {"qwen3", "Qwen3ForCausalLM", .kv_heads = 32, .head_dim = 128, .max_positions = 32768, .bos = -1, .eos = -1,
                    .bias_by_config = 1, .qk_norm = 1, .sliding_window = 4096, .window_by_flag = 1},
};

/* Limits, far above any model: the product of two of these, times 8 bytes, stays below 2^63. */
enum { MAX_TOKENS = 1 << 26, MAX_WIDTH = 1 << 24, MAX_LAYERS = 1 << 14, MAX_HEADS = 1 << 14, MAX_HEAD_DIM = 1 << 14 };
static const int64_t MAX_POSITIONS = (int64_t)1 << 40;

const char *rein_family_name(rein_family family) { return families[family].model_type; }

/* ----------------------------------------------------------------------------------------------------------------- family */

static int family_of(rein_family *family, const char *model_type, const char *architecture) {
    for (int i = 0; i < REIN_FAMILIES; i++) {
        const int agrees =
            architecture ? !strcmp(architecture, families[i].architecture) : !strcmp(model_type, families[i].model_type);
        if (agrees) return *family = (rein_family)i, 1;
    }
    return 0;
}

static void read_family(rein_model_config *to, rein_fields *in) {
    static const char supported[] = "not supported; LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM "
                                    "are (model_type llama, mistral, qwen2, qwen3)";
    const json_t *architectures = rein_fields_array(in, "architectures"), *first = json_array_get(architectures, 0);
    const char *model_type = rein_fields_string_or(in, "model_type", NULL), *architecture = json_string_value(first);
    if (in->status) return;
    if (first && (!architecture || json_array_size(architectures) != 1))
        rein_fields_wrong(in, "architectures", architectures, "the name of one architecture is needed");
    else if (!first && !model_type) rein_fields_wrong(in, "architectures", NULL, "the name of one architecture is needed");
    else if (!family_of(&to->family, model_type, architecture))
        rein_fields_wrong(in, first ? "architectures[0]" : "model_type", first ? first : json_object_get(in->object, "model_type"),
                          "%s", supported);
    else if (model_type && strcmp(model_type, families[to->family].model_type) != 0)
        rein_fields_wrong(in, "model_type", json_object_get(in->object, "model_type"), "with %s it is \"%s\"", architecture,
                          families[to->family].model_type);
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
            rein_fields_wrong(in, keys[i], value, "mixtures of experts are not supported; dense models are");
    }
}

static void refuse_activation(rein_fields *in) {
    const char *activation = rein_fields_string_or(in, "hidden_act", "silu");
    if (activation && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0) /* two names of the same function */
        rein_fields_wrong(in, "hidden_act", json_object_get(in->object, "hidden_act"), "not supported; \"silu\" is");
}

/* Sliding windows are not supported. A window as long as the context has no effect. */
static void refuse_window(const rein_model_config *c, rein_fields *in) {
    const struct family *family = &families[c->family];
    const json_t *types = rein_fields_array(in, "layer_types"), *window = json_object_get(in->object, "sliding_window");
    const int64_t first = rein_fields_integer_or(in, "max_window_layers", 0, INT64_MAX, 28);
    const int flag = rein_fields_bool_or(in, "use_sliding_window", 0);
    int64_t size =
        window && family->sliding_window ? rein_fields_integer_or(in, "sliding_window", 1, INT64_MAX, 0) : family->sliding_window;
    size_t i;
    json_t *type;
    if (family->window_by_flag && !flag) size = 0;
    json_array_foreach((json_t *)(uintptr_t)types, i, type) {
        char key[40];
        const char *name = json_string_value(type);
        snprintf(key, sizeof key, "layer_types[%zu]", i);
        if (name && !strcmp(name, "full_attention")) continue;
        if (name && !strcmp(name, "sliding_attention") && size >= c->max_positions) continue;
        rein_fields_wrong(in, key, type, "not supported; \"full_attention\" is");
    }
    if (family->sliding_window == 0 || size == 0 || size >= c->max_positions) return;
    if (family->window_by_flag && (types || first >= c->n_layers)) return;
    rein_fields_wrong(in, "sliding_window", window,
                      "a window of %lld in a context of %lld is not supported; null is (with no window in use)", (long long)size,
                      (long long)c->max_positions);
}

/* ------------------------------------------------------------------------------------------------------------- rotary embedding */

static void read_rope_type(rein_rope *rope, rein_fields *in) {
    static const char *const names[] = {"default", "linear", "llama3"};
    const char *type = rein_fields_string_or(in, "rope_type", NULL), *old = rein_fields_string_or(in, "type", NULL);
    const char *key = type ? "rope_type" : "type";
    if (in->status) return;
    if (type && old && strcmp(type, old) != 0)
        rein_fields_wrong(in, "type", json_object_get(in->object, "type"), "rope_type is \"%.40s\": they must agree", type);
    if (!type) type = old ? old : "default";
    int i = 0;
    while (i < 3 && strcmp(type, names[i]) != 0) i++;
    if (i < 3) rope->type = (rein_rope_type)i;
    else rein_fields_wrong(in, key, json_object_get(in->object, key), "not supported; \"default\", \"linear\" and \"llama3\" are");
}

/* Reads the object of rope_scaling or rope_parameters. */
static void read_scaling(rein_rope *rope, rein_fields *in, int64_t max_positions) {
    read_rope_type(rope, in);
    if (rein_fields_number_or(in, "partial_rotary_factor", 0, 1) != 1)
        rein_fields_wrong(in, "partial_rotary_factor", json_object_get(in->object, "partial_rotary_factor"), "not supported; 1 is");
    if (in->status || rope->type == REIN_ROPE_DEFAULT) return;
    rope->factor = rein_fields_number(in, "factor", 0);
    if (rope->type != REIN_ROPE_LLAMA3) return;
    rope->low_freq_factor = rein_fields_number(in, "low_freq_factor", 0);
    rope->high_freq_factor = rein_fields_number(in, "high_freq_factor", 0);
    rope->original_max_positions = rein_fields_integer_or(in, "original_max_position_embeddings", 1, MAX_POSITIONS, max_positions);
    if (!in->status && rope->high_freq_factor <= rope->low_freq_factor)
        rein_fields_wrong(in, "high_freq_factor", json_object_get(in->object, "high_freq_factor"),
                          "it must be above low_freq_factor, %g", rope->low_freq_factor);
}

/* transformers 4 writes rope_theta, and rope_scaling (null if there is none); transformers 5 writes all of it in rope_parameters.
 * Either object may hold either set of fields. */
static void read_rope(rein_model_config *to, rein_fields *in) {
    const json_t *scaling = rein_fields_object(in, "rope_scaling"), *parameters = rein_fields_object(in, "rope_parameters");
    const double theta = rein_fields_number_or(in, "rope_theta", 0, 0);
    rein_rope rope = {.type = REIN_ROPE_DEFAULT, .theta = 10000, .factor = 1};
    if (scaling && parameters && !json_equal((json_t *)(uintptr_t)scaling, (json_t *)(uintptr_t)parameters))
        rein_fields_wrong(in, "rope_scaling", scaling, "rope_parameters is given too, and differs");
    if (rein_fields_number_or(in, "partial_rotary_factor", 0, 1) != 1)
        rein_fields_wrong(in, "partial_rotary_factor", json_object_get(in->object, "partial_rotary_factor"), "not supported; 1 is");
    if (theta > 0) rope.theta = theta;
    if (in->status) return;
    if (scaling || parameters) {
        rein_fields inside = *in;
        inside.object = parameters ? parameters : scaling;
        inside.path = parameters ? "rope_parameters." : "rope_scaling.";
        rope.theta = rein_fields_number_or(&inside, "rope_theta", 0, rope.theta);
        if (theta > 0 && rope.theta != theta)
            rein_fields_wrong(&inside, "rope_theta", json_object_get(inside.object, "rope_theta"),
                              "the rope_theta outside is %g: they must agree", theta);
        read_scaling(&rope, &inside, to->max_positions);
        in->status = inside.status;
    }
    to->rope = rope;
}

/* -------------------------------------------------------------------------------------------------------------------- sizes */

static void read_heads(rein_model_config *to, rein_fields *in) {
    const struct family *family = &families[to->family];
    const json_t *given = json_object_get(in->object, "num_key_value_heads");
    to->n_heads = rein_fields_integer(in, "num_attention_heads", 1, MAX_HEADS);
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
    to->vocab_size = rein_fields_integer(in, "vocab_size", 1, MAX_TOKENS);
    to->hidden_size = rein_fields_integer(in, "hidden_size", 1, MAX_WIDTH);
    to->intermediate_size = rein_fields_integer(in, "intermediate_size", 1, MAX_WIDTH);
    to->n_layers = rein_fields_integer(in, "num_hidden_layers", 1, MAX_LAYERS);
    if (!in->status) read_heads(to, in);
    to->max_positions = rein_fields_integer_or(in, "max_position_embeddings", 1, MAX_POSITIONS, families[to->family].max_positions);
    to->rms_norm_eps = rein_fields_number_or(in, "rms_norm_eps", 0, 1e-6);
}

static void read_switches(rein_model_config *to, rein_fields *in) {
    const struct family *family = &families[to->family];
    const int bias = family->bias_by_config && rein_fields_bool_or(in, "attention_bias", 0);
    to->tie_word_embeddings = rein_fields_bool_or(in, "tie_word_embeddings", 0);
    to->qkv_bias = bias || family->qkv_bias;
    to->o_bias = bias;
    to->mlp_bias = family->mlp_bias && rein_fields_bool_or(in, "mlp_bias", 0);
    to->qk_norm = family->qk_norm;
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
    const struct family *family = &families[to->family];
    to->bos = family->bos < to->vocab_size ? family->bos : -1;
    to->n_eos = family->eos >= 0 && family->eos < to->vocab_size;
    to->eos[0] = family->eos;
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
        if (!strcmp(name, type->word)) to->has_dtype = 1, to->dtype = type->dtype;
    if (!to->has_dtype)
        rein_fields_wrong(in, key, json_object_get(in->object, key), "not supported; %s are", rein_weight_words_show(words, "and"));
}

/* -------------------------------------------------------------------------------------------------------------- files */

rein_status rein_model_config_parse(rein_model_config *config, const char *file, const json_t *json, const char *generation_file,
                                    const json_t *generation, rein_error *err) {
    rein_model_config c = {0};
    rein_fields in = {.object = json, .file = file, .path = "", .err = err};
    read_family(&c, &in);
    refuse_quantization(&in);
    refuse_experts(&in);
    refuse_activation(&in);
    if (!in.status) read_sizes(&c, &in);
    if (!in.status) refuse_window(&c, &in);
    read_rope(&c, &in);
    read_switches(&c, &in);
    read_dtype(&c, &in);
    default_tokens(&c);
    read_tokens(&c, &in, 1);
    if (!in.status && generation) {
        in = (rein_fields){.object = generation, .file = generation_file, .path = "", .err = err};
        read_tokens(&c, &in, 0);
    }
    if (!in.status) *config = c;
    return in.status;
}

/* Reads DIRECTORY/NAME. If it is optional and does not exist, *json is NULL. */
static rein_status read_json(json_t **json, char **path, const char *directory, const char *name, int optional, rein_error *err) {
    *json = NULL;
    *path = rein_path_join(directory, name);
    if (!*path) return rein_fail(err, REIN_ENOMEM, "out of memory");
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

static rein_status change(json_t *json, const char *file, rein_tensor_type dtype, int tie, rein_error *err) {
    rein_model_config before;
    const rein_status status = rein_model_config_parse(&before, file, json, NULL, NULL, err);
    if (status) return status;
    if (set_dtype(json, &before, dtype) != 0) return rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!before.tie_word_embeddings != !tie && json_object_set_new(json, "tie_word_embeddings", json_boolean(tie)) != 0)
        return rein_fail(err, REIN_ENOMEM, "out of memory");
    return REIN_OK;
}

rein_status rein_model_config_write(const char *to_directory, const char *from_directory, rein_tensor_type dtype,
                                    int tie_word_embeddings, rein_error *err) {
    char *from = NULL, *to = NULL;
    json_t *json = NULL;
    char types[REIN_WEIGHT_TYPES_SHOWN];
    if (!rein_weight_type_of(dtype))
        return rein_fail(err, REIN_EINVAL, "a model is written as %s", rein_weight_types_show(types, "or"));
    rein_status status = read_json(&json, &from, from_directory, "config.json", 0, err);
    if (!status) status = change(json, from, dtype, tie_word_embeddings, err);
    if (!status) to = rein_path_join(to_directory, "config.json");
    if (!status) status = to ? rein_json_file_write(to, json, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    json_decref(json);
    free(from);
    free(to);
    return status;
}
