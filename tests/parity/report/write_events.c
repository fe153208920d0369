/* write_events.c - event files for test_tensorboard.py: write_events DIRECTORY PURGE_STEP, then on stdin one value a line:
 * "STEP WALL_TIME VALUE NAME". Lines of the same step that follow each other are added together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/tensorboard.h"

enum { MOST = 100 };

static char text[MOST][1000];
static rein_named_number metrics[MOST];
static size_t n;

static void check(rein_status status, const rein_error *err) {
    if (!status) return;
    fprintf(stderr, "%s\n", err->message);
    exit(2);
}

int main(int count, char **arguments) {
    rein_tensorboard *tb;
    rein_error err;
    char line[1200];
    long long step = 0, next;
    double wall_time = 0, time, value;
    int at;
    if (count != 3) return 1;
    check(rein_tensorboard_open(&tb, arguments[1], atoll(arguments[2]), &err), &err);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%lld %lf %lf %n", &next, &time, &value, &at) != 3) return 1;
        if (n == MOST || (n > 0 && next != step)) {
            check(rein_tensorboard_add(tb, step, wall_time, metrics, n, &err), &err);
            n = 0;
        }
        step = next, wall_time = time;
        metrics[n] = (rein_named_number){strncpy(text[n], line + at, sizeof text[n] - 1), value};
        n++;
    }
    check(rein_tensorboard_add(tb, step, wall_time, metrics, n, &err), &err);
    rein_tensorboard_close(tb);
    return 0;
}
