/* test_run_parts.c - parts of a run: its history, which checkpoints stay, forks; and memory that runs out in all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "train/run_files.h"

#include "support/allocation.h"

static rein_run *open_made(const char *name, int64_t last) {
    rein_error err;
    fine(make_run(in_folder(name), last, &err), &err);
    return open_run(name, REIN_RUN_RESUME);
}

static void put_bytes_to(const char *path, const void *data, size_t size) {
    assert_int_equal(rein_file_write(path, data, size, NULL), REIN_OK);
}

static size_t count_lines(const rein_run *run) {
    json_t *lines;
    rein_error err;
    fine(read_history(&lines, run, &err), &err);
    const size_t n = json_array_size(lines);
    json_decref(lines);
    return n;
}

/* ---- history */
static void test_history(void **state) {
    (void)state;
    json_t *lines, *line = json_pack("{s:i, s:f, s:s}", "step", 3, "reward", 0.1, "text", "a\nb");
    rein_error err;
    rein_run *run = open_run("history", REIN_RUN_CREATE);
    assert_int_equal(count_lines(run), 0);
    fine(rein_run_history_append(run, line, &err), &err);
    holds(in_folder("history/history.jsonl"), "{\"step\":3,\"reward\":0.10000000000000001,\"text\":\"a\\nb\"}\n");
    fine(append_line(run, 5, &err), &err);
    fine(read_history(&lines, run, &err), &err);
    assert_int_equal(json_array_size(lines), 2);
    assert_true(json_equal(json_array_get(lines, 0), line));
    json_decref(lines);
    json_decref(line);
    assert_int_equal(append_line(run, 5, &err), REIN_EINVAL);
    says(&err, "history.jsonl: step is 5: a whole number from 6 to ");
    line = json_object();
    assert_int_equal(rein_run_history_append(run, line, &err), REIN_EINVAL);
    says(&err, "history.jsonl: step is missing");
    json_decref(line);
    rein_run_close(run);
    run = open_run("history", REIN_RUN_RESUME);
    assert_int_equal(append_line(run, 4, &err), REIN_EINVAL); /* known after opening again, too */
    fine(append_line(run, 6, &err), &err);
    assert_int_equal(count_lines(run), 3);
    rein_run_close(run);
}

/* A reader passes over a torn last line, a writer cuts it off and says so. */
static void test_torn_line(void **state) {
    (void)state;
    static const struct {
        const char *tail;
        size_t size;
    } tails[] = {{"{\"step\":9", 9}, {"\0\0\0\0", 4}, {"\0\0\0\n", 4}, {"{\"step\":3\0\n", 11}};
    rein_error err;
    char *lines = lines_text(0, 2), text[1000], said[100];
    const size_t length = strlen(lines);
    rein_run_close(open_made("torn", 2));
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        memcpy(text, lines, length);
        memcpy(text + length, tails[i].tail, tails[i].size);
        put_bytes_to(in_folder("torn/history.jsonl"), text, length + tails[i].size);
        rein_run *run = open_run("torn", REIN_RUN_READ);
        assert_int_equal(count_lines(run), 3);
        rein_run_close(run);
        run = open_run("torn", REIN_RUN_RESUME);
        snprintf(said, sizeof said, "history.jsonl ended in a torn line: cut off %zu bytes", tails[i].size);
        assert_string_equal(rein_run_note(run), said);
        holds(in_folder("torn/history.jsonl"), lines);
        fine(append_line(run, 3, &err), &err);
        assert_int_equal(count_lines(run), 4);
        rein_run_close(run);
    }
    free(lines);
}

/* Any other invalid line is damage, the last one too: nothing is cut, and it is an error. */
static void test_damaged_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {{"{\"step\":0}\n?\n{\"step\":2}\n", "history.jsonl: line 2 does not start with {"},
                 {"{\"step\":0}\n{\"step\":1,}\n{\"step\":2}\n", "history.jsonl: line 2, column "},
                 {"{\"step\":0}\n{\"x\":1}\n{\"step\":2}\n", "history.jsonl: line 2: step is missing"},
                 {"{\"step\":3}\n{\"step\":1}\n{\"step\":4}\n", "history.jsonl: line 2: step is 1: a whole number from 4"},
                 {"{\"step\":0}\n{\"step\":1\n", "history.jsonl: line 2: step (column 9): the line ends here"},
                 {"{\"step\":0}\n\n", "history.jsonl: line 2 is empty"},
                 {"{\"step\":1}\n{\"step\":1}\n", "history.jsonl: line 2: step is 1: a whole number from 2"}};
    rein_run *run;
    json_t *lines;
    rein_error err;
    rein_run_close(open_made("worn", 2));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_bytes_to(in_folder("worn/history.jsonl"), cases[i].text, strlen(cases[i].text));
        assert_int_equal(rein_run_open(&run, in_folder("worn"), REIN_RUN_RESUME, &err), REIN_EINVAL);
        says(&err, cases[i].said);
        run = open_run("worn", REIN_RUN_READ);
        assert_int_equal(read_history(&lines, run, &err), REIN_EINVAL);
        assert_null(lines);
        rein_run_close(run);
        holds(in_folder("worn/history.jsonl"), cases[i].text);
    }
}

static void test_history_of_others(void **state) {
    (void)state;
    rein_error err;
    rein_run *run = open_made("others", 2);
    assert_int_equal(truncate(in_folder("others/history.jsonl"), 10), 0);
    assert_int_equal(append_line(run, 3, &err), REIN_EIO);
    says(&err, "history.jsonl was cut short by somebody else");
    rein_run_close(run);
    assert_int_equal(unlink(in_folder("others/history.jsonl")), 0);
    run = open_run("others", REIN_RUN_READ); /* none is an empty one */
    assert_int_equal(count_lines(run), 0);
    rein_run_close(run);
}

/* ---- retention */
static void test_retention(void **state) {
    (void)state;
    static const int64_t needed[] = {3, 77};
    static const struct {
        rein_retention rule;
        int64_t best;
        int64_t left[8];
        size_t n;
    } cases[] = {
        {{.keep_last = 100}, -1, {0, 1, 2, 3, 4, 5, 6}, 7},
        {{.keep_last = 3}, -1, {0, 4, 5, 6}, 4},
        {{.keep_last = 1}, -1, {0, 6}, 2},
        {{.keep_last = 0}, -1, {0, 6}, 2}, /* the last good one stays */
        {{.keep_last = 1, .keep_best = "reward"}, 2, {0, 2, 6}, 3},
        {{.keep_last = 1, .keep_best = "reward", .lower_is_better = 1}, 6, {0, 6}, 2},
        {{.keep_last = 2, .keep_best = "loss"}, 0, {0, 5, 6}, 3},
        {{.keep_last = 1, .keep_best = "los"}, -1, {0, 1, 2, 3, 4, 5, 6}, 7}, /* no step has it: nothing is deleted */
        {{.keep_last = 1, .keep_best = "flat"}, 1, {0, 1, 6}, 3},             /* the older of equals */
        {{.keep_last = 1, .needed = needed, .n_needed = 2}, -1, {0, 3, 6}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[40];
        int64_t best;
        size_t deleted;
        rein_error err;
        snprintf(name, sizeof name, "keep%zu", i);
        rein_run *run = open_run(name, REIN_RUN_CREATE);
        for (int64_t step = 0; step < 7; step++) {
            json_t *line = line_of(step);
            if (step) json_object_set_new(line, "flat", json_integer(step > 3 ? 1 : 2));
            fine(rein_run_history_append(run, line, &err), &err);
            fine(write_checkpoint(run, step, 0, &err), &err);
            json_decref(line);
        }
        fine(rein_run_retain(&deleted, &best, run, &cases[i].rule, &err), &err);
        assert_int_equal(deleted, 7 - cases[i].n);
        assert_int_equal(best, cases[i].best);
        has_steps(run, cases[i].left, cases[i].n);
        rein_run_close(run);
        run = open_run(name, REIN_RUN_READ); /* and on the disk */
        has_steps(run, cases[i].left, cases[i].n);
        rein_run_close(run);
    }
}

/* Bad ones do not count, and what is newer than the last good one is not touched. */
static void test_retention_of_bad(void **state) {
    (void)state;
    rein_error err;
    size_t deleted;
    const rein_retention rule = {.keep_last = 2}, wrong = {.keep_last = -1};
    rein_run *run = open_made("bad", 6);
    put_bytes_to(in_folder("bad/checkpoints/0006/MANIFEST"), "?", 1);
    put_bytes_to(in_folder("bad/checkpoints/0005/MANIFEST"), "?", 1);
    fine(rein_run_retain(&deleted, NULL, run, &rule, &err), &err);
    has_steps(run, (int64_t[]){0, 3, 4, 5, 6}, 5);
    assert_int_equal(rein_run_retain(NULL, NULL, run, &wrong, &err), REIN_EINVAL);
    says(&err, "keep_last is -1: 0 or more is needed");
    rein_run_close(run);
    run = open_run("bare", REIN_RUN_CREATE);
    fine(rein_run_retain(&deleted, NULL, run, &rule, &err), &err);
    assert_int_equal(deleted, 0);
    rein_run_close(run);
}

/* ---- forks */
static void test_fork(void **state) {
    (void)state;
    rein_run *fork;
    json_t *object;
    rein_error err;
    char hash[17] = "", *manifest;
    size_t size;
    rein_run_close(open_made("source", 3));
    fine(rein_run_fork(&fork, in_folder("fork"), in_folder("source"), 2, &err), &err);
    has_steps(fork, (int64_t[]){0}, 1);
    assert_null(checkpoint_problem(fork, 0, 2)); /* state.json has its own fields as well */
    fine(rein_checkpoint_read_json(&object, fork, 0, REIN_STATE_NAME, &err), &err);
    const json_t *origin = json_object_get(object, "forked_from");
    assert_string_equal(json_string_value(json_object_get(origin, "run")), in_folder("source"));
    assert_int_equal(json_integer_value(json_object_get(origin, "step")), 2);
    assert_int_equal(rein_file_read(&manifest, &size, in_folder("source/checkpoints/0002/MANIFEST")), 0);
    memcpy(hash, manifest + size - sizeof "0123456789abcdef MANIFEST", 16);
    assert_string_equal(json_string_value(json_object_get(origin, "manifest")), hash);
    free(manifest);
    json_decref(object);
    fine(append_line(fork, 1, &err), &err);
    fine(write_checkpoint(fork, 1, 0, &err), &err);
    rein_run_close(fork);
    fine(rein_run_fork(&fork, in_folder("again"), in_folder("fork"), 0, &err), &err); /* says where it came from last */
    fine(rein_checkpoint_read_json(&object, fork, 0, REIN_STATE_NAME, &err), &err);
    assert_string_equal(json_string_value(json_object_get(json_object_get(object, "forked_from"), "run")), in_folder("fork"));
    json_decref(object);
    rein_run_close(fork);
}

static void test_fork_refuses(void **state) {
    (void)state;
    rein_run *fork;
    rein_error err;
    rein_run_close(open_made("origin", 2));
    assert_int_equal(rein_run_fork(&fork, in_folder("fork1"), in_folder("origin"), 7, &err), REIN_EINVAL);
    says(&err, "origin/checkpoints/0007/MANIFEST: cannot be read: No such file");
    assert_null(fork);
    assert_int_equal(rein_run_fork(&fork, in_folder("fork1"), in_folder("no run"), 0, &err), REIN_EINVAL);
    says(&err, "no run is not a run");
    assert_int_equal(rein_run_fork(&fork, in_folder("origin"), in_folder("origin"), 1, &err), REIN_EINVAL);
    says(&err, "origin is a run already");
    put_bytes_to(in_folder("origin/checkpoints/0001/optimizer.safetensors"), "?", 1);
    assert_int_equal(rein_run_fork(&fork, in_folder("fork1"), in_folder("origin"), 1, &err), REIN_EINVAL);
    says(&err, "optimizer.safetensors has 1 bytes, and 700 were written");
    assert_false(rein_file_exists(in_folder("fork1"))); /* nothing is made for a fork that cannot be */
}

/* A checkpoint without state.json, and a path that is not UTF-8. */
static void test_fork_of_bare(void **state) {
    (void)state;
    rein_run *fork;
    json_t *object;
    rein_error err;
    rein_checkpoint *checkpoint;
    rein_run *run = open_run("b\xff", REIN_RUN_CREATE);
    fine(rein_checkpoint_begin(&checkpoint, run, 0, &err), &err);
    fine(rein_checkpoint_put(checkpoint, "only", "x", 1, &err), &err);
    fine(rein_checkpoint_commit(checkpoint, &err), &err);
    rein_run_close(run);
    fine(rein_run_fork(&fork, in_folder("bare fork"), in_folder("b\xff"), 0, &err), &err);
    fine(rein_checkpoint_verify(fork, 0, &err), &err);
    fine(rein_checkpoint_read_json(&object, fork, 0, REIN_STATE_NAME, &err), &err);
    assert_true(json_is_null(json_object_get(json_object_get(object, "forked_from"), "run")));
    json_decref(object);
    rein_run_close(fork);
}

/* ---- memory */
static char attempt_name[40];

/* A new name for each attempt: what the last one left is not there. */
static const char *next_attempt(void) {
    static int n;
    snprintf(attempt_name, sizeof attempt_name, "attempt%d", n++);
    return in_folder(attempt_name);
}

static rein_status act_write(void *context, rein_error *err) {
    rein_run *run;
    (void)context;
    rein_status status = rein_run_open(&run, next_attempt(), REIN_RUN_CREATE, err);
    if (!status) status = append_line(run, 0, err);
    if (!status) status = write_checkpoint(run, 0, 1, err);
    if (!status) status = rein_run_write_text(run, "config.yaml", "x", 1, err);
    rein_run_close(run);
    return status;
}

static rein_status act_read(void *context, rein_error *err) {
    rein_run *run;
    json_t *lines = NULL, *object = NULL;
    int64_t step;
    char said[REIN_NOTE_SIZE];
    (void)context;
    rein_status status = rein_run_open(&run, in_folder("memory"), REIN_RUN_READ, err);
    if (!status) status = rein_run_last_good(&step, said, run, err);
    if (!status) status = rein_checkpoint_read_json(&object, run, step, REIN_STATE_NAME, err);
    if (!status) status = read_history(&lines, run, err);
    json_decref(object);
    json_decref(lines);
    rein_run_close(run);
    return status;
}

/* Each attempt finds the run as a crash left it, or part of the way back. */
static rein_status act_resume(void *context, rein_error *err) {
    rein_run *run;
    int64_t step;
    char said[REIN_NOTE_SIZE];
    (void)context;
    rein_status status = rein_run_open(&run, in_folder("memory"), REIN_RUN_RESUME, err);
    if (!status) status = rein_run_resume(&step, said, run, err);
    rein_run_close(run);
    return status;
}

static rein_status act_retain(void *context, rein_error *err) {
    static const int64_t needed[] = {1};
    const rein_retention rule = {.keep_last = 1, .keep_best = "reward", .needed = needed, .n_needed = 1};
    return rein_run_retain(NULL, NULL, context, &rule, err);
}

static rein_status act_fork(void *context, rein_error *err) {
    rein_run *fork;
    (void)context;
    const rein_status status = rein_run_fork(&fork, next_attempt(), in_folder("memory"), 2, err);
    rein_run_close(fork);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    rein_error err;
    if (!can_fail()) skip();
    rein_run_close(open_made("memory", 4));
    print_message("             writing: %ld allocations\n", fail_each_allocation(act_write, NULL));
    print_message("             reading: %ld\n", fail_each_allocation(act_read, NULL));
    print_message("             forking: %ld\n", fail_each_allocation(act_fork, NULL));
    for (int64_t step = 0; step < 5; step++) { /* what is good stays good */
        rein_run *run = open_run("memory", REIN_RUN_READ);
        assert_null(checkpoint_problem(run, step, step));
        rein_run_close(run);
    }
    put_bytes_to(in_folder("memory/checkpoints/0004/MANIFEST"), "?", 1);
    put_bytes_to(in_folder("memory/.left.tmp"), "?", 1);
    assert_int_equal(mkdir(in_folder("memory/checkpoints/.0009.new"), 0777), 0);
    print_message("             resuming: %ld\n", fail_each_allocation(act_resume, NULL));
    rein_run *run = open_run("memory", REIN_RUN_RESUME);
    assert_int_equal(count_lines(run), 4);
    has_steps(run, (int64_t[]){0, 1, 2, 3}, 4);
    print_message("             retaining: %ld\n", fail_each_allocation(act_retain, run));
    has_steps(run, (int64_t[]){0, 1, 2, 3}, 4);
    fine(write_checkpoint(run, 4, 0, &err), &err);
    rein_run_close(run);
}

/* A deletion that is stopped half-way by a lack of memory leaves whole checkpoints, and the next one finishes it. */
static void test_memory_of_retention(void **state) {
    (void)state;
    if (!can_fail()) skip();
    for (long n = 0;; n++) {
        char name[40];
        rein_error err = {0};
        snprintf(name, sizeof name, "scarce%ld", n);
        rein_run *run = open_made(name, 5);
        left = n, once = 0, failures = 0;
        const rein_status status = act_retain(run, &err);
        left = -1;
        assert_int_equal(status, failures ? REIN_ENOMEM : REIN_OK);
        for (size_t i = 0; i < run->n_steps; i++) assert_null(checkpoint_problem(run, run->steps[i], run->steps[i]));
        fine(act_retain(run, &err), &err);
        has_steps(run, (int64_t[]){0, 1, 2, 5}, 4);
        rein_run_close(run);
        if (!failures) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_torn_line),
        cmocka_unit_test(test_damaged_line),
        cmocka_unit_test(test_history_of_others),
        cmocka_unit_test(test_retention),
        cmocka_unit_test(test_retention_of_bad),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_refuses),
        cmocka_unit_test(test_fork_of_bare),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_retention),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
