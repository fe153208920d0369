/* fuzz_report.c - any bytes as the files of a run that has a report: they are separated by bytes 255 (libFuzzer).
 *
 * Whatever is in the files, there is a page, and data for a page that knows some steps already: what cannot be read is a note. The page has its own elements and no others, and its data is
 * one JSON object without a `<`. */
/* words: src/report/html*.c */
#include "base/json.h"
#include "fuzz/run_folder.h"
#include "rein/report.h"

static const char *const files[] = {"run/config.yaml",
                                    "run/history.jsonl",
                                    "run/evaluations.jsonl",
                                    "run/summary.json",
                                    "run/trajectories/train/0001.jsonl",
                                    "run/trajectories/eval/0000.jsonl",
                                    "run/trajectories/eval/0002.jsonl"};

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    while ((text = strstr(text, part))) n++, text++;
    return n;
}

static void check_page(const char *page, size_t size) {
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    static size_t elements;
    json_t *data;
    rein_error err = {0};
    require(strlen(page) == size, "a byte 0 in the page", "");
    if (!elements) elements = count(page, "<");
    require(count(page, "<") == elements, "other elements", "");
    const char *from = strstr(page, begin), *to = from ? strstr(from, "</script") : NULL;
    require(from && to, "no data in the page", "");
    from += sizeof begin - 1;
    require(!rein_json_parse(&data, from, (size_t)(to - from), "data", REIN_JSON_NEEDS_OBJECT, &err), "the data is not JSON",
            err.message);
    require(json_array_size(json_object_get(data, "runs")) == 1, "no run in the data", "");
    json_decref(data);
}

/* What came after a step. */
static void check_data(const char *run) {
    for (int64_t after = 0; after < 4; after += 3) {
        rein_text text = {0};
        json_t *data;
        rein_error err = {0};
        require(rein_report_data(&text, run, after, &err) == REIN_OK, "there is no data", err.message);
        require(!rein_json_parse(&data, text.data, text.length, "data", REIN_JSON_NEEDS_OBJECT, &err), "it is not JSON",
                err.message);
        json_decref(data);
        rein_text_free(&text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_error err = {0};
    char run[1024], path[1024], *page;
    if (!*folder) {
        need_folder();
        require(!rein_make_directories(in_folder("run/trajectories/train"), NULL) &&
                    !rein_make_directories(in_folder("run/trajectories/eval"), NULL),
                "no folder", "");
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const uint8_t *end = size ? memchr(data, 255, size) : NULL;
        const size_t n = end ? (size_t)(end - data) : size;
        put_bytes(files[i], data, n);
        data += n + (end != NULL), size -= n + (end != NULL);
    }
    snprintf(run, sizeof run, "%s", in_folder("run")), snprintf(path, sizeof path, "%s", in_folder("page.html"));
    require(rein_report_write(path, (const char *const[]){run}, 1, &err) == REIN_OK, "there is no page", err.message);
    require(rein_file_read(&page, &size, path) == 0, "it cannot be read", "");
    check_page(page, size);
    check_data(run);
    free(page);
    return 0;
}
