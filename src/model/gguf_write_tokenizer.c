/* gguf_write_tokenizer.c - the metadata of a tokenizer: gguf_tokenizer.c in the other direction.
 *
 * Byte-level BPE becomes "gpt2", if GGUF has a name for how it splits text. BPE over characters, with bytes as a last resort, becomes "llama",
 * which has scores instead of merges: tokens that are merged earlier have higher ones. That needs merges as they follow from scores: every way
 * to cut a token into two is one, and those of one token follow each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "gguf_splits.h"
#include "gguf_write.h"
#include "tokenizer_parts.h"

#define BLANK "\xE2\x96\x81"
#define KEY(name) "tokenizer.ggml." name

typedef struct writing {
    rein_gguf_pairs *to;
    rein_text *notes;
    const rein_tokenizer *t;
    const rein_model_config *c;
    int32_t *types; /* [vocabulary] */
    int scored;     /* "llama" */
    rein_status status;
    rein_error *err;
} writing;

static size_t size_of(const writing *w) { return (size_t)w->c->vocab_size; }

static void refuse(writing *w, const char *what) {
    if (!w->status) w->status = rein_fail(w->err, REIN_EINVAL, "GGUF has no word for this tokenizer: %s", what);
}

/* -------------------------------------------------------------------------------------------------------------------- how it splits */

static int is_plain_byte_level(const rein_pretokenizer *step, int splits) {
    return step->kind == REIN_PRETOKENIZE_BYTE_LEVEL && step->prepend == REIN_PREPEND_NEVER && (step->regex != NULL) == splits;
}

static int is_split_by(const rein_pretokenizer *step, const char *regex) {
    return step->kind == REIN_PRETOKENIZE_SPLIT && step->behavior == REIN_SPLIT_ISOLATED && !step->invert && step->regex &&
           step->regex->length == strlen(regex) && !memcmp(step->regex->pattern, regex, step->regex->length);
}

static int does_split(const rein_tokenizer *t, const rein_gguf_split *split) {
    const rein_pretokenizers *p = &t->pretokenizers;
    const rein_normalizers *n = &t->normalizers;
    const int nfc = n->count == 1 && n->steps[0].kind == REIN_NORMALIZE_NFC;
    if ((split->nfc ? !nfc : n->count > 0) || t->bpe.ignore_merges != (split->ignore_merges != 0)) return 0;
    if (!split->regex && !split->digits) return p->count == 1 && is_plain_byte_level(&p->steps[0], 1);
    if (p->count != 2 || !is_plain_byte_level(&p->steps[1], split->digits)) return 0;
    return split->digits ? p->steps[0].kind == REIN_PRETOKENIZE_DIGITS && p->steps[0].behavior == REIN_SPLIT_ISOLATED
                         : is_split_by(&p->steps[0], split->regex);
}

const char *rein_gguf_split_of(const rein_tokenizer *t) {
    for (size_t i = 0; rein_gguf_split_name_at(i); i++)
        if (does_split(t, rein_gguf_split_at(i))) return rein_gguf_split_name_at(i);
    return NULL;
}

/* A Split by blanks does nothing once the normalizer replaced them. */
static int is_without_effect(const rein_pretokenizer *step, int replaced) {
    return replaced && step->kind == REIN_PRETOKENIZE_SPLIT && step->regex && step->regex->length == 1 &&
           *step->regex->pattern == ' ';
}

/* Whether blanks become U+2581, and one is put before the text: by the normalizers, or by Metaspace. */
static int marks_blanks(int *prefix, const rein_tokenizer *t) {
    const rein_normalizers *n = &t->normalizers;
    const rein_pretokenizers *p = &t->pretokenizers;
    const size_t last = n->count ? n->count - 1 : 0;
    const int replaced = n->count && n->steps[last].kind == REIN_NORMALIZE_REPLACE && !n->steps[last].regex &&
                         n->steps[last].from_length == 1 && *n->steps[last].from == ' ' && !strcmp(n->steps[last].to, BLANK);
    const int prepended = n->count == 2 && n->steps[0].kind == REIN_NORMALIZE_PREPEND && !strcmp(n->steps[0].to, BLANK);
    if (replaced && (n->count == 1 || prepended) && (!p->count || (p->count == 1 && is_without_effect(&p->steps[0], 1))))
        return *prefix = prepended, 1;
    if (n->count || p->count != 1 || p->steps[0].kind != REIN_PRETOKENIZE_METASPACE || p->steps[0].regex) return 0;
    *prefix = p->steps[0].prepend != REIN_PREPEND_NEVER;
    return !strcmp(p->steps[0].mark, BLANK);
}

/* ----------------------------------------------------------------------------------------------------------------------- tokens */

static void find_types(writing *w) {
    const rein_tokenizer *t = w->t;
    size_t stripped = 0;
    for (size_t i = 0; i < size_of(w); i++) {
        size_t length;
        w->types[i] = rein_vocabulary_text(&length, &t->vocabulary, (int32_t)i) ? REIN_GGUF_NORMAL : REIN_GGUF_UNUSED;
    }
    for (size_t i = 0; i < t->added_count; i++) {
        const rein_added *added = &t->added[i];
        w->types[added->id] = added->special ? REIN_GGUF_CONTROL : REIN_GGUF_USER_DEFINED;
        stripped += added->lstrip || added->rstrip || added->single_word;
    }
    for (size_t i = 0; i < 256 && w->scored; i++)
        if (t->bpe.fallback[i] >= 0) w->types[t->bpe.fallback[i]] = REIN_GGUF_BYTE;
    if (t->bpe.unknown >= 0) w->types[t->bpe.unknown] = REIN_GGUF_UNKNOWN;
    if (stripped && w->notes)
        rein_text_format(w->notes, "%zu added tokens take the blanks beside them, or only whole words: GGUF has no word for that\n",
                         stripped);
}

/* llama.cpp wants blanks in the tokens of users. */
static void add_with_blanks(writing *w, rein_text *spare, const char *text, size_t length) {
    spare->length = 0;
    const rein_status status = rein_text_replace(spare, text, length, BLANK, sizeof BLANK - 1, " ", 1, w->err);
    if (status) w->status = status;
    else rein_gguf_add_string(w->to, spare->data ? spare->data : "", spare->length);
}

static void put_tokens(writing *w) {
    rein_text spare = {0};
    rein_gguf_put_array(w->to, KEY("tokens"), REIN_GGUF_STRING, size_of(w));
    for (size_t i = 0; i < size_of(w) && !w->status; i++) {
        size_t length = 0;
        char name[40];
        const char *text = rein_vocabulary_text(&length, &w->t->vocabulary, (int32_t)i);
        if (!text) rein_gguf_add_string(w->to, name, (size_t)snprintf(name, sizeof name, "[PAD%zu]", i));
        else if (w->scored && w->types[i] == REIN_GGUF_USER_DEFINED) add_with_blanks(w, &spare, text, length);
        else rein_gguf_add_string(w->to, text, length);
    }
    rein_text_free(&spare);
    rein_gguf_put_array(w->to, KEY("token_type"), REIN_GGUF_I32, size_of(w));
    rein_gguf_add_bytes(w->to, w->types, size_of(w) * sizeof *w->types);
}

static void put_id(writing *w, const char *key, int64_t id) {
    if (id >= 0 && id < w->c->vocab_size) rein_gguf_put_u32(w->to, key, (uint32_t)id);
}

/* The token that a text begins with: the one that tokenizer_config.json names, or that is put before a text. */
static int64_t begin_of(const writing *w) {
    const rein_tokenizer *t = w->t;
    if (t->settings.named.begin >= 0) return t->settings.named.begin;
    return t->affixes.befores == 1 ? t->affixes.before[0] : w->c->bos;
}

/* The token that ends a text: the one that is put after it or that tokenizer_config.json names, if it ends a completion here. */
static int64_t end_of(const writing *w) {
    const rein_model_config *c = w->c;
    const rein_affixes *affixes = &w->t->affixes;
    const int64_t named = affixes->afters == 1 ? affixes->after[0] : w->t->settings.named.end;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == named) return named;
    return c->n_eos ? c->eos[0] : named;
}

/* GGUF has words for three tokens that end a completion. */
static void put_ends(writing *w) {
    static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    const int64_t end = end_of(w);
    int used = 0;
    put_id(w, KEY("eos_token_id"), end);
    for (int i = 0; i < w->c->n_eos; i++) {
        if (w->c->eos[i] == end) continue;
        if (used < 2) put_id(w, keys[used], w->c->eos[i]);
        else if (w->notes)
            rein_text_format(w->notes, "token %lld ends a completion too: GGUF has words for three such tokens\n",
                             (long long)w->c->eos[i]);
        used++;
    }
}

/* Whether the token is put on this side of a text; another one, or several, cannot be said. */
static int adds(writing *w, const int32_t *ids, size_t n, int64_t id) {
    if (n > 1 || (n == 1 && ids[0] != id))
        refuse(w, "its post-processor adds other tokens than the begin token before a text and the "
                  "end token after it");
    return n == 1;
}

static void put_named(writing *w) {
    const rein_tokenizer *t = w->t;
    const rein_named_tokens *named = &t->settings.named;
    const int64_t begin = begin_of(w), end = end_of(w);
    put_id(w, KEY("bos_token_id"), begin);
    put_ends(w);
    put_id(w, KEY("unknown_token_id"), named->unknown >= 0 ? named->unknown : t->bpe.unknown);
    put_id(w, KEY("padding_token_id"), named->pad);
    rein_gguf_put_bool(w->to, KEY("add_bos_token"), adds(w, t->affixes.before, t->affixes.befores, begin));
    rein_gguf_put_bool(w->to, KEY("add_eos_token"), adds(w, t->affixes.after, t->affixes.afters, end));
    if (t->settings.chat_template)
        rein_gguf_put_string(w->to, "tokenizer.chat_template", t->settings.chat_template, t->settings.chat_template_length);
}

/* ----------------------------------------------------------------------------------------------------------------------- merges */

static int by_rank(const void *a, const void *b) {
    const rein_merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The merges in their order, for the caller to free. */
static rein_merge *sorted_merges(size_t *n, writing *w) {
    const rein_bpe *bpe = &w->t->bpe;
    *n = 0;
    for (size_t i = 0; i <= bpe->mask; i++) *n += bpe->merges[i].id >= 0;
    rein_merge *list = malloc((*n + 1) * sizeof *list);
    if (!list) return w->status = rein_no_memory(w->err), NULL;
    *n = 0;
    for (size_t i = 0; i <= bpe->mask; i++)
        if (bpe->merges[i].id >= 0) list[(*n)++] = bpe->merges[i];
    qsort(list, *n, sizeof *list, by_rank);
    return list;
}

static void put_merges(writing *w) {
    size_t n, length[2] = {0};
    rein_merge *list = sorted_merges(&n, w);
    rein_text joined = {0};
    rein_gguf_put_array(w->to, KEY("merges"), REIN_GGUF_STRING, n);
    for (size_t i = 0; i < n && list; i++) {
        const char *left = rein_vocabulary_text(&length[0], &w->t->vocabulary, (int32_t)(list[i].pair >> 32)),
                   *right = rein_vocabulary_text(&length[1], &w->t->vocabulary, (int32_t)(uint32_t)list[i].pair);
        joined.length = 0;
        rein_text_put_bytes(&joined, left, length[0]);
        rein_text_put_bytes(&joined, " ", 1);
        rein_text_put_bytes(&joined, right, length[1]);
        if (!w->status) w->status = rein_text_status(&joined, w->err);
        if (!w->status) rein_gguf_add_string(w->to, joined.data, joined.length);
    }
    rein_text_free(&joined);
    free(list);
}

/* The score of a token is minus the place of its merges among those of all tokens; that of a user's token is 0, whatever the file says. A token
 * that no merge makes comes after all. */
static int find_scores(float *scores, const writing *w, const rein_merge *list, size_t n) {
    int32_t last = -1;
    size_t place = 0;
    for (size_t i = 0; i < size_of(w); i++) scores[i] = w->types[i] == REIN_GGUF_NORMAL ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t id = list[i].id;
        if (w->types[id] == REIN_GGUF_USER_DEFINED || id == last) continue;
        if (w->types[id] != REIN_GGUF_NORMAL || scores[id] <= 0) return 0; /* its merges do not follow each other */
        scores[id] = -(float)++place;
        last = id;
    }
    for (size_t i = 0; i < size_of(w); i++)
        if (scores[i] > 0) scores[i] = -(float)++place;
    return place < 1 << 24; /* whole numbers that f32 has */
}

/* Every way to cut a token into two is a merge. */
static void check_cuts(writing *w, const float *scores, size_t n) {
    rein_gguf_text *texts = calloc(size_of(w) + 1, sizeof *texts);
    json_t *merges = NULL;
    if (!texts) w->status = rein_no_memory(w->err);
    for (size_t i = 0; i < size_of(w) && !w->status; i++)
        if (w->types[i] == REIN_GGUF_NORMAL || w->types[i] == REIN_GGUF_USER_DEFINED)
            texts[i].bytes = rein_vocabulary_text(&texts[i].length, &w->t->vocabulary, (int32_t)i);
    if (!w->status) w->status = rein_gguf_merges(&merges, texts, scores, size_of(w), w->err);
    if (!w->status && json_array_size(merges) != n) refuse(w, "its merges do not follow from scores of tokens");
    json_decref(merges);
    free(texts);
}

static void put_scores(writing *w) {
    size_t n;
    rein_merge *list = sorted_merges(&n, w);
    float *scores = malloc((size_of(w) + 1) * sizeof *scores);
    if (!scores && !w->status) w->status = rein_no_memory(w->err);
    if (!w->status && !find_scores(scores, w, list, n)) refuse(w, "its merges do not follow from scores of tokens");
    if (!w->status) check_cuts(w, scores, n);
    if (!w->status) {
        rein_gguf_put_array(w->to, KEY("scores"), REIN_GGUF_F32, size_of(w));
        rein_gguf_add_bytes(w->to, scores, size_of(w) * sizeof *scores);
    }
    free(scores);
    free(list);
}

/* -------------------------------------------------------------------------------------------------------------------- the whole */

static void put_byte_level(writing *w) {
    const char *split = rein_gguf_split_of(w->t);
    if (!split) {
        refuse(w, "its pre_tokenizer splits text in a way that has no name there");
        return;
    }
    rein_gguf_put_text(w->to, KEY("model"), "gpt2");
    rein_gguf_put_text(w->to, KEY("pre"), split);
    put_tokens(w);
    put_merges(w);
}

static void put_scored(writing *w) {
    int prefix = 0;
    const rein_bpe *bpe = &w->t->bpe;
    if (!marks_blanks(&prefix, w->t)) refuse(w, "it is neither byte-level BPE nor BPE with U+2581 for blanks");
    if (!bpe->byte_fallback || !bpe->fuse_unknown || bpe->ignore_merges)
        refuse(w, "without byte-level BPE, byte_fallback and fuse_unk are needed, and not ignore_merges");
    if (w->status) return;
    rein_gguf_put_text(w->to, KEY("model"), "llama");
    rein_gguf_put_text(w->to, KEY("pre"), "default");
    rein_gguf_put_bool(w->to, KEY("add_space_prefix"), prefix);
    put_tokens(w);
    put_scores(w);
}

rein_status rein_gguf_put_tokenizer(rein_gguf_pairs *to, rein_text *notes, const rein_tokenizer *tokenizer,
                                    const rein_model_config *config, rein_error *err) {
    writing w = {.to = to, .notes = notes, .t = tokenizer, .c = config, .scored = !tokenizer->bpe.byte_level, .err = err};
    if (rein_tokenizer_size(tokenizer) > (size_t)config->vocab_size)
        return rein_fail(err, REIN_EINVAL, "the tokenizer has %zu tokens, the model %lld: GGUF needs an embedding for each token",
                         rein_tokenizer_size(tokenizer), (long long)config->vocab_size);
    w.types = malloc(((size_t)config->vocab_size + 1) * sizeof *w.types);
    if (!w.types) return rein_no_memory(err);
    find_types(&w);
    if (w.scored) put_scored(&w);
    else put_byte_level(&w);
    if (!w.status) put_named(&w);
    free(w.types);
    return w.status ? w.status : rein_text_status(&to->bytes, err);
}
