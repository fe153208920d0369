/* files.h - short operations on the files of a test. Include cmocka.h first. */
#ifndef REIN_TESTS_SUPPORT_FILES_H
#define REIN_TESTS_SUPPORT_FILES_H

#include <string.h>

#include "base/file.h"

static inline void put_text(const char *path, const char *text) {
    assert_int_equal(rein_file_write(path, text, strlen(text), NULL), REIN_OK);
}

/* Checks that a file contains exactly this text. */
static inline void holds(const char *path, const char *text) {
    rein_file file;
    rein_error err = {0};
    if (rein_file_map(&file, path, &err) != REIN_OK) fail_msg("%s", err.message);
    if (file.size != strlen(text) || memcmp(file.data, text, file.size) != 0)
        fail_msg("%s contains \"%.*s\", not \"%s\"", path, (int)file.size, (const char *)file.data, text);
    rein_file_unmap(&file);
}

static inline int same_file(const char *a, const char *b) {
    rein_file one, other;
    assert_int_equal(rein_file_map(&one, a, NULL), REIN_OK);
    assert_int_equal(rein_file_map(&other, b, NULL), REIN_OK);
    const int same = one.size == other.size && memcmp(one.data, other.data, one.size) == 0;
    rein_file_unmap(&one), rein_file_unmap(&other);
    return same;
}

#endif
