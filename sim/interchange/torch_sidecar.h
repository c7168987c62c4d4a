/** @file torch_sidecar.h  The side-car: JSON beside a schedule CSV, with data that the CSV format
 * cannot hold.
 *
 * An object with these keys: "x-rpsim-schedule" (2, the version), "schedule" (its name, a label),
 * "placement" and "versions" of weights and a list of "traits", as in the program text
 * (common/program/traits.h), "recompute", "microbatches", "layers" (of the model), "forward_layers"
 * and "backward_layers" (a pair [begin, end) for each stage, in the order of execution;
 * "backward_layers" null: each stage runs both directions), and "ranks" (for each rank the
 * ascending numbers of the stages that it runs). Stages are numbered consecutively, forward stages
 * first. Costs are still given by --costs, sizes by --microbatch-size and --seq-len. */
#pragma once

#include "common/torch/torch_csv.h"

typedef struct rpsim_sidecar {
    const char *name; /**< name of the file, for messages */
    const char *schedule;
    rp_traits traits;
    rp_recompute recompute;
    uint32_t microbatches;
    uint32_t layers;
    rp_partition partition; /**< backward_count 0: each stage runs both directions */
    uint32_t rank_count;
    uint32_t *stage_counts; /**< [rank] */
    uint32_t **rank_stages; /**< [rank][stage_counts[rank]] ascending */
} rpsim_sidecar;

/** Writes a program's side-car. @param stream its errors stay with it @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_sidecar_write(const rp_program *program, const rp_torch_csv *csv, rp_arena *arena,
                              FILE *stream);

/**
 * Reads a side-car.
 * @param name file name for messages; must outlive the result
 * @param sidecar_out lives in `arena`
 * @retval RP_OK, RP_INPUT (logged: "name: key: cause; valid …", with a line number if it is no
 *         JSON), RP_NO_MEMORY
 */
rp_status rpsim_sidecar_read(const char *name, const char *text, size_t length, rp_arena *arena,
                             rpsim_sidecar *sidecar_out);

/** Sets `separate` and forward_count of a parsed CSV. */
void rpsim_sidecar_apply(const rpsim_sidecar *sidecar, rp_torch_csv *csv);

/**
 * Checks that the CSV has the side-car's stages, microbatches and ranks.
 * @param csv has passed rp_torch_csv_check
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpsim_sidecar_check(const rpsim_sidecar *sidecar, const rp_torch_csv *csv,
                              rp_arena *arena);

/**
 * Makes the schedule that runs the CSV's orders under the side-car's name, with the placement of
 * the registered schedule of that name.
 * @param sidecar NULL: gives rp_torch_csv_schedule unchanged
 * @param schedule_out lives in `arena`
 * @retval RP_OK, RP_INPUT (a schedule without orders of stages; logged), RP_NO_MEMORY
 */
rp_status rpsim_sidecar_schedule(const rpsim_sidecar *sidecar, rp_arena *arena,
                                 const rp_schedule_type **schedule_out);
