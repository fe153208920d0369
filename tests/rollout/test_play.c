/* test_play.c - episodes that the calling program plays: the same in any order, exact log-probs over all turns, conversations found again by
 * their messages, limits, cancelled and dropped episodes, mistakes by name, no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "rollout/generator_fixture.h"
#include "support/allocation.h"

static const char CHATS[] = "tests/train/fixtures/groups/tokenizer"; /* the special tokens of every format; no begin token */

static policy noise;
static rein_tokenizer *chats;
static rein_chat chatml;

static int open_all(void **state) {
    (void)state;
    noise = open_policy(&PLAIN, 1);
    OK(rein_tokenizer_open(&chats, CHATS, &error_));
    OK(rein_chat_named(&chatml, "chatml", &error_));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    rein_tokenizer_close(chats);
    close_policy(&noise);
    return 0;
}

static rein_rollout_options options_of(size_t n, size_t samples) {
    rein_rollout_options o = {.n = n,
                              .samples = samples,
                              .policy = noise.p,
                              .tokenizer = chats,
                              .prompting = {.chat = &chatml},
                              .sampling = rein_sampling_plain(),
                              .address = {.step = 5, .prompt = 20}};
    o.sampling.max_tokens = 60, o.sampling.seed = 7;
    return o;
}

static rein_json *parsed(const char *text) {
    rein_json *json = NULL;
    OK(rein_json_parse(&json, text, strlen(text), NULL, 0, &error_));
    return json;
}

/* ---- a player that adds "more" after each turn */

typedef struct player {
    rein_json *messages; /* of the episode */
    size_t turn;         /* number of the turn that it waits for */
    size_t turns;
} player;

static rein_status ask(rein_play *play, player *p, size_t episode, size_t max_tokens, rein_error *err) {
    const rein_play_request request = {.episode = episode, .messages = p->messages, .max_tokens = max_tokens};
    return rein_play_ask(&p->turn, play, &request, err);
}

static player begin(const char *text) { return (player){.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text)}; }

static void take(player *p, const rein_play_turn *turn) {
    assert_int_equal(turn->number, p->turn);
    assert_string_equal(rein_json_string(rein_json_get(turn->message, "role")), "assistant");
    json_array_append(p->messages, (json_t *)(uintptr_t)turn->message);
    json_array_append_new(p->messages, json_pack("{s:s, s:s}", "role", "user", "content", "more"));
    p->turns++;
}

/* Steps until a turn ends; all players whose turns end take them. */
static void step(rein_play *play, player *players) {
    const rein_play_turn *turns;
    size_t n = 0;
    while (!n) {
        assert_true(rein_play_unfinished(play) > 0);
        OK(rein_play_step(&turns, &n, play, &error_));
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(turns[i].tokens > 0 && turns[i].finish != REIN_FINISH_NONE);
        take(&players[turns[i].episode], &turns[i]);
    }
}

enum { N = 6, TURNS = 3 };
static const char *const BEGINS[] = {"one", "two", "three"};

/* n·2 episodes of three turns; together: all at the same time, otherwise one after the other from the last to the first. */
static rein_groups play_all(int together, const rein_rollout_options *o) {
    rein_play *play;
    player players[N];
    rein_groups groups = {0};
    OK(rein_play_open(&play, o, &error_));
    for (size_t i = 0; i < N; i++) players[i] = begin(BEGINS[i / 2]);
    for (size_t i = 0; i < N && together; i++) OK(ask(play, &players[i], i, 10 + i, &error_));
    while (together && rein_play_unfinished(play)) {
        size_t before[N];
        for (size_t i = 0; i < N; i++) before[i] = players[i].turns;
        step(play, players);
        for (size_t i = 0; i < N; i++)
            if (players[i].turns > before[i] && players[i].turns < TURNS) OK(ask(play, &players[i], i, 10 + i, &error_));
    }
    for (size_t i = N; i-- && !together;)
        while (players[i].turns < TURNS) {
            OK(ask(play, &players[i], i, 10 + i, &error_));
            step(play, players);
        }
    for (size_t i = 0; i < N; i++) {
        OK(rein_play_end(play, i, (double)i, &error_));
        OK(rein_play_set_metric(play, i, "place", (double)i, &error_));
        rein_json_free(players[i].messages);
    }
    OK(rein_play_take(&groups, play, &error_));
    rein_play_close(play);
    return groups;
}

static void test_any_order(void **state) {
    (void)state;
    rein_rollout_options o = options_of(N / 2, 2);
    rein_groups a = play_all(1, &o), b;
    o.exec.threads = 3;
    b = play_all(0, &o);
    assert_int_equal(a.n, N / 2);
    for (size_t i = 0; i < N; i++) {
        const rein_trajectory *x = &a.groups[i / 2].trajectories[i % 2], *y = &b.groups[i / 2].trajectories[i % 2];
        const rein_history *h = x->histories;
        assert_int_equal(x->n_histories, 1);
        assert_int_equal(y->n_histories, 1);
        assert_int_equal(h->n, y->histories[0].n);
        assert_memory_equal(h->ids, y->histories[0].ids, h->n * sizeof *h->ids);
        assert_memory_equal(h->mask, y->histories[0].mask, h->n);
        assert_memory_equal(h->log_probs, y->histories[0].log_probs, h->n * sizeof *h->log_probs);
        assert_true(x->reward == (double)i && x->policy_step == 5 && x->n_metrics == 2);
        assert_string_equal(x->json, y->json);
        assert_string_equal(a.groups[i / 2].example.messages[0].content, BEGINS[i / 2]);
        assert_int_equal(a.groups[i / 2].example.n_messages, 1);
    }
    rein_groups_free(&a), rein_groups_free(&b);
}

/* The log-probs of all turns are those of a forward pass over the history; an evaluation has other random numbers. */
static void test_log_probs(void **state) {
    (void)state;
    rein_rollout_options o = options_of(N / 2, 2);
    rein_groups groups = play_all(1, &o), other;
    rein_activations *activations;
    OK(rein_activations_open(&activations, &o.exec, &error_));
    for (size_t i = 0; i < N; i++) {
        const rein_history *h = groups.groups[i / 2].trajectories[i % 2].histories;
        const size_t offsets[] = {0, h->n};
        float *found = calloc(h->n, sizeof *found);
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids};
        OK(rein_forward(found, NULL, activations, &o.policy, &tokens, NULL, &error_));
        size_t trained = 0, begun = 0;
        for (size_t k = 1; k < h->n; k++) {
            if (h->mask[k]) assert_true(found[k] == h->log_probs[k]);
            else assert_true(isnan(h->log_probs[k]));
            trained += h->mask[k], begun += h->mask[k] && !h->mask[k - 1];
        }
        assert_true(begun == TURNS && trained == rein_trajectory_length(&groups.groups[i / 2].trajectories[i % 2]));
        free(found);
    }
    rein_activations_close(activations);
    o.address.purpose = REIN_PURPOSE_EVALUATION, o.address.step = 0;
    other = play_all(1, &o);
    assert_int_equal(other.groups[0].trajectories[0].policy_step, -1);
    rein_groups_free(&groups), rein_groups_free(&other);
}

/* ---- one episode */

static rein_play *open_one(const rein_rollout_options *o) {
    rein_play *play;
    OK(rein_play_open(&play, o, &error_));
    return play;
}

/* What a turn adds to the messages, "more" after it. */
static void one_turn(rein_play *play, player *p) {
    OK(ask(play, p, 0, 5, &error_));
    step(play, p);
}

static const rein_trajectory *end_one(rein_groups *groups, rein_play *play) {
    OK(rein_play_end(play, 0, 1, &error_));
    OK(rein_play_take(groups, play, &error_));
    rein_play_close(play);
    return &groups->groups[0].trajectories[0];
}

static size_t turns_of(const rein_history *h) {
    size_t n = 0;
    for (size_t k = 1; k < h->n; k++) n += h->mask[k] && !h->mask[k - 1];
    return n;
}

/* The second answer to the same messages is a history of its own, in which the first turn does not train again; so are messages that differ from
 * what the model wrote. Blanks around what it wrote change nothing. */
static void test_conversations(void **state) {
    (void)state;
    const rein_rollout_options o = options_of(1, 1);
    rein_play *play = open_one(&o);
    rein_groups groups = {0};
    player p = begin("one"), branch;
    one_turn(play, &p);
    branch = (player){.messages = json_deep_copy(p.messages)};
    one_turn(play, &p);
    json_t *wrote = json_array_get(p.messages, 3);
    char padded[2000];
    snprintf(padded, sizeof padded, " %s\n", json_string_value(json_object_get(wrote, "content")));
    json_t *again = json_deep_copy(p.messages);
    json_object_set_new(json_array_get(again, 3), "content", json_string(padded));
    rein_json_free(p.messages), p.messages = again;
    one_turn(play, &p);
    one_turn(play, &branch);
    const rein_trajectory *t = end_one(&groups, play);
    assert_int_equal(t->n_histories, 2);
    assert_int_equal(turns_of(&t->histories[0]), 3);
    assert_int_equal(turns_of(&t->histories[1]), 1);
    assert_true(t->n_metrics == 1 && t->metrics[0].value == 4);
    rein_json_free(p.messages), rein_json_free(branch.messages);
    rein_groups_free(&groups);
}

/* The same messages asked twice at a time are two samples. */
static void test_twice_at_a_time(void **state) {
    (void)state;
    const rein_rollout_options o = options_of(1, 1);
    rein_play *play = open_one(&o);
    rein_groups groups = {0};
    const rein_play_turn *turns;
    player p = begin("one");
    size_t n;
    OK(ask(play, &p, 0, 12, &error_));
    OK(ask(play, &p, 0, 12, &error_));
    while (rein_play_unfinished(play)) OK(rein_play_step(&turns, &n, play, &error_));
    const rein_trajectory *t = end_one(&groups, play);
    assert_int_equal(t->n_histories, 2);
    const rein_history *h = t->histories;
    assert_true(h[0].n != h[1].n || memcmp(h[0].ids, h[1].ids, h[0].n * sizeof *h[0].ids) != 0);
    rein_json_free(p.messages);
    rein_groups_free(&groups);
}

static void at_limit(rein_play *play, player *p, const char *field) {
    rein_error err = {0};
    assert_int_equal(ask(play, p, 0, 0, &err), REIN_END);
    assert_string_equal(err.field, field);
}

static void test_limits(void **state) {
    (void)state;
    rein_rollout_options o = options_of(1, 1);
    rein_groups groups = {0};
    o.max_turns = 2;
    rein_play *play = open_one(&o);
    player p = begin("one");
    one_turn(play, &p), one_turn(play, &p);
    at_limit(play, &p, "turns");
    rein_play_close(play), rein_json_free(p.messages);

    o.max_turns = 0, o.sampling.max_tokens = 7;
    play = open_one(&o), p = begin("one");
    while (rein_play_unfinished(play) || ask(play, &p, 0, 0, NULL) == REIN_OK) step(play, &p);
    at_limit(play, &p, "tokens");
    const rein_trajectory *t = end_one(&groups, play);
    assert_true(rein_trajectory_length(t) == 7 && t->truncated && t->finish == REIN_FINISH_MAX_TOKENS);
    rein_groups_free(&groups), rein_json_free(p.messages);

    o.sampling.max_tokens = 100000;
    play = open_one(&o), p = begin("one");
    while (rein_play_unfinished(play) || ask(play, &p, 0, 0, NULL) == REIN_OK) step(play, &p);
    at_limit(play, &p, "context");
    t = end_one(&groups, play);
    assert_true(t->histories[0].n <= POSITIONS);
    rein_groups_free(&groups), rein_json_free(p.messages);
}

/* A turn at work when its episode ends leaves nothing; what was dropped is not in the groups. */
static void test_cancelled_and_dropped(void **state) {
    (void)state;
    const rein_rollout_options o = options_of(2, 2);
    rein_groups groups = {0}, none = {0};
    rein_error err = {0};
    rein_play *play = open_one(&o);
    player players[4];
    const rein_play_turn *turns;
    size_t n = 0;
    for (size_t i = 0; i < 4; i++) players[i] = begin("one");
    one_turn(play, &players[0]);
    const size_t length = json_array_size(players[0].messages);
    for (size_t i = 0; i < 4; i++) OK(ask(play, &players[i], i, 0, &error_));
    OK(rein_play_step(&turns, &n, play, &error_));
    OK(rein_play_end(play, 0, 1, &error_));
    assert_int_equal(rein_play_end(play, 1, 1, &err), REIN_EINVAL);
    says(&err, "episode 0, sample 1, turn 2: episode has no turn");
    for (size_t i = 1; i < 4; i++) rein_play_drop(play, i);
    rein_play_drop(play, 3), rein_play_drop(play, 99);
    assert_int_equal(rein_play_unfinished(play), 0);
    OK(rein_play_take(&groups, play, &error_));
    rein_play_close(play);
    assert_true(groups.n == 1 && groups.groups[0].n == 1);
    const rein_trajectory *t = &groups.groups[0].trajectories[0];
    assert_true(t->n_histories == 1 && turns_of(t->histories) == 1 && length == 3);
    rein_groups_free(&groups), rein_groups_free(&none);
    for (size_t i = 0; i < 4; i++) rein_json_free(players[i].messages);
}

/* ---- mistakes */

static void refuses_open(rein_rollout_options o, const char *field) {
    rein_play *play = (rein_play *)&o;
    rein_error err = {0};
    assert_int_equal(rein_play_open(&play, &o, &err), REIN_EINVAL);
    assert_null(play);
    assert_string_equal(err.field, field);
}

static void refuses_ask(rein_play *play, const char *messages, const char *tools, const char *stop, const char *message) {
    rein_json *given = parsed(messages), *listed = tools ? parsed(tools) : NULL;
    const rein_play_request request = {0, given, listed, 3, &stop, stop != NULL};
    rein_error err = {0};
    size_t number;
    assert_int_equal(rein_play_ask(&number, play, &request, &err), REIN_EINVAL);
    says(&err, message);
    rein_json_free(given), rein_json_free(listed);
}

static void test_refused(void **state) {
    (void)state;
    rein_rollout_options o = options_of(1, 1), wrong = o;
    wrong.n = 0, refuses_open(wrong, "n"), wrong = o;
    wrong.samples = 0, refuses_open(wrong, "samples");
    wrong.samples = SIZE_MAX, refuses_open(wrong, "samples"), wrong = o;
    wrong.address.step = UINT64_MAX, refuses_open(wrong, "address.step"), wrong = o;
    wrong.tokenizer = NULL, refuses_open(wrong, "tokenizer"), wrong = o;
    wrong.prompting.chat = NULL, refuses_open(wrong, "chat_format");
    rein_play *play = open_one(&o);
    rein_error err = {0};
    rein_groups groups = {0};
    refuses_ask(play, "{}", NULL, NULL, "messages is not a list");
    refuses_ask(play, "[]", NULL, NULL, "messages is not a list of one message or more");
    refuses_ask(play, "[{\"role\": \"wizard\", \"content\": \"x\"}]", NULL, NULL, "episode 0, sample 0, turn 1: ");
    refuses_ask(play, "[{\"role\": \"user\", \"content\": \"x\"}]", "[]", NULL, "tools cannot be used");
    refuses_ask(play, "[{\"role\": \"user\", \"content\": \"x\"}]", NULL, "", "stop[0] is empty");
    assert_int_equal(rein_play_end(play, 1, 1, &err), REIN_EINVAL);
    says(&err, "episode is 1: there are 1, counted from 0");
    assert_int_equal(rein_play_end(play, 0, NAN, &err), REIN_EINVAL);
    says(&err, "reward is nan");
    assert_int_equal(rein_play_take(&groups, play, &err), REIN_EINVAL);
    says(&err, "episode is 0, which has not ended");
    assert_int_equal(rein_play_set_metric(play, 0, "x", 1, &err), REIN_EINVAL);
    player p = begin("one");
    one_turn(play, &p); /* after all that, the first turn is what it is */
    OK(rein_play_end(play, 0, 1, &error_));
    assert_int_equal(ask(play, &p, 0, 0, &err), REIN_EINVAL);
    says(&err, "episode is 0, which has ended");
    rein_json_free(p.messages);
    rein_play_close(play);
    rein_play_close(NULL);
}

/* ---- no memory */

static rein_status short_play(void *context, rein_error *err) {
    const rein_rollout_options *o = context;
    rein_play *play;
    rein_groups groups = {0};
    rein_json *messages = NULL;
    static const char TEXT[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    rein_status status = rein_play_open(&play, o, err);
    if (!status) status = rein_json_parse(&messages, TEXT, sizeof TEXT - 1, NULL, 0, err);
    const rein_play_request request = {.messages = messages, .max_tokens = 3};
    for (size_t turn = 0; turn < 2 && !status; turn++) {
        const rein_play_turn *turns;
        size_t number, n;
        status = rein_play_ask(&number, play, &request, err);
        while (!status && rein_play_unfinished(play)) status = rein_play_step(&turns, &n, play, err);
    }
    if (!status) status = rein_play_end(play, 0, 1, err);
    if (!status) status = rein_play_take(&groups, play, err);
    rein_play_close(play);
    rein_json_free(messages);
    rein_groups_free(&groups);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    rein_rollout_options o = options_of(1, 1);
    rein_error warm = {0};
    if (!can_fail()) skip();
    fine(short_play(&o, &warm), &warm);
    (void)fail_each_allocation, (void)fail_each; /* too strict: keys that cannot be kept for later turns are computed again */
    json_set_alloc_funcs(__wrap_malloc, give_back);
    for (once = 0; once < 2; once++) {
        long succeeded = 0, n = 0;
        for (failures = 1; failures; n++) {
            rein_error err = {0};
            const int only = once;
            left = n, failures = 0;
            const rein_status status = short_play(&o, &err);
            left = -1, once = only;
            succeeded += status == REIN_OK;
            if (status && (status != REIN_ENOMEM || !*err.message))
                fail_msg("allocation %ld fails: status %d, %s", n, (int)status, err.message);
        }
        assert_true(n > 50 && succeeded < n / 4);
    }
    json_set_alloc_funcs(__real_malloc, give_back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),       cmocka_unit_test(test_log_probs), cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_twice_at_a_time), cmocka_unit_test(test_limits),    cmocka_unit_test(test_cancelled_and_dropped),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
