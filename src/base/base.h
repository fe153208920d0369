/* base.h - small things that the library's sources share. Private. */
#ifndef REIN_SRC_BASE_H
#define REIN_SRC_BASE_H

#include "rein/base.h"

/* exec, with the defaults put in: at least 1 and at most REIN_MAX_THREADS threads, an instruction set this machine has. `work` is the
 * number of elements: below REIN_SERIAL of them waking a thread costs more than it saves, and there is one. */
enum { REIN_MAX_THREADS = 256, REIN_SERIAL = 16384 };
rein_status rein_exec_resolve(rein_exec *resolved, const rein_exec *exec, size_t work, rein_error *err);

/* The best instruction set that this program has kernels for and this machine can run (src/isa/isa.c). */
rein_isa rein_isa_best(void);

#endif
