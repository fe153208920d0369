/* values.c - numbers on the command line: the whole text must be one number in its range. */
#include "values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"

/* strtoull alone would accept a sign and blanks. */
static int read_whole(uint64_t *value, const char **text) {
    char *end;
    if (!isdigit((unsigned char)**text)) return 0;
    errno = 0;
    const unsigned long long n = strtoull(*text, &end, 10);
    *value = n;
    *text = end;
    return errno == 0;
}

int cli_value_whole(uint64_t *value, const cli_args *args, const char *name, uint64_t least, uint64_t most) {
    const char *text = cli_option_value(args, name), *end = text;
    uint64_t n;
    if (!text) return CLI_DONE;
    if (!read_whole(&n, &end) || *end || n < least || n > most)
        return cli_say_option(args->command->name, name, "is \"%s\": it must be a whole number between %" PRIu64 " and %" PRIu64,
                              text, least, most);
    *value = n;
    return CLI_DONE;
}

int cli_value_number(double *value, const cli_args *args, const char *name, int (*fits)(double), const char *need) {
    const char *text = cli_option_value(args, name);
    char *end;
    if (!text) return CLI_DONE;
    const double number = strtod(text, &end);
    const int bare = *text && strspn(text, "+-.0123456789eE") == strlen(text); /* not " 1", "0x1", "inf" */
    if (!bare || *end || !isfinite(number) || !fits(number))
        return cli_say_option(args->command->name, name, "is \"%s\": it must be a number %s", text, need);
    *value = number;
    return CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------------- ids */

#define BLANKS " \t\r\n"

const char *cli_skip_blanks(const char *text) { return text + strspn(text, BLANKS); }

/* 1,2,3 or [1, 2, 3]. */
int cli_value_ids(rein_ids *ids, const cli_args *args, const char *name) {
    const char *given = cli_option_value(args, name), *where = args->command->name;
    rein_error err;
    if (!given) return CLI_DONE;
    const char *text = cli_skip_blanks(given);
    const int bracket = *text == '[';
    text += bracket;
    for (size_t i = 0;; i++, text++) {
        uint64_t id;
        text = cli_skip_blanks(text);
        const char *entry = text;
        if (!read_whole(&id, &text) || id > INT32_MAX || !strchr(BLANKS ",]", *text))
            return cli_say_option(where, name, ": entry %zu is \"%.*s\": token ids such as 1,2,3 are needed", i,
                                  (int)strcspn(entry, BLANKS ",]"), entry);
        if (rein_ids_append(ids, (int32_t)id, &err)) return cli_say_error(where, &err);
        text = cli_skip_blanks(text);
        if (*text != ',') break;
    }
    if (bracket && *text == ']') text = cli_skip_blanks(text + 1);
    else if (bracket) return cli_say_option(where, name, "begins with [ but does not end with ]: close the bracket");
    if (*text) return cli_say_option(where, name, ": \"%.20s\" follows the ids: a comma separates them", text);
    return CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------ a run's step */

size_t cli_value_run(int64_t *step, const char *text) {
    const char *at = strrchr(text, '@');
    uint64_t number;
    *step = -1;
    if (!at) return strlen(text);
    const char *end = at + 1;
    if (!read_whole(&number, &end) || *end || number > INT64_MAX) return strlen(text);
    *step = (int64_t)number;
    return (size_t)(at - text);
}

/* ----------------------------------------------------------------------------------------------------------------- where it runs */

int cli_value_kernel(rein_isa *isa, const char *where) {
    const char *name = getenv("REIN_KERNEL");
    if (!name || !*name) return CLI_DONE;
    char all[128] = "";
    for (rein_isa known = REIN_ISA_REF; known < REIN_ISA_COUNT; known++) {
        if (!rein_isa_available(known)) continue;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? ", " : "", rein_isa_name(known));
        if (strcmp(name, rein_isa_name(known)) != 0) continue;
        *isa = known;
        return CLI_DONE;
    }
    return cli_say(CLI_WRONG, where, "the environment variable REIN_KERNEL is \"%s\": on this machine it can be one of %s", name,
                   all);
}

int cli_value_exec(rein_exec *exec, const cli_args *args) {
    uint64_t threads = 0;
    const int status = cli_value_whole(&threads, args, "threads", 0, 256);
    if (status) return status;
    exec->threads = (int)threads;
    return cli_value_kernel(&exec->isa, args->command->name);
}
