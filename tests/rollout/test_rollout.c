/* test_rollout.c - examples become prompts, prompts responses: the same whatever else is asked, with texts that belong to their tokens, ended
 * by what ends them, and mistakes said with the number of the example. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/generator_fixture.h"
#include "support/folder.h"

#include "support/allocation.h"

static const char CHATS[] = "tests/train/fixtures/groups/tokenizer"; /* the special tokens of every format; no begin token */
static const char SUMS[] = "models/sums";

static policy sums, noise; /* the shipped model, and a random one whose texts are anything */
static rein_tokenizer *sums_tokenizer, *chats;
static rein_task *task;
static rein_reward *reward;

static int open_all(void **state) {
    const char *spec = "task";
    if (make_folder(state)) return 1;
    OK(rein_model_open(&sums.model, SUMS, NULL, &error_));
    sums.p = (rein_policy){sums.model, NULL, 1};
    noise = open_policy(&PLAIN, 1);
    OK(rein_tokenizer_open(&sums_tokenizer, SUMS, &error_));
    OK(rein_tokenizer_open(&chats, CHATS, &error_));
    OK(rein_task_open(&task, "sums", &(rein_task_options){.seed = 1}, &error_));
    OK(rein_reward_open(&reward, &spec, 1, task, NULL, &error_));
    return 0;
}

static int close_all(void **state) {
    rein_reward_close(reward);
    rein_task_close(task);
    rein_tokenizer_close(sums_tokenizer);
    rein_tokenizer_close(chats);
    close_policy(&sums), close_policy(&noise);
    return remove_folder(state);
}

/* A file of lines as a task; the file is gone when it returns. */
static rein_task *task_of(const char *lines, double held_out) {
    char path[400];
    rein_task *opened;
    snprintf(path, sizeof path, "%s/task.jsonl", folder);
    OK(rein_file_write(path, lines, strlen(lines), &error_));
    OK(rein_task_open(&opened, path, &(rein_task_options){.held_out_share = held_out}, &error_));
    remove(path);
    return opened;
}

static const uint64_t INDICES[] = {3, 7, 1, 12};

/* The shipped model on its task. */
static rein_rollout_options asking_of(size_t n, size_t samples) {
    rein_rollout_options a = {.task = task,
                              .indices = INDICES,
                              .n = n,
                              .samples = samples,
                              .policy = sums.p,
                              .tokenizer = sums_tokenizer,
                              .sampling = rein_sampling_plain(),
                              .address = {.step = 5, .prompt = 20},
                              .sampler_log_probs = 1};
    a.sampling.max_tokens = 24, a.sampling.seed = 7;
    return a;
}

/* The random one on a task of chats or texts. */
static rein_rollout_options noise_of(rein_task *of, size_t n, size_t samples) {
    rein_rollout_options a = asking_of(n, samples);
    a.task = of, a.policy = noise.p, a.tokenizer = chats;
    static const uint64_t first[] = {0, 1, 2, 3};
    a.indices = first;
    return a;
}

static rein_groups make(const rein_rollout_options *a) {
    rein_groups groups = {0};
    OK(rein_rollout_sample(&groups, a, &error_));
    assert_int_equal(groups.n, a->n);
    return groups;
}

/* Groups that are there stay as they are. */
static void refused(const rein_rollout_options *a, rein_status status, const char *wanted) {
    rein_group before[2] = {{.n = 77}};
    rein_groups groups = {before, 1, 2};
    rein_error err = {0};
    if (rein_rollout_sample(&groups, a, &err) != status || strcmp(err.message, wanted) != 0)
        fail_msg("%d, \"%s\": not %d, \"%s\"", (int)err.code, err.message, (int)status, wanted);
    assert_true(groups.groups == before && groups.n == 1 && groups.capacity == 2 && before[0].n == 77);
}

/* What the policy wrote in trajectory i of all: what stands behind the prompt. */
typedef struct completion {
    const int32_t *ids;
    const float *log_probs, *sampler_log_probs;
    const size_t *ends;
    size_t n, n_prompt;
    rein_text text;
    rein_finish finish;
} completion;

static completion completion_of(const rein_groups *groups, size_t i) {
    const size_t samples = groups->groups[0].n;
    const rein_trajectory *t = &groups->groups[i / samples].trajectories[i % samples];
    const rein_history *h = t->histories;
    size_t from = 0;
    assert_int_equal(t->n_histories, 1);
    while (from < h->n && !h->mask[from]) assert_true(isnan(h->log_probs[from]) && !h->text_ends[from]), from++;
    for (size_t k = from; k < h->n; k++) assert_int_equal(h->mask[k], 1);
    assert_int_equal(t->truncated, t->finish == REIN_FINISH_MAX_TOKENS || t->finish == REIN_FINISH_CONTEXT);
    assert_int_equal(rein_trajectory_length(t), h->n - from);
    return (completion){
        h->ids + from, h->log_probs + from, h->sampler_log_probs + from, h->text_ends + from, h->n - from, from, h->text,
        t->finish};
}

static void same_completion(completion a, completion b) {
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
    assert_memory_equal(a.log_probs, b.log_probs, a.n * sizeof *a.log_probs);
    assert_memory_equal(a.sampler_log_probs, b.sampler_log_probs, a.n * sizeof *a.sampler_log_probs);
    assert_memory_equal(a.ends, b.ends, a.n * sizeof *a.ends);
    assert_string_equal(a.text.data, b.text.data);
    assert_int_equal(a.finish, b.finish);
}

/* ------------------------------------------------------------------------------------------------------------------- one answer */

/* A prompt alone, among others, with fewer samples, by any number of threads: the same bits. */
static void test_one_answer(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(4, 4);
    a.exec.threads = 2;
    rein_groups together = make(&a);
    OK(rein_reward_groups(&together, reward, &error_));
    for (size_t i = 0; i < 4; i++) {
        rein_rollout_options one = asking_of(1, i % 2 ? 4 : 2);
        one.exec.threads = 1;
        one.indices = &INDICES[i], one.address.prompt += i;
        rein_groups alone = make(&one);
        OK(rein_reward_groups(&alone, reward, &error_));
        assert_string_equal(alone.groups[0].example.prompt, together.groups[i].example.prompt);
        for (size_t k = 0; k < one.samples; k++) {
            const completion a_one = completion_of(&alone, k), another = completion_of(&together, i * 4 + k);
            assert_int_equal(a_one.n_prompt, another.n_prompt);
            assert_memory_equal(a_one.ids - a_one.n_prompt, another.ids - another.n_prompt, another.n_prompt * sizeof(int32_t));
            same_completion(a_one, another);
            assert_true(alone.groups[0].trajectories[k].reward == together.groups[i].trajectories[k].reward);
            assert_int_equal(alone.groups[0].trajectories[k].policy_step, 5);
        }
        rein_groups_free(&alone);
    }
    rein_groups_free(&together);
}

/* Every history names its rows in the activation cache, and a forward pass finds them; without a cache there is no key. */
static void test_activation_keys(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(3, 4);
    rein_groups without = make(&a);
    OK(rein_activation_cache_open(&a.activation_cache, 1 << 28, 0, &error_));
    rein_groups groups = make(&a);
    rein_activations *activations;
    OK(rein_activations_open(&activations, NULL, &error_));
    const rein_forward_options options = {.keep = 1, .activation_cache = a.activation_cache};
    for (size_t i = 0; i < 12; i++) {
        const rein_history *h = groups.groups[i / 4].trajectories[i % 4].histories;
        const size_t offsets[] = {0, h->n};
        const rein_tokens tokens = {
            .n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask, .activation_keys = &h->activation_key};
        float *log_probs = malloc(h->n * sizeof *log_probs);
        assert_true(h->activation_key > 0 && without.groups[i / 4].trajectories[i % 4].histories->activation_key == 0);
        OK(rein_forward(log_probs, NULL, activations, &a.policy, &tokens, &options, &error_));
        assert_int_equal(rein_activations_cached_tokens(activations), h->n - 1);
        free(log_probs);
        same_completion(completion_of(&groups, i), completion_of(&without, i));
    }
    rein_activations_close(activations);
    rein_groups_free(&groups), rein_groups_free(&without);
    rein_activation_cache_close(a.activation_cache);
}

/* Another seed, step or place: other responses. */
static void test_addresses(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(1, 4);
    rein_groups first = make(&a);
    for (size_t what = 0; what < 3; what++) {
        rein_rollout_options other = a;
        if (what == 0) other.sampling.seed++;
        if (what == 1) other.address.step++;
        if (what == 2) other.address.prompt++;
        rein_groups r = make(&other);
        int differ = 0;
        for (size_t k = 0; k < 4; k++) {
            const completion one = completion_of(&r, k), two = completion_of(&first, k);
            differ |= one.n != two.n || memcmp(one.ids, two.ids, one.n * sizeof *one.ids) != 0;
        }
        assert_true(differ);
        rein_groups_free(&r);
    }
    rein_groups_free(&first);
    a.address = (rein_address){.purpose = REIN_PURPOSE_EVALUATION};
    rein_groups evaluated = make(&a);
    assert_int_equal(evaluated.groups[0].trajectories[3].policy_step, -1);
    rein_groups_free(&evaluated);
    a.address = (rein_address){.step = UINT64_MAX};
    refused(&a, REIN_EINVAL, "address.step is 18446744073709551615: a step of training is at most 9223372036854775807");
}

/* The recorded log-probs are those that training computes. */
static void test_log_probs(void **state) {
    (void)state;
    const rein_rollout_options a = asking_of(2, 2);
    rein_groups r = make(&a);
    rein_activations *activations;
    OK(rein_activations_open(&activations, NULL, &error_));
    for (size_t i = 0; i < 4; i++) {
        const rein_history *h = r.groups[i / 2].trajectories[i % 2].histories;
        const completion c = completion_of(&r, i);
        float log_probs[64];
        assert_true(h->n <= 64);
        const size_t offsets[] = {0, h->n};
        const rein_tokens all = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        OK(rein_forward(log_probs, NULL, activations, &sums.p, &all, NULL, &error_));
        assert_memory_equal(log_probs + c.n_prompt, c.log_probs, c.n * sizeof *log_probs);
        assert_memory_equal(c.sampler_log_probs, c.log_probs, c.n * sizeof *log_probs);
    }
    rein_activations_close(activations);
    rein_groups_free(&r);
}

/* ------------------------------------------------------------------------------------------------------------------------ texts */

/* The bytes up to each token's end are whole characters; in the end they are the text, which is what the ids decode to. */
static void check_text(completion c, const rein_tokenizer *tokenizer) {
    rein_text text = {0};
    size_t before = 0;
    OK(rein_tokenizer_decode(&text, tokenizer, c.ids, c.n, 1, &error_));
    for (size_t i = 0; i < c.n; before = c.ends[i++])
        assert_true(c.ends[i] >= before && ((unsigned char)c.text.data[c.ends[i]] & 0xC0) != 0x80);
    assert_int_equal(c.ends[c.n - 1], c.text.length);
    assert_int_equal(c.text.length, strlen(c.text.data));
    assert_string_equal(c.text.data, text.data ? text.data : "");
    rein_text_free(&text);
}

static void test_texts(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n{\"prompt\": \"one <|im_end|> two\"}\n", 0);
    rein_rollout_options asked[] = {asking_of(2, 2), noise_of(lines, 2, 4)};
    asked[0].sampling.max_tokens = 96;
    for (size_t i = 0; i < 2; i++) {
        rein_groups r = make(&asked[i]);
        for (size_t k = 0; k < asked[i].n * asked[i].samples; k++) check_text(completion_of(&r, k), asked[i].tokenizer);
        rein_groups_free(&r);
    }
    rein_task_close(lines);
}

/* Every third stretch of a text as a stop, many of which begin in one token and end in another: what is before it is the text. */
static void test_stops(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n", 0);
    rein_rollout_options a = noise_of(lines, 1, 1);
    rein_groups whole = make(&a);
    const completion w = completion_of(&whole, 0);
    size_t crossing = 0;
    for (size_t from = 0; from + 3 <= w.text.length; from += 3) {
        char stop[4] = {0};
        size_t n = 0;
        memcpy(stop, w.text.data + from, 3);
        if ((unsigned char)stop[0] >= 0x80 || (unsigned char)stop[1] >= 0x80 || (unsigned char)stop[2] >= 0x80) continue;
        const char *const stops[] = {"nowhere to be found", stop};
        const size_t at = (size_t)(strstr(w.text.data, stop) - w.text.data);
        while (w.ends[n] < at + 3) n++; /* the token with the last byte of the stop, or later where characters had to wait */
        for (size_t i = 0; i < w.n; i++) crossing += w.ends[i] > at && w.ends[i] < at + 3;
        a.sampling.stops = stops, a.sampling.n_stops = 2;
        rein_groups r = make(&a);
        const completion c = completion_of(&r, 0);
        assert_int_equal(c.finish, REIN_FINISH_STOP_TEXT);
        assert_int_equal(c.text.length, at);
        assert_memory_equal(c.text.data, w.text.data, at);
        assert_int_equal(c.n, n + 1);
        assert_memory_equal(c.ids, w.ids, (n + 1) * sizeof *w.ids);
        assert_int_equal(c.ends[n], at);
        rein_groups_free(&r);
    }
    assert_true(crossing > 3);
    rein_groups_free(&whole);
    rein_task_close(lines);
}

/* ------------------------------------------------------------------------------------------------------------------------- ends */

static void test_ends(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(2, 4);
    a.sampling.max_tokens = 96;
    const rein_model_info info = rein_model_describe(sums.model);
    a.sampling.end_ids = info.end_ids, a.sampling.n_end_ids = info.n_end_ids;
    rein_groups r = make(&a);
    size_t ended = 0;
    for (size_t i = 0; i < 8; i++) {
        const completion w = completion_of(&r, i);
        for (size_t k = 0; k + 1 < w.n; k++) assert_int_not_equal(w.ids[k], info.end_ids[0]);
        ended += w.finish == REIN_FINISH_END_TOKEN;
        if (w.finish == REIN_FINISH_END_TOKEN) assert_int_equal(w.ids[w.n - 1], info.end_ids[0]);
        else assert_true(w.finish == REIN_FINISH_MAX_TOKENS && w.n == 96);
    }
    assert_true(ended > 4);
    rein_ids one = {0};
    OK(rein_tokenizer_encode(&one, sums_tokenizer, " ", 1, NULL, &error_));
    const int32_t blank = one.data[0];
    rein_ids_free(&one);
    a.sampling.end_ids = &blank, a.sampling.n_end_ids = 1;
    rein_groups words = make(&a);
    for (size_t i = 0; i < 8; i++) {
        const completion w = completion_of(&words, i), whole = completion_of(&r, i);
        if (w.finish == REIN_FINISH_END_TOKEN) assert_int_equal(w.ids[w.n - 1], blank);
        assert_memory_equal(w.ids, whole.ids, (w.n < whole.n ? w.n : whole.n) * sizeof *w.ids);
    }
    rein_groups_free(&words), rein_groups_free(&r);
}

/* The end of an assistant's turn ends a response, also where the model's list of ends does not have it. */
static void test_end_of_turn(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", 0);
    rein_rollout_options a = noise_of(lines, 1, 4);
    rein_chat chat;
    int32_t end;
    OK(rein_chat_named(&chat, "chatml", &error_));
    OK(rein_turn_end(&end, chats, &chat, &error_));
    a.prompting.chat = &chat;
    a.policy.temperature = 30; /* every token is about as probable as every other */
    a.sampling.max_tokens = 100;
    size_t ended = 0, tried = 0;
    for (; tried < 20 && !ended; tried++, a.address.step++) {
        rein_groups r = make(&a);
        for (size_t k = 0; k < 4; k++) {
            const completion w = completion_of(&r, k);
            for (size_t i = 0; i + 1 < w.n; i++) assert_int_not_equal(w.ids[i], end);
            ended += w.finish == REIN_FINISH_END_TOKEN;
            assert_int_equal(w.finish == REIN_FINISH_END_TOKEN, w.ids[w.n - 1] == end);
        }
        rein_groups_free(&r);
    }
    assert_true(ended > 0);
    int32_t many[REIN_MAX_END_IDS + 1] = {0};
    a.sampling.end_ids = many, a.sampling.n_end_ids = REIN_MAX_END_IDS + 1;
    refused(&a, REIN_EINVAL, "sampling.end_ids has 17 tokens: 16 at most");
    rein_task_close(lines);
}

/* -------------------------------------------------------------------------------------------------------------- what is refused */

static void test_refused(void **state) {
    (void)state;
    char lines[2000], wanted[500], name[320];
    char *at = lines + sprintf(lines, "{\"prompt\": \"fits\"}\n{\"prompt\": \"");
    for (size_t i = 0; i < 299; i++) *at++ = 'x', *at++ = ' ';
    strcpy(at, "\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"prompt\": \"\"}\n");
    rein_task *long_one = task_of(lines, 0);
    rein_rollout_options a = noise_of(long_one, 1, 2);
    a.n = 0;
    refused(&a, REIN_EINVAL, "n is 0: 1 or more is needed");
    a.n = 1, a.samples = 0;
    refused(&a, REIN_EINVAL, "samples is 0: 1 or more is needed");
    a.samples = 2;
    rein_groups r = make(&a); /* the first is fine */
    rein_groups_free(&r);
    snprintf(name, sizeof name, "task %.60s", rein_task_name(long_one));
    a.n = 2;
    snprintf(wanted, sizeof wanted,
             "%s, example 1: prompt has 598 tokens: the model has %d positions, which leaves no room for a "
             "completion",
             name, POSITIONS);
    refused(&a, REIN_EINVAL, wanted);
    const uint64_t chat = 2, empty = 3, beyond = 4;
    a.n = 1, a.indices = &chat;
    snprintf(wanted, sizeof wanted, "%s, example 2: chat_format is not set: the example has messages, which need one", name);
    refused(&a, REIN_EINVAL, wanted);
    a.indices = &empty;
    snprintf(wanted, sizeof wanted, "%s, example 3: the prompt is empty, and the tokenizer adds no begin token", name);
    refused(&a, REIN_EINVAL, wanted);
    a.indices = &beyond;
    rein_error err = {0};
    assert_int_equal(rein_rollout_sample(&r, &a, &err), REIN_END);
    assert_non_null(strstr(err.message, "there is no number 4"));
    a = noise_of(long_one, 1, 2);
    a.sampling.max_tokens = 0;
    snprintf(wanted, sizeof wanted, "%s, example 0: max_tokens is 0: it must be 1 or more", name);
    refused(&a, REIN_EINVAL, wanted);
    rein_task_close(long_one);
}

/* Held-out examples are said to be. */
static void test_refused_held_out(void **state) {
    (void)state;
    char wanted[400];
    rein_task *lines = task_of("{\"prompt\": \"\"}\n{\"prompt\": \"a\"}\n", 0.5);
    size_t found = 0;
    for (int split = 0; split < 2; split++) { /* the empty one is on one of the sides */
        rein_rollout_options a = noise_of(lines, 1, 1);
        rein_groups r = {0};
        rein_error err = {0};
        a.split = split ? REIN_SPLIT_HELD_OUT : REIN_SPLIT_TRAIN;
        if (!rein_rollout_sample(&r, &a, &err)) rein_groups_free(&r);
        else {
            snprintf(wanted, sizeof wanted, "task %.60s, example 0%s: the prompt is empty", rein_task_name(lines),
                     split ? " (held out)" : "");
            assert_non_null(strstr(err.message, wanted));
            found++;
        }
    }
    assert_int_equal(found, 1);
    rein_task_close(lines);
}

/* The generator finds a NaN, and the rollout fails. */
static void test_broken(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n", 0);
    const kind broken = {"llama", "LlamaForCausalLM", 10, 0, NO_ADAPTER, 1, 0, 0, 0, 0, 0};
    policy p = open_policy(&broken, 1);
    rein_rollout_options a = noise_of(lines, 1, 1);
    rein_groups r = {0};
    a.policy = p.p;
    assert_int_equal(rein_rollout_sample(&r, &a, NULL), REIN_ERANGE);
    assert_int_equal(r.n, 0);
    close_policy(&p);
    rein_task_close(lines);
}

/* ---------------------------------------------------------------------------------------------------------------------- rewards */

static size_t told, last_told;
static void tell(void *context, size_t finished, size_t all) {
    assert_ptr_equal(context, &told);
    assert_true(finished > last_told && finished <= all && all == 8);
    told++, last_told = finished;
}

static void test_rewards(void **state) {
    (void)state;
    const char *const specs[] = {"task", "length:20"};
    const double weights[] = {1, -0.5};
    rein_reward *both;
    OK(rein_reward_open(&both, specs, 2, task, &(rein_reward_options){.weights = weights}, &error_));
    rein_rollout_options a = asking_of(4, 2);
    const rein_model_info info = rein_model_describe(sums.model);
    a.sampling.end_ids = info.end_ids, a.sampling.n_end_ids = info.n_end_ids;
    a.sampling.max_tokens = 96, a.sampler_log_probs = 0, a.progress = tell, a.context = &told;
    rein_groups r = make(&a);
    double right = 0;
    assert_true(r.groups[0].trajectories[0].reward == 0 && !r.groups[0].trajectories[0].histories[0].sampler_log_probs);
    for (size_t again = 0; again < 2; again++) OK(rein_reward_groups(&r, both, &error_));
    for (size_t i = 0; i < 8; i++) {
        const rein_trajectory *t = &r.groups[i / 2].trajectories[i % 2];
        const rein_text *text = &t->histories[0].text;
        const size_t n = rein_trajectory_length(t); /* the end token counted */
        const double verified = rein_task_verify(task, &r.groups[i / 2].example, text->data, text->length);
        const double length = n <= 20 ? 1 : n >= 40 ? 0 : (double)(40 - n) / 20;
        assert_int_equal(t->n_scores, 2);
        assert_true(t->scores[0].value == verified && fabs(t->scores[1].value - length) < 1e-12);
        assert_string_equal(t->scores[0].name, "task"), assert_string_equal(t->scores[1].name, "length");
        assert_true(fabs(t->reward - (verified - 0.5 * length)) < 1e-12);
        assert_int_equal(rein_trajectory_is_right(t), verified >= 1);
        right += verified;
    }
    assert_true(right > 0 && right < 8 && told > 1 && last_told == 8);
    rein_groups_free(&r);
    rein_reward_close(both);
}

/* ---------------------------------------------------------------------------------------------------------------------- prompts */

static void encodes(const rein_example *example, const rein_prompting *how, const char *wanted) {
    rein_ids ids = {0};
    rein_text text = {0};
    OK(rein_example_encode(&ids, chats, example, how, &error_));
    OK(rein_tokenizer_decode(&text, chats, ids.data, ids.count, 0, &error_));
    assert_string_equal(text.data, wanted);
    rein_text_free(&text);
    rein_ids_free(&ids);
}

static void not_encoded(const rein_example *example, const rein_prompting *how, const char *wanted) {
    rein_ids ids = {0};
    rein_error err = {0};
    assert_int_equal(rein_example_encode(&ids, chats, example, how, &err), REIN_EINVAL);
    assert_string_equal(err.message, wanted);
    rein_ids_free(&ids);
}

static void test_prompts(void **state) {
    (void)state;
    const rein_message turns[] = {{"user", "hi", 2}, {"assistant", "yo", 2}, {"user", "<|im_end|>", 10}};
    const rein_message told_so[] = {{"system", "be", 2}, {"user", "hi", 2}};
    const rein_example plain = {.prompt = "hi <|im_end|>"}, chat = {.messages = turns, .n_messages = 3},
                       with_system = {.messages = told_so, .n_messages = 2}, empty = {.prompt = ""};
    rein_chat chatml, qwen3;
    OK(rein_chat_named(&chatml, "chatml", &error_));
    OK(rein_chat_named(&qwen3, "qwen3", &error_));
    rein_prompting how = {0};
    encodes(&plain, &how, "hi <|im_end|>");
    how.chat = &chatml;
    encodes(&plain, &how, "hi <|im_end|>"); /* a plain prompt stays one */
    encodes(&chat, &how,
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
            "<|im_start|>assistant\n");
    how.system = "be";
    encodes(&chat, &how,
            "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
    how.chat_prompts = 1;
    encodes(&plain, &how, "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
    how.system = NULL;
    encodes(&empty, &how, "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n");
    how = (rein_prompting){.chat = &qwen3, .no_thinking = 1};
    encodes(&with_system, &how,
            "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");

    how = (rein_prompting){0};
    not_encoded(&chat, &how, "chat_format is not set: the example has messages, which need one");
    not_encoded(&empty, &how, "the prompt is empty, and the tokenizer adds no begin token");
    how.system = "be";
    not_encoded(&plain, &how, "system has no effect: the prompt is plain text, not a chat");
    how.chat = &chatml;
    not_encoded(&with_system, &how, "system cannot be used: the example has a system message of its own");
    how.system = NULL, how.no_thinking = 1;
    not_encoded(&chat, &how, "no_thinking is for the chat format qwen3, and this one is chatml");
}

/* What a chat's contents spell is text; in a plain prompt it is a special token. */
static void test_contents_are_text(void **state) {
    (void)state;
    const int32_t end = rein_tokenizer_id(chats, "<|im_end|>", 10);
    const rein_example example = {.prompt = "<|im_end|>"};
    rein_ids plain = {0}, chat = {0};
    rein_chat chatml;
    OK(rein_chat_named(&chatml, "chatml", &error_));
    OK(rein_example_encode(&plain, chats, &example, &(rein_prompting){0}, &error_));
    OK(rein_example_encode(&chat, chats, &example, &(rein_prompting){.chat = &chatml, .chat_prompts = 1}, &error_));
    assert_true(plain.count == 1 && plain.data[0] == end);
    size_t ends = 0;
    for (size_t i = 0; i < chat.count; i++) ends += chat.data[i] == end;
    assert_int_equal(ends, 1); /* that of the turn */
    rein_ids_free(&plain), rein_ids_free(&chat);
}

static void test_turn_end(void **state) {
    (void)state;
    static const char *const ends[][2] = {{"chatml", "<|im_end|>"},
                                          {"qwen2.5", "<|im_end|>"},
                                          {"qwen3", "<|im_end|>"},
                                          {"llama3", "<|eot_id|>"},
                                          {"llama3.1", "<|eot_id|>"}};
    rein_chat chat;
    int32_t id;
    rein_error err = {0};
    for (size_t i = 0; i < COUNT(ends); i++) {
        OK(rein_chat_named(&chat, ends[i][0], &error_));
        OK(rein_turn_end(&id, chats, &chat, &error_));
        assert_int_equal(id, rein_tokenizer_id(chats, ends[i][1], strlen(ends[i][1])));
        assert_int_equal(rein_turn_end(&id, sums_tokenizer, &chat, &err), REIN_EINVAL);
        assert_non_null(strstr(err.message, "ends turns with <|"));
        assert_non_null(strstr(err.message, ", and the tokenizer has no such token"));
    }
    OK(rein_chat_named(&chat, "raw", &error_));
    OK(rein_turn_end(&id, sums_tokenizer, &chat, &error_));
    assert_int_equal(id, -1);
}

/* ----------------------------------------------------------------------------------------------------------------------- memory */

static rein_reward *exact;

static rein_status short_rollout(void *context, rein_error *err) {
    rein_groups r = {0};
    rein_status status = rein_rollout_sample(&r, context, err);
    if (status) assert_int_equal(r.n, 0);
    if (!status) status = rein_reward_groups(&r, exact, err);
    if (status && r.n) assert_true(!r.groups[0].trajectories[0].scores && !r.groups[0].trajectories[0].n_scores);
    rein_groups_free(&r);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_task *lines = task_of("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"answer\": \"b\"}\n", 0);
    const char *spec = "exact";
    rein_chat chat;
    OK(rein_reward_open(&exact, &spec, 1, NULL, NULL, &error_));
    OK(rein_chat_named(&chat, "chatml", &error_));
    rein_rollout_options a = noise_of(lines, 1, 2);
    const char *const stops[] = {"zzz"};
    a.prompting = (rein_prompting){.chat = &chat, .system = "be"};
    a.sampling.stops = stops, a.sampling.n_stops = 1, a.sampling.max_tokens = 2;
    a.exec.threads = 1;
    (void)fail_each_allocation; /* too strict: an arena that cannot have much asks for less */
    once = 0;
    json_set_alloc_funcs(__wrap_malloc, give_back);
    assert_true(fail_each(short_rollout, &a) > 20);
    json_set_alloc_funcs(__real_malloc, give_back);
    once = failures = 1;
    for (long k = 0; failures; k++) {
        rein_error err = {0};
        left = k, failures = 0;
        const rein_status status = short_rollout(&a, &err);
        left = -1;
        if (status && status != REIN_ENOMEM) fail_msg("allocation %ld fails: status %d, %s", k, (int)status, err.message);
    }
    rein_reward_close(exact);
    rein_task_close(lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_answer), cmocka_unit_test(test_activation_keys),
        cmocka_unit_test(test_addresses),  cmocka_unit_test(test_log_probs),
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_stops),
        cmocka_unit_test(test_ends),       cmocka_unit_test(test_end_of_turn),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_refused_held_out),
        cmocka_unit_test(test_broken),     cmocka_unit_test(test_rewards),
        cmocka_unit_test(test_prompts),    cmocka_unit_test(test_contents_are_text),
        cmocka_unit_test(test_turn_end),   cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
