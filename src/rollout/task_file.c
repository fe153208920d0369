/* task_file.c - a task that is a file: one example a line. All of it is read and checked at the start, so that a mistake in line 90,000
 * is found before the first step.
 *
 * A hash of the prompt decides which examples are held out: neither the order of the lines nor later lines move an example to the other
 * split, and two with the same prompt are in the same one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/tokenizer_parts.h"
#include "task.h"

typedef struct side {
    json_t **objects;
    size_t n, capacity;
} side;

struct rein_task_file {
    char *name;
    double held_out_share;
    side sides[2]; /* by rein_split, in the order of the lines */
};

static const char *name_of(rein_split split) { return split == REIN_SPLIT_HELD_OUT ? "held-out" : "train"; }

/* ------------------------------------------------------------------------------------------------------------------------ lines */

static rein_status append(side *s, json_t *object, rein_error *err) {
    if (s->n == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 64;
        json_t **objects = realloc(s->objects, capacity * sizeof *objects);
        if (!objects) return rein_fail(err, REIN_ENOMEM, "out of memory");
        s->objects = objects, s->capacity = capacity;
    }
    s->objects[s->n++] = json_incref(object);
    return REIN_OK;
}

static rein_status read_line(rein_task_file *file, const char *where, const char *text, size_t length, rein_error *err) {
    rein_example example = {0};
    json_t *object;
    uint64_t hash = 0;
    rein_status status = rein_example_parse(&object, where, text, length, err);
    if (!status) status = rein_example_read(&example, object, where, err);
    if (!status) status = rein_example_hash(&hash, &example, err);
    const int held_out = (double)(hash >> 11) * 0x1p-53 < file->held_out_share;
    if (!status) status = append(&file->sides[held_out ? REIN_SPLIT_HELD_OUT : REIN_SPLIT_TRAIN], object, err);
    rein_example_free(&example);
    json_decref(object);
    return status;
}

static rein_status read_lines(rein_task_file *file, const char *text, size_t length, const char *shown, rein_error *err) {
    char where[REIN_PATH_SHOWN + 32];
    rein_status status = REIN_OK;
    size_t line = 1;
    for (size_t at = 0, stop; at < length && !status; at = stop + 1, line++) {
        const char *newline = memchr(text + at, '\n', length - at);
        stop = newline ? (size_t)(newline - text) : length;
        snprintf(where, sizeof where, "%s: line %zu", shown, line);
        if (!rein_all_blank(text + at, stop - at)) status = read_line(file, where, text + at, stop - at, err);
    }
    return status;
}

/* A split that is empty is an error now, not at the first evaluation. */
static rein_status check_sides(const rein_task_file *file, const char *shown, rein_error *err) {
    const size_t train = file->sides[REIN_SPLIT_TRAIN].n, held_out = file->sides[REIN_SPLIT_HELD_OUT].n;
    if (!train && !held_out)
        return rein_fail(err, REIN_EINVAL,
                         "%s has no example: one JSON object a line is needed, {\"prompt\": ..., \"answer\": ...}", shown);
    if (!train)
        return rein_fail(err, REIN_EINVAL,
                         "%s: held_out_share %g holds out all %zu examples: a smaller share, or more examples, are needed", shown,
                         file->held_out_share, held_out);
    if (!held_out && file->held_out_share > 0)
        return rein_fail(
            err, REIN_EINVAL,
            "%s: held_out_share %g holds out none of %zu examples: a larger share, or more examples, are needed (0: train on all)",
            shown, file->held_out_share, train);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ files */

rein_status rein_task_file_from_memory(rein_task_file **file, const char *text, size_t length, const char *name,
                                       double held_out_share, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    *file = NULL;
    rein_path_show(shown, name);
    if (!(held_out_share >= 0 && held_out_share < 1))
        return rein_fail_at(err, REIN_EINVAL, "held_out_share", -1, "is %g: a number from 0 to below 1 is needed", held_out_share);
    if (length >= 4 && !memcmp(text, "PAR1", 4))
        return rein_fail(err, REIN_EINVAL, "%s is Parquet: JSON lines are needed, {\"prompt\": ..., \"answer\": ...}", shown);
    rein_task_file *f = calloc(1, sizeof *f);
    if (!f) return rein_fail(err, REIN_ENOMEM, "out of memory");
    f->held_out_share = held_out_share;
    rein_status status = rein_text_copy(&f->name, name, strlen(name), err);
    if (!status) status = read_lines(f, text, length, shown, err);
    if (!status) status = check_sides(f, shown, err);
    if (status) rein_task_file_close(f);
    else *file = f;
    return status;
}

rein_status rein_task_file_open(rein_task_file **file, const char *path, double held_out_share, rein_error *err) {
    rein_file bytes;
    *file = NULL;
    rein_status status = rein_file_map(&bytes, path, err);
    if (status) return status;
    status = rein_task_file_from_memory(file, (const char *)bytes.data, bytes.size, path, held_out_share, err);
    rein_file_unmap(&bytes);
    return status;
}

void rein_task_file_close(rein_task_file *file) {
    if (!file) return;
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < file->sides[s].n; i++) json_decref(file->sides[s].objects[i]);
        free(file->sides[s].objects);
    }
    free(file->name);
    free(file);
}

size_t rein_task_file_size(const rein_task_file *file, rein_split split) { return file->sides[split == REIN_SPLIT_HELD_OUT].n; }

rein_status rein_task_file_example(rein_example *example, const rein_task_file *file, rein_split split, uint64_t index,
                                   rein_error *err) {
    const side *s = &file->sides[split == REIN_SPLIT_HELD_OUT];
    char shown[REIN_PATH_SHOWN];
    *example = (rein_example){0};
    if (index < s->n) return rein_example_read(example, s->objects[index], file->name, err);
    rein_path_show(shown, file->name);
    if (!s->n) return rein_fail(err, REIN_END, "%s has no held-out examples: held_out_share is 0", shown);
    return rein_fail(err, REIN_END, "%s has %zu %s examples: there is no number %llu (they count from 0)", shown, s->n,
                     name_of(split), (unsigned long long)index);
}
