#include "common/schedule/schedule_type.h"
#include "common/schedule/build.h"
#include "common/schedule/even.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"

#include <string.h>

#define X(symbol) extern const rp_schedule_type symbol;
#include "schedules.inc"
#undef X

const rp_schedule_type *const rp_schedules[] = {
#define X(symbol) &symbol,
#include "schedules.inc"
#undef X
};

const uint32_t rp_schedule_count = sizeof rp_schedules / sizeof rp_schedules[0];

const rp_schedule_type *rp_schedule_find(const char *name)
{
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        if (strcmp(rp_schedules[i]->name, name) == 0) {
            return rp_schedules[i];
        }
    }
    return NULL;
}

static rp_status refuse_name(const char *what, const char *name, bool all, rp_reason *reason)
{
    const char *names[sizeof rp_schedules / sizeof rp_schedules[0]];
    rp_text list = {0};
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        names[i] = rp_schedules[i]->name;
        rp_status status = rp_text_print(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
        if (status != RP_OK) {
            rp_text_fini(&list);
            return status;
        }
    }
    const char *nearest = rp_text_nearest(name, names, rp_schedule_count);
    rp_refuse(reason, RP_USAGE, "%s: unknown schedule '%s'%s%s%s; valid values are %s%s", what,
              name, nearest != NULL ? ", did you mean '" : "", nearest != NULL ? nearest : "",
              nearest != NULL ? "'?" : "", list.bytes, all ? " or all" : "");
    rp_text_fini(&list);
    return RP_USAGE;
}

rp_status rp_schedule_require(const char *what, const char *name, bool all,
                              const rp_schedule_type **schedule_out, rp_reason *reason)
{
    *schedule_out = rp_schedule_find(name);
    if (*schedule_out != NULL) {
        return RP_OK;
    }
    return refuse_name(what, name, all, reason);
}

static rp_status check_range(const char *setting, uint32_t value, uint32_t high, rp_reason *reason)
{
    if (value >= 1 && value <= high) {
        return RP_OK;
    }
    return rp_refuse_setting(reason, RP_USAGE, setting,
                             "%u is out of range; valid values are 1 to %u", value, high);
}

static rp_status check_sum(const char *direction, uint64_t sum, const rp_schedule_config *config,
                           rp_reason *reason)
{
    if (sum == config->layers) {
        return RP_OK;
    }
    return rp_refuse(
        reason, RP_USAGE,
        "{partition}: the %s stages hold %llu layers, the model has %u; valid values are "
        "lists that sum to %u",
        direction, (unsigned long long)sum, config->layers, config->layers);
}

static uint64_t sum_of(const uint32_t *values, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum;
}

static rp_status check_separate(const rp_schedule_type *schedule, const rp_schedule_config *config,
                                rp_reason *reason)
{
    const rp_partition *partition = config->partition;
    if (partition->backward_count == 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{partition}: %s has backward stages of its own; valid values are "
                         "forward|backward lists such as 2,2|0,2,2 (backward in execution order, "
                         "first the head's)",
                         schedule->name);
    }
    RP_TRY(check_sum("backward", sum_of(partition->backward_layers, partition->backward_count),
                     config, reason));
    uint64_t forward = sum_of(partition->forward_layers, partition->forward_count);
    uint32_t head = partition->backward_layers[0];
    if (forward == (uint64_t)config->layers - head) {
        return RP_OK; /* the head's stage is fused: it runs the forward of its layers itself */
    }
    if (partition->forward_count == 0) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: without forward stages the head's backward stage must hold all "
            "%u layers, not %u; valid is |%u",
            config->layers, head, config->layers);
    }
    if (head != 0 && forward != config->layers) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: the forward stages hold %llu layers; valid sums are %u, or %u "
            "where the head's backward stage runs the forward of its %u layers",
            (unsigned long long)forward, config->layers, config->layers - head, head);
    }
    return check_sum("forward", forward, config, reason);
}

static rp_status check_data_parallel(const rp_schedule_type *schedule,
                                     const rp_schedule_config *config, rp_reason *reason)
{
    if (config->partition->forward_count == 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{partition}: %s has no stages; valid are lists of layers per stage",
                         schedule->name);
    }
    if (config->microbatches % config->gpus == 0) {
        return RP_OK;
    }
    return rp_refuse(
        reason, RP_USAGE,
        "{microbatches}: %s gives every GPU as many microbatches: %u on %u GPUs; valid are "
        "multiples of %u",
        schedule->name, config->microbatches, config->gpus, config->gpus);
}

static rp_status check_pipeline(const rp_schedule_type *schedule, const rp_schedule_config *config,
                                rp_reason *reason)
{
    const rp_partition *partition = config->partition;
    uint32_t stages = partition->forward_count;
    if (partition->backward_count != 0) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: %s runs a stage's backward where its forward ran; valid values "
            "are one list of layers per stage, without '|'",
            schedule->name);
    }
    if (rp_is_data_parallel(&schedule->traits)) {
        RP_TRY(check_data_parallel(schedule, config, reason));
        return check_sum("pipeline", sum_of(partition->forward_layers, stages), config, reason);
    }
    uint32_t exactly = rp_schedule_stages(schedule, config->gpus);
    if (exactly != 0 && stages != exactly) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: %s has %s per GPU: %u stages on %u GPUs; valid are exactly %u "
            "stages",
            schedule->name, exactly == config->gpus ? "one stage" : "two stages", stages,
            config->gpus, exactly);
    }
    bool anywhere = config->orders != NULL; /* a file may place its stages anywhere */
    if (stages == 0 || (stages % config->gpus != 0 && !anywhere)) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: %s has equally many stages on every GPU: %u stages on %u GPUs; "
            "valid are multiples of %u stages",
            schedule->name, stages, config->gpus, config->gpus);
    }
    return check_sum("pipeline", sum_of(partition->forward_layers, stages), config, reason);
}

static rp_status check_optimizer(const rp_schedule_type *schedule, const rp_schedule_config *config,
                                 rp_reason *reason)
{
    const char *why = rp_traits_only_synchronous(&schedule->traits);
    if (!config->asynchronous || why == NULL) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE, "{optimizer}: %s: %s; valid is sync", schedule->name, why);
}

rp_status rp_schedule_check(const rp_schedule_type *schedule, const rp_schedule_config *config,
                            rp_reason *reason)
{
    RP_TRY(check_range("gpus", config->gpus, RP_MAX_GPUS, reason));
    RP_TRY(check_range("microbatches", config->microbatches, RP_MAX_MICROBATCHES, reason));
    RP_TRY(check_range("iterations", config->iterations, RP_MAX_ITERATIONS, reason));
    if (config->layers < 1 || config->layers > RP_MAX_LAYERS) {
        return rp_refuse(reason, RP_USAGE, "layers: %u is out of range; valid values are 1 to %u",
                         config->layers, RP_MAX_LAYERS);
    }
    RP_TRY(check_optimizer(schedule, config, reason));
    const rp_partition *partition = config->partition;
    if (partition->forward_count > RP_MAX_STAGES || partition->backward_count > RP_MAX_STAGES) {
        return rp_refuse(
            reason, RP_USAGE, "{partition}: %u stages; valid are up to %u in one direction",
            partition->forward_count > partition->backward_count ? partition->forward_count
                                                                 : partition->backward_count,
            RP_MAX_STAGES);
    }
    if (schedule->separate_backward) {
        RP_TRY(check_separate(schedule, config, reason));
    } else {
        RP_TRY(check_pipeline(schedule, config, reason));
    }
    return schedule->check != NULL ? schedule->check(config, reason) : RP_OK;
}

/* ---- stage times ----------------------------------------------------------------------------- */

static int64_t sum_layers(const int64_t *ps, const rp_stage *stage)
{
    int64_t sum = 0;
    for (uint32_t layer = stage->layer_begin; layer < stage->layer_end; layer++) {
        sum += ps[layer];
    }
    return sum;
}

rp_status rp_stage_times_compute(const rp_program *program, const rp_costs *costs, rp_arena *arena,
                                 rp_stage_times *times_out, rp_reason *reason)
{
    if (program->layer_count != costs->layers) {
        return rp_refuse(
            reason, RP_INPUT,
            "cost table %s has %u layers, the program %u; valid is a table of the same "
            "model",
            costs->name, costs->layers, program->layer_count);
    }
    int64_t *all = NULL;
    RP_TRY(
        rp_arena_alloc(arena, (size_t)program->stage_count * RP_OP_KIND_COUNT, sizeof *all, &all));
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const rp_stage *stage = &program->stages[s];
        int64_t *ps = &all[(size_t)s * RP_OP_KIND_COUNT];
        bool head = (stage->roles & RP_STAGE_HEAD) != 0;
        int64_t layers_fwd = sum_layers(costs->fwd_ps, stage);
        int64_t layers_bwd = sum_layers(costs->bwd_ps, stage);
        int64_t layers_input = sum_layers(costs->bwd_input_ps, stage);
        bool runs_forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        ps[RP_OP_FORWARD] = (runs_forward ? layers_fwd : 0) + (head ? costs->head_fwd_ps : 0);
        ps[RP_OP_RECOMPUTE] = layers_fwd;
        ps[RP_OP_BACKWARD] = layers_bwd + (head ? costs->head_bwd_ps : 0);
        ps[RP_OP_BACKWARD_INPUT] = layers_input + (head ? costs->head_bwd_ps : 0);
        ps[RP_OP_BACKWARD_WEIGHT] = layers_bwd - layers_input;
    }
    *times_out = (rp_stage_times){all, costs->hop_ps, costs->overlap_saving};
    return RP_OK;
}

rp_status rp_partition_of_program(const rp_program *program, rp_arena *arena,
                                  rp_partition *partition)
{
    *partition = (rp_partition){0};
    partition->forward_count = program->forward_count;
    RP_TRY(rp_arena_alloc(arena, program->forward_count, sizeof(uint32_t),
                          &partition->forward_layers));
    for (uint32_t i = 0; i < program->forward_count; i++) {
        const rp_stage *stage = &program->stages[program->forward_chain[i]];
        partition->forward_layers[i] = stage->layer_end - stage->layer_begin;
    }
    if (!rp_program_has_separate_backward(program)) {
        return RP_OK;
    }
    partition->backward_count = program->backward_count;
    RP_TRY(rp_arena_alloc(arena, program->backward_count, sizeof(uint32_t),
                          &partition->backward_layers));
    for (uint32_t j = 0; j < program->backward_count; j++) {
        const rp_stage *stage = &program->stages[program->backward_chain[j]];
        partition->backward_layers[j] = stage->layer_end - stage->layer_begin;
    }
    return RP_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes per stage and microbatch in either direction: ops, waits, buffers, timeline and the data of
 * lowering, engine and metrics. LAYER_BYTES is added at layer grain for each layer beyond the
 * first. Measured values are 590 (zero2) to 1330 (zero-infinity), 55 to 100 at stage fidelity, and
 * 165 to 250. */
#define LOWERED_UNIT_BYTES 1000.0
#define STAGE_UNIT_BYTES 75.0
#define LAYER_BYTES 220.0

/* Bytes in addition to an existing op, with its part of waits and buffers. */
#define LOWERED_OP_BYTES 130.0
#define STAGE_OP_BYTES 30.0

double rp_schedule_footprint(const rp_schedule_config *config, bool lowered, bool layer_grain)
{
    const rp_partition *partition = config->partition;
    double forwards = partition->forward_count;
    double stages =
        forwards + (partition->backward_count != 0 ? partition->backward_count : forwards);
    double layers = lowered && layer_grain ? 2.0 * config->layers - stages : 0;
    double each = stages * (lowered ? LOWERED_UNIT_BYTES : STAGE_UNIT_BYTES);
    each += layers > 0 ? layers * LAYER_BYTES : 0;
    return each * config->microbatches * config->iterations;
}

double rp_program_footprint(uint32_t ops, bool lowered)
{
    return ops * (lowered ? LOWERED_OP_BYTES : STAGE_OP_BYTES);
}
