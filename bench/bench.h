/* bench.h - the shared declarations of `rein bench`: rows, the process that measures a row, the limits of the machine, peers.
 *
 * Each row is measured in its own process, forked while there is one thread. So its peak memory is its own, and an error ends only that
 * process: the code that measures reports errors with bench_must, which does not return then. */
#ifndef BENCH_H
#define BENCH_H

#include "cli/help.h"
#include "rein/rein.h"

enum { BENCH_ROWS = 64 };

/* The families of random models: Llama, Llama with windows (Mistral), Gemma 3, and Qwen3's mixture of experts. */
typedef enum bench_family { BENCH_LLAMA, BENCH_MISTRAL, BENCH_GEMMA, BENCH_EXPERTS } bench_family;

/* The shape of a model with random weights and tied embeddings. */
typedef struct bench_shape {
    const char *name;
    int hidden, intermediate, layers, heads, kv_heads, vocabulary;
    bench_family family;
    int head_dim;        /* 0: hidden / heads */
    int window;          /* of BENCH_MISTRAL in all layers, of BENCH_GEMMA in five of six */
    int experts, chosen; /* of BENCH_EXPERTS; `intermediate` is that of one expert */
} bench_shape;

extern const bench_shape bench_small, bench_smollm, bench_head, bench_gemma, bench_experts, bench_windows;

/* The result of a row. */
typedef struct bench_figures {
    double value, limit; /* in the row's unit; limit NaN: none */
    double memory;       /* peak of its process, in MB */
    char split[200];     /* where the time goes, as text; "": unknown */
    char error[500];     /* not "": the row failed, and why */
} bench_figures;

/* The input of a row's process. */
typedef struct bench_job {
    uint64_t rounds; /* the best round counts */
    rein_exec exec;
    const char *directory; /* for models and runs; removed at the end */
} bench_job;

struct bench_row;
typedef void bench_work(bench_figures *figures, const struct bench_row *row, const bench_job *job);

typedef struct bench_row {
    const char *name, *unit, *help;
    bench_work *measure;   /* sets value, and limit if it depends on the machine */
    uint64_t rounds;       /* the default */
    double limit;          /* a goal that does not depend on the machine; 0: none */
    const char *memory_of; /* this row reports the memory of the named row */
    int unbound;           /* it starts processes, which may use all cores */
    /* Arguments of `measure`. */
    int f64, mask, gradient, lora, f32;
    const char *quantize; /* rein_model_options; NULL: not quantised */
    size_t batch;
    const bench_shape *shape;
    double (*machine)(void);
} bench_row;

/* Row number i, or NULL past the last. */
const bench_row *bench_row_at(size_t i);

/* 1 if a smaller value is better; its unit decides. */
int bench_less_is_better(const bench_row *row);

/* ------------------------------------------------------------------------------------------------------- the process of a row */

/* Measures in a new process; figures->error is the reason of a failure. */
void bench_measure(bench_figures *figures, const bench_row *row, const bench_job *job);

/* In that process: must ends it with err as the row's error unless status is REIN_OK; give_up always ends it. */
void bench_must(rein_status status, const rein_error *err);
_Noreturn void bench_give_up(const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* Memory on huge pages, for the limits and for the rows: page walks would cost time. */
void *bench_get(size_t bytes);

double bench_now(void);

/* CPU time of all threads of this process: on a busy machine it says more than the clock. */
double bench_cpu_seconds(void);

/* From now on an interrupt ends the process that the program waits for, and is remembered. */
void bench_catch_interrupts(void);
int bench_interrupted(void);

/* The process that an interrupt ends; 0: none. */
void bench_waits_for(int pid);

/* ----------------------------------------------------------------------------------------------------------------- the machine */

/* The number of cores this process may use. */
int bench_cores(void);

/* Binds each thread, of the library and of the limits, to its own core. */
void bench_bind(void);

/* One round each, on all cores: operations per second (fma), bytes per second (read, triad). */
double bench_fma(void);
double bench_read(void);
double bench_triad(void);

/* ----------------------------------------------------------------------------------------------------------------------- models */

/* Writes a model with random weights, f32 or bf16, below job->directory unless it is there; path gets its directory. */
void bench_model(char *path, size_t size, const bench_shape *shape, int f32, const bench_job *job);

/* The number of weights in the linear modules of all layers that a token uses, and in the head. */
double bench_layer_weights(const bench_shape *shape);
double bench_head_weights(const bench_shape *shape);

/* ------------------------------------------------------------------------------------------------------------------------- rows */

bench_work bench_machine, bench_policy_loss, bench_budget_loss, bench_rlhf_update, bench_start;
bench_work bench_train, bench_head_row, bench_window, bench_decode, bench_prefill;
bench_work bench_rl_sums, bench_rl_smollm, bench_exact_kl, bench_reference, bench_sharing;
bench_work bench_dpo, bench_reward;

/* ------------------------------------------------------------------------------------------------------------------------ peers */

/* A peer: another program that does the same work. */
typedef struct bench_peer {
    char name[32];
    const char *command; /* split at spaces */
} bench_peer;

/* Its result for a row; NaN: none. */
typedef struct bench_answer {
    double value, memory;
} bench_answer;

/* Reads NAME=COMMAND. Returns an exit status. */
int bench_peer_read(bench_peer *peer, const char *given);

/* Runs the peer. If it fails, prints why and returns no result. */
bench_answer bench_ask(const bench_peer *peer, const char *row, const bench_job *job);

/* --------------------------------------------------------------------------------------------------------------------- printing */

/* One row of the table; peers [n_peers]. */
typedef struct bench_line {
    const bench_row *row;
    double value, limit; /* NaN: none */
    double peers[CLI_MAX_REPEATS];
    const char *split; /* from the figures, or "" */
} bench_line;

void bench_put_head(rein_text *out);
void bench_put_line(rein_text *out, const bench_line *line, const bench_peer *peers, size_t n_peers);
void bench_put_json(rein_text *out, const bench_line *line, const bench_peer *peers, size_t n_peers);

#endif
