/* trainer_fixture.h - tiny policies, trajectory groups made by hand, and what is expected of a pass over them, computed another way: every
 * history as a sequence of its own, the objective in f64. */
#ifndef REIN_TESTS_TRAINER_FIXTURE_H
#define REIN_TESTS_TRAINER_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tiny_model.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/random.h"
#include "train/made.h"

/* Checks that a call fails and that its message contains a text. */
#define REFUSED(call, wanted)                                                                          \
    do {                                                                                               \
        rein_error error_ = {0};                                                                       \
        const rein_status status_ = (call);                                                            \
        if (status_ == REIN_OK || !strstr(error_.message, (wanted)))                                   \
            fail_msg("status %d: \"%s\" does not say \"%s\"", (int)status_, error_.message, (wanted)); \
    } while (0)

static inline double number(void) { return (double)(random_bits() >> 11) * 0x1p-52 - 1; } /* ±1 */

/* ---- policies */
enum { TINY_VOCABULARY = 10 };

typedef struct subject {
    rein_model *model;
    rein_adapter *adapter; /* NULL: all weights */
    rein_policy p;
} subject;

/* The tiny models "a" and "b" of the folder; call once. */
static inline void make_models(void) {
    tiny_state = 1, tiny_model(&TINY_LLAMA, sub_folder("a"));
    tiny_state = 99, tiny_model(&TINY_LLAMA, sub_folder("b"));
}

/* Setup of a group of tests: a temporary folder with both models. */
static inline int make_folder_of_models(void **state) {
    const int status = make_folder(state);
    if (!status) make_models();
    return status;
}

static inline void change(subject *s, double by) {
    const size_t n = rein_parameter_count(s->model, s->adapter);
    rein_parameter *parameters = some(n, sizeof *parameters);
    float *gradient = floats(rein_parameter_floats(s->model, s->adapter));
    rein_parameters(parameters, s->model, s->adapter, gradient);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < parameters[i].size; j++) parameters[i].value[j] += (float)(by * number());
    OK(rein_parameters_changed(s->model, s->adapter, &error_));
    free(parameters), free(gradient);
}

static inline subject open_subject(const char *model, int full) {
    subject s = {0};
    const rein_lora_options lora = {.rank = 3, .alpha = 5, .seed = 4};
    const rein_model_options options = {.train = full};
    OK(rein_model_open(&s.model, in_folder(model), &options, &error_));
    if (!full) {
        OK(rein_adapter_new(&s.adapter, s.model, &lora, &error_));
        stream = 21, change(&s, 0.2); /* so that B is not 0 */
    }
    s.p = (rein_policy){s.model, s.adapter, 1};
    return s;
}

static inline void close_subject(subject *s) {
    rein_adapter_close(s->adapter);
    rein_model_close(s->model);
}

static inline rein_trainer *open_trainer(const subject *s, const rein_trainer_options *options) {
    rein_trainer *t;
    rein_trainer_options o = options ? *options : (rein_trainer_options){0};
    if (o.temperature == 0) o.temperature = s->p.temperature;
    OK(rein_trainer_open(&t, s->model, s->adapter, &o, &error_));
    return t;
}

/* A copy of everything that trains. */
static inline float *values_of(const subject *s) {
    const size_t n = rein_parameter_count(s->model, s->adapter), size = rein_parameter_floats(s->model, s->adapter);
    rein_parameter *parameters = some(n, sizeof *parameters);
    float *gradient = floats(size), *values = floats(size);
    rein_parameters(parameters, s->model, s->adapter, gradient);
    for (size_t i = 0; i < n; i++)
        memcpy(values + (parameters[i].gradient - gradient), parameters[i].value, parameters[i].size * sizeof *values);
    free(parameters), free(gradient);
    return values;
}

/* ---- groups */
static inline void add_history(rein_trajectory *t, const int32_t *prompt, size_t n_prompt, size_t n) {
    t->histories = realloc(t->histories, (t->n_histories + 1) * sizeof *t->histories);
    assert_non_null(t->histories);
    rein_history *h = &t->histories[t->n_histories++];
    *h = (rein_history){.n = n_prompt + n,
                        .ids = some(n_prompt + n, sizeof *h->ids),
                        .mask = some(n_prompt + n, 1),
                        .log_probs = floats(n_prompt + n)};
    for (size_t i = 0; i < h->n; i++) {
        h->ids[i] = i < n_prompt ? prompt[i] : (int32_t)below(TINY_VOCABULARY);
        h->mask[i] = i >= n_prompt;
        h->log_probs[i] = NAN;
    }
}

static inline rein_trajectory *group_of(rein_groups *groups, size_t n) {
    rein_group group = {.trajectories = some(n, sizeof *group.trajectories), .n = n};
    for (size_t i = 0; i < n; i++) group.trajectories[i] = (rein_trajectory){.policy_step = -1, .budget = -1};
    OK(rein_groups_append(groups, &group, &error_));
    return groups->groups[groups->n - 1].trajectories;
}

/* Groups of 2 to 5, prompts of 1 to 6 tokens, responses of 1 to 8. Of the first: a trajectory of two histories, one that was cut off, a
 * token in the middle that does not train, and one trajectory that does not train at all. */
static inline rein_groups make_groups(size_t n, uint64_t seed) {
    rein_groups groups = {0};
    stream = seed;
    for (size_t g = 0; g < n; g++) {
        int32_t prompt[6];
        const size_t n_prompt = 1 + below(6), samples = g ? 2 + below(4) : 5;
        for (size_t i = 0; i < n_prompt; i++) prompt[i] = (int32_t)below(TINY_VOCABULARY);
        rein_trajectory *t = group_of(&groups, samples);
        for (size_t s = 0; s < samples; s++) {
            add_history(&t[s], prompt, n_prompt, g == 0 && s == 3 ? 6 : 1 + below(8));
            t[s].reward = (double)below(5) / 4 + (s == 0);
        }
        if (g > 0) continue;
        add_history(&t[1], t[1].histories[0].ids, t[1].histories[0].n, 3);
        t[2].truncated = 1;
        t[3].histories[0].mask[n_prompt + 2] = 0;
        memset(t[4].histories[0].mask, 0, t[4].histories[0].n);
    }
    return groups;
}

/* A critic's values, where tokens train; nothing elsewhere. */
static inline void add_values(rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t k = 0; k < groups->groups[g].trajectories[t].n_histories; k++) {
                rein_history *h = &groups->groups[g].trajectories[t].histories[k];
                h->values = floats(h->n);
                for (size_t i = 0; i < h->n; i++) h->values[i] = h->mask[i] ? (float)number() : NAN;
            }
}

#define EACH_HISTORY(h, of)                                                              \
    for (size_t g_ = 0; g_ < (of)->n; g_++)                                              \
        for (size_t t_ = 0; t_ < (of)->groups[g_].n; t_++)                               \
            for (rein_history *h = (of)->groups[g_].trajectories[t_].histories,          \
                              *end_ = h + (of)->groups[g_].trajectories[t_].n_histories; \
                 h < end_; h++)

static inline size_t tokens_of(const rein_groups *groups) {
    size_t n = 0;
    EACH_HISTORY(h, groups) n += h->n;
    return n;
}

/* Log-probs and entropies (or NULL) of all tokens, each history alone; 0 where nothing trains. */
static inline void alone(float *log_probs, float *entropies, const rein_groups *groups, const rein_policy *policy) {
    rein_activations *activations;
    OK(rein_activations_open(&activations, &(rein_exec){.threads = 1}, &error_));
    EACH_HISTORY(h, groups) {
        const size_t offsets[2] = {0, h->n};
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        int any = 0;
        for (size_t i = 0; i < h->n; i++) any |= h->mask[i];
        memset(log_probs, 0, h->n * sizeof *log_probs);
        if (entropies) memset(entropies, 0, h->n * sizeof *entropies);
        if (any) OK(rein_forward(log_probs, entropies, activations, policy, &tokens, NULL, &error_));
        log_probs += h->n;
        if (entropies) entropies += h->n;
    }
    rein_activations_close(activations);
}

/* Writes down log-probs as a sampler would that is `drift` away from the policy. */
static inline void record(rein_groups *groups, const rein_policy *policy, double drift) {
    float *log_probs = floats(tokens_of(groups)), *at = log_probs;
    alone(log_probs, NULL, groups, policy);
    EACH_HISTORY(h, groups) {
        for (size_t i = 0; i < h->n; i++) {
            const double x = (double)at[i] + (drift > 0 ? drift * number() : 0);
            h->log_probs[i] = h->mask[i] ? (float)(x < 0 ? x : (double)at[i]) : NAN;
        }
        at += h->n;
    }
    free(log_probs);
}

/* ---- what is expected: the objective on the groups, in f64 */
typedef struct expected {
    size_t tokens, sequences;
    size_t *group_offsets, *sequence_offsets;
    uint8_t *mask;
    int64_t *lengths, *budgets;
    double *rewards, *log_probs, *old, *reference, *recorded, *entropies, *values, *dlog_probs, *dentropies, *advantages;
    rein_loss loss;
    int gae;
} expected;

static inline void free_expected(expected *e) {
    void *all[] = {e->group_offsets, e->sequence_offsets, e->mask,       e->lengths,    e->budgets,
                   e->rewards,       e->log_probs,        e->old,        e->reference,  e->recorded,
                   e->entropies,     e->values,           e->dlog_probs, e->dentropies, e->advantages};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

static inline void widen(double **to, size_t n, const float *from) {
    *to = some(n, sizeof **to);
    for (size_t i = 0; i < n; i++) (*to)[i] = (double)from[i];
}

static inline rein_batch batch_of(const expected *e, size_t n_groups) {
    return (rein_batch){.n_groups = n_groups,
                        .n_sequences = e->sequences,
                        .group_offsets = e->group_offsets,
                        .sequence_offsets = e->sequence_offsets,
                        .dtype = REIN_F64,
                        .mask = e->mask,
                        .log_probs = e->log_probs,
                        .old_log_probs = e->old,
                        .ref_log_probs = e->reference,
                        .sample_log_probs = e->recorded,
                        .entropies = e->entropies,
                        .values = e->gae ? e->values : NULL, /* else it is refused: it could not act */
                        .rewards = e->rewards,
                        .response_lengths = e->lengths,
                        .token_budgets = e->budgets};
}

static inline void put_sequences(expected *e, const rein_groups *groups, int mask_truncated) {
    size_t at = 0, sequence = 0;
    for (size_t g = 0; g < groups->n; g++) {
        for (size_t t = 0; t < groups->groups[g].n; t++, sequence++) {
            const rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            for (size_t h = 0; h < trajectory->n_histories; h++)
                for (size_t i = 0; i < trajectory->histories[h].n; i++, at++) {
                    const uint8_t trains = trajectory->histories[h].mask[i];
                    e->lengths[sequence] += trains;
                    e->mask[at] = trains && !(mask_truncated && trajectory->truncated);
                    e->recorded[at] = (double)trajectory->histories[h].log_probs[i];
                    e->values[at] = trajectory->histories[h].values ? (double)trajectory->histories[h].values[i] : 0;
                }
            e->sequence_offsets[sequence + 1] = at;
            e->rewards[sequence] = trajectory->reward;
            if (e->budgets) e->budgets[sequence] = trajectory->budget;
        }
        e->group_offsets[g + 1] = sequence;
    }
}

/* By the published formulas: old log-probs are the recorded ones; where there are none, or with a correction of mismatch, the policy's. */
static inline expected expect(const rein_groups *groups, const rein_policy *policy, const rein_policy *reference,
                              const rein_options *o, int mask_truncated) {
    expected e = {.tokens = tokens_of(groups), .gae = o->advantage == REIN_ADVANTAGE_GAE};
    float *log_probs = floats(e.tokens), *entropies = floats(e.tokens);
    for (size_t g = 0; g < groups->n; g++) e.sequences += groups->groups[g].n;
    e.group_offsets = some(groups->n + 1, sizeof(size_t)), e.sequence_offsets = some(e.sequences + 1, sizeof(size_t));
    e.mask = some(e.tokens, 1), e.lengths = some(e.sequences, sizeof(int64_t)), e.rewards = some(e.sequences, sizeof(double));
    if (groups->groups[0].trajectories[0].budget >= 0) e.budgets = some(e.sequences, sizeof(int64_t));
    double **arrays[] = {&e.old, &e.recorded, &e.values, &e.dlog_probs, &e.dentropies, &e.advantages};
    for (size_t i = 0; i < COUNT(arrays); i++) *arrays[i] = some(e.tokens, sizeof(double));
    put_sequences(&e, groups, mask_truncated);
    if (reference) alone(log_probs, NULL, groups, reference), widen(&e.reference, e.tokens, log_probs);
    alone(log_probs, entropies, groups, policy);
    widen(&e.log_probs, e.tokens, log_probs), widen(&e.entropies, e.tokens, entropies);
    for (size_t i = 0; i < e.tokens; i++)
        e.old[i] = o->mismatch == REIN_MISMATCH_NONE && !isnan(e.recorded[i]) ? e.recorded[i] : e.log_probs[i];
    const rein_batch batch = batch_of(&e, groups->n);
    OK(rein_policy_loss(&e.loss, e.dlog_probs, e.dentropies, e.advantages, &batch, o, NULL, &error_));
    free(log_probs), free(entropies);
    return e;
}

/* "preset=grpo epsilon=0.3" as options. */
static inline rein_options *options_of(const char *settings) {
    rein_options *o;
    OK(rein_options_new(&o, NULL, &error_));
    while (*settings) {
        char name[64], value[64];
        assert_int_equal(sscanf(settings, "%63[^=]=%63s", name, value), 2);
        OK(strcmp(name, "preset") == 0 ? rein_options_init(o, value, &error_) : rein_options_set(o, name, value, &error_));
        settings += strcspn(settings, " ");
        settings += strspn(settings, " ");
    }
    return kept(o);
}

#endif
