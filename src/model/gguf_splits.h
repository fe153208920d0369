/* gguf_splits.h - the names that GGUF has for the ways to split text before it is merged, tokenizer.ggml.pre. Private. */
#ifndef REIN_MODEL_GGUF_SPLITS_H
#define REIN_MODEL_GGUF_SPLITS_H

#include <stddef.h>

/* tokenizer.ggml.token_type */
enum { REIN_GGUF_NORMAL = 1, REIN_GGUF_UNKNOWN, REIN_GGUF_CONTROL, REIN_GGUF_USER_DEFINED, REIN_GGUF_UNUSED, REIN_GGUF_BYTE };

/* How text is split. */
typedef struct rein_gguf_split {
    const char *regex; /* of a Split step; NULL: the expression of ByteLevel */
    int digits;        /* a Digits step comes first: each digit is a piece */
    int nfc;           /* text is brought into normal form C before */
    int ignore_merges; /* a piece that is a token is that token */
    int begins;        /* text begins with the begin token, unless the file says otherwise */
} rein_gguf_split;

/* Row i of the table: its name, NULL past the last, and what the name means. Of several names for one split, the first is written. */
const char *rein_gguf_split_name_at(size_t i);
const rein_gguf_split *rein_gguf_split_at(size_t i);

#endif
