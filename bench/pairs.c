/* pairs.c - steps on pairs: a loss over preferences and a reward model, with a LoRA; and what an exact KL costs in a step of reinforcement
 * learning. Prompts and answers are random tokens; no round has those of another, so that no log-prob of the reference is known. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/policy.h"

enum { PAIRS = 8, PROMPT = 64, ANSWER = 32, LENGTH = PROMPT + ANSWER };

typedef struct pairs {
    rein_groups groups;
    rein_group group[PAIRS];
    rein_trajectory trajectories[2 * PAIRS];
    rein_history histories[2 * PAIRS];
    int32_t ids[2 * PAIRS][LENGTH];
    uint8_t mask[2 * PAIRS][LENGTH];
    float log_probs[LENGTH]; /* none is recorded */
} pairs;

/* A preference trains the tokens of the answers; a reward model scores the last one. */
static pairs *make_pairs(int last_only) {
    pairs *p = bench_get(sizeof *p);
    for (size_t k = 0; k < LENGTH; k++) p->log_probs[k] = NAN;
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        for (size_t k = 0; k < LENGTH; k++) p->mask[i][k] = last_only ? k == LENGTH - 1 : k >= PROMPT;
        p->histories[i] = (rein_history){.n = LENGTH, .ids = p->ids[i], .mask = p->mask[i], .log_probs = p->log_probs};
        p->trajectories[i] = (rein_trajectory){
            .histories = &p->histories[i], .n_histories = 1, .reward = i % 2 == 0, .policy_step = -1, .budget = -1};
    }
    for (size_t g = 0; g < PAIRS; g++) p->group[g] = (rein_group){.trajectories = p->trajectories + 2 * g, .n = 2};
    p->groups = (rein_groups){p->group, PAIRS, PAIRS};
    return p;
}

static void write_round(pairs *p, uint64_t round, int vocabulary) {
    for (size_t i = 0; i < 2 * PAIRS; i++)
        for (size_t k = 0; k < LENGTH; k++) {
            const size_t id = round * 4099 + (k < PROMPT ? i / 2 * 131 + k * 17 : i * 37 + k * 29);
            p->ids[i][k] = (int32_t)(id % (size_t)vocabulary);
        }
}

static rein_session *open_session(const bench_row *row, const bench_job *job, int reward_model) {
    static const char *const given[][2] = {{"lora_rank", "8"}, {"save_steps", "1000000"}};
    char model[4096], run[4200];
    rein_settings *settings;
    rein_session *session;
    rein_error err = {0};
    bench_model(model, sizeof model, row->shape, 0, job);
    snprintf(run, sizeof run, "%s/pairs-%d", job->directory, reward_model);
    for (int i = 0; cli_directory_has(run, "."); i++) snprintf(run, sizeof run, "%s/pairs-%d-%d", job->directory, reward_model, i);
    bench_must(rein_settings_new(&settings, &err), &err);
    bench_must(rein_settings_set(settings, "model", model, &err), &err);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        bench_must(rein_settings_set(settings, given[i][0], given[i][1], &err), &err);
    if (reward_model) rein_settings_use_score(settings, 1);
    else rein_settings_use_reference(settings, 1);
    bench_must(rein_session_open(&session, run, settings, &err), &err);
    rein_settings_free(settings);
    return session;
}

static void put_split(bench_figures *figures, const rein_session_report *report, double cpu) {
    static const char *const names[] = {"time/reference", "time/forward", "time/backward", "time/optimizer"};
    size_t used = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (size_t i = 0; i < report->n; i++)
            if (!strcmp(report->metrics[i].name, names[k]))
                used += (size_t)snprintf(figures->split + used, sizeof figures->split - used, "%s%s %.2f", used ? ", " : "",
                                         names[k] + strlen("time/"), report->metrics[i].value);
    if (used < sizeof figures->split) snprintf(figures->split + used, sizeof figures->split - used, "; CPU time %.2f s", cpu);
}

static void measure(bench_figures *figures, const bench_row *row, const bench_job *job, const rein_train_options *options) {
    rein_session *session = open_session(row, job, options->reward_model != NULL);
    rein_session_report report;
    rein_error err = {0};
    pairs *p = make_pairs(options->reward_model != NULL);
    figures->value = INFINITY;
    for (uint64_t round = 0; round < job->rounds; round++) {
        write_round(p, round, row->shape->vocabulary);
        const double start = bench_now(), cpu = bench_cpu_seconds();
        bench_must(rein_session_train(&report, session, &p->groups, options, &err), &err);
        const double seconds = bench_now() - start;
        if (seconds < figures->value) put_split(figures, &report, bench_cpu_seconds() - cpu);
        figures->value = fmin(figures->value, seconds);
        bench_must(rein_session_commit(&report, session, &p->groups, NULL, 0, &err), &err);
    }
    rein_session_close(session);
}

void bench_dpo(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const rein_preference_options dpo = rein_preference_published(REIN_PREFERENCE_DPO);
    measure(figures, row, job, &(rein_train_options){.seconds_sample = NAN, .preference = &dpo});
}

void bench_reward(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const rein_reward_training plain = {0};
    measure(figures, row, job, &(rein_train_options){.seconds_sample = NAN, .reward_model = &plain});
}
