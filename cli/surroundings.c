/* surroundings.c - descriptors 0 to 2, and the signals of writes that fail. */
#define _GNU_SOURCE /* O_PATH */
#include "surroundings.h"

#include <fcntl.h>
#ifdef REIN_STATIC
#include <nss.h>
#endif
#include <signal.h>
#include <unistd.h>

/* open() takes the lowest free number. O_PATH: reading and writing fail as they do on a closed descriptor. */
static void occupy_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) < 0) return;
}

/* The static program must not load the C library's modules for looking up hosts: those of another version crash it. Files and DNS are built in. */
static void look_up_hosts_without_modules(void) {
#ifdef REIN_STATIC
    __nss_configure_lookup("hosts", "files dns");
#endif
}

void cli_prepare_process(void) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    occupy_standard_files();
    look_up_hosts_without_modules();
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}
