/* isa.c - which instruction sets this program was built with, and which of them this machine can run.
 *
 * To add one: a file beside this one that fills its table, a row here, its lists in the Makefile, and its name in rein/base.h. */
#include "isa.h"

#include "base/base.h"

typedef struct instruction_set {
    const char *name;
    const rein_kernels *kernels; /* NULL: not in this build */
    int (*available)(void);      /* on this machine; called only when there are kernels */
} instruction_set;

static int always(void) { return 1; }

#ifdef __x86_64__
#define X86_64(kernels) &kernels
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
#else
#define X86_64(kernels) NULL
#define has_avx2 NULL
#define has_avx512 NULL
#endif

/* From the slowest to the fastest: the last one available is the best. */
static const instruction_set SETS[] = {
    [REIN_ISA_REF] = {"ref", &rein_kernels_ref, always},
    [REIN_ISA_AVX2] = {"avx2", X86_64(rein_kernels_avx2), has_avx2},
    [REIN_ISA_AVX512] = {"avx512", X86_64(rein_kernels_avx512), has_avx512},
};

static int is_known(rein_isa isa) { return isa > REIN_ISA_BEST && (size_t)isa < sizeof SETS / sizeof *SETS; }

int rein_isa_available(rein_isa isa) {
    if (isa == REIN_ISA_BEST) return 1;
    return is_known(isa) && SETS[isa].kernels && SETS[isa].available();
}

rein_isa rein_isa_best(void) {
    rein_isa best = REIN_ISA_REF;
    for (rein_isa isa = REIN_ISA_REF; is_known(isa); isa++)
        if (rein_isa_available(isa)) best = isa;
    return best;
}

const char *rein_isa_name(rein_isa isa) { return SETS[is_known(isa) ? isa : rein_isa_best()].name; }

const rein_kernels *rein_kernels_of(rein_isa isa) { return SETS[isa].kernels; }
