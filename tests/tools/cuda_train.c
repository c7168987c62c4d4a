/* Training with the CUDA backend's own kernels, lanes and runtime table, on the emulator: the
 * driver for GPUs as on a device, but one kernel at a time. Losses and gradients against plain
 * loops on the host, whose operators add up in another order. */
#include "exec/cuda/runtime.h"
#include "tests/support/exec_case.h"

#include <math.h>
#include <stdio.h>

typedef struct trial {
    const char *schedule;
    uint32_t gpus;
    rpexec_dtype dtype;
    double loss;     /* allowed, relative */
    double gradient; /* allowed, of value and rms */
    uint32_t lora_rank;
    bool experts;
} trial;

/* 16-bit storage: an element's parts may cancel, so a large part of it; what --check allows of a
 * tensor's rms is looked at on a device. */
static const trial trials[] = {
    {"roundpipe", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 0, false},
    {"1f1b", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 0, false},
    {"zbv", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 0, false},
    {"fsdp", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 0, false},
    {"zero2", 2, RPEXEC_DTYPE_BF16, 1e-3, 0.2, 0, false},
    {"roundpipe", 2, RPEXEC_DTYPE_BF16, 1e-3, 0.2, 0, false},
    {"1f1b", 2, RPEXEC_DTYPE_F16, 1e-4, 0.02, 0, false},
    {"roundpipe", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 2, false},
    {"roundpipe", 2, RPEXEC_DTYPE_F32, 1e-6, 2e-5, 0, true},
};

static rp_status run(const trial *t, rp_arena *arena, double *loss_error, double *gradient_error)
{
    rp_model config = rp_test_decoder(2, true, true);
    rp_test_run got;
    rp_test_run right;
    const rp_schedule_type *schedule = rp_schedule_find(t->schedule);
    const rpexec_work work = {.schedule = schedule,
                              .gpus = t->gpus,
                              .calls = 1,
                              .microbatches = 4,
                              .microbatch_size = 1,
                              .iterations = 2,
                              .round = RP_ROUND_ALL,
                              .recompute = schedule->default_recompute,
                              .piece_bytes = 20000};
    const rp_test_twist on_gpu = {
        .dtype = t->dtype, .driver_type = rpexec_cuda_driver(), .devices = {.is_virtual = true}};
    const rp_test_twist plain = {.dtype = t->dtype};
    config.experts = t->experts ? 4 : 1;
    config.active_experts = t->experts ? 2 : 1;
    if (t->lora_rank != 0) {
        rp_model_set_lora_rank(&config, t->lora_rank);
    }
    RP_TRY(rp_test_execute(arena, &config, 9, &work, &on_gpu, &got));
    RP_TRY(rp_test_single_from(arena, &config, 9, &work, &plain, &right));
    for (uint32_t i = 0; i < work.iterations; i++) {
        *loss_error = fmax(*loss_error, fabs(got.losses[i] / right.losses[i] - 1));
    }
    *gradient_error = rp_test_distance(&got, &right);
    return RP_OK;
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const trial *t = &trials[i];
        rp_arena *arena = NULL;
        double loss = 0;
        double gradient = 0;
        rp_status status = rp_arena_create(&arena);
        status = status == RP_OK ? run(t, arena, &loss, &gradient) : status;
        rp_arena_destroy(arena);
        /* Comparisons that are false for NaN. */
        bool right = status == RP_OK && loss <= t->loss && gradient <= t->gradient;
        printf("%s, %s%s: losses differ by %.2g, gradients by %.2g%s\n", t->schedule,
               rpexec_dtype_text(t->dtype), t->experts ? ", experts" : "", loss, gradient,
               right ? "" : ": TOO MUCH");
        failed += right ? 0 : 1;
    }
    return failed > 0;
}
