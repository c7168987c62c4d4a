#include "common/timeline/timeline.h"

#include "common/base/hash.h"

rp_status rp_timeline_create(const rp_program *program, rp_timeline **timeline_out)
{
    *timeline_out = NULL;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_timeline *timeline = NULL;
    rp_status status = rp_arena_alloc(arena, 1, sizeof *timeline, &timeline);
    if (status != RP_OK) {
        goto destroy_arena;
    }
    timeline->program = program;
    timeline->arena = arena;
    status = rp_arena_alloc_raw(arena, program->op_count, sizeof(int64_t), &timeline->start_ps);
    if (status != RP_OK) {
        goto destroy_arena;
    }
    status = rp_arena_alloc_raw(arena, program->op_count, sizeof(int64_t), &timeline->end_ps);
    if (status != RP_OK) {
        goto destroy_arena;
    }
    *timeline_out = timeline;
    return RP_OK;

destroy_arena:
    rp_arena_destroy(arena);
    return status;
}

void rp_timeline_destroy(rp_timeline *timeline)
{
    if (timeline != NULL) {
        rp_arena_destroy(timeline->arena);
    }
}

uint64_t rp_timeline_hash(const rp_timeline *timeline)
{
    uint64_t hash = RP_HASH_SEED;
    for (uint32_t i = 0; i < timeline->program->op_count; i++) {
        hash = rp_hash_add(hash, (uint64_t)timeline->start_ps[i]);
        hash = rp_hash_add(hash, (uint64_t)timeline->end_ps[i]);
    }
    return hash;
}
