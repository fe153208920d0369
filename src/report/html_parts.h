/* html_parts.h - the parts of a report. Each reads some files of a run and adds their data to the JSON object that the page shows.
 *
 * A run may be damaged, unfinished, or written by another program: a file that cannot be read becomes a note on the page. The parts fail
 * only when there is no memory. Limits keep the page small for runs of any size. Private. */
#ifndef REIN_REPORT_HTML_PARTS_H
#define REIN_REPORT_HTML_PARTS_H

#include <jansson.h>

#include "rein/base.h"

enum {
    REIN_SHOWN_NOTES = 20,
    REIN_SHOWN_METRICS = 200,
    REIN_SHOWN_POINTS = 2000, /* of a metric */
    REIN_SHOWN_SETTINGS = 300,
    REIN_SHOWN_TEXT = 4000,   /* bytes of a prompt, an answer, a setting */
    REIN_SHOWN_TOKENS = 600,  /* of a response */
    REIN_SHOWN_STEPS = 6,     /* of which samples are shown */
    REIN_SHOWN_GROUPS = 2,    /* of a step */
    REIN_SHOWN_RESPONSES = 4, /* of a group */
    REIN_SHOWN_TURNS = 60,    /* messages of an episode */
    REIN_SHOWN_PROMPTS = 12,  /* before and after */
    REIN_COUNTED_RESPONSES = 4096,
    REIN_READ_BYTES = 64 << 20 /* of one file of trajectories */
};

typedef struct rein_report_run {
    const char *directory;
    int64_t after; /* only what came after this step is wanted; -1: all */
    json_t *json;  /* the run's object, owned by the caller */
    json_t *notes; /* in json: sentences about what could not be read */
    rein_error *err;
} rein_report_run;

rein_status rein_report_no_memory(const rein_report_run *run);

/* Adds a sentence to the page. The first REIN_SHOWN_NOTES of a run are kept; the others are only counted. */
rein_status rein_report_note(rein_report_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Turns a failure to read a file into a note. REIN_ENOMEM is returned instead. */
rein_status rein_report_noted(rein_report_run *run, rein_status status, const rein_error *why);

/* Any bytes as a JSON string, cut to at most `most` bytes between characters; invalid UTF-8 becomes U+FFFD. NULL when there is no memory. */
json_t *rein_report_text(const char *text, size_t length, size_t most);

/* RUN/NAME; the caller frees it. */
char *rein_report_path(const rein_report_run *run, const char *name);

/* Calls `take` with the object of each line of RUN/NAME, until it sets *enough or `most` bytes were read. A missing file has no lines. */
typedef rein_status (*rein_report_take)(void *context, const json_t *line, int *enough);
rein_status rein_report_lines(rein_report_run *run, const char *name, size_t most, rein_report_take take, void *context);

/* The same for a file whose lines have ascending steps: lines that cannot be newer than run->after may be left out, so that what is read
 * depends on what is new. */
rein_status rein_report_new_lines(rein_report_run *run, const char *name, rein_report_take take, void *context);

/* The steps of the files RUN/FOLDER/NNNN.jsonl, or of the directories RUN/FOLDER/NNNN (suffix ""), ascending; the caller frees them. */
rein_status rein_report_steps(int64_t **steps, size_t *n, rein_report_run *run, const char *folder, const char *suffix);

/* The value of a field as a number, or NaN. */
double rein_report_number(const json_t *object, const char *key);

/* A trajectory for the page: its numbers, and either its tokens (with_tokens) or its text. NULL when there is no memory. */
json_t *rein_report_response(const json_t *trajectory, int with_tokens);

/* Prompt and answer of a group's first trajectory, into `to`; -1 when there is no memory. */
int rein_report_prompt(json_t *to, const json_t *group);

/* The messages of an episode behind what it was asked with, as "turns" into `to`; nothing if the trajectory is a single completion. -1 when
 * there is no memory. */
int rein_report_turns(json_t *to, const json_t *trajectory);

/* The messages that the model was asked with, to be released; empty without a conversation. NULL when there is no memory. */
json_t *rein_report_asked(const json_t *trajectory);

/* Appends the lengths of a group's responses, up to REIN_COUNTED_RESPONSES in all; and puts lengths under "first" or "last" of the run's
 * "lengths". -1 when there is no memory. */
int rein_report_count_lengths(json_t *lengths, const json_t *group);
int rein_report_lengths(rein_report_run *run, const char *name, int64_t step, json_t *lengths);

/* ---- the parts, in this order: the comparison and the commands read what earlier parts added */
rein_status rein_report_config(rein_report_run *run);   /* "settings", [[name, value], …] */
rein_status rein_report_history(rein_report_run *run);  /* "metrics", {name: {"steps", "values"}}; "steps", "seconds" */
rein_status rein_report_summary(rein_report_run *run);  /* "summary", as the file has it */
rein_status rein_report_samples(rein_report_run *run);  /* "samples", "lengths" */
rein_status rein_report_compare(rein_report_run *run);  /* "compare"; "lengths" of held-out prompts, if there are any */
rein_status rein_report_commands(rein_report_run *run); /* "commands", [[title, command], …] */

#endif
