/* fuzz_environment.c - any bytes as the answer of an environment (libFuzzer). The first byte says which event it answers.
 *
 * An answer is refused with REIN_EIO and one line, and nothing is left of it; or its reward is finite, and it has the messages and tools that
 * its event may have. */
/* words: src/rollout/environment.c */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "rollout/environment.h"

static void check_answer(const rein_environment_answer *a, const char *line) {
    require(isfinite(a->reward), "a reward that is not finite", line);
    require(a->event != REIN_EVENT_RESET || json_array_size(a->messages) > 0, "a reset without messages", line);
    require(a->event != REIN_EVENT_STEP || a->done || json_array_size(a->messages) > 0, "a turn without messages", line);
    require(a->event != REIN_EVENT_END || (!a->messages && !a->done), "an end with messages", line);
    require(a->event == REIN_EVENT_RESET || !a->tools, "tools in the middle", line);
    for (size_t i = 0; i < json_array_size(a->messages); i++)
        require(json_is_string(json_object_get(json_array_get(a->messages, i), "role")), "a message without a role", line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    rein_environment_answer answer;
    rein_error err = {0};
    const rein_status status = rein_environment_read(&answer, (rein_event)(data[0] % 3), (const char *)data + 1, size - 1, &err);
    if (!status) check_answer(&answer, "");
    else {
        require(status == REIN_EIO && *err.message && !strpbrk(err.message, "\r\n"), "not a refusal of one line", err.message);
        require(!answer.messages && !answer.tools, "something is left of a refused answer", err.message);
    }
    rein_environment_answer_free(&answer);
    return 0;
}
