/* sheet.h - a list of named fields, printed as lines of text or as one JSON object with the same names. */
#ifndef CLI_SHEET_H
#define CLI_SHEET_H

#include <stdint.h>

#include "rein/json.h"

/* {0} is an empty text, {.json = 1} an empty object. Printing or nesting frees it; otherwise free `out`. */
typedef struct cli_sheet {
    rein_text out;
    int json;
    int nested;   /* text: the fields are indented, and their names are not changed */
    int coloured; /* the text has colours in it (terminal.h) */
} cli_sheet;

/* Begins a field; its value follows, then cli_sheet_end. In a text the values begin in column 18, and _ in a name becomes a blank. */
void cli_sheet_name(cli_sheet *sheet, const char *name);
void cli_sheet_end(cli_sheet *sheet);

/* NULL: no value. */
void cli_sheet_text(cli_sheet *sheet, const char *name, const char *text);
void cli_sheet_value(cli_sheet *sheet, const char *name, const rein_json *value);
void cli_sheet_count(cli_sheet *sheet, const char *name, int64_t n);
void cli_sheet_number(cli_sheet *sheet, const char *name, double value);
void cli_sheet_yes(cli_sheet *sheet, const char *name, int yes);

/* A count that is unknown if it is negative. */
void cli_sheet_count_or_none(cli_sheet *sheet, const char *name, int64_t n);

/* The number, and rounded in a larger unit: "260032 (260 thousand)", "1040128 (1016 KiB)". */
void cli_sheet_thousands(cli_sheet *sheet, const char *name, int64_t n);
void cli_sheet_bytes(cli_sheet *sheet, const char *name, int64_t n);

/* A field with the fields of another sheet: an object in JSON; in a text, `summary` and the fields below it. */
void cli_sheet_nest(cli_sheet *sheet, const char *name, const char *summary, cli_sheet *nested);

/* Prints the sheet if the status is CLI_DONE; otherwise frees it and returns the status. */
int cli_sheet_finish(cli_sheet *sheet, int status);

#endif
