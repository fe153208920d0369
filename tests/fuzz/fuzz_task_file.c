/* fuzz_task_file.c - any bytes as a file of examples (libFuzzer). The first byte is the share that is held out.
 *
 * A file is refused with one line that names it, or read; then every example holds what rollout.h says of it, is the same when it is asked
 * for again, what its object is written as reads back the same, and nothing is asked on both sides. */
/* words: src/rollout/task*.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "rollout/task.h"

enum { COMPARED = 40 };

static int same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static void check_same(const rein_example *a, const rein_example *b) {
    require(same_text(a->prompt, b->prompt) && same_text(a->answer, b->answer) && a->budget == b->budget, "it is not the same", "");
    require(a->n_messages == b->n_messages, "other messages", "");
    for (size_t i = 0; i < a->n_messages; i++)
        require(same_text(a->messages[i].role, b->messages[i].role) && same_text(a->messages[i].content, b->messages[i].content),
                "another message", a->messages[i].content);
}

static void check_example(const rein_example *e) {
    require(!e->prompt == (e->n_messages > 0), "neither a prompt nor messages, or both", "");
    require(e->budget == -1 || e->budget > 0, "an invalid budget", "");
    for (size_t i = 0; i < e->n_messages; i++)
        require(strlen(e->messages[i].content) == e->messages[i].length, "a length is wrong", e->messages[i].content);
}

static void check_round_trip(const rein_example *e) {
    const char *line = e->json;
    rein_task_file *again = NULL;
    rein_example back;
    rein_error err = {0};
    require(line && !rein_task_file_from_memory(&again, line, strlen(line), "again", 0, &err), err.message, line);
    require(!rein_task_file_example(&back, again, REIN_SPLIT_TRAIN, 0, &err), err.message, line);
    check_same(e, &back);
    rein_example_free(&back);
    rein_task_file_close(again);
}

static uint64_t check(const rein_task_file *file, rein_split split, size_t i) {
    rein_example one, two;
    rein_error err = {0};
    uint64_t hash;
    require(!rein_task_file_example(&one, file, split, i, &err) && !rein_task_file_example(&two, file, split, i, &err),
            "an example cannot be had", err.message);
    check_example(&one);
    check_same(&one, &two);
    check_round_trip(&one);
    require(!rein_example_hash(&hash, &one, &err), "no hash", err.message);
    rein_example_free(&one), rein_example_free(&two);
    return hash;
}

static void check_file(const rein_task_file *file) {
    const size_t train = rein_task_file_size(file, REIN_SPLIT_TRAIN), held_out = rein_task_file_size(file, REIN_SPLIT_HELD_OUT);
    uint64_t trained[COMPARED];
    rein_example none;
    for (size_t i = 0; i < train; i++) {
        const uint64_t hash = check(file, REIN_SPLIT_TRAIN, i);
        if (i < COMPARED) trained[i] = hash;
    }
    for (size_t i = 0; i < held_out; i++) {
        const uint64_t hash = check(file, REIN_SPLIT_HELD_OUT, i);
        for (size_t k = 0; k < train && k < COMPARED; k++) require(trained[k] != hash, "the same is asked on both sides", "");
    }
    require(rein_task_file_example(&none, file, REIN_SPLIT_TRAIN, train, NULL) == REIN_END, "an example too many", "");
    require(rein_task_file_example(&none, file, REIN_SPLIT_HELD_OUT, held_out, NULL) == REIN_END, "a held-out one too many", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_task_file *file;
    rein_error err = {0};
    if (size < 1) return 0;
    const double share = data[0] < 128 ? 0 : (data[0] - 128) / 128.0;
    const rein_status status = rein_task_file_from_memory(&file, (const char *)data + 1, size - 1, "it", share, &err);
    require(status == REIN_OK || status == REIN_EINVAL, "a status that is neither 0 nor 1", err.message);
    if (status)
        require(!file && !strncmp(err.message, "it", 2) && !strpbrk(err.message, "\r\n"), "a failure is not one line", err.message);
    else check_file(file);
    rein_task_file_close(file);
    return 0;
}
