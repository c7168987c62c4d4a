/* Host memory of DeepSpeed's offloading, over sizes and numbers of processes: allocations in its
 * sources (0.17.5), tensor by tensor, and its own estimators. */
#include "common/base/log.h"
#include "common/schedule/schedule_type.h"
#include "sim/run/memory/host.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

#define MOST 4096u
#define GROUP 1e9
#define PROCESS 2e9

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(host_memory, .init = begin, .fini = end, .timeout = 120);

/* Parameters of a LlamaForCausalLM in module order (transformers, modeling_llama.py). */
typedef struct parameters {
    uint64_t elements[MOST];
    uint32_t count;
    double all;
} parameters;

static void add(parameters *p, uint64_t elements)
{
    cr_assert(lt(u32, p->count, MOST));
    p->elements[p->count++] = elements;
    p->all += (double)elements;
}

static const uint64_t shapes[][5] = {/* hidden, intermediate, layers, key-value width, vocabulary */
                                     {1024, 2816, 3, 1024, 32000},
                                     {2048, 5504, 24, 2048, 151936},
                                     {4096, 11008, 32, 4096, 32000},
                                     {4096, 14336, 32, 1024, 128256},
                                     {5120, 13824, 40, 5120, 32000},
                                     {6656, 17920, 60, 6656, 32000},
                                     {5120, 27648, 64, 1024, 152064},
                                     {8192, 28672, 80, 1024, 128256}};

#define SHAPES (sizeof shapes / sizeof shapes[0])

static parameters *list(const uint64_t s[5])
{
    parameters *p = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof *p, &p), RP_OK));
    add(p, s[4] * s[0]);
    for (uint64_t layer = 0; layer < s[2]; layer++) {
        add(p, s[0] * s[0]);
        add(p, s[0] * s[3]);
        add(p, s[0] * s[3]);
        add(p, s[0] * s[0]);
        add(p, s[1] * s[0]);
        add(p, s[1] * s[0]);
        add(p, s[0] * s[1]);
        add(p, s[0]);
        add(p, s[0]);
    }
    add(p, s[0]);
    add(p, s[4] * s[0]);
    return p;
}

static rp_model model_of(const uint64_t s[5])
{
    rp_model m = {.name = "llama",
                  .layers = (uint32_t)s[2],
                  .hidden = (uint32_t)s[0],
                  .heads = (uint32_t)s[0] / 128,
                  .kv_heads = (uint32_t)s[3] / 128,
                  .head_dim = 128,
                  .intermediate = (uint32_t)s[1],
                  .experts = 1,
                  .active_experts = 1,
                  .vocab = (uint32_t)s[4]};
    rp_model_count(&m);
    return m;
}

/* llvm::PowerOf2Ceil of c10/util/llvmMathExtras.h. */
static double rounded(double bytes)
{
    uint64_t b = (uint64_t)bytes;
    return b <= 1 ? (double)b : (double)(UINT64_C(1) << (64 - __builtin_clzll(b - 1)));
}

/* Stage 3 with both offloads. partition_parameters.py, _partition_param: a pinned tensor each;
 * stage3.py, _create_param_groups_fp16_flat_cpu_memory: one pinned; grad_partitions_flat_buffer:
 * one; initialize_optimizer_states: an fp32 tensor per sub-group, cut by _create_fp16_sub_groups;
 * _create_fp32_partitions and DeepSpeedCPUAdam: 4 + 8, pageable. */
static double stage_3(const parameters *p, double gpus, bool pins)
{
    double share = 0;
    double copies = 0;
    double gradients = 0;
    double group = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        double own = (double)((p->elements[i] + (uint64_t)gpus - 1) / (uint64_t)gpus);
        share += own;
        group += own;
        copies += pins ? rounded(2 * own) : 0;
        if (group >= GROUP || i + 1 == p->count) {
            gradients += pins ? rounded(4 * group) : 4 * group;
            group = 0;
        }
    }
    double flat = pins ? rounded(2 * share) : 2 * share;
    return gpus * (rounded(2 * share) + copies + flat + gradients + 12 * share + PROCESS);
}

/* Stage 2. stage_1_and_2.py: always a pinned fp32 master, param_buffer_of_bit16, fp32 gradients
 * (initialize_optimizer_states), moments, temp_grad_buffer_for_cpu_offload; with accumulation
 * accumulated_grads_in_cpu of each parameter on its owner's rank. */
static double stage_2(const parameters *p, double gpus, bool pins, bool accumulates)
{
    double share = 0;
    double whole = 0;
    double largest = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        double bytes = 2 * (double)p->elements[i];
        share += (double)((p->elements[i] + (uint64_t)gpus - 1) / (uint64_t)gpus);
        whole += pins ? rounded(bytes) : bytes;
        largest = bytes > largest ? bytes : largest;
    }
    double more = pins ? rounded(2 * share) + rounded(4 * share) + rounded(largest)
                       : 2 * share + 4 * share + largest;
    return gpus * (rounded(4 * share) + more + 8 * share + PROCESS) + (accumulates ? whole : 0);
}

static double bytes_of(const char *schedule, const rp_model *m, uint32_t gpus, bool pins,
                       bool accumulates)
{
    rp_sharding sharding = rp_schedule_find(schedule)->traits.sharding;
    cr_expect(sharding.pins, "%s", schedule);
    sharding.pins = pins;
    return (double)rpsim_zero_host_bytes(&sharding, m, RP_DTYPE_BF16, gpus, accumulates);
}

Test(host_memory, deepspeed_by_its_sources)
{
    for (size_t k = 0; k < SHAPES; k++) {
        const parameters *p = list(shapes[k]);
        rp_model m = model_of(shapes[k]);
        cr_assert(eq(dbl, p->all, (double)m.total_parameters));
        for (uint32_t gpus = 1; gpus <= 64; gpus += gpus < 8 ? 1 : gpus) {
            /* Norms are a single parameter here: at most a power of two is missing for each. */
            double slack = 16.0 * (double)(shapes[k][0] * shapes[k][2]) + 1e5 * gpus;
            for (int pins = 0; pins <= 1; pins++) {
                double expected = stage_3(p, gpus, pins);
                cr_expect(epsilon_eq(dbl, bytes_of("zero-infinity", &m, gpus, pins, true), expected,
                                     slack),
                          "%.1f B on %u, pinned %d", 1e-9 * p->all, gpus, pins);
                for (int several = 0; several <= 1; several++) {
                    expected = stage_2(p, gpus, pins, several);
                    cr_expect(epsilon_eq(dbl, bytes_of("zero-offload", &m, gpus, pins, several),
                                         expected, slack),
                              "%.1f B on %u, pinned %d", 1e-9 * p->all, gpus, pins);
                }
            }
        }
    }
}

/* DeepSpeed's estimators (estimate_zero3_model_states_mem_needs, estimate_zero2_…) count 18 and 16
 * bytes per parameter, before a factor for buffers. That is the least. The most has each pinned
 * buffer just above a power of two: 12 + 2 x 10, and 8 + 2 x 12. */
Test(host_memory, between_the_estimators_and_twice_what_is_pinned)
{
    for (size_t k = 0; k < SHAPES; k++) {
        rp_model m = model_of(shapes[k]);
        double p = (double)m.total_parameters;
        for (uint32_t gpus = 1; gpus <= 8; gpus++) {
            double rest = gpus * PROCESS;
            double infinity = bytes_of("zero-infinity", &m, gpus, true, true);
            double offload = bytes_of("zero-offload", &m, gpus, true, true);
            double largest = 4.0 * gpus * (double)m.embedding_parameters;
            cr_expect(ge(dbl, infinity, 18 * p + rest));
            cr_expect(le(dbl, infinity, 32 * p + rest));
            cr_expect(ge(dbl, offload, 16 * p + rest));
            cr_expect(le(dbl, offload, 32 * p + rest + largest));
        }
    }
}

/* Frozen weights take v bytes each, or each tensor's next power of two. */
Test(host_memory, a_frozen_base_has_its_type)
{
    for (rp_dtype dtype = 0; dtype < RP_DTYPE_COUNT; dtype++) {
        double v = (double)rp_dtype_bytes(dtype);
        rp_sharding sharding = rp_schedule_find("zero-infinity")->traits.sharding;
        rp_model m = model_of(shapes[3]);
        rp_model_set_lora_rank(&m, 16);
        double adapters = (double)(m.layers * m.adapter_parameters);
        double base = v * (double)m.total_parameters + 8 * PROCESS;
        double pinned = (double)rpsim_zero_host_bytes(&sharding, &m, dtype, 8, true);
        cr_expect(le(dbl, pinned, 2 * base + 40 * adapters));
        sharding.pins = false;
        double exact = (double)rpsim_zero_host_bytes(&sharding, &m, dtype, 8, true);
        cr_expect(ge(dbl, exact, base + 20 * adapters));
        cr_expect(le(dbl, exact, base + (16 + 3 * v) * adapters));
    }
}
