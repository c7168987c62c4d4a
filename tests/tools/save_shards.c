/* save_shards FROM TO BYTES: reads a checkpoint and writes its weights in bf16, in shards of at
 * most BYTES bytes (tests/tools/checkpoints.py). */
#include "common/base/text.h"
#include "exec/checkpoint/weights.h"

static rp_status save(const char *from, const char *to, uint64_t bytes, rp_arena *arena)
{
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    RP_TRY(rpexec_config_load(from, NULL, arena, &config));
    RP_TRY(rpexec_model_create(&config, 4, RP_DTYPE_BF16, arena, &model));
    RP_TRY(rpexec_state_create(&model, arena, &state));
    RP_TRY(rpexec_weights_load(from, &state));
    return rpexec_weights_write(&state, to, bytes);
}

int main(int count, char **words)
{
    rp_arena *arena = NULL;
    uint64_t bytes = 0;
    if (count != 4 || !rp_parse_u64(words[3], 1, UINT64_MAX, &bytes) ||
        rp_arena_create(&arena) != RP_OK) {
        return 2;
    }
    rp_status status = save(words[1], words[2], bytes, arena);
    rp_arena_destroy(arena);
    return status == RP_OK ? 0 : 1;
}
