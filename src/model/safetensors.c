/* safetensors.c - reads a safetensors file: header, types, shapes and offsets of all tensors are checked before any of them is
 * returned.
 *
 * A tensor whose bytes are not aligned for its type (old writers did not pad the header) is copied once, when the file is opened,
 * so that every returned pointer is aligned. */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "safetensors_index.h"
#include "weight_type.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and are used as they are mapped"
#endif

enum { PREFIX = 8 }; /* bytes before the header: its length */

/* Elements and bits of one block. */
static const struct {
    const char *name;
    size_t elements, bits;
} dtypes[REIN_TENSOR_TYPES] = {
    {"BOOL", 1, 8},        {"F4", 1, 4},         {"F6_E2M3", 1, 6},      {"F6_E3M2", 1, 6},      {"U8", 1, 8},
    {"I8", 1, 8},          {"F8_E5M2", 1, 8},    {"F8_E4M3", 1, 8},      {"F8_E8M0", 1, 8},      {"F8_E4M3FNUZ", 1, 8},
    {"F8_E5M2FNUZ", 1, 8}, {"I16", 1, 16},       {"U16", 1, 16},         {"F16", 1, 16},         {"BF16", 1, 16},
    {"I32", 1, 32},        {"U32", 1, 32},       {"F32", 1, 32},         {"C64", 1, 64},         {"F64", 1, 64},
    {"I64", 1, 64},        {"U64", 1, 64},       {"Q8_0", 32, 34 * 8},   {"Q4_0", 32, 18 * 8},   {"Q4_1", 32, 20 * 8},
    {"Q5_0", 32, 22 * 8},  {"Q5_1", 32, 24 * 8}, {"Q4_K", 256, 144 * 8}, {"Q5_K", 256, 176 * 8}, {"Q6_K", 256, 210 * 8}};

const char *rein_tensor_type_name(rein_tensor_type dtype) { return dtypes[dtype].name; }
size_t rein_tensor_type_elements(rein_tensor_type dtype) { return dtypes[dtype].elements; }
size_t rein_tensor_type_bytes(rein_tensor_type dtype, size_t n) { return n / dtypes[dtype].elements * dtypes[dtype].bits / 8; }

const char *rein_shape_show(char to[REIN_SHAPE_SHOWN], const size_t *shape, int n_dims) {
    size_t n = 1;
    to[0] = '[';
    for (int i = 0; i < n_dims; i++) n += (size_t)snprintf(to + n, REIN_SHAPE_SHOWN - n, "%s%zu", i ? ", " : "", shape[i]);
    snprintf(to + n, REIN_SHAPE_SHOWN - n, "]");
    return to;
}

int rein_tensor_bytes(size_t *bytes, rein_tensor_type dtype, const size_t *shape, int n_dims) {
    size_t n = 1;
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] && n > SIZE_MAX / shape[i]) return 0;
        n *= shape[i];
    }
    const size_t elements = dtypes[dtype].elements, bits = dtypes[dtype].bits, blocks = n / elements;
    if (elements > 1 && (n_dims == 0 || shape[n_dims - 1] % elements != 0)) return 0;
    if (blocks > SIZE_MAX / bits || blocks * bits % 8 != 0) return 0;
    *bytes = blocks * bits / 8;
    return 1;
}

/* -------------------------------------------------------------------------------------------------------- header entries */

static int find_dtype(rein_tensor_type *dtype, const char *name) {
    for (int i = 0; i < REIN_TENSOR_SAFETENSORS_TYPES; i++)
        if (!strcmp(name, dtypes[i].name)) return *dtype = (rein_tensor_type)i, 1;
    return 0;
}

static void read_shape(rein_tensor *tensor, rein_fields *in) {
    const json_t *shape = rein_fields_array(in, "shape");
    const size_t n = json_array_size(shape);
    if (!shape) rein_fields_wrong(in, "shape", NULL, "an array of whole numbers is needed");
    if (n > REIN_MAX_DIMENSIONS) rein_fields_wrong(in, "shape", shape, "at most %d dimensions are supported", REIN_MAX_DIMENSIONS);
    if (in->status) return;
    tensor->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(shape, i);
        char key[40];
        snprintf(key, sizeof key, "shape[%zu]", i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            rein_fields_wrong(in, key, size, "a whole number, 0 or more, is needed");
        else tensor->shape[i] = (size_t)json_integer_value(size);
    }
}

/* Reads the offsets of the tensor in the `available` bytes after the header, and checks its length against type and shape. */
static void read_offsets(rein_tensor *tensor, rein_entry *entry, size_t available, rein_fields *in) {
    static const char need[] = "two whole numbers, begin and end, are needed";
    const json_t *offsets = rein_fields_array(in, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2) rein_fields_wrong(in, "data_offsets", offsets, need);
    else if (!json_is_integer(begin) || json_integer_value(begin) < 0) rein_fields_wrong(in, "data_offsets[0]", begin, need);
    else if (!json_is_integer(end) || json_integer_value(end) < json_integer_value(begin))
        rein_fields_wrong(in, "data_offsets[1]", end, "a whole number not below the first offset, %lld, is needed",
                          (long long)json_integer_value(begin));
    else if ((unsigned long long)json_integer_value(end) > available)
        rein_fields_wrong(in, "data_offsets[1]", end, "the file has %zu bytes after its header; was it cut short?", available);
    if (in->status) return;
    entry->begin = (size_t)json_integer_value(begin);
    entry->end = (size_t)json_integer_value(end);
    char shown[REIN_SHAPE_SHOWN];
    rein_shape_show(shown, tensor->shape, tensor->n_dims);
    if (!rein_tensor_bytes(&tensor->bytes, tensor->dtype, tensor->shape, tensor->n_dims))
        rein_fields_wrong(in, "shape", json_object_get(in->object, "shape"),
                          "%s of %s is too large, or not a whole number of bytes", shown, rein_tensor_type_name(tensor->dtype));
    else if (tensor->bytes != entry->end - entry->begin)
        rein_fields_wrong(in, "data_offsets", offsets, "%s of %s has %zu bytes; these are %zu", shown,
                          rein_tensor_type_name(tensor->dtype), tensor->bytes, entry->end - entry->begin);
}

static rein_status read_entry(rein_entry *entry, const char *file, const char *name, const json_t *value, size_t available,
                              rein_error *err) {
    char shown[REIN_TEXT_SHOWN], path[REIN_TEXT_SHOWN + 8], shown_file[REIN_PATH_SHOWN], types[REIN_WEIGHT_TYPES_SHOWN];
    rein_fields in = {.object = value, .file = file, .path = path, .err = err};
    *entry = (rein_entry){.tensor = {.name = name, .file = file}};
    snprintf(path, sizeof path, "%s.", rein_json_quote(shown, name));
    if (!json_is_object(value))
        return rein_fail(err, REIN_EINVAL, "%s: %s is not an object: dtype, shape and data_offsets are needed",
                         rein_path_show(shown_file, file), shown);
    const char *dtype = rein_fields_string(&in, "dtype");
    if (dtype && !find_dtype(&entry->tensor.dtype, dtype))
        rein_fields_wrong(&in, "dtype", json_object_get(value, "dtype"), "not a type of the format; weights are %s",
                          rein_weight_types_show(types, "or"));
    read_shape(&entry->tensor, &in);
    if (!in.status) read_offsets(&entry->tensor, entry, available, &in);
    return in.status;
}

/* --------------------------------------------------------------------------------------------------------------------- one file */

static rein_status check_metadata(const rein_shard *shard, const json_t *metadata, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN];
    const char *key;
    json_t *value;
    if (!metadata || json_is_null(metadata)) return REIN_OK;
    rein_path_show(shown, shard->path);
    if (!json_is_object(metadata))
        return rein_fail(err, REIN_EINVAL, "%s: __metadata__ is not an object: an object of strings is needed", shown);
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (json_is_string(value)) continue;
        return rein_fail(err, REIN_EINVAL, "%s: __metadata__.%s is not a string", shown, rein_json_quote(quoted, key));
    }
    return REIN_OK;
}

static rein_status read_header(rein_shard *shard, size_t *data_at, rein_error *err) {
    const unsigned char *bytes = shard->file.data;
    const size_t size = shard->file.size;
    char shown[REIN_PATH_SHOWN];
    uint64_t length = 0;
    rein_path_show(shown, shard->path);
    if (size < PREFIX)
        return rein_fail(err, REIN_EINVAL, "%s has %zu bytes: a safetensors file starts with 8 bytes, the length of its header",
                         shown, size);
    for (int i = 0; i < PREFIX; i++) length |= (uint64_t)bytes[i] << 8 * i;
    if (length > REIN_MAX_HEADER)
        return rein_fail(err, REIN_EINVAL,
                         "%s: the header would have %llu bytes; at most %d are allowed: is this a safetensors file?", shown,
                         (unsigned long long)length, REIN_MAX_HEADER);
    if (length > size - PREFIX)
        return rein_fail(err, REIN_EINVAL, "%s: the header would have %llu bytes, but the file has %zu: was it cut short?", shown,
                         (unsigned long long)length, size);
    if (length == 0 || bytes[PREFIX] != '{') return rein_fail(err, REIN_EINVAL, "%s: the header does not start with {", shown);
    *data_at = PREFIX + (size_t)length;
    const rein_status status =
        rein_json_parse(&shard->header, (const char *)bytes + PREFIX, (size_t)length, shard->path, REIN_JSON_NEEDS_OBJECT, err);
    return status ? status : check_metadata(shard, json_object_get(shard->header, "__metadata__"), err);
}

static int by_offset(const void *a, const void *b) {
    const rein_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* The tensors must follow each other without gaps, from the end of the header to the end of the file. */
static rein_status check_layout(const rein_shard *shard, const rein_entry *entries, size_t n, size_t available, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN];
    size_t at = 0;
    rein_path_show(shown, shard->path);
    for (size_t i = 0; i < n; i++) {
        const rein_entry *e = &entries[i];
        if (e->begin != at)
            return rein_fail(err, REIN_EINVAL, "%s: %s begins at byte %zu, but the tensor before it ends at %zu: there is %s",
                             shown, rein_json_quote(quoted, e->tensor.name), e->begin, at, e->begin < at ? "an overlap" : "a gap");
        at = e->end;
    }
    if (at == available) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s: the tensors end at byte %zu, but the file has %zu bytes after its header: %zu too many",
                     shown, at, available, available - at);
}

static rein_status grow(rein_tensors *all, size_t more, rein_error *err) {
    const size_t n = all->n + more;
    rein_entry *entries = n > SIZE_MAX / sizeof *entries ? NULL : realloc(all->entries, (n ? n : 1) * sizeof *entries);
    if (!entries) return rein_no_memory(err);
    all->entries = entries;
    return REIN_OK;
}

rein_status rein_shard_read(rein_tensors *all, rein_shard *shard, rein_error *err) {
    size_t data_at = 0, n = 0;
    const char *name;
    json_t *value;
    rein_status status = read_header(shard, &data_at, err);
    if (!status) status = grow(all, json_object_size(shard->header), err);
    if (status) return status;
    rein_entry *entries = all->entries + all->n;
    const size_t available = shard->file.size - data_at;
    json_object_foreach(shard->header, name, value) {
        if (!strcmp(name, "__metadata__")) continue;
        status = read_entry(&entries[n++], shard->path, name, value, available, err);
        if (status) return status;
    }
    qsort(entries, n, sizeof *entries, by_offset);
    status = check_layout(shard, entries, n, available, err);
    for (size_t i = 0; i < n && !status; i++) entries[i].tensor.data = shard->file.data + data_at + entries[i].begin;
    if (!status) all->n += n;
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- alignment */

static int misaligned(const rein_tensor *tensor) {
    return rein_weight_type_of(tensor->dtype) && (uintptr_t)tensor->data % rein_tensor_type_bytes(tensor->dtype, 1) != 0;
}

/* The size of a copy, rounded up so that the next one is aligned too. It is never 0, so that an empty tensor has an aligned
 * pointer too. */
static size_t padded_size(const rein_tensor *tensor) {
    enum { UNIT = 16 };
    return tensor->bytes / UNIT * UNIT + UNIT;
}

rein_status rein_tensors_align(rein_tensors *all, rein_error *err) {
    size_t total = 0;
    for (size_t i = 0; i < all->n; i++) /* cannot overflow: the bytes are mapped */
        if (misaligned(&all->entries[i].tensor)) total += padded_size(&all->entries[i].tensor);
    if (total == 0) return REIN_OK;
    unsigned char *to = all->copies = malloc(total);
    if (!to) return rein_fail(err, REIN_ENOMEM, "out of memory: %zu bytes of weights are not aligned and need a copy", total);
    for (size_t i = 0; i < all->n; i++) {
        rein_tensor *tensor = &all->entries[i].tensor;
        if (!misaligned(tensor)) continue;
        const size_t size = padded_size(tensor);
        memcpy(to, tensor->data, tensor->bytes);
        tensor->data = to;
        to += size;
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- lookup */

size_t rein_tensors_count(const rein_tensors *tensors) { return tensors->n; }
const rein_tensor *rein_tensors_at(const rein_tensors *tensors, size_t i) { return &tensors->entries[i].tensor; }
const char *rein_tensors_name(const rein_tensors *tensors) { return tensors->name; }

const rein_tensor *rein_tensors_find(const rein_tensors *tensors, const char *name) {
    size_t low = 0, high = tensors->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, tensors->by_name[middle]->tensor.name);
        if (order == 0) return &tensors->by_name[middle]->tensor;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

rein_status rein_tensors_weight(const rein_tensor **tensor, const rein_tensors *tensors, const char *name, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN], types[REIN_WEIGHT_TYPES_SHOWN];
    const rein_tensor *found = rein_tensors_find(tensors, name);
    *tensor = NULL;
    rein_json_quote(quoted, name);
    if (!found) return rein_fail(err, REIN_EINVAL, "%s: tensor %s is missing", rein_path_show(shown, tensors->name), quoted);
    if (!rein_weight_type_of(found->dtype))
        return rein_fail(err, REIN_EINVAL, "%s: tensor %s is %s: weights are %s here", rein_path_show(shown, found->file), quoted,
                         rein_tensor_type_name(found->dtype), rein_weight_types_show(types, "or"));
    *tensor = found;
    return REIN_OK;
}

const char *rein_tensors_metadata(const rein_tensors *tensors, const char *key) {
    if (tensors->n_shards == 0) return NULL;
    return json_string_value(json_object_get(json_object_get(tensors->shards[0].header, "__metadata__"), key));
}
