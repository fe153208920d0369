/* sheet.c - fields as text or as JSON. */
#include "sheet.h"

#include <string.h>

#include "terminal.h"

enum { COLUMN = 18 };

void rein_sheet_name(rein_sheet *r, const char *name) {
    if (r->json) {
        if (!r->out.length) rein_text_put(&r->out, "{");
        rein_json_put_name(&r->out, name);
        return;
    }
    for (size_t i = 0; name[i]; i++) rein_text_put_bytes(&r->out, name[i] == '_' ? " " : name + i, 1);
    rein_text_repeat(&r->out, " ", strlen(name) < COLUMN ? COLUMN - strlen(name) : 1);
}

void rein_sheet_end(rein_sheet *r) {
    if (!r->json) rein_text_put(&r->out, "\n");
}

void rein_sheet_text(rein_sheet *r, const char *name, const char *text) {
    rein_sheet_name(r, name);
    if (r->json && text) rein_json_put_string(&r->out, text);
    else rein_text_put(&r->out, text ? text : r->json ? "null" : "none");
    rein_sheet_end(r);
}

void rein_sheet_count(rein_sheet *r, const char *name, int64_t n) {
    rein_sheet_name(r, name);
    rein_text_format(&r->out, "%lld", (long long)n);
    rein_sheet_end(r);
}

/* In the first of the units that is not larger. */
static void put_large(rein_sheet *r, const char *name, int64_t n, double step, const char *const units[3]) {
    double size = step * step * step;
    int unit = 0;
    rein_sheet_name(r, name);
    rein_text_format(&r->out, "%lld", (long long)n);
    for (; unit < 3 && (double)n < size; unit++) size /= step;
    if (!r->json && unit < 3) rein_text_format(&r->out, " (%.4g %s)", (double)n / size, units[unit]);
    rein_sheet_end(r);
}

void rein_sheet_thousands(rein_sheet *r, const char *name, int64_t n) {
    static const char *const units[] = {"billion", "million", "thousand"};
    put_large(r, name, n, 1000, units);
}

void rein_sheet_bytes(rein_sheet *r, const char *name, int64_t n) {
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    put_large(r, name, n, 1024, units);
}

void rein_sheet_number(rein_sheet *r, const char *name, double value) {
    rein_sheet_name(r, name);
    rein_text_format(&r->out, "%.15g", value);
    rein_sheet_end(r);
}

void rein_sheet_yes(rein_sheet *r, const char *name, int yes) {
    rein_sheet_name(r, name);
    rein_text_put(&r->out, r->json ? yes ? "true" : "false" : yes ? "yes" : "no");
    rein_sheet_end(r);
}

int rein_sheet_print(rein_sheet *r) {
    if (r->json) rein_text_put(&r->out, "}\n");
    return rein_print(&r->out);
}
