/* test_checkpoint.c - checkpoints: the MANIFEST to the byte, every damage noticed, falling back, what commit refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "train/manifest.h"
#include "train/run_files.h"

static rein_run *open_new(const char *name) {
    rein_run *run;
    rein_error err;
    if (rein_run_open(&run, in_folder(name), REIN_RUN_CREATE, &err) != REIN_OK) fail_msg("%s", err.message);
    return run;
}

static const char *of_step(const rein_run *run, int64_t step, const char *name) {
    static char path[1200];
    const size_t n = rein_run_checkpoint_path(path, sizeof path - 200, run, step);
    snprintf(path + n, sizeof path - n, "/%s", name);
    return path;
}

/* ---- MANIFEST */

/* Hashes by python-xxhash 4.1.0. */
static void test_manifest_to_the_byte(void **state) {
    (void)state;
    static const char expected[] = "0 2d06800538d394c2 a.bin\n3 daa13e4f205dc5ba state.json\n1024 a870f92984398d22 weights\n"
                                   "85 303419cc68883c0b MANIFEST\n";
    unsigned char weights[1024];
    rein_run *run = open_new("manifest");
    rein_checkpoint *checkpoint;
    rein_error err;
    char *text;
    size_t size;
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (unsigned char)i;
    fine(rein_checkpoint_begin(&checkpoint, run, 7, &err), &err);
    fine(rein_checkpoint_put(checkpoint, "weights", weights, sizeof weights, &err), &err);
    fine(rein_checkpoint_put(checkpoint, "a.bin", "", 0, &err), &err);
    json_t *object = json_object();
    fine(rein_checkpoint_put_json(checkpoint, "state.json", object, &err), &err);
    json_decref(object);
    fine(rein_checkpoint_commit(checkpoint, &err), &err);
    assert_int_equal(rein_file_read(&text, &size, of_step(run, 7, "MANIFEST")), 0);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    fine(rein_checkpoint_verify(run, 7, &err), &err);
    free(text);
    rein_run_close(run);
}

/* A folder of files, such as that of a critic: its files are listed, checked, copied by a fork; a folder in it is refused. */
static void test_folder(void **state) {
    (void)state;
    rein_run *run = open_new("folder"), *fork;
    rein_checkpoint *checkpoint;
    rein_manifest manifest;
    rein_error err;
    for (int deep = 0; deep < 2; deep++) {
        fine(rein_checkpoint_begin(&checkpoint, run, deep, &err), &err);
        const char *const folders[] = {"critic", "critic/below"};
        for (int i = 0; i <= deep; i++) {
            char *path = rein_checkpoint_path(checkpoint, folders[i]);
            assert_int_equal(mkdir(path, 0777), 0);
            free(path);
        }
        fine(rein_checkpoint_put(checkpoint, "critic.json", "y", 1, &err), &err);
        fine(rein_checkpoint_put(checkpoint, "critic/weights", "x", 1, &err), &err);
        if (!deep) fine(rein_checkpoint_commit(checkpoint, &err), &err);
        else assert_int_equal(rein_checkpoint_commit(checkpoint, &err), REIN_EINVAL);
    }
    says(&err, "below is not a regular file");
    char *directory = rein_run_step_path(run, 0);
    fine(rein_manifest_read(&manifest, directory, &err), &err);
    assert_int_equal(manifest.n, 2);
    assert_string_equal(manifest.files[0].name, "critic.json");
    assert_string_equal(manifest.files[1].name, "critic/weights");
    fine(rein_checkpoint_verify(run, 0, &err), &err);
    char other[600];
    snprintf(other, sizeof other, "%s.fork", run->directory);
    fine(rein_run_fork(&fork, other, run->directory, 0, &err), &err);
    fine(rein_checkpoint_verify(fork, 0, &err), &err);
    assert_int_equal(access(of_step(fork, 0, "critic/weights"), F_OK), 0);
    rein_run_close(fork);
    put_text(of_step(run, 0, "critic/weights"), "z");
    assert_int_equal(rein_checkpoint_verify(run, 0, &err), REIN_EINVAL);
    says(&err, "critic/weights is not what was written");
    rein_manifest_free(&manifest);
    free(directory);
    rein_run_close(run);
}

/* A MANIFEST whose last line fits, made by somebody else: names that are not sorted, or that occur twice, are refused. */
static void test_manifest_not_sorted(void **state) {
    static const char *const names[][2] = {{"b", "a"}, {"a", "a"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rein_manifest manifest;
        rein_error err;
        char text[300];
        int n = snprintf(text, sizeof text, "1 0123456789abcdef %s\n1 0123456789abcdef %s\n", names[i][0], names[i][1]);
        n += snprintf(text + n, sizeof text - (size_t)n, "%d %016" PRIx64 " MANIFEST\n", n, rein_hash(text, (size_t)n));
        assert_int_equal(rein_file_write(in_folder("MANIFEST"), text, (size_t)n, NULL), REIN_OK);
        assert_int_equal(rein_manifest_read(&manifest, folder, &err), REIN_EINVAL);
        says(&err, "MANIFEST is not what was written");
        rein_manifest_free(&manifest);
    }
}

/* A name that no file can have says that the checkpoint is bad, not that it cannot be read now. */
static void test_manifest_name_too_long(void **state) {
    char name[300];
    rein_error err;
    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    const rein_manifest_file file = {.name = name};
    assert_int_equal(rein_manifest_check(&file, folder, &err), REIN_EINVAL);
    says(&err, "File name too long");
}

/* Any byte of it that changes, and any length it is cut to, shows. */
static void test_manifest_damaged(void **state) {
    (void)state;
    rein_run *run = open_new("damaged");
    rein_error err;
    char *text, *damaged;
    size_t size;
    fine(write_checkpoint(run, 0, 1, &err), &err);
    const char *path = of_step(run, 0, "MANIFEST");
    assert_int_equal(rein_file_read(&text, &size, path), 0);
    assert_int_equal(rein_file_read(&damaged, &size, path), 0);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            damaged[i] = (char)(text[i] ^ (1 << bit));
            assert_int_equal(rein_file_write(path, damaged, size, NULL), REIN_OK);
            if (rein_checkpoint_verify(run, 0, &err) != REIN_EINVAL) fail_msg("byte %zu, bit %d", i, bit);
        }
        damaged[i] = text[i];
        assert_int_equal(rein_file_write(path, text, i, NULL), REIN_OK);
        if (rein_checkpoint_verify(run, 0, &err) != REIN_EINVAL) fail_msg("cut to %zu bytes", i);
    }
    says(&err, "MANIFEST is not what was written");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rein_checkpoint_verify(run, 0, &err), REIN_EINVAL);
    says(&err, "MANIFEST: cannot be read: No such file");
    free(text);
    free(damaged);
    rein_run_close(run);
}

/* ---- verification */
static void damage_cut(const char *path) { assert_int_equal(truncate(path, WEIGHTS_SIZE - 1), 0); }

static void damage_bit(const char *path) {
    char *data;
    size_t size;
    assert_int_equal(rein_file_read(&data, &size, path), 0);
    data[size / 2] ^= 1;
    assert_int_equal(rein_file_write(path, data, size, NULL), REIN_OK);
    free(data);
}

static void damage_remove(const char *path) { assert_int_equal(unlink(path), 0); }

static void damage_directory(const char *path) {
    damage_remove(path);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void damage_pipe(const char *path) {
    damage_remove(path);
    assert_int_equal(mkfifo(path, 0666), 0);
}

static void damage_loop(const char *path) {
    damage_remove(path);
    assert_int_equal(symlink(path, path), 0);
}

static void damage_longer(const char *path) { assert_int_equal(truncate(path, WEIGHTS_SIZE + 1), 0); }

static void test_damage_is_noticed(void **state) {
    (void)state;
    static const struct {
        void (*damage)(const char *path);
        const char *note;
    } cases[] = {{damage_cut, "has 699 bytes, and 700 were written"},
                 {damage_longer, "has 701 bytes, and 700 were written"},
                 {damage_bit, "is not what was written: its hash differs"},
                 {damage_remove, "cannot be read: No such file"},
                 {damage_directory, "is not a regular file"},
                 {damage_pipe, "is not a regular file"},
                 {damage_loop, "cannot be read"}};
    rein_run *run = open_new("noticed");
    rein_error err;
    for (int64_t i = 0; i < (int64_t)(sizeof cases / sizeof *cases); i++) {
        fine(write_checkpoint(run, i, 1, &err), &err);
        fine(rein_checkpoint_verify(run, i, &err), &err);
        cases[i].damage(of_step(run, i, "optimizer.safetensors"));
        assert_int_equal(rein_checkpoint_verify(run, i, &err), REIN_EINVAL);
        says(&err, "optimizer.safetensors");
        says(&err, cases[i].note);
    }
    assert_int_equal(rein_checkpoint_verify(run, 99, &err), REIN_EINVAL);
    says(&err, "checkpoints/0099/MANIFEST: cannot be read");
    assert_int_equal(rein_checkpoint_verify(run, -1, NULL), REIN_EINVAL);
    rein_run_close(run);
}

/* A file that the user puts beside is no damage. */
static void test_more_files_are_fine(void **state) {
    (void)state;
    rein_run *run = open_new("more");
    rein_error err;
    fine(write_checkpoint(run, 0, 1, &err), &err);
    put_text(of_step(run, 0, "README.md"), "mine");
    fine(rein_checkpoint_verify(run, 0, &err), &err);
    rein_run_close(run);
}

static void test_falling_back(void **state) {
    (void)state;
    char note[REIN_NOTE_SIZE];
    int64_t step = 5;
    rein_error err;
    rein_run *run = open_new("back");
    fine(rein_run_last_good(&step, note, run, &err), &err);
    assert_int_equal(step, -1);
    for (int64_t i = 0; i < 4; i++) fine(write_checkpoint(run, i, 1, &err), &err);
    fine(rein_run_last_good(&step, note, run, &err), &err);
    assert_int_equal(step, 3);
    assert_string_equal(note, "");
    damage_bit(of_step(run, 3, "adapter_model.safetensors"));
    fine(rein_run_last_good(&step, note, run, &err), &err);
    assert_int_equal(step, 2);
    assert_non_null(strstr(note, "checkpoints/0003/adapter_model.safetensors is not what was written: its hash differs; "
                                 "the last good checkpoint is of step 2"));
    damage_remove(of_step(run, 2, "MANIFEST"));
    fine(rein_run_last_good(&step, note, run, &err), &err);
    assert_int_equal(step, 1);
    assert_non_null(strstr(note, "its hash differs (and 1 more); the last good checkpoint is of step 1"));
    damage_cut(of_step(run, 0, "optimizer.safetensors"));
    damage_cut(of_step(run, 1, "optimizer.safetensors"));
    assert_int_equal(rein_run_last_good(&step, note, run, &err), REIN_EINVAL);
    says(&err, "has no good checkpoint among 4; the newest: ");
    rein_run_close(run);
}

/* No descriptors left says nothing about the checkpoint: no reason to fall back. */
static void test_not_telling_is_not_bad(void **state) {
    (void)state;
    char note[REIN_NOTE_SIZE];
    int64_t step;
    rein_error err;
    struct rlimit before, few;
    rein_run *run = open_new("telling");
    for (int64_t i = 0; i < 2; i++) fine(write_checkpoint(run, i, 1, &err), &err);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){3, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const rein_status status = rein_run_last_good(&step, note, run, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, REIN_ESYSTEM);
    says(&err, "cannot be read: Too many open files");
    rein_run_close(run);
}

/* ---- writing */
static size_t entries(const char *path) {
    rein_names names;
    assert_int_equal(rein_directory_list(&names, path, NULL), REIN_OK);
    const size_t n = names.n;
    rein_names_free(&names);
    return n;
}

static void test_nothing_until_commit(void **state) {
    (void)state;
    rein_checkpoint *checkpoint, *second;
    rein_error err;
    rein_run *run = open_new("until");
    fine(rein_checkpoint_begin(&checkpoint, run, 3, &err), &err);
    assert_int_equal(rein_checkpoint_begin(&second, run, 4, &err), REIN_EINVAL);
    says(&err, "one checkpoint at a time");
    assert_null(second);
    fine(fill_checkpoint(checkpoint, 3, 1, &err), &err);
    assert_int_equal(rein_run_checkpoints(NULL, run), 0);
    assert_false(rein_file_exists(of_step(run, 3, "")));
    rein_checkpoint_abandon(checkpoint);
    rein_checkpoint_abandon(NULL);
    assert_int_equal(entries(run->checkpoints), 0);
    assert_int_equal(rein_checkpoint_begin(&checkpoint, run, -1, &err), REIN_EINVAL);
    says(&err, "step is -1: the step of a checkpoint is 0 or more");
    fine(write_checkpoint(run, 3, 1, &err), &err);
    assert_null(checkpoint_problem(run, 3, 3));
    rein_run_close(run);
}

/* The same again is fine, another is refused, and the one that is there stays as it is. */
static void test_never_replaced(void **state) {
    (void)state;
    rein_checkpoint *checkpoint;
    rein_error err;
    rein_run *run = open_new("never");
    fine(write_checkpoint(run, 3, 1, &err), &err);
    fine(write_checkpoint(run, 3, 1, &err), &err);
    fine(rein_checkpoint_begin(&checkpoint, run, 3, &err), &err);
    fine(fill_checkpoint(checkpoint, 4, 1, &err), &err);
    assert_int_equal(rein_checkpoint_commit(checkpoint, &err), REIN_EINVAL);
    says(&err, "checkpoints/0003 is there, with other content: a checkpoint is not replaced");
    assert_null(checkpoint_problem(run, 3, 3));
    damage_cut(of_step(run, 3, "optimizer.safetensors"));
    assert_int_equal(write_checkpoint(run, 3, 1, &err), REIN_EINVAL);
    says(&err, "has 699 bytes, and 700 were written");
    assert_int_equal(rein_run_checkpoints(NULL, run), 1);
    assert_int_equal(entries(run->checkpoints), 1);
    rein_run_close(run);
}

static rein_status commit_with(rein_run *run, const char *name, int directory, rein_error *err) {
    rein_checkpoint *checkpoint;
    fine(rein_checkpoint_begin(&checkpoint, run, 0, err), err);
    if (name) fine(rein_checkpoint_put(checkpoint, "good", "x", 1, err), err);
    char *path = rein_checkpoint_path(checkpoint, name ? name : "");
    if (directory) assert_int_equal(mkdir(path, 0777), 0);
    else if (name) put_text(path, "x");
    free(path);
    return rein_checkpoint_commit(checkpoint, err);
}

static void test_commit_refuses(void **state) {
    (void)state;
    rein_error err;
    rein_run *run = open_new("refuses");
    assert_int_equal(commit_with(run, NULL, 0, &err), REIN_EINVAL);
    says(&err, "a checkpoint needs a file");
    assert_int_equal(commit_with(run, "below", 1, &err), REIN_EINVAL);
    says(&err, "below: a folder of a checkpoint needs a file");
    assert_int_equal(commit_with(run, ".hidden", 0, &err), REIN_EINVAL);
    says(&err, "a file of a checkpoint cannot have the name \".hidden\"");
    assert_int_equal(commit_with(run, "MANIFEST", 0, &err), REIN_EINVAL);
    says(&err, "cannot have the name \"MANIFEST\"");
    assert_int_equal(commit_with(run, "two\nlines", 0, &err), REIN_EINVAL);
    says(&err, "cannot have the name \"two\\u000alines\"");
    assert_int_equal(entries(run->checkpoints), 0);
    fine(commit_with(run, "with blanks and é", 0, &err), &err);
    fine(rein_checkpoint_verify(run, 0, &err), &err);
    rein_run_close(run);
}

static void test_put_refuses(void **state) {
    (void)state;
    rein_checkpoint *checkpoint;
    rein_error err;
    rein_run *run = open_new("put");
    fine(rein_checkpoint_begin(&checkpoint, run, 0, &err), &err);
    fine(rein_checkpoint_put(checkpoint, "a", "x", 1, &err), &err);
    assert_int_equal(rein_checkpoint_put(checkpoint, "a", "y", 1, &err), REIN_EIO);
    says(&err, "/a: cannot be written: File exists");
    assert_int_equal(rein_checkpoint_put(checkpoint, "no/such", "y", 1, &err), REIN_EIO);
    rein_checkpoint_abandon(checkpoint);
    rein_run_close(run);
}

/* What another run of the same process cannot remove when it is abandoned does no harm. */
static void test_leftover_of_this_process(void **state) {
    (void)state;
    rein_error err;
    rein_run *run = open_new("leftover");
    char *hidden = rein_run_hidden_path(run, 5, "new"), *below = rein_path_join(hidden, "left");
    assert_int_equal(mkdir(hidden, 0777), 0);
    put_text(below, "x");
    fine(write_checkpoint(run, 5, 0, &err), &err);
    assert_null(checkpoint_problem(run, 5, 5));
    free(hidden);
    free(below);
    rein_run_close(run);
}

/* Numbers come back to the bit: 0.1·3 is not 0.3. */
static void test_state_round_trip(void **state) {
    (void)state;
    rein_checkpoint *checkpoint;
    rein_error err;
    rein_run *run = open_new("state");
    json_t *object = json_pack("{s:f, s:I}", "multiplier", 0.1 * 3, "seed", (json_int_t)INT64_MAX), *again;
    fine(rein_checkpoint_begin(&checkpoint, run, 3, &err), &err);
    fine(rein_checkpoint_put_json(checkpoint, REIN_STATE_NAME, object, &err), &err);
    fine(rein_checkpoint_commit(checkpoint, &err), &err);
    fine(rein_checkpoint_read_json(&again, run, 3, REIN_STATE_NAME, &err), &err);
    assert_true(json_real_value(json_object_get(again, "multiplier")) == 0.1 * 3);
    assert_true(json_equal(object, again));
    json_decref(object);
    json_decref(again);
    assert_int_equal(rein_checkpoint_read_json(&again, run, 3, "none.json", &err), REIN_EIO);
    assert_null(again);
    rein_run_close(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_to_the_byte),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_manifest_not_sorted),
        cmocka_unit_test(test_manifest_name_too_long),
        cmocka_unit_test(test_manifest_damaged),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_more_files_are_fine),
        cmocka_unit_test(test_falling_back),
        cmocka_unit_test(test_not_telling_is_not_bad),
        cmocka_unit_test(test_nothing_until_commit),
        cmocka_unit_test(test_never_replaced),
        cmocka_unit_test(test_commit_refuses),
        cmocka_unit_test(test_put_refuses),
        cmocka_unit_test(test_leftover_of_this_process),
        cmocka_unit_test(test_state_round_trip),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
