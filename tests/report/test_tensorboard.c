/* test_tensorboard.c - event files byte for byte as tensorboard's own writer makes them (tests/report/fixtures), their names in the order
 * of their making, and what is left in them when a write fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "report/tensorboard.h"
#include "support/allocation.h"
#include "support/check.h"
#include "support/folder.h"

enum { MOST_FILES = 16 };
static const double NOW = 1700000000.25;
static char names_found[MOST_FILES][256]; /* of the last list_files, in their order */

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static size_t list_files(void) {
    size_t n = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        assert_true(n < MOST_FILES);
        snprintf(names_found[n++], sizeof names_found[0], "%s", entry->d_name);
    }
    closedir(directory);
    qsort(names_found, n, sizeof names_found[0], by_name);
    return n;
}

static rein_tensorboard *open_here(int64_t purge_step) {
    rein_tensorboard *tb;
    rein_error err;
    if (rein_tensorboard_open(&tb, folder, purge_step, &err) != REIN_OK) fail_msg("%s", err.message);
    return tb;
}

static void add(rein_tensorboard *tb, int64_t step, double wall_time, const char *name, double value) {
    rein_error err;
    if (rein_tensorboard_add(tb, step, wall_time, &(rein_named_number){name, value}, 1, &err) != REIN_OK)
        fail_msg("%s", err.message);
}

static rein_file map(const char *path) {
    rein_file file;
    rein_error err;
    if (rein_file_map(&file, path, &err) != REIN_OK) fail_msg("%s", err.message);
    return file;
}

static void same_bytes(const char *name, const char *fixture) {
    rein_file ours = map(in_folder(name)), theirs = map(fixture);
    assert_int_equal(ours.size, theirs.size);
    assert_memory_equal(ours.data, theirs.data, theirs.size);
    rein_file_unmap(&ours);
    rein_file_unmap(&theirs);
}

/* How many whole records the file holds; it must hold nothing else. Checks what a reader checks. */
static size_t count_records(const char *name) {
    rein_file file = map(in_folder(name));
    size_t n = 0, at = 0;
    for (; at < file.size; n++) {
        uint64_t length;
        assert_true(file.size - at >= 16);
        memcpy(&length, file.data + at, 8);
        assert_true(length <= file.size - at - 16);
        at += 16 + (size_t)length;
    }
    rein_file_unmap(&file);
    return n;
}

/* RFC 3720, B.4, and the check value of the catalogue of CRCs. */
static void test_crc_known_answers(void **state) {
    (void)state;
    unsigned char bytes[32];
    static const unsigned char command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    assert_int_equal(rein_crc32c("", 0), 0);
    assert_int_equal(rein_crc32c("123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(rein_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 255, sizeof bytes);
    assert_int_equal(rein_crc32c(bytes, 32), 0x62a8ab43);
    for (size_t i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(rein_crc32c(bytes, 32), 0x46dd794e);
    for (size_t i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(rein_crc32c(bytes, 32), 0x113fdb5c);
    assert_int_equal(rein_crc32c(command, sizeof command), 0xd9963a56);
}

/* ---- against tensorboard's writer: generate.py has the same steps */
static void add_many(rein_tensorboard *tb, int64_t step, double wall_time) {
    static char text[1000][10];
    static rein_named_number metrics[1000];
    for (size_t i = 0; i < 1000; i++) {
        snprintf(text[i], sizeof text[i], "many/%04u", (unsigned)i % 1000);
        metrics[i] = (rein_named_number){text[i], (double)i / 7};
    }
    assert_int_equal(rein_tensorboard_add(tb, step, wall_time, metrics, 1000, NULL), REIN_OK);
}

static void test_bytes(void **state) {
    (void)state;
    char longest[301];
    memset(longest, 'x', 300);
    longest[300] = 0;
    rein_tensorboard *tb = open_here(0);
    rein_error err;
    assert_int_equal(rein_tensorboard_add(tb, 5, NOW, NULL, 0, &err), REIN_OK);
    assert_int_equal(list_files(), 0); /* nothing to say, nothing written */
    const rein_named_number first[] = {{"loss", 0}, {"reward", -1.5}}, second[] = {{"loss", 0.1}, {"kl", -0.0}, {"größe/β", 1e-45}},
                            fourth[] = {{"infinite", INFINITY}, {"below", -INFINITY}, {"nan", NAN}, {"huge", 1e300}};
    assert_int_equal(rein_tensorboard_add(tb, 0, NOW, first, 2, &err), REIN_OK);
    assert_int_equal(rein_tensorboard_add(tb, 1, NOW + 1, second, 3, &err), REIN_OK);
    add(tb, 127, NOW + 2, longest, 16777217);
    assert_int_equal(rein_tensorboard_add(tb, 128, NOW + 3, fourth, 4, &err), REIN_OK);
    add_many(tb, (int64_t)1 << 40, NOW + 4);
    add(tb, INT64_MAX, NOW + 5, "last", 1);
    rein_tensorboard_close(tb);
    assert_int_equal(list_files(), 1);
    same_bytes(names_found[0], "tests/report/fixtures/plain.tfevents");
}

static void test_bytes_of_a_resumed_run(void **state) {
    (void)state;
    rein_tensorboard *tb = open_here(128);
    add(tb, 128, 0, "loss", 0.5);
    rein_tensorboard_close(tb);
    assert_int_equal(list_files(), 1);
    same_bytes(names_found[0], "tests/report/fixtures/resumed.tfevents");
}

/* ---- names */
static void test_name(void **state) {
    (void)state;
    char end[40];
    rein_tensorboard *tb = open_here(0);
    add(tb, 1, NOW, "a", 1);
    add(tb, 2, NOW + 99, "a", 1);
    rein_tensorboard_close(tb);
    snprintf(end, sizeof end, ".%ld", (long)getpid());
    assert_int_equal(list_files(), 1);
    assert_memory_equal(names_found[0], "events.out.tfevents.1700000000.", 31);
    assert_string_equal(names_found[0] + strlen(names_found[0]) - strlen(end), end);
}

/* In the same second, and when the clock went back: TensorBoard reads by name. What is not an event file does not count. */
static void test_names_are_in_order(void **state) {
    (void)state;
    static const double clock[] = {1700000000, 1700000000, 1600000000, 1800000000, 5};
    static const char *const times[] = {"1700000000", "1700000001", "1700000002", "1800000000", "1800000001"};
    fclose(fopen(in_folder("events.out.tfevents.99999999999999999999.x"), "w"));
    fclose(fopen(in_folder("events.out.tfevents."), "w"));
    fclose(fopen(in_folder("notes.2000000000"), "w"));
    const size_t others = list_files();
    for (size_t i = 0; i < 5; i++) {
        rein_tensorboard *tb = open_here((int64_t)i);
        add(tb, (int64_t)i, clock[i], "a", 1);
        rein_tensorboard_close(tb);
        assert_int_equal(list_files(), others + i + 1);
    }
    for (size_t i = 0; i < 5; i++) assert_memory_equal(names_found[i + 1] + 20, times[i], 10);
}

/* ---- failures. A limit on the size of files is what a full disk is. */
static rein_status add_within(rlim_t limit, rein_tensorboard *tb, int64_t step, const char *name, rein_error *err) {
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){limit, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const rein_status status = rein_tensorboard_add(tb, step, NOW, &(rein_named_number){name, 1}, 1, err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    return status;
}

static void test_full_disk(void **state) {
    (void)state;
    char name[200];
    rein_error err;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    rein_tensorboard *tb = open_here(7);
    assert_int_equal(add_within(100, tb, 7, name, &err), REIN_ESYSTEM);
    says(&err, "cannot be written: ");
    assert_int_equal(list_files(), 0); /* not even the beginning of a file */
    assert_int_equal(add_within(400, tb, 7, name, &err), REIN_OK);
    assert_int_equal(list_files(), 1);
    assert_int_equal(count_records(names_found[0]), 3); /* version, purge, step */
    assert_int_equal(add_within(400, tb, 8, name, &err), REIN_ESYSTEM);
    assert_int_equal(list_files(), 1);
    assert_int_equal(count_records(names_found[0]), 3);
    add(tb, 9, NOW, name, 1);
    rein_tensorboard_close(tb);
    assert_int_equal(list_files(), 2);
    assert_int_equal(count_records(names_found[0]), 3);
    assert_int_equal(count_records(names_found[1]), 2); /* nothing to purge any more */
}

static void test_torn_tail_stays_alone(void **state) {
    (void)state;
    struct stat about;
    rein_tensorboard *tb = open_here(0);
    add(tb, 1, NOW, "a", 1);
    rein_tensorboard_close(tb);
    list_files();
    assert_int_equal(stat(in_folder(names_found[0]), &about), 0);
    const off_t torn = about.st_size - 3;
    assert_int_equal(truncate(in_folder(names_found[0]), torn), 0);
    tb = open_here(1);
    add(tb, 1, NOW, "a", 2);
    rein_tensorboard_close(tb);
    assert_int_equal(list_files(), 2);
    assert_int_equal(stat(in_folder(names_found[0]), &about), 0);
    assert_int_equal(about.st_size, torn);
    assert_int_equal(count_records(names_found[1]), 3);
}

static void test_refuses(void **state) {
    (void)state;
    rein_error err;
    rein_tensorboard *tb = open_here(0), *other;
    const rein_named_number good = {"a", 1}, none = {NULL, 1}, empty = {"", 1},
                            latin = {"gr\xf6\xdf"
                                     "e",
                                     1};
    const double times[] = {NAN, INFINITY, -1, 1e10};
    assert_int_equal(rein_tensorboard_add(tb, -1, NOW, &good, 1, &err), REIN_EINVAL);
    says(&err, "step is -1: 0 or more");
    assert_int_equal(rein_tensorboard_open(&other, folder, -1, &err), REIN_EINVAL);
    says(&err, "purge_step is -1: 0 or more");
    assert_null(other);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(rein_tensorboard_add(tb, 1, times[i], &good, 1, &err), REIN_EINVAL);
        says(&err, "seconds since 1970 are needed");
    }
    assert_int_equal(rein_tensorboard_add(tb, 1, NOW, &none, 1, &err), REIN_EINVAL);
    assert_int_equal(rein_tensorboard_add(tb, 1, NOW, &empty, 1, &err), REIN_EINVAL);
    says(&err, "metrics[0] has no name");
    assert_true(!strcmp(err.field, "metrics") && err.index == 0);
    assert_int_equal(rein_tensorboard_add(tb, 1, NOW, &latin, 1, &err), REIN_EINVAL);
    says(&err, "metrics[0] has a name that is not UTF-8, from byte 2 on");
    rein_tensorboard_close(tb);
    rein_tensorboard_close(NULL);
    assert_int_equal(list_files(), 0);
}

static void test_directories(void **state) {
    (void)state;
    rein_error err;
    rein_tensorboard *tb;
    char below[600];
    fclose(fopen(in_folder("file"), "w"));
    snprintf(below, sizeof below, "%s/file/below", folder);
    assert_int_equal(rein_tensorboard_open(&tb, below, 0, &err), REIN_EIO);
    assert_null(tb);
    says(&err, "the directory cannot be made");
    snprintf(below, sizeof below, "%s/new", folder);
    assert_int_equal(rein_tensorboard_open(&tb, below, 0, &err), REIN_OK);
    assert_true(rein_file_is_directory(below));
    assert_int_equal(rmdir(below), 0); /* taken away meanwhile */
    assert_int_equal(rein_tensorboard_add(tb, 1, NOW, &(rein_named_number){"a", 1}, 1, &err), REIN_EIO);
    says(&err, "new: the directory cannot be read: No such file");
    rein_tensorboard_close(tb);
}

static rein_status open_and_add(void *context, rein_error *err) {
    (void)context;
    rein_tensorboard *tb;
    rein_status status = rein_tensorboard_open(&tb, folder, 1, err);
    if (!status) status = rein_tensorboard_add(tb, 1, NOW, &(rein_named_number){"a", 1}, 1, err);
    rein_tensorboard_close(tb);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(open_and_add, NULL) >= 4);
    assert_int_equal(list_files(), 2); /* of the two calls that succeeded */
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_known_answers),
        IN_FOLDER(test_bytes),
        IN_FOLDER(test_bytes_of_a_resumed_run),
        IN_FOLDER(test_name),
        IN_FOLDER(test_names_are_in_order),
        IN_FOLDER(test_full_disk),
        IN_FOLDER(test_torn_tail_stays_alone),
        IN_FOLDER(test_refuses),
        IN_FOLDER(test_directories),
        IN_FOLDER(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
