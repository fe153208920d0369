/* groups_read.c - lines into groups. A line is one JSON object; messages about it name file, line and JSON path.
 *
 * Keys that have no field are kept as JSON text, so that they can be written again. Of a trajectory that was read from messages everything is
 * kept, so that it can be written as messages. */
#include "train/groups.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"
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

/* The path of an object ends with a dot; that of an entry of a list is the list and an index. */
rein_status rein_group_wrong(rein_fields *in, const char *format, ...) {
    char message[sizeof in->err->message], field[REIN_GROUP_PATH];
    int64_t index = -1;
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    rein_group_path(field, "%s", in->path);
    const size_t length = strlen(field);
    if (!length) return in->status = rein_fail(in->err, REIN_EINVAL, "%s", message);
    field[length - 1] = 0;
    char *bracket = length > 1 && field[length - 2] == ']' ? strrchr(field, '[') : NULL;
    if (bracket) index = strtoll(bracket + 1, NULL, 10), *bracket = 0;
    return in->status = rein_fail_at(in->err, REIN_EINVAL, field, index, "%s", message);
}

rein_status rein_group_wrong_at(rein_fields *in, const char *key, int64_t index, const json_t *value, const char *need) {
    char shown[REIN_TEXT_SHOWN];
    return rein_fields_fail(in, REIN_EINVAL, key, index, "is %s: %s", value ? rein_json_show(shown, value) : "missing", need);
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

/* Compared as it is kept: what is written must be let through again. */
float rein_group_log_prob(rein_fields *in, const char *key, int64_t index, const json_t *value) {
    const float x = (float)json_number_value(value);
    if (!value || json_is_null(value)) return NAN;
    if (json_is_number(value) && rein_is_log_prob(x)) return x;
    rein_group_wrong_at(in, key, index, value, "a log-probability (0 or below) is needed, or null where it is not known");
    return NAN;
}

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

static rein_status read_history(rein_trajectory *t, rein_group_reader *reader, const json_t *object, const char *path) {
    rein_fields in = rein_group_fields(reader, object, path);
    if (rein_exact_has(object)) return rein_exact_read(t, reader, object, path);
    if (rein_art_has(object)) return rein_art_read(t, reader, object, path);
    return rein_group_wrong(&in, "has no tokens: prompt_ids and response_ids are needed, or messages_and_choices");
}

static rein_status read_more_histories(rein_trajectory *t, rein_group_reader *reader, rein_fields *in, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list) && !in->status; i++) {
        const json_t *object = json_array_get(list, i);
        char path[REIN_GROUP_PATH];
        rein_group_path(path, "%sadditional_histories[%zu].", in->path, i);
        if (!json_is_object(object))
            return rein_group_wrong_at(in, "additional_histories", (int64_t)i, object,
                                       "an object is needed, with tokens as a trajectory has them");
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

/* The object as text, without the fields, which NULL ends; NULL if nothing is left. */
static rein_status keep_json(char **json, const json_t *object, const char *const *fields, rein_error *err) {
    rein_text text = {0};
    json_t *rest = rein_json_copy(object);
    if (!rest) return rein_fail(err, REIN_ENOMEM, "out of memory");
    for (size_t i = 0; fields[i]; i++) json_object_del(rest, fields[i]);
    if (json_object_size(rest)) rein_json_put_value(&text, rest);
    json_decref(rest);
    const rein_status status = rein_text_status(&text, err);
    if (status) rein_text_free(&text);
    *json = text.data;
    return status;
}

static rein_status keep_rest(rein_trajectory *t, const json_t *object, rein_error *err) {
    static const char *const none[] = {NULL}, *const fields[] = {
                                                  "prompt_ids", "response_ids", "logprobs",  "mask",   "values",
                                                  "reward",     "policy_step",  "truncated", "budget", "additional_histories",
                                                  NULL};
    const int exact = rein_exact_has(object);
    t->from_messages = rein_art_has(object) && !exact;
    return keep_json(&t->json, object, exact ? fields : none, err);
}

static rein_status read_trajectory(rein_trajectory *t, rein_group_reader *reader, const json_t *object, const char *path) {
    rein_fields in = rein_group_fields(reader, object, path);
    const json_t *reward = json_object_get(object, "reward");
    if (!json_is_number(reward))
        return rein_fields_wrong(&in, "reward", json_is_null(reward) ? NULL : reward, "a number is needed");
    t->reward = json_number_value(reward);
    t->budget = rein_fields_integer_or(&in, "budget", 0, INT64_MAX, -1);
    t->policy_step = INT64_MAX; /* until a Choice is read */
    read_histories(t, reader, &in);
    if (t->policy_step == INT64_MAX) t->policy_step = -1;
    t->policy_step = rein_fields_integer_or(&in, "initial_policy_version", 0, INT64_MAX, t->policy_step); /* ART's word for it */
    t->policy_step = rein_fields_integer_or(&in, "policy_step", 0, INT64_MAX, t->policy_step);
    t->truncated = rein_fields_bool_or(&in, "truncated", t->truncated);
    return in.status ? in.status : keep_rest(t, object, reader->err);
}

/* ----------------------------------------------------------------------------------------------------------------------- groups */

static rein_status read_trajectories(rein_group *group, rein_group_reader *reader, const json_t *list) {
    rein_status status = REIN_OK;
    for (size_t t = 0; t < group->n && !status; t++) {
        const json_t *object = json_array_get(list, t);
        char path[REIN_GROUP_PATH];
        rein_group_path(path, "trajectories[%zu].", t);
        rein_fields in = rein_group_fields(reader, object, "");
        if (!json_is_object(object)) status = rein_group_wrong_at(&in, "trajectories", (int64_t)t, object, "an object is needed");
        else status = read_trajectory(&group->trajectories[t], reader, object, path);
    }
    return status;
}

static rein_status read_group(rein_group *group, rein_group_reader *reader, const json_t *root) {
    static const char *const fields[] = {"trajectories", NULL};
    rein_fields in = rein_group_fields(reader, root, "");
    const json_t *list = json_object_get(root, "trajectories");
    if (!json_is_array(list)) return rein_fields_wrong(&in, "trajectories", list, "an array of trajectories is needed");
    if (!json_array_size(list))
        return rein_fields_fail(&in, REIN_EINVAL, "trajectories", -1, "is empty: a group has one trajectory or more");
    group->trajectories = calloc(json_array_size(list), sizeof *group->trajectories);
    if (!group->trajectories) return rein_fail(reader->err, REIN_ENOMEM, "out of memory");
    group->n = json_array_size(list);
    const rein_status status = read_trajectories(group, reader, list);
    return status ? status : keep_json(&group->json, root, fields, reader->err);
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
        snprintf(where, sizeof where, "%s: line %zu", shown, line);
        if ((status = rein_line_end(&stop, text, at, length, where, reader->err))) break;
        if (!rein_all_blank(text + at, stop - at)) status = read_line(groups, reader, where, text + at, stop - at);
    }
    return status;
}

static rein_status choose_chat(rein_group_reader *reader, const rein_chat *chat) {
    if (chat && !rein_chat_name(chat))
        return rein_fail_at(reader->err, REIN_EINVAL, "chat.kind", -1, "is %d: no format", (int)chat->kind);
    if (chat) reader->chat = *chat;
    reader->given = chat != NULL;
    return REIN_OK;
}

/* On failure the groups are as they were. */
static void end_reading(rein_groups *groups, size_t before, rein_status status, rein_group_reader *reader) {
    for (size_t g = before; status && g < groups->n; g++) rein_group_free(&groups->groups[g]);
    if (status) groups->n = before;
    rein_group_reader_free(reader);
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
    rein_status status = choose_chat(&reader, chat);
    if (!status) status = read_lines(groups, &reader, text, length, shown);
    if (!status && groups->n == before)
        status = rein_fail(err, REIN_EINVAL, "%s has no group: one JSON object a line is needed, {\"trajectories\": [...]}", shown);
    end_reading(groups, before, status, &reader);
    return status;
}

/* The field of a group's error, as the whole list spells it. */
static rein_status name_entry(const char *name, size_t i, rein_status status, rein_error *err) {
    char field[sizeof err->field], reason[REIN_MESSAGE_SIZE];
    snprintf(field, sizeof field, "%s[%zu]%s%.90s", name, i, *err->field ? "." : "", err->field);
    snprintf(reason, sizeof reason, "%s", err->message + err->reason);
    return rein_fail_at(err, status, field, err->index, "%s%s", *err->field ? "" : ": ", reason);
}

rein_status rein_groups_from_json(rein_groups *groups, const rein_json *list, const char *name, const rein_tokenizer *tokenizer,
                                  const rein_chat *chat, rein_error *err) {
    rein_error room;
    rein_group_reader reader = {.tokenizer = tokenizer, .err = err ? err : &room};
    const size_t before = groups->n, n = json_array_size(list);
    rein_status status = choose_chat(&reader, chat);
    if (!status && !n)
        status =
            rein_fail_at(reader.err, REIN_EINVAL, name, -1, "must be a list of groups, {\"trajectories\": [...]}, one or more");
    for (size_t i = 0; i < n && !status; i++) {
        const json_t *entry = json_array_get(list, i), *trajectories = json_object_get(entry, "trajectories");
        rein_group group = {0};
        if (json_is_array(trajectories) && !json_array_size(trajectories)) continue;
        if (!json_is_object(entry))
            status = rein_fail_at(reader.err, REIN_EINVAL, name, (int64_t)i, "must be an object, {\"trajectories\": [...]}");
        else if ((status = read_group(&group, &reader, entry)) == REIN_EINVAL) name_entry(name, i, status, reader.err);
        if (!status) status = rein_groups_append(groups, &group, reader.err);
        rein_group_free(&group);
    }
    if (!status && groups->n == before)
        status = rein_fail_at(reader.err, REIN_EINVAL, name, -1, "has no group with a trajectory: there is nothing to train on");
    end_reading(groups, before, status, &reader);
    return status;
}

rein_status rein_groups_fit(const rein_groups *groups, const rein_model *model, const char *name, rein_error *err) {
    static const char own[] = "groups"; /* what its errors begin with */
    rein_error wrong = {0};
    char field[sizeof wrong.field];
    const rein_status status = rein_groups_check(groups, &(rein_groups_use){.model = model}, &wrong);
    if (!status) return REIN_OK;
    if (strncmp(wrong.field, own, strlen(own)) != 0) return rein_fail_with(err, status, &wrong);
    snprintf(field, sizeof field, "%.40s%.80s", name, wrong.field + strlen(own));
    return rein_fail_at(err, status, field, wrong.index, "%s", wrong.message + wrong.reason);
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
