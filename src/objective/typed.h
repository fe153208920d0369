/* typed.h - for sources compiled once for double and once for float: `real`, and the name of the function of that type. */
#ifndef REIN_OBJECTIVE_TYPED_H
#define REIN_OBJECTIVE_TYPED_H

#ifdef REAL_F32
typedef float real;
#define TYPED(name) name##_f32
#define TYPED_KERNEL(name, isa) name##_##isa##_f32
#else
typedef double real;
#define TYPED(name) name
#define TYPED_KERNEL(name, isa) name##_##isa##_f64
#endif

/* The kernel `name` of this type for an instruction set; WIDE_KERNEL_OF if it is also compiled for AVX-512. */
#ifdef REIN_HAVE_AVX2
#define KERNEL_OF(name, isa) ((isa) >= REIN_ISA_AVX2 ? TYPED_KERNEL(name, avx2) : TYPED_KERNEL(name, ref))
#define WIDE_KERNEL_OF(name, isa) ((isa) >= REIN_ISA_AVX512 ? TYPED_KERNEL(name, avx512) : KERNEL_OF(name, isa))
#else
#define KERNEL_OF(name, isa) ((void)(isa), TYPED_KERNEL(name, ref))
#define WIDE_KERNEL_OF(name, isa) KERNEL_OF(name, isa)
#endif

/* Long arrays are cut into this many pieces for any number of threads; the sums of the pieces are added in order. */
enum { PIECES = 256 };
static inline size_t piece_start(size_t n, size_t piece) { return n / PIECES * piece + (n % PIECES < piece ? n % PIECES : piece); }

#endif
