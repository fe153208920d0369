/* packing.c - trajectory groups become arrays. */
#include "packing.h"

#include <math.h>

static void count(rein_packing *packing, const rein_groups *groups) {
    *packing = (rein_packing){.n_groups = groups->n, .n_tokens = rein_groups_tokens(groups)};
    for (size_t g = 0; g < groups->n; g++) packing->n_sequences += groups->groups[g].n;
}

/* --------------------------------------------------------------------------------------------------------- for the objective */

static int all_have_values(const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++)
                if (!groups->groups[g].trajectories[t].histories[i].values) return 0;
    return 1;
}

/* 1 if a trajectory has a budget of its own; and, where nothing needs budgets, all have one. */
static int have_budgets(const rein_groups *groups, const rein_packing_options *o) {
    size_t n = 0, own = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++, n++) own += groups->groups[g].trajectories[t].budget >= 0;
    return own > 0 && (o->needs_budgets || own == n || o->token_budget >= 0);
}

static void take(rein_packing *packing, const rein_groups *groups, const rein_packing_options *o, rein_arena *arena) {
    packing->group_offsets = rein_arena_take(arena, (packing->n_groups + 1) * sizeof *packing->group_offsets);
    packing->sequence_offsets = rein_arena_take(arena, (packing->n_sequences + 1) * sizeof *packing->sequence_offsets);
    packing->mask = rein_arena_take(arena, packing->n_tokens);
    packing->recorded = rein_arena_floats(arena, packing->n_tokens);
    packing->values = all_have_values(groups) ? rein_arena_floats(arena, packing->n_tokens) : NULL;
    packing->rewards = rein_arena_take(arena, packing->n_sequences * sizeof *packing->rewards);
    packing->lengths = rein_arena_take(arena, packing->n_sequences * sizeof *packing->lengths);
    packing->budgets = have_budgets(groups, o) ? rein_arena_take(arena, packing->n_sequences * sizeof *packing->budgets) : NULL;
    packing->sampled_now = rein_arena_take(arena, packing->n_sequences);
    packing->micro_batches = rein_arena_take(arena, packing->n_sequences * sizeof *packing->micro_batches); /* at most */
}

static void put_trajectory(rein_packing *packing, size_t sequence, const rein_trajectory *trajectory,
                           const rein_packing_options *o) {
    size_t at = packing->sequence_offsets[sequence];
    int64_t length = 0;
    for (size_t i = 0; i < trajectory->n_histories; i++) {
        const rein_history *h = &trajectory->histories[i];
        const float *recorded = rein_history_recorded(h);
        for (size_t k = 0; k < h->n; k++, at++) {
            length += h->mask[k] != 0;
            packing->mask[at] = h->mask[k] && !(o->use.mask_truncated && trajectory->truncated);
            packing->recorded[at] = h->mask[k] ? recorded[k] : NAN;
            if (packing->values) packing->values[at] = h->values[k];
        }
    }
    packing->sequence_offsets[sequence + 1] = at;
    packing->rewards[sequence] = trajectory->reward;
    packing->lengths[sequence] = length;
    packing->sampled_now[sequence] = o->policy_step >= 0 && trajectory->policy_step == o->policy_step;
}

static rein_status put_budget(rein_packing *packing, size_t sequence, const rein_trajectory *trajectory, double common,
                              rein_error *err) {
    if (!packing->budgets) return REIN_OK;
    if (trajectory->budget < 0 && !(common >= 0))
        return rein_fail_at(err, REIN_EINVAL, "token_budget", -1,
                            "is missing: trajectory %zu has no budget, and others have their own", sequence);
    packing->budgets[sequence] = trajectory->budget >= 0 ? trajectory->budget : (int64_t)common;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------- for the model */

/* The number of untrained tokens that all histories begin with; at least one of each history remains. */
static size_t shared_length(const rein_history **histories, size_t n) {
    size_t length = histories[0]->n - 1;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < length && k < histories[i]->n - 1 && !histories[i]->mask[k] && histories[i]->ids[k] == histories[0]->ids[k]) k++;
        length = k;
    }
    return length;
}

typedef struct packed_room {
    size_t *offsets, *index;
    int64_t *parents;
    int32_t *ids;
    uint8_t *wanted;
    uint64_t *keys; /* [segments] of the activation cache */
} packed_room;

static void put_tokens(packed_room *room, size_t *at, const rein_history *h, size_t from, size_t to, size_t place,
                       const rein_packing *packing) {
    for (size_t k = from; k < to; k++, (*at)++) {
        room->ids[*at] = h->ids[k];
        room->index[*at] = place + k;
        room->wanted[*at] = packing->mask[place + k];
    }
}

/* A root that all histories share, if there is one, then the rest of each history. */
static rein_status make_micro_batch(rein_micro_batch *micro_batch, const rein_history **histories, size_t n, size_t first_token,
                                    const rein_packing *packing, int no_sharing, rein_arena *arena, rein_error *err) {
    const size_t shared = n > 1 && !no_sharing ? shared_length(histories, n) : 0;
    size_t tokens = shared, at = 0, segment = 0, place = first_token;
    for (size_t i = 0; i < n; i++) tokens += histories[i]->n - shared;
    packed_room room = {rein_arena_take(arena, (n + 2) * sizeof(size_t)),
                        rein_arena_take(arena, tokens * sizeof(size_t)),
                        rein_arena_take(arena, (n + 1) * sizeof(int64_t)),
                        rein_arena_take(arena, tokens * sizeof(int32_t)),
                        rein_arena_take(arena, tokens),
                        rein_arena_take(arena, (n + 1) * sizeof(uint64_t))};
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for a group of %zu tokens", tokens);
    room.offsets[0] = 0;
    if (shared) {
        put_tokens(&room, &at, histories[0], 0, shared, place, packing);
        room.keys[segment] = histories[0]->activation_key;
        room.parents[segment++] = -1;
        room.offsets[segment] = at;
    }
    for (size_t i = 0; i < n; i++) {
        put_tokens(&room, &at, histories[i], shared, histories[i]->n, place, packing);
        room.keys[segment] = histories[i]->activation_key;
        room.parents[segment++] = shared ? 0 : -1;
        room.offsets[segment] = at;
        place += histories[i]->n;
    }
    micro_batch->tokens = (rein_tokens){segment, room.offsets, room.parents, room.ids, room.wanted, room.keys};
    micro_batch->index = room.index;
    return REIN_OK;
}

/* A micro-batch has whole trajectories, as many as the limit allows, at least one. */
static rein_status make_micro_batches(rein_packing *packing, const rein_group *group, size_t g, const rein_packing_options *o,
                                      rein_arena *arena, rein_error *err) {
    const size_t base = packing->group_offsets[g];
    for (size_t first = 0, last; first < group->n; first = last) {
        size_t n = group->trajectories[first].n_histories;
        for (last = first + 1; last < group->n && n + group->trajectories[last].n_histories <= o->share_limit; last++)
            n += group->trajectories[last].n_histories;
        const rein_history **histories = rein_arena_take(arena, n * sizeof *histories);
        if (!histories) return rein_fail(err, REIN_ENOMEM, "no memory for a group of %zu histories", n);
        n = 0;
        for (size_t t = first; t < last; t++)
            for (size_t i = 0; i < group->trajectories[t].n_histories; i++) histories[n++] = &group->trajectories[t].histories[i];
        rein_micro_batch *micro_batch = &packing->micro_batches[packing->n_micro_batches++];
        *micro_batch = (rein_micro_batch){.group = g, .first = base + first, .last = base + last};
        const rein_status status = make_micro_batch(micro_batch, histories, n, packing->sequence_offsets[base + first], packing,
                                                    o->no_sharing, arena, err);
        if (status) return status;
    }
    return REIN_OK;
}

rein_status rein_pack_groups(rein_packing *packing, const rein_groups *groups, const rein_packing_options *o, rein_arena *arena,
                             rein_error *err) {
    rein_status status = rein_groups_check(groups, &o->use, err);
    if (status) return status;
    count(packing, groups);
    take(packing, groups, o, arena);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", packing->n_tokens);
    size_t sequence = 0;
    packing->sequence_offsets[0] = packing->group_offsets[0] = 0;
    for (size_t g = 0; g < groups->n && !status; g++) {
        for (size_t t = 0; t < groups->groups[g].n && !status; t++, sequence++) {
            put_trajectory(packing, sequence, &groups->groups[g].trajectories[t], o);
            status = put_budget(packing, sequence, &groups->groups[g].trajectories[t], o->token_budget, err);
        }
        packing->group_offsets[g + 1] = sequence;
        if (!status) status = make_micro_batches(packing, &groups->groups[g], g, o, arena, err);
    }
    return status;
}
