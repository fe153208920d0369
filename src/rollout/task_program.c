/* task_program.c - a task that is a program: it answers each request with an example. Examples are not kept: the program must give the same
 * one every time.
 *
 * If the answer is an object but not an example, the next request can still be made. A program that ended, was too slow (its answer may
 * still come), wrote something that is not JSON, or wrote without a request is not used again: its next line could be taken for the answer
 * to another request. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "base/process.h"
#include "base/show.h"
#include "task.h"

enum { WHERE = REIN_TEXT_SHOWN + 60, SHOWN = 80, TIMEOUT = 30 };

struct rein_task_program {
    rein_process *process; /* NULL: given up */
    char shown[REIN_TEXT_SHOWN];
    uint64_t seed;
    double timeout;
};

rein_status rein_task_program_open(rein_task_program **program, const char *command, const rein_task_options *options,
                                   rein_error *err) {
    const double timeout = options->timeout;
    *program = NULL;
    if (!(timeout >= 0 && isfinite(timeout)))
        return rein_fail_at(err, REIN_EINVAL, "timeout", -1, "is %g: seconds above 0 are needed (0: %d)", timeout, TIMEOUT);
    rein_task_program *p = calloc(1, sizeof *p);
    if (!p) return rein_no_memory(err);
    p->seed = options->seed;
    p->timeout = timeout > 0 ? timeout : TIMEOUT;
    rein_json_quote(p->shown, command);
    const rein_status status = rein_process_open(&p->process, command, options->directory, err);
    if (status) rein_task_program_close(p);
    else *program = p;
    return status;
}

void rein_task_program_close(rein_task_program *program) {
    if (!program) return;
    rein_process_close(program->process);
    free(program);
}

/* ----------------------------------------------------------------------------------------------------------------- conversation */

static void give_up(rein_task_program *p) {
    rein_process_close(p->process);
    p->process = NULL;
}

static rein_status exchange(const char **line, size_t *length, rein_task_program *p, rein_split split, uint64_t index,
                            rein_error *err) {
    char request[120], shown[SHOWN];
    const int n = snprintf(request, sizeof request, "{\"split\": \"%s\", \"index\": %" PRIu64 ", \"seed\": %" PRIu64 "}",
                           split == REIN_SPLIT_HELD_OUT ? "held_out" : "train", index, p->seed);
    rein_process_unread(line, length, p->process);
    if (*length)
        return rein_fail(err, REIN_EIO, "the program wrote before it was asked: %s",
                         rein_show_short(shown, sizeof shown, *line, *length));
    const rein_status status = rein_process_ask(p->process, request, (size_t)n, err);
    return status ? status : rein_process_answer(line, length, p->process, p->timeout, err);
}

/* Shows what was written in place of JSON: that helps more than the place of the mistake. */
static rein_status parse(json_t **object, const char *where, const char *line, size_t length, rein_error *err) {
    char shown[SHOWN];
    rein_error cause = {0};
    const rein_status status = rein_example_parse(object, where, line, length, &cause);
    if (status != REIN_EINVAL) return status ? rein_fail_with(err, status, &cause) : REIN_OK;
    return rein_fail(err, status, "%s; the program wrote: %s", cause.message, rein_show_short(shown, sizeof shown, line, length));
}

/* An object that the program answered with. */
static rein_status ask(json_t **object, rein_task_program *p, rein_split split, uint64_t index, const char *where,
                       rein_error *err) {
    const char *line;
    size_t length;
    *object = NULL;
    if (!p->process) return rein_fail(err, REIN_EIO, "%s: the program was given up after it failed", where);
    rein_status status = exchange(&line, &length, p, split, index, err);
    if (status) rein_fail_in(err, status, "%s", where);
    else status = parse(object, where, line, length, err);
    if (status) give_up(p);
    return status;
}

/* {"end": true}, and nothing else. */
static rein_status check_end(const json_t *object, const char *where, rein_error *err) {
    rein_fields in = {.object = object, .file = where, .path = "", .err = err};
    const json_t *end = json_object_get(object, "end");
    if (!end || json_is_null(end)) return REIN_OK;
    if (!json_is_true(end)) return rein_fields_wrong(&in, "end", end, "true is needed, or an example without end");
    if (json_object_size(object) > 1)
        return rein_fields_wrong(&in, "end", end, "an example cannot stand beside it, {\"end\": true} alone is needed");
    return rein_fail(err, REIN_END, "%s: the program says that its examples ended before this one", where);
}

rein_status rein_task_program_example(rein_example *example, rein_task_program *p, rein_split split, uint64_t index,
                                      rein_error *err) {
    char where[WHERE];
    json_t *object;
    *example = (rein_example){0};
    snprintf(where, sizeof where, "task %s, %s example %" PRIu64, p->shown, split == REIN_SPLIT_HELD_OUT ? "held-out" : "train",
             index);
    rein_status status = ask(&object, p, split, index, where, err);
    if (!status) status = check_end(object, where, err);
    if (!status) status = rein_example_read(example, object, where, err);
    json_decref(object);
    return status;
}
