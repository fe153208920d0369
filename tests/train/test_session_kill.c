/* test_session_kill.c - a session is killed before each of its calls to the disk. Afterwards the run either does not exist yet, and the same
 * call begins it, or it resumes without being told anything; in the end its checkpoints are those of a session that was not killed, and no
 * one is too many. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "base/directory.h"
#include "train/crash.h"
#include "train/loop_fixture.h"

enum { STEPS = 3, KILLED = 42, WRONG = 1 };

static rein_groups taught; /* supervised examples */

/* Begins the run, as `rein sft` does, or resumes it with what it has; up to the last step. */
static void do_run(const char *run) {
    rein_session *s;
    const int is_new = !rein_run_exists(in_folder(run));
    rein_settings *settings = new_settings();
    if (is_new) set_all(settings, "model=@/tiny|keep_last=1|lora_rank=1|lora_modules=q_proj|threads=1|learning_rate=0.02");
    OK(rein_session_prepare(&s, in_folder(run), NULL, settings, &error_));
    if (is_new) OK(rein_session_keep_text(s, "sft.json", "the plan", &error_));
    OK(rein_session_begin(s, &error_));
    while (rein_session_step(s) < STEPS) {
        rein_session_report report;
        rein_groups batch = {taught.groups + rein_session_step(s), 2, 0};
        OK(rein_session_train(&report, s, &batch, NULL, &error_));
        OK(rein_session_commit(&report, s, &batch, NULL, 0, &error_));
    }
    rein_session_close(s);
}

static void killed(void) { _exit(KILLED); }

/* In a process of its own, killed at call number `at` (-1: not at all). Returns its exit status. */
static int in_child(long at) {
    int result;
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        disk.plan = at < 0 ? PLAN_NONE : PLAN_CRASH;
        disk.at = at;
        disk.crashed = killed;
        if (at >= 0) disk_on(in_folder("root"));
        do_run("root/run");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : WRONG;
}

/* What is wrong with the run that was finished after a kill, or NULL. */
static const char *problem(void) {
    rein_names names;
    static char text[300];
    text[0] = 0;
    if (rein_directory_list(&names, in_run("root/run", "checkpoints"), NULL)) return "no checkpoints";
    for (size_t i = 0; i < names.n; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", names.at[i]);
    rein_names_free(&names);
    if (strcmp(text, "0000 0003 ") != 0) return text;
    if (!same_file(in_run("root/run", "checkpoints/0003/MANIFEST"), in_run("whole", "checkpoints/0003/MANIFEST")))
        return "the last checkpoint is another";
    return same_file(in_run("root/run", "sft.json"), in_run("whole", "sft.json")) ? NULL : "the plan is another";
}

static void test_every_call(void **state) {
    (void)state;
    const long stride = getenv("REIN_TEST_FAST") ? 11 : 1;
    long at = 0, without_settings = 0;
    do_run("whole");
    for (;; at += stride) {
        rein_remove_all(in_folder("root"), NULL);
        sub_folder("root");
        const int result = in_child(at);
        if (result == 0) break;
        if (result != KILLED) fail_msg("call %ld: exit status %d", at, result);
        const int has_settings = rein_run_exists(in_folder("root/run"));
        without_settings += !has_settings;
        if (has_settings && access(in_run("root/run", "sft.json"), F_OK) != 0) fail_msg("call %ld: settings without the plan", at);
        if (in_child(-1) != 0) fail_msg("call %ld: the run does not resume", at);
        if (problem()) fail_msg("call %ld: %s", at, problem());
    }
    assert_true(without_settings > 0 && at > 100);
    print_message("             %ld calls, %ld kills before the run had its settings\n", at / stride, without_settings);
}

static int set_up(void **state) {
    rein_tokenizer *tokenizer;
    (void)disk_after, (void)disk_kill_process; /* no power is cut here */
    if (start(state)) return 1;
    OK(rein_tokenizer_open(&tokenizer, in_folder("tiny"), &error_));
    OK(rein_sft_read(&taught, in_folder("taught.jsonl"), tokenizer, NULL, -1, &error_));
    rein_tokenizer_close(tokenizer);
    return 0;
}

static int tear_down(void **state) {
    rein_groups_free(&taught);
    return remove_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
