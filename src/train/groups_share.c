/* groups_share.c - groups as bytes, and back. Both sides are the same program, so numbers travel as they are in memory; but every length is
 * checked against what is there before anything is allocated. */
#include "groups_share.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rollout/trajectory.h"

/* ---------------------------------------------------------------------------------------------------------------------- writing */

static const uint64_t ABSENT = UINT64_MAX;

static void put(rein_text *to, const void *bytes, size_t size) {
    if (size) rein_text_put_bytes(to, bytes, size);
}

static void put_number(rein_text *to, uint64_t x) { put(to, &x, sizeof x); }
static void put_double(rein_text *to, double x) { put(to, &x, sizeof x); }

static void put_bytes(rein_text *to, const void *bytes, size_t size) {
    put_number(to, bytes ? size : ABSENT);
    if (bytes) put(to, bytes, size);
}

static void put_string(rein_text *to, const char *text) { put_bytes(to, text, text ? strlen(text) : 0); }

static void put_numbers(rein_text *to, const rein_named_number *list, size_t n) {
    put_number(to, n);
    for (size_t i = 0; i < n; i++) {
        put_string(to, list[i].name);
        put_double(to, list[i].value);
    }
}

static void put_history(rein_text *to, const rein_history *h) {
    put_number(to, h->n);
    put_bytes(to, h->ids, h->n * sizeof *h->ids);
    put_bytes(to, h->mask, h->n * sizeof *h->mask);
    put_bytes(to, h->log_probs, h->n * sizeof *h->log_probs);
    put_bytes(to, h->values, h->n * sizeof *h->values);
    put_bytes(to, h->sampler_log_probs, h->n * sizeof *h->sampler_log_probs);
    put_bytes(to, h->advantages, h->n * sizeof *h->advantages);
    put_bytes(to, h->text_ends, h->n * sizeof *h->text_ends);
    put_bytes(to, h->text.data, h->text.length);
}

static void put_trajectory(rein_text *to, const rein_trajectory *t) {
    put_number(to, t->n_histories);
    for (size_t i = 0; i < t->n_histories; i++) put_history(to, &t->histories[i]);
    put_double(to, t->reward);
    put_number(to, (uint64_t)t->policy_step);
    put_number(to, (uint64_t)t->budget);
    put_number(to, (uint64_t)t->truncated);
    put_number(to, (uint64_t)t->finish);
    put_number(to, (uint64_t)t->from_messages);
    put_numbers(to, t->scores, t->n_scores);
    put_numbers(to, t->metrics, t->n_metrics);
    put_string(to, t->json);
}

static void put_example(rein_text *to, const rein_example *e) {
    put_string(to, e->prompt);
    put_string(to, e->answer);
    put_string(to, e->json);
    put_number(to, (uint64_t)e->budget);
    put_number(to, (uint64_t)e->needs_template);
    put_number(to, e->messages ? e->n_messages : ABSENT);
    for (size_t i = 0; e->messages && i < e->n_messages; i++) {
        put_string(to, e->messages[i].role);
        put_bytes(to, e->messages[i].content, e->messages[i].length);
    }
}

rein_status rein_group_pack(rein_text *bytes, const rein_group *group, rein_error *err) {
    put_number(bytes, group->n);
    for (size_t t = 0; t < group->n; t++) put_trajectory(bytes, &group->trajectories[t]);
    put_example(bytes, &group->example);
    put_string(bytes, group->json);
    return rein_text_status(bytes, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- reading */

typedef struct reader {
    const char *at;
    size_t left;
    rein_status status; /* the first failure */
} reader;

static const char *take(reader *r, size_t size) {
    const char *at = r->at;
    if (!r->status && size > r->left) r->status = REIN_EINVAL;
    if (r->status) return NULL;
    r->at += size, r->left -= size;
    return at;
}

static uint64_t number(reader *r) {
    uint64_t x = 0;
    const char *at = take(r, sizeof x);
    if (at) memcpy(&x, at, sizeof x);
    return x;
}

static double real(reader *r) {
    double x = 0;
    const char *at = take(r, sizeof x);
    if (at) memcpy(&x, at, sizeof x);
    return x;
}

static int flag(reader *r) {
    const uint64_t x = number(r);
    if (x > 1 && !r->status) r->status = REIN_EINVAL;
    return x == 1;
}

/* The bytes of a text or an array; NULL: it is absent, or wrong. */
static const char *bytes_of(size_t *size, reader *r) {
    const uint64_t n = number(r);
    *size = 0;
    if (r->status || n == ABSENT) return NULL;
    if (n > r->left) {
        r->status = REIN_EINVAL;
        return NULL;
    }
    *size = (size_t)n;
    return take(r, *size);
}

static void *copy_of(reader *r, const char *bytes, size_t size, size_t more) {
    char *copy = malloc(size + more ? size + more : 1);
    if (!copy) {
        r->status = REIN_ENOMEM;
        return NULL;
    }
    memcpy(copy, bytes, size);
    memset(copy + size, 0, more);
    return copy;
}

static char *string(reader *r) {
    size_t size;
    const char *bytes = bytes_of(&size, r);
    return bytes ? copy_of(r, bytes, size, 1) : NULL;
}

/* An array of n elements, or none. */
static void *array(reader *r, uint64_t n, size_t element, int needed) {
    size_t size;
    const char *bytes = bytes_of(&size, r);
    if (!r->status && (bytes ? size / element != n || size % element : needed)) r->status = REIN_EINVAL;
    return bytes && !r->status ? copy_of(r, bytes, size, 0) : NULL;
}

/* How many things follow, each of `least` bytes or more. */
static size_t count(reader *r, size_t least) {
    const uint64_t n = number(r);
    if (!r->status && n > r->left / least) r->status = REIN_EINVAL;
    return r->status ? 0 : (size_t)n;
}

static void *room(reader *r, size_t n, size_t element) {
    void *made = r->status ? NULL : calloc(n ? n : 1, element);
    if (!made && !r->status) r->status = REIN_ENOMEM;
    return made;
}

static rein_named_number *numbers(size_t *n, reader *r) {
    const size_t there = count(r, 2 * sizeof(uint64_t));
    rein_named_number *list = there ? room(r, there, sizeof *list) : NULL;
    *n = 0;
    for (size_t i = 0; list && i < there && !r->status; i++) {
        list[i].name = string(r);
        list[i].value = real(r);
        *n = i + 1;
        if (!list[i].name && !r->status) r->status = REIN_EINVAL;
    }
    return list;
}

static void read_text(rein_text *text, reader *r) {
    size_t size;
    const char *bytes = bytes_of(&size, r);
    if (bytes && rein_text_append(text, bytes, size, NULL)) r->status = REIN_ENOMEM;
}

static void read_history(rein_history *h, reader *r) {
    const uint64_t n = number(r);
    h->ids = array(r, n, sizeof *h->ids, 1);
    h->mask = array(r, n, sizeof *h->mask, 1);
    h->log_probs = array(r, n, sizeof *h->log_probs, 1);
    h->values = array(r, n, sizeof *h->values, 0);
    h->sampler_log_probs = array(r, n, sizeof *h->sampler_log_probs, 0);
    h->advantages = array(r, n, sizeof *h->advantages, 0);
    h->text_ends = array(r, n, sizeof *h->text_ends, 0);
    read_text(&h->text, r);
    if (!r->status) h->n = (size_t)n;
}

static void read_trajectory(rein_trajectory *t, reader *r) {
    const size_t n = count(r, sizeof(uint64_t));
    t->histories = room(r, n, sizeof *t->histories);
    for (; t->histories && t->n_histories < n && !r->status; t->n_histories++) read_history(&t->histories[t->n_histories], r);
    t->reward = real(r);
    t->policy_step = (int64_t)number(r);
    t->budget = (int64_t)number(r);
    t->truncated = flag(r);
    const uint64_t finish = number(r);
    if (finish > REIN_FINISH_CONTEXT && !r->status) r->status = REIN_EINVAL;
    t->finish = r->status ? REIN_FINISH_NONE : (rein_finish)finish;
    t->from_messages = flag(r);
    t->scores = numbers(&t->n_scores, r);
    t->metrics = numbers(&t->n_metrics, r);
    t->json = string(r);
}

/* The texts of an example, in one memory: their copies follow the messages. */
typedef struct texts {
    char *next;
    size_t needed;
} texts;

static const char *place(texts *to, reader *r, size_t *size) {
    const char *bytes = bytes_of(size, r), *at = to->next;
    if (!bytes) return NULL;
    to->needed += *size + 1;
    if (!to->next) return bytes;
    memcpy(to->next, bytes, *size);
    to->next[*size] = 0;
    to->next += *size + 1;
    return at;
}

/* Without to->next it only measures. */
static void read_example(rein_example *e, rein_message *messages, size_t *n_messages, texts *to, reader *r) {
    size_t size;
    e->prompt = place(to, r, &size);
    e->answer = place(to, r, &size);
    e->json = place(to, r, &size);
    e->budget = (int64_t)number(r);
    e->needs_template = flag(r);
    const uint64_t n = number(r);
    if (!r->status && n != ABSENT && n > r->left / (2 * sizeof n)) r->status = REIN_EINVAL;
    *n_messages = r->status || n == ABSENT ? 0 : (size_t)n;
    for (size_t i = 0; i < *n_messages && !r->status; i++) {
        rein_message m = {0};
        m.role = place(to, r, &size);
        m.content = place(to, r, &m.length);
        if (!r->status && (!m.role || !m.content)) r->status = REIN_EINVAL;
        if (messages) messages[i] = m;
    }
    e->messages = messages && n != ABSENT ? messages : NULL;
    e->n_messages = e->messages ? *n_messages : 0;
}

static void take_example(rein_example *e, reader *r) {
    rein_example measured = {0};
    texts to = {0};
    reader again = *r;
    size_t n;
    if (r->status) return;
    read_example(&measured, NULL, &n, &to, r);
    char *memory = room(r, n * sizeof(rein_message) + to.needed, 1);
    if (!memory) return;
    to = (texts){memory + n * sizeof(rein_message), 0};
    read_example(e, (rein_message *)(void *)memory, &n, &to, &again);
    e->memory = memory;
}

static void read_group(rein_group *group, reader *r) {
    const size_t n = count(r, sizeof(uint64_t));
    group->trajectories = room(r, n, sizeof *group->trajectories);
    for (; group->trajectories && group->n < n && !r->status; group->n++) read_trajectory(&group->trajectories[group->n], r);
    take_example(&group->example, r);
    group->json = string(r);
}

rein_status rein_group_unpack(rein_groups *groups, size_t *used, const char *bytes, size_t size, rein_error *err) {
    reader r = {bytes, size, REIN_OK};
    rein_group group = {0};
    read_group(&group, &r);
    rein_status status = r.status;
    if (status == REIN_EINVAL) rein_fail(err, status, "what another rank has sent is no group of trajectories");
    else if (status) rein_no_memory(err);
    else status = rein_groups_append(groups, &group, err);
    if (status) rein_group_free(&group);
    *used = status ? 0 : size - r.left;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- sharing */

typedef struct shared {
    rein_text own;
    size_t *sizes, *at; /* [ranks] bytes of each rank, and where its next group begins */
    char *all;
} shared;

/* The bytes of all ranks. */
static rein_status gather(shared *s, const rein_groups *own, rein_ranks *ranks, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    size_t sum = 0;
    rein_status status = REIN_OK;
    s->sizes = calloc(n, sizeof *s->sizes), s->at = calloc(n, sizeof *s->at);
    if (!s->sizes || !s->at) status = rein_no_memory(err);
    for (size_t g = 0; g < own->n && !status; g++) status = rein_group_pack(&s->own, &own->groups[g], err);
    status = rein_ranks_agree(ranks, status, err);
    if (!status) status = rein_ranks_gather(s->sizes, &s->own.length, sizeof s->own.length, ranks, err);
    if (status) return status;
    for (size_t r = 0; r < n; r++) s->at[r] = sum, sum += s->sizes[r];
    s->all = malloc(sum ? sum : 1);
    status = s->all ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the trajectories of %zu ranks: %zu bytes", n, sum);
    status = rein_ranks_agree(ranks, status, err);
    return status ? status : rein_ranks_gather_parts(s->all, s->own.data, s->sizes, ranks, err);
}

/* The groups of this rank stay as they are: they have the keys of its activation cache. */
static rein_status put_in_order(rein_groups *groups, rein_groups *own, shared *s, const size_t *where, size_t n, rein_ranks *ranks,
                                rein_error *err) {
    rein_status status = REIN_OK;
    size_t mine = 0;
    for (size_t i = 0; i < n && !status; i++) {
        const size_t rank = where[i];
        size_t used = 0, left = s->all ? s->sizes[rank] : 0;
        if (rank == rein_ranks_rank(ranks)) {
            status = mine < own->n ? rein_groups_append(groups, &own->groups[mine++], err)
                                   : rein_fail(err, REIN_EINVAL, "there are %zu groups: more were expected", own->n);
        } else {
            status = rein_group_unpack(groups, &used, s->all + s->at[rank], left, err);
            s->at[rank] += used, s->sizes[rank] -= used;
        }
    }
    return status;
}

rein_status rein_groups_share(rein_groups *groups, rein_groups *own, const size_t *where, size_t n, rein_ranks *ranks,
                              rein_error *err) {
    const size_t before = groups->n;
    shared s = {0};
    rein_status status = rein_ranks_several(ranks) ? gather(&s, own, ranks, err) : REIN_OK;
    if (!status) status = rein_ranks_agree(ranks, put_in_order(groups, own, &s, where, n, ranks, err), err);
    while (status && groups->n > before) rein_group_free(&groups->groups[--groups->n]);
    rein_text_free(&s.own);
    free(s.sizes);
    free(s.at);
    free(s.all);
    return status;
}
