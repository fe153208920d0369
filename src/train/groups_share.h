/* groups_share.h - groups of trajectories as bytes that ranks exchange. Private.
 *
 * Everything is carried over, bit for bit, except the keys of the activation cache, which belong to the rank that sampled. */
#ifndef REIN_TRAIN_GROUPS_SHARE_H
#define REIN_TRAIN_GROUPS_SHARE_H

#include "dist/ranks.h"
#include "rein/text.h"
#include "rein/trajectory.h"

/* Appends the bytes of a group. */
rein_status rein_group_pack(rein_text *bytes, const rein_group *group, rein_error *err);

/* Reads one group from bytes [size] and appends it; *used is how many bytes it has. REIN_EINVAL: these are not the bytes of a group. */
rein_status rein_group_unpack(rein_groups *groups, size_t *used, const char *bytes, size_t size, rein_error *err);

/* Appends n groups in order, of which where[i] says where group i is. `own`, which becomes empty, has those of this rank in order. On failure
 * the groups are as they were. */
rein_status rein_groups_share(rein_groups *groups, rein_groups *own, const size_t *where, size_t n, rein_ranks *ranks,
                              rein_error *err);

#endif
