/* tokenizer_fixture.h - what the tests of the tokenizer share. */
#ifndef REIN_TESTS_TOKENIZER_FIXTURE_H
#define REIN_TESTS_TOKENIZER_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/tokenizer.h"

#define FIXTURES "tests/model/fixtures/tokenizer/"

static const char *const fixture_names[] = {"gpt2",   "prefix_space", "llama3",          "qwen",  "smollm",
                                            "llama2", "metaspace",    "metaspace_whole", "added", "splits",
                                            "words",  "model_only",   "gemma",           "nfkc"};
enum { N_FIXTURES = sizeof fixture_names / sizeof *fixture_names };

/* A file with a NUL at its end; NULL when it is not there. */
static inline char *read_whole(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    *length = 0;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        rewind(file);
        text = malloc((size_t)size + 1);
        if (text) *length = fread(text, 1, (size_t)size, file), text[*length] = 0;
    }
    fclose(file);
    return text;
}

#endif
