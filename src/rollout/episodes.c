/* episodes.c - rollouts of several turns: the model writes, the environment answers, until one of them or a limit ends the episode.
 *
 * What becomes of the conversation as tokens is in dialogue.c.
 *
 * Which episodes share a step of the generator, and in which order the program answers, changes nothing but the time: the randomness of a
 * token has the address (step, prompt, sample, tokens of the episode before it). */
#include "episodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "dialogue.h"
#include "task.h"
#include "trajectory.h"

enum { PREFIX_CACHE = 512 << 20 }; /* bytes of keys of earlier turns */

typedef struct episode {
    rein_trajectory *trajectory;
    size_t group, sample;
    rein_dialogue d;
    double reward;
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
    for (size_t i = 0; p->episodes && i < p->n; i++) rein_dialogue_free(&p->episodes[i].d);
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
            p->episodes[g * o->samples + k] = (episode){
                .trajectory = &group->trajectories[k], .d = {.trajectory = &group->trajectories[k]}, .group = g, .sample = k};
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
                        e->sample, e->d.turns + 1);
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
    const rein_history *h = rein_dialogue_history(&e->d);
    rein_request request = {
        .prompt = h->ids, .n_prompt = h->n, .samples = 1, .address = p->options->address, .sampling = p->sampling};
    size_t number;
    request.sampling.max_tokens -= e->d.tokens;
    request.address.prompt += place_of(p, e->group);
    request.address.sample = e->sample;
    request.address.position = e->d.tokens;
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
    if (e->d.turns && e->d.turns == p->options->max_turns) return cut(p, e, "turns", err);
    if (e->d.tokens >= p->sampling.max_tokens) return cut(p, e, "tokens", err);
    rein_status status = rein_dialogue_prompt(&room, &e->d, p->options, json_array_size(more), err);
    if (!status && !room && !e->trajectory->n_histories)
        status = rein_fail_at(err, REIN_EINVAL, "messages", -1, "leave no room in the model, which has %lld positions",
                              (long long)p->options->policy.model->config.max_positions);
    if (!status && room) status = sample_turn(p, e, err);
    if (status) return in_episode(p, e, status, err);
    return room ? REIN_OK : cut(p, e, "context", err);
}

static rein_status end_turn(play *p, episode *e, rein_error *err) {
    const json_t *message;
    char id[40];
    snprintf(id, sizeof id, "call_%zu", e->d.turns);
    e->trajectory->finish = e->d.finish;
    rein_status status = rein_dialogue_turn(&message, &e->d, id, err);
    if (!status && e->d.finish == REIN_FINISH_MAX_TOKENS) status = cut(p, e, "tokens", err);
    else if (!status && e->d.finish == REIN_FINISH_CONTEXT) status = cut(p, e, "context", err);
    else if (!status) status = rein_environment_step(p->environment, (size_t)(e - p->episodes), message, err);
    return status;
}

static rein_status put_token(play *p, const rein_sampled *s, rein_error *err) {
    episode *e = &p->episodes[p->episode_of[s->request]];
    const rein_status status = rein_dialogue_put(&e->d, s, err);
    return status || s->finish == REIN_FINISH_NONE ? status : end_turn(p, e, err);
}

/* ------------------------------------------------------------------------------------------------- what the environment said */

static rein_status finish(play *p, episode *e, rein_error *err) {
    p->finished++;
    e->trajectory->reward = e->reward;
    rein_status status = rein_dialogue_keep(&e->d, err);
    if (!status) status = rein_trajectory_set_metric(e->trajectory, "turns", (double)e->d.turns, err);
    if (!status && p->options->progress) p->options->progress(p->options->context, p->finished, p->n);
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
    e->d.messages = answer->messages, answer->messages = NULL;
    e->d.tools = answer->tools, answer->tools = NULL;
    if (!(e->d.rewards = json_array())) return rein_no_memory(err);
    rein_status status = put_system(e->d.messages, p->options->prompting.system, err);
    if (!status && !e->sample) /* the example of the group is what its first episode was asked */
        status = rein_dialogue_example(&p->groups[e->group].example, &e->d, json_array_size(e->d.messages), err);
    if (status) return in_episode(p, e, status, err);
    return next_turn(p, e, NULL, err);
}

/* The reward of the turn that the environment answers to. What it gives when an episode is cut belongs to the last turn. -1: no memory. */
static int count_reward(episode *e, const rein_environment_answer *answer) {
    const size_t n = json_array_size(e->d.rewards);
    e->reward += answer->reward;
    if (n < e->d.turns) return json_array_append_new(e->d.rewards, json_real(answer->reward));
    return n ? json_array_set_new(e->d.rewards, n - 1,
                                  json_real(json_number_value(json_array_get(e->d.rewards, n - 1)) + answer->reward))
             : 0;
}

static rein_status take_answer(play *p, rein_environment_answer *answer, rein_error *err) {
    episode *e = &p->episodes[answer->place];
    if (answer->event == REIN_EVENT_RESET) return begin(p, e, answer, err);
    if (count_reward(e, answer)) return rein_no_memory(err);
    if (answer->event == REIN_EVENT_STEP && answer->messages && json_array_extend(e->d.messages, answer->messages))
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
