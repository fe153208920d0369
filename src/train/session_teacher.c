/* session_teacher.c - the teacher of a run: a model that is opened once, and compared token by token.
 *
 * Its log-probs and those of the policy are about the same ids, so one token that differs would teach something else without a sign of it.
 * The number of rows of the two heads may differ by padding; a divergence over the whole vocabulary needs the same. */
#include <string.h>

#include "base/base.h"
#include "base/show.h"
#include "session.h"
#include "settings.h"

enum { TEACHER = -2, MOST_REFERENCES = 64 << 20 }; /* its identity in the reference cache, where checkpoints are 0 and more */

static rein_status different_token(int32_t id, const rein_tokenizer *own, const rein_tokenizer *other, rein_error *err) {
    size_t length, other_length;
    char shown[80], other_shown[80];
    const char *token = rein_tokenizer_token(&length, own, id), *other_token = rein_tokenizer_token(&other_length, other, id);
    if (token) rein_show_short(shown, sizeof shown, token, length);
    if (other_token) rein_show_short(other_shown, sizeof other_shown, other_token, other_length);
    return rein_fail_at(err, REIN_EINVAL, "teacher", -1,
                        "has another vocabulary: token %d is \"%s\" for the policy, and \"%s\" for the teacher; both need the same "
                        "tokens",
                        (int)id, token ? shown : "", other_token ? other_shown : "");
}

static int is_same_token(const rein_tokenizer *own, const rein_tokenizer *other, int32_t id) {
    size_t length = 0, other_length = 0;
    const char *token = rein_tokenizer_token(&length, own, id), *other_token = rein_tokenizer_token(&other_length, other, id);
    if (!token || !other_token) return !token && !other_token;
    return length == other_length && !memcmp(token, other_token, length);
}

static rein_status compare_tokens(const rein_tokenizer *own, const rein_tokenizer *other, rein_error *err) {
    const size_t n = rein_tokenizer_size(own), m = rein_tokenizer_size(other);
    for (size_t id = 0; id < n || id < m; id++)
        if (!is_same_token(own, other, (int32_t)id)) return different_token((int32_t)id, own, other, err);
    return REIN_OK;
}

static rein_status compare_sizes(const rein_session *s, rein_error *err) {
    const int64_t own = rein_model_describe(s->model).vocabulary, other = rein_model_describe(s->teacher).vocabulary;
    if (own == other || (rein_teacher_in_advantage(&s->settings.objective) && other > own)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "teacher", -1,
                        "has a vocabulary of %lld tokens, and the policy one of %lld: they must agree", (long long)other,
                        (long long)own);
}

/* A policy without a tokenizer trains on ids: then only the sizes can be compared. */
static rein_status compare_vocabularies(const rein_session *s, rein_error *err) {
    rein_tokenizer *own = NULL, *other = NULL;
    rein_status status = REIN_OK;
    if (rein_tokenizer_exists(s->settings.model)) {
        status = rein_tokenizer_open(&own, s->settings.model, err);
        if (!status && !rein_tokenizer_exists(s->settings.teacher))
            status = rein_fail_at(err, REIN_EINVAL, "teacher", -1, "has no tokenizer: its vocabulary cannot be compared");
        if (!status) status = rein_tokenizer_open(&other, s->settings.teacher, err);
        if (!status) status = compare_tokens(own, other, err);
    }
    rein_tokenizer_close(own);
    rein_tokenizer_close(other);
    return status ? status : compare_sizes(s, err);
}

rein_status rein_session_open_teacher(rein_session *s, rein_error *err) {
    if (!*s->settings.teacher) return REIN_OK;
    const rein_model_options how = {.exec = s->exec};
    rein_status status = rein_model_open(&s->teacher, s->settings.teacher, &how, err);
    if (status) return rein_fail_in(err, status, "teacher");
    return compare_vocabularies(s, err);
}

rein_status rein_session_teacher_log_probs(float *log_probs, rein_session *s, double temperature, const rein_groups *groups,
                                           rein_error *err) {
    const rein_policy policy = {s->teacher, NULL, temperature};
    if (!s->references) s->references = rein_reference_cache_new(MOST_REFERENCES);
    if (!s->references) return rein_fail(err, REIN_ENOMEM, "no memory for log-probs of the teacher");
    return rein_reference_cache_log_probs(log_probs, s->references, s->trainer, &policy, TEACHER, groups, err);
}
