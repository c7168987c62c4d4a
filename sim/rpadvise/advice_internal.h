/** @file advice_internal.h  Parts of the answer. */
#pragma once

#include "sim/rpadvise/advice.h"

/** @return of GPU and host memory, what is needed over what there is; the larger, and next to
 * nothing of the smaller. */
double rpadvise_shortfall(const rpadvise_outcome *outcome);

/** @return the run of a family that needs least. */
const rpadvise_outcome *rpadvise_least_of(const rpadvise_family *family);

/**
 * Runs in full the run of a family that needs least, in a batch of its own.
 * @retval as rpadvise_try
 */
rp_status rpadvise_run_least(const rpadvise_search *search, const rpadvise_family *family,
                             rpadvise_trial *trial_out);

/** A partition that was found is one for these sizes only: takes it away. */
void rpadvise_drop_list(rpadvise_candidate *candidate);

/** Asks for so many GPUs of a server, which has as many then. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_set_gpus(const rpadvise_search *search, const rp_platform *platform,
                            uint32_t gpus, rpsim_setup *work);

/** Finds what would change the answer (changes.c). @retval as rpadvise_advice_make */
rp_status rpadvise_changes_find(rpadvise_advice *advice);

/** Where nothing fits: tries what might help, adds what does to the changes and what does not to
 * what is `vain` (remedies.c). @retval as rpadvise_advice_make */
rp_status rpadvise_remedies_find(rpadvise_advice *advice);
