/* remote.h - a small HTTP client: requests to a rein server, whose answers arrive piece by piece. http only. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <signal.h>

#include "rein/text.h"

typedef struct cli_remote {
    char *host, *port;                 /* "127.0.0.1", "8000" */
    const char *key;                   /* NULL: none */
    const volatile sig_atomic_t *stop; /* not 0: the answer is not waited for any longer */
} cli_remote;

/* Reads "http://HOST[:PORT][/v1]". Returns an exit status, after printing what is wrong. Free it whatever that is. */
int cli_remote_open(cli_remote *remote, const char *url, const char *where);
void cli_remote_free(cli_remote *remote);

/* Sends a request (body NULL: GET) and gives the body of a good answer to `take`, as it comes, until it returns another exit status than
 * CLI_DONE. An error of the server is printed. Returns an exit status. */
int cli_remote_ask(const cli_remote *remote, const char *path, const rein_text *body,
                   int (*take)(void *context, const char *bytes, size_t n), void *context, const char *where);

#endif
