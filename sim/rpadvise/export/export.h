/** @file export.h  A configuration as the files that other systems read. */
#pragma once

#include "sim/rpadvise/export/systems.h"

/**
 * Checks early whether rpadvise_export can write a folder: its parent exists, and it is no file and
 * has no files.
 * @retval RP_OK, RP_USAGE (logged), RP_INPUT (logged)
 */
rp_status rpadvise_export_check(const char *dir);

/**
 * Writes a configuration for every system that can run it into a new folder: `roundpipe_config.py`,
 * `deepspeed.json`, `megatron-lm.sh`, `torch-pipelining.csv` with `torch-pipelining.json`,
 * `torch_fsdp.py`, `rpexec.sh`, and always `README.md`, which says for each system which settings
 * its file cannot express, or why it cannot run the configuration.
 *
 * Either all files appear or none: they are written to a folder beside `dir`, which is renamed to
 * `dir` at the end.
 * @param row of hardware fidelity, prepared; it need not have run
 * @param command rpsim's command line for this row, with its words as in a shell
 * @param dir does not exist or is an empty folder
 * @retval RP_OK, RP_USAGE (dir has files or is no folder; logged), RP_INPUT (it cannot be made, or
 *         systems.csv is malformed; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpadvise_export(const rpsim_row *row, const char *command, const char *dir,
                          rp_arena *arena);
