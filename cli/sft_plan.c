/* sft_plan.c - the plan of supervised training. The order of the examples hangs on their number and the size of a batch: neither changes
 * within a run. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "sft_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "sft", FILE_NAME[] = "sft.json";

static void path_of(rein_out *path, const char *run, const char *more) { rein_out_format(path, "%s/%s%s", run, FILE_NAME, more); }

static int read_saved(rein_sft_plan *plan, const char *run) {
    rein_out path = {0};
    const char *data = NULL, *chat = NULL;
    json_error_t why;
    path_of(&path, run, "");
    if (path.failed) return rein_say(REIN_FAILED, WHERE, "out of memory");
    json_t *root = json_load_file(path.data, JSON_REJECT_DUPLICATES, &why);
    json_int_t batch = 0, epochs = 0, steps = 0, examples = 0;
    const int bad = !root || json_unpack(root, "{s:s, s:s, s:I, s:I, s:I, s:I}", "data", &data, "chat_format", &chat, "batch_size",
                                         &batch, "num_train_epochs", &epochs, "max_steps", &steps, "examples", &examples);
    const int status = bad || batch < 1 || epochs < 1
                           ? rein_say(REIN_WRONG, WHERE, "%s cannot be read: it is not as it was written", path.data)
                           : REIN_DONE;
    if (!status) {
        *plan = (rein_sft_plan){.batch_size = batch, .epochs = epochs, .max_steps = steps, .examples = examples};
        snprintf(plan->data, sizeof plan->data, "%s", data);
        snprintf(plan->chat_format, sizeof plan->chat_format, "%s", chat);
    }
    json_decref(root);
    rein_out_free(&path);
    return status;
}

/* A run can be gone on with from anywhere. */
static int read_path(rein_sft_plan *plan, const char *given) {
    char *whole = given ? realpath(given, NULL) : NULL;
    const char *path = whole ? whole : given;
    const int fits = !path || strlen(path) < sizeof plan->data;
    if (path && fits) strcpy(plan->data, path);
    free(whole);
    if (!fits) return rein_say(REIN_WRONG, WHERE, "--data is too long for a path");
    return *plan->data ? REIN_DONE : rein_say(REIN_WRONG, WHERE, "data is needed: --data FILE, JSON lines");
}

int rein_sft_plan_read(rein_sft_plan *plan, const rein_args *args, const char *run) {
    *plan = (rein_sft_plan){.batch_size = 8, .epochs = 1};
    const int saved = run && rein_directory_has(run, FILE_NAME);
    int status = saved ? read_saved(plan, run) : REIN_DONE;
    uint64_t batch = (uint64_t)plan->batch_size, epochs = (uint64_t)plan->epochs, steps = (uint64_t)plan->max_steps;
    if (!status) status = rein_value_whole(&batch, args, "batch-size", 1, 1000000);
    if (!status) status = rein_value_whole(&epochs, args, "num-train-epochs", 1, 1000000);
    if (rein_option_value(args, "num-train-epochs")) steps = 0; /* what a run was begun with does not end it earlier */
    if (!status) status = rein_value_whole(&steps, args, "max-steps", 1, 1000000000);
    if (status) return status;
    if (saved && batch != (uint64_t)plan->batch_size)
        return rein_say(REIN_WRONG, WHERE,
                        "--batch-size is %" PRIu64 ", and the run was begun with %" PRId64 ": a new run is needed for that", batch,
                        plan->batch_size);
    const char *chat = rein_option_value(args, "chat-format");
    if (chat) snprintf(plan->chat_format, sizeof plan->chat_format, "%s", chat);
    plan->batch_size = (int64_t)batch;
    plan->epochs = (int64_t)epochs;
    plan->max_steps = (int64_t)steps;
    return read_path(plan, rein_option_value(args, "data"));
}

int rein_sft_plan_finish(rein_sft_plan *plan, size_t examples) {
    const int64_t n = (int64_t)examples;
    if (plan->examples && plan->examples != n)
        return rein_say(REIN_WRONG, WHERE,
                        "%s has %zu examples, and the run was begun with %" PRId64 ": a new run is needed for other data",
                        plan->data, examples, plan->examples);
    plan->examples = n;
    plan->steps_per_epoch = (n + plan->batch_size - 1) / plan->batch_size;
    plan->total = plan->max_steps ? plan->max_steps : plan->epochs * plan->steps_per_epoch;
    return REIN_DONE;
}

int rein_sft_plan_write(const rein_sft_plan *plan, const char *run) {
    rein_out path = {0}, temporary = {0};
    int status = REIN_DONE;
    path_of(&path, run, "");
    path_of(&temporary, run, ".new");
    json_t *root = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "data", plan->data, "chat_format", plan->chat_format, "batch_size",
                             (json_int_t)plan->batch_size, "num_train_epochs", (json_int_t)plan->epochs, "max_steps",
                             (json_int_t)plan->max_steps, "examples", (json_int_t)plan->examples);
    if (!root || path.failed || temporary.failed) status = rein_say(REIN_FAILED, WHERE, "out of memory");
    else if (json_dump_file(root, temporary.data, JSON_INDENT(2)) || rename(temporary.data, path.data))
        status = rein_say(REIN_FAILED, WHERE, "%s cannot be written: %s", path.data, strerror(errno));
    json_decref(root);
    rein_out_free(&path);
    rein_out_free(&temporary);
    return status;
}
