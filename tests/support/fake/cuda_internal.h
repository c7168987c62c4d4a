/** @file cuda_internal.h  Declarations shared by the fake's table, operators and attention. */
#pragma once

#include "exec/cuda/emulator/machine/machine_internal.h"
#include "exec/host/lane.h"
#include "exec/operators/calls.h"
#include "tests/support/fake/cuda.h"

/** The functions of the table that deal with attention (attention.c). */
bool rp_fake_find_cudnn(const char **name_out, const char **why_out);
rp_status rp_fake_attention_plan(rpexec_lane *lane, rp_arena *arena,
                                 const rpexec_attention_sizes *sizes, const char **why_out);
rp_status rp_fake_attention_try(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                rpexec_attention_trial *trial_out, const char **why_out);
void rp_fake_attention_own(rpexec_lane *lane);

/** A lane of the host backend, and the stream in which its operators are performed. */
typedef struct rp_fake_lane {
    rpexec_call_taker taker; /**< rp_fake_taker; must be the first member, see
                              * rpexec_noting_operators */
    struct rpexec_lane host;
    void *stream;
    rp_status status;
    bool is_closed;
    uint32_t planned; /**< sequences of the largest shape for which attention has a plan; 0: none */
} rp_fake_lane;

/** Performs operators in the lane's stream. */
extern const rpexec_call_taker rp_fake_taker;
