/* test_kill.c - a process that writes checkpoints is killed at random moments, for real. The next one can always resume the run, and in
 * the end its files are the same as without a kill. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "train/run_files.h"

enum { KILLS = 20, LONGEST = 60000 /* microseconds */, STEPS_AFTER = 3 };

/* One step as a trainer makes it: a line, a checkpoint, and the old ones go. */
static rein_status make_step(rein_run *run, int64_t step, rein_error *err) {
    const rein_retention rule = {.keep_last = 2, .keep_best = "reward"};
    rein_status status = append_line(run, step, err);
    if (!status) status = write_checkpoint(run, step, 1, err);
    if (!status) status = rein_run_retain(NULL, NULL, run, &rule, err);
    return status;
}

/* Creates or resumes the run, up to step `last`. */
static rein_status go_on(const char *directory, int64_t last, rein_error *err) {
    rein_run *run;
    int64_t step = -1;
    char note[REIN_NOTE_SIZE];
    rein_status status = rein_run_open(&run, directory, REIN_RUN_RESUME, err);
    if (!status) status = rein_run_resume(&step, note, run, err);
    while (!status && step < last) status = make_step(run, ++step, err);
    rein_run_close(run);
    return status;
}

/* The same moments in every run with the same seed, as far as a machine allows. */
static unsigned draw(unsigned n) {
    static uint64_t state;
    if (!state) state = 20 + test_seed();
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (unsigned)(state >> 33) % n;
}

static void start_and_kill(const char *directory) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rein_error err;
        go_on(directory, INT64_MAX - 2, &err);
        fprintf(stderr, "%s\n", err.message);
        _exit(1);
    }
    int result;
    const struct timespec moment = {0, 1000L * draw(LONGEST)};
    nanosleep(&moment, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result)); /* and not because it failed */
}

/* Everything that is listed is whole, the last good one is the newest, and there is a line for every step up to it. */
static int64_t look_at(const char *directory, int64_t before) {
    rein_run *run;
    rein_error err;
    int64_t step;
    char note[REIN_NOTE_SIZE], *lines, *found;
    size_t size;
    if (rein_run_open(&run, directory, REIN_RUN_RESUME, &err) != REIN_OK) fail_msg("%s", err.message);
    if (rein_run_resume(&step, note, run, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_string_equal(note, "");
    assert_true(step >= before);
    for (size_t i = 0; i < run->n_steps; i++) assert_null(checkpoint_problem(run, run->steps[i], run->steps[i]));
    lines = lines_text(0, step);
    assert_int_equal(rein_file_read(&found, &size, in_folder("killed/history.jsonl")), 0);
    assert_string_equal(found, lines);
    free(lines);
    free(found);
    rein_run_close(run);
    return step;
}

static void same_in_both(const char *name) {
    if (!same_file(in_folder_format("killed/%s", name), in_folder_format("whole/%s", name))) fail_msg("%s differs", name);
}

/* History and checkpoints, to the byte: equal MANIFESTs that verify are equal checkpoints. */
static void same_runs(void) {
    rein_run *killed, *whole;
    char name[100];
    assert_int_equal(rein_run_open(&killed, in_folder("killed"), REIN_RUN_READ, NULL), REIN_OK);
    assert_int_equal(rein_run_open(&whole, in_folder("whole"), REIN_RUN_READ, NULL), REIN_OK);
    assert_int_equal(killed->n_steps, whole->n_steps);
    for (size_t i = 0; i < killed->n_steps; i++) {
        assert_int_equal(killed->steps[i], whole->steps[i]);
        assert_int_equal(rein_checkpoint_verify(killed, killed->steps[i], NULL), REIN_OK);
        snprintf(name, sizeof name, "checkpoints/%04lld/MANIFEST", (long long)killed->steps[i]);
        same_in_both(name);
    }
    same_in_both("history.jsonl");
    rein_run_close(killed);
    rein_run_close(whole);
}

static void test_kill(void **state) {
    (void)state;
    rein_error err;
    int64_t step = -1;
    for (int i = 0; i < KILLS; i++) {
        start_and_kill(in_folder("killed"));
        step = look_at(in_folder("killed"), step);
    }
    print_message("             %d kills, %lld steps\n", (int)KILLS, (long long)step);
    if (go_on(in_folder("killed"), step + STEPS_AFTER, &err) != REIN_OK) fail_msg("%s", err.message);
    if (go_on(in_folder("whole"), step + STEPS_AFTER, &err) != REIN_OK) fail_msg("%s", err.message);
    same_runs();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
