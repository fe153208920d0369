/* sft.h - what the readers of supervised examples and of pairs share: lines of JSON, or one array, each object of which becomes a group.
 * Private. */
#ifndef REIN_TRAIN_SFT_H
#define REIN_TRAIN_SFT_H

#include "train/groups.h"

typedef struct rein_sft_reader {
    rein_group_reader group;
    int32_t end_id;    /* -1: none */
    int64_t positions; /* of the model; 0: any number */
    int scored;        /* 1: of pairs: for a reward model (reward_pairs.c) */
    /* Appends the group of one object. */
    rein_status (*read)(rein_groups *groups, struct rein_sft_reader *reader, const json_t *root);
    const char *form; /* of an object, for messages */
} rein_sft_reader;

/* Reads the groups of a text, and frees what the reader keeps. On failure the groups are as they were. */
rein_status rein_sft_read_text(rein_groups *groups, rein_sft_reader *reader, const char *text, size_t length, const char *name,
                               const rein_chat *chat);

/* Reads one example: messages, prompt with completion, or ids. The caller frees *trajectory whatever the status. */
rein_status rein_sft_read_trajectory(rein_trajectory *trajectory, rein_sft_reader *reader, const json_t *root);

/* Answer k of a pair for a reward model: prompt and answer as `example` has them (messages, or prompt and completion) become one history, which
 * is scored at its last token. `name` is that of the answer. */
rein_status rein_reward_read_answer(rein_trajectory *trajectory, rein_sft_reader *reader, const json_t *example, const char *name,
                                    rein_fields *in);

/* "margin" of a line: a metric of the trajectory, if it is there. */
rein_status rein_reward_read_margin(rein_trajectory *trajectory, rein_fields *in);

#endif
