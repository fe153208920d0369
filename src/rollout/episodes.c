/* episodes.c - rollouts of several turns: the model writes, the environment answers, until one of them or a limit ends the episode.
 *
 * What the model sampled stays in its history as the ids that it sampled. After a turn the conversation is rendered anew, and only what stands
 * behind the turn is encoded and appended, without training. Where the template writes an earlier turn in another way than the model did
 * (templates that drop thinking), the next turn begins a new history of the trajectory.
 *
 * Which episodes share a step of the generator, and in which order the program answers, changes nothing but the time: the randomness of a
 * token has the address (step, prompt, sample, tokens of the episode before it). */
#include "episodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "conversation.h"
#include "task.h"
#include "trajectory.h"

enum { PREFIX_CACHE = 512 << 20 }; /* bytes of keys of earlier turns */

typedef struct episode {
    rein_trajectory *trajectory;
    size_t group, sample;
    size_t capacity;  /* of the last history */
    json_t *messages; /* the conversation so far */
    json_t *tools;    /* or NULL */
    rein_text before; /* what the model saw before this turn, as text */
    rein_text wrote;  /* what it wrote in this turn */
    size_t turns, tokens;
    rein_finish finish; /* of this turn */
    int calls;          /* this turn has tool calls */
    double reward;
    json_t *rewards; /* of each turn */
    int over;
} episode;

typedef struct play {
    const rein_rollout_options *options;
    const size_t *places; /* [n_groups] of options->indices; NULL: all */
    size_t n_groups;
    rein_environment *environment;
    rein_generator *generator;
    rein_sampling sampling;
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_group *groups; /* [n_groups] */
    episode *episodes;  /* [n] */
    size_t n, finished;
    size_t *episode_of; /* [n_requests] of the generator */
    size_t n_requests, capacity;
} play;

static void free_play(play *p) {
    for (size_t i = 0; p->episodes && i < p->n; i++) {
        json_decref(p->episodes[i].messages);
        json_decref(p->episodes[i].tools);
        json_decref(p->episodes[i].rewards);
        rein_text_free(&p->episodes[i].before);
        rein_text_free(&p->episodes[i].wrote);
    }
    for (size_t g = 0; p->groups && g < p->n_groups; g++) rein_group_free(&p->groups[g]);
    free(p->groups);
    free(p->episodes);
    free(p->episode_of);
    rein_generator_close(p->generator);
}

static rein_status allocate(play *p, rein_error *err) {
    const rein_rollout_options *o = p->options;
    p->n = p->n_groups * o->samples;
    p->groups = calloc(p->n_groups, sizeof *p->groups);
    p->episodes = calloc(p->n, sizeof *p->episodes);
    int done = p->groups && p->episodes;
    for (size_t g = 0; g < p->n_groups && done; g++) {
        rein_group *group = &p->groups[g];
        done = (group->trajectories = calloc(o->samples, sizeof *group->trajectories)) != NULL;
        group->n = done ? o->samples : 0;
        for (size_t k = 0; k < group->n; k++) {
            p->episodes[g * o->samples + k] = (episode){.trajectory = &group->trajectories[k], .group = g, .sample = k};
            group->trajectories[k].budget = -1;
            group->trajectories[k].policy_step = o->address.purpose == REIN_PURPOSE_EVALUATION ? -1 : (int64_t)o->address.step;
        }
    }
    return done ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu episodes", p->n);
}

/* The place of a group among the prompts of the rollout. */
static size_t place_of(const play *p, size_t group) { return p->places ? p->places[group] : group; }

/* Errors of an episode say which one it is. */
static rein_status in_episode(const play *p, const episode *e, rein_status status, rein_error *err) {
    const rein_rollout_options *o = p->options;
    return rein_fail_in(err, status, "task %.60s, example %llu%s, sample %zu, turn %zu", rein_task_name(o->task),
                        (unsigned long long)o->indices[place_of(p, e->group)], o->split == REIN_SPLIT_HELD_OUT ? " (held out)" : "",
                        e->sample, e->turns + 1);
}

/* ------------------------------------------------------------------------------------------------------------------ the prompt */

static rein_status render(rein_rendered *rendered, const play *p, const episode *e, int generation, rein_error *err) {
    const rein_rollout_options *o = p->options;
    const rein_conversation conversation = {.messages = e->messages, .tools = e->tools};
    return rein_conversation_render(rendered, o->tokenizer, o->prompting.chat, &conversation, o->prompting.no_thinking, generation,
                                    err);
}

static rein_status encode(rein_ids *ids, const play *p, const rein_rendered *rendered, size_t from, rein_error *err) {
    return rein_rendered_encode(ids, p->options->tokenizer, p->options->prompting.chat, rendered, from, 0, err);
}

static int begins_with(const rein_text *text, const char *with, size_t length) {
    return text->length >= length && (!length || !memcmp(text->data, with, length));
}

static int same_without_blanks(const char *a, size_t a_length, const rein_text *b) {
    const char *data = b->data ? b->data : "";
    size_t length = b->length;
    rein_trim(&a, &a_length);
    rein_trim(&data, &length);
    return a_length == length && !memcmp(a, data, length);
}

/* Where what the model wrote in its last turn ends in the text of the whole conversation; 0: the template writes it in another way. */
static rein_status end_of_turn(size_t *end, const play *p, episode *e, const rein_rendered *whole, const json_t *more,
                               rein_error *err) {
    rein_rendered until = {0};
    json_t *all = e->messages;
    *end = 0;
    if (!(e->messages = json_array())) return e->messages = all, rein_no_memory(err);
    int failed = json_array_extend(e->messages, all);
    for (size_t i = 0; i < json_array_size(more); i++) failed |= json_array_remove(e->messages, json_array_size(e->messages) - 1);
    rein_status status = failed ? rein_no_memory(err) : render(&until, p, e, 0, err);
    json_decref(e->messages);
    e->messages = all;
    if (!status && begins_with(&until.text, e->before.data, e->before.length)) {
        const size_t at = rein_rendered_answer_end(&until, &e->before, e->calls), from = e->before.length;
        const int same = at > from && (e->calls || same_without_blanks(until.text.data + from, at - from, &e->wrote));
        if ((same || (at == 0 && !e->wrote.length)) && begins_with(&whole->text, until.text.data, at ? at : from))
            *end = at ? at : from;
    }
    rein_rendered_free(&until);
    return status;
}

/* Appends the messages that answer to the turn. *room is 0 if the model has no place left for them. */
static rein_status continue_history(int *room, play *p, episode *e, const rein_rendered *whole, size_t end, rein_error *err) {
    rein_history *h = &e->trajectory->histories[e->trajectory->n_histories - 1];
    rein_ids ids = {0};
    rein_status status = encode(&ids, p, whole, end, err);
    /* The token that ends a turn is there already, if the model sampled it. */
    const size_t skip = !status && ids.count && e->finish == REIN_FINISH_END_TOKEN && ids.data[0] == h->ids[h->n - 1];
    *room = !status && h->n + ids.count - skip < (size_t)p->options->policy.model->config.max_positions;
    if (*room) status = rein_history_add_given(h, &e->capacity, ids.data + skip, ids.count - skip, p->options->tokenizer, err);
    rein_ids_free(&ids);
    return status;
}

static rein_status begin_history(int *room, play *p, episode *e, const rein_rendered *whole, rein_error *err) {
    rein_history history = {0};
    rein_ids ids = {0};
    rein_status status = encode(&ids, p, whole, 0, err);
    if (!status && !ids.count) status = rein_fail_at(err, REIN_EINVAL, "messages", -1, "are rendered to no tokens");
    *room = !status && ids.count < (size_t)p->options->policy.model->config.max_positions;
    if (*room) {
        status = rein_history_begin(&history, &e->capacity, &ids, p->options->sampler_log_probs, err);
        if (!status) status = rein_trajectory_append(e->trajectory, &history, err);
        if (status) rein_history_free(&history);
    }
    rein_ids_free(&ids);
    return status;
}

/* The ids before the next turn: `more` are the messages since the last one. */
static rein_status put_prompt(int *room, play *p, episode *e, const json_t *more, rein_error *err) {
    rein_rendered whole = {0};
    size_t end = 0;
    rein_status status = render(&whole, p, e, 1, err);
    if (!status && e->turns) status = end_of_turn(&end, p, e, &whole, more, err);
    if (!status) status = end ? continue_history(room, p, e, &whole, end, err) : begin_history(room, p, e, &whole, err);
    rein_text_free(&e->before);
    e->before = whole.text, whole.text = (rein_text){0};
    rein_rendered_free(&whole);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- the turn */

static rein_status note_request(play *p, size_t number, size_t episode, rein_error *err) {
    if (number >= p->capacity) {
        const size_t capacity = 2 * number + 64;
        size_t *moved = realloc(p->episode_of, capacity * sizeof *moved);
        if (!moved) return rein_no_memory(err);
        p->episode_of = moved, p->capacity = capacity;
    }
    p->episode_of[number] = episode;
    return REIN_OK;
}

static rein_status sample_turn(play *p, episode *e, rein_error *err) {
    const rein_history *h = &e->trajectory->histories[e->trajectory->n_histories - 1];
    rein_request request = {
        .prompt = h->ids, .n_prompt = h->n, .samples = 1, .address = p->options->address, .sampling = p->sampling};
    size_t number;
    request.sampling.max_tokens -= e->tokens;
    request.address.prompt += place_of(p, e->group);
    request.address.sample = e->sample;
    request.address.position = e->tokens;
    rein_text_free(&e->wrote);
    const rein_status status = rein_generator_add(&number, p->generator, &request, err);
    return status ? status : note_request(p, number, (size_t)(e - p->episodes), err);
}

/* The answer to an end of the episode comes from the environment, too. */
static rein_status cut(play *p, episode *e, const char *reason, rein_error *err) {
    e->trajectory->truncated = strcmp(reason, "turns") != 0;
    return rein_environment_end(p->environment, (size_t)(e - p->episodes), reason, err);
}

static rein_status next_turn(play *p, episode *e, const json_t *more, rein_error *err) {
    int room;
    if (e->turns && e->turns == p->options->max_turns) return cut(p, e, "turns", err);
    if (e->tokens >= p->sampling.max_tokens) return cut(p, e, "tokens", err);
    rein_status status = put_prompt(&room, p, e, more, err);
    if (!status && !room && !e->trajectory->n_histories)
        status = rein_fail_at(err, REIN_EINVAL, "messages", -1, "leave no room in the model, which has %lld positions",
                              (long long)p->options->policy.model->config.max_positions);
    if (!status && room) status = sample_turn(p, e, err);
    if (status) return in_episode(p, e, status, err);
    return room ? REIN_OK : cut(p, e, "context", err);
}

/* ------------------------------------------------------------------------------------------------------------ what it wrote */

/* A message may not have NUL bytes: what a model writes may. */
static json_t *content_of(const char *text, size_t length) {
    rein_text clean = {0};
    for (size_t i = 0, n; i <= length; i += n + 1) {
        const char *nul = memchr(text + i, 0, length - i);
        n = nul ? (size_t)(nul - text) - i : length - i;
        rein_text_put_bytes(&clean, text + i, n);
        if (nul) rein_text_put(&clean, "\uFFFD");
    }
    json_t *content = clean.failed ? NULL : json_stringn_nocheck(clean.data ? clean.data : "", clean.length);
    rein_text_free(&clean);
    return content;
}

static json_t *parse_calls(const rein_text *calls) {
    rein_text list = {0};
    json_t *parsed = NULL;
    rein_text_format(&list, "[%s]", calls->data);
    if (list.failed || rein_json_parse(&parsed, list.data, list.length, NULL, 0, NULL)) parsed = NULL;
    rein_text_free(&list);
    return parsed;
}

/* What the model wrote, as a message of OpenAI's API. NULL: no memory. */
static json_t *make_message(episode *e) {
    rein_text calls = {0};
    const char *text = e->wrote.data ? e->wrote.data : "";
    size_t length = e->wrote.length, before;
    char id[40];
    snprintf(id, sizeof id, "call_%zu", e->turns);
    e->calls = e->tools && rein_tool_calls_parse(&calls, &before, text, length, id, 0);
    if (e->calls) length = before;
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", e->calls && !length ? json_null() : content_of(text, length));
    int failed = !message || calls.failed;
    if (!failed && e->calls) failed = json_object_set_new(message, "tool_calls", parse_calls(&calls));
    rein_text_free(&calls);
    if (!failed) return message;
    json_decref(message);
    return NULL;
}

static rein_status end_turn(play *p, episode *e, rein_error *err) {
    json_t *message = make_message(e);
    rein_status status = message && !json_array_append(e->messages, message) ? REIN_OK : rein_no_memory(err);
    e->turns++;
    e->trajectory->finish = e->finish;
    if (!status && e->finish == REIN_FINISH_MAX_TOKENS) status = cut(p, e, "tokens", err);
    else if (!status && e->finish == REIN_FINISH_CONTEXT) status = cut(p, e, "context", err);
    else if (!status) status = rein_environment_step(p->environment, (size_t)(e - p->episodes), message, err);
    json_decref(message);
    return status;
}

static rein_status put_token(play *p, const rein_sampled *s, rein_error *err) {
    episode *e = &p->episodes[p->episode_of[s->request]];
    rein_history *h = &e->trajectory->histories[e->trajectory->n_histories - 1];
    rein_status status = rein_history_add_sampled(h, &e->capacity, s, err);
    if (!status && s->text) status = rein_text_append(&e->wrote, s->text, s->length, err);
    if (status) return status;
    e->tokens++;
    e->finish = s->finish;
    return s->finish == REIN_FINISH_NONE ? REIN_OK : end_turn(p, e, err);
}

/* ------------------------------------------------------------------------------------------------- what the environment said */

/* The conversation, the tools and the rewards of the turns, which the trajectory's file has. */
static rein_status keep_conversation(episode *e, rein_error *err) {
    rein_text text = {0};
    rein_text_put(&text, "{");
    rein_json_put_name(&text, "messages");
    rein_json_put_value(&text, e->messages);
    if (e->tools) rein_json_put_name(&text, "tools"), rein_json_put_value(&text, e->tools);
    rein_json_put_name(&text, "turn_rewards");
    rein_json_put_value(&text, e->rewards);
    rein_text_put(&text, "}");
    const rein_status status = rein_text_status(&text, err);
    if (status) rein_text_free(&text);
    else e->trajectory->json = text.data;
    return status;
}

static rein_status finish(play *p, episode *e, rein_error *err) {
    e->over = 1;
    p->finished++;
    e->trajectory->reward = e->reward;
    rein_status status = keep_conversation(e, err);
    if (!status) status = rein_trajectory_set_metric(e->trajectory, "turns", (double)e->turns, err);
    if (!status && p->options->progress) p->options->progress(p->options->context, p->finished, p->n);
    return status;
}

/* What was asked, as the first episode of the group has it. */
static rein_status put_example(rein_group *group, const episode *e, rein_error *err) {
    json_t *object = json_pack("{s:O, s:O*}", "messages", e->messages, "tools", e->tools);
    if (!object) return rein_no_memory(err);
    const rein_status status = rein_example_read(&group->example, object, "", err);
    json_decref(object);
    return status;
}

static rein_status put_system(json_t *messages, const char *system, rein_error *err) {
    const json_t *first = json_object_get(json_array_get(messages, 0), "role");
    if (!system) return REIN_OK;
    if (!strcmp(json_string_value(first), "system"))
        return rein_fail_at(err, REIN_EINVAL, "system", -1, "cannot be used: the environment has a system message of its own");
    json_t *message = json_pack("{s:s, s:s}", "role", "system", "content", system);
    return !message || json_array_insert_new(messages, 0, message) ? rein_no_memory(err) : REIN_OK;
}

static rein_status begin(play *p, episode *e, rein_environment_answer *answer, rein_error *err) {
    e->messages = answer->messages, answer->messages = NULL;
    e->tools = answer->tools, answer->tools = NULL;
    if (!(e->rewards = json_array())) return rein_no_memory(err);
    rein_status status = put_system(e->messages, p->options->prompting.system, err);
    if (!status && !e->sample) status = put_example(&p->groups[e->group], e, err);
    if (status) return in_episode(p, e, status, err);
    return next_turn(p, e, NULL, err);
}

/* The reward of the turn that the environment answers to. What it gives when an episode is cut belongs to the last turn. -1: no memory. */
static int count_reward(episode *e, const rein_environment_answer *answer) {
    const size_t n = json_array_size(e->rewards);
    e->reward += answer->reward;
    if (n < e->turns) return json_array_append_new(e->rewards, json_real(answer->reward));
    return n ? json_array_set_new(e->rewards, n - 1,
                                  json_real(json_number_value(json_array_get(e->rewards, n - 1)) + answer->reward))
             : 0;
}

static rein_status take_answer(play *p, rein_environment_answer *answer, rein_error *err) {
    episode *e = &p->episodes[answer->place];
    if (answer->event == REIN_EVENT_RESET) return begin(p, e, answer, err);
    if (count_reward(e, answer)) return rein_no_memory(err);
    if (answer->event == REIN_EVENT_STEP && answer->messages && json_array_extend(e->messages, answer->messages))
        return rein_no_memory(err);
    if (answer->event == REIN_EVENT_END || answer->done) return finish(p, e, err);
    return next_turn(p, e, answer->messages, err);
}

/* ------------------------------------------------------------------------------------------------------------------- the play */

static rein_status take_answers(play *p, rein_error *err) {
    rein_status status = REIN_OK;
    for (int found = 1; found && !status && p->finished < p->n;) {
        rein_environment_answer answer = {0};
        const int wait = !rein_generator_unfinished(p->generator);
        status = rein_environment_answer_next(&found, &answer, p->environment, wait, err);
        if (!status && found) status = take_answer(p, &answer, err);
        rein_environment_answer_free(&answer);
    }
    return status;
}

static rein_status sample_tokens(play *p, rein_error *err) {
    const rein_sampled *sampled;
    size_t n = 0, failed;
    rein_status status = rein_generator_step(&sampled, &n, p->generator, err);
    if (!status && (status = rein_generator_failed(&failed, p->generator, err)))
        in_episode(p, &p->episodes[p->episode_of[failed]], status, err);
    for (size_t i = 0; i < n && !status; i++) status = put_token(p, &sampled[i], err);
    return status;
}

static rein_status run(play *p, rein_error *err) {
    const rein_rollout_options *o = p->options;
    const rein_generator_options options = {.exec = o->exec, .prefix_cache = PREFIX_CACHE};
    rein_status status = rein_generator_open(&p->generator, &o->policy, o->tokenizer, &options, err);
    for (size_t i = 0; i < p->n && !status; i++)
        status = rein_environment_reset(p->environment, i, o->split, o->indices[place_of(p, p->episodes[i].group)], err);
    while (!status && p->finished < p->n) {
        status = take_answers(p, err);
        if (!status && rein_generator_unfinished(p->generator)) status = sample_tokens(p, err);
    }
    return status;
}

rein_status rein_rollout_play(rein_groups *groups, const rein_rollout_options *options, const size_t *places, size_t n,
                              rein_error *err) {
    play p = {.options = options, .places = places, .n_groups = n, .environment = rein_task_environment(options->task)};
    if (!options->prompting.chat)
        return rein_fail_at(err, REIN_EINVAL, "chat_format", -1, "is not set: an environment speaks in messages, which need one");
    rein_status status = allocate(&p, err);
    if (!status) status = rein_rollout_sampling(&p.sampling, p.end_ids, options, err);
    if (!status) status = run(&p, err);
    if (!status) status = rein_groups_append_all(groups, p.groups, n, err);
    else rein_environment_abandon(p.environment);
    free_play(&p);
    return status;
}
