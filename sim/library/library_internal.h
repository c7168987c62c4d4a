/** @file library_internal.h  Parts that the functions of the library share: beginning and end of a
 * call, inputs, and text that goes out. */
#pragma once

#include "common/base/text.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "sim/library/rpsim.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <locale.h>
#include <signal.h>
#include <stdatomic.h>

/* ---- calls ------------------------------------------------------------------------------------
 * Between beginning and end the thread has the locale of a program that sets none, messages are
 * kept instead of printed, and a pipe whose reader has gone is an error instead of a death.
 */

typedef struct rp_call {
    locale_t locale; /* of the thread before; (locale_t)0: unchanged */
    sigset_t signals;
    bool pipe_was_pending;
} rp_call;

/** Begins a call of a function that returns an rp_code; rp_call_end follows in every case. */
void rp_call_begin(rp_call *call);

/** Ends a call and sorts its messages. @return what the function returns */
rp_code rp_call_end(rp_call *call, rp_status status);

/**
 * Has `write` fill a stream, and gives what it wrote as a text.
 * @param text_out rp_free_json; NULL after a failure
 * @retval RP_OK, RP_NO_MEMORY, and what `write` gives
 */
rp_status rp_write_text(rp_status (*write)(void *context, FILE *stream), void *context,
                        char **text_out);

/* ---- inputs -----------------------------------------------------------------------------------
 */

struct rp_input {
    rp_arena *arena; /* holds the input, too */
    atomic_uint users;
    rp_kind kind;
    const char *asked; /* what rp_input_load was given */
    union {
        rp_model model;
        rp_platform platform;
        rp_costs costs;
    };
};

/** Counts a user of an input, who ends by rp_input_free. @return `input` */
const rp_input *rp_input_share(const rp_input *input);

/** Logs that a key is none of `count` names. @return RP_USAGE, RP_NO_MEMORY */
rp_status rp_refuse_key(const char *function, const char *key, const char *const *names,
                        size_t count);

/* ---- simulations ------------------------------------------------------------------------------
 */

typedef struct rp_op_list {
    rp_timed_op *ops; /* NULL: nobody has asked */
    uint32_t count;
} rp_op_list;

struct rp_simulation {
    rp_arena *arena; /* holds the simulation, too */
    const rp_input *inputs[3];
    struct rpsim_session *session;
    rpsim_options options;
    const char *command; /* as a command line of rpsim */
    rpsim_study study;
    rp_op_list *lists; /* [study.row_count] once it has run */
    bool begun;
    bool done;
};

/** Row of a run. @retval RP_OK, RP_USAGE (it has not run, or has no such row; logged) */
rp_status rp_simulation_row(const rp_simulation *simulation, uint32_t index, const char *function,
                            const rpsim_row **row_out);
