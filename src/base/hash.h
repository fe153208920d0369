/* hash.h - the fingerprint of bytes: XXH3 with 64 bits and seed 0. It detects accidents, not forgery.
 * Private, thread-safe. */
#ifndef REIN_BASE_HASH_H
#define REIN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t rein_hash(const void *data, size_t size);

/* The same for an open file from its position to its end, and the number of those bytes. It is read, not mapped, so that a sector that the
 * disk cannot read is an error and not a signal. Returns 0, or -1 with errno. */
int rein_hash_descriptor(uint64_t *hash, uint64_t *size, int descriptor);

#endif
