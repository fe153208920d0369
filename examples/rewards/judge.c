/* judge.c - a judge in C: the share of words in a response that did not occur before. Repetition lowers the reward.
 *
 *     cc -O2 -o judge examples/rewards/judge.c -ljansson
 *     --reward ./judge
 *
 * Each response is a line of JSON on stdin; the answer is a line of JSON on stdout. docs/rewards.md has the fields. */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 4096 };

static double judge(char *text) {
    const char *words[MOST_WORDS];
    int n = 0, fresh = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\n", &rest); word && n < MOST_WORDS; word = strtok_r(NULL, " \t\n", &rest)) {
        int known = 0;
        for (int i = 0; i < n && !known; i++) known = strcmp(words[i], word) == 0;
        words[n++] = word;
        fresh += !known;
    }
    return n ? (double)fresh / n : 0;
}

int main(void) {
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        const char *response = json_string_value(json_object_get(request, "response"));
        char *text = response ? strdup(response) : NULL;
        if (!text) return fputs("the line is not a request\n", stderr), 1;
        printf("{\"id\": %lld, \"reward\": %.17g}\n", (long long)json_integer_value(json_object_get(request, "id")), judge(text));
        fflush(stdout); /* otherwise the answer would stay in the buffer */
        free(text);
        json_decref(request);
    }
    free(line);
    return 0;
}
