/* isa.c - which instruction sets this program was built with, and which of them this machine can run. They are listed in
 * kernel/isa_list.h. */
#include "isa.h"

#include "base/base.h"

typedef struct instruction_set {
    const char *name;
    const rein_kernels *kernels; /* NULL: not in this build */
} instruction_set;

#define BUILT_FOR_ANY(kernels) &kernels
#ifdef __x86_64__
#define BUILT_FOR_X86_64(kernels) &kernels
#else
#define BUILT_FOR_X86_64(kernels) NULL
#endif

#define ROW(isa, NAME, machines) [REIN_ISA_##NAME] = {#isa, BUILT_FOR_##machines(rein_kernels_##isa)},
static const instruction_set SETS[] = {REIN_ISA_LIST(ROW)};
#undef ROW
_Static_assert(sizeof SETS / sizeof *SETS == REIN_ISA_COUNT, "every instruction set of rein_isa has a row in kernel/isa_list.h");

static int is_known(rein_isa isa) { return isa > REIN_ISA_BEST && isa < REIN_ISA_COUNT; }

int rein_isa_available(rein_isa isa) {
    if (isa == REIN_ISA_BEST) return 1;
    return is_known(isa) && SETS[isa].kernels && SETS[isa].kernels->available();
}

rein_isa rein_isa_best(void) {
    rein_isa best = REIN_ISA_REF;
    for (rein_isa isa = REIN_ISA_REF; is_known(isa); isa++)
        if (rein_isa_available(isa)) best = isa;
    return best;
}

const char *rein_isa_name(rein_isa isa) { return SETS[is_known(isa) ? isa : rein_isa_best()].name; }

const rein_kernels *rein_kernels_of(rein_isa isa) { return SETS[isa].kernels; }
