/* tape.c - from trajectory groups to arrays. */
#include "tape.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static rein_status check_history(const rein_history *h, size_t g, size_t t, size_t i, rein_error *err) {
    if (h->n == 0) return rein_fail(err, REIN_EINVAL, "groups[%zu].trajectories[%zu].histories[%zu] has no tokens", g, t, i);
    if (h->mask[0])
        return rein_fail(err, REIN_EINVAL,
                         "groups[%zu].trajectories[%zu].histories[%zu]: the first token is trained; nothing stands before it that "
                         "could predict it",
                         g, t, i);
    return REIN_OK;
}

static rein_status check_trajectory(const rein_trajectory *trajectory, size_t g, size_t t, rein_error *err) {
    if (!isfinite(trajectory->reward))
        return rein_fail(err, REIN_EINVAL, "groups[%zu].trajectories[%zu].reward is %g: a finite number", g, t, trajectory->reward);
    if (trajectory->n_histories == 0) return rein_fail(err, REIN_EINVAL, "groups[%zu].trajectories[%zu] has no history", g, t);
    rein_status status = REIN_OK;
    for (size_t i = 0; i < trajectory->n_histories && !status; i++) status = check_history(&trajectory->histories[i], g, t, i, err);
    return status;
}

static rein_status count(rein_tape *tape, const rein_groups *groups, rein_error *err) {
    rein_status status = REIN_OK;
    *tape = (rein_tape){.n_groups = groups->n};
    if (groups->n == 0) return rein_fail(err, REIN_EINVAL, "there are no groups");
    for (size_t g = 0; g < groups->n; g++) {
        if (groups->groups[g].n == 0) return rein_fail(err, REIN_EINVAL, "groups[%zu] has no trajectories", g);
        for (size_t t = 0; t < groups->groups[g].n && !status; t++) {
            const rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            if ((status = check_trajectory(trajectory, g, t, err))) return status;
            for (size_t i = 0; i < trajectory->n_histories; i++) tape->n_tokens += trajectory->histories[i].n;
            tape->n_sequences++;
        }
    }
    return status;
}

/* --------------------------------------------------------------------------------------------------- as the objective sees it */

static int all_have_values(const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++)
                if (!groups->groups[g].trajectories[t].histories[i].values) return 0;
    return 1;
}

/* One has its own; and, where nothing needs them, none would be without. */
static int have_budgets(const rein_groups *groups, const rein_tape_options *o) {
    size_t n = 0, own = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++, n++) own += groups->groups[g].trajectories[t].budget >= 0;
    return own > 0 && (o->needs_budgets || own == n || o->token_budget >= 0);
}

static void take(rein_tape *tape, const rein_groups *groups, const rein_tape_options *o, rein_arena *arena) {
    tape->group_offsets = rein_arena_take(arena, (tape->n_groups + 1) * sizeof *tape->group_offsets);
    tape->sequence_offsets = rein_arena_take(arena, (tape->n_sequences + 1) * sizeof *tape->sequence_offsets);
    tape->mask = rein_arena_take(arena, tape->n_tokens);
    tape->recorded = rein_arena_floats(arena, tape->n_tokens);
    tape->values = all_have_values(groups) ? rein_arena_floats(arena, tape->n_tokens) : NULL;
    tape->rewards = rein_arena_take(arena, tape->n_sequences * sizeof *tape->rewards);
    tape->lengths = rein_arena_take(arena, tape->n_sequences * sizeof *tape->lengths);
    tape->budgets = have_budgets(groups, o) ? rein_arena_take(arena, tape->n_sequences * sizeof *tape->budgets) : NULL;
    tape->sampled_now = rein_arena_take(arena, tape->n_sequences);
    tape->units = rein_arena_take(arena, tape->n_sequences * sizeof *tape->units); /* at most */
}

static void put_trajectory(rein_tape *tape, size_t sequence, const rein_trajectory *trajectory, const rein_tape_options *o) {
    size_t at = tape->sequence_offsets[sequence];
    int64_t length = 0;
    for (size_t i = 0; i < trajectory->n_histories; i++) {
        const rein_history *h = &trajectory->histories[i];
        for (size_t k = 0; k < h->n; k++, at++) {
            length += h->mask[k] != 0;
            tape->mask[at] = h->mask[k] && !(o->mask_truncated && trajectory->truncated);
            tape->recorded[at] = h->mask[k] ? h->log_probs[k] : NAN;
            if (tape->values) tape->values[at] = h->values[k];
        }
    }
    tape->sequence_offsets[sequence + 1] = at;
    tape->rewards[sequence] = trajectory->reward;
    tape->lengths[sequence] = length;
    tape->sampled_now[sequence] = o->policy_step >= 0 && trajectory->policy_step == o->policy_step;
}

static rein_status put_budget(rein_tape *tape, size_t sequence, const rein_trajectory *trajectory, double common, rein_error *err) {
    if (!tape->budgets) return REIN_OK;
    if (trajectory->budget < 0 && !(common >= 0))
        return rein_fail(err, REIN_EINVAL, "trajectory %zu has no budget, others have their own: token_budget is needed for it",
                         sequence);
    tape->budgets[sequence] = trajectory->budget >= 0 ? trajectory->budget : (int64_t)common;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------- as the model sees it */

/* How many tokens all histories begin with, and none of them trains; of each at least one remains. */
static size_t shared_length(const rein_history **histories, size_t n) {
    size_t length = histories[0]->n - 1;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < length && k < histories[i]->n - 1 && !histories[i]->mask[k] && histories[i]->ids[k] == histories[0]->ids[k]) k++;
        length = k;
    }
    return length;
}

typedef struct unit_room {
    size_t *offsets, *place;
    int64_t *parents;
    int32_t *ids;
    uint8_t *wanted;
    uint64_t *keys; /* [segments] of the activation cache */
} unit_room;

static void put_tokens(unit_room *room, size_t *at, const rein_history *h, size_t from, size_t to, size_t place,
                       const rein_tape *tape) {
    for (size_t k = from; k < to; k++, (*at)++) {
        room->ids[*at] = h->ids[k];
        room->place[*at] = place + k;
        room->wanted[*at] = tape->mask[place + k];
    }
}

/* A root that all share (when it is worth it), then what each history has of its own. */
static rein_status make_unit(rein_unit *unit, const rein_history **histories, size_t n, size_t first_token, const rein_tape *tape,
                             int no_sharing, rein_arena *arena, rein_error *err) {
    const size_t shared = n > 1 && !no_sharing ? shared_length(histories, n) : 0;
    size_t tokens = shared, at = 0, segment = 0, place = first_token;
    for (size_t i = 0; i < n; i++) tokens += histories[i]->n - shared;
    unit_room room = {rein_arena_take(arena, (n + 2) * sizeof(size_t)),
                      rein_arena_take(arena, tokens * sizeof(size_t)),
                      rein_arena_take(arena, (n + 1) * sizeof(int64_t)),
                      rein_arena_take(arena, tokens * sizeof(int32_t)),
                      rein_arena_take(arena, tokens),
                      rein_arena_take(arena, (n + 1) * sizeof(uint64_t))};
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for a group of %zu tokens", tokens);
    room.offsets[0] = 0;
    if (shared) {
        put_tokens(&room, &at, histories[0], 0, shared, place, tape);
        room.keys[segment] = histories[0]->activation_key;
        room.parents[segment++] = -1;
        room.offsets[segment] = at;
    }
    for (size_t i = 0; i < n; i++) {
        put_tokens(&room, &at, histories[i], shared, histories[i]->n, place, tape);
        room.keys[segment] = histories[i]->activation_key;
        room.parents[segment++] = shared ? 0 : -1;
        room.offsets[segment] = at;
        place += histories[i]->n;
    }
    unit->tokens = (rein_tokens){segment, room.offsets, room.parents, room.ids, room.wanted, room.keys};
    unit->place = room.place;
    return REIN_OK;
}

/* Whole trajectories, as many as the limit allows, at least one. */
static rein_status make_units(rein_tape *tape, const rein_group *group, size_t g, const rein_tape_options *o, rein_arena *arena,
                              rein_error *err) {
    const size_t base = tape->group_offsets[g];
    for (size_t first = 0, last; first < group->n; first = last) {
        size_t n = group->trajectories[first].n_histories;
        for (last = first + 1; last < group->n && n + group->trajectories[last].n_histories <= o->share_limit; last++)
            n += group->trajectories[last].n_histories;
        const rein_history **histories = rein_arena_take(arena, n * sizeof *histories);
        if (!histories) return rein_fail(err, REIN_ENOMEM, "no memory for a group of %zu histories", n);
        n = 0;
        for (size_t t = first; t < last; t++)
            for (size_t i = 0; i < group->trajectories[t].n_histories; i++) histories[n++] = &group->trajectories[t].histories[i];
        rein_unit *unit = &tape->units[tape->n_units++];
        *unit = (rein_unit){.group = g, .first = base + first, .last = base + last};
        const rein_status status =
            make_unit(unit, histories, n, tape->sequence_offsets[base + first], tape, o->no_sharing, arena, err);
        if (status) return status;
    }
    return REIN_OK;
}

rein_status rein_tape_make(rein_tape *tape, const rein_groups *groups, const rein_tape_options *o, rein_arena *arena,
                           rein_error *err) {
    rein_status status = count(tape, groups, err);
    if (status) return status;
    take(tape, groups, o, arena);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for %zu tokens", tape->n_tokens);
    size_t sequence = 0;
    tape->sequence_offsets[0] = tape->group_offsets[0] = 0;
    for (size_t g = 0; g < groups->n && !status; g++) {
        for (size_t t = 0; t < groups->groups[g].n && !status; t++, sequence++) {
            put_trajectory(tape, sequence, &groups->groups[g].trajectories[t], o);
            status = put_budget(tape, sequence, &groups->groups[g].trajectories[t], o->token_budget, err);
        }
        tape->group_offsets[g + 1] = sequence;
        if (!status) status = make_units(tape, &groups->groups[g], g, o, arena, err);
    }
    return status;
}
