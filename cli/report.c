/* report.c - `rein report`: one HTML file about runs. */
#include <string.h>

#include "help.h"
#include "rein/report.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "report";

/* RUN/report.html */
static void default_path(rein_text *path, const char *run) {
    const size_t length = strlen(run);
    rein_text_format(path, "%s%sreport.html", run, length && run[length - 1] == '/' ? "" : "/");
}

int cli_run_report(const cli_args *args) {
    const char *output = cli_option_value(args, "output");
    rein_error err = {0};
    rein_text path = {0};
    if (!args->n_words) return cli_say(CLI_WRONG, WHERE, "the directory of a run is needed: rein report RUN");
    if (!output && args->n_words > 1)
        return cli_say(CLI_WRONG, WHERE, "--output is missing: a page about several runs needs a file of its own, --output FILE");
    if (output) rein_text_put(&path, output);
    else default_path(&path, args->words[0]);
    if (path.failed) return rein_text_free(&path), cli_say_no_memory(WHERE);
    if (rein_report_write(path.data ? path.data : "", args->words, args->n_words, &err)) {
        rein_text_free(&path);
        return cli_say_error(WHERE, &err);
    }
    rein_text_put(&path, "\n");
    return cli_print(&path);
}
