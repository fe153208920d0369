/* hash.h - the fingerprint of bytes: XXH3 with 64 bits and seed 0. It finds accidents; it does not stop somebody who means to deceive.
 * Private, thread-safe. */
#ifndef REIN_BASE_HASH_H
#define REIN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t rein_hash(const void *data, size_t size);

/* Of what stands in an open file from where it is to its end, and how many bytes that are. Read, not mapped: a sector that the disk
 * cannot give back shall be an error, not a signal. Returns 0, or -1 with errno. */
int rein_hash_descriptor(uint64_t *hash, uint64_t *size, int descriptor);

#endif
