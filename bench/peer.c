/* peer.c - runs another program for a row. The program prints one JSON object. Its stderr goes to a file, whose last line becomes the
 * reason when the program fails. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cli/terminal.h"

extern char **environ;

static const char WHERE[] = "bench";
enum { MOST_OUTPUT = 65536, MOST_ARGUMENTS = 64 };

int bench_peer_read(bench_peer *peer, const char *given) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t length = strspn(given, letters);
    const char *command = given + length + strspn(given + length, "=");
    if (!length || length >= sizeof peer->name || given[length] != '=' || !command[strspn(command, " ")])
        return cli_say(CLI_WRONG, WHERE, "--peer is \"%s\": NAME=COMMAND is needed, a name of letters, digits, . _ -", given);
    memcpy(peer->name, given, length);
    peer->name[length] = 0;
    peer->command = given + length + 1;
    return CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------ the program */

/* Signals that rein ignores have their default effect in other programs. */
static int reset_signals(posix_spawnattr_t *attributes) {
    sigset_t ignored;
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGXFSZ);
    const int wrong = posix_spawnattr_setsigdefault(attributes, &ignored);
    return wrong ? wrong : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF);
}

/* Starts the program; *output reads its stdout. Returns 0 or an errno. */
static int start(pid_t *pid, int *output, char *const *arguments, const char *errors) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int pipes[2];
    if (pipe(pipes) != 0) return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int wrong = reset_signals(&attributes);
    if (!wrong) wrong = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!wrong) wrong = posix_spawn_file_actions_addopen(&actions, 2, errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!wrong) wrong = posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    if (!wrong) wrong = posix_spawn_file_actions_addclose(&actions, pipes[0]);
    if (!wrong) wrong = posix_spawn_file_actions_addclose(&actions, pipes[1]);
    if (!wrong) wrong = posix_spawnp(pid, arguments[0], &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(pipes[1]);
    *output = pipes[0];
    if (wrong) close(pipes[0]);
    return wrong;
}

/* Reads the output, and stops soon after MOST_OUTPUT bytes. */
static void read_output(rein_text *printed, int from) {
    char piece[4096];
    ssize_t n;
    while (printed->length <= MOST_OUTPUT && ((n = read(from, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) rein_text_put_bytes(printed, piece, (size_t)n);
    close(from); /* a program that keeps writing is ended by SIGPIPE */
}

/* The words of the command, and the row as the last argument; arguments [MOST_ARGUMENTS]. 0: too many words. */
static int split(char **arguments, char *command, char *row) {
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(command, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (n == MOST_ARGUMENTS - 2) return 0;
        arguments[n++] = word;
    }
    arguments[n++] = row;
    arguments[n] = NULL;
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------------- its answer */

/* The last line of a file that is not blank, taken from its last bytes. */
static void last_line(char *line, size_t size, const char *path) {
    char tail[1024] = "";
    FILE *file = fopen(path, "rb");
    *line = 0;
    if (!file) return;
    if (fseek(file, -(long)(sizeof tail - 1), SEEK_END) != 0) rewind(file);
    tail[fread(tail, 1, sizeof tail - 1, file)] = 0;
    fclose(file);
    size_t end = strlen(tail);
    while (end && strchr(" \t\r\n", tail[end - 1])) tail[--end] = 0;
    const char *newline = strrchr(tail, '\n');
    if (end) snprintf(line, size, ": %.*s", (int)(size - 3), newline ? newline + 1 : tail);
}

static bench_answer nothing(const bench_peer *peer, const char *row, const char *what, const char *why) {
    if (!bench_interrupted()) cli_say(0, WHERE, "peer %s: row %s: %s%s", peer->name, row, what, why);
    return (bench_answer){NAN, NAN};
}

/* NaN if there is no such field; returns 0 if it is not a number above 0. */
static int number(double *value, const rein_json *object, const char *name) {
    const rein_json *found = rein_json_get(object, name);
    *value = found ? rein_json_number(found) : NAN;
    return !found || *value > 0;
}

static bench_answer parse_answer(const bench_peer *peer, const char *row, const rein_text *printed) {
    bench_answer answer = {NAN, NAN};
    rein_error err = {0};
    rein_json *object = NULL;
    if (printed->failed) return nothing(peer, row, "out of memory", "");
    if (printed->length > MOST_OUTPUT)
        return nothing(peer, row, "its output has more than 64 KiB: {\"value\": NUMBER} or {} is needed", "");
    if (!printed->length) return nothing(peer, row, "it printed nothing: {\"value\": NUMBER} or {} is needed", "");
    if (rein_json_parse(&object, printed->data, printed->length, NULL, REIN_JSON_NEEDS_OBJECT, &err))
        return nothing(peer, row, "its output is not JSON: ", err.message);
    const int good = number(&answer.value, object, "value") && number(&answer.memory, object, "memory");
    rein_json_free(object);
    return good ? answer : nothing(peer, row, "{\"value\": NUMBER, \"memory\": NUMBER}, both above 0, or {} is needed", "");
}

static bench_answer run(const bench_peer *peer, const char *row, char *const *arguments, const char *errors) {
    char what[200], why[500];
    rein_text printed = {0};
    pid_t pid;
    int output = -1, how = 0;
    const int wrong = start(&pid, &output, arguments, errors);
    if (wrong) return nothing(peer, row, "it cannot be started: ", strerror(wrong));
    bench_waits_for((int)pid);
    read_output(&printed, output);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    bench_waits_for(0);
    bench_answer answer;
    const int too_long = printed.length > MOST_OUTPUT; /* then we ended it */
    if (how == 0 || too_long) answer = parse_answer(peer, row, &printed);
    else {
        last_line(why, sizeof why, errors);
        if (WIFSIGNALED(how)) snprintf(what, sizeof what, "ended by signal %d", WTERMSIG(how));
        else snprintf(what, sizeof what, "exit status %d", WEXITSTATUS(how));
        answer = nothing(peer, row, what, why);
    }
    rein_text_free(&printed);
    return answer;
}

bench_answer bench_ask(const bench_peer *peer, const char *row, const bench_job *job) {
    char *arguments[MOST_ARGUMENTS], *command = strdup(peer->command), *last = strdup(row);
    rein_text errors = {0};
    bench_answer answer;
    rein_text_format(&errors, "%s/errors", job->directory);
    fflush(NULL);
    if (!command || !last || errors.failed) answer = nothing(peer, row, "out of memory", "");
    else if (!split(arguments, command, last)) answer = nothing(peer, row, "its command has too many words: at most 62", "");
    else answer = run(peer, row, arguments, errors.data);
    rein_text_free(&errors);
    free(command);
    free(last);
    return answer;
}
