/* sha256.h - SHA-256 (FIPS 180-4) of bytes in memory, for formats that ask for it. hash.h is faster, for our own files. Private, thread-safe. */
#ifndef REIN_BASE_SHA256_H
#define REIN_BASE_SHA256_H

#include <stddef.h>

enum { REIN_SHA256_BYTES = 32, REIN_SHA256_BASE64 = 45 };

void rein_sha256(unsigned char digest[REIN_SHA256_BYTES], const void *data, size_t size);

/* The same as a text in base64. Returns `to`. */
const char *rein_sha256_base64(char to[REIN_SHA256_BASE64], const void *data, size_t size);

#endif
