/* isa_list.h - the instruction sets that kernels are compiled for. Private.
 *
 * To add one: a row here, its value in rein_isa (rein/base.h), a file in src/isa that fills its table, and its flags in the Makefile. The
 * headers declare every kernel for every row; a table uses those that are compiled. */
#ifndef REIN_KERNEL_ISA_LIST_H
#define REIN_KERNEL_ISA_LIST_H

/* From the slowest to the fastest: the last one available is the best.
 *      name, its value in rein_isa, the machines it is compiled for */
#define REIN_ISA_LIST(ROW)  \
    ROW(ref, REF, ANY)      \
    ROW(avx2, AVX2, X86_64) \
    ROW(avx512, AVX512, X86_64)

#endif
