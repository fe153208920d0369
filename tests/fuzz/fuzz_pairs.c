/* fuzz_pairs.c - any bytes as preference data (libFuzzer). The first byte chooses pairs, pairs for a reward model or labelled completions, the chat
 * format, and how many positions the model has.
 *
 * A file is refused with one line that names it, and no group is left; or each pair is two trajectories that differ, both with a token that
 * trains and within the model's positions, the first with reward 1 and the second with reward 0. Labelled completions are one trajectory
 * each, some of reward 1 and some of reward 0. */
/* words: src/train/pairs.c src/train/sft.c */
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "rein/train.h"

enum { POSITIONS = 64, LABELLED = 64, SCORED = 32 };

static rein_tokenizer *open_tokenizer(void) {
    rein_tokenizer *tokenizer = NULL;
    rein_error err = {0};
    require(rein_tokenizer_open(&tokenizer, "models/sums", &err) == REIN_OK, "no tokenizer", err.message);
    return tokenizer;
}

static void check_answer(const rein_trajectory *t, int64_t positions) {
    size_t trained = 0;
    require(t->n_histories > 0, "an answer without a history", "");
    for (size_t i = 0; i < t->n_histories; i++) {
        const rein_history *h = &t->histories[i];
        require(h->n > 0 && !h->mask[0], "a history is empty, or its first token trains", "");
        require(!positions || (int64_t)h->n <= positions, "more tokens than the model has positions", "");
        for (size_t k = 0; k < h->n; k++) trained += h->mask[k];
    }
    require(trained > 0, "nothing trains", "");
}

static void check_pair(const rein_group *pair, int64_t positions) {
    require(pair->n == 2, "a pair of other than two", "");
    for (size_t k = 0; k < 2; k++) {
        check_answer(&pair->trajectories[k], positions);
        require((pair->trajectories[k].reward > 0) == (k == 0), "the chosen answer does not come first", "");
    }
}

/* For a reward model: one history, whose last token alone is scored. */
static void check_scored(const rein_group *pair) {
    for (size_t k = 0; k < 2; k++) {
        const rein_history *h = pair->trajectories[k].histories;
        require(pair->trajectories[k].n_histories == 1 && h->mask[h->n - 1], "no score at the last token", "");
        for (size_t i = 0; i + 1 < h->n; i++) require(!h->mask[i], "a score before the last token", "");
    }
}

static void check_labels(const rein_groups *groups, int64_t positions) {
    size_t desirable = 0;
    for (size_t g = 0; g < groups->n; g++) {
        require(groups->groups[g].n == 1, "a completion that is not alone", "");
        check_answer(&groups->groups[g].trajectories[0], positions);
        desirable += groups->groups[g].trajectories[0].reward > 0;
    }
    require(!groups->n || (desirable > 0 && desirable < groups->n), "all labels are the same", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rein_tokenizer *tokenizer;
    rein_groups pairs = {0};
    rein_error err = {0};
    if (!tokenizer) tokenizer = open_tokenizer();
    if (size < 1) return 0;
    const rein_chat chat = {.kind = data[0] % 2 ? REIN_CHAT_CHATML : REIN_CHAT_RAW};
    const int64_t positions = data[0] >= 128 ? POSITIONS : 0;
    const int labelled = (data[0] & LABELLED) != 0, scored = !labelled && (data[0] & SCORED) != 0;
    const rein_status status = (labelled ? rein_labelled_from_memory
                                : scored ? rein_reward_pairs_from_memory
                                         : rein_pairs_from_memory)(&pairs, (const char *)data + 1, size - 1, "it", tokenizer,
                                                                   data[0] % 3 ? &chat : NULL, 0, positions, &err);
    require(status == REIN_OK || status == REIN_EINVAL, "a status that is neither 0 nor 1", err.message);
    if (status)
        require(!strncmp(err.message, "it", 2) && !strpbrk(err.message, "\r\n") && !pairs.n, "a failure is not one line",
                err.message);
    if (labelled) check_labels(&pairs, positions);
    for (size_t g = 0; g < pairs.n && !labelled; g++) {
        check_pair(&pairs.groups[g], positions);
        if (scored) check_scored(&pairs.groups[g]);
    }
    rein_groups_free(&pairs);
    return 0;
}
