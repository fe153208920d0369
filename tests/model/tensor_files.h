/* tensor_files.h - where the tests of safetensors find fixtures and leave files. */
#ifndef REIN_TESTS_TENSOR_FILES_H
#define REIN_TESTS_TENSOR_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/safetensors.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static char folder[256];

static const char *fixture(const char *name) {
    static char path[4096];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/model/fixtures/safetensors/%s", tests ? tests : "tests", name);
    return path;
}

static const char *in_folder(const char *name) {
    static char path[4][1024];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static int make_folder(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/rein-tensors-XXXXXX", temporary ? temporary : "/tmp");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (*entry->d_name != '.') remove(in_folder(entry->d_name));
    if (directory) closedir(directory);
    return rmdir(folder);
}

static rein_tensors *opened(const char *path) {
    rein_tensors *tensors;
    rein_error err;
    if (rein_tensors_open(&tensors, path, &err) != REIN_OK) fail_msg("%s", err.message);
    return tensors;
}

static void says(const rein_error *err, const char *part) {
    if (!strstr(err->message, part)) fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

#endif
