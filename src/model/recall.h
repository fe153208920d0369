/* recall.h - rows that sampling computed and training need not compute again. Private.
 *
 * What a token leaves in each layer depends on it and the tokens before it alone, bit for bit, whatever goes through the model beside it. So
 * rows are found by their tokens: a row is known by the row before it and its own id. One thread at a time. */
#ifndef REIN_MODEL_RECALL_H
#define REIN_MODEL_RECALL_H

#include "decoder.h"

enum { REIN_BEFORE_ALL = -1, REIN_NO_ROW = -2 }; /* the row before the first; a row that is not there */

/* Who adds rows. When there is no room left the oldest of those that have rows lose them, all at once: of a batch that is too large for it
 * some requests are whole, and not all of them in part. */
typedef struct rein_owner {
    uint64_t age, number; /* age: of the recall; 0: nobody's rows are kept */
} rein_owner;

/* One more owner, of rows of the policy as it is. Rows of another policy, or of this one before it changed, are forgotten, and their owners add
 * no more. recall may be NULL. */
rein_owner rein_recall_enter(rein_recall *recall, const rein_policy *policy);

/* The number of the row of `id` behind another one, or REIN_NO_ROW when there is no room. *fresh is the same if it is to be put, and REIN_NO_ROW
 * when it was there before. */
int64_t rein_recall_add(int64_t *fresh, rein_recall *recall, const rein_owner *owner, int64_t before, int32_t id);

/* What goes into a layer and, unless the passes compute that again, what it leaves; of all rows that have a number (rows [rows], or
 * REIN_NO_ROW) and were not lost since. x [rows][hidden]: what comes out of the last layer. */
void rein_recall_put(const rein_recall *recall, const int64_t *rows, size_t layer, const rein_kept *kept,
                     const rein_batch_rows *batch);
void rein_recall_put_last(const rein_recall *recall, const int64_t *rows, const float *x, const rein_batch_rows *batch);

/* Forgets all rows, those that were added and not put among them. recall may be NULL. */
void rein_recall_forget(rein_recall *recall);

/* Whether it serves passes with recompute alone. */
int rein_recall_of_inputs(const rein_recall *recall);

/* Whether rows of the policy as it is are there, such as a pass with or without recompute needs; then one of them, or REIN_NO_ROW. */
int rein_recall_serves(const rein_recall *recall, const rein_policy *policy, int recompute);
int64_t rein_recall_find(const rein_recall *recall, int64_t before, int32_t id);

/* The counterparts of putting, of rows that were found. With inputs_only of kept only x. */
void rein_recall_get(const rein_kept *kept, int inputs_only, const rein_recall *recall, const int64_t *rows, size_t layer,
                     const rein_batch_rows *batch);
void rein_recall_get_last(float *x, const rein_recall *recall, const int64_t *rows, const rein_batch_rows *batch);

#endif
