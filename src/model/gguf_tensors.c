/* gguf_tensors.c - the tensors of a GGUF model under the names and in the shapes of Hugging Face. Matrices stay mapped. Small vectors that
 * GGUF stores in another form are copied: norms of Gemma, which have 1 added, and biases of q and k in the order of interleaved pairs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "safetensors_index.h"
#include "weight_type.h"

typedef struct building {
    const rein_gguf *gguf;
    const rein_gguf_family *family;
    size_t heads, kv_heads;
    rein_tensors *to;
    size_t capacity, used; /* bytes of copies */
    rein_error *err;
} building;

int rein_gguf_is_buffer(const char *name) { return !strncmp(name, "rope_", 5) || strstr(name, ".attn_rot_embd."); }

/* The number of experts stacked in a tensor; 0: it is not such a stack. */
static size_t experts_in(const rein_gguf_tensor *t) { return strstr(t->name, "_exps.") && t->n_dims == 3 ? t->sizes[2] : 0; }

/* The heads whose rows are in the order of interleaved pairs; 0: rows are as Hugging Face has them. */
static size_t paired_heads(const building *b, const char *name) {
    int layer;
    const char *middle, *end;
    size_t length;
    if (!b->family->pairs || !rein_gguf_split_name(&layer, &middle, &length, &end, name) || layer < 0 || length != 6) return 0;
    return !memcmp(middle, "attn_q", 6) ? b->heads : !memcmp(middle, "attn_k", 6) ? b->kv_heads : 0;
}

/* ---------------------------------------------------------------------------------------------------------------------- entries */

static rein_status wrong(const building *b, const char *name, const char *why) {
    return rein_gguf_wrong(b->gguf, name, b->err, "%s", why);
}

static rein_status refuse_type(const building *b, const rein_gguf_tensor *t) {
    char names[200];
    size_t n = 0;
    const rein_weight_type *type;
    for (size_t i = 0; (type = rein_weight_type_at(i)) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", rein_tensor_type_name(type->dtype));
    return rein_gguf_wrong(b->gguf, t->name, b->err, "has type %s, which is not supported: %s are", rein_gguf_type_at(t->type).name,
                           names);
}

/* A vector of which the set holds a copy in another form. */
static rein_status copy_vector(building *b, rein_tensor *to, size_t heads) {
    const size_t n = to->shape[0], size = to->bytes / (n ? n : 1);
    unsigned char *copy = b->to->copies + b->used;
    if (!heads && to->dtype != REIN_TENSOR_F32) return wrong(b, to->name, "is a norm with 1 added: it must have type F32");
    for (size_t i = 0; i < n; i++)
        memcpy(copy + i * size, (const unsigned char *)to->data + (heads ? rein_tensor_row(to, i) : i) * size, size);
    for (size_t i = 0; i < n && !heads; i++) ((float *)(void *)copy)[i] -= 1;
    to->data = copy, to->pairs = 0;
    b->used += (to->bytes + 15) / 16 * 16;
    return REIN_OK;
}

static int is_copied(const building *b, const rein_gguf_tensor *t) {
    return t->n_dims == 1 && ((b->family->added_one && strstr(t->name, "norm.")) || paired_heads(b, t->name));
}

/* Tensor t, or expert e of it. */
static rein_status add_entry(building *b, const rein_gguf_tensor *t, size_t experts, size_t e) {
    rein_tensor *to = &b->to->entries[b->to->n].tensor;
    const rein_gguf_type type = rein_gguf_type_at(t->type);
    char *name = b->to->names + b->to->n * REIN_GGUF_NAME_HERE;
    const int dims = experts ? 2 : t->n_dims;
    if (!type.known) return refuse_type(b, t);
    if (dims < 2 && type.elements > 1) return wrong(b, t->name, "is a vector of a quantised type: F32, F16 or BF16 is needed");
    rein_gguf_name_here(name, b->family, t->name, experts ? (long)e : -1);
    *to = (rein_tensor){.name = name, .dtype = type.dtype, .n_dims = dims, .file = b->to->shards[t->file].path};
    for (int d = 0; d < dims; d++) to->shape[d] = t->sizes[dims - 1 - d];
    to->bytes = experts ? t->bytes / experts : t->bytes;
    to->data = t->data + e * to->bytes;
    to->pairs = paired_heads(b, t->name);
    if (to->pairs && (!to->n_dims || to->shape[0] % (2 * to->pairs)))
        return wrong(b, t->name, "has rows that are not pairs of each head");
    b->to->n++;
    return is_copied(b, t) ? copy_vector(b, to, to->pairs) : REIN_OK;
}

static rein_status add_all(building *b) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < b->gguf->n_tensors && !status; i++) {
        const rein_gguf_tensor *t = &b->gguf->tensors[i];
        const size_t experts = experts_in(t);
        if (rein_gguf_is_buffer(t->name)) continue;
        for (size_t e = 0; e < (experts ? experts : 1) && !status; e++) status = add_entry(b, t, experts, e);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------- set */

static double number_of(const building *b, const char *name, double absent) {
    char key[120];
    snprintf(key, sizeof key, "%s.%s", b->family->architecture, name);
    const rein_gguf_value *value = rein_gguf_find(b->gguf, key);
    return value ? rein_gguf_number(value, 0) : absent;
}

static rein_status read_heads(building *b) {
    const double heads = number_of(b, "attention.head_count", 0), kv_heads = number_of(b, "attention.head_count_kv", heads);
    if (!(heads >= 1 && heads <= 65536 && kv_heads >= 1 && kv_heads <= 65536))
        return wrong(b, "attention.head_count", "is missing, or not a number of heads");
    b->heads = (size_t)heads, b->kv_heads = (size_t)kv_heads;
    return REIN_OK;
}

/* Counts what will be stored. Experts are bounded, so that a stack of empty matrices does not ask for much memory. */
static rein_status count(const building *b, size_t *entries, size_t *copies) {
    *entries = *copies = 0;
    for (size_t i = 0; i < b->gguf->n_tensors; i++) {
        const rein_gguf_tensor *t = &b->gguf->tensors[i];
        const size_t experts = experts_in(t);
        if (experts > 65536) return wrong(b, t->name, "has more than 65536 experts");
        *entries += experts ? experts : 1;
        if (*entries > 4 * REIN_GGUF_TENSORS) return wrong(b, t->name, "is one expert more than are supported");
        if (is_copied(b, t)) *copies += (t->bytes + 15) / 16 * 16;
    }
    return REIN_OK;
}

/* The mapped files go into the set. */
static rein_status take_files(building *b, rein_gguf *gguf) {
    for (size_t i = 0; i < gguf->n_files; i++) {
        b->to->shards[i].file = gguf->files[i].file;
        gguf->files[i].file = (rein_file){0};
    }
    b->to->name = strdup(b->to->shards[0].path);
    return b->to->name ? REIN_OK : rein_no_memory(b->err);
}

static rein_status allocate(building *b, const rein_gguf *gguf, size_t entries, size_t copies) {
    b->to = calloc(1, sizeof *b->to);
    if (!b->to) return rein_no_memory(b->err);
    b->to->shards = calloc(gguf->n_files, sizeof *b->to->shards);
    b->to->entries = calloc(entries + 1, sizeof *b->to->entries);
    b->to->names = malloc((entries + 1) * REIN_GGUF_NAME_HERE);
    b->to->copies = malloc(copies + 16);
    if (!b->to->shards || !b->to->entries || !b->to->names || !b->to->copies) return rein_no_memory(b->err);
    b->to->n_shards = gguf->n_files;
    return REIN_OK;
}

rein_status rein_gguf_take_tensors(rein_tensors **to, rein_gguf **gguf, rein_error *err) {
    building b = {.gguf = *gguf, .err = err};
    size_t entries = 0, copies = 0;
    rein_status status = rein_gguf_family_of(&b.family, *gguf, err);
    if (!status) status = read_heads(&b);
    if (!status) status = count(&b, &entries, &copies);
    if (!status) status = allocate(&b, *gguf, entries, copies);
    for (size_t i = 0; !status && i < (*gguf)->n_files; i++) {
        b.to->shards[i].path = strdup((*gguf)->files[i].path);
        if (!b.to->shards[i].path) status = rein_no_memory(err);
    }
    if (!status) status = add_all(&b);
    if (!status) status = rein_tensors_sort(b.to, err);
    if (!status) status = take_files(&b, *gguf);
    if (status) rein_tensors_close(b.to), b.to = NULL;
    *to = b.to;
    rein_gguf_close(*gguf);
    *gguf = NULL;
    return status;
}
