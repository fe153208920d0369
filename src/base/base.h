/* base.h - small things the library's own sources share. Private. */
#ifndef REIN_SRC_BASE_H
#define REIN_SRC_BASE_H

#include "rein/base.h"

/* exec, with the defaults put in: at least 1 and at most REIN_MAX_THREADS threads, an instruction set this machine has. */
enum { REIN_MAX_THREADS = 256 };
rein_status rein_exec_resolve(rein_exec *resolved, const rein_exec *exec, rein_error *err);

#endif
