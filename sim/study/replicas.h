/** @file replicas.h  Monte Carlo over a case: computes its iteration time in every replica of the
 * noise (noise.h). Programs are built and lowered once; replicas only simulate. */
#pragma once

#include "sim/run/hardware_case.h"
#include "sim/run/noise.h"

/**
 * Computes the iteration times of a schedule at stage fidelity. It is the period of rpsim_case_run,
 * and equals it exactly if CV is 0; a single asynchronous iteration has no period, so its makespan
 * is taken.
 * @param ps_out [noise->replicas] picoseconds
 * @retval as rpsim_case_run
 */
rp_status rpsim_case_replicate(const rp_schedule_type *schedule, const rp_schedule_config *config,
                               const rpsim_noise *noise, double *ps_out);

/**
 * Same as rpsim_case_replicate, for a program.
 * @param program accepted by rp_program_check
 */
rp_status rpsim_program_replicate(const rp_program *program, const rp_costs *costs,
                                  const rpsim_noise *noise, double *ps_out);

/**
 * Same as rpsim_case_replicate, at hardware fidelity: compute ops have noise, transfers and the
 * host do not.
 * @retval as rpsim_hardware_case_run
 */
rp_status rpsim_hardware_case_replicate(const rp_resolved *run, const rp_platform *platform,
                                        const rpsim_noise *noise, double *ps_out);

/** Same as rpsim_hardware_case_replicate, for an existing lowered program. */
rp_status rpsim_hardware_program_replicate(const rp_program *program, const rp_costs *costs,
                                           const rp_model *model, const rp_platform *platform,
                                           uint32_t seq_len, const rpsim_noise *noise,
                                           double *ps_out);
