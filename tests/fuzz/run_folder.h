/* run_folder.h - the files of a fuzz target that reads a run: one folder, which every input overwrites and the end of the process removes. */
#ifndef REIN_TESTS_FUZZ_RUN_FOLDER_H
#define REIN_TESTS_FUZZ_RUN_FOLDER_H

#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "fuzz/require.h"
#include "support/folder.h"

static inline void remove_at_end(void) { remove_folder(NULL); }

/* Makes the folder once. */
static inline void need_folder(void) {
    if (*folder) return;
    require(make_folder(NULL) == 0, "no folder", "");
    atexit(remove_at_end);
}

/* Without the durability of rein_file_write, which takes long. */
static inline void put_bytes(const char *name, const void *data, size_t size) {
    FILE *file = fopen(in_folder(name), "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "a file cannot be written", name);
}

static inline int holds_bytes(const char *name, const void *data, size_t size) {
    char *text = NULL;
    size_t length;
    require(rein_file_read(&text, &length, in_folder(name)) == 0, "a file cannot be read", name);
    const int same = length == size && (!size || !memcmp(text, data, size));
    free(text);
    return same;
}

static inline void require_refusal(rein_status status, const rein_error *err) {
    require(status == REIN_EINVAL, "the status is not EINVAL", err->message);
    require(*err->message && !strpbrk(err->message, "\r\n"), "the message is not one line", err->message);
}

#endif
