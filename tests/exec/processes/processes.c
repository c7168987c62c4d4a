/* Processes of a run as threads of a test, on TCP connections of their own: sums, shared arrays,
 * rates, and a process that fails. */
#include "exec/processes/processes.h"
#include "exec/operators/random.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define PROCESSES 3u
#define BYTES 1024u

TestSuite(exec_processes, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

typedef struct process process;

typedef struct job {
    pthread_barrier_t barrier;
    unsigned char said[PROCESSES][BYTES];
    double bits_per_s;
    void (*work)(process *p);
    process *all;
} job;

struct process {
    job *job;
    uint32_t rank;
    pthread_t thread;
    rpexec_processes *processes;
    rp_status opened;
    bool well; /* passed to rpexec_processes_close */
};

static job the_job;
static _Thread_local process *me;

static rp_status exchange(const void *own, size_t bytes, void *all_out)
{
    cr_assert(bytes <= BYTES);
    memcpy(the_job.said[me->rank], own, bytes);
    pthread_barrier_wait(&the_job.barrier);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        memcpy((unsigned char *)all_out + i * bytes, the_job.said[i], bytes);
    }
    pthread_barrier_wait(&the_job.barrier);
    return RP_OK;
}

static void end(void)
{
}

static void *run(void *context)
{
    process *p = context;
    me = p;
    const rpexec_launch launch = {
        .rank = p->rank, .count = PROCESSES, .exchange = exchange, .end = end};
    const rpexec_processes_config config = {.build = "test", .bits_per_s = p->job->bits_per_s};
    p->opened = rpexec_processes_open(&launch, &config, &p->processes);
    if (p->opened == RP_OK) {
        p->job->work(p);
    }
    (void)rpexec_processes_close(p->processes, p->well);
    return NULL;
}

static void run_all(void (*work)(process *p), double bits_per_s, process *all)
{
    the_job = (job){.work = work, .bits_per_s = bits_per_s, .all = all};
    pthread_barrier_init(&the_job.barrier, NULL, PROCESSES);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        all[i] = (process){.job = &the_job, .rank = i, .well = true};
        cr_assert(eq(int, pthread_create(&all[i].thread, NULL, run, &all[i]), 0));
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        pthread_join(all[i].thread, NULL);
        cr_assert(eq(int, all[i].opened, RP_OK));
    }
    pthread_barrier_destroy(&the_job.barrier);
}

/* ---- sums ------------------------------------------------------------------------------------ */

#define MOST 5000u
static const uint32_t counts[] = {0, 1, 15, 16, 17, 47, 48, 1000, MOST};
#define COUNTS (sizeof counts / sizeof counts[0])
static float sums[PROCESSES][COUNTS][MOST];
static double gathered[PROCESSES][PROCESSES];
static uint64_t sent[PROCESSES];

static float value_of(uint32_t rank, uint32_t round, uint32_t i)
{
    return (float)((double)(rpexec_random_bits(rank, round, i) >> 40) / 1e6 - 8);
}

static void sum_arrays(process *p)
{
    for (uint32_t k = 0; k < COUNTS; k++) {
        for (uint32_t i = 0; i < counts[k]; i++) {
            sums[p->rank][k][i] = value_of(p->rank, k, i);
        }
        (void)rpexec_processes_all_reduce(p->processes, k % 2, RP_DTYPE_F32, counts[k],
                                          sums[p->rank][k]);
    }
    sent[p->rank] = rpexec_processes_sent_bytes(p->processes);
    (void)rpexec_processes_gather(p->processes, 77, 1.5 + p->rank, gathered[p->rank]);
}

/* Values are added in the order of ranks, whichever process adds them. From each process 2 (n - 1)
 * / n of the bytes leave, from all together 2 (n - 1) times the bytes. */
Test(exec_processes, sums_have_the_same_bits_everywhere)
{
    process all[PROCESSES];
    uint64_t values = 0;
    run_all(sum_arrays, 0, all);
    for (uint32_t k = 0; k < COUNTS; k++) {
        values += counts[k];
        for (uint32_t i = 0; i < counts[k]; i++) {
            float sum = value_of(0, k, i);
            for (uint32_t rank = 1; rank < PROCESSES; rank++) {
                sum += value_of(rank, k, i);
            }
            for (uint32_t rank = 0; rank < PROCESSES; rank++) {
                cr_assert(eq(flt, sums[rank][k][i], sum), "array %u, value %u", k, i);
            }
        }
    }
    cr_expect(eq(u64, sent[0] + sent[1] + sent[2], 2 * (PROCESSES - 1) * values * sizeof(float)));
    for (uint32_t rank = 0; rank < PROCESSES; rank++) {
        for (uint32_t other = 0; other < PROCESSES; other++) {
            cr_expect(eq(dbl, gathered[rank][other], 1.5 + other));
        }
    }
}

/* ---- arrays of a single process -------------------------------------------------------------- */

static uint32_t shared[PROCESSES][PROCESSES];

static void share_arrays(process *p)
{
    for (uint32_t root = 0; root < PROCESSES; root++) {
        shared[p->rank][root] = p->rank == root ? 100 + root : 0;
        (void)rpexec_processes_meet(p->processes);
        (void)rpexec_processes_share(p->processes, root, &shared[p->rank][root],
                                     sizeof shared[0][0]);
    }
}

Test(exec_processes, all_get_what_one_has)
{
    process all[PROCESSES];
    run_all(share_arrays, 0, all);
    for (uint32_t rank = 0; rank < PROCESSES; rank++) {
        for (uint32_t root = 0; root < PROCESSES; root++) {
            cr_expect(eq(u32, shared[rank][root], 100 + root));
        }
    }
}

/* ---- rates ----------------------------------------------------------------------------------- */

#define LARGE 300000u
static float large[PROCESSES][LARGE];
static double seconds[PROCESSES];

static void time_a_sum(process *p)
{
    struct timespec begin;
    struct timespec end_time;
    for (uint32_t i = 0; i < LARGE; i++) {
        large[p->rank][i] = value_of(p->rank, COUNTS, i);
    }
    (void)rpexec_processes_meet(p->processes);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    (void)rpexec_processes_all_reduce(p->processes, 0, RP_DTYPE_F32, LARGE, large[p->rank]);
    clock_gettime(CLOCK_MONOTONIC, &end_time);
    seconds[p->rank] = (double)(end_time.tv_sec - begin.tv_sec) +
                       1e-9 * (double)(end_time.tv_nsec - begin.tv_nsec);
}

/* 2 (n - 1) / n of 1.2 MB at 80 Mbit/s take 160 ms; the machine may be busy. A process's part is
 * longer than a piece (processes_internal.h). */
Test(exec_processes, bytes_leave_at_the_rate_of_a_card)
{
    process all[PROCESSES];
    run_all(time_a_sum, 80e6, all);
    double least = 2.0 * (PROCESSES - 1) / PROCESSES * LARGE * sizeof(float) * 8 / 80e6;
    for (uint32_t rank = 0; rank < PROCESSES; rank++) {
        cr_expect(seconds[rank] >= 0.99 * least, "%u: %g s, not %g", rank, seconds[rank], least);
        cr_expect(seconds[rank] < least + 5, "%u: %g s, not %g", rank, seconds[rank], least);
    }
    for (uint32_t i = 0; i < LARGE; i++) {
        float sum = value_of(0, COUNTS, i) + value_of(1, COUNTS, i) + value_of(2, COUNTS, i);
        cr_assert(eq(flt, large[0][i], sum), "value %u", i);
    }
    cr_expect(eq(int, memcmp(large[0], large[1], sizeof large[0]), 0));
    cr_expect(eq(int, memcmp(large[0], large[2], sizeof large[0]), 0));
}

/* ---- failures -------------------------------------------------------------------------------- */

static rp_status failed[PROCESSES];

static void fail_in_one(process *p)
{
    float value = 1;
    p->well = p->rank != 1;
    failed[p->rank] = p->rank == 1
                          ? RP_TOOL
                          : rpexec_processes_all_reduce(p->processes, 0, RP_DTYPE_F32, 1, &value);
}

/* The other processes do not wait for the failed process, and closing does not hang. */
Test(exec_processes, one_that_fails_ends_all)
{
    process all[PROCESSES];
    run_all(fail_in_one, 0, all);
    cr_expect(eq(int, failed[0], RP_LOST));
    cr_expect(eq(int, failed[2], RP_LOST));
}

static void differ(process *p)
{
    float values[64] = {0};
    failed[p->rank] =
        rpexec_processes_all_reduce(p->processes, 0, RP_DTYPE_F32, p->rank == 0 ? 64 : 48, values);
    p->well = failed[p->rank] == RP_OK;
}

Test(exec_processes, other_sizes_are_an_error)
{
    process all[PROCESSES];
    run_all(differ, 0, all);
    cr_expect(failed[0] != RP_OK || failed[1] != RP_OK || failed[2] != RP_OK);
}
