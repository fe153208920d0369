/* fuzz_checkpoint.c - any bytes as state.json and, after a byte 0, the lines of a MANIFEST (libFuzzer). If the first of these lines is "+", the
 * MANIFEST gets the last line that belongs to it: no mutation finds a hash.
 *
 * Refused: REIN_EINVAL and one line. Accepted: names that are plain (in one folder at most), sorted and different; a state of its step and of a
 * known format. */
/* words: src/train/state.c src/train/manifest.c src/train/session.c src/train/origin.c src/train/fingerprint.c */
#include <inttypes.h>

#include "base/hash.h"
#include "fuzz/run_folder.h"
#include "train/checkpoint.h"
#include "train/manifest.h"
#include "train/state.h"

static void put_manifest(const uint8_t *data, size_t size) {
    char last[100];
    const int complete = size >= 2 && !memcmp(data, "+\n", 2);
    if (complete) data += 2, size -= 2;
    FILE *file = fopen(in_folder("checkpoints/0003/MANIFEST"), "wb");
    snprintf(last, sizeof last, "%zu %016" PRIx64 " MANIFEST\n", size, rein_hash(data, size));
    require(file && fwrite(data, 1, size, file) == size && (!complete || fputs(last, file) >= 0) && fclose(file) == 0, "no file",
            "");
}

static void check_manifest(void) {
    rein_manifest manifest;
    rein_error err = {0};
    const rein_status status = rein_manifest_read(&manifest, in_folder("checkpoints/0003"), &err);
    if (status) require_refusal(status, &err);
    for (size_t i = 0; i < manifest.n && !status; i++) {
        const char *name = manifest.files[i].name;
        const char *slash = strchr(name, '/'), *last = slash ? slash + 1 : name;
        require(*name && *name != '.' && *name != '/' && strcmp(last, "MANIFEST") != 0, "a name leads elsewhere", name);
        require(*last && *last != '.' && !strchr(last, '/') && strncmp(name, "MANIFEST/", 9) != 0, "a name leads elsewhere", name);
        require(!i || strcmp(manifest.files[i - 1].name, name) < 0, "the names are not sorted", name);
    }
    require(status || manifest.n > 0, "there is no file in it", "");
    rein_manifest_free(&manifest);
}

static void check_state(const rein_run *run) {
    json_t *state;
    rein_error err = {0};
    rein_status status = rein_state_read(&state, run, 3, &err);
    require(!status == (state != NULL), "a state beside a failure", "");
    if (status) require_refusal(status, &err);
    else {
        const json_t *step = json_object_get(state, "step"), *format = json_object_get(state, "format");
        require(!step || json_integer_value(step) == 3, "it is of another step", "");
        require(!format || json_integer_value(format) <= REIN_STATE_FORMAT, "it is of another format", "");
    }
    json_decref(state);
    status = rein_checkpoint_verify(run, 3, &err);
    if (status) require_refusal(status, &err);
    status = rein_state_newest(&state, run, &err);
    if (status) require_refusal(status, &err);
    json_decref(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    const size_t first = nul ? (size_t)(nul - data) : size;
    int64_t steps[] = {3};
    if (!*folder) {
        need_folder();
        require(rein_make_directories(in_folder("checkpoints/0003"), NULL) == REIN_OK, "no folder", "");
    }
    char checkpoints[1024];
    snprintf(checkpoints, sizeof checkpoints, "%s", in_folder("checkpoints"));
    const rein_run run = {.directory = folder, .checkpoints = checkpoints, .steps = steps, .n_steps = 1, .lock = -1, .history = -1};
    put_bytes("checkpoints/0003/state.json", data, first);
    put_manifest(nul ? nul + 1 : data, nul ? size - first - 1 : 0);
    check_manifest();
    check_state(&run);
    return 0;
}
