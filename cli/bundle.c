/* bundle.c - `rein bundle`: one archive of a run, to send to others. */
#include <string.h>

#include "rein/train.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "bundle";

/* RUN.tar beside the run; RUN@7 gives RUN-7.tar. */
static void default_path(rein_text *path, const char *name) {
    int64_t step;
    size_t length = cli_value_run(&step, name);
    while (length > 1 && name[length - 1] == '/') length--;
    rein_text_put_bytes(path, name, length);
    if (step >= 0) rein_text_format(path, "-%lld", (long long)step);
    rein_text_put(path, ".tar");
}

int cli_run_bundle(const cli_args *args) {
    const char *output = cli_option_value(args, "output");
    rein_text path = {0};
    rein_error err = {0};
    if (!args->n_words) return cli_say(CLI_WRONG, WHERE, "a run is needed: rein bundle RUN");
    if (output) rein_text_put(&path, output);
    else default_path(&path, args->words[0]);
    int status = path.failed ? cli_say_no_memory(WHERE) : CLI_DONE;
    if (!status && rein_run_bundle(path.data, args->words[0], &err)) status = cli_say_error(WHERE, &err);
    rein_text_put(&path, "\n");
    return cli_print_result(&path, status);
}
