/* adapter_config.c - reads and writes adapter_config.json of PEFT. A field that is not supported and can change numbers is an
 * error that names it, unless it is unset (null, false, an empty list or object). So is an unknown field. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_files.h"
#include "unicode.h"

/* Fields that are read below, or that do not change what the factors mean: their origin, how they were initialised, details of
 * another field. */
static const char *const ALLOWED[] = {"peft_type",         "task_type",         "r",
                                      "lora_alpha",        "target_modules",    "exclude_modules",
                                      "use_rslora",        "lora_dropout",      "bias",
                                      "peft_version",      "inference_mode",    "base_model_name_or_path",
                                      "revision",          "auto_mapping",      "megatron_core",
                                      "loftq_config",      "eva_config",        "corda_config",
                                      "lora_ga_config",    "runtime_config",    "layers_pattern",
                                      "qalora_group_size", "init_lora_weights", NULL};

static const struct refused {
    const char *key, *why;
} REFUSED[] = {
    {"use_dora", "DoRA is not supported; false is"},
    {"rank_pattern", "separate ranks for modules are not supported; {} is"},
    {"alpha_pattern", "separate alphas for modules are not supported; {} is"},
    {"layers_to_transform", "a LoRA on some layers only is not supported; null is"},
    {"layer_replication", "repeated layers are not supported; null is"},
    {"modules_to_save",
     "other modules trained in addition to the LoRA than score, of task_type SEQ_CLS, are not supported; null is"},
    {"fan_in_fan_out", "transposed weights are not supported; false is"},
    {"lora_bias", "a bias in the LoRA is not supported; false is"},
    {"trainable_token_indices", "trained embeddings of single tokens are not supported; null is"},
    {"target_parameters", "a LoRA on parameters is not supported; null is"},
    {"alora_invocation_tokens", "Activated LoRA is not supported; null is"},
    {"use_qalora", "QALoRA is not supported; false is"},
    {"use_bdlora", "BD-LoRA is not supported; null is"},
    {"ensure_weight_tying", "an adapter on tied weights is not supported; false is"},
};

/* --------------------------------------------------------------------------------------------------------------------- reading */

static int is_unset(const json_t *value) {
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* PEFT lists both names that the head of a …ForSequenceClassification can have. */
static int is_score_list(const json_t *list) {
    size_t i;
    const json_t *name;
    json_array_foreach(list, i, name) {
        const char *text = json_string_value(name);
        if (!text || (strcmp(text, "score") != 0 && strcmp(text, "classifier") != 0)) return 0;
    }
    return json_is_array(list);
}

static void refuse_field(rein_fields *in, int score, const char *key, const json_t *value) {
    char shown[REIN_TEXT_SHOWN];
    if (score && !strcmp(key, "modules_to_save") && is_score_list(value)) return;
    for (size_t i = 0; ALLOWED[i]; i++)
        if (!strcmp(key, ALLOWED[i])) return;
    if (is_unset(value)) return;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (!strcmp(key, REFUSED[i].key)) rein_fields_wrong(in, key, value, "%s", REFUSED[i].why);
    rein_fields_wrong(in, rein_json_quote(shown, key), value,
                      "not a known field, and it might change the numbers; null would be right");
}

static void require_text(rein_fields *in, const char *key, const char *right, const char *fallback) {
    const char *text = rein_fields_string_or(in, key, fallback);
    if (!in->status && (!text || strcmp(text, right) != 0))
        rein_fields_wrong(in, key, text ? json_object_get(in->object, key) : NULL, "not supported; \"%s\" is", right);
}

static void read_task(rein_adapter_config *to, rein_fields *in) {
    const char *task = rein_fields_string_or(in, "task_type", "CAUSAL_LM");
    to->score = task && !strcmp(task, "SEQ_CLS");
    if (!in->status && !to->score && strcmp(task, "CAUSAL_LM") != 0)
        rein_fields_wrong(in, "task_type", json_object_get(in->object, "task_type"),
                          "not supported; \"CAUSAL_LM\" and, for a reward model, \"SEQ_CLS\" are");
}

/* PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA also change the base weights, and the files do not contain the changed ones. */
static void check_initialisation(rein_fields *in) {
    static const char *const right[] = {"gaussian", "eva", "orthogonal", NULL};
    const json_t *value = json_object_get(in->object, "init_lora_weights");
    const char *text = json_string_value(value);
    if (!value || json_is_null(value) || json_is_boolean(value)) return;
    for (int i = 0; text && right[i]; i++)
        if (!strcmp(text, right[i])) return;
    rein_fields_wrong(in, "init_lora_weights", value,
                      "an initialisation that may change the base weights is not supported; convert the adapter to a plain LoRA "
                      "(PEFT's path_initial_model_for_weight_conversion)");
}

static void check_dropout(rein_fields *in) {
    const json_t *value = json_object_get(in->object, "lora_dropout");
    const double dropout = json_number_value(value);
    if (value && !json_is_null(value) && !(json_is_number(value) && dropout >= 0 && dropout <= 1))
        rein_fields_wrong(in, "lora_dropout", value, "a number from 0 to 1 is needed");
}

static void read_scale(rein_adapter_config *to, rein_fields *in) {
    to->rank = rein_fields_integer(in, "r", 1, REIN_MAX_RANK);
    to->alpha = rein_fields_number(in, "lora_alpha", 0);
    to->rank_stabilized = rein_fields_bool_or(in, "use_rslora", 0);
    if (in->status) return;
    const float scale = (float)(to->alpha / (to->rank_stabilized ? sqrt((double)to->rank) : (double)to->rank));
    if (!isfinite(scale) || scale == 0)
        rein_fields_wrong(in, "lora_alpha", json_object_get(in->object, "lora_alpha"),
                          "divided by r (or √r) it must be a nonzero number that f32 can hold");
}

rein_status rein_adapter_config_parse(rein_adapter_config *config, const rein_model_config *model, const char *file,
                                      const json_t *json, rein_error *err) {
    rein_adapter_config c = {0};
    rein_fields in = {.object = json, .file = file, .path = "", .err = err};
    const char *key;
    json_t *value;
    require_text(&in, "peft_type", "LORA", NULL);
    read_task(&c, &in);
    require_text(&in, "bias", "none", "none");
    /* First: an adapter of experts in one tensor also has patterns of ranks and alphas. */
    if ((value = json_object_get(json, "target_parameters"))) refuse_field(&in, c.score, "target_parameters", value);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) refuse_field(&in, c.score, key, value);
    check_initialisation(&in);
    check_dropout(&in);
    read_scale(&c, &in);
    c.base = rein_fields_string_or(&in, "base_model_name_or_path", "");
    if (!in.status && model) c.modules = rein_adapter_modules_read(model, &in);
    if (!in.status) *config = c;
    return in.status;
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

/* Sorted, so that the same adapter always gives the same file. PEFT accepts any order. */
static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static json_t *module_list(const rein_adapter *a) {
    const char *names[REIN_MODULES];
    size_t n = 0;
    json_t *list = json_array();
    for (int m = 0; m < REIN_MODULES; m++)
        if (a->modules >> m & 1) names[n++] = rein_module_name(&a->model->config, (rein_module)m);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_string(names[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* A whole number is written as an integer, as PEFT does. */
static json_t *number(double x) { return x == floor(x) && x < 0x1p53 ? json_integer((json_int_t)x) : json_real(x); }

/* The name of a directory need not be UTF-8. */
static json_t *base_or_null(const char *base) {
    const size_t length = strlen(base);
    return length && rein_utf8_valid(base, length) == length ? json_string(base) : json_null();
}

json_t *rein_adapter_config_json(const rein_adapter *a) {
    return json_pack(
        "{s:{}, s:n, s:o, s:s, s:b, s:b, s:b, s:n, s:n, s:n, s:{}, s:o, s:f, s:n, s:s, s:o, s:s, s:I, s:{}, s:n, s:o, s:s, "
        "s:b, s:b}",
        "alpha_pattern", "auto_mapping", "base_model_name_or_path", base_or_null(a->base), "bias", "none", "fan_in_fan_out", 0,
        "inference_mode", 1, "init_lora_weights", 1, "layer_replication", "layers_pattern", "layers_to_transform", "loftq_config",
        "lora_alpha", number(a->alpha), "lora_dropout", 0.0, "megatron_config", "megatron_core", "megatron.core", "modules_to_save",
        a->score ? json_pack("[s, s]", "classifier", "score") : json_null(), "peft_type", "LORA", "r", (json_int_t)a->rank,
        "rank_pattern", "revision", "target_modules", module_list(a), "task_type", a->score ? "SEQ_CLS" : "CAUSAL_LM", "use_dora",
        0, "use_rslora", a->rank_stabilized != 0);
}
