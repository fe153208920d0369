/* nearest.h - mistyped names. */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

/* The name nearest to `word` among at(0), at(1), … (NULL ends them), or NULL if none is similar. */
const char *cli_nearest(const char *word, const char *(*at)(size_t i));

/* Prints 'unknown WHAT "WORD": did you mean "NEAREST"?', or `help` after the colon if no name is similar. Returns the exit status. */
int cli_say_unknown(const char *where, const char *what, const char *word, const char *(*at)(size_t i), const char *help);

#endif
