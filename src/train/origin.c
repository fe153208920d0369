/* origin.c - RUN/.origin, written and compared. It is a marker against accidents and against archives of strangers, not a signature: whoever
 * can write into the directory can run commands as its owner (SECURITY.md). */
#define _GNU_SOURCE /* statx */
#include "origin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/show.h"
#include "base/text.h"
#include "rollout/reward.h"
#include "rollout/task.h"

enum { ORIGIN_SIZE = 80, SHOWN = 250 };

/* "1234 1700000000.123456789\n": the inode and the time of birth; 0 where the file system does not have one. "" on failure. */
static void describe(char to[ORIGIN_SIZE], const char *directory) {
    struct statx about;
    to[0] = 0;
    if (statx(AT_FDCWD, directory, 0, STATX_INO | STATX_BTIME, &about) != 0) return;
    const int born = (about.stx_mask & STATX_BTIME) != 0;
    snprintf(to, ORIGIN_SIZE, "%llu %lld.%09u\n", (unsigned long long)about.stx_ino, born ? (long long)about.stx_btime.tv_sec : 0,
             born ? (unsigned)about.stx_btime.tv_nsec : 0);
}

/* Reads a small regular file of this user's; 0 if it is not one. Links are not followed. */
static int read_own(char *to, size_t size, const char *directory, const char *name) {
    struct stat about;
    char *path = rein_path_join(directory, name);
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    free(path);
    if (fd < 0) return 0;
    const int own = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid();
    const ssize_t n = own ? read(fd, to, size - 1) : -1;
    close(fd);
    to[n > 0 ? n : 0] = 0;
    return n >= 0;
}

static int is_own(const char *directory) {
    char written[ORIGIN_SIZE], wanted[ORIGIN_SIZE], settings[8];
    describe(wanted, directory);
    return *wanted && read_own(settings, sizeof settings, directory, "config.yaml") &&
           read_own(written, sizeof written, directory, ".origin") && !strcmp(written, wanted);
}

rein_status rein_origin_write(const rein_run *run, rein_error *err) {
    char text[ORIGIN_SIZE];
    describe(text, run->directory);
    return rein_run_write_text(run, ".origin", text, strlen(text), err);
}

/* -------------------------------------------------------------------------------------------------------------------- commands */

int rein_settings_judges_are_programs(const rein_settings *s) {
    for (const char *line = s->reward; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (rein_judge_is_program(line, strcspn(line, "\n"))) return 1;
    return 0;
}

int rein_settings_has_program(const rein_settings *s) {
    return rein_task_command(s->task) || rein_task_command(s->eval_task) || rein_settings_judges_are_programs(s);
}

/* Appends "; COMMAND". */
static rein_status add_command(rein_text *list, const char *command, rein_error *err) {
    const rein_status status = list->length ? rein_text_append(list, "; ", 2, err) : REIN_OK;
    return status ? status : rein_text_append(list, command, strlen(command), err);
}

/* Those of the settings that were not given now. */
static rein_status list_commands(rein_text *list, const rein_settings *s, const rein_settings *given, rein_error *err) {
    static const char *const tasks[] = {"task", "eval_task"};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < 2 && !status; i++) {
        const char *source = rein_settings_text(s, tasks[i]);
        if (rein_task_command(source) && !(given && rein_settings_given(given, tasks[i]))) status = add_command(list, source, err);
    }
    if (!status && rein_settings_judges_are_programs(s) && !(given && rein_settings_given(given, "reward")))
        status = add_command(list, s->reward, err);
    return status;
}

rein_status rein_origin_check(const char *directory, const rein_settings *settings, const rein_settings *given, rein_error *err) {
    rein_text list = {0};
    char shown[REIN_PATH_SHOWN], commands[SHOWN];
    if (given && given->allowed & REIN_ALLOW_COMMANDS) return REIN_OK;
    rein_status status = list_commands(&list, settings, given, err);
    if (!status && list.length && !is_own(directory))
        status =
            rein_fail(err, REIN_EINVAL,
                      "%s was not made here by this user, and it runs commands: %s; look at its config.yaml, then --trust runs "
                      "them",
                      rein_path_show(shown, directory), rein_show_short(commands, sizeof commands, list.data, list.length));
    rein_text_free(&list);
    return status;
}
