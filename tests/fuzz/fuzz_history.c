/* fuzz_history.c - any bytes as history.jsonl (libFuzzer).
 *
 * Read: the steps grow from line to line. Opened for writing: a torn last line is cut and nothing else, or the file is refused with one line
 * and stays as it was. Then a line can be appended and read again, and dropping the lines after a step leaves those before it. */
/* words: src/train/run_history.c src/train/step_metrics.c */
#include <fcntl.h>

#include "fuzz/run_folder.h"
#include "train/run.h"

/* The lines that can be read: *status is REIN_END or a refusal. */
static size_t read_all(rein_status *status, int64_t *last, int64_t *middle, const rein_run *run, rein_error *err) {
    rein_run_lines *lines;
    json_t *line;
    size_t n = 0;
    *last = *middle = -1;
    require(rein_run_history_open(&lines, run, err) == REIN_OK, "the file cannot be opened", err->message);
    while (!(*status = rein_run_history_next(&line, lines, err))) {
        const json_t *step = json_object_get(line, "step");
        require(json_is_integer(step) && json_integer_value(step) > *last, "the steps do not grow", "");
        *last = json_integer_value(step);
        if (n++ % 2 == 0) *middle = *last;
        json_decref(line);
    }
    require(!line, "a line beside a failure", "");
    rein_run_history_close(lines);
    return n;
}

/* What was cut off is one torn line. */
static void check_cut(const rein_run *run, const uint8_t *data, size_t size) {
    const size_t whole = (size_t)run->history_size;
    require(whole <= size && (whole == 0 || data[whole - 1] == '\n'), "it was not cut after a line", "");
    require(holds_bytes("history.jsonl", data, whole), "a line was changed", "");
    const uint8_t *newline = size > whole ? memchr(data + whole, '\n', size - whole) : NULL;
    require(!newline || memchr(data + whole, 0, (size_t)(newline - data) - whole), "a whole line was cut", "");
    require(!newline || newline == data + size - 1 || !memchr(newline + 1, '\n', (size_t)(data + size - newline) - 1),
            "more than the last line was cut", "");
}

static void check_writing(rein_run *run, size_t n, int64_t last, int64_t middle) {
    rein_error err = {0};
    rein_status status;
    int64_t now, other;
    json_t *line = json_pack("{s:I}", "step", (json_int_t)last + 1);
    require(rein_run_history_append(run, line, &err) == REIN_OK, "no line can be appended", err.message);
    json_decref(line);
    require(read_all(&status, &now, &other, run, &err) == n + 1 && status == REIN_END && now == last + 1, "it is not read",
            err.message);
    require(rein_run_history_drop(run, middle, &err) == REIN_OK, "lines cannot be dropped", err.message);
    read_all(&status, &now, &other, run, &err);
    require(status == REIN_END && now == middle, "other lines were dropped", err.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_error err = {0}, again = {0};
    rein_status status;
    int64_t last, middle;
    static int lock = -1; /* the folder stands for the lock: what matters is that it is in its place */
    need_folder();
    if (lock < 0) lock = open(folder, O_RDONLY | O_CLOEXEC);
    put_bytes("history.jsonl", data, size);
    struct stat about;
    require(stat(folder, &about) == 0, "no folder", "");
    rein_run run = {.directory = folder, .checkpoints = folder, .device = about.st_dev, .inode = about.st_ino, .history = -1};
    run.lock_path = folder;
    run.lock = lock;
    const size_t n = read_all(&status, &last, &middle, &run, &err);
    if (status != REIN_END) require_refusal(status, &err);
    const rein_status started = rein_run_history_start(&run, &again);
    require(!started == (status == REIN_END), "reading and opening differ", again.message);
    if (started) require(holds_bytes("history.jsonl", data, size), "a refused file was changed", "");
    else check_cut(&run, data, size);
    if (!started && last < INT64_MAX - 1) check_writing(&run, n, last, middle);
    if (run.history >= 0) close(run.history);
    return 0;
}
