/* plans.c - which command a run's plan belongs to. A run has one plan at most. */
#include "plans.h"

#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "rein/report.h"
#include "rein/text.h"

static const char *const COMMANDS[] = {"sft", "dpo", "reward", "distill"};
enum { N_COMMANDS = sizeof COMMANDS / sizeof *COMMANDS };

static const char END[] = ".json";
enum { END_LENGTH = sizeof END - 1 };

int rein_is_plan_file(const char *name, size_t length) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const size_t command = strlen(COMMANDS[i]);
        if (length == command + END_LENGTH && !strncmp(name, COMMANDS[i], command) && !strncmp(name + command, END, END_LENGTH))
            return 1;
    }
    return 0;
}

rein_status rein_report_plan(const char **command, const char *run, rein_error *err) {
    *command = NULL;
    for (size_t i = 0; i < N_COMMANDS && !*command; i++) {
        rein_text path = {0};
        rein_text_format(&path, "%s/%s%s", run, COMMANDS[i], END);
        const int failed = path.failed;
        if (!failed && rein_file_exists(path.data)) *command = COMMANDS[i];
        rein_text_free(&path);
        if (failed) return rein_no_memory(err);
    }
    return REIN_OK;
}
