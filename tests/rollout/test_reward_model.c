/* test_reward_model.c - the judge model:DIR: its scores are those of rein_scores on prompt and completion, alone and in groups, bit for bit; whole
 * models and adapters, ours and others'; several of them; and an error for each thing that can be wrong. Scores of models that
 * transformers and PEFT wrote are compared in tests/parity/trainer. The tokenizer is that of the shipped model, one token a character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/reward_form.h"

#include "rein/model.h"
#include "rollout/reward.h"
#include "rollout/reward_fixture.h"
#include "support/folder.h"

enum { END = 0, POSITIONS = 256 };
static const rein_reward_form OURS = {.known = 1, .end_id = END};

static void ok(rein_status status) {
    if (status) fail_msg("%s", err.message);
}

static const char *sums(void) {
    static char path[1000];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/../models/sums", tests ? tests : "tests");
    return path;
}

static rein_model *open_scored(const char *directory, uint64_t seed) {
    rein_model *model;
    ok(rein_model_open(&model, directory, &(rein_model_options){.score = REIN_SCORE_RANDOM, .score_seed = seed}, &err));
    return model;
}

/* A reward model in a folder; form NULL: as others write it. Returns "model:FOLDER". */
static const char *write_model(const char *name, uint64_t seed, const rein_reward_form *form) {
    static char specs[8][400];
    static int next;
    char *spec = specs[next++ % 8];
    rein_model *model = open_scored(sums(), seed);
    if (form) rein_reward_form_set(model, NULL, form);
    snprintf(spec, 400, "model:%s", in_folder(name));
    ok(rein_model_save(model, NULL, spec + strlen("model:"), &err));
    rein_model_close(model);
    return spec;
}

static const char *write_adapter(const char *name, rein_score_head score) {
    static char spec[400];
    rein_model *model;
    rein_adapter *adapter;
    ok(rein_model_open(&model, sums(), NULL, &err));
    ok(rein_adapter_new(&adapter, model, &(rein_lora_options){.rank = 2, .alpha = 4, .seed = 3, .score = score}, &err));
    if (score) rein_reward_form_set(model, adapter, &OURS);
    snprintf(spec, sizeof spec, "model:%s", in_folder(name));
    ok(rein_adapter_save(adapter, spec + strlen("model:"), &err));
    rein_adapter_close(adapter);
    rein_model_close(model);
    return spec;
}

/* The score at the last token of a text, of the model in a folder or of an adapter of the shipped one. */
static double score_of(const char *spec, const char *text, int end) {
    const char *directory = spec + strlen("model:");
    const int adapts = strstr(spec, "adapter") != NULL;
    rein_model *model;
    rein_adapter *adapter = NULL;
    rein_tokenizer *tokenizer;
    rein_activations *a;
    rein_ids ids = {0};
    ok(rein_model_open(&model, adapts ? sums() : directory,
                       &(rein_model_options){.score = adapts ? REIN_SCORE_NONE : REIN_SCORE_STORED}, &err));
    if (adapts) ok(rein_adapter_open(&adapter, model, directory, &err));
    ok(rein_tokenizer_open(&tokenizer, sums(), &err));
    ok(rein_tokenizer_encode(&ids, tokenizer, text, strlen(text), NULL, &err));
    if (end) ok(rein_ids_append(&ids, END, &err));
    float *scores = calloc(ids.count, sizeof *scores);
    const size_t offsets[] = {0, ids.count};
    const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = ids.data};
    ok(rein_activations_open(&a, NULL, &err));
    ok(rein_scores(scores, a, &(rein_policy){model, adapter, 1}, &tokens, NULL, &err));
    const double score = (double)scores[ids.count - 1];
    free(scores);
    rein_ids_free(&ids);
    rein_activations_close(a);
    rein_tokenizer_close(tokenizer);
    rein_adapter_close(adapter);
    rein_model_close(model);
    return score;
}

/* ---- scores */

static void test_scores(void **state) {
    (void)state;
    const char *specs[] = {write_model("ours", 4, &OURS), write_model("theirs", 4, NULL),
                           write_adapter("adapter", REIN_SCORE_RANDOM)};
    static const char *const answers[] = {"3", "21", "3 and more", ""};
    for (size_t m = 0; m < 3; m++) {
        rein_reward *reward = open_with(specs[m], NULL);
        for (size_t i = 0; i < 4; i++) respond(i, "1+2=", NULL, answers[i])->group = 0;
        respond(4, "what is 9+9", NULL, "18")->group = 1;
        give(reward, 5);
        for (size_t i = 0; i < 5; i++) {
            char text[60];
            const double together = rewards[i];
            snprintf(text, sizeof text, "%s%s", responses[i].example->prompt, responses[i].text);
            assert_true(together == score_of(specs[m], text, m != 1));
            rein_response alone = responses[i];
            double again;
            ok(rein_reward_give(&again, NULL, reward, &alone, 1, &err));
            assert_true(again == together);
        }
        assert_true(rewards[0] != rewards[1] && rewards[1] != rewards[2]);
        rein_reward_close(reward);
    }
}

/* Threads and the number of completions that share a prompt change no bit. */
static void test_one_answer(void **state) {
    (void)state;
    const char *spec = write_model("one", 6, &OURS);
    double first[40];
    for (int threads = 1; threads <= 3; threads += 2) {
        rein_reward *reward = open_with(spec, &(rein_reward_options){.exec = {.threads = threads}});
        respond_many(40);
        for (size_t i = 0; i < 40; i++) responses[i].group = 0, responses[i].example = &examples[0];
        give(reward, 40);
        if (threads == 1) memcpy(first, rewards, sizeof first);
        assert_memory_equal(first, rewards, sizeof first);
        rein_reward_close(reward);
    }
}

/* The end token is not repeated; special tokens that a completion spells out are text. */
static void test_text(void **state) {
    (void)state;
    const char *spec = write_model("text", 5, &OURS);
    rein_reward *reward = open_with(spec, NULL);
    respond(0, "1+1=2<end>", NULL, "");
    respond(1, "1+1=", NULL, "2");
    respond(2, "1+1=", NULL, "2<end>");
    give(reward, 3);
    assert_true(rewards[0] == rewards[1] && rewards[1] != rewards[2]);
    rein_reward_close(reward);
}

/* A prompt that is a user's message, in the model's chat format. */
static void test_chat(void **state) {
    (void)state;
    const rein_reward_form form = {.known = 1, .end_id = END, .chat_format = "raw"};
    const char *spec = write_model("chat", 5, &form);
    const rein_prompting chats = {.chat_prompts = 1, .system = "sum:"};
    rein_reward *reward = open_with(spec, &(rein_reward_options){.prompting = &chats});
    respond(0, "1+1=", NULL, "2");
    give(reward, 1);
    assert_true(rewards[0] == score_of(spec, "sum:1+1=2", 0)); /* what the format renders, without an end token */
    rein_reward_close(reward);
}

/* ---- several */

static void test_ensemble(void **state) {
    (void)state;
    const char *specs[] = {write_model("first/checkpoints/0007", 7, &OURS), write_model("second", 8, &OURS), "length:10"};
    const double weights[] = {0.5, 0.5, 2};
    rein_reward *reward;
    ok(rein_reward_open(&reward, specs, 3, NULL, &(rein_reward_options){.weights = weights}, &err));
    assert_string_equal(rein_reward_name(reward, 0), "first");
    assert_string_equal(rein_reward_name(reward, 1), "second");
    respond(0, "1+1=", NULL, "2");
    give(reward, 1);
    assert_true(components[0] == score_of(specs[0], "1+1=2", 1) && components[1] == score_of(specs[1], "1+1=2", 1));
    assert_true(components[0] != components[1] && fabs(rewards[0] - (components[0] + components[1]) / 2 - 2) < 1e-12);
    rein_reward_close(reward);
}

/* ---- errors */

static void refuses_with(const char *spec, const char *part) {
    rein_reward *reward;
    assert_int_equal(rein_reward_open(&reward, &spec, 1, NULL, NULL, &err), REIN_EINVAL);
    assert_null(reward);
    assert_string_equal(err.field, "reward");
    if (!strstr(err.message, part)) fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void copy_file(const char *from, const char *to) {
    char command[6000];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static void edit(const char *path, const char *expression) {
    char command[6000];
    snprintf(command, sizeof command, "sed -i '%s' '%s'", expression, path);
    assert_int_equal(system(command), 0);
}

static void test_refused(void **state) {
    (void)state;
    char spec[1100];
    refuses_with("model:", "needs an argument after the colon: model:DIR");
    refuses_with("model:/nowhere", "/nowhere does not exist");
    snprintf(spec, sizeof spec, "model:%s", sums());
    refuses_with(spec, "has no tensor score.weight: a reward model has it, with the shape [1, 96]");
    refuses_with(write_adapter("adapter of a language model", REIN_SCORE_NONE), "is an adapter of a language model");
    const char *adapter = write_adapter("adapter without its model", REIN_SCORE_RANDOM);
    snprintf(spec, sizeof spec, "%s/adapter_config.json", adapter + strlen("model:"));
    edit(spec, "s|\"base_model_name_or_path\": \".*\"|\"base_model_name_or_path\": \"org/model\"|");
    refuses_with(adapter, "is an adapter of \"org/model\" (base_model_name_or_path), which is not a local directory");
    const char *model = write_model("no tokenizer", 3, &OURS);
    snprintf(spec, sizeof spec, "%s/tokenizer.json", model + strlen("model:"));
    assert_int_equal(unlink(spec), 0);
    refuses_with(model, "has no tokenizer.json, which a reward model needs to read texts");
}

static void test_another_tokenizer(void **state) {
    (void)state;
    char path[500];
    const char *tests = getenv("REIN_TESTS_DIR"), *model = write_model("another", 3, &OURS);
    snprintf(path, sizeof path, "%s/tokenizer.json", model + strlen("model:"));
    char from[1000];
    snprintf(from, sizeof from, "%s/model/fixtures/tokenizer/gpt2/tokenizer.json", tests ? tests : "tests");
    copy_file(from, path);
    refuses_with(model, "and the reward model 97: it is that of another model");
}

static void test_damaged_form(void **state) {
    (void)state;
    char path[500];
    const char *model = write_model("damaged", 3, &OURS);
    snprintf(path, sizeof path, "%s/reward_model.json", model + strlen("model:"));
    edit(path, "s|\"chat_format\": null|\"chat_format\": \"llama9\"|");
    refuses_with(model, "chat_format is \"llama9\": the name of a chat format, or null, is needed");
    edit(path, "s|\"end_token_id\": 0|\"end_token_id\": -3|");
    refuses_with(model, "end_token_id is -3");
}

static void test_no_room(void **state) {
    (void)state;
    char text[POSITIONS];
    rein_reward *reward = open_with(write_model("room", 3, &OURS), NULL);
    memset(text, '1', sizeof text);
    text[POSITIONS - 2] = 0;
    respond(0, "1=", NULL, text + 1); /* 2 of the prompt, 253, and the end token */
    respond(1, "1=", NULL, text);
    give(reward, 1);
    fails(reward, 2, REIN_EINVAL,
          "room: response 2 of 2 (prompt \"1=\"): prompt and completion have 257 tokens, and the reward model has 256 positions");
    rein_reward_close(reward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_scores, forget_responses),
        cmocka_unit_test_teardown(test_one_answer, forget_responses),
        cmocka_unit_test_teardown(test_text, forget_responses),
        cmocka_unit_test_teardown(test_chat, forget_responses),
        cmocka_unit_test_teardown(test_ensemble, forget_responses),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_another_tokenizer),
        cmocka_unit_test(test_damaged_form),
        cmocka_unit_test_teardown(test_no_room, forget_responses),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
