/* history.h - the lines of history.jsonl and evaluations.jsonl, for commands that only look at a run. */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

#include "view.h"

typedef struct cli_history {
    rein_lines *file; /* NULL: there is none */
    int64_t at;       /* bytes of the whole lines that were read */
} cli_history;

/* RUN/NAME from byte `from` on; from its beginning if it has become shorter than that: the run was resumed from an earlier step. An exit
 * status; a file that does not exist has no lines. */
int cli_history_open(cli_history *h, const char *run, const char *name, int64_t from, const char *where);
void cli_history_close(cli_history *h);

/* The next whole line that is a JSON object, for the caller to free; NULL after the last. A last line without its newline is still being
 * written; other lines that are not JSON are skipped. An exit status. */
int cli_history_next(rein_json **line, cli_history *h, const char *where);

/* Hands the steps of RUN/history.jsonl from byte *at on, up to step `until`, to `show`, and sets *at behind them. Sets *last to the last
 * step handed over; unchanged if there is none. An exit status. */
int cli_history_steps(cli_view *view, int64_t *at, int64_t *last, const char *run, int64_t until,
                      void (*show)(cli_view *view, const cli_view_step *step), const char *where);

#endif
