/* table.c - prints a row as text and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/wrap.h"

enum { NAME = 26, VALUE = 8, UNIT = 9, LIMIT = 9, SHARE = 8 };

/* The share of the limit that is reached; above 1: better than the limit. */
static double share(const bench_line *line) {
    return bench_less_is_better(line->row) ? line->limit / line->value : line->value / line->limit;
}

/* How many times better than the peer. */
static double ratio(const bench_line *line, size_t peer) {
    return bench_less_is_better(line->row) ? line->peers[peer] / line->value : line->value / line->peers[peer];
}

/* ------------------------------------------------------------------------------------------------------------------- text */

/* Widths are columns, not bytes: × and – have several bytes. */
static void put_cell(rein_text *out, const char *text, size_t width, int right) {
    const size_t columns = cli_columns(text);
    if (right && columns < width) rein_text_repeat(out, " ", width - columns);
    rein_text_put(out, text);
    if (!right && columns < width) rein_text_repeat(out, " ", width - columns);
}

static void number_text(char *to, size_t size, double value) {
    const double x = fabs(value);
    if (isnan(value)) snprintf(to, size, "–");
    else snprintf(to, size, "%.*f", x >= 100 ? 0 : x >= 10 ? 1 : 2, value);
}

/* Wide enough for "torch 12.3×". */
static size_t peer_width(const bench_peer *peer) { return strlen(peer->name) + 9; }

static void end_line(rein_text *out) {
    while (out->length && out->data[out->length - 1] == ' ') out->data[--out->length] = 0;
    rein_text_put(out, "\n");
}

void bench_put_head(rein_text *out) {
    put_cell(out, "row", NAME, 0);
    put_cell(out, "value", VALUE, 1);
    rein_text_repeat(out, " ", 1 + UNIT);
    put_cell(out, "limit", LIMIT, 1);
    put_cell(out, "share", SHARE, 1);
    rein_text_put(out, "\n");
}

void bench_put_line(rein_text *out, const bench_line *line, const bench_peer *peers, size_t n_peers) {
    char text[64];
    put_cell(out, line->row->name, NAME, 0);
    number_text(text, sizeof text, line->value);
    put_cell(out, text, VALUE, 1);
    rein_text_put(out, " ");
    put_cell(out, line->row->unit, UNIT, 0);
    number_text(text, sizeof text, line->limit);
    put_cell(out, text, LIMIT, 1);
    if (isnan(line->limit)) snprintf(text, sizeof text, "–");
    else snprintf(text, sizeof text, "%.0f %%", 100 * share(line));
    put_cell(out, text, SHARE, 1);
    rein_text_put(out, "  ");
    for (size_t i = 0; i < n_peers; i++) {
        char times[32];
        number_text(times, sizeof times, ratio(line, i));
        if (isnan(line->peers[i])) snprintf(text, sizeof text, "–");
        else snprintf(text, sizeof text, "%s %s×", peers[i].name, times);
        put_cell(out, text, peer_width(&peers[i]), 0);
    }
    end_line(out);
    if (line->split[0]) rein_text_format(out, "  %s\n", line->split);
}

/* ----------------------------------------------------------------------------------------------------------------- JSON */

void bench_put_json(rein_text *out, const bench_line *line, const bench_peer *peers, size_t n_peers) {
    rein_text_put(out, "{");
    rein_json_put_name(out, "name");
    rein_json_put_string(out, line->row->name);
    rein_json_put_field(out, "value", line->value);
    rein_json_put_name(out, "unit");
    rein_json_put_string(out, line->row->unit);
    rein_json_put_field(out, "limit", line->limit);
    rein_json_put_field(out, "share_of_limit", isnan(line->limit) ? NAN : share(line));
    rein_json_put_name(out, "peers");
    rein_text_put(out, "{");
    for (size_t i = 0; i < n_peers; i++) {
        if (isnan(line->peers[i])) continue;
        rein_json_put_name(out, peers[i].name);
        rein_text_put(out, "{");
        rein_json_put_field(out, "value", line->peers[i]);
        rein_json_put_field(out, "ratio", ratio(line, i));
        rein_text_put(out, "}");
    }
    rein_text_put(out, "}}");
}
