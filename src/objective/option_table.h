/* option_table.h - one row per option, shared by the sources that set options and that check them. Private. */
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

typedef struct rein_option_row {
    rein_option_info info;
    const char *const *words; /* of a choice, in the order of its enum, then NULL */
    size_t offset;            /* of its field in rein_options */
    rein_option_kind kind;
    double low, high;
    double standard; /* the published default of a number; NaN: none, or it depends on other options */
    int (*has_effect)(const rein_options *options);
    const char *needs; /* what gives it an effect, for the error: "shape budget" */
} rein_option_row;

extern const rein_option_row rein_option_rows[REIN_OPTION_COUNT];

/* The row of this name, or NULL. */
const rein_option_row *rein_option_find(const char *name);

static inline size_t rein_option_index(const rein_option_row *row) { return (size_t)(row - rein_option_rows); }
static inline int rein_option_is_choice(const rein_option_row *row) { return row->kind >= REIN_OPTION_CHOICE; }

/* Its field. */
double *rein_option_number(rein_options *options, const rein_option_row *row);
int *rein_option_choice(rein_options *options, const rein_option_row *row);

/* The word of a choice's value; NULL where the value has none. */
const char *rein_option_word(const rein_option_row *row, int value);

/* After another surrogate was chosen: its own published constants and level, unless the user gave theirs. */
void rein_options_change_surrogate(rein_options *options, rein_surrogate before);

rein_status rein_option_check_range(const rein_option_row *row, double x, rein_error *err);

#endif
