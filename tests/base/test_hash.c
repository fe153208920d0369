/* test_hash.c - the hashes against values of other programs, in memory and from a file; directories listed and removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "support/folder.h"

/* python-xxhash 4.1.0 (xxHash 0.8.4): xxhash.xxh3_64_intdigest(bytes((i * 7 + i // 251) % 256 for i in range(n))). The lengths are on
 * both sides of the borders between XXH3's ways, and of the block that files are read in. */
static const struct {
    size_t n;
    uint64_t hash;
} expected[] = {
    {0, 0x2d06800538d394c2},     {1, 0xc44bdff4074eecdb},      {3, 0xc3489259e968ad9e},    {4, 0xd3d60c1519014e89},
    {8, 0xb88dee77f6bf6980},     {9, 0x03688dcad730d826},      {16, 0x9da23836adf2be1e},   {17, 0xf34c3c9cf5a112d1},
    {128, 0x65f3c2c00fa93185},   {129, 0x28065c6ec25f5b25},    {240, 0x4917a75c0ef8eed7},  {241, 0x541b19226f0052e8},
    {1023, 0x4e4c866306f8b848},  {1024, 0xba464919c6bb3ccd},   {1025, 0x2aa0034e7827ee42}, {32768, 0xb6c4e8bdb5303852},
    {32769, 0x21f79ae529286e6f}, {100000, 0x4e16d63e05fac6ed},
};

static unsigned char bytes[100000];

static int set_up(void **state) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
    return make_folder(state);
}

static void test_hash(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (rein_hash(bytes, expected[i].n) != expected[i].hash) fail_msg("%zu bytes", expected[i].n);
}

/* The examples of FIPS 180-4 (csrc.nist.gov, SHA256.pdf), and lengths around a block by Python's hashlib:
 * hashlib.sha256(bytes((i * 7 + i // 251) % 256 for i in range(n))). */
static void test_sha256(void **state) {
    static const struct {
        const char *text;
        size_t n;
        const char *base64;
    } known[] = {
        {"abc", 3, "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, "JI1qYdIGOLjlwCaTDD5gOaM85Flk/yFn9uzt1BnbBsE="},
        {NULL, 0, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
        {NULL, 55, "V2ob+NRHhlfm3Er5OYVEdlwqks3ihHiwGSNc/tMV/Ak="},
        {NULL, 56, "myBQHf0dmRYcJXlQ80RPPkkjDDUcXI4JQ+82n4X1IF0="},
        {NULL, 63, "MLNFkGtJPwb2lES2UhETURwkLzDimEBGKVADUENoLx4="},
        {NULL, 64, "2LxjtPwRVuXn2VpBi5v1TNMXS+28LbQPdIlTSbIps8A="},
        {NULL, 65, "HuI7D7yuzBr/Sp6PFkXzWrLI4TYJzXO2jfi14/Y84HM="},
        {NULL, 119, "emWJghF4kYyo2e2rpav8HpsmaVZPRGm2aIU3nBUwssg="},
        {NULL, 120, "ZVJQQn1WsbDuuEl9IUKHBCc0WKAXctaIG2XAq6wPipg="},
        {NULL, 100000, "a04/PR3uFdtyxRn1liutJT38fUGD1+MOZWJZzh7qsAc="},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char base64[REIN_SHA256_BASE64];
        assert_string_equal(rein_sha256_base64(base64, known[i].text ? (const void *)known[i].text : bytes, known[i].n),
                            known[i].base64);
    }
}

static void test_hash_file(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint64_t hash, size;
        assert_int_equal(rein_file_write(in_folder("hashed"), bytes, expected[i].n, NULL), REIN_OK);
        const int descriptor = open(in_folder("hashed"), O_RDONLY);
        assert_int_equal(rein_hash_descriptor(&hash, &size, descriptor), 0);
        close(descriptor);
        assert_int_equal(size, expected[i].n);
        if (hash != expected[i].hash) fail_msg("%zu bytes", expected[i].n);
    }
}

static void test_hash_of_what_cannot_be_read(void **state) {
    (void)state;
    uint64_t hash, size;
    const int descriptor = open(folder, O_RDONLY);
    assert_int_equal(rein_hash_descriptor(&hash, &size, descriptor), -1);
    assert_int_equal(errno, EISDIR);
    close(descriptor);
}

static void test_list(void **state) {
    (void)state;
    static const char *const names[] = {".hidden", "10", "2", "B", "a"};
    rein_names list;
    rein_error err;
    assert_int_equal(mkdir(in_folder("list"), 0777), 0);
    assert_int_equal(rein_directory_list(&list, in_folder("list"), &err), REIN_OK);
    assert_int_equal(list.n, 0);
    rein_names_free(&list);
    for (size_t i = 5; i-- > 0;) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", in_folder("list"), names[i]);
        assert_int_equal(rein_file_write(path, "", 0, NULL), REIN_OK);
    }
    assert_int_equal(rein_directory_list(&list, in_folder("list"), &err), REIN_OK);
    assert_int_equal(list.n, 5);
    for (size_t i = 0; i < 5; i++) assert_string_equal(list.at[i], names[i]);
    rein_names_free(&list);
    rein_names_free(&list);
    assert_int_equal(rein_directory_list(&list, in_folder("nothing"), &err), REIN_EIO);
    assert_non_null(strstr(err.message, "nothing: the directory cannot be opened: No such file"));
    rein_names_free(&list);
}

/* A link is removed, what it leads to stays. */
static void test_remove_all(void **state) {
    (void)state;
    rein_error err;
    assert_int_equal(rein_make_directories(in_folder("tree/a/b"), &err), REIN_OK);
    assert_int_equal(rein_file_write(in_folder("tree/a/b/c"), "x", 1, &err), REIN_OK);
    assert_int_equal(rein_file_write(in_folder("kept"), "x", 1, &err), REIN_OK);
    assert_int_equal(symlink(in_folder("kept"), in_folder("tree/link")), 0);
    assert_int_equal(symlink(folder, in_folder("tree/a/link")), 0);
    assert_int_equal(rein_remove_all(in_folder("tree"), &err), REIN_OK);
    assert_false(rein_file_exists(in_folder("tree")));
    assert_true(rein_file_exists(in_folder("kept")));
    assert_int_equal(rein_remove_all(in_folder("tree"), &err), REIN_OK); /* nothing there */
    assert_int_equal(rein_remove_all(in_folder("kept/below"), &err), REIN_EIO);
    assert_non_null(strstr(err.message, "kept/below: cannot be removed: Not a directory"));
}

static void test_sync(void **state) {
    (void)state;
    assert_int_equal(rein_directory_sync(folder), 0);
    assert_int_equal(rein_directory_sync(in_folder("nothing")), -1);
    assert_int_equal(errno, ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),       cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_hash_file),  cmocka_unit_test(test_hash_of_what_cannot_be_read),
        cmocka_unit_test(test_list),       cmocka_unit_test(test_sync),
        cmocka_unit_test(test_remove_all),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
