/* out.h - a growable string, and JSON written into it. Nothing here prints: a command builds its whole output first, so that a failure
 * never leaves half of it on stdout. */
#ifndef REIN_CLI_OUT_H
#define REIN_CLI_OUT_H

#include <stddef.h>

/* {0} is an empty string. `failed` is set once memory runs out; later writes do nothing. Free with rein_out_free. */
typedef struct rein_out {
    char *data; /* ends with 0 once anything was written */
    size_t length, capacity;
    int failed;
} rein_out;

void rein_out_free(rein_out *out);
void rein_out_bytes(rein_out *out, const char *bytes, size_t n);
void rein_out_text(rein_out *out, const char *text);
void rein_out_format(rein_out *out, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void rein_out_repeat(rein_out *out, const char *text, size_t times);

/* Text in lines of at most `width` columns. The first line goes on where the cursor is (column `indent`), the others begin there.
 * A newline in the text stays one. Ends with a newline. */
void rein_out_wrap(rein_out *out, size_t indent, size_t width, const char *text);

/* Columns of UTF-8 text (every code point here is one column wide). */
size_t rein_columns(const char *text);

/* JSON values: %.17g reads back as the same double; what is not a number (a masked entry) is null. */
void rein_json_double(rein_out *out, double value);
void rein_json_string(rein_out *out, const char *text);
void rein_json_bytes(rein_out *out, const char *text, size_t length);

/* %.9g reads back as the same float. */
void rein_json_float(rein_out *out, float value);

/* A field of an object: the comma is written when the object has fields already, then "name": . */
void rein_json_name(rein_out *out, const char *name);
void rein_json_field(rein_out *out, const char *name, double value);
void rein_json_array(rein_out *out, const char *name, const double *values, size_t n);
void rein_json_rows(rein_out *out, const char *name, const double *values, const size_t *offsets, size_t rows);

#endif
