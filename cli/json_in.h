/* json_in.h - the arguments of an operation, read out of one JSON object with types and shapes checked.
 *
 * The first mistake sticks: it is described in *err (field, position, value, and what would be right), every later reader returns 0 or
 * NULL at once, and the caller asks rein_in_status when it has read everything. Arrays belong to the reader and live until
 * rein_in_close. JSON has no NaN or infinity, so every number read is finite; a masked null becomes NaN. */
#ifndef REIN_CLI_JSON_IN_H
#define REIN_CLI_JSON_IN_H

#include <jansson.h>

#include "rein/base.h"

typedef struct rein_in {
    json_t *root;
    rein_error *err;
    rein_status status;
    size_t line;  /* of the input, or 0: the object is all of it */
    void *blocks; /* what the readers allocated, newest first */
} rein_in;

/* A length that several arrays share: the first one read sets it, the others must agree. */
typedef struct rein_axis {
    const char *name; /* whose length it is; NULL: not known yet */
    size_t n;
} rein_axis;

/* The shape of ragged rows, shared in the same way: row r is [offsets[r], offsets[r+1]). */
typedef struct rein_rows {
    const char *name;
    size_t n;
    size_t *offsets;
} rein_rows;

/* Parses `text`, which must hold one object with no other keys than `keys` (NULL-ended): the whole input or, when `line` is not 0, that
 * line of it. Close it whatever the result. */
rein_status rein_in_open(rein_in *in, const char *text, size_t length, size_t line, const char *const *keys, rein_error *err);
void rein_in_close(rein_in *in);

rein_status rein_in_status(const rein_in *in);
rein_status rein_in_fail(rein_in *in, rein_status code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* n zeroed elements (never NULL for n = 0), freed by rein_in_close. */
void *rein_in_alloc(rein_in *in, size_t n, size_t size);

int rein_in_has(const rein_in *in, const char *name);
double rein_in_number(rein_in *in, const char *name);
const char *rein_in_string(rein_in *in, const char *name);

/* Index of the field's text in `choices` (NULL-ended); `fallback` when the field is absent. */
int rein_in_choice(rein_in *in, const char *name, const char *const *choices, int fallback);

/* One-dimensional arrays. A null is allowed where `mask` (or NULL) has 0. */
double *rein_in_numbers(rein_in *in, const char *name, rein_axis *axis, const uint8_t *mask);
int64_t *rein_in_lengths(rein_in *in, const char *name, rein_axis *axis);
uint8_t *rein_in_bits(rein_in *in, const char *name, rein_axis *axis);

/* Sizes turned into offsets [axis->n + 1]; they must add up to `total`. */
size_t *rein_in_offsets(rein_in *in, const char *name, rein_axis *axis, const rein_axis *total);

/* A matrix, row-major. */
double *rein_in_matrix(rein_in *in, const char *name, rein_axis *rows, rein_axis *columns);

/* Ragged rows of one or more entries each. */
double *rein_in_number_rows(rein_in *in, const char *name, rein_rows *rows);
int64_t *rein_in_length_rows(rein_in *in, const char *name, rein_rows *rows);

/* A value as an error message shows it, cut to a short text: "x", 1.5, null, an array. */
enum { REIN_SHOWN = 64 };
const char *rein_in_show(char shown[REIN_SHOWN], const json_t *value);

#endif
