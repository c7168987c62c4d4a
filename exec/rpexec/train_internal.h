/** @file train_internal.h  Inside of a training run (train*.c). Not for other modules. */
#pragma once

#include "exec/checkpoint/adapter_config.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/data/tokens.h"
#include "exec/host/lane.h"
#include "exec/measure/predict.h"
#include "exec/measure/record.h"
#include "exec/rpexec/artefacts.h"
#include "exec/rpexec/loss_log.h"
#include "exec/run/link_machine.h"
#include "exec/run/work.h"

/** The program that segments of the same length run one after the other, and what is open for it:
 * it is planned once, and resident weights stay on the GPUs between segments. */
typedef struct rpexec_session {
    rp_arena *arena;     /* of the plan; NULL: there is no session */
    rp_program *program; /* made for it; NULL: it runs the one that was given */
    rpexec_plan plan;
    rpexec_execution execution;
    rpexec_run *run; /* NULL: closed */
} rpexec_session;

/** Tag of what processes tell each other at the end; those of a run are below (execute_internal.h).
 */
#define RPEXEC_TAG_END (UINT64_C(1) << 63)

typedef struct rpexec_trainer {
    rpexec_options *o;           /* what a program or the paper decides is filled in */
    rpexec_processes *processes; /* NULL: one process */
    uint64_t sent_before;        /* bytes that the process has sent before it trains */
    int signal; /* that has come before a segment ended, as process 0 has seen it */
    rp_arena *arena;
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rpexec_state reference;     /* --check */
    rpexec_lane lane;           /* of the reference */
    uint32_t *sequences;        /* [microbatches of a step] */
    uint32_t slot_microbatches; /* of the plan */
    uint32_t job_microbatches;  /* likewise */
    uint32_t batch;             /* their sum, of all processes */
    rp_program *program;        /* --program-in; NULL: made for each segment */
    rp_resolved work;
    rpexec_machine machine;
    rp_costs flops; /* proportions of FLOP counts */
    rp_costs costs; /* measured ones, or these */
    rpexec_prediction prediction;
    const char *conditions; /* of the times that are measured */
    rpexec_record record;
    rpexec_load load; /* when the first step began */
    rp_partition partition;
    rpexec_tokens tokens;    /* mapping NULL: random ones */
    rpexec_tokens evaluated; /* --eval-data */
    rpexec_progress progress;
    rpexec_adam adam;
    rpexec_outcome *outcome;
    double *reference_losses, *reference_norms; /* likewise */
    float *gradients[2]; /* --check: of the first step, ours and the reference's; NULL: none */
    double seconds;      /* of all segments */
    rpexec_checkpoints checkpoints;
    rpexec_adapters adapters;     /* that the run begins with; rank 0: none are read */
    rpexec_origin origin;         /* of the model */
    rpexec_companions companions; /* of the checkpoints; none without --save */
    rpexec_loss_log losses;
    rpexec_loss_line line; /* of the step that has ended last */
    uint64_t steps_before; /* of the optimizer: those of the steps that have ended */
    uint32_t ended;        /* steps of this run */
    double began_s;        /* by the host's clock: the run */
    double step_began_s;   /* and the step that runs */
    rpexec_session session;
    rp_timeline *timeline;  /* of the last segment; NULL: none */
    rp_timeline *predicted; /* of the same, simulated; NULL: none */
    rpexec_artefacts artefacts;
    const rpexec_driver_type *driver;
    rpexec_devices *devices; /* NULL: the driver has none */
    uint64_t gpu_bytes;      /* of their memory; 0: not limited */
} rpexec_trainer;

/** @return microbatches of a step, of all its calls and copies; copy d has the d-th part of them.
 */
static inline uint32_t rpexec_trainer_microbatches(const rpexec_trainer *t)
{
    const rp_layout layout = rp_run_layout(&t->o->run);
    return rp_layout_data(&layout) * t->o->run.accumulate * t->o->run.microbatches;
}

/** @return true of the process that writes files and says things: process 0, or the only one. */
static inline bool rpexec_trainer_leads(const rpexec_trainer *t)
{
    return t->processes == NULL || rpexec_processes_rank(t->processes) == 0;
}

/** Points a batch that has been read to the part that this process has. */
static inline void rpexec_trainer_take_part(const rpexec_trainer *t, rpexec_batch *batch)
{
    uint32_t rank = t->processes == NULL ? 0 : rpexec_processes_rank(t->processes);
    uint64_t first = (uint64_t)rank * (t->batch / t->o->run.nodes) * t->o->run.seq_len;
    batch->ids += first;
    batch->labels += first;
}

/**
 * Reads and checks everything that the options name, makes model, state and machine, and opens what
 * is written. What is open afterwards, also after a failure, rpexec_train closes.
 * @retval as rpexec_train before anything runs
 */
rp_status rpexec_trainer_set_up(rpexec_trainer *trainer);

/**
 * Weights that are not finite end the run. They are looked at where a loss of `steps` steps behind
 * `done` is not finite, and where `always`. With steps == 0: before the first step. So does a step
 * that has overflowed at the smallest scale of the loss.
 * @retval RP_OK, RP_TOOL (a tensor is not finite, or the step; logged), RP_NO_MEMORY
 */
rp_status rpexec_trainer_finite(const rpexec_trainer *trainer, uint32_t done, uint32_t steps,
                                bool always);

/**
 * Several processes must train alike: they compare the values of their options before anything is
 * read, and then what they have read, before anything is written. Paths may differ; of
 * weights, data and files the content counts (of large data a sample: rpexec_tokens_identity).
 * @retval RP_OK, RP_USAGE in all of them (something differs; logged by process 0), RP_LOST,
 *         RP_NO_MEMORY, RP_INPUT (logged)
 */
rp_status rpexec_trainer_compare_options(const rpexec_trainer *trainer);
rp_status rpexec_trainer_compare_inputs(const rpexec_trainer *trainer);

/** All processes go on from the checkpoint that process 0 alone has read. @retval RP_OK, RP_LOST */
rp_status rpexec_trainer_share_state(rpexec_trainer *trainer);

/** Notes a signal that has come to process 0: all end after the same step. @retval as above */
rp_status rpexec_trainer_look_for_signal(rpexec_trainer *trainer);

/** Bytes that were moved become those of all processes. @retval as above, RP_NO_MEMORY */
rp_status rpexec_trainer_add_bytes(const rpexec_trainer *trainer);

/** @return true where the steps of a segment, behind `done`, are followed by an evaluation. */
bool rpexec_trainer_evaluates(const rpexec_trainer *trainer, uint32_t done, uint32_t steps);

/**
 * Notes the mean loss over --eval-data of what the steps up to these have learned. The session is
 * open, and training goes on as if nothing had been evaluated.
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (logged)
 */
rp_status rpexec_trainer_evaluate(rpexec_trainer *trainer, uint32_t done, uint32_t steps);

/** --check: makes a second state that begins as the first, and room for the gradients of both.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_check_begin(rpexec_trainer *trainer);

/**
 * Trains the second state with the same batches in plain loops and notes the differences; of the
 * first step also those of the gradients.
 * @param done steps before the segment
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_check_segment(rpexec_trainer *trainer, const rpexec_batch *batches, uint32_t done,
                               uint32_t steps);

/** Notes how far a tensor's gradients are from what is expected: the worst of all tensors so far.
 */
void rpexec_check_tensor(const float *got, const float *expected, uint64_t elements,
                         rpexec_outcome *out);

/** @return what the run computes in: products of fp16 add up in fp32 unless it was told otherwise.
 */
rp_arithmetic rpexec_trainer_arithmetic(const rpexec_trainer *trainer);

/**
 * @return how far gradients of one step may be from plain loops: in fp32 what max_grad_rel_err may
 * be, in 16 bits max_grad_rms_err
 * @param others true where the backend's operators are others than the host's
 */
double rpexec_check_tolerance(rp_dtype dtype, bool others, uint32_t microbatches, uint32_t layers);

/** @retval RP_OK, RP_TOOL (the differences are larger than rounding explains; logged) */
rp_status rpexec_check_end(const rpexec_trainer *trainer);
