/* arguments.c - numeric arrays of one JSON object: shared lengths, matrices, ragged rows. */
#include "arguments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ------------------------------------------------------------------------------------------------------- the object as a whole */

rein_status rein_arguments_status(const rein_arguments *in) { return in->fields.status; }

typedef struct block {
    struct block *next;
    double data[]; /* aligned for everything that is read */
} block;

void *rein_arguments_alloc(rein_arguments *in, size_t n, size_t size) {
    if (in->fields.status) return NULL;
    block *b = n > (SIZE_MAX - sizeof *b - 1) / size ? NULL : calloc(1, sizeof *b + n * size + 1);
    if (!b) {
        in->fields.status = rein_no_memory(in->fields.err);
        return NULL;
    }
    b->next = in->blocks;
    in->blocks = b;
    return b->data;
}

void rein_arguments_close(rein_arguments *in) {
    for (block *b = in->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    rein_json_free(in->root);
    *in = (rein_arguments){0};
}

rein_status rein_arguments_open(rein_arguments *in, const char *text, size_t length, const char *const *keys, rein_error *err) {
    *in = (rein_arguments){.fields = {.path = "", .err = err}};
    in->fields.status = rein_json_parse(&in->root, text, length, NULL, REIN_JSON_NEEDS_OBJECT | REIN_JSON_WIDE_INTEGERS, err);
    in->fields.object = in->root;
    return in->fields.status ? in->fields.status : rein_fields_only(&in->fields, keys);
}

/* -------------------------------------------------------------------------------------------------------------------- scalars */

/* A field that is null counts as present. */
int rein_arguments_has(const rein_arguments *in, const char *name) {
    return !in->fields.status && rein_json_get(in->root, name) != NULL;
}

double rein_arguments_number(rein_arguments *in, const char *name) { return rein_fields_number(&in->fields, name, -INFINITY); }

/* --------------------------------------------------------------------------------------------------------------------- arrays */

/* Entry i of the array `name`, which is "name[r]" for a row. Where the mask (or NULL) has 0, the entry may be null. */
typedef struct place {
    const char *name;
    size_t i;
    const uint8_t *mask;
} place;

/* Reads one entry to values[k]. */
typedef void reader(rein_arguments *in, void *values, size_t k, place at, const rein_json *value);

static void wrong_entry(rein_arguments *in, place at, const rein_json *value, const char *need) {
    char shown[REIN_TEXT_SHOWN];
    rein_fields_fail(&in->fields, REIN_EINVAL, at.name, (int64_t)at.i, "is %s: %s", rein_json_show(shown, value), need);
}

static void read_number(rein_arguments *in, void *values, size_t k, place at, const rein_json *value) {
    const rein_json_kind kind = rein_json_kind_of(value);
    double *numbers = values;
    if (kind == REIN_JSON_NUMBER) numbers[k] = rein_json_number(value);
    else if (kind != REIN_JSON_NULL || !at.mask) wrong_entry(in, at, value, "a number is needed");
    else if (at.mask[at.i]) wrong_entry(in, at, value, "a number is needed where mask is 1");
    else numbers[k] = NAN;
}

static void read_length(rein_arguments *in, void *values, size_t k, place at, const rein_json *value) {
    const double x = rein_json_kind_of(value) == REIN_JSON_NUMBER ? rein_json_number(value) : -1;
    int64_t *lengths = values;
    if (x >= 0 && x <= 9007199254740992.0 && x == floor(x)) lengths[k] = (int64_t)x;
    else wrong_entry(in, at, value, "a whole number, 0 or more and below 2^51, is needed");
}

static void read_bit(rein_arguments *in, void *values, size_t k, place at, const rein_json *value) {
    const rein_json_kind kind = rein_json_kind_of(value);
    const double x = kind == REIN_JSON_NUMBER ? rein_json_number(value) : kind == REIN_JSON_BOOLEAN ? rein_json_true(value) : -1;
    uint8_t *bits = values;
    if (x == 0 || x == 1) bits[k] = x == 1;
    else wrong_entry(in, at, value, "0, 1, false or true is needed");
}

/* Reads n entries of an array to values [first, first + n). */
static void read_entries(rein_arguments *in, void *values, size_t first, const rein_json *array, size_t n, place at, reader *read) {
    for (at.i = 0; at.i < n && !in->fields.status; at.i++) read(in, values, first + at.i, at, rein_json_at(array, at.i));
}

static const rein_json *array_field(rein_arguments *in, const char *name, const char *need) {
    const rein_json *value = in->fields.status ? NULL : rein_json_get(in->root, name);
    if (rein_json_kind_of(value) == REIN_JSON_ARRAY) return value;
    rein_fields_wrong(&in->fields, name, value, "%s", need);
    return NULL;
}

static int agree(rein_arguments *in, const char *name, int64_t row, size_t n, rein_axis *axis) {
    if (!axis->name) *axis = (rein_axis){row < 0 ? name : "its first row", n};
    if (axis->n == n) return 1;
    rein_fields_fail(&in->fields, REIN_EINVAL, name, row, "has %zu entries, %s has %zu: they must agree", n, axis->name, axis->n);
    return 0;
}

static const rein_json *array_of(rein_arguments *in, const char *name, rein_axis *axis, const char *need) {
    const rein_json *array = array_field(in, name, need);
    return array && agree(in, name, -1, rein_json_size(array), axis) ? array : NULL;
}

/* An array of elements of `size` bytes. */
static void *read_array(rein_arguments *in, const char *name, rein_axis *axis, const uint8_t *mask, size_t size, reader *read,
                        const char *need) {
    const rein_json *array = array_of(in, name, axis, need);
    void *values = array ? rein_arguments_alloc(in, axis->n, size) : NULL;
    if (values) read_entries(in, values, 0, array, axis->n, (place){.name = name, .mask = mask}, read);
    return in->fields.status ? NULL : values;
}

double *rein_arguments_numbers(rein_arguments *in, const char *name, rein_axis *axis, const uint8_t *mask) {
    return read_array(in, name, axis, mask, sizeof(double), read_number, "an array of numbers is needed");
}

int64_t *rein_arguments_lengths(rein_arguments *in, const char *name, rein_axis *axis) {
    return read_array(in, name, axis, NULL, sizeof(int64_t), read_length, "an array of whole numbers is needed");
}

uint8_t *rein_arguments_bits(rein_arguments *in, const char *name, rein_axis *axis) {
    return read_array(in, name, axis, NULL, sizeof(uint8_t), read_bit, "an array of 0 and 1 is needed");
}

size_t *rein_arguments_offsets(rein_arguments *in, const char *name, rein_axis *axis, const rein_axis *total) {
    const int64_t *sizes = rein_arguments_lengths(in, name, axis);
    size_t *offsets = sizes ? rein_arguments_alloc(in, axis->n + 1, sizeof *offsets) : NULL;
    double sum = 0; /* lengths are at most 2^53: a double cannot overflow, and an inexact sum is far above total */
    for (size_t i = 0; offsets && i < axis->n; i++) {
        sum += (double)sizes[i];
        offsets[i + 1] = sum <= (double)total->n ? (size_t)sum : total->n;
    }
    if (offsets && sum != (double)total->n)
        rein_fields_fail(&in->fields, REIN_EINVAL, name, -1, "add up to %.17g, %s has %zu entries: they must agree", sum,
                         total->name, total->n);
    return in->fields.status ? NULL : offsets;
}

/* ------------------------------------------------------------------------------------------------------------- two dimensions */

/* Reads row r of `name` to values [first, first + n). */
static void read_row(rein_arguments *in, void *values, size_t first, const char *name, size_t r, const rein_json *row, size_t n,
                     reader *read) {
    char room[80];
    snprintf(room, sizeof room, "%s[%zu]", name, r);
    read_entries(in, values, first, row, n, (place){.name = room}, read);
}

double *rein_arguments_matrix(rein_arguments *in, const char *name, rein_axis *rows, rein_axis *columns) {
    const rein_json *array = array_of(in, name, rows, "an array of rows of numbers is needed");
    double *numbers = NULL;
    for (size_t r = 0; array && r < rows->n && !in->fields.status; r++) {
        const rein_json *row = rein_json_at(array, r);
        if (rein_json_kind_of(row) != REIN_JSON_ARRAY)
            wrong_entry(in, (place){.name = name, .i = r}, row, "a row of numbers is needed");
        else agree(in, name, (int64_t)r, rein_json_size(row), columns);
        const size_t room = columns->n && rows->n > SIZE_MAX / columns->n ? SIZE_MAX : rows->n * columns->n;
        if (!numbers) numbers = rein_arguments_alloc(in, room, sizeof *numbers);
        if (!in->fields.status) read_row(in, numbers, r * columns->n, name, r, row, columns->n, read_number);
    }
    if (array && !numbers) numbers = rein_arguments_alloc(in, 0, sizeof *numbers);
    return in->fields.status ? NULL : numbers;
}

static int is_row(rein_arguments *in, const char *name, size_t r, const rein_json *row) {
    if (rein_json_kind_of(row) == REIN_JSON_ARRAY) return 1;
    wrong_entry(in, (place){.name = name, .i = r}, row, "a row is needed, one entry a response");
    return 0;
}

/* The first field that is read with `rows` sets the shape. */
static void shape_rows(rein_arguments *in, const char *name, const rein_json *array, rein_rows *rows) {
    const size_t n = rein_json_size(array);
    size_t *offsets = n ? rein_arguments_alloc(in, n + 1, sizeof *offsets) : NULL;
    if (!n) rein_fields_fail(&in->fields, REIN_EINVAL, name, -1, "is empty: one row or more is needed, one a prompt");
    for (size_t r = 0; offsets && r < n && !in->fields.status; r++) {
        const rein_json *row = rein_json_at(array, r);
        if (!is_row(in, name, r, row)) break;
        offsets[r + 1] = offsets[r] + rein_json_size(row);
        if (!rein_json_size(row))
            rein_fields_fail(&in->fields, REIN_EINVAL, name, (int64_t)r, "is empty: a row has one entry or more");
    }
    if (!in->fields.status) *rows = (rein_rows){name, n, offsets};
}

static const rein_json *rows_of(rein_arguments *in, const char *name, rein_rows *rows) {
    const rein_json *array = array_field(in, name, "an array of rows is needed, one a prompt");
    if (!array) return NULL;
    if (!rows->name) shape_rows(in, name, array, rows);
    if (!in->fields.status && rein_json_size(array) != rows->n)
        rein_fields_fail(&in->fields, REIN_EINVAL, name, -1, "has %zu rows, %s has %zu: they must agree", rein_json_size(array),
                         rows->name, rows->n);
    for (size_t r = 0; r < rows->n && !in->fields.status; r++) {
        const rein_json *row = rein_json_at(array, r);
        const size_t n = rows->offsets[r + 1] - rows->offsets[r];
        if (is_row(in, name, r, row) && rein_json_size(row) != n)
            rein_fields_fail(&in->fields, REIN_EINVAL, name, (int64_t)r, "has %zu entries, %s[%zu] has %zu: they must agree",
                             rein_json_size(row), rows->name, r, n);
    }
    return in->fields.status ? NULL : array;
}

static void *read_rows(rein_arguments *in, const char *name, rein_rows *rows, size_t size, reader *read) {
    const rein_json *array = rows_of(in, name, rows);
    void *values = array ? rein_arguments_alloc(in, rows->offsets[rows->n], size) : NULL;
    for (size_t r = 0; values && r < rows->n && !in->fields.status; r++)
        read_row(in, values, rows->offsets[r], name, r, rein_json_at(array, r), rows->offsets[r + 1] - rows->offsets[r], read);
    return in->fields.status ? NULL : values;
}

double *rein_arguments_number_rows(rein_arguments *in, const char *name, rein_rows *rows) {
    return read_rows(in, name, rows, sizeof(double), read_number);
}

int64_t *rein_arguments_length_rows(rein_arguments *in, const char *name, rein_rows *rows) {
    return read_rows(in, name, rows, sizeof(int64_t), read_length);
}
