/* dialogue.h - a conversation that the model has over several turns, and the history of tokens that it becomes. Private; one thread at a time.
 *
 * What the model sampled stays in the history as the ids that it sampled. Before the next turn the whole conversation is rendered again, and only what
 * stands behind the last turn is encoded and appended, without training. Where the template writes an earlier turn in another way than the
 * model did (templates that drop thinking), the next turn begins a new history of the trajectory. */
#ifndef REIN_ROLLOUT_DIALOGUE_H
#define REIN_ROLLOUT_DIALOGUE_H

#include <jansson.h>

#include "base/json.h"
#include "model/tokenizer_parts.h"
#include "rein/rollout.h"

typedef struct rein_dialogue {
    rein_trajectory *trajectory; /* borrowed; its histories are made here */
    size_t history;              /* the number of the last one, from `turns` 1 on */
    size_t capacity;             /* tokens that it has room for */
    json_t *messages;            /* the conversation so far; owned, as is all below */
    json_t *tools;               /* or NULL */
    json_t *rewards;             /* of each turn, or NULL */
    rein_text before;            /* what the model saw before this turn, as text */
    rein_text wrote;             /* what it wrote in this turn */
    size_t turns;                /* that have ended */
    size_t tokens;               /* sampled in all turns */
    rein_finish finish;          /* of the last turn */
    int calls;                   /* it has tool calls */
} rein_dialogue;

void rein_dialogue_free(rein_dialogue *dialogue);

/* The history that the next token belongs to. */
rein_history *rein_dialogue_history(const rein_dialogue *dialogue);

/* Puts the ids before the next turn into the history. The last `more` messages are those since the last turn. *room is 0 if the model has no
 * place left for them: then nothing is appended. */
rein_status rein_dialogue_prompt(int *room, rein_dialogue *dialogue, const rein_rollout_options *options, size_t more,
                                 rein_error *err);

/* Appends a token that was sampled; a finish other than NONE ends the turn (rein_dialogue_turn). */
rein_status rein_dialogue_put(rein_dialogue *dialogue, const rein_sampled *sampled, rein_error *err);

/* Ends the turn: makes what the model wrote in it a message of OpenAI's API, and appends it to the messages. Tool calls get ids from `id`.
 * *message is borrowed from the messages. */
rein_status rein_dialogue_turn(const json_t **message, rein_dialogue *dialogue, const char *id, rein_error *err);

/* Makes the conversation, its tools and the rewards of the turns the `json` of the trajectory, which its file has. */
rein_status rein_dialogue_keep(rein_dialogue *dialogue, rein_error *err);

/* The first n messages and the tools as an example: what was asked. The caller frees it. */
rein_status rein_dialogue_example(rein_example *example, const rein_dialogue *dialogue, size_t n, rein_error *err);

#endif
