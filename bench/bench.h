/* bench.h - the shared declarations of `rein bench`: rows, the process that measures a row, the limits of the machine, peers.
 *
 * Each row is measured in its own process, forked while there is one thread. So its peak memory is its own, and an error ends only that
 * process: the code that measures reports errors with rein_bench_must, which does not return then. */
#ifndef REIN_BENCH_H
#define REIN_BENCH_H

#include "cli/help.h"
#include "rein/rein.h"

enum { REIN_BENCH_ROWS = 64 };

/* The shape of a model with random weights and tied embeddings. */
typedef struct rein_bench_shape {
    const char *name;
    int hidden, intermediate, layers, heads, kv_heads, vocabulary;
} rein_bench_shape;

extern const rein_bench_shape rein_bench_small, rein_bench_smollm, rein_bench_head;

/* The result of a row. */
typedef struct rein_bench_figures {
    double value, limit; /* in the row's unit; limit NaN: none */
    double memory;       /* peak of its process, in MB */
    char split[200];     /* where the time goes, as text; "": unknown */
    char error[500];     /* not "": the row failed, and why */
} rein_bench_figures;

/* The input of a row's process. */
typedef struct rein_bench_job {
    uint64_t rounds; /* the best round counts */
    rein_exec exec;
    const char *directory; /* for models and runs; removed at the end */
} rein_bench_job;

struct rein_bench_row;
typedef void rein_bench_work(rein_bench_figures *figures, const struct rein_bench_row *row, const rein_bench_job *job);

typedef struct rein_bench_row {
    const char *name, *unit, *help;
    rein_bench_work *measure; /* sets value, and limit if it depends on the machine */
    uint64_t rounds;          /* the default */
    double limit;             /* a goal that does not depend on the machine; 0: none */
    const char *memory_of;    /* this row reports the memory of the named row */
    int unbound;              /* it starts processes, which may use all cores */
    /* Arguments of `measure`. */
    int f64, mask, gradient, lora, f32;
    size_t batch;
    const rein_bench_shape *shape;
    double (*machine)(void);
} rein_bench_row;

/* Row number i, or NULL past the last. */
const rein_bench_row *rein_bench_row_at(size_t i);

/* 1 if a smaller value is better; its unit decides. */
int rein_bench_less_is_better(const rein_bench_row *row);

/* ------------------------------------------------------------------------------------------------------- the process of a row */

/* Measures in a new process; figures->error is the reason of a failure. */
void rein_bench_measure(rein_bench_figures *figures, const rein_bench_row *row, const rein_bench_job *job);

/* In that process: must ends it with err as the row's error unless status is REIN_OK; give_up always ends it. */
void rein_bench_must(rein_status status, const rein_error *err);
_Noreturn void rein_bench_give_up(const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* Memory on huge pages, for the limits and for the rows: page walks would cost time. */
void *rein_bench_get(size_t bytes);

double rein_bench_now(void);

/* From now on an interrupt ends the process that the program waits for, and is remembered. */
void rein_bench_catch_interrupts(void);
int rein_bench_interrupted(void);

/* The process that an interrupt ends; 0: none. */
void rein_bench_waits_for(int pid);

/* ----------------------------------------------------------------------------------------------------------------- the machine */

/* The number of cores this process may use. */
int rein_bench_cores(void);

/* Binds each thread, of the library and of the limits, to its own core. */
void rein_bench_bind(void);

/* One round each, on all cores: operations per second (fma), bytes per second (read, triad). */
double rein_bench_fma(void);
double rein_bench_read(void);
double rein_bench_triad(void);

/* ----------------------------------------------------------------------------------------------------------------------- models */

/* Writes a model with random weights, f32 or bf16, below job->directory unless it is there; path gets its directory. */
void rein_bench_model(char *path, size_t size, const rein_bench_shape *shape, int f32, const rein_bench_job *job);

/* The number of weights in the linear modules of all layers, and in the head. */
double rein_bench_layer_weights(const rein_bench_shape *shape);
double rein_bench_head_weights(const rein_bench_shape *shape);

/* ------------------------------------------------------------------------------------------------------------------------- rows */

rein_bench_work rein_bench_machine, rein_bench_policy_loss, rein_bench_budget_loss, rein_bench_rlhf_update, rein_bench_start;
rein_bench_work rein_bench_train, rein_bench_head_row, rein_bench_decode, rein_bench_prefill;
rein_bench_work rein_bench_rl_sums, rein_bench_rl_smollm, rein_bench_reference, rein_bench_sharing;

/* ------------------------------------------------------------------------------------------------------------------------ peers */

/* A peer: another program that does the same work. */
typedef struct rein_bench_peer {
    char name[32];
    const char *command; /* split at spaces */
} rein_bench_peer;

/* Its result for a row; NaN: none. */
typedef struct rein_bench_answer {
    double value, memory;
} rein_bench_answer;

/* Reads NAME=COMMAND. Returns an exit status. */
int rein_bench_peer_read(rein_bench_peer *peer, const char *given);

/* Runs the peer. If it fails, prints why and returns no result. */
rein_bench_answer rein_bench_ask(const rein_bench_peer *peer, const char *row, const rein_bench_job *job);

/* --------------------------------------------------------------------------------------------------------------------- printing */

/* One row of the table; peers [n_peers]. */
typedef struct rein_bench_line {
    const rein_bench_row *row;
    double value, limit; /* NaN: none */
    double peers[REIN_MAX_REPEATS];
    const char *split; /* from the figures, or "" */
} rein_bench_line;

void rein_bench_put_head(rein_text *out);
void rein_bench_put_line(rein_text *out, const rein_bench_line *line, const rein_bench_peer *peers, size_t n_peers);
void rein_bench_put_json(rein_text *out, const rein_bench_line *line, const rein_bench_peer *peers, size_t n_peers);

#endif
