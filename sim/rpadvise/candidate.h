/** @file candidate.h  A configuration that the search tries: some options of rpsim. */
#pragma once

#include "common/base/mem.h"
#include "common/program/dtype.h"
#include "common/schedule/schedule_type.h"

/** Work and server, which all candidates of a search share. */
typedef struct rpadvise_work {
    const char *model;
    const char *platform;
    uint32_t gpus;            /**< as given, of a server with nodes; 0: the platform's */
    uint32_t nodes;           /**< as given; 0: as the platform's file says */
    uint32_t lora_rank;       /**< as given; 0: as the model says */
    const char *assume;       /**< as given; NULL: not */
    rp_arithmetic arithmetic; /**< accumulation USUAL: as not given */
    uint32_t seq_len;         /**< as given; 0: the cost table's */
    uint32_t global_batch;    /**< as given; 0: free */
    uint64_t seed;
    const char *change; /**< of --set, what if the server were another one; NULL: none */
} rpadvise_work;

typedef struct rpadvise_candidate {
    const rp_schedule_type *schedule;
    bool asynchronous;
    rp_recompute recompute;
    bool layer_grain;
    const char *partition;    /**< of --partition; NULL: rpsim's default */
    uint32_t nodes;           /**< that are used; 0: the work's */
    uint32_t data_parallel;   /**< copies; 0: one */
    uint32_t tensor_parallel; /**< GPUs of a layer; 0: one */
    uint32_t microbatch_size;
    uint32_t microbatches; /**< of a call, of one copy */
    uint32_t calls;
} rpadvise_candidate;

/** Manner of a run; zeroed: as the candidate's command says, without intervals. */
typedef struct rpadvise_manner {
    uint32_t iterations; /**< 0: rpsim's default, a steady state */
    bool free_batch;  /**< without the batch that is given: the microbatches say how large it is */
    bool period_only; /**< neither bounds nor measures of one step */
    bool intervals;
    bool explain;
} rpadvise_manner;

/** @return copies of the pipeline. */
static inline uint32_t rpadvise_copies(const rpadvise_candidate *candidate)
{
    return candidate->data_parallel != 0 ? candidate->data_parallel : 1;
}

/** @return GPUs that do the same: copies of all GPUs of a layer. */
static inline uint32_t rpadvise_alike(const rpadvise_candidate *candidate)
{
    uint32_t tensor = candidate->tensor_parallel;
    return rpadvise_copies(candidate) * (tensor != 0 ? tensor : 1);
}

/** @return whether both are the same options. */
bool rpadvise_candidate_equal(const rpadvise_candidate *a, const rpadvise_candidate *b);

/** @return whether both are of the same schedule and optimizer mode. */
bool rpadvise_candidate_same_mode(const rpadvise_candidate *a, const rpadvise_candidate *b);

/**
 * Options of rpsim that run the candidate; what is rpsim's default is left out.
 * @param argv_out [*argc_out] the program's name first; in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpadvise_candidate_arguments(const rpadvise_work *work,
                                       const rpadvise_candidate *candidate,
                                       const rpadvise_manner *manner, rp_arena *arena,
                                       int *argc_out, char ***argv_out);

/**
 * The command line of rpsim that runs the candidate, for a user's shell.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpadvise_candidate_command(const rpadvise_work *work, const rpadvise_candidate *candidate,
                                     rp_arena *arena, const char **command_out);
