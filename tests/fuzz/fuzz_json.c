/* fuzz_json.c - any bytes as JSON, read with any flags (libFuzzer).
 *
 * Accepted: what is written of the value reads back as the same text, and its strings are UTF-8. Refused: REIN_EINVAL, and one line says
 * why; the field is a path without control characters. Anything else is a bug. */
/* words: src/base/json_*.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "rein/json.h"

static int is_one_line(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) return 0;
    return 1;
}

static void check_refused(rein_status status, const rein_error *err, const char *place) {
    require(status == REIN_EINVAL && err->code == REIN_EINVAL, "the status is not EINVAL", "");
    require(*err->message && is_one_line(err->message) && is_one_line(err->field), "the message is not one line", "");
    require(!place || !strncmp(err->message, place, strlen(place)), "the message does not begin with the place", "");
    require(!*err->field || (err->reason > strlen(err->field) && err->reason < sizeof err->message), "the reason is misplaced", "");
    require(*err->field || err->index < 0, "an index without a field", "");
}

/* Reading every field as a number fails once, with a path, and never after. */
static void check_fields(const rein_json *value) {
    rein_error err = {0};
    rein_fields in = {.object = value, .path = "", .err = &err};
    const char *key;
    const rein_json *field;
    for (void *at = NULL; (at = rein_json_next(&key, &field, value, at));) {
        const rein_status before = in.status;
        rein_fields_number(&in, key, 0);
        rein_fields_integer_or(&in, key, -5, 5, 0);
        rein_fields_string_or(&in, key, "");
        require(!before || in.status == before, "the first failure does not stay", "");
    }
    if (in.status) check_refused(in.status, &err, NULL);
}

static void check_accepted(const rein_json *value, unsigned flags) {
    rein_text once = {0}, again = {0};
    rein_json *copy;
    rein_error err = {0};
    rein_json_put_value(&once, value);
    require(!once.failed && !memchr(once.data, '\n', once.length), "what is written is not one line", "");
    if (rein_json_parse(&copy, once.data, once.length, NULL, flags, &err)) {
        fprintf(stderr, "fuzz: %s\n%s\n", err.message, once.data);
        abort();
    }
    rein_json_put_value(&again, copy);
    require(once.length == again.length && !memcmp(once.data, again.data, once.length), "it does not read back", "");
    check_fields(value);
    rein_json_free(copy);
    rein_text_free(&once);
    rein_text_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_error err = {0};
    rein_json *value;
    if (!size) return 0;
    const unsigned flags = data[0] & 15;
    const char *place = data[0] & 16 ? "FILE: line 3" : NULL;
    const rein_status status = rein_json_parse(&value, (const char *)data + 1, size - 1, place, flags, &err);
    if (status) check_refused(status, &err, place);
    else check_accepted(value, flags);
    require(!status == (value != NULL), "a value on failure, or none on success", "");
    rein_json_free(value);
    return 0;
}
