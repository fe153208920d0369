/* test_settings.c - settings by name, as YAML, and everything that contradicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/settings.h"
#include "train/trainer_fixture.h"

#include "support/allocation.h" /* after the headers of cmocka and the library */

/* The value as text; it lives until the process ends. */
static const char *get(const rein_settings *s, const char *name) {
    rein_text value = {0};
    OK(rein_settings_get(&value, s, name, &error_));
    return kept(value.data);
}

static void set(rein_settings *s, const char *name, const char *value) { OK(rein_settings_set(s, name, value, &error_)); }

static void assert_same(const rein_settings *a, const rein_settings *b) {
    for (size_t i = 0; rein_setting_at(i); i++)
        assert_string_equal(get(a, rein_setting_at(i)->name), get(b, rein_setting_at(i)->name));
    for (size_t i = 0; rein_option_at(i); i++)
        assert_string_equal(get(a, rein_option_at(i)->name), get(b, rein_option_at(i)->name));
    assert_string_equal(a->preset, b->preset);
    assert_memory_equal(a->given, b->given, sizeof a->given);
    assert_memory_equal(&a->objective, &b->objective, sizeof a->objective);
}

static void refuse(const char *name, const char *value, const char *reason) {
    rein_settings *s = new_settings();
    const rein_settings *before = copy_settings(s);
    rein_error err = {0};
    assert_int_equal(rein_settings_set(s, name, value, &err), REIN_EINVAL);
    if (!strstr(err.message, reason)) fail_msg("\"%s\" does not say \"%s\"", err.message, reason);
    assert_string_equal(err.field, name);
    assert_same(s, before);
}

/* ---- by name */

/* Every setting as it is when nothing is said, two values that it takes and reads back, and values it refuses. */
static const struct setting {
    const char *name, *standard, *values[2], *wrong[4];
} SETTINGS[] = {
    {"model", "", {"/models/a", "b c"}, {0}},
    {"adapter", "", {"x", "y"}, {0}},
    {"quantize", "", {"q8_0", "q4_0"}, {0}},
    {"full", "no", {"yes", "no"}, {"maybe", "2", "yess"}},
    {"lora_rank", "8", {"1", "65536"}, {"0", "65537", "2.5", "eight"}},
    {"lora_alpha", "16", {"0.5", "32"}, {"0", "-1", "nan", "1e7"}},
    {"use_rslora", "no", {"no", "yes"}, {"perhaps"}},
    {"lora_modules", "", {"q_proj,v_proj", "o_proj"}, {0}},
    {"temperature", "1", {"0.5", "1000"}, {"0", "-0.5", "inf", "1001"}},
    {"seed", "1", {"0", "1000000000000000"}, {"-1", "1e16", "x", ""}},
    {"learning_rate", "1e-05", {"0", "1"}, {"-1e-9", "1.5", "1e-3x", ""}},
    {"adam_beta1", "0.9", {"0", "0.5"}, {"1", "-0.1"}},
    {"adam_beta2", "0.99", {"0", "0.999"}, {"1", "-0.1"}},
    {"adam_epsilon", "1e-08", {"0.5", "1"}, {"0", "2"}},
    {"weight_decay", "0", {"0.1", "1"}, {"-0.1", "1.1"}},
    {"max_grad_norm", "1", {"0", "0.5"}, {"-1", "nan"}},
    {"lr_scheduler_type", "constant", {"linear", "cosine"}, {"exponential", "", "constant|linear"}},
    {"warmup_steps", "0", {"0", "7"}, {"-1", "0.5"}},
    {"total_steps", "0", {"0", "100"}, {"-1", "0.5"}},
    {"lr_final_share", "0", {"0.25", "1"}, {"-0.1", "1.1"}},
    {"epochs", "1", {"1", "4"}, {"0", "1001", "1.5"}},
    {"minibatches", "1", {"1", "8"}, {"0", "1.5"}},
    {"mask_truncated_completions", "no", {"yes", "no"}, {"so"}},
    {"critic", "", {"same", "d"}, {0}},
    {"critic_learning_rate", "1e-05", {"0", "0.01"}, {"-1", "2"}},
    {"critic_warmup_steps", "0", {"0", "7"}, {"-1", "0.5"}},
    {"critic_only_steps", "0", {"0", "7"}, {"-1", "0.5"}},
    {"value_clip", "0.5", {"0", "0.2"}, {"-1", "nan", "x"}},
    {"whiten_advantages", "yes", {"no", "yes"}, {"so"}},
    {"kl_target", "", {"6", "0.05"}, {"0", "-1"}},
    {"kl_horizon", "10000", {"1000", "0.5"}, {"0", "-1"}},
    {"kl_target_unit", "sequence", {"token", "sequence"}, {"", "tokens"}},
    {"kl_penalty_reference_step", "", {"0", "12"}, {"-1", "1.5", ""}},
    {"kl_penalty_step_lag", "", {"1", "12"}, {"0", "-1", "1.5"}},
    {"kl_ref_adapter_path", "", {"d", "e"}, {0}},
    {"teacher", "", {"d", "e"}, {0}},
    {"shards", "0", {"1", "4096"}, {"4097", "-1"}},
    {"share_limit", "0", {"1", "64"}, {"65537", "-1"}},
    {"no_sharing", "no", {"yes", "no"}, {"so"}},
    {"recompute", "no", {"yes", "no"}, {"so"}},
    {"threads", "0", {"1", "256"}, {"257", "-1"}},
    {"save_steps", "1", {"1", "50"}, {"0", "1.5"}},
    {"keep_last", "0", {"1", "3"}, {"-1", "x"}},
    {"keep_best", "", {"reward", "-loss"}, {0}},
    {"steps", "100", {"1", "60"}, {"0", "1.5"}},
    {"prompts", "32", {"1", "64"}, {"0", "2e6"}},
    {"samples", "8", {"1", "16"}, {"0", "65537"}},
    {"max_tokens", "256", {"1", "96"}, {"0", "-1"}},
    {"activation_cache", "4096", {"0", "100"}, {"-1", "0.5"}},
    {"temperature_final", "", {"0.5", "1"}, {"0", "nan"}},
    {"top_k", "0", {"1", "50"}, {"-1", "0.5"}},
    {"top_p", "1", {"0.5", "0.9"}, {"0", "1.1"}},
    {"min_p", "0", {"0.5", "0.1"}, {"-0.1", "1"}},
    {"truncation", "none", {"policy", "none"}, {"", "yes"}},
    {"max_turns", "8", {"1", "100"}, {"0", "1.5"}},
    {"stop", "", {"\\n\\n", "a\nb"}, {"\n\n", "a\n\nb"}},
    {"dynamic_sampling", "0", {"1", "3"}, {"-1", "1001"}},
    {"budget_target", "", {"36", "0.5"}, {"0", "-1"}},
    {"budget_rate", "0.0001", {"0", "0.5"}, {"-1", "x"}},
    {"ptx_data", "", {"d.jsonl", "e"}, {0}},
    {"ptx_coef", "0.1", {"0", "1"}, {"-1", "inf"}},
    {"ptx_batch", "8", {"1", "16"}, {"0", "1.5"}},
    {"stop_at", "", {"reward>=1", "kl>0.5"}, {0}},
    {"task", "", {"sums", "a.jsonl"}, {0}},
    {"eval_task", "", {"sums", "a.jsonl"}, {0}},
    {"held_out", "0.1", {"0", "0.5"}, {"-0.1", "0.95"}},
    {"reward", "", {"exact", "exact\nlength:36"}, {"\n", "\nexact"}},
    {"reward_weights", "", {"1,0.5", "2"}, {0}},
    {"working_directory", "", {"/", "d"}, {0}},
    {"reward_timeout", "30", {"0.5", "60"}, {"0", "-1"}},
    {"reward_restarts", "0", {"1", "3"}, {"-1", "0.5"}},
    {"chat", "no", {"yes", "no"}, {"so"}},
    {"chat_format", "", {"chatml", "raw"}, {0}},
    {"system", "", {"Be brief.", "x"}, {0}},
    {"date", "", {"2026-11-18", "2024-02-29"}, {0}},
    {"eval_steps", "10", {"0", "5"}, {"-1", "0.5"}},
    {"eval_prompts", "100", {"0", "512"}, {"-1", "1e7"}},
    {"eval_samples", "1", {"2", "4"}, {"0", "0.5"}},
};

static void test_every_setting(void **state) {
    (void)state;
    const rein_settings *standard = new_settings();
    size_t n = 0;
    for (; rein_setting_at(n); n++) {
        const struct setting *w = &SETTINGS[n];
        const rein_setting_info *info = rein_setting_at(n);
        assert_true(n < COUNT(SETTINGS));
        assert_string_equal(info->name, w->name);
        assert_true(*info->value && *info->stage && *info->help);
        assert_string_equal(get(standard, w->name), w->standard);
        assert_false(rein_settings_given(standard, w->name));
        for (size_t k = 0; k < 2; k++) {
            rein_settings *s = copy_settings(standard);
            set(s, w->name, w->values[k]);
            assert_string_equal(get(s, w->name), w->values[k]);
            assert_true(rein_settings_given(s, w->name));
            for (size_t i = 0; i < COUNT(SETTINGS); i++) /* and nothing else */
                if (i != n) assert_string_equal(get(s, SETTINGS[i].name), SETTINGS[i].standard);
            for (size_t i = 0; i < sizeof s->given; i++) assert_int_equal(s->given[i], i == n);
        }
        for (size_t k = 0; k < 4 && w->wrong[k]; k++) refuse(w->name, w->wrong[k], w->name);
    }
    assert_int_equal(n, COUNT(SETTINGS));
    assert_false(rein_settings_given(standard, "no such"));
}

static void test_switches(void **state) {
    (void)state;
    const char *const yes[] = {"yes", "true", "1", "on", ""}, *const no[] = {"no", "false", "0", "off"};
    rein_settings *s = new_settings();
    for (size_t i = 0; i < COUNT(yes); i++) s->full = 0, set(s, "full", yes[i]), assert_int_equal(s->full, 1);
    for (size_t i = 0; i < COUNT(no); i++) s->full = 1, set(s, "full", no[i]), assert_int_equal(s->full, 0);
}

/* Texts of any length, through the handle, a copy and a file. */
static void test_texts(void **state) {
    (void)state;
    enum { LENGTH = 5000 };
    char text[LENGTH + 1];
    rein_settings *s = new_settings(), *read = new_settings();
    for (size_t i = 0; i < LENGTH; i++) text[i] = (char)('a' + i % 26);
    text[LENGTH] = 0;
    set(s, "system", text);
    set(s, "stop", text);
    assert_string_equal(s->system, text);
    assert_string_equal(rein_settings_text(s, "system"), text);
    rein_settings *copy = copy_settings(s);
    set(s, "system", "short");
    assert_string_equal(copy->system, text); /* its own */
    OK(rein_settings_write(copy, in_folder("long.yaml"), &error_));
    OK(rein_settings_read(read, in_folder("long.yaml"), &error_));
    assert_same(copy, read);
    OK(rein_settings_change(s, copy, &error_));
    assert_string_equal(s->system, text);
    refuse("model", "caf\xe9", "model has an invalid byte at 3: UTF-8 is needed"); /* or config.yaml could not hold it */
}

static void test_values(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    rein_text text = {0};
    set(s, "preset", "grpo");
    set(s, "model", "m");
    set(s, "full", "yes");
    set(s, "lora_rank", "4");
    set(s, "lr_scheduler_type", "cosine");
    assert_string_equal(rein_settings_text(s, "preset"), "grpo");
    assert_string_equal(rein_settings_text(s, "model"), "m");
    assert_string_equal(rein_settings_text(s, "lr_scheduler_type"), "cosine");
    assert_string_equal(rein_settings_text(s, "advantage"), "group-std"); /* a choice of the objective */
    assert_string_equal(rein_settings_text(s, "lora_rank"), "");
    assert_string_equal(rein_settings_text(s, "no such"), "");
    assert_true(rein_settings_number(s, "full") == 1 && rein_settings_number(s, "chat") == 0);
    assert_true(rein_settings_number(s, "lora_rank") == 4 && rein_settings_number(s, "kl_loss_coef") == 0.04);
    assert_true(isnan(rein_settings_number(s, "kl_penalty_reference_step")) && isnan(rein_settings_number(s, "token_budget")));
    assert_true(isnan(rein_settings_number(s, "model")) && isnan(rein_settings_number(s, "no such")));
    assert_true(rein_settings_objective(s) == &s->objective);
    set(s, "threads", "3");
    rein_settings_set_isa(s, REIN_ISA_REF);
    assert_true(rein_settings_exec(s).threads == 3 && rein_settings_exec(s).isa == REIN_ISA_REF);
    OK(rein_settings_get(&text, s, "model", &error_));
    OK(rein_settings_get(&text, s, "lora_rank", &error_));
    assert_string_equal(text.data, "m4"); /* appended */
    rein_text_free(&text);
    rein_settings_free(NULL);
}

/* Every option of the objective; numbers that are in every range where there is one. */
static void test_every_option(void **state) {
    (void)state;
    const char *const numbers[] = {"0.5", "2", "1", "-0.5"};
    for (size_t i = 0; rein_option_at(i); i++) {
        const rein_option_info *info = rein_option_at(i);
        rein_settings *s = new_settings();
        size_t taken = 0;
        char word[32];
        if (!info->choices) {
            for (size_t k = 0; k < COUNT(numbers) && !taken; k++)
                if (rein_settings_set(s, info->name, numbers[k], NULL) == REIN_OK) {
                    taken++;
                    assert_string_equal(get(s, info->name), numbers[k]);
                }
        } else
            for (const char *at = info->choices; *at; taken++) {
                const size_t length = strcspn(at, "|");
                snprintf(word, sizeof word, "%.*s", (int)length, at);
                at += length + (at[length] == '|');
                set(s, info->name, word);
                assert_string_equal(get(s, info->name), word);
            }
        assert_true(taken > 0 && rein_options_given(&s->objective, info->name) && !memchr(s->given, 1, sizeof s->given));
        refuse(info->name, "nonsense", info->name);
    }
}

static void test_unknown_names(void **state) {
    (void)state;
    rein_text value = {0};
    const rein_settings *s = new_settings();
    refuse("lora_rnak", "1", "lora_rnak is not a setting: did you mean lora_rank?");
    refuse("kl_los_coef", "1", "did you mean kl_loss_coef?");
    refuse("presets", "grpo", "did you mean preset?");
    refuse("lora-rank", "1", "did you mean lora_rank?");
    refuse("qqqqqqqqqqqq", "1", "qqqqqqqqqqqq is not a setting");
    REFUSED(rein_settings_set(new_settings(), "", "1", &error_), "\"\" is not a setting");
    refuse("preset", "gpro", "grpo");
    REFUSED(rein_settings_get(&value, s, "epsiln", &error_), "did you mean epsilon?");
}

/* A preset comes first. Without one, an option that is not given has its published value, not 0. */
static void test_presets(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    rein_options resolved;
    set(s, "preset", "grpo");
    set(s, "preset", "cispo"); /* nothing was built on the first */
    assert_true(s->objective.surrogate == REIN_SURROGATE_CISPO);
    assert_string_equal(get(s, "preset"), "cispo");
    set(s, "epsilon", "0.3");
    REFUSED(rein_settings_set(s, "preset", "grpo", &error_), "preset must come before the options that change it");
    assert_true(s->objective.epsilon == 0.3);
    s = new_settings();
    set(s, "surrogate", "clip");
    OK(rein_options_resolve(&resolved, &s->objective, &error_));
    assert_true(resolved.epsilon == 0.2 && resolved.epsilon_high == 0.2);
    OK(rein_settings_check(s, &error_));
}

static void test_aliases(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    set(s, "preset", "art");
    set(s, "importance_sampling_level", "sequence");
    set(s, "scale_rewards", "false");
    set(s, "truncated_importance_sampling", "2.5");
    assert_string_equal(get(s, "ratio"), "sequence");
    assert_string_equal(get(s, "advantage"), "group-mean");
    assert_string_equal(get(s, "tis_cap"), "2.5");
    assert_string_equal(get(s, "mismatch"), "token-tis");
    REFUSED(rein_settings_set(s, "ratio", "token", &error_), "importance_sampling_level");
    OK(rein_settings_write(s, in_folder("aliases.yaml"), &error_));
    rein_settings *read = new_settings();
    OK(rein_settings_read(read, in_folder("aliases.yaml"), &error_));
    assert_string_equal(get(read, "ratio"), "sequence");
    assert_string_equal(get(read, "mismatch"), "token-tis");
    rein_options a, b;
    OK(rein_options_resolve(&a, &s->objective, &error_));
    OK(rein_options_resolve(&b, &read->objective, &error_));
    memset(a.given_by, 0, sizeof a.given_by);
    assert_memory_equal(&a, &b, sizeof a);
}

/* ---- YAML */
static void write_text(const char *text) { OK(rein_file_write(in_folder("s.yaml"), text, strlen(text), &error_)); }

/* The name that older runs have in their config.yaml. */
static void test_earlier_name(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    write_text("recall: 17\n");
    OK(rein_settings_read(s, in_folder("s.yaml"), &error_));
    assert_string_equal(get(s, "activation_cache"), "17");
    assert_true(rein_settings_given(s, "activation_cache"));
    OK(rein_settings_set(s, "recall", "18", &error_));
    assert_string_equal(get(s, "activation_cache"), "18");
    REFUSED(rein_settings_set(s, "recall", "-1", &error_), "activation_cache is -1");
}

static void test_yaml(void **state) {
    (void)state;
    rein_settings *s = new_settings();
    write_text("# a comment\n"
               "---\n"
               "model: /data/größe 模型\n"
               "adapter: \"a \\\"quoted\\\" path \\\\ \\u00e9\"\n"
               "kl_ref_adapter_path: 'it''s # here: really'\n"
               "lora_rank: 4\n"
               "learning_rate: 1e-3\n"
               "full: true\n"
               "lora_modules: [q_proj, 'v_proj']\n"
               "keep_best:\n"
               "  - reward\n"
               "preset: grpo\n"
               "epsilon: 0.3\n"
               "kl_estimator: k2\n");
    OK(rein_settings_read(s, in_folder("s.yaml"), &error_));
    assert_string_equal(s->model, "/data/größe 模型");
    assert_string_equal(s->adapter, "a \"quoted\" path \\ é");
    assert_string_equal(s->kl_ref_adapter_path, "it's # here: really");
    assert_string_equal(s->lora_modules, "q_proj,v_proj");
    assert_string_equal(s->keep_best, "reward");
    assert_true(s->lora_rank == 4 && s->learning_rate == 1e-3 && s->full == 1);
    assert_true(s->objective.epsilon == 0.3 && s->objective.kl_estimator == REIN_K2 && s->objective.kl_loss_coef == 0.04);
    assert_true(rein_settings_given(s, "lora_rank") && !rein_settings_given(s, "seed"));
    write_text(""); /* nothing is said */
    const rein_settings *before = copy_settings(s);
    OK(rein_settings_read(s, in_folder("s.yaml"), &error_));
    assert_same(s, before);
}

static void test_wrong_yaml(void **state) {
    (void)state;
    const char *const cases[][2] = {
        {"lora_rank: 4\nfull: perhaps\n", "line 2: full is \"perhaps\": it must be yes or no"},
        {"a: b\n", "line 1: a is not a setting"},
        {"seed: 1\n\nlora_rnak: 3\n", "line 3: lora_rnak is not a setting: did you mean lora_rank?"},
        {"lora:\n  rank: 4\n", "line 2: a mapping inside the mapping: settings are flat"},
        {"lora: {rank: 4}\n", "line 1: a mapping inside the mapping"},
        {"lora_modules:\n- q_proj\n- {a: b}\n", "line 3: a mapping inside the mapping"},
        {"lora_modules:\n- q_proj\n- [v_proj]\n", "line 3: a list where"},
        {"[a, b]\n", "line 1: a list where"},
        {"just text\n", "line 1: a mapping of names to values is needed"},
        {"? [a]\n: b\n", "line 1: a list where"},
        {"model: &x a\nadapter: *x\n", "line 2: anchors and aliases"},
        {"model: \"open\nseed: 1\n", "line "},
        {"seed: 1\n\tfull: yes\n", "line 2: "},
        {"model: \"a\\0b\"\n", "line 1: a NUL byte"},
        {"epsilon: 0.3\npreset: grpo\n", "line 2: preset must come before"},
        {"a_name_that_is_far_longer_than_any_setting_could_ever_be_in_this_program: 1\n",
         "line 1: no setting has a name that long"},
        {"seed: 1\nlora_rank: 2\nseed: 3\n", "line 3: seed is set twice"},
        {"recall: 1\nactivation_cache: 1\n", "line 2: activation_cache is set twice"},
        {"activation_cache: 1\nrecall: 1\n", "line 2: activation_cache is set twice"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_settings *s = new_settings(), *before = copy_settings(s);
        write_text(cases[i][0]);
        REFUSED(rein_settings_read(s, in_folder("s.yaml"), &error_), cases[i][1]);
        REFUSED(rein_settings_read(s, in_folder("s.yaml"), &error_), "s.yaml");
        assert_same(s, before);
    }
    char text[3000] = "lora_modules:\n";
    for (size_t i = 0; i < 60; i++) strcat(text, "- a_long_name\n");
    rein_settings *s = new_settings();
    write_text(text);
    OK(rein_settings_read(s, in_folder("s.yaml"), &error_));
    assert_int_equal(strlen(s->lora_modules), 60 * 12 - 1); /* joined */
    REFUSED(rein_settings_read(s, in_folder("nowhere.yaml"), &error_), "nowhere.yaml");
    REFUSED(rein_settings_write(s, in_folder("no/where.yaml"), &error_), "where.yaml");
}

/* ---- what is written is read as the same */

/* Anything a path can be: blanks around it, controls, quotes, and what YAML takes for ends of lines. */
static void random_text(char *to, size_t size) {
    const char *const pieces[] = {"a",
                                  "Z9",
                                  " ",
                                  "\"",
                                  "\\",
                                  "'",
                                  "\n",
                                  "\t",
                                  "#",
                                  ": ",
                                  "- ",
                                  "{",
                                  "[",
                                  "é",
                                  "模",
                                  "😀",
                                  "\x7f",
                                  "\x01",
                                  "\x1b",
                                  "\xc2\x85",
                                  "\xc2\x9f",
                                  "\xe2\x80\xa8",
                                  "\xe2\x80\xa9",
                                  "\xef\xbb\xbf",
                                  "\xef\xbf\xbf",
                                  "\r",
                                  "%",
                                  "&x",
                                  "*x",
                                  "!",
                                  "|",
                                  ">",
                                  "@",
                                  "`",
                                  "~",
                                  "\xc2\xa0"};
    to[0] = 0;
    for (size_t n = below(40) * below(8); n > 0; n--) {
        const char *piece = pieces[below(COUNT(pieces))];
        if (strlen(to) + strlen(piece) < size) strcat(to, piece);
    }
}

static void random_setting(rein_settings *s, size_t i) {
    const rein_setting_info *info = rein_setting_at(i);
    char value[600];
    const int whole = !strcmp(info->value, "N");
    if (whole) snprintf(value, sizeof value, "%zu", below(300));
    else if (!strcmp(info->value, "X")) snprintf(value, sizeof value, "%.17g", fabs(number()) * (below(2) ? 1 : 1e-3));
    else if (!strcmp(info->value, "yes|no")) snprintf(value, sizeof value, "%s", below(2) ? "yes" : "no");
    else if (strchr(info->value, '|')) snprintf(value, sizeof value, "%s", below(2) ? "linear" : "cosine");
    else random_text(value, sizeof value);
    (void)rein_settings_set(s, info->name, value, NULL); /* some are out of range */
}

static void random_option(rein_settings *s, size_t i) {
    const rein_option_info *info = rein_option_at(i);
    char value[64];
    snprintf(value, sizeof value, "%.17g", fabs(number()) * 3);
    if (info->choices) {
        const char *at = info->choices;
        for (size_t k = below(6); k > 0 && strchr(at, '|'); k--) at = strchr(at, '|') + 1;
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "|"), at);
    }
    (void)rein_settings_set(s, info->name, value, NULL);
}

static void test_round_trips(void **state) {
    (void)state;
    for (size_t round = 0; round < (quick() ? 100u : 1000u); round++) {
        rein_settings *s = new_settings(), *read = new_settings();
        stream = round;
        size_t presets = 0;
        while (rein_preset_name(presets)) presets++;
        if (below(3)) set(s, "preset", rein_preset_name(below(presets)));
        for (size_t i = 0; rein_setting_at(i); i++)
            if (below(4) == 0) random_setting(s, i);
        for (size_t i = 0; rein_option_at(i); i++)
            if (below(6) == 0) random_option(s, i);
        OK(rein_settings_write(s, in_folder("round.yaml"), &error_));
        OK(rein_settings_read(read, in_folder("round.yaml"), &error_));
        assert_same(s, read);
        assert_string_equal(rein_settings_text(s, "system"), read->system);
    }
    char text[3000]; /* each byte escaped */
    memset(text, 1, sizeof text);
    text[sizeof text - 1] = 0;
    rein_settings *s = new_settings(), *read = new_settings();
    set(s, "model", text);
    OK(rein_settings_write(s, in_folder("round.yaml"), &error_));
    OK(rein_settings_read(read, in_folder("round.yaml"), &error_));
    assert_same(s, read);
}

/* A setting that a program changed without its name is written all the same. */
static void test_changed_by_field(void **state) {
    (void)state;
    rein_settings *s = new_settings(), *read = new_settings();
    s->lora_rank = 5, s->full = 1;
    OK(rein_settings_write(s, in_folder("field.yaml"), &error_));
    OK(rein_settings_read(read, in_folder("field.yaml"), &error_));
    assert_true(read->lora_rank == 5 && read->full == 1 && read->lora_alpha == 16);
}

/* ---- contradictions: "name=value name=value", and the message; NULL: none */
static const char *const CHECKS[][2] = {
    {"", NULL},
    {"full=yes", NULL},
    {"full=yes lora_rank=4", "lora_rank has no effect with full"},
    {"full=yes lora_alpha=4", "lora_alpha has no effect with full"},
    {"full=yes use_rslora=no", "use_rslora has no effect with full"},
    {"full=yes lora_modules=q_proj", "lora_modules has no effect with full"},
    {"adapter=a lora_rank=4", "lora_rank has no effect with adapter"},
    {"adapter=a lora_modules=q_proj", "lora_modules has no effect with adapter"},
    {"adapter=a", NULL},
    {"full=yes adapter=a", "full and adapter contradict each other"},
    {"full=yes quantize=q8_0", "quantize and full contradict each other: weights that train are f32"},
    {"quantize=q3_k", "quantize is \"q3_k\": q8_0 and q4_0 are known"},
    {"quantize=q4_0", NULL},
    {"lr_scheduler_type=linear", "lr_scheduler_type linear needs total_steps"},
    {"lr_scheduler_type=cosine", "lr_scheduler_type cosine needs total_steps"},
    {"lr_scheduler_type=cosine total_steps=10 warmup_steps=10", "warmup_steps is 10: it must be less than total_steps, 10"},
    {"lr_scheduler_type=cosine total_steps=10 warmup_steps=9 lr_final_share=0.1", NULL},
    {"warmup_steps=10", NULL},
    {"lr_final_share=0.1", "lr_final_share has no effect with a constant learning rate"},
    {"total_steps=10", "total_steps has no effect with a constant learning rate"},
    {"kl_penalty_reference_step=0", "kl_penalty_reference_step has no effect"},
    {"kl_penalty_step_lag=1", "kl_penalty_step_lag has no effect"},
    {"kl_ref_adapter_path=a", "kl_ref_adapter_path has no effect"},
    {"preset=art kl_penalty_coef=0 kl_penalty_reference_step=0", "kl_penalty_reference_step has no effect"},
    {"preset=art kl_penalty_coef=0.1 kl_penalty_reference_step=0", NULL},
    {"preset=grpo kl_penalty_step_lag=2", NULL},
    {"preset=grpo kl_penalty_step_lag=2 save_steps=2", "kl_penalty_step_lag needs a checkpoint of every step: save_steps is 2"},
    {"preset=grpo kl_penalty_step_lag=2 save_steps=1", NULL},
    {"preset=grpo kl_penalty_reference_step=4 save_steps=2", NULL},
    {"preset=rloo kl_ref_adapter_path=a", NULL},
    {"keep_best=reward", NULL},
    {"keep_best=-loss", NULL},
    {"keep_best=-kl preset=grpo", NULL},
    {"keep_best=rewrad", "keep_best names \"rewrad\": no step has such a metric"},
    {"keep_best=-", "keep_best names \"\": no step has such a metric"},
    {"keep_best=kl", "keep_best has no effect: there is no kl without a KL in the objective"},
    {"keep_best=eval/accuracy", "keep_best has no effect: there is no eval/accuracy without task"},
    {"keep_best=rewards/exact/mean", "keep_best has no effect: there is no rewards/exact/mean without task"},
    {"keep_best=budget/multiplier", "keep_best has no effect: there is no budget/multiplier without task"},
    {"keep_best=eval/accuracy task=sums", NULL},
    {"keep_best=eval/accuracy task=sums eval_prompts=0", "keep_best has no effect: there is no eval/accuracy without eval_prompts"},
    {"keep_best=temperature task=sums", "keep_best has no effect: there is no temperature without temperature_final"},
    {"keep_best=critic/loss", "keep_best has no effect: there is no critic/loss without critic"},
    {"keep_best=critic/loss preset=ppo critic=same", NULL},
    {"keep_best=-teacher/divergence", "keep_best has no effect: there is no teacher/divergence without teacher"},
    {"keep_best=-teacher/divergence teacher=a teacher_coef=1 divergence=reverse", NULL},
    {"keep_best=kl/of_target preset=ppo critic=same", "keep_best has no effect: there is no kl/of_target without kl_target"},
    {"keep_best=kl/of_target preset=ppo critic=same kl_reward_coef=0.1 kl_target=1", NULL},
    {"task=sums preset=online-dpo samples=1", "samples is 1: with preference_loss the best and the worst response"},
    {"task=sums preset=online-dpo samples=2", NULL},
    {"preset=grpo kl_penalty_step_lag=2 kl_penalty_reference_step=0",
     "kl_penalty_reference_step and kl_penalty_step_lag are two references"},
    {"preset=grpo kl_penalty_step_lag=2 kl_ref_adapter_path=a", "kl_penalty_step_lag and kl_ref_adapter_path are two references"},
    {"preset=grpo kl_penalty_reference_step=2 kl_ref_adapter_path=a",
     "kl_penalty_reference_step and kl_ref_adapter_path are two references"},
    {"preset=grpo full=yes kl_ref_adapter_path=a", "kl_ref_adapter_path has no effect with full"},
    {"preset=k2", "tau"},
    {"preset=k2 tau=0.1 token_budget=10 budget_penalty_coef=0.1", NULL},
    {"preset=grpo dual_clip=3", "dual_clip"},
    {"preset=grpo epsilon=0.2", NULL},
    {"kl_scope=group", "kl_scope"},
    {"surrogate=squared", "tau"},
    {"shape=budget", "budget_penalty_coef is required"},
};

static void test_checks(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(CHECKS); i++) {
        rein_settings *s = new_settings();
        char text[300], *rest = text, *pair;
        snprintf(text, sizeof text, "%s", CHECKS[i][0]);
        while ((pair = strtok_r(rest, " ", &rest))) {
            char *equals = strchr(pair, '=');
            *equals = 0;
            set(s, pair, equals + 1);
        }
        rein_error err = {0};
        assert_int_equal(rein_settings_check(s, &err), CHECKS[i][1] ? REIN_EINVAL : REIN_OK);
        if (CHECKS[i][1] && !strstr(err.message, CHECKS[i][1])) fail_msg("\"%s\", not \"%s\"", err.message, CHECKS[i][1]);
        if (CHECKS[i][1]) assert_true(*err.field && !strncmp(err.message, err.field, strlen(err.field)));
    }
}

/* ---- every allocation */
static rein_status use_everything(void *context, rein_error *err) {
    const char *path = context;
    rein_settings *s = NULL, *copy = NULL, *read = NULL;
    rein_status status = rein_settings_new(&s, err);
    if (!status) status = rein_settings_set(s, "preset", "grpo", err);
    if (!status) status = rein_settings_set(s, "system", "a system message", err);
    if (!status) status = rein_settings_set(s, "epsilon", "0.3", err);
    if (!status) status = rein_settings_copy(&copy, s, err);
    if (!status) status = rein_settings_write(copy, path, err);
    if (!status) status = rein_settings_new(&read, err);
    if (!status) status = rein_settings_read(read, path, err);
    if (!status) status = rein_settings_change(read, s, err);
    if (!status) status = rein_settings_check(read, err);
    rein_settings_free(s), rein_settings_free(copy), rein_settings_free(read);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    char path[1200];
    if (!can_fail()) skip();
    snprintf(path, sizeof path, "%s", in_folder("memory.yaml"));
    assert_true(fail_each_allocation(use_everything, path) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_setting),    cmocka_unit_test(test_switches),     cmocka_unit_test(test_texts),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_every_option), cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_presets),          cmocka_unit_test(test_aliases),      cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_earlier_name),     cmocka_unit_test(test_wrong_yaml),   cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_changed_by_field), cmocka_unit_test(test_checks),       cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
