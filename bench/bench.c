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
    bench_figures figures;
    bench_answer peers[CLI_MAX_REPEATS];
} result;

typedef struct bench {
    bench_job job;
    bench_peer peers[CLI_MAX_REPEATS];
    size_t n_peers;
    int wanted[BENCH_ROWS];
    result results[BENCH_ROWS];
    int json;
    rein_text out; /* with --json all output, else what is not printed yet */
} bench;

/* ------------------------------------------------------------------------------------------------------------------- which rows */

static const char *row_name(size_t i) { return bench_row_at(i) ? bench_row_at(i)->name : NULL; }

/* The first words of the names, for completion in the shell. */
const char *bench_word(size_t i) {
    static char words[BENCH_ROWS][32];
    const bench_row *row;
    size_t n = 0;
    for (size_t r = 0; (row = bench_row_at(r)); r++) {
        snprintf(words[n], sizeof words[n], "%.*s", (int)strcspn(row->name, " "), row->name);
        size_t k = 0;
        while (strcmp(words[k], words[n]) != 0) k++;
        if (k == n && n++ == i) return words[i];
    }
    return NULL;
}

/* A whole name selects one row; otherwise it selects all rows that begin with it. */
static int want(bench *b, const char *given) {
    const bench_row *row;
    size_t found = 0;
    for (size_t i = 0; (row = bench_row_at(i)); i++)
        if (!strcmp(row->name, given)) return b->wanted[i] = 1, CLI_DONE;
    for (size_t i = 0; (row = bench_row_at(i)); i++)
        if (*given && !strncmp(row->name, given, strlen(given))) b->wanted[i] = 1, found++;
    if (found) return CLI_DONE;
    const char *nearest = cli_nearest(given, row_name);
    if (!nearest) nearest = cli_nearest(given, bench_word);
    if (nearest) return cli_say(CLI_WRONG, WHERE, "there is no row \"%s\": did you mean \"%s\"?", given, nearest);
    return cli_say(CLI_WRONG, WHERE, "there is no row \"%s\": rein bench --list lists them", given);
}

static int read_rows(bench *b, const cli_args *args) {
    int status = CLI_DONE;
    for (size_t i = 0; i < args->n_words && !status; i++) status = want(b, args->words[i]);
    for (size_t i = 0; i < BENCH_ROWS && !args->n_words; i++) b->wanted[i] = 1;
    return status;
}

static int read_peers(bench *b, const cli_args *args) {
    for (; b->n_peers < args->n_repeated; b->n_peers++) {
        const int status = bench_peer_read(&b->peers[b->n_peers], args->repeated[b->n_peers]);
        if (status) return status;
        for (size_t i = 0; i < b->n_peers; i++)
            if (!strcmp(b->peers[i].name, b->peers[b->n_peers].name))
                return cli_say(CLI_WRONG, WHERE, "there are two peers named %s", b->peers[i].name);
    }
    return CLI_DONE;
}

static int list_rows(const bench *b, const cli_args *args) {
    const bench_row *row;
    rein_text out = {0};
    for (size_t o = 0; o < CLI_MAX_OPTIONS && args->command->options[o].name; o++) {
        const char *name = args->command->options[o].name;
        if (args->values[o] && strcmp(name, "list") != 0)
            return cli_say(CLI_WRONG, WHERE, "--list measures nothing: leave out --%s", name);
    }
    for (size_t i = 0; (row = bench_row_at(i)); i++)
        if (b->wanted[i]) rein_text_format(&out, "%-26s%s\n", row->name, row->help);
    return cli_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------- measuring */

static void keep_better(bench_figures *best, const bench_figures *again, const bench_row *row) {
    const int better = bench_less_is_better(row) ? again->value < best->value : again->value > best->value;
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
static void measure(bench *b, result *r, const bench_row *row) {
    bench_job job = b->job;
    bench_figures again;
    if (!job.rounds) job.rounds = row->rounds;
    r->measured = 1;
    bench_measure(&r->figures, row, &job);
    if (r->figures.error[0]) return;
    for (size_t i = 0; i < b->n_peers && !bench_interrupted(); i++) r->peers[i] = bench_ask(&b->peers[i], row->name, &job);
    if (!b->n_peers || bench_interrupted()) return;
    bench_measure(&again, row, &job);
    keep_better(&r->figures, &again, row);
}

/* The row whose process measures row i. */
static size_t measuring_row(size_t i) {
    const bench_row *row = bench_row_at(i), *other;
    for (size_t k = 0; row->memory_of && (other = bench_row_at(k)); k++)
        if (!strcmp(other->name, row->memory_of)) return k;
    return i;
}

static bench_line line_of(const bench *b, const bench_row *row, const result *r) {
    const int memory = row->memory_of != NULL;
    bench_line line = {.row = row, .value = memory ? r->figures.memory : r->figures.value, .split = memory ? "" : r->figures.split};
    line.limit = memory ? row->limit : r->figures.limit;
    for (size_t i = 0; i < b->n_peers; i++) line.peers[i] = memory ? r->peers[i].memory : r->peers[i].value;
    return line;
}

static int show_row(bench *b, size_t i) {
    const size_t measuring = measuring_row(i);
    const bench_row *row = bench_row_at(i);
    result *r = &b->results[measuring];
    if (!r->measured) measure(b, r, bench_row_at(measuring));
    if (bench_interrupted()) return cli_say(CLI_FAILED, WHERE, "stopped");
    if (r->figures.error[0]) return cli_say(CLI_FAILED, WHERE, "row %s: %s", row->name, r->figures.error);
    const bench_line line = line_of(b, row, r);
    if (b->json) {
        rein_text_put(&b->out, b->out.length ? ",\n " : "[");
        bench_put_json(&b->out, &line, b->peers, b->n_peers);
        return CLI_DONE;
    }
    bench_put_line(&b->out, &line, b->peers, b->n_peers);
    return cli_print(&b->out);
}

static int show_rows(bench *b) {
    int status = CLI_DONE;
    if (!b->json) {
        const int cores = bench_cores();
        rein_text_format(&b->out, "%d thread%s, %s\n", cores, cores > 1 ? "s" : "", rein_isa_name(b->job.exec.isa));
        bench_put_head(&b->out);
        status = cli_print(&b->out);
    }
    for (size_t i = 0; bench_row_at(i) && !bench_interrupted(); i++)
        if (b->wanted[i] && show_row(b, i)) status = CLI_FAILED;
    if (!b->json) return status;
    rein_text_put(&b->out, b->out.length ? "]\n" : "[]\n");
    const int printed = cli_print(&b->out);
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
    if (path.failed) return cli_say_no_memory(WHERE);
    bench_catch_interrupts();
    if (mkdtemp(path.data)) {
        b->job.directory = path.data;
        status = show_rows(b);
        if (nftw(path.data, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
            status = cli_say(CLI_FAILED, WHERE, "cannot remove %s: %s", path.data, strerror(errno));
    } else status = cli_say(CLI_FAILED, WHERE, "cannot make %s: %s", path.data, strerror(errno));
    rein_text_free(&path);
    return status;
}

int cli_run_bench(const cli_args *args) {
    static bench b; /* too large for the stack */
    b.json = cli_option_value(args, "json") != NULL;
    for (size_t r = 0; r < BENCH_ROWS; r++)
        for (size_t i = 0; i < CLI_MAX_REPEATS; i++) b.results[r].peers[i] = (bench_answer){NAN, NAN};
    int status = read_rows(&b, args);
    if (!status && cli_option_value(args, "list")) return list_rows(&b, args);
    if (!status) status = cli_value_whole(&b.job.rounds, args, "rounds", 1, 1000);
    if (!status) status = cli_value_exec(&b.job.exec, args);
    if (!status) status = read_peers(&b, args);
    return status ? status : with_directory(&b);
}
