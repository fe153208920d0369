/* gguf_write.c - the format: pairs, the list of tensors, and the data, each tensor at a multiple of 32 bytes. */
#include "gguf_write.h"

#include <string.h>

#include "base/base.h"

enum { ALIGNMENT = 32, VERSION = 3 };

/* ------------------------------------------------------------------------------------------------------------------------ pairs */

void rein_gguf_pairs_free(rein_gguf_pairs *pairs) { rein_text_free(&pairs->bytes); }

void rein_gguf_add_bytes(rein_gguf_pairs *to, const void *bytes, size_t length) { rein_text_put_bytes(&to->bytes, bytes, length); }

static void add_u32(rein_gguf_pairs *to, uint32_t x) { rein_gguf_add_bytes(to, &x, sizeof x); }
static void add_u64(rein_gguf_pairs *to, uint64_t x) { rein_gguf_add_bytes(to, &x, sizeof x); }

void rein_gguf_add_string(rein_gguf_pairs *to, const char *bytes, size_t length) {
    add_u64(to, length);
    rein_gguf_add_bytes(to, bytes, length);
}

static void add_key(rein_gguf_pairs *to, const char *key, size_t length, rein_gguf_kind kind) {
    rein_gguf_add_string(to, key, length);
    add_u32(to, (uint32_t)kind);
    to->n++;
}

void rein_gguf_put_u32(rein_gguf_pairs *to, const char *key, uint32_t x) {
    add_key(to, key, strlen(key), REIN_GGUF_U32);
    add_u32(to, x);
}

void rein_gguf_put_f32(rein_gguf_pairs *to, const char *key, double x) {
    const float narrow = (float)x;
    add_key(to, key, strlen(key), REIN_GGUF_F32);
    rein_gguf_add_bytes(to, &narrow, sizeof narrow);
}

void rein_gguf_put_bool(rein_gguf_pairs *to, const char *key, int x) {
    const char byte = x != 0;
    add_key(to, key, strlen(key), REIN_GGUF_BOOL);
    rein_gguf_add_bytes(to, &byte, 1);
}

void rein_gguf_put_string(rein_gguf_pairs *to, const char *key, const char *bytes, size_t length) {
    add_key(to, key, strlen(key), REIN_GGUF_STRING);
    rein_gguf_add_string(to, bytes, length);
}

void rein_gguf_put_text(rein_gguf_pairs *to, const char *key, const char *text) {
    rein_gguf_put_string(to, key, text, strlen(text));
}

void rein_gguf_put_array(rein_gguf_pairs *to, const char *key, rein_gguf_kind element, uint64_t count) {
    add_key(to, key, strlen(key), REIN_GGUF_ARRAY);
    add_u32(to, (uint32_t)element);
    add_u64(to, count);
}

/* ------------------------------------------------------------------------------------------------------ pairs of another file */

static size_t bytes_of(rein_gguf_kind kind) {
    static const unsigned char sizes[REIN_GGUF_KINDS] = {
        [REIN_GGUF_U8] = 1,  [REIN_GGUF_I8] = 1,  [REIN_GGUF_U16] = 2, [REIN_GGUF_I16] = 2,
        [REIN_GGUF_U32] = 4, [REIN_GGUF_I32] = 4, [REIN_GGUF_F32] = 4, [REIN_GGUF_BOOL] = 1,
        [REIN_GGUF_U64] = 8, [REIN_GGUF_I64] = 8, [REIN_GGUF_F64] = 8};
    return sizes[kind];
}

/* The end of the elements of an array, which were checked when the file was opened. Arrays are nested at most REIN_GGUF_DEPTH deep. */
static const unsigned char *array_end(const unsigned char *at, rein_gguf_kind element,
                                      uint64_t count) { /* NOLINT(misc-no-recursion) */
    if (element != REIN_GGUF_STRING && element != REIN_GGUF_ARRAY) return at + count * bytes_of(element);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t kind;
        uint64_t n;
        if (element == REIN_GGUF_STRING) {
            rein_gguf_next_text(&at);
            continue;
        }
        memcpy(&kind, at, sizeof kind);
        memcpy(&n, at + sizeof kind, sizeof n);
        at = array_end(at + sizeof kind + sizeof n, (rein_gguf_kind)kind, n);
    }
    return at;
}

void rein_gguf_put_pair(rein_gguf_pairs *to, const rein_gguf_pair *pair) {
    const rein_gguf_value *value = &pair->value;
    add_key(to, pair->key.bytes, pair->key.length, value->kind);
    if (value->kind == REIN_GGUF_STRING) rein_gguf_add_string(to, (const char *)value->bytes, value->count);
    else if (value->kind != REIN_GGUF_ARRAY) rein_gguf_add_bytes(to, value->bytes, bytes_of(value->kind));
    else {
        add_u32(to, (uint32_t)value->element);
        add_u64(to, value->count);
        rein_gguf_add_bytes(to, value->bytes, (size_t)(array_end(value->bytes, value->element, value->count) - value->bytes));
    }
}

/* ---------------------------------------------------------------------------------------------------------------------- tensors */

uint32_t rein_gguf_number_of(rein_tensor_type dtype) {
    uint32_t number = 0;
    while (!rein_gguf_type_at(number).known || rein_gguf_type_at(number).dtype != dtype) number++;
    return number;
}

size_t rein_gguf_row(size_t row, size_t rows, size_t pairs) {
    if (!pairs) return row;
    const size_t each = rows / pairs, in_head = row % each;
    return row - in_head + in_head / 2 + (in_head % 2 ? each / 2 : 0);
}

size_t rein_gguf_pairs_in(const rein_gguf_family *family, const rein_model_config *config, const char *name) {
    int layer;
    const char *middle, *end;
    size_t length;
    if (!family->pairs || !rein_gguf_split_name(&layer, &middle, &length, &end, name) || layer < 0) return 0;
    if (!strncmp(middle, "attn_q.", 7)) return (size_t)config->n_heads;
    return !strncmp(middle, "attn_k.", 7) ? (size_t)config->n_kv_heads : 0;
}

static uint64_t aligned(uint64_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The bytes and the places of all tensors. */
static rein_status place(rein_gguf_tensor *tensors, size_t n, rein_error *err) {
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        rein_gguf_tensor *t = &tensors[i];
        const rein_gguf_type type = rein_gguf_type_at(t->type);
        size_t elements = 1;
        for (int d = 0; d < t->n_dims; d++) elements *= t->sizes[d];
        if (t->sizes[0] % type.elements)
            return rein_fail(err, REIN_EINVAL, "%s has rows of %zu numbers: %s needs a multiple of %zu", t->name, t->sizes[0],
                             type.name, type.elements);
        t->bytes = elements / type.elements * type.bytes;
        t->offset = offset;
        offset = aligned(offset + t->bytes);
    }
    return REIN_OK;
}

static void put_list(rein_gguf_pairs *to, const rein_gguf_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const rein_gguf_tensor *t = &tensors[i];
        rein_gguf_add_string(to, t->name, strlen(t->name));
        add_u32(to, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) add_u64(to, t->sizes[d]);
        add_u32(to, t->type);
        add_u64(to, t->offset);
    }
}

/* Everything before the data. */
static rein_status make_head(rein_gguf_pairs *head, const rein_gguf_pairs *pairs, const rein_gguf_tensor *tensors, size_t n,
                             rein_error *err) {
    static const char zeros[ALIGNMENT] = {0};
    const rein_status status = rein_text_status(&pairs->bytes, err);
    if (status) return status;
    rein_gguf_add_bytes(head, "GGUF", 4);
    add_u32(head, VERSION);
    add_u64(head, n);
    add_u64(head, pairs->n);
    rein_gguf_add_bytes(head, pairs->bytes.data, pairs->bytes.length);
    put_list(head, tensors, n);
    rein_gguf_add_bytes(head, zeros, (size_t)aligned(head->bytes.length) - head->bytes.length);
    return rein_text_status(&head->bytes, err);
}

static rein_status put_data(rein_writer *writer, const rein_gguf_tensor *tensors, size_t n, rein_tensor_put *put, void *context,
                            rein_error *err) {
    static const char zeros[ALIGNMENT] = {0};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        status = put(writer, i, context, err);
        if (!status) status = rein_writer_put(writer, zeros, (size_t)aligned(tensors[i].bytes) - tensors[i].bytes, err);
    }
    return status;
}

rein_status rein_gguf_write(const char *path, const rein_gguf_pairs *pairs, rein_gguf_tensor *tensors, size_t n,
                            rein_tensor_put *put, void *context, rein_error *err) {
    rein_gguf_pairs head = {0};
    rein_writer writer = {0};
    rein_status status = place(tensors, n, err);
    if (!status) status = make_head(&head, pairs, tensors, n, err);
    if (!status) status = rein_writer_open(&writer, path, err);
    if (!status) status = rein_writer_put(&writer, head.bytes.data, head.bytes.length, err);
    if (!status) status = put_data(&writer, tensors, n, put, context, err);
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    rein_gguf_pairs_free(&head);
    return status;
}
