/* config_layers.c - which layers have a sliding window. */
#include <stdio.h>
#include <string.h>

#include "config.h"

/* The size of the window; 0: there is none. One as long as the context has no effect. */
static int64_t window_of(const rein_model_config *c, rein_fields *in) {
    const rein_family *family = c->family;
    const int by_flag = family->windows == REIN_WINDOW_BY_FLAG || family->windows == REIN_WINDOW_ALL_BY_FLAG ||
                        family->windows == REIN_WINDOW_NO_ROPE;
    const json_t *given = json_object_get(in->object, "sliding_window");
    if (family->windows == REIN_WINDOW_NONE) return 0;
    const int64_t size = given ? rein_fields_integer_or(in, "sliding_window", 1, INT64_MAX, 0) : family->window;
    if (by_flag && !rein_fields_bool_or(in, "use_sliding_window", 0)) return 0;
    return size < c->max_positions ? size : 0;
}

static void read_types(rein_model_config *to, rein_fields *in, const json_t *types) {
    size_t i;
    json_t *type;
    if (json_array_size(types) < (size_t)to->n_layers)
        rein_fields_wrong(in, "layer_types", types, "%lld entries are needed, one for each layer", (long long)to->n_layers);
    json_array_foreach((json_t *)(uintptr_t)types, i, type) {
        char key[40];
        const char *name = json_string_value(type);
        snprintf(key, sizeof key, "layer_types[%zu]", i);
        if (i >= (size_t)to->n_layers || (name && !strcmp(name, "full_attention"))) continue;
        if (!name || strcmp(name, "sliding_attention") != 0)
            rein_fields_wrong(in, key, type, "not supported; \"full_attention\" and \"sliding_attention\" are");
        else if (to->family->windows == REIN_WINDOW_NONE)
            rein_fields_wrong(in, key, type, "not supported; in %s it is \"full_attention\"", to->family->architecture);
        else if (to->window) to->layers[i] |= REIN_LAYER_WINDOW;
    }
}

/* Without layer_types. */
static int has_window(const rein_model_config *c, int64_t layer, int64_t first, int64_t pattern) {
    switch (c->family->windows) {
    case REIN_WINDOW_NONE: break;
    case REIN_WINDOW_ALL:
    case REIN_WINDOW_ALL_BY_FLAG: return 1;
    case REIN_WINDOW_BY_FLAG: return layer >= first;
    case REIN_WINDOW_BY_TYPE: return (layer + 1) % pattern != 0;
    case REIN_WINDOW_NO_ROPE: return (c->layers[layer] & REIN_LAYER_NO_ROPE) != 0;
    }
    return 0;
}

void rein_config_read_windows(rein_model_config *to, rein_fields *in) {
    const int all =
        to->family->windows == REIN_WINDOW_ALL || to->family->windows == REIN_WINDOW_ALL_BY_FLAG; /* layer_types is ignored */
    const json_t *types = all ? NULL : rein_fields_array(in, "layer_types");
    const int64_t first = rein_fields_integer_or(in, "max_window_layers", 0, INT64_MAX, 28);
    const char *key = rein_fields_has(in, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    const int64_t usual = to->family->window_pattern ? to->family->window_pattern : 1;
    const int64_t pattern = to->family->window_pattern ? rein_fields_integer_or(in, key, 1, REIN_MAX_LAYERS, usual) : 1;
    to->window = window_of(to, in);
    if (in->status) return;
    if (types) read_types(to, in, types);
    for (int64_t l = 0; l < to->n_layers && to->window && !types; l++)
        if (has_window(to, l, first, pattern)) to->layers[l] |= REIN_LAYER_WINDOW;
}
