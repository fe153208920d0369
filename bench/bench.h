/* bench.h - what the parts of `rein bench` share: rows, the process that measures one, the machine's limits, peers.
 *
 * A row is measured in a process of its own, forked while there is one thread: its peak memory is its own, and what goes wrong in it ends
 * that process alone. So the code that measures says what is wrong with rein_bench_must and does not come back. */
#ifndef REIN_BENCH_H
#define REIN_BENCH_H

#include "cli/help.h"
#include "rein/rein.h"

enum { REIN_BENCH_ROWS = 64 };

/* Of models of random weights, tied. */
typedef struct rein_bench_shape {
    const char *name;
    int hidden, intermediate, layers, heads, kv_heads, vocabulary;
} rein_bench_shape;

extern const rein_bench_shape rein_bench_small, rein_bench_smollm, rein_bench_head;

/* What a row comes to. */
typedef struct rein_bench_figures {
    double value, limit; /* in the row's unit; limit NaN: there is none */
    double memory;       /* MB at most, of its process */
    char split[200];     /* where the time goes, for people; "": not said */
    char error[500];     /* not "": it failed, and this is why */
} rein_bench_figures;

/* What the process of a row is told. */
typedef struct rein_bench_job {
    uint64_t rounds; /* the best of them counts */
    rein_exec exec;
    const char *directory; /* for models and runs; it goes when the work is done */
} rein_bench_job;

struct rein_bench_row;
typedef void rein_bench_work(rein_bench_figures *figures, const struct rein_bench_row *row, const rein_bench_job *job);

typedef struct rein_bench_row {
    const char *name, *unit, *help;
    rein_bench_work *measure; /* sets value, and limit where it depends on the machine */
    uint64_t rounds;          /* unless told otherwise */
    double limit;             /* that is wanted, whatever the machine; 0: none of this kind */
    const char *memory_of;    /* the row is about the memory of this one, which measures it */
    int unbound;              /* it starts processes, which shall have all cores */
    /* For `measure`. */
    int f64, mask, gradient, lora, f32;
    size_t batch;
    const rein_bench_shape *shape;
    double (*machine)(void);
} rein_bench_row;

/* Row number i, or NULL past the last. */
const rein_bench_row *rein_bench_row_at(size_t i);

/* 1 if a smaller value is better: by its unit. */
int rein_bench_less_is_better(const rein_bench_row *row);

/* ------------------------------------------------------------------------------------------------------- the process of a row */

/* Measures in a new process; figures->error says what went wrong. */
void rein_bench_measure(rein_bench_figures *figures, const rein_bench_row *row, const rein_bench_job *job);

/* In that process: ends it, with err as the row's error, unless status is REIN_OK. The next one does so in any case. */
void rein_bench_must(rein_status status, const rein_error *err);
_Noreturn void rein_bench_give_up(const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* Memory on huge pages, for the limits and the work alike: the walks of small ones would be measured too. */
void *rein_bench_get(size_t bytes);

double rein_bench_now(void);

/* From now on an interrupt ends the process that is being waited for and is remembered. */
void rein_bench_catch_interrupts(void);
int rein_bench_interrupted(void);

/* Whom an interrupt ends; 0: nobody. Set by who waits. */
void rein_bench_waits_for(int pid);

/* ----------------------------------------------------------------------------------------------------------------- the machine */

/* Cores this process may use. */
int rein_bench_cores(void);

/* Gives each thread, of the library and of the limits, a core of its own. */
void rein_bench_bind(void);

/* One round each, on all cores: operations a second; bytes a second. */
double rein_bench_fma(void);
double rein_bench_read(void);
double rein_bench_triad(void);

/* ----------------------------------------------------------------------------------------------------------------------- models */

/* The directory of a model with random weights below job->directory, written if it is not there yet; f32 or bf16. */
void rein_bench_model(char *path, size_t size, const rein_bench_shape *shape, int f32, const rein_bench_job *job);

/* Weights of the linear modules of all layers, and of the head. */
double rein_bench_layer_weights(const rein_bench_shape *shape);
double rein_bench_head_weights(const rein_bench_shape *shape);

/* ------------------------------------------------------------------------------------------------------------------------- rows */

rein_bench_work rein_bench_machine, rein_bench_policy_loss, rein_bench_budget_loss, rein_bench_rlhf_update, rein_bench_start;
rein_bench_work rein_bench_train, rein_bench_head_row, rein_bench_decode, rein_bench_prefill;
rein_bench_work rein_bench_rl_sums, rein_bench_rl_smollm, rein_bench_reference, rein_bench_sharing;

/* ------------------------------------------------------------------------------------------------------------------------ peers */

/* Another program that does the same work. */
typedef struct rein_bench_peer {
    char name[32];
    const char *command; /* split at blanks */
} rein_bench_peer;

/* What it said of a row; NaN: nothing. */
typedef struct rein_bench_answer {
    double value, memory;
} rein_bench_answer;

/* Reads NAME=COMMAND. Returns an exit status. */
int rein_bench_peer_read(rein_bench_peer *peer, const char *given);

/* Runs it; what goes wrong is said, and the answer is none. */
rein_bench_answer rein_bench_ask(const rein_bench_peer *peer, const char *row, const rein_bench_job *job);

/* --------------------------------------------------------------------------------------------------------------------- printing */

/* Everything of one row; peers [n_peers]. */
typedef struct rein_bench_line {
    const rein_bench_row *row;
    double value, limit; /* NaN: none */
    double peers[REIN_MAX_REPEATS];
    const char *split; /* of the figures, or "" */
} rein_bench_line;

void rein_bench_put_head(rein_out *out);
void rein_bench_put_line(rein_out *out, const rein_bench_line *line, const rein_bench_peer *peers, size_t n_peers);
void rein_bench_put_json(rein_out *out, const rein_bench_line *line, const rein_bench_peer *peers, size_t n_peers);

#endif
