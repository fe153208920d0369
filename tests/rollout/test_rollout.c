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
                              .step = 5,
                              .first_prompt = 20,
                              .reward = reward};
    a.sampling.max_tokens = 24, a.sampling.seed = 7;
    return a;
}

/* The random one on a task of chats or texts. */
static rein_rollout_options noise_of(rein_task *of, size_t n, size_t samples) {
    rein_rollout_options a = asking_of(n, samples);
    a.task = of, a.policy = noise.p, a.tokenizer = chats, a.reward = NULL;
    static const uint64_t first[] = {0, 1, 2, 3};
    a.indices = first;
    return a;
}

static rein_rollout make(const rein_rollout_options *a) {
    rein_rollout r;
    OK(rein_rollout_make(&r, a, &error_));
    return r;
}

static void refused(const rein_rollout_options *a, rein_status status, const char *wanted) {
    rein_rollout r;
    rein_error err = {0};
    memset(&r, 1, sizeof r);
    if (rein_rollout_make(&r, a, &err) != status || strcmp(err.message, wanted) != 0)
        fail_msg("%d, \"%s\": not %d, \"%s\"", (int)err.code, err.message, (int)status, wanted);
    const rein_rollout none = {0};
    assert_memory_equal(&r, &none, sizeof r);
}

static void same_completion(const rein_completion *a, const rein_completion *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_memory_equal(a->log_probs, b->log_probs, a->n * sizeof *a->log_probs);
    assert_memory_equal(a->sampler_log_probs, b->sampler_log_probs, a->n * sizeof *a->sampler_log_probs);
    assert_memory_equal(a->ends, b->ends, a->n * sizeof *a->ends);
    assert_string_equal(a->text.data, b->text.data);
    assert_int_equal(a->finish, b->finish);
}

/* ------------------------------------------------------------------------------------------------------------------- one answer */

/* A prompt alone, among others, with fewer samples, by any number of threads: the same bits. */
static void test_one_answer(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(4, 4);
    a.exec.threads = 2;
    rein_rollout together = make(&a);
    for (size_t i = 0; i < 4; i++) {
        rein_rollout_options one = asking_of(1, i % 2 ? 4 : 2);
        one.exec.threads = 1;
        one.indices = &INDICES[i], one.first_prompt += i;
        rein_rollout alone = make(&one);
        assert_int_equal(alone.prompts[0].count, together.prompts[i].count);
        assert_memory_equal(alone.prompts[0].data, together.prompts[i].data, alone.prompts[0].count * sizeof(int32_t));
        assert_string_equal(alone.examples[0].prompt, together.examples[i].prompt);
        for (size_t k = 0; k < one.samples; k++) {
            same_completion(&alone.written[k], &together.written[i * 4 + k]);
            assert_true(alone.rewards[k] == together.rewards[i * 4 + k]);
        }
        rein_rollout_free(&alone);
    }
    rein_rollout_free(&together);
}

/* Another seed, step or place: other responses. */
static void test_addresses(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(1, 4);
    rein_rollout first = make(&a);
    for (size_t what = 0; what < 3; what++) {
        rein_rollout_options other = a;
        if (what == 0) other.sampling.seed++;
        if (what == 1) other.step++;
        if (what == 2) other.first_prompt++;
        rein_rollout r = make(&other);
        int differ = 0;
        for (size_t k = 0; k < 4; k++)
            differ |= r.written[k].n != first.written[k].n ||
                      memcmp(r.written[k].ids, first.written[k].ids, r.written[k].n * sizeof(int32_t)) != 0;
        assert_true(differ);
        rein_rollout_free(&r);
    }
    rein_rollout_free(&first);
}

/* The recorded log-probs are those that training computes. */
static void test_log_probs(void **state) {
    (void)state;
    const rein_rollout_options a = asking_of(2, 2);
    rein_rollout r = make(&a);
    rein_activations *activations;
    OK(rein_activations_open(&activations, NULL, &error_));
    for (size_t i = 0; i < 4; i++) {
        const rein_ids *prompt = &r.prompts[i / 2];
        const rein_completion *w = &r.written[i];
        int32_t ids[64];
        float log_probs[64];
        assert_true(prompt->count + w->n <= 64);
        memcpy(ids, prompt->data, prompt->count * sizeof *ids);
        memcpy(ids + prompt->count, w->ids, w->n * sizeof *ids);
        const size_t offsets[] = {0, prompt->count + w->n};
        uint8_t wanted[64] = {0};
        memset(wanted + prompt->count, 1, w->n);
        const rein_tokens all = {.n = 1, .offsets = offsets, .ids = ids, .wanted = wanted};
        OK(rein_forward(log_probs, NULL, activations, &sums.p, &all, NULL, &error_));
        assert_memory_equal(log_probs + prompt->count, w->log_probs, w->n * sizeof *log_probs);
        assert_memory_equal(w->sampler_log_probs, w->log_probs, w->n * sizeof *log_probs);
    }
    rein_activations_close(activations);
    rein_rollout_free(&r);
}

/* ------------------------------------------------------------------------------------------------------------------------ texts */

/* The bytes up to each token's end are whole characters; in the end they are the text, which is what the ids decode to. */
static void check_text(const rein_completion *w, const rein_tokenizer *tokenizer) {
    rein_text text = {0};
    size_t before = 0;
    OK(rein_tokenizer_decode(&text, tokenizer, w->ids, w->n, 1, &error_));
    for (size_t i = 0; i < w->n; before = w->ends[i++])
        assert_true(w->ends[i] >= before && ((unsigned char)w->text.data[w->ends[i]] & 0xC0) != 0x80);
    assert_int_equal(w->ends[w->n - 1], w->text.length);
    assert_int_equal(w->text.length, strlen(w->text.data));
    assert_string_equal(w->text.data, text.data ? text.data : "");
    rein_text_free(&text);
}

static void test_texts(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n{\"prompt\": \"one <|im_end|> two\"}\n", 0);
    rein_rollout_options asked[] = {asking_of(2, 2), noise_of(lines, 2, 4)};
    asked[0].sampling.max_tokens = 96;
    for (size_t i = 0; i < 2; i++) {
        rein_rollout r = make(&asked[i]);
        for (size_t k = 0; k < r.n * r.samples; k++) check_text(&r.written[k], asked[i].tokenizer);
        rein_rollout_free(&r);
    }
    rein_task_close(lines);
}

/* Every third stretch of a text as a stop, many of which begin in one token and end in another: what is before it is the text. */
static void test_stops(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n", 0);
    rein_rollout_options a = noise_of(lines, 1, 1);
    rein_rollout whole = make(&a);
    const rein_completion *w = &whole.written[0];
    size_t crossing = 0;
    for (size_t from = 0; from + 3 <= w->text.length; from += 3) {
        char stop[4] = {0};
        size_t n = 0;
        memcpy(stop, w->text.data + from, 3);
        if ((unsigned char)stop[0] >= 0x80 || (unsigned char)stop[1] >= 0x80 || (unsigned char)stop[2] >= 0x80) continue;
        const char *const stops[] = {"nowhere to be found", stop};
        const size_t at = (size_t)(strstr(w->text.data, stop) - w->text.data);
        while (w->ends[n] < at + 3) n++; /* the token with the last byte of the stop, or later where characters had to wait */
        for (size_t i = 0; i < w->n; i++) crossing += w->ends[i] > at && w->ends[i] < at + 3;
        a.sampling.stops = stops, a.sampling.n_stops = 2;
        rein_rollout r = make(&a);
        assert_int_equal(r.written[0].finish, REIN_FINISH_STOP_TEXT);
        assert_int_equal(r.written[0].text.length, at);
        assert_memory_equal(r.written[0].text.data, w->text.data, at);
        assert_int_equal(r.written[0].n, n + 1);
        assert_memory_equal(r.written[0].ids, w->ids, (n + 1) * sizeof *w->ids);
        assert_int_equal(r.written[0].ends[n], at);
        rein_rollout_free(&r);
    }
    assert_true(crossing > 3);
    rein_rollout_free(&whole);
    rein_task_close(lines);
}

/* ------------------------------------------------------------------------------------------------------------------------- ends */

static void test_ends(void **state) {
    (void)state;
    rein_rollout_options a = asking_of(2, 4);
    a.sampling.max_tokens = 96;
    const rein_model_info info = rein_model_describe(sums.model);
    a.sampling.end_ids = info.end_ids, a.sampling.n_end_ids = info.n_end_ids;
    rein_rollout r = make(&a);
    size_t ended = 0;
    for (size_t i = 0; i < 8; i++) {
        const rein_completion *w = &r.written[i];
        for (size_t k = 0; k + 1 < w->n; k++) assert_int_not_equal(w->ids[k], info.end_ids[0]);
        ended += w->finish == REIN_FINISH_END_TOKEN;
        if (w->finish == REIN_FINISH_END_TOKEN) assert_int_equal(w->ids[w->n - 1], info.end_ids[0]);
        else assert_true(w->finish == REIN_FINISH_MAX_TOKENS && w->n == 96);
    }
    assert_true(ended > 4);
    rein_ids one = {0};
    OK(rein_tokenizer_encode(&one, sums_tokenizer, " ", 1, NULL, &error_));
    const int32_t blank = one.data[0];
    rein_ids_free(&one);
    a.sampling.end_ids = &blank, a.sampling.n_end_ids = 1;
    rein_rollout words = make(&a);
    for (size_t i = 0; i < 8; i++) {
        const rein_completion *w = &words.written[i];
        if (w->finish == REIN_FINISH_END_TOKEN) assert_int_equal(w->ids[w->n - 1], blank);
        assert_memory_equal(w->ids, r.written[i].ids, (w->n < r.written[i].n ? w->n : r.written[i].n) * sizeof *w->ids);
    }
    rein_rollout_free(&words), rein_rollout_free(&r);
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
    for (; tried < 20 && !ended; tried++, a.step++) {
        rein_rollout r = make(&a);
        for (size_t k = 0; k < 4; k++) {
            const rein_completion *w = &r.written[k];
            for (size_t i = 0; i + 1 < w->n; i++) assert_int_not_equal(w->ids[i], end);
            ended += w->finish == REIN_FINISH_END_TOKEN;
            assert_int_equal(w->finish == REIN_FINISH_END_TOKEN, w->ids[w->n - 1] == end);
        }
        rein_rollout_free(&r);
    }
    assert_true(ended > 0);
    int32_t many[REIN_MAX_END_IDS + 1] = {0};
    a.sampling.end_ids = many, a.sampling.n_end_ids = REIN_MAX_END_IDS + 1;
    refused(&a, REIN_EINVAL, "there are 17 end tokens: 16 at most");
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
    refused(&a, REIN_EINVAL, "nothing is asked: a rollout has one prompt or more");
    a.n = 1, a.samples = 0;
    refused(&a, REIN_EINVAL, "nothing is asked: a rollout has one prompt or more");
    a.samples = 2;
    rein_rollout r = make(&a); /* the first is fine */
    rein_rollout_free(&r);
    snprintf(name, sizeof name, "task %.60s", rein_task_name(long_one));
    a.n = 2;
    snprintf(wanted, sizeof wanted,
             "%s, example 1: prompt has 598 tokens: the model has %d positions, which leaves no room for a "
             "completion",
             name, POSITIONS);
    refused(&a, REIN_EINVAL, wanted);
    const uint64_t chat = 2, empty = 3, beyond = 4;
    a.n = 1, a.indices = &chat;
    snprintf(wanted, sizeof wanted, "%s, example 2: the example has messages, and there is no chat format: chat_format names one",
             name);
    refused(&a, REIN_EINVAL, wanted);
    a.indices = &empty;
    snprintf(wanted, sizeof wanted, "%s, example 3: the prompt is empty, and the tokenizer adds no begin token", name);
    refused(&a, REIN_EINVAL, wanted);
    a.indices = &beyond;
    rein_error err = {0};
    assert_int_equal(rein_rollout_make(&r, &a, &err), REIN_ERANGE);
    assert_non_null(strstr(err.message, "there is no number 4"));
    a = noise_of(long_one, 1, 2);
    a.sampling.max_tokens = 0;
    snprintf(wanted, sizeof wanted, "%s, example 0: max_tokens is 0: 1 or more", name);
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
        rein_rollout r;
        rein_error err = {0};
        a.split = split ? REIN_SPLIT_HELD_OUT : REIN_SPLIT_TRAIN;
        if (!rein_rollout_make(&r, &a, &err)) rein_rollout_free(&r);
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

/* A number that is none is found by the generator, and the rollout is gone. */
static void test_broken(void **state) {
    (void)state;
    rein_task *lines = task_of("{\"prompt\": \"a\"}\n", 0);
    const kind broken = {"llama", "LlamaForCausalLM", 10, 0, NO_ADAPTER, 1, 0, 0, 0};
    policy p = open_policy(&broken, 1);
    rein_rollout_options a = noise_of(lines, 1, 1);
    rein_rollout r;
    a.policy = p.p;
    assert_int_equal(rein_rollout_make(&r, &a, NULL), REIN_ERANGE);
    assert_null(r.written);
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
    a.sampling.max_tokens = 96, a.reward = both, a.progress = tell, a.context = &told;
    rein_rollout r = make(&a);
    double right = 0;
    assert_int_equal(r.judges, 2);
    for (size_t i = 0; i < 8; i++) {
        const rein_completion *w = &r.written[i];
        const double verified = rein_task_verify(task, &r.examples[i / 2], w->text.data, w->text.length);
        const double length = w->n <= 20 ? 1 : w->n >= 40 ? 0 : (double)(40 - w->n) / 20; /* the end token counted */
        assert_true(r.components[2 * i] == verified && fabs(r.components[2 * i + 1] - length) < 1e-12);
        assert_true(fabs(r.rewards[i] - (verified - 0.5 * length)) < 1e-12);
        right += verified;
    }
    assert_true(right > 0 && right < 8 && told > 1 && last_told == 8);
    rein_rollout_free(&r);
    a.reward = NULL, a.progress = NULL;
    r = make(&a);
    assert_true(r.judges == 0 && r.rewards[0] == 0);
    rein_rollout_free(&r);
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
    not_encoded(&chat, &how, "the example has messages, and there is no chat format: chat_format names one");
    not_encoded(&empty, &how, "the prompt is empty, and the tokenizer adds no begin token");
    how.system = "be";
    not_encoded(&plain, &how, "system cannot act: the prompt is plain text, not a chat");
    how.chat = &chatml;
    not_encoded(&with_system, &how, "the example has a system message of its own, and system gives another");
    how.system = NULL, how.no_thinking = 1;
    not_encoded(&chat, &how, "without thinking is for the chat format qwen3, and this one is chatml");
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

static rein_status short_rollout(void *context, rein_error *err) {
    rein_rollout r;
    const rein_status status = rein_rollout_make(&r, context, err);
    const rein_rollout none = {0};
    if (status) assert_memory_equal(&r, &none, sizeof r);
    else rein_rollout_free(&r);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_task *lines = task_of("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"answer\": \"b\"}\n", 0);
    const char *spec = "exact";
    rein_reward *exact;
    rein_chat chat;
    OK(rein_reward_open(&exact, &spec, 1, NULL, NULL, &error_));
    OK(rein_chat_named(&chat, "chatml", &error_));
    rein_rollout_options a = noise_of(lines, 1, 2);
    const char *const stops[] = {"zzz"};
    a.prompting = (rein_prompting){.chat = &chat, .system = "be"};
    a.sampling.stops = stops, a.sampling.n_stops = 1, a.sampling.max_tokens = 2;
    a.reward = exact, a.exec.threads = 1;
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
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_log_probs),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_end_of_turn),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_held_out),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_rewards),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_contents_are_text),
        cmocka_unit_test(test_turn_end),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
