/* generator.h - the struct of a generator, for generator.c (requests), generator_admit.c (samples, and when they begin) and
 * generator_step.c (a step). Private. */
#ifndef REIN_ROLLOUT_GENERATOR_H
#define REIN_ROLLOUT_GENERATOR_H

#include "model/activation_cache.h"
#include "model/decoder.h"
#include "prefix_cache.h"
#include "rein/rollout.h"
#include "text.h"

/* Defaults of rein_generator_options, and the most logits that are in memory at once. */
enum { REIN_MAX_ACTIVE = 256, REIN_MAX_PROMPT_TOKENS = 4096, REIN_MAX_LOGITS = 1 << 24 };

/* A request, until all its samples are finished, or until its failure is reported. */
typedef struct rein_generator_request {
    struct rein_generator_request *next;      /* in the list of those that wait, or that failed */
    struct rein_generator_request *step_next; /* in the list of those of which something begins in this step */
    size_t fresh, rank;                       /* samples that begin in this step; its place in that list */
    size_t number;                            /* as reported */
    size_t begun, open, left;                 /* samples that have begun; of those, not removed yet; of all, not finished */
    rein_request r;                           /* its pointers lead to the copies below */
    rein_policy policy;
    int32_t *prompt, *end_ids;
    char **stops;
    rein_keys *keys;         /* keys and values of the prompt; NULL: it has not begun */
    size_t n_keys, n_shared; /* blocks; of those, at the beginning, blocks of the prefix cache */
    size_t shared;           /* tokens of the shared blocks */
    size_t promised;         /* bytes that its own blocks may come to need, without those in the prefix cache */
    unsigned char *owned;    /* [n_keys] bit 1 << part: this part of the block is the request's, and not the prefix cache's */
    size_t known;            /* tokens that the prefix cache knows, but not all keys that are needed there; 0: none */
    rein_prefix *prefix;     /* held: the node of the last block that is in the prefix cache; or NULL */
    int unshared;            /* the prefix cache had no room for all of the prompt */
    size_t cached;           /* tokens whose keys were not computed */
    size_t computed, piece;  /* tokens of the prompt that earlier steps computed, and that this step does */
    size_t query, head;      /* in this step, of the piece, and its first row of the head */
    float *log_probs;        /* [n_prompt] with prompt_log_probs, or NULL */
    rein_choice *top;        /* [n_prompt][top_log_probs] of them */
    float *last;             /* [hidden] the normed last row of the prompt, for samples that begin later; or NULL */
    uint64_t activation_key; /* of its first sample in the activation cache; 0: nothing is cached */
    rein_error error;        /* code REIN_OK: it has not failed */
} rein_generator_request;

typedef struct rein_generator_sample {
    rein_generator_request *of;
    size_t index, n; /* index among the samples of its request; number of tokens so far */
    int32_t last;    /* the last token */
    int32_t *ids;    /* [n] with a prefix cache */
    size_t ids_capacity;
    rein_growing text;
    rein_keys *keys; /* those of the prompt, from its first token on, then its own */
    size_t n_keys, capacity;
    size_t behind;   /* blocks that are behind the window, or the prompt's */
    size_t row, top; /* in this step: the row of the head it is chosen from, and its index in tops */
    int finished;
} rein_generator_sample;

struct rein_generator {
    rein_policy policy;
    const rein_tokenizer *tokenizer;
    size_t max_active, max_prompt_tokens;
    size_t reserved, beside;       /* rein_generator_take_turns; reserved 0: requests are served one after another */
    size_t n_requests, unfinished; /* all that were added; those that have neither finished nor failed */
    rein_exec exec;
    rein_arena arena;      /* memory of a step */
    rein_key_store *store; /* blocks of keys and values */
    size_t window; /* keys of layers with a window that are kept before the next position, itself counted; SIZE_MAX / 2: all */
    rein_prefix_cache prefixes;   /* max_bytes 0: none */
    rein_memory *memory;          /* or NULL */
    size_t step_bytes;            /* charged to it for the arena */
    size_t promised, charged;     /* bytes of keys that running requests may need, and that are charged, with the prefix cache's */
    rein_activation_cache *cache; /* or NULL */
    rein_angles angles[REIN_ROPES];
    size_t n_angles;
    rein_generator_request *waiting, **waiting_end; /* before this step not all samples had begun; in the order of their turns */
    rein_generator_request
        *stepping; /* of those, with a piece of a prompt or samples that begin in this step: complete prompts first */
    rein_generator_request *failures;
    rein_generator_sample *samples; /* being sampled, in the order in which they began */
    size_t n_samples, samples_capacity;
    rein_sampled *events; /* [n_samples] of the last step */
    rein_choice *tops;
    size_t events_capacity, tops_capacity;
};

/* ---- generator.c */

/* Takes a request out of the lists of those that wait and of those that begin, if it is there. */
void rein_generator_take_out(rein_generator *generator, const rein_generator_request *request);

/* Ends a request that is waiting or at work, and frees it, or keeps it for its report if it failed. */
void rein_generator_end(rein_generator *generator, rein_generator_request *request);

/* Frees a request whose samples are all closed. */
void rein_generator_release(rein_generator *generator, rein_generator_request *request);

/* ---- generator_admit.c */

/* Removes the samples of a request, or with NULL those that are finished. */
void rein_generator_remove(rein_generator *generator, const rein_generator_request *of);

/* Decides which parts of prompts this step computes, and which samples begin: as many as there is room for. While nothing is at work, a
 * request for which there is no room fails. */
void rein_generator_admit(rein_generator *generator);

/* ---- generator_keys.c */

/* Bytes of so many parts of each kind; the most that a prompt of so many tokens may need, and one sample of a request. */
size_t rein_key_bytes(const rein_generator *generator, size_t all, size_t window);
size_t rein_prompt_bytes(const rein_generator *generator, size_t tokens);
size_t rein_sample_bytes(const rein_generator *generator, const rein_request *request);

/* Promises bytes of keys; 0: the account has no room for them now, not even if the prefix cache is emptied. */
int rein_generator_promise(rein_generator *generator, size_t bytes);

/* Lists the blocks of a prompt: those that match in the prefix cache, then its own. 0: there is no memory. */
int rein_generator_take_prompt(rein_generator *generator, rein_generator_request *request, const rein_prefix_match *match);

/* Bytes that cannot be given back while the request is there, without its samples. */
size_t rein_generator_held_bytes(const rein_generator *generator, const rein_generator_request *request);

/* Gives a part of a block back, if it is the request's. */
void rein_generator_drop_part(rein_generator *generator, rein_generator_request *request, size_t block, rein_key_part part,
                              int spoiled);

/* Gives back the keys that are behind the window of the next position of the prompt. */
void rein_generator_trim_prompt(rein_generator *generator, rein_generator_request *request);

/* Reserves the places of the keys that this step computes. Requests for which there is no memory fail. */
void rein_generator_reserve_keys(rein_generator *generator);

/* ---- generator_prefix.c */

/* Finds the keys of the beginning of a prompt in the prefix cache, and holds them. */
rein_prefix_match rein_generator_find_prefix(rein_generator *generator, rein_generator_request *request);

/* Puts blocks into the prefix cache: those of a prompt that is complete, and those of a sample that is finished. */
void rein_generator_share_prompt(rein_generator *generator, rein_generator_request *request);
void rein_generator_share_sample(rein_generator *generator, rein_generator_sample *sample);

/* Notes token n of a sample, for the prefix cache; 0: there is no memory. */
int rein_generator_note_token(const rein_generator *generator, rein_generator_sample *sample, int32_t id);

/* ---- generator_step.c */

/* Charges the account with the memory of the largest step. */
rein_status rein_generator_charge_step(rein_generator *generator, rein_error *err);

#endif
