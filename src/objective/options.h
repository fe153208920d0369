/* options.h - what the loss asks about a composition. Private. */
#ifndef REIN_OBJECTIVE_OPTIONS_H
#define REIN_OBJECTIVE_OPTIONS_H

#include "rein/objective.h"

/* 1 if the surrogate's unit is the sequence: a sequence ratio, the sum of one, or gmpo. */
int rein_sequence_unit(const rein_options *o);

/* 1 if there is one advantage a token instead of one a sequence. */
int rein_advantage_per_token(const rein_options *o);

/* Makes a number "not given": NaN. */
void rein_options_unset(rein_options *o, const char *name);

#endif
