/* base.h - what every part of rein shares: status codes, errors, where work runs.
 * Nothing here prints, exits or reads the environment. */
#ifndef REIN_BASE_H
#define REIN_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define REIN_API __attribute__((visibility("default")))
#else
#define REIN_API
#endif

#define REIN_VERSION_MAJOR 0
#define REIN_VERSION_MINOR 1
#define REIN_VERSION_PATCH 0

/* The values are part of the ABI: they are added to, never renumbered. */
typedef enum rein_status {
    REIN_OK = 0,
    REIN_EINVAL = 1, /* an argument is wrong: the message names it, its position and what would be right */
    REIN_ENOMEM = 2, /* no memory, or a workspace that is too small */
    REIN_ERANGE = 3, /* the arguments are right one by one, but the result is not a finite number */
    REIN_EIO = 4     /* a file cannot be opened, read or written */
} rein_status;

/* Filled when a call fails; every `rein_error *` may be NULL. The message is one line without a full stop. */
typedef struct rein_error {
    rein_status code;
    char message[500];
} rein_error;

/* The instruction sets a kernel exists for. Every set gives the same bits; only the time differs. */
typedef enum rein_isa { REIN_ISA_BEST = 0, REIN_ISA_REF = 1, REIN_ISA_AVX2 = 2, REIN_ISA_AVX512 = 3 } rein_isa;

/* Where work runs. A NULL `const rein_exec *` is {0}: every core, the best instruction set. Results do not depend on it. */
typedef struct rein_exec {
    int threads; /* 0: as many as there are cores this process may use */
    rein_isa isa;
} rein_exec;

/* A trained array, row-major. A vector is one row. Borrowed. */
typedef struct rein_parameter {
    const char *name; /* for messages */
    float *value;     /* [size] */
    float *gradient;  /* [size] d loss / d value; read, never changed */
    size_t rows, columns;
    size_t size; /* rows·columns, at least 1 */
    int decay;   /* 1: weight decay applies. Norms and biases want 0 */
} rein_parameter;

/* "0.1.0". Static storage; thread-safe. */
REIN_API const char *rein_version(void);

/* Sets err (if any) to code and the formatted message; returns code. Thread-safe. */
REIN_API rein_status rein_fail(rein_error *err, rein_status code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Gives each of the library's threads, the calling one included, a core of its own: for a program that has the machine to itself, where
 * two threads that share a core halve its speed. Thread-safe; lasts until the process ends. */
REIN_API void rein_bind_threads(void);

/* The name of an instruction set ("ref", "avx2", "avx512"), of the one that `isa` resolves to here. Static storage; thread-safe. */
REIN_API const char *rein_isa_name(rein_isa isa);

/* 1 if this machine can run `isa`. Thread-safe. */
REIN_API int rein_isa_available(rein_isa isa);

/* The name in `names` (ended by NULL) nearest to `word`, or NULL when none is near: "did you mean". Thread-safe. */
REIN_API const char *rein_nearest(const char *word, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif
