/* reward_judges.c - the judges that are built in. A new one is a function and a row. */
#include <stdlib.h>
#include <string.h>

#include "base/show.h"
#include "base/text.h"
#include "episodes.h"
#include "reward.h"
#include "reward_model.h"

enum { MOST_TOKENS = 1000000000 };

int rein_same_text(const char *a, size_t a_length, const char *b, size_t b_length) {
    rein_trim(&a, &a_length);
    rein_trim(&b, &b_length);
    return a_length == b_length && !memcmp(a, b, a_length);
}

rein_status rein_judge_answer(const char **answer, const rein_response *response, rein_error *err) {
    *answer = response->example->answer;
    return *answer ? REIN_OK : rein_fail(err, REIN_EINVAL, "the example has no answer to compare with");
}

/* ------------------------------------------------------------------------------------------------------------------------- task */

static rein_status open_task(rein_judge *judge, const char *argument, rein_error *err) {
    (void)argument;
    if (!judge->task) return rein_fail(err, REIN_EINVAL, "there is no task here");
    if (rein_task_verifies(judge->task)) return REIN_OK;
    char shown[100];
    const char *name = rein_task_name(judge->task);
    return rein_fail(err, REIN_EINVAL, "%s has no verifier of its own: exact, number, regex:PATTERN or a program",
                     rein_show_short(shown, sizeof shown, name, strlen(name)));
}

static rein_status task(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err) {
    (void)err;
    if (rein_task_environment(judge->task)) return *reward = response->earned, REIN_OK;
    *reward = rein_task_verify(judge->task, response->example, response->text, response->length);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------- exact and number */

static rein_status exact(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err) {
    const char *answer;
    (void)judge;
    const rein_status status = rein_judge_answer(&answer, response, err);
    if (!status) *reward = rein_same_text(response->text, response->length, answer, strlen(answer));
    return status;
}

static rein_status number(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err) {
    const char *answer;
    char shown[100];
    rein_decimal wanted, found;
    (void)judge;
    const rein_status status = rein_judge_answer(&answer, response, err);
    if (status) return status;
    const rein_last last = rein_decimal_last(&wanted, answer, strlen(answer));
    rein_show_short(shown, sizeof shown, answer, strlen(answer));
    if (last == REIN_LAST_NONE) return rein_fail(err, REIN_EINVAL, "the answer \"%s\" has no number in it", shown);
    if (last == REIN_LAST_FRACTION) return rein_fail(err, REIN_EINVAL, "the answer \"%s\" ends in a fraction, not a number", shown);
    *reward =
        rein_decimal_last(&found, response->text, response->length) == REIN_LAST_NUMBER && rein_decimal_equal(&found, &wanted);
    return REIN_OK;
}

/* ----------------------------------------------------------------------------------------------------------------------- length */

static rein_status open_length(rein_judge *judge, const char *argument, rein_error *err) {
    const size_t digits = strspn(argument, "0123456789");
    const unsigned long n = digits && digits < 11 && !argument[digits] ? strtoul(argument, NULL, 10) : 0;
    if (n < 1 || n > MOST_TOKENS)
        return rein_fail(err, REIN_EINVAL, "a whole number of tokens from 1 to %d is needed", MOST_TOKENS);
    size_t *tokens = judge->state = malloc(sizeof *tokens);
    if (!tokens) return rein_fail(err, REIN_ENOMEM, "no memory for a judge");
    *tokens = n;
    return REIN_OK;
}

static void close_length(rein_judge *judge) { free(judge->state); }

/* 1 up to N, (2N − tokens)/N up to 2N, then 0. */
static rein_status length(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err) {
    const size_t n = *(const size_t *)judge->state, tokens = response->tokens;
    (void)err;
    *reward = tokens <= n ? 1 : tokens >= 2 * n ? 0 : (double)(2 * n - tokens) / (double)n;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ table */

static const rein_judge_kind kinds[] = {
    {.name = "task", .usage = "task", .open = open_task, .give = task},
    {.name = "exact", .usage = "exact", .give = exact},
    {.name = "number", .usage = "number", .give = number},
    {"regex", "regex:PATTERN", 1, rein_judge_regex_open, rein_judge_regex_close, .give = rein_judge_regex},
    {"length", "length:N", 1, open_length, close_length, .give = length},
    {"model", "model:DIR", 1, rein_judge_model_open, rein_judge_model_close, .give_all = rein_judge_model_give,
     .check = rein_judge_model_check, .find_name = rein_judge_model_name},
};

const rein_judge_kind *rein_judge_kind_at(size_t i) { return i < sizeof kinds / sizeof *kinds ? &kinds[i] : NULL; }
