/* objective.c - how fast the objectives are, as shares of what this machine's memory gives in the same run.
 *
 * Every row alternates with the limit it is compared to (triad with non-temporal stores, or reading), so that a noisy machine slows
 * both; the best of each is taken. Bytes are those that must move: every input once, every output once. */
#define _GNU_SOURCE /* madvise */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "rein/rein.h"
#ifdef REIN_HAVE_AVX2
#include <emmintrin.h>
#endif

enum { ROUNDS = 15 };
static int threads;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *get(size_t bytes) {
    const size_t huge =
        (size_t)2 << 20; /* on huge pages, the limits and the work alike: the walks of small ones would be measured too */
    void *p = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (p) (void)madvise(p, bytes, MADV_HUGEPAGE);
    if (!p) {
        fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static double uniform(uint64_t i) { /* splitmix64 of the index: the same numbers whoever fills them in */
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
static double normal(uint64_t i) { return sqrt(-2 * log(uniform(2 * i) + 1e-300)) * cos(6.283185307179586 * uniform(2 * i + 1)); }

/* ---- the limits */
static float *stream_a, *stream_b, *stream_c;
enum { STREAM = 16 << 20 };

enum { PIECE = 1 << 16 };

static void triad_piece(void *context, size_t piece, int thread) { /* a = b + s·c past the caches */
    (void)context, (void)thread;
    for (size_t i = piece * PIECE; i < (piece + 1) * PIECE; i += 4) {
#ifdef REIN_HAVE_AVX2
        _mm_stream_ps(stream_a + i,
                      _mm_add_ps(_mm_load_ps(stream_b + i), _mm_mul_ps(_mm_set1_ps(0.5f), _mm_load_ps(stream_c + i))));
#else
        for (size_t l = 0; l < 4; l++) stream_a[i + l] = stream_b[i + l] + 0.5f * stream_c[i + l];
#endif
    }
}

static double triad(void) {
    const double start = now();
    rein_parallel(threads, STREAM / PIECE, triad_piece, NULL);
    return 12.0 * STREAM / (now() - start);
}

static const float *read_from;
static size_t read_count;
static volatile float read_sum;

static void read_piece(void *context, size_t piece, int thread) {
    const float *from = read_from + piece * PIECE;
    float lane[32] = {0};
    (void)context, (void)thread;
    for (size_t i = 0; i < PIECE; i += 32)
        for (size_t l = 0; l < 32; l++) lane[l] += from[i + l];
    for (size_t l = 1; l < 32; l++) lane[0] += lane[l];
    read_sum = lane[0];
}

static double reading(void) {
    const double start = now();
    rein_parallel(threads, read_count / PIECE, read_piece, NULL);
    return 4.0 * (double)read_count / (now() - start);
}

/* ---- rows */
static void report(const char *name, double bytes, void (*work)(void *), void *task, double (*limit)(void),
                   const char *limit_name) {
    double best = 0, best_limit = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const double start = now();
        work(task);
        const double rate = bytes / (now() - start), top = limit();
        if (rate > best) best = rate;
        if (top > best_limit) best_limit = top;
    }
    printf("%-44s %7.1f GB/s   %s %5.1f GB/s   %3.0f %%\n", name, best / 1e9, limit_name, best_limit / 1e9,
           100 * best / best_limit);
    fflush(stdout);
}

static void must(rein_status status, const rein_error *err) {
    if (status == REIN_OK) return;
    fprintf(stderr, "bench: %s\n", err->message);
    exit(1);
}

typedef struct policy_task {
    rein_batch batch;
    rein_options options;
    void *grad, *workspace;
    size_t size;
} policy_task;

static void run_policy(void *task) {
    policy_task *t = task;
    rein_step *step;
    rein_error err;
    rein_loss loss;
    const rein_exec exec = {threads, REIN_ISA_BEST};
    must(rein_step_begin(&step, t->workspace, t->size, &t->batch, &t->options, &exec, &err), &err);
    must(rein_step_loss(step, 0, t->batch.n_sequences, NULL, NULL, t->grad, NULL, NULL, &err), &err);
    must(rein_step_finish(&loss, step, &err), &err);
}

/* 16 M tokens in sequences of about 1000: log-ratios of a policy a few updates old, a reference further away, one token in 50 far off. */
static void bench_policy(rein_dtype dtype, int masked, const char *name) {
    const size_t n = (size_t)16 << 20, size = dtype == REIN_F32 ? 4 : 8, length = 1021, sequences = n / length,
                 tokens = sequences * length;
    void *lp = get(n * size), *old = get(n * size), *ref = get(n * size), *grad = get(n * size);
    uint8_t *mask = get(n);
    size_t *offsets = get((sequences + 1) * sizeof *offsets), *groups = get((sequences / 8 + 1) * sizeof *groups);
    double *rewards = get(sequences * sizeof *rewards);
    for (size_t i = 0; i < tokens; i++) {
        const double far = uniform(7 * i) < 0.02 ? 10 : 1, l = 2 * log(uniform(3 * i) + 1e-9) * 0.3;
        const double d = 0.02 * far * normal(5 * i), x = 0.05 * far * normal(11 * i + 1);
        if (dtype == REIN_F32) {
            ((float *)lp)[i] = (float)l, ((float *)old)[i] = (float)(l - d), ((float *)ref)[i] = (float)(l + x),
                    ((float *)grad)[i] = 0;
        } else {
            ((double *)lp)[i] = l, ((double *)old)[i] = l - d, ((double *)ref)[i] = l + x, ((double *)grad)[i] = 0;
        }
        mask[i] = uniform(13 * i) < 0.9;
    }
    const size_t n_groups = sequences / 8;
    for (size_t i = 0; i <= sequences; i++) offsets[i] = i * length;
    for (size_t g = 0; g <= n_groups; g++) groups[g] = g == n_groups ? sequences : g * 8;
    for (size_t i = 0; i < sequences; i++) rewards[i] = uniform(i) < 0.4;
    rein_error err;
    policy_task t = {.batch = {.n_groups = n_groups,
                               .n_sequences = sequences,
                               .group_offsets = groups,
                               .sequence_offsets = offsets,
                               .dtype = dtype,
                               .mask = masked ? mask : NULL,
                               .log_probs = lp,
                               .old_log_probs = old,
                               .ref_log_probs = ref,
                               .rewards = rewards},
                     .grad = grad};
    must(rein_preset(&t.options, "grpo", &err), &err);
    const rein_exec exec = {threads, REIN_ISA_BEST};
    t.size = rein_step_size(&t.batch, &t.options, &exec);
    t.workspace = get(t.size);
    report(name, (double)tokens * (4 * (double)size + masked), run_policy, &t, triad, "triad");
    free(lp), free(old), free(ref), free(grad), free(mask), free(offsets), free(groups), free(rewards), free(t.workspace);
}

typedef struct budget_task {
    void *rewards, *lp, *old, *grad;
    int64_t *lengths;
    size_t *offsets, prompts;
    int f32, with_grad;
} budget_task;

static void run_budget(void *task) {
    budget_task *t = task;
    const rein_budget b = {.token_budget = 100, .kl_coef = 0.1, .budget_penalty_coef = 0.01};
    const rein_exec exec = {threads, REIN_ISA_BEST};
    rein_error err;
    double loss;
    if (t->f32)
        must(rein_budget_loss_f32(&loss, NULL, NULL, NULL, t->with_grad ? t->grad : NULL, t->rewards, t->lp, t->old, t->lengths,
                                  t->offsets, t->prompts, &b, &exec, &err),
             &err);
    else
        must(rein_budget_loss(&loss, NULL, NULL, NULL, t->with_grad ? t->grad : NULL, t->rewards, t->lp, t->old, t->lengths,
                              t->offsets, t->prompts, &b, &exec, &err),
             &err);
}

static void bench_budget(int f32, int with_grad, const char *name) {
    const size_t prompts = 100000, k = 16, n = prompts * k, size = f32 ? 4 : 8;
    budget_task t = {get(n * size),          get(n * size), get(n * size), get(n * size), get(n * 8),
                     get((prompts + 1) * 8), prompts,       f32,           with_grad};
    for (size_t i = 0; i < n; i++) {
        const double r = uniform(i), l = -10 * uniform(i + n), o = l + 0.1 * (uniform(i + 2 * n) - 0.5);
        if (f32)
            ((float *)t.rewards)[i] = (float)r, ((float *)t.lp)[i] = (float)l, ((float *)t.old)[i] = (float)o,
                    ((float *)t.grad)[i] = 0;
        else ((double *)t.rewards)[i] = r, ((double *)t.lp)[i] = l, ((double *)t.old)[i] = o, ((double *)t.grad)[i] = 0;
        t.lengths[i] = (int64_t)(200 * uniform(i + 3 * n));
    }
    for (size_t p = 0; p <= prompts; p++) t.offsets[p] = p * k;
    report(name, (double)n * (3 * (double)size + 8 + (with_grad ? (double)size : 0)), run_budget, &t, triad, "triad");
    free(t.rewards), free(t.lp), free(t.old), free(t.grad), free(t.lengths), free(t.offsets);
}

typedef struct update_task {
    void *weights, *updated, *small, *grads;
    size_t n, p;
    int f32;
} update_task;

static void run_update(void *task) {
    update_task *t = task;
    const rein_exec exec = {threads, REIN_ISA_BEST};
    rein_error err;
    if (t->f32)
        must(rein_rlhf_update_f32(t->updated, t->weights, t->small, t->small, t->small, t->grads, t->n, t->p, 0.1, 1e-3, &exec,
                                  &err),
             &err);
    else
        must(rein_rlhf_update(t->updated, t->weights, t->small, t->small, t->small, t->grads, t->n, t->p, 0.1, 1e-3, &exec, &err),
             &err);
}

static void bench_update(int f32, const char *name) {
    const size_t n = 64, p = (size_t)4 << 20, size = f32 ? 4 : 8;
    update_task t = {get(p * size), get(p * size), get(n * size), get(n * p * size), n, p, f32};
    memset(t.weights, 0, p * size);
    memset(t.updated, 0, p * size);
    for (size_t i = 0; i < n; i++) {
        if (f32) ((float *)t.small)[i] = (float)uniform(i);
        else ((double *)t.small)[i] = uniform(i);
    }
    for (size_t i = 0; i < n * p; i++) {
        if (f32) ((float *)t.grads)[i] = (float)uniform(i);
        else ((double *)t.grads)[i] = uniform(i);
    }
    read_from = t.grads;
    read_count = n * p * size / 4;
    report(name, (double)(n * p * size), run_update, &t, reading, "read ");
    free(t.weights), free(t.updated), free(t.small), free(t.grads);
}

/* The median of 101 whole processes, from fork to exit. */
static void bench_start(const char *rein) {
    static const char text[] =
        "{\"rewards\":[[1,0.5],[0.8,1.2]],\"log_probs\":[[-1,-1.2],[-0.8,-0.9]],\"old_log_probs\":[[-1.1,-1.1],[-0.7,-1]],"
        "\"response_lengths\":[[120,80],[90,110]],\"token_budget\":100,\"kl_coef\":0.05,\"budget_penalty_coef\":0.02}";
    double seconds[101];
    for (int r = 0; r < 101; r++) {
        int in[2];
        const double start = now();
        if (pipe(in) != 0) return;
        const pid_t child = fork();
        if (child == 0) {
            dup2(in[0], 0);
            close(in[0]), close(in[1]);
            if (!freopen("/dev/null", "w", stdout)) _exit(1);
            execl(rein, rein, "objective", "budget-loss", (char *)NULL);
            _exit(127);
        }
        close(in[0]);
        const ssize_t wrote = write(in[1], text, sizeof text - 1);
        close(in[1]);
        int status;
        waitpid(child, &status, 0);
        if (wrote < 0 || status != 0) {
            printf("%-44s not measured: %s does not run\n", "rein objective budget-loss, cold start", rein);
            return;
        }
        double took = now() - start;
        for (int i = 0; i < r; i++) /* kept sorted */
            if (seconds[i] > took) {
                const double swap = seconds[i];
                seconds[i] = took;
                took = swap;
            }
        seconds[r] = took;
    }
    printf("%-44s %7.2f ms     limit 5 ms\n", "rein objective budget-loss 2x2, cold start", 1e3 * seconds[50]);
}

int main(int argc, char **argv) {
    rein_bind_threads();
    threads = rein_cores();
    stream_a = get(4 * (size_t)STREAM), stream_b = get(4 * (size_t)STREAM), stream_c = get(4 * (size_t)STREAM);
    for (size_t i = 0; i < STREAM; i++) stream_a[i] = 0, stream_b[i] = 1, stream_c[i] = 2;
    printf("%d threads, %s\n", threads, rein_isa_name(REIN_ISA_BEST));
    bench_policy(REIN_F32, 1, "policy-loss grpo+k3 f32, 16 M tokens, mask");
    bench_policy(REIN_F32, 0, "policy-loss grpo+k3 f32, 16 M tokens");
    bench_policy(REIN_F64, 1, "policy-loss grpo+k3 f64, 16 M tokens, mask");
    bench_budget(1, 0, "budget-loss f32, 100000 x 16, loss");
    bench_budget(1, 1, "budget-loss f32, 100000 x 16, loss+gradient");
    bench_budget(0, 0, "budget-loss f64, 100000 x 16, loss");
    bench_budget(0, 1, "budget-loss f64, 100000 x 16, loss+gradient");
    bench_update(1, "rlhf-update f32, 64 x 4 M");
    bench_update(0, "rlhf-update f64, 64 x 4 M");
    bench_start(argc > 1 ? argv[1] : "build/rein");
    return 0;
}
