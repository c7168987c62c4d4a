#include "common/inputs/types/stored.h"

#define NF4_TABLE (16u * sizeof(float))
#define SCALE_BLOCK 256u
#define SCALE_TABLE (256u * sizeof(float) + sizeof(float)) /* and their offset */
#define MX_BLOCK 32u
#define STATE_BLOCK 256u
#define STATE_LEAST 4096u /* bitsandbytes' min_8bit_size */

static uint64_t blocks(uint64_t count, uint64_t size)
{
    return (count + size - 1) / size;
}

rp_stored rp_stored_matrix(rp_frozen frozen, uint64_t rows, uint64_t columns, uint64_t value_bytes)
{
    uint64_t values = rows * columns;
    uint64_t scales = blocks(values, RP_NF4_BLOCK);
    switch (frozen) {
    case RP_FROZEN_BF16:
        return (rp_stored){2 * values, 0};
    case RP_FROZEN_FP8:
        return (rp_stored){values, sizeof(float) * rows};
    case RP_FROZEN_NF4:
        return (rp_stored){blocks(values, 2), scales + sizeof(float) * blocks(scales, SCALE_BLOCK) +
                                                  NF4_TABLE + SCALE_TABLE};
    case RP_FROZEN_NF4_SINGLE:
        return (rp_stored){blocks(values, 2), sizeof(float) * scales + NF4_TABLE};
    case RP_FROZEN_MXFP4:
        return (rp_stored){blocks(values, 2), rows * blocks(columns, MX_BLOCK)};
    case RP_FROZEN_DTYPE:
    case RP_FROZEN_COUNT:
        break;
    }
    return (rp_stored){value_bytes * values, 0};
}

uint64_t rp_states_bytes(rp_states states, uint64_t elements)
{
    switch (states) {
    case RP_STATES_BF16:
        return 2 * 2 * elements;
    case RP_STATES_8BIT:
        if (elements >= STATE_LEAST) {
            return 2 * (elements + sizeof(float) * blocks(elements, STATE_BLOCK));
        }
        break;
    case RP_STATES_F32:
    case RP_STATES_COUNT:
        break;
    }
    return 2 * sizeof(float) * elements;
}

uint64_t rp_master_bytes(rp_master master)
{
    return master == RP_MASTER_F32 ? sizeof(float) : master == RP_MASTER_BF16 ? 2 : 0;
}
