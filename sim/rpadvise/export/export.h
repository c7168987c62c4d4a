/** @file export.h  A configuration as the files that other systems read. */
#pragma once

#include "sim/rpadvise/export/systems.h"

/**
 * Says early whether rpadvise_export can write a folder: its parent is there, and it is no file
 * and has none.
 * @retval RP_OK, RP_USAGE (logged), RP_INPUT (logged)
 */
rp_status rpadvise_export_check(const char *dir);

/**
 * Writes a configuration for every system that can run it into a new folder: `roundpipe_config.py`,
 * `deepspeed.json`, `megatron-lm.sh`, `torch-pipelining.csv` with `torch-pipelining.json`,
 * `torch_fsdp.py`, `rpexec.sh`, and always `README.md`, which says of each system what its file
 * cannot express, or why it cannot run the configuration.
 *
 * All files appear together or none does: they are written to a folder beside `dir`, which then
 * gets its name.
 * @param row of hardware fidelity, prepared; it need not have run
 * @param command the line of rpsim that gives this row, its words as in a shell
 * @param dir does not exist or is an empty folder
 * @retval RP_OK, RP_USAGE (dir has files or is no folder; logged), RP_INPUT (it cannot be made, or
 *         systems.csv is malformed; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpadvise_export(const rpsim_row *row, const char *command, const char *dir,
                          rp_arena *arena);
