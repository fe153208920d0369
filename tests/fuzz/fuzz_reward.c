/* fuzz_reward.c - any bytes as the answer of a reward program, and as a completion in a request (libFuzzer). The first byte says how many
 * rewards are wanted, and whether of a group.
 *
 * An answer is refused with REIN_EIO and one line, and no reward is written; or every reward is finite. A request is one line of JSON that
 * has the text unchanged, or the text is not UTF-8. */
/* words: src/rollout/reward_line.c */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/require.h"
#include "model/unicode.h"
#include "rollout/reward.h"

enum { MOST = 8 };

static void check_answer(const char *line, size_t length, size_t n, int whole_group) {
    rein_answer_line answer;
    rein_error err = {0};
    double rewards[MOST];
    for (size_t i = 0; i < MOST; i++) rewards[i] = NAN;
    rein_status status = rein_answer_read(&answer, line, length, &err);
    if (!status) {
        require(answer.id >= -1 && (answer.object || isfinite(answer.plain)), "not an answer", "");
        status = rein_answer_rewards(rewards, &answer, n, whole_group, &err);
        rein_answer_free(&answer);
    }
    for (size_t i = 0; i < MOST; i++)
        require(!status && i < n ? isfinite(rewards[i]) : isnan(rewards[i]), "a reward too few or too many", err.message);
    if (status)
        require(status == REIN_EIO && *err.message && !strpbrk(err.message, "\r\n"), "not a refusal of one line", err.message);
}

static void check_request(const char *text, size_t length, size_t n, int whole_group) {
    const rein_example example = {.prompt = (char *)(uintptr_t) "p", .json = (char *)(uintptr_t) "{\"prompt\": \"p\"}"};
    rein_response responses[MOST];
    rein_error err = {0};
    json_t *request;
    char *line;
    for (size_t i = 0; i < n; i++) responses[i] = (rein_response){.example = &example, .text = text, .length = length};
    const rein_status status = rein_request_line(&line, 1, responses, n, whole_group, &err);
    require(!status == (rein_utf8_valid(text, length) == length), "UTF-8 is refused, or something else accepted", err.message);
    if (!status && !memchr(text, 0, length)) {
        require(!strpbrk(line, "\r\n"), "a request is not one line", line);
        require(!rein_json_parse(&request, line, strlen(line), "it", REIN_JSON_NEEDS_OBJECT, &err), err.message, line);
        const json_t *of = whole_group ? json_array_get(json_object_get(request, "responses"), n - 1) : request;
        const json_t *back = json_object_get(of, "response");
        require(json_string_length(back) == length && !memcmp(json_string_value(back), text, length), "another text", line);
        json_decref(request);
    }
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const int whole_group = data[0] >= 128;
    const size_t n = whole_group ? 1 + data[0] % MOST : 1;
    check_answer((const char *)data + 1, size - 1, n, whole_group);
    check_request((const char *)data + 1, size - 1, n, whole_group);
    return 0;
}
