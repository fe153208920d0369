/* objective.c - rows of the objectives, compared with the bandwidth of memory. Each round of the work is followed by a round of its limit,
 * so that a noisy machine slows both. The bytes are those that must move: every input once, every output once. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

static double uniform(uint64_t i) { /* splitmix64 of the index */
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
static double normal(uint64_t i) { return sqrt(-2 * log(uniform(2 * i) + 1e-300)) * cos(6.283185307179586 * uniform(2 * i + 1)); }

/* Sets an element of an array of double or float. */
static void put(void *array, int f64, size_t i, double value) {
    if (f64) ((double *)array)[i] = value;
    else ((float *)array)[i] = (float)value;
}

static void alternate(bench_figures *figures, const bench_job *job, double bytes, void (*work)(void *), void *task,
                      double (*limit)(void)) {
    figures->limit = 0;
    for (uint64_t i = 0; i < job->rounds; i++) {
        const double start = bench_now();
        work(task);
        figures->value = fmax(figures->value, bytes / (bench_now() - start) / 1e9);
        figures->limit = fmax(figures->limit, limit() / 1e9);
    }
}

/* ----------------------------------------------------------------------------------------------------------------- policy loss */

typedef struct policy_task {
    rein_batch batch;
    rein_options *options;
    rein_exec exec;
    void *gradient, *workspace;
    size_t size;
} policy_task;

static void run_policy(void *task) {
    policy_task *t = task;
    rein_step *step;
    rein_error err = {0};
    rein_loss loss;
    bench_must(rein_step_begin(&step, t->workspace, t->size, &t->batch, t->options, &t->exec, &err), &err);
    bench_must(rein_step_loss(step, 0, t->batch.n_sequences, NULL, NULL, t->gradient, NULL, NULL, &err), &err);
    bench_must(rein_step_finish(&loss, step, &err), &err);
}

/* Log-probs of a policy, of the same policy a few updates ago, and of a more distant reference; one token in 50 is far off. */
static void fill_tokens(void *const arrays[4], uint8_t *mask, size_t tokens, int f64) {
    for (size_t i = 0; i < tokens; i++) {
        const double far = uniform(7 * i) < 0.02 ? 10 : 1, l = 2 * log(uniform(3 * i) + 1e-9) * 0.3;
        put(arrays[0], f64, i, l);
        put(arrays[1], f64, i, l - 0.02 * far * normal(5 * i));
        put(arrays[2], f64, i, l + 0.05 * far * normal(11 * i + 1));
        put(arrays[3], f64, i, 0);
        mask[i] = uniform(13 * i) < 0.9;
    }
}

void bench_policy_loss(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const size_t size = row->f64 ? 8 : 4, length = 1021, sequences = ((size_t)16 << 20) / length, tokens = sequences * length;
    const size_t n_groups = sequences / 8;
    void *arrays[4]; /* log-probs, old, reference, gradient */
    uint8_t *mask = bench_get(tokens);
    size_t *offsets = bench_get((sequences + 1) * sizeof *offsets), *groups = bench_get((n_groups + 1) * sizeof *groups);
    double *rewards = bench_get(sequences * sizeof *rewards);
    rein_error err = {0};
    for (int i = 0; i < 4; i++) arrays[i] = bench_get(tokens * size);
    fill_tokens(arrays, mask, tokens, row->f64);
    for (size_t i = 0; i <= sequences; i++) offsets[i] = i * length;
    for (size_t g = 0; g <= n_groups; g++) groups[g] = g == n_groups ? sequences : g * 8;
    for (size_t i = 0; i < sequences; i++) rewards[i] = uniform(i) < 0.4;
    policy_task t = {.batch = {.n_groups = n_groups,
                               .n_sequences = sequences,
                               .group_offsets = groups,
                               .sequence_offsets = offsets,
                               .dtype = row->f64 ? REIN_F64 : REIN_F32,
                               .mask = row->mask ? mask : NULL,
                               .log_probs = arrays[0],
                               .old_log_probs = arrays[1],
                               .ref_log_probs = arrays[2],
                               .rewards = rewards},
                     .exec = job->exec,
                     .gradient = arrays[3]};
    bench_must(rein_options_new(&t.options, "grpo", &err), &err);
    t.size = rein_step_size(&t.batch, t.options, &t.exec);
    t.workspace = bench_get(t.size);
    alternate(figures, job, (double)tokens * (4 * (double)size + row->mask), run_policy, &t, bench_triad);
    rein_options_free(t.options);
}

/* ----------------------------------------------------------------------------------------------------------------- budget loss */

typedef struct budget_task {
    void *rewards, *log_probs, *old, *gradient;
    int64_t *lengths;
    size_t *offsets, prompts;
    rein_exec exec;
    int f64;
} budget_task;

static void run_budget(void *task) {
    budget_task *t = task;
    const rein_budget b = {.token_budget = 100, .kl_coef = 0.1, .budget_penalty_coef = 0.01};
    rein_error err = {0};
    double loss;
    bench_must(t->f64 ? rein_budget_loss(&loss, NULL, NULL, NULL, t->gradient, t->rewards, t->log_probs, t->old, t->lengths,
                                         t->offsets, t->prompts, &b, &t->exec, &err)
                      : rein_budget_loss_f32(&loss, NULL, NULL, NULL, t->gradient, t->rewards, t->log_probs, t->old, t->lengths,
                                             t->offsets, t->prompts, &b, &t->exec, &err),
               &err);
}

void bench_budget_loss(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const size_t prompts = 100000, k = 16, n = prompts * k, size = row->f64 ? 8 : 4;
    budget_task t = {.rewards = bench_get(n * size),
                     .log_probs = bench_get(n * size),
                     .old = bench_get(n * size),
                     .gradient = row->gradient ? bench_get(n * size) : NULL,
                     .lengths = bench_get(n * sizeof *t.lengths),
                     .offsets = bench_get((prompts + 1) * sizeof *t.offsets),
                     .prompts = prompts,
                     .exec = job->exec,
                     .f64 = row->f64};
    for (size_t i = 0; i < n; i++) {
        const double l = -10 * uniform(i + n);
        put(t.rewards, row->f64, i, uniform(i));
        put(t.log_probs, row->f64, i, l);
        put(t.old, row->f64, i, l + 0.1 * (uniform(i + 2 * n) - 0.5));
        t.lengths[i] = (int64_t)(200 * uniform(i + 3 * n));
    }
    if (t.gradient) memset(t.gradient, 0, n * size);
    for (size_t p = 0; p <= prompts; p++) t.offsets[p] = p * k;
    const double moved = (row->gradient ? 4 : 3) * (double)size + sizeof *t.lengths;
    alternate(figures, job, (double)n * moved, run_budget, &t, bench_triad);
}

/* ----------------------------------------------------------------------------------------------------------------- rlhf update */

typedef struct update_task {
    void *weights, *updated, *small, *gradients;
    size_t n, p;
    rein_exec exec;
    int f64;
} update_task;

static void run_update(void *task) {
    update_task *t = task;
    rein_error err = {0};
    bench_must(t->f64 ? rein_rlhf_update(t->updated, t->weights, t->small, t->small, t->small, t->gradients, t->n, t->p, 0.1, 1e-3,
                                         &t->exec, &err)
                      : rein_rlhf_update_f32(t->updated, t->weights, t->small, t->small, t->small, t->gradients, t->n, t->p, 0.1,
                                             1e-3, &t->exec, &err),
               &err);
}

void bench_rlhf_update(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const size_t n = 64, p = (size_t)4 << 20, size = row->f64 ? 8 : 4;
    update_task t = {.weights = bench_get(p * size),
                     .updated = bench_get(p * size),
                     .small = bench_get(n * size),
                     .gradients = bench_get(n * p * size),
                     .n = n,
                     .p = p,
                     .exec = job->exec,
                     .f64 = row->f64};
    memset(t.weights, 0, p * size);
    memset(t.updated, 0, p * size);
    for (size_t i = 0; i < n; i++) put(t.small, row->f64, i, uniform(i));
    for (size_t i = 0; i < n * p; i++) put(t.gradients, row->f64, i, uniform(i));
    alternate(figures, job, (double)(n * p * size), run_update, &t, bench_read);
}

/* ---------------------------------------------------------------------------------------------------------------- a cold start */

static const char QUESTION[] =
    "{\"rewards\":[[1,0.5],[0.8,1.2]],\"log_probs\":[[-1,-1.2],[-0.8,-0.9]],\"old_log_probs\":[[-1.1,-1.1],[-0.7,-1]],"
    "\"response_lengths\":[[120,80],[90,110]],\"token_budget\":100,\"kl_coef\":0.05,\"budget_penalty_coef\":0.02}";

/* The seconds of a whole process, from fork to exit. */
static double start_once(void) {
    int in[2], how = 0;
    const double start = bench_now();
    if (pipe(in) != 0) bench_give_up("no pipe");
    const pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        close(in[0]), close(in[1]);
        if (!freopen("/dev/null", "w", stdout)) _exit(1);
        execl("/proc/self/exe", "rein", "objective", "budget-loss", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    const ssize_t wrote = write(in[1], QUESTION, sizeof QUESTION - 1);
    close(in[1]);
    if (child < 0 || waitpid(child, &how, 0) != child || wrote < 0 || how != 0)
        bench_give_up("rein objective budget-loss does not run");
    return bench_now() - start;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A round is the median of 21 processes. */
void bench_start(bench_figures *figures, const bench_row *row, const bench_job *job) {
    double seconds[21];
    (void)row;
    figures->value = INFINITY;
    for (uint64_t i = 0; i < job->rounds; i++) {
        for (int k = 0; k < 21; k++) seconds[k] = start_once();
        qsort(seconds, 21, sizeof *seconds, by_size);
        figures->value = fmin(figures->value, 1e3 * seconds[10]);
    }
}
