/* hash.c - Debian's xxhash.h, all of it inline: it adds no shared library and exports no name. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hash.h"

#include <errno.h>
#include <unistd.h>

enum { BLOCK = 1 << 14 }; /* on the stack */

uint64_t rein_hash(const void *data, size_t size) { return XXH3_64bits(data, size); }

int rein_hash_descriptor(uint64_t *hash, uint64_t *size, int descriptor) {
    XXH3_state_t state;
    unsigned char block[BLOCK];
    XXH3_64bits_reset(&state);
    for (*size = 0;;) {
        const ssize_t n = read(descriptor, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        XXH3_64bits_update(&state, block, (size_t)n);
        *size += (uint64_t)n;
    }
    *hash = XXH3_64bits_digest(&state);
    return 0;
}
