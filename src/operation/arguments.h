/* arguments.h - the arguments of an operation: numeric arrays in one JSON object, with their types and shapes checked. Private.
 *
 * The first error stays: *err describes it (field, position, value, and what would be right), and every later reader returns 0 or NULL.
 * The caller checks rein_arguments_status after it has read everything. The arrays belong to the reader and live until rein_arguments_close.
 * JSON has no NaN or infinity, so every number is finite, except that a masked null becomes NaN. */
#ifndef REIN_OBJECTIVE_ARGUMENTS_H
#define REIN_OBJECTIVE_ARGUMENTS_H

#include "rein/json.h"

typedef struct rein_arguments {
    rein_fields fields; /* the object, and the first error; its scalars are read with rein_fields_* */
    rein_json *root;
    const char *note; /* for the user, about a result; NULL: none */
    void *blocks;     /* memory of the readers, newest first */
} rein_arguments;

/* A length that several arrays share: the first array sets it, the others must agree. */
typedef struct rein_axis {
    const char *name; /* the array that set it; NULL: none yet */
    size_t n;
} rein_axis;

/* The shape of ragged rows, shared in the same way: row r is [offsets[r], offsets[r + 1]). */
typedef struct rein_rows {
    const char *name;
    size_t n;
    size_t *offsets;
} rein_rows;

/* Parses `text`: one object with no other keys than `keys`, which NULL ends. Close it whatever the status. */
rein_status rein_arguments_open(rein_arguments *in, const char *text, size_t length, const char *const *keys, rein_error *err);
void rein_arguments_close(rein_arguments *in);

rein_status rein_arguments_status(const rein_arguments *in);

/* n zeroed elements (never NULL for n = 0), freed by rein_arguments_close. */
void *rein_arguments_alloc(rein_arguments *in, size_t n, size_t size);

int rein_arguments_has(const rein_arguments *in, const char *name);
double rein_arguments_number(rein_arguments *in, const char *name);

/* One-dimensional arrays. `mask` may be NULL; where it has 0, a null is allowed. */
double *rein_arguments_numbers(rein_arguments *in, const char *name, rein_axis *axis, const uint8_t *mask);
int64_t *rein_arguments_lengths(rein_arguments *in, const char *name, rein_axis *axis);
uint8_t *rein_arguments_bits(rein_arguments *in, const char *name, rein_axis *axis);

/* Sizes as offsets [axis->n + 1]; the sizes must add up to `total`. */
size_t *rein_arguments_offsets(rein_arguments *in, const char *name, rein_axis *axis, const rein_axis *total);

/* A matrix, row-major. */
double *rein_arguments_matrix(rein_arguments *in, const char *name, rein_axis *rows, rein_axis *columns);

/* Ragged rows of one or more entries each. */
double *rein_arguments_number_rows(rein_arguments *in, const char *name, rein_rows *rows);
int64_t *rein_arguments_length_rows(rein_arguments *in, const char *name, rein_rows *rows);

#endif
