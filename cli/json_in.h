/* json_in.h - the arguments of an operation: numeric arrays in one JSON object, with their types and shapes checked.
 *
 * The first error stays: *err describes it (field, position, value, and what would be right), and every later reader returns 0 or NULL.
 * The caller checks cli_in_status after it has read everything. The arrays belong to the reader and live until cli_in_close.
 * JSON has no NaN or infinity, so every number is finite, except that a masked null becomes NaN. */
#ifndef CLI_JSON_IN_H
#define CLI_JSON_IN_H

#include "rein/json.h"

typedef struct cli_in {
    rein_fields fields; /* the object, and the first error; its scalars are read with rein_fields_* */
    rein_json *root;
    void *blocks; /* memory of the readers, newest first */
} cli_in;

/* A length that several arrays share: the first array sets it, the others must agree. */
typedef struct cli_axis {
    const char *name; /* the array that set it; NULL: none yet */
    size_t n;
} cli_axis;

/* The shape of ragged rows, shared in the same way: row r is [offsets[r], offsets[r + 1]). */
typedef struct cli_rows {
    const char *name;
    size_t n;
    size_t *offsets;
} cli_rows;

/* Parses `text`: one object with no other keys than `keys`, which NULL ends. `line` is NULL, or the line of the input that the text is
 * ("line 3"); it must live until cli_in_close. Close it whatever the status. */
rein_status cli_in_open(cli_in *in, const char *text, size_t length, const char *line, const char *const *keys, rein_error *err);
void cli_in_close(cli_in *in);

rein_status cli_in_status(const cli_in *in);

/* n zeroed elements (never NULL for n = 0), freed by cli_in_close. */
void *cli_in_alloc(cli_in *in, size_t n, size_t size);

int cli_in_has(const cli_in *in, const char *name);
double cli_in_number(cli_in *in, const char *name);

/* One-dimensional arrays. `mask` may be NULL; where it has 0, a null is allowed. */
double *cli_in_numbers(cli_in *in, const char *name, cli_axis *axis, const uint8_t *mask);
int64_t *cli_in_lengths(cli_in *in, const char *name, cli_axis *axis);
uint8_t *cli_in_bits(cli_in *in, const char *name, cli_axis *axis);

/* Sizes as offsets [axis->n + 1]; the sizes must add up to `total`. */
size_t *cli_in_offsets(cli_in *in, const char *name, cli_axis *axis, const cli_axis *total);

/* A matrix, row-major. */
double *cli_in_matrix(cli_in *in, const char *name, cli_axis *rows, cli_axis *columns);

/* Ragged rows of one or more entries each. */
double *cli_in_number_rows(cli_in *in, const char *name, cli_rows *rows);
int64_t *cli_in_length_rows(cli_in *in, const char *name, cli_rows *rows);

#endif
