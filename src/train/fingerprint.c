/* fingerprint.c - files of a run, hashed and compared.
 *
 * A file is read once per process, at the speed of memory if it is cached; the model is read anyway. Its time and inode are not taken as a
 * proof that it is the same: copies that preserve times, restored snapshots and writes within one tick of the clock change the content and
 * neither of them. */
#include "fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/show.h"
#include "model/gguf.h"
#include "reward_models.h"
#include "rollout/reward.h"
#include "rollout/task.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for the hashes of files"); }

/* --------------------------------------------------------------------------------------------------------------------- hashing */

static rein_status add_entry(json_t *files, const char *key, uint64_t size, uint64_t hash, rein_error *err) {
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)size, "hash", text);
    return entry && json_object_set_new(files, key, entry) == 0 ? REIN_OK : no_memory(err);
}

/* A command, with its text: a message shows it. */
static rein_status add_command(json_t *files, const char *key, const char *command, rein_error *err) {
    const rein_status status = add_entry(files, key, strlen(command), rein_hash(command, strlen(command)), err);
    json_t *text = status ? NULL : json_string(command); /* NULL: it is not UTF-8 */
    if (status || !text) return status;
    return json_object_set_new(json_object_get(files, key), "command", text) ? no_memory(err) : REIN_OK;
}

rein_status rein_fingerprint_add(json_t *files, const char *key, const char *path, rein_error *err) {
    uint64_t hash, size;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? REIN_OK : rein_file_error(err, path, "cannot be opened");
    rein_status status = rein_hash_descriptor(&hash, &size, fd) ? rein_file_error(err, path, "cannot be read") : REIN_OK;
    close(fd);
    return status ? status : add_entry(files, key, size, hash, err);
}

/* DIRECTORY/NAME as "SETTING/NAME". */
static rein_status add_below(json_t *files, const char *setting, const char *directory, const char *name, rein_error *err) {
    char *path = rein_path_join(directory, name), *key = rein_path_join(setting, name);
    const rein_status status = path && key ? rein_fingerprint_add(files, key, path, err) : no_memory(err);
    free(path);
    free(key);
    return status;
}

static rein_status add_names(json_t *files, const char *setting, const char *directory, const char *const *names, rein_error *err) {
    rein_status status = REIN_OK;
    for (; *names && *directory && !status; names++) status = add_below(files, setting, directory, *names, err);
    return status;
}

/* model.safetensors, or the shards model-00001-of-00002.safetensors. */
static int is_weights(const char *name) {
    static const char begin[] = "model", end[] = ".safetensors";
    const size_t length = strlen(name), tail = sizeof end - 1;
    return !strncmp(name, begin, sizeof begin - 1) && length > tail && !strcmp(name + length - tail, end);
}

/* A model in GGUF: its file, or all its parts. */
static rein_status add_gguf(json_t *files, const char *setting, const char *path, rein_error *err) {
    rein_status status = REIN_OK;
    char *part = NULL;
    for (size_t i = 0; !(status = rein_gguf_part(&part, path, i, err)) && part; i++) {
        const char *slash = strrchr(part, '/');
        char *key = rein_path_join(setting, slash ? slash + 1 : part);
        status = key ? rein_fingerprint_add(files, key, part, err) : no_memory(err);
        free(key);
        free(part);
        if (status) break;
    }
    return status;
}

/* Where all weights train, those of a run are in its checkpoints. */
static rein_status add_weights(json_t *files, const char *setting, const char *model, int full, rein_error *err) {
    rein_names names = {0};
    if (full || !rein_file_is_directory(model)) return REIN_OK;
    rein_status status = rein_directory_list(&names, model, err);
    for (size_t i = 0; i < names.n && !status; i++)
        if (is_weights(names.at[i])) status = add_below(files, setting, model, names.at[i], err);
    rein_names_free(&names);
    return status;
}

static rein_status add_model_weights(json_t *files, const rein_settings *s, rein_error *err) {
    if (rein_gguf_is(s->model)) return add_gguf(files, "model", s->model, err);
    return add_weights(files, "model", s->model, s->full, err);
}

static rein_status add_teacher(json_t *files, const char *teacher, const char *const *names, rein_error *err) {
    if (!*teacher) return REIN_OK;
    if (rein_gguf_is(teacher)) return add_gguf(files, "teacher", teacher, err);
    const rein_status status = add_names(files, "teacher", teacher, names, err);
    return status ? status : add_weights(files, "teacher", teacher, 0, err);
}

/* The policy's own model is one that is hashed already. */
static rein_status add_critic(json_t *files, const rein_settings *s, rein_error *err) {
    static const char *const names[] = {"config.json", NULL};
    if (!*s->critic || !strcmp(s->critic, "same")) return REIN_OK;
    const rein_status status = add_names(files, "critic", s->critic, names, err);
    return status ? status : add_weights(files, "critic", s->critic, s->full, err);
}

/* A task is a file, a command, or built in. */
static rein_status add_task(json_t *files, const char *setting, const char *source, rein_error *err) {
    const rein_task_kind kind = *source ? rein_task_kind_of(source) : REIN_TASK_UNKNOWN;
    if (kind == REIN_TASK_FILE) return rein_fingerprint_add(files, setting, source, err);
    const char *command = *source ? rein_task_command(source) : NULL;
    return command ? add_command(files, setting, command, err) : REIN_OK;
}

rein_status rein_fingerprint_settings(json_t **files, const rein_settings *s, rein_error *err) {
    static const char *const of_model[] = {"config.json",           "generation_config.json", "tokenizer.json",
                                           "tokenizer_config.json", "chat_template.jinja",    NULL};
    static const char *const of_adapter[] = {"adapter_config.json", "adapter_model.safetensors", NULL};
    *files = json_object();
    const int gguf = rein_gguf_is(s->model); /* a file, not a directory of files */
    rein_status status = *files ? add_names(*files, "model", gguf ? "" : s->model, of_model, err) : no_memory(err);
    if (!status) status = add_model_weights(*files, s, err);
    if (!status) status = add_teacher(*files, s->teacher, of_model, err);
    if (!status) status = add_critic(*files, s, err);
    if (!status) status = add_names(*files, "adapter", s->adapter, of_adapter, err);
    if (!status) status = add_names(*files, "kl_ref_adapter_path", s->kl_ref_adapter_path, of_adapter, err);
    if (!status) status = add_task(*files, "task", s->task, err);
    if (!status) status = add_task(*files, "eval_task", s->eval_task, err);
    if (!status && *s->ptx_data) status = rein_fingerprint_add(*files, "ptx_data", s->ptx_data, err);
    if (!status && rein_settings_judges_are_programs(s)) status = add_command(*files, "reward", s->reward, err);
    if (!status) status = rein_fingerprint_reward_models(*files, s, err);
    if (status) json_decref(*files), *files = NULL;
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------- comparing */

static size_t setting_length(const char *key) { return strcspn(key, "/"); }

static int is_in(const char *const *list, const char *key) {
    const size_t length = setting_length(key);
    for (; list && *list; list++)
        if (strlen(*list) == length && !strncmp(*list, key, length)) return 1;
    return 0;
}

static int has_setting(const json_t *files, const char *key) {
    const char *other;
    json_t *entry;
    const size_t length = setting_length(key);
    json_object_foreach((json_t *)(uintptr_t)files, other, entry) {
        if (setting_length(other) == length && !strncmp(other, key, length)) return 1;
    }
    return 0;
}

/* "535 bytes with hash 303419cc68883c0b", or a command. A run of an earlier version has not recorded its text. */
static const char *describe(char *to, size_t size, const json_t *entry) {
    const char *hash = json_string_value(json_object_get(entry, "hash")),
               *command = json_string_value(json_object_get(entry, "command"));
    if (!entry) snprintf(to, size, "missing");
    else if (command) rein_show_short(to, size, command, strlen(command));
    else
        snprintf(to, size, "%lld bytes with hash %.16s", (long long)json_integer_value(json_object_get(entry, "size")),
                 hash ? hash : "?");
    return to;
}

static rein_status changed(const char *key, const json_t *before, const json_t *now, const rein_settings *settings,
                           rein_error *err) {
    char setting[64], path[REIN_PATH_SHOWN], was[120], is[120];
    snprintf(setting, sizeof setting, "%.*s", (int)setting_length(key), key);
    const int is_reward = !strcmp(setting, "reward_model"); /* one of several judges: the place of its file is not in the setting */
    if (is_reward) strcpy(setting, "reward");
    describe(was, sizeof was, before);
    describe(is, sizeof is, now);
    if (json_object_get(now, "command"))
        return rein_fail_at(err, REIN_EINVAL, setting, -1, "is not what the run was made with: it was \"%s\", and is \"%s\"", was,
                            is);
    const char *value = is_reward ? "" : rein_settings_text(settings, setting);
    char *file = key[setting_length(key)] && *value ? rein_path_join(value, key + setting_length(key) + 1) : NULL;
    rein_path_show(path, file ? file : *value ? value : key);
    free(file);
    return rein_fail_at(err, REIN_EINVAL, setting, -1, "is not what the run was made with: %s was %s, and is %s", path, was, is);
}

static int is_same(const json_t *a, const json_t *b) {
    return a && b && json_equal(json_object_get(a, "size"), json_object_get(b, "size")) &&
           json_equal(json_object_get(a, "hash"), json_object_get(b, "hash"));
}

/* The keys of `files` in both: each change is reported with `before` and `now` in their order. */
static rein_status compare_keys(const json_t *files, const json_t *before, const json_t *now, const rein_settings *settings,
                                const char *const *skipped, rein_error *err) {
    const char *key;
    json_t *entry;
    rein_status status = REIN_OK;
    json_object_foreach((json_t *)(uintptr_t)files, key, entry) {
        const json_t *then = json_object_get(before, key), *today = json_object_get(now, key);
        if (status || is_in(skipped, key) || !has_setting(before, key) || !has_setting(now, key)) continue;
        if (!is_same(then, today)) status = changed(key, then, today, settings, err);
    }
    return status;
}

rein_status rein_fingerprint_advise(rein_status status, rein_error *err) {
    if (status != REIN_EINVAL || !err) return status;
    const rein_error why = *err;
    return rein_fail_at(err, status, why.field, -1,
                        "%s; --accept-changed (in Python accept_changed=True) continues with it as it is",
                        why.message + why.reason);
}

rein_status rein_fingerprint_compare(const json_t *before, const json_t *now, const rein_settings *settings,
                                     const char *const *skipped, rein_error *err) {
    const rein_status status = compare_keys(before, before, now, settings, skipped, err);
    return status ? status : compare_keys(now, before, now, settings, skipped, err);
}
