/* trace.c - a batch of tokens through the whole model: checked, laid out as rows, forward, and backward if it was kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "decoder.h"
#include "nn/norm.h"
#include "recall.h"

enum { DEEPEST = 256 };         /* segments on the way from a root; the backward pass goes down it by recursion */
enum { LOGITS_KEPT = 1 << 30 }; /* bytes: up to here the logits of a head that trains are kept, beyond they are computed again */

struct rein_trace {
    rein_exec exec;
    rein_arena arena;
    rein_policy policy;
    rein_forward_options options;
    int held; /* a forward pass that can be gone back */

    rein_batch_rows batch;
    size_t n_segments, n_trees;
    rein_segment *segments; /* [n_segments] */
    size_t *trees;          /* [n_trees + 1] */
    const int32_t *ids;     /* [rows], a copy */

    /* The tokens whose log-probability is wanted: [n] each. */
    size_t n, tokens;
    size_t *token, *row; /* of the token, and of the row that predicts it: of the batch, or of those that leave the last layer */
    int32_t *targets;

    int64_t *recalled;          /* [rows] of options.recall, or NULL: they are computed */
    rein_selected_rows leaving; /* unless the pass is kept */
    float *x;                   /* [layers + 1][rows][hidden] when kept, else [1] */
    rein_kept *kept;            /* [layers] or [1] */
    float *last;                /* [n][hidden] rows before the last norm */
    float *last_scale;
    float *hidden; /* [n][hidden] what the head sees */
    float *inner;  /* of the head's LoRA */
    rein_head head;
    rein_head_out out;
    int head_trains;
    float *head_scratch;
};

rein_status rein_trace_open(rein_trace **trace, const rein_exec *exec, rein_error *err) {
    rein_exec resolved;
    *trace = NULL;
    const rein_status status = rein_exec_resolve(&resolved, exec, REIN_SERIAL, err);
    if (status) return status;
    *trace = calloc(1, sizeof **trace);
    if (!*trace) return rein_fail(err, REIN_ENOMEM, "no memory for a trace");
    (*trace)->exec = resolved;
    return REIN_OK;
}

void rein_trace_close(rein_trace *trace) {
    if (!trace) return;
    rein_arena_free(&trace->arena);
    free(trace);
}

size_t rein_trace_recalled(const rein_trace *trace) { return trace->recalled ? trace->batch.rows : 0; }

size_t rein_trace_bytes(const rein_trace *trace) { return rein_arena_bytes(&trace->arena); }

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static rein_status check_policy(const rein_policy *p, rein_error *err) {
    if (!p->model) return rein_fail(err, REIN_EINVAL, "the policy has no model");
    if (p->adapter && p->adapter->model != p->model)
        return rein_fail(err, REIN_EINVAL, "the policy's adapter was made for another model");
    if (!(p->temperature >= 1e-3 && p->temperature <= 1e3))
        return rein_fail(err, REIN_EINVAL, "temperature is %g: 0.001 to 1000 (greedy choice is a sampler's, not a policy's)",
                         p->temperature);
    return REIN_OK;
}

static rein_status check_segment(const rein_tokens *t, size_t s, size_t root, rein_error *err) {
    if (t->offsets[s + 1] <= t->offsets[s])
        return rein_fail(err, REIN_EINVAL, "offsets[%zu] is %zu after %zu: a segment has at least one token", s + 1,
                         t->offsets[s + 1], t->offsets[s]);
    const int64_t parent = t->parents ? t->parents[s] : REIN_NO_PARENT;
    if (parent != REIN_NO_PARENT && (parent < (int64_t)root || parent >= (int64_t)s || s == 0))
        return rein_fail(err, REIN_EINVAL, "parents[%zu] is %lld: -1, or an earlier segment of the same tree (%zu to %lld)", s,
                         (long long)parent, root, (long long)s - 1);
    return REIN_OK;
}

static rein_status check_ids(const rein_tokens *t, int64_t vocabulary, rein_error *err) {
    for (size_t i = 0; i < t->offsets[t->n]; i++)
        if (t->ids[i] < 0 || t->ids[i] >= vocabulary)
            return rein_fail(err, REIN_EINVAL, "ids[%zu] is %d: the model's vocabulary is 0 to %lld", i, t->ids[i],
                             (long long)vocabulary - 1);
    return REIN_OK;
}

/* Rows are tokens; segments get their positions, trees their borders. */
static rein_status lay_out_segments(rein_trace *trace, const rein_tokens *t, rein_error *err) {
    const rein_model *model = trace->policy.model;
    size_t root = 0;
    trace->n_trees = 0;
    for (size_t s = 0; s < t->n; s++) {
        const rein_status status = check_segment(t, s, root, err);
        if (status) return status;
        const int64_t parent = t->parents ? t->parents[s] : REIN_NO_PARENT;
        rein_segment *segment = &trace->segments[s];
        *segment = (rein_segment){t->offsets[s], t->offsets[s + 1] - t->offsets[s], 0, parent};
        if (parent == REIN_NO_PARENT) trace->trees[trace->n_trees++] = root = s;
        else segment->before = trace->segments[parent].before + trace->segments[parent].count;
        if (segment->before + segment->count > (size_t)model->config.max_positions)
            return rein_fail(err, REIN_EINVAL, "segment %zu ends at position %zu: the model has %lld positions", s,
                             segment->before + segment->count, (long long)model->config.max_positions);
        int depth = 0;
        for (int64_t up = parent; up != REIN_NO_PARENT; up = trace->segments[up].parent)
            if (++depth > DEEPEST) return rein_fail(err, REIN_EINVAL, "segment %zu continues more than %d others", s, DEEPEST);
    }
    trace->trees[trace->n_trees] = t->n;
    return REIN_OK;
}

/* The row before the first token of a segment predicts it; a root's first token has none. */
static rein_status find_wanted(rein_trace *trace, const rein_tokens *t, rein_error *err) {
    trace->n = 0;
    for (size_t s = 0; s < t->n; s++) {
        const rein_segment *segment = &trace->segments[s];
        for (size_t i = segment->first; i < segment->first + segment->count; i++) {
            const int first = i == segment->first, has_none = first && segment->parent == REIN_NO_PARENT;
            if (t->wanted ? !t->wanted[i] : has_none) continue;
            if (has_none)
                return rein_fail(err, REIN_EINVAL, "wanted[%zu] is 1: the first token of a sequence has no log-probability", i);
            trace->token[trace->n] = i;
            trace->targets[trace->n] = t->ids[i];
            trace->row[trace->n++] =
                first ? trace->segments[segment->parent].first + trace->segments[segment->parent].count - 1 : i - 1;
        }
    }
    return REIN_OK;
}

/* How many rows of each segment are needed. After the last of them nothing wanted is predicted, and nobody sees the keys: a response's last
 * token, which is only ever a target, has no row. */
static void count_rows(size_t *needed, const rein_trace *trace) {
    const size_t n = trace->n_segments;
    memset(needed, 0, n * sizeof *needed);
    for (size_t s = 0, i = 0; i < trace->n; i++) { /* tokens ascend */
        while (trace->token[i] >= trace->segments[s].first + trace->segments[s].count) s++;
        const rein_segment *segment = &trace->segments[s];
        needed[s] = trace->token[i] - segment->first;
        if (!needed[s]) needed[segment->parent] = trace->segments[segment->parent].count;
    }
    for (size_t s = n; s-- > 0;)
        if (needed[s] && trace->segments[s].parent != REIN_NO_PARENT)
            needed[trace->segments[s].parent] = trace->segments[trace->segments[s].parent].count;
}

/* Tokens become rows, without those that nobody needs; a segment or a tree that has none is gone. */
static rein_status make_rows(rein_trace *trace, const rein_tokens *t, rein_error *err) {
    rein_arena *arena = &trace->arena;
    size_t *needed = rein_arena_take(arena, t->n * sizeof *needed), *place = rein_arena_take(arena, trace->tokens * sizeof *place);
    int64_t *number = rein_arena_take(arena, t->n * sizeof *number); /* of a segment, among those that stay */
    int32_t *ids = rein_arena_take(arena, trace->tokens * sizeof *ids);
    size_t rows = 0, segments = 0, trees = 0;
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", trace->tokens);
    count_rows(needed, trace);
    for (size_t s = 0; s < t->n; s++) {
        const rein_segment old = trace->segments[s];
        if (!needed[s]) continue;
        for (size_t i = 0; i < needed[s]; i++) {
            ids[rows + i] = t->ids[old.first + i];
            place[old.first + i] = rows + i;
        }
        if (old.parent == REIN_NO_PARENT) trace->trees[trees++] = segments;
        number[s] = (int64_t)segments;
        trace->segments[segments++] =
            (rein_segment){rows, needed[s], old.before, old.parent == REIN_NO_PARENT ? REIN_NO_PARENT : number[old.parent]};
        rows += needed[s];
    }
    trace->trees[trees] = segments;
    trace->n_segments = segments, trace->n_trees = trees;
    trace->batch.rows = rows;
    trace->ids = ids;
    for (size_t i = 0; i < trace->n; i++) trace->row[i] = place[trace->row[i]];
    return REIN_OK;
}

/* The rows as sampling computed them, if it did: all of them or none. */
static void find_recalled(rein_trace *trace) {
    const rein_recall *recall = trace->options.recall;
    const size_t rows = trace->batch.rows;
    if (!trace->options.keep || !rows || !rein_recall_serves(recall, &trace->policy, trace->options.recompute)) return;
    int64_t *found = rein_arena_take(&trace->arena, rows * sizeof *found);
    for (size_t s = 0; found && s < trace->n_segments; s++) {
        const rein_segment *segment = &trace->segments[s];
        int64_t row = REIN_BEFORE_ALL;
        if (segment->parent != REIN_NO_PARENT) {
            const rein_segment *parent = &trace->segments[segment->parent];
            row = found[parent->first + parent->count - 1];
        }
        for (size_t i = segment->first; i < segment->first + segment->count; i++) {
            if ((row = rein_recall_find(recall, row, trace->ids[i])) == REIN_NO_ROW) return;
            found[i] = row;
        }
    }
    trace->recalled = found;
}

/* --------------------------------------------------------------------------------------------------------------------- memory */

static size_t blocks_of(size_t positions) { return (positions + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

/* Blocks of keys for every segment, used by one layer after the other; a query's list is its ancestors' and its own. */
static void take_keys(rein_trace *trace) {
    rein_arena *arena = &trace->arena;
    const size_t floats = rein_key_block_floats(&trace->batch.model->heads);
    size_t blocks = 0, listed = 0;
    for (size_t s = 0; s < trace->n_segments; s++) {
        const rein_segment *segment = &trace->segments[s];
        blocks += blocks_of(segment->count);
        for (int64_t up = (int64_t)s; up != REIN_NO_PARENT; up = trace->segments[up].parent)
            listed += blocks_of(trace->segments[up].count);
    }
    float *data = rein_arena_floats(arena, blocks * floats);
    rein_keys *keys = rein_arena_take(arena, listed * sizeof *keys);
    rein_query *queries = rein_arena_take(arena, trace->n_segments * sizeof *queries);
    rein_slot *slots = rein_arena_take(arena, trace->batch.rows * sizeof *slots);
    if (arena->failed) return;
    for (size_t s = 0; s < trace->n_segments; s++) {
        const rein_segment *segment = &trace->segments[s];
        const rein_query *parent = segment->parent == REIN_NO_PARENT ? NULL : &queries[segment->parent];
        queries[s] = (rein_query){segment->first, segment->count, segment->before, keys, parent ? parent->n_keys : 0};
        if (parent) memcpy(keys, parent->keys, parent->n_keys * sizeof *keys);
        for (size_t at = 0; at < segment->count; at += REIN_KEY_BLOCK, data += floats) {
            const size_t count = segment->count - at < REIN_KEY_BLOCK ? segment->count - at : REIN_KEY_BLOCK;
            keys[queries[s].n_keys++] = (rein_keys){data, count};
            for (size_t i = 0; i < count; i++) slots[segment->first + at + i] = (rein_slot){data, i};
        }
        keys += queries[s].n_keys;
    }
    trace->batch.queries = queries;
    trace->batch.n_queries = trace->n_segments;
    trace->batch.slots = slots;
}

static void take_positions(rein_trace *trace) {
    rein_batch_rows *b = &trace->batch;
    int32_t *positions = rein_arena_take(&trace->arena, b->rows * sizeof *positions);
    if (trace->arena.failed) return;
    b->keys = 0;
    for (size_t s = 0; s < trace->n_segments; s++) {
        const rein_segment *segment = &trace->segments[s];
        for (size_t i = 0; i < segment->count; i++) positions[segment->first + i] = (int32_t)(segment->before + i);
        if (segment->before + segment->count > b->keys) b->keys = segment->before + segment->count;
    }
    b->positions = positions;
    b->angles.half = b->model->heads.dim / 2;
    b->angles.cosine = rein_arena_floats(&trace->arena, b->keys * b->angles.half);
    b->angles.sine = rein_arena_floats(&trace->arena, b->keys * b->angles.half);
    if (!trace->arena.failed) rein_angles_fill(&b->angles, b->model->frequencies, 0, b->keys);
}

/* Of each segment the rows from the first to the last that predict something wanted; trace->row is numbered anew. */
static void take_leaving(rein_trace *trace) {
    rein_arena *arena = &trace->arena;
    const size_t rows = trace->batch.rows;
    rein_query *parts = rein_arena_take(arena, trace->n_segments * sizeof *parts);
    size_t *place = rein_arena_take(arena, rows * sizeof *place); /* 1: wanted; then which of those that leave */
    size_t n = 0, left = 0;
    if (arena->failed) return;
    memset(place, 0, rows * sizeof *place);
    for (size_t i = 0; i < trace->n; i++) place[trace->row[i]] = 1;
    for (size_t s = 0; s < trace->n_segments; s++) {
        const rein_query *all = &trace->batch.queries[s];
        size_t first = all->first, end = all->first + all->count;
        while (first < end && !place[first]) first++;
        while (first < end && !place[end - 1]) end--;
        if (first < end) parts[n++] = (rein_query){first, end - first, all->before + first - all->first, all->keys, all->n_keys};
        for (size_t r = first; r < end; r++) place[r] = left++;
    }
    for (size_t i = 0; i < trace->n; i++) trace->row[i] = place[trace->row[i]];
    rein_selected_rows_take(&trace->leaving, &trace->batch, parts, n, arena);
}

static void take_layers(rein_trace *trace) {
    const size_t layers = (size_t)trace->batch.model->config.n_layers, hidden = (size_t)trace->batch.model->config.hidden_size;
    const size_t full = trace->options.keep && !trace->options.recompute ? layers : 1;
    trace->kept = rein_arena_take(&trace->arena, layers * sizeof *trace->kept);
    trace->x = rein_arena_floats(&trace->arena, (trace->options.keep ? layers + 1 : 1) * trace->batch.rows * hidden);
    if (trace->arena.failed) return;
    for (size_t l = 0; l < layers; l++) {
        if (l < full) rein_kept_take(&trace->kept[l], &trace->batch, trace->options.keep, &trace->arena);
        else trace->kept[l] = trace->kept[0];
        trace->kept[l].x = trace->x + (trace->options.keep ? l * trace->batch.rows * hidden : 0);
    }
}

static void take_head(rein_trace *trace, const rein_policy *policy, int with_entropies) {
    rein_arena *arena = &trace->arena;
    const rein_model *model = policy->model;
    const size_t hidden = (size_t)model->config.hidden_size, n = trace->n;
    const rein_lora *lora = rein_adapter_lora(policy->adapter, 0, REIN_HEAD_MODULE);
    trace->head = (rein_head){&model->head, lora, (float)(1 / policy->temperature)};
    trace->head_trains = policy->adapter ? lora != NULL : model->values != NULL;
    trace->last = rein_arena_floats(arena, n * hidden);
    trace->last_scale = rein_arena_floats(arena, n);
    trace->hidden = rein_arena_floats(arena, n * hidden);
    trace->inner = lora ? rein_arena_floats(arena, n * lora->rank) : NULL;
    trace->head_scratch = rein_arena_floats(arena, rein_head_scratch(&trace->head, &trace->batch.run));
    trace->out = (rein_head_out){.log_probs = rein_arena_floats(arena, n)};
    const int directions = trace->options.keep && !trace->head_trains,
              entropy_gradient = trace->options.keep && trace->options.entropy_gradient;
    if (with_entropies || entropy_gradient) trace->out.entropies = rein_arena_floats(arena, n);
    if (trace->options.keep && trace->head_trains) {
        trace->out.log_sums = rein_arena_floats(arena, n);
        trace->out.x_row =
            ((size_t)model->config.vocab_size + 15) / 16 * 16 + 16; /* rows a power of two apart would share cache lines */
        if ((double)n * (double)trace->out.x_row * sizeof(float) <= LOGITS_KEPT)
            trace->out.x = rein_arena_floats(arena, n * trace->out.x_row);
    }
    if (directions) trace->out.u = rein_arena_floats(arena, n * hidden);
    if (directions && entropy_gradient) trace->out.v = rein_arena_floats(arena, n * hidden);
}

/* Everything that the pass needs, before anything is computed. */
static rein_status prepare(rein_trace *trace, const rein_policy *policy, const rein_tokens *t, int with_entropies,
                           rein_error *err) {
    rein_arena *arena = &trace->arena;
    rein_status status = check_policy(policy, err);
    if (!status && t->n == 0) status = rein_fail(err, REIN_EINVAL, "there are no tokens: n is 0");
    if (!status && t->offsets[0] != 0) status = rein_fail(err, REIN_EINVAL, "offsets[0] is %zu: 0", t->offsets[0]);
    if (status) return status;
    rein_arena_reset(arena);
    trace->policy = *policy;
    trace->recalled = NULL;
    trace->n_segments = t->n;
    trace->segments = rein_arena_take(arena, t->n * sizeof *trace->segments);
    trace->trees = rein_arena_take(arena, (t->n + 1) * sizeof *trace->trees);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu segments", t->n);
    if ((status = lay_out_segments(trace, t, err)) || (status = check_ids(t, policy->model->config.vocab_size, err))) return status;
    const size_t tokens = trace->tokens = t->offsets[t->n];
    trace->token = rein_arena_take(arena, tokens * sizeof *trace->token);
    trace->row = rein_arena_take(arena, tokens * sizeof *trace->row);
    trace->targets = rein_arena_take(arena, tokens * sizeof *trace->targets);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", tokens);
    trace->batch = (rein_batch_rows){
        .model = policy->model, .adapter = policy->adapter, .run = {rein_kernels_of(trace->exec.isa), trace->exec, NULL}};
    if ((status = find_wanted(trace, t, err)) || (status = make_rows(trace, t, err))) return status;
    find_recalled(trace);
    take_positions(trace);
    take_keys(trace);
    if (!arena->failed) rein_batch_take(&trace->batch, arena);
    if (!arena->failed && !trace->options.keep) take_leaving(trace);
    if (!arena->failed) take_layers(trace);
    if (!arena->failed) take_head(trace, policy, with_entropies);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for the activations of %zu tokens", tokens);
    return REIN_OK;
}

/* -------------------------------------------------------------------------------------------------------------------- forward */

static void gather_rows(float *to, const float *from, const size_t *rows, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++) memcpy(to + i * width, from + rows[i] * width, width * sizeof *to);
}

static void compute_layers(rein_trace *trace, size_t layers, size_t step) {
    const rein_batch_rows *b = &trace->batch;
    const rein_kept *last = &trace->kept[layers - 1];
    rein_embed(trace->kept[0].x, b->model, trace->ids, b->rows, &b->run);
    for (size_t l = 0; l + 1 < layers; l++) rein_layer_forward(trace->kept[l].x + step, &trace->kept[l], l, b);
    if (trace->options.keep) rein_layer_forward(last->x + step, last, layers - 1, b);
    else rein_last_layer_forward(last->x, last, &trace->leaving, b);
}

static void recall_layers(rein_trace *trace, size_t layers, size_t step) {
    const rein_recall *recall = trace->options.recall;
    for (size_t l = 0; l < layers; l++)
        rein_recall_get(&trace->kept[l], trace->options.recompute, recall, trace->recalled, l, &trace->batch);
    rein_recall_get_last(trace->kept[layers - 1].x + step, recall, trace->recalled, &trace->batch);
}

/* From ids to what the head sees of the rows that predict something. */
static void through_layers(rein_trace *trace) {
    const rein_batch_rows *b = &trace->batch;
    const size_t layers = (size_t)b->model->config.n_layers, hidden = (size_t)b->model->config.hidden_size;
    const size_t step = trace->options.keep ? b->rows * hidden : 0;
    const rein_kept *last = &trace->kept[layers - 1];
    if (!trace->n) return;
    if (trace->recalled) recall_layers(trace, layers, step);
    else compute_layers(trace, layers, step);
    gather_rows(trace->last, last->x + step, trace->row, trace->n, hidden);
    rein_norm_forward(trace->hidden, trace->last_scale, trace->last, b->model->norm, trace->n, hidden,
                      (float)b->model->config.rms_norm_eps, &b->run);
}

static rein_status give_out(float *log_probs, float *entropies, const rein_trace *trace, rein_error *err) {
    for (size_t i = 0; i < trace->n; i++)
        if (!isfinite(trace->out.log_probs[i]) || (trace->out.entropies && !isfinite(trace->out.entropies[i])))
            return rein_fail(err, REIN_ERANGE,
                             "the log-probability of token %zu is not a finite number: the weights hold values that are not, "
                             "or too large ones",
                             trace->token[i]);
    memset(log_probs, 0, trace->tokens * sizeof *log_probs);
    if (entropies) memset(entropies, 0, trace->tokens * sizeof *entropies);
    for (size_t i = 0; i < trace->n; i++) {
        log_probs[trace->token[i]] = trace->out.log_probs[i];
        if (entropies) entropies[trace->token[i]] = trace->out.entropies[i];
    }
    return REIN_OK;
}

rein_status rein_forward(float *log_probs, float *entropies, rein_trace *trace, const rein_policy *policy,
                         const rein_tokens *tokens, const rein_forward_options *options, rein_error *err) {
    trace->held = 0;
    trace->options = options ? *options : (rein_forward_options){0};
    rein_status status = prepare(trace, policy, tokens, entropies != NULL, err);
    if (status) return status;
    through_layers(trace);
    rein_head_forward(&trace->out, trace->inner, trace->hidden, trace->targets, trace->n, &trace->head, trace->head_scratch,
                      &trace->batch.run);
    status = give_out(log_probs, entropies, trace, err);
    trace->held = !status && trace->options.keep;
    return status;
}

rein_status rein_logits(float *logits, rein_trace *trace, const rein_policy *policy, const rein_tokens *tokens, rein_error *err) {
    trace->held = 0;
    trace->options = (rein_forward_options){0};
    const rein_status status = prepare(trace, policy, tokens, 0, err);
    if (status) return status;
    const size_t chunks = rein_head_chunks(&trace->head);
    rein_softmax_stats *masses = rein_arena_take(&trace->arena, trace->n * chunks * sizeof *masses);
    if (!masses && trace->n) return rein_fail(err, REIN_ENOMEM, "no memory for the logits of %zu tokens", trace->n);
    through_layers(trace);
    rein_head_logits(logits, masses, trace->inner, trace->hidden, trace->n, &trace->head, &trace->batch.run);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- backward */

/* Where the gradient of an array goes: at its own place among the values that train. */
static float *gradient_of(const rein_trace *trace, float *gradient, const void *values) {
    const float *base = trace->policy.adapter ? NULL : trace->policy.model->values;
    return base && values ? gradient + ((const float *)values - base) : NULL;
}

static rein_linear_gradient linear_gradient(const rein_trace *trace, float *gradient, const rein_linear *linear,
                                            const rein_lora *lora) {
    rein_linear_gradient g = {.weight = gradient_of(trace, gradient, linear->weight.data),
                              .bias = gradient_of(trace, gradient, linear->bias)};
    if (lora) {
        g.a = gradient + (lora->a - trace->policy.adapter->values);
        g.b = gradient + (lora->b - trace->policy.adapter->values);
    }
    return g;
}

static rein_layer_gradient layer_gradient(const rein_trace *trace, float *gradient, size_t l) {
    const rein_layer *layer = &trace->policy.model->layers[l];
    rein_layer_gradient g = {.norm_attention = gradient_of(trace, gradient, layer->norm_attention),
                             .norm_mlp = gradient_of(trace, gradient, layer->norm_mlp),
                             .norm_q = gradient_of(trace, gradient, layer->norm_q),
                             .norm_k = gradient_of(trace, gradient, layer->norm_k)};
    for (int m = 0; m < REIN_LAYER_MODULES; m++)
        g.linear[m] =
            linear_gradient(trace, gradient, &layer->linear[m], rein_adapter_lora(trace->policy.adapter, l, (rein_module)m));
    return g;
}

typedef struct going_back {
    float *dx, *dhidden, *dlast;    /* [rows], [n], [n] × hidden */
    float *dlog_probs, *dentropies; /* [n] */
    float *dinner, *dlogits;        /* of a head that trains */
    rein_backward_scratch scratch;
} going_back;

static rein_status prepare_back(going_back *g, rein_trace *trace, rein_error *err) {
    rein_arena *arena = &trace->arena;
    const size_t hidden = (size_t)trace->batch.model->config.hidden_size, n = trace->n;
    g->dx = rein_arena_floats(arena, trace->batch.rows * hidden);
    g->dhidden = rein_arena_floats(arena, n * hidden);
    g->dlast = rein_arena_floats(arena, n * hidden);
    g->dlog_probs = rein_arena_floats(arena, n);
    g->dentropies = rein_arena_floats(arena, n);
    g->dinner = trace->head.lora ? rein_arena_floats(arena, n * trace->head.lora->rank) : NULL;
    g->dlogits = trace->head_trains && !trace->out.x ? rein_arena_floats(arena, n * REIN_BACKWARD_CHUNK) : NULL;
    rein_backward_take(&g->scratch, &trace->batch, arena);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for the gradients of %zu tokens", trace->batch.rows);
    return REIN_OK;
}

static rein_status take_in(going_back *g, const rein_trace *trace, const float *dlog_probs, const float *dentropies,
                           rein_error *err) {
    for (size_t i = 0; i < trace->n; i++) {
        g->dlog_probs[i] = dlog_probs[trace->token[i]];
        g->dentropies[i] = dentropies ? dentropies[trace->token[i]] : 0;
        if (!isfinite(g->dlog_probs[i]))
            return rein_fail(err, REIN_EINVAL, "dlog_probs[%zu] is %g: a finite number", trace->token[i], (double)g->dlog_probs[i]);
        if (!isfinite(g->dentropies[i]))
            return rein_fail(err, REIN_EINVAL, "dentropies[%zu] is %g: a finite number", trace->token[i], (double)g->dentropies[i]);
    }
    return REIN_OK;
}

/* d loss/d hidden of a frozen head: each row's directions, weighted. */
static void along_directions(going_back *g, const rein_trace *trace) {
    const size_t hidden = (size_t)trace->batch.model->config.hidden_size;
    const rein_row_kernels *k = trace->batch.run.kernels->rows;
    memset(g->dhidden, 0, trace->n * hidden * sizeof(float));
    for (size_t i = 0; i < trace->n; i++) {
        k->add_scaled(g->dhidden + i * hidden, trace->out.u + i * hidden, hidden, g->dlog_probs[i]);
        if (trace->out.v) k->add_scaled(g->dhidden + i * hidden, trace->out.v + i * hidden, hidden, g->dentropies[i]);
    }
}

static void head_backward(going_back *g, float *gradient, const rein_trace *trace) {
    const rein_batch_rows *b = &trace->batch;
    const size_t hidden = (size_t)b->model->config.hidden_size;
    if (trace->head_trains) {
        const rein_linear_gradient of_head = linear_gradient(trace, gradient, trace->head.linear, trace->head.lora);
        rein_head_backward(g->dhidden, &of_head, g->dinner, g->dlog_probs, trace->out.entropies ? g->dentropies : NULL, &trace->out,
                           trace->inner, trace->hidden, trace->targets, trace->n, &trace->head, g->dlogits, &b->run);
    } else along_directions(g, trace);
    memset(g->dlast, 0, trace->n * hidden * sizeof(float));
    rein_norm_backward(g->dlast, gradient_of(trace, gradient, b->model->norm), g->dhidden, trace->last, b->model->norm,
                       trace->last_scale, trace->n, hidden, &b->run);
    memset(g->dx, 0, b->rows * hidden * sizeof(float));
    for (size_t i = 0; i < trace->n; i++)
        b->run.kernels->rows->add_scaled(g->dx + trace->row[i] * hidden, g->dlast + i * hidden, hidden, 1);
}

static void embedding_backward(float *dembedding, const float *dx, const rein_trace *trace) {
    const size_t hidden = (size_t)trace->batch.model->config.hidden_size;
    for (size_t r = 0; r < trace->batch.rows; r++)
        trace->batch.run.kernels->rows->add_scaled(dembedding + (size_t)trace->ids[r] * hidden, dx + r * hidden, hidden, 1);
}

rein_status rein_backward(float *gradient, rein_trace *trace, const float *dlog_probs, const float *dentropies, rein_error *err) {
    going_back g;
    if (!trace->held)
        return rein_fail(err, REIN_EINVAL, "the trace holds no forward pass: call rein_forward with keep, once for each backward");
    if (dentropies && !trace->options.entropy_gradient)
        return rein_fail(err, REIN_EINVAL, "dentropies are given, and the forward pass was made without entropy_gradient");
    const rein_model *model = trace->policy.model;
    if (!rein_parameter_floats(model, trace->policy.adapter))
        return rein_fail(err, REIN_EINVAL, "nothing trains: the policy has no adapter, and the model was not opened to train");
    rein_status status = prepare_back(&g, trace, err);
    if (!status) status = take_in(&g, trace, dlog_probs, dentropies, err);
    if (status) return status;
    trace->held = 0;
    if (!trace->n) return REIN_OK;
    float *embedding = gradient_of(trace, gradient, model->embedding.data);
    head_backward(&g, gradient, trace);
    for (size_t l = (size_t)model->config.n_layers; l-- > 0;) {
        const rein_layer_gradient of_layer = layer_gradient(trace, gradient, l);
        if (trace->options.recompute) rein_layer_forward(NULL, &trace->kept[l], l, &trace->batch);
        rein_layer_backward(g.dx, l > 0 || embedding, &of_layer, &trace->kept[l], l, &trace->batch, trace->segments, trace->trees,
                            trace->n_trees, &g.scratch);
    }
    if (embedding) embedding_backward(embedding, g.dx, trace);
    return REIN_OK;
}
