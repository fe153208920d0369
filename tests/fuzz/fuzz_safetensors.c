/* fuzz_safetensors.c - any bytes as a model's files (libFuzzer). The first byte says what they are: 0 one file, else an index and
 * two shards, cut where the next four bytes say.
 *
 * Accepted: every tensor's bytes can be read, lie in order and are found by name, and the set written again and read again is the
 * same. Refused: REIN_EINVAL, one line says why. Anything else is a bug. */
/* words: src/model/safetensors*.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "fuzz/require.h"
#include "model/safetensors.h"
#include "model/weight_type.h"

static void check_refusal(rein_status status, const rein_error *err, const rein_tensors *tensors) {
    require(status == REIN_EINVAL, "the status is not EINVAL", "");
    require(*err->message && !strpbrk(err->message, "\r\n"), "the message is not one line", "");
    require(!tensors, "there is a handle after a failure", "");
}

static unsigned sum; /* so that reading is not optimised away */

static void check_tensor(const rein_tensors *tensors, const rein_tensor *t) {
    const unsigned char *bytes = t->data;
    size_t size = 0;
    for (size_t i = 0; i < t->bytes; i++) sum += bytes[i];
    require(rein_tensor_bytes(&size, t->dtype, t->shape, t->n_dims) && size == t->bytes, "the size is not the shape's", "");
    require(rein_tensors_find(tensors, t->name) == t, "a tensor is not found by its name", "");
    if (rein_weight_type_of(t->dtype))
        require((uintptr_t)t->data % rein_tensor_type_bytes(t->dtype, 1) == 0, "weights are not aligned", "");
}

/* Written and read again: the same tensors. */
static void check_round_trip(const rein_tensors *tensors) {
    static char path[] = "/tmp/fuzz_safetensors_000000000000";
    const size_t n = rein_tensors_count(tensors);
    rein_tensor *list = malloc((n + 1) * sizeof *list);
    rein_tensors *again;
    rein_error err;
    snprintf(path, sizeof path, "/tmp/fuzz_safetensors_%ld", (long)getpid());
    require(list != NULL, "no memory", "");
    for (size_t i = 0; i < n; i++) list[i] = *rein_tensors_at(tensors, i);
    require(rein_tensors_write(path, list, n, NULL, 0, &err) == REIN_OK, "it cannot be written", "");
    require(rein_tensors_open(&again, path, &err) == REIN_OK, "it cannot be read again", "");
    require(rein_tensors_count(again) == n, "the number of tensors is another", "");
    for (size_t i = 0; i < n; i++) {
        const rein_tensor *b = rein_tensors_find(again, list[i].name);
        require(b && b->dtype == list[i].dtype && b->bytes == list[i].bytes, "a tensor is another", "");
        require(b->bytes == 0 || !memcmp(b->data, list[i].data, b->bytes), "the numbers are others", "");
    }
    rein_tensors_close(again);
    remove(path);
    free(list);
}

static void check_set(const rein_tensors *tensors, int again) {
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) check_tensor(tensors, rein_tensors_at(tensors, i));
    if (again) check_round_trip(tensors);
}

static void try_files(const rein_tensors_memory *files, size_t n, const json_t *index, int again) {
    rein_tensors *tensors;
    rein_error err = {0};
    const rein_status status = rein_tensors_from_memory(&tensors, files, n, index, &err);
    if (status) check_refusal(status, &err, tensors);
    else check_set(tensors, again);
    rein_tensors_close(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int again = size % 16 == 0; /* a file each time would be slow, and what an input does is to depend on it alone */
    if (size < 1) return 0;
    if (data[0] == 0) {
        const rein_tensors_memory file = {"file", data + 1, size - 1};
        try_files(&file, 1, NULL, again);
        return 0;
    }
    if (size < 5) return 0;
    const uint8_t *rest = data + 5;
    size_t left = size - 5, index_size = data[1] | (size_t)data[2] << 8, first = data[3] | (size_t)data[4] << 8;
    if (index_size > left) index_size = left;
    left -= index_size;
    if (first > left) first = left;
    json_t *index;
    rein_error err;
    if (rein_json_parse(&index, (const char *)rest, index_size, "index", REIN_JSON_NEEDS_OBJECT, &err) != REIN_OK) return 0;
    const rein_tensors_memory files[2] = {{"1", rest + index_size, first}, {"2", rest + index_size + first, left - first}};
    try_files(files, 2, index, again);
    json_decref(index);
    return 0;
}
