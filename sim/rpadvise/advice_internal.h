/** @file advice_internal.h  Functions that the files of the answer share. */
#pragma once

#include "sim/rpadvise/advice.h"

/** @return need over limit, the larger value of GPU and host memory, plus a tiny share of the
 * smaller to order equal values. */
double rpadvise_shortfall(const rpadvise_outcome *outcome);

/** @return the run of a family that needs the least memory. */
const rpadvise_outcome *rpadvise_least_of(const rpadvise_family *family);

/**
 * Runs the run of a family that needs least in full, as a batch of its own.
 * @retval as rpadvise_try
 */
rp_status rpadvise_run_least(const rpadvise_search *search, const rpadvise_family *family,
                             rpadvise_trial *trial_out);

/** Removes a partition that the search has found: it suits only the sizes that it was found for. */
void rpadvise_drop_list(rpadvise_candidate *candidate);

/** Asks for this number of GPUs in a server, and gives the server as many if it has fewer. @retval
 * RP_OK, RP_NO_MEMORY */
rp_status rpadvise_set_gpus(const rpadvise_search *search, const rp_platform *platform,
                            uint32_t gpus, rpsim_setup *work);

/** Runs a row in full, and takes its intervals from a run of fewer iterations, because they are
 * shares of the speed, which a synchronous run reaches after two iterations and an asynchronous run
 * nearly after six. @retval as rpadvise_study */
rp_status rpadvise_row_run(const rpadvise_search *search, rpadvise_row *row);

/** Finds the best run of each system, and runs in full what has only short runs (software.c).
 * @retval as rpadvise_search_add */
rp_status rpadvise_software_find(rpadvise_search *search, rpadvise_advice *advice);

/** Sets the rows of the systems' best runs, with intervals. @retval as rpadvise_row_run */
rp_status rpadvise_software_draw(rpadvise_advice *advice);

/** Finds the changes that would change the answer (changes.c). @retval as rpadvise_advice_make */
rp_status rpadvise_changes_find(rpadvise_advice *advice);

/** Called if nothing fits: tries remedies, adds those that help to `changes` and the others to
 * `vain` (remedies.c). @retval as rpadvise_advice_make */
rp_status rpadvise_remedies_find(rpadvise_advice *advice);
