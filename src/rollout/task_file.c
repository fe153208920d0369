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

typedef struct line {
    json_t *object;
    size_t number; /* in the file, from 1 */
} line;

typedef struct side {
    line *lines;
    size_t n, capacity;
} side;

struct rein_task_file {
    char *name;
    double held_out_share;
    side sides[2]; /* by rein_split, in the order of the lines */
};

static const char *name_of(rein_split split) { return split == REIN_SPLIT_HELD_OUT ? "held-out" : "train"; }

/* ------------------------------------------------------------------------------------------------------------------------ lines */

static rein_status append(side *s, json_t *object, size_t number, rein_error *err) {
    if (s->n == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 64;
        line *lines = realloc(s->lines, capacity * sizeof *lines);
        if (!lines) return rein_no_memory(err);
        s->lines = lines, s->capacity = capacity;
    }
    s->lines[s->n++] = (line){json_incref(object), number};
    return REIN_OK;
}

static int ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

static rein_status add_example(rein_task_file *file, size_t number, const char *where, json_t *object, rein_error *err) {
    rein_example example = {0};
    uint64_t hash = 0;
    rein_status status = rein_example_read(&example, object, where, err);
    if (!status) status = rein_example_hash(&hash, &example, err);
    const int held_out = (double)(hash >> 11) * 0x1p-53 < file->held_out_share;
    if (!status) status = append(&file->sides[held_out ? REIN_SPLIT_HELD_OUT : REIN_SPLIT_TRAIN], object, number, err);
    rein_example_free(&example);
    return status;
}

static rein_status read_line(rein_task_file *file, size_t number, const char *where, const char *text, size_t length,
                             rein_error *err) {
    json_t *object;
    rein_status status = rein_example_parse(&object, where, text, length, err);
    if (!status) status = add_example(file, number, where, object, err);
    json_decref(object);
    return status;
}

static rein_status read_lines(rein_task_file *file, const char *text, size_t length, const char *shown, rein_error *err) {
    char where[REIN_PATH_SHOWN + 32];
    rein_status status = REIN_OK;
    size_t number = 1;
    for (size_t at = 0, stop; at < length && !status; at = stop + 1, number++) {
        snprintf(where, sizeof where, "%s: line %zu", shown, number);
        if ((status = rein_line_end(&stop, text, at, length, where, err))) break;
        if (!rein_all_blank(text + at, stop - at)) status = read_line(file, number, where, text + at, stop - at, err);
    }
    return status;
}

/* A file that is one JSON array: example i counts as line i + 1. */
static rein_status read_array(rein_task_file *file, const char *text, size_t length, const char *shown, rein_error *err) {
    char where[REIN_PATH_SHOWN + 32];
    json_t *array;
    rein_status status = rein_json_parse(&array, text, length, shown, 0, err);
    if (!status && !json_is_array(array))
        status = rein_fail(err, REIN_EINVAL, "%s is not a JSON array: [{\"prompt\": ..., \"answer\": ...}, ...] is needed", shown);
    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        snprintf(where, sizeof where, "%s: example %zu", shown, i + 1);
        json_t *object = json_array_get(array, i);
        if (!json_is_object(object))
            status = rein_fail(err, REIN_EINVAL, "%s is not an object: {\"prompt\": ...} is needed", where);
        else status = add_example(file, i + 1, where, object, err);
    }
    json_decref(array);
    return status;
}

/* The length of the name without its ending. */
static int stem_of(const char *name) {
    const char *dot = strrchr(name, '.');
    return (int)(dot && !strchr(dot, '/') ? (size_t)(dot - name) : strlen(name));
}

/* What a command calls the file: its name, unless that does not fit into a message, or a shell or Python would read it otherwise. */
static const char *name_in_command(const char *name, const char *otherwise) {
    enum { LONGEST = 100 };
    return strlen(name) <= LONGEST && !strpbrk(name, "'\"\\\n") ? name : otherwise;
}

rein_status rein_data_refuse_format(const char *text, size_t length, const char *name, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const int parquet = length >= 4 && !memcmp(text, "PAR1", 4), csv = ends_with(name, ".csv"), tsv = ends_with(name, ".tsv");
    if (!parquet && !csv && !tsv) return REIN_OK;
    const char *format = parquet ? "Parquet" : csv ? "CSV" : "TSV";
    const char *file = name_in_command(name, parquet ? "FILE.parquet" : csv ? "FILE.csv" : "FILE.tsv");
    return rein_fail(err, REIN_EINVAL,
                     "%s is %s: JSON lines are needed: python3 -c 'import pandas; "
                     "pandas.read_%s(\"%s\"%s).to_json(\"%.*s.jsonl\", orient=\"records\", lines=True)'",
                     rein_path_show(shown, name), format, parquet ? "parquet" : "csv", file, tsv ? ", sep=\"\\t\"" : "",
                     stem_of(file), file);
}

/* A split that is empty is an error now, not at the first evaluation. */
static rein_status check_sides(const rein_task_file *file, const char *shown, rein_error *err) {
    const size_t train = file->sides[REIN_SPLIT_TRAIN].n, held_out = file->sides[REIN_SPLIT_HELD_OUT].n;
    if (!train && !held_out)
        return rein_fail(err, REIN_EINVAL,
                         "%s has no example: one JSON object a line is needed, {\"prompt\": ..., \"answer\": ...}", shown);
    if (!train)
        return rein_fail(err, REIN_EINVAL,
                         "%s: held_out %g holds out all %zu examples: a smaller share, or more examples, are needed", shown,
                         file->held_out_share, held_out);
    if (!held_out && file->held_out_share > 0)
        return rein_fail(
            err, REIN_EINVAL,
            "%s: held_out %g holds out none of %zu examples: a larger share, or more examples, are needed (0: train on all)", shown,
            file->held_out_share, train);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ files */

rein_status rein_task_file_from_memory(rein_task_file **file, const char *text, size_t length, const char *name,
                                       double held_out_share, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const int memory = !strncmp(name, "examples:", strlen("examples:")); /* a name of the library's own */
    *file = NULL;
    rein_path_show(shown, memory ? "examples" : name);
    if (!(held_out_share >= 0 && held_out_share < 1))
        return rein_fail_at(err, REIN_EINVAL, "held_out_share", -1, "is %g: a number from 0 to below 1 is needed", held_out_share);
    rein_status status = rein_data_refuse_format(text, length, name, err);
    if (status) return status;
    rein_task_file *f = calloc(1, sizeof *f);
    if (!f) return rein_no_memory(err);
    f->held_out_share = held_out_share;
    status = rein_text_copy(&f->name, name, strlen(name), err);
    if (!status && ends_with(name, ".json")) status = read_array(f, text, length, shown, err);
    else if (!status) status = read_lines(f, text, length, shown, err);
    if (!status) status = check_sides(f, memory ? "the list of examples" : shown, err);
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
        for (size_t i = 0; i < file->sides[s].n; i++) json_decref(file->sides[s].lines[i].object);
        free(file->sides[s].lines);
    }
    free(file->name);
    free(file);
}

size_t rein_task_file_size(const rein_task_file *file, rein_split split) { return file->sides[split == REIN_SPLIT_HELD_OUT].n; }

size_t rein_task_file_line(const rein_task_file *file, rein_split split, uint64_t index) {
    return file->sides[split == REIN_SPLIT_HELD_OUT].lines[index].number;
}

rein_status rein_task_file_example(rein_example *example, const rein_task_file *file, rein_split split, uint64_t index,
                                   rein_error *err) {
    const side *s = &file->sides[split == REIN_SPLIT_HELD_OUT];
    char shown[REIN_PATH_SHOWN];
    *example = (rein_example){0};
    if (index < s->n) return rein_example_read(example, s->lines[index].object, file->name, err);
    rein_path_show(shown, file->name);
    if (!s->n) return rein_fail(err, REIN_END, "%s has no held-out examples: held_out is 0", shown);
    return rein_fail(err, REIN_END, "%s has %zu %s examples: there is no number %llu (they count from 0)", shown, s->n,
                     name_of(split), (unsigned long long)index);
}
