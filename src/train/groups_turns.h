/* groups_turns.h - messages of the OpenAI API, as a chat format takes them. Private. */
#ifndef REIN_TRAIN_GROUPS_TURNS_H
#define REIN_TRAIN_GROUPS_TURNS_H

#include "train/groups.h"

/* {0} is empty. The caller frees the texts. The rest is borrowed from the JSON. */
typedef struct rein_turn {
    const char *role;
    rein_text text;       /* the content, with thinking and calls of tools where the format has them */
    rein_text bare;       /* the same without thinking that the server took out of the content; empty: there was none */
    const char *plain;    /* the content alone */
    const json_t *choice; /* how it was sampled; NULL: it is context */
} rein_turn;

/* Reads a message or a Choice; `path` names it, and ends with a dot. */
rein_status rein_turn_read(rein_turn *turn, const rein_group_reader *reader, const json_t *object, const char *path);

/* Puts tools into a system message: the first of the conversation, or {0}, which becomes one. */
rein_status rein_turns_put_tools(rein_turn *system, const rein_group_reader *reader, const json_t *tools, rein_fields *in);

#endif
