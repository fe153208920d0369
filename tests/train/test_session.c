/* test_session.c - runs: their files, resuming bit for bit, references, epochs, retention; and that a policy learns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/json.h"
#include "rein/rollout.h"
#include "support/files.h"
#include "train/session_fixture.h"
#include "train/trainer.h"

static rein_session *open_session(const char *run, const char *settings) {
    rein_session *s;
    const rein_settings *o = settings_of(settings);
    OK(rein_session_open(&s, in_folder(run), o, &error_));
    return s;
}

/* With nothing but what the run has. */
static rein_session *go_on(const char *run) {
    rein_session *s;
    const rein_settings *o = new_settings();
    OK(rein_session_open(&s, in_folder(run), o, &error_));
    return s;
}

static rein_session_report train(rein_session *s, rein_groups *groups) {
    rein_session_report report;
    OK(rein_session_train(&report, s, groups, NULL, &error_));
    OK(rein_session_commit(&report, s, groups, NULL, 0, &error_));
    return report;
}

/* NaN: no metric has that name. */
static double metric(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->metrics[i].name, name)) return report->metrics[i].value;
    return NAN;
}

/* Recorded by the model "a", a little off; of step 2 all rewards are the same. */
static rein_groups groups_of_step(size_t step) {
    subject base = {0};
    rein_groups groups = make_groups(3 + step % 2, 70 + step);
    OK(rein_model_open(&base.model, in_folder("a"), NULL, &error_));
    base.p = (rein_policy){base.model, NULL, 1};
    record(&groups, &base.p, 0.1);
    for (size_t g = 0; g < groups.n && step == 2; g++)
        for (size_t t = 0; t < groups.groups[g].n; t++) groups.groups[g].trajectories[t].reward = 0.1;
    close_subject(&base);
    return groups;
}

static void train_steps(rein_session *s, size_t first, size_t last) {
    for (size_t step = first; step <= last; step++) {
        rein_groups groups = groups_of_step(step);
        const rein_session_report report = train(s, &groups);
        assert_true(report.step == (int64_t)step && rein_session_step(s) == (int64_t)step);
        rein_groups_free(&groups);
    }
}

/* ---- files */
static const char *checkpoint(const char *run, size_t step, const char *file) {
    char name[600];
    snprintf(name, sizeof name, "%s/checkpoints/%04zu%s%s", run, step, *file ? "/" : "", file);
    return in_folder(name);
}

static int exists(const char *path) { return access(path, F_OK) == 0; }

static void assert_same_checkpoints(const char *run, const char *other, size_t step, int full) {
    const char *const files[] = {"MANIFEST", "optimizer.safetensors", "state.json",
                                 full ? "model.safetensors" : "adapter_model.safetensors",
                                 full ? "config.json" : "adapter_config.json"};
    for (size_t i = 0; i < COUNT(files); i++)
        if (!same_file(checkpoint(run, step, files[i]), checkpoint(other, step, files[i])))
            fail_msg("checkpoint %zu of %s and %s: %s differs", step, run, other, files[i]);
}

/* Lines of the history, an array. */
static json_t *history(const char *run) {
    char path[1200];
    json_t *lines = json_array();
    snprintf(path, sizeof path, "%s/history.jsonl", in_folder(run));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (json_t *line; (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL));) json_array_append_new(lines, line);
    fclose(file);
    return lines;
}

/* The same but for what a clock or the memory says. */
static void assert_same_history(const char *run, const char *other) {
    const char *const apart[] = {"step_time",    "tokens_per_second", "peak_memory",   "time/reference",
                                 "time/forward", "time/backward",     "time/optimizer"};
    json_t *a = history(run), *b = history(other);
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < COUNT(apart); k++)
            json_object_del(json_array_get(a, i), apart[k]), json_object_del(json_array_get(b, i), apart[k]);
    assert_true(json_equal(a, b));
    json_decref(a), json_decref(b);
}

static void test_layout(void **state) {
    (void)state;
    rein_session *s = open_session("layout", "preset=grpo seed=5");
    assert_int_equal(rein_session_step(s), 0);
    assert_string_equal(rein_session_note(s), "");
    assert_true(exists(checkpoint("layout", 0, "MANIFEST")) && !exists(checkpoint("layout", 1, "")));
    train_steps(s, 1, 2);
    const char *const files[] = {"layout/config.yaml", "layout/history.jsonl", "layout/tensorboard",
                                 "layout/trajectories/train/0001.jsonl", "layout/trajectories/train/0002.jsonl"};
    for (size_t i = 0; i < COUNT(files); i++) assert_true(exists(in_folder(files[i])));
    const char *const parts[] = {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "state.json",
                                 "MANIFEST"};
    for (size_t step = 0; step <= 2; step++)
        for (size_t i = 0; i < COUNT(parts); i++) assert_true(exists(checkpoint("layout", step, parts[i])));
    rein_settings *read = new_settings();
    OK(rein_settings_read(read, in_folder("layout/config.yaml"), &error_));
    assert_true(read->seed == 5 && read->learning_rate == 0.02 && !strcmp(read->preset, "grpo") &&
                !strcmp(read->model, in_folder("a")));
    json_t *lines = history("layout"), *said;
    assert_int_equal(json_array_size(lines), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *line = json_array_get(lines, i);
        rein_groups step = groups_of_step(i + 1);
        const double share = json_number_value(json_object_get(line, "completions/clipped_ratio")); /* one is cut off */
        assert_true(fabs(share * (double)rein_groups_summarise(&step).trajectories - 1) < 1e-12);
        rein_groups_free(&step);
        assert_int_equal(json_integer_value(json_object_get(line, "step")), i + 1);
        assert_true(json_is_number(json_object_get(line, "reward")) && json_is_number(json_object_get(line, "kl")));
        assert_true(json_is_true(json_object_get(line, "nothing_to_train")) == 0); /* grpo's KL trains, whatever the rewards are */
    }
    OK(rein_json_read(&said, checkpoint("layout", 2, "state.json"), REIN_JSON_NEEDS_OBJECT, &error_));
    assert_int_equal(json_integer_value(json_object_get(said, "step")), 2);
    assert_int_equal(json_integer_value(json_object_get(said, "optimizer_steps")), 2);
    rein_groups groups = groups_of_step(1), back = {0};
    OK(rein_groups_read(&back, in_folder("layout/trajectories/train/0001.jsonl"), NULL, NULL, &error_));
    assert_int_equal(tokens_of(&back), tokens_of(&groups));
    rein_session *second; /* one writer at a time */
    const rein_settings *o = new_settings();
    REFUSED(rein_session_open(&second, in_folder("layout"), o, &error_), "is being written by process");
    assert_null(second);
    json_decref(lines), json_decref(said), rein_groups_free(&groups), rein_groups_free(&back), rein_session_close(s);
}

/* n steps, or k, the end, and n − k: the same files. One of the steps has nothing to train. */
static void test_resume(void **state) {
    (void)state;
    const char *const settings[] = {"preset=art shards=4 warmup_steps=2",
                                    "preset=art full=yes shards=2 kl_penalty_coef=0.2 kl_penalty_step_lag=2",
                                    "preset=gspo epochs=2 minibatches=2 kl_loss_coef=0.1 kl_estimator=k3"};
    const size_t n = quick() ? 3 : 5;
    for (size_t c = 0; c < COUNT(settings); c++) {
        char whole[20], part[20];
        snprintf(whole, sizeof whole, "whole%zu", c);
        rein_session *s = open_session(whole, settings[c]);
        train_steps(s, 1, n);
        rein_session_close(s);
        for (size_t k = 1; k < n; k++) {
            snprintf(part, sizeof part, "part%zu%zu", c, k);
            s = open_session(part, settings[c]);
            train_steps(s, 1, k);
            rein_session_close(s);
            s = go_on(part);
            assert_int_equal(rein_session_step(s), k);
            train_steps(s, k + 1, n);
            rein_session_close(s);
            for (size_t step = 0; step <= n; step++) assert_same_checkpoints(whole, part, step, c == 1);
            assert_same_history(whole, part);
        }
    }
}

/* ---- one step, made by hand from the checkpoint before it */
typedef struct twin {
    subject s;
    rein_trainer *t;
} twin;

static twin twin_of(const char *run, size_t step, const rein_settings *o) {
    twin w = {0};
    OK(rein_model_open(&w.s.model, in_folder("a"), &(rein_model_options){.train = o->full}, &error_));
    if (!o->full) OK(rein_adapter_open(&w.s.adapter, w.s.model, checkpoint(run, step, ""), &error_));
    w.s.p = (rein_policy){w.s.model, w.s.adapter, o->temperature};
    w.t = open_trainer(&w.s, &(rein_trainer_options){.shards = o->full ? 8 : 0}); /* as a new run has them */
    OK(rein_trainer_load(w.t, checkpoint(run, step, ""), &error_));
    return w;
}

static void twin_step(twin *w, const rein_settings *o) {
    const rein_adamw adamw = {o->learning_rate, o->adam_beta1, o->adam_beta2, o->adam_epsilon, o->weight_decay, o->max_grad_norm};
    OK(rein_trainer_optim_step(NULL, w->t, &adamw, &error_));
}

static void assert_same_policy(twin *w, rein_session *s) {
    const rein_policy policy = rein_session_policy(s);
    subject session = {(rein_model *)(uintptr_t)policy.model, (rein_adapter *)(uintptr_t)policy.adapter, policy};
    float *mine = values_of(&w->s), *its = values_of(&session);
    assert_memory_equal(mine, its, w->t->floats * sizeof *mine);
    free(mine), free(its);
}

static void close_twin(twin *w) {
    rein_trainer_close(w->t);
    close_subject(&w->s);
}

/* Which checkpoint the reference of a step is: -1 the base, -2 an adapter of its own. */
static void check_references(const char *run, const char *settings, const int64_t *references, size_t n) {
    rein_session *s = open_session(run, settings);
    const rein_settings *o = rein_session_settings(s);
    for (size_t step = 1; step <= n; step++) {
        rein_groups groups = groups_of_step(step);
        twin w = twin_of(run, step - 1, o);
        subject reference = {0};
        const int64_t from = references[step - 1];
        if (!o->full) {
            reference.model = w.s.model;
            if (from != -1)
                OK(rein_adapter_open(&reference.adapter, w.s.model,
                                     from == -2 ? in_folder("reference") : checkpoint(run, (size_t)from, ""), &error_));
        } else OK(rein_model_open(&reference.model, checkpoint(run, (size_t)from, ""), NULL, &error_));
        const rein_policy policy = {reference.model, reference.adapter, o->temperature};
        const rein_pass_options options = {.objective = &o->objective, .reference = &policy, .policy_step = -1};
        expected e = expect(&groups, &w.s.p, &policy, &o->objective, 0);
        rein_pass_result pass;
        OK(rein_trainer_forward_backward(&pass, w.t, &groups, &options, &error_));
        assert_false(pass.nothing_to_train);
        twin_step(&w, o);
        const rein_session_report report = train(s, &groups);
        assert_true(fabs(metric(&report, "kl_policy_ref") - e.loss.metrics.kl_ref_k1) < 1e-6);
        assert_true((e.loss.metrics.kl_ref_k1 == 0) ==
                    (from == (int64_t)step - 1 || (from == -1 && step == 1))); /* the policy itself */
        assert_same_policy(&w, s);
        free_expected(&e), rein_groups_free(&groups);
        rein_adapter_close(reference.adapter);
        if (o->full) rein_model_close(reference.model);
        close_twin(&w);
    }
    rein_session_close(s);
}

static void test_references(void **state) {
    (void)state;
    subject other = open_subject("a", 0);
    char text[1300];
    OK(rein_adapter_save(other.adapter, sub_folder("reference"), &error_));
    close_subject(&other);
    snprintf(text, sizeof text, "preset=art kl_penalty_coef=0.3 kl_ref_adapter_path=%s", in_folder("reference"));
    check_references("by-path", text, (int64_t[]){-2, -2, -2}, 3);
    check_references("by-base", "preset=art kl_penalty_coef=0.3 kl_scope=group", (int64_t[]){-1, -1, -1}, 3);
    check_references("by-step", "preset=grpo kl_penalty_reference_step=0", (int64_t[]){0, 0, 0}, 3);
    snprintf(text, sizeof text, "preset=grpo adapter=%s kl_penalty_reference_step=0", in_folder("reference"));
    check_references("by-step-0", text, (int64_t[]){0, 0}, 2); /* the adapter that it began with, not the base */
    check_references("by-lag", "preset=grpo kl_penalty_step_lag=2", (int64_t[]){0, 0, 0, 1, 2}, 5);
    check_references("by-lag-1", "preset=grpo kl_penalty_step_lag=1", (int64_t[]){0, 0, 1, 2}, 4);
    check_references("full-base", "preset=grpo full=yes", (int64_t[]){0, 0, 0}, 3);
    check_references("full-lag", "preset=grpo full=yes kl_penalty_step_lag=1", (int64_t[]){0, 0, 1}, 3);
    rein_session *s;
    rein_session_report report;
    rein_groups groups = groups_of_step(4);
    rein_settings *o = new_settings(); /* a step that is there by now */
    OK(rein_settings_set(o, "kl_penalty_reference_step", "2", &error_));
    OK(rein_session_open(&s, in_folder("by-step"), o, &error_));
    report = train(s, &groups);
    assert_true(metric(&report, "kl") > 0);
    rein_session_close(s);
    OK(rein_settings_set(o, "kl_penalty_reference_step", "7", &error_)); /* and one that is not */
    REFUSED(rein_session_open(&s, in_folder("by-step"), o, &error_),
            "kl_penalty_reference_step is 7: the run has no checkpoint of step 7; it has 0, 1, 2, 3, 4");
    rein_groups_free(&groups);
    o = settings_of("preset=grpo kl_penalty_reference_step=0 kl_penalty_step_lag=1");
    REFUSED(rein_session_open(&s, in_folder("two"), o, &error_),
            "kl_penalty_reference_step and kl_penalty_step_lag are two references: give one of them");
    rein_settings *loop = new_settings();
    assert_int_equal(rein_settings_set(loop, "samples", "4", NULL), REIN_OK);
    REFUSED(rein_session_open(&s, in_folder("three"), loop, &error_), "samples has no effect: nothing is sampled");
    assert_false(exists(in_folder("two"))); /* nothing was started */
}

/* The same groups under the same reference: computed in the first step that needs them, and no more; the policy is that of a session which
 * was closed and opened between the steps, and knew nothing. */
static void check_known_references(const char *run, const char *settings, const int *computed, size_t n) {
    char other[40];
    rein_groups groups = groups_of_step(1);
    rein_session *s = open_session(run, settings), *forgets;
    snprintf(other, sizeof other, "%s-forgets", run);
    for (size_t step = 1; step <= n; step++) {
        const size_t before = s->references ? rein_reference_cache_count(s->references).computed : 0;
        const rein_session_report report = train(s, &groups);
        const size_t now = rein_reference_cache_count(s->references).computed - before;
        assert_int_equal(now, computed[step - 1] ? tokens_of(&groups) : 0);
        assert_true(metric(&report, "time/reference") >= 0);
        if (step == 1) assert_true(metric(&report, "kl") == 0 && metric(&report, "kl_policy_ref") == 0);
        else assert_true(metric(&report, "kl") > 0);
        forgets = open_session(other, settings);
        train(forgets, &groups);
        rein_session_close(forgets);
        const char *weights = s->adapter ? "adapter_model.safetensors" : "model.safetensors";
        assert_true(same_file(checkpoint(run, step, weights), checkpoint(other, step, weights)));
    }
    rein_session_close(s), rein_groups_free(&groups);
    assert_same_history(run, other);
}

static void test_known_references(void **state) {
    (void)state;
    check_known_references("known-base", "preset=grpo", (int[]){1, 0, 0}, 3);
    check_known_references("known-step", "preset=grpo kl_penalty_reference_step=0", (int[]){1, 0, 0}, 3);
    check_known_references("known-full", "preset=grpo full=yes", (int[]){1, 0}, 2);
    check_known_references("known-lag", "preset=grpo kl_penalty_step_lag=1", (int[]){1, 0, 1, 1}, 4);
}

/* ---- epochs and minibatches: the old log-probs stay those of the beginning */
static void check_epochs(const char *run, const char *settings, int missing) {
    rein_session *s = open_session(run, settings);
    const rein_settings *o = rein_session_settings(s);
    for (size_t step = 1; step <= 2; step++) {
        rein_groups groups = groups_of_step(step + 2);
        twin w = twin_of(run, step - 1, o);
        if (missing) EACH_HISTORY(h, &groups) h->log_probs[h->n - 1] = NAN;
        float *start = floats(tokens_of(&groups)), *old = floats(tokens_of(&groups));
        OK(rein_trainer_log_probs(start, NULL, w.t, NULL, &groups, &error_));
        size_t at = 0;
        EACH_HISTORY(h, &groups)
        for (size_t i = 0; i < h->n; i++, at++)
            old[at] = isnan(h->log_probs[i]) || o->objective.mismatch != REIN_MISMATCH_NONE ? start[at] : h->log_probs[i];
        for (int64_t epoch = 0; epoch < o->epochs; epoch++)
            for (size_t b = 0; b < (size_t)o->minibatches; b++) {
                const size_t first = groups.n * b / (size_t)o->minibatches, last = groups.n * (b + 1) / (size_t)o->minibatches;
                const size_t skipped = tokens_of(&(rein_groups){groups.groups, first, 0});
                const rein_groups part = {groups.groups + first, last - first, 0};
                const rein_pass_options options = {.objective = &o->objective, .old_log_probs = old + skipped, .policy_step = -1};
                rein_pass_result pass;
                OK(rein_trainer_forward_backward(&pass, w.t, &part, &options, &error_));
                assert_false(pass.nothing_to_train);
                twin_step(&w, o);
            }
        const rein_session_report report = train(s, &groups);
        assert_true(metric(&report, "tokens/trained") == (double)rein_groups_summarise(&groups).trained_tokens);
        assert_same_policy(&w, s);
        free(start), free(old), rein_groups_free(&groups), close_twin(&w);
    }
    rein_session_close(s);
}

static void test_epochs(void **state) {
    (void)state;
    check_epochs("epochs", "preset=art epochs=3", 0);
    check_epochs("epochs-missing", "preset=art epochs=3", 1);
    check_epochs("minibatches", "preset=art minibatches=3", 0);
    check_epochs("both", "preset=grpo kl_loss_coef=0 epochs=2 minibatches=2", 1);
    check_epochs("mismatch", "preset=art epochs=2 mismatch=token-tis tis_cap=1.05", 0);
    rein_session *s = open_session("too-many", "preset=art minibatches=9");
    rein_session_report report;
    rein_groups groups = groups_of_step(1);
    REFUSED(rein_session_train(&report, s, &groups, NULL, &error_), "minibatches is 9: there are only 4 groups");
    REFUSED(rein_session_train(&report, s, &groups, NULL, &error_), "can only be closed");
    rein_session_close(s);
    s = go_on("too-many");
    assert_int_equal(rein_session_step(s), 0);
    rein_session_close(s), rein_groups_free(&groups);
}

/* ---- the schedule: of six steps two to rise, in steps that count from 1 */
static void test_schedule(void **state) {
    (void)state;
    const double rates[] = {0.01, 0.02, 0.02, 0.015, 0.01, 0.005};
    rein_session *s = open_session("schedule", "preset=grpo lr_scheduler_type=linear warmup_steps=2 total_steps=6");
    for (size_t step = 1; step <= COUNT(rates); step++) {
        if (step == 4) rein_session_close(s), s = go_on("schedule");
        rein_groups groups = groups_of_step(step);
        const rein_session_report report = train(s, &groups);
        assert_true(fabs(metric(&report, "learning_rate") - rates[step - 1]) < 1e-15);
        rein_groups_free(&groups);
    }
    rein_session_close(s);
}

/* ---- retention */
static void assert_checkpoints(const char *run, const char *wanted) {
    char found[200] = "";
    rein_run *r;
    const int64_t *steps;
    OK(rein_run_open(&r, in_folder(run), REIN_RUN_READ, &error_));
    const size_t n = rein_run_checkpoints(&steps, r);
    for (size_t i = 0; i < n; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", i ? " " : "", (int)steps[i]);
    rein_run_close(r);
    assert_string_equal(found, wanted);
}

static void test_retention(void **state) {
    (void)state;
    const struct {
        const char *run, *settings, *wanted;
    } cases[] = {{"keep2", "preset=art keep_last=2", "0 4 5"},
                 {"keep-all", "preset=art", "0 1 2 3 4 5"},
                 {"keep-step", "preset=grpo keep_last=1 kl_penalty_reference_step=0", "0 5"},
                 /* the next step's reference is 3, and 4 and 5 follow */
                 {"keep-lag", "preset=grpo keep_last=1 kl_penalty_step_lag=2", "0 3 4 5"},
                 {"keep-lag-full", "preset=grpo full=yes keep_last=1 kl_penalty_step_lag=1", "0 4 5"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_session *s = open_session(cases[i].run, cases[i].settings);
        train_steps(s, 1, 5);
        rein_session_close(s);
        assert_checkpoints(cases[i].run, cases[i].wanted);
        s = go_on(cases[i].run);
        train_steps(s, 6, 6);
        rein_session_close(s);
    }
    rein_session *s = open_session("keep-best", "preset=art keep_last=1 keep_best=reward"); /* the best is the third */
    for (size_t step = 1; step <= 5; step++) {
        rein_groups groups = groups_of_step(step + 2);
        for (size_t g = 0; g < groups.n; g++)
            for (size_t t = 0; t < groups.groups[g].n; t++) groups.groups[g].trajectories[t].reward += step == 3 ? 10 : 0;
        train(s, &groups);
        rein_groups_free(&groups);
    }
    rein_session_close(s);
    assert_checkpoints("keep-best", "0 3 5");
}

/* A checkpoint every few steps, and when it is asked for; what lies behind the last one is made again, and comes out the same. */
static void test_save_steps(void **state) {
    (void)state;
    const char *const weights = "adapter_model.safetensors";
    rein_session *s = open_session("every", "preset=grpo");
    train_steps(s, 1, 8);
    rein_session_close(s);
    s = open_session("rare", "preset=grpo save_steps=3");
    train_steps(s, 1, 5);
    assert_checkpoints("rare", "0 3");
    assert_true(exists(in_folder("rare/trajectories/train/0005.jsonl")));
    rein_session_close(s); /* as if it had been killed: nothing is written at the end */
    s = go_on("rare");
    assert_int_equal(rein_session_step(s), 3);
    json_t *lines = history("rare");
    assert_int_equal(json_array_size(lines), 3);
    json_decref(lines);
    train_steps(s, 4, 7);
    assert_checkpoints("rare", "0 3 6");
    OK(rein_session_save(s, &error_));
    OK(rein_session_save(s, &error_)); /* it is there */
    assert_checkpoints("rare", "0 3 6 7");
    rein_session_close(s);
    s = go_on("rare");
    OK(rein_session_save(s, &error_));
    train_steps(s, 8, 8);
    OK(rein_session_save(s, &error_));
    rein_session_close(s);
    assert_checkpoints("rare", "0 3 6 7 8");
    const size_t steps[] = {3, 6, 7, 8};
    for (size_t i = 0; i < COUNT(steps); i++) {
        assert_true(same_file(checkpoint("every", steps[i], weights), checkpoint("rare", steps[i], weights)));
        assert_true(same_file(checkpoint("every", steps[i], "optimizer.safetensors"),
                              checkpoint("rare", steps[i], "optimizer.safetensors")));
    }
    assert_same_history("every", "rare");
}

/* Retention counts checkpoints; one that is saved at the end counts too. */
static void test_save_steps_and_retention(void **state) {
    (void)state;
    rein_session *s = open_session("rare-kept", "preset=art keep_last=2 save_steps=2");
    train_steps(s, 1, 7);
    assert_checkpoints("rare-kept", "0 4 6");
    OK(rein_session_save(s, &error_));
    assert_checkpoints("rare-kept", "0 6 7");
    rein_groups none = {0};
    rein_session_report report;
    REFUSED(rein_session_train(&report, s, &none, NULL, &error_), "");
    REFUSED(rein_session_save(s, &error_), "can only be closed");
    rein_session_close(s);
}

/* ---- forks */

/* A fork continues as its trunk did: policy and optimizer are those of the step. */
static void check_fork(const char *name, const char *settings, int full) {
    char trunk[40], branch[40];
    const char *const weights = full ? "model.safetensors" : "adapter_model.safetensors";
    snprintf(trunk, sizeof trunk, "%s-trunk", name), snprintf(branch, sizeof branch, "%s-branch", name);
    rein_session *s = open_session(trunk, settings);
    train_steps(s, 1, 3);
    rein_session_close(s);
    rein_settings *now = new_settings();
    OK(rein_settings_set(now, "keep_last", "5", &error_));
    OK(rein_settings_set(now, "seed", "9", &error_)); /* of the new run, not of the policy */
    OK(rein_session_fork(&s, in_folder(branch), &(rein_fork){in_folder(trunk), 2}, now, &error_));
    rein_session_close(s);
    assert_checkpoints(branch, "0");
    assert_true(same_file(checkpoint(trunk, 2, weights), checkpoint(branch, 0, weights)));
    s = go_on(branch);
    assert_int_equal(rein_session_step(s), 0);
    const rein_settings *o = rein_session_settings(s);
    assert_true(o->keep_last == 5 && o->seed == 9 && o->learning_rate == 0.02 && !strcmp(o->preset, "art"));
    rein_groups groups = groups_of_step(3);
    const rein_session_report report = train(s, &groups);
    assert_int_equal(report.step, 1);
    rein_session_close(s), rein_groups_free(&groups);
    assert_true(same_file(checkpoint(trunk, 3, weights), checkpoint(branch, 1, weights)));
    assert_true(same_file(checkpoint(trunk, 3, "optimizer.safetensors"), checkpoint(branch, 1, "optimizer.safetensors")));
    json_t *lines = history(branch);
    assert_int_equal(json_array_size(lines), 1);
    json_decref(lines);
}

static void test_fork(void **state) {
    (void)state;
    check_fork("adapter", "preset=art", 0);
    check_fork("full", "preset=art full=yes", 1);
}

static void test_fork_refuses(void **state) {
    (void)state;
    rein_session *s = open_session("stem", "preset=grpo kl_penalty_reference_step=0");
    train_steps(s, 1, 2);
    rein_session_close(s);
    rein_settings *now = new_settings();
    const char *const twig = in_folder("twig"), *const stem = in_folder("stem");
    char to[1200], from[1200];
    snprintf(to, sizeof to, "%s", twig), snprintf(from, sizeof from, "%s", stem);
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 7}, now, &error_), "has no checkpoint of step 7; it has 0, 1, 2");
    REFUSED(rein_session_fork(&s, to, &(rein_fork){to, 7}, now, &error_), "is not a run");
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 2}, now, &error_),
            "kl_penalty_reference_step is 0 in the run that is forked");
    OK(rein_settings_set(now, "kl_penalty_reference_step", "0", &error_));
    rein_settings *wrong = copy_settings(now);
    OK(rein_settings_set(wrong, "lora_rank", "3", &error_));
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 2}, wrong, &error_),
            "lora_rank is \"3\", but the run was started with \"8\": a fork keeps the policy");
    wrong = copy_settings(now);
    OK(rein_settings_set(wrong, "dual_clip", "3", &error_));
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 2}, wrong, &error_), "dual_clip");
    REFUSED(rein_session_fork(&s, from, &(rein_fork){from, 2}, now, &error_), "is a run already");
    assert_false(exists(to));
    OK(rein_session_fork(&s, to, &(rein_fork){from, 2}, now, &error_));
    rein_session_close(s);
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 2}, now, &error_), "is a run already");
    assert_int_equal(unlink(in_folder("twig/config.yaml")), 0); /* as one that was stopped before its end */
    REFUSED(rein_session_fork(&s, to, &(rein_fork){from, 1}, now, &error_), "other content");
    OK(rein_session_fork(&s, to, &(rein_fork){from, 2}, now, &error_));
    rein_session_close(s);
    assert_true(exists(in_folder("twig/config.yaml")));
    assert_int_equal(truncate(checkpoint("stem", 1, "state.json"), 3), 0);
    REFUSED(rein_session_fork(&s, in_folder("bud"), &(rein_fork){from, 1}, now, &error_), "state.json has 3 bytes");
    assert_false(exists(in_folder("bud")));
}

/* A metric that is one, and that these steps do not have: nothing is deleted, and that is said. */
static void test_best_of_nothing(void **state) {
    (void)state;
    rein_session *s = open_session("best-of-nothing", "preset=art keep_last=1 keep_best=budget/share_over");
    assert_string_equal(rein_session_note(s), "");
    rein_groups groups = groups_of_step(1);
    for (size_t step = 1; step <= 2; step++) {
        train(s, &groups);
        assert_string_equal(rein_session_note(s), "keep_best is \"budget/share_over\": no step that was saved has that metric yet, "
                                                  "so every checkpoint stays");
    }
    assert_checkpoints("best-of-nothing", "0 1 2");
    for (size_t i = 0; i < groups.n; i++)
        for (size_t t = 0; t < groups.groups[i].n; t++) groups.groups[i].trajectories[t].budget = 3;
    train(s, &groups); /* now they have it */
    assert_string_equal(rein_session_note(s), "");
    assert_checkpoints("best-of-nothing", "0 3");
    rein_session_close(s), rein_groups_free(&groups);
}

/* A lag that is longer than any list of steps: its reference stays all the same. */
static void test_long_lag(void **state) {
    (void)state;
    enum { LAG = 66, STEPS = 69 };
    if (quick()) skip();
    rein_session *s = open_session("long-lag", "preset=grpo keep_last=1 kl_penalty_step_lag=66 lora_modules=q_proj lora_rank=1");
    rein_groups groups = groups_of_step(1);
    for (size_t step = 1; step <= STEPS; step++) train(s, &groups);
    rein_session_close(s), rein_groups_free(&groups);
    assert_true(exists(checkpoint("long-lag", STEPS - LAG, "")) && !exists(checkpoint("long-lag", STEPS - LAG - 1, "")));
}

/* ---- what cannot change */
static void test_fixed_settings(void **state) {
    (void)state;
    rein_session *s = open_session("fixed", "preset=art lora_rank=4 shards=2 epsilon_high=3");
    train_steps(s, 1, 1);
    rein_session_close(s);
    const char *const fixed[][2] = {{"quantize", "q8_0"},       {"adapter", "x"},     {"full", "yes"},
                                    {"lora_rank", "5"},         {"lora_alpha", "3"},  {"use_rslora", "yes"},
                                    {"lora_modules", "q_proj"}, {"seed", "2"},        {"shards", "3"},
                                    {"share_limit", "2"},       {"no_sharing", "yes"}};
    for (size_t i = 0; i < COUNT(fixed); i++) {
        rein_settings *o = new_settings();
        OK(rein_settings_set(o, fixed[i][0], fixed[i][1], &error_));
        REFUSED(rein_session_open(&s, in_folder("fixed"), o, &error_), fixed[i][0]);
        REFUSED(rein_session_open(&s, in_folder("fixed"), o, &error_), "changing it needs a new run");
    }
    const rein_settings *same =
        settings_of("lora_rank=4 shards=2 learning_rate=0.5 epsilon_high=2 keep_last=7"); /* said again, and others */
    OK(rein_session_open(&s, in_folder("fixed"), same, &error_));
    const rein_settings *now = rein_session_settings(s);
    assert_true(now->learning_rate == 0.5 && now->objective.epsilon_high == 2 && now->lora_rank == 4 && now->keep_last == 7);
    assert_true(now->objective.surrogate == REIN_SURROGATE_CISPO && !strcmp(now->preset, "art"));
    rein_session_close(s);
    s = go_on("fixed"); /* nothing was done with them: they were not stored */
    assert_true(rein_session_settings(s)->learning_rate == 0.02 && rein_session_settings(s)->keep_last == 0);
    rein_session_close(s);
    OK(rein_session_open(&s, in_folder("fixed"), same, &error_));
    train_steps(s, 2, 2);
    rein_session_close(s);
    s = go_on("fixed"); /* and it stays so */
    assert_true(rein_session_settings(s)->learning_rate == 0.5 && rein_session_settings(s)->objective.epsilon_high == 2);
    rein_session_close(s);
    const rein_settings *none = new_settings();
    REFUSED(rein_session_open(&s, in_folder("new"), none, &error_), "model is missing");
    rein_settings *wrong = settings_of("lora_modules=q_porj");
    REFUSED(rein_session_open(&s, in_folder("new"), wrong, &error_), "q_porj");
    wrong = settings_of("lr_scheduler_type=linear");
    REFUSED(rein_session_open(&s, in_folder("new"), wrong, &error_), "total_steps");
    OK(rein_settings_set(wrong, "model", in_folder("nowhere"), &error_));
    wrong->total_steps = 10;
    REFUSED(rein_session_open(&s, in_folder("new"), wrong, &error_), "nowhere");
    assert_false(exists(in_folder("new")));
}

/* The policy and its optimizer stay as they are; the step counts. */
static void test_nothing_to_train(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        const char *run = full ? "nothing-full" : "nothing", *weights = full ? "model.safetensors" : "adapter_model.safetensors";
        rein_session *s = open_session(run, full ? "preset=art full=yes" : "preset=art epochs=2");
        train_steps(s, 1, 1);
        rein_groups groups = groups_of_step(2);
        const rein_session_report report = train(s, &groups);
        assert_true(report.nothing_to_train && report.step == 2 && metric(&report, "grad_norm") == 0 &&
                    metric(&report, "frac_reward_zero_std") == 1);
        assert_true(same_file(checkpoint(run, 1, weights), checkpoint(run, 2, weights)));
        assert_true(same_file(checkpoint(run, 1, "optimizer.safetensors"), checkpoint(run, 2, "optimizer.safetensors")));
        json_t *lines = history(run);
        assert_true(json_is_true(json_object_get(json_array_get(lines, 1), "nothing_to_train")));
        assert_null(json_object_get(json_array_get(lines, 0), "nothing_to_train"));
        json_decref(lines), rein_groups_free(&groups), rein_session_close(s);
    }
}

/* Budgets of some trajectories, and a reference: its log-probs have nothing to do with them. */
static void test_budgets_and_reference(void **state) {
    (void)state;
    rein_session *s =
        open_session("budgets", "preset=k2 tau=0.3 token_budget=4 budget_penalty_coef=0.1 kl_penalty_coef=0.1 epochs=2");
    rein_groups groups = groups_of_step(1);
    groups.groups[0].trajectories[1].budget = 2;
    EACH_HISTORY(h, &groups) h->log_probs[h->n - 1] = NAN;
    const rein_session_report report = train(s, &groups);
    assert_true(metric(&report, "budget/share_over") > 0 && metric(&report, "kl") >= 0);
    rein_groups_free(&groups), rein_session_close(s);
    s = open_session("no-budgets", "preset=art");
    groups = groups_of_step(1);
    const rein_session_report plain = train(s, &groups);
    assert_true(isnan(metric(&plain, "budget/share_over")) && isnan(metric(&plain, "kl")));
    rein_groups_free(&groups), rein_session_close(s);
}

/* ---- a real model learns: to end a sentence within twelve tokens. The reward is 1 for a response that one of these ends, else 0. */
enum { SAMPLES = 8, PROMPTS = 4, BUDGET = 12 };

static double sample_step(rein_groups *groups, const rein_session *s, const int32_t *end_ids, size_t n_end_ids) {
    const rein_policy policy = rein_session_policy(s);
    rein_generator *generator;
    rein_sampling sampling = rein_sampling_plain();
    double ended = 0;
    sampling.max_tokens = BUDGET, sampling.end_ids = end_ids, sampling.n_end_ids = n_end_ids, sampling.seed = 3;
    OK(rein_generator_open(&generator, &policy, NULL, NULL, &error_));
    for (size_t p = 0; p < PROMPTS; p++) {
        const int32_t begin = 1;
        size_t count;
        const rein_request request = {&begin, 1, SAMPLES, {.step = (uint64_t)rein_session_step(s), .prompt = p}, sampling, NULL, 0};
        OK(rein_generator_add(&count, generator, &request, &error_));
        rein_trajectory *t = group_of(groups, SAMPLES);
        for (size_t i = 0; i < SAMPLES; i++) add_history(&t[i], &begin, 1, BUDGET), t[i].policy_step = rein_session_step(s);
    }
    for (size_t count = 1; count;) {
        const rein_sampled *sampled;
        OK(rein_generator_step(&sampled, &count, generator, &error_));
        for (size_t i = 0; i < count; i++) {
            rein_trajectory *t = &groups->groups[sampled[i].request].trajectories[sampled[i].sample];
            rein_history *h = t->histories;
            h->ids[1 + sampled[i].position] = sampled[i].id, h->log_probs[1 + sampled[i].position] = sampled[i].log_prob;
            if (sampled[i].finish == REIN_FINISH_NONE) continue;
            h->n = 2 + sampled[i].position;
            t->truncated = sampled[i].finish == REIN_FINISH_MAX_TOKENS, t->reward = sampled[i].finish == REIN_FINISH_END_TOKEN;
            ended += t->reward;
        }
    }
    rein_generator_close(generator);
    return ended / (PROMPTS * SAMPLES);
}

static const char *stories(void) {
    static char path[1000];
    const char *shared = getenv("REIN_SHARED_DIR");
    snprintf(path, sizeof path, "%s/models/stories260K", shared ? shared : "../shared");
    return path;
}

static void test_learning(void **state) {
    (void)state;
    const size_t steps = quick() ? 6 : 30;
    const char *const ends[] = {".", "!", "?"};
    double early = 0, late = 0;
    int32_t end_ids[COUNT(ends)];
    if (!exists(stories())) {
        print_message("!!!!! %s IS ABSENT: the test on a real model is SKIPPED !!!!!\n", stories());
        skip();
    }
    rein_tokenizer *tokenizer;
    OK(rein_tokenizer_open(&tokenizer, stories(), &error_));
    for (size_t i = 0; i < COUNT(ends); i++) end_ids[i] = rein_tokenizer_id(tokenizer, ends[i], 1), assert_true(end_ids[i] > 0);
    rein_tokenizer_close(tokenizer);
    rein_settings *o =
        settings_of("preset=dr-grpo max_response_length=12 lora_rank=4 lora_alpha=8 learning_rate=0.005 keep_last=1");
    rein_session *s;
    OK(rein_settings_set(o, "model", stories(), &error_));
    OK(rein_session_open(&s, in_folder("stories"), o, &error_));
    for (size_t step = 0; step < steps; step++) {
        rein_groups groups = {0};
        const double reward = sample_step(&groups, s, end_ids, COUNT(end_ids));
        const rein_session_report report = train(s, &groups);
        assert_true(metric(&report, "on_policy/max_gap") == 0); /* the sampler and the trainer agree, to the bit */
        assert_true(metric(&report, "reward") == reward);
        if (step < 5) early += reward / 5;
        if (step + 5 >= steps) late += reward / 5;
        rein_groups_free(&groups);
    }
    print_message("ends within %d tokens: %.3f in the first five steps, %.3f in the last five of %zu\n", (int)BUDGET, early, late,
                  steps);
    if (!quick()) assert_true(late > early + 0.4);
    rein_session_close(s);
}

static int start(void **state) {
    const int status = make_folder(state);
    if (!status) make_models();
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- train and commit */

/* Nothing is on the disk before the commit, which comes once, after each training. */
static void test_train_then_commit(void **state) {
    (void)state;
    rein_session *s = open_session("two-calls", "preset=grpo kl_loss_coef=0");
    rein_session_report report;
    const rein_named_number more[REIN_MORE_ROWS + 1] = {{"mine/first", 0.5}, {"mine/second", -2}};
    rein_groups groups = groups_of_step(1);
    REFUSED(rein_session_commit(&report, s, &groups, NULL, 0, &error_), "there is no step to commit");
    OK(rein_session_train(&report, s, &groups, NULL, &error_));
    assert_true(report.step == 1 && rein_session_step(s) == 0 && isnan(metric(&report, "time/sample")));
    assert_false(exists(in_folder("two-calls/trajectories/train/0001.jsonl")));
    assert_false(exists(in_folder("two-calls/checkpoints/0001")));
    REFUSED(rein_session_train(&report, s, &groups, NULL, &error_), "is not committed");
    REFUSED(rein_session_save(s, &error_), "is not committed");
    const size_t trained = report.n;
    REFUSED(rein_session_commit(&report, s, &groups, more, REIN_REPORT_ROWS - trained + 1, &error_), "n_more is ");
    OK(rein_session_commit(&report, s, &groups, more, 2, &error_));
    assert_true(report.n == trained + 2 && rein_session_step(s) == 1);
    assert_true(metric(&report, "mine/first") == 0.5 && metric(&report, "mine/second") == -2 && !isnan(metric(&report, "loss")));
    assert_true(exists(in_folder("two-calls/trajectories/train/0001.jsonl")) && exists(in_folder("two-calls/checkpoints/0001")));
    REFUSED(rein_session_commit(&report, s, &groups, NULL, 0, &error_), "there is no step to commit");
    const rein_train_options options = {.seconds_sample = 0.25};
    OK(rein_session_train(&report, s, &groups, &options, &error_));
    assert_true(report.step == 2 && metric(&report, "time/sample") == 0.25 && metric(&report, "step_time") > 0.25);
    rein_session_close(s);
    s = go_on("two-calls"); /* what was not committed is not there */
    assert_int_equal(rein_session_step(s), 1);
    REFUSED(rein_session_train(&report, s, &groups, &(rein_train_options){.ptx = &groups}, &error_), "ptx_batch is 0: ");
    rein_session_close(s);
    rein_groups_free(&groups);
}

/* With keep_advantages every history gets the advantages that the loss used, without it none; the multiplier of the session takes the place
 * of the penalty, and the settings stay. */
static void test_advantages_and_penalty(void **state) {
    (void)state;
    rein_groups groups = groups_of_step(1);
    rein_history *h = groups.groups[1].trajectories[0].histories, *other = groups.groups[1].trajectories[1].histories;
    float before[64] = {0};
    assert_true(h->n <= 64);
    const double coefficients[] = {0, 0.75};
    for (size_t i = 0; i < 2; i++) {
        rein_session *s = open_session(i ? "penalty" : "no-penalty", "preset=grpo kl_loss_coef=0 shape=budget token_budget=1 "
                                                                     "budget_penalty_coef=0.5");
        const rein_train_options options = {.seconds_sample = NAN, .keep_advantages = 1};
        rein_session_report report;
        s->settings.budget_target = 1, s->multiplier = coefficients[i];
        OK(rein_session_train(&report, s, &groups, &options, &error_));
        int trains = 0;
        for (size_t k = 0; k < h->n; k++) {
            assert_true(h->mask[k] || h->advantages[k] == 0);
            trains |= h->mask[k] && h->advantages[k] != (i ? before[k] : 0);
            before[k] = h->advantages[k];
        }
        assert_true(trains && other->advantages && s->settings.objective.budget_penalty_coef == 0.5);
        rein_session_close(s);
    }
    rein_groups_free(&groups);
    groups = groups_of_step(1);
    rein_session *s = open_session("no-advantages", "preset=grpo kl_loss_coef=0");
    train(s, &groups);
    for (size_t t = 0; t < groups.groups[1].n; t++) assert_null(groups.groups[1].trajectories[t].histories->advantages);
    rein_session_close(s);
    rein_groups_free(&groups);
}

/* A step at a given temperature is that of a run with this temperature: old and new log-probs, the reference and the gradient. */
static void test_temperature_of_a_step(void **state) {
    (void)state;
    rein_groups groups = groups_of_step(1);
    const rein_train_options options = {.seconds_sample = NAN, .temperature = 0.7},
                             wrong = {.seconds_sample = NAN, .temperature = -1};
    const char *const rest = "preset=grpo kl_loss_coef=0.1 minibatches=2";
    char settings[200];
    snprintf(settings, sizeof settings, "%s temperature=0.7", rest);
    rein_session *s = open_session("at-a-temperature", rest), *other = open_session("of-a-temperature", settings);
    rein_session_report report, expected;
    OK(rein_session_train(&report, s, &groups, &options, &error_));
    OK(rein_session_train(&expected, other, &groups, NULL, &error_));
    assert_true(metric(&report, "loss") == metric(&expected, "loss") &&
                metric(&report, "grad_norm") == metric(&expected, "grad_norm"));
    assert_true(rein_session_policy(s).temperature == 1 && rein_session_policy(other).temperature == 0.7);
    OK(rein_session_commit(&report, s, &groups, NULL, 0, &error_));
    REFUSED(rein_session_train(&report, s, &groups, &wrong, &error_), "temperature is -1: it must be between 0.001 and 1000");
    rein_session_close(s), rein_session_close(other);
    rein_groups_free(&groups);
}

/* A minibatch is a part of the groups; its errors name the place in all of them. */
static void test_errors_of_minibatches(void **state) {
    (void)state;
    rein_groups groups = groups_of_step(1), ptx = groups_of_step(2);
    rein_session_report report;
    for (size_t i = 0; i < 2; i++) {
        rein_session *s = open_session(i ? "wrong-ptx" : "wrong-groups", "preset=grpo kl_loss_coef=0 minibatches=2");
        rein_groups *wrong = i ? &ptx : &groups;
        const size_t last = wrong->n - 1;
        rein_history *h = wrong->groups[last].trajectories[0].histories;
        const int32_t id = h->ids[0];
        rein_error err = {0};
        char field[100];
        snprintf(field, sizeof field, "groups[%zu].trajectories[0].histories[0].ids", last);
        h->ids[0] = -1;
        const rein_train_options options = {.seconds_sample = NAN, .ptx = i ? &ptx : NULL, .ptx_batch = i};
        assert_int_equal(rein_session_train(&report, s, &groups, &options, &err), REIN_EINVAL);
        assert_string_equal(err.field, field);
        assert_int_equal(err.index, 0);
        assert_int_equal(strncmp(err.message, i ? "ptx: groups[" : "groups[", i ? 12 : 7), 0);
        h->ids[0] = id;
        rein_session_close(s);
    }
    rein_groups_free(&groups), rein_groups_free(&ptx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_errors_of_minibatches),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_known_references),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_retention),
        cmocka_unit_test(test_save_steps),
        cmocka_unit_test(test_save_steps_and_retention),
        cmocka_unit_test(test_best_of_nothing),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_refuses),
        cmocka_unit_test(test_long_lag),
        cmocka_unit_test(test_fixed_settings),
        cmocka_unit_test(test_nothing_to_train),
        cmocka_unit_test(test_budgets_and_reference),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_train_then_commit),
        cmocka_unit_test(test_advantages_and_penalty),
        cmocka_unit_test(test_temperature_of_a_step),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
