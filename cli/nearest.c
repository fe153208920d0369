/* nearest.c - Damerau-Levenshtein distance (a swap of neighbours counts one), and a threshold that grows with the word. */
#include "nearest.h"

#include <string.h>

enum { LONGEST = 48 }; /* a longer word is no typing mistake of any name here */

static int least(int a, int b) { return a < b ? a : b; }

/* '-' and '_' are the same: kl-coef is meant where kl_coef is right. */
static int same(char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); }

static int distance(const char *a, size_t n, const char *b, size_t m) {
    int d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            int cost = d[i - 1][j - 1] + !same(a[i - 1], b[j - 1]);
            cost = least(cost, least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) cost = least(cost, d[i - 2][j - 2] + 1);
            d[i][j] = cost;
        }
    }
    return d[n][m];
}

const char *rein_cli_nearest(const char *word, const char *(*at)(const void *list, size_t i), const void *list) {
    const char *best = NULL, *name;
    size_t n = strlen(word);
    int best_distance = 0;
    if (n == 0 || n > LONGEST) return NULL;
    for (size_t i = 0; (name = at(list, i)); i++) {
        size_t m = strlen(name);
        if (m > LONGEST) continue;
        int d = distance(word, n, name, m), allowed = 1 + (int)(n < m ? n : m) / 4;
        if (n >= 3 && n < m && !strncmp(word, name, n)) d = least(d, 1); /* cut short: "budget" for "budget-loss" */
        if (d <= allowed && (!best || d < best_distance)) best = name, best_distance = d;
    }
    return best;
}

static const char *entry(const void *list, size_t i) { return ((const char *const *)list)[i]; }

const char *rein_cli_nearest_of(const char *word, const char *const *names) { return rein_cli_nearest(word, entry, names); }
