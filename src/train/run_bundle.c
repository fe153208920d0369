/* run_bundle.c - one archive of a run to send to others: a tar file (POSIX ustar) with what it learned and how, without the state of the
 * optimizer. The archive appears whole or not at all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "run.h"

enum { TAR_BLOCK = 512, NAME_SIZE = 100 };

/* ------------------------------------------------------------------------------------------------------------------------- tar */

/* The header of a regular file. All of them have the same owner and time, so that the same run gives the same archive. */
static rein_status fill_header(char header[TAR_BLOCK], const char *name, size_t size, rein_error *err) {
    unsigned sum = 0;
    memset(header, 0, TAR_BLOCK);
    if (strlen(name) >= NAME_SIZE) return rein_fail(err, REIN_EINVAL, "the name %s is too long for an archive", name);
    if (size >= (size_t)1 << 33)
        return rein_fail(err, REIN_EINVAL, "%s has %zu bytes: a file of an archive may have 8 GiB", name, size);
    strcpy(header, name);
    snprintf(header + 100, 8, "%07o", 0644u);
    snprintf(header + 108, 8, "%07o", 0u);
    snprintf(header + 116, 8, "%07o", 0u);
    snprintf(header + 124, 12, "%011" PRIo64, (uint64_t)size);
    snprintf(header + 136, 12, "%011o", 0u);
    memset(header + 148, ' ', 8); /* the checksum counts itself as blanks */
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (size_t i = 0; i < TAR_BLOCK; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    return REIN_OK;
}

static rein_status put_file(rein_writer *to, const char *name, const char *path, rein_error *err) {
    static const char zeros[TAR_BLOCK];
    char header[TAR_BLOCK];
    rein_file file;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = fill_header(header, name, file.size, err);
    if (!status) status = rein_writer_put(to, header, sizeof header, err);
    if (!status) status = rein_writer_put(to, file.data, file.size, err);
    if (!status && file.size % TAR_BLOCK) status = rein_writer_put(to, zeros, TAR_BLOCK - file.size % TAR_BLOCK, err);
    rein_file_unmap(&file);
    return status;
}

static rein_status put_end(rein_writer *to, rein_error *err) {
    static const char zeros[2 * TAR_BLOCK];
    return rein_writer_put(to, zeros, sizeof zeros, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- bundle */

/* DIRECTORY/FILE as ROOT/FOLDER/FILE, if it exists. */
static rein_status put_member(rein_writer *to, const char *root, const char *folder, const char *directory, const char *file,
                              rein_error *err) {
    char name[2 * NAME_SIZE];
    char *path = rein_path_join(directory, file);
    rein_status status = path ? REIN_OK : rein_no_memory(err);
    snprintf(name, sizeof name, "%.90s/%s%s", root, folder, file);
    if (!status && rein_file_exists(path)) status = put_file(to, name, path, err);
    free(path);
    return status;
}

/* The last part of the path, as the name of the folder that the archive unpacks to. */
static const char *name_of(char to[NAME_SIZE], const char *directory) {
    size_t end = strlen(directory), begin;
    while (end > 1 && directory[end - 1] == '/') end--;
    for (begin = end; begin && directory[begin - 1] != '/'; begin--) {
    }
    snprintf(to, NAME_SIZE, "%.*s", (int)(end - begin), directory + begin);
    return *to && strcmp(to, ".") != 0 && strcmp(to, "..") != 0 ? to : strcpy(to, "run");
}

static rein_status put_run(rein_writer *to, const rein_policy_files *files, rein_error *err) {
    static const char *const run_files[] = {"config.yaml", "history.jsonl", "evaluations.jsonl", "summary.json", "report.html"};
    static const char *const adapter_files[] = {"adapter_config.json", "adapter_model.safetensors"};
    static const char *const model_files[] = {"config.json",        "generation_config.json", "model.safetensors",
                                              "tokenizer.json",     "tokenizer_config.json",  "special_tokens_map.json",
                                              "chat_template.jinja"};
    const int adapts = files->adapter != NULL;
    const char *const *policy = adapts ? adapter_files : model_files;
    const size_t n = adapts ? sizeof adapter_files / sizeof *adapter_files : sizeof model_files / sizeof *model_files;
    char root[NAME_SIZE];
    rein_status status = REIN_OK;
    name_of(root, files->run);
    for (size_t i = 0; i < sizeof run_files / sizeof *run_files && !status; i++)
        status = put_member(to, root, "", files->run, run_files[i], err);
    for (size_t i = 0; i < n && !status; i++)
        status = put_member(to, root, adapts ? "adapter/" : "model/", adapts ? files->adapter : files->model, policy[i], err);
    return status ? status : put_end(to, err);
}

rein_status rein_run_bundle(const char *path, const char *run, rein_error *err) {
    rein_policy_files files;
    rein_writer to = {0};
    char shown[REIN_PATH_SHOWN];
    rein_status status = rein_policy_find(&files, run, err);
    if (!status && !files.run)
        status = rein_fail(err, REIN_EINVAL, "%s is not a run: it has no config.yaml", rein_path_show(shown, run));
    if (status && err && (!*err->field || !strcmp(err->field, "model"))) rein_fail_as(err, status, "run", -1, "run");
    if (!status) status = rein_writer_open(&to, path, err);
    if (!status) status = put_run(&to, &files, err);
    if (!status) status = rein_writer_commit(&to, err);
    rein_writer_abandon(&to);
    rein_policy_files_free(&files);
    return status;
}
