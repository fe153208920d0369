/* play.c - episodes of several turns that the calling program plays: it asks for the model's turns, many at a time, and the generator samples
 * them in one batch.
 *
 * A conversation of an episode is found again by its messages. Its first conversation has the random numbers of an episode that an environment
 * plays: those behind the tokens sampled before. Every other one begins at a place that is a hash of its prompt and of how many times the
 * episode had this prompt before, so that the order in which conversations come to be decides nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "dialogue.h"
#include "episodes.h"
#include "trajectory.h"

enum { PREFIX_CACHE = 512 << 20 };               /* bytes of keys of earlier turns */
static const uint64_t APART = (uint64_t)1 << 63; /* conversations but the first have their random numbers behind it */

typedef struct episode episode;

/* A conversation of an episode. */
typedef struct talk {
    rein_dialogue d;
    episode *of;
    size_t asked;    /* messages of its first request */
    uint64_t prompt; /* hash of the ids that it began with */
    uint64_t base;   /* where its random numbers begin */
    int at_work;
    size_t request; /* number of the turn */
    size_t n_prompt, text_length, cached;
} talk;

struct episode {
    rein_trajectory trajectory;
    talk **talks; /* [n] */
    size_t n;
    size_t turns, tokens; /* turns that were asked for, tokens of those that ended */
    int ended, dropped;
};

struct rein_play {
    rein_rollout_options options;
    rein_sampling sampling;
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_generator *generator;
    episode *episodes; /* [n] */
    size_t n;
    talk **talk_of; /* [n_turns] NULL: it has ended */
    size_t n_turns, capacity;
    rein_play_turn *written; /* [room] */
    size_t room;
};

/* ------------------------------------------------------------------------------------------------------------------ open, close */

static void free_talk(talk *t) {
    if (t) rein_dialogue_free(&t->d);
    free(t);
}

static void free_talks(episode *e) {
    for (size_t i = 0; i < e->n; i++) free_talk(e->talks[i]);
    free(e->talks);
    e->talks = NULL, e->n = 0;
}

static void free_episode(episode *e) {
    free_talks(e);
    rein_trajectory_free(&e->trajectory);
}

void rein_play_close(rein_play *p) {
    if (!p) return;
    for (size_t i = 0; p->episodes && i < p->n; i++) free_episode(&p->episodes[i]);
    rein_generator_close(p->generator);
    free(p->episodes);
    free(p->talk_of);
    free(p->written);
    free(p);
}

static rein_status check(const rein_rollout_options *o, rein_error *err) {
    if (!o->n || !o->samples) return rein_fail_at(err, REIN_EINVAL, o->n ? "samples" : "n", -1, "is 0: 1 or more is needed");
    if (o->samples > SIZE_MAX / sizeof(episode) / o->n)
        return rein_fail_at(err, REIN_EINVAL, "samples", -1, "is %zu: that is too many for %zu groups", o->samples, o->n);
    if (o->address.step > INT64_MAX)
        return rein_fail_at(err, REIN_EINVAL, "address.step", -1, "is %llu: a step of training is at most %lld",
                            (unsigned long long)o->address.step, (long long)INT64_MAX);
    if (!o->tokenizer) return rein_fail_at(err, REIN_EINVAL, "tokenizer", -1, "is missing: an episode is made of messages");
    if (!o->prompting.chat)
        return rein_fail_at(err, REIN_EINVAL, "chat_format", -1, "is not set: an episode is made of messages, which need one");
    return REIN_OK;
}

static rein_status open_play(rein_play *p, rein_error *err) {
    const rein_rollout_options *o = &p->options;
    const rein_generator_options options = {.exec = o->exec, .prefix_cache = PREFIX_CACHE};
    p->n = o->n * o->samples;
    p->episodes = calloc(p->n, sizeof *p->episodes);
    if (!p->episodes) return rein_fail(err, REIN_ENOMEM, "no memory for %zu episodes", p->n);
    for (size_t i = 0; i < p->n; i++) {
        rein_trajectory *t = &p->episodes[i].trajectory;
        t->budget = -1;
        t->policy_step = o->address.purpose == REIN_PURPOSE_EVALUATION ? -1 : (int64_t)o->address.step;
    }
    const rein_status status = rein_rollout_sampling(&p->sampling, p->end_ids, o, err);
    return status ? status : rein_generator_open(&p->generator, &o->policy, o->tokenizer, &options, err);
}

rein_status rein_play_open(rein_play **play, const rein_rollout_options *options, rein_error *err) {
    *play = NULL;
    rein_status status = check(options, err);
    if (status) return status;
    rein_play *p = calloc(1, sizeof *p);
    if (!p) return rein_no_memory(err);
    p->options = *options;
    if ((status = open_play(p, err))) rein_play_close(p);
    else *play = p;
    return status;
}

/* Errors of an episode say which one it is. */
static rein_status in_episode(const rein_play *p, const episode *e, rein_status status, rein_error *err) {
    const size_t place = (size_t)(e - p->episodes), samples = p->options.samples;
    return rein_fail_in(err, status, "episode %zu, sample %zu, turn %zu", place / samples, place % samples, e->turns + 1);
}

/* The episode of a call, which has not ended. */
static rein_status open_episode(episode **e, rein_play *p, size_t number, rein_error *err) {
    if (number >= p->n) return rein_fail_at(err, REIN_EINVAL, "episode", -1, "is %zu: there are %zu, counted from 0", number, p->n);
    *e = &p->episodes[number];
    if ((*e)->ended || (*e)->dropped) return rein_fail_at(err, REIN_EINVAL, "episode", -1, "is %zu, which has ended", number);
    return REIN_OK;
}

/* ---------------------------------------------------------------------------------------------------- which conversation it is */

static const char *content_of(const json_t *message) {
    const char *content = json_string_value(json_object_get(message, "content"));
    return content ? content : "";
}

static int same_content(const json_t *a, const json_t *b) {
    const char *x = content_of(a), *y = content_of(b);
    size_t n = strlen(x), m = strlen(y);
    rein_trim(&x, &n);
    rein_trim(&y, &m);
    return n == m && !memcmp(x, y, n);
}

static int same(const json_t *a, const json_t *b) { return a == b || (a && b && json_equal(a, b)); }

/* What the model wrote comes back as its content without blanks around it, and its tool calls. */
static int same_message(const json_t *a, const json_t *b) {
    const char *role = json_string_value(json_object_get(a, "role"));
    if (!role || strcmp(role, "assistant") != 0) return same(a, b);
    return same(json_object_get(a, "role"), json_object_get(b, "role")) && same_content(a, b) &&
           same(json_object_get(a, "tool_calls"), json_object_get(b, "tool_calls"));
}

static int continues(const talk *t, const rein_play_request *turn) {
    const size_t n = json_array_size(t->d.messages);
    if (t->at_work || !t->d.turns || n > json_array_size(turn->messages) || !same(t->d.tools, turn->tools)) return 0;
    for (size_t i = 0; i < n; i++)
        if (!same_message(json_array_get(t->d.messages, i), json_array_get(turn->messages, i))) return 0;
    return 1;
}

/* The longest conversation that the messages continue; NULL: they begin another one. */
static talk *find_talk(const episode *e, const rein_play_request *turn) {
    talk *found = NULL;
    for (size_t i = 0; i < e->n; i++)
        if (continues(e->talks[i], turn) &&
            (!found || json_array_size(e->talks[i]->d.messages) > json_array_size(found->d.messages)))
            found = e->talks[i];
    return found;
}

/* ------------------------------------------------------------------------------------------------------------------------- turns */

/* Puts the ids of the messages into the history of a conversation; on failure, and without room, the conversation is as it was. */
static rein_status put_messages(int *room, const rein_play *p, talk *t, const rein_play_request *turn, rein_error *err) {
    json_t *before = t->d.messages, *given = json_array();
    const size_t n = json_array_size(turn->messages);
    *room = 0;
    if (!given || json_array_extend(given, (json_t *)(uintptr_t)turn->messages)) return json_decref(given), rein_no_memory(err);
    t->d.messages = given;
    const rein_status status = rein_dialogue_prompt(room, &t->d, &p->options, n - json_array_size(before), err);
    if (!*room || status) t->d.messages = before, before = given;
    json_decref(before);
    return status;
}

/* Where the random numbers of a conversation begin. */
static void place_numbers(const episode *e, talk *t) {
    const rein_history *h = rein_dialogue_history(&t->d);
    uint64_t key[2] = {rein_hash(h->ids, h->n * sizeof *h->ids), 0};
    t->prompt = key[0];
    for (size_t i = 0; i < e->n; i++) key[1] += e->talks[i]->prompt == t->prompt;
    t->base = e->n ? APART | rein_hash(key, sizeof key) >> 33 << 32 : 0;
}

static rein_status begin_talk(talk **begun, int *room, const rein_play *p, episode *e, const rein_play_request *turn,
                              rein_error *err) {
    talk **more = realloc(e->talks, (e->n + 1) * sizeof(talk *)), *t = calloc(1, sizeof *t);
    if (more) e->talks = more;
    if (!more || !t) return free(t), rein_no_memory(err);
    *t = (talk){.d = {.trajectory = &e->trajectory}, .of = e, .asked = json_array_size(turn->messages)};
    if (turn->tools) t->d.tools = json_incref((json_t *)(uintptr_t)turn->tools);
    const rein_status status = put_messages(room, p, t, turn, err);
    if (status || !*room) return free_talk(t), status;
    place_numbers(e, t);
    *begun = e->talks[e->n++] = t;
    return REIN_OK;
}

static rein_status check_request(const rein_play_request *turn, rein_error *err) {
    if (!json_is_array(turn->messages) || !json_array_size(turn->messages))
        return rein_fail_at(err, REIN_EINVAL, "messages", -1, "is not a list of one message or more");
    for (size_t i = 0; i < turn->n_stops; i++)
        if (!*turn->stops[i]) return rein_fail_at(err, REIN_EINVAL, "stop", (int64_t)i, "is empty: it would stop every turn");
    return REIN_OK;
}

/* The limits of an episode. */
static rein_status check_limits(const rein_play *p, const episode *e, rein_error *err) {
    const size_t turns = p->options.max_turns, tokens = p->sampling.max_tokens;
    if (turns && e->turns >= turns)
        return rein_fail_at(err, REIN_END, "turns", -1, "are at their limit: the episode has had %zu", e->turns);
    if (e->tokens >= tokens)
        return rein_fail_at(err, REIN_END, "tokens", -1, "are at their limit: %zu were sampled in the episode", e->tokens);
    return REIN_OK;
}

static rein_status no_room(const rein_play *p, rein_error *err) {
    return rein_fail_at(err, REIN_END, "context", -1, "is full: the messages leave no room in the model, which has %lld positions",
                        (long long)p->options.policy.model->config.max_positions);
}

static rein_status reserve_turn(rein_play *p, rein_error *err) {
    if (p->n_turns < p->capacity) return REIN_OK;
    const size_t capacity = 2 * p->capacity + 64;
    talk **moved = realloc(p->talk_of, capacity * sizeof(talk *));
    if (!moved) return rein_no_memory(err);
    p->talk_of = moved, p->capacity = capacity;
    return REIN_OK;
}

static rein_status add_request(rein_play *p, talk *t, const rein_play_request *turn, rein_error *err) {
    const rein_history *h = rein_dialogue_history(&t->d);
    const size_t place = (size_t)(t->of - p->episodes), left = p->sampling.max_tokens - t->of->tokens;
    rein_request request = {
        .prompt = h->ids, .n_prompt = h->n, .samples = 1, .address = p->options.address, .sampling = p->sampling};
    request.sampling.max_tokens = turn->max_tokens && turn->max_tokens < left ? turn->max_tokens : left;
    if (turn->n_stops) request.sampling.stops = turn->stops, request.sampling.n_stops = turn->n_stops;
    request.address.prompt += place / p->options.samples;
    request.address.sample = place % p->options.samples;
    request.address.position = t->base + t->d.tokens;
    return rein_generator_add(&t->request, p->generator, &request, err);
}

static rein_status ask(rein_play *p, episode *e, const rein_play_request *turn, rein_error *err) {
    talk *t = find_talk(e, turn);
    int room = 0;
    rein_status status = reserve_turn(p, err);
    if (!status) status = t ? put_messages(&room, p, t, turn, err) : begin_talk(&t, &room, p, e, turn, err);
    if (!status && !room) status = no_room(p, err);
    if (!status) status = add_request(p, t, turn, err);
    if (status) return status;
    const rein_history *h = rein_dialogue_history(&t->d);
    t->at_work = 1, t->n_prompt = h->n, t->text_length = h->text.length;
    p->talk_of[p->n_turns++] = t;
    e->turns++;
    return REIN_OK;
}

rein_status rein_play_ask(size_t *number, rein_play *p, const rein_play_request *turn, rein_error *err) {
    episode *e = NULL;
    rein_status status = open_episode(&e, p, turn->episode, err);
    if (status) return status;
    if (!(status = check_request(turn, err))) status = check_limits(p, e, err);
    if (!status) status = ask(p, e, turn, err);
    if (status) return in_episode(p, e, status, err);
    *number = p->n_turns - 1;
    return REIN_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------- sampling */

size_t rein_play_unfinished(const rein_play *p) { return rein_generator_unfinished(p->generator); }

static rein_status note_written(rein_play *p, size_t *n, talk *t, const json_t *message, rein_error *err) {
    const rein_history *h = rein_dialogue_history(&t->d);
    if (*n == p->room) {
        const size_t room = 2 * p->room + 16;
        rein_play_turn *moved = realloc(p->written, room * sizeof *moved);
        if (!moved) return rein_no_memory(err);
        p->written = moved, p->room = room;
    }
    p->written[(*n)++] = (rein_play_turn){.number = t->request,
                                          .episode = (size_t)(t->of - p->episodes),
                                          .message = message,
                                          .finish = t->d.finish,
                                          .prompt_tokens = t->n_prompt,
                                          .cached_tokens = t->cached,
                                          .tokens = h->n - t->n_prompt,
                                          .ids = h->ids + t->n_prompt,
                                          .log_probs = h->log_probs + t->n_prompt};
    return REIN_OK;
}

static rein_status end_turn(rein_play *p, size_t *n, talk *t, rein_error *err) {
    const json_t *message;
    char id[60];
    snprintf(id, sizeof id, "call_%zu", t->d.turns);
    rein_status status = rein_dialogue_turn(&message, &t->d, id, err);
    if (status) return status;
    t->at_work = 0;
    t->of->tokens += rein_dialogue_history(&t->d)->n - t->n_prompt;
    p->talk_of[t->request] = NULL;
    return note_written(p, n, t, message, err);
}

static rein_status put_token(rein_play *p, size_t *n, const rein_sampled *s, rein_error *err) {
    talk *t = p->talk_of[s->request];
    if (!s->position) t->cached = s->cached_tokens;
    rein_status status = rein_dialogue_put(&t->d, s, err);
    if (!status && s->finish != REIN_FINISH_NONE) status = end_turn(p, n, t, err);
    return status ? in_episode(p, t->of, status, err) : REIN_OK;
}

rein_status rein_play_step(const rein_play_turn **written, size_t *n, rein_play *p, rein_error *err) {
    const rein_sampled *sampled;
    size_t count = 0, failed;
    *n = 0;
    rein_status status = rein_generator_step(&sampled, &count, p->generator, err);
    if (!status && (status = rein_generator_failed(&failed, p->generator, err))) in_episode(p, p->talk_of[failed]->of, status, err);
    for (size_t i = 0; i < count && !status; i++) status = put_token(p, n, &sampled[i], err);
    *written = p->written;
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------------- ends */

/* A turn that was cancelled leaves nothing in the trajectory. */
static void cancel(rein_play *p, talk *t) {
    rein_history *h = rein_dialogue_history(&t->d);
    rein_generator_cancel(p->generator, t->request);
    p->talk_of[t->request] = NULL;
    t->at_work = 0;
    h->n = t->n_prompt;
    h->text.length = t->text_length;
    if (h->text.data) h->text.data[h->text.length] = 0;
}

static void cancel_all(rein_play *p, const episode *e) {
    for (size_t i = 0; i < e->n; i++)
        if (e->talks[i]->at_work) cancel(p, e->talks[i]);
}

static int is_trained(const rein_history *h) {
    for (size_t i = 0; i < h->n; i++)
        if (h->mask[i]) return 1;
    return 0;
}

/* Histories of turns that were cancelled have nothing that the model wrote. */
static void drop_untrained(rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++)
        if (is_trained(&t->histories[i])) t->histories[n++] = t->histories[i];
        else rein_history_free(&t->histories[i]);
    t->n_histories = n;
}

/* The turns that ended; whether a conversation was cut off at a limit of length, and how the last one ended. */
static size_t sum_up(episode *e) {
    size_t turns = 0;
    for (size_t i = 0; i < e->n; i++) {
        const rein_dialogue *d = &e->talks[i]->d;
        turns += d->turns;
        if (!d->turns) continue;
        e->trajectory.finish = d->finish;
        e->trajectory.truncated |= d->finish == REIN_FINISH_MAX_TOKENS || d->finish == REIN_FINISH_CONTEXT;
    }
    return turns;
}

rein_status rein_play_end(rein_play *p, size_t episode_number, double reward, rein_error *err) {
    episode *e = NULL;
    rein_status status = open_episode(&e, p, episode_number, err);
    if (!status && !isfinite(reward))
        status = rein_fail_at(err, REIN_EINVAL, "reward", -1, "is %g: a finite number is needed", reward);
    if (status) return status;
    cancel_all(p, e);
    const size_t turns = sum_up(e);
    if (!turns) status = rein_fail_at(err, REIN_EINVAL, "episode", -1, "has no turn: the model was asked for nothing");
    if (!status) status = rein_dialogue_keep(&e->talks[0]->d, err);
    if (!status) status = rein_trajectory_set_metric(&e->trajectory, "turns", (double)turns, err);
    if (status) return in_episode(p, e, status, err);
    drop_untrained(&e->trajectory);
    e->trajectory.reward = reward;
    e->ended = 1;
    return REIN_OK;
}

rein_status rein_play_set_metric(rein_play *p, size_t number, const char *name, double value, rein_error *err) {
    if (number >= p->n || !p->episodes[number].ended)
        return rein_fail_at(err, REIN_EINVAL, "episode", -1, "is %zu, which was not ended", number);
    return rein_trajectory_set_metric(&p->episodes[number].trajectory, name, value, err);
}

void rein_play_drop(rein_play *p, size_t number) {
    if (number >= p->n || p->episodes[number].dropped) return;
    episode *e = &p->episodes[number];
    cancel_all(p, e);
    free_episode(e);
    e->ended = 0, e->dropped = 1;
}

/* ------------------------------------------------------------------------------------------------------------------------ groups */

static rein_status make_group(rein_group *group, rein_play *p, size_t g, rein_error *err) {
    episode *first = &p->episodes[g * p->options.samples], *asked = NULL;
    group->trajectories = calloc(p->options.samples, sizeof *group->trajectories);
    if (!group->trajectories) return rein_no_memory(err);
    for (size_t k = 0; k < p->options.samples; k++) {
        if (first[k].dropped) continue;
        if (!asked) asked = &first[k];
        group->trajectories[group->n++] = first[k].trajectory;
        first[k].trajectory = (rein_trajectory){0};
    }
    if (!asked) return REIN_OK;
    return rein_dialogue_example(&group->example, &asked->talks[0]->d, asked->talks[0]->asked, err);
}

static rein_status make_groups(rein_groups *made, rein_play *p, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t g = 0; g < p->options.n && !status; g++) {
        rein_group group = {0};
        status = make_group(&group, p, g, err);
        if (!status && group.n) status = rein_groups_append(made, &group, err);
        rein_group_free(&group);
    }
    return status;
}

rein_status rein_play_take(rein_groups *groups, rein_play *p, rein_error *err) {
    rein_groups made = {0};
    for (size_t i = 0; i < p->n; i++)
        if (!p->episodes[i].ended && !p->episodes[i].dropped)
            return rein_fail_at(err, REIN_EINVAL, "episode", -1, "is %zu, which has not ended", i);
    rein_status status = make_groups(&made, p, err);
    if (!status) status = rein_groups_append_all(groups, made.groups, made.n, err);
    if (!status) made.n = 0;
    rein_groups_free(&made);
    return status;
}
