/* Times of kernels on a GPU whose multiprocessors (SMs) the platform describes by number and clock.
 * Everything here follows from the shapes of tiles and from data sheets, except
 * gemm_fp32_acc_efficiency and the attention rates of the platform. */
#include "common/roofline/roofline.h"

#include <math.h>

/* A tile of a matrix product: rows and columns of the result that an SM computes at a time. The
 * sizes are those of cuBLAS (NVIDIA, Matrix Multiplication Background User's Guide, section 3). */
typedef struct tile {
    double rows;
    double columns;
} tile;

static const tile tiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64},
                             {64, 256},  {128, 64},  {64, 128},  {64, 64}};

/* An SM reads operands from the L2 cache, and writes results, at 64 bytes per clock (NVIDIA A100
 * whitepaper: 5120 bytes per clock for the whole cache, at most 64 to each SM). */
#define SM_BYTES_PER_CLOCK 64.0
/* A tile waits for its operands before the first product: latency of device memory in clocks
 * (Abdelkhalik et al., "Demystifying the Nvidia Ampere Architecture", 2022: 290 to 570). */
#define FILL_CLOCKS 570.0
/* cuBLAS splits the inner dimension of products whose results have few tiles. */
#define MOST_SPLITS 16.0

/* The rate of an SM, and the bytes of a value. */
typedef struct sm {
    double flops_per_clock;
    double value_bytes;
} sm;

/* Clocks of a tile: the inner loop at the rate of the arithmetic units or of the operands, the
 * latency of the first operands, and the write of the result. */
static double tile_clocks(tile t, double inner, sm m)
{
    double flops = 2 * t.rows * t.columns / m.flops_per_clock;
    double operands = m.value_bytes * (t.rows + t.columns) / SM_BYTES_PER_CLOCK;
    double result = m.value_bytes * t.rows * t.columns / SM_BYTES_PER_CLOCK;
    return inner * fmax(flops, operands) + FILL_CLOCKS + result;
}

/* Clocks of a product with the fastest tile, which the library picks. SMs work in waves, of which
 * the last may be partly empty.
 */
static double product_clocks(double rows, double columns, double inner, double copies, double sms,
                             sm m)
{
    double best = INFINITY;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        double count = copies * ceil(rows / tiles[i].rows) * ceil(columns / tiles[i].columns);
        for (double splits = 1; splits <= MOST_SPLITS; splits *= 2) {
            double waves = ceil(count * splits / sms);
            double clocks = waves * tile_clocks(tiles[i], inner / splits, m);
            /* Parts of a split product are added up in fp32: each is written once and read once. */
            double sums = splits > 1 ? 8 * splits * copies * rows * columns : 0;
            best = fmin(best, clocks + sums / (SM_BYTES_PER_CLOCK * sms));
        }
    }
    return best;
}

double rp_gemm_s(const rp_gemm_shape *g, rp_pass pass, const rp_roof *roof, double share)
{
    const rp_platform *p = roof->platform;
    double rows = ceil(g->rows / g->copies); /* rows of each matrix */
    double peak = rp_product_peak(g, roof);
    double clock = 1e9 * p->sm_clock_ghz;
    const sm m = {peak / (p->sms * clock),
                  g->fp8 ? 1 : (double)rp_dtype_bytes(roof->arithmetic.dtype)};
    double clocks = 0;
    switch (pass) {
    case RP_PASS_BACKWARD_INPUT:
        clocks = product_clocks(rows, g->in, g->out, g->copies, p->sms, m);
        break;
    case RP_PASS_BACKWARD_WEIGHT:
        clocks = product_clocks(g->out, g->in, rows, g->copies, p->sms, m);
        break;
    case RP_PASS_FORWARD:
    case RP_PASS_COUNT:
        clocks = product_clocks(rows, g->out, g->in, g->copies, p->sms, m);
        break;
    }
    return clocks / (clock * share);
}

static double attention_s(double flops, rp_pass pass, const rp_kernel_run *run)
{
    return flops * rp_attention_masked(run->documents, run->seq_len) /
           rp_flash_flops_per_s(&run->roof, pass);
}

double rp_kernel_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_pass_work *work = &op->work[pass];
    const rp_platform *p = run->roof.platform;
    double compute_s = 0;
    if (op->unit == RP_UNIT_GEMM && work->flops > 0) {
        compute_s = rp_gemm_s(&op->gemm, pass, &run->roof, p->gemm_fp32_acc_efficiency);
    } else if (op->unit == RP_UNIT_ATTENTION) {
        compute_s = attention_s(work->flops, pass, run);
    }
    double memory_s = rp_pass_traffic(work, &run->roof) / (1e9 * p->memory_effective_gb_per_s);
    return fmax(compute_s, memory_s) + work->launches * 1e-6 * p->launch_overhead_us;
}
