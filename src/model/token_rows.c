/* token_rows.c - tokens in trees of segments, checked and laid out as the rows of a batch. */
#include <string.h>

#include "activations.h"
#include "base/base.h"

enum { MAX_DEPTH = 256 }; /* segments between a segment and its root: the backward pass recurses over them */

static int64_t parent_of(const rein_tokens *t, size_t s) { return t->parents ? t->parents[s] : REIN_NO_PARENT; }

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static rein_status check_segment(const rein_tokens *t, size_t s, size_t root, rein_error *err) {
    const int64_t parent = parent_of(t, s);
    if (t->offsets[s + 1] <= t->offsets[s])
        return rein_fail_at(err, REIN_EINVAL, "offsets", (int64_t)s + 1, "is %zu after %zu: a segment has at least one token",
                            t->offsets[s + 1], t->offsets[s]);
    if (parent != REIN_NO_PARENT && (parent < (int64_t)root || parent >= (int64_t)s || s == 0))
        return rein_fail_at(err, REIN_EINVAL, "parents", (int64_t)s,
                            "is %lld: -1, or an earlier segment of the same tree (%zu to %lld)", (long long)parent, root,
                            (long long)s - 1);
    return REIN_OK;
}

static rein_status check_ids(const rein_tokens *t, int64_t vocabulary, rein_error *err) {
    for (size_t i = 0; i < t->offsets[t->n]; i++)
        if (t->ids[i] < 0 || t->ids[i] >= vocabulary)
            return rein_fail_at(err, REIN_EINVAL, "ids", (int64_t)i, "is %d: the model's vocabulary is 0 to %lld", t->ids[i],
                                (long long)vocabulary - 1);
    return REIN_OK;
}

static rein_status check_length(const rein_activations *a, size_t s, rein_error *err) {
    const rein_segment *segment = &a->segments[s];
    const int64_t positions = a->policy.model->config.max_positions;
    int depth = 0;
    if (segment->before + segment->count > (size_t)positions)
        return rein_fail_at(err, REIN_EINVAL, "offsets", (int64_t)s + 1,
                            "is too large: its segment ends at position %zu, and the model has %lld positions",
                            segment->before + segment->count, (long long)positions);
    for (int64_t up = segment->parent; up != REIN_NO_PARENT; up = a->segments[up].parent)
        if (++depth > MAX_DEPTH)
            return rein_fail_at(err, REIN_EINVAL, "parents", (int64_t)s, "is wrong: the segment continues more than %d others",
                                MAX_DEPTH);
    return REIN_OK;
}

/* -------------------------------------------------------------------------------------------------------------------- segments */

/* One row a token for now: segments get their positions, trees their borders. */
static rein_status find_segments(rein_activations *a, const rein_tokens *t, rein_error *err) {
    rein_status status = REIN_OK;
    size_t root = 0;
    a->n_trees = 0;
    for (size_t s = 0; s < t->n && !status; s++) {
        if ((status = check_segment(t, s, root, err))) return status;
        const int64_t parent = parent_of(t, s);
        rein_segment *segment = &a->segments[s];
        *segment = (rein_segment){t->offsets[s], t->offsets[s + 1] - t->offsets[s], 0, parent};
        if (parent == REIN_NO_PARENT) a->trees[a->n_trees++] = root = s;
        else segment->before = a->segments[parent].before + a->segments[parent].count;
        status = check_length(a, s, err);
    }
    a->trees[a->n_trees] = t->n;
    return status;
}

/* The row before a token predicts it: for the first token of a segment, the last row of its parent. Or its own row is wanted. */
static rein_status find_wanted(rein_activations *a, const rein_tokens *t, rein_error *err) {
    a->n_wanted = 0;
    for (size_t s = 0; s < t->n; s++) {
        const rein_segment *segment = &a->segments[s];
        for (size_t i = segment->first; i < segment->first + segment->count; i++) {
            const int first = i == segment->first && !a->at_token, of_root = first && segment->parent == REIN_NO_PARENT;
            if (t->wanted ? !t->wanted[i] : of_root) continue;
            if (of_root)
                return rein_fail_at(err, REIN_EINVAL, "wanted", (int64_t)i, "is 1: the first token of a sequence has no %s",
                                    a->score ? "value" : "log-probability");
            a->wanted[a->n_wanted] = i;
            a->targets[a->n_wanted] = t->ids[i];
            a->row[a->n_wanted++] =
                first ? a->segments[segment->parent].first + a->segments[segment->parent].count - 1 : i - !a->at_token;
        }
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

/* needed [n_segments]: how many rows of each segment a wanted token depends on. The tokens after them get no row. */
static void count_rows(size_t *needed, const rein_activations *a) {
    const size_t n = a->n_segments;
    memset(needed, 0, n * sizeof *needed);
    for (size_t s = 0, i = 0; i < a->n_wanted; i++) { /* tokens ascend */
        while (a->wanted[i] >= a->segments[s].first + a->segments[s].count) s++;
        const rein_segment *segment = &a->segments[s];
        needed[s] = a->wanted[i] - segment->first + (size_t)a->at_token;
        if (!needed[s]) needed[segment->parent] = a->segments[segment->parent].count;
    }
    for (size_t s = n; s-- > 0;)
        if (needed[s] && a->segments[s].parent != REIN_NO_PARENT)
            needed[a->segments[s].parent] = a->segments[a->segments[s].parent].count;
}

/* Needed tokens become rows; segments and trees without any are removed. */
static rein_status make_rows(rein_activations *a, const rein_tokens *t, rein_error *err) {
    rein_arena *arena = &a->arena;
    size_t *needed = rein_arena_take(arena, t->n * sizeof *needed), *place = rein_arena_take(arena, a->n_tokens * sizeof *place);
    int64_t *number = rein_arena_take(arena, t->n * sizeof *number); /* of a segment, among those that remain */
    int32_t *ids = rein_arena_take(arena, a->n_tokens * sizeof *ids);
    size_t rows = 0, segments = 0, trees = 0;
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", a->n_tokens);
    count_rows(needed, a);
    for (size_t s = 0; s < t->n; s++) {
        const rein_segment old = a->segments[s];
        if (!needed[s]) continue;
        for (size_t i = 0; i < needed[s]; i++) {
            ids[rows + i] = t->ids[old.first + i];
            place[old.first + i] = rows + i;
        }
        if (old.parent == REIN_NO_PARENT) a->trees[trees++] = segments;
        number[s] = (int64_t)segments;
        a->keys[segments] = t->activation_keys ? t->activation_keys[s] : 0;
        a->segments[segments++] =
            (rein_segment){rows, needed[s], old.before, old.parent == REIN_NO_PARENT ? REIN_NO_PARENT : number[old.parent]};
        rows += needed[s];
    }
    a->trees[trees] = segments;
    a->n_segments = segments, a->n_trees = trees;
    a->batch.rows = rows;
    a->ids = ids;
    for (size_t i = 0; i < a->n_wanted; i++) a->row[i] = place[a->row[i]];
    return REIN_OK;
}

rein_status rein_token_rows(rein_activations *a, const rein_tokens *t, rein_error *err) {
    rein_arena *arena = &a->arena;
    if (t->n == 0) return rein_fail_at(err, REIN_EINVAL, "n", -1, "is 0: there are no tokens");
    if (t->offsets[0] != 0) return rein_fail_at(err, REIN_EINVAL, "offsets", 0, "is %zu: the first offset is 0", t->offsets[0]);
    a->n_segments = t->n;
    a->segments = rein_arena_take(arena, t->n * sizeof *a->segments);
    a->keys = rein_arena_take(arena, t->n * sizeof *a->keys);
    a->trees = rein_arena_take(arena, (t->n + 1) * sizeof *a->trees);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu segments", t->n);
    rein_status status = find_segments(a, t, err);
    if (!status) status = check_ids(t, a->policy.model->config.vocab_size, err);
    if (status) return status;
    const size_t tokens = a->n_tokens = t->offsets[t->n];
    a->wanted = rein_arena_take(arena, tokens * sizeof *a->wanted);
    a->row = rein_arena_take(arena, tokens * sizeof *a->row);
    a->targets = rein_arena_take(arena, tokens * sizeof *a->targets);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", tokens);
    status = find_wanted(a, t, err);
    return status ? status : make_rows(a, t, err);
}
