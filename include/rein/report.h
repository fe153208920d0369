/* report.h - one HTML file about training runs, to look at and to show: it needs nothing but a browser.
 *
 * Charts, styles and data are inside; it makes no network requests. docs/report.md says what is shown. */
#ifndef REIN_REPORT_H
#define REIN_REPORT_H

#include "rein/text.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REIN_REPORT_RUNS = 16 }; /* at most so many in one report */

/* Writes the report of n runs (1 to REIN_REPORT_RUNS), directories as docs/runs.md has them, to `path`: whole or not at all, and what stood
 * there is replaced. The first run is the one that is shown when the page opens; several are laid over each other and compared. What a
 * run lacks is left out; unreadable files and lines are named. Runs that are being
 * written can be reported on too. REIN_EINVAL: a directory is not a run; REIN_EIO: one cannot be opened, or the report not be written;
 * REIN_ENOMEM. Thread-safe for different paths. */
REIN_API rein_status rein_report_write(const char *path, const char *const *runs, size_t n, rein_error *err);

/* *command: the command whose plan the run has ("sft", "dpo", "reward" or "distill", static), kept in RUN/COMMAND.json; NULL if it has
 * none, as the runs of `rein run` and `rein train`. Thread-safe. REIN_ENOMEM. */
REIN_API rein_status rein_report_plan(const char **command, const char *run, rein_error *err);

/* Appends what the report shows of a run as JSON, {"version", "runs": [run]} (docs/serve.md). after: a step; only what came after it is in the
 * object: points of the metrics, samples of the newest step, the last evaluation. -1: everything. It is as bounded as a report, and the time
 * for a later step depends on what is new. Errors as above, without REIN_EINVAL for n. Thread-safe. */
REIN_API rein_status rein_report_data(rein_text *json, const char *run, int64_t after, rein_error *err);

/* Appends the live page of a server, HTML without any data of it, and the Content-Security-Policy to send with it. The page asks for a key
 * first if asks_for_key. REIN_ENOMEM. Thread-safe. */
REIN_API rein_status rein_report_live_page(rein_text *html, rein_text *policy, int asks_for_key, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
