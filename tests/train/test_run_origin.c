/* test_run_origin.c - what a run is made with: files that are not what they were, that moved, and commands of runs that came from elsewhere;
 * and what a call that does nothing leaves alone. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint.h"
#include "train/loop_fixture.h"
#include "train/manifest.h"
#include "train/state.h"

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...) {
    char command[2000];
    va_list arguments;
    va_start(arguments, format);
    const int n = snprintf(command, sizeof command, "cd '%s' && ", folder);
    vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

/* What opening the run says with these settings and allowances; "" if it opens. */
static const char *opening_says(const char *run, const char *text, unsigned allowed) {
    static rein_error err;
    rein_loop *loop;
    rein_settings *s = new_settings();
    set_all(s, text);
    rein_settings_allow(s, allowed);
    err.message[0] = 0;
    const rein_status status = rein_loop_open(&loop, in_folder(run), s, NULL, &err);
    if (status) assert_int_equal(status, REIN_EINVAL);
    rein_loop_close(loop);
    return err.message;
}

static void says_part(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

static void make_step(const char *run, const char *text, unsigned allowed) {
    rein_loop *loop;
    rein_settings *s = new_settings();
    set_all(s, text);
    rein_settings_allow(s, allowed);
    OK(rein_loop_open(&loop, in_folder(run), s, NULL, &error_));
    make_steps(loop, 1);
    rein_loop_close(loop);
}

/* What rein_run_check, as rein eval calls it, says of a checkpoint. */
static const char *checking_says(const char *run, int64_t step, const char *text, unsigned allowed) {
    static rein_error err;
    rein_run *opened;
    rein_settings *s = new_settings(), *given = new_settings();
    OK(rein_settings_read(s, in_run(run, "config.yaml"), &error_));
    set_all(given, text);
    rein_settings_allow(given, allowed);
    OK(rein_run_open(&opened, in_folder(run), REIN_RUN_READ, &error_));
    err.message[0] = 0;
    rein_run_check(opened, step, s, given, REIN_RUN_POLICY | REIN_RUN_TASK, &err);
    rein_run_close(opened);
    return err.message;
}

/* ---- state.json */
static json_t *state_of(const char *run, size_t step) {
    json_t *state;
    OK(rein_json_read(&state, checkpoint(run, step, "state.json"), REIN_JSON_NEEDS_OBJECT, &error_));
    return state;
}

/* Writes another state.json into a checkpoint, which stays good. */
static void put_state(const char *run, size_t step, json_t *state) {
    rein_manifest manifest;
    assert_int_equal(unlink(checkpoint(run, step, "MANIFEST")), 0);
    assert_int_equal(json_dump_file(state, checkpoint(run, step, "state.json"), JSON_INDENT(2)), 0);
    OK(rein_manifest_write(&manifest, checkpoint(run, step, ""), &error_));
    rein_manifest_free(&manifest);
    json_decref(state);
}

static void test_state(void **state) {
    (void)state;
    run_all("state", "steps=1");
    json_t *written = state_of("state", 1), *files = json_object_get(written, "files");
    assert_int_equal(json_integer_value(json_object_get(written, "format")), 2);
    static const char *const names[] = {
        "model/config.json", "model/tokenizer.json", "model/tokenizer_config.json", "model/model.safetensors", "task", "eval_task"};
    assert_int_equal(json_object_size(files), COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++) assert_non_null(json_object_get(files, names[i]));
    struct stat about;
    assert_int_equal(stat(in_folder("six.jsonl"), &about), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(files, "task"), "size")), about.st_size);
    json_decref(written);
}

/* ---- files that are not what they were */
static void test_changed_files(void **state) {
    (void)state;
    static const char *const files[][3] = {{"tiny/model.safetensors", "model", "tiny/model.safetensors was "}, /* the size stays */
                                           {"tiny/config.json", "model", "tiny/config.json was "},
                                           {"tiny/tokenizer.json", "model", "tiny/tokenizer.json was "},
                                           {"six.jsonl", "task", "six.jsonl was "},
                                           {"held.jsonl", "eval_task", "held.jsonl was "},
                                           {"taught.jsonl", "ptx_data", "taught.jsonl was "}};
    run_all("changed", "steps=1|ptx_data=@/taught.jsonl");
    for (size_t i = 0; i < COUNT(files); i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "%s is not what the run was made with: ", files[i][1]);
        shell("cp %s kept", files[i][0]);
        if (i == 0) shell("printf '\\001' | dd of=%s bs=1 seek=2000 conv=notrunc 2>/dev/null", files[i][0]);
        else shell("printf ' ' >>%s", files[i][0]);
        const char *message = opening_says("changed", "steps=2", 0);
        says_part(message, wanted);
        says_part(message, files[i][2]);
        says_part(message, " bytes with hash ");
        if (strcmp(files[i][1], "ptx_data") != 0) assert_string_equal(checking_says("changed", 1, "", 0), message);
        assert_string_equal(checking_says("changed", 1, "", REIN_ALLOW_CHANGED), "");
        shell("cp kept %s", files[i][0]);
    }
    assert_string_equal(opening_says("changed", "", 0), "");
    assert_string_equal(checking_says("changed", 1, "", 0), "");
    shell("rm tiny/tokenizer_config.json");
    says_part(opening_says("changed", "steps=2", 0), "tokenizer_config.json was 167 bytes with hash ");
    says_part(opening_says("changed", "steps=2", 0), ", and is missing; --accept-changed");
    copy_file("models/sums/tokenizer_config.json", "tiny/tokenizer_config.json");
    put("tiny/generation_config.json", "{}");
    says_part(opening_says("changed", "steps=2", 0), "generation_config.json was missing, and is 2 bytes");
    shell("rm tiny/generation_config.json");
}

/* What is allowed once is recorded: the next call needs no allowance. */
static void test_accepted(void **state) {
    (void)state;
    run_all("accepted", "steps=1");
    shell("cp six.jsonl kept && sed -i 's/Q0/Z0/' six.jsonl");
    make_step("accepted", "steps=2", REIN_ALLOW_CHANGED);
    assert_string_equal(opening_says("accepted", "steps=3", 0), "");
    says_part(checking_says("accepted", 1, "", 0), "task is not what the run was made with");
    assert_string_equal(checking_says("accepted", 1, "task=sums", 0), ""); /* another task was given */
    shell("cp kept six.jsonl");
    says_part(opening_says("accepted", "steps=3", 0), "task is not what the run was made with");
}

static void test_exchanged_checkpoints(void **state) {
    (void)state;
    run_all("exchanged", "steps=2");
    shell("cd exchanged/checkpoints && mv 0001 x && mv 0002 0001 && mv x 0002");
    says_part(opening_says("exchanged", "steps=3", 0),
              "exchanged/checkpoints/0002/state.json is of step 1: its directory was renamed, and must be named 0001");
    says_part(checking_says("exchanged", 1, "", 0), "0001/state.json is of step 2");
}

static void test_later_format(void **state) {
    (void)state;
    run_all("later", "steps=1");
    json_t *written = state_of("later", 1);
    json_object_set_new(written, "format", json_integer(3));
    json_object_set_new(written, "rein", json_string("9.9.9"));
    put_state("later", 1, written);
    says_part(opening_says("later", "steps=2", 0),
              "later/checkpoints/0001/state.json has format 3, of rein 9.9.9: this is rein 0.2.0, which reads formats up to 2");
    says_part(checking_says("later", 1, "", REIN_ALLOW_CHANGED), "has format 3");
    written = state_of("later", 1);
    json_object_set_new(written, "format", json_integer(2));
    put_state("later", 1, written);
    rein_loop *loop = go_on("later");
    says_part(rein_session_note(rein_loop_session(loop)), "the checkpoint was written by rein 9.9.9, and this is rein 0.2.0");
    rein_loop_close(loop);
}

/* Checkpoints of format 1 have neither a format nor files. They open, and the next one has both. */
static void test_earlier_format(void **state) {
    (void)state;
    run_all("earlier", "steps=1");
    for (size_t step = 0; step < 2; step++) {
        json_t *written = state_of("earlier", step);
        json_object_del(written, "format");
        json_object_del(written, "files");
        put_state("earlier", step, written);
    }
    shell("rm earlier/.origin && cp -r tiny other");
    says_part(opening_says("earlier", "steps=2|model=@/other", 0),
              "its checkpoint has no hashes to tell whether they are the same");
    make_step("earlier", "steps=2", 0);
    json_t *written = state_of("earlier", 2);
    assert_int_equal(json_integer_value(json_object_get(written, "format")), 2);
    assert_int_equal(json_object_size(json_object_get(written, "files")), 6);
    json_decref(written);
    assert_string_equal(opening_says("earlier", "steps=3|model=@/other", 0), "");
    shell("rm -r other");
}

/* ---- files that moved */
static void test_moved_files(void **state) {
    (void)state;
    run_all("moving", "steps=1");
    shell("cp -r tiny there && cp six.jsonl there/seven.jsonl && cp -r tiny wrong && printf ' ' >>wrong/config.json");
    make_step("moving", "steps=2|model=@/there|task=@/there/seven.jsonl", 0);
    char *config = text_of(in_run("moving", "config.yaml"));
    says_part(config, "/there\"");
    says_part(config, "/there/seven.jsonl\"");
    free(config);
    says_part(opening_says("moving", "steps=3|model=@/wrong", 0), "model is not what the run was made with: ");
    says_part(opening_says("moving", "steps=3|task=@/held.jsonl", 0), "task is not what the run was made with: ");
    make_step("moving", "steps=3|model=@/wrong", REIN_ALLOW_CHANGED);
    says_part(opening_says("moving", "steps=4|adapter=@/there", 0), "changing it needs a new run"); /* it had none */
    run_all("moved-base", "steps=2");
    assert_true(
        same_file(checkpoint("moved-base", 2, "adapter_model.safetensors"), checkpoint("moving", 2, "adapter_model.safetensors")));
}

/* ---- nothing to do */
static void test_nothing_to_do(void **state) {
    (void)state;
    run_all("done", "steps=2");
    shell("cp done/config.yaml kept");
    assert_string_equal(opening_says("done", "learning_rate=0.5|max_tokens=3|token_budget=2", 0), "");
    assert_string_equal(opening_says("done", "steps=1", 0), "");
    assert_string_equal(opening_says("done", "keep_last=1", 0), "");
    assert_true(same_file(in_folder("kept"), in_run("done", "config.yaml")));
    assert_int_equal(access(checkpoint("done", 1, ""), F_OK), 0);
    assert_string_equal(opening_says("done", "steps=3|learning_rate=0.5", 0), ""); /* a step is to be made: it is stored at once */
    assert_false(same_file(in_folder("kept"), in_run("done", "config.yaml")));
}

static void test_lost_checkpoints(void **state) {
    (void)state;
    run_all("lost", "steps=2");
    shell("mv lost/checkpoints kept-checkpoints && mkdir lost/checkpoints");
    const char *message = opening_says("lost", "steps=3", 0);
    says_part(message,
              "lost has a history and no checkpoint: put one of its checkpoints back, or begin a new run under another name");
    shell("rmdir lost/checkpoints");
    says_part(opening_says("lost", "steps=3", 0), "lost has a history and no checkpoint");
    shell("mkdir lost/checkpoints && mv kept-checkpoints/0000 kept-checkpoints/0001 lost/checkpoints");
    make_step("lost", "steps=3", 0);
}

/* A kill between a checkpoint and the deletion of older ones leaves too many. */
static void test_retention_when_opened(void **state) {
    (void)state;
    run_all("many", "steps=3");
    shell("sed -i 's/^keep_last:.*/keep_last: 1/' many/config.yaml");
    rein_loop_close(go_on("many"));
    assert_int_equal(access(checkpoint("many", 2, ""), F_OK), -1);
    assert_int_equal(access(checkpoint("many", 1, ""), F_OK), -1);
    assert_int_equal(access(checkpoint("many", 3, ""), F_OK), 0);
    assert_int_equal(access(checkpoint("many", 0, ""), F_OK), 0);
}

/* ---- commands */
static const char JUDGE[] = "#!/bin/sh\nwhile read -r line; do echo '{\"reward\": 1}'; done\n";

static void make_judge(const char *directory) {
    char name[100];
    sub_folder(directory);
    snprintf(name, sizeof name, "%s/judge.sh", directory);
    put(name, JUDGE);
    assert_int_equal(chmod(in_folder(name), 0755), 0);
}

/* Runs in a directory and comes back. */
static void in_directory(const char *directory, void (*work)(void)) {
    char *here = getcwd(NULL, 0);
    assert_int_equal(chdir(in_folder(directory)), 0);
    work();
    assert_int_equal(chdir(here), 0);
    free(here);
}

static void start_with_judge(void) { run_all("judged", "steps=1|reward=./judge.sh"); }
static void replace_judge(void) { make_step("judged", "steps=4|reward=./judge.sh", 0); }

static void test_working_directory(void **state) {
    (void)state;
    make_judge("judges");
    make_judge("others");
    in_directory("judges", start_with_judge);
    make_step("judged", "steps=2", 0); /* from elsewhere */
    char *config = text_of(in_run("judged", "config.yaml"));
    says_part(config, "/judges\"");
    free(config);
    make_step("judged", "steps=3|working_directory=@/others", 0);
    shell("rm -r others");
    says_part(opening_says("judged", "steps=4", 0), "the program cannot be started in ");
    in_directory("judges", replace_judge); /* a command that is given is one of the current directory */
    make_step("judged", "steps=5", 0);
    says_part(opening_says("judged", "steps=6|reward=regex:[0-9]|working_directory=/", 0), "working_directory has no effect");
    assert_string_equal(opening_says("judged", "steps=6|reward=regex:[0-9]", 1), "");
}

static void run_strange(void) { run_all("own", "steps=1|reward=./judge.sh"); }

static void test_commands_of_others(void **state) {
    (void)state;
    make_judge("mine");
    in_directory("mine", run_strange);
    assert_string_equal(opening_says("own", "", 0), "");
    shell("mv own own2"); /* within the file system it is the same directory */
    assert_string_equal(opening_says("own2", "", 0), "");
    shell("cp -a own2 copy");
    const char *message = opening_says("copy", "steps=2", 0);
    says_part(message,
              "copy was not made here by this user, and it runs commands: ./judge.sh; look at its config.yaml, then --trust");
    assert_string_equal(checking_says("copy", 1, "", 0), message);
    assert_string_equal(checking_says("copy", 1, "", REIN_ALLOW_COMMANDS), "");
    assert_string_equal(checking_says("copy", 1, "reward=exact", 0), "");
    says_part(opening_says("copy", "steps=2|task=@/six.jsonl", 0), "it runs commands: ./judge.sh");
    assert_string_equal(opening_says("copy", "reward=regex:[0-9]", 0), "");             /* its commands are not used */
    says_part(opening_says("copy", "steps=2", REIN_ALLOW_CHANGED), "it runs commands"); /* and nothing was stored */
    make_step("copy", "steps=2", REIN_ALLOW_COMMANDS);
    assert_string_equal(opening_says("copy", "steps=3", 0), ""); /* from here on it is this user's */
    shell("cp -a own2 linked && rm linked/.origin && ln -s ../own2/.origin linked/.origin");
    says_part(opening_says("linked", "steps=2", 0), "it runs commands");
    if (geteuid() != 0) return;
    assert_int_equal(chown(in_run("own2", "config.yaml"), 65534, 65534), 0);
    says_part(opening_says("own2", "steps=2", 0), "it runs commands");
}

static void run_to_fork(void) { run_all("to-fork", "steps=1|reward=./judge.sh"); }

static void test_fork_of_others(void **state) {
    (void)state;
    make_judge("forked-judges");
    in_directory("forked-judges", run_to_fork);
    shell("cp -a to-fork foreign");
    rein_loop *loop;
    const rein_fork from = {in_folder("foreign"), 1};
    const rein_loop_options options = {.fork = &from};
    rein_settings *s = new_settings();
    rein_error err = {0};
    assert_int_equal(rein_loop_open(&loop, in_folder("fork"), s, &options, &err), REIN_EINVAL);
    says_part(err.message, "it runs commands: ./judge.sh");
    assert_int_equal(access(in_folder("fork"), F_OK), -1);
    shell(
        "cp tiny/model.safetensors kept && printf '\\001' | dd of=tiny/model.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null");
    rein_settings_allow(s, REIN_ALLOW_COMMANDS);
    assert_int_equal(rein_loop_open(&loop, in_folder("fork"), s, &options, &err), REIN_EINVAL);
    says_part(err.message, "model is not what the run was made with");
    shell("cp kept tiny/model.safetensors");
    OK(rein_loop_open(&loop, in_folder("fork"), s, &options, &error_));
    rein_loop_close(loop);
    json_t *written = state_of("fork", 0);
    assert_int_equal(json_integer_value(json_object_get(written, "step")), 0);
    json_decref(written);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_changed_files),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_exchanged_checkpoints),
        cmocka_unit_test(test_later_format),
        cmocka_unit_test(test_earlier_format),
        cmocka_unit_test(test_moved_files),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_lost_checkpoints),
        cmocka_unit_test(test_retention_when_opened),
        cmocka_unit_test(test_working_directory),
        cmocka_unit_test(test_commands_of_others),
        cmocka_unit_test(test_fork_of_others),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
