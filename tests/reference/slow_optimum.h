/* The least makespan of small instances, exactly: branch and bound over all schedules. Shares no
 * code with common/ or sim/.
 *
 * An instance has jobs. A job runs a stage in a single direction for `count` microbatches, all on
 * the same GPU: a given GPU, the GPU of another job, or any GPU. Microbatch m of a job begins after
 * microbatch m of each job in `after` has ended, and a hop later if the GPUs differ. Ops of the
 * same GPU never overlap; there is no other order between them. `pre` comes before `work` without a
 * gap and waits only for the GPU (RoundPipe's early pre-work, schedules.md 7).
 *
 * Microbatches of a job take the same time, so it may run them in ascending order: if an optimal
 * schedule does not, the op that a job runs as its k-th can be called microbatch k, in every job;
 * the k-th end of a job never comes before the k-th ends of the jobs for which it waits.
 *
 * The search dispatches ops in the order in which they begin, each as early as is then possible;
 * begins are taken without pre-work, so that an op comes after all ops for which it waits. This
 * finds every schedule whose idle times cannot be cut. A state is dropped if another state has done
 * the same ops on the same GPUs and is in no respect later. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SLOW_MOST_JOBS 24
#define SLOW_MOST_COUNT 8
#define SLOW_MOST_GPUS 4
#define SLOW_ANY_GPU (-1)

typedef struct slow_job {
    int64_t pre, work;
    int count;    /* microbatches */
    int after[2]; /* jobs with lower numbers */
    int after_count;
    int gpu;  /* a GPU, or SLOW_ANY_GPU */
    int with; /* a job with a lower number that runs on the same GPU; -1: none */
} slow_job;

typedef struct slow_instance {
    slow_job jobs[SLOW_MOST_JOBS];
    int job_count;
    int gpus;
    int64_t hop;
} slow_instance;

/* @return the least makespan if it is at most `known`, the makespan of some schedule; -1 if the
 * search would visit more than `most_states` states. Ends of ops that take no time do not count. */
int64_t slow_optimum(const slow_instance *instance, int64_t known, uint64_t most_states);
