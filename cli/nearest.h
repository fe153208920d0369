/* nearest.h - what a mistyped name probably meant. */
#ifndef REIN_CLI_NEAREST_H
#define REIN_CLI_NEAREST_H

#include <stddef.h>

/* The name at(0), at(1), … (NULL ends) nearest to `word`, or NULL when none is near enough to be meant. */
const char *rein_cli_nearest(const char *word, const char *(*at)(const void *list, size_t i), const void *list);

#endif
