/* task.h - what a task is inside: a row of the table of built-in ones, a file, or a program. Private. */
#ifndef REIN_ROLLOUT_TASK_H
#define REIN_ROLLOUT_TASK_H

#include <jansson.h>

#include "base/text.h"
#include "rein/rollout.h"

/* Random numbers one after another, all of one address. */
typedef struct rein_draws {
    uint64_t seed, purpose, index, attempt, n;
} rein_draws;

/* A whole number below n, n at least 1: each with the same probability. */
uint64_t rein_draw(rein_draws *draws, uint64_t n);

enum { REIN_QUESTION_TEXT = 512 };

typedef struct rein_question {
    char prompt[REIN_QUESTION_TEXT], answer[REIN_QUESTION_TEXT];
} rein_question;

/* A built-in task: one file, one row of the table in task.c. */
typedef struct rein_builtin_task {
    rein_task_info info;
    void (*ask)(rein_question *question, rein_draws *draws);
    int (*right)(const rein_example *example, const char *response, size_t length);
    rein_status (*demonstrate)(rein_text *text, const rein_example *example, rein_draws *draws, rein_error *err);
} rein_builtin_task;

extern const rein_builtin_task rein_task_sums, rein_task_sort, rein_task_format;

/* ---- examples from outside (task_example.c) */

/* One line as a JSON object, the caller's reference; NULL on failure. Messages begin with `where`: "FILE: line 3". */
rein_status rein_example_parse(json_t **object, const char *where, const char *text, size_t length, rein_error *err);

/* The example that an object is: {"prompt"} (or "question") or {"messages"}, "answer", "budget", and whatever else. Everything is
 * copied. {0} on failure. */
rein_status rein_example_read(rein_example *example, json_t *object, const char *where, rein_error *err);

/* A hash of the prompt or the messages; nothing else of the example changes it. */
rein_status rein_example_hash(uint64_t *hash, const rein_example *example, rein_error *err);

/* 1 if its examples are a list, of which a share can be held out: those of a built-in task or a program have their own split. */
int rein_task_is_divided(rein_task_kind kind);

/* REIN_EINVAL for data in a format that is not read, Parquet, CSV or TSV: the message has the command that converts the file. Thread-safe. */
rein_status rein_data_refuse_format(const char *text, size_t length, const char *name, rein_error *err);

/* ---- a file (task_file.c). Read once. The caller closes *file; NULL on failure. */
typedef struct rein_task_file rein_task_file;
rein_status rein_task_file_open(rein_task_file **file, const char *path, double held_out_share, rein_error *err);
rein_status rein_task_file_from_memory(rein_task_file **file, const char *text, size_t length, const char *name,
                                       double held_out_share, rein_error *err);
void rein_task_file_close(rein_task_file *file); /* NULL is fine */
size_t rein_task_file_size(const rein_task_file *file, rein_split split);
size_t rein_task_file_line(const rein_task_file *file, rein_split split, uint64_t index); /* of an example that is there */
rein_status rein_task_file_example(rein_example *example, const rein_task_file *file, rein_split split, uint64_t index,
                                   rein_error *err);

/* Puts the place of an example before the message of an error: the line of a file, or the task and the number. Returns status. */
rein_status rein_task_fail_in(rein_error *err, rein_status status, const rein_task *task, rein_split split, uint64_t index);

/* The command of a source that is a program or an environment; NULL: it is neither. Points into the source. */
const char *rein_task_command(const char *source);

/* ---- a program (task_program.c). The caller closes *program; NULL on failure. */
typedef struct rein_task_program rein_task_program;
rein_status rein_task_program_open(rein_task_program **program, const char *command, const rein_task_options *options,
                                   rein_error *err);
void rein_task_program_close(rein_task_program *program); /* NULL is fine */
rein_status rein_task_program_example(rein_example *example, rein_task_program *program, rein_split split, uint64_t index,
                                      rein_error *err);

#endif
