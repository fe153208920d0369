/* base.h - what all parts of rein share: status codes, errors, where work runs.
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
#define REIN_VERSION_MINOR 2
#define REIN_VERSION_PATCH 0

/* The values are part of the ABI: new ones may be added, none is renumbered. */
typedef enum rein_status {
    REIN_OK = 0,
    REIN_EINVAL = 1,    /* an argument is wrong: the message names it, its position and what would be right */
    REIN_ENOMEM = 2,    /* no memory, or a workspace that is too small */
    REIN_ERANGE = 3,    /* each argument is valid, but the result is not a finite number */
    REIN_EIO = 4,       /* a file cannot be opened, read or written: it is not there, or not allowed */
    REIN_END = 5,       /* there is nothing at that position */
    REIN_ESYSTEM = 6,   /* the same as REIN_EIO, but whatever the file is: a full disk, a disk error, too many open files */
    REIN_ECANCELLED = 7 /* the caller asked for it to stop */
} rein_status;

enum { REIN_MESSAGE_SIZE = 500 };

/* What went wrong. A call that fails fills it; every `rein_error *` may be NULL. Programs read code, field and index; people read the
 * message, one line without a full stop: "response_lengths[3] is -1: a length is 0 or more". The layout is part of the ABI. */
typedef struct rein_error {
    rein_status code;
    int32_t system;  /* the errno of the system call that failed; 0: none did */
    int64_t index;   /* the position in `field`, from 0; -1: the error is not about one position */
    size_t reason;   /* message + reason is the message without the field and position it begins with; 0: it has none */
    char field[128]; /* the argument, option, setting or JSON path that is wrong, as C, YAML, JSON and Python spell it; "": none */
    char message[REIN_MESSAGE_SIZE];
} rein_error;

/* The instruction sets that kernels are compiled for. All give the same bits; only the time differs. */
typedef enum rein_isa {
    REIN_ISA_BEST = 0,
    REIN_ISA_REF = 1,
    REIN_ISA_AVX2 = 2,
    REIN_ISA_AVX512 = 3,
    REIN_ISA_COUNT /* not an instruction set; grows */
} rein_isa;

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

/* An account of memory with a ceiling, shared by whatever is opened with it. Thread-safe. */
typedef struct rein_memory rein_memory;

/* Opens an account of max_bytes, 1 or more. The caller closes *memory after everything that uses it; it is NULL on failure. */
REIN_API rein_status rein_memory_open(rein_memory **memory, size_t max_bytes, rein_error *err);

/* Closes an account. NULL is fine. */
REIN_API void rein_memory_close(rein_memory *memory);

/* Charges bytes to the account. Returns 1, or 0 if they would exceed the ceiling; then nothing is charged. A program does this for
 * memory that it allocates itself. With memory NULL there is no ceiling. */
REIN_API int rein_memory_take(rein_memory *memory, size_t bytes);

/* Takes a charge back. */
REIN_API void rein_memory_give(rein_memory *memory, size_t bytes);

/* Tell how much is charged, and the ceiling. */
REIN_API size_t rein_memory_used(const rein_memory *memory);
REIN_API size_t rein_memory_limit(const rein_memory *memory);

/* Bytes that this process may use: what the system has available, and what a container allows; SIZE_MAX / 2 if neither is known.
 * Thread-safe. */
REIN_API size_t rein_memory_available(void);

/* The version of the library, "0.2.0". Static storage; thread-safe. */
REIN_API const char *rein_version(void);

#if defined(__GNUC__)
#define REIN_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define REIN_PRINTF(at, first)
#endif

/* Fills err (if any) with code and the formatted message, without a field; returns code. Thread-safe, as are the next three. */
REIN_API rein_status rein_fail(rein_error *err, rein_status code, const char *format, ...) REIN_PRINTF(3, 4);

/* The same for one argument: the message is "FIELD[INDEX] REASON", or "FIELD REASON" with index -1. A reason that begins with a colon
 * follows without a blank. `field` is copied, at most 127 bytes of it, and may not overlap err; the reason may. */
REIN_API rein_status rein_fail_at(rein_error *err, rein_status code, const char *field, int64_t index, const char *format, ...)
    REIN_PRINTF(5, 6);

/* Puts a place before the message of an error that was filled: "PLACE: MESSAGE". Field and index stay. Returns code. */
REIN_API rein_status rein_fail_in(rein_error *err, rein_status code, const char *format, ...) REIN_PRINTF(3, 4);

/* Gives an error that was filled the field and index that a user knows. In the message, `name` stands in place of "FIELD[INDEX]": a place in
 * groups becomes "example 6". With name NULL the message stays, and only an error about the input (REIN_EINVAL, REIN_EIO) that has no field
 * gets this one: the argument that named the file, say. Returns code. */
REIN_API rein_status rein_fail_as(rein_error *err, rein_status code, const char *field, int64_t index, const char *name);

/* The message for a user who knows the field by another name, which stands in place of "FIELD[INDEX]": "--stop", "rewards[1][0]". Where
 * the message has the field without its position, an equal position at the end of `name` is left out. Without a field it is the message as
 * it is. Returns `to`. Thread-safe. */
REIN_API const char *rein_error_spelled(char to[REIN_MESSAGE_SIZE], const rein_error *err, const char *name);

/* Binds the calling thread and each of the library's threads to a core of its own. For a program that has the machine to itself: two
 * threads on one core would halve its speed. Thread-safe; lasts until the process ends. */
REIN_API void rein_bind_threads(void);

/* Reserves the library's threads for the calling thread, until rein_threads_release: waits until they have finished the work at hand; what
 * other threads compute meanwhile runs on those threads alone. For a program in which one thread must answer soon while another computes for
 * long. Results do not depend on it. Harmless twice. Thread-safe. */
REIN_API void rein_threads_reserve(void);
REIN_API void rein_threads_release(void);

/* The name of an instruction set, such as "avx2"; for REIN_ISA_BEST the one that is used here. Static storage; thread-safe. */
REIN_API const char *rein_isa_name(rein_isa isa);

/* Tells whether this machine can run `isa`: 1 or 0. Thread-safe. */
REIN_API int rein_isa_available(rein_isa isa);

/* For "did you mean": the name in `names` (ended by NULL) that is closest to `word`, or NULL if none is close. Thread-safe. */
REIN_API const char *rein_nearest(const char *word, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif
