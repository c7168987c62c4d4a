/** @file small_instance.h  Small pipelines and RoundPipes as instances of the exact search
 * (tests/reference/slow_optimum.h), made only from a cost table and a partition. */
#pragma once

#include "common/schedule/schedule_type.h"
#include "tests/reference/slow_optimum.h"

/** Choices that the search has in addition to the order. */
typedef enum rp_test_freedom {
    RP_TEST_FIXED,     /**< stage s is on GPU s mod N, as in schedules.md 1 */
    RP_TEST_ANY_GPU,   /**< a stage is on any GPU, with both directions on the same GPU */
    RP_TEST_ANY_BATCH, /**< every microbatch of a stage is on any GPU, in each direction */
} rp_test_freedom;

/**
 * Makes a pipeline.
 * @param config gpus, microbatches, recompute, partition (without backward stages) and costs are
 * read
 * @param split makes backwards in two parts, with the weight part on the same GPU
 * @return false if it has more jobs than the search takes
 */
bool rp_test_pipeline_instance(const rp_schedule_config *config, bool split,
                               rp_test_freedom freedom, slow_instance *out);

/**
 * Makes a RoundPipe with every job (a stage of a round, in either direction) on any GPU.
 * @param config as above, with backward stages; also round
 */
bool rp_test_roundpipe_instance(const rp_schedule_config *config, slow_instance *out);
