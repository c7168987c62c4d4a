/* A record lists a key as measured only if the value is a measurement of that very quantity. By
 * construction every quantity has a value of its own, and any of them may be missing. */
#include "exec/measure/platform.h"
#include "common/inputs/provenance.h"
#include "exec/run/work.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_arena *arena;

static void set_up(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void tear_down(void)
{
    rp_test_end(arena);
}

TestSuite(exec_platform, .init = set_up, .fini = tear_down, .timeout = 300);

/* ---- any measurement may be missing ---------------------------------------------------------- */

/* Primes, so that each value tells its measurement; in GB/s and TFLOP/s. */
enum { RUN_UP = 2, RUN_DOWN = 3, RUN_PEER = 5, RUN_SUM = 7, RUN_HOST = 11, RUN_FWD = 13 };
enum {
    RUN_BWD = 17,
    UP = 19,
    DOWN = 23,
    PEER = 29,
    MEMORY = 31,
    ATTENTION = 37,
    ATTENTION_BWD = 41
};
enum { COPY = 43, THREAD_SUM = 47, THREAD_ADAM = 53, THREAD_FLOPS = 59, CORES = 61, PASSES = 67 };

static const int missing[] = {RUN_UP, RUN_DOWN, RUN_PEER, RUN_SUM, RUN_HOST,  RUN_FWD,      RUN_BWD,
                              UP,     DOWN,     PEER,     MEMORY,  ATTENTION, ATTENTION_BWD};
#define MISSING (sizeof missing / sizeof missing[0])

typedef enum machine_kind { THREADS, LIMITED, GPUS, MACHINES } machine_kind;

static double there(uint32_t bits, int value, double unit)
{
    for (size_t i = 0; i < MISSING; i++) {
        if (missing[i] == value && (bits >> i & 1) != 0) {
            return 0;
        }
    }
    return value * unit;
}

static rp_noted_platform made(machine_kind kind, uint32_t bits)
{
    const rpexec_rates run = {.upload_Bps = there(bits, RUN_UP, 1e9),
                              .download_Bps = there(bits, RUN_DOWN, 1e9),
                              .peer_Bps = there(bits, RUN_PEER, 1e9),
                              .collective_Bps = there(bits, RUN_SUM, 1e9),
                              .host_Bps = there(bits, RUN_HOST, 1e9),
                              .forward_flops = there(bits, RUN_FWD, 1e12),
                              .backward_flops = there(bits, RUN_BWD, 1e12)};
    const rpexec_host_rates host = {.cores = CORES,
                                    .threads = 1,
                                    .flops = THREAD_FLOPS * 1e12,
                                    .copy_Bps = COPY * 1e9,
                                    .collective_Bps = THREAD_SUM * 1e9,
                                    .update_Bps = THREAD_ADAM * 1e9,
                                    .step_s = 50 / (PASSES * 1e9)};
    const rpexec_link_rates links = {
        .fits = {
            [RPEXEC_WAY_UP] = {{.Bps = there(bits, UP, 1e9)}, {.Bps = there(bits, UP, 1e9)}},
            [RPEXEC_WAY_DOWN] = {{.Bps = there(bits, DOWN, 1e9)}, {.Bps = there(bits, DOWN, 1e9)}},
            [RPEXEC_WAY_PEER] = {{.Bps = there(bits, PEER, 1e9)}}}};
    const rpexec_machine machine = {
        .limited = kind == LIMITED,
        .machine = {.upload_Bps = 71e9, .download_Bps = 73e9},
        .platform = {.name = kind == LIMITED ? "given" : NULL, .link_gb_per_s = 79}};
    const rpexec_starts starts = {0};
    const rpexec_platform_of of = {.backend = "test",
                                   .machine = &machine,
                                   .gpus = 2,
                                   .gpu_bytes = kind == GPUS ? 1 << 30 : 0,
                                   .optimizer_threads = 1,
                                   .rates = &run,
                                   .host = &host,
                                   .links = &links,
                                   .starts = &starts,
                                   .memory_Bps = there(bits, MEMORY, 1e9),
                                   .attention_fwd_flops = there(bits, ATTENTION, 1e12),
                                   .attention_bwd_flops = there(bits, ATTENTION_BWD, 1e12)};
    rp_noted_platform out;
    cr_assert(eq(int, rpexec_platform_make(&of, arena, &out), RP_OK));
    return out;
}

/* True if the file says so, by the first word of the key's last note. */
static bool is_measured(const rp_noted_platform *p, const char *key)
{
    bool measured = false;
    for (uint32_t i = 0; i < p->note_count; i++) {
        if (strcmp(p->notes[i].key, key) == 0) {
            rp_provenance kind = RP_ASSUMED;
            (void)rp_provenance_parse(p->notes[i].text, strcspn(p->notes[i].text, " :"), &kind);
            measured = kind == RP_MEASURED;
        }
    }
    return measured;
}

/* Measurements of a key's quantity: [machine] two measurements, the first preferred; 0: none. */
static const struct {
    const char *key;
    int by[MACHINES][2];
} quantities[] = {
    {"upload_gb_per_s", {{0}, {UP, RUN_UP}, {UP, RUN_UP}}},
    {"download_gb_per_s", {{0}, {DOWN, RUN_DOWN}, {DOWN, RUN_DOWN}}},
    {"peer_gb_per_s", {{RUN_PEER, COPY}, {PEER, RUN_PEER}, {PEER, RUN_PEER}}},
    {"collective_gb_per_s", {{RUN_SUM, THREAD_SUM}, {RUN_SUM}, {RUN_SUM}}},
    {"memory_gb_per_s", {{MEMORY, THREAD_ADAM}, {MEMORY, THREAD_ADAM}, {MEMORY}}},
    {"memory_effective_gb_per_s", {{MEMORY, THREAD_ADAM}, {MEMORY, THREAD_ADAM}, {MEMORY}}},
    {"attention_fwd_tflops", {{ATTENTION}, {ATTENTION}, {ATTENTION}}},
    {"attention_bwd_tflops", {{ATTENTION_BWD}, {ATTENTION_BWD}, {ATTENTION_BWD}}},
    {"optimizer_thread_gb_per_s", {{RUN_HOST, PASSES}, {RUN_HOST, PASSES}, {RUN_HOST, PASSES}}},
    {"host_cores", {{CORES}, {CORES}, {0}}},
};

/* @return the preferred measurement of a key that is not missing; 0: none */
static double right_value(size_t key, machine_kind kind, uint32_t bits)
{
    const int *by = quantities[key].by[kind];
    double first = there(bits, by[0], 1);
    return first > 0 ? first : there(bits, by[1], 1);
}

static void check_keys(machine_kind kind, uint32_t bits)
{
    rp_noted_platform p = made(kind, bits);
    for (size_t i = 0; i < rp_platform_schema.field_count; i++) {
        const char *key = rp_platform_schema.fields[i].key;
        size_t k = 0;
        while (k < sizeof quantities / sizeof quantities[0] &&
               strcmp(quantities[k].key, key) != 0) {
            k++;
        }
        if (k == sizeof quantities / sizeof quantities[0]) {
            cr_expect(strcmp(key, "link_effective_gb_per_s") == 0 || !is_measured(&p, key), "%s",
                      key);
            continue;
        }
        double right = right_value(k, kind, bits);
        double value = *rp_platform_rate(&p.platform, key);
        cr_expect(eq(int, is_measured(&p, key), right > 0), "%s, machine %d, without %x: %g", key,
                  kind, bits, value);
        cr_expect(right == 0 || fabs(value / right - 1) < 1e-8, "%s, machine %d, without %x: %g",
                  key, kind, bits, value);
    }
    /* The key is the mean of both directions. */
    double up = kind == THREADS ? there(bits, RUN_UP, 1) : right_value(0, kind, bits);
    double down = kind == THREADS ? there(bits, RUN_DOWN, 1) : right_value(1, kind, bits);
    up = up == 0 && kind == THREADS ? COPY : up;
    down = down == 0 && kind == THREADS ? COPY : down;
    cr_expect(eq(int, is_measured(&p, "link_effective_gb_per_s"), up > 0 && down > 0));
    cr_expect(up == 0 || down == 0 ||
              fabs(p.platform.link_effective_gb_per_s / ((up + down) / 2) - 1) < 1e-8);
}

Test(exec_platform, what_is_missing_is_not_borrowed)
{
    for (machine_kind kind = 0; kind < MACHINES; kind++) {
        for (uint32_t bits = 0; bits < UINT32_C(1) << MISSING; bits++) {
            check_keys(kind, bits);
        }
    }
    /* A GPU without room for the trial has no rate for hardware fidelity. */
    rp_noted_platform p = made(GPUS, UINT32_MAX);
    cr_expect(eq(dbl, p.platform.memory_effective_gb_per_s, 0));
}

/* ---- every schedule -------------------------------------------------------------------------- */

/* Rates a decade or more apart, so that no rate can be a slowed-down form of another rate. */
static const rp_machine slow_machine = {.upload_Bps = 1e8,
                                        .download_Bps = 3e9,
                                        .host_Bps = 1e13,
                                        .collective_Bps = 1e12,
                                        .peer_Bps = 1e11,
                                        .peer_pcie = true};

static bool near_to(double value, double right)
{
    return value > right / 20 && value < 1.01 * right;
}

/* @return false if the executor does not run the schedule in this way */
static bool check_schedule(const rp_schedule_type *schedule, bool asynchronous,
                           const rp_model *config, const rpexec_model *model)
{
    const rpsim_gpu_rates gpu = {
        .attention_fwd_flops = 1e30, .attention_bwd_flops = 1e30, .memory_bytes_per_s = 1e15};
    rp_resolved work = rp_test_work(schedule->name, 2, 4, 3);
    rp_costs flops, table;
    rpexec_plan plan;
    rpexec_rates rates;
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    rpsim_compute_costs costs;
    work.decided.asynchronous = asynchronous;
    if (rpexec_work_obstacle(&schedule->traits, asynchronous) != NULL) {
        return false;
    }
    cr_assert(eq(int, rpexec_work_costs(model, 1, arena, &flops), RP_OK));
    cr_assert(eq(int, rpexec_work_program(&work, model, &flops, &program, NULL), RP_OK), "%s",
              schedule->name);
    cr_assert(eq(int,
                 rpexec_plan_create(program, model, &(rpexec_plan_limits){0}, arena, &plan, NULL),
                 RP_OK));
    cr_assert(eq(int,
                 rpsim_compute_costs_create(program, &flops, config, &gpu, 4, arena, &costs, NULL),
                 RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &slow_machine, &timeline, NULL), RP_OK));
    cr_assert(eq(int, rpexec_measure(&plan, timeline, &flops, 1, arena, &table, &rates), RP_OK));
    const rpexec_host_rates host = {.cores = 2,
                                    .threads = 1,
                                    .flops = 1,
                                    .copy_Bps = 7e5,
                                    .collective_Bps = 7e5,
                                    .update_Bps = 7e5,
                                    .step_s = 1e-6};
    const rpexec_machine machine = {.limited = true, .machine = slow_machine};
    const rpexec_link_rates links = {0};
    const rpexec_starts starts = {0};
    const rpexec_platform_of of = {.backend = "test",
                                   .machine = &machine,
                                   .gpus = 2,
                                   .optimizer_threads = 1,
                                   .rates = &rates,
                                   .host = &host,
                                   .links = &links,
                                   .starts = &starts,
                                   .memory_Bps = 1e15};
    rp_noted_platform out;
    cr_assert(eq(int, rpexec_platform_make(&of, arena, &out), RP_OK));
    const struct {
        const char *key;
        double right;
    } keys[] = {{"upload_gb_per_s", 0.1},
                {"download_gb_per_s", 3},
                {"peer_gb_per_s", 100},
                {"memory_gb_per_s", 1e6},
                {"memory_effective_gb_per_s", 1e6}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double value = *rp_platform_rate(&out.platform, keys[i].key);
        cr_expect(near_to(value, keys[i].right) || !is_measured(&out, keys[i].key),
                  "%s %d: %s is %g", schedule->name, asynchronous, keys[i].key, value);
    }
    double passes = out.platform.optimizer_thread_gb_per_s;
    cr_expect(rates.host_Bps == 0 ? near_to(passes, 0.05) : near_to(passes, 1e4), "%s %d: %g",
              schedule->name, asynchronous, passes);
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    return true;
}

/* All schedules, with all kinds of ops and either place of the optimizer. */
Test(exec_platform, of_every_schedule)
{
    rp_model config = rp_test_decoder(8, true, false);
    rpexec_model model;
    uint32_t checked = 0;
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        checked += check_schedule(rp_schedules[i], false, &config, &model) ? 1 : 0;
        checked += check_schedule(rp_schedules[i], true, &config, &model) ? 1 : 0;
    }
    cr_expect(gt(u32, checked, rp_schedule_count));
}
