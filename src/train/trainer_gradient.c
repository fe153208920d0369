/* trainer_gradient.c - the gradient of a step: shards, which are added by one fixed tree.
 *
 * Group i of a step belongs to shard i mod shards, and what belongs to a shard is added in order. Then neighbours are added, then neighbours
 * of those, and so on: for shards 0 to 7 that is ((0+1)+(2+3))+((4+5)+(6+7)). A shard without a gradient is left out. The tree depends on
 * the number of shards alone, so ranks can have whole shards: each adds what it has all of, and the rest of the tree is computed from the
 * sums of all, every rank for its part of the parameters.
 *
 * A sum lies in the buffer of its first shard. A buffer that was added to another is used again, so that shards which are computed one after
 * the other need at most log2(shards) + 1 buffers. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/pool.h"
#include "trainer.h"

enum { PIECE = 16384, STRETCH = 1 << 16 }; /* floats: of an addition, and of a message to each rank */

/* ---------------------------------------------------------------------------------------------------------------------- buffers */

static float *buffer(const rein_trainer *t, int i) { return t->buffers + (size_t)i * t->floats; }

static int take_buffer(rein_trainer *t) {
    int i = 0;
    while (t->taken[i]) i++; /* there are as many as shards */
    t->taken[i] = 1;
    return i;
}

static void give_buffer(rein_trainer *t, int i) {
    memset(buffer(t, i), 0, t->floats * sizeof(float));
    t->taken[i] = 0;
}

float *rein_trainer_shard(rein_trainer *t, size_t shard) {
    if (t->buffer_of[shard] < 0) t->buffer_of[shard] = take_buffer(t);
    return buffer(t, t->buffer_of[shard]);
}

void rein_trainer_clear(rein_trainer *t) {
    for (size_t s = 0; s < t->options.shards; s++) {
        if (t->taken[s]) give_buffer(t, (int)s);
        t->buffer_of[s] = -1;
    }
    t->groups = t->dealt = 0;
    t->holds = t->last_pass = 0;
}

/* ------------------------------------------------------------------------------------------------------------------------ shares */

size_t rein_trainer_shard_of(const rein_trainer *t, size_t group) { return (t->groups + group) % t->options.shards; }

void rein_trainer_deal(rein_trainer *t, size_t n_groups) {
    if (!t->dealt) t->dealt = n_groups < t->options.shards ? n_groups : t->options.shards;
}

/* Neighbours go to one rank. A step of fewer groups than shards is divided evenly too. */
size_t rein_trainer_rank_of(const rein_trainer *t, size_t shard) {
    const size_t n = t->dealt ? t->dealt : t->options.shards;
    return rein_ranks_owner(shard % n, n, rein_ranks_size(t->ranks));
}

/* --------------------------------------------------------------------------------------------------------------------- additions */

typedef struct addition {
    float *to;
    const float *from;
} addition;

typedef struct additions {
    addition *list;
    size_t n, floats;
} additions;

static void add_piece(void *context, size_t piece, int thread) {
    const additions *a = context;
    const size_t from = piece * PIECE, to = a->floats - from < PIECE ? a->floats : from + PIECE;
    (void)thread;
    for (size_t k = 0; k < a->n; k++) {
        float *sum = a->list[k].to;
        const float *other = a->list[k].from;
        for (size_t i = from; i < to; i++) sum[i] += other[i];
    }
}

/* In order, but piece by piece: a piece of every array is in the cache. */
static void add_all(const rein_trainer *t, additions *a) {
    if (a->n) rein_parallel(t->options.exec.threads, (a->floats + PIECE - 1) / PIECE, add_piece, a);
}

/* Adds the sum of shard `right` and its neighbours to that of `left`. */
static void merge(rein_trainer *t, size_t left, size_t right) {
    int *to = &t->buffer_of[left], *from = &t->buffer_of[right];
    if (*from < 0) return;
    if (*to >= 0) {
        addition one = {buffer(t, *to), buffer(t, *from)};
        add_all(t, &(additions){&one, 1, t->floats});
        give_buffer(t, *from);
    } else *to = *from;
    *from = -1;
}

static int has_all(const rein_trainer *t, size_t first, size_t last) {
    for (size_t s = first; s < last; s++)
        if (rein_trainer_rank_of(t, s) != rein_ranks_rank(t->ranks)) return 0;
    return 1;
}

void rein_trainer_close_shards(rein_trainer *t, size_t shard) {
    for (size_t width = 2; (shard + 1) % width == 0 && width <= t->options.shards; width *= 2)
        if (has_all(t, shard + 1 - width, shard + 1)) merge(t, shard + 1 - width, shard + 1 - width / 2);
}

/* -------------------------------------------------------------------------------------------------------------------- the whole tree */

/* The tree, as every rank computes it from who has which shard. A node is named by the shard in whose buffer its sum lies. */
typedef struct tree {
    size_t n;
    int *node;            /* [n] the node that begins at a shard, as the tree is climbed; -1: nothing has a gradient there */
    size_t *rank;         /* [n] of a node; RANKS: of several */
    size_t (*local)[2];   /* [n] additions of two nodes of one rank, in order */
    size_t (*between)[2]; /* [n] additions of nodes of several ranks */
    unsigned char *sent;  /* [n] 1: a node of one rank that an addition between ranks needs, or the root */
    size_t n_local, n_between;
    int root; /* -1: none */
} tree;

enum { SEVERAL = -1 };

static void free_tree(tree *w) {
    free(w->node);
    free(w->rank);
    free(w->local);
    free(w->between);
    free(w->sent);
}

static rein_status make_tree_room(tree *w, size_t n, rein_error *err) {
    *w = (tree){.n = n, .root = -1};
    w->node = malloc(n * sizeof *w->node);
    w->rank = malloc(n * sizeof *w->rank);
    w->local = malloc(n * sizeof *w->local);
    w->between = malloc(n * sizeof *w->between);
    w->sent = calloc(n, 1);
    return w->node && w->rank && w->local && w->between && w->sent ? REIN_OK : rein_no_memory(err);
}

static void join(tree *w, size_t left, size_t right) {
    const int a = w->node[left], b = w->node[right];
    w->node[right] = -1;
    if (b < 0) return;
    if (a < 0) {
        w->node[left] = b;
        return;
    }
    const size_t x = (size_t)a, y = (size_t)b;
    if (w->rank[x] == w->rank[y] && w->rank[x] != (size_t)SEVERAL) {
        w->local[w->n_local][0] = x, w->local[w->n_local++][1] = y;
        return;
    }
    w->between[w->n_between][0] = x, w->between[w->n_between++][1] = y;
    if (w->rank[x] != (size_t)SEVERAL) w->sent[x] = 1;
    if (w->rank[y] != (size_t)SEVERAL) w->sent[y] = 1;
    w->rank[x] = (size_t)SEVERAL;
}

/* holds [shards]: which rank has a gradient there, + 1; 0: none. */
static void climb(tree *w, const rein_trainer *t, const unsigned char *holds) {
    for (size_t s = 0; s < w->n; s++) {
        w->node[s] = holds[s] ? (int)s : -1;
        w->rank[s] = rein_trainer_rank_of(t, s);
    }
    for (size_t stride = 1; stride < w->n; stride *= 2)
        for (size_t s = 0; s + stride < w->n; s += 2 * stride) join(w, s, s + stride);
    w->root = w->node[0];
    if (w->root >= 0 && w->rank[w->root] != (size_t)SEVERAL) w->sent[w->root] = 1;
}

/* Which shards have a gradient, on any rank. Sums that a rank has made already are at their first shard. */
static rein_status find_holders(unsigned char *holds, rein_trainer *t, rein_error *err) {
    const size_t n = t->options.shards, ranks = rein_ranks_size(t->ranks);
    unsigned char *own = malloc(n), *all = malloc(n * ranks);
    rein_status status = own && all ? REIN_OK : rein_no_memory(err);
    for (size_t s = 0; s < n && !status; s++) own[s] = t->buffer_of[s] >= 0;
    if (!status) status = rein_ranks_gather(all, own, n, t->ranks, err);
    for (size_t s = 0; s < n && !status; s++) {
        holds[s] = 0;
        for (size_t r = 0; r < ranks; r++) holds[s] |= all[r * n + s];
    }
    free(own);
    free(all);
    return status;
}

static rein_status add_local(rein_trainer *t, const tree *w, rein_error *err) {
    const size_t rank = rein_ranks_rank(t->ranks);
    additions a = {.list = malloc((w->n_local + 1) * sizeof *a.list), .floats = t->floats};
    if (!a.list) return rein_no_memory(err);
    for (size_t i = 0; i < w->n_local; i++) {
        const size_t to = w->local[i][0], from = w->local[i][1];
        if (rein_trainer_rank_of(t, to) != rank) continue;
        a.list[a.n++] = (addition){buffer(t, t->buffer_of[to]), buffer(t, t->buffer_of[from])};
    }
    add_all(t, &a);
    free(a.list);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ between ranks */

/* The sums of all ranks, stretch by stretch: every rank sends each other the stretch of that one's part of the parameters. */
typedef struct meeting {
    rein_trainer *t;
    const tree *tree;
    size_t ranks, rank;
    size_t *begins;                /* [ranks + 1] of the parts */
    size_t *to_sizes, *from_sizes; /* [ranks] bytes */
    /* Two of each: while one stretch is packed or added, the other one travels. */
    float *out[2], *in[2];
    float **place[2]; /* [shards] of a node in `in` */
    float *sum;       /* [floats] where this rank's part of the sum goes */
} meeting;

static size_t count_sent(const meeting *m, size_t rank) {
    size_t n = 0;
    for (size_t s = 0; s < m->tree->n; s++) n += m->tree->sent[s] && rein_trainer_rank_of(m->t, s) == rank;
    return n;
}

static rein_status prepare(meeting *m, rein_error *err) {
    size_t all = 0;
    m->ranks = rein_ranks_size(m->t->ranks), m->rank = rein_ranks_rank(m->t->ranks);
    for (size_t s = 0; s < m->tree->n; s++) all += m->tree->sent[s];
    m->begins = malloc((m->ranks + 1) * sizeof *m->begins);
    m->to_sizes = calloc(m->ranks, sizeof *m->to_sizes);
    m->from_sizes = calloc(m->ranks, sizeof *m->from_sizes);
    int missing = !m->begins || !m->to_sizes || !m->from_sizes;
    for (int i = 0; i < 2; i++) {
        m->out[i] = malloc((count_sent(m, m->rank) * m->ranks + 1) * STRETCH * sizeof *m->out[i]);
        m->in[i] = malloc((all + 1) * STRETCH * sizeof *m->in[i]);
        m->place[i] = calloc(m->tree->n, sizeof *m->place[i]);
        missing |= !m->out[i] || !m->in[i] || !m->place[i];
    }
    if (missing) return rein_fail(err, REIN_ENOMEM, "no memory to exchange gradients between %zu ranks", m->ranks);
    rein_adamw_parts(m->begins, m->t->floats, m->ranks);
    return REIN_OK;
}

static void free_meeting(meeting *m) {
    free(m->begins);
    free(m->to_sizes);
    free(m->from_sizes);
    for (int i = 0; i < 2; i++) {
        free(m->out[i]);
        free(m->in[i]);
        free(m->place[i]);
    }
}

/* The floats of a stretch of the part of a rank. */
static size_t stretch_of(const meeting *m, size_t rank, size_t done) {
    const size_t size = m->begins[rank + 1] - m->begins[rank];
    return size <= done ? 0 : size - done < STRETCH ? size - done : STRETCH;
}

/* What this rank sends to each, and the room for what it gets from each. */
static void pack_stretch(meeting *m, size_t done) {
    const size_t mine = stretch_of(m, m->rank, done), side = done / STRETCH % 2;
    float *out = m->out[side], *in = m->in[side];
    for (size_t r = 0; r < m->ranks; r++) {
        const float *first_out = out, *first_in = in;
        const size_t n = stretch_of(m, r, done);
        for (size_t s = 0; s < m->tree->n; s++) {
            if (!m->tree->sent[s]) continue;
            const size_t owner = rein_trainer_rank_of(m->t, s);
            if (owner == r) m->place[side][s] = in, in += mine;
            if (owner != m->rank || !n) continue;
            memcpy(out, buffer(m->t, m->t->buffer_of[s]) + m->begins[r] + done, n * sizeof *out);
            out += n;
        }
        m->from_sizes[r] = (size_t)(out - first_out) * sizeof *out;
        m->to_sizes[r] = (size_t)(in - first_in) * sizeof *in;
    }
}

/* The upper part of the tree, in its order. */
static void add_stretch(const meeting *m, size_t done) {
    const tree *w = m->tree;
    const size_t n = stretch_of(m, m->rank, done);
    float **place = m->place[done / STRETCH % 2];
    for (size_t k = 0; k < w->n_between; k++) {
        float *sum = place[w->between[k][0]];
        const float *other = place[w->between[k][1]];
        for (size_t i = 0; i < n; i++) sum[i] += other[i];
    }
    if (n) memcpy(m->sum + m->begins[m->rank] + done, place[w->root], n * sizeof *m->sum);
}

static rein_status begin_stretch(meeting *m, size_t done, rein_error *err) {
    const size_t side = done / STRETCH % 2;
    pack_stretch(m, done);
    return rein_ranks_exchange_begin(m->in[side], m->to_sizes, m->out[side], m->from_sizes, m->t->ranks, err);
}

static rein_status meet(meeting *m, rein_error *err) {
    size_t largest = 0;
    rein_status status = rein_ranks_agree(m->t->ranks, prepare(m, err), err);
    for (size_t r = 0; r < m->ranks && !status; r++)
        if (m->begins[r + 1] - m->begins[r] > largest) largest = m->begins[r + 1] - m->begins[r];
    if (!status) status = begin_stretch(m, 0, err);
    for (size_t done = 0; done < largest && !status; done += STRETCH) {
        if (done + STRETCH < largest) status = begin_stretch(m, done + STRETCH, err);
        if (!status) status = rein_ranks_exchange_end(m->t->ranks, err);
        if (!status) add_stretch(m, done);
    }
    free_meeting(m);
    return status;
}

/* Where the sum of all ranks is put: a buffer of this rank. The stretches of its own part are sent before they are overwritten. */
static float *place_of_sum(rein_trainer *t) {
    for (size_t s = 0; s < t->options.shards; s++)
        if (t->buffer_of[s] >= 0) return buffer(t, t->buffer_of[s]);
    return buffer(t, take_buffer(t));
}

rein_status rein_trainer_sum(rein_trainer *t, rein_error *err) {
    tree w = {0};
    unsigned char *holds = malloc(t->options.shards);
    rein_status status = holds ? make_tree_room(&w, t->options.shards, err) : rein_no_memory(err);
    if (!status) status = find_holders(holds, t, err);
    if (!status) climb(&w, t, holds);
    if (!status) status = add_local(t, &w, err);
    float *sum = !status && !rein_ranks_several(t->ranks) ? buffer(t, t->buffer_of[w.root]) : NULL;
    if (!status && !sum) {
        sum = place_of_sum(t);
        status = meet(&(meeting){.t = t, .tree = &w, .sum = sum}, err);
    }
    if (!status) rein_parameters(t->parameters, t->model, t->adapter, sum);
    free_tree(&w);
    free(holds);
    return status;
}
