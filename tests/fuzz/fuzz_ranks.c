/* fuzz_ranks.c - any bytes as what another rank has sent (libFuzzer): refused, or groups of trajectories that are sent and read back as they
 * are. */
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "train/groups_share.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_groups groups = {0}, again = {0};
    rein_text first = {0}, second = {0};
    rein_error err = {0};
    size_t used = 0, read = 0;
    const rein_status status = rein_group_unpack(&groups, &used, (const char *)data, size, &err);
    require(used <= size && groups.n == (status == REIN_OK), "more was used than there is", err.message);
    if (!status) {
        require(!rein_group_pack(&first, &groups.groups[0], &err), "it cannot be written", err.message);
        require(!rein_group_unpack(&again, &read, first.data, first.length, &err), "it cannot be read again", err.message);
        require(read == first.length, "bytes are left", "");
        require(!rein_group_pack(&second, &again.groups[0], &err), "it cannot be written again", err.message);
        require(first.length == second.length && !memcmp(first.data, second.data, first.length), "it reads back otherwise", "");
    }
    rein_groups_free(&groups);
    rein_groups_free(&again);
    rein_text_free(&first);
    rein_text_free(&second);
    return 0;
}
