/* gguf_tokenizer.c - the tokenizer.json and tokenizer_config.json of a GGUF model.
 *
 * Two kinds of tokenizers are read. "gpt2" is byte-level BPE with its merges; tokenizer.ggml.pre names how text is split before
 * (gguf_splits.c). "llama" is BPE with scores (SentencePiece); its merges follow from the scores (gguf_merges.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "gguf_splits.h"
#include "tokenizer_parts.h"

typedef struct making {
    const rein_gguf *gguf;
    rein_gguf_text *texts; /* [n] */
    size_t n;
    const rein_gguf_value *types; /* [n]; NULL: all are normal */
    char *marked;                 /* texts with marks for blanks */
    json_t *root;
    rein_status status;
    rein_error *err;
} making;

#define BLANK "\xE2\x96\x81"
#define KEY(name) "tokenizer.ggml." name

/* ------------------------------------------------------------------------------------------------------------------------ values */

static rein_gguf_text text_of(const rein_gguf *gguf, const char *key) {
    const rein_gguf_value *value = rein_gguf_find(gguf, key);
    if (!value || value->kind != REIN_GGUF_STRING) return (rein_gguf_text){NULL, 0};
    return (rein_gguf_text){(const char *)value->bytes, value->count};
}

static int is(rein_gguf_text text, const char *name) {
    return text.bytes && text.length == strlen(name) && !memcmp(text.bytes, name, text.length);
}

static int flag_of(const rein_gguf *gguf, const char *key, int absent) {
    const rein_gguf_value *value = rein_gguf_find(gguf, key);
    return value ? rein_gguf_number(value, 0) != 0 : absent;
}

/* A token id, or -1. */
static long id_of(const making *m, const char *key) {
    const rein_gguf_value *value = rein_gguf_find(m->gguf, key);
    const double id = value ? rein_gguf_number(value, 0) : -1;
    return id >= 0 && id < (double)m->n ? (long)id : -1;
}

static int type_of(const making *m, size_t id) { return m->types ? (int)rein_gguf_number(m->types, id) : REIN_GGUF_NORMAL; }

static rein_status fail(making *m, const char *key, const char *why) {
    if (!m->status) m->status = rein_gguf_wrong(m->gguf, key, m->err, "%s", why);
    return m->status;
}

static void set(making *m, json_t *object, const char *key, json_t *value) {
    if (m->status) json_decref(value);
    else if (!value || json_object_set_new(object, key, value) != 0) m->status = rein_no_memory(m->err);
}

/* ------------------------------------------------------------------------------------------------------------------------ tokens */

static rein_status check_token(making *m, size_t id, rein_gguf_text text) {
    const int one_nul = text.length == 1 && !*text.bytes;
    if (text.length > REIN_TOKENIZER_TOKEN || rein_utf8_valid(text.bytes, text.length) < text.length ||
        (!one_nul && memchr(text.bytes, 0, text.length)))
        return m->status = rein_gguf_wrong(m->gguf, KEY("tokens"), m->err,
                                           "has token %zu, which is not UTF-8 without NUL bytes, of at most %d bytes", id,
                                           REIN_TOKENIZER_TOKEN);
    return REIN_OK;
}

static rein_status read_tokens(making *m) {
    const rein_gguf_value *tokens = rein_gguf_find(m->gguf, KEY("tokens"));
    m->types = rein_gguf_find(m->gguf, KEY("token_type"));
    if (!tokens || tokens->kind != REIN_GGUF_ARRAY || tokens->element != REIN_GGUF_STRING)
        return fail(m, KEY("tokens"), "is missing, or not an array of strings");
    if (tokens->count > REIN_TOKENIZER_TOKENS) return fail(m, KEY("tokens"), "has more tokens than are supported");
    m->n = tokens->count;
    if (m->types && (m->types->kind != REIN_GGUF_ARRAY || m->types->count != m->n || m->types->element == REIN_GGUF_STRING ||
                     m->types->element == REIN_GGUF_ARRAY))
        return fail(m, KEY("token_type"), "is not an array with a number for each token");
    m->texts = malloc((m->n + 1) * sizeof *m->texts);
    if (!m->texts) return m->status = rein_no_memory(m->err);
    const unsigned char *at = tokens->bytes;
    for (size_t i = 0; i < m->n && !m->status; i++) m->texts[i] = rein_gguf_next_text(&at), check_token(m, i, m->texts[i]);
    return m->status;
}

/* A token that is cut out of the text before it is split. */
static int is_added(int type) { return type == REIN_GGUF_UNKNOWN || type == REIN_GGUF_CONTROL || type == REIN_GGUF_USER_DEFINED; }

static void put_added(making *m, json_t *list, size_t id, const char *content) {
    const int special = type_of(m, id) != REIN_GGUF_USER_DEFINED;
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", content, "single_word", 0,
                              "lstrip", 0, "rstrip", 0, "normalized", 0, "special", special);
    if (!token || json_array_append_new(list, token) != 0) m->status = rein_no_memory(m->err);
}

static void put_token(making *m, json_t *vocab, char *key, size_t id) {
    if (json_object_get(vocab, key))
        m->status = rein_gguf_wrong(m->gguf, KEY("tokens"), m->err, "has \"%.60s\" twice, as %lld and %zu", key,
                                    (long long)json_integer_value(json_object_get(vocab, key)), id);
    else if (json_object_set_new_nocheck(vocab, key, json_integer((json_int_t)id)) != 0) m->status = rein_no_memory(m->err);
}

/* The text of a token as tokenizer.json has it. */
static const char *spelled(char *to, const making *m, size_t id) {
    const rein_gguf_text text = m->texts[id];
    memcpy(to, text.bytes, text.length);
    to[text.length] = 0;
    return text.length == 1 && !*to ? strcpy(to, REIN_NUL_KEY) : to;
}

/* Unused tokens fill up the vocabulary and have no text. With SentencePiece (both) added tokens are in the vocabulary too. */
static void put_vocabulary(making *m, json_t *model, int both) {
    json_t *vocab = json_object(), *added = json_array();
    char *key = malloc(3 * REIN_TOKENIZER_TOKEN + sizeof REIN_NUL_KEY);
    if (!vocab || !added || !key) m->status = rein_no_memory(m->err);
    for (size_t i = 0; i < m->n && !m->status; i++) {
        const int type = type_of(m, i), adds = is_added(type) && m->texts[i].length;
        if (type == REIN_GGUF_UNUSED) continue;
        spelled(key, m, i);
        if (adds) put_added(m, added, i, key);
        if ((!adds || both) && !m->status) put_token(m, vocab, key, i);
    }
    free(key);
    set(m, m->root, "added_tokens", added);
    set(m, model, "vocab", vocab);
}

/* -------------------------------------------------------------------------------------------------------------------- processing */

/* {"id": "<s>"} in both lists of a template. */
static void put_affix(making *m, json_t *single, json_t *known, long id) {
    const rein_gguf_text text = m->texts[id];
    char name[30];
    snprintf(name, sizeof name, "token %ld", id); /* only a name, which both lists have */
    json_t *item = json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", name, "type_id", 0);
    json_t *entry = json_pack("{s:s, s:[I], s:[s%]}", "id", name, "ids", (json_int_t)id, "tokens", text.bytes, text.length);
    if (m->status || !item || !entry) {
        if (!m->status) m->status = rein_no_memory(m->err);
        json_decref(item), json_decref(entry);
        return;
    }
    if (json_array_append_new(single, item) != 0) m->status = rein_no_memory(m->err);
    set(m, known, name, entry);
}

static void put_affixes(making *m, int bos_by_default) {
    const int add_bos = flag_of(m->gguf, KEY("add_bos_token"), bos_by_default), add_eos = flag_of(m->gguf, KEY("add_eos_token"), 0);
    const long bos = id_of(m, KEY("bos_token_id")), eos = id_of(m, KEY("eos_token_id"));
    json_t *single = json_array(), *known = json_object(), *text = json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0);
    if (!single || !known || !text) m->status = rein_no_memory(m->err);
    if (add_bos && bos < 0 && rein_gguf_find(m->gguf, KEY("add_bos_token")))
        fail(m, KEY("add_bos_token"), "is true, but bos_token_id is not a token");
    if (add_eos && eos < 0) fail(m, KEY("add_eos_token"), "is true, but eos_token_id is not a token");
    if (!m->status && add_bos && bos >= 0) put_affix(m, single, known, bos);
    if (m->status || json_array_append_new(single, text) != 0) {
        if (m->status) json_decref(text);
        else m->status = rein_no_memory(m->err);
    }
    if (!m->status && add_eos) put_affix(m, single, known, eos);
    json_t *processor =
        m->status ? NULL : json_pack("{s:s, s:O, s:O}", "type", "TemplateProcessing", "single", single, "special_tokens", known);
    json_decref(single);
    json_decref(known);
    set(m, m->root, "post_processor", processor);
}

/* ------------------------------------------------------------------------------------------------------------- byte-level BPE */

static const rein_gguf_split *split_of(making *m) {
    const rein_gguf_text pre = text_of(m->gguf, KEY("pre"));
    char names[400];
    size_t n = 0;
    for (size_t i = 0; rein_gguf_split_name_at(i); i++) {
        if (is(pre, rein_gguf_split_name_at(i))) return rein_gguf_split_at(i);
        if (n < sizeof names) n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", rein_gguf_split_name_at(i));
    }
    m->status = rein_gguf_wrong(m->gguf, KEY("pre"), m->err, "is %.*s, which is not supported: %s are",
                                (int)(pre.bytes && pre.length < 60 ? pre.length
                                      : pre.bytes                  ? 60
                                                                   : 7),
                                pre.bytes ? pre.bytes : "missing", names);
    return NULL;
}

static void put_split(making *m, const rein_gguf_split *how) {
    json_t *level =
        json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", !how->regex);
    json_t *steps = json_pack("{s:s, s:[]}", "type", "Sequence", "pretokenizers"), *list = json_object_get(steps, "pretokenizers");
    json_t *first = how->digits  ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
                    : how->regex ? json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", how->regex,
                                             "behavior", "Isolated", "invert", 0)
                                 : NULL;
    const int needs_first = how->digits || how->regex;
    if (!level || !steps || (needs_first && !first)) {
        json_decref(level), json_decref(first);
        if (!m->status) m->status = rein_no_memory(m->err);
    } else {
        if (first && json_array_append_new(list, first) != 0) m->status = rein_no_memory(m->err);
        if (json_array_append_new(list, level) != 0) m->status = rein_no_memory(m->err);
    }
    set(m, m->root, "pre_tokenizer", steps);
    set(m, m->root, "normalizer", how->nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
    set(m, m->root, "decoder",
        json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0));
}

static void put_listed_merges(making *m, json_t *model) {
    const rein_gguf_value *merges = rein_gguf_find(m->gguf, KEY("merges"));
    json_t *list = json_array();
    if (!list) m->status = rein_no_memory(m->err);
    if (!merges || merges->kind != REIN_GGUF_ARRAY || merges->element != REIN_GGUF_STRING)
        fail(m, KEY("merges"), "is missing, or not an array of strings");
    const unsigned char *at = m->status ? NULL : merges->bytes;
    for (size_t i = 0; !m->status && i < merges->count; i++) {
        const rein_gguf_text text = rein_gguf_next_text(&at);
        if (rein_utf8_valid(text.bytes, text.length) < text.length) fail(m, KEY("merges"), "has a merge that is not UTF-8");
        else if (json_array_append_new(list, json_stringn_nocheck(text.bytes, text.length)) != 0)
            m->status = rein_no_memory(m->err);
    }
    set(m, model, "merges", list);
}

static void make_byte_level(making *m, json_t *model) {
    const rein_gguf_split *how = split_of(m);
    if (!how) return;
    put_split(m, how);
    put_listed_merges(m, model);
    set(m, model, "ignore_merges", json_boolean(how->ignore_merges));
    put_affixes(m, how->begins);
}

/* -------------------------------------------------------------------------------------------------------------- SentencePiece */

/* Tokens that users define have the score 0, whatever the file says: converters write -1000. */
static void put_scored_merges(making *m, json_t *model) {
    const rein_gguf_value *scores = rein_gguf_find(m->gguf, KEY("scores"));
    rein_gguf_text *texts = malloc((m->n + 1) * sizeof *texts);
    float *points = malloc((m->n + 1) * sizeof *points);
    json_t *merges = NULL;
    if (!texts || !points) m->status = rein_no_memory(m->err);
    if (!scores || scores->kind != REIN_GGUF_ARRAY || scores->element != REIN_GGUF_F32 || scores->count != m->n)
        fail(m, KEY("scores"), "is missing, or not an array with an f32 for each token");
    for (size_t i = 0; i < m->n && !m->status; i++) {
        const int type = type_of(m, i);
        points[i] = type == REIN_GGUF_USER_DEFINED ? 0 : (float)rein_gguf_number(scores, i);
        texts[i] = type == REIN_GGUF_NORMAL || type == REIN_GGUF_USER_DEFINED ? m->texts[i] : (rein_gguf_text){"", 0};
    }
    if (!m->status) m->status = rein_gguf_merges(&merges, texts, points, m->n, m->err);
    free(texts);
    free(points);
    if (!m->status) set(m, model, "merges", merges);
}

/* Text is written with U+2581 for blanks, and one before its beginning if a prefix is added. */
static void put_blanks(making *m, int prefix) {
    json_t *replace = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", BLANK);
    json_t *back = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", BLANK, "content", " ");
    json_t *strip = json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", prefix, "stop", 0);
    if (replace && back && strip && prefix)
        set(m, m->root, "normalizer",
            json_pack("{s:s, s:[{s:s, s:s}, O]}", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", BLANK, replace));
    else if (replace && back && strip) set(m, m->root, "normalizer", json_incref(replace));
    if (replace && back && strip && prefix)
        set(m, m->root, "decoder",
            json_pack("{s:s, s:[O, {s:s}, {s:s}, O]}", "type", "Sequence", "decoders", back, "type", "ByteFallback", "type", "Fuse",
                      strip));
    else if (replace && back && strip)
        set(m, m->root, "decoder",
            json_pack("{s:s, s:[O, {s:s}, {s:s}]}", "type", "Sequence", "decoders", back, "type", "ByteFallback", "type", "Fuse"));
    else if (!m->status) m->status = rein_no_memory(m->err);
    json_decref(replace);
    json_decref(back);
    json_decref(strip);
    set(m, m->root, "pre_tokenizer", json_null());
}

/* Converters write the blanks of user-defined tokens as blanks; everywhere else they are U+2581. The new texts are owned by m. */
static void mark_blanks(making *m) {
    size_t bytes = 0, used = 0;
    for (size_t i = 0; i < m->n; i++)
        if (type_of(m, i) == REIN_GGUF_USER_DEFINED && memchr(m->texts[i].bytes, ' ', m->texts[i].length))
            bytes += 3 * m->texts[i].length;
    m->marked = malloc(bytes + 1);
    if (!m->marked) m->status = rein_no_memory(m->err);
    for (size_t i = 0; i < m->n && !m->status; i++) {
        const rein_gguf_text text = m->texts[i];
        if (type_of(m, i) != REIN_GGUF_USER_DEFINED || !memchr(text.bytes, ' ', text.length)) continue;
        m->texts[i].bytes = m->marked + used;
        for (size_t k = 0; k < text.length; k++) {
            const size_t n = text.bytes[k] == ' ' ? sizeof BLANK - 1 : 1;
            memcpy(m->marked + used, n > 1 ? BLANK : text.bytes + k, n);
            used += n;
        }
        m->texts[i].length = (size_t)(m->marked + used - m->texts[i].bytes);
    }
}

static void make_sentencepiece(making *m, json_t *model) {
    const long unknown = id_of(m, KEY("unknown_token_id"));
    put_blanks(m, flag_of(m->gguf, KEY("add_space_prefix"), 1));
    put_scored_merges(m, model);
    set(m, model, "byte_fallback", json_true());
    set(m, model, "fuse_unk", json_true());
    if (unknown >= 0) set(m, model, "unk_token", json_stringn(m->texts[unknown].bytes, m->texts[unknown].length));
    put_affixes(m, 1);
}

/* -------------------------------------------------------------------------------------------------------------------- the whole */

static void make(making *m) {
    const rein_gguf_text name = text_of(m->gguf, KEY("model"));
    json_t *model = json_pack("{s:s}", "type", "BPE");
    if (!model) m->status = rein_no_memory(m->err);
    if (!is(name, "gpt2") && !is(name, "llama") && !m->status)
        m->status = rein_gguf_wrong(m->gguf, KEY("model"), m->err, "is %.*s, which is not supported: gpt2 and llama are",
                                    (int)(name.length < 60 ? name.length : 60), name.bytes ? name.bytes : "");
    if (!m->status) read_tokens(m);
    if (!m->status && is(name, "llama")) mark_blanks(m);
    if (!m->status) put_vocabulary(m, model, !is(name, "gpt2"));
    if (!m->status && is(name, "gpt2")) make_byte_level(m, model);
    else if (!m->status) make_sentencepiece(m, model);
    set(m, m->root, "model", model);
}

int rein_gguf_has_tokenizer(const rein_gguf *gguf) {
    return rein_gguf_find(gguf, KEY("model")) && !is(text_of(gguf, KEY("model")), "no_vocab");
}

rein_status rein_gguf_tokenizer(json_t **json, const rein_gguf *gguf, rein_error *err) {
    making m = {.gguf = gguf, .err = err};
    *json = NULL;
    if (!rein_gguf_has_tokenizer(gguf)) return REIN_OK;
    m.root = json_pack("{s:s}", "version", "1.0");
    if (m.root) make(&m);
    else m.status = rein_no_memory(err);
    free(m.texts);
    free(m.marked);
    if (m.status) json_decref(m.root);
    else *json = m.root;
    return m.status;
}

static void put_named(making *m, const char *field, const char *key) {
    const long id = id_of(m, key);
    if (id >= 0) set(m, m->root, field, json_stringn(m->texts[id].bytes, m->texts[id].length));
}

rein_status rein_gguf_tokenizer_config(json_t **json, const rein_gguf *gguf, rein_error *err) {
    making m = {.gguf = gguf, .err = err};
    const rein_gguf_text chat = text_of(gguf, "tokenizer.chat_template");
    *json = NULL;
    if (!rein_gguf_has_tokenizer(gguf)) return REIN_OK;
    m.root = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");
    if (!m.root) return rein_no_memory(err);
    if (!read_tokens(&m)) {
        put_named(&m, "bos_token", KEY("bos_token_id"));
        put_named(&m, "eos_token", KEY("eos_token_id"));
        put_named(&m, "unk_token", KEY("unknown_token_id"));
        put_named(&m, "pad_token", KEY("padding_token_id"));
    }
    if (chat.bytes && rein_utf8_valid(chat.bytes, chat.length) < chat.length) fail(&m, "tokenizer.chat_template", "is not UTF-8");
    if (chat.bytes) set(&m, m.root, "chat_template", m.status ? NULL : json_stringn(chat.bytes, chat.length));
    free(m.texts);
    free(m.marked);
    if (m.status) json_decref(m.root);
    else *json = m.root;
    return m.status;
}
