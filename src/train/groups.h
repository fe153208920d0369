/* groups.h - what the readers and writers of trajectory groups share. Private.
 *
 * A line is parsed (groups_read.c); a trajectory in exact form is copied (groups_exact.c); one of messages is rendered, cut at the borders of
 * what was sampled, and encoded (groups_art.c), where a Choice has the sampled tokens (groups_choice.c) and tools become text
 * (groups_tools.c). A template outside the known formats is run (groups_template.c). */
#ifndef REIN_TRAIN_GROUPS_H
#define REIN_TRAIN_GROUPS_H

#include <jansson.h>

#include "base/json.h"
#include "rein/train.h"
#include "rollout/trajectory.h"

enum { REIN_GROUP_PATH = 160 }; /* bytes of a JSON path in a message */

/* ---- groups_read.c */

/* What reading a file needs. Messages name the JSON path; the file and line are added once, where the lines are read. */
typedef struct rein_group_reader {
    const rein_tokenizer *tokenizer;
    rein_chat chat;
    int parsed;    /* 1: the tokenizer's template is outside the known formats, and is run */
    int given;     /* 1: the caller chose the chat format */
    int ready;     /* chat and all below are known */
    char *begin;   /* the begin token as text, or NULL */
    rein_text end; /* what ends an assistant's turn, and its ids */
    rein_ids end_ids;
    rein_error *err;
} rein_group_reader;

/* A JSON path for messages, cut when it is too long. */
void rein_group_path(char to[REIN_GROUP_PATH], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An object of the file; `path` ends with a dot, or is empty. */
rein_fields rein_group_fields(const rein_group_reader *reader, const json_t *object, const char *path);

/* The object itself is wrong: its place is the field of the error. Nothing if something failed before. Returns the status. */
rein_status rein_group_wrong(rein_fields *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "KEY[index] is VALUE: NEED", or "KEY is VALUE: NEED" with index -1: an entry of a list of the object. Returns the status. */
rein_status rein_group_wrong_at(rein_fields *in, const char *key, int64_t index, const json_t *value, const char *need);

/* The texts of `key` cannot be read because there is no tokenizer: that is the field of the error. Returns the status. */
rein_status rein_group_no_tokenizer(rein_fields *in, const char *key);

/* The list under `key`, also where it is JSON inside of a text, as in rows of ART's Parquet files; a reference of the caller's. NULL when it
 * is absent, or wrong (in->status). */
json_t *rein_group_list(rein_fields *in, const char *key);

/* A log-probability (null: NaN), as it is recorded; index as above. */
float rein_group_log_prob(rein_fields *in, const char *key, int64_t index, const json_t *value);

/* ---- groups_exact.c: 1 if an object has token ids; appends its history */
int rein_exact_has(const json_t *object);
rein_status rein_exact_read(rein_trajectory *trajectory, const rein_group_reader *reader, const json_t *object, const char *path);

/* ---- groups_art.c: 1 if an object has messages; appends one history or more */
int rein_art_has(const json_t *object);
rein_status rein_art_read(rein_trajectory *trajectory, rein_group_reader *reader, const json_t *object, const char *path);

/* What rein_art_read keeps in the reader for the next one. */
void rein_group_reader_free(rein_group_reader *reader);

/* ---- groups_template.c: conversations by the tokenizer's own template */

/* Finds what ends an assistant's turn: appends its text to reader->end, its ids to reader->end_ids. */
rein_status rein_group_find_end(rein_group_reader *reader);

/* Renders the first n of the messages, as they were for the server that sampled the next one if `generation`. `rendered` is {0}. */
rein_status rein_group_render(rein_rendered *rendered, const rein_group_reader *reader, const rein_conversation *conversation,
                              size_t n, int generation);

/* Fills `written`, which is {0}, with what message n wrote, as the template writes it after `prompt`, without the end of the turn. Where the
 * template marks the model's text ({% generation %}), the prompt becomes what stands before that. The caller frees it whatever the status. */
rein_status rein_group_written(rein_rendered *written, rein_rendered *prompt, const rein_group_reader *reader,
                               const rein_conversation *conversation, size_t n);

/* ---- groups_choice.c: what a policy wrote. {0} is nothing. */
typedef struct rein_written {
    rein_ids ids;
    float *log_probs; /* [ids.count], or NULL: not known */
    rein_text text;   /* of the ids */
    int truncated;
} rein_written;
void rein_written_free(rein_written *sampled);

/* `choice` is the Choice, or a message that is marked as trainable; `written` is its content with everything that stands in the context of
 * later turns, `plain` the content alone. Special tokens outside of the literals of `written` are special. */
rein_status rein_choice_read(rein_written *sampled, const rein_group_reader *reader, const json_t *choice, const char *path,
                             const rein_rendered *written, const char *plain);

/* 1 if the Choice has token ids. */
int rein_choice_has_ids(const json_t *choice);

/* ---- groups_tools.c: tools as the templates of qwen2.5 and qwen3 write them */
int rein_chat_has_tools(const rein_chat *chat);

/* Appends the text of a list of tools to a system message. */
rein_status rein_tools_put(rein_text *text, const json_t *tools, rein_error *err);

/* Appends an assistant's calls; `follows` if they follow a content. */
rein_status rein_tool_calls_put(rein_text *text, int follows, const rein_group_reader *reader, const json_t *calls,
                                const char *path);

/* ---- groups_more.c: what a trajectory is written with besides its tokens */

/* The object that a group or a trajectory was read with; NULL if `json` is. The caller's reference. */
rein_status rein_kept_parse(json_t **kept, const char *json, rein_error *err);

/* Where the response of a history begins: at the first token that trains, or has a value (groups_write.c). */
size_t rein_prompt_length(const rein_history *history);

/* Appends its fields, but for those named in `except`, which ends with NULL. */
void rein_kept_put(rein_text *text, const json_t *kept, const char *const *except);

/* The same with the current metrics; then metadata, where the example is known, and advantages, where there are any. */
rein_status rein_more_put(rein_text *text, const rein_trajectory *trajectory, const json_t *kept, const char *const *except,
                          const rein_example *example, rein_error *err);

/* ---- groups_write.c: appends a group as a line, its newline included; g is its index, for messages */
rein_status rein_group_put(rein_text *text, const rein_group *group, size_t g, rein_groups_form form, rein_error *err);

#endif
