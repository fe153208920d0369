/* groups_exact.c - a history that is token ids already: prompt_ids, response_ids, and what belongs to each token of the response. */
#include <math.h>
#include <stdlib.h>

#include "train/groups.h"

static int has(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

int rein_exact_has(const json_t *object) { return has(object, "response_ids") || has(object, "prompt_ids"); }

typedef struct parts {
    const json_t *prompt, *response, *log_probs, *mask, *values;
    size_t prompts, responses;
} parts;

static void check_length(rein_fields *in, const char *key, const json_t *list, size_t n) {
    if (list && json_array_size(list) != n)
        rein_fields_fail(in, REIN_EINVAL, key, -1, "has %zu entries, response_ids has %zu: they must agree", json_array_size(list),
                         n);
}

static const json_t *need_array(rein_fields *in, const char *key) {
    const json_t *list = rein_fields_array(in, key);
    if (!list) rein_fields_wrong(in, key, NULL, "an array of token ids is needed");
    return list;
}

static rein_status find_parts(parts *p, rein_fields *in) {
    *p = (parts){.prompt = need_array(in, "prompt_ids"), .response = need_array(in, "response_ids")};
    p->log_probs = rein_fields_array(in, "logprobs");
    p->mask = rein_fields_array(in, "mask");
    p->values = rein_fields_array(in, "values");
    p->prompts = json_array_size(p->prompt);
    p->responses = json_array_size(p->response);
    check_length(in, "logprobs", p->log_probs, p->responses);
    check_length(in, "mask", p->mask, p->responses);
    check_length(in, "values", p->values, p->responses);
    if (!p->prompts && !p->responses)
        rein_fields_fail(in, REIN_EINVAL, "prompt_ids", -1, "is empty, as is response_ids: there is no token");
    return in->status;
}

static int32_t read_id(rein_fields *in, const char *key, const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    const json_int_t id = json_integer_value(value);
    if (json_is_integer(value) && id >= 0 && id <= INT32_MAX) return (int32_t)id;
    rein_group_wrong_at(in, key, (int64_t)i, value, "a token id, a whole number from 0, is needed");
    return 0;
}

static uint8_t read_mask(rein_fields *in, const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    if (!list || json_is_true(value) || (json_is_integer(value) && json_integer_value(value) == 1)) return 1;
    if (!json_is_false(value) && !(json_is_integer(value) && json_integer_value(value) == 0))
        rein_group_wrong_at(in, "mask", (int64_t)i, value, "0, 1, false or true is needed");
    return 0;
}

static float read_log_prob(rein_fields *in, const json_t *list, size_t i) {
    return rein_group_log_prob(in, "logprobs", (int64_t)i, json_array_get(list, i));
}

static float read_value(rein_fields *in, const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    const float x = (float)json_number_value(value);
    if (json_is_null(value)) return NAN;
    if (!json_is_number(value) || !isfinite(x)) rein_group_wrong_at(in, "values", (int64_t)i, value, "a number is needed, or null");
    return x;
}

static int allocate(rein_history *h, size_t n, int values) {
    h->ids = malloc(n * sizeof *h->ids);
    h->mask = malloc(n * sizeof *h->mask);
    h->log_probs = malloc(n * sizeof *h->log_probs);
    h->values = values ? malloc(n * sizeof *h->values) : NULL;
    return h->ids && h->mask && h->log_probs && (h->values || !values);
}

static void read_tokens(rein_history *h, rein_fields *in, const parts *p) {
    for (size_t k = 0; k < h->n && !in->status; k++) {
        const int prompt = k < p->prompts;
        const size_t i = prompt ? k : k - p->prompts;
        h->ids[k] = prompt ? read_id(in, "prompt_ids", p->prompt, i) : read_id(in, "response_ids", p->response, i);
        h->mask[k] = prompt ? 0 : read_mask(in, p->mask, i);
        const float log_prob = prompt ? NAN : read_log_prob(in, p->log_probs, i);
        h->log_probs[k] = h->mask[k] ? log_prob : NAN;
        if (h->values) h->values[k] = prompt ? NAN : read_value(in, p->values, i);
    }
}

rein_status rein_exact_read(rein_trajectory *trajectory, const rein_group_reader *reader, const json_t *object, const char *path) {
    rein_fields in = rein_group_fields(reader, object, path);
    rein_history h = {0};
    parts p;
    if (find_parts(&p, &in)) return in.status;
    h.n = p.prompts + p.responses;
    if (!allocate(&h, h.n, p.values != NULL)) in.status = rein_no_memory(reader->err);
    if (!in.status) read_tokens(&h, &in, &p);
    if (!in.status && h.mask[0])
        rein_fields_fail(&in, REIN_EINVAL, "prompt_ids", -1, "is empty: the first token cannot train: no token precedes it");
    if (!in.status) in.status = rein_trajectory_append(trajectory, &h, reader->err);
    rein_history_free(&h);
    return in.status;
}
