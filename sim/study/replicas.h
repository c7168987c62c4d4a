/** @file replicas.h  Monte Carlo over a case: its iteration time in every replica of the noise
 * (noise.h). Programs are built and lowered once; replicas only simulate.
 */
#pragma once

#include "sim/run/hardware_case.h"
#include "sim/run/noise.h"

/**
 * Iteration times of a schedule at stage fidelity: the period as of rpsim_case_run, exactly so
 * with a CV of 0; of one asynchronous iteration, which has none, the makespan.
 * @param ps_out [noise->replicas] picoseconds
 * @retval as rpsim_case_run
 */
rp_status rpsim_case_replicate(const rp_schedule_type *schedule, const rp_schedule_config *config,
                               const rpsim_noise *noise, double *ps_out);

/**
 * The same for a program.
 * @param program one that rp_program_check accepts
 */
rp_status rpsim_program_replicate(const rp_program *program, const rp_costs *costs,
                                  const rpsim_noise *noise, double *ps_out);

/**
 * The same at hardware fidelity: noise on compute ops; transfers and the host are what they are.
 * @retval as rpsim_hardware_case_run
 */
rp_status rpsim_hardware_case_replicate(const rp_resolved *run, const rp_platform *platform,
                                        const rpsim_noise *noise, double *ps_out);

/** The same for a lowered program that exists, of `schedule`, or NULL where that is not registered.
 */
rp_status rpsim_hardware_program_replicate(const rp_program *program, const rp_costs *costs,
                                           const rp_model *model, const rp_platform *platform,
                                           uint32_t seq_len, const rpsim_noise *noise,
                                           double *ps_out);
