/* groups_write.c - groups as lines. In the exact form a prompt is everything before the first token that trains (or has a value), so reading
 * gives the same arrays whatever the prompt was called before. groups_more.c writes what belongs to a trajectory besides its tokens. */
#include "train/groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

static void put_integer(rein_text *text, const char *key, int64_t value) {
    rein_json_put_name(text, key);
    rein_text_format(text, "%lld", (long long)value);
}

static void put_bool(rein_text *text, const char *key, int value) {
    rein_json_put_name(text, key);
    rein_text_put(text, value ? "true" : "false");
}

/* -------------------------------------------------------------------------------------------------------------------- histories */

size_t rein_prompt_length(const rein_history *h) {
    size_t n = 0;
    while (n < h->n && !h->mask[n] && !(h->values && !isnan(h->values[n]))) n++;
    return n;
}

typedef enum column { IDS, MASK, LOG_PROBS, VALUES } column;

/* A locale may have a comma where JSON has a point; a whole number has no sign if it is 0. */
static void show_float(char room[32], float x) {
    snprintf(room, 32, isnan(x) ? "null" : x == 0 ? "%.1f" : "%.9g", (double)x);
    for (char *c = room; *c; c++)
        if (*c == ',') *c = '.';
}

static void put_column(rein_text *text, const char *key, const rein_history *h, column which, size_t begin, size_t end) {
    const float *recorded = rein_history_recorded(h);
    rein_json_put_name(text, key);
    rein_text_put(text, "[");
    for (size_t k = begin; k < end; k++) {
        char room[32];
        if (which == IDS) snprintf(room, sizeof room, "%ld", (long)h->ids[k]);
        else if (which == MASK) snprintf(room, sizeof room, "%d", h->mask[k] != 0);
        else show_float(room, which == VALUES ? h->values[k] : h->mask[k] ? recorded[k] : NAN);
        if (k > begin) rein_text_put(text, ", ");
        rein_text_put(text, room);
    }
    rein_text_put(text, "]");
}

static void put_history(rein_text *text, const rein_history *h) {
    const size_t prompt = rein_prompt_length(h);
    put_column(text, "prompt_ids", h, IDS, 0, prompt);
    put_column(text, "response_ids", h, IDS, prompt, h->n);
    put_column(text, "logprobs", h, LOG_PROBS, prompt, h->n);
    put_column(text, "mask", h, MASK, prompt, h->n);
    if (h->values) put_column(text, "values", h, VALUES, prompt, h->n);
}

static void put_more_histories(rein_text *text, const rein_trajectory *t) {
    if (t->n_histories < 2) return;
    rein_json_put_name(text, "additional_histories");
    for (size_t i = 1; i < t->n_histories; i++) {
        rein_text_put(text, i == 1 ? "[{" : ", {");
        put_history(text, &t->histories[i]);
        rein_text_put(text, "}");
    }
    rein_text_put(text, "]");
}

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

static rein_status put_exact(rein_text *text, const rein_trajectory *t, const json_t *kept, const rein_example *example,
                             rein_error *err) {
    enum { MESSAGES = 3 }; /* they are not needed where the tokens were made of them */
    static const char *const fields[] = {"messages_and_choices",
                                         "messages",
                                         "tools",
                                         "prompt_ids",
                                         "response_ids",
                                         "logprobs",
                                         "mask",
                                         "values",
                                         "reward",
                                         "policy_step",
                                         "truncated",
                                         "budget",
                                         "additional_histories",
                                         NULL};
    put_history(text, &t->histories[0]);
    if (t->policy_step >= 0) put_integer(text, "policy_step", t->policy_step);
    rein_json_put_name(text, "reward");
    rein_json_put_shortest(text, t->reward);
    if (t->truncated) put_bool(text, "truncated", 1);
    if (t->budget >= 0) put_integer(text, "budget", t->budget);
    const rein_status status = rein_more_put(text, t, kept, t->from_messages ? fields : fields + MESSAGES, example, err);
    put_more_histories(text, t);
    return status;
}

/* What was read, with the current values of what may have changed. */
static rein_status put_art(rein_text *text, const rein_trajectory *t, const json_t *kept, const rein_example *example,
                           rein_error *err) {
    static const char *const changing[] = {"reward", "policy_step", "truncated", "budget", NULL};
    const json_t *reward = json_object_get(kept, "reward"), *version = json_object_get(kept, "initial_policy_version");
    rein_json_put_name(text, "reward");
    if (json_is_number(reward) && json_number_value(reward) == t->reward) rein_json_put_value(text, reward);
    else rein_json_put_shortest(text, t->reward);
    const rein_status status = rein_more_put(text, t, kept, changing, example, err);
    if (t->policy_step >= 0 && !(json_is_integer(version) && json_integer_value(version) == t->policy_step))
        put_integer(text, "policy_step", t->policy_step);
    if (t->budget >= 0) put_integer(text, "budget", t->budget);
    if (json_object_get(kept, "truncated")) put_bool(text, "truncated", t->truncated);
    return status;
}

static rein_status put_trajectory(rein_text *text, const rein_trajectory *t, const rein_example *example, const char *path,
                                  size_t i, rein_groups_form form, rein_error *err) {
    json_t *kept = NULL;
    if (form == REIN_GROUPS_ART && !t->from_messages)
        return rein_fail_at(err, REIN_EINVAL, path, (int64_t)i, "was not read from messages: only the exact form can be written");
    rein_status status = rein_kept_parse(&kept, t->json, err);
    if (status) return status;
    rein_text_put(text, "{");
    status = form == REIN_GROUPS_ART ? put_art(text, t, kept, example, err) : put_exact(text, t, kept, example, err);
    rein_text_put(text, "}");
    json_decref(kept);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------------- groups */

rein_status rein_group_put(rein_text *text, const rein_group *group, size_t g, rein_groups_form form, rein_error *err) {
    static const char *const fields[] = {"trajectories", NULL};
    json_t *kept = NULL;
    char path[80];
    snprintf(path, sizeof path, "groups[%zu].trajectories", g);
    rein_status status = rein_group_check(group, g, &(rein_groups_use){0}, err);
    rein_text_put(text, "{\"trajectories\": [");
    for (size_t t = 0; t < group->n && !status; t++) {
        if (t) rein_text_put(text, ", ");
        status = put_trajectory(text, &group->trajectories[t], &group->example, path, t, form, err);
    }
    if (!status) status = rein_kept_parse(&kept, group->json, err);
    if (status) return status;
    rein_text_put(text, "]");
    rein_kept_put(text, kept, fields);
    rein_text_put(text, "}\n");
    json_decref(kept);
    return rein_text_status(text, err);
}

rein_status rein_groups_write(const char *path, const rein_groups *groups, rein_groups_form form, rein_error *err) {
    rein_writer writer = {0};
    rein_text text = {0};
    if (form != REIN_GROUPS_EXACT && form != REIN_GROUPS_ART)
        return rein_fail_at(err, REIN_EINVAL, "form", -1, "is %d: no form", (int)form);
    rein_status status = rein_writer_open(&writer, path, err);
    for (size_t g = 0; g < groups->n && !status; g++) {
        rein_text_cut(&text, 0);
        status = rein_group_put(&text, &groups->groups[g], g, form, err);
        if (!status) status = rein_writer_put(&writer, text.data, text.length, err);
    }
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    rein_text_free(&text);
    return status;
}
