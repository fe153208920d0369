/* loop_fixture.h - loops on a model of a few thousand numbers with the shipped model's tokenizer, a file of six prompts, and what they leave
 * on the disk. The model knows nothing: what it writes is any of 97 characters, and some of these are stops, so that lengths differ. */
#ifndef REIN_TESTS_LOOP_FIXTURE_H
#define REIN_TESTS_LOOP_FIXTURE_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/tiny_model.h"
#include "rein/train.h"
#include "support/check.h"
#include "support/files.h"
#include "train/made.h"

/* ---- files */
static inline void put(const char *name, const char *text) { OK(rein_file_write(in_folder(name), text, strlen(text), &error_)); }

static inline char *text_of(const char *path) { /* the caller frees */
    rein_file file;
    OK(rein_file_map(&file, path, &error_));
    char *text = malloc(file.size + 1);
    assert_non_null(text);
    memcpy(text, file.data, file.size);
    text[file.size] = 0;
    rein_file_unmap(&file);
    return text;
}

static inline const char *in_run(const char *run, const char *file) {
    char name[600];
    snprintf(name, sizeof name, "%s/%s", run, file);
    return in_folder(name);
}

static inline const char *checkpoint(const char *run, size_t step, const char *file) {
    char name[100];
    snprintf(name, sizeof name, "checkpoints/%04zu/%s", step, file);
    return in_run(run, name);
}

/* The lines of a file of JSON lines, an array. */
static inline json_t *lines_of(const char *run, const char *file) {
    json_t *lines = json_array();
    FILE *f = fopen(in_run(run, file), "rb");
    if (!f) fail_msg("%s has no %s", run, file);
    for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL));) json_array_append_new(lines, line);
    fclose(f);
    return lines;
}

/* A number of a line by its name; NaN: it has none. */
static inline double value_of(const json_t *lines, size_t i, const char *name) {
    const json_t *value = json_object_get(json_array_get(lines, i), name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- the model, its prompts, and supervised examples */
static inline void copy_file(const char *from, const char *to) {
    char *text = text_of(from);
    put(to, text);
    free(text);
}

/* Call once. */
static inline void make_material(void) {
    static const char config[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 97, "
                                 "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 1, "
                                 "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"max_position_embeddings\": 64, "
                                 "\"tie_word_embeddings\": false, \"eos_token_id\": 0, \"initializer_range\": 0.2}";
    char six[1000] = "", held[1000] = "", taught[1000] = "";
    sub_folder("tiny");
    put("tiny/config.json", config);
    OK(rein_model_init(in_folder("tiny"), 1, &error_));
    copy_file("models/sums/tokenizer.json", "tiny/tokenizer.json");
    copy_file("models/sums/tokenizer_config.json", "tiny/tokenizer_config.json");
    for (int i = 0; i < 6; i++) {
        sprintf(six + strlen(six), "{\"prompt\": \"Q%d:\", \"answer\": \"%d\", \"budget\": %d}\n", i, i, i + 2);
        sprintf(held + strlen(held), "{\"prompt\": \"H%d:\", \"answer\": \"%d\"}\n", i, i);
        sprintf(taught + strlen(taught), "{\"prompt\": \"T%d:\", \"completion\": \"yes\"}\n", i);
    }
    put("six.jsonl", six);
    put("held.jsonl", held);
    put("taught.jsonl", taught);
}

static inline int start(void **state) {
    const int status = make_folder(state);
    if (!status) make_material();
    return status;
}

/* ---- settings */

/* @ stands for the folder, and ; for the end of a line. */
static inline void expand(char *to, size_t size, const char *text) {
    size_t n = 0;
    for (; *text && n + 1 < size; text++) {
        if (*text == '@') n += (size_t)snprintf(to + n, size - n, "%s", folder);
        else to[n++] = *text == ';' ? '\n' : *text;
    }
    assert_true(n < size);
    to[n] = 0;
}

/* "name=value|name=value" */
static inline void set_all(rein_settings *s, const char *text) {
    char copy[2000], value[1000], *rest = copy, *pair;
    snprintf(copy, sizeof copy, "%s", text);
    while ((pair = strtok_r(rest, "|", &rest))) {
        char *equals = strchr(pair, '=');
        assert_non_null(equals);
        *equals = 0;
        expand(value, sizeof value, equals + 1);
        OK(rein_settings_set(s, pair, value, &error_));
    }
}

/* Small steps of the tiny model on the six prompts, evaluated on the others; changed by `text`. */
static inline rein_settings *settings_of(const char *text) {
    rein_settings *s = new_settings();
    if (strncmp(text, "preset=", 7) != 0) set_all(s, "preset=k2|token_budget=4|budget_penalty_coef=0.05|tau=0.5");
    set_all(
        s,
        "model=@/tiny|task=@/six.jsonl|eval_task=@/held.jsonl|prompts=4|samples=4|max_tokens=8|steps=3|eval_prompts=3|eval_steps=2|"
        "learning_rate=0.02|reward=regex:[0-9];length:3|stop=a;b;c;d;e;f;g;h;i|threads=1");
    set_all(s, text);
    return s;
}

static inline rein_loop *open_with(const char *run, const rein_settings *s) {
    rein_loop *loop;
    OK(rein_loop_open(&loop, in_folder(run), s, NULL, &error_));
    return loop;
}

static inline rein_loop *open_loop(const char *run, const char *text) {
    const rein_settings *s = settings_of(text);
    return open_with(run, s);
}

/* With nothing but what the run has. */
static inline rein_loop *go_on(const char *run) {
    const rein_settings *s = new_settings();
    return open_with(run, s);
}

/* The loop is not opened, for this reason, and nothing is written. */
static inline void refuses(const char *text, const char *reason) {
    rein_loop *loop = (rein_loop *)1;
    rein_error err = {0};
    char wanted[1000];
    snprintf(wanted, sizeof wanted, "%.*s%s%s", (int)strcspn(reason, "@"), reason, strchr(reason, '@') ? folder : "",
             strchr(reason, '@') ? strchr(reason, '@') + 1 : "");
    const rein_settings *s = settings_of(text);
    const rein_status status = rein_loop_open(&loop, in_folder("refused"), s, NULL, &err);
    if (status == REIN_OK) fail_msg("%s is not refused", text);
    if (strcmp(err.message, wanted) != 0) fail_msg("%s: \"%s\", not \"%s\"", text, err.message, wanted);
    assert_int_equal(status, REIN_EINVAL);
    assert_null(loop);
    assert_int_equal(access(in_folder("refused"), F_OK), -1);
}

/* ---- steps */
static inline rein_loop_report step_of(rein_loop *loop) {
    rein_loop_report report;
    OK(rein_loop_step(&report, loop, &error_));
    return report;
}

static inline double metric(const rein_loop_report *report, const char *name) {
    for (size_t i = 0; i < report->trained.n; i++)
        if (!strcmp(report->trained.metrics[i].name, name)) return report->trained.metrics[i].value;
    return (double)NAN;
}

static inline void make_steps(rein_loop *loop, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(report.trained.step == rein_session_step(rein_loop_session(loop)));
    }
}

/* A whole run. */
static inline void run_all(const char *run, const char *text) {
    rein_loop *loop = open_loop(run, text);
    while (!rein_loop_done(loop)) make_steps(loop, 1);
    OK(rein_loop_finish(loop, &error_));
    rein_loop_close(loop);
}

/* ---- two runs that are one */
static inline void assert_same_policies(const char *run, const char *other, size_t step, int full) {
    const char *const files[] = {"optimizer.safetensors", "state.json", full ? "model.safetensors" : "adapter_model.safetensors",
                                 "MANIFEST"};
    for (size_t i = 0; i < COUNT(files); i++)
        if (!same_file(checkpoint(run, step, files[i]), checkpoint(other, step, files[i])))
            fail_msg("checkpoint %zu of %s and %s: %s differs", step, run, other, files[i]);
}

/* The same but for what a clock or the memory says. */
static inline void assert_same_history(const char *run, const char *other) {
    const char *const apart[] = {"step_time",    "tokens_per_second", "peak_memory",    "time/sample", "time/reference",
                                 "time/forward", "time/backward",     "time/optimizer", "time/critic"};
    json_t *a = lines_of(run, "history.jsonl"), *b = lines_of(other, "history.jsonl");
    assert_true(json_array_size(a) == json_array_size(b) && json_array_size(a) > 0);
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < COUNT(apart); k++)
            json_object_del(json_array_get(a, i), apart[k]), json_object_del(json_array_get(b, i), apart[k]);
    if (!json_equal(a, b)) fail_msg("%s and %s: history.jsonl differs", run, other);
    json_decref(a), json_decref(b);
}

#endif
