/** @file partition.h  Partitions of a model's layers into stages: their notation, the paper's
 * partitions (traces/partitions), and a partition by parameters. Arrays live in `arena`. */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/model.h"

/**
 * Layers per stage. backward_count == 0: the backward stages are the forward stages (pipelines).
 * Otherwise backward_layers is in execution order, the head's stage first (schedules.md 7).
 */
typedef struct rp_partition {
    uint32_t forward_count;
    uint32_t *forward_layers;
    uint32_t backward_count;
    uint32_t *backward_layers;
} rp_partition;

/**
 * Parses "3,3,4,…" or "fwd…|bwd…".
 * @param place "FILE:LINE", for messages; NULL: they name the setting `partition`
 * @retval RP_OK, RP_INPUT (refused; not a number, empty item, too many stages or layers),
 * RP_NO_MEMORY
 */
rp_status rp_partition_parse(const char *place, const char *text, rp_arena *arena,
                             rp_partition *partition_out, rp_reason *reason);

/** @return whether both give every stage the same number of layers. */
bool rp_partition_equal(const rp_partition *a, const rp_partition *b);

/** Writes the notation that rp_partition_parse reads. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_partition_text(const rp_partition *partition, rp_arena *arena, const char **text_out);

/**
 * A pipeline's contiguous stages with bytes of parameters as even as possible: the partition with
 * the least sum of squares, embedding counted with the first stage and head with the last. Among
 * equal partitions it is the one with most layers in front.
 * @param stages 1 .. RP_MAX_STAGES; time is linear in them and quadratic in layers
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_partition_balanced(const rp_model *model, uint32_t stages, rp_arena *arena,
                                rp_partition *partition_out);

/**
 * Looks up the partition that the paper lists for (schedule, model) in traces/partitions/paper.csv.
 * @param found_out false when it is not listed; nothing is logged then.
 * @retval RP_OK, RP_INPUT (the file is malformed), RP_NO_MEMORY
 */
rp_status rp_partition_published(const char *schedule, const char *model, rp_arena *arena,
                                 rp_partition *partition_out, bool *found_out);

/**
 * As rp_partition_published, from the bytes of such a table. Every row is checked, not only the
 * wanted row.
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_partition_find(const char *name, const char *bytes, size_t length,
                            const char *schedule, const char *model, rp_arena *arena,
                            rp_partition *partition_out, bool *found_out);
