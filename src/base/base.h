/* base.h - small things that the library's sources share. Private. */
#ifndef REIN_SRC_BASE_H
#define REIN_SRC_BASE_H

#include "rein/base.h"

/* Reports an error that another call filled, with its field, position and errno. Returns code. */
rein_status rein_fail_with(rein_error *err, rein_status code, const rein_error *cause);

/* REIN_ENOMEM, "out of memory": for small things, of which the caller need not know more. Returns REIN_ENOMEM. */
rein_status rein_no_memory(rein_error *err);

/* exec, with the defaults put in: at least 1 and at most REIN_MAX_THREADS threads, an instruction set this machine has. `work` is the
 * number of elements: below REIN_SERIAL of them waking a thread costs more than it saves, and there is one. */
enum { REIN_MAX_THREADS = 256, REIN_SERIAL = 16384 };
rein_status rein_exec_resolve(rein_exec *resolved, const rein_exec *exec, size_t work, rein_error *err);

/* The best instruction set that this program has kernels for and this machine can run (src/isa/isa.c). */
rein_isa rein_isa_best(void);

#endif
