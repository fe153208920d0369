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

/* The row of this name, or NULL. */
const rein_option_row *rein_option_find(const char *name);

#endif
