/* gguf_splits.c - the table of tokenizer.ggml.pre: each name has the pre_tokenizer of the tokenizer.json that models with this name have. */
#include "gguf_splits.h"

#define GPT4_END " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_END " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const rein_gguf_split gpt2 = {.regex = NULL}, digits = {.digits = 1},
                             llama3 = {.regex = SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" GPT4_END,
                                       .ignore_merges = 1,
                                       .begins = 1},
                             dbrx = {.regex = SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" GPT4_END},
                             qwen2 = {.regex = SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" GPT4_END, .nfc = 1},
                             o200k = {.regex =
                                          "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT_FORMS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER
                                          "+" LOWER "*" SHORT_FORMS "?|\\p{N}{1,3}|" O200K_END},
                             tekken = {.regex = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
                                                "*|\\p{N}|" O200K_END,
                                       .ignore_merges = 1};

static const struct {
    const char *name;
    const rein_gguf_split *split;
} rows[] = {
    {"gpt-2", &gpt2},       {"olmo", &gpt2},        {"mpt", &gpt2},      {"phi-2", &gpt2},
    {"smollm", &digits},    {"starcoder", &digits}, {"refact", &digits}, {"command-r", &digits},
    {"codeshell", &digits}, {"llama-bpe", &llama3}, {"llama3", &llama3}, {"llama-v3", &llama3},
    {"dbrx", &dbrx},        {"smaug-bpe", &dbrx},   {"qwen2", &qwen2},   {"deepseek-r1-qwen", &qwen2},
    {"gpt-4o", &o200k},     {"llama4", &o200k},     {"tekken", &tekken},
};
enum { ROWS = sizeof rows / sizeof *rows };

const char *rein_gguf_split_name_at(size_t i) { return i < ROWS ? rows[i].name : NULL; }

const rein_gguf_split *rein_gguf_split_at(size_t i) { return i < ROWS ? rows[i].split : NULL; }
