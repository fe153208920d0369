/* safetensors_index.c - opens the files of a model, and checks that the index and the files agree. */
#include "safetensors_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gguf.h"

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json", ADAPTER[] = "adapter_model.safetensors";

static char *copy_text(const char *text) {
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---------------------------------------------------------------------------------------------------------- sets */

void rein_tensors_drop_pages(const rein_tensors *tensors) {
    for (size_t i = 0; i < tensors->n_shards; i++) rein_file_forget(&tensors->shards[i].file);
}

void rein_tensors_close(rein_tensors *tensors) {
    if (!tensors) return;
    for (size_t i = 0; i < tensors->n_shards; i++) {
        rein_file_unmap(&tensors->shards[i].file);
        json_decref(tensors->shards[i].header);
        free(tensors->shards[i].path);
    }
    free(tensors->shards);
    free(tensors->entries);
    free(tensors->by_name);
    free(tensors->copies);
    free(tensors->names);
    free(tensors->name);
    free(tensors);
}

static rein_tensors *new_set(const char *name, size_t n_shards) {
    rein_tensors *set = calloc(1, sizeof *set);
    if (!set) return NULL;
    set->name = copy_text(name);
    set->shards = calloc(n_shards ? n_shards : 1, sizeof *set->shards);
    if (set->name && set->shards) return set->n_shards = n_shards, set;
    rein_tensors_close(set);
    return NULL;
}

static int by_name(const void *a, const void *b) {
    const rein_entry *const *x = a, *const *y = b;
    return strcmp((*x)->tensor.name, (*y)->tensor.name);
}

rein_status rein_tensors_sort(rein_tensors *set, rein_error *err) {
    char first[REIN_PATH_SHOWN], second[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN];
    set->by_name = malloc((set->n ? set->n : 1) * sizeof *set->by_name);
    if (!set->by_name) return rein_no_memory(err);
    for (size_t i = 0; i < set->n; i++) set->by_name[i] = &set->entries[i];
    qsort(set->by_name, set->n, sizeof *set->by_name, by_name);
    for (size_t i = 1; i < set->n; i++) {
        const rein_tensor *a = &set->by_name[i - 1]->tensor, *b = &set->by_name[i]->tensor;
        if (!strcmp(a->name, b->name))
            return rein_fail(err, REIN_EINVAL, "tensor %s is in two files, %s and %s", rein_json_quote(quoted, a->name),
                             rein_path_show(first, a->file), rein_path_show(second, b->file));
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- index */

static rein_status check_file_name(const char *index, const char *tensor, const json_t *file, rein_error *err) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN], value[REIN_TEXT_SHOWN];
    const char *name = json_string_value(file);
    rein_path_show(shown, index);
    rein_json_quote(quoted, tensor);
    if (!name) return rein_fail(err, REIN_EINVAL, "%s: weight_map.%s is not a string: the name of a file is needed", shown, quoted);
    if (*name && *name != '.' && !strpbrk(name, "/\\")) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s: weight_map.%s is %s: the name of a file in the same directory is needed", shown, quoted,
                     rein_json_quote(value, name));
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Lists the files of the index, each once, sorted. The caller frees the list; the names belong to the index. */
static rein_status files_of_index(const char ***files, size_t *n_files, const char *name, const json_t *index, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const json_t *map = json_object_get(index, "weight_map");
    const char *tensor;
    json_t *file;
    size_t n = 0, kept = 0;
    *files = NULL;
    *n_files = 0;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return rein_fail(err, REIN_EINVAL, "%s: weight_map is missing: an object that names the file of each tensor is needed",
                         rein_path_show(shown, name));
    const char **list = malloc(json_object_size(map) * sizeof *list);
    if (!list) return rein_no_memory(err);
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) {
        const rein_status status = check_file_name(name, tensor, file, err);
        if (status) return free(list), status;
        list[n++] = json_string_value(file);
    }
    qsort(list, n, sizeof *list, compare_texts);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(list[i], list[i - 1]) != 0) list[kept++] = list[i];
    *files = list;
    *n_files = kept;
    return REIN_OK;
}

/* Checks that every tensor of the files is in the index with its file, and the reverse. */
static rein_status check_names(const rein_tensors *set, const json_t *map, rein_error *err) {
    char index[REIN_PATH_SHOWN], file[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN], other[REIN_TEXT_SHOWN];
    const char *name;
    json_t *value;
    rein_path_show(index, set->name);
    for (size_t i = 0; i < set->n; i++) {
        const rein_tensor *tensor = &set->entries[i].tensor;
        const char *listed = json_string_value(json_object_get(map, tensor->name));
        rein_json_quote(quoted, tensor->name);
        rein_path_show(file, tensor->file);
        if (!listed) return rein_fail(err, REIN_EINVAL, "%s: tensor %s is not in weight_map of %s", file, quoted, base_name(index));
        if (strcmp(listed, base_name(tensor->file)) != 0)
            return rein_fail(err, REIN_EINVAL, "%s: tensor %s is in this file, but weight_map of %s says %s", file, quoted,
                             base_name(index), rein_json_quote(other, listed));
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        if (rein_tensors_find(set, name)) continue;
        return rein_fail(err, REIN_EINVAL, "%s: weight_map says that tensor %s is in %s, but it is not", index,
                         rein_json_quote(quoted, name), rein_json_quote(other, json_string_value(value)));
    }
    return REIN_OK;
}

static rein_status check_index(const rein_tensors *set, const json_t *index, rein_error *err) {
    const rein_status status = check_names(set, json_object_get(index, "weight_map"), err);
    const json_t *size = json_object_get(json_object_get(index, "metadata"), "total_size");
    double total = 0; /* exact below 2^53 bytes */
    char shown[REIN_PATH_SHOWN];
    for (size_t i = 0; i < set->n; i++) total += (double)set->entries[i].tensor.bytes;
    if (status || !size || json_is_null(size)) return status;
    if (json_is_number(size) && json_number_value(size) == total) return REIN_OK; /* some writers write it as 1e9 */
    return rein_fail(err, REIN_EINVAL, "%s: metadata.total_size is %.17g, but the tensors have %.17g bytes",
                     rein_path_show(shown, set->name), json_number_value(size), total);
}

/* --------------------------------------------------------------------------------------------------------------------- opening */

/* Reads the headers of the mapped files, and checks them against the index if there is one. */
static rein_status read_set(rein_tensors *set, const json_t *index, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < set->n_shards && !status; i++) status = rein_shard_read(set, &set->shards[i], err);
    if (!status) status = rein_tensors_sort(set, err);
    if (!status && index) status = check_index(set, index, err);
    if (!status) status = rein_tensors_align(set, err);
    return status;
}

static rein_status map_shard(rein_shard *shard, const char *directory, const char *name, rein_error *err) {
    shard->path = *directory ? rein_path_join(directory, name) : copy_text(name);
    return shard->path ? rein_file_map(&shard->file, shard->path, err) : rein_no_memory(err);
}

/* Opens `files` of the directory; "": the names are paths. */
static rein_status open_files(rein_tensors **to, const char *name, const char *directory, const char *const *files, size_t n_files,
                              const json_t *index, rein_error *err) {
    rein_tensors *set = new_set(name, n_files);
    rein_status status = REIN_OK;
    if (!set) return rein_no_memory(err);
    for (size_t i = 0; i < n_files && !status; i++) status = map_shard(&set->shards[i], directory, files[i], err);
    if (!status) status = read_set(set, index, err);
    if (status) rein_tensors_close(set);
    else *to = set;
    return status;
}

static rein_status open_index(rein_tensors **to, const char *directory, const char *path, rein_error *err) {
    json_t *index;
    const char **files = NULL;
    size_t n_files = 0;
    rein_status status = rein_json_read(&index, path, REIN_JSON_NEEDS_OBJECT, err);
    if (!status) status = files_of_index(&files, &n_files, path, index, err);
    if (!status) status = open_files(to, path, directory, files, n_files, index, err);
    free(files);
    json_decref(index);
    return status;
}

static rein_status open_file(rein_tensors **to, const char *path, rein_error *err) {
    return open_files(to, path, "", &path, 1, NULL, err);
}

static rein_status no_weights(const char *directory, rein_error *err) {
    static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin", NULL};
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, directory);
    for (int i = 0; pickled[i]; i++) {
        char *path = rein_path_join(directory, pickled[i]);
        const int there = path && rein_file_exists(path);
        if (!path) return rein_no_memory(err);
        free(path);
        if (there)
            return rein_fail(err, REIN_EINVAL, "%s has %s, which is not supported: convert it to safetensors", shown, pickled[i]);
    }
    return rein_fail(err, REIN_EIO, "%s has no weights: %s, or %s with its shards, is needed", shown, SINGLE, INDEX);
}

static rein_status open_gguf(rein_tensors **to, const char *path, rein_error *err) {
    rein_gguf *gguf;
    const rein_status status = rein_gguf_open(&gguf, path, err);
    return status ? status : rein_gguf_take_tensors(to, &gguf, err);
}

rein_status rein_tensors_open(rein_tensors **tensors, const char *path, rein_error *err) {
    *tensors = NULL;
    if (rein_gguf_is(path)) return open_gguf(tensors, path, err);
    if (!rein_file_is_directory(path)) return open_file(tensors, path, err);
    char *single = rein_path_join(path, SINGLE), *index = rein_path_join(path, INDEX);
    rein_status status;
    if (!single || !index) status = rein_no_memory(err);
    else if (rein_file_exists(single)) status = open_file(tensors, single, err);
    else if (rein_file_exists(index)) status = open_index(tensors, path, index, err);
    else status = no_weights(path, err);
    free(single);
    free(index);
    return status;
}

rein_status rein_tensors_open_adapter(rein_tensors **tensors, const char *directory, rein_error *err) {
    *tensors = NULL;
    char *path = rein_path_join(directory, ADAPTER);
    const rein_status status = path ? open_file(tensors, path, err) : rein_no_memory(err);
    free(path);
    return status;
}

rein_status rein_tensors_from_memory(rein_tensors **tensors, const rein_tensors_memory *files, size_t n_files, const json_t *index,
                                     rein_error *err) {
    const char **names = NULL;
    size_t n_names = 0;
    *tensors = NULL;
    rein_status status = index ? files_of_index(&names, &n_names, INDEX, index, err) : REIN_OK;
    free(names);
    if (status) return status;
    if (index && n_names != n_files)
        return rein_fail(err, REIN_EINVAL, "the index lists %zu files, but %zu are given", n_names, n_files);
    rein_tensors *set = new_set(index ? INDEX : n_files ? files[0].name : "nothing", n_files);
    if (!set) return rein_no_memory(err);
    for (size_t i = 0; i < n_files && !status; i++) {
        set->shards[i].path = copy_text(files[i].name);
        set->shards[i].file = (rein_file){files[i].data, files[i].size, 0};
        if (!set->shards[i].path) status = rein_no_memory(err);
    }
    if (!status) status = read_set(set, index, err);
    if (status) rein_tensors_close(set);
    else *tensors = set;
    return status;
}
