/* isa.h - the table of each instruction set. Private to src/isa. */
#ifndef REIN_ISA_ISA_H
#define REIN_ISA_ISA_H

#include "kernel/kernels.h"

#define REIN_TABLE(isa, NAME, machines) extern const rein_kernels rein_kernels_##isa;
REIN_ISA_LIST(REIN_TABLE)
#undef REIN_TABLE

#endif
