/* test_run.c - the directory of a run: opened, locked, resumed; its history, what is kept of its checkpoints, forks. What power cuts and
 * bad disks do to it is in test_crash.c. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "train/run_files.h"

static void refuses(const char *name, rein_run_access access, rein_status status, const char *note) {
    rein_run *run;
    rein_error err;
    assert_int_equal(rein_run_open(&run, in_folder(name), access, &err), status);
    assert_null(run);
    says(&err, note);
}

/* ---- opening */
static void test_open(void **state) {
    (void)state;
    rein_run *run;
    rein_error err;
    refuses("new", REIN_RUN_READ, REIN_EINVAL, "new is not a run: it has no directory checkpoints");
    run = open_run("new/deep", REIN_RUN_CREATE);
    assert_string_equal(rein_run_note(run), "");
    rein_run_close(run);
    rein_run_close(NULL);
    assert_true(rein_file_is_directory(in_folder("new/deep/checkpoints")));
    assert_true(rein_file_is_directory(in_folder("new/deep/trajectories/train")));
    rein_run_close(open_run("new/deep", REIN_RUN_CREATE)); /* still empty */
    rein_run_close(open_run("new/deep", REIN_RUN_RESUME));
    rein_run_close(open_run("new/deep/", REIN_RUN_READ));
    rein_run_close(open_run("other", REIN_RUN_RESUME));
    assert_int_equal(rein_run_open(&run, "", REIN_RUN_RESUME, &err), REIN_EINVAL);
    says(&err, "the name of a run is empty");
    assert_int_equal(rein_run_open(&run, in_folder("x"), (rein_run_access)7, &err), REIN_EINVAL);
    says(&err, "not with 7");
}

/* Only an empty directory or an existing run is accepted; nothing is left in any other. */
static void test_open_refuses(void **state) {
    (void)state;
    rein_error err;
    fine(rein_make_directories(in_folder("mine"), &err), &err);
    put_text(in_folder("mine/thesis.tex"), "...");
    refuses("mine", REIN_RUN_CREATE, REIN_EINVAL, "mine is not a run, and not empty: a run needs a new or empty directory");
    refuses("mine", REIN_RUN_RESUME, REIN_EINVAL, "mine is not a run, and not empty");
    assert_false(rein_file_exists(in_folder("mine/.lock")));
    fine(make_run(in_folder("is"), 1, &err), &err);
    refuses("is", REIN_RUN_CREATE, REIN_EINVAL, "is is a run already: resume it, or give the new one another name");
    rein_run *run = open_run("text", REIN_RUN_CREATE);
    fine(rein_run_write_text(run, "config.yaml", "x: 1\n", 5, &err), &err);
    rein_run_close(run);
    refuses("text", REIN_RUN_CREATE, REIN_EINVAL, "is a run already");
    refuses("mine/thesis.tex/run", REIN_RUN_CREATE, REIN_EIO, "mine/thesis.tex: the directory cannot be made: File exists");
    refuses("mine/thesis.tex", REIN_RUN_RESUME, REIN_EINVAL, "mine/thesis.tex is a file: a run is a directory");
}

/* ---- steps */
static void test_steps(void **state) {
    (void)state;
    static const int64_t steps[] = {0, 7, 9999, 10000, 123456789};
    char name[REIN_STEP_NAME], path[1024];
    rein_error err;
    assert_string_equal(rein_step_name(name, 7), "0007");
    assert_string_equal(rein_step_name(name, 123456), "123456");
    rein_run *run = open_run("steps", REIN_RUN_CREATE);
    for (size_t i = 5; i-- > 0;) fine(write_checkpoint(run, steps[i], 0, &err), &err);
    has_steps(run, steps, 5);
    rein_run_close(run);
    static const char *const others[] = {"7", "00007", "0008.bad", "notes", "9999999999999999999", "0x07"};
    for (size_t i = 0; i < 6; i++) assert_int_equal(mkdir(in_folder_format("steps/checkpoints/%s", others[i]), 0777), 0);
    run = open_run("steps", REIN_RUN_READ);
    has_steps(run, steps, 5);
    const size_t length = rein_run_checkpoint_path(path, sizeof path, run, 123456);
    assert_string_equal(path, in_folder("steps/checkpoints/123456"));
    assert_int_equal(length, strlen(path));
    path[0] = '?';
    assert_int_equal(rein_run_checkpoint_path(path, length, run, 123456), length); /* the 0 does not fit */
    assert_int_equal(path[0], '?');
    rein_run_close(run);
}

static void test_readers_do_not_write(void **state) {
    (void)state;
    rein_error err;
    rein_checkpoint *checkpoint;
    int64_t step;
    char note[REIN_NOTE_SIZE];
    const rein_retention rule = {.keep_last = 0};
    fine(make_run(in_folder("read"), 2, &err), &err);
    rein_run *run = open_run("read", REIN_RUN_READ);
    assert_int_equal(append_line(run, 9, &err), REIN_EINVAL);
    says(&err, "read is open for reading only");
    assert_int_equal(rein_checkpoint_begin(&checkpoint, run, 9, &err), REIN_EINVAL);
    assert_int_equal(rein_run_resume(&step, note, run, &err), REIN_EINVAL);
    assert_int_equal(rein_run_retain(NULL, NULL, run, &rule, &err), REIN_EINVAL);
    assert_int_equal(rein_run_write_text(run, "config.yaml", "", 0, &err), REIN_EINVAL);
    rein_run_close(run);
}

/* ---- the lock */

/* A process that opens the run, says so, and stays. */
static pid_t start_writer(const char *name) {
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rein_run *run;
        if (rein_run_open(&run, in_folder(name), REIN_RUN_RESUME, NULL) != REIN_OK) _exit(1);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static void test_lock(void **state) {
    (void)state;
    char note[100];
    rein_error err;
    fine(make_run(in_folder("locked"), 1, &err), &err);
    const pid_t child = start_writer("locked");
    snprintf(note, sizeof note, "locked is being written by process %ld", (long)child);
    refuses("locked", REIN_RUN_RESUME, REIN_EIO, note);
    refuses("locked", REIN_RUN_CREATE, REIN_EIO, note);
    rein_run_close(open_run("locked", REIN_RUN_READ)); /* readers may */
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    rein_run *run = open_run("locked", REIN_RUN_RESUME); /* gone with the process */
    snprintf(note, sizeof note, "is being written by process %ld", (long)getpid());
    refuses("locked", REIN_RUN_RESUME, REIN_EIO, note); /* in one process too */
    assert_int_equal(truncate(in_folder("locked/.lock"), 0), 0);
    refuses("locked", REIN_RUN_RESUME, REIN_EIO, "locked is being written by another process");
    rein_run_close(run);
    rein_run_close(open_run("locked", REIN_RUN_RESUME));
}

/* ---- the unfinished files of an interrupted run */
static void test_leftovers(void **state) {
    (void)state;
    rein_error err;
    fine(make_run(in_folder("left"), 1, &err), &err);
    fine(rein_make_directories(in_folder("left/checkpoints/.0002.new/below"), &err), &err);
    put_text(in_folder("left/checkpoints/.0002.new/half"), "x");
    put_text(in_folder("left/.summary.json-1-0.tmp"), "x");
    put_text(in_folder("left/trajectories/train/.0002.jsonl-1-0.tmp"), "x");
    put_text(in_folder("left/.mine"), "x");
    rein_run *run = open_run("left", REIN_RUN_READ);
    assert_true(rein_file_exists(in_folder("left/checkpoints/.0002.new")));
    rein_run_close(run);
    run = open_run("left", REIN_RUN_RESUME);
    assert_string_equal(rein_run_note(run), "removed 3 unfinished files of an interrupted run");
    assert_false(rein_file_exists(in_folder("left/checkpoints/.0002.new")));
    assert_false(rein_file_exists(in_folder("left/.summary.json-1-0.tmp")));
    assert_false(rein_file_exists(in_folder("left/trajectories/train/.0002.jsonl-1-0.tmp")));
    assert_true(rein_file_exists(in_folder("left/.mine")));
    rein_run_close(run);
}

/* Only the names that rein itself makes are removed: those below are the user's. */
static void test_leftovers_of_others(void **state) {
    (void)state;
    static const char *const kept[] = {"checkpoints/.git",
                                       "checkpoints/.ssh",
                                       "checkpoints/.0002.new2",
                                       "checkpoints/.2.new",
                                       "checkpoints/.0002",
                                       "checkpoints/.new",
                                       "checkpoints/..new",
                                       ".notes-1-0.tmp",
                                       ".config.yaml-1.tmp",
                                       ".config.yaml--0.tmp",
                                       ".tmp",
                                       "trajectories/train/.mine-1-0.tmp",
                                       ".config.yaml.bak-1-0.tmp"};
    static const char *const swept[] = {"checkpoints/.0002.new",
                                        "checkpoints/.10000.old",
                                        ".config.yaml-1-0.tmp",
                                        ".evaluations.jsonl-4711-99.tmp",
                                        "trajectories/train/.0010.jsonl-1-0.tmp",
                                        ".sft.json-1-0.tmp",
                                        ".dpo.json-1-0.tmp",
                                        ".reward.json-1-0.tmp",
                                        ".distill.json-1-0.tmp"};
    rein_error err;
    fine(make_run(in_folder("others"), 1, &err), &err);
    for (size_t i = 0; i < COUNT(kept); i++) put_text(in_folder_format("others/%s", kept[i]), "mine");
    for (size_t i = 0; i < COUNT(swept); i++) put_text(in_folder_format("others/%s", swept[i]), "half");
    rein_run *run = open_run("others", REIN_RUN_RESUME);
    assert_string_equal(rein_run_note(run), "removed 9 unfinished files of an interrupted run");
    rein_run_close(run);
    for (size_t i = 0; i < COUNT(kept); i++) holds(in_folder_format("others/%s", kept[i]), "mine");
    for (size_t i = 0; i < COUNT(swept); i++) assert_false(rein_file_exists(in_folder_format("others/%s", swept[i])));
}

/* A directory that another project calls checkpoints makes no run; nothing in it is touched. */
static void test_checkpoints_of_others(void **state) {
    (void)state;
    rein_error err;
    fine(rein_make_directories(in_folder("project/checkpoints/.git"), &err), &err);
    fine(rein_make_directories(in_folder("numbers/checkpoints/0001"), &err), &err);
    put_text(in_folder("project/checkpoints/.git/HEAD"), "main");
    refuses("project", REIN_RUN_RESUME, REIN_EINVAL, "project is not a run, and not empty: a run needs a new or empty directory");
    refuses("numbers", REIN_RUN_RESUME, REIN_EINVAL, "numbers is not a run, and not empty");
    holds(in_folder("project/checkpoints/.git/HEAD"), "main");
    assert_false(rein_file_exists(in_folder("project/.lock")));
}

/* Links out of a run: no file behind one is removed, cut or overwritten. */
static void test_links(void **state) {
    (void)state;
    rein_error err;
    fine(rein_make_directories(in_folder("home/.ssh"), &err), &err);
    put_text(in_folder("home/.ssh/id"), "key");
    put_text(in_folder("precious"), "precious");
    fine(make_run(in_folder("linked"), 1, &err), &err);
    assert_int_equal(rename(in_folder("linked/checkpoints"), in_folder("linked/there")), 0);
    assert_int_equal(symlink("../home", in_folder("linked/checkpoints")), 0);
    put_text(in_folder("linked/config.yaml"), "model: m\n");
    refuses("linked", REIN_RUN_RESUME, REIN_EINVAL, "linked/checkpoints is a link: a run has its own directory checkpoints");
    holds(in_folder("home/.ssh/id"), "key");
    fine(make_run(in_folder("outside"), 1, &err), &err);
    assert_int_equal(rename(in_folder("outside/trajectories"), in_folder("outside/there")), 0);
    assert_int_equal(symlink("../home", in_folder("outside/trajectories")), 0);
    refuses("outside", REIN_RUN_RESUME, REIN_EINVAL, "outside/trajectories is a link");
    static const char *const files[] = {".lock", "history.jsonl"};
    for (size_t i = 0; i < COUNT(files); i++) {
        fine(make_run(in_folder_format("file%zu", i), 1, &err), &err);
        assert_int_equal(unlink(in_folder_format("file%zu/%s", i, files[i])), 0);
        assert_int_equal(symlink("../precious", in_folder_format("file%zu/%s", i, files[i])), 0);
    }
    refuses("file0", REIN_RUN_RESUME, REIN_EIO, ".lock: cannot be opened for writing: Too many levels of symbolic links");
    holds(in_folder("precious"), "precious");
    put_text(in_folder("precious"), "{\"step\": 0}\n{"); /* a history with a torn line, which would be cut off */
    refuses("file1", REIN_RUN_RESUME, REIN_EIO, "history.jsonl: cannot be opened for writing: Too many levels of symbolic links");
    holds(in_folder("precious"), "{\"step\": 0}\n{");
    fine(make_run(in_folder("hard"), 1, &err), &err);
    put_text(in_folder("precious"), "precious");
    assert_int_equal(unlink(in_folder("hard/.lock")), 0);
    assert_int_equal(link(in_folder("precious"), in_folder("hard/.lock")), 0);
    refuses("hard", REIN_RUN_RESUME, REIN_EINVAL, "hard/.lock is not a lock of a run: another file has its name");
    holds(in_folder("precious"), "precious");
}

/* A run that is moved while it is written, and another one at its old place: its writer leaves that one alone. */
static void test_moved(void **state) {
    (void)state;
    static const char reason[] = "moved was moved or replaced while it was being written: nothing more is written";
    rein_error err;
    rein_checkpoint *checkpoint;
    const rein_retention rule = {.keep_last = 1};
    fine(make_run(in_folder("moved"), 2, &err), &err);
    rein_run *run = open_run("moved", REIN_RUN_RESUME);
    fine(rein_checkpoint_begin(&checkpoint, run, 3, &err), &err);
    fine(fill_checkpoint(checkpoint, 3, 0, &err), &err);
    assert_int_equal(rename(in_folder("moved"), in_folder("away")), 0);
    rein_run *other = open_run("moved", REIN_RUN_CREATE);
    rein_checkpoint *its;
    fine(rein_checkpoint_begin(&its, other, 3, &err), &err);
    fine(fill_checkpoint(its, 5, 0, &err), &err);
    assert_int_equal(rein_checkpoint_commit(checkpoint, &err), REIN_EIO);
    says(&err, reason);
    fine(rein_checkpoint_commit(its, &err), &err); /* its files are there, and its own */
    assert_null(checkpoint_problem(other, 3, 5));
    assert_int_equal(rein_checkpoint_begin(&checkpoint, run, 3, &err), REIN_EIO);
    assert_int_equal(append_line(run, 3, &err), REIN_EIO);
    assert_int_equal(rein_run_write_text(run, "config.yaml", "x", 1, &err), REIN_EIO);
    assert_int_equal(rein_run_retain(NULL, NULL, run, &rule, &err), REIN_EIO);
    says(&err, reason);
    rein_run_close(run);
    rein_run_close(other);
    assert_false(rein_file_exists(in_folder("moved/config.yaml")));
    run = open_run("away", REIN_RUN_RESUME);
    has_steps(run, (int64_t[]){0, 1, 2}, 3);
    rein_run_close(run);
}

/* ---- resuming */
static void test_resume(void **state) {
    (void)state;
    int64_t step;
    char note[REIN_NOTE_SIZE], *lines = lines_text(0, 1);
    rein_error err;
    fine(make_run(in_folder("resume"), 4, &err), &err);
    put_text(in_folder("resume/checkpoints/0004/state.json"), "{}");
    assert_int_equal(unlink(in_folder("resume/checkpoints/0003/optimizer.safetensors")), 0);
    put_text(in_folder("resume/checkpoints/0002/MANIFEST"), "");
    fine(rein_make_directories(in_folder("resume/checkpoints/0003.bad"), &err), &err);
    rein_run *run = open_run("resume", REIN_RUN_RESUME);
    fine(rein_run_resume(&step, note, run, &err), &err);
    assert_int_equal(step, 1);
    assert_non_null(strstr(note, "(and 2 more); the last good checkpoint is of step 1; newer ones are kept as NAME.bad"));
    holds(in_folder("resume/history.jsonl"), lines);
    holds(in_folder("resume/checkpoints/0004.bad/state.json"), "{}");
    assert_true(rein_file_exists(in_folder("resume/checkpoints/0003.bad/MANIFEST")));
    has_steps(run, (int64_t[]){0, 1}, 2);
    for (step = 2; step < 5; step++) {
        fine(append_line(run, step, &err), &err);
        fine(write_checkpoint(run, step, 0, &err), &err);
    }
    has_steps(run, (int64_t[]){0, 1, 2, 3, 4}, 5);
    rein_run_close(run);
    free(lines);
    lines = lines_text(0, 4);
    holds(in_folder("resume/history.jsonl"), lines);
    free(lines);
}

static void test_resume_nothing(void **state) {
    (void)state;
    int64_t step = 3;
    char note[REIN_NOTE_SIZE];
    rein_error err;
    rein_run *run = open_run("nothing", REIN_RUN_RESUME);
    fine(append_line(run, 0, &err), &err); /* and then a crash, before there was a checkpoint */
    fine(rein_run_resume(&step, note, run, &err), &err);
    assert_int_equal(step, -1);
    holds(in_folder("nothing/history.jsonl"), "");
    fine(append_line(run, 0, &err), &err);
    fine(write_checkpoint(run, 0, 0, &err), &err);
    put_text(in_folder("nothing/checkpoints/0000/MANIFEST"), "?");
    assert_int_equal(rein_run_resume(&step, note, run, &err), REIN_EINVAL); /* starting again would hide that something is lost */
    says(&err, "has no good checkpoint among 1");
    has_steps(run, (int64_t[]){0}, 1);
    rein_run_close(run);
}

static void test_write_text(void **state) {
    (void)state;
    rein_error err;
    rein_run *run = open_run("texts", REIN_RUN_CREATE);
    fine(rein_run_write_text(run, "config.yaml", "a: 1\n", 5, &err), &err);
    fine(rein_run_write_text(run, "config.yaml", "b: 2\n", 5, &err), &err);
    holds(in_folder("texts/config.yaml"), "b: 2\n");
    rein_run_close(run);
}

/* ---- a directory that cannot be written, as another user, because root may write anywhere. The child's exit status is the answer. */
static void test_read_only(void **state) {
    (void)state;
    rein_error err = {0};
    umask(022); /* so that the other user may read what is made */
    fine(make_run(in_folder("closed"), 2, &err), &err);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(in_folder("closed"), 0555), 0);
    assert_int_equal(chmod(in_folder("closed/checkpoints"), 0555), 0);
    assert_int_equal(chmod(in_folder("closed/.lock"), 0444), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rein_run *run;
        int64_t step;
        char note[REIN_NOTE_SIZE];
        if (getuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
        if (access(folder, X_OK) != 0) _exit(3); /* it stands below a directory of root's own */
        if (access(in_folder("closed"), W_OK) == 0) _exit(4);
        if (rein_run_open(&run, in_folder("closed"), REIN_RUN_RESUME, &err) != REIN_EIO) _exit(1);
        if (!strstr(err.message, "closed/.lock: cannot be opened for writing: Permission denied")) _exit(2);
        if (rein_run_open(&run, in_folder("closed/deeper"), REIN_RUN_CREATE, &err) != REIN_EIO) _exit(5);
        if (!strstr(err.message, "closed/deeper: the directory cannot be made: Permission denied")) _exit(6);
        if (rein_run_open(&run, in_folder("closed"), REIN_RUN_READ, &err) != REIN_OK) _exit(7);
        if (rein_run_last_good(&step, note, run, &err) != REIN_OK || step != 2) _exit(8);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(chmod(in_folder("closed"), 0755), 0);
    assert_int_equal(chmod(in_folder("closed/checkpoints"), 0755), 0);
    assert_int_equal(chmod(in_folder("closed/.lock"), 0644), 0);
    if (WIFEXITED(result) && (WEXITSTATUS(result) == 3 || WEXITSTATUS(result) == 4)) {
        print_message("SKIPPED: no user here for whom a directory is read-only\n");
        skip();
    }
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    rein_run *run = open_run("closed", REIN_RUN_RESUME);
    for (int64_t step = 0; step < 3; step++) assert_null(checkpoint_problem(run, step, step));
    rein_run_close(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_readers_do_not_write),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_nothing),
        cmocka_unit_test(test_write_text),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_leftovers_of_others),
        cmocka_unit_test(test_checkpoints_of_others),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_moved),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
