/* isa.h - the table of each instruction set. Private to src/isa. */
#ifndef REIN_ISA_ISA_H
#define REIN_ISA_ISA_H

#include "kernel/kernels.h"

extern const rein_kernels rein_kernels_ref, rein_kernels_avx2, rein_kernels_avx512;

#endif
