#include "sim/run/library_run.h"

#include "common/inputs/stacks/stack.h"
#include "common/planner/planner.h"
#include "sim/run/memory/library_memory.h"

#include <stdio.h>

static void say(rpsim_memory *memory, uint32_t gpu, uint64_t fixed, uint64_t limit,
                const rpsim_library_memory *m)
{
    snprintf(
        memory->oom_reason, sizeof memory->oom_reason,
        "GPU %u: PyTorch's allocator may take %llu bytes; the run needs %llu bytes of tensors, "
        "which do not fit into its segments",
        gpu, (unsigned long long)limit, (unsigned long long)m->peak_live_bytes);
    memory->need = (rpsim_memory_need){.gpu = gpu,
                                       .need_bytes = memory->peak_gpu_bytes[gpu],
                                       .limit_bytes = fixed + limit,
                                       .part_count = 2};
    memory->need.parts[0].name = "tensors in segments of PyTorch's allocator";
    memory->need.parts[0].bytes = m->peak_live_bytes;
    memory->need.parts[1].name = "context and libraries";
    memory->need.parts[1].bytes = fixed;
}

/* Measures the peaks of all GPUs; if the host's part fits, the first GPU without room is given as
 * the reason. */
static rp_status measure_gpus(const rpsim_library_run *run, const rpsim_memory_limits *limits,
                              rpsim_memory *memory)
{
    uint64_t fixed = limits->gpu_fixed_bytes;
    uint64_t limit = limits->gpu_bytes > fixed ? limits->gpu_bytes - fixed : 0;
    memory->fits = rpsim_memory_host_fits(memory);
    memory->oom_reason[0] = '\0';
    memory->need = (rpsim_memory_need){0};
    memory->reserved_gpu_bytes = NULL; /* the replay says what fits, not what stays reserved */
    if (!memory->fits) {
        rpsim_memory_blame_host(memory);
    }
    for (uint32_t gpu = 0; gpu < memory->gpu_count; gpu++) {
        rpsim_library_memory taken;
        uint32_t same = 0;
        while (!rpsim_library_same(run, gpu, same)) {
            same++;
        }
        if (same < gpu) {
            memory->peak_gpu_bytes[gpu] = memory->peak_gpu_bytes[same];
            continue;
        }
        RP_TRY(rpsim_library_memory_of(run, gpu, limit, &taken));
        memory->peak_gpu_bytes[gpu] = fixed + taken.peak_live_bytes;
        if (memory->fits && !taken.fits) {
            memory->fits = false;
            say(memory, gpu, fixed, limit, &taken);
        }
    }
    return RP_OK;
}

static rp_status measure(const rp_resolved *r, const rp_platform *platform,
                         const rpsim_memory_limits *limits, rp_arena *scratch, rpsim_memory *memory,
                         rp_reason *reason)
{
    rp_partition plans[2] = {*r->partition, *r->partition};
    const uint32_t calls[2] = {r->decided.accumulate, r->decided.accumulate};
    uint32_t largest =
        (r->global_batch - 1) / (r->decided.accumulate * r->decided.microbatches) + 1;
    rpsim_layer_tensors tensors;
    rpsim_library_run run = {.model = r->model,
                             .tensors = &tensors,
                             .tokens = (uint64_t)largest * r->decided.seq_len,
                             .microbatches = rp_resolved_round(r),
                             .layer_grain = r->decided.layer_grain,
                             .gpus = r->gpus,
                             .plans = plans,
                             .calls = calls,
                             .plan_count = 2};
    if (r->planned) {
        RP_TRY(rpsim_first_plan(r->costs, r->model, rp_plan_default_limit(platform), r->gpus,
                                scratch, &plans[0], reason));
    }
    RP_TRY(rpsim_layer_tensors_load(r->model, run.tokens, scratch, &tensors));
    return measure_gpus(&run, limits, memory);
}

rp_status rpsim_library_measure(const rp_resolved *run, const rp_platform *platform,
                                rpsim_memory *memory, rp_reason *reason)
{
    bool recorded = rp_dtype_bytes(run->decided.dtype) == 2 && rpsim_layer_is_recorded(run->model);
    bool recomputes = rp_recompute_has_ops(run->recompute);
    const rp_stack *stack = run->costs->stack;
    bool other = stack != NULL && !stack->clones_modules;
    if (!run->schedule->library_memory || other || !recorded || !recomputes || !memory->known) {
        return RP_OK;
    }
    const rpsim_memory_limits limits =
        rpsim_memory_limits_of(platform, &run->schedule->traits, run->gpus);
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = measure(run, platform, &limits, scratch, memory, reason);
    rp_arena_destroy(scratch);
    return status;
}
