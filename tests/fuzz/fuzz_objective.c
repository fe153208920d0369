/* fuzz_objective.c - any bytes at the JSON border of the operations (libFuzzer). The first byte, counted from '0', chooses the operation, the second whether
 * the gradient is asked for; the rest is the JSON text.
 *
 * On success the output is one JSON object and one newline, and all its numbers are finite. Wrong arguments, or a result that is not
 * finite: one line says why, and nothing was written. Anything else is a bug. */
/* words: src/operation/operation.c src/operation/operation_four.c src/operation/operation_policy.c src/operation/operation_preference.c src/operation/arguments.c src/objective/options.c src/objective/options_check.c src/objective/preset.c src/objective/preference.c */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/operation.h"

static void require(int condition, const char *what, const char *operation, const char *shown) {
    if (condition) return;
    fprintf(stderr, "fuzz: %s: %s: %s\n", operation, what, shown);
    abort();
}

/* Every number of the value; a null stands where a number was not one, which no result may hold. */
static int is_finite(const json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_null(value)) return 0;
    if (json_is_number(value)) return isfinite(json_number_value(value)) != 0;
    json_array_foreach((json_t *)(uintptr_t)value, i, item) if (!is_finite(item)) return 0;
    json_object_foreach((json_t *)(uintptr_t)value, key, item) if (!is_finite(item)) return 0;
    return 1;
}

static void check_output(const char *operation, const rein_text *out) {
    json_error_t err;
    require(out->length > 1 && out->data[out->length - 1] == '\n', "the output does not end with a newline", operation, out->data);
    require(memchr(out->data, '\n', out->length) == out->data + out->length - 1, "the output is more than one line", operation,
            out->data);
    json_t *root = json_loadb(out->data, out->length, JSON_REJECT_DUPLICATES, &err);
    require(json_is_object(root), "the output is not one JSON object", operation, out->data);
    require(is_finite(root), "the output holds a null", operation, out->data);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t operations = 0;
    if (size < 2) return 0;
    while (rein_operation_at(operations)) operations++;
    const rein_operation_info *operation = rein_operation_at((data[0] + 256u - '0') % operations);
    const int grad = data[1] & 1 && operation->gradients;
    const rein_exec exec = {1 + (data[1] >> 1) % 2, (data[1] >> 2) % 2 ? REIN_ISA_REF : REIN_ISA_BEST};
    rein_text out = {0};
    rein_error err;
    const rein_status status = rein_operation_run(&out, NULL, operation->name, (const char *)data + 2, size - 2, grad, &exec, &err);
    require(status == REIN_OK || status == REIN_EINVAL || status == REIN_ERANGE || status == REIN_ENOMEM,
            "the status is another one", operation->name, err.message);
    if (status == 0) check_output(operation->name, &out);
    if (status) require(*err.message != 0, "there is no message", operation->name, "");
    require(!status || !strpbrk(err.message, "\r\n"), "the message is more than one line", operation->name, err.message);
    if (status != 0) require(out.length == 0, "something was written on failure", operation->name, out.data);
    rein_text_free(&out);
    return 0;
}
