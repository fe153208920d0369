/* init.c - writes the initial weights of a new model, as Hugging Face initialises them, from a seed.
 *
 * Matrices are normal with standard deviation initializer_range of config.json (0.02 if it is absent), norms are 1 (stored as 0 in families that store them minus 1), biases 0. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "config.h"
#include "rein/model.h"

static rein_status fill(rein_tensor *tensor, const rein_weight *weight, size_t index, double deviation, uint64_t seed,
                        int norm_offset, rein_error *err) {
    const size_t n = weight->shape[0] * (weight->n_dims == 2 ? weight->shape[1] : 1);
    float *data = malloc(n * sizeof *data);
    if (!data) return rein_fail(err, REIN_ENOMEM, "no memory for %s", weight->name);
    if (weight->n_dims == 2) rein_random_fill_normal(data, n, deviation, seed, REIN_RANDOM_INIT, index, 0, 0, 1);
    for (size_t i = 0; i < n && weight->n_dims == 1; i++) data[i] = weight->kind == REIN_BIAS || norm_offset ? 0 : 1;
    *tensor = (rein_tensor){.name = weight->name,
                            .dtype = REIN_TENSOR_F32,
                            .n_dims = weight->n_dims,
                            .shape = {weight->shape[0], weight->n_dims == 2 ? weight->shape[1] : 0},
                            .data = data,
                            .bytes = n * sizeof *data};
    return REIN_OK;
}

static rein_status write_weights(const char *path, const rein_model_config *config, uint64_t seed, rein_error *err) {
    const size_t n = rein_model_weights(config);
    rein_tensor *tensors = calloc(n, sizeof *tensors);
    rein_weight *weights = calloc(n, sizeof *weights);
    rein_status status = tensors && weights ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n && !status; i++) {
        rein_model_weight(&weights[i], config, i);
        status = fill(&tensors[i], &weights[i], i, config->initializer_range, seed, config->family->norm_offset, err);
    }
    if (!status) status = rein_tensors_write(path, tensors, n, NULL, 0, err);
    for (size_t i = 0; i < n && tensors; i++) free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    free(weights);
    return status;
}

rein_status rein_model_init(const char *directory, uint64_t seed, rein_error *err) {
    rein_model_config config;
    char *path = rein_path_join(directory, "model.safetensors"), *index = rein_path_join(directory, "model.safetensors.index.json");
    rein_status status = path && index ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    if (!status) status = rein_model_config_read(&config, directory, err);
    if (!status && (rein_file_exists(path) || rein_file_exists(index)))
        status = rein_fail(err, REIN_EINVAL, "%.300s already has weights: they are not overwritten", directory);
    if (!status) status = write_weights(path, &config, seed, err);
    free(index);
    free(path);
    return status;
}
