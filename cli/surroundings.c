/* surroundings.c - descriptors 0 to 2, and the signals of writes that fail. */
#define _GNU_SOURCE /* O_PATH */
#include "surroundings.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* open() takes the lowest free number. O_PATH: reading and writing fail as they do on a closed descriptor. */
static void occupy_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) < 0) return;
}

void cli_prepare_process(void) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    occupy_standard_files();
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}
