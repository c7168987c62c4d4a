/** @file instance.h  Planner inputs as JSON, in the form of golden/partition.json. */
#pragma once

#include "common/planner/planner.h"

/** Content of a file. */
typedef struct rpplan_instances {
    rp_plan_input *inputs;
    uint32_t count;
    bool is_list; /**< a list or an object with "examples"; otherwise a single object, and count is
                     1 */
} rpplan_instances;

/**
 * Reads an object with the keys mode, fwd_time, bwd_time, fwd_bytes, bwd_bytes, memory_limit (null:
 * none), min_stages, threshold_num and threshold_den; an example {…, "input": that object}; a list
 * of either; or {…, "examples": such a list}. All numbers are integers. With mode infer the bwd
 * lists may be empty or missing.
 * @param name origin of the bytes, for messages: "NAME:LINE: …" if the text is no JSON
 * @param instances_out lives in `arena`
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpplan_instances_parse(const char *name, const char *bytes, size_t length,
                                 rp_arena *arena, rpplan_instances *instances_out);

/**
 * Reads instances as rpplan_instances_parse does, but from a file ("-": stdin).
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rpplan_instances_load(const char *path, rp_arena *arena, rpplan_instances *instances_out);
