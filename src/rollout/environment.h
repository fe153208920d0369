/* environment.h - a program in which episodes are played: lines of JSON in both directions. Private; one thread at a time.
 *
 *     rein                                                                        the program
 *     {"event": "describe"}                                                       {"train": N or null, "held_out": N or null}
 *     {"episode": E, "event": "reset", "split": S, "index": I, "seed": N}         {"episode": E, "messages": [...], "tools": [...]}
 *     {"episode": E, "event": "step", "message": {...}}                           {"episode": E, "messages": [...], "reward": R, "done": B}
 *     {"episode": E, "event": "end", "reason": "turns"|"tokens"|"context"}        {"episode": E, "reward": R}
 *
 * Many episodes are open at a time, each with at most one request that waits for its answer. Answers come in any order. */
#ifndef REIN_ROLLOUT_ENVIRONMENT_H
#define REIN_ROLLOUT_ENVIRONMENT_H

#include <jansson.h>

#include "base/json.h"
#include "rein/rollout.h"

typedef struct rein_environment rein_environment;

typedef enum rein_event { REIN_EVENT_RESET, REIN_EVENT_STEP, REIN_EVENT_END } rein_event;

/* An answer. The caller frees it; {0} is empty. */
typedef struct rein_environment_answer {
    size_t place; /* of its episode, as the caller numbered it */
    rein_event event;
    json_t *messages; /* what the model sees next, as a template reads them; NULL: there are none */
    json_t *tools;    /* of a reset; NULL: none */
    double reward;    /* of a step or an end */
    int done;         /* of a step: the episode has ended */
} rein_environment_answer;
void rein_environment_answer_free(rein_environment_answer *answer);

/* Reads the answer to an event, one line without its newline; the place is 0. REIN_EIO: it is none. Thread-safe. */
rein_status rein_environment_read(rein_environment_answer *answer, rein_event event, const char *line, size_t length,
                                  rein_error *err);

/* Starts the program and asks how many episodes it has. The caller closes *environment; NULL on failure. */
rein_status rein_environment_open(rein_environment **environment, const char *command, const rein_task_options *options,
                                  rein_error *err);
void rein_environment_close(rein_environment *environment); /* NULL is fine */

/* Different episodes of a split; SIZE_MAX: endless. */
size_t rein_environment_size(const rein_environment *environment, rein_split split);

/* Begins an episode; `place` names it in the calls below, and comes back with its answers. Episodes of the same split and index begin alike.
 * REIN_END: there is none of this index. */
rein_status rein_environment_reset(rein_environment *environment, size_t place, rein_split split, uint64_t index, rein_error *err);

/* What an episode begins with, as an example with messages and tools: an episode is begun and ended. */
rein_status rein_environment_example(rein_example *example, rein_environment *environment, rein_split split, uint64_t index,
                                     rein_error *err);

/* Sends what the model wrote, or ends an episode that the program has not ended. */
rein_status rein_environment_step(rein_environment *environment, size_t place, const json_t *message, rein_error *err);
rein_status rein_environment_end(rein_environment *environment, size_t place, const char *reason, rein_error *err);

/* Takes the next answer. *found is 0 if none is there and `wait` is 0, or if nothing was asked. A program that ends, is too slow or answers
 * wrongly is an error that names the episode. After any error the environment can only be closed. */
rein_status rein_environment_answer_next(int *found, rein_environment_answer *answer, rein_environment *environment, int wait,
                                         rein_error *err);

/* Forgets all episodes: their answers, which may still come, are dropped. */
void rein_environment_abandon(rein_environment *environment);

#endif
