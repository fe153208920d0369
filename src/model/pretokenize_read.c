/* pretokenize_read.c - reads the pre_tokenizer of a file. Unknown steps are errors: another split would give other ids without any
 * error. */
#include <string.h>

#include "model/tokenizer_parts.h"

/* The expression of GPT-2, which ByteLevel splits by if use_regex is set. */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static rein_status make_regex(rein_regex **regex, const char *pattern, size_t length, bool literal, const rein_place *place,
                              rein_error *err) {
    rein_error why = {0};
    const rein_status status = rein_regex_make(regex, pattern, length, literal, &why);
    return status == REIN_EINVAL ? rein_place_fail(place, err, "pattern: %s", why.message)
           : status              ? rein_tokenizer_no_memory(err)
                                 : REIN_OK;
}

static rein_status read_behavior(rein_split_behavior *behavior, const json_t *object, const rein_place *place, rein_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = json_string_value(json_object_get(object, "behavior"));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return *behavior = (rein_split_behavior)i, REIN_OK;
    const rein_place at = rein_place_at(place, "behavior");
    return rein_place_fail(&at, err, "is not Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

static rein_status read_split(rein_pretokenizer *step, const json_t *object, const rein_place *place, rein_error *err) {
    const char *pattern;
    size_t length;
    bool is_regex;
    rein_status status = rein_json_pattern(&pattern, &length, &is_regex, object, place, err);
    if (!status) status = rein_json_flag(&step->invert, object, "invert", false, place, err);
    if (!status) status = read_behavior(&step->behavior, object, place, err);
    return status ? status : make_regex(&step->regex, pattern, length, !is_regex, place, err);
}

static rein_status read_digits(rein_pretokenizer *step, const json_t *object, const rein_place *place, rein_error *err) {
    bool single;
    const rein_status status = rein_json_flag(&single, object, "individual_digits", false, place, err);
    step->behavior = single ? REIN_SPLIT_ISOLATED : REIN_SPLIT_CONTIGUOUS;
    return status;
}

static rein_status read_byte_level(rein_pretokenizer *step, const json_t *object, const rein_place *place, rein_error *err) {
    bool prefix, splits;
    rein_status status = rein_json_flag(&prefix, object, "add_prefix_space", true, place, err);
    if (!status) status = rein_json_flag(&splits, object, "use_regex", true, place, err);
    if (status) return status;
    step->prepend = prefix ? REIN_PREPEND_ALWAYS : REIN_PREPEND_NEVER;
    step->behavior = REIN_SPLIT_ISOLATED;
    strcpy(step->mark, " ");
    return splits ? make_regex(&step->regex, gpt2, strlen(gpt2), false, place, err) : REIN_OK;
}

/* Newer files have prepend_scheme, older ones add_prefix_space. */
static rein_status read_prepend(rein_prepend *prepend, const json_t *object, const rein_place *place, rein_error *err) {
    static const char *const names[] = {"always", "first", "never"};
    const json_t *scheme = json_object_get(object, "prepend_scheme");
    bool prefix;
    const rein_status status = rein_json_flag(&prefix, object, "add_prefix_space", true, place, err);
    *prepend = prefix ? REIN_PREPEND_ALWAYS : REIN_PREPEND_NEVER;
    if (status || !scheme) return status;
    for (size_t i = 0; json_is_string(scheme) && i < sizeof names / sizeof *names; i++)
        if (strcmp(json_string_value(scheme), names[i]) == 0) return *prepend = (rein_prepend)i, REIN_OK;
    const rein_place at = rein_place_at(place, "prepend_scheme");
    return rein_place_fail(&at, err, "is not \"always\", \"first\" or \"never\"");
}

static rein_status read_metaspace(rein_pretokenizer *step, const json_t *object, const rein_place *place, rein_error *err) {
    const char *mark;
    size_t length;
    uint32_t c;
    bool splits;
    rein_status status = rein_json_text(&mark, &length, object, "replacement", place, err);
    if (!status) status = rein_json_flag(&splits, object, "split", true, place, err);
    if (!status) status = read_prepend(&step->prepend, object, place, err);
    if (status) return status;
    if (!length || rein_utf8_next(&c, mark) != length || !c)
        return rein_place_fail(place, err, "\"replacement\" is not one character");
    memcpy(step->mark, mark, length);
    step->behavior = REIN_SPLIT_NEXT;
    return splits ? make_regex(&step->regex, mark, length, true, place, err) : REIN_OK;
}

static rein_status read_step(void *context, const char *type, const json_t *object, const rein_place *place, rein_error *err) {
    rein_pretokenizers *all = context;
    if (all->byte_level) return rein_place_fail(place, err, "%.60s comes after ByteLevel, which must be the last step", type);
    if (all->count == REIN_TOKENIZER_STEPS)
        return rein_place_fail(place, err, "there are more than %d pre-tokenizers", REIN_TOKENIZER_STEPS);
    rein_pretokenizer *step = &all->steps[all->count++];
    if (strcmp(type, "Split") == 0) return step->kind = REIN_PRETOKENIZE_SPLIT, read_split(step, object, place, err);
    if (strcmp(type, "Digits") == 0) return step->kind = REIN_PRETOKENIZE_DIGITS, read_digits(step, object, place, err);
    if (strcmp(type, "Metaspace") == 0) return step->kind = REIN_PRETOKENIZE_METASPACE, read_metaspace(step, object, place, err);
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = REIN_PRETOKENIZE_BYTE_LEVEL, all->byte_level = true;
        return read_byte_level(step, object, place, err);
    }
    all->count--;
    return rein_place_fail(place, err, "pre-tokenizer %.60s is not supported: ByteLevel, Digits, Metaspace, Split and Sequence are",
                           type);
}

rein_status rein_pretokenizers_read(rein_pretokenizers *all, const json_t *object, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "pre_tokenizer");
    return rein_json_sequence(object, "pretokenizers", read_step, all, &at, err);
}

void rein_pretokenizers_free(rein_pretokenizers *all) {
    for (size_t i = 0; i < all->count; i++) rein_regex_free(all->steps[i].regex);
    all->count = 0;
}
