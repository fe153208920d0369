/* sheet.h - what there is to say of a thing, field by field: lines of a text, or the fields of one JSON object under the same names. */
#ifndef REIN_CLI_SHEET_H
#define REIN_CLI_SHEET_H

#include <stdint.h>

#include "rein/json.h"

/* {0} is an empty text, {.json = 1} an empty object. Printing frees it; else free `out`. */
typedef struct rein_sheet {
    rein_text out;
    int json;
} rein_sheet;

/* Begins a field: its value is next. In a text, blanks stand for _ and the value in column 18. */
void rein_sheet_name(rein_sheet *sheet, const char *name);
void rein_sheet_end(rein_sheet *sheet);

/* NULL: there is none. */
void rein_sheet_text(rein_sheet *sheet, const char *name, const char *text);
void rein_sheet_count(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_number(rein_sheet *sheet, const char *name, double value);
void rein_sheet_yes(rein_sheet *sheet, const char *name, int yes);

/* With a number that people can compare: "260032 (260 thousand)", "1040128 (1016 KiB)". */
void rein_sheet_thousands(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_bytes(rein_sheet *sheet, const char *name, int64_t n);

/* Returns an exit status. */
int rein_sheet_print(rein_sheet *sheet);

#endif
