/* block_panel.h - panels of quantised blocks: 16 columns side by side. Private.
 *
 * A panel block holds the blocks of 16 columns, transposed byte by byte: byte i of column j lies at i·16 + j, and the two bytes of an f16
 * stay together, so that the scale of column j is the 16-bit number j of its field. So sixteen rows of all columns are decoded with loads
 * of neighbouring bytes. */
#ifndef REIN_KERNEL_BLOCK_PANEL_H
#define REIN_KERNEL_BLOCK_PANEL_H

#include <stdint.h>
#include <string.h>

#include "gemm_block.h"

/* The bytes of a block that are two f16: the first byte of each; SIZE_MAX: none. */
static inline int rein_is_block_scale(rein_storage storage, size_t byte) {
    switch (storage) {
    case REIN_STORED_Q8_0:
    case REIN_STORED_Q4_0:
    case REIN_STORED_Q5_0: return byte == 0;
    case REIN_STORED_Q4_1:
    case REIN_STORED_Q5_1:
    case REIN_STORED_Q4_K:
    case REIN_STORED_Q5_K: return byte == 0 || byte == 2;
    case REIN_STORED_Q6_K: return byte == 208;
    default: return 0;
    }
}

/* Block `from` becomes column j of a panel block; NULL: zeros. */
static inline void rein_put_block(uint8_t *panel, const uint8_t *from, rein_storage storage, size_t j) {
    static const uint8_t zeros[REIN_STORAGE_BLOCK];
    const size_t bytes = rein_storage_bytes(storage, rein_storage_elements(storage));
    const uint8_t *block = from ? from : zeros;
    for (size_t i = 0; i < bytes; i++)
        if (rein_is_block_scale(storage, i)) memcpy(panel + i * GEMM_PANEL + 2 * j, block + i, 2), i++;
        else panel[i * GEMM_PANEL + j] = block[i];
}

#endif
