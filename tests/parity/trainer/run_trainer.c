/* run_trainer.c - steps of the C trainer, for pytest.
 *
 *     run_trainer MODEL ADAPTER TO GROUPS,GROUPS… NAME=VALUE…
 * Opens the adapter, takes one optimizer step on each file of trajectory groups, and saves the trainer to TO. The settings are those of a
 * run; the reference, where one is needed, is the adapter as it was opened: step 0. One line a step: the loss, the norm of the gradient
 * before clipping, the mean of log π − log π_ref. Exit 2 and the message on stderr when something is refused. */
#include <stdio.h>
#include <string.h>

#include "rein/train.h"

typedef struct work {
    rein_model *model;
    rein_adapter *adapter, *first;
    rein_trainer *trainer;
    rein_settings *settings;
    rein_error err;
} work;

static rein_status read_settings(work *w, char **pairs) {
    rein_status status = rein_settings_new(&w->settings, &w->err);
    for (; *pairs && !status; pairs++) {
        char *equals = strchr(*pairs, '=');
        if (!equals) return rein_fail(&w->err, REIN_EINVAL, "%s: NAME=VALUE is needed", *pairs);
        *equals = 0;
        status = rein_settings_set(w->settings, *pairs, equals + 1, &w->err);
    }
    return status ? status : rein_settings_check(w->settings, &w->err);
}

static rein_status open_all(work *w, const char *model, const char *adapter) {
    const rein_trainer_options options = {.temperature = rein_settings_number(w->settings, "temperature"),
                                          .recompute = rein_settings_number(w->settings, "recompute") > 0};
    rein_status status = rein_model_open(&w->model, model, NULL, &w->err);
    if (!status) status = rein_adapter_open(&w->adapter, w->model, adapter, &w->err);
    if (!status) status = rein_adapter_copy(&w->first, w->adapter, &w->err);
    if (!status) status = rein_trainer_open(&w->trainer, w->model, w->adapter, &options, &w->err);
    return status;
}

static rein_status step(work *w, const char *path) {
    const rein_settings *o = w->settings;
    const rein_adamw adamw = {rein_settings_number(o, "learning_rate"), rein_settings_number(o, "adam_beta1"),
                              rein_settings_number(o, "adam_beta2"),    rein_settings_number(o, "adam_epsilon"),
                              rein_settings_number(o, "weight_decay"),  rein_settings_number(o, "max_grad_norm")};
    const rein_policy reference = {w->model, w->first, rein_settings_number(o, "temperature")};
    const rein_pass_options options = {.objective = rein_settings_objective(o), .reference = &reference, .policy_step = -1};
    rein_groups groups = {0};
    rein_pass_result pass;
    double norm;
    rein_status status = rein_groups_read(&groups, path, NULL, NULL, &w->err);
    if (!status) status = rein_trainer_forward_backward(&pass, w->trainer, &groups, &options, &w->err);
    if (!status) status = rein_trainer_optim_step(&norm, w->trainer, &adamw, &w->err);
    if (!status) printf("%.17g %.17g %.17g\n", pass.loss.loss, norm, pass.loss.metrics.kl_ref_k1);
    rein_groups_free(&groups);
    return status;
}

int main(int argc, char **argv) {
    work w = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: the comment of run_trainer.c\n");
        return 1;
    }
    rein_status status = read_settings(&w, argv + 5);
    if (!status) status = open_all(&w, argv[1], argv[2]);
    for (char *rest = argv[4], *path; !status && (path = strtok_r(rest, ",", &rest));) status = step(&w, path);
    if (!status) status = rein_trainer_save(w.trainer, argv[3], &w.err);
    rein_trainer_close(w.trainer);
    rein_adapter_close(w.first);
    rein_adapter_close(w.adapter);
    rein_model_close(w.model);
    rein_settings_free(w.settings);
    if (status) fprintf(stderr, "%s\n", w.err.message);
    return status ? 2 : 0;
}
