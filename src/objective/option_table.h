/* option_table.h - what the table of options knows about each of them. Private. */
#ifndef REIN_OBJECTIVE_OPTION_TABLE_H
#define REIN_OBJECTIVE_OPTION_TABLE_H

#include "options.h"

typedef enum rein_option_kind {
    REIN_OPTION_NUMBER,   /* low <= x <= high */
    REIN_OPTION_POSITIVE, /* 0 < x <= high */
    REIN_OPTION_WHOLE,    /* a whole number, low <= x <= high */
    REIN_OPTION_SWITCH,   /* 0 < x <= high; absent means off */
    REIN_OPTION_CHOICE,
    REIN_OPTION_CHOICE_FROM_1 /* a choice whose enum has an unnamed default at 0 */
} rein_option_kind;

/* When an option has an effect. */
typedef struct rein_option_condition {
    int (*holds)(const rein_options *options);
    const char *needs; /* what gives it an effect, for the error: "shape budget" */
} rein_option_condition;

typedef struct rein_option_row {
    rein_option_info info;
    const char *const *words; /* of a choice, by the values of its enum, then NULL */
    size_t offset;            /* of its field in rein_options */
    rein_option_kind kind;
    double low, high;
    double standard; /* the published default of a number; NaN: none, or it depends on other options */
    const rein_option_condition *condition;
} rein_option_row;

/* The row of this name, or number i; NULL: there is none. */
const rein_option_row *rein_option_find(const char *name);
const rein_option_row *rein_option_row_at(size_t i);

static inline int rein_option_is_choice(const rein_option_row *row) { return row->kind >= REIN_OPTION_CHOICE; }

/* The field of a row that is a number, or a choice. */
static inline double *rein_option_number(rein_options *o, const rein_option_row *row) {
    return (double *)(void *)((char *)o + row->offset);
}
static inline int *rein_option_choice(rein_options *o, const rein_option_row *row) {
    return (int *)(void *)((char *)o + row->offset);
}

/* The word of a choice's value; NULL where the value has none. */
const char *rein_option_word(const rein_option_row *row, int value);

/* REIN_EINVAL if the row's option cannot be x. */
rein_status rein_option_check_range(const rein_option_row *row, double x, rein_error *err);

#define REIN_COUNTED(value, word) +1
enum { REIN_N_SURROGATES = 0 REIN_SURROGATES(REIN_COUNTED), REIN_N_PREFERENCE_LOSSES = 0 REIN_PREFERENCE_LOSSES(REIN_COUNTED) };

/* What was published with a surrogate: the level of its ratio and its clip range (NaN: it has none). */
typedef struct rein_surrogate_constants {
    rein_ratio level;
    double epsilon, epsilon_high;
} rein_surrogate_constants;

/* NULL: there is no such surrogate. */
const rein_surrogate_constants *rein_surrogate_published(rein_surrogate surrogate);

#endif
