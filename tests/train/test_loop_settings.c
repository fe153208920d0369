/* test_loop_settings.c - what the settings of the loop do, each by what the run says of its steps; those that have no effect are refused before
 * anything is written; and judges that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "train/loop_fixture.h"

/* -------------------------------------------------------------------------------------------------------------------- refusals */

static void test_refused(void **state) {
    (void)state;
    static const char *const note[][2] = {
        {"task=", "task is missing: a built-in task, a file of JSON lines, or a program is needed"},
        {"budget_rate=0.1", "budget_rate has no effect without budget_target"},
        {"ptx_coef=0.1", "ptx_coef has no effect without ptx_data"},
        {"ptx_batch=4", "ptx_batch has no effect without ptx_data"},
        {"task=sums|eval_task=|reward=|reward_weights=1,1", "reward_weights has no effect without reward"},
        {"task=sums|eval_task=|reward=|reward_timeout=3", "reward_timeout has no effect: no reward and no task is a program"},
        {"task=sums|eval_task=|reward=regex:a /b|reward_timeout=3",
         "reward_timeout has no effect: no reward and no task is a program"},
        {"task=sums|eval_task=|reward=|reward_restarts=3", "reward_restarts has no effect: no reward and no task is a program"},
        {"task=sums|eval_task=|reward=|system=be", "system has no effect without chat"},
        {"task=sums|eval_task=|reward=|chat_format=raw", "chat_format has no effect without chat"},
        {"top_k=5",
         "top_k changes the sampling distribution: it needs truncation policy, which makes it part of the policy, or a correction, "
         "such as mismatch token-tis"},
        {"top_p=0.9",
         "top_p changes the sampling distribution: it needs truncation policy, which makes it part of the policy, or a correction, "
         "such as mismatch token-tis"},
        {"min_p=0.1",
         "min_p changes the sampling distribution: it needs truncation policy, which makes it part of the policy, or a correction, "
         "such as mismatch token-tis"},
        {"truncation=policy", "truncation policy has no effect: it needs top_k, top_p or min_p"},
        {"top_p=0.9|truncation=policy|mismatch=token-tis",
         "truncation policy makes the sampler the policy: mismatch would correct nothing"},
        {"top_p=0.9|truncation=policy|epochs=2",
         "truncation policy needs epochs 1 and minibatches 1: after an optimizer step the policy "
         "keeps other tokens than those that were sampled from"},
        {"top_p=0.9|truncation=policy|minibatches=2",
         "truncation policy needs epochs 1 and minibatches 1: after an optimizer step the "
         "policy keeps other tokens than those that were sampled from"},
        {"top_p=0.9|truncation=policy|full=yes",
         "truncation policy needs a head that does not train: without full, and without lm_head"},
        {"top_p=0.9|truncation=policy|lora_modules=q_proj,lm_head",
         "truncation policy needs a head that does not train: without full, and without lm_head"},
        {"top_p=0.9|truncation=policy|kl_loss_coef=0.1|kl_estimator=exact",
         "truncation policy has no exact KL: choose another kl_estimator, and kl_reward_coef in place of kl_reward_exact"},
        {"preset=grpo|budget_target=5", "budget_target has no effect: it changes the penalty of shape budget"},
        {"max_tokens=4", "token_budget is 4: it must be below max_tokens, 4, or no response can exceed it"},
        {"eval_prompts=0", "eval_task has no effect: eval_prompts is 0"},
        {"eval_task=|held_out=0.2|task=sums|reward=", "held_out has no effect: it divides only lists of examples"},
        {"held_out=0.2", "held_out has no effect: eval_task is the task of evaluations"},
        {"minibatches=5", "minibatches is 5: a step has only 4 prompts"},
        {"stop_at=eval/accuracy",
         "stop_at is \"eval/accuracy\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95"},
        {"stop_at=>=3", "stop_at is \">=3\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95"},
        {"stop_at=reward>x", "stop_at is \"reward>x\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95"},
        {"stop_at=reward>", "stop_at is \"reward>\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95"},
        {"stop_at=reward>inf",
         "stop_at is \"reward>inf\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95"},
        {"stop_at=acuracy>1", "stop_at names \"acuracy\": no step has such a metric (docs/metrics.md)"},
        {"stop_at=temperature<0.5", "stop_at has no effect: there is no temperature without temperature_final"},
        {"stop_at=budget/multiplier>1", "stop_at has no effect: there is no budget/multiplier without budget_target"},
        {"stop_at=kl>0.2", "stop_at has no effect: there is no kl without a KL in the objective; eval/kl is measured"},
        {"keep_best=rewards/exact/mean", "keep_best names \"rewards/exact/mean\": the first reward is rewards/regex/mean"},
        {"keep_best=-acuracy", "keep_best names \"acuracy\": no step has such a metric (docs/metrics.md)"},
        {"stop_at=rewards/exact/mean>0.2", "stop_at names \"rewards/exact/mean\": the first reward is rewards/regex/mean"},
        {"prompts=7", "prompts is 7: the task has only 6 examples to train on"},
        {"reward=", "reward is missing: the task @/six.jsonl has no verifier of its own; exact, number, regex:PATTERN, length:N, "
                    "model:DIR, or a "
                    "program"},
        {"reward_weights=1", "reward_weights has 1 numbers, and there are 2 rewards"},
        {"reward_weights=1,2,3", "reward_weights has 3 numbers, and there are 2 rewards"},
        {"reward_weights=1,x", "reward_weights[1] is \"x\": numbers with commas between them"},
        {"reward_weights=1,", "reward_weights has 1 numbers, and there are 2 rewards"},
        {"eval_task=sum", "eval_task \"sum\" is unknown: did you mean sums?"},
        {"reward=exat", "reward \"exat\" is unknown: did you mean exact? (A program of this folder is ./exat)"},
        {"chat=yes",
         "the tokenizer has no chat template: --chat-format (in Python chat_format) names one (raw, chatml, llama3 …); token ids "
         "need none"},
        {"system=be", "@/six.jsonl: line 1: system has no effect: the prompt is plain text, not a chat"},
        {"model=", "model is missing: a new run needs the directory of a model"},
        {"stop=a;b;c;d;e;f;g;h;i;j;k;l;m;n;o;p;q;r;s;t;u;v;w;x;y;z;A;B;C;D;E;F;G;H;I;J;K;L;M;N;O;P;Q;R;S;T;U;V;W;X;Y;Z;0;1;2;3;4;5;"
         "6;7;8;9;"
         "+;-;.",
         "stop has more than 64 values"},
    };
    for (size_t i = 0; i < COUNT(note); i++) refuses(note[i][0], note[i][1]);
}

/* Every line of a file is checked before the first step, also of one for evaluations. */
static void test_whole_files(void **state) {
    (void)state;
    static const char six[] =
        "{\"prompt\": \"1\", \"answer\": 1}\n\n{\"prompt\": \"2\", \"answer\": 2}\n{\"prompt\": \"3\", \"answer\": 3}\n"
        "{\"prompt\": \"4\", \"answer\": 4}\n";
    static const char *const last[][3] = {
        {"{\"prompt\": \"5\"}", "reward=exact", "reward exact: the example has no answer to compare with"},
        {"{\"prompt\": \"5\"}", "reward=length:3;regex:=(.)", "reward regex: the example has no answer to compare with"},
        {"{\"prompt\": \"5\", \"answer\": \"five\"}", "reward=number", "reward number: the answer \"five\" has no number in it"},
        {"{\"prompt\": \"0123456789012345678901234567890123456789012345678901234567890123\", \"answer\": 5}", "reward=exact",
         "prompt has 64 tokens: the model has 64 positions, which leaves no room for a completion"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"5\"}], \"answer\": 5}", "reward=exact",
         "chat_format is not set: the example has messages, which need one"}};
    for (size_t i = 0; i < COUNT(last); i++) {
        char file[600], text[200], reason[300];
        snprintf(file, sizeof file, "%s%s", six, last[i][0]);
        put("last.jsonl", file);
        snprintf(reason, sizeof reason, "@/last.jsonl: line 6: %s", last[i][2]);
        snprintf(text, sizeof text, "task=@/last.jsonl|%s", last[i][1]);
        refuses(text, reason);
        snprintf(text, sizeof text, "eval_task=@/last.jsonl|%s", last[i][1]);
        refuses(text, reason);
    }
    put("last.jsonl", six);
    rein_loop_close(open_loop("complete", "task=@/last.jsonl|reward=number|prompts=2"));
}

/* A list has no value that is empty. */
static void test_lists(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    rein_error err = {0};
    assert_int_equal(rein_settings_set(s, "stop", "\n", &err), REIN_EINVAL);
    assert_string_equal(err.message, "stop[0] is empty: a text is needed, in which \\n stands for a newline");
    assert_int_equal(rein_settings_set(s, "stop", "a\n\nb", &err), REIN_EINVAL);
    assert_string_equal(err.message, "stop[1] is empty: a text is needed, in which \\n stands for a newline");
    assert_int_equal(rein_settings_set(s, "reward", "\nexact", &err), REIN_EINVAL);
    assert_string_equal(err.message, "reward[0] is empty: one value per line is needed");
    OK(rein_settings_set(s, "reward", "exact\nnumber\n", &error_)); /* as YAML's blocks end */
    OK(rein_settings_set(s, "stop", "", &error_));
    put("list.yaml", "stop: [\"a\", \"b\\nc\"]\n");
    assert_int_equal(rein_settings_read(s, in_folder("list.yaml"), &err), REIN_EINVAL);
    assert_non_null(
        strstr(err.message,
               "line 1: a value of a list has a newline in it: one value per line is needed; in stop, \\n stands for a newline"));
}

/* What the responses of a step end with, as texts. */
static json_t *responses_of(const char *run, size_t step) {
    char name[100];
    json_t *texts = json_array();
    snprintf(name, sizeof name, "trajectories/train/%04zu.jsonl", step);
    json_t *lines = lines_of(run, name), *pieces, *piece;
    for (size_t g = 0; g < json_array_size(lines); g++) {
        const json_t *trajectories = json_object_get(json_array_get(lines, g), "trajectories");
        for (size_t t = 0; t < json_array_size(trajectories); t++) {
            char text[200] = "";
            size_t i;
            pieces = json_object_get(json_object_get(json_array_get(trajectories, t), "metadata"), "pieces");
            json_array_foreach(pieces, i, piece) strcat(text, json_string_value(piece));
            json_array_append_new(texts, json_string(text));
        }
    }
    json_decref(lines);
    return texts;
}

/* \n in a stop is a newline, \\ a backslash: a model of characters writes both now and then. */
static void test_stops(void **state) {
    (void)state;
    size_t with[2] = {0};
    for (size_t stopped = 0; stopped < 2; stopped++) {
        const char *name = stopped ? "stopped" : "unstopped";
        run_all(name, stopped ? "max_tokens=40|steps=1|eval_prompts=1|samples=16|stop=\\n;\\\\"
                              : "max_tokens=40|steps=1|eval_prompts=1|samples=16|stop=~~~~");
        json_t *texts = responses_of(name, 1);
        for (size_t i = 0; i < json_array_size(texts); i++)
            with[stopped] += strpbrk(json_string_value(json_array_get(texts, i)), "\n\\") != NULL;
        json_decref(texts);
    }
    assert_true(with[0] > 5 && with[1] == 0);
}

/* ----------------------------------------------------------------------------------------------------------------- temperature */

static void test_temperature(void **state) {
    (void)state;
    rein_settings *s = settings_of("temperature=1|temperature_final=0.5|steps=3");
    const double wanted[] = {1, 0.75, 0.5, 0.5};
    for (int64_t step = 0; step < 4; step++) assert_true(rein_settings_temperature(s, step) == wanted[step]);
    rein_loop *loop = open_with("cooler", s);
    for (size_t i = 0; i < 3; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(metric(&report, "temperature") == wanted[i] && metric(&report, "on_policy/max_gap") == 0);
    }
    const rein_policy policy = rein_session_policy(rein_loop_session(loop)); /* evaluations have that of their step */
    assert_true(policy.temperature == 0.5 && rein_loop_last(loop)->step == 3);
    rein_task_runner *runner;
    rein_groups r;
    OK(rein_task_runner_open(&runner, s, policy.model, NULL, &error_));
    OK(rein_task_runner_evaluate(&r, runner, &policy, 0, NULL, NULL, NULL, &error_));
    assert_true(rein_evaluate(&r, -1).reward == rein_loop_last(loop)->sampled.reward);
    rein_groups_free(&r), rein_task_runner_close(runner), rein_loop_close(loop);
    s = settings_of("steps=1|temperature_final=0.5"); /* one step is the first */
    assert_true(rein_settings_temperature(s, 0) == 1);
    s = settings_of("temperature=0.7");
    assert_true(rein_settings_temperature(s, 2) == 0.7);
    loop = open_with("constant", s);
    const rein_loop_report report = step_of(loop);
    assert_true(isnan(metric(&report, "temperature"))); /* it does not move: the settings have it */
    rein_loop_close(loop);
}

/* ---------------------------------------------------------------------------------------------------------------------- budgets */

/* The multiplier in the checkpoint of a step: that of the next one. */
static double saved_multiplier(const char *run, size_t step) {
    json_t *state;
    OK(rein_json_read(&state, checkpoint(run, step, "state.json"), REIN_JSON_NEEDS_OBJECT, &error_));
    const double multiplier = json_number_value(json_object_get(state, "budget_multiplier"));
    json_decref(state);
    return multiplier;
}

/* A step on given groups, of a run that has a controller: it belongs to the session, not to the loop. */
static void train_on_file(const char *run, const char *file, size_t step, double multiplier) {
    rein_session *session;
    rein_session_report trained;
    rein_groups groups = {0};
    const rein_settings *s = new_settings();
    OK(rein_groups_read(&groups, in_run(run, file), NULL, NULL, &error_));
    OK(rein_session_open(&session, in_folder(run), s, &error_));
    OK(rein_session_train(&trained, session, &groups, NULL, &error_));
    OK(rein_session_commit(&trained, session, &groups, NULL, 0, &error_));
    const rein_loop_report report = {.trained = trained};
    assert_true(metric(&report, "budget/multiplier") == multiplier);
    const double moved = fmax(0, multiplier + 0.01 * (metric(&report, "completions/mean_length") - 3));
    assert_true(moved != multiplier && fabs(saved_multiplier(run, step) - moved) < 1e-15);
    rein_session_close(session);
    rein_groups_free(&groups);
}

/* Dual ascent: the penalty of each step is that of the one before, moved by its mean length. */
static void test_controller(void **state) {
    (void)state;
    rein_loop *loop = open_loop("controlled", "budget_target=3|budget_rate=0.01|steps=4");
    double multiplier = 0.05;
    for (size_t i = 0; i < 4; i++) {
        if (i == 2) { /* also across sessions */
            rein_loop_close(loop);
            loop = go_on("controlled");
        }
        const rein_loop_report report = step_of(loop);
        if (!(fabs(metric(&report, "budget/multiplier") - multiplier) < 1e-15))
            fail_msg("step %zu: %g, not %g", i + 1, metric(&report, "budget/multiplier"), multiplier);
        multiplier = fmax(0, multiplier + 0.01 * (metric(&report, "completions/mean_length") - 3));
        assert_true(multiplier != 0.05);
    }
    rein_loop_close(loop);
    assert_true(fabs(saved_multiplier("controlled", 4) - multiplier) < 1e-15);
    train_on_file("controlled", "trajectories/train/0001.jsonl", 5, saved_multiplier("controlled", 4));
    char *config = text_of(in_run("controlled", "config.yaml")); /* the setting is the initial value */
    assert_non_null(strstr(config, "budget_penalty_coef: \"0.05\""));
    free(config);
}

/* Budgets of the examples count, those of the settings where there are none. */
static void test_own_budgets(void **state) {
    (void)state;
    rein_loop *loop = open_loop("own", "steps=1");
    const rein_loop_report report = step_of(loop);
    json_t *lines = lines_of("own", "trajectories/train/0001.jsonl");
    double over = 0;
    for (size_t g = 0; g < 4; g++)
        for (size_t t = 0; t < 4; t++) {
            const json_t *one = json_array_get(json_object_get(json_array_get(lines, g), "trajectories"), t);
            over += (json_int_t)json_array_size(json_object_get(one, "response_ids")) >
                    json_integer_value(json_object_get(one, "budget"));
        }
    assert_true(over > 0 && metric(&report, "budget/share_over") == over / 16);
    json_decref(lines), rein_loop_close(loop);
    lines = lines_of("own", "trajectories/eval/0001.jsonl"); /* what is held out has none of its own: 4 */
    over = 0;
    for (size_t g = 0; g < 3; g++) {
        const json_t *one = json_array_get(json_object_get(json_array_get(lines, g), "trajectories"), 0);
        assert_null(json_object_get(one, "budget"));
        over += json_array_size(json_object_get(one, "response_ids")) > 4;
    }
    json_t *evaluations = lines_of("own", "evaluations.jsonl");
    assert_true(value_of(evaluations, 1, "eval/share_over_budget") == over / 3);
    json_decref(lines), json_decref(evaluations);
}

static double adjusted(const json_t *trajectory) {
    const double length = (double)json_array_size(json_object_get(trajectory, "response_ids"));
    const double over = length - (double)json_integer_value(json_object_get(trajectory, "budget"));
    return json_number_value(json_object_get(trajectory, "reward")) - 0.05 * fmax(0, over);
}

/* The advantages that are written are those of k2: what a response is worth after its penalty, less the group's mean; each at its place, in
 * whatever minibatch it was. */
static void test_advantages(void **state) {
    (void)state;
    run_all("advantages", "steps=1|minibatches=2|epochs=2");
    json_t *lines = lines_of("advantages", "trajectories/train/0001.jsonl");
    for (size_t g = 0; g < 4; g++) {
        const json_t *four = json_object_get(json_array_get(lines, g), "trajectories");
        double mean = 0;
        for (size_t t = 0; t < 4; t++) mean += adjusted(json_array_get(four, t)) / 4;
        for (size_t t = 0; t < 4; t++) {
            const json_t *one = json_array_get(four, t), *advantages = json_object_get(one, "advantages");
            assert_int_equal(json_array_size(advantages), json_array_size(json_object_get(one, "response_ids")));
            for (size_t i = 0; i < json_array_size(advantages); i++)
                assert_true(fabs(json_number_value(json_array_get(advantages, i)) - (adjusted(one) - mean)) < 1e-6);
        }
    }
    json_decref(lines);
}

/* ------------------------------------------------------------------------------------------------------------- dynamic sampling */

/* Rewards that are all the same teach nothing, however often one asks: the step says so, and the policy stays. */
static void test_nothing_to_train(void **state) {
    (void)state;
    rein_loop *loop = open_loop("nothing", "preset=grpo|kl_loss_coef=0|reward=length:1000|dynamic_sampling=2|steps=2");
    for (size_t i = 1; i <= 2; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(report.trained.nothing_to_train && metric(&report, "dynamic_sampling/prompts") == 12);
        assert_true(metric(&report, "accuracy") == 1 && metric(&report, "rewards/length/mean") == 1);
        assert_true(same_file(checkpoint("nothing", 0, "adapter_model.safetensors"),
                              checkpoint("nothing", i, "adapter_model.safetensors")));
    }
    rein_loop_close(loop);
    json_t *lines = lines_of("nothing", "history.jsonl"), *groups = lines_of("nothing", "trajectories/train/0002.jsonl");
    assert_true(json_is_true(json_object_get(json_array_get(lines, 1), "nothing_to_train")));
    assert_int_equal(json_array_size(groups), 4);
    json_decref(lines), json_decref(groups);
}

/* Groups whose rewards differ, by what was judged or by what the length costs, are what trains, as long as there are rounds. */
static void test_dynamic_sampling(void **state) {
    (void)state;
    rein_loop *loop = open_loop("dynamic", "reward=regex:[0-4]|samples=2|dynamic_sampling=3|steps=3");
    size_t more = 0;
    for (size_t step = 1; step <= 3; step++) {
        char name[100];
        const rein_loop_report report = step_of(loop);
        snprintf(name, sizeof name, "trajectories/train/%04zu.jsonl", step);
        json_t *lines = lines_of("dynamic", name);
        assert_true(json_array_size(lines) > 0 && json_array_size(lines) <= 4);
        for (size_t g = 0; g < json_array_size(lines); g++) {
            const json_t *two = json_object_get(json_array_get(lines, g), "trajectories");
            assert_true(adjusted(json_array_get(two, 0)) != adjusted(json_array_get(two, 1)));
        }
        const double prompts = metric(&report, "dynamic_sampling/prompts");
        assert_true(prompts == 4 || prompts == 8 || prompts == 12 || prompts == 16);
        assert_true(prompts == 16 || json_array_size(lines) == 4);
        more += prompts > 4;
        json_decref(lines);
    }
    assert_true(more > 0);
    rein_loop_close(loop);
}

/* -------------------------------------------------------------------------------------------------------------------------- PTX */

/* Where all rewards are equal only the supervised loss trains, and what it teaches is learned. */
static void test_ptx(void **state) {
    (void)state;
    rein_loop *loop = open_loop("ptx", "preset=grpo|kl_loss_coef=0|reward=length:1000|ptx_data=@/"
                                       "taught.jsonl|ptx_coef=0.5|ptx_batch=4|steps=12|eval_steps=0|learning_rate=0.05|full=yes");
    double first = 0, last = 0;
    for (size_t i = 0; i < 12; i++) {
        const rein_loop_report report = step_of(loop);
        assert_false(report.trained.nothing_to_train);
        assert_true(metric(&report, "loss/surrogate") == 0);
        last = metric(&report, "ptx/loss");
        if (i == 0) first = last;
    }
    assert_true(first > 0.5 * 3 && first < 0.5 * 8); /* of the order of ln 97, times the coefficient */
    if (!(last < 0.7 * first)) fail_msg("the loss went from %g to %g", first, last);
    rein_loop_close(loop);
}

/* Its weight is ptx_coef: with half of it, half the loss of the same examples. */
static void test_ptx_coefficient(void **state) {
    (void)state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text, "ptx_data=@/taught.jsonl|ptx_coef=%g|ptx_batch=100|steps=1", i ? 0.25 : 0.5);
        rein_loop *loop = open_loop(i ? "quarter" : "half", text);
        const rein_loop_report report = step_of(loop);
        loss[i] = metric(&report, "ptx/loss");
        rein_loop_close(loop);
    }
    assert_true(fabs(loss[0] - 2 * loss[1]) < 1e-6 && loss[1] > 0);
}

/* An epoch goes through all examples: of a policy that stands still, three batches of two cost what six cost at once. */
static void test_ptx_epochs(void **state) {
    (void)state;
    double sums[2] = {0}, six;
    rein_loop *loop = open_loop("at-once", "ptx_data=@/taught.jsonl|ptx_coef=1|ptx_batch=6|steps=1|learning_rate=0");
    const rein_loop_report all = step_of(loop);
    six = metric(&all, "ptx/loss");
    rein_loop_close(loop);
    loop = open_loop("in-parts", "ptx_data=@/taught.jsonl|ptx_coef=1|ptx_batch=2|steps=6|learning_rate=0");
    for (size_t i = 0; i < 6; i++) {
        const rein_loop_report report = step_of(loop);
        sums[i / 3] += metric(&report, "ptx/loss");
        if (i % 3 == 0) assert_true(fabs(metric(&report, "ptx/loss") - six) > 1e-4); /* not all the same */
    }
    rein_loop_close(loop);
    for (size_t epoch = 0; epoch < 2; epoch++)
        if (!(fabs(sums[epoch] / 3 - six) < 1e-6)) fail_msg("epoch %zu: %g, not %g", epoch, sums[epoch] / 3, six);
}

/* ------------------------------------------------------------------------------------------------------------------------- ends */

static void test_stop_at(void **state) {
    (void)state;
    static const char *const ways[] = {"completions/mean_length>0", "eval/accuracy>=0", "rewards/length/mean<2", "reward<=1e9"};
    for (size_t i = 0; i < COUNT(ways); i++) {
        char name[20], text[200];
        snprintf(name, sizeof name, "stop%zu", i);
        snprintf(text, sizeof text, "steps=3|stop_at=%s", ways[i]);
        rein_loop *loop = open_loop(name, text);
        rein_loop_report report = step_of(loop);
        if (i == 1) report = step_of(loop); /* the first step has no evaluation */
        assert_true(report.done && rein_loop_done(loop));
        assert_string_equal(report.stopped, ways[i]);
        rein_loop_close(loop);
        loop = go_on(name); /* that was the end, also for a resumed run */
        assert_true(rein_loop_done(loop));
        assert_string_equal(rein_loop_stopped(loop), ways[i]);
        assert_int_equal(rein_loop_step(&report, loop, NULL), REIN_EINVAL);
        rein_loop_close(loop);
    }
    rein_settings *s = new_settings(); /* unless it is told otherwise */
    OK(rein_settings_set(s, "stop_at", "", &error_));
    rein_loop *loop = open_with("stop0", s);
    assert_false(rein_loop_done(loop));
    make_steps(loop, 2);
    rein_loop_close(loop);
    run_all("never", "steps=2|stop_at=reward>1e9");
    json_t *lines = lines_of("never", "history.jsonl");
    assert_int_equal(json_array_size(lines), 2);
    json_decref(lines);
}

/* Every metric that a step has may be named, and is compared as it should be. */
static void test_stop_at_any(void **state) {
    (void)state;
    run_all(
        "all-metrics",
        "budget_target=3|temperature_final=0.5|dynamic_sampling=1|ptx_data=@/taught.jsonl|steps=1|eval_samples=2|kl_loss_coef=0.1|"
        "kl_estimator=k3");
    json_t *lines = lines_of("all-metrics", "history.jsonl");
    const char *name;
    json_t *value;
    size_t n = 0;
    json_object_foreach(json_array_get(lines, 0), name, value) {
        char text[300];
        rein_settings *s = new_settings();
        rein_loop *loop;
        if (!strcmp(name, "step") || !json_is_number(value)) continue;
        for (int holds = 0; holds < 2; holds++) {
            snprintf(text, sizeof text, "%s%s%.17g", name, holds ? ">=" : ">", json_number_value(value));
            OK(rein_settings_set(s, "stop_at", text, &error_));
            OK(rein_settings_set(s, "steps", "2", &error_));
            OK(rein_loop_open(&loop, in_folder("all-metrics"), s, NULL, &error_));
            if (rein_loop_done(loop) != holds) fail_msg("%s: %d", text, rein_loop_done(loop));
            rein_loop_close(loop);
        }
        n++;
    }
    assert_true(n > 50);
    json_decref(lines);
}

/* docs/metrics.md has a line for every metric of a run with everything on, and none that no such run has. */
static void test_the_page_has_every_metric(void **state) {
    (void)state;
    char line[1000], name[100], real[120];
    size_t of_loop = 0, found = 0;
    FILE *page = fopen("docs/metrics.md", "r");
    assert_non_null(page);
    json_t *lines = lines_of("all-metrics", "history.jsonl"), *metrics = json_array_get(lines, 0);
    for (int loop = 0; fgets(line, sizeof line, page);) {
        loop |= !strcmp(line, "## Of the loop\n");
        if (!strcmp(line, "## Of pairs\n")) break;
        if (sscanf(line, "| `%99[^`]` |", name) != 1) continue;
        of_loop += (size_t)loop;
        snprintf(real, sizeof real, "%s", strcmp(name, "rewards/NAME/mean") ? name : "rewards/length/mean");
        if (loop && !json_object_get(metrics, real)) fail_msg("no step has %s", real);
        found += json_object_get(metrics, real) != NULL;
    }
    size_t of_pairs = 0;
    while (fgets(line, sizeof line, page)) {
        if (sscanf(line, "| `%99[^`]` |", name) != 1) continue;
        if (!strcmp(name, "kl")) continue; /* of kto */
        if (!rein_settings_metric_is_of_pairs(name, strlen(name))) fail_msg("no step on pairs has %s", name);
        of_pairs++;
    }
    fclose(page);
    assert_true(of_loop == 17 && of_pairs == 8);
    assert_int_equal(found + 2, json_object_size(metrics)); /* but for the step, and the other reward */
    json_decref(lines);
}

/* --------------------------------------------------------------------------------------------------------------- other samplers */

static void test_top_p(void **state) {
    (void)state;
    rein_loop *loop = open_loop("top-p", "preset=grpo|top_p=0.9|mismatch=token-tis|tis_cap=2|steps=2");
    for (size_t i = 0; i < 2; i++) {
        const rein_loop_report report = step_of(loop);
        assert_false(report.trained.nothing_to_train);
        assert_true(metric(&report, "on_policy/max_gap") > 0); /* the sampler's log-probs are not the policy's, and that is note */
    }
    rein_loop_close(loop);
    assert_false(
        same_file(checkpoint("top-p", 0, "adapter_model.safetensors"), checkpoint("top-p", 2, "adapter_model.safetensors")));
}

/* Three steps at once, and three with a break after the first. */
static void with_a_break(const char *whole, const char *broken, const char *settings) {
    rein_loop *loop = open_loop(whole, settings);
    for (int i = 0; i < 3; i++) (void)step_of(loop);
    rein_loop_close(loop);
    loop = open_loop(broken, settings);
    (void)step_of(loop);
    rein_loop_close(loop);
    loop = open_loop(broken, settings);
    for (int i = 0; i < 2; i++) (void)step_of(loop);
    rein_loop_close(loop);
    assert_same_policies(whole, broken, 3, 0);
    assert_same_history(whole, broken);
}

/* With a truncated policy the ratio is exactly 1 without a correction. */
static void test_truncation_policy(void **state) {
    (void)state;
    const char *const samplers[] = {"top_p=0.9", "top_k=4", "min_p=0.05|top_k=6"};
    for (size_t i = 0; i < 3; i++) {
        char settings[200], name[20];
        snprintf(name, sizeof name, "kept-%zu", i);
        snprintf(settings, sizeof settings, "preset=grpo|%s|truncation=policy|kl_loss_coef=0.1|entropy_coef=0.01|steps=3",
                 samplers[i]);
        rein_loop *loop = open_loop(name, settings);
        for (int step = 0; step < 2; step++) {
            const rein_loop_report report = step_of(loop);
            assert_false(report.trained.nothing_to_train);
            assert_true(metric(&report, "on_policy/max_gap") == 0);
            assert_true(metric(&report, "ratio/min") == 1 && metric(&report, "ratio/max") == 1);
        }
        rein_loop_close(loop);
    }
    with_a_break("kept", "kept-later", "preset=grpo|top_p=0.9|truncation=policy|kl_loss_coef=0.1|steps=3");
    assert_false(same_file(checkpoint("kept", 0, "adapter_model.safetensors"), checkpoint("kept", 3, "adapter_model.safetensors")));
}

static void test_exact_kl(void **state) {
    (void)state;
    static const char settings[] =
        "preset=grpo|kl_loss_coef=0.2|kl_estimator=exact|kl_reward_exact=0.2|aggregation=seq-mean-token-sum|steps=3";
    rein_loop *loop = open_loop("exact-seen", settings);
    for (int i = 0; i < 2; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(metric(&report, "on_policy/max_gap") == 0);
        assert_true(i == 0 ? metric(&report, "kl_exact") == 0 : metric(&report, "kl_exact") > 0); /* step 0 is the reference */
    }
    rein_loop_close(loop);
    with_a_break("exact", "exact-later", settings);
}

/* -------------------------------------------------------------------------------------------------------------------- programs */

static void put_program(const char *name, const char *text) {
    put(name, text);
    assert_int_equal(chmod(in_folder(name), 0755), 0);
}

/* A judge that dies in the second step: the run is as it was after the first, and resumes when the judge works. */
static void test_judge_fails(void **state) {
    (void)state;
    put_program("judge.sh", "#!/bin/sh\n"
                            "while read -r line; do\n"
                            "    case $line in\n"
                            "    *'\"step\": 1,'*) [ -e \"$0.well\" ] || { echo 'no more' >&2; exit 3; } ;;\n"
                            "    esac\n"
                            "    case $line in *'\"tokens\": 8,'*) echo 0 ;; *) echo 1 ;; esac\n"
                            "done\n");
    rein_loop *loop = open_loop("judged", "reward=@/judge.sh|steps=2|eval_steps=1");
    rein_loop_report report = step_of(loop);
    rein_error err = {0};
    assert_true(rein_loop_step(&report, loop, &err) != REIN_OK);
    if (!strstr(err.message, "judge.sh: response 1 of 16") ||
        !strstr(err.message, "ended with exit status 3; the last line of its log: no more"))
        fail_msg("%s", err.message);
    rein_loop_close(loop);
    rein_run *run;
    int64_t step;
    char note[REIN_NOTE_SIZE];
    OK(rein_run_open(&run, in_folder("judged"), REIN_RUN_READ, &error_));
    OK(rein_run_last_good(&step, note, run, &error_));
    assert_true(step == 1 && !*note);
    rein_run_close(run);
    put("judge.sh.well", "");
    loop = go_on("judged");
    make_steps(loop, 1);
    assert_true(rein_loop_done(loop));
    rein_loop_close(loop);
    run_all("well", "reward=@/judge.sh|steps=2|eval_steps=1"); /* as if nothing had been */
    assert_same_policies("well", "judged", 2, 0);
    assert_same_history("well", "judged");
}

/* A program that ends after so many examples is asked for those. */
static void test_task_program_ends(void **state) {
    (void)state;
    put_program("task.sh", "#!/bin/sh\n"
                           "while read -r line; do\n"
                           "    case $line in\n"
                           "    *held_out*index\\\":\\ [01],*) echo '{\"prompt\": \"H:\", \"answer\": \"1\"}' ;;\n"
                           "    *held_out*) echo '{\"end\": true}' ;;\n"
                           "    *) echo '{\"prompt\": \"Q:\", \"answer\": \"1\"}' ;;\n"
                           "    esac\n"
                           "done\n");
    rein_loop *loop = open_loop("program", "task=@/task.sh|eval_task=|eval_prompts=50|steps=1");
    make_steps(loop, 1);
    assert_int_equal(rein_loop_last(loop)->sampled.prompts, 2);
    rein_loop_close(loop);
    put_program("none.sh", "#!/bin/sh\n"
                           "while read -r line; do\n"
                           "    case $line in *held_out*) echo '{\"end\": true}' ;; *) echo '{\"prompt\": \"Q:\"}' ;; esac\n"
                           "done\n");
    rein_error err = {0};
    const rein_settings *s = settings_of("task=@/none.sh|eval_task=|steps=1");
    assert_int_equal(rein_loop_open(&loop, in_folder("refused"), s, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "nothing is held out for evaluations"));
    assert_int_equal(access(in_folder("refused"), F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_whole_files),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_controller),
        cmocka_unit_test(test_own_budgets),
        cmocka_unit_test(test_advantages),
        cmocka_unit_test(test_nothing_to_train),
        cmocka_unit_test(test_dynamic_sampling),
        cmocka_unit_test(test_ptx),
        cmocka_unit_test(test_ptx_coefficient),
        cmocka_unit_test(test_ptx_epochs),
        cmocka_unit_test(test_stop_at),
        cmocka_unit_test(test_stop_at_any),
        cmocka_unit_test(test_the_page_has_every_metric),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_truncation_policy),
        cmocka_unit_test(test_exact_kl),
        cmocka_unit_test(test_judge_fails),
        cmocka_unit_test(test_task_program_ends),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
