/* groups_read.c - lines into groups. A line is one JSON object; messages about it name file, line and JSON path.
 *
 * Keys that have no field are kept as JSON text, so that they can be written again. Of a trajectory that was read from messages everything is
 * kept, so that it can be written as messages. */
#include "train/groups.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/tokenizer_parts.h"

static const char convert[] =
    "import sys,json,itertools as i,pyarrow.parquet as q;[print(json.dumps({'trajectories':list(g)}))for _,g in "
    "i.groupby(q.read_table(sys.argv[1]).to_pylist(),lambda r:r['group_index'])]";

/* --------------------------------------------------------------------------------------------------------------------- messages */

void rein_group_path(char to[REIN_GROUP_PATH], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to, REIN_GROUP_PATH, format, arguments);
    va_end(arguments);
}

rein_fields rein_group_fields(const rein_group_reader *reader, const json_t *object, const char *path) {
    return (rein_fields){.object = object, .path = path, .err = reader->err};
}

rein_status rein_group_wrong(rein_fields *in, const char *format, ...) {
    char message[sizeof in->err->message], field[REIN_GROUP_PATH];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    const size_t length = strlen(in->path);
    rein_group_path(field, "%.*s", length ? (int)length - 1 : 0, in->path); /* without the dot */
    if (*message == ' ' && length) in->status = rein_fail_at(in->err, REIN_EINVAL, field, -1, "%s", message + 1);
    else in->status = rein_fail(in->err, REIN_EINVAL, "%s%s", in->path, message + (*message == ' '));
    return in->status;
}

rein_status rein_group_no_tokenizer(rein_fields *in, const char *key) {
    if (in->status) return in->status;
    return in->status = rein_fail_at(in->err, REIN_EINVAL, "tokenizer", -1,
                                     "is missing: %s%s cannot be read without one (token ids can)", in->path, key);
}

/* The JSON that a text holds; as a field of an object it can be parsed like a file. */
static json_t *parse_text(rein_fields *in, const json_t *value) {
    rein_text text = {0};
    rein_error why = {0};
    json_t *root = NULL, *list;
    rein_status status = rein_text_append(&text, "{\"\":", 4, &why);
    if (!status) status = rein_text_append(&text, json_string_value(value), json_string_length(value), &why);
    if (!status) status = rein_text_append(&text, "}", 1, &why);
    if (!status) status = rein_json_parse(&root, text.data, text.length, NULL, REIN_JSON_NEEDS_OBJECT, &why);
    if (status == REIN_ENOMEM) in->status = rein_fail(in->err, status, "out of memory");
    list = json_incref(json_object_get(root, ""));
    json_decref(root);
    rein_text_free(&text);
    return list;
}

json_t *rein_group_list(rein_fields *in, const char *key) {
    json_t *value = in->status ? NULL : json_object_get(in->object, key), *list;
    if (!value || json_is_null(value)) return NULL;
    list = json_is_string(value) ? parse_text(in, value) : json_incref(value);
    if (json_is_array(list)) return list;
    json_decref(list);
    rein_fields_wrong(in, key, value, "an array is needed");
    return NULL;
}

/* Above 0 by what rounding can do, it is let through. Compared as it is kept: what is written must be let through again. */
float rein_group_log_prob(rein_fields *in, const char *key, const json_t *value) {
    const float x = (float)json_number_value(value);
    if (!value || json_is_null(value)) return NAN;
    if (json_is_number(value) && x <= 1e-3f && x >= -FLT_MAX) return x;
    rein_fields_wrong(in, key, value, "a log-probability (0 or below) is needed, or null where it is not known");
    return NAN;
}

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

static rein_status read_history(rein_trajectory *t, rein_group_reader *reader, const json_t *object, const char *path) {
    rein_fields in = rein_group_fields(reader, object, path);
    if (rein_exact_has(object)) return rein_exact_read(t, reader, object, path);
    if (rein_art_has(object)) return rein_art_read(t, reader, object, path);
    return rein_group_wrong(&in, " has no tokens: prompt_ids and response_ids are needed, or messages_and_choices");
}

static rein_status read_more_histories(rein_trajectory *t, rein_group_reader *reader, rein_fields *in, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list) && !in->status; i++) {
        const json_t *object = json_array_get(list, i);
        char path[REIN_GROUP_PATH];
        rein_group_path(path, "%sadditional_histories[%zu].", in->path, i);
        if (!json_is_object(object)) {
            path[strlen(path) - 1] = 0;
            return rein_fields_wrong(in, path + strlen(in->path), object,
                                     "an object is needed, with tokens as a trajectory has them");
        }
        in->status = read_history(t, reader, object, path);
    }
    return in->status;
}

/* ART has trajectories whose conversations are all in additional_histories. */
static rein_status read_histories(rein_trajectory *t, rein_group_reader *reader, rein_fields *in) {
    json_t *more = rein_group_list(in, "additional_histories");
    const json_t *messages = json_object_get(in->object, "messages_and_choices");
    const int none = !rein_exact_has(in->object) && json_is_array(messages) && !json_array_size(messages) && json_array_size(more);
    if (!in->status && !none) in->status = read_history(t, reader, in->object, in->path);
    read_more_histories(t, reader, in, more);
    json_decref(more);
    return in->status;
}

/* The object as text; NULL if it is empty. */
static rein_status keep_json(char **json, const json_t *object, rein_error *err) {
    rein_text text = {0};
    if (!json_object_size(object)) return REIN_OK;
    rein_json_put_value(&text, object);
    const rein_status status = rein_text_status(&text, err);
    if (status) rein_text_free(&text);
    *json = text.data;
    return status;
}

static rein_status keep_rest(rein_trajectory *t, json_t *object, rein_error *err) {
    static const char *const fields[] = {"prompt_ids", "response_ids", "logprobs",  "mask",   "values",
                                         "reward",     "policy_step",  "truncated", "budget", "additional_histories"};
    const int exact = rein_exact_has(object);
    t->from_messages = rein_art_has(object) && !exact;
    for (size_t i = 0; exact && i < sizeof fields / sizeof *fields; i++) json_object_del(object, fields[i]);
    return keep_json(&t->json, object, err);
}

static rein_status read_trajectory(rein_trajectory *t, rein_group_reader *reader, json_t *object, const char *path) {
    rein_fields in = rein_group_fields(reader, object, path);
    const json_t *reward = json_object_get(object, "reward");
    if (!json_is_number(reward))
        return rein_fields_wrong(&in, "reward", json_is_null(reward) ? NULL : reward, "a number is needed");
    t->reward = json_number_value(reward);
    t->policy_step = rein_fields_integer_or(&in, "initial_policy_version", 0, INT64_MAX, -1); /* ART's word for it */
    t->policy_step = rein_fields_integer_or(&in, "policy_step", 0, INT64_MAX, t->policy_step);
    t->budget = rein_fields_integer_or(&in, "budget", 0, INT64_MAX, -1);
    read_histories(t, reader, &in);
    t->truncated = rein_fields_bool_or(&in, "truncated", t->truncated);
    return in.status ? in.status : keep_rest(t, object, reader->err);
}

/* ----------------------------------------------------------------------------------------------------------------------- groups */

static rein_status read_trajectories(rein_group *group, rein_group_reader *reader, const json_t *list) {
    rein_status status = REIN_OK;
    for (size_t t = 0; t < group->n && !status; t++) {
        json_t *object = json_array_get(list, t);
        char path[REIN_GROUP_PATH];
        rein_group_path(path, "trajectories[%zu]%s", t, json_is_object(object) ? "." : "");
        rein_fields in = rein_group_fields(reader, object, "");
        if (!json_is_object(object)) status = rein_fields_wrong(&in, path, object, "an object is needed");
        else status = read_trajectory(&group->trajectories[t], reader, object, path);
    }
    return status;
}

static rein_status read_group(rein_group *group, rein_group_reader *reader, json_t *root) {
    rein_fields in = rein_group_fields(reader, root, "");
    const json_t *list = json_object_get(root, "trajectories");
    if (!json_is_array(list)) return rein_fields_wrong(&in, "trajectories", list, "an array of trajectories is needed");
    if (!json_array_size(list)) return rein_group_wrong(&in, "trajectories is empty: a group has one trajectory or more");
    group->trajectories = calloc(json_array_size(list), sizeof *group->trajectories);
    if (!group->trajectories) return rein_fail(reader->err, REIN_ENOMEM, "out of memory");
    group->n = json_array_size(list);
    const rein_status status = read_trajectories(group, reader, list);
    if (status) return status;
    json_object_del(root, "trajectories");
    return keep_json(&group->json, root, reader->err);
}

static rein_status read_line(rein_groups *groups, rein_group_reader *reader, const char *where, const char *text, size_t length) {
    rein_group group = {0};
    json_t *root;
    rein_status status = rein_json_parse(&root, text, length, where, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, reader->err);
    if (status) return status;
    status = read_group(&group, reader, root);
    if (!status) status = rein_groups_append(groups, &group, reader->err);
    else if (status == REIN_EINVAL) rein_fail_in(reader->err, status, "%s", where);
    rein_group_free(&group);
    json_decref(root);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ files */

static rein_status read_lines(rein_groups *groups, rein_group_reader *reader, const char *text, size_t length, const char *shown) {
    char where[REIN_PATH_SHOWN + 32];
    rein_status status = REIN_OK;
    size_t line = 1;
    for (size_t at = 0, stop; at < length && !status; at = stop + 1, line++) {
        const char *newline = memchr(text + at, '\n', length - at);
        stop = newline ? (size_t)(newline - text) : length;
        snprintf(where, sizeof where, "%s: line %zu", shown, line);
        if (!rein_all_blank(text + at, stop - at)) status = read_line(groups, reader, where, text + at, stop - at);
    }
    return status;
}

rein_status rein_groups_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                    const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err) {
    rein_error room;
    rein_group_reader reader = {.tokenizer = tokenizer, .err = err ? err : &room};
    const size_t before = groups->n;
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, name);
    if (length >= 4 && memcmp(text, "PAR1", 4) == 0)
        return rein_fail(err, REIN_EINVAL,
                         "%s is Parquet: JSON lines are needed, which python3 -c \"%s\" FILE.parquet > FILE.jsonl makes", shown,
                         convert);
    if (chat && !rein_chat_name(chat)) return rein_fail(err, REIN_EINVAL, "chat.kind is %d: no format", (int)chat->kind);
    if (chat) reader.chat = *chat;
    reader.given = chat != NULL;
    rein_status status = read_lines(groups, &reader, text, length, shown);
    if (!status && groups->n == before)
        status = rein_fail(err, REIN_EINVAL, "%s has no group: one JSON object a line is needed, {\"trajectories\": [...]}", shown);
    for (size_t g = before; status && g < groups->n; g++) rein_group_free(&groups->groups[g]);
    if (status) groups->n = before;
    rein_group_reader_free(&reader);
    return status;
}

rein_status rein_groups_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                             rein_error *err) {
    rein_file file;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = rein_groups_from_memory(groups, (const char *)file.data, file.size, path, tokenizer, chat, err);
    rein_file_unmap(&file);
    return status;
}
