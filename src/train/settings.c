/* settings.c - the handle that holds the values of settings. The settings themselves are rows of settings_table.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/tokenizer_parts.h"
#include "model/unicode.h"
#include "objective/option_table.h"
#include "settings.h"

typedef enum kind { TEXT, LIST, WHOLE, NUMBER, SWITCH, SCHEDULE, TRUNCATION, KL_UNIT } kind; /* a list has one value per line */

typedef struct row {
    rein_setting_info info;
    kind kind;
    size_t offset;
    double low, high; /* of numbers */
    double standard;  /* the default; of a switch 0 or 1, of a choice its value */
} row;

#define ROW(name, kind, value, low, high, standard, section, help) \
    {{#name, value, section, help}, kind, offsetof(rein_settings, name), low, high, standard},
static const row ROWS[] = {REIN_SETTINGS_TABLE(ROW)};
#undef ROW
enum { N_ROWS = sizeof ROWS / sizeof *ROWS };

static const char *const SCHEDULES[] = {
    [REIN_SCHEDULE_CONSTANT] = "constant", [REIN_SCHEDULE_LINEAR] = "linear", [REIN_SCHEDULE_COSINE] = "cosine", NULL};
static const char *const TRUNCATIONS[] = {[REIN_TRUNCATION_NONE] = "none", [REIN_TRUNCATION_POLICY] = "policy", NULL};

static const char *const KL_UNITS[] = {[REIN_KL_OF_SEQUENCE] = "sequence", [REIN_KL_OF_TOKEN] = "token", NULL};

/* The words of a choice, by the values of its enum. */
static const char *const *words_of(const row *r) {
    return r->kind == SCHEDULE ? SCHEDULES : r->kind == TRUNCATION ? TRUNCATIONS : r->kind == KL_UNIT ? KL_UNITS : NULL;
}

const rein_setting_info *rein_setting_at(size_t i) { return i < N_ROWS ? &ROWS[i].info : NULL; }

const char *rein_setting_name(const char *name) { return strcmp(name, "recall") ? name : "activation_cache"; }

static const row *find(const char *name) {
    name = rein_setting_name(name);
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].info.name, name)) return &ROWS[i];
    return NULL;
}

int rein_setting_is_list(const char *name) {
    const row *r = find(name);
    return r && r->kind == LIST;
}

/* -------------------------------------------------------------------------------------------------------------------- lifetime */

/* What a text is when nothing is given; never freed, never written. */
static char nothing[] = "";

static char **text_of(rein_settings *s, const row *r) { return (char **)(void *)((char *)s + r->offset); }
static const void *field_of(const rein_settings *s, const row *r) { return (const char *)s + r->offset; }
static int has_text(const row *r) { return r->kind == TEXT || r->kind == LIST; }

static void drop_text(char **text) {
    if (*text != nothing) free(*text);
    *text = nothing;
}

static void set_standard(rein_settings *s, const row *r) {
    void *field = (char *)s + r->offset;
    switch (r->kind) {
    case TEXT:
    case LIST: *(char **)field = nothing; break;
    case WHOLE: *(int64_t *)field = (int64_t)r->standard; break;
    case NUMBER: *(double *)field = r->standard; break;
    case SWITCH: *(int *)field = (int)r->standard; break;
    case SCHEDULE: *(rein_schedule_shape *)field = (rein_schedule_shape)r->standard; break;
    case TRUNCATION:
    case KL_UNIT: *(int *)field = (int)r->standard; break;
    }
}

void rein_settings_init(rein_settings *s) {
    *s = (rein_settings){.preset = nothing};
    for (size_t i = 0; i < N_ROWS; i++) set_standard(s, &ROWS[i]);
    (void)rein_options_init(&s->objective, NULL, NULL); /* without a preset it cannot fail */
}

void rein_settings_clear(rein_settings *s) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (has_text(&ROWS[i])) drop_text(text_of(s, &ROWS[i]));
    drop_text(&s->preset);
    rein_settings_init(s);
}

rein_status rein_settings_new(rein_settings **settings, rein_error *err) {
    *settings = malloc(sizeof **settings);
    if (!*settings) return rein_fail(err, REIN_ENOMEM, "no memory for settings");
    rein_settings_init(*settings);
    return REIN_OK;
}

/* Replaces a text by a copy of another. */
static rein_status replace_text(char **text, const char *by, rein_error *err) {
    char *copy = *by ? malloc(strlen(by) + 1) : nothing;
    if (!copy) return rein_fail(err, REIN_ENOMEM, "no memory for a setting of %zu bytes", strlen(by));
    if (*by) memcpy(copy, by, strlen(by) + 1);
    drop_text(text);
    *text = copy;
    return REIN_OK;
}

rein_status rein_settings_copy(rein_settings **copy, const rein_settings *settings, rein_error *err) {
    rein_settings *c = *copy = malloc(sizeof *c), from = *settings;
    if (!c) return rein_fail(err, REIN_ENOMEM, "no memory for settings");
    *c = from;
    for (size_t i = 0; i < N_ROWS; i++)
        if (has_text(&ROWS[i])) *text_of(c, &ROWS[i]) = nothing;
    c->preset = nothing;
    rein_status status = replace_text(&c->preset, from.preset, err);
    for (size_t i = 0; i < N_ROWS && !status; i++)
        if (has_text(&ROWS[i])) status = replace_text(text_of(c, &ROWS[i]), *text_of(&from, &ROWS[i]), err);
    if (!status) return REIN_OK;
    rein_settings_free(c);
    *copy = NULL;
    return status;
}

rein_status rein_settings_assign(rein_settings *s, const rein_settings *from, rein_error *err) {
    rein_settings *copy;
    const rein_status status = rein_settings_copy(&copy, from, err);
    if (status) return status;
    rein_settings_clear(s);
    *s = *copy; /* which takes its texts over */
    free(copy);
    return REIN_OK;
}

void rein_settings_use_score(rein_settings *s, int uses) { s->has_score = uses != 0; }

void rein_settings_use_reference(rein_settings *s, int uses) { s->has_reference = uses != 0; }

void rein_settings_use_preference(rein_settings *s, const rein_preference_info *loss) {
    s->preference = loss ? 1 + (int)loss->loss : 0;
    s->has_reference = loss && loss->uses_reference;
}

void rein_settings_free(rein_settings *s) {
    if (!s) return;
    rein_settings_clear(s);
    free(s);
}

/* ------------------------------------------------------------------------------------------------------------------ from text */

static rein_status set_text(char **to, const char *name, const char *value, rein_error *err) {
    const size_t valid = rein_utf8_valid(value, strlen(value)); /* YAML could not hold anything else */
    if (value[valid]) return rein_fail_at(err, REIN_EINVAL, name, -1, "has an invalid byte at %zu: UTF-8 is needed", valid);
    return replace_text(to, value, err);
}

/* Every line of a list is a value. */
static rein_status check_list(const row *r, const char *value, rein_error *err) {
    const char *need = r->offset == offsetof(rein_settings, stop) ? "a text is needed, in which \\n stands for a newline"
                                                                  : "one value per line is needed";
    size_t n = 0;
    for (const char *at = value; *value; at++, n++) {
        const size_t length = strcspn(at, "\n");
        if (!length) return rein_fail_at(err, REIN_EINVAL, r->info.name, (int64_t)n, "is empty: %s", need);
        at += length;
        if (!*at || !at[1]) break; /* YAML's blocks end with a newline */
    }
    return REIN_OK;
}

/* The words of YAML and of Python, in any case. */
static rein_status set_switch(int *to, const row *r, const char *value, rein_error *err) {
    const char *const yes[] = {"yes", "true", "1", "on", ""}, *const no[] = {"no", "false", "0", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!strcasecmp(value, yes[i])) return *to = 1, REIN_OK;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (!strcasecmp(value, no[i])) return *to = 0, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is \"%.60s\": it must be yes or no", value);
}

static rein_status set_choice(void *to, const row *r, const char *value, rein_error *err) {
    const char *const *words = words_of(r);
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], value)) {
            if (r->kind == SCHEDULE) *(rein_schedule_shape *)to = (rein_schedule_shape)i;
            else *(int *)to = i;
            return REIN_OK;
        }
    return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is \"%.60s\": it must be one of %s", value, r->info.value);
}

static rein_status set_number(void *to, const row *r, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    const int whole = r->kind == WHOLE, number = *value && !*end;
    const char *quote = number ? "" : "\"";
    if (!number || !(x >= r->low && x <= r->high) || (whole && x != floor(x)))
        return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is %s%.60s%s: it must be a %s between %.15g and %.15g", quote,
                            value, quote, whole ? "whole number" : "number", r->low, r->high);
    if (whole) *(int64_t *)to = (int64_t)x;
    else *(double *)to = x;
    return REIN_OK;
}

static rein_status set_row(rein_settings *s, const row *r, const char *value, rein_error *err) {
    void *to = (char *)s + r->offset;
    switch (r->kind) {
    case LIST:
        if (check_list(r, value, err)) return REIN_EINVAL;
        return set_text(to, r->info.name, value, err);
    case TEXT: return set_text(to, r->info.name, value, err);
    case SWITCH: return set_switch(to, r, value, err);
    case SCHEDULE:
    case TRUNCATION:
    case KL_UNIT: return set_choice(to, r, value, err);
    case WHOLE:
    case NUMBER: break;
    }
    return set_number(to, r, value, err);
}

static int is_option(const char *name) {
    const rein_option_alias *alias;
    for (size_t i = 0; (alias = rein_option_alias_at(i)); i++)
        if (!strcmp(alias->name, name)) return 1;
    return rein_option_find(name) != NULL;
}

/* The error suggests the nearest name among settings and options. */
static rein_status unknown(const char *name, rein_error *err) {
    const char *names[N_ROWS + REIN_OPTION_COUNT + 2] = {NULL};
    char shown[61];
    for (size_t i = 0; i < N_ROWS; i++) names[i] = ROWS[i].info.name;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) names[N_ROWS + i] = rein_option_at(i)->name;
    names[N_ROWS + REIN_OPTION_COUNT] = "preset";
    snprintf(shown, sizeof shown, "%s", *name ? name : "\"\"");
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not a setting: did you mean %s?", nearest);
    return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not a setting: rein run --help lists them");
}

static rein_status set_preset(rein_settings *s, const char *value, rein_error *err) {
    rein_options options;
    if (rein_options_given(&s->objective, NULL))
        return rein_fail_at(err, REIN_EINVAL, "preset", -1, "must come before the options that change it: it would overwrite them");
    rein_status status = rein_options_init(&options, value, err);
    if (!status) status = replace_text(&s->preset, value, err);
    if (!status) s->objective = options;
    return status;
}

rein_status rein_settings_set(rein_settings *s, const char *name, const char *value, rein_error *err) {
    const row *r = find(name);
    if (!strcmp(name, "preset")) return set_preset(s, value, err);
    if (!r) return is_option(name) ? rein_options_set(&s->objective, name, value, err) : unknown(name, err);
    const rein_status status = set_row(s, r, value, err);
    if (!status) s->given[r - ROWS] = 1;
    return status;
}

void rein_settings_set_isa(rein_settings *s, rein_isa isa) { s->isa = isa; }

void rein_settings_set_ranks(rein_settings *s, rein_ranks *ranks) { s->ranks = ranks; }

void rein_settings_allow(rein_settings *s, unsigned allowed) { s->allowed = allowed; }

/* --------------------------------------------------------------------------------------------------------------------- reading */

const char *rein_settings_text(const rein_settings *s, const char *name) {
    const row *r = find(name);
    const char *word = "";
    if (!strcmp(name, "preset")) return s->preset;
    if (!r) return rein_options_get(&word, &s->objective, name, NULL) ? "" : word;
    if (r->kind == SCHEDULE) return SCHEDULES[*(const rein_schedule_shape *)field_of(s, r)];
    if (r->kind == TRUNCATION || r->kind == KL_UNIT) return words_of(r)[*(const int *)field_of(s, r)];
    return has_text(r) ? *(char *const *)field_of(s, r) : "";
}

/* A number below its range is "not given". */
double rein_settings_number(const rein_settings *s, const char *name) {
    const row *r = find(name);
    double x = NAN;
    if (!r) return rein_options_get_number(&x, &s->objective, name, NULL) ? NAN : x;
    if (r->kind == SWITCH) return *(const int *)field_of(s, r);
    if (r->kind == WHOLE) x = (double)*(const int64_t *)field_of(s, r);
    else if (r->kind == NUMBER) x = *(const double *)field_of(s, r);
    return x >= r->low ? x : NAN;
}

/* A number in the fewest digits that read back as the same; a whole number without an exponent. */
static void show_number(char *text, size_t size, double x) {
    snprintf(text, size, "%.17g", x);
    if (!strpbrk(text, ".e")) return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        if (strtod(text, NULL) == x) return;
    }
}

rein_status rein_settings_get(rein_text *value, const rein_settings *s, const char *name, rein_error *err) {
    const row *r = find(name);
    char number[40] = "";
    const char *text = rein_settings_text(s, name);
    const double x = rein_settings_number(s, name);
    if (!r && strcmp(name, "preset") != 0 && !rein_option_find(name)) return unknown(name, err);
    if (r && r->kind == SWITCH) text = x > 0 ? "yes" : "no";
    else if (!isnan(x)) show_number(number, sizeof number, x), text = number;
    return rein_text_append(value, text, strlen(text), err);
}

int rein_settings_is_on(const rein_settings *s, const char *name) {
    const double x = rein_settings_number(s, name);
    return *rein_settings_text(s, name) || (!isnan(x) && x != 0);
}

int rein_settings_given(const rein_settings *s, const char *name) {
    const row *r = find(name);
    return r ? s->given[r - ROWS] : rein_options_given(&s->objective, name);
}

const rein_options *rein_settings_objective(const rein_settings *s) { return &s->objective; }

rein_exec rein_settings_exec(const rein_settings *s) { return (rein_exec){(int)s->threads, s->isa}; }
