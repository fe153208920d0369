/* session_step.c - one step of a run: the reference once, then epochs and minibatches, each a gradient and a step of the optimizer; then
 * everything that must outlast a crash. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "session.h"
#include "settings.h"

static size_t tokens_of(const rein_groups *groups, size_t first, size_t last) {
    size_t n = 0;
    for (size_t g = first; g < last; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++)
                n += groups->groups[g].trajectories[t].histories[i].n;
    return n;
}

static double truncated_share(const rein_groups *groups) {
    size_t n = 0, truncated = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++, n++) truncated += groups->groups[g].trajectories[t].truncated != 0;
    return n ? (double)truncated / (double)n : 0;
}

/* A step at work. */
typedef struct working {
    rein_session *s;
    const rein_groups *groups;
    const rein_session_hooks *hooks;
    float *reference, *old; /* [tokens] or NULL: not needed */
    float *advantages;      /* [tokens] or NULL: nobody wants them */
    rein_metric_row more[REIN_MORE_ROWS];
    size_t n_more;
    double ptx_loss; /* added up */
    rein_step_numbers numbers;
    size_t passes, optimizer_steps;
    double norms; /* added up */
} working;

/* ------------------------------------------------------------------------------------------------------------------ log-probs */

static int some_not_recorded(const rein_groups *groups) {
    const rein_groups_summary summary = rein_groups_summarise(groups);
    return summary.log_probs_missing > 0;
}

static rein_status take_log_probs(float **log_probs, const working *w, rein_error *err) {
    const size_t n = tokens_of(w->groups, 0, w->groups->n);
    *log_probs = malloc((n + 1) * sizeof **log_probs);
    return *log_probs ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", n);
}

/* What was recorded stays the old log-prob; the others are those of the policy as it is. */
static void put_recorded(float *old, const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++) {
                const rein_history *h = &groups->groups[g].trajectories[t].histories[i];
                for (size_t k = 0; k < h->n; k++)
                    if (h->mask[k] && !isnan(h->log_probs[k])) old[k] = h->log_probs[k];
                old += h->n;
            }
}

/* Once for the whole step: the reference; and, if several optimizer steps follow, the policy as it is, where the recorded log-probs are not
 * the old ones. */
static rein_status before_the_passes(working *w, rein_error *err) {
    rein_session *s = w->s;
    rein_status status = REIN_OK;
    const double began = rein_now();
    if (rein_settings_use_reference(&s->settings)) {
        status = take_log_probs(&w->reference, w, err);
        if (!status) status = rein_session_reference_log_probs(w->reference, s, w->groups, err);
        w->numbers.seconds_reference = rein_now() - began;
    }
    const int several = s->settings.epochs * s->settings.minibatches > 1;
    const int mismatch = s->settings.objective.mismatch != REIN_MISMATCH_NONE;
    if (!status && several && (mismatch || some_not_recorded(w->groups))) status = take_log_probs(&w->old, w, err);
    if (!status && w->old) status = rein_trainer_log_probs(w->old, NULL, s->trainer, NULL, w->groups, err);
    if (!status && w->old && !mismatch) put_recorded(w->old, w->groups);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- passes */

/* Metrics are all doubles: means over the passes; counts over those of the first epoch; extremes over all. */
static void add_metrics(rein_metrics *sum, const rein_metrics *one, int first_epoch, int first) {
    const rein_metrics before = *sum;
    double *to = (double *)sum;
    const double *from = (const double *)one;
    for (size_t i = 0; i < sizeof *sum / sizeof(double); i++) to[i] += from[i];
    sum->ratio_min = first || one->ratio_min < before.ratio_min ? one->ratio_min : before.ratio_min;
    sum->ratio_max = first || one->ratio_max > before.ratio_max ? one->ratio_max : before.ratio_max;
    sum->length_max = first || one->length_max > before.length_max ? one->length_max : before.length_max;
    if (!first_epoch) {
        sum->tokens = before.tokens, sum->trained_tokens = before.trained_tokens, sum->sequences = before.sequences;
        sum->trained_sequences = before.trained_sequences, sum->groups = before.groups;
    }
}

static void divide_metrics(rein_metrics *sum, double passes) {
    const rein_metrics before = *sum;
    double *to = (double *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof(double); i++) to[i] /= passes;
    sum->ratio_min = before.ratio_min, sum->ratio_max = before.ratio_max, sum->length_max = before.length_max;
    sum->tokens = before.tokens, sum->trained_tokens = before.trained_tokens, sum->sequences = before.sequences;
    sum->trained_sequences = before.trained_sequences, sum->groups = before.groups;
}

static void add_pass(working *w, const rein_pass_result *pass, int first_epoch) {
    rein_step_numbers *n = &w->numbers;
    add_metrics(&n->loss.metrics, &pass->loss.metrics, first_epoch, w->passes == 0);
    n->loss.loss += pass->loss.loss;
    if (w->passes == 0) n->on_policy_gap = pass->max_gap;
    n->seconds_forward += pass->seconds_forward;
    n->seconds_backward += pass->seconds_backward;
    w->passes++;
}

static rein_adamw adamw_of(const rein_settings *o, double rate) {
    return (rein_adamw){rate, o->adam_beta1, o->adam_beta2, o->adam_epsilon, o->weight_decay, o->max_grad_norm};
}

static rein_status learning_rate(double *rate, const rein_settings *o, int64_t step, rein_error *err) {
    const rein_schedule_shape shape = !strcmp(o->lr_scheduler_type, "linear")   ? REIN_SCHEDULE_LINEAR
                                      : !strcmp(o->lr_scheduler_type, "cosine") ? REIN_SCHEDULE_COSINE
                                                                                : REIN_SCHEDULE_CONSTANT;
    const rein_schedule schedule = {shape, o->learning_rate, o->warmup_steps,
                                    shape == REIN_SCHEDULE_CONSTANT ? 0 : rein_settings_total_steps(o),
                                    shape == REIN_SCHEDULE_CONSTANT ? 0 : o->lr_final_share};
    return rein_learning_rate(rate, &schedule, step, err);
}

/* The supervised loss of K2's mixture: REINFORCE without an advantage, on rewards that are its weight. Optimizer step number i of the run
 * takes batch i mod n of epoch i / n. */
static rein_status ptx_pass(working *w, rein_error *err) {
    const rein_groups *data = w->hooks->ptx;
    const size_t batch = w->hooks->ptx_batch < data->n ? w->hooks->ptx_batch : data->n, a_epoch = data->n / batch;
    const size_t number = (size_t)rein_trainer_steps(w->s->trainer), first = number % a_epoch * batch;
    size_t *order = malloc(data->n * sizeof *order);
    rein_group *part = malloc(batch * sizeof *part);
    rein_pass_result pass;
    rein_status status = order && part ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu examples", data->n);
    if (!status) {
        rein_shuffle(order, data->n, (uint64_t)w->s->settings.seed, number / a_epoch);
        for (size_t i = 0; i < batch; i++) part[i] = data->groups[order[first + i]];
        const rein_pass_options options = {.policy_step = -1}; /* zero is literal */
        status = rein_trainer_forward_backward(&pass, w->s->trainer, &(rein_groups){part, batch, 0}, &options, err);
    }
    if (!status) {
        w->ptx_loss += pass.loss.loss;
        w->numbers.seconds_forward += pass.seconds_forward;
        w->numbers.seconds_backward += pass.seconds_backward;
    }
    free(part);
    free(order);
    return status;
}

static rein_status one_pass(working *w, int64_t epoch, size_t first, size_t last, rein_error *err) {
    rein_session *s = w->s;
    rein_pass_result pass;
    const size_t at = tokens_of(w->groups, 0, first);
    const rein_groups part = {w->groups->groups + first, last - first, 0};
    const rein_pass_options options = {.objective = s->settings.objective,
                                       .reference_log_probs = w->reference ? w->reference + at : NULL,
                                       .old_log_probs = w->old ? w->old + at : NULL,
                                       .policy_step = w->passes == 0 ? s->step : -1,
                                       .mask_truncated_completions = s->settings.mask_truncated_completions,
                                       .recorded_are_current = w->passes == 0 && w->hooks->own_samples,
                                       .advantages = w->advantages && epoch == 0 ? w->advantages + at : NULL};
    rein_status status = rein_trainer_forward_backward(&pass, s->trainer, &part, &options, err);
    if (!status) add_pass(w, &pass, epoch == 0);
    if (!status && w->hooks->ptx) status = ptx_pass(w, err);
    if (status || (pass.nothing_to_train && !w->hooks->ptx)) return status;
    const double began = rein_now();
    const rein_adamw adamw = adamw_of(&s->settings, w->numbers.learning_rate);
    double norm = 0;
    status = rein_trainer_optim_step(&norm, s->trainer, &adamw, err);
    w->norms += norm;
    w->optimizer_steps++;
    w->numbers.seconds_optimizer += rein_now() - began;
    return status;
}

static rein_status all_passes(working *w, rein_error *err) {
    const rein_settings *o = &w->s->settings;
    const size_t parts = (size_t)o->minibatches;
    /* The first step of the warm-up is not lost on a rate of 0, and the last of the run has more than that of its end. */
    const int64_t step = w->s->step < o->warmup_steps ? w->s->step + 1 : w->s->step;
    rein_status status = learning_rate(&w->numbers.learning_rate, o, step, err);
    if (!status && parts > w->groups->n)
        status = rein_fail(err, REIN_EINVAL, "minibatches is %zu, and there are %zu groups", parts, w->groups->n);
    for (int64_t epoch = 0; epoch < o->epochs && !status; epoch++)
        for (size_t b = 0; b < parts && !status; b++)
            status = one_pass(w, epoch, w->groups->n * b / parts, w->groups->n * (b + 1) / parts, err);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- numbers */

static double peak_memory(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? NAN : (double)usage.ru_maxrss * 1024;
}

static int has_budgets(const working *w) {
    if (w->s->settings.objective.token_budget >= 0) return 1;
    for (size_t g = 0; g < w->groups->n; g++)
        for (size_t t = 0; t < w->groups->groups[g].n; t++)
            if (w->groups->groups[g].trajectories[t].budget >= 0) return 1;
    return 0;
}

static void finish_numbers(working *w, double began, double seconds_sample) {
    rein_step_numbers *n = &w->numbers;
    const double tokens = (double)tokens_of(w->groups, 0, w->groups->n);
    divide_metrics(&n->loss.metrics, (double)w->passes);
    n->loss.loss /= (double)w->passes;
    n->loss.nothing_to_train = w->optimizer_steps == 0;
    n->parts = REIN_STEP_REWARDS | (w->reference ? REIN_STEP_REFERENCE : 0) | (has_budgets(w) ? REIN_STEP_BUDGETS : 0) |
               (n->loss.metrics.entropy > 0 ? REIN_STEP_ENTROPIES : 0);
    n->gradient_norm = w->optimizer_steps ? w->norms / (double)w->optimizer_steps : 0;
    n->clipped_ratio = truncated_share(w->groups);
    n->num_tokens = w->s->tokens + tokens;
    n->seconds_sample = seconds_sample;
    n->seconds_step = rein_now() - began + (isnan(seconds_sample) ? 0 : seconds_sample);
    n->budget_multiplier = isnan(w->s->multiplier) ? NAN : w->s->settings.objective.budget_penalty_coef;
    n->tokens_per_second = n->seconds_step > 0 ? tokens / n->seconds_step : NAN;
    n->peak_memory = peak_memory();
}

/* ----------------------------------------------------------------------------------------------------------------- to the disk */

static rein_status write_trajectories(const rein_session *s, const rein_groups *groups, rein_error *err) {
    char path[4096], name[REIN_STEP_NAME];
    const int n = snprintf(path, sizeof path, "%s/trajectories/train", s->run->directory);
    if (n < 0 || (size_t)n + 40 > sizeof path) return rein_fail(err, REIN_EINVAL, "the path of the run is too long");
    const rein_status status = rein_make_directories(path, err);
    if (status) return status;
    snprintf(path + n, sizeof path - (size_t)n, "/%s.jsonl", rein_step_name(name, s->step));
    return rein_groups_write(path, groups, REIN_GROUPS_EXACT, err);
}

static rein_status write_history(rein_session *s, size_t n, int nothing_to_train, rein_error *err) {
    rein_metric_row rows[REIN_REPORT_ROWS];
    for (size_t i = 0; i < n; i++) rows[i] = (rein_metric_row){s->names[i], s->values[i]};
    json_t *line = rein_metric_object(s->step, rows, n);
    if (!line || (nothing_to_train && json_object_set_new(line, "nothing_to_train", json_true()))) {
        json_decref(line);
        return rein_fail(err, REIN_ENOMEM, "no memory for a line of the history");
    }
    const rein_status status = rein_run_history_append(s->run, line, err);
    json_decref(line);
    return status;
}

static rein_status keep(working *w, rein_error *err) {
    rein_session *s = w->s;
    rein_metric_row rows[REIN_REPORT_ROWS];
    size_t n = rein_metric_rows(rows, REIN_METRIC_ROWS, &w->numbers);
    for (size_t i = 0; i < w->n_more; i++) rows[n++] = w->more[i];
    for (size_t i = 0; i < REIN_REPORT_ROWS; i++)
        s->names[i] = i < n ? rows[i].name : NULL, s->values[i] = i < n ? rows[i].value : 0;
    s->tokens = w->numbers.num_tokens;
    s->seconds += w->numbers.seconds_step;
    s->step++;
    rein_status status = write_trajectories(s, w->groups, err);
    if (!status) status = write_history(s, n, w->optimizer_steps == 0, err);
    if (!status && s->step % s->settings.save_steps == 0) status = rein_session_save(s, err);
    if (!status) status = rein_tensorboard_add(s->board, s->step, rein_seconds(CLOCK_REALTIME), s->names, s->values, n, err);
    return status;
}

static rein_status say_more(working *w, rein_error *err) {
    if (w->hooks->ptx) w->more[w->n_more++] = (rein_metric_row){"ptx/loss", w->ptx_loss / (double)w->passes};
    if (!w->hooks->trained) return REIN_OK;
    size_t n = 0;
    const rein_status status = w->hooks->trained(w->more + w->n_more, &n, w->hooks->context, w->advantages, err);
    w->n_more += n;
    return status;
}

static rein_status take_advantages(working *w, rein_error *err) {
    const size_t n = tokens_of(w->groups, 0, w->groups->n);
    if (!w->hooks->trained) return REIN_OK;
    w->advantages = calloc(n ? n : 1, sizeof *w->advantages);
    return w->advantages ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the advantages of %zu tokens", n);
}

rein_status rein_session_train(rein_session_report *report, rein_session *s, const rein_groups *groups, double seconds_sample,
                               rein_error *err) {
    return rein_session_train_with(report, s, groups, seconds_sample, &(rein_session_hooks){0}, err);
}

rein_status rein_session_train_with(rein_session_report *report, rein_session *s, const rein_groups *groups, double seconds_sample,
                                    const rein_session_hooks *hooks, rein_error *err) {
    const double began = rein_now();
    working w = {.s = s, .groups = groups, .hooks = hooks};
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the session failed in an earlier step: it can only be closed");
    rein_step_numbers_clear(&w.numbers);
    w.numbers.loss = (rein_loss){0};
    w.numbers.seconds_forward = w.numbers.seconds_backward = w.numbers.seconds_optimizer = 0;
    rein_status status = take_advantages(&w, err);
    if (!status) status = before_the_passes(&w, err);
    if (!status) status = all_passes(&w, err);
    if (!status) {
        finish_numbers(&w, began, seconds_sample);
        status = say_more(&w, err);
    }
    if (!status) status = keep(&w, err);
    free(w.advantages);
    free(w.reference);
    free(w.old);
    s->failed = status != REIN_OK;
    if (status) return status;
    *report = (rein_session_report){s->step, w.optimizer_steps == 0, 0, s->names, s->values};
    while (report->n < REIN_REPORT_ROWS && s->names[report->n]) report->n++;
    return REIN_OK;
}
