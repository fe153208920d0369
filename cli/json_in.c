/* json_in.c - typed readers over a parsed object. json_text.c turns text into that object. */
#include "json_in.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"

static const size_t NO_INDEX = SIZE_MAX;
static const char NUMBER[] = "a number is needed";
static const char LENGTH[] = "a whole number, 0 or more and below 2^51, is needed";

/* ------------------------------------------------------------------------------------------------------- the object as a whole */

rein_status rein_in_status(const rein_in *in) { return in->status; }

rein_status rein_in_fail(rein_in *in, rein_status code, const char *format, ...) {
    char message[sizeof in->err->message];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (in->line) in->status = rein_fail(in->err, code, "line %zu: %s", in->line, message);
    else in->status = rein_fail(in->err, code, "%s", message);
    return in->status;
}

typedef struct block {
    struct block *next;
    double data[]; /* aligned for everything that is read */
} block;

void *rein_in_alloc(rein_in *in, size_t n, size_t size) {
    if (in->status) return NULL;
    block *b = n > (SIZE_MAX - sizeof *b - 1) / size ? NULL : calloc(1, sizeof *b + n * size + 1);
    if (!b) {
        rein_in_fail(in, REIN_ENOMEM, "out of memory");
        return NULL;
    }
    b->next = in->blocks;
    in->blocks = b;
    return b->data;
}

void rein_in_close(rein_in *in) {
    for (block *b = in->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    json_decref(in->root);
    in->blocks = NULL;
    in->root = NULL;
}

static void unknown_key(rein_in *in, const char *key, const char *const *keys) {
    char shown[REIN_SHOWN], list[400] = "";
    const char *nearest = rein_nearest(key, keys);
    rein_text_quote(shown, sizeof shown, key);
    for (size_t i = 0, n = 0; keys[i] && n < sizeof list; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", keys[i]);
    }
    if (nearest) rein_in_fail(in, REIN_EINVAL, "unknown argument %s: did you mean \"%s\"?", shown, nearest);
    else rein_in_fail(in, REIN_EINVAL, "unknown argument %s: the arguments are %s", shown, list);
}

rein_status rein_in_open(rein_in *in, const char *text, size_t length, size_t line, const char *const *keys, rein_error *err) {
    char shown[REIN_SHOWN];
    const char *key;
    json_t *value;
    *in = (rein_in){.err = err, .line = line};
    in->status = rein_text_parse(&in->root, text, length, line, err);
    if (in->status) return in->status;
    if (!json_is_object(in->root))
        return rein_in_fail(in, REIN_EINVAL, "%s is %s: an object of arguments is needed", line ? "this" : "the input",
                            rein_in_show(shown, in->root));
    json_object_foreach(in->root, key, value) {
        size_t i = 0;
        while (keys[i] && strcmp(key, keys[i]) != 0) i++;
        if (!keys[i]) {
            unknown_key(in, key, keys);
            break;
        }
    }
    return in->status;
}

const char *rein_in_show(char shown[REIN_SHOWN], const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING: return rein_text_quote(shown, REIN_SHOWN, json_string_value(value));
    case JSON_REAL:
    case JSON_INTEGER:
        snprintf(shown, REIN_SHOWN, "%.15g", json_number_value(value)); /* 0.1 is shown as 0.1 */
        if (strtod(shown, NULL) != json_number_value(value)) snprintf(shown, REIN_SHOWN, "%.17g", json_number_value(value));
        return shown;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    case JSON_ARRAY: return "an array";
    case JSON_OBJECT: break;
    }
    return "an object";
}

/* NAME[i][j] is VALUE: NEED. */
static void wrong(rein_in *in, const char *name, size_t i, size_t j, const json_t *value, const char *need) {
    char at[64] = "", shown[REIN_SHOWN];
    if (i != NO_INDEX && j != NO_INDEX) snprintf(at, sizeof at, "[%zu][%zu]", i, j);
    else if (i != NO_INDEX) snprintf(at, sizeof at, "[%zu]", i);
    rein_in_fail(in, REIN_EINVAL, "%s%s is %s: %s", name, at, rein_in_show(shown, value), need);
}

/* -------------------------------------------------------------------------------------------------------------------- scalars */

static const json_t *field(rein_in *in, const char *name, const char *need) {
    const json_t *value = in->status ? NULL : json_object_get(in->root, name);
    if (!value) rein_in_fail(in, REIN_EINVAL, "%s is missing: %s", name, need);
    return value;
}

int rein_in_has(const rein_in *in, const char *name) { return !in->status && json_object_get(in->root, name) != NULL; }

double rein_in_number(rein_in *in, const char *name) {
    const json_t *value = field(in, name, NUMBER);
    if (value && !json_is_number(value)) wrong(in, name, NO_INDEX, NO_INDEX, value, NUMBER);
    return value && !in->status ? json_number_value(value) : 0;
}

const char *rein_in_string(rein_in *in, const char *name) {
    const json_t *value = field(in, name, "a text is needed");
    if (value && !json_is_string(value)) wrong(in, name, NO_INDEX, NO_INDEX, value, "a text is needed");
    if (value && !in->status && strlen(json_string_value(value)) < json_string_length(value))
        rein_in_fail(in, REIN_EINVAL, "%s has \\u0000 in it: texts have no such character", name);
    return value && !in->status ? json_string_value(value) : "";
}

int rein_in_choice(rein_in *in, const char *name, const char *const *choices, int fallback) {
    char need[200] = "it is one of";
    if (!rein_in_has(in, name)) return fallback;
    const json_t *value = json_object_get(in->root, name);
    for (int i = 0; choices[i]; i++) {
        if (json_is_string(value) && !strcmp(json_string_value(value), choices[i])) return i;
        size_t n = strlen(need);
        snprintf(need + n, sizeof need - n, "%s %s", i ? "," : "", choices[i]);
    }
    wrong(in, name, NO_INDEX, NO_INDEX, value, need);
    return fallback;
}

/* --------------------------------------------------------------------------------------------------------------------- arrays */

static const json_t *array_field(rein_in *in, const char *name, const char *need) {
    const json_t *value = field(in, name, need);
    if (value && !json_is_array(value)) wrong(in, name, NO_INDEX, NO_INDEX, value, need);
    return in->status ? NULL : value;
}

static int agree(rein_in *in, const char *name, size_t n, rein_axis *axis) {
    if (!axis->name) *axis = (rein_axis){name, n};
    if (axis->n == n) return 1;
    rein_in_fail(in, REIN_EINVAL, "%s has %zu entries, %s has %zu: they must agree", name, n, axis->name, axis->n);
    return 0;
}

static const json_t *array_of(rein_in *in, const char *name, rein_axis *axis, const char *need) {
    const json_t *array = array_field(in, name, need);
    return array && agree(in, name, json_array_size(array), axis) ? array : NULL;
}

static void read_number(rein_in *in, double *to, const char *name, size_t i, size_t j, const json_t *value) {
    if (!json_is_number(value)) wrong(in, name, i, j, value, NUMBER);
    else *to = json_number_value(value);
}

static void read_length(rein_in *in, int64_t *to, const char *name, size_t i, size_t j, const json_t *value) {
    double x = json_is_number(value) ? json_number_value(value) : -1;
    if (!(x >= 0 && x <= 9007199254740992.0 && x == floor(x))) wrong(in, name, i, j, value, LENGTH);
    else *to = (int64_t)x;
}

double *rein_in_numbers(rein_in *in, const char *name, rein_axis *axis, const uint8_t *mask) {
    const json_t *array = array_of(in, name, axis, "an array of numbers is needed");
    double *numbers = array ? rein_in_alloc(in, axis->n, sizeof *numbers) : NULL;
    for (size_t i = 0; numbers && i < axis->n && !in->status; i++) {
        const json_t *value = json_array_get(array, i);
        if (json_is_null(value) && mask && !mask[i]) numbers[i] = NAN;
        else if (json_is_null(value) && mask) wrong(in, name, i, NO_INDEX, value, "a number is needed where mask is 1");
        else read_number(in, &numbers[i], name, i, NO_INDEX, value);
    }
    return in->status ? NULL : numbers;
}

int64_t *rein_in_lengths(rein_in *in, const char *name, rein_axis *axis) {
    const json_t *array = array_of(in, name, axis, "an array of whole numbers is needed");
    int64_t *lengths = array ? rein_in_alloc(in, axis->n, sizeof *lengths) : NULL;
    for (size_t i = 0; lengths && i < axis->n && !in->status; i++) {
        read_length(in, &lengths[i], name, i, NO_INDEX, json_array_get(array, i));
    }
    return in->status ? NULL : lengths;
}

uint8_t *rein_in_bits(rein_in *in, const char *name, rein_axis *axis) {
    const json_t *array = array_of(in, name, axis, "an array of 0 and 1 is needed");
    uint8_t *bits = array ? rein_in_alloc(in, axis->n, sizeof *bits) : NULL;
    for (size_t i = 0; bits && i < axis->n && !in->status; i++) {
        const json_t *value = json_array_get(array, i);
        double x = json_is_number(value) ? json_number_value(value) : -1;
        if (json_is_true(value) || x == 1) bits[i] = 1;
        else if (!json_is_false(value) && x != 0) wrong(in, name, i, NO_INDEX, value, "0, 1, false or true is needed");
    }
    return in->status ? NULL : bits;
}

size_t *rein_in_offsets(rein_in *in, const char *name, rein_axis *axis, const rein_axis *total) {
    const int64_t *sizes = rein_in_lengths(in, name, axis);
    size_t *offsets = sizes ? rein_in_alloc(in, axis->n + 1, sizeof *offsets) : NULL;
    double sum = 0; /* lengths are at most 2^53: a double cannot overflow, and an inexact sum is far above total */
    for (size_t i = 0; offsets && i < axis->n; i++) {
        sum += (double)sizes[i];
        offsets[i + 1] = sum <= (double)total->n ? (size_t)sum : total->n;
    }
    if (offsets && sum != (double)total->n)
        rein_in_fail(in, REIN_EINVAL, "%s add up to %.17g, %s has %zu entries: they must agree", name, sum, total->name, total->n);
    return in->status ? NULL : offsets;
}

/* ------------------------------------------------------------------------------------------------------------- two dimensions */

double *rein_in_matrix(rein_in *in, const char *name, rein_axis *rows, rein_axis *columns) {
    static const char need[] = "an array of rows of numbers is needed";
    const json_t *array = array_of(in, name, rows, need);
    double *numbers = NULL;
    for (size_t r = 0; array && r < rows->n && !in->status; r++) {
        const json_t *row = json_array_get(array, r);
        char row_name[80];
        snprintf(row_name, sizeof row_name, "%s[%zu]", name, r);
        if (!json_is_array(row)) {
            wrong(in, name, r, NO_INDEX, row, "a row of numbers is needed");
            break;
        }
        if (!columns->name) *columns = (rein_axis){"its first row", json_array_size(row)};
        if (!agree(in, row_name, json_array_size(row), columns)) break;
        if (columns->n && rows->n > SIZE_MAX / sizeof(double) / columns->n) rein_in_fail(in, REIN_ENOMEM, "out of memory");
        if (!numbers) numbers = rein_in_alloc(in, rows->n * columns->n, sizeof *numbers);
        for (size_t c = 0; numbers && c < columns->n && !in->status; c++) {
            read_number(in, &numbers[r * columns->n + c], name, r, c, json_array_get(row, c));
        }
    }
    if (array && !numbers) numbers = rein_in_alloc(in, 0, sizeof *numbers);
    return in->status ? NULL : numbers;
}

/* The first field read with `rows` gives the shape. */
static void shape_rows(rein_in *in, const char *name, const json_t *array, rein_rows *rows) {
    size_t n = json_array_size(array);
    size_t *offsets = n ? rein_in_alloc(in, n + 1, sizeof *offsets) : NULL;
    if (!n) rein_in_fail(in, REIN_EINVAL, "%s is empty: one row or more is needed, one a prompt", name);
    for (size_t r = 0; offsets && r < n && !in->status; r++) {
        const json_t *row = json_array_get(array, r);
        if (!json_is_array(row)) wrong(in, name, r, NO_INDEX, row, "a row is needed, one entry a response");
        else if (!json_array_size(row)) rein_in_fail(in, REIN_EINVAL, "%s[%zu] is empty: a row has one entry or more", name, r);
        else offsets[r + 1] = offsets[r] + json_array_size(row);
    }
    if (!in->status) *rows = (rein_rows){name, n, offsets};
}

static const json_t *rows_of(rein_in *in, const char *name, rein_rows *rows) {
    const json_t *array = array_field(in, name, "an array of rows is needed, one a prompt");
    if (!array) return NULL;
    if (!rows->name) shape_rows(in, name, array, rows);
    if (!in->status && json_array_size(array) != rows->n)
        rein_in_fail(in, REIN_EINVAL, "%s has %zu rows, %s has %zu: they must agree", name, json_array_size(array), rows->name,
                     rows->n);
    for (size_t r = 0; r < rows->n && !in->status; r++) {
        const json_t *row = json_array_get(array, r);
        size_t n = rows->offsets[r + 1] - rows->offsets[r];
        if (!json_is_array(row)) wrong(in, name, r, NO_INDEX, row, "a row is needed, one entry a response");
        else if (json_array_size(row) != n)
            rein_in_fail(in, REIN_EINVAL, "%s[%zu] has %zu entries, %s[%zu] has %zu: they must agree", name, r,
                         json_array_size(row), rows->name, r, n);
    }
    return in->status ? NULL : array;
}

double *rein_in_number_rows(rein_in *in, const char *name, rein_rows *rows) {
    const json_t *array = rows_of(in, name, rows);
    double *numbers = array ? rein_in_alloc(in, rows->offsets[rows->n], sizeof *numbers) : NULL;
    for (size_t r = 0; numbers && r < rows->n; r++) {
        for (size_t i = rows->offsets[r]; i < rows->offsets[r + 1] && !in->status; i++) {
            size_t c = i - rows->offsets[r];
            read_number(in, &numbers[i], name, r, c, json_array_get(json_array_get(array, r), c));
        }
    }
    return in->status ? NULL : numbers;
}

int64_t *rein_in_length_rows(rein_in *in, const char *name, rein_rows *rows) {
    const json_t *array = rows_of(in, name, rows);
    int64_t *lengths = array ? rein_in_alloc(in, rows->offsets[rows->n], sizeof *lengths) : NULL;
    for (size_t r = 0; lengths && r < rows->n; r++) {
        for (size_t i = rows->offsets[r]; i < rows->offsets[r + 1] && !in->status; i++) {
            size_t c = i - rows->offsets[r];
            read_length(in, &lengths[i], name, r, c, json_array_get(json_array_get(array, r), c));
        }
    }
    return in->status ? NULL : lengths;
}
