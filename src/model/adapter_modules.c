/* adapter_modules.c - finds the modules that target_modules names, by PEFT's rules (tuners_utils.check_target_module_exists): an
 * entry of a list is a module's name, or its end after a dot; a string is "all-linear", or a regular expression that must match
 * the whole name.
 *
 * The expressions are written for Python and run by PCRE2. Only syntax on which both agree for ASCII text is accepted: literals,
 * classes, groups, alternatives, repetitions, lookahead, \b. Everything else is an error, because a module that is missed would go
 * unnoticed. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "adapter_files.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/base.h"

enum {
    MAX_STEPS = 100000, /* of one match; an expression that needs more is an error */
    MAX_DEPTH = 32,     /* nested groups */
    LAYER_MODULES = REIN_LAYER_MODULES
};

/* ------------------------------------------------------------------------------------------------------- accepted syntax */

typedef struct scan {
    const char *at;
    int depth, lookahead[MAX_DEPTH];
    int repeatable; /* the item before can be repeated */
} scan;

static int is_plain(char c) { return isalnum((unsigned char)c) || (c && strchr("_-/ ,:;=@%&~!#<>'\"", c)); }

/* A class: letters, digits, ranges of them, _ and ., \d \w \. \-. A literal hyphen must be first or last. */
static int scan_class(scan *s) {
    s->at += s->at[1] == '^' ? 2 : 1;
    const char *first = s->at;
    for (; *s->at != ']' || s->at == first; s->at++) {
        const char c = *s->at;
        if (c == '\\' && strchr("dw.-", s->at[1]) && s->at[1]) s->at++;
        else if (isalnum((unsigned char)c) && s->at[1] == '-' && isalnum((unsigned char)s->at[2])) s->at += 2;
        else if (c == '-' ? s->at != first && s->at[1] != ']' : !isalnum((unsigned char)c) && c != '_' && c != '.') return 0;
    }
    s->at++;
    return s->repeatable = 1;
}

static int scan_group(scan *s) {
    if (s->depth == MAX_DEPTH) return 0;
    s->lookahead[s->depth] = 0;
    s->at++;
    if (*s->at == '?') {
        if (!s->at[1] || !strchr(":=!", s->at[1])) return 0;
        s->lookahead[s->depth] = s->at[1] != ':';
        s->at += 2;
    }
    s->depth++;
    s->repeatable = 0;
    return 1;
}

/* A repetition: * + ? {n} {n,} {n,m}, optionally lazy (?); neither repeated nor possessive. */
static int scan_repetition(scan *s) {
    if (!s->repeatable) return 0;
    if (*s->at == '{') {
        size_t digits = strspn(s->at + 1, "0123456789");
        if (digits == 0 || digits > 3) return 0;
        s->at += 1 + digits;
        if (*s->at == ',') s->at += 1 + strspn(s->at + 1, "0123456789");
        if (*s->at != '}') return 0;
    }
    s->at++;
    if (*s->at == '?') s->at++;
    s->repeatable = 0;
    return 1;
}

static int scan_escape(scan *s) {
    const char c = s->at[1];
    const int assertion = c == 'b' || c == 'B';
    if (!assertion && (!c || !strchr("dDwWsS", c)) && !ispunct((unsigned char)c)) return 0;
    s->at += 2;
    s->repeatable = !assertion;
    return 1;
}

static int scan_one(scan *s) {
    switch (*s->at) {
    case '(': return scan_group(s);
    case '[': return scan_class(s);
    case '\\': return scan_escape(s);
    case '*':
    case '+':
    case '?':
    case '{': return scan_repetition(s);
    case ')':
        if (s->depth == 0) return 0;
        s->repeatable = !s->lookahead[--s->depth];
        break;
    case '|':
    case '^':
    case '$': s->repeatable = 0; break;
    default:
        if (*s->at != '.' && !is_plain(*s->at)) return 0;
        s->repeatable = 1;
    }
    s->at++;
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------------ a pattern */

/* One of the two fields; {0} matches nothing. */
typedef struct pattern {
    const char *key;    /* of the field */
    const json_t *list; /* or NULL */
    int all_linear;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
} pattern;

static void free_pattern(pattern *p) {
    pcre2_match_context_free(p->limits);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
}

static void compile(pattern *p, rein_fields *in, const json_t *value) {
    const char *text = json_string_value(value);
    scan s = {.at = text};
    int code = 0, fine = 1;
    PCRE2_SIZE at = 0;
    while (fine && *s.at) fine = scan_one(&s);
    if (!fine) {
        rein_fields_wrong(in, p->key, value, "regular expression syntax that is not supported, at byte %zu; use a list of modules",
                          (size_t)(s.at - text));
        return;
    }
    p->code = pcre2_compile((PCRE2_SPTR)text, strlen(text), PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &at, NULL);
    if (p->code) {
        p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
        p->limits = pcre2_match_context_create(NULL);
    } else if (code != PCRE2_ERROR_HEAP_FAILED) {
        rein_fields_wrong(in, p->key, value, "not a valid regular expression, at byte %zu; use a list of modules", (size_t)at);
        return;
    }
    if (!p->code || !p->match || !p->limits) in->status = rein_no_memory(in->err);
    else pcre2_set_match_limit(p->limits, MAX_STEPS);
}

static int is_all_linear(const char *text) {
    static const char name[] = "all-linear";
    size_t i = 0;
    while (i < sizeof name && tolower((unsigned char)text[i]) == name[i]) i++;
    return i == sizeof name;
}

static void read_list(pattern *p, rein_fields *in, const json_t *value) {
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)value, i, entry) {
        char key[60];
        if (json_is_string(entry)) continue;
        snprintf(key, sizeof key, "%s[%zu]", p->key, i);
        rein_fields_wrong(in, key, entry, "the name of a module is needed");
    }
    p->list = value;
}

static void read_pattern(pattern *p, rein_fields *in, const char *key) {
    const json_t *value = json_object_get(in->object, key);
    *p = (pattern){.key = key};
    if (in->status || !value || json_is_null(value)) return;
    if (json_is_array(value)) read_list(p, in, value);
    else if (!json_is_string(value)) rein_fields_wrong(in, key, value, "a list of modules is needed");
    else if (!strcmp(key, "target_modules") && is_all_linear(json_string_value(value))) p->all_linear = 1;
    else compile(p, in, value);
}

static int in_list(const json_t *list, const char *name) {
    const size_t length = strlen(name);
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, i, entry) {
        const char *end = json_string_value(entry);
        const size_t n = json_string_length(entry);
        if (n == length ? !strcmp(name, end) : n < length && name[length - n - 1] == '.' && !strcmp(name + length - n, end))
            return 1;
    }
    return 0;
}

static int matches(const pattern *p, rein_fields *in, const char *name, int linear) {
    if (p->all_linear) return linear;
    if (p->list) return in_list(p->list, name);
    if (!p->code || in->status) return 0;
    const int found = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->match, p->limits);
    if (found == PCRE2_ERROR_NOMEMORY) rein_fields_fail(in, REIN_ENOMEM, p->key, -1, ": no memory to match it");
    else if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        rein_fields_wrong(in, p->key, json_object_get(in->object, p->key),
                          "the regular expression takes too many steps on %s; use a list of modules", name);
    return found >= 0;
}

/* ---------------------------------------------------------------------------------------------------------------- the modules */

static int is_target(const pattern *target, const pattern *exclude, rein_fields *in, const char *name, int linear) {
    return matches(target, in, name, linear) && !matches(exclude, in, name, 0);
}

static void refuse_some(rein_fields *in, const rein_model_config *model, size_t first, size_t other, int first_has) {
    char names[2][REIN_SLOT_NAME];
    const json_t *value = json_object_get(in->object, "target_modules");
    const char *path = rein_module_path(model, rein_slot_module(model, first));
    if (model->n_experts)
        rein_fields_wrong(in, "target_modules", value,
                          "a LoRA on some layers or experts only is not supported: %s has %s and %s has %s",
                          rein_slot_name(names[0], model, first), first_has ? "one" : "none",
                          rein_slot_name(names[1], model, other), first_has ? "none" : "one");
    else
        rein_fields_wrong(in, "target_modules", value,
                          "a LoRA on %s of some layers only is not supported: layer 0 has %s and layer %zu has %s", path,
                          first_has ? "one" : "none", other / rein_layer_slots(model), first_has ? "none" : "one");
}

/* An adapter has a module's LoRA in every layer, and in every expert, or in none. */
static int read_module(const pattern *target, const pattern *exclude, const rein_model_config *model, int module, rein_fields *in) {
    char name[REIN_SLOT_NAME];
    size_t first = SIZE_MAX;
    int first_has = 0;
    for (size_t slot = 0; slot + 1 < rein_slots(model) && !in->status; slot++) {
        if (rein_slot_module(model, slot) != (rein_module)module || !rein_slot_count(model, slot)) continue;
        const int has = is_target(target, exclude, in, rein_slot_name(name, model, slot), 1);
        if (first == SIZE_MAX) first = slot, first_has = has;
        else if (has != first_has) refuse_some(in, model, first, slot, first_has);
    }
    return first_has;
}

/* "all-linear" means attention and MLPs or experts, not the routers. */
static void refuse_routers(const pattern *target, const pattern *exclude, const rein_model_config *model, rein_fields *in) {
    char name[REIN_SLOT_NAME];
    for (size_t layer = 0; layer < (size_t)model->n_layers && !in->status; layer++) {
        snprintf(name, sizeof name, "model.layers.%zu.mlp.gate", layer);
        if (model->layers[layer] & REIN_LAYER_EXPERTS && is_target(target, exclude, in, name, 0))
            rein_fields_wrong(in, "target_modules", json_object_get(in->object, "target_modules"),
                              "a LoRA on the router (mlp.gate) is not supported");
    }
}

unsigned rein_adapter_modules_read(const rein_model_config *model, rein_fields *in) {
    pattern target, exclude;
    unsigned modules = 0;
    read_pattern(&target, in, "target_modules");
    read_pattern(&exclude, in, "exclude_modules");
    for (int m = 0; m < LAYER_MODULES && !in->status; m++)
        if (read_module(&target, &exclude, model, m, in)) modules |= 1u << m;
    refuse_routers(&target, &exclude, model, in);
    const json_t *value = json_object_get(in->object, "target_modules");
    if (is_target(&target, &exclude, in, "lm_head", 0)) modules |= 1u << REIN_HEAD_MODULE;
    if (is_target(&target, &exclude, in, "model.embed_tokens", 0))
        rein_fields_wrong(in, "target_modules", value, "a LoRA on the embedding (embed_tokens) is not supported");
    if (!modules)
        rein_fields_wrong(in, "target_modules", json_is_null(value) ? NULL : value,
                          "it must name modules that the model has: %s, lm_head",
                          model->family->fused ? "qkv_proj, o_proj, gate_up_proj, down_proj"
                                               : "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
    free_pattern(&target);
    free_pattern(&exclude);
    return modules;
}
