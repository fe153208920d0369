/* test_safetensors.c - files that Hugging Face wrote are read number by number; every rule of the format has a file
 * that breaks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "model/safetensors.h"
#include "model/tensor_files.h"
#include "model/weight_type.h"
#include "support/allocation.h"

/* ---- files of others */

/* Element i of a fixture's tensor is i + the length of its name. */
static void check_counts(const rein_tensor *t) {
    const size_t elements = t->bytes / rein_tensor_type_bytes(t->dtype, 1);
    for (size_t i = 0; i < elements; i++) {
        const float expected = (float)(strlen(t->name) + i);
        float got = 0;
        uint32_t bits;
        if (t->dtype == REIN_TENSOR_F32) got = ((const float *)t->data)[i];
        else if (t->dtype == REIN_TENSOR_BF16) {
            bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
            memcpy(&got, &bits, 4);
        } else { /* a normal half of small size */
            const uint16_t half = ((const uint16_t *)t->data)[i];
            bits = (uint32_t)(half & 0x7FFF) << 13;
            bits += (uint32_t)(127 - 15) << 23;
            memcpy(&got, &bits, 4);
        }
        assert_true(got == expected);
    }
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        const char *name;
        rein_tensor_type dtype;
    } expected[] = {{"bool", REIN_TENSOR_BOOL},
                    {"uint8", REIN_TENSOR_U8},
                    {"int8", REIN_TENSOR_I8},
                    {"float8_e5m2", REIN_TENSOR_F8_E5M2},
                    {"float8_e4m3fn", REIN_TENSOR_F8_E4M3},
                    {"int16", REIN_TENSOR_I16},
                    {"uint16", REIN_TENSOR_U16},
                    {"float16", REIN_TENSOR_F16},
                    {"bfloat16", REIN_TENSOR_BF16},
                    {"int32", REIN_TENSOR_I32},
                    {"uint32", REIN_TENSOR_U32},
                    {"float32", REIN_TENSOR_F32},
                    {"float64", REIN_TENSOR_F64},
                    {"int64", REIN_TENSOR_I64},
                    {"uint64", REIN_TENSOR_U64},
                    {"complex64", REIN_TENSOR_C64}};
    rein_tensors *tensors = opened(fixture("types.safetensors"));
    assert_int_equal(rein_tensors_count(tensors), COUNT(expected) + 2);
    for (size_t i = 0; i < COUNT(expected); i++) {
        const rein_tensor *t = rein_tensors_find(tensors, expected[i].name);
        const rein_tensor *weight;
        rein_error err;
        assert_non_null(t);
        assert_int_equal(t->dtype, expected[i].dtype);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->shape[0] * 10 + t->shape[1], 23);
        assert_int_equal(t->bytes, rein_tensor_type_bytes(t->dtype, 6));
        const rein_status status = rein_tensors_weight(&weight, tensors, expected[i].name, &err);
        if (rein_weight_type_of(t->dtype)) {
            assert_int_equal(status, REIN_OK);
            assert_ptr_equal(weight, t);
            check_counts(t);
        } else {
            assert_int_equal(status, REIN_EINVAL);
            assert_null(weight);
            says(&err, rein_tensor_type_name(t->dtype));
            says(&err, "F32, BF16 or F16");
        }
    }
    rein_tensors_close(tensors);
}

static void test_scalar_nothing_and_metadata(void **state) {
    (void)state;
    rein_tensors *tensors = opened(fixture("types.safetensors"));
    const rein_tensor *scalar = rein_tensors_find(tensors, "scalar"), *nothing = rein_tensors_find(tensors, "nothing");
    char shown[REIN_SHAPE_SHOWN];
    assert_int_equal(scalar->n_dims, 0);
    check_counts(scalar);
    assert_int_equal(nothing->bytes, 0);
    assert_string_equal(rein_shape_show(shown, nothing->shape, nothing->n_dims), "[0, 4]");
    assert_string_equal(rein_shape_show(shown, scalar->shape, scalar->n_dims), "[]");
    assert_string_equal(rein_tensors_metadata(tensors, "made by"), "généré");
    assert_null(rein_tensors_metadata(tensors, "none"));
    assert_null(rein_tensors_find(tensors, "none"));
    rein_tensors_close(tensors);
    tensors = opened(fixture("empty.safetensors"));
    assert_int_equal(rein_tensors_count(tensors), 0);
    assert_null(rein_tensors_find(tensors, "x"));
    assert_null(rein_tensors_metadata(tensors, "x"));
    rein_tensors_close(tensors);
}

/* In the order of the bytes. */
static void test_order(void **state) {
    (void)state;
    rein_tensors *tensors = opened(fixture("types.safetensors"));
    const char *end = NULL;
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) {
        const rein_tensor *t = rein_tensors_at(tensors, i);
        if (end) assert_ptr_equal(t->data, end);
        end = (const char *)t->data + t->bytes;
    }
    rein_tensors_close(tensors);
}

static void test_sharded(void **state) {
    (void)state;
    static const char *const order[] = {"first", "second", "third"};
    rein_tensors *tensors = opened(fixture("sharded"));
    assert_int_equal(rein_tensors_count(tensors), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(rein_tensors_at(tensors, i)->name, order[i]);
        check_counts(rein_tensors_at(tensors, i));
    }
    assert_non_null(strstr(rein_tensors_find(tensors, "third")->file, "model-00002-of-00002"));
    rein_tensors_close(tensors);
}

static void test_unaligned(void **state) {
    (void)state;
    rein_tensors *tensors = opened(fixture("unaligned.safetensors"));
    for (size_t i = 0; i < 2; i++) {
        const rein_tensor *t = rein_tensors_at(tensors, i);
        assert_int_equal((uintptr_t)t->data % rein_tensor_type_bytes(t->dtype, 1), 0);
        check_counts(t);
    }
    rein_tensors_close(tensors);
    static const char nothing[] = "\x3A\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}         ";
    for (size_t shift = 0; shift < 4; shift++) { /* a tensor without elements keeps the promise too */
        _Alignas(8) char bytes[80];
        const rein_tensors_memory memory = {"nothing", memcpy(bytes + shift, nothing, 8 + 0x3A), 8 + 0x3A};
        assert_int_equal(rein_tensors_from_memory(&tensors, &memory, 1, NULL, NULL), REIN_OK);
        assert_int_equal((uintptr_t)rein_tensors_at(tensors, 0)->data % 4, 0);
        rein_tensors_close(tensors);
    }
}

/* Whatever a file was cut to, it is refused. */
static void test_truncated_anywhere(void **state) {
    (void)state;
    rein_file file;
    assert_int_equal(rein_file_map(&file, fixture("types.safetensors"), NULL), REIN_OK);
    for (size_t size = 0; size <= file.size; size++) {
        unsigned char *exact = malloc(size + 1); /* a reader that goes beyond is seen by the sanitizer */
        assert_non_null(exact);
        memcpy(exact, file.data, size);
        const rein_tensors_memory memory = {"cut", exact, size};
        rein_tensors *tensors;
        rein_error err = {0};
        const rein_status status = rein_tensors_from_memory(&tensors, &memory, 1, NULL, &err);
        assert_int_equal(status, size == file.size ? REIN_OK : REIN_EINVAL);
        if (status) says(&err, "cut");
        rein_tensors_close(tensors);
        free(exact);
    }
    rein_file_unmap(&file);
}

/* ---- every rule */

/* A file of this header and so many bytes of data; for the caller to free. */
static rein_tensors_memory blob(const char *header, size_t data) {
    const size_t length = strlen(header);
    unsigned char *bytes = calloc(1, 8 + length + data);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    return (rein_tensors_memory){"bad.safetensors", bytes, 8 + length + data};
}

static rein_status try_header(const char *header, size_t data, rein_error *err) {
    const rein_tensors_memory memory = blob(header, data);
    rein_tensors *tensors;
    const rein_status status = rein_tensors_from_memory(&tensors, &memory, 1, NULL, err);
    rein_tensors_close(tensors);
    free((void *)(uintptr_t)memory.data);
    return status;
}

#define T(dtype, shape, begin, end) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void test_rules(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *said; /* NULL: fine */
    } cases[] = {
        {"{}", 0, NULL},
        {"{}      ", 0, NULL},
        {"{\"a\":" T("F32", "[2]", 0, 8) "}  ", 8, NULL},
        {"{\"b\":" T("F32", "[1]", 4, 8) ",\"a\":" T("F32", "[1]", 0, 4) "}", 8, NULL},
        {"{\"a\":" T("F32", "[0]", 0, 0) ",\"b\":" T("F32", "[]", 0, 4) "}", 4, NULL},
        {"{\"a\":" T("F4", "[4]", 0, 2) "}", 2, NULL},
        {"{\"__metadata__\":null}", 0, NULL},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, NULL},
        {"", 0, "the header does not start with {"},
        {" {}", 0, "the header does not start with {"},
        {"[]", 0, "the header does not start with {"},
        {"{} x", 0, "there is text after the JSON value"},
        {"{\"a\":", 0, "the file ends here"},
        {"{\"\xff\":1}", 0, "this is not UTF-8"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__.\"a\" is not a string"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"a\":" T("F32", "[]", 0, 4) ",\"a\":" T("F32", "[]", 0, 4) "}", 4, "is given twice"},
        {"{\"a\":1}", 0, "\"a\" is not an object: dtype"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "\"a\".dtype is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"a\".shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "\"a\".data_offsets is missing"},
        {"{\"a\":" T("F99", "[]", 0, 4) "}", 4, "\"a\".dtype is \"F99\": not a type of the format"},
        {"{\"a\":" T("f32", "[]", 0, 4) "}", 4, "not a type of the format"},
        {"{\"a\":" T("Q8_0", "[32]", 0, 34) "}", 34, "\"a\".dtype is \"Q8_0\": not a type of the format"},
        {"{\"a\":" T("F32", "[-1]", 0, 4) "}", 4, "\"a\".shape[0] is -1"},
        {"{\"a\":" T("F32", "[1.5]", 0, 4) "}", 4, "\"a\".shape[0] is 1.5"},
        {"{\"a\":" T("F32", "3", 0, 4) "}", 4, "\"a\".shape is 3: an array is needed"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "at most 8 dimensions"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", 0, 4) "}", 4, "is too large, or not a whole number"},
        {"{\"a\":" T("F32", "[4611686018427387905]", 0, 4) "}", 4, "is too large, or not a whole number"},
        {"{\"a\":" T("F4", "[3]", 0, 2) "}", 2, "is too large, or not a whole number"},
        {"{\"a\":" T("F32", "[99999999999999999999]", 0, 4) "}", 4, "beyond the range"},
        {"{\"a\":" T("F32", "[2]", 0, 4) "}", 4, "[2] of F32 has 8 bytes; these are 4"},
        {"{\"a\":" T("F32", "[1]", 4, 0) "}", 4, "\"a\".data_offsets[1] is 0: a whole number not below the first offset, 4"},
        {"{\"a\":" T("F32", "[1]", -4, 0) "}", 4, "\"a\".data_offsets[0] is -4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, "two whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,8]}}", 4, "two whole numbers"},
        {"{\"a\":" T("F32", "[2]", 0, 8) "}", 4, "the file has 4 bytes after its header; was it cut short?"},
        {"{\"a\":" T("F32", "[1]", 0, 4) "}", 5, "1 too many"},
        {"{}", 1, "1 too many"},
        {"{\"a\":" T("F32", "[1]", 4, 8) "}", 8, "there is a gap"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 8, 12) "}", 12, "\"b\" begins at byte 8"},
        {"{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[1]", 4, 8) "}", 8, "there is an overlap"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 0, 4) "}", 4, "there is an overlap"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_error err = {0};
        const rein_status status = try_header(cases[i].header, cases[i].data, &err);
        if (!cases[i].said && status) fail_msg("%s: %s", cases[i].header, err.message);
        if (!cases[i].said) continue;
        if (status != REIN_EINVAL) fail_msg("%s: status %d", cases[i].header, (int)status);
        says(&err, "bad.safetensors");
        says(&err, cases[i].said);
    }
}

static void test_header_length(void **state) {
    (void)state;
    static const struct {
        unsigned char length[8];
        const char *said;
    } cases[] = {{{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, "18446744073709551615 bytes; at most 100000000"},
                 {{0x01, 0xE1, 0xF5, 0x05}, "100000001 bytes; at most"},
                 {{0x00, 0xE1, 0xF5, 0x05}, "100000000 bytes, but the file has 10: was it cut short?"},
                 {{3}, "would have 3 bytes, but the file has 10"},
                 {{0}, "does not start with {"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char bytes[10] = {[8] = '{', [9] = '}'};
        rein_tensors *tensors;
        rein_error err;
        memcpy(bytes, cases[i].length, 8);
        const rein_tensors_memory memory = {"bad", bytes, sizeof bytes};
        assert_int_equal(rein_tensors_from_memory(&tensors, &memory, 1, NULL, &err), REIN_EINVAL);
        assert_null(tensors);
        says(&err, cases[i].said);
    }
}

/* ---- the index */
static void test_index_rules(void **state) {
    (void)state;
    static const struct {
        const char *index, *said;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", NULL},
        {"{\"metadata\":{},\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", NULL},
        {"{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", NULL},
        {"{\"metadata\":{\"total_size\":12.0},\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", NULL},
        {"{\"metadata\":{\"total_size\":13},\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}",
         "metadata.total_size is 13, but the tensors have 12"},
        {"{\"metadata\":{\"total_size\":\"12\"},\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", "total_size"},
        {"{}", "weight_map is missing"},
        {"{\"weight_map\":[]}", "weight_map is missing"},
        {"{\"weight_map\":{}}", "weight_map is missing"},
        {"{\"weight_map\":{\"a\":\"1\"}}", "the index lists 1 files, but 2 are given"},
        {"{\"weight_map\":{\"a\":1}}", "weight_map.\"a\" is not a string"},
        {"{\"weight_map\":{\"a\":\"../1\"}}", "weight_map.\"a\" is \"../1\": the name of a file in the same directory"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "in the same directory"},
        {"{\"weight_map\":{\"a\":\"\"}}", "in the same directory"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "in the same directory"},
        {"{\"weight_map\":{\"a\":\"x\\\\1\"}}", "in the same directory"},
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"2\",\"c\":\"2\"}}", "weight_map says that tensor \"c\" is in \"2\", but it is not"},
        {"{\"weight_map\":{\"a\":\"1\",\"c\":\"2\"}}", "2: tensor \"b\" is not in weight_map"},
        {"{\"weight_map\":{\"a\":\"2\",\"b\":\"1\"}}",
         "1: tensor \"a\" is in this file, but weight_map of model.safetensors.index.json says \"2\""},
    };
    rein_tensors_memory files[2] = {blob("{\"a\":" T("F32", "[2]", 0, 8) "}", 8), blob("{\"b\":" T("BF16", "[2]", 0, 4) "}", 4)};
    files[0].name = "1", files[1].name = "2";
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_error err;
        rein_tensors *tensors;
        json_t *index;
        assert_int_equal(rein_json_parse(&index, cases[i].index, strlen(cases[i].index), "index", REIN_JSON_NEEDS_OBJECT, &err),
                         REIN_OK);
        const rein_status status = rein_tensors_from_memory(&tensors, files, 2, index, &err);
        if (status && !cases[i].said) fail_msg("%s: %s", cases[i].index, err.message);
        if (cases[i].said) {
            assert_int_equal(status, REIN_EINVAL);
            says(&err, cases[i].said);
        }
        rein_tensors_close(tensors);
        json_decref(index);
    }
    free((void *)(uintptr_t)files[0].data);
    free((void *)(uintptr_t)files[1].data);
}

static void test_tensor_in_two_files(void **state) {
    (void)state;
    rein_tensors_memory file = blob("{\"a\":" T("F32", "[2]", 0, 8) "}", 8), other = file;
    const rein_tensors_memory files[2] = {file, other};
    rein_tensors *tensors;
    rein_error err;
    assert_int_equal(rein_tensors_from_memory(&tensors, files, 2, NULL, &err), REIN_EINVAL);
    says(&err, "tensor \"a\" is in two files");
    free((void *)(uintptr_t)file.data);
}

/* ---- memory */
static rein_status open_and_close(void *context, rein_error *err) {
    rein_tensors *tensors;
    const rein_status status = rein_tensors_open(&tensors, context, err);
    rein_tensors_close(tensors);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    static const char *const names[] = {"sharded", "types.safetensors", "unaligned.safetensors"};
    char path[4096];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, "%s", fixture(names[i]));
        assert_true(fail_each_allocation(open_and_close, path) > 8);
    }
    snprintf(path, sizeof path, "%s", in_folder("nothing at all"));
    once = 0, left = 0;
    assert_int_equal(open_and_close(path, NULL), REIN_ENOMEM);
    left = -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),       cmocka_unit_test(test_scalar_nothing_and_metadata),
        cmocka_unit_test(test_order),       cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_unaligned),   cmocka_unit_test(test_truncated_anywhere),
        cmocka_unit_test(test_rules),       cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_index_rules), cmocka_unit_test(test_tensor_in_two_files),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
