/* Training with the CUDA backend's own kernels, lanes and runtime table, on the emulator: the
 * driver for GPUs runs as on a device, but only one kernel at a time. Losses and gradients are
 * compared with plain loops on the host, whose operators add up in another order; with graphs the
 * bits are the same as without. */
#include "exec/cuda/emulator/green.h"
#include "exec/cuda/emulator/machine/machine.h"
#include "exec/cuda/runtime.h"
#include "exec/rpexec/train_internal.h"
#include "tests/support/exec_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trial {
    const char *schedule;
    uint32_t gpus;
    rp_dtype dtype;
    double loss;     /* allowed relative error */
    double gradient; /* allowed error relative to value and rms */
    uint32_t lora_rank;
    bool experts;
    bool graphs;
} trial;

/* A sample runs every second trial, all with fewer microbatches and layers. With 16-bit storage the
 * parts of an element may cancel, so a large part of it may differ; the bounds of --check on a
 * tensor's rms are tested on a device. */
static const trial trials[] = {
    {"roundpipe", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, false},
    {"1f1b", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, false},
    {"zbv", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, false},
    {"megatron-tp", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, false},
    {"fsdp", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, false},
    {"zero2", 2, RP_DTYPE_BF16, 1e-3, 0.2, 0, false, false},
    {"roundpipe", 2, RP_DTYPE_BF16, 1e-3, 0.2, 0, false, false},
    {"1f1b", 2, RP_DTYPE_F16, 1e-4, 0.02, 0, false, false},
    {"roundpipe", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, true},
    {"roundpipe", 2, RP_DTYPE_F32, 1e-6, 2e-5, 2, false, false},
    {"1f1b", 2, RP_DTYPE_F16, 1e-4, 0.02, 0, false, true},
    {"roundpipe", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, true, false},
    {"fsdp", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, false, true},
    {"zbv", 2, RP_DTYPE_BF16, 1e-3, 0.2, 0, false, true},
    {"roundpipe", 2, RP_DTYPE_F32, 1e-6, 2e-5, 0, true, true},
};

static bool sample;
static uint32_t microbatches = 4;
static rpexec_graph_counts counts; /* graphs of the last run */
static struct {
    char by[32];
    char why[160];
    double own_s;
    double cudnn_s;
} attention; /* attention of the last run */

static void detach(rpexec_devices *devices)
{
    rpexec_attention_report report;
    rpexec_cuda_driver()->graphs(devices, &counts);
    rpexec_cuda_driver()->attention(devices, &report);
    snprintf(attention.by, sizeof attention.by, "%s", report.by);
    snprintf(attention.why, sizeof attention.why, "%s", report.why != NULL ? report.why : "");
    attention.own_s = report.own_s;
    attention.cudnn_s = report.cudnn_s;
    rpexec_cuda_driver()->detach(devices);
}

static rp_status run(const trial *t, rp_arena *arena, double *loss_error, double *gradient_error)
{
    rp_model config = rp_test_decoder(2, true, true);
    rp_test_run got;
    rp_test_run right;
    const rp_schedule_type *schedule = rp_schedule_find(t->schedule);
    const rp_resolved work = {.schedule = schedule,
                              .gpus = t->gpus,
                              .decided.accumulate = 1,
                              .decided.microbatches = t->graphs ? 4 : microbatches,
                              .decided.microbatch_size = 1,
                              .decided.iterations = t->graphs ? 6 : 2,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = schedule->default_recompute,
                              .decided.piece_bytes = 20000};
    rpexec_driver_type type = *rpexec_cuda_driver();
    rp_test_twist on_gpu = {
        .dtype = t->dtype, .driver_type = &type, .devices = {.is_virtual = true}};
    const rp_test_twist plain = {.dtype = t->dtype};
    type.detach = detach;
    config.experts = t->experts ? 4 : 1;
    config.active_experts = t->experts ? 2 : 1;
    if (t->lora_rank != 0) {
        rp_model_set_lora_rank(&config, t->lora_rank);
    }
    RP_TRY(rp_test_execute(arena, &config, 9, &work, &on_gpu, &got));
    if (t->graphs) {
        rp_test_run by_graphs;
        on_gpu.devices.graphs = true;
        RP_TRY(rp_test_execute(arena, &config, 9, &work, &on_gpu, &by_graphs));
        if (!rp_test_same(&got, &by_graphs, work.decided.iterations) || counts.captures == 0 ||
            counts.launches < 2 * counts.captures) {
            printf("graphs: other bits, or %" PRIu64 " launches of %" PRIu64 " are few\n",
                   counts.launches, counts.captures);
            return RP_TOOL;
        }
    }
    RP_TRY(rp_test_single_from(arena, &config, 9, &work, &plain, &right));
    for (uint32_t i = 0; i < work.decided.iterations; i++) {
        *loss_error = fmax(*loss_error, fabs(got.losses[i] / right.losses[i] - 1));
    }
    *gradient_error = rp_test_distance(&got, &right);
    return RP_OK;
}

/* Two devices with peer access whose streams stop for a while, with graphs, have the same bits as
 * two parts of a single device whose streams do not stop, without graphs. */
static int check_late(const char *schedule, rp_dtype dtype)
{
    static const emulated_machine parts = {.devices = 1};
    static const emulated_machine late = {
        .devices = 2, .peers = true, .seed = 3, .delay_us = 400, .often = true};
    rp_model config = rp_test_decoder(2, false, true);
    const rp_schedule_type *type = rp_schedule_find(schedule);
    const rp_resolved work = {.schedule = type,
                              .gpus = 2,
                              .decided.accumulate = 1,
                              .decided.microbatches = microbatches,
                              .decided.microbatch_size = 1,
                              .decided.iterations = 3,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = type->default_recompute,
                              .decided.piece_bytes = 20000,
                              .peer_gpus = UINT32_MAX};
    rp_test_twist twist = {.dtype = dtype,
                           .driver_type = rpexec_cuda_driver(),
                           .watchdog_s = 60,
                           .devices = {.is_virtual = true}};
    rp_arena *arena = NULL;
    rp_test_run right, got;
    rp_status status = rp_arena_create(&arena);
    emulator_set_machine(&parts);
    status = status == RP_OK ? rp_test_execute(arena, &config, 9, &work, &twist, &right) : status;
    emulator_set_machine(&late);
    twist.devices = (rpexec_devices_config){.graphs = true, .stage_bytes = 1000};
    status = status == RP_OK ? rp_test_execute(arena, &config, 9, &work, &twist, &got) : status;
    emulator_set_machine(&parts);
    bool well = status == RP_OK && rp_test_same(&got, &right, work.decided.iterations);
    printf("late devices, %s, %s%s\n", schedule, rp_dtype_text(dtype), well ? "" : ": OTHER BITS");
    rp_arena_destroy(arena);
    return !well;
}

/* Compares gradients as --check does, for a model with many layers in which rounding grows; in 16
 * bits attention uses the tensor cores. */
static int check_deep(rp_dtype dtype)
{
    uint32_t layers = sample ? 6 : 12;
    rp_model config = rp_test_decoder(layers, true, true);
    config.heads = 2;
    config.kv_heads = 1;
    config.head_dim = 64;
    config.attention_parameters =
        (uint64_t)config.hidden * 4 * 64 + (uint64_t)2 * 64 * config.hidden;
    const rp_schedule_type *schedule = rp_schedule_find("1f1b");
    const rp_resolved work = {.schedule = schedule,
                              .gpus = 2,
                              .decided.accumulate = 1,
                              .decided.microbatches = microbatches,
                              .decided.microbatch_size = 1,
                              .decided.iterations = 1,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = schedule->default_recompute};
    const rp_test_twist on_gpu = {
        .dtype = dtype, .driver_type = rpexec_cuda_driver(), .devices = {.is_virtual = true}};
    const rp_test_twist plain = {.dtype = dtype};
    rpexec_outcome out = {.max_grad_rel_err = 0};
    rp_arena *arena = NULL;
    rp_test_run got, right;
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? rp_test_execute(arena, &config, 16, &work, &on_gpu, &got) : status;
    status =
        status == RP_OK ? rp_test_single_from(arena, &config, 16, &work, &plain, &right) : status;
    for (uint32_t i = 0; status == RP_OK && i + 1 < got.model.layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(&got.model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            uint64_t at = got.state.trained[i] + layer->tensors[k].offset;
            rpexec_check_tensor(got.state.gradients + at, right.state.gradients + at,
                                layer->tensors[k].rows * layer->tensors[k].columns, &out);
        }
    }
    double error = dtype == RP_DTYPE_F32 ? out.max_grad_rel_err : out.max_grad_rms_err;
    double allowed = rpexec_check_tolerance(dtype, true, microbatches, layers + 2);
    bool well = status == RP_OK && error > 0 && error <= allowed;
    printf("%u layers, %s: gradients differ by %.2g, --check allows %.2g%s\n", layers,
           rp_dtype_text(dtype), error, allowed, well ? "" : ": NOT WELL");
    rp_arena_destroy(arena);
    return !well;
}

/* Runs a training with a choice of the library for attention. */
static rp_status attend(rp_arena *arena, const char *schedule, rp_dtype dtype, uint32_t iterations,
                        rpexec_attention_by by, rp_test_run *run_out)
{
    static rp_model config; /* the run's model points to it */
    config = rp_test_decoder(1, true, true);
    const rp_schedule_type *type = rp_schedule_find(schedule);
    const rp_resolved work = {.schedule = type,
                              .gpus = 2,
                              .decided.accumulate = 1,
                              .decided.microbatches = 2,
                              .decided.microbatch_size = 2,
                              .decided.iterations = iterations,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = type->default_recompute,
                              .decided.piece_bytes = 20000};
    rpexec_driver_type driver = *rpexec_cuda_driver();
    const rp_test_twist twist = {
        .dtype = dtype,
        .driver_type = &driver,
        .devices = {.is_virtual = true, .graphs = iterations > 1, .attention = by}};
    driver.detach = detach;
    return rp_test_execute(arena, &config, 9, &work, &twist, run_out);
}

/* cuDNN's attention, as emulated, is used when it is asked for, is close to our own, and runs in
 * graphs. */
static int check_cudnn(const char *schedule, rp_dtype dtype)
{
    rp_arena *arena = NULL;
    rp_test_run own, cudnn, longer, again;
    rp_status status = rp_arena_create(&arena);
    status =
        status == RP_OK ? attend(arena, schedule, dtype, 1, RPEXEC_ATTENTION_OWN, &own) : status;
    bool well = strcmp(attention.by, "own") == 0 && isnan(attention.own_s);
    status = status == RP_OK ? attend(arena, schedule, dtype, 1, RPEXEC_ATTENTION_CUDNN, &cudnn)
                             : status;
    well &=
        strcmp(attention.by, "cudnn 9.19.0") == 0 && attention.own_s >= 0 && attention.cudnn_s >= 0;
    status = status == RP_OK ? attend(arena, schedule, dtype, 4, RPEXEC_ATTENTION_CUDNN, &longer)
                             : status;
    well &= counts.launches > 0;
    status = status == RP_OK ? attend(arena, schedule, dtype, 4, RPEXEC_ATTENTION_CUDNN, &again)
                             : status;
    double distance = status == RP_OK ? rp_test_distance(&cudnn, &own) : (double)NAN;
    well &= status == RP_OK && distance > 0 && distance <= (dtype == RP_DTYPE_F16 ? 0.02 : 0.2) &&
            rp_test_same(&longer, &again, 4) && longer.losses[0] == cudnn.losses[0];
    printf("attention by cuDNN, %s, %s: gradients differ by %.2g from our own's%s\n", schedule,
           rp_dtype_text(dtype), distance, well ? "" : ": NOT WELL");
    rp_arena_destroy(arena);
    return !well;
}

/* AUTO reports its choice, and takes our own attention if the results differ; then cuDNN cannot be
 * forced. */
static int check_choice(void)
{
    const rp_dtype dtype = RP_DTYPE_BF16;
    rp_arena *arena = NULL;
    rp_test_run own, cudnn, chosen, wrong, none;
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_OWN, &own) : status;
    status =
        status == RP_OK ? attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_CUDNN, &cudnn) : status;
    status =
        status == RP_OK ? attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_AUTO, &chosen) : status;
    bool by_cudnn = strcmp(attention.by, "own") != 0;
    bool well = by_cudnn == (attention.cudnn_s < attention.own_s);
    (void)setenv("EMULATED_CUDNN", "wrong", 1);
    status =
        status == RP_OK ? attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_AUTO, &wrong) : status;
    well &= strcmp(attention.by, "own") == 0 && strstr(attention.why, "differ") != NULL;
    well &= status == RP_OK &&
            attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_CUDNN, &none) == RP_USAGE;
    (void)setenv("EMULATED_CUDNN", "restless", 1);
    well &= attend(arena, "1f1b", dtype, 1, RPEXEC_ATTENTION_AUTO, &none) == RP_OK &&
            strstr(attention.why, "in bits") != NULL;
    (void)unsetenv("EMULATED_CUDNN");
    well &= status == RP_OK && rp_test_same(&wrong, &own, 1) &&
            rp_test_same(&chosen, by_cudnn ? &cudnn : &own, 1) && !rp_test_same(&cudnn, &own, 1);
    printf("attention by choice%s\n", well ? "" : ": NOT WELL");
    rp_arena_destroy(arena);
    return !well;
}

/* The argument is [sample]. */
int main(int count, char **words)
{
    int failed = 0;
    sample = count > 1 && strcmp(words[1], "sample") == 0;
    microbatches = sample ? 2 : 4;
    for (size_t i = sample ? 1 : 0; i < sizeof trials / sizeof *trials; i += sample ? 2 : 1) {
        const trial *t = &trials[i];
        rp_arena *arena = NULL;
        double loss = 0;
        double gradient = 0;
        rp_status status = rp_arena_create(&arena);
        status = status == RP_OK ? run(t, arena, &loss, &gradient) : status;
        rp_arena_destroy(arena);
        /* These comparisons are false for NaN. */
        bool right = status == RP_OK && loss <= t->loss && gradient <= t->gradient;
        printf("%s, %s%s%s: losses differ by %.2g, gradients by %.2g%s\n", t->schedule,
               rp_dtype_text(t->dtype), t->experts ? ", experts" : "", t->graphs ? ", graphs" : "",
               loss, gradient, right ? "" : ": TOO MUCH");
        failed += right ? 0 : 1;
    }
    for (uint32_t i = 0; i < RP_DTYPE_COUNT; i++) {
        failed += check_deep((rp_dtype)i);
    }
    failed += check_late("1f1b", RP_DTYPE_F16);
    failed += check_late("fsdp", RP_DTYPE_F32);
    failed += sample ? 0 : check_cudnn("1f1b", RP_DTYPE_BF16);
    failed += check_cudnn("roundpipe", RP_DTYPE_F16);
    failed += check_choice();
    /* Green contexts with streams cannot be destroyed. */
    if (emulator_green_contexts() != 0 || emulator_counted(EMULATED_LEFT) != 0) {
        printf("%u green contexts are left, %u other things\n", emulator_green_contexts(),
               emulator_counted(EMULATED_LEFT));
        failed++;
    }
    return failed > 0;
}
