/* gguf_open.c - opens a model in GGUF: one file, or the parts NAME-00001-of-00003.gguf of a split one. Also the table of tensor types. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf.h"
#include "gguf_read.h"

/* The types of ggml.h by number; those without a name were removed from the format. */
static const rein_gguf_type types[REIN_GGUF_TYPES] = {
    [0] = {"F32", 1, 4, 1, REIN_TENSOR_F32},
    [1] = {"F16", 1, 2, 1, REIN_TENSOR_F16},
    [2] = {"Q4_0", 32, 18, 1, REIN_TENSOR_Q4_0},
    [3] = {"Q4_1", 32, 20, 1, REIN_TENSOR_Q4_1},
    [6] = {"Q5_0", 32, 22, 1, REIN_TENSOR_Q5_0},
    [7] = {"Q5_1", 32, 24, 1, REIN_TENSOR_Q5_1},
    [8] = {"Q8_0", 32, 34, 1, REIN_TENSOR_Q8_0},
    [9] = {"Q8_1", 32, 40, 0, REIN_TENSOR_TYPES},
    [10] = {"Q2_K", 256, 84, 0, REIN_TENSOR_TYPES},
    [11] = {"Q3_K", 256, 110, 0, REIN_TENSOR_TYPES},
    [12] = {"Q4_K", 256, 144, 1, REIN_TENSOR_Q4_K},
    [13] = {"Q5_K", 256, 176, 1, REIN_TENSOR_Q5_K},
    [14] = {"Q6_K", 256, 210, 1, REIN_TENSOR_Q6_K},
    [15] = {"Q8_K", 256, 292, 0, REIN_TENSOR_TYPES},
    [16] = {"IQ2_XXS", 256, 66, 0, REIN_TENSOR_TYPES},
    [17] = {"IQ2_XS", 256, 74, 0, REIN_TENSOR_TYPES},
    [18] = {"IQ3_XXS", 256, 98, 0, REIN_TENSOR_TYPES},
    [19] = {"IQ1_S", 256, 50, 0, REIN_TENSOR_TYPES},
    [20] = {"IQ4_NL", 32, 18, 0, REIN_TENSOR_TYPES},
    [21] = {"IQ3_S", 256, 110, 0, REIN_TENSOR_TYPES},
    [22] = {"IQ2_S", 256, 82, 0, REIN_TENSOR_TYPES},
    [23] = {"IQ4_XS", 256, 136, 0, REIN_TENSOR_TYPES},
    [24] = {"I8", 1, 1, 1, REIN_TENSOR_I8},
    [25] = {"I16", 1, 2, 1, REIN_TENSOR_I16},
    [26] = {"I32", 1, 4, 1, REIN_TENSOR_I32},
    [27] = {"I64", 1, 8, 1, REIN_TENSOR_I64},
    [28] = {"F64", 1, 8, 1, REIN_TENSOR_F64},
    [29] = {"IQ1_M", 256, 56, 0, REIN_TENSOR_TYPES},
    [30] = {"BF16", 1, 2, 1, REIN_TENSOR_BF16},
    [34] = {"TQ1_0", 256, 54, 0, REIN_TENSOR_TYPES},
    [35] = {"TQ2_0", 256, 66, 0, REIN_TENSOR_TYPES},
    [39] = {"MXFP4", 32, 17, 0, REIN_TENSOR_TYPES},
};

rein_gguf_type rein_gguf_type_at(uint32_t number) { return number < REIN_GGUF_TYPES ? types[number] : (rein_gguf_type){0}; }

const rein_gguf_tensor *rein_gguf_tensor_find(const rein_gguf *gguf, const char *name) {
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if (!strcmp(gguf->tensors[i].name, name)) return &gguf->tensors[i];
    return NULL;
}

static int ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

int rein_gguf_is(const char *path) {
    struct stat about;
    char magic[4];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    const int is = !fstat(fd, &about) && S_ISREG(about.st_mode) &&
                   (ends_with(path, ".gguf") || (read(fd, magic, sizeof magic) == sizeof magic && !memcmp(magic, "GGUF", 4)));
    close(fd);
    return is;
}

void rein_gguf_close(rein_gguf *gguf) {
    if (!gguf) return;
    for (size_t i = 0; i < gguf->n_files; i++) {
        rein_file_unmap(&gguf->files[i].file);
        free(gguf->files[i].pairs);
        free(gguf->files[i].path);
    }
    free(gguf->files);
    free(gguf->tensors);
    free(gguf);
}

/* -------------------------------------------------------------------------------------------------------------------- one file */

/* Appends the tensors of file i. */
static rein_status add_tensors(rein_gguf *gguf, size_t i, const rein_gguf_tensor *list, size_t n, rein_error *err) {
    rein_gguf_tensor *grown = realloc(gguf->tensors, (gguf->n_tensors + n + 1) * sizeof *grown);
    if (!grown) return rein_no_memory(err);
    gguf->tensors = grown;
    for (size_t t = 0; t < n; t++) {
        grown[gguf->n_tensors + t] = list[t];
        grown[gguf->n_tensors + t].file = i;
    }
    gguf->n_tensors += n;
    return REIN_OK;
}

/* Reads file i, which is mapped. */
static rein_status read_file(rein_gguf *gguf, size_t i, rein_error *err) {
    rein_gguf_tensor *list = NULL;
    size_t n = 0;
    rein_status status = rein_gguf_read_file(&gguf->files[i], &list, &n, err);
    if (!status) status = add_tensors(gguf, i, list, n, err);
    free(list);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const rein_gguf_tensor *const *)a)->name, (*(const rein_gguf_tensor *const *)b)->name);
}

static rein_status check_names(const rein_gguf *gguf, rein_error *err) {
    const rein_gguf_tensor **list = malloc((gguf->n_tensors + 1) * sizeof *list);
    rein_status status = list ? REIN_OK : rein_no_memory(err);
    for (size_t i = 0; i < gguf->n_tensors && !status; i++) list[i] = &gguf->tensors[i];
    if (!status) qsort(list, gguf->n_tensors, sizeof *list, by_name);
    for (size_t i = 1; i < gguf->n_tensors && !status; i++)
        if (!strcmp(list[i - 1]->name, list[i]->name))
            status = rein_gguf_wrong(gguf, list[i]->name, err, "is the name of two tensors");
    free(list);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------- all files */

static rein_gguf *new_model(size_t n_files) {
    rein_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf) gguf->files = calloc(n_files, sizeof *gguf->files);
    if (gguf && gguf->files) return gguf->n_files = n_files, gguf;
    free(gguf);
    return NULL;
}

static rein_status map_file(rein_gguf *gguf, size_t i, const char *path, rein_error *err) {
    rein_gguf_file *file = &gguf->files[i];
    file->path = strdup(path);
    return file->path ? rein_file_map(&file->file, path, err) : rein_no_memory(err);
}

enum { PART = sizeof "-00001-of-00003.gguf" - 1 };

/* Opens part i + 1 of n, whose name follows from that of the first. */
static rein_status open_part(rein_gguf *gguf, size_t i, size_t n, rein_error *err) {
    const size_t length = strlen(gguf->files[0].path);
    char *path = malloc(length + PART);
    if (!path) return rein_no_memory(err);
    snprintf(path, length + PART, "%.*s-%05zu-of-%05zu.gguf", (int)(length - PART), gguf->files[0].path, i + 1, n);
    rein_status status = map_file(gguf, i, path, err);
    if (!status) status = read_file(gguf, i, err);
    const rein_gguf_value *no = status ? NULL : rein_gguf_find_in(&gguf->files[i], "split.no");
    if (!status && (!no || rein_gguf_number(no, 0) != (double)i))
        status = rein_gguf_wrong(gguf, path, err, "is not part %zu of this model: its split.no is another", i + 1);
    free(path);
    return status;
}

static rein_status open_parts(rein_gguf *gguf, size_t n, rein_error *err) {
    char end[PART + 1];
    rein_status status = REIN_OK;
    rein_gguf_file *grown = realloc(gguf->files, n * sizeof *grown);
    if (!grown) return rein_no_memory(err);
    gguf->files = grown;
    memset(grown + 1, 0, (n - 1) * sizeof *grown);
    gguf->n_files = n;
    snprintf(end, sizeof end, "-%05d-of-%05zu.gguf", 1, n);
    if (!ends_with(gguf->files[0].path, end))
        return rein_gguf_wrong(gguf, "split.count", err, "is %zu: the file is the first part, so its name must end with %s", n,
                               end);
    for (size_t i = 1; i < n && !status; i++) status = open_part(gguf, i, n, err);
    const rein_gguf_value *total = rein_gguf_find(gguf, "split.tensors.count");
    if (!status && total && rein_gguf_number(total, 0) != (double)gguf->n_tensors)
        status = rein_gguf_wrong(gguf, "split.tensors.count", err, "is %.0f, but the parts have %zu tensors",
                                 rein_gguf_number(total, 0), gguf->n_tensors);
    return status;
}

static rein_status read_split(rein_gguf *gguf, rein_error *err) {
    const double n = rein_gguf_number(rein_gguf_find(gguf, "split.count"), 0),
                 no = rein_gguf_number(rein_gguf_find(gguf, "split.no"), 0);
    if (n <= 1) return REIN_OK;
    if (no != 0) return rein_gguf_wrong(gguf, "split.no", err, "is %.0f: the first part, with 0, is needed; the others follow", no);
    if (n > REIN_GGUF_FILES)
        return rein_gguf_wrong(gguf, "split.count", err, "is %.0f: at most %d are supported", n, REIN_GGUF_FILES);
    return open_parts(gguf, (size_t)n, err);
}

rein_status rein_gguf_open(rein_gguf **to, const char *path, rein_error *err) {
    rein_gguf *gguf = new_model(1);
    *to = NULL;
    if (!gguf) return rein_no_memory(err);
    rein_status status = map_file(gguf, 0, path, err);
    if (!status) status = read_file(gguf, 0, err);
    if (!status) status = read_split(gguf, err);
    if (!status) status = check_names(gguf, err);
    if (status) rein_gguf_close(gguf);
    else *to = gguf;
    return status;
}

rein_status rein_gguf_from_memory(rein_gguf **to, const char *name, const void *data, size_t size, rein_error *err) {
    rein_gguf *gguf = new_model(1);
    *to = NULL;
    if (!gguf) return rein_no_memory(err);
    gguf->files[0].path = strdup(name);
    gguf->files[0].file = (rein_file){data, size, 0};
    rein_status status = gguf->files[0].path ? read_file(gguf, 0, err) : rein_no_memory(err);
    if (!status && rein_gguf_number(rein_gguf_find(gguf, "split.count"), 0) > 1)
        status = rein_gguf_wrong(gguf, "split.count", err, "is above 1: a split model is opened from its files");
    if (!status) status = check_names(gguf, err);
    if (status) rein_gguf_close(gguf);
    else *to = gguf;
    return status;
}
