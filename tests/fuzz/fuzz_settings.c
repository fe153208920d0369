/* fuzz_settings.c - any bytes as config.yaml (libFuzzer).
 *
 * Refused: REIN_EINVAL, one line says why, and the settings stay as they were. Accepted: what is written reads back, and is written in the
 * same bytes again; a check gives REIN_OK or a refusal. */
/* words: src/train/settings*.c src/train/settings_table.h src/objective/option_list.h src/objective/preset.c */
#include "fuzz/run_folder.h"
#include "rein/train.h"

/* The settings as the bytes of a file, to be freed. */
static char *text_of(size_t *size, const rein_settings *settings) {
    char *text = NULL;
    rein_error err = {0};
    require(rein_settings_write(settings, in_folder("written"), &err) == REIN_OK, "what was read cannot be written", err.message);
    require(rein_file_read(&text, size, in_folder("written")) == 0, "it cannot be read", "");
    return text;
}

static void check_round_trip(const char *text, size_t size) {
    rein_settings *again;
    rein_error err = {0};
    size_t length;
    require(rein_settings_new(&again, &err) == REIN_OK, "no settings", err.message);
    put_bytes("again", text, size);
    require(rein_settings_read(again, in_folder("again"), &err) == REIN_OK, err.message, text);
    char *other = text_of(&length, again);
    require(length == size && !memcmp(other, text, size), "it reads back otherwise", other);
    free(other);
    rein_settings_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_settings *settings;
    rein_error err = {0};
    size_t length;
    need_folder();
    put_bytes("config.yaml", data, size);
    require(rein_settings_new(&settings, &err) == REIN_OK, "no settings", err.message);
    const rein_status status = rein_settings_read(settings, in_folder("config.yaml"), &err);
    if (status) require_refusal(status, &err);
    char *text = text_of(&length, settings);
    if (status) require(length == 0, "a refused file changed the settings", text);
    else check_round_trip(text, length);
    const rein_status checked = rein_settings_check(settings, &err);
    if (checked) require_refusal(checked, &err);
    free(text);
    rein_settings_free(settings);
    return 0;
}
