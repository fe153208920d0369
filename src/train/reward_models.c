/* reward_models.c - reward models as judges of a run: paths that hold wherever the run is resumed, and hashes of their files. */
#include "reward_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/text.h"
#include "fingerprint.h"
#include "model/gguf.h"
#include "model/outline.h"

static const char MODEL[] = "model:";

/* The path in a judge's line [length]; NULL: it is no reward model. */
static const char *path_in(const char *line, size_t *length) {
    while (*length && (*line == ' ' || *line == '\t')) line++, --*length;
    if (*length < strlen(MODEL) || strncmp(line, MODEL, strlen(MODEL)) != 0) return NULL;
    *length -= strlen(MODEL);
    return line + strlen(MODEL);
}

/* ---------------------------------------------------------------------------------------------------------------------- places */

/* For the caller to free; NULL: no memory, or the current directory has no path. */
static char *absolute(const char *path) {
    if (*path == '/') return strdup(path);
    char *here = getcwd(NULL, 0), *joined = here ? rein_path_join(here, path) : NULL;
    free(here);
    return joined;
}

/* What is no run stays: opening it says what is wrong. */
static rein_status find_checkpoint(char **place, rein_error *err) {
    const char *at = strrchr(*place, '@');
    char *run = strndup(*place, at ? (size_t)(at - *place) : strlen(*place));
    rein_policy_files files;
    rein_status status = run ? REIN_OK : rein_no_memory(err);
    if (!status && (rein_run_exists(*place) || (!rein_file_is_directory(*place) && rein_run_exists(run)))) {
        status = rein_policy_find(&files, *place, err);
        if (status) status = rein_fail_as(err, status, "reward", -1, "reward");
        else {
            char *found = strdup(files.adapter ? files.adapter : files.model);
            rein_policy_files_free(&files);
            if (!found) status = rein_no_memory(err);
            else free(*place), *place = found;
        }
    }
    free(run);
    return status;
}

static rein_status put_judge(rein_text *text, const char *line, size_t length, rein_error *err) {
    size_t n = length;
    const char *path = path_in(line, &n);
    if (text->length) rein_text_put(text, "\n");
    if (!path || !n) return rein_text_append(text, line, length, err);
    char *given = strndup(path, n), *place = given ? absolute(given) : NULL;
    rein_status status = place ? find_checkpoint(&place, err) : rein_no_memory(err);
    if (!status) rein_text_format(text, "%s%s", MODEL, place);
    free(given);
    free(place);
    return status;
}

rein_status rein_settings_place_reward_models(rein_settings *s, rein_error *err) {
    rein_text text = {0};
    rein_status status = REIN_OK;
    if (!strstr(s->reward, MODEL)) return REIN_OK;
    for (const char *line = s->reward; *line && !status;) {
        const size_t length = strcspn(line, "\n");
        status = put_judge(&text, line, length, err);
        line += length + (line[length] == '\n');
    }
    if (!status) status = rein_text_status(&text, err);
    if (!status && strcmp(text.data, s->reward) != 0) {
        char *copy = strdup(text.data);
        if (copy) free(s->reward), s->reward = copy;
        else status = rein_no_memory(err);
    }
    rein_text_free(&text);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- hashes */

static int counts(const char *name) {
    static const char *const names[] = {"config.json",    "adapter_config.json",   "reward_model.json",
                                        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    static const char end[] = ".safetensors";
    const size_t length = strlen(name), tail = sizeof end - 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return 1;
    return length > tail && !strcmp(name + length - tail, end) && strncmp(name, "optimizer", strlen("optimizer")) != 0;
}

/* The files of one directory, or one GGUF file. */
static rein_status add_files(json_t *files, const char *key, const char *path, rein_error *err) {
    rein_names names = {0};
    if (rein_gguf_is(path)) return rein_fingerprint_add(files, key, path, err);
    if (!rein_file_is_directory(path)) return REIN_OK; /* opening it says so */
    rein_status status = rein_directory_list(&names, path, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        if (!counts(names.at[i])) continue;
        char *from = rein_path_join(path, names.at[i]), *to = rein_path_join(key, names.at[i]);
        status = from && to ? rein_fingerprint_add(files, to, from, err) : rein_no_memory(err);
        free(from);
        free(to);
    }
    rein_names_free(&names);
    return status;
}

/* The model below an adapter is that of the run, often: its files are hashed once more, as they need not stay the same. */
static rein_status add_model(json_t *files, size_t number, const char *path, rein_error *err) {
    char key[48], below[64];
    rein_adapter_info info;
    rein_text base = {0};
    rein_error why = {0};
    snprintf(key, sizeof key, "reward_model/%zu", number);
    snprintf(below, sizeof below, "%s/base", key);
    rein_status status = add_files(files, key, path, err);
    const int adapts =
        !status && rein_directory_has(path, "adapter_config.json") && !rein_adapter_describe_files(&info, &base, path, &why);
    if (adapts && base.data) status = add_files(files, below, base.data, err);
    rein_text_free(&base);
    return status;
}

rein_status rein_fingerprint_reward_models(json_t *files, const rein_settings *s, rein_error *err) {
    rein_status status = REIN_OK;
    size_t number = 0;
    for (const char *line = s->reward; *line && !status;) {
        const size_t whole = strcspn(line, "\n");
        size_t length = whole;
        const char *path = path_in(line, &length);
        char *copy = path ? strndup(path, length) : NULL;
        if (path) status = copy ? add_model(files, number++, copy, err) : rein_no_memory(err);
        free(copy);
        line += whole + (line[whole] == '\n');
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- memory */

static size_t bytes_of(const char *path, const rein_exec *exec) {
    rein_adapter_info info;
    rein_outline o = {0};
    rein_text base = {0};
    rein_error why = {0};
    size_t bytes = 0;
    if (rein_directory_has(path, "adapter_config.json") && !rein_adapter_describe_files(&info, &base, path, &why) && base.data)
        path = base.data;
    if (rein_model_exists(path) && !rein_outline_open(&o, path, NULL, NULL, 0, exec, &why)) bytes = o.vectors + o.packed;
    rein_outline_close(&o);
    rein_text_free(&base);
    return bytes;
}

size_t rein_reward_models_bytes(const rein_settings *s, const rein_exec *exec) {
    size_t bytes = 0;
    for (const char *line = s->reward; *line;) {
        const size_t whole = strcspn(line, "\n");
        size_t length = whole;
        const char *path = path_in(line, &length);
        char *copy = path ? strndup(path, length) : NULL;
        if (copy) bytes += bytes_of(copy, exec);
        free(copy);
        line += whole + (line[whole] == '\n');
    }
    return bytes;
}
