/* gguf.c - reads a GGUF file: header, metadata and the descriptions of tensors. Every count, length and offset is checked before it is
 * used; what is stored is bounded by the size of the file and by the limits of gguf.h. */
#include "gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_read.h"
#include "unicode.h"

enum { SMALLEST_PAIR = 8 + 1 + 4 + 1, SMALLEST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8, ALIGNMENT = 32 };
static const char ALIGNMENT_KEY[] = "general.alignment";

rein_status rein_gguf_wrong(const rein_gguf *gguf, const char *key, rein_error *err, const char *format, ...) {
    char shown[REIN_PATH_SHOWN], reason[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return rein_fail(err, REIN_EINVAL, "%s: %s %s", rein_path_show(shown, gguf->files[0].path), key, reason);
}

/* ------------------------------------------------------------------------------------------------------------------------ bytes */

/* The first mistake is kept. */
static rein_status fail(reading *in, const char *format, ...) REIN_PRINTF(2, 3);
static rein_status fail(reading *in, const char *format, ...) {
    char shown[REIN_PATH_SHOWN], reason[sizeof in->err->message];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return in->status = rein_fail(in->err, REIN_EINVAL, "%s: %s", rein_path_show(shown, in->path), reason);
}

static size_t left(const reading *in) { return (size_t)(in->end - in->at); }

/* The next n bytes; NULL: the file ends before. */
static const unsigned char *take(reading *in, size_t n, const char *what) {
    const unsigned char *bytes = in->at;
    if (in->status) return NULL;
    if (left(in) < n) {
        fail(in, "%s at byte %zu needs %zu bytes, but the file has %zu more: was it cut short?", what, (size_t)(in->at - in->begin),
             n, left(in));
        return NULL;
    }
    in->at += n;
    return bytes;
}

static uint64_t number_at(const unsigned char *bytes, size_t n) {
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint64_t)bytes[i] << 8 * i;
    return x;
}

static uint64_t take_number(reading *in, size_t n, const char *what) {
    const unsigned char *bytes = take(in, n, what);
    return bytes ? number_at(bytes, n) : 0;
}

static rein_gguf_text take_text(reading *in, size_t most, const char *what) {
    const uint64_t length = take_number(in, 8, what);
    if (!in->status && length > most)
        fail(in, "%s at byte %zu has %llu bytes: at most %zu are allowed", what, (size_t)(in->at - in->begin),
             (unsigned long long)length, most);
    const unsigned char *bytes = take(in, (size_t)length, what);
    return bytes ? (rein_gguf_text){(const char *)bytes, (size_t)length} : (rein_gguf_text){"", 0};
}

/* A name is UTF-8 without control characters, and not empty. */
static rein_gguf_text take_name(reading *in, size_t most, const char *what) {
    const rein_gguf_text name = take_text(in, most, what);
    int good = name.length && rein_utf8_valid(name.bytes, name.length) == name.length;
    for (size_t i = 0; i < name.length && good; i++) good = (unsigned char)name.bytes[i] >= ' ' && name.bytes[i] != 127;
    if (!good) fail(in, "%s before byte %zu is not text: is this a GGUF file?", what, (size_t)(in->at - in->begin));
    return name;
}

/* --------------------------------------------------------------------------------------------------------------------- metadata */

static const struct {
    const char *name;
    size_t bytes; /* 0: a string or an array */
} kinds[REIN_GGUF_KINDS] = {{"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
                            {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

const char *rein_gguf_kind_name(rein_gguf_kind kind) { return kinds[kind].name; }

static rein_gguf_kind take_kind(reading *in) {
    const uint64_t kind = take_number(in, 4, "the type of a value");
    if (!in->status && kind >= REIN_GGUF_KINDS)
        fail(in, "%.80s has type %llu: the types of values are 0 to %d", in->key, (unsigned long long)kind, REIN_GGUF_KINDS - 1);
    return in->status ? REIN_GGUF_U8 : (rein_gguf_kind)kind;
}

static void count_nodes(reading *in, uint64_t n) {
    if (in->status) return;
    if (n > REIN_GGUF_NODES - in->nodes)
        fail(in, "%.80s: the metadata has more than %d strings and arrays in arrays", in->key, REIN_GGUF_NODES);
    else in->nodes += (size_t)n;
}

static rein_gguf_value take_value(reading *in, rein_gguf_kind kind, int depth);

/* The elements of an array; they are only walked over. */
static void skip_elements(reading *in, rein_gguf_kind element, uint64_t count, int depth) {
    const size_t bytes = kinds[element].bytes;
    if (in->status) return;
    if (count > left(in) / (bytes ? bytes : 8)) {
        fail(in, "%.80s would have %llu elements, but the file has %zu more bytes: was it cut short?", in->key,
             (unsigned long long)count, left(in));
        return;
    }
    if (bytes) {
        const unsigned char *at = take(in, (size_t)count * bytes, "an array");
        for (uint64_t i = 0; element == REIN_GGUF_BOOL && at && i < count; i++)
            if (at[i] > 1) fail(in, "%.80s[%llu] is %d: a bool is 0 or 1", in->key, (unsigned long long)i, at[i]);
        return;
    }
    count_nodes(in, count);
    for (uint64_t i = 0; i < count && !in->status; i++) take_value(in, element, depth);
}

static rein_gguf_value take_array(reading *in, int depth) {
    rein_gguf_value array = {.kind = REIN_GGUF_ARRAY, .element = take_kind(in)};
    const uint64_t count = take_number(in, 8, "the length of an array");
    if (depth == REIN_GGUF_DEPTH) fail(in, "%.80s has arrays in arrays, more than %d deep", in->key, REIN_GGUF_DEPTH);
    array.bytes = in->at;
    skip_elements(in, array.element, count, depth + 1);
    array.count = in->status ? 0 : (size_t)count;
    return array;
}

static rein_gguf_value take_value(reading *in, rein_gguf_kind kind, int depth) {
    rein_gguf_value value = {.kind = kind, .element = kind, .count = 1};
    if (kind == REIN_GGUF_ARRAY) return take_array(in, depth);
    if (kind == REIN_GGUF_STRING) {
        const rein_gguf_text text = take_text(in, SIZE_MAX, "a string");
        value.bytes = (const unsigned char *)text.bytes, value.count = text.length;
        return value;
    }
    value.bytes = take(in, kinds[kind].bytes, "a value");
    if (kind == REIN_GGUF_BOOL && value.bytes && *value.bytes > 1) fail(in, "%.80s is %d: a bool is 0 or 1", in->key, *value.bytes);
    return value;
}

static int compare_texts(rein_gguf_text a, rein_gguf_text b) {
    const int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int by_key(const void *a, const void *b) {
    return compare_texts(((const rein_gguf_pair *)a)->key, ((const rein_gguf_pair *)b)->key);
}

static void take_pairs(reading *in, rein_gguf_file *file, size_t n) {
    file->pairs = in->status ? NULL : calloc(n + 1, sizeof *file->pairs);
    if (!in->status && !file->pairs) in->status = rein_no_memory(in->err);
    for (size_t i = 0; i < n && !in->status; i++) {
        rein_gguf_pair *pair = &file->pairs[i];
        snprintf(in->key, sizeof in->key, "the key of value %zu", i);
        pair->key = take_name(in, REIN_GGUF_KEY, in->key);
        snprintf(in->key, sizeof in->key, "%.*s", (int)(pair->key.length < 79 ? pair->key.length : 79), pair->key.bytes);
        pair->value = take_value(in, take_kind(in), 0);
        file->n_pairs = i + 1;
    }
    if (in->status) return;
    qsort(file->pairs, n, sizeof *file->pairs, by_key);
    for (size_t i = 1; i < n; i++)
        if (!compare_texts(file->pairs[i - 1].key, file->pairs[i].key))
            fail(in, "the key %.*s is given twice", (int)(file->pairs[i].key.length < 80 ? file->pairs[i].key.length : 80),
                 file->pairs[i].key.bytes);
}

/* ---------------------------------------------------------------------------------------------------------------------- tensors */

/* The bytes of a tensor: rows of whole blocks. */
static void measure(reading *in, rein_gguf_tensor *tensor) {
    const rein_gguf_type type = rein_gguf_type_at(tensor->type);
    size_t n = 1;
    if (in->status) return;
    if (!type.name) {
        fail(in, "tensor %s has type %lu, which is not known", tensor->name, (unsigned long)tensor->type);
        return;
    }
    for (int i = 0; i < tensor->n_dims && !in->status; i++) {
        if (tensor->sizes[i] && n > SIZE_MAX / tensor->sizes[i])
            fail(in, "tensor %s is too large: its size overflows", tensor->name);
        else n *= tensor->sizes[i];
    }
    if (in->status) return;
    if (tensor->sizes[0] % type.elements)
        fail(in, "tensor %s has rows of %zu numbers: %s needs a multiple of %zu", tensor->name, tensor->sizes[0], type.name,
             type.elements);
    else if (n / type.elements > SIZE_MAX / type.bytes) fail(in, "tensor %s is too large: its size overflows", tensor->name);
    else tensor->bytes = n / type.elements * type.bytes;
}

static void take_tensor(reading *in, rein_gguf_tensor *tensor) {
    const rein_gguf_text name = take_name(in, REIN_GGUF_NAME, "the name of a tensor");
    const uint64_t dims = take_number(in, 4, "the dimensions of a tensor");
    if (in->status) return;
    memcpy(tensor->name, name.bytes, name.length);
    if (dims > REIN_GGUF_DIMENSIONS) {
        fail(in, "tensor %s has %llu dimensions: at most %d are allowed", tensor->name, (unsigned long long)dims,
             REIN_GGUF_DIMENSIONS);
        return;
    }
    tensor->n_dims = (int)dims;
    for (int i = 0; i < REIN_GGUF_DIMENSIONS; i++) {
        const uint64_t size = i < tensor->n_dims ? take_number(in, 8, "the shape of a tensor") : 1;
        if (size > INT64_MAX) fail(in, "tensor %s is too large: its size overflows", tensor->name);
        tensor->sizes[i] = (size_t)size;
    }
    tensor->type = (uint32_t)take_number(in, 4, "the type of a tensor");
    tensor->offset = take_number(in, 8, "the place of a tensor");
    measure(in, tensor);
}

static int by_offset(const void *a, const void *b) {
    const rein_gguf_tensor *x = a, *y = b;
    return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
                                  : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors lie after the metadata, each at a multiple of the alignment, and share no byte. */
static void place_tensors(reading *in, rein_gguf_tensor *tensors, size_t n, size_t alignment) {
    const size_t used = (size_t)(in->at - in->begin), pad = (alignment - used % alignment) % alignment;
    if (in->status) return;
    const size_t available = left(in) > pad ? left(in) - pad : 0;
    const unsigned char *data = in->at + (left(in) > pad ? pad : left(in));
    qsort(tensors, n, sizeof *tensors, by_offset);
    for (size_t i = 0; i < n && !in->status; i++) {
        rein_gguf_tensor *t = &tensors[i];
        const rein_gguf_tensor *before = i ? &tensors[i - 1] : NULL;
        if (t->offset % alignment)
            fail(in, "tensor %s begins at byte %llu of the data: a multiple of %zu is needed", t->name,
                 (unsigned long long)t->offset, alignment);
        else if (t->offset > available || t->bytes > available - t->offset)
            fail(in, "tensor %s has bytes %llu to %llu of the data, of which there are %zu: was the file cut short?", t->name,
                 (unsigned long long)t->offset, (unsigned long long)(t->offset + t->bytes), available);
        else if (before && before->offset + before->bytes > t->offset) fail(in, "tensors %s and %s overlap", before->name, t->name);
        else t->data = data + t->offset;
    }
}

/* ------------------------------------------------------------------------------------------------------------------------- file */

static const rein_gguf_value *find_value(const rein_gguf_file *file, const char *key) {
    const rein_gguf_text wanted = {key, strlen(key)};
    size_t low = 0, high = file->n_pairs;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_texts(wanted, file->pairs[middle].key);
        if (!order) return &file->pairs[middle].value;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

static size_t alignment_of(reading *in, const rein_gguf_file *file) {
    const rein_gguf_value *value = find_value(file, ALIGNMENT_KEY);
    if (!value || in->status) return ALIGNMENT;
    const uint64_t alignment = value->kind == REIN_GGUF_U32 ? number_at(value->bytes, 4) : 0;
    if (alignment < 8 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        fail(in, "%s is not a power of two from 8 to %d, as u32", ALIGNMENT_KEY, 1 << 20);
    return in->status ? ALIGNMENT : (size_t)alignment;
}

static void check_version(reading *in) {
    const unsigned char *magic = take(in, 4, "the letters GGUF");
    if (magic && memcmp(magic, "GGUF", 4) != 0) fail(in, "the file does not begin with the letters GGUF");
    const uint64_t version = take_number(in, 4, "the version");
    if (!in->status && (version & 0xFFFF) == 0 && version) fail(in, "the file is big-endian: a little-endian one is needed");
    if (!in->status && version != 2 && version != 3)
        fail(in, "this is version %llu of GGUF: 2 and 3 are supported", (unsigned long long)version);
}

static size_t take_count(reading *in, size_t smallest, size_t most, const char *what) {
    const uint64_t n = take_number(in, 8, what);
    if (in->status) return 0;
    if (n > most) fail(in, "the file would have %llu %s: at most %zu are supported", (unsigned long long)n, what, most);
    else if (n > left(in) / smallest)
        fail(in, "the file would have %llu %s, but has only %zu more bytes: was it cut short?", (unsigned long long)n, what,
             left(in));
    return in->status ? 0 : (size_t)n;
}

rein_status rein_gguf_read_file(rein_gguf_file *file, rein_gguf_tensor **tensors, size_t *n_tensors, rein_error *err) {
    const unsigned char *bytes = file->file.data;
    reading in = {.path = file->path, .begin = bytes, .at = bytes, .end = bytes + file->file.size, .err = err};
    check_version(&in);
    const size_t n = take_count(&in, SMALLEST_TENSOR, REIN_GGUF_TENSORS, "tensors");
    const size_t n_pairs = take_count(&in, SMALLEST_PAIR, REIN_GGUF_PAIRS, "values");
    take_pairs(&in, file, n_pairs);
    const size_t alignment = alignment_of(&in, file);
    if (in.status) return in.status;
    rein_gguf_tensor *list = calloc(n + 1, sizeof *list);
    if (!list) return rein_no_memory(err);
    for (size_t i = 0; i < n && !in.status; i++) take_tensor(&in, &list[i]);
    place_tensors(&in, list, n, alignment);
    *tensors = list, *n_tensors = n;
    return in.status;
}

const rein_gguf_value *rein_gguf_find(const rein_gguf *gguf, const char *key) { return find_value(&gguf->files[0], key); }
const rein_gguf_value *rein_gguf_find_in(const rein_gguf_file *file, const char *key) { return find_value(file, key); }

/* ---------------------------------------------------------------------------------------------------------------------- numbers */

double rein_gguf_number(const rein_gguf_value *value, size_t i) {
    if (!value || i >= value->count || !kinds[value->element].bytes) return 0;
    const size_t size = kinds[value->element].bytes;
    const unsigned char *bytes = value->bytes + i * size;
    const uint64_t x = number_at(bytes, size);
    float single;
    double wide;
    switch (value->element) {
    case REIN_GGUF_I8: return (int8_t)x;
    case REIN_GGUF_I16: return (int16_t)x;
    case REIN_GGUF_I32: return (int32_t)x;
    case REIN_GGUF_I64: return (double)(int64_t)x;
    case REIN_GGUF_F32: return memcpy(&single, bytes, sizeof single), (double)single;
    case REIN_GGUF_F64: return memcpy(&wide, bytes, sizeof wide), wide;
    default: return (double)x;
    }
}

rein_gguf_text rein_gguf_next_text(const unsigned char **at) {
    const rein_gguf_text text = {(const char *)*at + 8, (size_t)number_at(*at, 8)};
    *at += 8 + text.length;
    return text;
}
