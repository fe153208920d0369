/* turns.c - conversations as the ids that were sampled.
 *
 * Text that a model wrote may have other tokens when it is encoded again, and a template may write an answer otherwise than the model did.
 * So the ids of prompt and answer are remembered with the text that the conversation is rendered to, up to the end of the answer. The next
 * turn of that conversation is rendered to a text that begins with it. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

typedef struct turn {
    struct turn *next; /* older */
    size_t length, covered, n;
    int32_t *ids; /* [n], in the same block, before the text */
    char *text;   /* [length] */
} turn;

struct turns {
    pthread_mutex_t lock;
    turn *newest;
    size_t bytes, max_bytes;
};

static size_t bytes_of(const turn *t) { return sizeof *t + t->n * sizeof *t->ids + t->length; }

turns *turns_open(size_t max_bytes) {
    turns *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->max_bytes = max_bytes;
    return t;
}

void turns_close(turns *t) {
    if (!t) return;
    for (turn *at = t->newest, *next; at; at = next) next = at->next, free(at);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Drops the oldest until all have room. */
static void drop_old(turns *t) {
    size_t bytes = 0;
    for (turn **at = &t->newest; *at;) {
        bytes += bytes_of(*at);
        if (bytes <= t->max_bytes) {
            at = &(*at)->next;
            continue;
        }
        for (turn *old = *at, *next; old; old = next) {
            next = old->next;
            t->bytes -= bytes_of(old);
            free(old);
        }
        *at = NULL;
    }
}

static bool is_text(const turn *t, const char *text, size_t length) {
    return t->length == length && !memcmp(t->text, text, length);
}

void turns_add(turns *t, const char *text, size_t length, size_t covered, const int32_t *ids, size_t n) {
    turn *made = malloc(sizeof *made + n * sizeof *ids + length);
    if (!made) return;
    *made = (turn){.length = length, .covered = covered, .n = n, .ids = (int32_t *)(made + 1)};
    made->text = (char *)(made->ids + n);
    memcpy(made->ids, ids, n * sizeof *ids);
    memcpy(made->text, text, length);
    pthread_mutex_lock(&t->lock);
    for (turn **at = &t->newest; *at; at = &(*at)->next) {
        if (!is_text(*at, text, length)) continue;
        turn *same = *at; /* the newest wins */
        *at = same->next;
        t->bytes -= bytes_of(same);
        free(same);
        break;
    }
    made->next = t->newest, t->newest = made;
    t->bytes += bytes_of(made);
    if (t->bytes > t->max_bytes) drop_old(t);
    pthread_mutex_unlock(&t->lock);
}

/* 1 if a content of a message has begun before this place and goes on behind it. */
static bool splits_content(const rein_rendered *rendered, size_t at) {
    for (size_t i = 0; i < rendered->n_literals; i++)
        if (rendered->literals[i].begin < at && at < rendered->literals[i].end) return true;
    return false;
}

size_t turns_find(rein_ids *ids, turns *t, const rein_rendered *rendered) {
    const turn *best = NULL;
    size_t length = 0;
    pthread_mutex_lock(&t->lock);
    for (const turn *at = t->newest; at; at = at->next) {
        if (at->length > rendered->text.length || (best && at->length <= best->length)) continue;
        if (!memcmp(at->text, rendered->text.data, at->length) && !splits_content(rendered, at->length)) best = at;
    }
    for (size_t i = 0; best && i < best->n; i++) {
        if (rein_ids_append(ids, best->ids[i], NULL)) best = NULL, ids->count = 0;
    }
    if (best) length = best->covered;
    pthread_mutex_unlock(&t->lock);
    return length;
}
