/* bench.c - `rein bench`: the performance table of this machine, with the limits of the machine and the results of other programs. */
#define _GNU_SOURCE /* nftw */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cli/nearest.h"
#include "cli/terminal.h"
#include "cli/values.h"

static const char WHERE[] = "bench";

/* The result of a row: rein's best round, and the peers'. */
typedef struct result {
    int measured;
    rein_bench_figures figures;
    rein_bench_answer peers[REIN_MAX_REPEATS];
} result;

typedef struct bench {
    rein_bench_job job;
    rein_bench_peer peers[REIN_MAX_REPEATS];
    size_t n_peers;
    int wanted[REIN_BENCH_ROWS];
    result results[REIN_BENCH_ROWS];
    int json;
    rein_text out; /* with --json all output, else what is not printed yet */
} bench;

/* ------------------------------------------------------------------------------------------------------------------- which rows */

static const char *row_name(size_t i) { return rein_bench_row_at(i) ? rein_bench_row_at(i)->name : NULL; }

/* The first words of the names, for completion in the shell. */
const char *rein_bench_word(size_t i) {
    static char words[REIN_BENCH_ROWS][32];
    const rein_bench_row *row;
    size_t n = 0;
    for (size_t r = 0; (row = rein_bench_row_at(r)); r++) {
        snprintf(words[n], sizeof words[n], "%.*s", (int)strcspn(row->name, " "), row->name);
        size_t k = 0;
        while (strcmp(words[k], words[n]) != 0) k++;
        if (k == n && n++ == i) return words[i];
    }
    return NULL;
}

/* A whole name selects one row; otherwise it selects all rows that begin with it. */
static int want(bench *b, const char *given) {
    const rein_bench_row *row;
    size_t found = 0;
    for (size_t i = 0; (row = rein_bench_row_at(i)); i++)
        if (!strcmp(row->name, given)) return b->wanted[i] = 1, REIN_DONE;
    for (size_t i = 0; (row = rein_bench_row_at(i)); i++)
        if (*given && !strncmp(row->name, given, strlen(given))) b->wanted[i] = 1, found++;
    if (found) return REIN_DONE;
    const char *nearest = rein_cli_nearest(given, row_name);
    if (!nearest) nearest = rein_cli_nearest(given, rein_bench_word);
    if (nearest) return rein_say(REIN_WRONG, WHERE, "there is no row \"%s\": did you mean \"%s\"?", given, nearest);
    return rein_say(REIN_WRONG, WHERE, "there is no row \"%s\": rein bench --list lists them", given);
}

static int read_rows(bench *b, const rein_args *args) {
    int status = REIN_DONE;
    for (size_t i = 0; i < args->n_words && !status; i++) status = want(b, args->words[i]);
    for (size_t i = 0; i < REIN_BENCH_ROWS && !args->n_words; i++) b->wanted[i] = 1;
    return status;
}

static int read_peers(bench *b, const rein_args *args) {
    for (; b->n_peers < args->n_repeated; b->n_peers++) {
        const int status = rein_bench_peer_read(&b->peers[b->n_peers], args->repeated[b->n_peers]);
        if (status) return status;
        for (size_t i = 0; i < b->n_peers; i++)
            if (!strcmp(b->peers[i].name, b->peers[b->n_peers].name))
                return rein_say(REIN_WRONG, WHERE, "there are two peers named %s", b->peers[i].name);
    }
    return REIN_DONE;
}

static int list_rows(const bench *b, const rein_args *args) {
    const rein_bench_row *row;
    rein_text out = {0};
    for (size_t o = 0; o < REIN_MAX_OPTIONS && args->command->options[o].name; o++) {
        const char *name = args->command->options[o].name;
        if (args->values[o] && strcmp(name, "list") != 0)
            return rein_say(REIN_WRONG, WHERE, "--list measures nothing: leave out --%s", name);
    }
    for (size_t i = 0; (row = rein_bench_row_at(i)); i++)
        if (b->wanted[i]) rein_text_format(&out, "%-26s%s\n", row->name, row->help);
    return rein_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------- measuring */

static void keep_better(rein_bench_figures *best, const rein_bench_figures *again, const rein_bench_row *row) {
    const int better = rein_bench_less_is_better(row) ? again->value < best->value : again->value > best->value;
    if (again->error[0]) {
        *best = *again;
        return;
    }
    if (better) {
        best->value = again->value;
        memcpy(best->split, again->split, sizeof best->split);
    }
    best->limit = fmax(best->limit, again->limit);
    best->memory = fmin(best->memory, again->memory);
}

/* Measures rein, the peers, and rein again, so that a change in the machine's speed affects all of them. */
static void measure(bench *b, result *r, const rein_bench_row *row) {
    rein_bench_job job = b->job;
    rein_bench_figures again;
    if (!job.rounds) job.rounds = row->rounds;
    r->measured = 1;
    rein_bench_measure(&r->figures, row, &job);
    if (r->figures.error[0]) return;
    for (size_t i = 0; i < b->n_peers && !rein_bench_interrupted(); i++)
        r->peers[i] = rein_bench_ask(&b->peers[i], row->name, &job);
    if (!b->n_peers || rein_bench_interrupted()) return;
    rein_bench_measure(&again, row, &job);
    keep_better(&r->figures, &again, row);
}

/* The row whose process measures row i. */
static size_t measuring_row(size_t i) {
    const rein_bench_row *row = rein_bench_row_at(i), *other;
    for (size_t k = 0; row->memory_of && (other = rein_bench_row_at(k)); k++)
        if (!strcmp(other->name, row->memory_of)) return k;
    return i;
}

static rein_bench_line line_of(const bench *b, const rein_bench_row *row, const result *r) {
    const int memory = row->memory_of != NULL;
    rein_bench_line line = {
        .row = row, .value = memory ? r->figures.memory : r->figures.value, .split = memory ? "" : r->figures.split};
    line.limit = memory ? row->limit : r->figures.limit;
    for (size_t i = 0; i < b->n_peers; i++) line.peers[i] = memory ? r->peers[i].memory : r->peers[i].value;
    return line;
}

static int show_row(bench *b, size_t i) {
    const size_t measuring = measuring_row(i);
    const rein_bench_row *row = rein_bench_row_at(i);
    result *r = &b->results[measuring];
    if (!r->measured) measure(b, r, rein_bench_row_at(measuring));
    if (rein_bench_interrupted()) return rein_say(REIN_FAILED, WHERE, "stopped");
    if (r->figures.error[0]) return rein_say(REIN_FAILED, WHERE, "row %s: %s", row->name, r->figures.error);
    const rein_bench_line line = line_of(b, row, r);
    if (b->json) {
        rein_text_put(&b->out, b->out.length ? ",\n " : "[");
        rein_bench_put_json(&b->out, &line, b->peers, b->n_peers);
        return REIN_DONE;
    }
    rein_bench_put_line(&b->out, &line, b->peers, b->n_peers);
    return rein_print(&b->out);
}

static int show_rows(bench *b) {
    int status = REIN_DONE;
    if (!b->json) {
        const int cores = rein_bench_cores();
        rein_text_format(&b->out, "%d thread%s, %s\n", cores, cores > 1 ? "s" : "", rein_isa_name(b->job.exec.isa));
        rein_bench_put_head(&b->out);
        status = rein_print(&b->out);
    }
    for (size_t i = 0; rein_bench_row_at(i) && !rein_bench_interrupted(); i++)
        if (b->wanted[i] && show_row(b, i)) status = REIN_FAILED;
    if (!b->json) return status;
    rein_text_put(&b->out, b->out.length ? "]\n" : "[]\n");
    const int printed = rein_print(&b->out);
    return printed ? printed : status;
}

/* ---------------------------------------------------------------------------------------------------------- temporary files */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path) != 0 && errno != ENOENT;
}

static int with_directory(bench *b) {
    const char *place = getenv("TMPDIR");
    rein_text path = {0};
    int status;
    rein_text_format(&path, "%s/rein-bench-XXXXXX", place && *place ? place : "/tmp");
    if (path.failed) return rein_say_no_memory(WHERE);
    rein_bench_catch_interrupts();
    if (mkdtemp(path.data)) {
        b->job.directory = path.data;
        status = show_rows(b);
        if (nftw(path.data, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
            status = rein_say(REIN_FAILED, WHERE, "cannot remove %s: %s", path.data, strerror(errno));
    } else status = rein_say(REIN_FAILED, WHERE, "cannot make %s: %s", path.data, strerror(errno));
    rein_text_free(&path);
    return status;
}

int rein_run_bench(const rein_args *args) {
    static bench b; /* too large for the stack */
    b.json = rein_option_value(args, "json") != NULL;
    for (size_t r = 0; r < REIN_BENCH_ROWS; r++)
        for (size_t i = 0; i < REIN_MAX_REPEATS; i++) b.results[r].peers[i] = (rein_bench_answer){NAN, NAN};
    int status = read_rows(&b, args);
    if (!status && rein_option_value(args, "list")) return list_rows(&b, args);
    if (!status) status = rein_value_whole(&b.job.rounds, args, "rounds", 1, 1000);
    if (!status) status = rein_value_exec(&b.job.exec, args);
    if (!status) status = read_peers(&b, args);
    return status ? status : with_directory(&b);
}
