/* Rates that --record measures beside a run, against rates known by construction: throttled links
 * of the host backend, and a machine of threads with slow copies. Nothing is faster than it was
 * made, but the other load of this machine may slow it down: the best of a few tries counts. */
#include "exec/measure/calibrate.h"
#include "common/base/log.h"
#include "exec/host/driver.h"
#include "exec/host/lane.h"
#include "exec/measure/calibrate_operators.h"
#include "exec/run/work.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/fake/cuda.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <time.h>

static rp_arena *arena;
static rp_model config;
static rpexec_model model;

static void set_up(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    config = rp_test_decoder(2, false, false);
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
}

static void tear_down(void)
{
    rp_test_end(arena);
}

TestSuite(exec_calibrate, .init = set_up, .fini = tear_down, .timeout = 300);

#define TRIES 50

static rpexec_site host_site(const rp_machine *machine, uint32_t gpus)
{
    return (rpexec_site){.driver_type = &rpexec_host_driver,
                         .machine = machine,
                         .model = &model,
                         .gpus = gpus,
                         .sequences = 1,
                         .watchdog_s = 30};
}

/* ---- the line -------------------------------------------------------------------------------- */

Test(exec_calibrate, a_line_comes_back_past_outliers)
{
    double bytes[6];
    double seconds[6];
    for (int i = 0; i < 6; i++) {
        bytes[i] = 65536 * pow(4, i);
        seconds[i] = 20e-6 + bytes[i] / 5e9;
    }
    rpexec_link_fit fit = rpexec_link_fit_of(6, bytes, seconds, INFINITY);
    cr_expect(le(dbl, fabs(fit.Bps / 5e9 - 1), 1e-9), "%g", fit.Bps);
    cr_expect(le(dbl, fabs(fit.overhead_s / 20e-6 - 1), 1e-6), "%g", fit.overhead_s);
    seconds[2] *= 3;
    seconds[5] *= 1.5;
    fit = rpexec_link_fit_of(6, bytes, seconds, INFINITY);
    cr_expect(le(dbl, fabs(fit.Bps / 5e9 - 1), 1e-9), "%g", fit.Bps);
    cr_expect(le(dbl, fabs(fit.overhead_s / 20e-6 - 1), 1e-6), "%g", fit.overhead_s);
    fit = rpexec_link_fit_of(1, bytes, seconds, INFINITY);
    cr_expect(le(dbl, fabs(fit.Bps * seconds[0] / bytes[0] - 1), 1e-9));
    cr_expect(eq(dbl, fit.overhead_s, 0));
    /* Small pieces come out of a cache: the line would begin below 0. */
    for (int i = 0; i < 6; i++) {
        seconds[i] = bytes[i] / (i < 3 ? 10e9 : 5e9);
    }
    fit = rpexec_link_fit_of(6, bytes, seconds, INFINITY);
    cr_expect(eq(dbl, fit.overhead_s, 0));
    cr_expect(fit.Bps > 4.9e9 && fit.Bps < 10.1e9, "%g", fit.Bps);
    cr_expect(eq(dbl, rpexec_link_fit_of(0, bytes, seconds, INFINITY).Bps, 0));
}

/* Medians of a busy machine: a line through them alone would be of 3,900 GB/s. */
Test(exec_calibrate, overhead_is_no_longer_than_the_shortest_copy)
{
    static const double bytes[] = {65536, 262144, 1048576};
    static const double seconds[] = {69.83e-6, 62.77e-6, 70.03e-6};
    double without_bound = rpexec_link_fit_of(3, bytes, seconds, INFINITY).Bps;
    cr_assert(without_bound > 3e12, "%g", without_bound);
    rpexec_link_fit fit = rpexec_link_fit_of(3, bytes, seconds, 4e-6);
    cr_expect(le(dbl, fit.overhead_s, 4e-6));
    cr_expect(fit.Bps > 3e9 && fit.Bps < 16e9, "%g", fit.Bps);
}

/* ---- links ----------------------------------------------------------------------------------- */

typedef struct expectation {
    rpexec_way way;
    rpexec_beside beside;
    double Bps; /* 0: not measured */
} expectation;

/* Other processes may take time, so a quantity counts as right if any of the tries measures the
 * right value. A wrong measurement never does. */
#define MOST 12

static void check_links(const rpexec_site *site, bool peers, const expectation *right, size_t count,
                        double latency_s)
{
    bool seen[MOST + 1] = {false}; /* the last is for the overhead of an upload */
    double last[MOST + 1] = {0};
    rpexec_link_rates rates;
    bool all = false;
    cr_assert(le(sz, count, MOST));
    for (int i = 0; i < TRIES && !all; i++) {
        cr_assert(eq(int, rpexec_calibrate_links(site, peers, arena, &rates), RP_OK));
        all = true;
        for (size_t k = 0; k < count; k++) {
            double Bps = rates.fits[right[k].way][right[k].beside].Bps;
            bool none = right[k].Bps == 0;
            cr_assert(eq(int, none, Bps == 0), "expectation %zu: %g", k, Bps);
            last[k] = Bps;
            seen[k] = seen[k] || none || fabs(Bps / right[k].Bps - 1) < 0.05;
            all = all && seen[k];
        }
        /* Sleeping takes longer than asked for, by a tenth of a millisecond on a quiet machine. */
        double overhead_s = rates.fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_NOTHING].overhead_s;
        last[count] = overhead_s;
        seen[count] =
            seen[count] || (overhead_s > 0.95 * latency_s && overhead_s < latency_s + 1e-3);
        all = all && seen[count];
    }
    for (size_t k = 0; k < count; k++) {
        cr_expect(seen[k], "expectation %zu: %g, not %g", k, last[k], right[k].Bps);
    }
    cr_expect(seen[count], "%g s, not %g s", last[count], latency_s);
}

#define UP RPEXEC_WAY_UP
#define DOWN RPEXEC_WAY_DOWN
#define PEER RPEXEC_WAY_PEER
#define ALONE RPEXEC_BESIDE_NOTHING
#define BACK RPEXEC_BESIDE_BACK
#define ALL RPEXEC_BESIDE_ALL
#define ALL_BACK RPEXEC_BESIDE_ALL_BACK

Test(exec_calibrate, links_of_their_own)
{
    const rp_machine machine = {.upload_Bps = 6e8,
                                .download_Bps = 3e8,
                                .host_Bps = 1e9,
                                .copy_latency_ps = INT64_C(400000000)};
    const rpexec_site site = host_site(&machine, 1);
    const expectation right[] = {{UP, ALONE, 6e8},  {DOWN, ALONE, 3e8}, {UP, BACK, 6e8},
                                 {DOWN, BACK, 3e8}, {UP, ALL, 0},       {PEER, ALONE, 0}};
    check_links(&site, true, right, sizeof right / sizeof right[0], 400e-6);
}

Test(exec_calibrate, a_shared_uplink)
{
    const rp_machine machine = {.upload_Bps = 4e8,
                                .download_Bps = 4e8,
                                .host_Bps = 1e9,
                                .gpus_per_switch = 2,
                                .switch_Bps = 5e8,
                                .peer_Bps = 2e8,
                                .peer_pcie = true};
    const rpexec_site site = host_site(&machine, 2);
    const expectation right[] = {{UP, ALONE, 4e8},   {DOWN, ALONE, 4e8},     {UP, BACK, 4e8},
                                 {UP, ALL, 2.5e8},   {DOWN, ALL, 2.5e8},     {UP, ALL_BACK, 2.5e8},
                                 {PEER, ALONE, 2e8}, {DOWN, ALL_BACK, 2.5e8}};
    check_links(&site, true, right, sizeof right / sizeof right[0], 0);
}

/* Both directions share the host's memory, so a link is half duplex at the memory's limit; or the
 * link itself has a factor for both directions. */
Test(exec_calibrate, directions_that_share_memory)
{
    const rp_machine machine = {
        .upload_Bps = 4e8, .download_Bps = 4e8, .host_Bps = 1e9, .dram_Bps = 6e8};
    const rpexec_site site = host_site(&machine, 1);
    const expectation right[] = {
        {UP, ALONE, 4e8}, {DOWN, ALONE, 4e8}, {UP, BACK, 3e8}, {DOWN, BACK, 3e8}};
    check_links(&site, false, right, sizeof right / sizeof right[0], 0);
    const rp_machine single = {
        .upload_Bps = 4e8, .download_Bps = 4e8, .host_Bps = 1e9, .duplex = 0.75};
    const rpexec_site other = host_site(&single, 1);
    check_links(&other, false, right, sizeof right / sizeof right[0], 0);
}

static rpexec_site site_with(const emulated_machine *machine, const rpexec_devices_config *devices)
{
    rpexec_site site = {.driver_type = rp_fake_cuda_driver(machine),
                        .model = &model,
                        .gpus = devices->gpus,
                        .sequences = 1,
                        .watchdog_s = 30};
    cr_assert(eq(int, site.driver_type->attach(devices, &site.devices, &site.gpu_bytes), RP_OK));
    return site;
}

static rpexec_site fake_site(const emulated_machine *machine, uint32_t gpus)
{
    return site_with(machine, &(rpexec_devices_config){.gpus = gpus});
}

/* The driver for GPUs, which takes times from events; with peers, and over the host. */
Test(exec_calibrate, a_machine_of_threads)
{
    for (int peers = 0; peers < 2; peers++) {
        const emulated_machine machine = {
            .devices = 2, .peers = peers != 0, .copy_Bps = 8e8, .copy_us = 300};
        rpexec_site site = fake_site(&machine, 2);
        const expectation right[] = {{UP, ALONE, 8e8},  {DOWN, ALONE, 4e8}, {UP, BACK, 8e8},
                                     {DOWN, BACK, 4e8}, {UP, ALL, 8e8},     {PEER, ALONE, 8e8}};
        /* A copy over the host is two copies, in pieces, and has no expectation. */
        size_t count = sizeof right / sizeof right[0] - (peers != 0 ? 0 : 1);
        check_links(&site, true, right, count, 300e-6);
        site.driver_type->detach(site.devices);
        cr_expect(eq(u32, emulator_counted(EMULATED_LEFT), 0));
    }
}

/* Devices have all that the run has asked for: parts of a device, which take turns, graphs, NCCL.
 */
Test(exec_calibrate, devices_as_the_run_has_them)
{
    const emulated_machine machine = {.devices = 2, .green = true, .nccl = true};
    const rpexec_devices_config configs[] = {
        {.gpus = 3, .is_virtual = true, .graphs = true},
        {.gpus = 2, .graphs = true, .transport = RPEXEC_TRANSPORT_NCCL},
        {.gpus = 2, .graphs = true, .transport = RPEXEC_TRANSPORT_STAGED}};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        rpexec_link_rates rates;
        rpexec_starts starts;
        rpexec_operator_costs costs;
        rpexec_site site = site_with(&machine, &configs[i]);
        site.gpu_bytes = 16 << 20; /* small pieces only */
        cr_assert(eq(int, rpexec_calibrate_links(&site, true, arena, &rates), RP_OK));
        cr_expect(rates.fits[PEER][ALONE].Bps > 0 && rates.fits[UP][ALL].Bps > 0);
        cr_expect(eq(int, emulator_counted(EMULATED_KERNELS) > 0, i == 1));
        cr_assert(eq(int, rpexec_calibrate_starts(&site, arena, &starts), RP_OK));
        cr_expect(starts.far_s > 0 && starts.submit_s > 0);
        double memory_Bps = 0;
        cr_assert(eq(int, rpexec_calibrate_memory(&site, arena, &memory_Bps), RP_OK));
        cr_expect(gt(dbl, memory_Bps, 0));
        cr_assert(eq(int, rpexec_calibrate_operators(&site, true, arena, &costs), RP_OK));
        cr_expect(gt(u32, costs.row_count, 10));
        cr_expect(rpexec_operators_attention(&costs, false) > 0 &&
                  rpexec_operators_attention(&costs, true) > 0);
        cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 0),
                  "operators are measured one by one");
        site.driver_type->detach(site.devices);
        cr_expect(eq(u32, emulator_counted(EMULATED_LEFT), 0));
    }
}

/* With little memory there are no large pieces; with almost none nothing is measured. */
Test(exec_calibrate, little_memory)
{
    rpexec_link_rates rates;
    rpexec_site site = host_site(NULL, 2);
    site.gpu_bytes = 6 << 20;
    cr_assert(eq(int, rpexec_calibrate_links(&site, false, arena, &rates), RP_OK));
    uint64_t most = 0;
    for (uint32_t i = 0; i < rates.row_count; i++) {
        most = rates.rows[i].bytes > most ? rates.rows[i].bytes : most;
    }
    cr_expect(eq(u64, most, UINT64_C(1) << 20)); /* 4 MiB up and 4 MiB down are more than half */
    site.gpu_bytes = 1000;
    cr_assert(eq(int, rpexec_calibrate_links(&site, false, arena, &rates), RP_OK));
    cr_expect(eq(u32, rates.row_count, 0));
    cr_expect(eq(dbl, rates.fits[UP][ALONE].Bps, 0));
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define ADAM_BPS 4e8 /* for 28 bytes per value: 2.4 ms for the model's values */

/* Plays a GPU's Adam that takes a known time; sums and zeroes take no time. */
static void slow_adam(rpexec_lane *lane, const rpexec_adam_factors *factors,
                      const rpexec_update *update)
{
    struct timespec now;
    (void)lane;
    (void)factors;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    double end_s =
        (double)now.tv_sec + 1e-9 * (double)now.tv_nsec + 28 * (double)update->count / ADAM_BPS;
    while ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec < end_s) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    }
}

static void no_squares(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum)
{
    (void)lane;
    (void)count;
    (void)x;
    (void)sum;
}

static void no_zero(rpexec_lane *lane, uint64_t count, void *x)
{
    (void)lane;
    (void)count;
    (void)x;
}

/* The measured rate is the rate of Adam on GPUs, not of a thread of the host; on several GPUs at
 * once, and with as many values as fit. */
Test(exec_calibrate, memory_is_what_adam_takes_on_gpus)
{
    rpexec_driver_type slow = rpexec_host_driver;
    rpexec_operators operators = *rpexec_host_operators[RP_DTYPE_F32];
    const rpexec_operators *table[RP_DTYPE_COUNT] = {&operators, &operators, &operators};
    operators.adam = slow_adam;
    operators.squares = no_squares;
    operators.zero = no_zero;
    slow.operators = table;
    slow.operators_of = NULL;
    for (uint32_t gpus = 1; gpus <= 3; gpus += 2) {
        rpexec_site site = host_site(NULL, gpus);
        site.driver_type = &slow;
        double Bps = 0;
        for (int k = 0; k < TRIES && fabs(Bps / ADAM_BPS - 1) > 0.05; k++) {
            cr_assert(eq(int, rpexec_calibrate_memory(&site, arena, &Bps), RP_OK));
        }
        cr_expect(le(dbl, fabs(Bps / ADAM_BPS - 1), 0.05), "%u GPUs: %g", gpus, Bps);
        site.gpu_bytes = 1 << 16; /* room for some values */
        Bps = 0;
        for (int k = 0; k < TRIES && fabs(Bps / ADAM_BPS - 1) > 0.05; k++) {
            cr_assert(eq(int, rpexec_calibrate_memory(&site, arena, &Bps), RP_OK));
        }
        cr_expect(le(dbl, fabs(Bps / ADAM_BPS - 1), 0.05), "%u GPUs: %g", gpus, Bps);
        site.gpu_bytes = 64; /* room for no value */
        cr_assert(eq(int, rpexec_calibrate_memory(&site, arena, &Bps), RP_OK));
        cr_expect(eq(dbl, Bps, 0));
    }
}

/* ---- starting -------------------------------------------------------------------------------- */

Test(exec_calibrate, starts_are_small_and_there)
{
    const emulated_machine machine = {.devices = 2, .peers = true};
    rpexec_site sites[] = {host_site(NULL, 2), host_site(NULL, 1), fake_site(&machine, 2)};
    for (size_t i = 0; i < 3; i++) {
        rpexec_starts s;
        bool plausible = false;
        for (int k = 0; k < TRIES && !plausible; k++) {
            cr_assert(eq(int, rpexec_calibrate_starts(&sites[i], arena, &s), RP_OK));
            cr_expect(s.wake_count == 100 && s.gap_count == 100);
            cr_expect(eq(u32, s.far_count, sites[i].gpus > 1 ? 100 : 0));
            cr_expect(s.gap_s >= 0 && s.wake_s > 0, "%g, %g", s.gap_s, s.wake_s);
            cr_expect(eq(int, s.submit_s > 0, i == 2), "%g", s.submit_s);
            cr_expect(eq(int, s.far_s > 0, sites[i].gpus > 1), "%g", s.far_s);
            /* On the host, waking up a thread takes longer than going on with the next op. */
            plausible = s.gap_s < 2e-3 && s.wake_s < 5e-3 && s.submit_s < 5e-3 && s.far_s < 5e-3 &&
                        (i == 2 || s.wake_s > s.gap_s);
        }
        cr_expect(plausible, "%g, %g, %g, %g", s.gap_s, s.wake_s, s.submit_s, s.far_s);
    }
    sites[2].driver_type->detach(sites[2].devices);
}

/* The gap and the wake-up time that were put into a simulated run come out of its timeline. */
Test(exec_calibrate, starts_of_a_simulated_run)
{
    const rp_machine machine = {.upload_Bps = 1e12,
                                .download_Bps = 1e12,
                                .host_Bps = 1e12,
                                .op_gap_ps = INT64_C(7000000),
                                .op_wake_ps = INT64_C(31000000)};
    const rpsim_gpu_rates rates = {
        .attention_fwd_flops = 1e30, .attention_bwd_flops = 1e30, .memory_bytes_per_s = 1e30};
    const rp_resolved work = {.schedule = rp_schedule_find("1f1b"),
                              .gpus = 2,
                              .decided.accumulate = 1,
                              .decided.microbatches = 6,
                              .decided.microbatch_size = 1,
                              .decided.iterations = 3,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = RP_RECOMPUTE_NONE};
    rp_costs flops, table;
    rp_program *program = NULL;
    rpsim_compute_costs costs;
    rp_timeline *timeline = NULL;
    rpexec_starts s;
    cr_assert(eq(int, rpexec_work_costs(&model, 1, arena, &flops), RP_OK));
    table = flops;
    cr_assert(eq(int, rpexec_work_program(&work, &model, &flops, &program, NULL), RP_OK));
    cr_assert(eq(
        int, rpsim_compute_costs_create(program, &table, &config, &rates, 4, arena, &costs, NULL),
        RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
    rpexec_plan plan = {.program = program, .model = &model};
    cr_assert(eq(int, rpexec_order_create(program, arena, &plan.order), RP_OK));
    cr_assert(eq(int, rpexec_starts_of_run(&plan, timeline, 1, arena, &s), RP_OK));
    cr_expect(s.gap_count > 10 && s.wake_count > 10, "%u, %u", s.gap_count, s.wake_count);
    cr_expect(le(dbl, fabs(s.gap_s / 7e-6 - 1), 1e-6), "%g", s.gap_s);
    cr_expect(le(dbl, fabs(s.wake_s / 31e-6 - 1), 1e-6), "%g", s.wake_s);
    cr_expect(eq(u32, s.far_count, 0)); /* boundary tensors go over the host */
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

/* A copy that fails ends the measuring, and all resources are given back. */
Test(exec_calibrate, failures_are_passed_on)
{
    rpexec_link_rates rates;
    char messages[2048];
    const emulated_machine machine = {.devices = 1, .fail_at = 20};
    rpexec_site site = fake_site(&machine, 1);
    rp_log_capture_begin(messages, sizeof messages);
    cr_expect(eq(int, rpexec_calibrate_links(&site, false, arena, &rates), RP_TOOL));
    rp_log_capture_end();
    cr_expect(strstr(messages, "cudaMemcpyAsync: an illegal memory access") != NULL, "%s",
              messages);
    site.driver_type->detach(site.devices);
    cr_expect(eq(u32, emulator_counted(EMULATED_LEFT), 0));
}
