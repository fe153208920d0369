/* settings_chat.c - the chat format of a run, and the date that its chat template sees: the day on which the run was started, which is saved
 * with it, so that a resumed run sees the same prompts. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "model/chat.h"
#include "model/gguf.h"
#include "settings.h"

enum { DATE_SIZE = 16 };

static void today(char date[DATE_SIZE]) {
    const time_t now = time(NULL);
    struct tm day;
    localtime_r(&now, &day);
    strftime(date, DATE_SIZE, "%Y-%m-%d", &day);
}

/* 1 if a file of the model names strftime_now, as the text of a template does. A file that cannot be read is reported elsewhere. */
static int asks_for_date(const char *directory, const char *name) {
    static const char word[] = "strftime_now";
    char *path = rein_path_join(directory, name);
    rein_file file;
    int asks = 0;
    if (path && rein_file_exists(path) && !rein_file_map(&file, path, NULL)) {
        for (size_t i = 0; i + strlen(word) <= file.size && !asks; i++) asks = !memcmp(file.data + i, word, strlen(word));
        rein_file_unmap(&file);
    }
    free(path);
    return asks;
}

rein_status rein_settings_choose_date(rein_settings *s, rein_error *err) {
    char date[DATE_SIZE];
    if (*s->date) return REIN_OK;
    if (rein_gguf_is(s->model)
            ? !rein_gguf_chat_names(s->model, "strftime_now")
            : !asks_for_date(s->model, "chat_template.jinja") && !asks_for_date(s->model, "tokenizer_config.json"))
        return REIN_OK;
    today(date);
    return rein_settings_set(s, "date", date, err);
}

rein_status rein_settings_check_date(const rein_settings *s, rein_error *err) {
    if (!*s->date || (strlen(s->date) == strlen("2026-11-18") && rein_date_valid(s->date))) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "date", -1, "is \"%.40s\": a date is needed, YYYY-MM-DD", s->date);
}

rein_status rein_settings_chat(rein_chat *chat, const rein_settings *s, const rein_tokenizer *tokenizer, rein_error *err) {
    rein_error why = {0};
    rein_chat found;
    if (!*s->chat_format && !tokenizer) return rein_fail(err, REIN_END, "the model has no tokenizer");
    const rein_status status =
        *s->chat_format ? rein_chat_named(&found, s->chat_format, &why) : rein_chat_of(&found, tokenizer, &why);
    if (status == REIN_EINVAL && !*s->chat_format) return rein_fail_with(err, REIN_END, &why);
    if (status) return rein_fail_with(err, status, &why);
    found.date = *s->date ? s->date : NULL;
    *chat = found;
    return REIN_OK;
}
