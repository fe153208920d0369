/* fuzz_groups.c - any bytes as trajectory groups (libFuzzer). The first byte chooses the chat format, or that there is no tokenizer.
 *
 * A file is refused with one line that names it, or read; then every history holds what train.h says of it, and what is written in either
 * form reads back the same. */
/* words: src/train/groups*.c */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "train/groups.h"

/* Where the tests run, and where the fuzzer was built. */
static rein_tokenizer *open_tokenizer(void) {
    rein_tokenizer *tokenizer = NULL;
    rein_error err = {0};
    require(rein_tokenizer_open(&tokenizer, "tests/train/fixtures/groups/tokenizer", &err) == REIN_OK, "no tokenizer", err.message);
    return tokenizer;
}

static void check_history(const rein_history *h) {
    require(h->n > 0 && !h->mask[0], "a history is empty, or its first token trains", "");
    for (size_t k = 0; k < h->n; k++) {
        require(h->ids[k] >= 0 && h->mask[k] <= 1, "a token is none", "");
        require(h->mask[k] ? !isinf(h->log_probs[k]) : isnan(h->log_probs[k]), "a log-probability is none", "");
    }
}

static int same(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

static void check_same(const rein_trajectory *x, const rein_trajectory *y, const char *text) {
    require(x->n_histories == y->n_histories && x->reward == y->reward && x->policy_step == y->policy_step,
            "it reads back otherwise", text);
    require(x->truncated == y->truncated && x->budget == y->budget, "it reads back otherwise", text);
    for (size_t i = 0; i < x->n_histories; i++) {
        const rein_history *a = &x->histories[i], *b = &y->histories[i];
        require(a->n == b->n && !memcmp(a->ids, b->ids, a->n * sizeof *a->ids) && !memcmp(a->mask, b->mask, a->n), "other tokens",
                text);
        require(!a->values == !b->values, "values are lost", text);
        for (size_t k = 0; k < a->n; k++)
            require(same(a->log_probs[k], b->log_probs[k]) && (!a->values || same(a->values[k], b->values[k])), "other numbers",
                    text);
    }
}

static void check_round_trip(const rein_groups *groups, rein_groups_form form, const rein_tokenizer *tokenizer,
                             const rein_chat *chat) {
    rein_text text = {0};
    rein_groups back = {0};
    rein_error err = {0};
    rein_status status = REIN_OK;
    for (size_t g = 0; g < groups->n && !status; g++) status = rein_group_put(&text, &groups->groups[g], g, form, &err);
    require(!status || form == REIN_GROUPS_ART, "what was read cannot be written", err.message);
    if (!status) {
        status = rein_groups_from_memory(&back, text.data, text.length, "again", tokenizer, chat, &err);
        require(!status && back.n == groups->n, err.message, text.data);
        for (size_t g = 0; g < back.n; g++)
            for (size_t t = 0; t < back.groups[g].n; t++)
                check_same(&groups->groups[g].trajectories[t], &back.groups[g].trajectories[t], text.data);
    }
    rein_groups_free(&back);
    rein_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {NULL, "raw", "chatml", "qwen2.5", "qwen3", "llama3", "llama3.1"};
    static rein_tokenizer *tokenizer;
    rein_groups groups = {0};
    rein_error err = {0};
    rein_chat chat;
    if (!tokenizer) tokenizer = open_tokenizer();
    if (size < 1) return 0;
    const char *format = formats[data[0] % 7];
    const rein_tokenizer *used = data[0] < 128 ? tokenizer : NULL;
    if (format) require(rein_chat_named(&chat, format, &err) == REIN_OK, "a known name is not known", format);
    const rein_chat *given = format ? &chat : NULL;
    const rein_status status = rein_groups_from_memory(&groups, (const char *)data + 1, size - 1, "it", used, given, &err);
    require(status == REIN_OK || status == REIN_EINVAL, "a status that is neither 0 nor 1", err.message);
    if (status)
        require(!strncmp(err.message, "it", 2) && !strpbrk(err.message, "\r\n") && !groups.n, "a failure is not one line",
                err.message);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t t = 0; t < groups.groups[g].n; t++)
            for (size_t i = 0; i < groups.groups[g].trajectories[t].n_histories; i++)
                check_history(&groups.groups[g].trajectories[t].histories[i]);
    if (!status) check_round_trip(&groups, REIN_GROUPS_EXACT, NULL, NULL);
    if (!status) check_round_trip(&groups, REIN_GROUPS_ART, used, given);
    rein_groups_free(&groups);
    return 0;
}
