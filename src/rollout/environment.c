/* environment.c - requests to an environment and its answers. What a faulty program does is described once, with the episode it did it in: the
 * program is given up then, because its next line could belong to another episode. */
#include "environment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/show.h"
#include "base/text.h"
#include "task.h"

enum { TIMEOUT = 30, SHOWN = 80, WHERE = REIN_TEXT_SHOWN + 120 };
static const char *const EVENTS[] = {"reset", "step", "end"};
static const char *const SPLITS[] = {"train", "held_out"};

/* An episode from its reset until its last answer. */
typedef struct open_episode {
    uint64_t number; /* as the program knows it */
    size_t place;
    rein_split split;
    uint64_t index;
    size_t turns; /* steps that were sent */
    rein_event asked;
    int waits;     /* for an answer */
    int abandoned; /* the answer is dropped */
    double since;  /* when it was asked */
} open_episode;

struct rein_environment {
    rein_process *process; /* NULL: given up */
    char shown[REIN_TEXT_SHOWN];
    uint64_t seed, next; /* number of the next episode */
    double timeout;
    size_t sizes[2]; /* by split */
    open_episode *open;
    size_t n_open, capacity;
};

void rein_environment_answer_free(rein_environment_answer *answer) {
    json_decref(answer->messages);
    json_decref(answer->tools);
    *answer = (rein_environment_answer){0};
}

size_t rein_environment_size(const rein_environment *e, rein_split split) { return e->sizes[split]; }

/* ----------------------------------------------------------------------------------------------------------------------- faults */

static void give_up(rein_environment *e) {
    rein_process_close(e->process);
    e->process = NULL;
    e->n_open = 0;
}

/* What messages about an episode begin with. */
static const char *place_of(char to[WHERE], const rein_environment *e, const open_episode *episode) {
    const char *split = episode && episode->split == REIN_SPLIT_HELD_OUT ? "held-out" : "train";
    if (!episode) snprintf(to, WHERE, "environment %s", e->shown);
    else if (episode->asked == REIN_EVENT_RESET)
        snprintf(to, WHERE, "environment %s, episode %" PRIu64 " (%s %" PRIu64 "), reset", e->shown, episode->number, split,
                 episode->index);
    else
        snprintf(to, WHERE, "environment %s, episode %" PRIu64 " (%s %" PRIu64 "), turn %zu", e->shown, episode->number, split,
                 episode->index, episode->turns);
    return to;
}

/* Puts the place before the message, and gives the program up. */
static rein_status fault(rein_environment *e, const open_episode *episode, rein_status status, rein_error *err) {
    char where[WHERE];
    rein_fail_in(err, status, "%s", place_of(where, e, episode));
    give_up(e);
    return status;
}

static rein_status check_usable(const rein_environment *e, rein_error *err) {
    return e->process ? REIN_OK : rein_fail(err, REIN_EIO, "environment %s was given up after it failed", e->shown);
}

/* ------------------------------------------------------------------------------------------------------------------- requests */

static rein_status ask(rein_environment *e, const rein_text *line, rein_error *err) {
    const rein_status status = rein_text_status(line, err);
    return status ? status : rein_process_ask(e->process, line->data, line->length, err);
}

static open_episode *find(const rein_environment *e, size_t place) {
    for (size_t i = 0; i < e->n_open; i++)
        if (e->open[i].place == place && !e->open[i].abandoned) return &e->open[i];
    return NULL;
}

static rein_status send(rein_environment *e, open_episode *episode, rein_event event, rein_text *line, rein_error *err) {
    episode->asked = event, episode->waits = 1, episode->since = rein_now();
    const rein_status status = ask(e, line, err);
    rein_text_free(line);
    return status ? fault(e, episode, status, err) : REIN_OK;
}

static void begin_line(rein_text *line, const open_episode *episode, rein_event event) {
    rein_text_format(line, "{\"episode\": %" PRIu64 ", \"event\": \"%s\"", episode->number, EVENTS[event]);
}

static open_episode *add_episode(rein_environment *e) {
    if (e->n_open == e->capacity) {
        const size_t capacity = 2 * e->capacity + 16;
        open_episode *moved = realloc(e->open, capacity * sizeof *moved);
        if (!moved) return NULL;
        e->open = moved, e->capacity = capacity;
    }
    return &e->open[e->n_open++];
}

rein_status rein_environment_reset(rein_environment *e, size_t place, rein_split split, uint64_t index, rein_error *err) {
    rein_text line = {0};
    rein_status status = check_usable(e, err);
    if (status) return status;
    if (index >= e->sizes[split])
        return rein_fail(err, REIN_END, "environment %s has %zu %s episodes: there is no number %" PRIu64, e->shown,
                         e->sizes[split], split == REIN_SPLIT_HELD_OUT ? "held-out" : "train", index);
    open_episode *episode = add_episode(e);
    if (!episode) return rein_no_memory(err);
    *episode = (open_episode){.number = ++e->next, .place = place, .split = split, .index = index};
    begin_line(&line, episode, REIN_EVENT_RESET);
    rein_text_format(&line, ", \"split\": \"%s\", \"index\": %" PRIu64 ", \"seed\": %" PRIu64 "}", SPLITS[split], index, e->seed);
    return send(e, episode, REIN_EVENT_RESET, &line, err);
}

rein_status rein_environment_step(rein_environment *e, size_t place, const json_t *message, rein_error *err) {
    rein_text line = {0};
    const rein_status status = check_usable(e, err);
    if (status) return status;
    open_episode *episode = find(e, place);
    episode->turns++;
    begin_line(&line, episode, REIN_EVENT_STEP);
    rein_json_put_name(&line, "message");
    rein_json_put_value(&line, message);
    rein_text_put(&line, "}");
    return send(e, episode, REIN_EVENT_STEP, &line, err);
}

rein_status rein_environment_end(rein_environment *e, size_t place, const char *reason, rein_error *err) {
    rein_text line = {0};
    const rein_status status = check_usable(e, err);
    if (status) return status;
    open_episode *episode = find(e, place);
    begin_line(&line, episode, REIN_EVENT_END);
    rein_json_put_name(&line, "reason");
    rein_json_put_string(&line, reason);
    rein_text_put(&line, "}");
    return send(e, episode, REIN_EVENT_END, &line, err);
}

void rein_environment_abandon(rein_environment *e) {
    size_t n = 0;
    for (size_t i = 0; i < e->n_open; i++) {
        if (!e->open[i].waits) continue; /* the program hears no more of it */
        e->open[n] = e->open[i];
        e->open[n++].abandoned = 1;
    }
    e->n_open = n;
}

/* -------------------------------------------------------------------------------------------------------------------- answers */

/* A line as a JSON object, the caller's reference. Shows what was written in place of JSON. */
static rein_status parse(json_t **object, const char *line, size_t length, rein_error *err) {
    char shown[SHOWN];
    rein_error cause = {0};
    const rein_status status = rein_json_parse(object, line, length, NULL, REIN_JSON_NEEDS_OBJECT, &cause);
    if (status != REIN_EINVAL) return status ? rein_fail_with(err, status, &cause) : REIN_OK;
    return rein_fail(err, REIN_EIO, "%s; the program wrote: %s", cause.message, rein_show_short(shown, sizeof shown, line, length));
}

/* Finds the episode that an answer is for. */
static rein_status find_episode(open_episode **episode, rein_environment *e, const json_t *object, const char *line, size_t length,
                                rein_error *err) {
    const json_t *number = json_object_get(object, "episode");
    char shown[SHOWN];
    rein_show_short(shown, sizeof shown, line, length);
    if (!json_is_integer(number))
        return rein_fail_at(err, REIN_EIO, "episode", -1, "is missing, or not a number: the program wrote: %s", shown);
    for (size_t i = 0; i < e->n_open; i++) {
        if ((json_int_t)e->open[i].number != json_integer_value(number)) continue;
        *episode = &e->open[i];
        if ((*episode)->waits) return REIN_OK;
        return rein_fail_at(err, REIN_EIO, "episode", -1,
                            "is %" JSON_INTEGER_FORMAT ", which has its answer already: the program wrote: %s",
                            json_integer_value(number), shown);
    }
    return rein_fail_at(err, REIN_EIO, "episode", -1,
                        "is %" JSON_INTEGER_FORMAT ", which is not an episode that waits for an answer: the program wrote: %s",
                        json_integer_value(number), shown);
}

/* A reward that is missing is not 0. */
static double read_reward(rein_fields *in) {
    const double reward = rein_fields_number(in, "reward", -INFINITY);
    return in->status ? 0 : reward;
}

static int read_done(rein_fields *in) {
    const json_t *done = json_object_get(in->object, "done");
    if (!in->status && !json_is_boolean(done)) rein_fields_wrong(in, "done", done, "true or false is needed");
    return json_is_true(done);
}

/* Messages from the environment are those of others than the model, except in the beginning, which may show examples. */
static void check_roles(rein_fields *in, const json_t *messages, rein_event event) {
    for (size_t i = 0; i < json_array_size(messages) && !in->status; i++) {
        const json_t *role = json_object_get(json_array_get(messages, i), "role");
        const int assistant = json_is_string(role) && !strcmp(json_string_value(role), "assistant");
        const int last = i + 1 == json_array_size(messages);
        char field[60];
        snprintf(field, sizeof field, "messages[%zu].role", i);
        if (assistant && (event == REIN_EVENT_STEP || last))
            rein_fields_wrong(in, field, role,
                              event == REIN_EVENT_STEP ? "only the model writes an assistant's messages"
                                                       : "the last message is what the model answers to");
    }
}

static void read_messages(rein_environment_answer *answer, rein_fields *in, rein_event event) {
    const json_t *messages = rein_fields_array(in, "messages");
    if (in->status || (event == REIN_EVENT_STEP && answer->done)) return;
    if (!json_array_size(messages))
        rein_fields_wrong(in, "messages", messages,
                          event == REIN_EVENT_RESET ? "one message or more is needed"
                                                    : "one message or more is needed, unless done is true");
    else if (!(in->status = rein_chat_messages_read(&answer->messages, messages, in->err)))
        check_roles(in, answer->messages, event);
}

static void read_tools(rein_environment_answer *answer, rein_fields *in) {
    const json_t *tools = rein_fields_array(in, "tools");
    for (size_t i = 0; i < json_array_size(tools) && !in->status; i++) {
        char field[40];
        snprintf(field, sizeof field, "tools[%zu]", i);
        if (!json_is_object(json_array_get(tools, i)))
            rein_fields_wrong(in, field, json_array_get(tools, i), "an object is needed, which says what the tool is");
    }
    if (!in->status && json_array_size(tools)) answer->tools = json_incref((json_t *)(uintptr_t)tools);
}

static rein_status read_fields(rein_environment_answer *answer, const json_t *object, rein_error *err) {
    static const char *const keys[][5] = {
        {"episode", "messages", "tools", NULL}, {"episode", "messages", "reward", "done", NULL}, {"episode", "reward", NULL}};
    const rein_event event = answer->event;
    rein_fields in = {.object = object, .path = "", .err = err};
    rein_fields_only(&in, keys[event]);
    if (event == REIN_EVENT_STEP) answer->done = read_done(&in);
    if (event != REIN_EVENT_RESET) answer->reward = read_reward(&in);
    if (event != REIN_EVENT_END) read_messages(answer, &in, event);
    if (event == REIN_EVENT_RESET) read_tools(answer, &in);
    if (in.status) rein_environment_answer_free(answer);
    return in.status == REIN_EINVAL ? REIN_EIO : in.status;
}

rein_status rein_environment_read(rein_environment_answer *answer, rein_event event, const char *line, size_t length,
                                  rein_error *err) {
    json_t *object = NULL;
    *answer = (rein_environment_answer){.event = event};
    rein_status status = parse(&object, line, length, err);
    if (!status) status = read_fields(answer, object, err);
    json_decref(object);
    return status;
}

static void forget(rein_environment *e, open_episode *episode) { *episode = e->open[--e->n_open]; }

/* The episode that has waited longest; NULL: none waits. */
static const open_episode *longest_waiting(const rein_environment *e) {
    const open_episode *first = NULL;
    for (size_t i = 0; i < e->n_open; i++)
        if (e->open[i].waits && (!first || e->open[i].since < first->since)) first = &e->open[i];
    return first;
}

/* The next line. *length is 0 if the program has written none yet, `wait` is 0, and the time of the longest request is not over. */
static rein_status next_line(const char **line, size_t *length, rein_environment *e, const open_episode *first, int wait,
                             rein_error *err) {
    rein_process_unread(line, length, e->process);
    if (!*length && !wait && rein_now() < first->since + e->timeout) return REIN_OK;
    return rein_process_answer_since(line, length, e->process, first->since, e->timeout, err);
}

static rein_status take_line(int *found, rein_environment_answer *answer, rein_environment *e, const char *line, size_t length,
                             rein_error *err) {
    json_t *object = NULL;
    open_episode *episode = NULL;
    rein_status status = parse(&object, line, length, err);
    if (!status) status = find_episode(&episode, e, object, line, length, err);
    if (!status) *answer = (rein_environment_answer){.place = episode->place, .event = episode->asked};
    if (!status && !episode->abandoned) status = read_fields(answer, object, err);
    json_decref(object);
    if (status) return fault(e, episode, status, err);
    *found = !episode->abandoned;
    episode->waits = 0;
    if (episode->abandoned || answer->event == REIN_EVENT_END || answer->done) forget(e, episode);
    return REIN_OK;
}

rein_status rein_environment_answer_next(int *found, rein_environment_answer *answer, rein_environment *e, int wait,
                                         rein_error *err) {
    rein_status status = check_usable(e, err);
    *found = 0;
    while (!status && !*found) {
        const open_episode *first = longest_waiting(e);
        const char *line;
        size_t length;
        if (!first) return REIN_OK;
        if ((status = next_line(&line, &length, e, first, wait, err))) return fault(e, first, status, err);
        if (!length) return REIN_OK;
        status = take_line(found, answer, e, line, length, err);
    }
    return status;
}

/* The answer to what was just asked of the only open episode. */
static rein_status answer_now(rein_environment_answer *answer, rein_environment *e, rein_error *err) {
    int found;
    return rein_environment_answer_next(&found, answer, e, 1, err);
}

rein_status rein_environment_example(rein_example *example, rein_environment *e, rein_split split, uint64_t index,
                                     rein_error *err) {
    rein_environment_answer first = {0}, last = {0};
    json_t *object = NULL;
    rein_status status = rein_environment_reset(e, 0, split, index, err);
    if (!status) status = answer_now(&first, e, err);
    if (!status) status = rein_environment_end(e, 0, "turns", err);
    if (!status) status = answer_now(&last, e, err);
    if (!status && !(object = json_pack("{s:O, s:O*}", "messages", first.messages, "tools", first.tools)))
        status = rein_no_memory(err);
    if (!status) status = rein_example_read(example, object, "", err);
    json_decref(object);
    rein_environment_answer_free(&first);
    rein_environment_answer_free(&last);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- opening it */

/* N, or null for endless; 0 train episodes are none. */
static size_t read_size(rein_fields *in, const char *key, int64_t least) {
    const json_t *value = json_object_get(in->object, key);
    if (!in->status && !value) rein_fields_wrong(in, key, NULL, "a number of episodes is needed, or null for endless ones");
    if (in->status || json_is_null(value)) return SIZE_MAX;
    return (size_t)rein_fields_integer(in, key, least, INT64_MAX);
}

static rein_status describe(rein_environment *e, rein_error *err) {
    static const char *const keys[] = {"train", "held_out", NULL};
    const char *line, *request = "{\"event\": \"describe\"}";
    size_t length;
    json_t *object = NULL;
    rein_status status = rein_process_ask(e->process, request, strlen(request), err);
    if (!status) status = rein_process_answer(&line, &length, e->process, e->timeout, err);
    if (!status) status = parse(&object, line, length, err);
    rein_fields in = {.object = object, .path = "", .status = status, .err = err};
    if (!status) rein_fields_only(&in, keys);
    e->sizes[REIN_SPLIT_TRAIN] = read_size(&in, keys[0], 1);
    e->sizes[REIN_SPLIT_HELD_OUT] = read_size(&in, keys[1], 0);
    json_decref(object);
    return in.status ? rein_fail_in(err, in.status == REIN_EINVAL ? REIN_EIO : in.status, "environment %s, describe", e->shown)
                     : REIN_OK;
}

rein_status rein_environment_open(rein_environment **environment, const char *command, const rein_task_options *options,
                                  rein_error *err) {
    *environment = NULL;
    if (!(options->timeout >= 0 && isfinite(options->timeout)))
        return rein_fail_at(err, REIN_EINVAL, "timeout", -1, "is %g: seconds above 0 are needed (0: %d)", options->timeout,
                            TIMEOUT);
    rein_environment *e = calloc(1, sizeof *e);
    if (!e) return rein_no_memory(err);
    e->seed = options->seed;
    e->timeout = options->timeout > 0 ? options->timeout : TIMEOUT;
    rein_json_quote(e->shown, command);
    rein_status status = rein_process_open(&e->process, command, options->directory, err);
    if (!status) status = describe(e, err);
    if (!status) return *environment = e, REIN_OK;
    rein_environment_close(e);
    return status;
}

void rein_environment_close(rein_environment *e) {
    if (!e) return;
    rein_process_close(e->process);
    free(e->open);
    free(e);
}
