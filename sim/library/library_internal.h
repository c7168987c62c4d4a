/** @file library_internal.h  Types and functions that the library's files share: inputs and
 * simulations.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "sim/library/in_process.h"
#include "sim/library/rpsim.h"

#include <stdatomic.h>

/* ---- inputs ---------------------------------------------------------------------------------- */

struct rp_input {
    rp_arena *arena; /* holds the input, too */
    atomic_uint users;
    rp_kind kind;
    const char *asked; /* the name that rp_input_load was given */
    union {
        rp_model model;
        rp_platform platform;
        rp_costs costs;
    };
};

/** Counts a further user of an input; each user calls rp_input_free in the end. @return `input` */
const rp_input *rp_input_share(const rp_input *input);

/** Logs that a key is not among `count` names. @return RP_USAGE, RP_NO_MEMORY */
rp_status rp_refuse_key(const char *function, const char *key, const char *const *names,
                        size_t count);

/* ---- simulations ----------------------------------------------------------------------------- */

typedef struct rp_op_list {
    rp_timed_op *ops; /* NULL: not asked for yet */
    uint32_t count;
} rp_op_list;

struct rp_simulation {
    rp_arena *arena; /* holds the simulation, too */
    const rp_input *inputs[3];
    struct rpsim_session *session;
    rpsim_setup setup;
    const char *command; /* the settings as a command line of rpsim */
    rp_words *words;     /* further words of its command line; NULL: none */
    rpsim_study study;
    rp_op_list *lists; /* [study.row_count] after the run */
    bool begun;
    bool done;
};

/** Gives the row of a run. @retval RP_OK, RP_USAGE (it has not run, or has no such row; logged) */
rp_status rp_simulation_row(const rp_simulation *simulation, uint32_t index, const char *function,
                            const rpsim_row **row_out);
