/* base.c - errors, the version, and which instruction set this machine has. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *rein_version(void) { return TEXT(REIN_VERSION_MAJOR) "." TEXT(REIN_VERSION_MINOR) "." TEXT(REIN_VERSION_PATCH); }

/* A text that did not fit was cut anywhere: not inside a character (UTF-8). */
static void cut_whole(char *text, size_t length) {
    size_t first = length;
    while (first && ((unsigned char)text[first - 1] & 0xc0) == 0x80) first--; /* the bytes that continue one */
    if (!first || !((unsigned char)text[first - 1] & 0x80)) return;
    const unsigned char lead = (unsigned char)text[--first];
    const size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (length - first < whole) text[first] = 0;
}

rein_status rein_fail(rein_error *err, rein_status code, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        const int length = vsnprintf(err->message, sizeof err->message, format, args);
        if (length >= (int)sizeof err->message) cut_whole(err->message, sizeof err->message - 1);
        for (char *c = err->message; *c; c++) /* what a message quotes may hold anything; the message is one line */
            if ((unsigned char)*c < 32 || *c == 127) *c = '?';
        va_end(args);
    }
    return code;
}

int rein_isa_available(rein_isa isa) {
    switch (isa) {
    case REIN_ISA_BEST:
    case REIN_ISA_REF: return 1;
    case REIN_ISA_AVX2:
#ifdef REIN_HAVE_AVX2
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
        return 0;
#endif
    case REIN_ISA_AVX512:
#ifdef REIN_HAVE_AVX2
        return rein_isa_available(REIN_ISA_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
        return 0;
#endif
    }
    return 0;
}

rein_isa rein_isa_best(void) {
    rein_isa best = REIN_ISA_REF;
    for (rein_isa isa = REIN_ISA_REF; isa <= REIN_ISA_AVX512; isa++)
        if (rein_isa_available(isa)) best = isa;
    return best;
}

const char *rein_isa_name(rein_isa isa) {
    if (isa == REIN_ISA_BEST) isa = rein_isa_best();
    return isa == REIN_ISA_AVX512 ? "avx512" : isa == REIN_ISA_AVX2 ? "avx2" : "ref";
}
