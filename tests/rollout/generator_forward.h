/* generator_forward.h - what a generator sampled, computed once more by rein_forward for whole sequences: the same bits. */
#ifndef REIN_TESTS_ROLLOUT_GENERATOR_FORWARD_H
#define REIN_TESTS_ROLLOUT_GENERATOR_FORWARD_H

#include "rollout/generator_fixture.h"

static inline void assert_bits(const float *got, const float *wanted, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0)
            fail_msg("%s: token %zu was sampled with %a, forward gives %a", what, i, (double)got[i], (double)wanted[i]);
}

/* Each sample as a sequence of its own. */
static inline void check_flat(const job *j, const policy *p, rein_activations *activations) {
    for (size_t s = 0; s < j->r.samples; s++) {
        const response *r = &j->responses[s];
        const size_t n = j->r.n_prompt + r->n, offsets[2] = {0, n};
        int32_t *ids = some(n, sizeof *ids);
        float *log_probs = some(n, sizeof *log_probs);
        memcpy(ids, j->prompt, j->r.n_prompt * sizeof *ids);
        memcpy(ids + j->r.n_prompt, r->ids, r->n * sizeof *ids);
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = ids};
        OK(rein_forward(log_probs, NULL, activations, &p->p, &tokens, NULL, &error_));
        assert_bits(r->log_probs, log_probs + j->r.n_prompt, r->n, "a sequence of its own");
        free(ids), free(log_probs);
    }
}

/* All samples behind the prompt they share, kept for the backward pass, as a trainer does. */
static inline void check_tree(const job *j, const policy *p, rein_activations *activations) {
    size_t offsets[MOST_SAMPLES + 2] = {0, j->r.n_prompt}, n = j->r.n_prompt;
    int64_t parents[MOST_SAMPLES + 1] = {-1};
    int32_t *ids = some(n + MOST_SAMPLES * MOST_TOKENS, sizeof *ids);
    float *log_probs = some(n + MOST_SAMPLES * MOST_TOKENS, sizeof *log_probs);
    const rein_forward_options keep = {.keep = 1};
    memcpy(ids, j->prompt, n * sizeof *ids);
    for (size_t s = 0; s < j->r.samples; s++) {
        memcpy(ids + n, j->responses[s].ids, j->responses[s].n * sizeof *ids);
        n += j->responses[s].n, offsets[s + 2] = n, parents[s + 1] = 0;
    }
    const rein_tokens tokens = {.n = j->r.samples + 1, .offsets = offsets, .parents = parents, .ids = ids};
    OK(rein_forward(log_probs, NULL, activations, &p->p, &tokens, &keep, &error_));
    for (size_t s = 0; s < j->r.samples; s++)
        assert_bits(j->responses[s].log_probs, log_probs + offsets[s + 1], j->responses[s].n, "behind a shared prompt");
    free(ids), free(log_probs);
}

static inline void check_forward(job *const *jobs, size_t n, const policy *p, const rein_exec *exec) {
    rein_activations *activations;
    OK(rein_activations_open(&activations, exec, &error_));
    for (size_t i = 0; i < n; i++) {
        check_flat(jobs[i], p, activations);
        check_tree(jobs[i], p, activations);
    }
    rein_activations_close(activations);
}

#endif
