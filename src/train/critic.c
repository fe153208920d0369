/* critic.c - how a critic opens, and how it values a step: values, advantages and returns of the whole step, before its first gradient. */
#include "critic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/show.h"
#include "objective/reward.h"
#include "packing.h"
#include "trainer.h"

/* ------------------------------------------------------------------------------------------------------------------------ opening */

enum { MODULES = 16, CRITIC_SEED = 0x637269 }; /* the critic's A is not the policy's */

static rein_status name_field(rein_status status, rein_error *err) {
    return status == REIN_EINVAL ? rein_fail_as(err, status, "critic", -1, NULL) : status;
}

/* The LoRA of the policy's settings, on the modules that come before the head, and a value head. */
static rein_status new_adapter(rein_critic *c, const rein_settings *s, const rein_model *model, rein_error *err) {
    const char *modules[MODULES];
    rein_lora_options o = {.rank = s->lora_rank,
                           .alpha = s->lora_alpha,
                           .rank_stabilized = s->use_rslora,
                           .modules = modules,
                           .seed = (uint64_t)s->seed ^ CRITIC_SEED,
                           .score = REIN_SCORE_ZERO};
    char *text = strdup(s->lora_modules);
    rein_status status = text ? REIN_OK : rein_no_memory(err);
    for (char *rest = text, *name; !status && (name = strtok_r(rest, ", ", &rest));)
        if (strcmp(name, "lm_head") != 0 && o.n_modules < MODULES) modules[o.n_modules++] = name;
    if (!status && *s->lora_modules && !o.n_modules)
        status = rein_fail_at(err, REIN_EINVAL, "lora_modules", -1,
                              "names only lm_head, which a critic does not have: a critic needs another module");
    if (!status) status = rein_adapter_new(&c->adapter, model, &o, err);
    free(text);
    return status;
}

/* The critic reads the ids of the policy. */
static rein_status check_vocabulary(const rein_critic *c, const rein_model *policy, rein_error *err) {
    const int64_t own = rein_model_describe(c->model).vocabulary, wanted = rein_model_describe(policy).vocabulary;
    if (own >= wanted) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "critic", -1,
                        "has a vocabulary of %lld tokens, and the policy one of %lld: a critic reads the tokens of the policy",
                        (long long)own, (long long)wanted);
}

/* Where both have a tokenizer, the same id must be the same token. */
static rein_status check_tokens(const char *critic, const char *policy, rein_error *err) {
    rein_tokenizer *a = NULL, *b = NULL;
    char shown[2][40];
    if (!rein_tokenizer_exists(critic) || !rein_tokenizer_exists(policy)) return REIN_OK;
    rein_status status = rein_tokenizer_open(&a, critic, err);
    if (!status) status = rein_tokenizer_open(&b, policy, err);
    const size_t n = status ? 0 : rein_tokenizer_size(a) < rein_tokenizer_size(b) ? rein_tokenizer_size(a) : rein_tokenizer_size(b);
    for (size_t i = 0; i < n && !status; i++) {
        size_t la = 0, lb = 0;
        const char *ta = rein_tokenizer_token(&la, a, (int32_t)i), *tb = rein_tokenizer_token(&lb, b, (int32_t)i);
        if (la == lb && (!la || !memcmp(ta, tb, la))) continue;
        status = rein_fail_at(err, REIN_EINVAL, "critic", -1,
                              "has another tokenizer than the policy: token %zu is \"%s\", and \"%s\" for the policy", i,
                              rein_show_short(shown[0], sizeof shown[0], ta ? ta : "", la),
                              rein_show_short(shown[1], sizeof shown[1], tb ? tb : "", lb));
    }
    rein_tokenizer_close(a);
    rein_tokenizer_close(b);
    return status;
}

static rein_status check_place(const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN], *adapter = rein_path_join(path, "adapter_config.json");
    const int is_adapter = adapter && rein_file_exists(adapter);
    free(adapter);
    if (is_adapter)
        return rein_fail_at(
            err, REIN_EINVAL, "critic", -1,
            "is \"%s\", the directory of an adapter: the directory of a model is needed, with the adapter merged into it",
            rein_path_show(shown, path));
    if (rein_file_is_directory(path) && rein_model_exists(path)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "critic", -1,
                        "is \"%s\", which is not a model: same (the policy's own model), or a local directory with config.json and "
                        "safetensors is needed",
                        rein_path_show(shown, path));
}

/* A model of its own: another one, or where all weights train a second copy of the policy's. */
static rein_status open_model(rein_critic *c, const rein_settings *s, const rein_model *policy, rein_error *err) {
    const int same = !strcmp(s->critic, REIN_CRITIC_SAME);
    const rein_model_options how = {.train = s->full, .score = REIN_SCORE_ZERO};
    if (same && !s->full) return REIN_OK;
    rein_status status = same ? REIN_OK : check_place(s->critic, err);
    if (!status) status = name_field(rein_model_open(&c->model, same ? s->model : s->critic, &how, err), err);
    if (!status) status = check_vocabulary(c, policy, err);
    return status || same ? status : check_tokens(s->critic, s->model, err);
}

rein_status rein_critic_open(rein_critic **critic, const rein_settings *settings, rein_model *policy,
                             const rein_trainer_options *trainer, rein_error *err) {
    rein_trainer_options o = *trainer;
    rein_critic *c = *critic = calloc(1, sizeof *c);
    if (!c) return rein_fail(err, REIN_ENOMEM, "no memory for a critic");
    rein_status status = open_model(c, settings, policy, err);
    rein_model *model = c->model ? c->model : policy;
    o.temperature = 1; /* values have none */
    o.activation_cache = NULL;
    if (!status && !settings->full) status = new_adapter(c, settings, model, err);
    if (!status) status = rein_trainer_open(&c->trainer, model, c->adapter, &o, err);
    if (!status) return REIN_OK;
    rein_critic_close(c);
    *critic = NULL;
    return status;
}

void rein_critic_close(rein_critic *c) {
    if (!c) return;
    rein_trainer_close(c->trainer);
    rein_adapter_close(c->adapter);
    rein_model_close(c->model);
    free(c);
}

/* -------------------------------------------------------------------------------------------------------------------------- files */

rein_status rein_critic_save(const rein_critic *c, const char *checkpoint, rein_error *err) {
    char *path = rein_path_join(checkpoint, REIN_CRITIC_FOLDER);
    rein_status status = path ? rein_make_directories(path, err) : rein_no_memory(err);
    if (!status) status = rein_trainer_save(c->trainer, path, err);
    free(path);
    return status;
}

rein_status rein_critic_load(rein_critic *c, const char *checkpoint, rein_error *err) {
    char *path = rein_path_join(checkpoint, REIN_CRITIC_FOLDER);
    const rein_status status = path ? rein_trainer_load(c->trainer, path, err) : rein_no_memory(err);
    free(path);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------------- a step */

void rein_critic_step_free(rein_critic_step *step) {
    free(step->values);
    free(step->returns);
    free(step->advantages);
    free(step->rewards);
    *step = (rein_critic_step){0};
}

/* A step being valued, in double. */
typedef struct valuing {
    rein_critic_step *step;
    const rein_critic_options *o;
    rein_packing packing;
    double *old, *reference, *recorded, *values, *advantages; /* [n_tokens] */
    double *returns, *trained;                                /* [n_trained] of the trained tokens alone */
    size_t n_trained;
} valuing;

static rein_status take_room(valuing *v, rein_arena *arena, rein_error *err) {
    const size_t n = v->packing.n_tokens;
    rein_critic_step *step = v->step;
    double **arrays[] = {&v->old, &v->reference, &v->recorded, &v->values, &v->advantages, &v->returns, &v->trained};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i] = rein_arena_take(arena, (n + 1) * sizeof(double));
    step->returns = calloc(n + 1, sizeof *step->returns);
    step->advantages = calloc(n + 1, sizeof *step->advantages);
    step->rewards = malloc((v->packing.n_sequences + 1) * sizeof *step->rewards);
    if (arena->failed || !step->returns || !step->advantages || !step->rewards)
        return rein_fail(err, REIN_ENOMEM, "no memory for the advantages of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        v->recorded[i] = (double)v->packing.recorded[i];
        v->old[i] = v->o->old ? (double)v->o->old[i] : v->recorded[i];
        v->reference[i] = v->o->reference ? (double)v->o->reference[i] : 0;
        v->values[i] = (double)step->values[i];
    }
    return REIN_OK;
}

/* GAE over the whole step. The balance of advantages comes later: returns have none. */
static rein_status estimate(valuing *v, rein_error *err) {
    const rein_packing *p = &v->packing;
    rein_options objective = *v->o->objective;
    objective.advantage_balance = 0;
    const int sampled = objective.kl_reward_coef > 0 && objective.kl_penalty_source == REIN_KL_SOURCE_SAMPLE;
    const rein_batch batch = {.n_groups = p->n_groups,
                              .n_sequences = p->n_sequences,
                              .group_offsets = p->group_offsets,
                              .sequence_offsets = p->sequence_offsets,
                              .dtype = REIN_F64,
                              .mask = p->mask,
                              .log_probs = v->old,
                              .ref_log_probs = v->o->reference ? v->reference : NULL,
                              .sample_log_probs = sampled ? v->recorded : NULL,
                              .values = v->values,
                              .rewards = p->rewards,
                              .response_lengths = p->lengths,
                              .token_budgets = p->budgets};
    const rein_status status = rein_shape_rewards(v->step->rewards, &batch, &objective, err);
    return status ? status : rein_advantages(v->advantages, &batch, &objective, err);
}

static double variance_of(const double *x, size_t n, double *mean) {
    double std;
    int equal;
    *mean = rein_mean(x, n, &std, &equal);
    return std * std;
}

static void measure(valuing *v) {
    rein_critic_step *step = v->step;
    const size_t n = v->n_trained;
    step->value_mean = step->return_mean = step->advantage_mean = step->advantage_std = step->explained_variance = NAN;
    if (!n) return;
    const double missed = variance_of(v->trained, n, &step->advantage_mean);
    const double all = variance_of(v->returns, n, &step->return_mean);
    step->value_mean = step->return_mean - step->advantage_mean;
    step->advantage_std = sqrt(missed);
    if (all > 0) step->explained_variance = 1 - missed / all;
}

static void finish(valuing *v) {
    rein_critic_step *step = v->step;
    for (size_t i = 0; i < v->packing.n_tokens; i++) {
        if (!v->packing.mask[i]) continue;
        v->trained[v->n_trained] = v->advantages[i];
        v->returns[v->n_trained++] = v->advantages[i] + v->values[i];
        step->returns[i] = (float)(v->advantages[i] + v->values[i]);
    }
    measure(v);
    if (v->o->whiten && v->n_trained) rein_whiten(v->trained, NULL, v->n_trained, 1e-8);
    for (size_t i = 0, k = 0; i < v->packing.n_tokens; i++)
        if (v->packing.mask[i]) step->advantages[i] = (float)v->trained[k++];
}

static rein_status value(valuing *v, rein_critic *c, const rein_groups *groups, rein_error *err) {
    rein_trainer *t = c->trainer;
    const rein_options *objective = v->o->objective;
    const size_t n = rein_groups_tokens(groups);
    const rein_packing_options how = {t->options.share_limit,
                                      t->options.no_sharing,
                                      {t->model, 0, v->o->mask_truncated},
                                      -1,
                                      objective->token_budget,
                                      objective->shape == REIN_SHAPE_BUDGET || objective->shape == REIN_SHAPE_TRUNCATE};
    v->step->values = malloc((n + 1) * sizeof *v->step->values);
    if (!v->step->values) return rein_fail(err, REIN_ENOMEM, "no memory for the values of %zu tokens", n);
    rein_status status = rein_trainer_scores(v->step->values, t, NULL, groups, 1, err);
    if (status) return status;
    rein_arena_reset(&t->arena);
    status = rein_pack_groups(&v->packing, groups, &how, &t->arena, err);
    if (!status) status = take_room(v, &t->arena, err);
    if (!status) status = estimate(v, err);
    if (!status) finish(v);
    return status;
}

rein_status rein_critic_value(rein_critic_step *step, rein_critic *c, const rein_groups *groups, const rein_critic_options *o,
                              rein_error *err) {
    valuing v = {.step = step, .o = o};
    *step = (rein_critic_step){0};
    const rein_status status = value(&v, c, groups, err);
    if (status) rein_critic_step_free(step);
    return status;
}
