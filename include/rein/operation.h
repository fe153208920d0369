/* operation.h - the named operations of objective.h on JSON: one object of arguments in, one object of results out, as
 * `rein objective` has them. Everything here is thread-safe. */
#ifndef REIN_OPERATION_H
#define REIN_OPERATION_H

#include "rein/json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Static storage. */
typedef struct rein_operation_info {
    const char *name, *summary;                  /* "budget-loss", and one line */
    const char *arguments, *results, *gradients; /* lines of help; gradients NULL: there is none */
    const char *formula, *source, *note;
    const char *example; /* a valid JSON object */
} rein_operation_info;

/* Operation number i, or NULL past the last; and the operation of a name, or NULL. */
REIN_API const rein_operation_info *rein_operation_at(size_t i);
REIN_API const rein_operation_info *rein_operation_describe(const char *name);

/* Computes operation `name` on the JSON text [length], with the gradient if `grad` is not 0, and appends one JSON object and a newline to
 * *out. Numbers read back exactly. *note (may be NULL) becomes a remark on the result, in static storage, or NULL. On failure *out is
 * unchanged; the error is about an argument (its JSON path and position), "grad", or the name. */
REIN_API rein_status rein_operation_run(rein_text *out, const char **note, const char *name, const char *text, size_t length,
                                        int grad, const rein_exec *exec, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
