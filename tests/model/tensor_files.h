/* tensor_files.h - fixtures and files of the safetensors tests. */
#ifndef REIN_TESTS_TENSOR_FILES_H
#define REIN_TESTS_TENSOR_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"
#include "support/check.h"
#include "support/folder.h"

static const char *fixture(const char *name) {
    static char path[4096];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/model/fixtures/safetensors/%s", tests ? tests : "tests", name);
    return path;
}

static rein_tensors *opened(const char *path) {
    rein_tensors *tensors;
    rein_error err;
    if (rein_tensors_open(&tensors, path, &err) != REIN_OK) fail_msg("%s", err.message);
    return tensors;
}

#endif
