/* test_critic.c - runs with a critic: it learns; the same bits for threads, ranks, and after a resume; its checkpoints and metrics; what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "support/thread_ranks.h"
#include "train/critic.h"
#include "train/loop_fixture.h"
#include "train/session.h"
#include "train/trainer.h"

#define PPO "preset=ppo|critic=same|critic_learning_rate=0.02"
#define KL "|kl_reward_coef=0.1|kl_target=0.5|kl_horizon=64"

static const char *const CRITIC_FILES[] = {"critic/adapter_config.json", "critic/adapter_model.safetensors",
                                           "critic/optimizer.safetensors"};

static void assert_same_critics(const char *run, const char *other, size_t step) {
    for (size_t i = 0; i < COUNT(CRITIC_FILES); i++)
        if (!same_file(checkpoint(run, step, CRITIC_FILES[i]), checkpoint(other, step, CRITIC_FILES[i])))
            fail_msg("checkpoint %zu of %s and %s: %s differs", step, run, other, CRITIC_FILES[i]);
}

static void assert_same_runs(const char *run, const char *other) {
    assert_same_policies(run, other, 3, 0);
    assert_same_critics(run, other, 3);
    assert_same_history(run, other);
}

/* Several ranks also have metrics of their own: what they wait for and exchange. */
static void drop_rank_metrics(const char *run) {
    json_t *lines = lines_of(run, "history.jsonl");
    FILE *f = fopen(in_run(run, "history.jsonl"), "wb");
    assert_non_null(f);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        json_t *line = json_array_get(lines, i), *value;
        const char *name;
        void *next;
        json_object_foreach_safe(line, next, name, value) {
            if (!strncmp(name, "exchange/", 9) || !strncmp(name, "time/", 5)) json_object_del(line, name);
        }
        json_dumpf(line, f, JSON_COMPACT);
        fputc('\n', f);
    }
    assert_int_equal(fclose(f), 0);
    json_decref(lines);
}

/* ---- metrics, files */

static void test_metrics(void **state) {
    (void)state;
    static const char *const names[] = {"critic/loss",
                                        "critic/clip_fraction",
                                        "critic/value_mean",
                                        "critic/return_mean",
                                        "critic/grad_norm",
                                        "critic/learning_rate",
                                        "advantages/mean",
                                        "advantages/std",
                                        "time/critic",
                                        "kl/reward_coef",
                                        "kl/of_target",
                                        "kl",
                                        "critic/explained_variance"};
    run_all("metrics", PPO KL "|value_clip=0.001|epochs=2");
    json_t *lines = lines_of("metrics", "history.jsonl");
    assert_int_equal(json_array_size(lines), 3);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < COUNT(names); k++)
            if (isnan(value_of(lines, i, names[k]))) fail_msg("step %zu has no %s", i + 1, names[k]);
    /* The first values are 0, those of the next step are not. The second epoch moves beyond the clip. */
    assert_true(value_of(lines, 0, "critic/value_mean") == 0 && value_of(lines, 0, "critic/explained_variance") == 0);
    assert_true(value_of(lines, 1, "critic/value_mean") != 0);
    assert_true(value_of(lines, 0, "critic/clip_fraction") > 0 && value_of(lines, 0, "critic/clip_fraction") < 1);
    /* On the first step the policy is the reference. Its KL of 0 is below the target: 0.1·(1 − 0.2·16/64). */
    assert_true(value_of(lines, 0, "kl/of_target") == 0 && value_of(lines, 0, "kl/reward_coef") == 0.1);
    assert_true(fabs(value_of(lines, 1, "kl/reward_coef") - 0.095) < 1e-15);
    for (size_t i = 0; i < COUNT(CRITIC_FILES); i++)
        for (size_t step = 0; step <= 3; step += 3)
            if (access(checkpoint("metrics", step, CRITIC_FILES[i]), F_OK)) fail_msg("step %zu has no %s", step, CRITIC_FILES[i]);
    char *manifest = text_of(checkpoint("metrics", 3, "MANIFEST"));
    for (size_t i = 0; i < COUNT(CRITIC_FILES); i++) assert_non_null(strstr(manifest, CRITIC_FILES[i]));
    free(manifest);
    json_t *groups = lines_of("metrics", "trajectories/train/0002.jsonl");
    const json_t *first = json_array_get(json_object_get(json_array_get(groups, 0), "trajectories"), 0);
    assert_int_equal(json_array_size(json_object_get(first, "values")), json_array_size(json_object_get(first, "response_ids")));
    assert_true(json_is_number(json_array_get(json_object_get(first, "values"), 0)));
    json_decref(groups), json_decref(lines);
}

/* The settings that a critic has, each seen in what it does. */
static void test_settings(void **state) {
    (void)state;
    run_all("plain", PPO "|seed=2");
    run_all("not-whitened", PPO "|seed=2|whiten_advantages=no");
    run_all("warm", PPO "|seed=2|critic_warmup_steps=2");
    run_all("only", PPO "|seed=2|critic_only_steps=1");
    json_t *plain = lines_of("plain", "history.jsonl"), *warm = lines_of("warm", "history.jsonl"),
           *not_whitened = lines_of("not-whitened", "history.jsonl");
    assert_true(value_of(plain, 0, "critic/learning_rate") == 0.02 && value_of(warm, 0, "critic/learning_rate") == 0.01);
    assert_true(value_of(warm, 1, "critic/learning_rate") == 0.02);
    assert_true(value_of(plain, 0, "advantages/std") == value_of(not_whitened, 0, "advantages/std"));
    assert_true(value_of(plain, 0, "grad_norm") != value_of(not_whitened, 0, "grad_norm"));
    assert_true(same_file(checkpoint("only", 1, "adapter_model.safetensors"), checkpoint("only", 0, "adapter_model.safetensors")));
    assert_false(same_file(checkpoint("only", 2, "adapter_model.safetensors"), checkpoint("only", 0, "adapter_model.safetensors")));
    assert_true(same_file(checkpoint("only", 1, CRITIC_FILES[1]), checkpoint("plain", 1, CRITIC_FILES[1])));
    json_decref(plain), json_decref(warm), json_decref(not_whitened);
}

/* ---- one answer */

static void test_threads(void **state) {
    (void)state;
    run_all("one", PPO KL "|minibatches=2|epochs=2|no_sharing=no");
    run_all("three", PPO KL "|minibatches=2|epochs=2|threads=3|recompute=yes|activation_cache=1");
    assert_same_runs("one", "three");
}

static void test_resume(void **state) {
    (void)state;
    run_all("whole", PPO KL "|seed=5|epochs=2");
    for (int i = 0; i < 3; i++) { /* a session a step */
        rein_loop *loop = i ? go_on("parts") : open_loop("parts", PPO KL "|seed=5|epochs=2");
        make_steps(loop, 1);
        if (i == 2) OK(rein_loop_finish(loop, &error_));
        rein_loop_close(loop);
    }
    assert_same_runs("whole", "parts");
}

/* Killed for real at some moments, resumed until it is done. */
static void test_kill(void **state) {
    (void)state;
    run_all("unharmed", PPO KL "|seed=6");
    int kills = 0;
    for (double seconds = 0.0005; seconds < 60; seconds *= 1.2) { /* whether the machine is fast or slow */
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            rein_loop *loop = rein_run_exists(in_folder("killed")) ? go_on("killed") : open_loop("killed", PPO KL "|seed=6");
            while (!rein_loop_done(loop)) make_steps(loop, 1);
            OK(rein_loop_finish(loop, &error_));
            _exit(0);
        }
        int result;
        const struct timespec moment = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
        nanosleep(&moment, NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &result, 0), child);
        if (WIFEXITED(result)) {
            assert_int_equal(WEXITSTATUS(result), 0);
            break;
        }
        kills++;
    }
    assert_true(kills > 0);
    assert_same_runs("unharmed", "killed");
}

static void test_full(void **state) {
    (void)state;
    static const char *const files[] = {"critic/model.safetensors", "critic/optimizer.safetensors", "critic/config.json"};
    static const char settings[] = PPO "|full=yes|learning_rate=0.002|minibatches=2";
    run_all("full", settings);
    rein_loop *loop = open_loop("full-again", settings);
    make_steps(loop, 1);
    rein_loop_close(loop);
    loop = go_on("full-again");
    make_steps(loop, 2);
    OK(rein_loop_finish(loop, &error_));
    rein_loop_close(loop);
    assert_same_policies("full", "full-again", 3, 1);
    assert_same_history("full", "full-again");
    for (size_t i = 0; i < COUNT(files); i++)
        assert_true(same_file(checkpoint("full", 3, files[i]), checkpoint("full-again", 3, files[i])));
    assert_false(same_file(checkpoint("full", 3, files[0]), checkpoint("full", 0, files[0])));
}

/* Another model; and the critic that came out of that run, merged, whose values go on where they were. */
static void test_directory(void **state) {
    (void)state;
    sub_folder("other");
    copy_file(in_folder("tiny/config.json"), "other/config.json");
    copy_file("models/sums/tokenizer.json", "other/tokenizer.json");
    OK(rein_model_init(in_folder("other"), 9, &error_));
    run_all("of-other", "preset=ppo|critic=@/other|critic_learning_rate=0.02|full=yes|learning_rate=0");
    char path[400];
    snprintf(path, sizeof path, "%s", checkpoint("of-other", 3, "critic"));
    char settings[600];
    snprintf(settings, sizeof settings, "preset=ppo|critic=%s|critic_learning_rate=0.02|steps=1", path);
    run_all("of-critic", settings);
    json_t *lines = lines_of("of-critic", "history.jsonl"), *before = lines_of("of-other", "history.jsonl");
    assert_true(value_of(before, 0, "critic/value_mean") == 0 && fabs(value_of(lines, 0, "critic/value_mean")) > 0.001);
    json_decref(lines), json_decref(before);
}

/* ---- ranks */

typedef struct rank_job {
    const rein_settings *settings;
    char run[300];
    rein_error err[MOST_RANKS];
} rank_job;

static void run_rank(rein_ranks *ranks, void *user) {
    rank_job *j = user;
    const size_t rank = rein_ranks_rank(ranks);
    rein_error *err = &j->err[rank];
    rein_settings *settings;
    rein_loop *loop = NULL;
    rein_status status = rein_settings_copy(&settings, j->settings, err);
    if (!status) rein_settings_set_ranks(settings, ranks);
    if (!status) status = rein_loop_open(&loop, j->run, settings, NULL, err);
    while (!status && !rein_loop_done(loop)) {
        rein_loop_report report;
        status = rein_loop_step(&report, loop, err);
    }
    if (!status) status = rein_loop_finish(loop, err);
    rein_loop_close(loop);
    rein_settings_free(settings);
}

static void test_ranks(void **state) {
    (void)state;
    static const char settings[] = PPO KL "|minibatches=2|epochs=2|seed=3";
    run_all("rank-1", settings);
    for (size_t n = 2; n <= 4; n += 2) {
        rank_job j = {.settings = settings_of(settings)};
        char name[20];
        sprintf(name, "rank-%zu", n);
        snprintf(j.run, sizeof j.run, "%s", in_folder(name));
        run_ranks(n, run_rank, &j);
        for (size_t r = 0; r < n; r++)
            if (j.err[r].code) fail_msg("%zu ranks: rank %zu: %s", n, r, j.err[r].message);
        drop_rank_metrics(name);
        assert_same_runs("rank-1", name);
    }
}

/* ---- learning */

/* The shipped model adds better, and the critic explains some of the returns. */
static void test_learns(void **state) {
    (void)state;
    enum { STEPS = 24, PART = 6 };
    rein_settings *s = new_settings();
    set_all(s, "preset=ppo|critic=same|model=models/sums|task=sums|prompts=16|samples=4|max_tokens=64|steps=24|eval_prompts=0|"
               "learning_rate=2e-3|critic_learning_rate=3e-3|seed=1|save_steps=24|threads=1");
    rein_loop *loop = open_with("learns", s);
    double first = 0, last = 0, explained = 0;
    for (int i = 0; i < STEPS; i++) {
        const rein_loop_report report = step_of(loop);
        if (i < PART) first += metric(&report, "reward") / PART;
        if (i >= STEPS - PART) last += metric(&report, "reward") / PART;
        if (i >= STEPS - PART) explained += metric(&report, "critic/explained_variance") / PART;
    }
    rein_loop_close(loop);
    print_message("             reward %.3f, then %.3f; explained variance %.3f\n", first, last, explained);
    assert_true(last > first + 0.1);
}

/* With a policy that stays what it is, the critic learns what a digit in a response is worth. */
static void test_explains(void **state) {
    (void)state;
    enum { STEPS = 80, LAST = 5 };
    rein_loop *loop =
        open_loop("explains", PPO "|critic_learning_rate=0.01|learning_rate=0|gae_lambda=1|epochs=8|steps=80|prompts=6|"
                                  "samples=16|eval_prompts=1|eval_steps=0|reward=regex:[0-9]|full=yes|value_clip=100|"
                                  "save_steps=80");
    double explained = 0;
    for (int i = 0; i < STEPS; i++) {
        const rein_loop_report report = step_of(loop);
        if (i >= STEPS - LAST) explained += metric(&report, "critic/explained_variance") / LAST;
    }
    rein_loop_close(loop);
    print_message("             explained variance %.3f\n", explained);
    assert_true(explained > 0.2);
}

/* ---- what is refused */

static void test_refused(void **state) {
    (void)state;
    refuses("preset=ppo", "critic is missing: advantage gae needs the values of a critic; --critic same trains one on the policy's "
                          "model, --critic DIR on another (in Python critic=\"same\")");
    refuses("critic=same", "critic has no effect: advantage is group-mean, and a critic is for gae (preset ppo)");
    refuses("critic_learning_rate=0.1", "critic_learning_rate has no effect without critic");
    refuses("critic_warmup_steps=1", "critic_warmup_steps has no effect without critic");
    refuses("critic_only_steps=1", "critic_only_steps has no effect without critic");
    refuses("value_clip=0.2", "value_clip has no effect without critic");
    refuses("whiten_advantages=no", "whiten_advantages has no effect without critic");
    refuses(PPO "|critic_only_steps=3", "critic_only_steps is 3: it must be less than steps, 3, or the policy never trains");
    refuses(PPO "|lr_scheduler_type=linear|critic_warmup_steps=3", "critic_warmup_steps is 3: it must be less than steps, 3");
    refuses(PPO "|lora_modules=lm_head",
            "lora_modules names only lm_head, which a critic does not have: a critic needs another module");
    refuses(PPO "|kl_target=6",
            "kl_target needs kl_reward_coef above 0: the coefficient begins there, and is multiplied step by step");
    refuses(PPO "|kl_reward_coef=0.1|kl_horizon=6", "kl_horizon has no effect without kl_target");
    refuses(PPO "|kl_reward_coef=0.1|kl_target_unit=token", "kl_target_unit has no effect without kl_target");
    refuses("preset=ppo|critic=@/nowhere",
            "critic is \"@/nowhere\", which is not a model: same (the policy's own model), or a local "
            "directory with config.json and safetensors is needed");
    put("small/adapter_config.json", "{}");
    refuses("preset=ppo|critic=@/small",
            "critic is \"@/small\", the directory of an adapter: the directory of a model is needed, with "
            "the adapter merged into it");
    remove(in_folder("small/adapter_config.json"));
    refuses("preset=ppo|critic=@/small",
            "critic has a vocabulary of 90 tokens, and the policy one of 97: a critic reads the tokens of "
            "the policy");
    refuses("preset=ppo|critic=@/renamed",
            "critic has another tokenizer than the policy: token 22 is \"5\", and \"4\" for the policy");
}

/* What cannot change when a run is resumed or forked. */
static void test_fixed(void **state) {
    (void)state;
    run_all("fixed", PPO "|steps=1");
    rein_loop *loop;
    rein_error err;
    rein_settings *s = new_settings();
    set_all(s, "critic=@/tiny");
    assert_int_equal(rein_loop_open(&loop, in_folder("fixed"), s, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "but the run was started with \"same\": changing it needs a new run"));
    /* A fork has the critic of its checkpoint. */
    char from[300];
    snprintf(from, sizeof from, "%s", in_folder("fixed"));
    s = new_settings();
    set_all(s, "steps=2");
    const rein_fork fork = {from, 1};
    OK(rein_loop_open(&loop, in_folder("forked"), s, &(rein_loop_options){.fork = &fork}, &error_));
    rein_loop_close(loop);
    assert_true(same_file(checkpoint("forked", 0, CRITIC_FILES[1]), checkpoint("fixed", 1, CRITIC_FILES[1])));
    loop = go_on("forked");
    make_steps(loop, 1);
    rein_loop_close(loop);
    /* A critic whose file is damaged makes its checkpoint a bad one. */
    put("forked/checkpoints/0001/critic/optimizer.safetensors", "x");
    loop = go_on("forked");
    assert_int_equal(rein_session_step(rein_loop_session(loop)), 0);
    assert_non_null(strstr(rein_session_note(rein_loop_session(loop)), "critic/optimizer.safetensors"));
    rein_loop_close(loop);
}

/* Models that cannot be the critic of the tiny one. */
static int make_wrong_critics(void **state) {
    if (start(state)) return 1;
    char *config = text_of(in_folder("tiny/config.json")), *tokenizer = text_of("models/sums/tokenizer.json");
    sub_folder("small"), sub_folder("renamed");
    memcpy(strstr(config, "\"vocab_size\": 97"), "\"vocab_size\": 90", 16);
    put("small/config.json", config);
    OK(rein_model_init(in_folder("small"), 1, &error_));
    memcpy(strstr(config, "\"vocab_size\": 90"), "\"vocab_size\": 97", 16);
    put("renamed/config.json", config);
    OK(rein_model_init(in_folder("renamed"), 1, &error_));
    char *four = strstr(tokenizer, "\"4\":"), *five = strstr(tokenizer, "\"5\":");
    assert_true(four && five);
    four[1] = '5', five[1] = '4';
    put("renamed/tokenizer.json", tokenizer);
    free(config), free(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),   cmocka_unit_test(test_settings), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_resume),    cmocka_unit_test(test_kill),     cmocka_unit_test(test_full),
        cmocka_unit_test(test_directory), cmocka_unit_test(test_ranks),    cmocka_unit_test(test_learns),
        cmocka_unit_test(test_explains),  cmocka_unit_test(test_refused),  cmocka_unit_test(test_fixed)};
    return cmocka_run_group_tests(tests, make_wrong_critics, remove_folder);
}
