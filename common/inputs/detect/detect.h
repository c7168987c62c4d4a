/** @file detect.h  This machine as a platform: `--platform detect`, and the read part of rpexec
 * --platform-out.
 *
 * Read: sockets, cores and PCI tree (topology.h), memory, and GPUs with their links by NVML
 * (gpus.h). All other values of a GPU are copied, marked as moved, from the shipped platform that
 * names the product in its `gpu_names`. The peaks of a GPU that no platform names are assumed from
 * its generation, cores and clock.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/detect/gpus.h"
#include "common/inputs/detect/topology.h"
#include "common/inputs/write/platform_write.h"

/** Value of --platform that means this machine; it is also that platform's name. */
#define RP_PLATFORM_DETECT "detect"

/** The machine as system and driver describe it. */
typedef struct rp_detected_machine {
    rp_topology topology;
    rp_gpu_facts gpus[RP_GPUS_MOST]; /**< [gpu_count] */
    uint32_t gpu_count;
    const char *why_none; /**< reason why there are no GPUs; in the arena */
} rp_detected_machine;

/** @retval RP_OK (also without GPUs), RP_NO_MEMORY */
rp_status rp_detect_machine(rp_arena *arena, rp_detected_machine *machine_out);

/** A platform that describes detected GPUs. */
typedef struct rp_detected_platform {
    rp_noted_platform out; /**< without name, source and the host's measured values */
    const char *head;      /**< comment lines for the head of the file */
    const char *like; /**< name of the shipped platform that the remaining values are copied from */
} rp_detected_platform;

/**
 * Describes the GPUs of a machine that has GPUs; memory and links one by one where
 * they differ; otherwise all are assumed to equal the first.
 * @param up_Bps, down_Bps measured rates of the first GPU's link; 0: not measured
 * @retval RP_OK, RP_INPUT (traces cannot be read; logged), RP_NO_MEMORY
 */
rp_status rp_detect_gpus(const rp_detected_machine *machine, double up_Bps, double down_Bps,
                         rp_arena *arena, rp_detected_platform *platform_out);

/** Writes a comment about sockets, memory and PCI, as lines of a file.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rp_detect_comment(const rp_topology *topology, rp_arena *arena, const char **lines_out);

/**
 * Writes this machine as a platform file; nothing is measured.
 * @param name the platform's
 * @retval RP_OK, RP_INPUT (no GPU, or traces cannot be read; logged), RP_NO_MEMORY
 */
rp_status rp_detect_write(const char *name, rp_arena *arena, FILE *stream);

/**
 * The file that rp_detect_write writes, as `--platform detect` reads it. The machine is looked at
 * once per process. Threads may call this function.
 * @param text_out zero-initialised by the caller, who ends it by rp_text_fini
 * @retval as rp_detect_write
 */
rp_status rp_detect_text(rp_arena *arena, rp_text *text_out);
