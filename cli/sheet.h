/* sheet.h - a list of named fields, printed as lines of text or as one JSON object with the same names. */
#ifndef REIN_CLI_SHEET_H
#define REIN_CLI_SHEET_H

#include <stdint.h>

#include "rein/json.h"

/* {0} is an empty text, {.json = 1} an empty object. Printing frees it; else free `out`. */
typedef struct rein_sheet {
    rein_text out;
    int json;
} rein_sheet;

/* Begins a field; its value comes next. In a text _ becomes a blank, and values begin in column 18. */
void rein_sheet_name(rein_sheet *sheet, const char *name);
void rein_sheet_end(rein_sheet *sheet);

/* NULL: no value. */
void rein_sheet_text(rein_sheet *sheet, const char *name, const char *text);
void rein_sheet_count(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_number(rein_sheet *sheet, const char *name, double value);
void rein_sheet_yes(rein_sheet *sheet, const char *name, int yes);

/* The number, and rounded in a larger unit: "260032 (260 thousand)", "1040128 (1016 KiB)". */
void rein_sheet_thousands(rein_sheet *sheet, const char *name, int64_t n);
void rein_sheet_bytes(rein_sheet *sheet, const char *name, int64_t n);

/* Returns an exit status. */
int rein_sheet_print(rein_sheet *sheet);

#endif
