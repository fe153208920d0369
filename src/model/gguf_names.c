/* gguf_names.c - the names of tensors in GGUF and at Hugging Face: one table for both directions. */
#include <stdio.h>
#include <string.h>

#include "gguf.h"

static const struct row {
    const char *from, *to; /* GGUF, Hugging Face */
    const char *only;      /* an architecture; NULL: those that have no row of their own */
} whole_rows[] = {{"token_embd", "model.embed_tokens", NULL}, {"output_norm", "model.norm", NULL}, {"output", "lm_head", NULL}},
  layer_rows[] = {
      {"attn_norm", "input_layernorm", NULL},
      {"attn_q", "self_attn.q_proj", NULL},
      {"attn_k", "self_attn.k_proj", NULL},
      {"attn_v", "self_attn.v_proj", NULL},
      {"attn_qkv", "self_attn.qkv_proj", NULL},
      {"attn_output", "self_attn.o_proj", NULL},
      {"attn_q_norm", "self_attn.q_norm", NULL},
      {"attn_k_norm", "self_attn.k_norm", NULL},
      {"ffn_norm", "pre_feedforward_layernorm", "gemma2"},
      {"ffn_norm", "pre_feedforward_layernorm", "gemma3"},
      {"post_attention_norm", "post_attention_layernorm", "olmo2"},
      {"ffn_norm", "post_attention_layernorm", NULL},
      {"post_attention_norm", "post_attention_layernorm", NULL},
      {"post_ffw_norm", "post_feedforward_layernorm", NULL},
      {"ffn_up", "mlp.gate_up_proj", "phi3"},
      {"ffn_gate", "mlp.gate_proj", NULL},
      {"ffn_up", "mlp.up_proj", NULL},
      {"ffn_down", "mlp.down_proj", NULL},
      {"ffn_gate_inp", "mlp.gate", NULL},
      {"ffn_gate_exps", "gate_proj", NULL},
      {"ffn_up_exps", "up_proj", NULL},
      {"ffn_down_exps", "down_proj", NULL},
};
enum { WHOLE_ROWS = sizeof whole_rows / sizeof *whole_rows, LAYER_ROWS = sizeof layer_rows / sizeof *layer_rows };

static const struct row *find_row(const struct row *rows, size_t n, const char *name, size_t length, const char *architecture) {
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].from) == length && !memcmp(rows[i].from, name, length) &&
            (!rows[i].only || !strcmp(rows[i].only, architecture)))
            return &rows[i];
    return NULL;
}

int rein_gguf_split_name(int *layer, const char **middle, size_t *length, const char **end, const char *name) {
    int used = 0;
    *layer = -1;
    if (sscanf(name, "blk.%5d.%n", layer, &used) != 1 || !used || *layer < 0) *layer = -1, used = 0;
    *middle = name + used;
    *end = strrchr(*middle, '.');
    if (!*end) return 0;
    *length = (size_t)(*end - *middle);
    return 1;
}

void rein_gguf_name_here(char to[REIN_GGUF_NAME_HERE], const rein_gguf_family *family, const char *name, long expert) {
    int layer;
    const char *middle, *end;
    size_t length;
    const struct row *row = NULL;
    snprintf(to, REIN_GGUF_NAME_HERE, "%s", name);
    if (!rein_gguf_split_name(&layer, &middle, &length, &end, name)) return;
    if (layer < 0) row = find_row(whole_rows, WHOLE_ROWS, middle, length, family->architecture);
    else row = find_row(layer_rows, LAYER_ROWS, middle, length, family->architecture);
    if (!row) return;
    if (layer < 0) snprintf(to, REIN_GGUF_NAME_HERE, "%s%s", row->to, end);
    else if (expert < 0) snprintf(to, REIN_GGUF_NAME_HERE, "model.layers.%d.%s%s", layer, row->to, end);
    else snprintf(to, REIN_GGUF_NAME_HERE, "model.layers.%d.mlp.experts.%ld.%s%s", layer, expert, row->to, end);
}

/* The row whose name at Hugging Face is `name`, up to its ".weight" or ".bias". A row of the architecture's own comes first in the table. */
static const struct row *find_back(const struct row *rows, size_t n, const char *name, size_t length, const char *architecture) {
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].to) == length && !memcmp(rows[i].to, name, length) &&
            (rows[i].only ? !strcmp(rows[i].only, architecture)
                          : find_row(rows, n, rows[i].from, strlen(rows[i].from), architecture) == &rows[i]))
            return &rows[i];
    return NULL;
}

int rein_gguf_name_there(char to[REIN_GGUF_NAME + 1], const rein_gguf_family *family, const char *name) {
    int layer = -1, used = 0, expert;
    const struct row *row;
    if (sscanf(name, "model.layers.%5d.%n", &layer, &used) != 1 || !used) layer = -1, used = 0;
    const char *middle = name + used, *end = strrchr(name, '.');
    used = 0;
    if (sscanf(middle, "mlp.experts.%5d.%n", &expert, &used) == 1 && used) middle += used;
    if (!end || end < middle) return 0;
    if (layer < 0) row = find_back(whole_rows, WHOLE_ROWS, middle, (size_t)(end - middle), family->architecture);
    else row = find_back(layer_rows, LAYER_ROWS, middle, (size_t)(end - middle), family->architecture);
    if (!row) return 0;
    const int n = layer < 0 ? snprintf(to, REIN_GGUF_NAME + 1, "%s%s", row->from, end)
                            : snprintf(to, REIN_GGUF_NAME + 1, "blk.%d.%s%s", layer, row->from, end);
    return n > 0 && n <= REIN_GGUF_NAME;
}
