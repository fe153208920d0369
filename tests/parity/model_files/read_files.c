/* read_files.c - what the C readers see, as JSON lines for pytest; and a copy of a file through the C writer.
 *
 *     read_files tensors PATH        one line a tensor: name, dtype, shape, bytes in hex
 *     read_files copy FROM TO        reads FROM, writes TO
 *     read_files config DIRECTORY    one line: every field of rein_model_config
 *     read_files check DIRECTORY     config and tensors agree; one line a tensor that is not used
 *     read_files rewrite FROM TO DTYPE TIED
 * Exit 2 and the message on stderr when it is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/safetensors.h"

static int refused(const rein_error *err) {
    fprintf(stderr, "%s\n", err->message);
    return 2;
}

static void print_tensor(const rein_tensor *t) {
    json_t *name = json_string(t->name);
    char *quoted = json_dumps(name, JSON_ENCODE_ANY), shape[REIN_SHAPE_SHOWN];
    printf("{\"name\": %s, \"dtype\": \"%s\", \"shape\": %s, \"hex\": \"", quoted, rein_tensor_type_name(t->dtype),
           rein_shape_show(shape, t->shape, t->n_dims));
    for (size_t i = 0; i < t->bytes; i++) printf("%02x", ((const unsigned char *)t->data)[i]);
    printf("\"}\n");
    free(quoted);
    json_decref(name);
}

static int print_tensors(const char *path) {
    rein_tensors *tensors;
    rein_error err;
    if (rein_tensors_open(&tensors, path, &err)) return refused(&err);
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) print_tensor(rein_tensors_at(tensors, i));
    rein_tensors_close(tensors);
    return 0;
}

static int copy(const char *from, const char *to) {
    rein_tensors *tensors;
    rein_error err;
    if (rein_tensors_open(&tensors, from, &err)) return refused(&err);
    const size_t n = rein_tensors_count(tensors);
    rein_tensor *list = calloc(n + 1, sizeof *list);
    if (!list) return 1;
    for (size_t i = 0; i < n; i++) list[n - 1 - i] = *rein_tensors_at(tensors, i);
    const rein_status status = rein_tensors_write(to, list, n, NULL, 0, &err);
    free(list);
    rein_tensors_close(tensors);
    return status ? refused(&err) : 0;
}

static int print_config(const char *directory) {
    static const char *const ropes[] = {"default", "linear", "llama3"};
    rein_model_config c;
    rein_error err;
    if (rein_model_config_read(&c, directory, &err)) return refused(&err);
    printf("{\"family\": \"%s\", \"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64,
           c.family->model_type, c.vocab_size, c.hidden_size, c.intermediate_size);
    printf(", \"layers\": %" PRId64 ", \"heads\": %" PRId64 ", \"kv_heads\": %" PRId64 ", \"head_dim\": %" PRId64
           ", \"positions\": %" PRId64,
           c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, c.max_positions);
    printf(", \"eps\": %.17g, \"rope\": \"%s\", \"theta\": %.17g, \"factor\": %.17g, \"low\": %.17g, \"high\": %.17g, "
           "\"original\": %" PRId64,
           c.rms_norm_eps, ropes[c.rope.type], c.rope.theta, c.rope.factor, c.rope.low_freq_factor, c.rope.high_freq_factor,
           c.rope.original_max_positions);
    printf(", \"tied\": %d, \"qkv_bias\": %d, \"o_bias\": %d, \"mlp_bias\": %d, \"qk_norm\": %d, \"bos\": %" PRId64,
           c.tie_word_embeddings, c.qkv_bias, c.o_bias, c.mlp_bias, c.qk_norm, c.bos);
    printf(", \"dtype\": \"%s\", \"eos\": [", c.has_dtype ? rein_tensor_type_name(c.dtype) : "");
    for (int i = 0; i < c.n_eos; i++) printf("%s%" PRId64, i ? ", " : "", c.eos[i]);
    printf("]}\n");
    return 0;
}

static int check(const char *directory) {
    rein_model_config c;
    rein_tensors *tensors;
    rein_error err;
    if (rein_model_config_read(&c, directory, &err) || rein_tensors_open(&tensors, directory, &err)) return refused(&err);
    const rein_status status = rein_model_check(&c, tensors, &err);
    for (size_t i = 0; i < rein_tensors_count(tensors) && !status; i++)
        if (rein_model_weight_use(&c, rein_tensors_at(tensors, i)->name) != REIN_WEIGHT_USED)
            printf("%s\n", rein_tensors_at(tensors, i)->name);
    rein_tensors_close(tensors);
    return status ? refused(&err) : 0;
}

static int rewrite(const char *from, const char *to, const char *dtype, const char *tied) {
    const rein_tensor_type type = !strcmp(dtype, "BF16")  ? REIN_TENSOR_BF16
                                  : !strcmp(dtype, "F16") ? REIN_TENSOR_F16
                                                          : REIN_TENSOR_F32;
    rein_error err;
    return rein_model_config_write(to, from, type, *tied == '1', -1, &err) ? refused(&err) : 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "tensors")) return print_tensors(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "copy")) return copy(argv[2], argv[3]);
    if (argc == 3 && !strcmp(argv[1], "config")) return print_config(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "check")) return check(argv[2]);
    if (argc == 6 && !strcmp(argv[1], "rewrite")) return rewrite(argv[2], argv[3], argv[4], argv[5]);
    fprintf(stderr, "usage: the comment of read_files.c\n");
    return 1;
}
