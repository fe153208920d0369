/* json.h - JSON inside the library: a rein_json is jansson's json_t. Private.
 *
 * jansson parses and holds the values. What is rejected, how a mistake is described, and how values are written is decided in json_*.c. */
#ifndef REIN_BASE_JSON_H
#define REIN_BASE_JSON_H

#include <jansson.h>

#include "rein/json.h"

/* Writes the value, indented and with a newline at the end, whole or not at all (file.h). Keys keep their order. */
rein_status rein_json_file_write(const char *path, const json_t *root, rein_error *err);

/* Follows the well-formed JSON before text[end] and gives the path there: the innermost array's position in *index (-1: the innermost
 * value is not an array), what is around it in `to`: "rewards[1]" and 0 for rewards[1][0]. "" and -1 at the top. */
void rein_json_path_at(char *to, size_t size, int64_t *index, const char *text, size_t end);

#endif
