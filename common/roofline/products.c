/* Rates of matrix products in a stack's software: those that somebody has measured on the GPU, and
 * otherwise those of tiles, waves and power. */
#include "common/inputs/gpu.h"
#include "common/roofline/roofline.h"

#include <math.h>

/* Measured shapes that stand for an unmeasured shape. Between 4 and 12 the errors of
 * shapes that are left out are alike. */
#define NEIGHBOURS 8u
/* Neighbours closer than 10 % of a side count about the same: rates of shapes that differ by less
 * do differ. */
#define CLOSE 0.1

double rp_power_flops_per_s(const rp_roof *roof, double power_limit_w)
{
    const rp_platform *p = roof->platform;
    bool known = p->product_pj > 0 && power_limit_w > p->idle_power_w &&
                 roof->arithmetic.dtype != RP_DTYPE_F32;
    return known ? (power_limit_w - p->idle_power_w) / (1e-12 * p->product_pj) : INFINITY;
}

/* Share of the peak by tiles, waves and power. */
static double computed_share(const rp_gemm_shape *g, rp_pass pass, const rp_roof *roof,
                             double flops, double power_limit_w)
{
    const rp_platform *p = roof->platform;
    bool half = roof->arithmetic.dtype != RP_DTYPE_F32;
    double share = half && p->product_share > 0 ? p->product_share : p->gemm_efficiency;
    double peak = rp_product_peak(g, roof);
    double reached = p->sms > 0 ? flops / (peak * rp_gemm_s(g, pass, roof, share)) : share;
    /* A FLOP of fp8 takes as much less energy as its peak is higher (assumed). */
    return fmin(reached, rp_power_flops_per_s(roof, power_limit_w) / rp_peak_flops_per_s(roof));
}

/* ---- measured products ----------------------------------------------------------------------- */

/* A single copy of a product, as tables have it. */
static rp_product asked_product(const rp_gemm_shape *g, rp_pass pass)
{
    double rows = ceil(g->rows / g->copies);
    switch (pass) {
    case RP_PASS_BACKWARD_INPUT:
        return (rp_product){RP_PRODUCT_NN, rows, g->in, g->out, 0};
    case RP_PASS_BACKWARD_WEIGHT:
        return (rp_product){RP_PRODUCT_NT, g->out, g->in, rows, 0};
    case RP_PASS_FORWARD:
    case RP_PASS_COUNT:
        break;
    }
    return (rp_product){RP_PRODUCT_TN, rows, g->out, g->in, 0};
}

/* The shape of a measured product, as the pass of its layout has it. */
static rp_gemm_shape measured_shape(const rp_product *row, rp_pass pass)
{
    switch (pass) {
    case RP_PASS_BACKWARD_INPUT:
        return (rp_gemm_shape){.rows = row->m, .in = row->n, .out = row->k, .copies = 1};
    case RP_PASS_BACKWARD_WEIGHT:
        return (rp_gemm_shape){.rows = row->k, .in = row->n, .out = row->m, .copies = 1};
    case RP_PASS_FORWARD:
    case RP_PASS_COUNT:
        break;
    }
    return (rp_gemm_shape){.rows = row->m, .in = row->k, .out = row->n, .copies = 1};
}

typedef struct neighbour {
    const rp_product *row;
    double distance;
} neighbour;

/* The nearest rows of the same layout, in order. */
static uint32_t find_nearest(const rp_products *table, const rp_product *asked,
                             neighbour nearest[NEIGHBOURS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const rp_product *row = &table->rows[i];
        if (row->layout != asked->layout) {
            continue;
        }
        double m = log(row->m / asked->m);
        double n = log(row->n / asked->n);
        double k = log(row->k / asked->k);
        double distance = sqrt(m * m + n * n + k * k);
        uint32_t at = count < NEIGHBOURS ? count++ : NEIGHBOURS;
        for (; at > 0 && nearest[at - 1].distance > distance; at--) {
            if (at < NEIGHBOURS) {
                nearest[at] = nearest[at - 1];
            }
        }
        if (at < NEIGHBOURS) {
            nearest[at] = (neighbour){row, distance};
        }
    }
    return count;
}

/* Share of the peak at the power limit of the table; 0 if no row has the layout. */
static double measured_share(const rp_gemm_shape *g, rp_pass pass, const rp_roof *roof,
                             double flops)
{
    const rp_products *table = roof->platform->products;
    const rp_product asked = asked_product(g, pass);
    neighbour nearest[NEIGHBOURS];
    uint32_t count = find_nearest(table, &asked, nearest);
    if (count > 0 && nearest[0].distance == 0 && g->copies == 1) {
        return nearest[0].row->share;
    }
    double sum = 0;
    double weights = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_product *row = nearest[i].row;
        const rp_gemm_shape shape = measured_shape(row, pass);
        double computed =
            computed_share(&shape, pass, roof, 2 * row->m * row->n * row->k, table->power_limit_w);
        double weight = 1 / pow(nearest[i].distance + CLOSE, 2);
        sum += weight * row->share / computed;
        weights += weight;
    }
    return count > 0
               ? fmin(1, sum / weights * computed_share(g, pass, roof, flops, table->power_limit_w))
               : 0;
}

/* Share of the rates that remains under a power limit other than the measured card's. The energy of
 * a FLOP is not exact, so that the table's own limit allows all of its rates. */
static double power_scale(const rp_roof *roof)
{
    const rp_platform *p = roof->platform;
    double full = fmin(p->products->median_share * rp_peak_flops_per_s(roof),
                       rp_power_flops_per_s(roof, p->products->power_limit_w));
    return fmin(1, rp_power_flops_per_s(roof, p->power_limit_w) / full);
}

double rp_product_flops_per_s(const rp_gemm_shape *gemm, rp_pass pass, const rp_roof *roof,
                              double flops)
{
    const rp_platform *p = roof->platform;
    double peak = rp_product_peak(gemm, roof);
    peak *= gemm->fp8 && roof->stack != NULL ? roof->stack->fp8_share : 1;
    if (p->products != NULL && roof->arithmetic.dtype != RP_DTYPE_F32) {
        double share = measured_share(gemm, pass, roof, flops);
        if (share > 0) {
            return peak * share * power_scale(roof);
        }
    }
    return peak * computed_share(gemm, pass, roof, flops, p->power_limit_w);
}
