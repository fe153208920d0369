/* safetensors_write.c - writes exactly the bytes of the reference writer: the same tensors give the same file, in whatever order
 * they are given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "safetensors.h"
#include "unicode.h"

enum { ALIGNMENT = 8 };

/* -------------------------------------------------------------------------------------------------------------- checks */

static int is_utf8(const char *s) { return rein_utf8_valid(s, strlen(s)) == strlen(s); }

static rein_status check_tensor(const rein_tensor *tensor, const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN], shape[REIN_SHAPE_SHOWN];
    size_t bytes;
    rein_path_show(shown, path);
    if (!tensor->name || !is_utf8(tensor->name) || !strcmp(tensor->name, "__metadata__"))
        return rein_fail(err, REIN_EINVAL, "%s: the name of a tensor is missing, is not UTF-8, or is __metadata__", shown);
    rein_json_quote(quoted, tensor->name);
    if ((unsigned)tensor->dtype >= REIN_TENSOR_SAFETENSORS_TYPES || tensor->n_dims < 0 || tensor->n_dims > REIN_MAX_DIMENSIONS)
        return rein_fail(err, REIN_EINVAL,
                         "%s: tensor %s has dtype %d and %d dimensions: a type of the format and 0 to %d are needed", shown, quoted,
                         (int)tensor->dtype, tensor->n_dims, REIN_MAX_DIMENSIONS);
    rein_shape_show(shape, tensor->shape, tensor->n_dims);
    if (!rein_tensor_bytes(&bytes, tensor->dtype, tensor->shape, tensor->n_dims) || bytes != tensor->bytes)
        return rein_fail(err, REIN_EINVAL, "%s: tensor %s has %zu bytes, which is not the size of %s of %s", shown, quoted,
                         tensor->bytes, shape, rein_tensor_type_name(tensor->dtype));
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- header */

static int by_type_and_name(const void *a, const void *b) {
    const rein_tensor *x = *(const rein_tensor *const *)a, *y = *(const rein_tensor *const *)b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const rein_tensor *const *)a)->name, (*(const rein_tensor *const *)b)->name);
}

static int by_key(const void *a, const void *b) { return strcmp(((const rein_metadata *)a)->key, ((const rein_metadata *)b)->key); }

/* Sorts the tensors in the order of the file. The caller frees *sorted. */
static rein_status sort_tensors(const rein_tensor ***sorted, const char *path, const rein_tensor *tensors, size_t n,
                                rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN];
    const rein_tensor **list = n > SIZE_MAX / sizeof *list ? NULL : malloc((n ? n : 1) * sizeof *list);
    if (!list) return rein_no_memory(err);
    *sorted = list;
    for (size_t i = 0; i < n; i++) {
        const rein_status status = check_tensor(&tensors[i], path, err);
        if (status) return status;
        list[i] = &tensors[i];
    }
    qsort(list, n, sizeof *list, by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(list[i - 1]->name, list[i]->name))
            return rein_fail(err, REIN_EINVAL, "%s: tensor %s is given twice", rein_path_show(shown, path),
                             rein_json_quote(quoted, list[i]->name));
    qsort(list, n, sizeof *list, by_type_and_name);
    return REIN_OK;
}

static void add_tensor(rein_text *to, const rein_tensor *tensor, size_t begin) {
    rein_json_put_string(to, tensor->name);
    rein_text_put(to, ":{\"dtype\":\"");
    rein_text_put(to, rein_tensor_type_name(tensor->dtype));
    rein_text_put(to, "\",\"shape\":[");
    for (int i = 0; i < tensor->n_dims; i++) rein_text_format(to, "%s%zu", i ? "," : "", tensor->shape[i]);
    rein_text_format(to, "],\"data_offsets\":[%zu,%zu]}", begin, begin + tensor->bytes);
}

static rein_status add_metadata(rein_text *to, const char *path, const rein_metadata *metadata, size_t n, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    rein_metadata *sorted = malloc(n * sizeof *sorted);
    rein_status status = REIN_OK;
    if (!sorted) return rein_no_memory(err);
    memcpy(sorted, metadata, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_key);
    rein_text_put(to, "\"__metadata__\":{");
    for (size_t i = 0; i < n && !status; i++) {
        if (!is_utf8(sorted[i].key) || !is_utf8(sorted[i].value) || (i && !by_key(&sorted[i - 1], &sorted[i])))
            status = rein_fail(err, REIN_EINVAL, "%s: metadata is not UTF-8, or has a key twice", rein_path_show(shown, path));
        if (i) rein_text_put(to, ",");
        rein_json_put_string(to, sorted[i].key);
        rein_text_put(to, ":");
        rein_json_put_string(to, sorted[i].value);
    }
    rein_text_put(to, "}");
    free(sorted);
    return status;
}

/* Writes the header with the 8 bytes of its length, which are filled in last. */
static rein_status write_header(rein_text *to, const char *path, const rein_tensor **tensors, size_t n,
                                const rein_metadata *metadata, size_t n_metadata, rein_error *err) {
    static const rein_metadata pytorch = {"format", "pt"};
    char shown[REIN_PATH_SHOWN];
    size_t begin = 0;
    rein_text_put_bytes(to, "\0\0\0\0\0\0\0\0{", 9);
    const rein_status status = add_metadata(to, path, n_metadata ? metadata : &pytorch, n_metadata ? n_metadata : 1, err);
    if (status) return status;
    for (size_t i = 0; i < n; begin += tensors[i]->bytes, i++) {
        rein_text_put(to, ",");
        add_tensor(to, tensors[i], begin);
    }
    rein_text_put(to, "}");
    while (to->length % ALIGNMENT && !to->failed) rein_text_put_bytes(to, " ", 1);
    if (to->failed) return rein_text_status(to, err);
    const uint64_t length = to->length - ALIGNMENT;
    if (length > REIN_MAX_HEADER)
        return rein_fail(err, REIN_EINVAL, "%s: the header would have %llu bytes; readers accept at most %d",
                         rein_path_show(shown, path), (unsigned long long)length, REIN_MAX_HEADER);
    for (int i = 0; i < ALIGNMENT; i++) to->data[i] = (char)(unsigned char)(length >> 8 * i);
    return REIN_OK;
}

rein_status rein_tensors_write_generated(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                                         size_t n_metadata, rein_tensor_put *put, void *context, rein_error *err) {
    const rein_tensor **sorted = NULL;
    rein_text header = {0};
    rein_writer writer = {0};
    rein_status status = sort_tensors(&sorted, path, tensors, n, err);
    if (!status) status = write_header(&header, path, sorted, n, metadata, n_metadata, err);
    if (!status) status = rein_writer_open(&writer, path, err);
    if (!status) status = rein_writer_put(&writer, header.data, header.length, err);
    for (size_t i = 0; i < n && !status; i++) status = put(&writer, (size_t)(sorted[i] - tensors), context, err);
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    rein_text_free(&header);
    free(sorted);
    return status;
}

static rein_status put_data(rein_writer *writer, size_t i, void *context, rein_error *err) {
    const rein_tensor *tensor = (const rein_tensor *)context + i;
    return rein_writer_put(writer, tensor->data, tensor->bytes, err);
}

rein_status rein_tensors_write(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                               size_t n_metadata, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN];
    for (size_t i = 0; i < n; i++)
        if (!tensors[i].data && tensors[i].bytes)
            return rein_fail(err, REIN_EINVAL, "%s: tensor %s has no data", rein_path_show(shown, path),
                             rein_json_quote(quoted, tensors[i].name ? tensors[i].name : ""));
    return rein_tensors_write_generated(path, tensors, n, metadata, n_metadata, put_data, (void *)(uintptr_t)tensors, err);
}
