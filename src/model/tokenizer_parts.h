/* tokenizer_parts.h - the parts of a tokenizer. Private.
 *
 * Encoding: added tokens are cut out, the rest is normalized, added tokens that match normalized text are cut out, the rest is
 * split into pieces (pretokenize.c), each piece is merged into tokens (bpe.c), and the tokens of the post-processor are added. */
#ifndef REIN_MODEL_TOKENIZER_PARTS_H
#define REIN_MODEL_TOKENIZER_PARTS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/json.h"
#include "base/text.h"
#include "model/tokenizer_regex.h"
#include "model/unicode.h"
#include "rein/tokenizer.h"

/* Limits, far above any published tokenizer. */
enum {
    REIN_TOKENIZER_STEPS = 16,       /* of a normalizer, pre-tokenizer or decoder */
    REIN_TOKENIZER_DEPTH = 8,        /* nested Sequences */
    REIN_TOKENIZER_AFFIXES = 16,     /* tokens added before or after a text */
    REIN_TOKENIZER_ADDED = 1 << 16,  /* added tokens */
    REIN_TOKENIZER_TOKENS = 1 << 22, /* tokens */
    REIN_TOKENIZER_GAP = 1 << 16,    /* ids without a token */
    REIN_TOKENIZER_TOKEN = 1 << 16,  /* bytes of a token */
    REIN_TOKENIZER_MERGES = 1 << 23, /* merges */
    REIN_TOKENIZER_FILE = 1 << 28,   /* bytes of a file */
    REIN_TOKENIZER_PLACE = 160       /* bytes of a JSON path in a message */
};

/* A place in a JSON file, for messages. */
typedef struct rein_place {
    const char *file;
    char path[REIN_TOKENIZER_PLACE];
} rein_place;

/* ---- tokenizer_json.c: JSON with messages that name the place */
rein_place rein_place_at(const rein_place *parent, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
rein_status rein_place_fail(const rein_place *place, rein_error *err, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
rein_status rein_json_type(const char **type, const json_t *object, const rein_place *place, rein_error *err);
rein_status rein_json_flag(bool *value, const json_t *object, const char *key, bool absent, const rein_place *place,
                           rein_error *err);
rein_status rein_json_text(const char **text, size_t *length, const json_t *object, const char *key, const rein_place *place,
                           rein_error *err);
rein_status rein_json_pattern(const char **text, size_t *length, bool *is_regex, const json_t *object, const rein_place *place,
                              rein_error *err);
/* Calls `one` for the object or, if it is a Sequence, for each item of its array `key`, nested Sequences included, in order. */
typedef rein_status rein_json_visit(void *context, const char *type, const json_t *object, const rein_place *place,
                                    rein_error *err);
rein_status rein_json_sequence(const json_t *object, const char *key, rein_json_visit *one, void *context, const rein_place *place,
                               rein_error *err);

/* ---- tokenizer_text.c */
/* The first place of a part, of 1 byte or more, in a text; NULL: it is not there. */
const char *rein_text_find(const char *text, size_t length, const char *part, size_t part_length);
/* Appends `text` with every `from` replaced by `to`. */
rein_status rein_text_replace(rein_text *out, const char *text, size_t length, const char *from, size_t from_length, const char *to,
                              size_t to_length, rein_error *err);
rein_status rein_tokenizer_no_memory(rein_error *err);

/* ---- tokenizer_vocabulary.c: ids and their texts */
typedef struct rein_vocabulary {
    char *bytes;
    uint32_t *begins; /* [size]; where the text of an id begins in bytes */
    int32_t *lengths; /* [size]; -1: no token has this id */
    int32_t *slots;   /* hash table of ids, -1: free */
    size_t size, mask;
    size_t model_bytes; /* the texts of model.vocab end here; those of tokens that were only added follow */
    bool *special;      /* [size] */
    bool hides_nul;     /* the token "\0" is REIN_NUL_KEY in the JSON */
} rein_vocabulary;
#define REIN_NUL_KEY "\xEF\xB7\x90" /* U+FDD0 */

typedef struct rein_added {
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} rein_added;

rein_status rein_vocabulary_read(rein_vocabulary *vocabulary, rein_added **added, size_t *count, const json_t *root,
                                 const rein_place *place, rein_error *err);
void rein_vocabulary_free(rein_vocabulary *vocabulary);
int32_t rein_vocabulary_find(const rein_vocabulary *vocabulary, const char *text, size_t length);
/* Finds a token of model.vocab: a merge never makes a token that was only added. */
int32_t rein_vocabulary_find_model(const rein_vocabulary *vocabulary, const char *text, size_t length);
const char *rein_vocabulary_text(size_t *length, const rein_vocabulary *vocabulary, int32_t id);

/* ---- tokenizer_normalize.c */
typedef enum rein_normalizer_kind {
    REIN_NORMALIZE_NFC,
    REIN_NORMALIZE_NFKC,
    REIN_NORMALIZE_PREPEND,
    REIN_NORMALIZE_REPLACE
} rein_normalizer_kind;
typedef struct rein_normalizer {
    rein_normalizer_kind kind;
    char *from, *to; /* Replace: from (or regex) to; Prepend: to */
    size_t from_length, to_length;
    rein_regex *regex;
} rein_normalizer;
typedef struct rein_normalizers {
    rein_normalizer steps[REIN_TOKENIZER_STEPS];
    size_t count;
} rein_normalizers;
rein_status rein_normalizers_read(rein_normalizers *normalizers, const json_t *object, const rein_place *place, rein_error *err);
void rein_normalizers_free(rein_normalizers *normalizers);
/* Normalizes a text. *result is `text` itself if nothing changes, otherwise `first` or `second` holds it. A text that becomes longer than
 * REIN_NORMALIZED_TIMES times its length, and REIN_NORMALIZED_MORE bytes, is an error. */
enum { REIN_NORMALIZED_TIMES = 64, REIN_NORMALIZED_MORE = 256 };
rein_status rein_normalize(const char **result, size_t *result_length, rein_text *first, rein_text *second, rein_matcher *matcher,
                           const rein_normalizers *normalizers, const char *text, size_t length, rein_error *err);

/* ---- tokenizer_added.c: finds added tokens */
typedef struct rein_added_entry {
    const char *pattern;
    size_t length;
    const rein_added *token;
    size_t order;
} rein_added_entry;
typedef struct rein_added_set {
    rein_added_entry *entries; /* sorted by pattern */
    size_t count;
    size_t firsts[257]; /* the patterns that begin with byte b are [firsts[b], firsts[b + 1]) */
    char *patterns;     /* normalized patterns, if the set owns them */
    int32_t *by_id;     /* normalized patterns: the entry of an id, or -1 */
} rein_added_set;
typedef struct rein_added_match {
    rein_span span; /* with the blanks that belong to the token */
    const rein_added *token;
} rein_added_match;
rein_status rein_added_set_make(rein_added_set *set, const rein_added *added, size_t count, bool normalized,
                                const rein_vocabulary *vocabulary, const rein_normalizers *normalizers, rein_error *err);
void rein_added_set_free(rein_added_set *set);
/* Finds the next match at or after *from; false if there is none. `last` is the end of the previous match, blanks included. */
bool rein_added_next(rein_added_match *match, size_t *from, size_t last, const rein_added_set *set, const char *text, size_t length,
                     const rein_encoding *how);

/* ---- pretokenize.c: splits text into pieces */
typedef enum rein_split_behavior {
    REIN_SPLIT_REMOVED,
    REIN_SPLIT_ISOLATED,
    REIN_SPLIT_PREVIOUS,
    REIN_SPLIT_NEXT,
    REIN_SPLIT_CONTIGUOUS
} rein_split_behavior;
typedef enum rein_pre_kind {
    REIN_PRETOKENIZE_SPLIT,
    REIN_PRETOKENIZE_DIGITS,
    REIN_PRETOKENIZE_BYTE_LEVEL,
    REIN_PRETOKENIZE_METASPACE
} rein_pre_kind;
typedef enum rein_prepend { REIN_PREPEND_ALWAYS, REIN_PREPEND_FIRST, REIN_PREPEND_NEVER } rein_prepend;
typedef struct rein_pretokenizer {
    rein_pre_kind kind;
    rein_split_behavior behavior;
    bool invert;
    rein_regex *regex; /* of Split, and of ByteLevel with use_regex; NULL: no split */
    rein_prepend prepend;
    char mark[5]; /* Metaspace: the character for a blank; ByteLevel: " " */
} rein_pretokenizer;
typedef struct rein_pretokenizers {
    rein_pretokenizer steps[REIN_TOKENIZER_STEPS];
    size_t count;
    bool byte_level;
} rein_pretokenizers;
rein_status rein_pretokenizers_read(rein_pretokenizers *pretokenizers, const json_t *object, const rein_place *place,
                                    rein_error *err);
void rein_pretokenizers_free(rein_pretokenizers *pretokenizers);

typedef struct rein_part {
    size_t begin, end;
    bool match;
} rein_part;
typedef struct rein_parts {
    rein_part *data;
    size_t count, capacity;
} rein_parts;
/* The pieces of one text, with the memory to find them; reused for the next text. The matcher is the caller's. */
typedef struct rein_pieces {
    const char *text;
    rein_parts parts, spare, found;
    rein_text held[2];
    rein_matcher *matcher;
    bool at_start; /* the first piece begins where the whole input does */
} rein_pieces;
rein_status rein_pretokenize(rein_pieces *pieces, rein_matcher *matcher, const rein_pretokenizers *all, const char *text,
                             size_t length, bool at_start, rein_error *err);
void rein_pieces_free(rein_pieces *pieces);

/* ---- bpe.c: merges pieces into tokens */
typedef struct rein_merge {
    uint64_t pair; /* left << 32 | right; all ones: free */
    uint32_t rank;
    int32_t id;
} rein_merge;
typedef struct rein_bpe {
    rein_merge *merges; /* hash table */
    size_t mask;
    int32_t bytes[256];    /* the token of a byte in the byte-level alphabet, or -1 */
    int32_t fallback[256]; /* "<0x00>" … "<0xFF>", or -1 */
    int32_t unknown;       /* -1: none */
    size_t longest;        /* bytes of the longest token */
    bool byte_level, byte_fallback, fuse_unknown, ignore_merges;
} rein_bpe;
rein_status rein_bpe_read(rein_bpe *bpe, const json_t *model, bool byte_level, const rein_vocabulary *vocabulary,
                          const rein_place *place, rein_error *err);
void rein_bpe_free(rein_bpe *bpe);
/* The index of a pair in the table of merges, or of the free entry where it belongs. */
size_t rein_bpe_slot(const rein_bpe *bpe, uint64_t pair);

typedef struct rein_symbol {
    int32_t id, previous, next;
} rein_symbol;
typedef struct rein_merge_candidate {
    uint64_t order; /* rank << 32 | position */
    int32_t id;
} rein_merge_candidate;
typedef struct rein_word {
    rein_symbol *symbols;
    rein_merge_candidate *heap;
    size_t count, capacity, waiting, heap_capacity;
    rein_text mapped;
    bool guarded; /* plain text must not become a special token */
} rein_word;
rein_status rein_bpe_encode(rein_ids *ids, rein_word *word, const rein_bpe *bpe, const rein_vocabulary *vocabulary,
                            const char *piece, size_t length, rein_error *err);
void rein_word_free(rein_word *word);

/* The alphabet of byte-level files: a printable character for each byte. bpe.c */
uint32_t rein_byte_character(unsigned char byte);
int rein_character_byte(uint32_t character); /* -1: it stands for no byte */

/* ---- tokenizer_affix.c: the tokens that the post-processor adds to a text */
typedef struct rein_affixes {
    int32_t before[REIN_TOKENIZER_AFFIXES], after[REIN_TOKENIZER_AFFIXES];
    size_t befores, afters;
} rein_affixes;
rein_status rein_affixes_read(rein_affixes *affixes, const json_t *object, const rein_vocabulary *vocabulary,
                              const rein_place *place, rein_error *err);

/* ---- tokenizer_decoder.c */
typedef enum rein_decoder_kind {
    REIN_DECODE_SPACES, /* no decoder: tokens are joined with blanks */
    REIN_DECODE_REPLACE,
    REIN_DECODE_FALLBACK,
    REIN_DECODE_FUSE,
    REIN_DECODE_STRIP,
    REIN_DECODE_METASPACE,
    REIN_DECODE_BYTE_LEVEL
} rein_decoder_kind;
typedef struct rein_decoder {
    rein_decoder_kind kind;
    char *from, *to;
    size_t from_length, to_length;
    size_t strip; /* Strip: at most this many; Metaspace: 1 if the first token loses its blanks */
    bool fused;   /* a Fuse came before: everything is one token */
} rein_decoder;
typedef struct rein_decoders {
    rein_decoder steps[REIN_TOKENIZER_STEPS];
    size_t count;
} rein_decoders;
rein_status rein_decoders_read(rein_decoders *decoders, const json_t *object, const rein_place *place, rein_error *err);
void rein_decoders_free(rein_decoders *decoders);

/* ---- tokenizer_config.c: tokenizer_config.json */
typedef struct rein_tokenizer_settings {
    rein_named_tokens named;
    char *chat_template, *tool_template; /* tool_template: of a list, the one for conversations with tools; NULL: none */
    size_t chat_template_length, tool_template_length;
} rein_tokenizer_settings;
rein_status rein_tokenizer_settings_read(rein_tokenizer_settings *settings, rein_affixes *affixes,
                                         const rein_tokenizer_files *files, const rein_vocabulary *vocabulary, rein_error *err);

/* The same from a parsed tokenizer_config.json, or NULL. */
rein_status rein_tokenizer_settings_take(rein_tokenizer_settings *settings, rein_affixes *affixes, const json_t *config,
                                         const rein_vocabulary *vocabulary, const rein_place *place, rein_error *err);

/* ---- tokenizer.c: opens a tokenizer from a parsed tokenizer.json and tokenizer_config.json (NULL: none). The path is for messages. */
rein_status rein_tokenizer_make(rein_tokenizer **tokenizer, const json_t *root, const json_t *config, const char *path,
                                rein_error *err);

/* ---- tokenizer_bound.c */
/* The most bytes of a text that one token stands for; 0: there is no bound. */
size_t rein_bytes_per_token(const rein_tokenizer *tokenizer);

struct rein_tokenizer {
    rein_vocabulary vocabulary;
    rein_added *added;
    size_t added_count;
    rein_added_set plain_set, normalized_set;
    rein_normalizers normalizers;
    rein_pretokenizers pretokenizers;
    rein_bpe bpe;
    rein_affixes affixes;
    rein_decoders decoders;
    rein_tokenizer_settings settings;
    size_t bytes_per_token;   /* rein_bytes_per_token */
    rein_chat_template *chat; /* the chat template; NULL: there is none, or chat_problem says why it cannot be run */
    rein_error chat_problem;
};

#endif
