/* Measures the rate of a GPU's memory. */
#include "common/base/host_limits.h"
#include "common/base/median.h"
#include "common/lower/lower.h"
#include "exec/measure/calibrate.h"
#include "exec/model/cutter.h"
#include "exec/operators/adam.h"

/* Steps of a GPU; the first step does not count. */
#define STEPS 6u
/* Most values of all GPUs together, and of each if there are many GPUs: more than caches hold. */
#define ALL_VALUES (UINT64_C(1) << 24)
#define MOST_VALUES (UINT64_C(1) << 22)

typedef struct measuring {
    const rpexec_site *site;
    uint64_t values; /* count for each GPU */
    rpexec_trial trial;
} measuring;

static rpexec_update cut(const measuring *m, unsigned char *base, uint64_t *bytes_out)
{
    rp_dtype dtype = m->site->model->dtype;
    rpexec_cutter c = {.base = base, .dtype = dtype};
    rpexec_update u = {.scale = 1, .count = m->values};
    u.gradients = rpexec_cut(&c, m->values);
    u.weights = dtype == RP_DTYPE_F32 ? NULL : rpexec_cut(&c, m->values);
    u.master = rpexec_cut_floats(&c, m->values);
    u.m = rpexec_cut_floats(&c, m->values);
    u.v = rpexec_cut_floats(&c, m->values);
    *bytes_out = c.used;
    return u;
}

/* Values of a GPU's share of the model, or as many of them as fit. */
static void choose_values(measuring *m)
{
    const rpexec_site *site = m->site;
    uint64_t room =
        (site->gpu_bytes != 0 ? site->gpu_bytes : rp_host_memory_available("") / site->gpus) / 2;
    uint64_t most = ALL_VALUES / site->gpus > MOST_VALUES ? ALL_VALUES / site->gpus : MOST_VALUES;
    m->values = rpexec_model_trained(site->model, 0, site->model->layer_count) / site->gpus;
    m->values = m->values > most ? most : m->values == 0 ? 1 : m->values;
    (void)cut(m, NULL, &m->trial.gpu_bytes);
    while (m->trial.gpu_bytes > room && m->values > 0) {
        m->values /= 2;
        (void)cut(m, NULL, &m->trial.gpu_bytes);
    }
}

static rp_status prepare_memory(void *context, rpexec_driver *driver)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    for (uint32_t gpu = 0; gpu < m->site->gpus; gpu++) {
        RP_TRY(type->transfer(driver, type->memory(driver, gpu), NULL, m->trial.gpu_bytes));
    }
    return RP_OK;
}

/* A step of UPDATE (exec/run/ops.c), without waiting for other GPUs. */
static rp_status step(void *context, uint32_t number, uint32_t op, rpexec_driver *driver,
                      rpexec_lane *lane)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    const rpexec_operators *o = rpexec_driver_operators(type, driver, m->site->model->dtype);
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, 1);
    rpexec_squares sum = {0};
    uint64_t bytes = 0;
    const rpexec_update u = cut(m, type->memory(driver, m->trial.ops[number].gpu), &bytes);
    (void)op;
    o->squares(lane, u.count, u.gradients, &sum);
    o->adam(lane, &factors, &u);
    o->zero(lane, u.count, (void *)(uintptr_t)u.gradients);
    return RP_OK;
}

static rp_status measure(measuring *m, double *Bps_out)
{
    const rpexec_trial *t = &m->trial;
    uint32_t gpus = m->site->gpus;
    double *seconds = NULL;
    RP_TRY(rp_arena_alloc(t->arena, (size_t)STEPS * gpus, sizeof *seconds, &seconds));
    for (uint32_t i = 0; i < STEPS * gpus; i++) {
        RP_TRY(
            rpexec_trial_append(&m->trial, i % gpus, RP_QUEUE_COMPUTE, RP_OP_UPDATE, 0, NULL, 0));
    }
    RP_TRY(rpexec_trial_run(&m->trial, prepare_memory, step, m));
    for (uint32_t i = gpus; i < STEPS * gpus; i++) {
        seconds[i - gpus] = 1e-12 * (double)t->work_ps[i];
    }
    double median_s = rp_median(seconds, (STEPS - 1) * gpus);
    *Bps_out = median_s > 0 ? RP_GPU_ADAM_BYTES * (double)m->values / median_s : 0;
    return RP_OK;
}

rp_status rpexec_calibrate_memory(const rpexec_site *site, rp_arena *arena, double *Bps_out)
{
    measuring m = {.site = site};
    *Bps_out = 0;
    rpexec_trial_begin(site, arena, &m.trial);
    choose_values(&m);
    return m.values == 0 ? RP_OK : measure(&m, Bps_out);
}
