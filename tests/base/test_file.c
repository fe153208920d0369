/* test_file.c - files: mapped, replaced whole or not at all when the disk is full or the directory closed; JSON files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "support/check.h"
#include "support/files.h"
#include "support/folder.h"

static size_t count_entries(const char *path) {
    size_t n = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return n;
}

static void put(const char *path, const char *text) {
    rein_error err;
    if (rein_file_write(path, text, strlen(text), &err) != REIN_OK) fail_msg("%s", err.message);
}

/* ---- mapping */
static void test_map(void **state) {
    (void)state;
    rein_file file;
    rein_error err;
    put(in_folder("a"), "hello");
    holds(in_folder("a"), "hello");
    put(in_folder("empty"), "");
    assert_int_equal(rein_file_map(&file, in_folder("empty"), &err), REIN_OK);
    assert_int_equal(file.size, 0);
    assert_non_null(file.data);
    rein_file_unmap(&file);
    rein_file_unmap(&file);
}

static void test_map_refuses(void **state) {
    (void)state;
    rein_file file;
    rein_error err;
    assert_int_equal(rein_file_map(&file, in_folder("nothing"), &err), REIN_EIO);
    says(&err, "nothing: cannot be opened: No such file");
    assert_null(file.data);
    assert_int_equal(rein_file_map(&file, folder, &err), REIN_EIO);
    says(&err, "is not a regular file");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(rein_file_map(&file, in_folder("pipe"), &err), REIN_EIO); /* and does not wait for a writer */
    assert_int_equal(rein_file_map(&file, in_folder("nothing"), NULL), REIN_EIO);
}

static void test_long_paths_are_cut(void **state) {
    (void)state;
    char path[1000], shown[REIN_PATH_SHOWN];
    for (size_t i = 0; i + 3 <= sizeof path - 8; i += 2) memcpy(path + i, "é", 3);
    strcpy(path + 980, "/end");
    rein_path_show(shown, path);
    assert_true(strlen(shown) < REIN_PATH_SHOWN);
    assert_memory_equal(shown, "…é", 5);
    assert_string_equal(shown + strlen(shown) - 4, "/end");
    assert_string_equal(rein_path_show(shown, "short"), "short");
}

/* ---- writing */
static void test_replace(void **state) {
    (void)state;
    put(in_folder("b"), "one");
    put(in_folder("b"), "twenty");
    holds(in_folder("b"), "twenty");
    struct stat about;
    const mode_t mask = umask(022);
    put(in_folder("mode"), "");
    umask(mask);
    assert_int_equal(stat(in_folder("mode"), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0644);
}

static void test_nothing_stands_until_commit(void **state) {
    (void)state;
    rein_writer writer;
    put(in_folder("c"), "old");
    const size_t before = count_entries(folder);
    assert_int_equal(rein_writer_open(&writer, in_folder("c"), NULL), REIN_OK);
    assert_int_equal(rein_writer_put(&writer, "new", 3, NULL), REIN_OK);
    holds(in_folder("c"), "old");
    rein_writer_abandon(&writer);
    rein_writer_abandon(&writer);
    holds(in_folder("c"), "old");
    assert_int_equal(count_entries(folder), before);
    assert_int_equal(rein_writer_put(&writer, "x", 1, NULL), REIN_EINVAL);
    assert_int_equal(rein_writer_commit(&writer, NULL), REIN_EINVAL);
}

/* A temporary name that is taken, by a crash before us with the same process number, is passed over. */
static void test_temporary_name_taken(void **state) {
    (void)state;
    char taken[80];
    snprintf(taken, sizeof taken, ".d-%ld-0.tmp", (long)getpid());
    put(in_folder(taken), "left behind");
    put(in_folder("d"), "here");
    holds(in_folder("d"), "here");
    holds(in_folder(taken), "left behind");
}

/* A limit on the size of files is what a full disk is: the write comes back short, then fails. */
static void test_full_disk(void **state) {
    (void)state;
    static char large[100000];
    rein_error err = {0};
    struct rlimit before, small = {5000, 5000};
    put(in_folder("full"), "old");
    const size_t entries = count_entries(folder);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const rein_status status = rein_file_write(in_folder("full"), large, sizeof large, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, REIN_ESYSTEM);
    says(&err, "full: cannot be written: ");
    holds(in_folder("full"), "old");
    assert_int_equal(count_entries(folder), entries);
}

/* As another user, because root may write anywhere. The child's exit status is the answer. */
static void test_closed_directory(void **state) {
    (void)state;
    const char *closed = in_folder("closed");
    assert_int_equal(mkdir(closed, 0555), 0);
    char path[1100];
    snprintf(path, sizeof path, "%s/file", closed);
    assert_int_equal(chmod(folder, 0755), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rein_error err = {0};
        if (getuid() == 0 && setuid(65534) != 0) _exit(3);
        const rein_status status = rein_file_write(path, "x", 1, &err);
        _exit(status == REIN_EIO && strstr(err.message, "cannot be written: Permission denied") ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    assert_int_equal(count_entries(closed), 0);
}

static void test_write_refuses(void **state) {
    (void)state;
    rein_error err;
    char name[300];
    assert_int_equal(rein_file_write(in_folder("no/such/file"), "x", 1, &err), REIN_EIO);
    says(&err, "no/such/file: cannot be written: No such file");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(rein_file_write(in_folder(name), "x", 1, &err), REIN_EIO);
    assert_int_equal(mkdir(in_folder("is a directory"), 0777), 0);
    const size_t entries = count_entries(folder);
    assert_int_equal(rein_file_write(in_folder("is a directory"), "x", 1, &err), REIN_EINVAL);
    says(&err, "is a directory is not a regular file");
    assert_int_equal(count_entries(folder), entries);
}

static mode_t mode_of(const char *path) {
    struct stat about;
    assert_int_equal(lstat(path, &about), 0);
    return about.st_mode;
}

/* A pipe stands for a device: it is refused and stays, and so does a link to it. */
static void test_only_regular_files_are_replaced(void **state) {
    (void)state;
    rein_error err;
    assert_int_equal(mkfifo(in_folder("a pipe"), 0600), 0);
    assert_int_equal(symlink("a pipe", in_folder("to a pipe")), 0);
    const size_t entries = count_entries(folder);
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(i ? "to a pipe" : "a pipe");
        assert_int_equal(rein_file_write(path, "x", 1, &err), REIN_EINVAL);
        says(&err, "a pipe is not a regular file");
        assert_true(i ? S_ISLNK(mode_of(path)) : S_ISFIFO(mode_of(path)));
    }
    rein_writer writer;
    assert_int_equal(rein_writer_open(&writer, in_folder("late"), NULL), REIN_OK);
    assert_int_equal(mkfifo(in_folder("late"), 0600), 0);
    assert_int_equal(rein_writer_commit(&writer, &err), REIN_EINVAL);
    says(&err, "late is not a regular file");
    assert_true(S_ISFIFO(mode_of(in_folder("late"))));
    assert_int_equal(count_entries(folder), entries + 1);
}

/* What a link leads to is not written, and need not be there. */
static void test_links_are_replaced(void **state) {
    (void)state;
    put(in_folder("target"), "old");
    assert_int_equal(symlink("target", in_folder("a link")), 0);
    assert_int_equal(symlink("no such file", in_folder("a loose link")), 0);
    put(in_folder("a link"), "new");
    put(in_folder("a loose link"), "new");
    holds(in_folder("target"), "old");
    holds(in_folder("a link"), "new");
    assert_true(S_ISREG(mode_of(in_folder("a link"))));
    assert_true(S_ISREG(mode_of(in_folder("a loose link"))));
    assert_int_equal(access(in_folder("no such file"), F_OK), -1);
}

static void test_make_directories(void **state) {
    (void)state;
    rein_error err;
    assert_int_equal(rein_make_directories(in_folder("x//y/z/"), &err), REIN_OK);
    assert_true(rein_file_is_directory(in_folder("x/y/z")));
    assert_int_equal(rein_make_directories(in_folder("x/y/z"), &err), REIN_OK);
    put(in_folder("x/file"), "");
    assert_int_equal(rein_make_directories(in_folder("x/file/below"), &err), REIN_EIO);
    says(&err, "x/file: the directory cannot be made");
    assert_int_equal(rein_make_directories("", &err), REIN_EINVAL);
    assert_int_equal(rein_make_directories("/", &err), REIN_OK);
}

/* What is written is what was read, in its order. */
static void test_json_round_trip(void **state) {
    (void)state;
    static const char text[] = "{\n  \"z\": 1,\n  \"a\": [\n    1.5,\n    \"é\"\n  ],\n  \"m\": null\n}\n";
    rein_error err;
    json_t *root;
    put(in_folder("one.json"), text);
    assert_int_equal(rein_json_read(&root, in_folder("one.json"), REIN_JSON_NEEDS_OBJECT, &err), REIN_OK);
    assert_int_equal(rein_json_file_write(in_folder("two.json"), root, &err), REIN_OK);
    holds(in_folder("two.json"), text);
    json_decref(root);
    assert_int_equal(rein_json_read(&root, in_folder("none.json"), REIN_JSON_NEEDS_OBJECT, &err), REIN_EIO);
    assert_null(root);
}

/* A machine that fails is told from a file that is wrong. */
static void test_errors_of_the_system(void **state) {
    (void)state;
    static const int of_system[] = {ENOSPC, EDQUOT, EMFILE, ENFILE, EIO}, of_files[] = {ENOENT, EACCES, EISDIR, ELOOP, EROFS};
    rein_error err;
    for (size_t i = 0; i < COUNT(of_system); i++) {
        errno = of_system[i];
        assert_int_equal(rein_file_error(&err, "a", "cannot be written"), REIN_ESYSTEM);
        errno = of_files[i];
        assert_int_equal(rein_file_error(&err, "a", "cannot be written"), REIN_EIO);
    }
    errno = ENOMEM;
    assert_int_equal(rein_file_error(&err, "a", "cannot be written"), REIN_ENOMEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_of_the_system),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_refuses),
        cmocka_unit_test(test_long_paths_are_cut),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_nothing_stands_until_commit),
        cmocka_unit_test(test_temporary_name_taken),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_closed_directory),
        cmocka_unit_test(test_write_refuses),
        cmocka_unit_test(test_only_regular_files_are_replaced),
        cmocka_unit_test(test_links_are_replaced),
        cmocka_unit_test(test_make_directories),
        cmocka_unit_test(test_json_round_trip),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
