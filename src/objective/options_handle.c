/* options_handle.c - options as a handle: made from a preset, set and read by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_table.h"

/* ---- lifetime */

rein_status rein_options_new(rein_options **options, const char *preset, rein_error *err) {
    *options = NULL;
    rein_options *o = malloc(sizeof *o);
    if (!o) return rein_fail(err, REIN_ENOMEM, "no memory for options");
    const rein_status status = rein_options_init(o, preset, err);
    if (status) free(o);
    else *options = o;
    return status;
}

rein_status rein_options_copy(rein_options **copy, const rein_options *options, rein_error *err) {
    *copy = malloc(sizeof **copy);
    if (!*copy) return rein_fail(err, REIN_ENOMEM, "no memory for options");
    **copy = *options;
    return REIN_OK;
}

void rein_options_free(rein_options *options) { free(options); }

/* ---- aliases */

static const rein_option_alias aliases[REIN_OPTION_ALIAS_COUNT] = {
    {"importance_sampling_level", "ratio", "NAME", "ART's name of ratio"},
    {"scale_rewards", "advantage", "true|false", "ART's name of advantage group-std (true) or group-mean (false)"},
    {"truncated_importance_sampling", "tis_cap", "X", "ART's name of tis_cap with mismatch token-tis"}};

const rein_option_alias *rein_option_alias_at(size_t i) { return i < REIN_OPTION_ALIAS_COUNT ? &aliases[i] : NULL; }

static const rein_option_alias *find_alias(const char *name) {
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++)
        if (!strcmp(aliases[i].name, name)) return &aliases[i];
    return NULL;
}

static rein_status given_twice(const rein_option_alias *alias, rein_error *err) {
    return rein_fail_at(err, REIN_EINVAL, alias->name, -1, "and %s are the same option: give one of them", alias->option);
}

static rein_status set_alias(rein_options *o, const rein_option_alias *alias, const char *value, rein_error *err) {
    const char *name = alias->name;
    rein_options next = *o;
    rein_status status = REIN_OK;
    if (rein_options_given(o, alias->option)) return given_twice(alias, err);
    if (!strcmp(name, "scale_rewards")) {
        const int yes = !strcmp(value, "true") || !strcmp(value, "1"), no = !strcmp(value, "false") || !strcmp(value, "0");
        if (!yes && !no) return rein_fail_at(err, REIN_EINVAL, name, -1, "is \"%.60s\": true or false is needed", value);
        value = yes ? "group-std" : "group-mean";
    } else if (!strcmp(name, "truncated_importance_sampling")) {
        if (rein_options_given(o, "mismatch") && o->mismatch != REIN_MISMATCH_TOKEN_TIS)
            return rein_fail_at(err, REIN_EINVAL, name, -1, "means mismatch token-tis: another mismatch is given");
        status = rein_options_set(&next, "mismatch", "token-tis", err);
    }
    if (!status) status = rein_options_set(&next, alias->option, value, err);
    if (status) return status;
    next.given_by[alias - aliases] = 1;
    *o = next;
    return REIN_OK;
}

/* ---- set */

static rein_status unknown_option(const char *name, rein_error *err) {
    const char *names[REIN_OPTION_COUNT + REIN_OPTION_ALIAS_COUNT + 1] = {NULL};
    char shown[61];
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) names[i] = rein_option_rows[i].info.name;
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++) names[REIN_OPTION_COUNT + i] = aliases[i].name;
    snprintf(shown, sizeof shown, "%s", name);
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not an option: did you mean %s?", nearest);
    return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not an option: rein explain lists the options of a preset");
}

static rein_status set_choice(rein_options *o, const rein_option_row *row, const char *value, rein_error *err) {
    const char *word;
    const int first = row->kind == REIN_OPTION_CHOICE_FROM_1;
    for (int i = first; (word = rein_option_word(row, i)); i++)
        if (!strcmp(word, value)) return *rein_option_choice(o, row) = i, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is \"%.60s\": one of %s", value, row->info.choices);
}

static rein_status set_number(rein_options *o, const rein_option_row *row, double x, rein_error *err) {
    const rein_status status = rein_option_check_range(row, x, err);
    if (!status) *rein_option_number(o, row) = x;
    return status;
}

/* The row of an option that may be set by this name. */
static rein_status find(const rein_option_row **row, const rein_options *o, const char *name, rein_error *err) {
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++)
        if (!strcmp(name, aliases[i].option) && o->given_by[i]) return given_twice(&aliases[i], err);
    *row = rein_option_find(name);
    return *row ? REIN_OK : unknown_option(name, err);
}

rein_status rein_options_set(rein_options *o, const char *name, const char *value, rein_error *err) {
    const rein_option_alias *alias = find_alias(name);
    const rein_option_row *row;
    const rein_surrogate before = o->surrogate;
    if (alias) return set_alias(o, alias, value, err);
    rein_status status = find(&row, o, name, err);
    if (status) return status;
    if (rein_option_is_choice(row)) status = set_choice(o, row, value, err);
    else {
        char *end;
        const double x = strtod(value, &end);
        if (end == value || *end) return rein_fail_at(err, REIN_EINVAL, name, -1, "is \"%.60s\": a number is needed", value);
        status = set_number(o, row, x, err);
    }
    if (status) return status;
    o->given[rein_option_index(row)] = 1;
    if (o->surrogate != before) rein_options_change_surrogate(o, before);
    return REIN_OK;
}

rein_status rein_options_set_number(rein_options *o, const char *name, double x, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    char text[40];
    snprintf(text, sizeof text, "%.17g", x);
    if (!row || rein_option_is_choice(row)) return rein_options_set(o, name, text, err);
    rein_status status = find(&row, o, name, err);
    if (!status) status = set_number(o, row, x, err);
    if (!status) o->given[rein_option_index(row)] = 1;
    return status;
}

void rein_options_unset(rein_options *o, const char *name) {
    const rein_option_row *row = rein_option_find(name);
    if (row && !rein_option_is_choice(row)) *rein_option_number(o, row) = NAN;
}

/* ---- get */

int rein_options_given(const rein_options *o, const char *name) {
    const rein_option_row *row = name ? rein_option_find(name) : NULL;
    const rein_option_alias *alias = name ? find_alias(name) : NULL;
    if (row) return o->given[rein_option_index(row)];
    if (alias) return o->given_by[alias - aliases];
    return !name && memchr(o->given, 1, sizeof o->given) != NULL;
}

rein_status rein_options_get(const char **word, const rein_options *options, const char *name, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    if (!row) return unknown_option(name, err);
    if (!rein_option_is_choice(row))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is a number: rein_options_get_number reads it");
    rein_options o = *options;
    const char *found = rein_option_word(row, *rein_option_choice(&o, row));
    *word = found ? found : "";
    return REIN_OK;
}

rein_status rein_options_get_number(double *number, const rein_options *options, const char *name, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    if (!row) return unknown_option(name, err);
    if (rein_option_is_choice(row))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is one of %s: rein_options_get reads it", row->info.choices);
    rein_options o = *options;
    *number = *rein_option_number(&o, row);
    return REIN_OK;
}
