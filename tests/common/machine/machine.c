/* Links and routes of a machine, against closed forms. */
#include "common/machine/machine.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

TestSuite(machine, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

#define GPUS 4u

/* Rates of the queues in `busy`: 2 * gpu uploads, 2 * gpu + 1 downloads. */
static void rates(const rp_machine *m, uint32_t busy, double rates_out[2 * GPUS])
{
    rp_queue queues[2 * GPUS] = {0};
    for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
        queues[2 * gpu] = (rp_queue){.kind = RP_QUEUE_PARAM_UPLOAD, .gpu = gpu};
        queues[2 * gpu + 1] = (rp_queue){.kind = RP_QUEUE_DOWNLOAD, .gpu = gpu};
    }
    rp_program program = {.gpu_count = GPUS, .queue_count = 2 * GPUS, .queues = queues};
    rp_routes routes;
    rp_network *network = NULL;
    cr_assert(
        eq(int, rp_machine_network(&program, m, rp_test_arena, &routes, &network, NULL), RP_OK));
    for (uint32_t q = 0; q < 2 * GPUS; q++) {
        if ((busy >> q & 1u) != 0) {
            cr_assert(eq(int, rp_network_start(network, routes.of_queue[q], 1e9, 0, q), RP_OK));
        }
    }
    for (uint32_t q = 0; q < 2 * GPUS; q++) {
        rates_out[q] = rp_network_rate(network, routes.of_queue[q]);
    }
    rp_network_destroy(network);
}

static void expect_rates(const rp_machine *m, uint32_t busy, const double expected[2 * GPUS])
{
    double got[2 * GPUS];
    rates(m, busy, got);
    for (uint32_t q = 0; q < 2 * GPUS; q++) {
        cr_expect(epsilon_eq(dbl, got[q], expected[q], 1e-3), "busy %#x, queue %u: %g for %g", busy,
                  q, got[q], expected[q]);
    }
}

/* Two GPUs per switch, links of 20 GB/s, uplinks of 24 GB/s: a GPU alone has its link, two of the
 * same switch half the uplink each, two of different switches their links. Directions share
 * nothing. */
Test(machine, an_uplink_is_shared_by_its_switch_only)
{
    rp_machine m = {.upload_Bps = 20e9,
                    .download_Bps = 20e9,
                    .host_Bps = 95e9,
                    .gpus_per_switch = 2,
                    .switch_Bps = 24e9};
    expect_rates(&m, 0x01, (double[2 * GPUS]){20e9});
    expect_rates(&m, 0x05, (double[2 * GPUS]){12e9, 0, 12e9});
    expect_rates(&m, 0x11, (double[2 * GPUS]){20e9, 0, 0, 0, 20e9});
    expect_rates(&m, 0x09, (double[2 * GPUS]){20e9, 0, 0, 20e9});
    expect_rates(&m, 0x1f, (double[2 * GPUS]){12e9, 12e9, 12e9, 12e9, 20e9});
    expect_rates(&m, 0xff, (double[2 * GPUS]){12e9, 12e9, 12e9, 12e9, 12e9, 12e9, 12e9, 12e9});
    m.gpus_per_switch = 0;
    expect_rates(&m, 0x05, (double[2 * GPUS]){20e9, 0, 20e9});
}

/* A slow link leaves the rest of the uplink to others; all share DRAM. */
Test(machine, max_min_over_uplink_and_dram)
{
    const double scale[GPUS] = {0.25, 1, 1, 1};
    rp_machine m = {.upload_Bps = 20e9,
                    .download_Bps = 20e9,
                    .host_Bps = 95e9,
                    .gpus_per_switch = 3,
                    .switch_Bps = 24e9,
                    .link_scale = scale};
    expect_rates(&m, 0x55, (double[2 * GPUS]){5e9, 0, 9.5e9, 0, 9.5e9, 0, 20e9});
    m.dram_Bps = 35e9; /* the last switch's only GPU gets the rest */
    expect_rates(&m, 0x55, (double[2 * GPUS]){5e9, 0, 9.5e9, 0, 9.5e9, 0, 11e9});
    m.dram_Bps = 25e9; /* only the slow link is below a fair share of the uplink */
    expect_rates(&m, 0x55, (double[2 * GPUS]){5e9, 0, 20e9 / 3, 0, 20e9 / 3, 0, 20e9 / 3});
}
