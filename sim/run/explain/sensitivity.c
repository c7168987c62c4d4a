/* Elasticities by simulating the same program again. */
#include "sim/run/explain/explain.h"

#include "sim/engine/stage_engine.h"

#include <math.h>

#define SPEED_STEP 0.01

/* Speed of each resource, relative to the case's. */
typedef struct speeds {
    double *links;   /* [gpu] */
    double *compute; /* [gpu] */
    double host;
    double dispatch;
    double peer;
    double *shared[RP_SHARED_COUNT]; /* [number] */
    uint32_t shared_count[RP_SHARED_COUNT];
} speeds;

typedef struct rerun {
    const rpsim_explain_case *c;
    double *link_scale; /* [gpu] */
    double *factors;    /* [op] */
    double *shared_scale[RP_SHARED_COUNT];
} rerun;

static double step_of(const rp_timeline *t)
{
    double period_ps = rp_metrics_period_ps(t);
    if (t->program->iteration_count >= RP_STEADY_ITERATIONS) {
        return period_ps;
    }
    int64_t last = 0;
    for (uint32_t i = 0; i < t->program->op_count; i++) {
        last = t->end_ps[i] > t->start_ps[i] && t->end_ps[i] > last ? t->end_ps[i] : last;
    }
    return (double)last;
}

/* The case's own factors, if it has any, multiplied by `speeds_of`. */
static const double *scaled(const double *given, const double *speeds_of, uint32_t count,
                            double *scale)
{
    for (uint32_t i = 0; i < count; i++) {
        scale[i] = (given != NULL ? given[i] : 1.0) * speeds_of[i];
    }
    return scale;
}

static rp_status simulate(const rerun *r, const speeds *s, rp_timeline **timeline_out,
                          rp_reason *reason)
{
    const rp_program *p = r->c->timeline->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            double given = r->c->factors != NULL ? r->c->factors[i] : 1.0;
            r->factors[i] = given / s->compute[p->queues[q].gpu];
        }
    }
    if (r->c->machine == NULL) {
        rp_stage_times times = *r->c->times;
        rp_metrics unused;
        times.hop_ps = rpsim_scaled_ps(times.hop_ps, 1.0 / s->peer);
        return rpsim_stage_run_scaled(p, &times, r->factors, timeline_out, &unused, reason);
    }
    rp_machine machine = *r->c->machine;
    machine.link_scale = scaled(machine.link_scale, s->links, p->gpu_count, r->link_scale);
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        machine.shared_scale[k] =
            scaled(machine.shared_scale[k], s->shared[k], s->shared_count[k], r->shared_scale[k]);
    }
    machine.host_Bps *= s->host;
    machine.adam_Bps *= s->host;
    machine.refresh_Bps *= s->host;
    machine.collect_Bps *= s->host;
    machine.module_ps = rpsim_scaled_ps(machine.module_ps, 1.0 / s->dispatch);
    machine.object_ps = rpsim_scaled_ps(machine.object_ps, 1.0 / s->host);
    machine.collective_Bps *= s->peer;
    machine.tensor.Bps *= s->peer;
    machine.data.Bps *= s->peer;
    machine.peer_Bps *= s->peer;
    return rpsim_hardware_run_scaled(p, r->c->costs, &machine, r->factors, timeline_out, reason);
}

static rp_status measure(const rerun *r, const speeds *s, double *step_ps_out, rp_reason *reason)
{
    rp_timeline *timeline = NULL;
    RP_TRY(simulate(r, s, &timeline, reason));
    *step_ps_out = step_of(timeline);
    rp_timeline_destroy(timeline);
    return RP_OK;
}

static void multiply(double *speeds_of, uint32_t begin, uint32_t end, double factor)
{
    for (uint32_t i = begin; i < end; i++) {
        speeds_of[i] *= factor;
    }
}

/* -d ln(step) / d ln(speed) of resources [begin, end), by a central difference: exactly 1 if the
 * step is inversely proportional to the speed. It uses no logarithm, because libraries differ in
 * its last digit. */
static rp_status elasticity(const rerun *r, speeds *s, double *which, uint32_t begin, uint32_t end,
                            double *elasticity_out, rp_reason *reason)
{
    double step_ps[2];
    for (int faster = 0; faster < 2; faster++) {
        double factor = faster ? 1.0 + SPEED_STEP : 1.0 - SPEED_STEP;
        multiply(which, begin, end, factor);
        rp_status status = measure(r, s, &step_ps[faster], reason);
        for (uint32_t i = begin; i < end; i++) {
            which[i] = 1.0;
        }
        RP_TRY(status);
    }
    double sum_ps = step_ps[0] + step_ps[1];
    *elasticity_out = sum_ps > 0 ? (step_ps[0] - step_ps[1]) / sum_ps / SPEED_STEP : 0.0;
    return RP_OK;
}

static bool has_peers(const rp_program *p)
{
    for (uint32_t q = 0; q < p->queue_count; q++) {
        rp_carrier carrier = rp_queue_kind_carrier((rp_queue_kind)p->queues[q].kind);
        if (carrier == RP_CARRIER_PEER && p->queues[q].op_end > p->queues[q].op_begin) {
            return true;
        }
    }
    return false;
}

/* Computes the elasticities of the links that GPUs share. */
static rp_status shared_elasticities(const rerun *r, speeds *s, rpsim_sensitivity *out,
                                     rp_reason *reason)
{
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        uint32_t count = s->shared_count[k];
        if (count > 0) {
            RP_TRY(elasticity(r, s, s->shared[k], 0, count, &out->shared[k], reason));
        }
        for (uint32_t i = 0; out->shared_of[k] != NULL && i < count; i++) {
            RP_TRY(elasticity(r, s, s->shared[k], i, i + 1, &out->shared_of[k][i], reason));
        }
    }
    return RP_OK;
}

static rp_status elasticities(const rerun *r, speeds *s, rpsim_sensitivity *out, rp_reason *reason)
{
    uint32_t gpus = r->c->timeline->program->gpu_count;
    RP_TRY(elasticity(r, s, s->compute, 0, gpus, &out->compute, reason));
    for (uint32_t gpu = 0; out->compute_of != NULL && gpu < gpus; gpu++) {
        RP_TRY(elasticity(r, s, s->compute, gpu, gpu + 1, &out->compute_of[gpu], reason));
    }
    if (r->c->machine == NULL) {
        return elasticity(r, s, &s->peer, 0, 1, &out->peer, reason);
    }
    if (has_peers(r->c->timeline->program)) {
        RP_TRY(elasticity(r, s, &s->peer, 0, 1, &out->peer, reason));
    }
    if (r->c->costs->dispatch.queue_depth != 0) {
        RP_TRY(elasticity(r, s, &s->dispatch, 0, 1, &out->dispatch, reason));
    }
    RP_TRY(elasticity(r, s, s->links, 0, gpus, &out->links, reason));
    for (uint32_t gpu = 0; out->link_of != NULL && gpu < gpus; gpu++) {
        RP_TRY(elasticity(r, s, s->links, gpu, gpu + 1, &out->link_of[gpu], reason));
    }
    RP_TRY(shared_elasticities(r, s, out, reason));
    return elasticity(r, s, &s->host, 0, 1, &out->host, reason);
}

static rp_status prepare(const rpsim_explain_case *c, rp_arena *scratch, rerun *r, speeds *s)
{
    const rp_program *p = c->timeline->program;
    *r = (rerun){.c = c};
    *s = (speeds){.host = 1.0, .dispatch = 1.0, .peer = 1.0};
    RP_TRY(rp_arena_alloc(scratch, p->gpu_count, sizeof(double), &r->link_scale));
    RP_TRY(rp_arena_alloc(scratch, p->op_count, sizeof(double), &r->factors));
    RP_TRY(rp_arena_alloc(scratch, p->gpu_count, sizeof(double), &s->links));
    RP_TRY(rp_arena_alloc(scratch, p->gpu_count, sizeof(double), &s->compute));
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        s->links[gpu] = s->compute[gpu] = 1.0;
    }
    for (int k = 0; c->machine != NULL && k < RP_SHARED_COUNT; k++) {
        uint32_t count = rp_machine_shared_count(c->machine, p->gpu_count, (rp_shared)k);
        RP_TRY(rp_arena_alloc(scratch, count, sizeof(double), &s->shared[k]));
        RP_TRY(rp_arena_alloc(scratch, count, sizeof(double), &r->shared_scale[k]));
        s->shared_count[k] = count;
        for (uint32_t i = 0; i < count; i++) {
            s->shared[k][i] = 1.0;
        }
    }
    return RP_OK;
}

rp_status rpsim_explain_sensitivity(const rpsim_explain_case *c, rp_arena *arena,
                                    rpsim_sensitivity *sensitivity_out, rp_reason *reason)
{
    uint32_t gpus = c->timeline->program->gpu_count;
    rpsim_sensitivity out = {
        .step_ps = step_of(c->timeline), .links = NAN, .host = NAN, .dispatch = NAN, .peer = NAN};
    if (gpus <= RPSIM_MAX_SINGLE) {
        RP_TRY(rp_arena_alloc(arena, gpus, sizeof(double), &out.compute_of));
    }
    if (gpus <= RPSIM_MAX_SINGLE && c->machine != NULL) {
        RP_TRY(rp_arena_alloc(arena, gpus, sizeof(double), &out.link_of));
    }
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        out.shared[k] = NAN;
        if (c->machine != NULL) {
            out.shared_count[k] = rp_machine_shared_count(c->machine, gpus, (rp_shared)k);
        }
        if (out.shared_count[k] > 0 && out.shared_count[k] <= RPSIM_MAX_SINGLE) {
            RP_TRY(rp_arena_alloc(arena, out.shared_count[k], sizeof(double), &out.shared_of[k]));
        }
    }
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rerun r;
    speeds s;
    rp_status status = prepare(c, scratch, &r, &s);
    if (status == RP_OK) {
        status = elasticities(&r, &s, &out, reason);
    }
    rp_arena_destroy(scratch);
    if (status == RP_OK) {
        *sensitivity_out = out;
    }
    return status;
}
