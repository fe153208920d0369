/* sheet.h - a list of named fields, printed as lines of text or as one JSON object with the same names. */
#ifndef REIN_CLI_SHEET_H
#define REIN_CLI_SHEET_H

#include <stdint.h>

#include "rein/json.h"

/* {0} is an empty text, {.json = 1} an empty object. Printing or nesting frees it; otherwise free `out`. */
typedef struct rein_sheet {
    rein_text out;
    int json;
    int nested; /* text: the fields are indented, and their names are not changed */
} rein_sheet;

/* Begins a field; its value follows, then rein_sheet_end. In a text the values begin in column 18, and _ in a name becomes a blank. */
void rein_sheet_name(rein_sheet *sheet, const char *name);
void rein_sheet_end(rein_sheet *sheet);

/* NULL: no value. */
void rein_sheet_text(rein_sheet *sheet, const char *name, const char *text);
void rein_sheet_value(rein_sheet *sheet, const char *name, const rein_json *value);
void rein_sheet_count(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_number(rein_sheet *sheet, const char *name, double value);
void rein_sheet_yes(rein_sheet *sheet, const char *name, int yes);

/* A count that is unknown if it is negative. */
void rein_sheet_count_or_none(rein_sheet *sheet, const char *name, int64_t n);

/* The number, and rounded in a larger unit: "260032 (260 thousand)", "1040128 (1016 KiB)". */
void rein_sheet_thousands(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_bytes(rein_sheet *sheet, const char *name, int64_t n);

/* A field with the fields of another sheet: an object in JSON; in a text, `summary` and the fields below it. */
void rein_sheet_nest(rein_sheet *sheet, const char *name, const char *summary, rein_sheet *nested);

/* Prints the sheet if the status is REIN_DONE; otherwise frees it and returns the status. */
int rein_sheet_finish(rein_sheet *sheet, int status);

#endif
