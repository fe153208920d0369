/* reward_program.c - a program as a judge: all requests are sent first, then all answers are read.
 *
 * A program that failed cannot be used further: its next answer may belong to another request. It may be restarted, and gets the requests
 * that it has not answered; rewards are never made up. Restarts in a row are counted until a batch is answered whole, so that a batch takes
 * a bounded time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/show.h"
#include "model/tokenizer_parts.h"
#include "reward.h"

enum { LINE_SHOWN = 120, MOST_NOTES = 1 << 16 };

typedef enum ids { IDS_UNKNOWN = 0, WITH_IDS, WITHOUT_IDS } ids;

struct rein_judge_program {
    rein_process *process;
    const char *name;
    char *command, *directory;
    int whole_groups;
    double timeout;
    size_t restarts, restarted; /* how many may follow each other; how many did */
    ids ids;
    rein_text notes; /* its log before it was restarted, and why it was */

    /* The batch: item i is responses [begins[i], begins[i + 1]). */
    const rein_response *responses;
    size_t n, items, answered;
    size_t *begins;   /* [items + 1] */
    char *has_answer; /* [items] */
    double *rewards;  /* [n] */
};

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a judge"); }

/* -------------------------------------------------------------------------------------------------------------- open and close */

rein_status rein_judge_program_open(rein_judge_program **program, const rein_judge_program_options *o, rein_error *err) {
    *program = NULL;
    rein_judge_program *p = calloc(1, sizeof *p);
    if (!p) return no_memory(err);
    p->name = o->name, p->whole_groups = o->whole_groups, p->timeout = o->timeout, p->restarts = o->restarts;
    rein_status status = rein_text_copy(&p->command, o->command, strlen(o->command), err);
    if (!status && o->directory) status = rein_text_copy(&p->directory, o->directory, strlen(o->directory), err);
    if (!status) status = rein_process_open(&p->process, p->command, p->directory, err);
    if (!status) return *program = p, REIN_OK;
    rein_judge_program_close(p);
    return rein_fail_in(err, status, "%s", o->name);
}

/* Programs start at the same time, so all of them together cost this time once. Python takes 0.02 to 0.2 s to find that a file is missing. */
rein_status rein_judge_program_check(rein_judge_program *p, rein_error *err) {
    static const double START = 0.5;
    rein_error cause = {0};
    const rein_status status = rein_process_check(p->process, START, &cause);
    if (!status) return REIN_OK;
    return rein_fail(err, status == REIN_EIO ? REIN_EINVAL : status, "%s: %s", p->name, cause.message);
}

static void forget_batch(rein_judge_program *p) {
    free(p->begins);
    free(p->has_answer);
    free(p->rewards);
    p->begins = NULL, p->has_answer = NULL, p->rewards = NULL;
    p->n = p->items = p->answered = 0;
}

void rein_judge_program_close(rein_judge_program *p) {
    if (!p) return;
    rein_process_close(p->process);
    forget_batch(p);
    rein_text_free(&p->notes);
    free(p->command);
    free(p->directory);
    free(p);
}

/* ------------------------------------------------------------------------------------------------------------------------ notes */

/* Appends each line of the text with the name before it; as much as there is memory for. */
static void note(rein_text *to, const char *name, const char *text) {
    while (*text) {
        const size_t length = strcspn(text, "\n");
        const size_t before = to->length;
        if (length && (rein_text_append(to, name, strlen(name), NULL) || rein_text_append(to, ": ", 2, NULL) ||
                       rein_text_append(to, text, length, NULL) || rein_text_append(to, "\n", 1, NULL)))
            rein_text_cut(to, before);
        text += length + (text[length] == '\n');
    }
}

/* If the log is never read, the last notes are kept. */
static void shorten_notes(rein_text *notes) {
    if (notes->length <= MOST_NOTES) return;
    const char *from = memchr(notes->data + notes->length / 2, '\n', notes->length - notes->length / 2);
    const size_t left = notes->length - (size_t)(from + 1 - notes->data);
    memmove(notes->data, from + 1, left);
    rein_text_cut(notes, left);
}

void rein_judge_program_log(rein_text *text, rein_judge_program *p) {
    if (p->notes.length) rein_text_append(text, p->notes.data, p->notes.length, NULL);
    if (p->notes.data) rein_text_cut(&p->notes, 0);
    if (p->process) note(text, p->name, rein_process_log(p->process));
}

/* ----------------------------------------------------------------------------------------------------------------------- asking */

static size_t count_items(const rein_response *responses, size_t n, int whole_groups) {
    size_t items = 0;
    for (size_t i = 0; i < n; i++) items += !whole_groups || !i || responses[i].group != responses[i - 1].group;
    return items;
}

static rein_status begin_batch(rein_judge_program *p, const rein_response *responses, size_t n, rein_error *err) {
    forget_batch(p);
    const size_t items = count_items(responses, n, p->whole_groups);
    p->begins = calloc(items + 1, sizeof *p->begins);
    p->has_answer = calloc(items ? items : 1, 1);
    p->rewards = calloc(n ? n : 1, sizeof *p->rewards);
    if (!p->begins || !p->has_answer || !p->rewards) return no_memory(err);
    p->responses = responses, p->n = n, p->items = items;
    for (size_t i = 0, item = 0; i < n; i++)
        if (!p->whole_groups || !i || responses[i].group != responses[i - 1].group) p->begins[item++] = i;
    p->begins[items] = n;
    return REIN_OK;
}

static size_t first_unanswered(const rein_judge_program *p) {
    size_t item = 0;
    while (item < p->items && p->has_answer[item]) item++;
    return item;
}

/* The error with its place: the item, or the first without an answer. */
static rein_status fail_at(const rein_judge_program *p, size_t item, rein_status status, const rein_error *cause, rein_error *err) {
    char place[REIN_REWARD_PLACE];
    if (item >= p->items) return rein_fail(err, status, "%s: %s", p->name, cause->message);
    rein_reward_place(place, p->name, p->whole_groups ? "group" : "response", item, p->items,
                      p->responses[p->begins[item]].example);
    return rein_fail(err, status, "%s: %s", place, cause->message);
}

/* Ids count from 1, as in messages, and stay the same when a request is sent again. */
static rein_status ask_item(rein_judge_program *p, size_t item, rein_error *err) {
    char *line;
    rein_error cause = {0};
    const size_t begin = p->begins[item], n = p->begins[item + 1] - begin;
    rein_status status = rein_request_line(&line, item + 1, p->responses + begin, n, p->whole_groups, &cause);
    if (!status) status = rein_process_ask(p->process, line, strlen(line), &cause);
    free(line);
    return status ? fail_at(p, item, status, &cause, err) : REIN_OK;
}

static rein_status ask_unanswered(rein_judge_program *p, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t item = 0; item < p->items && !status; item++)
        if (!p->has_answer[item]) status = ask_item(p, item, err);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- restarting */

/* After a fault: restarts the program and sends what it has not answered; or fails, if it was restarted often enough. */
static rein_status recover(rein_judge_program *p, const rein_error *fault, rein_error *err) {
    char why[sizeof fault->message + 80];
    if (fault->code != REIN_EIO || !p->restarts) return rein_fail(err, fault->code, "%s", fault->message);
    if (p->restarted == p->restarts)
        return rein_fail(err, fault->code, "%s (after %zu restart%s)", fault->message, p->restarts, p->restarts > 1 ? "s" : "");
    p->restarted++;
    note(&p->notes, p->name, rein_process_log(p->process));
    snprintf(why, sizeof why, "restarted (%zu of %zu): %s", p->restarted, p->restarts, fault->message);
    note(&p->notes, p->name, why);
    shorten_notes(&p->notes);
    rein_process_close(p->process);
    p->process = NULL;
    p->ids = IDS_UNKNOWN;
    const rein_status status = rein_process_open(&p->process, p->command, p->directory, err);
    return status ? rein_fail_in(err, status, "%s", p->name) : ask_unanswered(p, err);
}

/* REIN_EIO if there is a line without a request. */
static rein_status refuse_unread(rein_judge_program *p, const char *when, rein_error *err) {
    const char *text;
    size_t length;
    char shown[LINE_SHOWN];
    rein_process_unread(&text, &length, p->process);
    if (!length) return REIN_OK;
    return rein_fail(err, REIN_EIO,
                     "%s: the program wrote \"%s\" %s: there are more answers than requests, so rewards may be those of others",
                     p->name, rein_show_short(shown, sizeof shown, text, length), when);
}

rein_status rein_judge_program_ask(rein_judge_program *p, const rein_response *responses, size_t n, rein_error *err) {
    rein_error fault = {0};
    const rein_status status = begin_batch(p, responses, n, err);
    if (status || !n) return status;
    if (refuse_unread(p, "before it was asked", &fault)) return recover(p, &fault, err);
    return ask_unanswered(p, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

/* Finds the item that an answer is for; on failure *item is the place for the message. */
static rein_status find_item(size_t *item, rein_judge_program *p, const rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    const ids now = answer->id < 0 ? WITHOUT_IDS : WITH_IDS;
    rein_show_short(shown, sizeof shown, answer->line, answer->length);
    if (p->ids == IDS_UNKNOWN) p->ids = now;
    if (p->ids != now)
        return rein_fail(err, REIN_EIO, "the answer %s has %s id, those before had %s: all need one, or none", shown,
                         now == WITH_IDS ? "an" : "no", now == WITH_IDS ? "none" : "one");
    if (now == WITHOUT_IDS) return REIN_OK; /* it is the first that has no answer yet */
    if (answer->id < 1 || (uint64_t)answer->id > p->items)
        return rein_fail(err, REIN_EIO, "the answer %s has an id that was not asked for: 1 to %zu were", shown, p->items);
    *item = (size_t)answer->id - 1;
    if (p->has_answer[*item]) return rein_fail(err, REIN_EIO, "the answer %s has an id that was answered before", shown);
    return REIN_OK;
}

static rein_status take_answer(rein_judge_program *p, rein_error *err) {
    const char *line;
    size_t length, item = first_unanswered(p);
    rein_answer_line answer = {0};
    rein_error cause = {0};
    rein_status status = rein_process_answer(&line, &length, p->process, p->timeout, &cause);
    if (!status) status = rein_answer_read(&answer, line, length, &cause);
    if (!status) status = find_item(&item, p, &answer, &cause);
    if (!status)
        status = rein_answer_rewards(p->rewards + p->begins[item], &answer, p->begins[item + 1] - p->begins[item], p->whole_groups,
                                     &cause);
    rein_answer_free(&answer);
    if (status) return fail_at(p, item, status, &cause, err);
    p->has_answer[item] = 1;
    p->answered++;
    return REIN_OK;
}

/* One answer too many: no answer of the batch is certain. */
static rein_status look_behind(rein_judge_program *p, rein_error *err) {
    const rein_status status = refuse_unread(p, "behind its last answer", err);
    if (!status) return REIN_OK;
    memset(p->has_answer, 0, p->items);
    p->answered = 0;
    return status;
}

static rein_status take_all(rein_judge_program *p, rein_error *err) {
    rein_status status = REIN_OK;
    while (p->answered < p->items && !status) status = take_answer(p, err);
    return status ? status : look_behind(p, err);
}

rein_status rein_judge_program_collect(double *rewards, rein_judge_program *p, rein_error *err) {
    rein_error fault = {0};
    rein_status status = REIN_OK;
    while (!status && take_all(p, &fault)) status = recover(p, &fault, err);
    if (status) return status;
    memcpy(rewards, p->rewards, p->n * sizeof *rewards);
    p->restarted = 0;
    return REIN_OK;
}
