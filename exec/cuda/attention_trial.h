/** @file attention_trial.h  Our own attention and cuDNN's attention on the same data: results and
 * times. */
#pragma once

#include "exec/cuda/lane.h"
#include "exec/gpu/calls.h"

/** rpexec_cuda_calls.attention_try. The lane must have cuDNN's plan for `sizes`. */
rp_status rpexec_cuda_attention_try(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    rpexec_attention_trial *trial_out, const char **why_out);
