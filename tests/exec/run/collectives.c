/* Collectives of the host backend by themselves, against closed forms. */
#include "common/base/log.h"
#include "exec/operators/random.h"
#include "exec/run/rank_collective.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define MOST_RANKS 8u
#define MOST_ELEMENTS 4099u
#define ARRAYS 2u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(exec_collectives, .init = begin, .fini = end, .timeout = 120);

/* State of a rank, and the collective that it performs. */
typedef struct rank_run {
    pthread_t thread;
    rpexec_host_group *group;
    uint32_t rank, ranks;
    uint64_t seed; /* seed of the delays before each collective */
    rpexec_collective_kind kind;
    rp_dtype dtype;
    uint64_t counts[ARRAYS];
    void *whole[ARRAYS];
    void *share[ARRAYS];
    void *result[ARRAYS];
    float scratch[2 * 48]; /* much less than a share, so that there are many pieces */
    uint64_t moved;
    uint32_t rounds;
    rp_status status;
    char messages[512];
} rank_run;

static void fetch(void *context, uint32_t to_rank, void *to, uint32_t from_rank, const void *from,
                  uint64_t bytes)
{
    (void)context;
    (void)to_rank;
    (void)from_rank;
    memcpy(to, from, bytes);
}

static float rounded(rp_dtype dtype, float value)
{
    uint16_t half = 0;
    if (dtype != RP_DTYPE_F32) {
        rpexec_narrow(dtype, 1, &value, &half);
        rpexec_widen(dtype, 1, &half, &value);
    }
    return value;
}

/* Values of many sizes, so that sums depend on their order. */
static float value_of(rp_dtype dtype, uint32_t rank, uint32_t array, uint64_t i)
{
    uint64_t bits = rpexec_random_bits(7 + array, rank, i);
    float value = (float)((double)(bits % 2000001) / 1e6 - 1.0);
    return rounded(dtype, value * (float)(1u << (bits >> 40 & 10)));
}

static void put(rp_dtype dtype, void *array, uint64_t i, float value)
{
    rpexec_narrow(dtype, 1, &value, rpexec_element(dtype, array, i));
}

static float get(rp_dtype dtype, const void *array, uint64_t i)
{
    float value = 0;
    rpexec_widen(dtype, 1, rpexec_element_const(dtype, array, i), &value);
    return value;
}

static void pause_for(uint64_t bits)
{
    struct timespec time = {.tv_nsec = (long)(bits % 200000)};
    nanosleep(&time, NULL);
}

static uint64_t share_of(const rank_run *r, uint32_t array)
{
    return rpexec_share(r->counts[array], r->ranks, r->rank + 1) -
           rpexec_share(r->counts[array], r->ranks, r->rank);
}

static void fill(rank_run *r)
{
    for (uint32_t a = 0; a < ARRAYS; a++) {
        uint64_t first = rpexec_share(r->counts[a], r->ranks, r->rank);
        for (uint64_t i = 0; i < r->counts[a]; i++) {
            put(r->dtype, r->whole[a], i, value_of(r->dtype, r->rank, a, i));
            put(r->dtype, r->result[a], i, -1);
        }
        for (uint64_t i = 0; i < share_of(r, a); i++) {
            put(r->dtype, r->share[a], i, value_of(r->dtype, r->rank, a, first + i));
        }
    }
}

static void *run_rank(void *context)
{
    rank_run *r = context;
    r->moved = 0;
    r->status = RP_OK;
    rp_log_capture_begin(r->messages, sizeof r->messages);
    for (uint32_t round = 0; round < r->rounds && r->status == RP_OK; round++) {
        rpexec_collective_array arrays[ARRAYS];
        uint64_t moved = 0;
        fill(r);
        for (uint32_t a = 0; a < ARRAYS; a++) {
            arrays[a] = (rpexec_collective_array){
                .from = r->kind == RPEXEC_ALL_GATHER ? r->share[a] : r->whole[a],
                .to = r->kind == RPEXEC_REDUCE_SCATTER ? r->share[a] : r->result[a],
                .count = r->counts[a]};
        }
        if (r->kind == RPEXEC_ALL_REDUCE && round % 2 == 1) { /* in place */
            memcpy(r->result[0], r->whole[0], r->counts[0] * rp_dtype_bytes(r->dtype));
            arrays[0].from = r->result[0];
        }
        const rpexec_collective c = {.kind = r->kind,
                                     .dtype = r->dtype,
                                     .arrays = arrays,
                                     .array_count = ARRAYS,
                                     .scratch = r->scratch,
                                     .scratch_bytes = sizeof r->scratch};
        pause_for(rpexec_random_bits(r->seed, r->rank, round));
        r->status = rpexec_host_group_run(r->group, r->rank, &c, &moved);
        r->moved += moved;
    }
    rp_log_capture_end();
    return NULL;
}

static rank_run *new_runs(uint32_t ranks)
{
    rank_run *runs = NULL;
    rpexec_host_group *group = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, ranks, sizeof *runs, &runs), RP_OK));
    cr_assert(eq(int, rpexec_host_group_open(ranks, ARRAYS, fetch, NULL, arena, &group), RP_OK));
    for (uint32_t i = 0; i < ranks; i++) {
        runs[i] = (rank_run){.group = group, .rank = i, .ranks = ranks, .rounds = 3};
        for (uint32_t a = 0; a < ARRAYS; a++) {
            void **const memories[] = {&runs[i].whole[a], &runs[i].share[a], &runs[i].result[a]};
            for (size_t k = 0; k < 3; k++) {
                cr_assert(eq(int,
                             rp_arena_alloc(arena, MOST_ELEMENTS + 1, sizeof(float), memories[k]),
                             RP_OK));
            }
        }
    }
    return runs;
}

static void start(rank_run *runs, uint32_t first, uint32_t end_rank)
{
    for (uint32_t i = first; i < end_rank; i++) {
        cr_assert(eq(int, pthread_create(&runs[i].thread, NULL, run_rank, &runs[i]), 0));
    }
}

static void join(rank_run *runs, uint32_t first, uint32_t end_rank)
{
    for (uint32_t i = first; i < end_rank; i++) {
        pthread_join(runs[i].thread, NULL);
    }
}

static float sum_of(const rank_run *r, uint32_t array, uint64_t i)
{
    float sum = value_of(r->dtype, 0, array, i);
    for (uint32_t rank = 1; rank < r->ranks; rank++) {
        sum += value_of(r->dtype, rank, array, i);
    }
    return rounded(r->dtype, sum); /* rounded once */
}

/* @return the number of elements of a rank's result that differ from the closed form */
static uint64_t wrong_of(const rank_run *r, uint32_t array)
{
    uint64_t wrong = 0;
    uint64_t first = rpexec_share(r->counts[array], r->ranks, r->rank);
    if (r->kind == RPEXEC_REDUCE_SCATTER) {
        for (uint64_t i = 0; i < share_of(r, array); i++) {
            wrong += get(r->dtype, r->share[array], i) != sum_of(r, array, first + i);
        }
        return wrong;
    }
    for (uint64_t i = 0; i < r->counts[array]; i++) {
        uint32_t owner = 0;
        while (rpexec_share(r->counts[array], r->ranks, owner + 1) <= i) {
            owner++;
        }
        float right = r->kind == RPEXEC_ALL_GATHER ? value_of(r->dtype, owner, array, i)
                                                   : sum_of(r, array, i);
        wrong += get(r->dtype, r->result[array], i) != right;
    }
    return wrong;
}

/* Bytes that all ranks together receive: (n - 1) times the arrays' bytes, and twice as much in an
 * all-reduce. */
static uint64_t bytes_of(const rank_run *r)
{
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < ARRAYS; a++) {
        bytes += r->counts[a] * rp_dtype_bytes(r->dtype) * (r->ranks - 1);
    }
    return r->rounds * bytes * (r->kind == RPEXEC_ALL_REDUCE ? 2 : 1);
}

static void check(rank_run *runs, uint32_t ranks)
{
    uint64_t moved = 0;
    start(runs, 0, ranks);
    join(runs, 0, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        cr_expect(eq(int, runs[i].status, RP_OK));
        for (uint32_t a = 0; a < ARRAYS; a++) {
            cr_expect(eq(u64, wrong_of(&runs[i], a), 0), "kind %d, rank %u of %u, %u elements",
                      runs[i].kind, i, ranks, (unsigned)runs[i].counts[a]);
        }
        moved += runs[i].moved;
    }
    cr_expect(eq(u64, moved, bytes_of(&runs[0])), "kind %d, %u ranks", runs[0].kind, ranks);
}

/* 1 to 8 ranks, odd sizes, fewer elements than ranks, empty arrays; ranks come at random times. */
Test(exec_collectives, all_of_them_give_the_closed_form)
{
    static const uint64_t counts[] = {0, 1, 16, 17, 100, 128, 1000, MOST_ELEMENTS};
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        rank_run *runs = new_runs(ranks);
        for (uint32_t number = 0; number < 24; number++) {
            for (uint32_t i = 0; i < ranks; i++) {
                runs[i].kind = (rpexec_collective_kind)(number % 3);
                runs[i].dtype = (rp_dtype)((number / 3 + ranks) % RP_DTYPE_COUNT);
                runs[i].counts[0] = counts[number / 3];
                runs[i].counts[1] = counts[(number / 3 * 5 + 3) % 8];
                runs[i].seed = number;
            }
            check(runs, ranks);
        }
        rpexec_host_group_close(runs[0].group);
        end();
        begin();
    }
}

Test(exec_collectives, shares_are_a_partition)
{
    for (uint64_t count = 0; count < 300; count++) {
        for (uint32_t ranks = 1; ranks <= 9; ranks++) {
            uint64_t most = 0;
            uint64_t least = UINT64_MAX;
            cr_assert(eq(u64, rpexec_share(count, ranks, 0), 0));
            cr_assert(eq(u64, rpexec_share(count, ranks, ranks), count));
            for (uint32_t rank = 0; rank < ranks; rank++) {
                uint64_t from = rpexec_share(count, ranks, rank);
                uint64_t share = rpexec_share(count, ranks, rank + 1) - from;
                cr_assert(le(u64, from, rpexec_share(count, ranks, rank + 1)));
                cr_assert(from % RPEXEC_SHARE_ELEMENTS == 0 || from == count);
                most = share > most ? share : most;
                least = share < least ? share : least;
            }
            cr_assert(le(u64, most - least, 2 * RPEXEC_SHARE_ELEMENTS));
        }
    }
}

/* An abort wakes every rank that waits, and no rank waits after it. */
Test(exec_collectives, an_abort_wakes_everybody)
{
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++) {
        rank_run *runs = new_runs(ranks);
        for (uint32_t i = 0; i < ranks; i++) {
            runs[i].kind = (rpexec_collective_kind)(ranks % 3);
            runs[i].counts[0] = 100;
            runs[i].counts[1] = 33;
        }
        start(runs, 1, ranks); /* rank 0 never comes */
        pause_for(199999);
        rpexec_host_group_abort(runs[0].group);
        join(runs, 1, ranks);
        start(runs, 0, 1);
        join(runs, 0, 1);
        for (uint32_t i = 0; i < ranks; i++) {
            cr_expect(eq(int, runs[i].status, RP_BROKEN), "rank %u of %u", i, ranks);
        }
        rpexec_host_group_close(runs[0].group);
        end();
        begin();
    }
}

Test(exec_collectives, ranks_that_disagree_are_told_so)
{
    for (uint32_t number = 0; number < 2; number++) {
        rank_run *runs = new_runs(3);
        for (uint32_t i = 0; i < 3; i++) {
            runs[i].kind = number == 0 && i == 2 ? RPEXEC_ALL_REDUCE : RPEXEC_ALL_GATHER;
            runs[i].counts[0] = number == 1 && i == 1 ? 64 : 80;
            runs[i].seed = 1;
        }
        start(runs, 0, 3);
        join(runs, 0, 3);
        uint32_t told = 0;
        for (uint32_t i = 0; i < 3; i++) {
            cr_expect(eq(int, runs[i].status, RP_BROKEN));
            told +=
                strstr(runs[i].messages, "rank 0 has come to an all-gather of 2 arrays") != NULL;
        }
        cr_expect(eq(u32, told, 1)); /* the rank that came last tells it */
        rpexec_host_group_close(runs[0].group);
        end();
        begin();
    }
}
