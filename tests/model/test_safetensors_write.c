/* test_safetensors_write.c - which file of a directory is read; what is written is what the reference writer writes, whole or not at
 * all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "model/safetensors.h"
#include "model/tensor_files.h"
#include "support/allocation.h"

/* ---- which file */
static void test_directories(void **state) {
    (void)state;
    rein_tensors *tensors;
    rein_error err;
    assert_int_equal(rein_tensors_open(&tensors, folder, &err), REIN_EIO);
    says(&err, "has no weights: model.safetensors, or model.safetensors.index.json");
    assert_int_equal(rein_file_write(in_folder("pytorch_model.bin"), "x", 1, &err), REIN_OK);
    assert_int_equal(rein_tensors_open(&tensors, folder, &err), REIN_EINVAL);
    says(&err, "has pytorch_model.bin, which is not supported: convert it to safetensors");
    remove(in_folder("pytorch_model.bin"));
    static const char index[] = "{\"weight_map\":{\"a\":\"gone.safetensors\"}}";
    assert_int_equal(rein_file_write(in_folder("model.safetensors.index.json"), index, strlen(index), &err), REIN_OK);
    assert_int_equal(rein_tensors_open(&tensors, folder, &err), REIN_EIO);
    says(&err, "gone.safetensors: cannot be opened");
    const float one = 1;
    const rein_tensor tensor = {.name = "a", .dtype = REIN_TENSOR_F32, .data = &one, .bytes = 4};
    assert_int_equal(rein_tensors_write(in_folder("model.safetensors"), &tensor, 1, NULL, 0, &err), REIN_OK);
    tensors = opened(folder); /* one file comes before the index */
    assert_int_equal(rein_tensors_count(tensors), 1);
    rein_tensors_close(tensors);
    assert_int_equal(rein_tensors_open_adapter(&tensors, folder, &err), REIN_EIO);
    says(&err, "adapter_model.safetensors: cannot be opened");
    assert_int_equal(rename(in_folder("model.safetensors"), in_folder("adapter_model.safetensors")), 0);
    assert_int_equal(rein_tensors_open_adapter(&tensors, folder, &err), REIN_OK);
    assert_non_null(rein_tensors_find(tensors, "a"));
    rein_tensors_close(tensors);
    remove(in_folder("model.safetensors.index.json"));
    assert_int_equal(rein_tensors_open(&tensors, in_folder("nowhere"), &err), REIN_EIO);
    rein_tensors_close(NULL);
}

/* ---- writing */
static size_t read_all(const char *path, rein_tensor *list, size_t capacity, rein_tensors **tensors) {
    *tensors = opened(path);
    const size_t n = rein_tensors_count(*tensors);
    assert_true(n <= capacity);
    for (size_t i = 0; i < n; i++) list[n - 1 - i] = *rein_tensors_at(*tensors, i); /* any order gives the same file */
    return n;
}

static void same_bytes(const char *a, const char *b) {
    rein_file x, y;
    assert_int_equal(rein_file_map(&x, a, NULL), REIN_OK);
    assert_int_equal(rein_file_map(&y, b, NULL), REIN_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    rein_file_unmap(&x);
    rein_file_unmap(&y);
}

/* What the reference writer wrote, read and written again, is the same file. */
static void test_rewrite_is_identical(void **state) {
    (void)state;
    static const char *const names[] = {"sharded/model-00001-of-00002.safetensors", "sharded/model-00002-of-00002.safetensors"};
    for (size_t i = 0; i < COUNT(names); i++) {
        rein_tensor list[32];
        rein_tensors *tensors;
        rein_error err;
        const size_t n = read_all(fixture(names[i]), list, COUNT(list), &tensors);
        if (rein_tensors_write(in_folder("again"), list, n, NULL, 0, &err) != REIN_OK) fail_msg("%s", err.message);
        rein_tensors_close(tensors);
        same_bytes(fixture(names[i]), in_folder("again"));
    }
}

static void test_rewrite_every_type(void **state) {
    (void)state;
    const rein_metadata metadata[] = {{"made by", "généré"}, {"format", "pt"}};
    rein_tensor list[32];
    rein_tensors *tensors, *again;
    const size_t n = read_all(fixture("types.safetensors"), list, COUNT(list), &tensors);
    assert_int_equal(rein_tensors_write(in_folder("types"), list, n, metadata, 2, NULL), REIN_OK);
    again = opened(in_folder("types"));
    assert_int_equal(rein_tensors_count(again), n);
    for (size_t i = 0; i < n; i++) {
        const rein_tensor *a = rein_tensors_at(tensors, i), *b = rein_tensors_at(again, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    assert_string_equal(rein_tensors_metadata(again, "format"), "pt");
    rein_tensors_close(tensors);
    rein_tensors_close(again);
}

static void test_strange_names(void **state) {
    (void)state;
    const float x[2] = {1, 2};
    const rein_tensor list[] = {{.name = "\"\\\b\f\n\r\t\x01é/", .dtype = REIN_TENSOR_F32, .data = &x[0], .bytes = 4},
                                {.name = "", .dtype = REIN_TENSOR_F32, .data = &x[1], .bytes = 4}};
    rein_error err;
    if (rein_tensors_write(in_folder("names"), list, 2, NULL, 0, &err) != REIN_OK) fail_msg("%s", err.message);
    rein_tensors *tensors = opened(in_folder("names"));
    assert_true(*(const float *)rein_tensors_find(tensors, list[0].name)->data == 1);
    assert_true(*(const float *)rein_tensors_find(tensors, "")->data == 2);
    rein_tensors_close(tensors);
}

static void test_write_refuses(void **state) {
    (void)state;
    const float x = 1;
    const rein_tensor good = {.name = "a", .dtype = REIN_TENSOR_F32, .data = &x, .bytes = 4};
    rein_tensor twice[2] = {good, good}, bad[10];
    rein_error err;
    for (size_t i = 0; i < COUNT(bad); i++) bad[i] = good;
    bad[0].name = "\xff", bad[1].name = "__metadata__", bad[2].bytes = 8, bad[3].data = NULL, bad[4].dtype = REIN_TENSOR_TYPES;
    bad[5].n_dims = 9, bad[6].name = "\xed\xa0\x80", bad[7].name = "\xc0\x80", bad[8].name = "\xe2\x82x";
    bad[9].dtype = REIN_TENSOR_Q8_0, bad[9].n_dims = 1, bad[9].shape[0] = 32,
    bad[9].bytes = 34; /* safetensors files cannot have it */
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(rein_tensors_write(in_folder("refused"), &bad[i], 1, NULL, 0, &err), REIN_EINVAL);
        says(&err, "refused");
    }
    twice[1].dtype = REIN_TENSOR_I32;
    assert_int_equal(rein_tensors_write(in_folder("refused"), twice, 2, NULL, 0, &err), REIN_EINVAL);
    says(&err, "tensor \"a\" is given twice");
    const rein_metadata same[2] = {{"k", "1"}, {"k", "2"}};
    assert_int_equal(rein_tensors_write(in_folder("refused"), &good, 1, same, 2, &err), REIN_EINVAL);
    assert_false(rein_file_exists(in_folder("refused")));
    assert_int_equal(rein_tensors_write(in_folder("no/folder"), &good, 1, NULL, 0, &err), REIN_EIO);
}

static void test_full_disk(void **state) {
    (void)state;
    static float large[10000];
    const rein_tensor tensor = {
        .name = "a", .dtype = REIN_TENSOR_F32, .n_dims = 1, .shape = {10000}, .data = large, .bytes = sizeof large};
    rein_error err;
    struct rlimit before, small;
    assert_int_equal(rein_tensors_write(in_folder("full"), &tensor, 1, NULL, 0, &err), REIN_OK);
    large[0] = 1;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 8192;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const rein_status status = rein_tensors_write(in_folder("full"), &tensor, 1, NULL, 0, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, REIN_ESYSTEM);
    rein_tensors *tensors = opened(in_folder("full")); /* the one before, whole */
    assert_true(*(const float *)rein_tensors_find(tensors, "a")->data == 0);
    rein_tensors_close(tensors);
}

/* ---- memory */
static rein_status write_two(void *context, rein_error *err) {
    const float x[2] = {1, 2};
    const rein_tensor list[] = {{.name = "a", .dtype = REIN_TENSOR_F32, .data = &x[0], .bytes = 4},
                                {.name = "b", .dtype = REIN_TENSOR_F32, .data = &x[1], .bytes = 4}};
    return rein_tensors_write(context, list, 2, NULL, 0, err);
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    char path[4096];
    snprintf(path, sizeof path, "%s", in_folder("memory"));
    assert_true(fail_each_allocation(write_two, path) > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories),        cmocka_unit_test(test_rewrite_is_identical),
        cmocka_unit_test(test_rewrite_every_type), cmocka_unit_test(test_strange_names),
        cmocka_unit_test(test_write_refuses),      cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
