/* rollout.h - sampling from a policy: any number of requests at a time, entering and leaving as they please.
 *
 * Boundary: token ids in, tokens with their log-probabilities out, one step at a time; text where a tokenizer is given.
 *
 * The log-probability of a sampled token has the bits that rein_forward computes for it. Which token is sampled depends on the policy, the
 * prompt and the address (seed, step, prompt, sample, position) alone, never on what else is being sampled. */
#ifndef REIN_ROLLOUT_H
#define REIN_ROLLOUT_H

#include "rein/model.h"
#include "rein/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How tokens are chosen and when a response ends. Zero is literal: rein_sampling_plain() is the policy itself. The temperature is the
 * policy's. With top_k, top_p or min_p the sampler is not the policy; they act in this order, each on what the one before has left. */
typedef struct rein_sampling {
    int greedy;             /* the most probable token, of equals the first */
    int64_t top_k;          /* only the k most probable; 0: all */
    double top_p;           /* only the most probable whose sum reaches it, 0 < top_p <= 1; 1: all */
    double min_p;           /* only those with at least this share of the greatest probability, 0 <= min_p < 1; 0: all */
    size_t max_tokens;      /* 1 or more */
    const int32_t *end_ids; /* tokens that end a response, and belong to it */
    size_t n_end_ids;
    const char *const *stops; /* texts that end a response wherever they begin; they need a tokenizer */
    size_t n_stops;
    size_t top_log_probs; /* how many of the most probable tokens are reported with each */
    uint64_t seed;
} rein_sampling;

/* Every token of the policy, at most 256 of them, no end but that. Thread-safe. */
REIN_API rein_sampling rein_sampling_plain(void);

typedef struct rein_request {
    const int32_t *prompt; /* [n_prompt], at least one: the begin token, if nothing else */
    size_t n_prompt;
    size_t
        samples; /* responses, 1 to 1048576; the prompt is computed once for all, and they enter together, more than max_active too */
    uint64_t step, prompt_index; /* the address of its randomness */
    rein_sampling sampling;
} rein_request;

typedef struct rein_generator rein_generator;

typedef struct rein_generator_options {
    size_t max_active; /* samples at work at a time; 0: 256. The others wait */
    rein_exec exec;
} rein_generator_options;

/* The policy's model and adapter, and the tokenizer (NULL: no texts), must outlive the generator. options may be NULL: {0}. The caller
 * closes *generator; it is NULL on failure. One thread at a time uses a generator. */
REIN_API rein_status rein_generator_open(rein_generator **generator, const rein_policy *policy, const rein_tokenizer *tokenizer,
                                         const rein_generator_options *options, rein_error *err);

/* NULL is fine. What was not finished is lost. */
REIN_API void rein_generator_close(rein_generator *generator);

/* Adds a request; everything is copied. *number counts requests from 0. */
REIN_API rein_status rein_generator_add(size_t *number, rein_generator *generator, const rein_request *request, rein_error *err);

typedef enum rein_finish {
    REIN_GOES_ON = 0,
    REIN_ENDED = 1,   /* by one of end_ids */
    REIN_STOPPED = 2, /* by one of stops */
    REIN_CUT = 3,     /* at max_tokens */
    REIN_FULL = 4     /* at the model's last position */
} rein_finish;

typedef struct rein_choice {
    int32_t id;
    float log_prob;
} rein_choice;

/* A token that was sampled. Pointers are good until the next step. */
typedef struct rein_sampled {
    size_t request, sample; /* the request's number, and which of its samples */
    size_t position;        /* of the token in the response, from 0 */
    int32_t id;
    float log_prob;         /* of the policy, bit for bit what training computes */
    float sampler_log_prob; /* of the sampler: the same without top_k, top_p, min_p; 0 when greedy */
    const rein_choice *top; /* [n_top], the most probable tokens of the policy, in order */
    size_t n_top;
    const char *text; /* what is certain of the response's text now and was not before; a stop is not part of it */
    size_t length;
    rein_finish finish;
} rein_sampled;

/* The next token of every sample that is at work; *n is 0 when there is none. Prompts that enter are computed with them. After a failure
 * the generator can only be closed. */
REIN_API rein_status rein_generator_step(const rein_sampled **sampled, size_t *n, rein_generator *generator, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
