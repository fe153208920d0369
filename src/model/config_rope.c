/* config_rope.c - reads the rotary embeddings of a model.
 *
 * transformers 4 writes rope_theta, and rope_scaling (null if there is none); transformers 5 writes all of it in rope_parameters, in some
 * families one object for each type of layer. Either object may hold either set of fields. */
#include <math.h>
#include <string.h>

#include "config.h"

static const int64_t MAX_POSITIONS = (int64_t)1 << 40;

/* The names of a type; longrope has had two others in Phi's files. */
static int type_of(rein_rope_type *type, const char *name, const rein_family *family) {
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "longrope"};
    if (family->longrope && (!strcmp(name, "su") || !strcmp(name, "yarn"))) name = "longrope";
    int i = 0;
    while (i < 5 && strcmp(name, names[i]) != 0) i++;
    *type = (rein_rope_type)i;
    return i < 4 || (i == 4 && family->longrope);
}

static void read_type(rein_rope *rope, rein_fields *in, const rein_family *family) {
    const char *type = rein_fields_string_or(in, "rope_type", NULL), *old = rein_fields_string_or(in, "type", NULL);
    const char *key = type ? "rope_type" : "type";
    if (in->status) return;
    if (type && old && strcmp(type, old) != 0)
        rein_fields_wrong(in, "type", json_object_get(in->object, "type"), "rope_type is \"%.40s\": they must agree", type);
    if (!type) type = old ? old : "default";
    if (!type_of(&rope->type, type, family))
        rein_fields_wrong(in, key, json_object_get(in->object, key), "not supported; \"default\", \"linear\", %s are",
                          family->longrope ? "\"llama3\" and \"longrope\"" : "\"llama3\" and \"yarn\"");
}

static void read_llama3(rein_rope *rope, rein_fields *in, int64_t max_positions) {
    rope->low_freq_factor = rein_fields_number(in, "low_freq_factor", 0);
    rope->high_freq_factor = rein_fields_number(in, "high_freq_factor", 0);
    rope->original_max_positions = rein_fields_integer_or(in, "original_max_position_embeddings", 1, MAX_POSITIONS, max_positions);
    if (!in->status && rope->high_freq_factor <= rope->low_freq_factor)
        rein_fields_wrong(in, "high_freq_factor", json_object_get(in->object, "high_freq_factor"),
                          "it must be above low_freq_factor, %g", rope->low_freq_factor);
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071). */
static double yarn_scale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1; }

static void read_yarn(rein_rope *rope, rein_fields *in, int64_t max_positions) {
    const double m = rein_fields_number_or(in, "mscale", 0, 0), all = rein_fields_number_or(in, "mscale_all_dim", 0, 0);
    rope->original_max_positions = rein_fields_integer_or(in, "original_max_position_embeddings", 1, MAX_POSITIONS, max_positions);
    rope->beta_fast = rein_fields_number_or(in, "beta_fast", 0, 32);
    rope->beta_slow = rein_fields_number_or(in, "beta_slow", 0, 1);
    rope->whole_range = rein_fields_bool_or(in, "truncate", 1);
    const double usual =
        m > 0 && all > 0 ? yarn_scale(rope->factor, m) / yarn_scale(rope->factor, all) : yarn_scale(rope->factor, 1);
    rope->attention_factor = rein_fields_number_or(in, "attention_factor", 0, usual);
}

static void read_factors(rein_rope *rope, rein_fields *in, const char *key, int64_t head_dim) {
    const json_t *list = rein_fields_array(in, key);
    const size_t n = (size_t)(int64_t)((double)head_dim * rope->partial) / 2;
    if (!in->status && (json_array_size(list) != n || n > REIN_MAX_ROPE_FACTORS))
        rein_fields_wrong(in, key, list, "a list of %zu numbers is needed, at most %d", n, REIN_MAX_ROPE_FACTORS);
    for (size_t i = 0; i < n && !in->status; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value) || !(json_number_value(value) > 0))
            rein_fields_wrong(in, key, value, "numbers above 0 are needed");
        else rope->factors[rope->n_factors++] = (float)json_number_value(value);
    }
}

/* LongRoPE (Ding et al. 2024, arXiv 2402.13753) has two sets of factors, and transformers uses the long ones as soon as a sequence is longer
 * than the original context: then the log-probabilities of its earlier tokens change. Here a model has one answer: the short factors, and
 * the original context. */
static void read_longrope(rein_model_config *to, rein_rope *rope, rein_fields *in, const rein_fields *outside) {
    rein_fields whole = *outside;
    const int64_t inside = rein_fields_integer_or(in, "original_max_position_embeddings", 1, MAX_POSITIONS, 4096);
    rope->original_max_positions = rein_fields_integer_or(&whole, "original_max_position_embeddings", 1, MAX_POSITIONS, inside);
    if (whole.status) in->status = whole.status;
    const double original = (double)rope->original_max_positions;
    const double factor = rein_fields_number_or(in, "factor", 0, (double)to->max_positions / original);
    const double usual = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    rope->attention_factor = rein_fields_number_or(in, "attention_factor", 0, usual);
    read_factors(rope, in, "short_factor", to->head_dim);
    if (to->max_positions > rope->original_max_positions) to->max_positions = rope->original_max_positions;
}

static void read_partial(rein_rope *rope, rein_fields *in, const rein_model_config *c) {
    rope->partial = rein_fields_number_or(in, "partial_rotary_factor", 0, rope->partial);
    if (in->status || rope->partial == 1) return;
    const int64_t dims = (int64_t)((double)c->head_dim * rope->partial);
    if (!c->family->partial_rope || rope->partial > 1)
        rein_fields_wrong(in, "partial_rotary_factor", json_object_get(in->object, "partial_rotary_factor"), "not supported; 1 is");
    else if (dims < 2 || dims % 2)
        rein_fields_wrong(in, "partial_rotary_factor", json_object_get(in->object, "partial_rotary_factor"),
                          "of a head of width %lld it takes %lld; an even number from 2 on is needed", (long long)c->head_dim,
                          (long long)dims);
}

/* Reads the object of rope_scaling or rope_parameters, or one for a type of layers. */
static void read_scaling(rein_model_config *to, rein_rope *rope, rein_fields *in, const rein_fields *outside) {
    rope->theta = rein_fields_number_or(in, "rope_theta", 0, rope->theta);
    read_type(rope, in, to->family);
    read_partial(rope, in, to);
    if (in->status || rope->type == REIN_ROPE_DEFAULT) return;
    if (rope->type == REIN_ROPE_LONGROPE) {
        read_longrope(to, rope, in, outside);
        return;
    }
    rope->factor = rein_fields_number(in, "factor", 0);
    if (rope->type == REIN_ROPE_LLAMA3) read_llama3(rope, in, to->max_positions);
    if (rope->type == REIN_ROPE_YARN) read_yarn(rope, in, to->max_positions);
}

/* One object for each type of layer. */
static void read_by_type(rein_model_config *to, rein_fields *in, const json_t *parameters) {
    static const char *const types[] = {"full_attention", "sliding_attention"};
    static const char *const paths[] = {"rope_parameters.full_attention.", "rope_parameters.sliding_attention."};
    rein_rope *const ropes[] = {&to->rope, &to->window_rope};
    to->window_rope = to->rope;
    if (to->family->window_theta > 0) to->window_rope.theta = to->family->window_theta;
    for (int i = 0; i < 2 && !in->status; i++) {
        rein_fields inside = *in;
        inside.object = parameters, inside.path = "rope_parameters.";
        const json_t *object = rein_fields_object(&inside, types[i]);
        if (object) inside.object = object, inside.path = paths[i], read_scaling(to, ropes[i], &inside, in);
        in->status = inside.status;
    }
}

void rein_config_read_rope(rein_model_config *to, rein_fields *in) {
    const rein_family *family = to->family;
    const json_t *scaling = rein_fields_object(in, "rope_scaling"), *parameters = rein_fields_object(in, "rope_parameters");
    const double theta = rein_fields_number_or(in, "rope_theta", 0, 0);
    to->rope = (rein_rope){.theta = theta > 0           ? theta
                                    : family->theta > 0 ? family->theta
                                                        : 1e4,
                           .partial = 1,
                           .factor = 1,
                           .attention_factor = 1};
    if (scaling && parameters && !json_equal((json_t *)(uintptr_t)scaling, (json_t *)(uintptr_t)parameters))
        rein_fields_wrong(in, "rope_scaling", scaling, "rope_parameters is given too, and differs");
    read_partial(&to->rope, in, to);
    if (in->status) return;
    if (family->rope_by_type &&
        (json_object_get(parameters, "full_attention") || json_object_get(parameters, "sliding_attention"))) {
        read_by_type(to, in, parameters);
        return;
    }
    if (family->window_theta > 0 || (family->rope_by_type && (scaling || parameters))) {
        to->window_rope = to->rope;
        if (family->window_theta > 0)
            to->window_rope.theta = rein_fields_number_or(in, "rope_local_base_freq", 0, family->window_theta);
    }
    if (!scaling && !parameters) return;
    rein_fields inside = *in;
    inside.object = parameters ? parameters : scaling;
    inside.path = parameters ? "rope_parameters." : "rope_scaling.";
    read_scaling(to, &to->rope, &inside, in);
    if (theta > 0 && to->rope.theta != theta)
        rein_fields_wrong(&inside, "rope_theta", json_object_get(inside.object, "rope_theta"),
                          "the rope_theta outside is %g: they must agree", theta);
    in->status = inside.status;
    if (family->rope_by_type && !(family->window_theta > 0)) to->window_rope.theta = to->rope.theta;
}
