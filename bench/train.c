/* train.c - what a training step costs besides its forward and backward passes, and what a shared prompt saves.
 *
 *     build/bench/train
 *
 * A model of random weights (6 layers × 384, vocabulary 4096), a LoRA of rank 8, 4 groups of 8 responses of 64 tokens to a prompt of 256. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "random_model.h"
#include "rein/rein.h"

enum { GROUPS = 4, RESPONSES = 8, PROMPT = 256, RESPONSE = 64, LENGTH = PROMPT + RESPONSE };
static const bench_shape SHAPE = {"small", 384, 1024, 6, 6, 6, 4096};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static rein_groups make_groups(void) {
    static int32_t ids[GROUPS * RESPONSES][LENGTH];
    static uint8_t mask[GROUPS * RESPONSES][LENGTH];
    static float log_probs[GROUPS * RESPONSES][LENGTH];
    static rein_history histories[GROUPS * RESPONSES];
    static rein_trajectory trajectories[GROUPS * RESPONSES];
    static rein_group groups[GROUPS];
    for (int i = 0; i < GROUPS * RESPONSES; i++) {
        for (int k = 0; k < LENGTH; k++) {
            ids[i][k] = (k < PROMPT ? i / RESPONSES * 131 + k * 17 : i * 37 + k * 29) % SHAPE.vocabulary;
            mask[i][k] = k >= PROMPT;
            log_probs[i][k] = NAN; /* not recorded */
        }
        histories[i] = (rein_history){LENGTH, ids[i], mask[i], log_probs[i], NULL};
        trajectories[i] =
            (rein_trajectory){.histories = &histories[i], .n_histories = 1, .reward = i % 3, .policy_step = -1, .budget = -1};
    }
    for (int g = 0; g < GROUPS; g++) groups[g] = (rein_group){.trajectories = trajectories + g * RESPONSES, .n = RESPONSES};
    return (rein_groups){groups, GROUPS, GROUPS};
}

static double step_seconds(rein_model *model, rein_adapter *adapter, const rein_groups *groups, int no_sharing) {
    rein_error err;
    rein_trainer *trainer;
    rein_pass pass;
    double best = INFINITY;
    bench_must(
        rein_trainer_open(&trainer, model, adapter, &(rein_trainer_options){.temperature = 1, .no_sharing = no_sharing}, &err),
        &err);
    rein_pass_options options = {.policy_step = -1};
    bench_must(rein_preset(&options.objective, "dapo", &err), &err);
    for (int round = 0; round < 4; round++) {
        const double start = now();
        bench_must(rein_trainer_forward_backward(&pass, trainer, groups, &options, &err), &err);
        if (now() - start < best) best = now() - start;
    }
    rein_trainer_close(trainer);
    return best;
}

static void sharing(const char *directory, const rein_groups *groups) {
    rein_error err;
    rein_model *model;
    rein_adapter *adapter;
    bench_must(rein_model_open(&model, directory, NULL, &err), &err);
    bench_must(rein_adapter_new(&adapter, model, &(rein_lora_options){.rank = 8, .alpha = 16}, &err), &err);
    const double shared = step_seconds(model, adapter, groups, 0), alone = step_seconds(model, adapter, groups, 1);
    printf("forward and backward, prompt shared   %7.0f ms\n", 1e3 * shared);
    printf("                      not shared      %7.0f ms: %.2f times as long (at least 2 wanted)\n", 1e3 * alone, alone / shared);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

static double metric(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->names[i], name)) return report->values[i];
    return 0;
}

/* Other responses, so that no reference is known from an earlier step. */
static void change(const rein_groups *groups, int round) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            groups->groups[g].trajectories[t].histories[0].ids[PROMPT] = (int32_t)((size_t)round * 64 + t);
}

static void overhead(const char *directory, const char *run, const rein_groups *groups) {
    rein_error err;
    rein_session *session;
    rein_session_report report;
    rein_settings settings = rein_settings_default();
    const char *const given[][2] = {{"model", directory}, {"preset", "grpo"}, {"kl_loss_coef", "0.04"}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        bench_must(rein_settings_set(&settings, given[i][0], given[i][1], &err), &err);
    bench_must(rein_session_open(&session, run, &settings, &err), &err);
    double best = INFINITY;
    for (int round = 0; round < 4; round++) {
        change(groups, round);
        const double start = now();
        bench_must(rein_session_train(&report, session, groups, NAN, &err), &err);
        const double whole = now() - start, passes = metric(&report, "time/forward") + metric(&report, "time/backward") +
                                                     metric(&report, "time/optimizer");
        const double rest = 1 - passes / whole;
        if (rest < best) best = rest;
    }
    printf("reference, packing and checkpoint     %7.0f %% of a step (at most 25 wanted)\n", 100 * best);
    rein_session_close(session);
}

int main(void) {
    char directory[] = "/tmp/rein-bench-XXXXXX", run[64], command[80];
    rein_bind_threads();
    if (!mkdtemp(directory)) return 1;
    snprintf(run, sizeof run, "%s/run", directory);
    bench_write_model(directory, &SHAPE);
    const rein_groups groups = make_groups();
    sharing(directory, &groups);
    overhead(directory, run, &groups);
    snprintf(command, sizeof command, "rm -r '%s'", directory);
    return system(command) != 0;
}
