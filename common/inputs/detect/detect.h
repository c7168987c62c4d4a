/** @file detect.h  This machine as a platform: `--platform detect`, and the read part of
 * rpexec --platform-out.
 *
 * Read: sockets, cores and PCI tree (topology.h), memory, and GPUs with their links by NVML
 * (gpus.h). Everything else of a GPU is that of the shipped platform that names the product in its
 * `gpu_names`, marked as moved; a GPU that no platform names has peaks assumed by its generation,
 * cores and clock.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/detect/gpus.h"
#include "common/inputs/detect/topology.h"
#include "common/inputs/platform_write.h"

/** Value of --platform that stands for this machine, and the platform's name then. */
#define RP_PLATFORM_DETECT "detect"

/** The machine as system and driver describe it. */
typedef struct rp_detected_machine {
    rp_topology topology;
    rp_gpu_facts gpus[RP_GPUS_MOST]; /**< [gpu_count] */
    uint32_t gpu_count;
    const char *why_none; /**< why there are none; in the arena */
} rp_detected_machine;

/** @retval RP_OK (also without GPUs), RP_NO_MEMORY */
rp_status rp_detect_machine(rp_arena *arena, rp_detected_machine *machine_out);

/** A platform of GPUs that were detected. */
typedef struct rp_detected_platform {
    rp_noted_platform out; /**< without name, source and what is measured of the host */
    const char *head;      /**< comment lines for the file */
    const char *like;      /**< the shipped platform whose values the rest are */
} rp_detected_platform;

/**
 * Describes the GPUs of a machine that has some; all are taken to be as the first.
 * @param up_Bps, down_Bps rates of the first GPU's link as measured; 0: not measured
 * @retval RP_OK, RP_INPUT (traces cannot be read; logged), RP_NO_MEMORY
 */
rp_status rp_detect_gpus(const rp_detected_machine *machine, double up_Bps, double down_Bps,
                         rp_arena *arena, rp_detected_platform *platform_out);

/** Comment on sockets, memory and PCI, as lines of a file. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_detect_comment(const rp_topology *topology, rp_arena *arena, const char **lines_out);

/**
 * Writes this machine as a platform file; nothing is measured.
 * @param name of the platform
 * @retval RP_OK, RP_INPUT (no GPU, or traces cannot be read; logged), RP_NO_MEMORY
 */
rp_status rp_detect_write(const char *name, rp_arena *arena, FILE *stream);

/**
 * The file that rp_detect_write writes, as `--platform detect` reads it. The machine is looked at
 * once in a process. Threads may call it.
 * @param text_out zero-initialised by the caller, who ends it by rp_text_fini
 * @retval as above
 */
rp_status rp_detect_text(rp_arena *arena, rp_text *text_out);
