/* typed.h - for sources compiled once for double and once for float: `real`, the name of the function of that type, and its kernels:
 * rein_kernels_of(isa)->OBJECTIVE_KERNELS. */
#ifndef REIN_OBJECTIVE_TYPED_H
#define REIN_OBJECTIVE_TYPED_H

#include "rein/objective.h"

#ifdef REAL_F32
typedef float real;
#define REAL REIN_F32
#define TYPED(name) name##_f32
#define OBJECTIVE_KERNELS objective_f32
#else
typedef double real;
#define REAL REIN_F64
#define TYPED(name) name
#define OBJECTIVE_KERNELS objective_f64
#endif

/* Long arrays are cut into this many pieces for any number of threads; the sums of the pieces are added in order. */
enum { PIECES = 256 };
static inline size_t piece_start(size_t n, size_t piece) { return n / PIECES * piece + (n % PIECES < piece ? n % PIECES : piece); }

#endif
