/* reward.h - inside of judges, which are rows of a table or programs. Private. One thread at a time. */
#ifndef REIN_ROLLOUT_REWARD_H
#define REIN_ROLLOUT_REWARD_H

#include <jansson.h>

#include "rein/rollout.h"

/* ---- numbers in a text (reward_number.c). Pure and thread-safe. */

typedef struct rein_decimal {
    const char *digits; /* [length] digits, with a point and commas among them; then the exponent, if there is one */
    size_t length;
    int negative;
} rein_decimal;

/* The number that text [length] begins with; its bytes, 0 if it begins with none. commas: thousands may be set apart by them. */
size_t rein_decimal_read(rein_decimal *number, const char *text, size_t length, int commas);

/* The last number of a text. A number directly behind a letter or _ is part of a name (x2, H2O), one behind 3/ of a fraction. */
typedef enum rein_last { REIN_LAST_NONE = 0, REIN_LAST_NUMBER, REIN_LAST_FRACTION } rein_last;
rein_last rein_decimal_last(rein_decimal *number, const char *text, size_t length);

/* Whether both are the same value, to the last digit: 1,234.50 and 1234.5 are. */
int rein_decimal_equal(const rein_decimal *a, const rein_decimal *b);

/* The nearest double, whatever the locale; infinite beyond its range, NaN if there are more than 300 digits. */
double rein_decimal_value(const rein_decimal *number);

/* ---- judges that are built in (reward_judges.c) */

typedef struct rein_judge_program rein_judge_program;
typedef struct rein_judge_kind rein_judge_kind;

enum { REIN_JUDGE_NAME = 48 };

typedef struct rein_judge {
    /* One of the three. */
    const rein_judge_kind *kind; /* a built-in judge */
    const rein_reward_function *function;
    rein_judge_program *program;
    char name[REIN_JUDGE_NAME]; /* unique */
    double weight;
    const rein_task *task;
    void *state;                        /* of its kind, which opens and closes it; or NULL */
    const rein_reward_options *options; /* while it is opened */
} rein_judge;

/* A built-in judge: one row of the table. */
struct rein_judge_kind {
    const char *name, *usage; /* "regex", "regex:PATTERN" */
    int has_argument;         /* 1: an argument must follow a colon; 0: none may */
    /* NULL: there is nothing to open. The message says what is wrong with the argument. */
    rein_status (*open)(rein_judge *judge, const char *argument, rein_error *err);
    /* NULL: there is nothing to close. Called after a failed open, too: state may be NULL. */
    void (*close)(rein_judge *judge);
    /* One completion; the message has no place yet. NULL: give_all does it. */
    rein_status (*give)(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err);
    /* What is better done for all completions together, and what it needs of an example; the message has its place. */
    rein_status (*give_all)(double *rewards, const rein_judge *judge, const rein_response *responses, size_t n, rein_error *err);
    rein_status (*check)(const rein_judge *judge, const rein_example *example, rein_error *err);
    /* The part of the argument that names the judge, and its length. NULL: the judge has the name of its row. */
    size_t (*find_name)(const char **name, const char *argument);
};

/* Row i, or NULL past the last. */
const rein_judge_kind *rein_judge_kind_at(size_t i);

/* The answer of the response's example; without one REIN_EINVAL. */
rein_status rein_judge_answer(const char **answer, const rein_response *response, rein_error *err);

/* Whether two texts are the same but for blanks around them. */
int rein_same_text(const char *a, size_t a_length, const char *b, size_t b_length);

/* ---- regular expressions (reward_regex.c) */
rein_status rein_judge_regex_open(rein_judge *judge, const char *argument, rein_error *err);
rein_status rein_judge_regex(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err);
void rein_judge_regex_close(rein_judge *judge);

/* Whether rein_reward_open takes spec [length] for a program: it names no built-in judge, and has a blank or a slash in it or begins with
 * "group:". Thread-safe. */
int rein_judge_is_program(const char *spec, size_t length);

/* Whether every built-in judge can judge completions of the example: it has the answer that they need (reward.c). */
rein_status rein_reward_check(const rein_reward *reward, const rein_example *example, rein_error *err);

/* REIN_EINVAL if a program cannot be started: it ended before anything was asked. */
rein_status rein_reward_check_programs(rein_reward *reward, rein_error *err);

/* ---- places in messages (reward.c) */
enum { REIN_REWARD_PLACE = 200 };

/* NAME: response 3 of 8 (prompt "What is…"). `what` is "response" or "group"; number counts from 0. Returns `to`. */
const char *rein_reward_place(char to[REIN_REWARD_PLACE], const char *name, const char *what, size_t number, size_t of,
                              const rein_example *example);

/* ---- lines of the protocol (reward_line.c). A program judges items: responses, or whole groups of them. */

/* The request for responses [n], which are one item; for the caller to free. whole_group: in the form for groups. REIN_EINVAL: a text is
 * not UTF-8. */
rein_status rein_request_line(char **line, size_t id, const rein_response *responses, size_t n, int whole_group, rein_error *err);

typedef struct rein_answer_line {
    const char *line; /* [length] without blanks around it; borrowed, for messages */
    size_t length;
    json_t *object; /* NULL: a plain number */
    int64_t id;     /* -1: the answer has none */
    double plain;
} rein_answer_line;

/* Reads an answer before its request is known; the caller frees it. REIN_EIO: the line is not an answer. */
rein_status rein_answer_read(rein_answer_line *answer, const char *line, size_t length, rein_error *err);
void rein_answer_free(rein_answer_line *answer);

/* Its rewards [n], all of them finite numbers; nothing is written on failure. */
rein_status rein_answer_rewards(double *rewards, const rein_answer_line *answer, size_t n, int whole_group, rein_error *err);

/* ---- programs (reward_program.c) */

typedef struct rein_judge_program_options {
    const char *name, *command; /* the name must outlive the program, the command is copied */
    int whole_groups;
    double timeout;
    size_t restarts;
    const char *directory; /* where it starts; NULL: in the current directory. It is copied */
} rein_judge_program_options;

/* The caller closes *program; NULL on failure. */
rein_status rein_judge_program_open(rein_judge_program **program, const rein_judge_program_options *options, rein_error *err);
void rein_judge_program_close(rein_judge_program *program); /* NULL is fine */

/* REIN_EINVAL if it ended within half a second of its start. */
rein_status rein_judge_program_check(rein_judge_program *program, rein_error *err);

/* Asks for all responses, which must stay until they are collected. After a failure of either it can only be closed. */
rein_status rein_judge_program_ask(rein_judge_program *program, const rein_response *responses, size_t n, rein_error *err);
rein_status rein_judge_program_collect(double *rewards, rein_judge_program *program, rein_error *err);

/* Appends the log since the last call, each line with the name of the judge before it; as much as there is memory for. */
void rein_judge_program_log(rein_text *text, rein_judge_program *program);

#endif
