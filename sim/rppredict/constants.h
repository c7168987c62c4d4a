/** @file constants.h  The constants on which predictions rest: traces/configs/constants.csv. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdint.h>
#include <stdio.h>

/** A constant; text lives in the arena. */
typedef struct rpsim_constant {
    const char *group; /**< group: roundpipe (with its baselines), fsdp-a100 or megatron-a100 */
    const char *name;
    const char *platform; /**< platform that has the value; "": a model or the code has it */
    const char *model;    /**< name of the model that has the value, for all of its family; "": no
                             model has it */
    const char *key;      /**< key of the platform or the model; "": the value is in the code */
    const char *low;      /**< lower end of the range that physics allows, as written in the file */
    const char *high;
    const char *kind; /**< set (on a cell), assumed, or measured */
    const char *cell; /**< the cell that it is set on; "": none */
} rpsim_constant;

typedef struct rpsim_constants {
    rpsim_constant *items;
    uint32_t count;
} rpsim_constants;

/** @retval RP_OK, RP_INPUT, RP_IO (logged), RP_NO_MEMORY */
rp_status rpsim_constants_load(rp_arena *arena, rpsim_constants *constants_out);

/** @return the number of constants of a group that nobody has measured. @param set NULL, or
 * receives the number of these that are set on a cell */
uint32_t rpsim_constants_count(const rpsim_constants *constants, const char *group, uint32_t *set);

/** Prints how many constants each group has, in Markdown. */
void rpsim_constants_write(const rpsim_constants *constants, FILE *stream);
