/* json_in.h - the arguments of an operation: numeric arrays in one JSON object, with their types and shapes checked.
 *
 * The first error stays: *err describes it (field, position, value, and what would be right), and every later reader returns 0 or NULL.
 * The caller checks rein_in_status after it has read everything. The arrays belong to the reader and live until rein_in_close.
 * JSON has no NaN or infinity, so every number is finite, except that a masked null becomes NaN. */
#ifndef REIN_CLI_JSON_IN_H
#define REIN_CLI_JSON_IN_H

#include "rein/json.h"

typedef struct rein_in {
    rein_fields fields; /* the object, and the first error; its scalars are read with rein_fields_* */
    rein_json *root;
    void *blocks; /* memory of the readers, newest first */
} rein_in;

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

/* Parses `text`: one object with no other keys than `keys`, which NULL ends. `line` is NULL, or the line of the input that the text is
 * ("line 3"); it must live until rein_in_close. Close it whatever the status. */
rein_status rein_in_open(rein_in *in, const char *text, size_t length, const char *line, const char *const *keys, rein_error *err);
void rein_in_close(rein_in *in);

rein_status rein_in_status(const rein_in *in);

/* n zeroed elements (never NULL for n = 0), freed by rein_in_close. */
void *rein_in_alloc(rein_in *in, size_t n, size_t size);

int rein_in_has(const rein_in *in, const char *name);
double rein_in_number(rein_in *in, const char *name);

/* One-dimensional arrays. `mask` may be NULL; where it has 0, a null is allowed. */
double *rein_in_numbers(rein_in *in, const char *name, rein_axis *axis, const uint8_t *mask);
int64_t *rein_in_lengths(rein_in *in, const char *name, rein_axis *axis);
uint8_t *rein_in_bits(rein_in *in, const char *name, rein_axis *axis);

/* Sizes as offsets [axis->n + 1]; the sizes must add up to `total`. */
size_t *rein_in_offsets(rein_in *in, const char *name, rein_axis *axis, const rein_axis *total);

/* A matrix, row-major. */
double *rein_in_matrix(rein_in *in, const char *name, rein_axis *rows, rein_axis *columns);

/* Ragged rows of one or more entries each. */
double *rein_in_number_rows(rein_in *in, const char *name, rein_rows *rows);
int64_t *rein_in_length_rows(rein_in *in, const char *name, rein_rows *rows);

#endif
