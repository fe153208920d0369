/* tokenizer_affix.c - reads the post-processor: the tokens that are added before and after a text. Only the template for a single
 * text is used. Offsets, which ByteLevel trims, are not computed. */
#include <string.h>

#include "model/tokenizer_parts.h"

typedef struct reading {
    rein_affixes *affixes;
    const rein_vocabulary *vocabulary;
} reading;

/* A later template of a Sequence goes around the tokens of the earlier ones. */
static rein_status put(rein_affixes *made, bool after, size_t place_in, int32_t id, const rein_place *place, rein_error *err) {
    int32_t *list = after ? made->after : made->before;
    size_t *count = after ? &made->afters : &made->befores;
    if (*count == REIN_TOKENIZER_AFFIXES)
        return rein_place_fail(place, err, "adds more than %d tokens on a side", REIN_TOKENIZER_AFFIXES);
    memmove(list + place_in + 1, list + place_in, (*count - place_in) * sizeof *list);
    list[place_in] = id;
    ++*count;
    return REIN_OK;
}

static rein_status put_special(reading *r, bool after, size_t *befores, const json_t *special, const json_t *known,
                               const rein_place *place, rein_error *err) {
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *ids = json_object_get(json_object_get(known, name ? name : ""), "ids");
    rein_status status = REIN_OK;
    if (!name || !json_array_size(ids))
        return rein_place_fail(place, err, "\"%.60s\" has no \"ids\" in special_tokens", name ? name : "");
    for (size_t i = 0; !status && i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        size_t length;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX ||
            !rein_vocabulary_text(&length, r->vocabulary, (int32_t)json_integer_value(id)))
            return rein_place_fail(place, err, "the id of \"%.60s\" is not one of the vocabulary", name);
        status = put(r->affixes, after, after ? r->affixes->afters : (*befores)++, (int32_t)json_integer_value(id), place, err);
    }
    return status;
}

static rein_status read_template(reading *r, const json_t *object, const rein_place *place, rein_error *err) {
    const json_t *single = json_object_get(object, "single"), *known = json_object_get(object, "special_tokens");
    const rein_place at = rein_place_at(place, "single");
    rein_status status = REIN_OK;
    size_t befores = 0, texts = 0;
    if (!json_is_array(single)) return rein_place_fail(&at, err, "is not an array");
    for (size_t i = 0; !status && i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *special = json_object_get(piece, "SpecialToken");
        const char *which = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        const rein_place item = rein_place_at(&at, "[%zu]", i);
        if (special) status = put_special(r, texts > 0, &befores, special, known, &item, err);
        else if (which && strcmp(which, "A") == 0) texts++;
        else return rein_place_fail(&item, err, "is neither a SpecialToken nor Sequence A");
    }
    if (status || texts == 1) return status;
    return rein_place_fail(&at, err, "has Sequence A %zu times: once would be right", texts);
}

static rein_status read_step(void *context, const char *type, const json_t *object, const rein_place *place, rein_error *err) {
    if (strcmp(type, "ByteLevel") == 0) return REIN_OK;
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(context, object, place, err);
    return rein_place_fail(place, err, "post-processor %.60s is not supported: ByteLevel, TemplateProcessing and Sequence are",
                           type);
}

rein_status rein_affixes_read(rein_affixes *affixes, const json_t *object, const rein_vocabulary *vocabulary,
                              const rein_place *place, rein_error *err) {
    reading r = {affixes, vocabulary};
    const rein_place at = rein_place_at(place, "post_processor");
    return rein_json_sequence(object, "processors", read_step, &r, &at, err);
}
