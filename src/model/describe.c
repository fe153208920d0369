/* describe.c - the parts of a model as config.json has them, as JSON. */
#include <math.h>

#include "config.h"
#include "rein/json.h"
#include "rein/model.h"

static void put_text(rein_text *out, const char *name, const char *text) {
    rein_json_put_name(out, name);
    if (text) rein_json_put_string(out, text);
    else rein_text_put(out, "null");
}

static void put_number(rein_text *out, const char *name, double value) {
    rein_json_put_name(out, name);
    rein_text_format(out, "%.9g", value);
}

static void put_yes(rein_text *out, const char *name, int yes) {
    rein_json_put_name(out, name);
    rein_text_put(out, yes ? "true" : "false");
}

static const char *norms_of(const rein_model_config *c) {
    static const char *const names[] = {"before", "after", "before and after"};
    return names[c->family->norms];
}

static const char *qk_norm_of(const rein_model_config *c) {
    static const char *const names[] = {NULL, "each head", "all heads"};
    return names[c->qk_norm];
}

/* The names of the modules for which `when` is not 0. */
static void put_modules(rein_text *out, const char *name, const rein_model_config *c,
                        int (*when)(const rein_model_config *c, rein_module module)) {
    int n = 0;
    rein_json_put_name(out, name);
    rein_text_put(out, "[");
    for (int m = 0; m <= REIN_HEAD_MODULE; m++) {
        if (!when(c, (rein_module)m)) continue;
        rein_text_put(out, n++ ? ", " : "");
        rein_json_put_string(out, rein_module_name(c, (rein_module)m));
    }
    rein_text_put(out, "]");
}

static int is_fused(const rein_model_config *c, rein_module m) { return rein_module_count(c, m) > 1; }

static int has_lora(const rein_model_config *c, rein_module m) { return rein_module_count(c, m) > 0; }

static int has_bias(const rein_model_config *c, rein_module m) {
    if (m <= REIN_V) return c->qkv_bias;
    if (m == REIN_O) return c->o_bias;
    return m == REIN_HEAD_MODULE ? 0 : c->mlp_bias;
}

/* Those that differ from the usual. */
static void put_scales(rein_text *out, const rein_model_config *c) {
    const double usual = 1 / sqrt((double)c->head_dim);
    if (c->embedding_scale != 1) put_number(out, "embedding_scale", c->embedding_scale);
    if (c->score_scale > 0 && fabs(c->score_scale - usual) > 1e-9 * usual) put_number(out, "score_scale", c->score_scale);
    if (c->residual_scale != 1) put_number(out, "residual_scale", c->residual_scale);
    if (c->logit_divisor != 1) put_number(out, "logit_divisor", c->logit_divisor);
    if (c->score_cap > 0) put_number(out, "score_cap", c->score_cap);
    if (c->logit_cap > 0) put_number(out, "logit_cap", c->logit_cap);
}

/* ---------------------------------------------------------------------------------------------------------------------- layers */

static int is_alike(const rein_model_config *c, size_t a, size_t b) { return c->layers[a] == c->layers[b]; }

/* The layers that are like `first`: "0-4, 6-10, 12". */
static void put_layers(rein_text *out, const rein_model_config *c, size_t first) {
    const size_t layers = (size_t)c->n_layers;
    int n = 0;
    rein_json_put_name(out, "layers");
    rein_text_put(out, "\"");
    for (size_t l = first; l < layers; l++) {
        if (!is_alike(c, l, first)) continue;
        const size_t from = l;
        while (l + 1 < layers && is_alike(c, l + 1, first)) l++;
        rein_text_format(out, from < l ? "%s%zu-%zu" : "%s%zu", n++ ? ", " : "", from, l);
    }
    rein_text_put(out, "\"");
}

static void put_rope(rein_text *out, const rein_rope *rope) {
    static const char *const types[] = {"default", "linear", "llama3", "yarn", "longrope"};
    rein_text_put(out, "{");
    put_number(out, "base", rope->theta);
    if (rope->type != REIN_ROPE_DEFAULT) put_text(out, "type", types[rope->type]);
    if (rope->type != REIN_ROPE_DEFAULT && rope->factor != 1) put_number(out, "factor", rope->factor);
    if (rope->partial != 1) put_number(out, "share_of_head", rope->partial);
    if (rope->attention_factor != 1) put_number(out, "attention_factor", rope->attention_factor);
    rein_text_put(out, "}");
}

static void put_group(rein_text *out, const rein_model_config *c, size_t first) {
    const int rope = rein_layer_rope(c, first);
    rein_text_put(out, "{");
    put_layers(out, c, first);
    rein_json_put_name(out, "window");
    if (c->layers[first] & REIN_LAYER_WINDOW) rein_text_format(out, "%lld", (long long)c->window);
    else rein_text_put(out, "null");
    rein_json_put_name(out, "rope");
    if (rope < 0) rein_text_put(out, "null");
    else put_rope(out, rope ? &c->window_rope : &c->rope);
    if (c->layers[first] & REIN_LAYER_EXPERTS) {
        rein_json_put_name(out, "experts");
        rein_text_put(out, "{");
        put_number(out, "n", (double)c->n_experts);
        put_number(out, "per_token", (double)c->experts_per_token);
        put_number(out, "intermediate", (double)c->expert_size);
        rein_text_put(out, "}");
    }
    rein_text_put(out, "}");
}

static void put_attention(rein_text *out, const rein_model_config *c) {
    int n = 0;
    rein_json_put_name(out, "attention");
    rein_text_put(out, "[");
    for (size_t l = 0; l < (size_t)c->n_layers; l++) {
        size_t like = 0;
        while (!is_alike(c, like, l)) like++;
        if (like < l) continue;
        rein_text_put(out, n++ ? ", " : "");
        put_group(out, c, l);
    }
    rein_text_put(out, "]");
}

rein_status rein_model_description(rein_text *json, const char *directory, rein_error *err) {
    rein_model_config c;
    const rein_status status = rein_model_config_read(&c, directory, err);
    if (status) return status;
    rein_text_put(json, "{");
    put_yes(json, "text_part", c.family->nested != NULL);
    put_text(json, "norms", norms_of(&c));
    put_yes(json, "norm_offset", c.family->norm_offset);
    put_text(json, "qk_norm", qk_norm_of(&c));
    put_text(json, "activation", c.activation == REIN_GELU_TANH ? "gelu_tanh" : "silu");
    put_modules(json, "fused", &c, is_fused);
    put_modules(json, "biases", &c, has_bias);
    put_scales(json, &c);
    put_attention(json, &c);
    put_modules(json, "lora_modules", &c, has_lora);
    rein_text_put(json, "}");
    return rein_text_status(json, err);
}
