/* gguf_config.c - the config.json of a GGUF model. The values are named after the architecture, "llama.block_count"; rows of tables say
 * which field of config.json each becomes. What only the tensors tell (biases, a tied head, factors of the rotary embedding) is read from
 * them. The configuration's own reader then checks everything. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf.h"

static const rein_gguf_family families[] = {
    {"llama", "llama", "LlamaForCausalLM", .pairs = 1, .all_biases = 1, .same_as = "mistral"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", .pairs = 0},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", .pairs = 0},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", .pairs = 0},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", .added_one = 1, .windows = 2},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", .added_one = 1, .windows = 6, .same_as = "gemma3"},
    {"phi3", "phi3", "Phi3ForCausalLM", .windows = 1},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", .pairs = 0},
    {"granite", "granite", "GraniteForCausalLM", .pairs = 1, .all_biases = 1},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", .pairs = 1},
};
enum { FAMILIES = sizeof families / sizeof *families };

const char *rein_gguf_families_show(char to[REIN_GGUF_FAMILIES_SHOWN]) {
    size_t n = 0;
    for (size_t i = 0; i < FAMILIES; i++)
        n += (size_t)snprintf(to + n, REIN_GGUF_FAMILIES_SHOWN - n, "%s%s",
                              i == 0             ? ""
                              : i + 1 < FAMILIES ? ", "
                                                 : " and ",
                              families[i].architecture);
    return to;
}

const rein_gguf_family *rein_gguf_family_named(const char *model_type) {
    for (size_t i = 0; i < FAMILIES; i++)
        if (!strcmp(families[i].model_type, model_type) || (families[i].same_as && !strcmp(families[i].same_as, model_type)))
            return &families[i];
    return NULL;
}

rein_status rein_gguf_family_of(const rein_gguf_family **family, const rein_gguf *gguf, rein_error *err) {
    static const char key[] = "general.architecture";
    const rein_gguf_value *value = rein_gguf_find(gguf, key);
    char names[REIN_GGUF_FAMILIES_SHOWN];
    if (!value || value->kind != REIN_GGUF_STRING) return rein_gguf_wrong(gguf, key, err, "is missing, or not a string");
    for (size_t i = 0; i < FAMILIES; i++) {
        const char *name = families[i].architecture;
        if (strlen(name) == value->count && !memcmp(name, value->bytes, value->count)) return *family = &families[i], REIN_OK;
    }
    return rein_gguf_wrong(gguf, key, err, "is \"%.*s\", which is not supported: %s are",
                           (int)(value->count < 60 ? value->count : 60), (const char *)value->bytes,
                           rein_gguf_families_show(names));
}

/* ----------------------------------------------------------------------------------------------------------------------- fields */

typedef struct making {
    const rein_gguf *gguf;
    const rein_gguf_family *family;
    json_t *to;
    rein_status status;
    rein_error *err;
} making;

/* The value "ARCHITECTURE.name", or NULL. */
static const rein_gguf_value *value_of(const making *m, const char *name) {
    char key[120];
    snprintf(key, sizeof key, "%s.%s", m->family->architecture, name);
    return rein_gguf_find(m->gguf, key);
}

static double number_of(const making *m, const char *name, double absent) {
    const rein_gguf_value *value = value_of(m, name);
    return value ? rein_gguf_number(value, 0) : absent;
}

static rein_status wrong(making *m, const char *name, const char *why) {
    char key[120];
    snprintf(key, sizeof key, "%s.%s", m->family->architecture, name);
    if (!m->status) m->status = rein_gguf_wrong(m->gguf, key, m->err, "%s", why);
    return m->status;
}

static void set_in(making *m, json_t *object, const char *field, json_t *value) {
    if (m->status) json_decref(value);
    else if (!value || json_object_set_new(object, field, value) != 0) m->status = rein_no_memory(m->err);
}

static void set(making *m, const char *field, json_t *value) { set_in(m, m->to, field, value); }

static void set_integer(making *m, const char *field, double value) {
    set(m, field, fabs(value) < 9e15 ? json_integer((json_int_t)value) : json_integer(-1));
}

/* An f32 with the fewest digits that give it again: 1e-05 and not 9.99999974737875e-06, as the model's authors wrote it. */
static double shortest(const rein_gguf_value *value) {
    const double x = rein_gguf_number(value, 0);
    char text[40];
    if (value->kind != REIN_GGUF_F32) return x;
    for (int digits = 6; digits <= 9; digits++) {
        double y;
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (sscanf(text, "%lf", &y) == 1 && (float)y == (float)x) return y;
    }
    return x;
}

static const struct {
    const char *name, *field;
    int whole;
} rows[] = {
    {"block_count", "num_hidden_layers", 1},
    {"embedding_length", "hidden_size", 1},
    {"feed_forward_length", "intermediate_size", 1},
    {"context_length", "max_position_embeddings", 1},
    {"attention.head_count", "num_attention_heads", 1},
    {"attention.head_count_kv", "num_key_value_heads", 1},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", 0},
    {"rope.freq_base", "rope_theta", 0},
    {"attention.sliding_window", "sliding_window", 1},
    {"attn_logit_softcapping", "attn_logit_softcapping", 0},
    {"final_logit_softcapping", "final_logit_softcapping", 0},
    {"embedding_scale", "embedding_multiplier", 0},
    {"residual_scale", "residual_multiplier", 0},
    {"attention.scale", "attention_multiplier", 0},
    {"logit_scale", "logits_scaling", 0},
    {"expert_count", "num_experts", 1},
    {"expert_used_count", "num_experts_per_tok", 1},
    {"expert_feed_forward_length", "moe_intermediate_size", 1},
};

/* An array, which gives each layer its own value, is supported if all are equal. */
static int same_everywhere(const rein_gguf_value *value) {
    for (size_t i = 1; i < value->count; i++)
        if (rein_gguf_number(value, i) != rein_gguf_number(value, 0)) return 0;
    return value->count > 0;
}

static void put_rows(making *m) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !m->status; i++) {
        const rein_gguf_value *value = value_of(m, rows[i].name);
        if (!value) continue;
        const double x = rein_gguf_number(value, 0);
        if (value->kind == REIN_GGUF_STRING || value->element == REIN_GGUF_STRING) wrong(m, rows[i].name, "is not a number");
        else if (value->kind == REIN_GGUF_ARRAY && !same_everywhere(value))
            wrong(m, rows[i].name, "differs from layer to layer, which is not supported");
        else if (!isfinite(x)) wrong(m, rows[i].name, "is not a finite number");
        else if (!rows[i].whole) set(m, rows[i].field, json_real(value->kind == REIN_GGUF_ARRAY ? x : shortest(value)));
        else if (x != 0 || strncmp(rows[i].name, "attention.sliding", 17) != 0) set_integer(m, rows[i].field, x); /* 0: no window */
    }
}

/* ------------------------------------------------------------------------------------------------------- what the tensors tell */

static int has_tensor(const making *m, const char *name) { return rein_gguf_tensor_find(m->gguf, name) != NULL; }

static void put_tensor_facts(making *m) {
    const rein_gguf_tensor *embedding = rein_gguf_tensor_find(m->gguf, "token_embd.weight");
    if (!embedding || embedding->n_dims != 2) {
        if (!m->status) m->status = rein_gguf_wrong(m->gguf, "token_embd.weight", m->err, "is missing, or not a matrix");
        return;
    }
    set_integer(m, "vocab_size", (double)embedding->sizes[1]);
    if (!value_of(m, "attention.head_count_kv")) set_integer(m, "num_key_value_heads", number_of(m, "attention.head_count", 0));
    set(m, "tie_word_embeddings", json_boolean(!has_tensor(m, "output.weight")));
    if (strcmp(m->family->architecture, "qwen2") != 0) set(m, "attention_bias", json_boolean(has_tensor(m, "blk.0.attn_q.bias")));
    set(m, "mlp_bias", json_boolean(has_tensor(m, "blk.0.ffn_up.bias")));
}

static size_t head_dim_of(making *m) {
    const double heads = number_of(m, "attention.head_count", 0);
    const double width = heads > 0 ? number_of(m, "embedding_length", 0) / heads : 0;
    const double dim = number_of(m, "attention.key_length", width);
    if (number_of(m, "attention.value_length", dim) != dim) wrong(m, "attention.value_length", "differs from attention.key_length");
    return dim >= 1 && dim <= 65536 ? (size_t)dim : 0;
}

/* The factors of a rotary embedding, one for each frequency. */
static const float *factors_of(making *m, const char *name, size_t n) {
    const rein_gguf_tensor *tensor = rein_gguf_tensor_find(m->gguf, name);
    if (!tensor) return NULL;
    if (tensor->type == 0 && tensor->n_dims == 1 && tensor->sizes[0] == n) return (const float *)(const void *)tensor->data;
    if (!m->status) m->status = rein_gguf_wrong(m->gguf, name, m->err, "is not a list of %zu numbers of type F32", n);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- rotary embedding */

double rein_gguf_llama3_factor(double theta, size_t i, size_t dims, double factor, double low, double high, double original) {
    const double length = 2 * 3.14159265358979323846 * pow(theta, 2 * (double)i / (double)dims);
    if (length < original / high) return 1;
    if (length > original / low) return factor;
    const double smooth = (original / length - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

/* GGUF has the factors of Llama 3's scaling, and config.json the numbers that they come from. Every published model has the same low and
 * high factors and original context; where the factors are not those, there is no config.json that says the same. */
static void put_llama3(making *m, const float *factors, size_t n, double theta) {
    static const double low = 1, high = 4, original = 8192;
    const double factor = (double)factors[n - 1];
    for (size_t i = 0; i < n; i++) {
        const double expected = rein_gguf_llama3_factor(theta, i, 2 * n, factor, low, high, original);
        if (fabs((double)factors[i] - expected) <= 1e-4 * expected) continue;
        if (!m->status)
            m->status = rein_gguf_wrong(m->gguf, "rope_freqs.weight", m->err,
                                        "has %g for frequency %zu: with a factor of %g, Llama 3's scaling has %g",
                                        (double)factors[i], i, factor, expected);
        return;
    }
    if (!m->status)
        set(m, "rope_scaling",
            json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", factor, "low_freq_factor", low,
                      "high_freq_factor", high, "original_max_position_embeddings", (int)original));
}

static json_t *list_of(const float *numbers, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n && list; i++)
        if (json_array_append_new(list, json_real((double)numbers[i])) != 0) json_decref(list), list = NULL;
    return list;
}

static void put_longrope(making *m, const float *short_factors, const float *long_factors, size_t n) {
    const double original = number_of(m, "rope.scaling.original_context_length", 0);
    const rein_gguf_value *factor = value_of(m, "rope.scaling.attn_factor");
    json_t *scaling = json_object();
    if (original > 0) set_integer(m, "original_max_position_embeddings", original);
    set_in(m, scaling, "type", json_string("longrope"));
    set_in(m, scaling, "short_factor", list_of(short_factors, n));
    set_in(m, scaling, "long_factor", list_of(long_factors, n));
    if (factor && rein_gguf_number(factor, 0) > 0) set_in(m, scaling, "attention_factor", json_real(rein_gguf_number(factor, 0)));
    set(m, "rope_scaling", scaling);
}

static void put_scaling(making *m) {
    static const char name[] = "rope.scaling.type";
    const rein_gguf_value *type = value_of(m, name), *old = value_of(m, "rope.scale_linear");
    const double factor = number_of(m, "rope.scaling.factor", old ? rein_gguf_number(old, 0) : 0);
    const double original = number_of(m, "rope.scaling.original_context_length", 0);
    const int linear = type ? type->count == 6 && !memcmp(type->bytes, "linear", 6) : factor != 0 && factor != 1,
              yarn = type && type->count == 4 && !memcmp(type->bytes, "yarn", 4);
    if (type && type->kind != REIN_GGUF_STRING) wrong(m, name, "is not a string");
    else if (type && !linear && !yarn && !(type->count == 4 && !memcmp(type->bytes, "none", 4)))
        wrong(m, name, "is not supported: none, linear and yarn are, and longrope with its factors");
    if (m->status || !(linear || yarn)) return;
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", yarn ? "yarn" : "linear", "factor", factor);
    if (yarn && original > 0 && scaling) set_in(m, scaling, "original_max_position_embeddings", json_integer((json_int_t)original));
    set(m, "rope_scaling", scaling);
}

static void put_rope(making *m, size_t head_dim) {
    const double dims = number_of(m, "rope.dimension_count", (double)head_dim), theta = number_of(m, "rope.freq_base", 1e4);
    const int phi3 = !strcmp(m->family->architecture, "phi3");
    if (!(dims >= 2 && dims <= (double)head_dim) || (dims != (double)head_dim && !phi3)) {
        wrong(m, "rope.dimension_count", phi3 ? "is above the width of a head" : "is not the width of a head");
        return;
    }
    if (dims != (double)head_dim) set(m, "partial_rotary_factor", json_real(dims / (double)head_dim));
    const size_t n = (size_t)dims / 2;
    const float *freqs = factors_of(m, "rope_freqs.weight", n), *near = factors_of(m, "rope_factors_short.weight", n),
                *far = factors_of(m, "rope_factors_long.weight", n);
    if (m->status) return;
    if (near && far) put_longrope(m, near, far, n);
    else if (freqs) put_llama3(m, freqs, n, theta);
    else put_scaling(m);
}

/* ----------------------------------------------------------------------------------------------------------------- per family */

/* Gemma scales scores by the width of a head, except in its 27B models, by that of all heads. llama.cpp tells them by their layers. */
double rein_gguf_gemma_scale(const char *architecture, double layers, double hidden, double heads, double head_dim) {
    return layers == (strcmp(architecture, "gemma2") == 0 ? 46 : 62) ? floor(hidden / heads) : head_dim;
}

static void put_gemma(making *m, size_t head_dim) {
    const double heads = number_of(m, "attention.head_count", 1), hidden = number_of(m, "embedding_length", 0),
                 layers = number_of(m, "block_count", 0);
    set_integer(m, "query_pre_attn_scalar",
                rein_gguf_gemma_scale(m->family->architecture, layers, hidden, heads, (double)head_dim));
}

/* Which layers have a window: one flag each, or "all but every n-th". */
static void put_window_pattern(making *m) {
    const rein_gguf_value *pattern = value_of(m, "attention.sliding_window_pattern");
    if (!pattern || m->status) return;
    if (pattern->kind != REIN_GGUF_ARRAY) {
        set_integer(m, "sliding_window_pattern", rein_gguf_number(pattern, 0));
        return;
    }
    json_t *types = json_array();
    for (size_t i = 0; i < pattern->count && types && !m->status; i++)
        if (json_array_append_new(types, json_string(rein_gguf_number(pattern, i) != 0 ? "sliding_attention" : "full_attention")) !=
            0)
            m->status = rein_no_memory(m->err);
    set(m, "layer_types", types);
}

/* The layers of a mixture of experts that have one MLP. */
static void put_dense_layers(making *m) {
    const double layers = number_of(m, "block_count", 0);
    json_t *list = json_array();
    char name[60];
    for (int l = 0; l < layers && l < 1024 && list && !m->status; l++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
        if (!has_tensor(m, name) && json_array_append_new(list, json_integer(l)) != 0) m->status = rein_no_memory(m->err);
    }
    set(m, "mlp_only_layers", list);
}

static void put_family(making *m, size_t head_dim) {
    const char *name = m->family->architecture;
    if (!strcmp(name, "gemma2")) put_gemma(m, head_dim);
    if (!strcmp(name, "gemma3")) {
        put_gemma(m, head_dim);
        set(m, "rope_local_base_freq", json_real(number_of(m, "rope.freq_base_swa", 1e4)));
    }
    if (!strcmp(name, "qwen3moe")) {
        set(m, "norm_topk_prob", json_true()); /* llama.cpp has no other */
        put_dense_layers(m);
    }
    put_window_pattern(m);
    if (!strcmp(name, "phi3") && !value_of(m, "attention.sliding_window")) set(m, "sliding_window", json_null());
    if (strcmp(name, "qwen3moe") != 0 && number_of(m, "expert_count", 0) == 0 && !m->status) json_object_del(m->to, "num_experts");
}

/* --------------------------------------------------------------------------------------------------------------------- tokens */

/* Where a turn of a chat ends, in models whose metadata names only the end of a text. */
static const char *const turn_ends[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>"};

static void add_end(making *m, json_t *list, double id) {
    const size_t n = json_array_size(list);
    if (m->status || !(id >= 0 && id < 2147483648.0)) return;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)id) return;
    if (json_array_append_new(list, json_integer((json_int_t)id)) != 0) m->status = rein_no_memory(m->err);
}

static void put_tokens(making *m) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const rein_gguf_value *bos = rein_gguf_find(m->gguf, "tokenizer.ggml.bos_token_id"),
                          *tokens = rein_gguf_find(m->gguf, "tokenizer.ggml.tokens");
    const int listed = tokens && tokens->kind == REIN_GGUF_ARRAY && tokens->element == REIN_GGUF_STRING;
    const unsigned char *at = listed ? tokens->bytes : NULL;
    json_t *list = json_array();
    if (!list) m->status = rein_no_memory(m->err);
    for (size_t i = 0; i < 3; i++)
        add_end(m, list, rein_gguf_find(m->gguf, ends[i]) ? rein_gguf_number(rein_gguf_find(m->gguf, ends[i]), 0) : -1);
    for (size_t i = 0; listed && i < tokens->count; i++) {
        const rein_gguf_text text = rein_gguf_next_text(&at);
        for (size_t k = 0; k < sizeof turn_ends / sizeof *turn_ends; k++)
            if (text.length == strlen(turn_ends[k]) && !memcmp(text.bytes, turn_ends[k], text.length)) add_end(m, list, (double)i);
    }
    if (bos) set_integer(m, "bos_token_id", rein_gguf_number(bos, 0));
    else set(m, "bos_token_id", json_null());
    if (json_array_size(list)) set(m, "eos_token_id", list);
    else json_decref(list), set(m, "eos_token_id", json_null());
}

/* ------------------------------------------------------------------------------------------------------------------- the whole */

rein_status rein_gguf_config(json_t **json, const rein_gguf *gguf, rein_error *err) {
    making m = {.gguf = gguf, .to = json_object(), .err = err};
    *json = NULL;
    m.status = m.to ? rein_gguf_family_of(&m.family, gguf, err) : rein_no_memory(err);
    if (!m.status) {
        set(&m, "architectures", json_pack("[s]", m.family->class_name));
        set(&m, "model_type", json_string(m.family->model_type));
        put_rows(&m);
        const size_t head_dim = head_dim_of(&m);
        set_integer(&m, "head_dim", (double)head_dim);
        put_tensor_facts(&m);
        if (!m.status) put_rope(&m, head_dim);
        put_family(&m, head_dim);
        put_tokens(&m);
    }
    if (m.status) json_decref(m.to);
    else *json = m.to;
    return m.status;
}
