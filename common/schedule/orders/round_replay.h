/** @file round_replay.h  Replays rounds of jobs on stateless GPUs by stage times, for schedules
 * that place by time (schedules.md 7).
 *
 * A job is a stage with all microbatches of its round, in order. Job j of a round is its forward
 * stage j or, after the forward stages, its backward stage j - #forward. A GPU runs its jobs
 * sequentially in the order of their dispatch; the only transfers are hops of boundary tensors that
 * change GPUs. The times of a replay equal those of the stage engine.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/even.h"
#include "common/schedule/schedule_type.h"

typedef struct rp_replay {
    const rp_program *program; /**< stages and chains are set */
    rp_stage_times times;
    int64_t *free_ps; /**< [gpu] end of its last job */
} rp_replay;

/** A round and its progress through the stages. */
typedef struct rp_replay_round {
    uint32_t count;        /**< microbatches */
    uint32_t next;         /**< next job; #forward + #backward: all jobs have run */
    uint32_t forward_gpu;  /**< GPU that ran the latest forward stage */
    uint32_t backward_gpu; /**< GPU that ran the latest backward stage */
    int64_t *forward_ps;   /**< [microbatch] end of its latest forward stage */
    int64_t *backward_ps;  /**< [microbatch] end of its latest backward stage */
} rp_replay_round;

/**
 * @param config config->costs must be set
 * @param replay_out all GPUs are free at time 0; arrays live in `arena`
 * @retval RP_OK, RP_INPUT (rp_stage_times_compute), RP_NO_MEMORY
 */
rp_status rp_replay_init(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, rp_replay *replay_out, rp_reason *reason);

/** Allocates a round of up to `capacity` microbatches. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_replay_round_init(uint32_t capacity, rp_arena *arena, rp_replay_round *round_out);

/** Makes `round` a new round of `count` microbatches, at most its capacity. */
void rp_replay_round_begin(uint32_t count, rp_replay_round *round);

/** @return time at which the first op of the round's next job would begin on `gpu`, in ps. */
int64_t rp_replay_start(const rp_replay *replay, const rp_replay_round *round, uint32_t gpu);

/** Runs the round's next job on `gpu`. */
void rp_replay_run(rp_replay *replay, rp_replay_round *round, uint32_t gpu);

/** @return whether all jobs of the round have run. */
bool rp_replay_done(const rp_replay *replay, const rp_replay_round *round);
