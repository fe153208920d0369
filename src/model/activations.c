/* activations.c - the memory of a forward pass: everything is taken before anything is computed. */
#include "activations.h"

#include <stdlib.h>
#include <string.h>

#include "activation_cache.h"
#include "base/base.h"
#include "nn/truncate.h"

rein_status rein_activations_open(rein_activations **activations, const rein_exec *exec, rein_error *err) {
    rein_exec resolved;
    *activations = NULL;
    const rein_status status = rein_exec_resolve(&resolved, exec, REIN_SERIAL, err);
    if (status) return status;
    *activations = calloc(1, sizeof **activations);
    if (!*activations) return rein_fail(err, REIN_ENOMEM, "no memory for activations");
    (*activations)->exec = resolved;
    return REIN_OK;
}

void rein_activations_close(rein_activations *a) {
    if (!a) return;
    rein_arena_free(&a->arena);
    free(a);
}

size_t rein_activations_cached_tokens(const rein_activations *a) { return a->cached ? a->batch.rows : 0; }

size_t rein_activations_bytes(const rein_activations *a) { return rein_arena_bytes(&a->arena); }

/* ---------------------------------------------------------------------------------------------------------------------- memory */

static size_t blocks_of(size_t positions) { return (positions + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

/* Blocks of keys for every segment; each layer overwrites them, so that both parts of a block are the same memory. A query sees the blocks of its
 * ancestors and its own. */
static void take_keys(rein_activations *a) {
    rein_arena *arena = &a->arena;
    const size_t floats = rein_key_block_floats(&a->batch.model->heads);
    size_t blocks = 0, listed = 0;
    for (size_t s = 0; s < a->n_segments; s++) {
        const rein_segment *segment = &a->segments[s];
        blocks += blocks_of(segment->count);
        for (int64_t up = (int64_t)s; up != REIN_NO_PARENT; up = a->segments[up].parent) listed += blocks_of(a->segments[up].count);
    }
    float *data = rein_arena_floats(arena, blocks * floats);
    rein_keys *keys = rein_arena_take(arena, listed * sizeof *keys);
    rein_query *queries = rein_arena_take(arena, a->n_segments * sizeof *queries);
    rein_slot *slots = rein_arena_take(arena, a->batch.rows * sizeof *slots);
    if (arena->failed) return;
    for (size_t s = 0; s < a->n_segments; s++) {
        const rein_segment *segment = &a->segments[s];
        const rein_query *parent = segment->parent == REIN_NO_PARENT ? NULL : &queries[segment->parent];
        queries[s] = (rein_query){segment->first, segment->count, segment->before, keys, parent ? parent->n_keys : 0};
        if (parent) memcpy(keys, parent->keys, parent->n_keys * sizeof *keys);
        for (size_t at = 0; at < segment->count; at += REIN_KEY_BLOCK, data += floats) {
            const size_t count = segment->count - at < REIN_KEY_BLOCK ? segment->count - at : REIN_KEY_BLOCK;
            keys[queries[s].n_keys++] = (rein_keys){{data, data}, count};
            for (size_t i = 0; i < count; i++) slots[segment->first + at + i] = (rein_slot){{data, data}, i};
        }
        keys += queries[s].n_keys;
    }
    a->batch.queries = queries;
    a->batch.n_queries = a->n_segments;
    a->batch.slots = slots;
}

static void take_positions(rein_activations *a) {
    rein_batch_rows *b = &a->batch;
    int32_t *positions = rein_arena_take(&a->arena, b->rows * sizeof *positions);
    if (a->arena.failed) return;
    b->keys = 0;
    for (size_t s = 0; s < a->n_segments; s++) {
        const rein_segment *segment = &a->segments[s];
        for (size_t i = 0; i < segment->count; i++) positions[segment->first + i] = (int32_t)(segment->before + i);
        if (segment->before + segment->count > b->keys) b->keys = segment->before + segment->count;
    }
    b->positions = positions;
    for (int r = 0; r < REIN_ROPES; r++) {
        rein_angles *angles = &b->angles[r];
        *angles = rein_angles_of(b->model, r);
        angles->cosine = rein_arena_floats(&a->arena, b->keys * angles->half);
        angles->sine = rein_arena_floats(&a->arena, b->keys * angles->half);
        if (!a->arena.failed) rein_angles_fill(angles, b->model->ropes[r].values, 0, b->keys);
    }
}

/* Of each segment the rows from the first to the last that predict a wanted token. a->row becomes an index among these. */
static void take_selected(rein_activations *a) {
    rein_arena *arena = &a->arena;
    const size_t rows = a->batch.rows;
    rein_query *parts = rein_arena_take(arena, a->n_segments * sizeof *parts);
    size_t *place =
        rein_arena_take(arena, rows * sizeof *place); /* 1: predicts a wanted token; then its index among the selected rows */
    size_t n = 0, selected = 0;
    if (arena->failed) return;
    memset(place, 0, rows * sizeof *place);
    for (size_t i = 0; i < a->n_wanted; i++) place[a->row[i]] = 1;
    for (size_t s = 0; s < a->n_segments; s++) {
        const rein_query *all = &a->batch.queries[s];
        size_t first = all->first, end = all->first + all->count;
        while (first < end && !place[first]) first++;
        while (first < end && !place[end - 1]) end--;
        if (first < end) parts[n++] = (rein_query){first, end - first, all->before + first - all->first, all->keys, all->n_keys};
        for (size_t r = first; r < end; r++) place[r] = selected++;
    }
    for (size_t i = 0; i < a->n_wanted; i++) a->row[i] = place[a->row[i]];
    rein_selected_rows_take(&a->selected, &a->batch, parts, n, arena);
}

static void take_layers(rein_activations *a) {
    const size_t layers = (size_t)a->batch.model->config.n_layers, hidden = (size_t)a->batch.model->config.hidden_size;
    const size_t full = a->options.keep && !a->options.recompute ? layers : 1;
    a->kept = rein_arena_take(&a->arena, layers * sizeof *a->kept);
    a->x = rein_arena_floats(&a->arena, (a->options.keep ? layers + 1 : 1) * a->batch.rows * hidden);
    if (a->arena.failed) return;
    for (size_t l = 0; l < layers; l++) {
        if (l < full) rein_kept_take(&a->kept[l], &a->batch, a->options.keep, &a->arena);
        else a->kept[l] = a->kept[0];
        a->kept[l].x = a->x + (a->options.keep ? l * a->batch.rows * hidden : 0);
    }
}

/* What the head needs to compare itself with another one. */
static void take_comparison(rein_activations *a, const rein_beside *beside, int directions) {
    rein_arena *arena = &a->arena;
    const size_t n = a->n_wanted;
    const int twice = beside->divergence == REIN_DIVERGENCE_JSD;
    a->reference = (rein_head_reference){&beside->activations->head, beside->activations->hidden, beside->activations->inner,
                                         beside->divergence, (float)beside->jsd_beta};
    a->out.reference = &a->reference;
    a->out.kl = rein_arena_floats(arena, n);
    a->out.reference_log_probs = rein_arena_floats(arena, n);
    a->kl_gradient = a->options.keep && beside->kl_gradient;
    if (a->kl_gradient && directions) a->out.w = rein_arena_floats(arena, n * (size_t)a->batch.model->config.hidden_size);
    if (twice || (a->kl_gradient && !directions)) a->out.reference_log_sums = rein_arena_floats(arena, n);
    if (twice && !a->out.log_sums) a->out.log_sums = rein_arena_floats(arena, n);
    if (twice) a->out.toward_mixture = rein_arena_floats(arena, n);
}

static void take_head(rein_activations *a, const rein_policy *policy, int with_entropies, const rein_beside *beside) {
    rein_arena *arena = &a->arena;
    const rein_model *model = policy->model;
    const size_t hidden = (size_t)model->config.hidden_size, n = a->n_wanted;
    const rein_lora *lora = rein_adapter_lora(policy->adapter, 0, REIN_HEAD_MODULE);
    a->head = (rein_head){&model->head, lora, rein_inverse_temperature(model, policy->temperature), (float)model->config.logit_cap};
    a->head_trains = policy->adapter ? lora != NULL : model->values != NULL;
    a->last = rein_arena_floats(arena, n * hidden);
    a->last_scale = rein_arena_floats(arena, n);
    a->hidden = rein_arena_floats(arena, n * hidden);
    a->inner = lora ? rein_arena_floats(arena, n * lora->rank) : NULL;
    a->out = (rein_head_out){.log_probs = rein_arena_floats(arena, n)};
    const int directions = a->options.keep && !a->head_trains, entropy_gradient = a->options.keep && a->options.entropy_gradient;
    if (with_entropies || entropy_gradient) a->out.entropies = rein_arena_floats(arena, n);
    if (a->options.keep && a->head_trains) {
        a->out.log_sums = rein_arena_floats(arena, n);
        a->out.x_row =
            ((size_t)model->config.vocab_size + 15) / 16 * 16 + 16; /* rows a power of two apart would share cache lines */
        if ((double)n * (double)a->out.x_row * sizeof(float) <= REIN_MAX_KEPT_LOGITS)
            a->out.x = rein_arena_floats(arena, n * a->out.x_row);
    }
    if (directions) a->out.u = rein_arena_floats(arena, n * hidden);
    if (directions && entropy_gradient) a->out.v = rein_arena_floats(arena, n * hidden);
    a->kl_gradient = 0;
    if (beside) take_comparison(a, beside, directions);
    a->head_scratch = rein_arena_floats(arena, a->options.truncation ? rein_head_truncated_scratch(&a->head, &a->batch.run)
                                                                     : rein_head_scratch(&a->out, &a->batch.run));
}

/* What a score head needs in place of the other. */
static void take_score_head(rein_activations *a) {
    rein_arena *arena = &a->arena;
    const size_t hidden = (size_t)a->batch.model->config.hidden_size, n = a->n_wanted;
    a->head = (rein_head){0}, a->out = (rein_head_out){0};
    a->head_trains = a->kl_gradient = 0;
    a->last = rein_arena_floats(arena, n * hidden);
    a->last_scale = rein_arena_floats(arena, n);
    a->hidden = rein_arena_floats(arena, n * hidden);
    a->scores = rein_arena_floats(arena, n);
}

/* ---------------------------------------------------------------------------------------------------------------------- a pass */

void rein_activations_begin(rein_activations *a, const rein_forward_options *options) {
    a->has_forward = a->at_token = 0;
    a->score = NULL;
    a->options = options ? *options : (rein_forward_options){0};
}

/* Whether the cache has the rows of a segment. A row depends on all tokens before it, so the tokens of the ancestors are
 * compared too. */
static int find_segment(float **rows, const rein_activations *a, size_t s) {
    const rein_activation_cache *cache = a->options.activation_cache;
    for (int64_t up = (int64_t)s; up != REIN_NO_PARENT; up = a->segments[up].parent) {
        const rein_segment *segment = &a->segments[up];
        float **to = up == (int64_t)s ? rows + segment->first : NULL;
        if (!rein_activation_cache_find(to, cache, a->keys[s], segment->before, a->ids + segment->first, segment->count)) return 0;
    }
    return 1;
}

/* Takes the rows from the cache if it has all of them; else all are computed. */
static void find_cached(rein_activations *a) {
    const rein_forward_options *o = &a->options;
    a->cached = NULL;
    if (!o->keep || !a->batch.rows || !rein_activation_cache_serves(o->activation_cache, &a->policy, o->recompute)) return;
    float **rows = rein_arena_take(&a->arena, a->batch.rows * sizeof *rows);
    for (size_t s = 0; rows && s < a->n_segments; s++)
        if (!find_segment(rows, a, s)) return;
    a->cached = rows;
}

rein_status rein_activations_prepare(rein_activations *a, const rein_policy *policy, const rein_tokens *tokens, int with_entropies,
                                     const rein_beside *beside, rein_error *err) {
    rein_arena *arena = &a->arena;
    rein_status status = rein_policy_check(policy, err);
    if (status) return status;
    rein_arena_reset(arena);
    a->policy = *policy;
    a->batch =
        (rein_batch_rows){.model = policy->model, .adapter = policy->adapter, .run = {rein_kernels_of(a->exec.isa), a->exec, NULL}};
    if ((status = rein_token_rows(a, tokens, err))) return status;
    find_cached(a);
    take_positions(a);
    take_keys(a);
    if (!arena->failed) rein_batch_take(&a->batch, arena);
    if (!arena->failed && !a->options.keep) take_selected(a);
    if (!arena->failed) take_layers(a);
    if (!arena->failed && a->score) take_score_head(a);
    else if (!arena->failed) take_head(a, policy, with_entropies, beside);
    if (!arena->failed && a->options.truncation && (beside || a->head_trains || a->head.lora))
        return rein_fail(err, REIN_EINVAL, "a truncated policy needs a head that does not train, and has no exact KL");
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for the activations of %zu tokens", a->n_tokens);
    return REIN_OK;
}
