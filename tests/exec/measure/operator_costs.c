/* Operators measured by themselves: the operators of a layer against the FLOP counts of work.h; a
 * layer performed call by call against a layer that runs; measurements on both drivers. */
#include "common/base/log.h"
#include "exec/host/driver.h"
#include "exec/host/lane.h"
#include "exec/host/rates.h"
#include "exec/measure/calibrate_operators.h"
#include "exec/model/layers.h"
#include "exec/operators/random.h"
#include "exec/run/work.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/fake/cuda.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_arena *arena;

static void set_up(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void tear_down(void)
{
    rp_test_end(arena);
}

TestSuite(exec_operator_costs, .init = set_up, .fini = tear_down, .timeout = 300);

#define SEQ_LEN 8u
#define SEQUENCES 3u

/* 0: dense, 1: with experts, 2: with adapters. */
static rp_model kind_of_model(int kind)
{
    rp_model config = rp_test_decoder(2, false, kind != 0);
    if (kind == 1) {
        config.experts = 4;
        config.active_experts = 2;
    }
    if (kind == 2) {
        rp_model_set_lora_rank(&config, 2);
    }
    return config;
}

static double flop_of(const rpexec_operator_costs *costs, rpexec_phase phase)
{
    double sum = 0;
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *row = &costs->rows[i];
        sum += row->phase == phase ? row->count * row->call->flop : 0;
    }
    return sum;
}

static void check_flop(const rpexec_operator_costs *costs, const rpexec_model *model)
{
    rp_costs flops;
    cr_assert(eq(int, rpexec_work_costs(model, SEQUENCES, arena, &flops), RP_OK));
    const double unit = (double)RPEXEC_PS_PER_FLOP;
    double frozen = model->rank != 0 ? 1 : 0; /* with adapters the head's table has no gradient */
    cr_expect(eq(dbl, flop_of(costs, RPEXEC_PHASE_BLOCK_FORWARD), (double)flops.fwd_ps[0] / unit));
    cr_expect(eq(dbl, flop_of(costs, RPEXEC_PHASE_BLOCK_BACKWARD), (double)flops.bwd_ps[0] / unit));
    double of_weights = 0;
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *row = &costs->rows[i];
        of_weights += row->of_weights ? row->count * row->call->flop : 0;
        cr_expect(row->phase == RPEXEC_PHASE_BLOCK_BACKWARD || !row->of_weights);
    }
    cr_expect(eq(dbl, of_weights, (double)(flops.bwd_ps[0] - flops.bwd_input_ps[0]) / unit));
    cr_expect(eq(dbl, flop_of(costs, RPEXEC_PHASE_HEAD),
                 (3 - frozen) * (double)flops.head_fwd_ps / unit));
    cr_expect(eq(dbl, flop_of(costs, RPEXEC_PHASE_EMBEDDING_FORWARD), 0));
}

static void check_costs(const rpexec_operator_costs *costs, bool updates)
{
    double sums[RPEXEC_PHASE_COUNT] = {0};
    cr_assert(gt(u32, costs->row_count, 10));
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *row = &costs->rows[i];
        cr_expect(row->median_s > 0 && row->median_s < 10, "%s: %g s", row->call->name,
                  row->median_s);
        cr_expect(row->total_s >= 0.5 * row->count * row->median_s || row->count > 1);
        cr_expect(row->call->bytes > 0, "%s", row->call->name);
        sums[row->phase] += row->total_s;
    }
    for (int i = 0; i < RPEXEC_PHASE_COUNT; i++) {
        cr_expect(le(dbl, fabs(sums[i] - costs->total_s[i]), 1e-12));
    }
    cr_expect(eq(int, costs->total_s[RPEXEC_PHASE_BLOCK_UPDATE] > 0, updates));
    double input_s = 0;
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *row = &costs->rows[i];
        bool counts = row->phase == RPEXEC_PHASE_BLOCK_BACKWARD && !row->of_weights;
        input_s += counts ? row->total_s : 0;
    }
    double share = rpexec_operators_input_share(costs);
    cr_expect(share > 0 && share < 1);
    cr_expect(le(dbl, fabs(share - input_s / sums[RPEXEC_PHASE_BLOCK_BACKWARD]), 1e-9));
}

Test(exec_operator_costs, layers_are_made_of_what_they_cost)
{
    const emulated_machine machine = {.devices = 2, .peers = true};
    for (int i = 0; i < 9; i++) {
        rp_model config = kind_of_model(i % 3);
        rpexec_model model;
        rpexec_operator_costs costs;
        rp_dtype dtype = i < 3 ? RP_DTYPE_F32 : i < 6 ? RP_DTYPE_BF16 : RP_DTYPE_F16;
        cr_assert(eq(int, rpexec_model_create(&config, SEQ_LEN, dtype, arena, &model), RP_OK));
        rpexec_site site = {.driver_type = &rpexec_host_driver,
                            .model = &model,
                            .gpus = 2,
                            .sequences = SEQUENCES,
                            .watchdog_s = 30};
        cr_assert(eq(int, rpexec_calibrate_operators(&site, i % 2 == 0, arena, &costs), RP_OK));
        check_flop(&costs, &model);
        check_costs(&costs, i % 2 == 0);
        const rpexec_devices_config devices = {.gpus = 2};
        site.driver_type = rp_fake_cuda_driver(&machine);
        cr_assert(
            eq(int, site.driver_type->attach(&devices, &site.devices, &site.gpu_bytes), RP_OK));
        cr_assert(eq(int, rpexec_calibrate_operators(&site, i % 2 == 0, arena, &costs), RP_OK));
        check_flop(&costs, &model);
        check_costs(&costs, i % 2 == 0);
        site.driver_type->detach(site.devices);
        cr_expect(eq(u32, emulator_counted(EMULATED_LEFT), 0));
    }
}

/* A stage of all layers, with forward, head and backward. */
typedef struct work {
    rpexec_stage_data data;
    void *gradients, *output, *tape, *scratch, *head_gradient;
    uint64_t gradient_bytes, output_bytes;
    double loss;
} work;

static void allocate(const rpexec_model *m, const void *weights, const int32_t *ids, work *w)
{
    uint64_t tokens = SEQUENCES * SEQ_LEN;
    uint32_t end = m->layer_count;
    size_t bytes = rp_dtype_bytes(m->dtype);
    w->gradient_bytes = rpexec_model_trained(m, 0, end) * bytes;
    w->output_bytes = tokens * m->config->hidden * bytes;
    const struct {
        uint64_t bytes;
        void **memory;
    } arrays[] = {{w->gradient_bytes, &w->gradients},
                  {w->output_bytes, &w->output},
                  {w->output_bytes, &w->head_gradient},
                  {rpexec_stage_tape_bytes(m, 0, end, tokens, true), &w->tape},
                  {rpexec_stage_scratch_bytes(m, 0, end, tokens), &w->scratch}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        cr_assert(eq(int, rp_arena_alloc(arena, arrays[i].bytes, 1, arrays[i].memory), RP_OK));
    }
    w->loss = 0;
    w->data = (rpexec_stage_data){.end = end,
                                  .sequences = SEQUENCES,
                                  .weights = weights,
                                  .gradients = w->gradients,
                                  .ids = ids,
                                  .labels = ids,
                                  .loss_scale = 1.0f / SEQ_LEN,
                                  .loss = &w->loss,
                                  .output = w->output,
                                  .tape = w->tape,
                                  .scratch = w->scratch,
                                  .head_gradient = w->head_gradient};
}

static void run(const rpexec_compute *c, const work *w)
{
    rpexec_stage_forward(c, &w->data, true);
    rpexec_stage_head(c, &w->data);
    rpexec_stage_backward(c, &w->data, RPEXEC_BACKWARD_BOTH);
}

typedef struct keeper {
    rpexec_call_taker taker;
    uint32_t count;
    uint64_t calls[512][RPEXEC_CALL_WORDS];
} keeper;

static void keep(rpexec_call_taker *taker, const uint64_t *call)
{
    keeper *k = (keeper *)(void *)taker;
    cr_assert(lt(u32, k->count, 512));
    memcpy(k->calls[k->count++], call, rpexec_call_length(call) * sizeof *call);
}

Test(exec_operator_costs, call_by_call_is_the_same)
{
    for (int kind = 0; kind < 3; kind++) {
        rp_model config = kind_of_model(kind);
        rpexec_model model;
        rpexec_lane lane;
        work whole, parts;
        float *weights = NULL;
        int32_t ids[SEQUENCES * SEQ_LEN];
        cr_assert(
            eq(int, rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, arena, &model), RP_OK));
        cr_assert(
            eq(int, rpexec_host_lane_create(&model, SEQUENCES * SEQ_LEN, arena, &lane), RP_OK));
        uint64_t values = rpexec_model_values(&model, 0, model.layer_count);
        cr_assert(eq(int, rp_arena_alloc(arena, values, sizeof *weights, &weights), RP_OK));
        rpexec_random_normal(5, 0, 0.1, values, weights);
        for (uint32_t i = 0; i < SEQUENCES * SEQ_LEN; i++) {
            ids[i] = (int32_t)(rpexec_random_bits(6, 0, i) % config.vocab);
        }
        allocate(&model, weights, ids, &whole);
        allocate(&model, weights, ids, &parts);
        rpexec_compute c = {
            .model = &model, .operators = rpexec_host_operators[RP_DTYPE_F32], .lane = &lane};
        run(&c, &whole);
        keeper kept = {.taker = {.take = keep}};
        c.operators = &rpexec_noting_operators;
        c.lane = (rpexec_lane *)(void *)&kept.taker;
        run(&c, &parts);
        for (uint32_t call = 0; call < kept.count; call++) {
            rpexec_call_make(rpexec_host_operators[RP_DTYPE_F32], &lane, kept.calls[call]);
        }
        cr_expect(gt(u32, kept.count, 50));
        cr_expect(whole.loss > 0 && whole.loss == parts.loss, "%g, %g", whole.loss, parts.loss);
        cr_expect(eq(int, memcmp(whole.gradients, parts.gradients, whole.gradient_bytes), 0));
        cr_expect(eq(int, memcmp(whole.output, parts.output, whole.output_bytes), 0));
    }
}

/* Layers that do not fit are left out, and the file has no rows for them. */
Test(exec_operator_costs, little_memory)
{
    rp_model config = kind_of_model(0);
    rpexec_model model;
    rpexec_operator_costs costs;
    char messages[512];
    char *text = NULL;
    size_t size = 0;
    cr_assert(eq(int, rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, arena, &model), RP_OK));
    const rpexec_site site = {.driver_type = &rpexec_host_driver,
                              .model = &model,
                              .gpus = 1,
                              .sequences = SEQUENCES,
                              .gpu_bytes = 1000};
    rp_log_capture_begin(messages, sizeof messages);
    cr_expect(eq(int, rpexec_calibrate_operators(&site, false, arena, &costs), RP_OK));
    rp_log_capture_end();
    cr_expect(strstr(messages, "operators are not measured") != NULL, "%s", messages);
    cr_expect(eq(u32, costs.row_count, 0));
    FILE *stream = open_memstream(&text, &size);
    rp_costs measured = {0};
    rpexec_operators_write(&costs, &measured, stream);
    fclose(stream);
    cr_expect(strchr(text, '\n') == text + strlen(text) - 1, "%s", text);
    free(text);
}

typedef struct sequence {
    const double *values;
    uint32_t taken;
    uint32_t between_at; /* value of `taken` at the pause between measurements */
} sequence;

static double next_value(void *context)
{
    sequence *s = context;
    return s->values[s->taken++];
}

static void note_between(void *context)
{
    sequence *s = context;
    s->between_at = s->taken;
}

/* A value on which two measurements agree counts at once if it is near the largest possible value
 * (2 here). A stretch of measurements that other load has spoilt does not count. */
Test(exec_operator_costs, a_spoilt_measurement_does_not_count)
{
    static const struct {
        double values[RPEXEC_SETTLE_MOST];
        uint32_t taken;
        double median;
    } cases[] = {
        {{1.9, 2.0}, 2, 1.95},
        {{1.07, 1.08, 1.97, 1.96, 1.98, 1.97, 1.95}, 7, 1.96},
        {{1.97, 1.07, 1.08, 1.09, 1.97, 1.96, 1.98}, 7, 1.96},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sequence s = {.values = cases[i].values};
        double median = rpexec_host_settle(next_value, note_between, 2, &s);
        cr_expect(le(dbl, fabs(median - cases[i].median), 1e-9), "case %zu: %g", i, median);
        cr_expect(eq(u32, s.taken, cases[i].taken));
        cr_expect(eq(u32, s.between_at, 1));
    }
}

/* With sanitizers each data type takes 4 s and more. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FIRST_MEASURED = RP_DTYPE_BF16, END_MEASURED };
#else
enum { FIRST_MEASURED = 0, END_MEASURED = RP_DTYPE_COUNT };
#endif

/* 50 bytes per parameter in 6 ns on one thread, in 3 ns on two threads. */
Test(exec_operator_costs, rates_of_the_host)
{
    const rpexec_host_rates known = {.collect_s = 1e-9, .step_s = 4e-9, .refresh_s = 1e-9};
    cr_expect(le(dbl, fabs(rpexec_host_Bps(&known, 2) / (50e9 / 3) - 1), 1e-12));
    cr_expect(le(dbl, fabs(rpexec_host_Bps(&known, 1) / (50e9 / 6) - 1), 1e-12));
    for (int i = FIRST_MEASURED; i < END_MEASURED; i++) {
        rpexec_host_rates r;
        cr_assert(eq(int, rpexec_host_measure((rp_dtype)i, &r), RP_OK));
        cr_expect(r.cores >= 1 && r.cores <= r.threads, "%g", r.cores);
        cr_expect(r.update_Bps > 1e8 && r.copy_Bps > 1e8 && r.collective_Bps > 1e8);
        cr_expect(r.collect_s > 0 && r.refresh_s > 0);
        /* A GPU's Adam does the same as the host's; with 16-bit types it also converts, in the same
         * pass. */
        double update_s = 28 / r.update_Bps;
        cr_expect(update_s > r.step_s / 9 && update_s < 9 * (r.collect_s + r.step_s + r.refresh_s),
                  "%d: %g ns, %g ns", i, 1e9 * update_s, 1e9 * r.step_s);
    }
}
