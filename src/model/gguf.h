/* gguf.h - GGUF files, versions 2 and 3: metadata, tensors, and what they mean for a model. Private.
 *
 * A file is mapped, and checked completely when it is opened: afterwards only the numbers themselves can be wrong. A GGUF file has the
 * contents of a whole model directory. The metadata becomes the JSON that config.json, tokenizer.json and tokenizer_config.json of the
 * same model have, and the tensors get the names and shapes of Hugging Face, so that one reader serves both. docs/gguf.md. */
#ifndef REIN_MODEL_GGUF_H
#define REIN_MODEL_GGUF_H

#include "base/json.h"

#include "base/file.h"
#include "safetensors.h"

/* The types of metadata, with the numbers of the format. */
typedef enum rein_gguf_kind {
    REIN_GGUF_U8,
    REIN_GGUF_I8,
    REIN_GGUF_U16,
    REIN_GGUF_I16,
    REIN_GGUF_U32,
    REIN_GGUF_I32,
    REIN_GGUF_F32,
    REIN_GGUF_BOOL,
    REIN_GGUF_STRING,
    REIN_GGUF_ARRAY,
    REIN_GGUF_U64,
    REIN_GGUF_I64,
    REIN_GGUF_F64,
    REIN_GGUF_KINDS
} rein_gguf_kind;

/* Limits, far above any published model. */
enum {
    REIN_GGUF_PAIRS = 1 << 16,
    REIN_GGUF_TENSORS = 1 << 18,
    REIN_GGUF_NODES = 1 << 24, /* strings and arrays inside arrays, in all metadata of a file */
    REIN_GGUF_DEPTH = 4,       /* arrays in arrays */
    REIN_GGUF_KEY = 65535,     /* bytes; the format's own limit */
    REIN_GGUF_NAME = 64,       /* bytes of a tensor's name; the format's own limit */
    REIN_GGUF_DIMENSIONS = 4,  /* the format's own limit */
    REIN_GGUF_TYPES = 40,      /* of tensors; the format's numbers are below */
    REIN_GGUF_FILES = 1000     /* parts of a split model */
};

/* A string in the file, without a NUL at its end. */
typedef struct rein_gguf_text {
    const char *bytes;
    size_t length;
} rein_gguf_text;

/* A value: a number, a string, or an array of `count` elements, whose bytes follow each other. */
typedef struct rein_gguf_value {
    rein_gguf_kind kind, element;
    const unsigned char *bytes; /* of the number, of the string after its length, of the elements */
    size_t count;               /* bytes of the string; elements of the array */
} rein_gguf_value;

typedef struct rein_gguf_pair {
    rein_gguf_text key;
    rein_gguf_value value;
} rein_gguf_pair;

/* A row of the table of tensor types. */
typedef struct rein_gguf_type {
    const char *name; /* "Q4_K"; NULL: the number is free */
    size_t elements, bytes;
    int known;              /* this program has the type: `dtype` */
    rein_tensor_type dtype; /* for the tensors of a model */
} rein_gguf_type;

typedef struct rein_gguf_tensor {
    char name[REIN_GGUF_NAME + 1];
    int n_dims;
    size_t sizes[REIN_GGUF_DIMENSIONS]; /* the first is contiguous; those after n_dims are 1 */
    uint32_t type;                      /* a number with a name in the table */
    uint64_t offset;                    /* in the data of its file */
    const unsigned char *data;
    size_t bytes;
    size_t file; /* its index */
} rein_gguf_tensor;

typedef struct rein_gguf_file {
    char *path;
    rein_file file;
    rein_gguf_pair *pairs;
    size_t n_pairs;
} rein_gguf_file;

/* An open model: one file, or the parts of a split one. The metadata is that of the first. */
typedef struct rein_gguf {
    rein_gguf_file *files;
    size_t n_files;
    rein_gguf_tensor *tensors; /* of all files, in the order of the bytes */
    size_t n_tensors;
} rein_gguf;

/* 1 if the path is a regular file that begins with the four letters GGUF, or that is named *.gguf. Thread-safe. */
int rein_gguf_is(const char *path);

/* Opens a file, and with the first part of a split model all parts. The caller closes *gguf; NULL on failure. Thread-safe. */
rein_status rein_gguf_open(rein_gguf **gguf, const char *path, rein_error *err);

/* The same for one file in memory, which stays there until the model is closed. `data` is aligned to 32 bytes. */
rein_status rein_gguf_from_memory(rein_gguf **gguf, const char *name, const void *data, size_t size, rein_error *err);

/* Closes it. NULL is fine. */
void rein_gguf_close(rein_gguf *gguf);

/* ---- metadata. An open model does not change: any number of threads may read it. */

/* The row of a tensor type; name NULL: there is none. */
rein_gguf_type rein_gguf_type_at(uint32_t number);

/* Finds a value, or a tensor, by its name; NULL: there is none. */
const rein_gguf_value *rein_gguf_find(const rein_gguf *gguf, const char *key);
const rein_gguf_tensor *rein_gguf_tensor_find(const rein_gguf *gguf, const char *name);

/* The value as a number: element i of an array, i 0 of a number. 0 if it is neither a number nor true or false, or is not there. */
double rein_gguf_number(const rein_gguf_value *value, size_t i);

/* Walks through an array of strings: *at is the bytes of the array before, and moves on. */
rein_gguf_text rein_gguf_next_text(const unsigned char **at);

/* The name of a metadata type: "u32". Static storage. */
const char *rein_gguf_kind_name(rein_gguf_kind kind);

/* "PATH: KEY: WHY", as REIN_EINVAL. */
rein_status rein_gguf_wrong(const rein_gguf *gguf, const char *key, rein_error *err, const char *format, ...) REIN_PRINTF(4, 5);

/* ---- a model */

/* The JSON that a file of a model directory has, for the caller to release: "config.json", "tokenizer.json" or "tokenizer_config.json" of the
 * model in GGUF at this path. *json is NULL for any other name, and where the model has no tokenizer. Thread-safe. */
rein_status rein_gguf_json(json_t **json, const char *path, const char *name, rein_error *err);

/* The path of part i of a model, for the caller to free: part 0 is the file itself. NULL after the last. */
rein_status rein_gguf_part(char **part, const char *path, size_t i, rein_error *err);

/* 1 if the chat template of the model has this word. A file that cannot be read has none. */
int rein_gguf_chat_names(const char *path, const char *word);

/* 1 if the model has a tokenizer, or the file cannot be read. */
int rein_gguf_path_has_tokenizer(const char *path);

/* About the bytes of the tokenizer.json of the model; 0 if the file cannot be read. */
size_t rein_gguf_tokenizer_size(const char *path);

/* The parts of it: gguf_config.c, gguf_tokenizer.c. A key of the vocabulary that is a NUL is REIN_NUL_KEY. */
rein_status rein_gguf_config(json_t **json, const rein_gguf *gguf, rein_error *err);
rein_status rein_gguf_tokenizer(json_t **json, const rein_gguf *gguf, rein_error *err);
rein_status rein_gguf_tokenizer_config(json_t **json, const rein_gguf *gguf, rein_error *err);

/* 0: the file has none, or says no_vocab. */
int rein_gguf_has_tokenizer(const rein_gguf *gguf);

/* The merges of a vocabulary with scores, as tokenizer.json lists them (gguf_merges.c). texts and scores have n elements; a token without
 * text takes no part. */
rein_status rein_gguf_merges(json_t **merges, const rein_gguf_text *texts, const float *scores, size_t n, rein_error *err);

/* How the tensors of an architecture are stored. */
typedef struct rein_gguf_family {
    const char *architecture; /* general.architecture */
    const char *model_type;   /* of config.json */
    const char *class_name;   /* architectures[0] of config.json */
    int pairs;                /* the rows of q and k are in the order of interleaved rotary pairs */
    int added_one;            /* the weights of norms have 1 added */
    int all_biases;           /* llama.cpp reads biases of o, gate, up and down */
    int windows;              /* GGUF can say which layers have a window: n, "all but every n-th", is usual; 0: it cannot */
    const char *same_as;      /* model_type of another family that is stored in the same way; or NULL */
} rein_gguf_family;

/* The family of a model; an architecture that is not supported is an error. */
rein_status rein_gguf_family_of(const rein_gguf_family **family, const rein_gguf *gguf, rein_error *err);

/* The family by its model_type in config.json, or NULL. */
const rein_gguf_family *rein_gguf_family_named(const char *model_type);

/* All architectures for a message: "llama, qwen2 and qwen3". Returns `to`. */
enum { REIN_GGUF_FAMILIES_SHOWN = 200 };
const char *rein_gguf_families_show(char to[REIN_GGUF_FAMILIES_SHOWN]);

/* The scale of Gemma's scores, before 1/√: llama.cpp tells the 27B models by their layers. */
double rein_gguf_gemma_scale(const char *architecture, double layers, double hidden, double heads, double head_dim);

/* The factor of frequency i for the scaling of Llama 3 (weights.c). */
double rein_gguf_llama3_factor(double theta, size_t i, size_t dims, double factor, double low, double high, double original);

/* ---- names of tensors (gguf_names.c) */
enum { REIN_GGUF_NAME_HERE = 96 };

/* Splits "blk.3.attn_q.weight": the layer (-1: none), "attn_q" and ".weight". */
int rein_gguf_split_name(int *layer, const char **middle, size_t *length, const char **end, const char *name);

/* The name at Hugging Face: of expert e of a stack, or -1: it is none. What has no other name keeps its own. */
void rein_gguf_name_here(char to[REIN_GGUF_NAME_HERE], const rein_gguf_family *family, const char *name, long expert);

/* The name in GGUF; that of an expert is the name of its stack. 0: there is none. */
int rein_gguf_name_there(char to[REIN_GGUF_NAME + 1], const rein_gguf_family *family, const char *name);

/* A tensor that is computed, not learned: factors of the rotary embedding. */
int rein_gguf_is_buffer(const char *name);

/* Moves the tensors of the model into a set, under the names of Hugging Face, and closes *gguf. */
rein_status rein_gguf_take_tensors(rein_tensors **tensors, rein_gguf **gguf, rein_error *err);

#endif
