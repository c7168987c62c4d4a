/* The least makespan of small instances, exactly: branch and bound over all schedules. Shares no
 * code with common/ or sim/.
 *
 * An instance has jobs. A job runs one stage in one direction for `count` microbatches, all on one
 * GPU, which may be given, be that of another job, or be free. Microbatch m of a job begins after
 * microbatch m of each job in `after` has ended, one hop later where the GPUs differ. Ops of one
 * GPU never overlap; nothing else orders them. `pre` comes before `work` without a gap and waits
 * for nothing but the GPU (RoundPipe's early pre-work, schedules.md 7).
 *
 * Microbatches of a job take the same time, so it may run them in ascending order: if an optimal
 * schedule does not, the op that a job runs as its k-th can be called microbatch k, in every job;
 * the k-th end of a job never comes before the k-th end of those it waits for.
 *
 * The search dispatches ops in the order in which they begin (their pre-work apart, so that nothing
 * comes before what it waits for), each as early as then possible: every schedule without idle time
 * that could be cut is found. A state that has done the same, on the
 * same GPUs, no earlier in any respect than another one is dropped. */
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
    int gpu;  /* or SLOW_ANY_GPU */
    int with; /* a job with a lower number on whose GPU it runs; -1: none */
} slow_job;

typedef struct slow_instance {
    slow_job jobs[SLOW_MOST_JOBS];
    int job_count;
    int gpus;
    int64_t hop;
} slow_instance;

/* The least makespan, if it is at most `known`, which some schedule reaches; -1 where the search
 * would visit more than `most_states` states. Ends of ops that take no time do not count. */
int64_t slow_optimum(const slow_instance *instance, int64_t known, uint64_t most_states);
