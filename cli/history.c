/* history.c - files of JSON lines in the directory of a run. They may be long, damaged, or not files at all. */
#include "history.h"

#include <errno.h>
#include <sys/stat.h>

#include "terminal.h"

enum { LONGEST = 16 << 20 }; /* bytes of a line; a run writes no longer ones */

int cli_history_open(cli_history *h, const char *run, const char *name, int64_t from, const char *where) {
    rein_text path = {0};
    rein_error err = {0};
    struct stat about;
    *h = (cli_history){0};
    rein_text_format(&path, "%s/%s", run, name);
    if (path.failed) return cli_say_no_memory(where);
    if (!stat(path.data, &about) && from <= about.st_size) h->at = from;
    const rein_status status = rein_lines_open(&h->file, path.data, h->at, LONGEST, &err);
    rein_text_free(&path);
    return !status || err.system == ENOENT ? CLI_DONE : cli_say_error(where, &err);
}

void cli_history_close(cli_history *h) { rein_lines_close(h->file); }

int cli_history_next(rein_json **line, cli_history *h, const char *where) {
    const char *text;
    size_t length;
    rein_error err = {0};
    rein_status status = REIN_EINVAL;
    *line = NULL;
    while (status == REIN_EINVAL && h->file) {
        if ((status = rein_lines_next(&text, &length, h->file, &err))) break;
        if (text[length] != '\n') return CLI_DONE;
        h->at += (int64_t)length + 1;
        status = rein_json_parse(line, text, length, NULL, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, &err);
    }
    return !status || status == REIN_END || !h->file ? CLI_DONE : cli_say_error(where, &err);
}

int cli_history_steps(cli_view *view, int64_t *at, int64_t *last, const char *run, int64_t until,
                      void (*show)(cli_view *view, const cli_view_step *step), const char *where) {
    cli_history file;
    rein_json *line;
    int status = cli_history_open(&file, run, "history.jsonl", *at, where);
    while (!status && !(status = cli_history_next(&line, &file, where)) && line) {
        const cli_view_step s = cli_view_step_of(line);
        rein_json_free(line);
        if (s.step > until) break;
        show(view, &s);
        *last = s.step;
    }
    *at = file.at;
    cli_history_close(&file);
    return status;
}
