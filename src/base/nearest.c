/* nearest.c - "did you mean": the closest of a list of names. */
#include "rein/base.h"

#include <string.h>

enum { LONGEST = 64 };

static size_t least_of(size_t a, size_t b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap neighbours) from a to b, both at most LONGEST bytes. */
static size_t distance(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return SIZE_MAX; /* no name is that long */
    size_t row[3][LONGEST + 1];
    for (size_t j = 0; j <= m; j++) row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least_of(least_of(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = least_of(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *rein_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t nearest = strlen(word) / 3 + 2; /* further away is not a misspelling */
    for (; *names; names++) {
        const size_t d = distance(word, *names);
        if (d < nearest) nearest = d, best = *names;
    }
    return best;
}
