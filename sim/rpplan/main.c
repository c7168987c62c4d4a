/* rpplan: the command line of the planner (cli.md, "Small tools"). */
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/cli/page.h"
#include "common/cli/table.h"
#include "common/cli/tool.h"
#include "common/formats/json.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "sim/rpplan/instance.h"
#include "sim/rpplan/options.h"

#include <inttypes.h>
#include <stdio.h>

#define DEFAULT_MODEL "qwen3-1.7b"
#define DEFAULT_PLATFORM "rtx4090x8"

/* A plan and its input. */
typedef struct planned {
    const rp_plan_input *input;
    rp_plan plan;
    rp_plan_candidate *candidates; /* NULL if there are too many */
    uint32_t candidate_count;
} planned;

/* Model, platform and costs of a plan that is made of a cost table. */
typedef struct subject {
    rp_costs costs;
    rp_model model;
    rp_platform platform;
    bool model_known;
    uint32_t gpus;
    const char *partition;
} subject;

/* Makes a plan. Only JSON lists the candidates: on very long lists they take far longer than the
 * plan. */
static rp_status make_plan(const rp_plan_input *input, bool listed, rp_arena *arena, planned *out)
{
    *out = (planned){.input = input};
    RP_TRY(rp_plan_make(input, arena, &out->plan, NULL));
    if (listed) {
        RP_TRY(rp_plan_candidates(input, arena, &out->candidates, &out->candidate_count, NULL));
    }
    if (out->plan.limit_raised) {
        rp_log_warning("%s: half of the memory limit, %" PRIu64 " bytes, does not hold the largest "
                       "layer; raised to %" PRIu64 " bytes",
                       input->name, input->memory_limit, out->plan.effective_memory_limit);
    }
    if (listed && out->candidates == NULL) {
        rp_log_warning("%s: more than %u windows; the candidates are not listed", input->name,
                       RP_PLAN_MAX_WINDOWS);
    }
    return RP_OK;
}

static double tolerance_of(const rp_plan_input *input)
{
    return (double)input->tolerance_num / (double)input->tolerance_den;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_stages(rp_json *json, const char *key, const rp_interval *stages, uint32_t count)
{
    rp_json_key(json, key);
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < count; i++) {
        rp_json_begin_array(json);
        rp_json_uint(json, stages[i].begin);
        rp_json_uint(json, stages[i].end);
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static void write_candidates(rp_json *json, const planned *p)
{
    rp_json_key(json, "candidates");
    if (p->candidates == NULL) {
        rp_json_null(json);
        return;
    }
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        rp_json_begin_array(json);
        rp_json_int(json, p->candidates[i].cap);
        rp_json_uint(json, p->candidates[i].stages);
        rp_json_int(json, p->candidates[i].cost);
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static void write_limit(rp_json *json, const char *key, uint64_t limit)
{
    rp_json_key(json, key);
    if (limit == RP_PLAN_UNLIMITED) {
        rp_json_null(json);
    } else {
        rp_json_uint(json, limit);
    }
}

/* Writes the members of `expected` in golden/partition.json. */
static void write_plan(rp_json *json, const planned *p)
{
    const rp_plan *plan = &p->plan;
    write_stages(json, "fwd_plan", plan->forward, plan->forward_count);
    write_stages(json, "bwd_plan", plan->backward, plan->backward_count);
    rp_json_member_int(json, "max_stage_workload", plan->max_stage_workload);
    rp_json_member_uint(json, "total_stages", plan->total_stages);
    rp_json_member_int(json, "cost", plan->cost);
    write_limit(json, "effective_memory_limit", plan->effective_memory_limit);
    rp_json_member_bool(json, "limit_raised", plan->limit_raised);
    write_candidates(json, p);
}

static void write_subject(rp_json *json, const planned *p, const subject *s)
{
    rp_json_member_string(json, "model", s->model_known ? s->model.name : NULL);
    rp_json_member_string(json, "costs", s->costs.name);
    rp_json_member_uint(json, "gpus", s->gpus);
    rp_json_member_string(json, "mode", rp_plan_mode_text(p->input->mode));
    rp_json_member_double(json, "tolerance", tolerance_of(p->input));
    write_limit(json, "memory_limit", p->input->memory_limit);
    rp_json_member_string(json, "time_unit", "ps");
    rp_json_member_string(json, "partition", s->partition);
}

static void write_json(const planned *p, const subject *s)
{
    rp_json json;
    rp_json_begin_document(&json, stdout, 1);
    rp_json_begin_object(&json);
    write_subject(&json, p, s);
    write_plan(&json, p);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

static void write_instances(const planned *plans, const rpplan_instances *instances)
{
    rp_json json;
    rp_json_begin_document(&json, stdout, instances->is_list ? 2 : 1);
    if (instances->is_list) {
        rp_json_begin_array(&json);
    }
    for (uint32_t i = 0; i < instances->count; i++) {
        rp_json_begin_object(&json);
        write_plan(&json, &plans[i]);
        rp_json_end_object(&json);
    }
    if (instances->is_list) {
        rp_json_end_array(&json);
    }
    rp_json_end_document(&json);
}

/* ---- table ----------------------------------------------------------------------------------- */

static rp_status add_stages(const char *direction, const rp_interval *stages, uint32_t count,
                            const int64_t *time_ps, const uint64_t *bytes, rp_table *table)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t stage_ps = 0;
        uint64_t stage_bytes = 0;
        for (uint32_t layer = stages[i].begin; layer < stages[i].end; layer++) {
            stage_ps += time_ps[layer];
            stage_bytes += bytes[layer];
        }
        RP_TRY(rp_table_print(table, "%s", direction));
        RP_TRY(rp_table_print(table, "%" PRIu32, i));
        RP_TRY(rp_table_print(table, "%" PRIu32, stages[i].begin));
        RP_TRY(rp_table_print(table, "%" PRIu32, stages[i].end - 1));
        RP_TRY(rp_table_print(table, "%.4f", rp_ps_to_ms(stage_ps)));
        RP_TRY(rp_table_print(table, "%.3f", (double)stage_bytes / 1e9));
    }
    return RP_OK;
}

static void print_limit(const planned *p, FILE *stream)
{
    if (p->input->memory_limit == RP_PLAN_UNLIMITED) {
        fputs("memory limit: none\n", stream);
        return;
    }
    fprintf(stream, "memory limit: %.1f GB, half of it per stage%s\n",
            (double)p->plan.effective_memory_limit / 1e9,
            p->plan.limit_raised ? " (raised to hold the largest layer)" : "");
}

static rp_status write_page(const planned *p, const subject *s, rp_arena *arena,
                            const rp_page *page)
{
    static const rp_table_column columns[] = {
        RP_TABLE_LEFT("direction", 2),    RP_TABLE_RIGHT("stage", 2),
        RP_TABLE_RIGHT("first layer", 2), RP_TABLE_RIGHT("last layer", 2),
        RP_TABLE_RIGHT("ms", 2),          RP_TABLE_RIGHT("GB", 1)};
    const rp_plan *plan = &p->plan;
    rp_table *table = NULL;
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0],
                           plan->forward_count + plan->backward_count, arena, &table));
    RP_TRY(add_stages("forward", plan->forward, plan->forward_count, p->input->fwd_time,
                      p->input->fwd_bytes, table));
    RP_TRY(add_stages("backward", plan->backward, plan->backward_count, p->input->bwd_time,
                      p->input->bwd_bytes, table));
    fprintf(page->stream,
            "%s, %" PRIu32 " GPUs, mode %s, tolerance %g\n"
            "stages: %" PRIu32 " forward + %" PRIu32 " backward, none above %.4f ms; a rotation of "
            "%.4f ms\n"
            "partition: %s\n",
            s->costs.name, s->gpus, rp_plan_mode_text(p->input->mode), tolerance_of(p->input),
            plan->forward_count, plan->backward_count, rp_ps_to_ms(plan->max_stage_workload),
            rp_ps_to_ms(plan->cost), s->partition);
    print_limit(p, page->stream);
    fputc('\n', page->stream);
    rp_table_write(table, 0, page->columns, page->stream);
    fprintf(page->stream, "\ntimes of %" PRIu32 " sequences of %" PRIu32 " tokens%s%s\n",
            s->costs.microbatch_size, s->costs.seq_len, s->costs.source[0] != '\0' ? ": " : "",
            s->costs.source);
    return RP_OK;
}

static rp_status print_table(const planned *p, const subject *s, rp_arena *arena)
{
    rp_page page;
    RP_TRY(rp_page_open(stdout, arena, &page));
    rp_status status = write_page(p, s, arena, &page);
    rp_page_close(&page);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static rp_status load_subject(const rpplan_options *o, rp_arena *arena, subject *s)
{
    const char *model = o->model != NULL || o->costs != NULL ? o->model : DEFAULT_MODEL;
    RP_TRY(rp_platform_load(o->platform != NULL ? o->platform : DEFAULT_PLATFORM, arena,
                            &s->platform));
    s->gpus = o->gpus != 0 ? o->gpus : rp_platform_usual_gpus(&s->platform);
    s->model_known = model != NULL;
    if (model != NULL) {
        RP_TRY(rp_model_load(model, arena, &s->model));
    }
    if (o->costs == NULL) { /* without a measured table costs are computed, as rpsim does */
        const rp_roof roof = {&s->platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
        return rp_find_costs(&s->model, &roof, RP_DEFAULT_SEQUENCES, RP_DEFAULT_SEQ_LEN, arena,
                             &s->costs, NULL);
    }
    RP_TRY(rp_costs_load(o->costs, arena, &s->costs));
    if (s->model_known && s->model.layers != s->costs.layers) {
        rp_log_error("{costs}: table %s has %u layers, model %s has %u; valid is a table of the "
                     "same model",
                     s->costs.name, s->costs.layers, s->model.name, s->model.layers);
        return RP_USAGE;
    }
    if (!s->model_known && o->limit_given && o->memory_limit != RP_PLAN_UNLIMITED) {
        rp_log_error("{memory_limit}: without a model no sizes are known; valid is none, or any "
                     "limit with {model}");
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status plan_costs(const rpplan_options *o, rp_arena *arena)
{
    subject s = {0};
    RP_TRY(load_subject(o, arena, &s));
    rp_plan_input input;
    RP_TRY(rp_plan_input_from_costs(&s.costs, s.model_known ? &s.model : NULL, arena, &input));
    input.mode = o->mode;
    input.min_stages = s.gpus;
    input.tolerance_num = o->tolerance_num;
    input.tolerance_den = o->tolerance_den;
    if (o->limit_given) {
        input.memory_limit = o->memory_limit;
    } else if (s.model_known) {
        input.memory_limit = rp_plan_default_limit(&s.platform);
    }
    planned p;
    RP_TRY(make_plan(&input, o->json, arena, &p));
    rp_partition partition;
    RP_TRY(rp_plan_partition(&p.plan, s.costs.layers, arena, &partition));
    RP_TRY(rp_partition_text(&partition, arena, &s.partition));
    if (o->json) {
        write_json(&p, &s);
        return RP_OK;
    }
    return print_table(&p, &s, arena);
}

static rp_status plan_instances(const char *path, rp_arena *arena)
{
    rpplan_instances instances;
    planned *plans = NULL;
    RP_TRY(rpplan_instances_load(path, arena, &instances));
    RP_TRY(rp_arena_alloc(arena, instances.count, sizeof *plans, &plans));
    for (uint32_t i = 0; i < instances.count; i++) {
        RP_TRY(make_plan(&instances.inputs[i], true, arena, &plans[i]));
    }
    write_instances(plans, &instances);
    return RP_OK;
}

static rp_status act(const rpplan_options *options, rp_arena *arena)
{
    if (options->common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpplan_command_line, options, stdout);
    }
    return options->instance != NULL ? plan_instances(options->instance, arena)
                                     : plan_costs(options, arena);
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpplan_options options;
    RP_TRY(rpplan_options_parse(argc, argv, arena, &options));
    return act(&options, arena);
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpplan", argc, argv, run);
}
