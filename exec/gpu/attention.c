/* Choice between our own kernels and cuDNN for the forward of attention.
 *
 * All GPUs of a run share the choice: results must not depend on the GPU that has a layer. So all
 * plans are made and all lanes are tried before the first op, and if any fails, no lane uses cuDNN.
 * AUTO compares times, which differ from run to run, so that two runs may differ in bits: therefore
 * it is not the default. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Most different numbers of sequences in a program's microbatches: mostly there is a single
 * number. */
#define MOST_SHAPES 16u

rp_status rpexec_gpu_open_attention(rpexec_devices *d)
{
    const char *name = "cudnn";
    const char *why = "this rpexec was built without it";
    d->attention =
        (rpexec_attention_report){.by = "own", .own_s = (double)NAN, .cudnn_s = (double)NAN};
    d->attention_by = d->config.attention;
    if (d->config.attention == RPEXEC_ATTENTION_OWN ||
        (d->calls->cudnn != NULL && d->calls->cudnn(&name, &why))) {
        return RP_OK;
    }
    if (d->config.attention == RPEXEC_ATTENTION_CUDNN) {
        rp_log_error("{attention} cudnn: %s; valid here are own and auto", why);
        return RP_USAGE;
    }
    d->attention_by = RPEXEC_ATTENTION_OWN;
    d->attention.why = why;
    return RP_OK;
}

/* Finds the different numbers of sequences, largest first. @return their count; MOST_SHAPES + 1:
 * there are more */
static uint32_t shapes_of(const rp_program *p, uint32_t shapes[MOST_SHAPES])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->microbatch_count; i++) {
        uint32_t k = 0;
        while (k < count && shapes[k] != p->sequences[i]) {
            k++;
        }
        if (k == MOST_SHAPES) {
            return MOST_SHAPES + 1;
        }
        shapes[k] = p->sequences[i];
        count = k == count ? count + 1 : count;
        if (shapes[k] > shapes[0]) {
            uint32_t first = shapes[0];
            shapes[0] = shapes[k];
            shapes[k] = first;
        }
    }
    return count;
}

/* Attention without cuDNN: takes our own kernels, or refuses if cuDNN is forced. */
static rp_status go_without(rpexec_driver *d, const char *why)
{
    rpexec_devices *devices = d->devices;
    if (devices->config.attention == RPEXEC_ATTENTION_CUDNN) {
        rp_log_error("{attention} cudnn: %s; valid here are own and auto", why);
        return RP_USAGE;
    }
    char *kept = NULL;
    size_t size = strlen(why) + 1; /* `why` may end with a plan */
    RP_TRY(rp_arena_alloc(devices->arena, size, 1, &kept));
    memcpy(kept, why, size);
    for (uint32_t i = 0; i < devices->count; i++) {
        rpexec_gpu *gpu = &devices->gpus[i];
        if (gpu->lanes[RP_QUEUE_COMPUTE] != NULL) {
            rpexec_gpu_visit(devices, gpu);
            rpexec_gpu_graphs_clear(gpu->graphs[RP_QUEUE_COMPUTE]); /* they may hold its kernels */
            d->calls->attention_own(gpu->lanes[RP_QUEUE_COMPUTE]);
            rpexec_gpu_leave(devices, gpu);
        }
    }
    devices->attention.by = "own";
    devices->attention.why = kept;
    devices->attention_by = RPEXEC_ATTENTION_OWN;
    return RP_OK;
}

/* Makes plans for all shapes, and the first time a trial of the largest.
 * @param trial_out unchanged without a trial */
static rp_status prepare_lane(rpexec_driver *d, rpexec_gpu *gpu, const uint32_t *shapes,
                              uint32_t count, rpexec_attention_trial *trial_out,
                              const char **why_out)
{
    const rpexec_model *model = d->config.plan->model;
    rpexec_lane *lane = gpu->lanes[RP_QUEUE_COMPUTE];
    rpexec_attention_sizes sizes = {.seq_len = model->seq_len,
                                    .heads = model->config->heads,
                                    .kv_heads = model->config->kv_heads,
                                    .head_dim = model->config->head_dim,
                                    .scale = (float)model->config->attention_scale,
                                    .cap = (float)model->config->attention_cap};
    for (uint32_t i = 0; i < count; i++) {
        sizes.sequences = shapes[i];
        RP_TRY(d->calls->attention_plan(lane, d->devices->arena, &sizes, why_out));
    }
    sizes.sequences = shapes[0];
    return d->devices->attention_tried ? RP_OK
                                       : d->calls->attention_try(lane, &sizes, trial_out, why_out);
}

/* True if cuDNN is taken, by the results of the trials; otherwise `why` gets the reason. */
static bool is_taken(rpexec_devices *d, const rpexec_attention_trial *first, double worst,
                     bool same_bits, char why[static 160])
{
    d->attention.own_s = first->own_s;
    d->attention.cudnn_s = first->cudnn_s;
    if (!(worst <= 1)) {
        snprintf(why, 160, "cuDNN's results differ from our own by %.3g times what is allowed",
                 worst);
        return false;
    }
    if (!same_bits) { /* engines' notes do not always tell */
        snprintf(why, 160, "two runs of cuDNN's differ in bits");
        return false;
    }
    if (d->config.attention == RPEXEC_ATTENTION_AUTO && !(first->cudnn_s < first->own_s)) {
        snprintf(why, 160, "cuDNN is not faster");
        return false;
    }
    return true;
}

rp_status rpexec_gpu_choose_attention(rpexec_driver *d)
{
    rpexec_devices *devices = d->devices;
    uint32_t shapes[MOST_SHAPES];
    uint32_t count = shapes_of(d->config.plan->program, shapes);
    rpexec_attention_trial first = {.own_s = 0};
    double worst = 0;
    bool same_bits = true;
    bool any = false;
    char text[160];
    if (devices->attention_by == RPEXEC_ATTENTION_OWN) {
        return RP_OK;
    }
    if (count > MOST_SHAPES) {
        return go_without(d, "more than 16 different numbers of sequences in a microbatch");
    }
    for (uint32_t i = 0; i < devices->count; i++) {
        rpexec_gpu *gpu = &devices->gpus[i];
        rpexec_attention_trial trial = {.own_s = 0};
        const char *why = NULL;
        if (gpu->lanes[RP_QUEUE_COMPUTE] == NULL) {
            continue;
        }
        rpexec_gpu_visit(devices, gpu);
        rp_status status = prepare_lane(d, gpu, shapes, count, &trial, &why);
        rpexec_gpu_leave(devices, gpu);
        if (status != RP_OK) {
            return status == RP_NO_MEMORY ? status : go_without(d, why);
        }
        first = any ? first : trial;
        worst = isnan(worst) || trial.worst <= worst ? worst : trial.worst;
        same_bits &= trial.same_bits;
        any = true;
    }
    if (!any || devices->attention_tried) {
        return RP_OK;
    }
    devices->attention_tried = true;
    if (!is_taken(devices, &first, worst, same_bits, text)) {
        return go_without(d, text);
    }
    devices->attention_by = RPEXEC_ATTENTION_CUDNN;
    const char *why = NULL;
    return d->calls->cudnn(&devices->attention.by, &why) ? RP_OK : RP_BROKEN;
}

void rpexec_gpu_report_attention(const rpexec_devices *d, rpexec_attention_report *report_out)
{
    *report_out = d->attention;
}
