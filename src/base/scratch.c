/* scratch.c - one buffer for each thread, freed when the thread ends. */
#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct kept {
    size_t size; /* of data */
    int taken;
    void *data;
} kept;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int has_key;

static void forget(void *mine) {
    free(((kept *)mine)->data);
    free(mine);
}

static void make_key(void) { has_key = pthread_key_create(&key, forget) == 0; }

/* The calling thread's buffer, or NULL. */
static kept *mine(int make) {
    (void)pthread_once(&once, make_key);
    kept *m = has_key ? pthread_getspecific(key) : NULL;
    if (m || !make || !has_key) return m;
    m = calloc(1, sizeof *m);
    if (m && pthread_setspecific(key, m) != 0) free(m), m = NULL;
    return m;
}

void *rein_scratch_take(size_t bytes) {
    kept *m = bytes <= REIN_SCRATCH_KEPT ? mine(1) : NULL;
    if (!m || m->taken) return malloc(bytes ? bytes : 1);
    if (m->size < bytes || !m->data) {
        free(m->data);
        m->data = malloc(bytes ? bytes : 1);
        m->size = m->data ? bytes : 0;
    }
    m->taken = m->data != NULL;
    return m->data;
}

void rein_scratch_give(void *memory) {
    kept *m = mine(0);
    if (m && memory && m->data == memory) m->taken = 0;
    else free(memory);
}
