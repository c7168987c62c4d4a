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

/** The program that successive segments of the same length run, and its open resources: it is
 * planned once, and resident weights stay on the GPUs between segments. */
typedef struct rpexec_session {
    rp_arena *arena;     /* memory of the plan; NULL: there is no session */
    rp_program *program; /* made for the session; NULL: it runs the given program */
    rpexec_plan plan;
    rpexec_execution execution;
    rpexec_run *run; /* NULL: closed */
} rpexec_session;

/** Tag of messages of processes at the end; a run has smaller tags (execute_internal.h). */
#define RPEXEC_TAG_END (UINT64_C(1) << 63)

typedef struct rpexec_trainer {
    rpexec_options *o;           /* decisions of a program or the paper are filled in */
    rpexec_processes *processes; /* NULL: a single process */
    uint64_t sent_before;        /* bytes that the process has sent before it trains */
    int signal;                  /* signal that process 0 has got before a segment ended */
    rp_arena *arena;
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rpexec_state reference;     /* --check */
    rpexec_lane lane;           /* lane of the reference */
    uint32_t *sequences;        /* [microbatches of a step] */
    uint32_t slot_microbatches; /* as in the plan */
    uint32_t job_microbatches;  /* as in the plan */
    uint32_t batch;             /* sequences of a step, of all processes */
    rp_program *program;        /* --program-in; NULL: made for each segment */
    rp_resolved work;
    rpexec_machine machine;
    rp_costs flops; /* proportions of FLOP counts */
    rp_costs costs; /* measured costs, or `flops` */
    rpexec_prediction prediction;
    const char *conditions; /* conditions under which times are measured */
    rpexec_record record;
    rpexec_load load; /* load when the first step began */
    rp_partition partition;
    rpexec_tokens tokens;    /* mapping NULL: random tokens */
    rpexec_tokens evaluated; /* --eval-data */
    rpexec_progress progress;
    rpexec_adam adam;
    rpexec_outcome *outcome;
    double *reference_losses, *reference_norms; /* [steps] --check: the reference's */
    float *gradients[2]; /* --check: the first step's, ours and the reference's; NULL: none */
    double seconds;      /* seconds of all segments */
    rpexec_checkpoints checkpoints;
    rpexec_adapters adapters;     /* adapters with which the run begins; rank 0: none are read */
    rpexec_origin origin;         /* origin of the model */
    rpexec_companions companions; /* companions of the checkpoints; none without --save */
    rpexec_loss_log losses;
    rpexec_loss_line line; /* line of the step that has ended last */
    uint64_t steps_before; /* steps of the optimizer up to those that have ended */
    uint32_t ended;        /* steps of this run */
    double began_s;        /* begin of the run, s by the host's clock */
    double step_began_s;   /* begin of the current step */
    rpexec_session session;
    rp_timeline *timeline;  /* timeline of the last segment; NULL: none */
    rp_timeline *predicted; /* the same segment, simulated; NULL: none */
    rpexec_artefacts artefacts;
    const rpexec_driver_type *driver;
    rpexec_devices *devices; /* NULL: the driver has none */
    uint64_t gpu_bytes;      /* bytes of their memory; 0: not limited */
} rpexec_trainer;

/** @return microbatches of a step, in all its calls and copies; copy d has the d-th part. */
static inline uint32_t rpexec_trainer_microbatches(const rpexec_trainer *t)
{
    const rp_run *run = &t->o->run;
    return rp_layout_data(&run->layout) * run->accumulate * run->microbatches;
}

/** @return true for the process that writes files and messages: process 0, or the only process. */
static inline bool rpexec_trainer_leads(const rpexec_trainer *t)
{
    return t->processes == NULL || rpexec_processes_rank(t->processes) == 0;
}

/** Points a batch that has been read to this process's part. */
static inline void rpexec_trainer_take_part(const rpexec_trainer *t, rpexec_batch *batch)
{
    uint32_t rank = t->processes == NULL ? 0 : rpexec_processes_rank(t->processes);
    uint64_t first = (uint64_t)rank * (t->batch / t->o->run.nodes) * t->o->run.seq_len;
    batch->ids += first;
    batch->labels += first;
}

/**
 * Reads and checks everything that the options name, makes model, state and machine, and opens all
 * outputs. rpexec_train closes them, also after a failure.
 * @retval as rpexec_train before anything runs
 */
rp_status rpexec_trainer_set_up(rpexec_trainer *trainer);

/**
 * Ends the run if weights are not finite, or if a step has overflowed at the smallest scale of the
 * loss. Weights are checked if a loss of the `steps` steps after `done` is not finite, and if
 * `always`, for a save or the end of the run, where some loss must have been finite, too. With
 * steps == 0: before the first step.
 * @retval RP_OK, RP_TOOL (a tensor is not finite, or the step; logged), RP_NO_MEMORY
 */
rp_status rpexec_trainer_finite(const rpexec_trainer *trainer, uint32_t done, uint32_t steps,
                                bool always);

/**
 * Several processes must train alike: they compare the values of their options before anything is
 * read, and then the inputs that they have read, before anything is written. Paths may differ; for
 * weights, data and files the content counts (for large data a sample: rpexec_tokens_identity).
 * @retval RP_OK, RP_USAGE in all of them (something differs; logged by process 0), RP_LOST,
 *         RP_NO_MEMORY, RP_INPUT (logged)
 */
rp_status rpexec_trainer_compare_options(const rpexec_trainer *trainer);
rp_status rpexec_trainer_compare_inputs(const rpexec_trainer *trainer);

/** All processes go on from the checkpoint, which only process 0 has read. @retval RP_OK,
 * RP_LOST */
rp_status rpexec_trainer_share_state(rpexec_trainer *trainer);

/** Notes a signal that has come to process 0: all end after the same step. @retval as above */
rp_status rpexec_trainer_look_for_signal(rpexec_trainer *trainer);

/** Adds up the bytes that all processes have moved. @retval as above, RP_NO_MEMORY */
rp_status rpexec_trainer_add_bytes(const rpexec_trainer *trainer);

/** @return true if the steps of a segment, after `done`, are followed by an evaluation. */
bool rpexec_trainer_evaluates(const rpexec_trainer *trainer, uint32_t done, uint32_t steps);

/**
 * Notes the mean loss over --eval-data with the weights after these steps. The session is open, and
 * training goes on as if nothing had been evaluated.
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (logged)
 */
rp_status rpexec_trainer_evaluate(rpexec_trainer *trainer, uint32_t done, uint32_t steps);

/** --check: makes a second state that begins as the first, and room for the gradients of both.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_check_begin(rpexec_trainer *trainer);

/**
 * Trains the second state with the same batches in plain loops and notes the differences, in the
 * first step also of the gradients.
 * @param done steps before the segment
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_check_segment(rpexec_trainer *trainer, const rpexec_batch *batches, uint32_t done,
                               uint32_t steps);

/** Notes the error of a tensor's gradients against the expected gradients: the worst of all tensors
 * so far.
 */
void rpexec_check_tensor(const float *got, const float *expected, uint64_t elements,
                         rpexec_outcome *out);

/** @return the run's arithmetic: products of fp16 add up in fp32 unless it was told otherwise. */
rp_arithmetic rpexec_trainer_arithmetic(const rpexec_trainer *trainer);

/**
 * @return the largest error of a step's gradients against plain loops: in fp32 of max_grad_rel_err,
 * in 16 bits of max_grad_rms_err
 * @param others true if the backend's operators are not the host's
 */
double rpexec_check_tolerance(rp_dtype dtype, bool others, uint32_t microbatches, uint32_t layers);

/** @retval RP_OK, RP_TOOL (the differences are larger than rounding explains; logged) */
rp_status rpexec_check_end(const rpexec_trainer *trainer);
