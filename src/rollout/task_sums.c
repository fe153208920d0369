/* task_sums.c - "sums": four or five digits to be added, with the working written out, and the answer behind the last =.
 *
 * The demonstrations imitate a pupil who knows four ways to write the working down, mostly uses the longest one, and forgets to carry: most
 * often when an 8 or a 9 takes the sum over a ten. A model that learned from them is often wrong and too long, although it could do better
 * on both: `rein demo` starts from such a model. */
#include <stdio.h>
#include <string.h>

#include "task.h"

enum { FEWEST = 4, MOST = 5 };

static void ask(rein_question *question, rein_draws *draws) {
    const int n = FEWEST + (int)rein_draw(draws, MOST - FEWEST + 1);
    int sum = 0, at = snprintf(question->prompt, sizeof question->prompt, "Q:");
    for (int i = 0; i < n; i++) {
        const int digit = 1 + (int)rein_draw(draws, 9);
        sum += digit;
        question->prompt[at++] = (char)('0' + digit);
        question->prompt[at++] = i + 1 < n ? '+' : '=';
    }
    snprintf(question->prompt + at, sizeof question->prompt - (size_t)at, "?\nA:");
    snprintf(question->answer, sizeof question->answer, "%d", sum);
}

static int right(const rein_example *example, const char *response, size_t length) {
    size_t begin = length;
    while (length && rein_is_blank(response[length - 1])) length--;
    while (begin && response[begin - 1] != '=') begin--;
    if (!begin) return 0;
    while (begin < length && rein_is_blank(response[begin])) begin++;
    return begin < length && length - begin == strlen(example->answer) &&
           !memcmp(response + begin, example->answer, length - begin);
}

/* --------------------------------------------------------------------------------------------------------------- demonstrations */

static int chance(rein_draws *draws, uint64_t percent) { return rein_draw(draws, 100) < percent; }

/* What the pupil makes of sum + digit. */
static int add(int sum, int digit, rein_draws *draws) {
    const int carries = sum % 10 + digit >= 10, right_sum = sum + digit;
    if (carries && chance(draws, digit >= 8 ? 60 : 5)) return right_sum - 10;
    if (chance(draws, 1)) return right_sum + (chance(draws, 50) || right_sum < 2 ? 1 : -1);
    return right_sum;
}

typedef struct working {
    int digits[MOST], sums[MOST], n; /* sums[i]: after digit i */
} working;

/* n stays 0 if the prompt is not of this task. */
static working work_out(const char *prompt, rein_draws *draws) {
    working w = {.n = 0};
    const char *at = prompt && !strncmp(prompt, "Q:", 2) ? prompt + 2 : "";
    for (; *at >= '1' && *at <= '9' && w.n < MOST; at += at[1] == '+' ? 2 : 1) {
        w.digits[w.n] = *at - '0';
        w.sums[w.n] = w.n ? add(w.sums[w.n - 1], w.digits[w.n], draws) : w.digits[0];
        w.n++;
    }
    return w;
}

/* 12,17,20=22 */
static rein_status terse(rein_text *text, const working *w, rein_error *err) {
    rein_status status = REIN_OK;
    for (int i = 1; i + 1 < w->n && !status; i++) status = rein_text_print(text, err, "%s%d", i > 1 ? "," : "", w->sums[i]);
    return status;
}

/* 2+2=4;4+6=10;10+8=18;=18 */
static rein_status steps(rein_text *text, const working *w, rein_error *err) {
    rein_status status = REIN_OK;
    for (int i = 1; i < w->n && !status; i++)
        status = rein_text_print(text, err, "%d+%d=%d;", w->sums[i - 1], w->digits[i], w->sums[i]);
    return status;
}

/* We have 2, plus 2 is 4, plus 6 is 10, plus 8 is 18, so it is =18 */
static rein_status sentences(rein_text *text, const working *w, rein_draws *draws, rein_error *err) {
    static const char *const opens[] = {"Take", "We have", "I start with"}, *const adds[] = {"plus", "and"},
                             *const is[] = {"is", "makes"};
    const char *open = opens[rein_draw(draws, 3)], *add = adds[rein_draw(draws, 2)], *makes = is[rein_draw(draws, 2)];
    rein_status status = rein_text_print(text, err, "%s %d, ", open, w->digits[0]);
    for (int i = 1; i < w->n && !status; i++)
        status = rein_text_print(text, err, "%s %d %s %d, ", add, w->digits[i], makes, w->sums[i]);
    return status ? status : rein_text_print(text, err, "so it is ");
}

static rein_status demonstrate(rein_text *text, const rein_example *example, rein_draws *draws, rein_error *err) {
    const uint64_t style = rein_draw(draws, 100);
    const working w = work_out(example->prompt, draws);
    rein_status status = REIN_OK;
    if (!w.n) return rein_fail(err, REIN_EINVAL, "the prompt is not one of the task sums (such as Q:7+1+5+9=?)");
    if (style < 65) status = sentences(text, &w, draws, err);
    else if (style < 85) status = steps(text, &w, err);
    else if (style < 92) status = terse(text, &w, err);
    return status ? status : rein_text_print(text, err, "=%d", w.sums[w.n - 1]);
}

const rein_builtin_task rein_task_sums = {.info = {"sums", "add four or five digits, with the working written out"},
                                          .ask = ask,
                                          .right = right,
                                          .demonstrate = demonstrate};
