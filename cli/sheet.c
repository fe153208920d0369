/* sheet.c - fields as text or as JSON. */
#include "sheet.h"

#include <string.h>

#include "terminal.h"
#include "wrap.h"

enum { COLUMN = 18, NESTED_COLUMN = 26 };

/* Names of files and fields are always shown, not printed: a sheet is read by people. */
static void put_label(cli_sheet *r, const char *name) {
    const size_t from = r->out.length;
    cli_show(&r->out, name, strlen(name));
    for (size_t i = from; !r->nested && i < r->out.length; i++)
        if (r->out.data[i] == '_') r->out.data[i] = ' ';
}

void cli_sheet_name(cli_sheet *r, const char *name) {
    const size_t column = r->nested ? NESTED_COLUMN : COLUMN, columns = cli_columns(name);
    if (r->json) {
        if (!r->out.length) rein_text_put(&r->out, "{");
        rein_json_put_name(&r->out, name);
        return;
    }
    if (r->nested) rein_text_put(&r->out, "  ");
    put_label(r, name);
    rein_text_repeat(&r->out, " ", columns < column ? column - columns : 1);
}

void cli_sheet_end(cli_sheet *r) {
    if (!r->json) rein_text_put(&r->out, "\n");
}

void cli_sheet_text(cli_sheet *r, const char *name, const char *text) {
    cli_sheet_name(r, name);
    if (r->json && text) rein_json_put_string(&r->out, text);
    else rein_text_put(&r->out, text ? text : r->json ? "null" : "none");
    cli_sheet_end(r);
}

void cli_sheet_value(cli_sheet *r, const char *name, const rein_json *value) {
    cli_sheet_name(r, name);
    if (value) rein_json_put_value(&r->out, value);
    else rein_text_put(&r->out, "null");
    cli_sheet_end(r);
}

void cli_sheet_count_or_none(cli_sheet *r, const char *name, int64_t n) {
    if (n < 0) cli_sheet_text(r, name, NULL);
    else cli_sheet_count(r, name, n);
}

void cli_sheet_count(cli_sheet *r, const char *name, int64_t n) {
    cli_sheet_name(r, name);
    rein_text_format(&r->out, "%lld", (long long)n);
    cli_sheet_end(r);
}

/* In the largest unit that is not larger than n. */
static void put_large(cli_sheet *r, const char *name, int64_t n, double step, const char *const units[3]) {
    double size = step * step * step;
    int unit = 0;
    cli_sheet_name(r, name);
    rein_text_format(&r->out, "%lld", (long long)n);
    for (; unit < 3 && (double)n < size; unit++) size /= step;
    if (!r->json && unit < 3) rein_text_format(&r->out, " (%.4g %s)", (double)n / size, units[unit]);
    cli_sheet_end(r);
}

void cli_sheet_thousands(cli_sheet *r, const char *name, int64_t n) {
    static const char *const units[] = {"billion", "million", "thousand"};
    put_large(r, name, n, 1000, units);
}

void cli_sheet_bytes(cli_sheet *r, const char *name, int64_t n) {
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    put_large(r, name, n, 1024, units);
}

void cli_sheet_number(cli_sheet *r, const char *name, double value) {
    cli_sheet_name(r, name);
    rein_text_format(&r->out, "%.15g", value);
    cli_sheet_end(r);
}

void cli_sheet_yes(cli_sheet *r, const char *name, int yes) {
    cli_sheet_name(r, name);
    rein_text_put(&r->out, r->json ? yes ? "true" : "false" : yes ? "yes" : "no");
    cli_sheet_end(r);
}

void cli_sheet_nest(cli_sheet *r, const char *name, const char *summary, cli_sheet *nested) {
    const char *fields = nested->out.data ? nested->out.data : r->json ? "{" : "";
    cli_sheet_name(r, name);
    if (r->json) rein_text_format(&r->out, "%s}", fields);
    else rein_text_format(&r->out, "%s\n%s", summary, fields);
    r->out.failed |= nested->out.failed;
    rein_text_free(&nested->out);
}

int cli_sheet_finish(cli_sheet *r, int status) {
    if (r->json) rein_text_put(&r->out, "}\n");
    if (!status && r->coloured) return cli_print_coloured(&r->out);
    return cli_print_result(&r->out, status);
}
