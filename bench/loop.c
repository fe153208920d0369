/* loop.c - whole steps: reinforcement learning from prompts to a changed policy, and what of a training step is not its passes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/policy.h"

static void set(rein_settings *settings, const char *name, const char *value) {
    rein_error err = {0};
    bench_must(rein_settings_set(settings, name, value, &err), &err);
}

/* What all steps are told: GRPO, KL to the model in the loss; LoRA of rank 8, or all weights. */
static rein_settings *settings_for(const char *model, int lora) {
    rein_settings *settings;
    rein_error err = {0};
    bench_must(rein_settings_new(&settings, &err), &err);
    set(settings, "model", model);
    if (lora) set(settings, "lora_rank", "8");
    else set(settings, "full", "yes");
    set(settings, "preset", "grpo");
    set(settings, "kl_loss_coef", "0.04");
    return settings;
}

/* A directory that no row had before: each has its process. */
static void run_place(char *path, size_t size, const bench_job *job) {
    for (int i = 0; i < 10000; i++) {
        snprintf(path, size, "%s/run-%d", job->directory, i);
        if (!cli_directory_has(path, ".")) return;
    }
}

static double metric(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->metrics[i].name, name)) return report->metrics[i].value;
    bench_give_up("a step has no metric %s", name);
}

/* A step of so many seconds: the shortest counts. */
static void take_step(bench_figures *figures, double seconds, const rein_session_report *report) {
    if (!(seconds < figures->value)) return;
    figures->value = seconds;
    snprintf(figures->split, sizeof figures->split, "sample %.2f, reference %.2f, forward %.2f, backward %.2f, optimizer %.2f s",
             metric(report, "time/sample"), metric(report, "time/reference"), metric(report, "time/forward"),
             metric(report, "time/backward"), metric(report, "time/optimizer"));
}

/* ------------------------------------------------------------------------------------------------------------- the shipped model */

void bench_rl_sums(bench_figures *figures, const bench_row *row, const bench_job *job) {
    static const char *const given[][2] = {{"task", "sums"},     {"prompts", "32"},     {"samples", "8"},
                                           {"max_tokens", "64"}, {"eval_prompts", "0"}, {"save_steps", "1000000"}};
    char model[4096], run[4096], steps[32];
    rein_loop *loop;
    rein_loop_report report;
    rein_error err = {0};
    (void)row;
    if (!cli_shipped_model(model, sizeof model)) bench_give_up("the shipped model, models/sums, is not beside the program");
    rein_settings *settings = settings_for(model, 1);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) set(settings, given[i][0], given[i][1]);
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)job->rounds);
    set(settings, "steps", steps);
    run_place(run, sizeof run, job);
    bench_must(rein_loop_open(&loop, run, settings, NULL, &err), &err);
    figures->value = INFINITY;
    while (!rein_loop_done(loop)) {
        const double start = bench_now();
        bench_must(rein_loop_step(&report, loop, &err), &err);
        take_step(figures, bench_now() - start, &report.trained);
    }
    rein_loop_close(loop);
    rein_settings_free(settings);
}

/* ---------------------------------------------------------------------------------------------------------------- trajectories */

enum { GROUPS = 32, RESPONSES = 8, LONGEST = 320 };

/* Groups whose prompts and responses have the same lengths; their histories point into it. */
typedef struct batch {
    rein_groups groups;
    rein_group group[GROUPS];
    rein_trajectory trajectories[GROUPS * RESPONSES];
    rein_history histories[GROUPS * RESPONSES];
    int32_t ids[GROUPS * RESPONSES][LONGEST];
    uint8_t mask[GROUPS * RESPONSES][LONGEST];
    float log_probs[GROUPS * RESPONSES][LONGEST];
} batch;

static batch *make_batch(size_t groups, size_t prompt, size_t response, int vocabulary) {
    batch *b = bench_get(sizeof *b);
    for (size_t i = 0; i < groups * RESPONSES; i++) {
        for (size_t k = 0; k < prompt + response; k++) {
            const size_t id = k < prompt ? i / RESPONSES * 131 + k * 17 : i * 37 + k * 29;
            b->ids[i][k] = (int32_t)(id % (size_t)vocabulary);
            b->mask[i][k] = k >= prompt;
            b->log_probs[i][k] = NAN; /* not recorded */
        }
        b->histories[i] =
            (rein_history){.n = prompt + response, .ids = b->ids[i], .mask = b->mask[i], .log_probs = b->log_probs[i]};
        b->trajectories[i] = (rein_trajectory){
            .histories = &b->histories[i], .n_histories = 1, .reward = (double)(i % 3), .policy_step = -1, .budget = -1};
    }
    for (size_t g = 0; g < groups; g++) b->group[g] = (rein_group){.trajectories = b->trajectories + g * RESPONSES, .n = RESPONSES};
    b->groups = (rein_groups){b->group, groups, groups};
    return b;
}

/* A step with everything that it puts on the disk. */
static void train(rein_session_report *report, rein_session *session, batch *b, double seconds_sample) {
    const rein_train_options options = {.seconds_sample = seconds_sample};
    rein_error err = {0};
    bench_must(rein_session_train(report, session, &b->groups, &options, &err), &err);
    bench_must(rein_session_commit(report, session, &b->groups, NULL, 0, &err), &err);
}

/* ------------------------------------------------------------------------------------------------- a larger one, without a tokenizer */

enum { PROMPT = 32, NEW = 16 };

/* Prompts that no round had before, so that no log-prob is known from an earlier one. */
static void sample(batch *b, const rein_policy *policy, rein_activation_cache *cache, const bench_job *job, uint64_t round,
                   int vocabulary) {
    const rein_generator_options options = {.exec = job->exec, .activation_cache = cache};
    rein_generator *generator;
    const rein_sampled *sampled;
    rein_error err = {0};
    size_t number, n;
    bench_must(rein_generator_open(&generator, policy, NULL, &options, &err), &err);
    for (size_t g = 0; g < b->groups.n; g++) {
        for (size_t i = 0; i < RESPONSES; i++)
            for (size_t k = 0; k < PROMPT; k++)
                b->ids[g * RESPONSES + i][k] = (int32_t)((round * 4099 + g * 131 + k * 17) % (size_t)vocabulary);
        rein_request r = {.prompt = b->ids[g * RESPONSES],
                          .n_prompt = PROMPT,
                          .samples = RESPONSES,
                          .address = {.step = round, .prompt = g},
                          .sampling = rein_sampling_plain()};
        r.sampling.max_tokens = NEW;
        bench_must(rein_generator_add(&number, generator, &r, &err), &err);
    }
    while (rein_generator_unfinished(generator)) {
        bench_must(rein_generator_step(&sampled, &n, generator, &err), &err);
        bench_must(rein_generator_failed(&number, generator, &err), &err);
        for (size_t i = 0; i < n; i++) {
            const size_t which = sampled[i].request * RESPONSES + sampled[i].sample, at = PROMPT + sampled[i].position;
            b->ids[which][at] = sampled[i].id;
            b->log_probs[which][at] = sampled[i].log_prob;
            b->histories[which].activation_key = sampled[i].activation_key;
        }
    }
    rein_generator_close(generator);
}

static void reward(batch *b, int64_t step) { /* the share of even tokens */
    for (size_t i = 0; i < b->groups.n * RESPONSES; i++) {
        double even = 0;
        for (size_t k = PROMPT; k < PROMPT + NEW; k++) even += b->ids[i][k] % 2 == 0;
        b->trajectories[i].reward = even / NEW;
        b->trajectories[i].policy_step = step;
    }
}

/* One step, from prompts to a changed policy: its seconds. */
static double rl_step(rein_session_report *report, rein_session *session, batch *b, const bench_job *job, uint64_t round,
                      int vocabulary) {
    const double start = bench_now();
    const rein_policy policy = rein_session_policy(session);
    sample(b, &policy, rein_session_activation_cache(session), job, round, vocabulary);
    reward(b, rein_session_step(session));
    train(report, session, b, bench_now() - start);
    return bench_now() - start;
}

void bench_rl_smollm(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const int vocabulary = row->shape->vocabulary;
    char model[4096], run[4096];
    rein_session *session;
    rein_session_report report;
    rein_error err = {0};
    bench_model(model, sizeof model, row->shape, 0, job);
    rein_settings *settings = settings_for(model, 1);
    set(settings, "save_steps", "1000000");
    run_place(run, sizeof run, job);
    bench_must(rein_session_open(&session, run, settings, &err), &err);
    batch *b = make_batch(GROUPS, PROMPT, NEW, vocabulary);
    figures->value = INFINITY;
    for (uint64_t i = 0; i < job->rounds; i++) {
        const double seconds = rl_step(&report, session, b, job, i, vocabulary);
        take_step(figures, seconds, &report);
    }
    rein_session_close(session);
    rein_settings_free(settings);
}

enum { FEW = 4 };

/* The same with 4 prompts, in turn with the exact KL and with k3: the shortest step of each counts. */
void bench_exact_kl(bench_figures *figures, const bench_row *row, const bench_job *job) {
    static const char *const estimators[] = {"k3", "exact"};
    char model[4096], run[4096];
    rein_session *sessions[2];
    rein_session_report report;
    rein_error err = {0};
    double best[2] = {INFINITY, INFINITY}, cpu[2] = {INFINITY, INFINITY};
    bench_model(model, sizeof model, row->shape, 0, job);
    for (int k = 0; k < 2; k++) {
        rein_settings *settings = settings_for(model, 1);
        set(settings, "save_steps", "1000000");
        set(settings, "kl_estimator", estimators[k]);
        run_place(run, sizeof run, job);
        bench_must(rein_session_open(&sessions[k], run, settings, &err), &err);
        rein_settings_free(settings);
    }
    batch *b = make_batch(FEW, PROMPT, NEW, row->shape->vocabulary);
    for (uint64_t i = 0; i < job->rounds; i++)
        for (int k = 0; k < 2; k++) {
            const double before = bench_cpu_seconds();
            best[k] = fmin(best[k], rl_step(&report, sessions[k], b, job, i, row->shape->vocabulary));
            cpu[k] = fmin(cpu[k], bench_cpu_seconds() - before);
        }
    figures->value = 100 * best[1] / best[0];
    snprintf(figures->split, sizeof figures->split, "k3 %.2f, exact %.2f s; CPU time %.2f, %.2f s, %.0f %%", best[0], best[1],
             cpu[0], cpu[1], 100 * cpu[1] / cpu[0]);
    for (int k = 0; k < 2; k++) rein_session_close(sessions[k]);
}

/* ------------------------------------------------------------------------------------------------------- what is not the passes */

enum { SHARED_GROUPS = 4, SHARED_PROMPT = 256, SHARED_RESPONSE = 64 };

void bench_reference(bench_figures *figures, const bench_row *row, const bench_job *job) {
    char model[4096], run[4096];
    rein_session *session;
    rein_session_report report;
    rein_error err = {0};
    bench_model(model, sizeof model, row->shape, 0, job);
    rein_settings *settings = settings_for(model, row->lora);
    run_place(run, sizeof run, job);
    bench_must(rein_session_open(&session, run, settings, &err), &err);
    batch *b = make_batch(SHARED_GROUPS, SHARED_PROMPT, SHARED_RESPONSE, row->shape->vocabulary);
    figures->value = INFINITY;
    for (uint64_t round = 0; round < job->rounds; round++) {
        for (size_t i = 0; i < SHARED_GROUPS * RESPONSES; i++) /* so that no reference is known from an earlier step */
            b->ids[i][SHARED_PROMPT] = (int32_t)((round * 64 + i) % (size_t)row->shape->vocabulary);
        const double start = bench_now();
        train(&report, session, b, NAN);
        const double whole = bench_now() - start, passes = metric(&report, "time/forward") + metric(&report, "time/backward") +
                                                           metric(&report, "time/optimizer");
        figures->value = fmin(figures->value, 100 * (1 - passes / whole));
    }
    rein_session_close(session);
    rein_settings_free(settings);
}

static double pass_seconds(rein_model *model, rein_adapter *adapter, const batch *b, int no_sharing, const bench_job *job) {
    const rein_trainer_options how = {.temperature = 1, .no_sharing = no_sharing, .exec = job->exec};
    rein_options *objective;
    rein_trainer *trainer;
    rein_pass_result pass;
    rein_error err = {0};
    double best = INFINITY;
    bench_must(rein_trainer_open(&trainer, model, adapter, &how, &err), &err);
    bench_must(rein_options_new(&objective, "dapo", &err), &err);
    const rein_pass_options options = {.objective = objective, .policy_step = -1};
    for (uint64_t round = 0; round < job->rounds; round++) {
        const double start = bench_now();
        bench_must(rein_trainer_forward_backward(&pass, trainer, &b->groups, &options, &err), &err);
        best = fmin(best, bench_now() - start);
    }
    rein_trainer_close(trainer);
    rein_options_free(objective);
    return best;
}

void bench_sharing(bench_figures *figures, const bench_row *row, const bench_job *job) {
    char path[4096];
    rein_model *model;
    rein_adapter *adapter;
    rein_error err = {0};
    bench_model(path, sizeof path, row->shape, 0, job);
    bench_must(rein_model_open(&model, path, &(rein_model_options){.exec = job->exec}, &err), &err);
    bench_must(rein_adapter_new(&adapter, model, &(rein_lora_options){.rank = 8, .alpha = 16}, &err), &err);
    const batch *b = make_batch(SHARED_GROUPS, SHARED_PROMPT, SHARED_RESPONSE, row->shape->vocabulary);
    const double shared = pass_seconds(model, adapter, b, 0, job), alone = pass_seconds(model, adapter, b, 1, job);
    figures->value = alone / shared;
    rein_adapter_close(adapter);
    rein_model_close(model);
}
