/** @file torch_csv_internal.h  Internals of torch_csv.h; private to this folder. */
#pragma once

#include "common/base/log.h"
#include "common/torch/torch_csv.h"

#define RP_TORCH_NONE UINT32_MAX

/** Positions of actions: at[type][stage * microbatches + microbatch] is an action's index. */
typedef struct rp_torch_tables {
    /** NULL for types without microbatch or action; I shares the table of B. */
    uint32_t *at[RP_TORCH_TYPE_COUNT];
} rp_torch_tables;

/** @return the index into rp_torch_tables.at for a type; I has the index of B. */
uint32_t rp_torch_table_of(uint8_t type);

/** @return the action's index; RP_TORCH_NONE if there is none. Arguments must be in range. */
uint32_t rp_torch_at(const rp_torch_csv *csv, const rp_torch_tables *tables, uint8_t type,
                     uint32_t stage, uint32_t microbatch);

/** Logs "file:line: row R, column C: 2F0 CAUSE" about an action. @return RP_INPUT */
rp_status rp_torch_refuse(const rp_torch_csv *csv, uint32_t rank, const rp_torch_action *action,
                          const char *format, ...) RP_PRINTF(4, 5);

/**
 * Each rank runs its row in order; a computation starts after its input, a receive after its send,
 * a wait after its receive. If ranks wait for each other for ever, logs the circle and the smallest
 * number of columns that has it.
 * @param csv has passed all other rules; stage_ranks is set
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rp_torch_dry_run(const rp_torch_csv *csv, const rp_torch_tables *tables, rp_arena *arena);

/** Numbers the cells of each row from 0. */
void rp_torch_set_columns(rp_torch_csv *csv);
