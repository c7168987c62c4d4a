/** @file make_program.h  A tiny valid program and its timeline, written by hand, without a schedule
 * or an engine. */
#pragma once

#include "common/timeline/timeline.h"

#include <stdbool.h>
#include <stddef.h>

/** Ops of rp_test_make_program. */
#define RP_TEST_OPS 9u

/**
 * Two GPUs, two stages (the second holds the head and no layers), two microbatches, an optimizer on
 * the host; four data waits, two control waits; an activation buffer of 1000 bytes per GPU and
 * microbatch, and a weight buffer of 500 bytes on the host. rp_program_check accepts it.
 */
rp_status rp_test_make_program(rp_program **program_out);

/** Makes its timeline, in odd picoseconds; op 6 takes no time. The makespan is 8500 ns. */
rp_status rp_test_make_timeline(const rp_program *program, rp_timeline **timeline_out);

/** Makes an empty temporary folder and returns its name; the caller removes it with rp_test_remove.
 */
const char *rp_test_make_folder(void);

/** Removes a folder of rp_test_make_folder with its files. @return the number of files */
size_t rp_test_remove(const char *folder);

/** Formats "folder/name" into one of four static buffers, in turn. */
const char *rp_test_path(const char *folder, const char *name);
