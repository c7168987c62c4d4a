#include "tests/support/exec_case.h"

#include "exec/host/driver.h"
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED 1u

rp_model rp_test_decoder(uint32_t layers, bool tied, bool qk_norm)
{
    rp_model m = {.name = "test decoder",
                  .layers = layers,
                  .hidden = 32,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 8,
                  .intermediate = 48,
                  .experts = 1,
                  .active_experts = 1,
                  .vocab = 97,
                  .max_positions = 4096,
                  .rope_theta = 10000,
                  .norm_eps = 1e-6,
                  .tied_head = tied,
                  .qk_norm = qk_norm,
                  .rope_scaling = "none"};
    rp_model_count(&m);
    return m;
}

rp_resolved rp_test_work(const char *schedule, uint32_t gpus, uint32_t microbatches,
                         uint32_t iterations)
{
    const rp_schedule_type *type = rp_schedule_find(schedule);
    cr_assert(type != NULL, "%s", schedule);
    return (rp_resolved){.schedule = type,
                         .gpus = gpus,
                         .decided.accumulate = 1,
                         .decided.microbatches = microbatches,
                         .decided.microbatch_size = 1,
                         .decided.iterations = iterations,
                         .decided.round = RP_ROUND_ALL,
                         .recompute = type->default_recompute,
                         .decided.piece_bytes = 1500};
}

void rp_test_batches(rp_arena *arena, const rpexec_model *model, uint32_t iterations,
                     uint32_t sequences, uint64_t seed, rpexec_batch **batches_out)
{
    rpexec_batch *batches = NULL;
    uint64_t tokens = (uint64_t)sequences * model->seq_len;
    (void)rp_arena_alloc(arena, iterations, sizeof *batches, &batches);
    for (uint32_t i = 0; i < iterations; i++) {
        int32_t *ids = NULL;
        int32_t *labels = NULL;
        (void)rp_arena_alloc(arena, tokens, sizeof *ids, &ids);
        (void)rp_arena_alloc(arena, tokens, sizeof *labels, &labels);
        batches[i] = (rpexec_batch){.ids = ids, .labels = labels};
        for (uint64_t t = 0; t < tokens; t++) {
            uint64_t bits = rpexec_random_bits(seed, i, t);
            ids[t] = (int32_t)(bits % model->config->vocab);
            bool ignored = (bits >> 32) % 7 == 0;
            labels[t] = ignored ? RPEXEC_IGNORED : (int32_t)((bits >> 16) % model->config->vocab);
            batches[i].valid_tokens += ignored ? 0 : 1;
        }
    }
    *batches_out = batches;
}

static rp_status begin(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                       const rp_resolved *work, const rp_test_twist *twist, rp_test_run *run)
{
    rp_dtype dtype = twist != NULL ? twist->dtype : RP_DTYPE_F32;
    uint32_t iterations = work->decided.iterations * (twist != NULL ? twist->again + 1 : 1);
    *run = (rp_test_run){.iterations = iterations};
    for (uint32_t i = 0; i < rp_resolved_microbatches(work); i++) {
        run->sequences += rp_resolved_sequences(work, i) * rp_layout_data(&work->decided.layout);
    }
    RP_TRY(rpexec_model_create(config, seq_len, dtype, arena, &run->model));
    RP_TRY(rpexec_state_create(&run->model, arena, &run->state));
    RP_TRY(rpexec_state_initialise(&run->state, SEED, true));
    rp_test_batches(arena, &run->model, iterations, (uint32_t)run->sequences, SEED, &run->batches);
    RP_TRY(rp_arena_alloc(arena, iterations, sizeof(double), &run->norms));
    return rp_arena_alloc(arena, iterations, sizeof(double), &run->losses);
}

/* @return the first op of a kind; RP_MAX_OPS: none */
static uint32_t first_of_kind(const rp_program *program, rp_op_kind kind)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind == kind) {
            return i;
        }
    }
    return RP_MAX_OPS;
}

static rpexec_adam adam_of(const rp_test_twist *twist)
{
    return twist != NULL && twist->adam != NULL ? *twist->adam : rpexec_adam_defaults();
}

/* Runs the program again; the losses and batches of a run come after those of the previous run. */
static rp_status run_often(rpexec_execution *e, uint32_t again)
{
    rpexec_run *r = NULL;
    RP_TRY(rpexec_execution_open(e, &r));
    rp_status status = rpexec_execution_run(r);
    for (uint32_t i = 0; i < again && status == RP_OK; i++) {
        e->batches += e->iterations;
        e->losses += e->iterations;
        e->norms += e->iterations;
        status = rpexec_execution_run(r);
    }
    status = status == RP_OK ? rpexec_execution_keep(r) : status;
    rpexec_execution_close(r);
    return status;
}

static rp_status execute_on(const rp_program *program, const rp_test_twist *twist,
                            rpexec_devices *devices, rp_arena *arena, rp_test_run *run)
{
    rpexec_plan *plan = &run->plan;
    const rpexec_driver_type *type =
        twist->driver_type != NULL ? twist->driver_type : &rpexec_host_driver;
    const rpexec_plan_limits limits = {
        .cap_bytes = twist->cap_bytes, .chunk = type->chunk, .clips = adam_of(twist).clip_norm > 0};
    RP_TRY(rpexec_plan_create(program, &run->model, &limits, arena, plan, NULL));
    program = plan->program; /* the program for all GPUs of a layout */
    if (twist->observe) {
        RP_TRY(rp_timeline_create(program, &run->timeline));
    }
    if (twist->replan != NULL) {
        twist->replan(twist->context, arena, plan);
    }
    for (uint32_t i = 0; i < program->gpu_count; i++) {
        run->most_bytes =
            plan->arena_bytes[i] > run->most_bytes ? plan->arena_bytes[i] : run->most_bytes;
    }
    rpexec_execution e = {.plan = plan,
                          .state = &run->state,
                          .adam = adam_of(twist),
                          .batches = run->batches,
                          .driver_type = type,
                          .driver = {.devices = devices,
                                     .machine = twist->machine,
                                     .delay_seed = twist->delay_seed,
                                     .delay_us = twist->delay_us,
                                     .delay_classes = twist->delay_classes,
                                     .watchdog_s = twist->watchdog_s != 0 ? twist->watchdog_s : 30,
                                     .poison = true},
                          .fail_op =
                              twist->fails ? first_of_kind(program, twist->fail_kind) : RP_MAX_OPS,
                          .keep_gradients = !twist->drops_gradients,
                          .fuses = twist->drops_gradients,
                          .follower = twist->follower,
                          .losses = run->losses,
                          .norms = run->norms,
                          .timeline = run->timeline};
    RP_TRY(run_often(&e, twist->again));
    run->iterations_run = e.iterations;
    run->uploaded_bytes = e.uploaded_bytes;
    run->downloaded_bytes = e.downloaded_bytes;
    run->exchanged_bytes = e.exchanged_bytes;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bool collective = rp_op_kind_class((rp_op_kind)program->ops[i].kind) == RP_CLASS_COLLECTIVE;
        run->collectives += collective ? 1 : 0;
        run->collective_bytes += collective ? program->op_bytes[i] : 0;
    }
    return RP_OK;
}

static rp_status execute(const rp_program *program, const rp_test_twist *twist, rp_arena *arena,
                         rp_test_run *run)
{
    const rpexec_driver_type *type = twist->driver_type;
    if (type == NULL || type->attach == NULL) {
        return execute_on(program, twist, NULL, arena, run);
    }
    rpexec_devices_config config = twist->devices;
    rpexec_devices *devices = NULL;
    uint64_t gpu_bytes = 0;
    config.layout = program->traits.layout;
    config.gpus = program->gpu_count * rp_layout_gpus(&config.layout);
    RP_TRY(type->attach(&config, &devices, &gpu_bytes));
    rp_status status = execute_on(program, twist, devices, arena, run);
    type->detach(devices);
    return status;
}

rp_status rp_test_execute(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                          const rp_resolved *work, const rp_test_twist *twist, rp_test_run *run)
{
    static const rp_test_twist none = {0};
    rp_costs costs;
    twist = twist != NULL ? twist : &none;
    RP_TRY(begin(arena, config, seq_len, work, twist, run));
    if (twist->prepare != NULL) {
        twist->prepare(twist->context, arena, run);
    }
    RP_TRY(rpexec_work_costs(&run->model, work->decided.microbatch_size, arena, &costs));
    RP_TRY(rpexec_work_program(work, &run->model, &costs, &run->program, NULL));
    rp_status status = execute(run->program, twist, arena, run);
    if (status != RP_OK || !twist->observe) {
        rp_test_forget(run);
    }
    return status;
}

void rp_test_forget(rp_test_run *run)
{
    rp_timeline_destroy(run->timeline);
    rp_program_destroy(run->program);
    run->timeline = NULL;
    run->program = NULL;
}

rp_status rp_test_single(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                         const rp_resolved *work, rp_test_run *run)
{
    return rp_test_single_from(arena, config, seq_len, work, NULL, run);
}

rp_status rp_test_single_from(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                              const rp_resolved *work, const rp_test_twist *twist, rp_test_run *run)
{
    rpexec_lane lane;
    uint32_t of_copy = rp_resolved_microbatches(work);
    uint32_t microbatches = of_copy * rp_layout_data(&work->decided.layout);
    bool all =
        work->decided.round == RP_ROUND_ALL || work->decided.round >= work->decided.microbatches;
    uint32_t round = all ? work->decided.microbatches : work->decided.round;
    bool calls = work->schedule != NULL && work->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    bool overlapping = work->schedule != NULL && work->schedule->traits.overlapping_rounds;
    uint32_t *sequences = NULL;
    uint32_t most = 0;
    RP_TRY(begin(arena, config, seq_len, work, twist, run));
    if (twist != NULL && twist->prepare != NULL) {
        twist->prepare(twist->context, arena, run);
    }
    RP_TRY(rp_arena_alloc(arena, microbatches, sizeof(uint32_t), &sequences));
    for (uint32_t i = 0; i < microbatches; i++) {
        sequences[i] = rp_resolved_sequences(work, i % of_copy);
        most = sequences[i] > most ? sequences[i] : most;
    }
    RP_TRY(rpexec_host_lane_create(&run->model, (uint64_t)most * seq_len, arena, &lane));
    rpexec_single s = {.model = &run->model,
                       .state = &run->state,
                       .adam = adam_of(twist),
                       .microbatches = microbatches,
                       .sequences = sequences,
                       .slot_microbatches = overlapping ? round : 0,
                       .job_microbatches = calls ? round : 0,
                       .iterations = work->decided.iterations,
                       .batches = run->batches,
                       .asynchronous = work->decided.asynchronous,
                       .operators = rpexec_host_operators[run->model.dtype],
                       .lane = &lane,
                       .losses = run->losses,
                       .norms = run->norms};
    return rpexec_single_run(&s);
}

double rp_test_distance(const rp_test_run *a, const rp_test_run *b)
{
    double worst = 0;
    for (uint32_t layer = 0; layer < a->model.layer_count; layer++) {
        uint64_t begin = a->state.trained[layer];
        bool tied =
            layer + 1 == a->model.layer_count && a->model.config->tied_head && a->model.rank == 0;
        uint64_t count = tied ? a->model.head.tensors[RPEXEC_HEAD_TABLE].offset
                              : rpexec_layer_trained(rpexec_model_layer(&a->model, layer));
        double squares = 0;
        for (uint64_t i = begin; i < begin + count; i++) {
            squares += (double)a->state.gradients[i] * (double)a->state.gradients[i];
        }
        for (uint64_t i = begin; i < begin + count; i++) {
            double value = (double)a->state.gradients[i];
            double size = sqrt(squares / (double)count) + fabs(value);
            double error = size > 0 ? fabs(value - (double)b->state.gradients[i]) / size : 0;
            worst = rp_test_worse(worst, error);
        }
    }
    return worst;
}

uint64_t rp_test_offset_of(const rp_test_run *run, const char *name)
{
    const rpexec_model *model = &run->model;
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        const rpexec_layer *l = rpexec_model_layer(model, layer);
        char prefix[32] = "";
        if (l == &model->block) {
            snprintf(prefix, sizeof prefix, "model.layers.%u.", layer - 1);
        }
        size_t length = strlen(prefix);
        for (uint32_t i = 0; strncmp(name, prefix, length) == 0 && i < l->tensor_count; i++) {
            if (strcmp(name + length, l->tensors[i].name) == 0) {
                return run->state.offsets[layer] + l->tensors[i].offset;
            }
        }
    }
    cr_assert(false, "%s", name);
    return 0;
}

bool rp_test_same(const rp_test_run *a, const rp_test_run *b, uint32_t iterations)
{
    uint64_t floats = a->state.trained[a->model.layer_count];
    const struct {
        const float *a, *b;
    } arrays[] = {{a->state.master, b->state.master},
                  {a->state.m, b->state.m},
                  {a->state.v, b->state.v},
                  {a->state.gradients, b->state.gradients}};
    bool same = memcmp(a->losses, b->losses, iterations * sizeof(double)) == 0;
    same &= memcmp(a->norms, b->norms, iterations * sizeof(double)) == 0;
    uint32_t head = a->model.layer_count - 1;
    uint64_t end = a->model.config->tied_head && a->model.rank == 0
                       ? a->state.trained[head] + a->model.head.tensors[RPEXEC_HEAD_TABLE].offset
                       : floats; /* a tied head's table is the embedding's */
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        same &= memcmp(arrays[i].a, arrays[i].b, end * sizeof(float)) == 0;
    }
    return same;
}
