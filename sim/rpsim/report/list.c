#include "sim/rpsim/report/list.h"

#include "common/base/units.h"
#include "common/cli/paragraph.h"
#include "common/cli/table.h"
#include "common/formats/csv.h"
#include "common/formats/json.h"
#include "common/inputs/costs.h"
#include "common/inputs/data.h"
#include "common/inputs/gpu.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/model.h"

#include <string.h>

#define MOST_FACTS 8u
#define FACT_SIZE 512

/* Facts of a name, in the order of the list's columns, without the name itself. */
typedef struct facts {
    char texts[MOST_FACTS][FACT_SIZE];
    uint32_t count;
} facts;

typedef struct list_type {
    const char *kind;
    const rp_table_column *columns; /* the name first, the source last */
    uint32_t column_count;
    /* Reads the facts; logs a file that it cannot read. */
    rp_status (*describe)(const char *name, rp_arena *arena, facts *facts_out);
} list_type;

RP_PRINTF(2, 3) static void add(facts *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(f->texts[f->count++], FACT_SIZE, format, arguments);
    va_end(arguments);
}

static const char *first_line(const char *text, char line[static FACT_SIZE])
{
    (void)snprintf(line, FACT_SIZE, "%.*s", (int)strcspn(text, "\n"), text);
    return line;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* "1.72B", "14.9M"; adds nothing for 0. */
static void add_count(facts *f, uint64_t count)
{
    bool millions = count < 100000000;
    add(f,
        count == 0 ? ""
        : millions ? "%.1fM"
                   : "%.2fB",
        (millions ? 1e-6 : 1e-9) * (double)count);
}

static rp_status describe_model(const char *name, rp_arena *arena, facts *f)
{
    rp_model model;
    char line[FACT_SIZE];
    RP_TRY(rp_model_load(name, arena, &model));
    add_count(f, model.total_parameters);
    add_count(f, model.active_parameters != model.total_parameters ? model.active_parameters : 0);
    add(f, "%u", model.layers);
    add(f, "%u", model.hidden);
    add(f, "%u/%u", model.heads, model.kv_heads);
    add(f, "%s", first_line(model.source, line));
    return RP_OK;
}

static rp_status describe_platform(const char *name, rp_arena *arena, facts *f)
{
    rp_platform platform;
    char line[FACT_SIZE];
    RP_TRY(rp_platform_load(name, arena, &platform));
    add(f, "%u x %s", platform.gpus, platform.gpu);
    add(f, "%.1f", platform.memory_gb);
    add(f, "%.1f", platform.link_gb_per_s);
    add(f, platform.peer_gb_per_s > 0 ? "%.0f" : "-", platform.peer_gb_per_s);
    add(f, platform.host_memory_gb > 0 ? "%.0f" : "?", platform.host_memory_gb);
    add(f, "%s", first_line(platform.source, line));
    return RP_OK;
}

static rp_status describe_gpu(const char *name, rp_arena *arena, facts *f)
{
    rp_platform gpu;
    char line[FACT_SIZE];
    RP_TRY(rp_gpu_load(name, arena, &gpu));
    add(f, "%.1f", gpu.memory_gb);
    add(f, "%.0f", gpu.memory_gb_per_s);
    add(f, "%.1f", gpu.fp16_tflops_fp16_acc);
    add(f, "%.1f", gpu.fp16_tflops_fp32_acc);
    add(f, gpu.power_limit_w > 0 ? "%.0f" : "?", gpu.power_limit_w);
    add(f, "%s", first_line(gpu.source, line));
    return RP_OK;
}

static rp_status describe_stack(const char *name, rp_arena *arena, facts *f)
{
    rp_stack stack;
    char line[FACT_SIZE];
    RP_TRY(rp_stack_load(name, arena, &stack));
    if (stack.launches_fwd > 0) {
        add(f, "%.0f + %.0f", stack.launches_fwd, stack.launches_bwd);
    } else {
        add(f, "by shape");
    }
    add(f, stack.host_us_per_launch > 0 ? "%.0f" : "-", stack.host_us_per_launch);
    add(f, "%s", stack.attention);
    add(f, "%.0f", stack.loss_bytes);
    add(f, "%s", first_line(stack.source, line));
    return RP_OK;
}

static rp_status describe_costs(const char *name, rp_arena *arena, facts *f)
{
    rp_costs costs;
    char line[FACT_SIZE];
    int64_t forward_ps = 0;
    int64_t backward_ps = 0;
    RP_TRY(rp_costs_load(name, arena, &costs));
    for (uint32_t i = 0; i < costs.layers; i++) {
        forward_ps += costs.fwd_ps[i];
        backward_ps += costs.bwd_ps[i];
    }
    add(f, "%u", costs.layers);
    add(f, "%u x %u", costs.microbatch_size, costs.seq_len);
    add(f, "%.1f", rp_ps_to_ms(forward_ps));
    add(f, "%.1f", rp_ps_to_ms(backward_ps));
    add(f, "%.1f", rp_ps_to_ms(costs.head_fwd_ps + costs.head_bwd_ps));
    add(f, "%s", first_line(costs.source, line));
    return RP_OK;
}

static rp_status describe_schedule(const char *name, rp_arena *arena, facts *f)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    (void)arena;
    add(f, "%s [%s]", schedule->summary, schedule->source);
    return RP_OK;
}

static const rp_table_column schedule_columns[] = {RP_TABLE_LEFT("name", 1),
                                                   RP_TABLE_WORDS("rule", 1)};
static const rp_table_column model_columns[] = {
    RP_TABLE_LEFT("name", 9),    RP_TABLE_RIGHT("parameters", 8), RP_TABLE_RIGHT("active", 7),
    RP_TABLE_RIGHT("layers", 6), RP_TABLE_RIGHT("hidden", 5),     RP_TABLE_RIGHT("heads/kv", 4),
    RP_TABLE_WORDS("source", 9)};
static const rp_table_column platform_columns[] = {
    RP_TABLE_LEFT("name", 9),       RP_TABLE_LEFT("GPUs", 8),       RP_TABLE_RIGHT("GPU GB", 7),
    RP_TABLE_RIGHT("link GB/s", 6), RP_TABLE_RIGHT("peer GB/s", 4), RP_TABLE_RIGHT("host GB", 5),
    RP_TABLE_WORDS("source", 9)};
static const rp_table_column gpu_columns[] = {
    RP_TABLE_LEFT("name", 9),          RP_TABLE_RIGHT("GB", 8),       RP_TABLE_RIGHT("GB/s", 7),
    RP_TABLE_RIGHT("fp16 TFLOP/s", 5), RP_TABLE_RIGHT("fp32 acc", 6), RP_TABLE_RIGHT("W", 4),
    RP_TABLE_WORDS("source", 9)};
static const rp_table_column stack_columns[] = {
    RP_TABLE_LEFT("name", 9),      RP_TABLE_RIGHT("launches", 8),     RP_TABLE_RIGHT("us each", 7),
    RP_TABLE_LEFT("attention", 5), RP_TABLE_RIGHT("loss B/logit", 4), RP_TABLE_WORDS("source", 9)};
static const rp_table_column costs_columns[] = {
    RP_TABLE_LEFT("name", 9),         RP_TABLE_RIGHT("layers", 8),
    RP_TABLE_RIGHT("sequences", 7),   RP_TABLE_RIGHT("forward ms", 6),
    RP_TABLE_RIGHT("backward ms", 5), RP_TABLE_RIGHT("head ms", 4),
    RP_TABLE_WORDS("source", 9)};

#define COLUMNS(list) (list), sizeof(list) / sizeof(list)[0]

static const list_type types[] = {
    {"schedules", COLUMNS(schedule_columns), describe_schedule},
    {"models", COLUMNS(model_columns), describe_model},
    {"platforms", COLUMNS(platform_columns), describe_platform},
    {"gpus", COLUMNS(gpu_columns), describe_gpu},
    {"stacks", COLUMNS(stack_columns), describe_stack},
    {"costs", COLUMNS(costs_columns), describe_costs},
};

/* ---- the list -------------------------------------------------------------------------------- */

static rp_status name_all(const list_type *type, rp_arena *arena, const char ***names_out,
                          uint32_t *count_out)
{
    if (type->describe != describe_schedule) {
        return rp_data_list(type->kind, arena, names_out, count_out);
    }
    RP_TRY(rp_arena_alloc(arena, rp_schedule_count, sizeof **names_out, names_out));
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        (*names_out)[i] = rp_schedules[i]->name;
    }
    *count_out = rp_schedule_count;
    return RP_OK;
}

/* Describes a name. If its file cannot be read, the message stands in the column of the source. */
static rp_status describe(const list_type *type, const char *name, rp_arena *arena, facts *f)
{
    char message[FACT_SIZE];
    *f = (facts){.count = 0};
    rp_log_capture_begin(message, sizeof message);
    rp_status status = type->describe(name, arena, f);
    rp_log_capture_end();
    if (status == RP_INPUT) {
        f->count = 0;
        for (uint32_t i = 0; i + 2 < type->column_count; i++) {
            add(f, "%s", "");
        }
        message[strcspn(message, "\n")] = '\0';
        add(f, "cannot be read: %.*s", FACT_SIZE - 32, message);
        return RP_OK;
    }
    if (status != RP_OK) {
        rp_log_error("%s", message);
    }
    return status;
}

static void write_record(const list_type *type, const char *name, const facts *f, bool json,
                         rp_json *document, FILE *stream)
{
    if (!json) {
        rp_csv_write_cell(name, stream);
    } else {
        rp_json_begin_object(document);
        rp_json_member_string(document, type->columns[0].heading, name);
    }
    for (uint32_t i = 0; i < f->count; i++) {
        if (!json) {
            fputc(',', stream);
            rp_csv_write_cell(f->texts[i], stream);
        } else {
            rp_json_member_string(document, type->columns[i + 1].heading, f->texts[i]);
        }
    }
    if (!json) {
        fputc('\n', stream);
    } else {
        rp_json_end_object(document);
    }
}

static rp_status write_data(const list_type *type, const char *const *names, uint32_t count,
                            bool json, rp_arena *arena, FILE *stream)
{
    rp_json document;
    if (json) {
        rp_json_begin_document(&document, stream, 1);
        rp_json_begin_array(&document);
    }
    for (uint32_t i = 0; !json && i < type->column_count; i++) {
        fprintf(stream, "%s%s", type->columns[i].heading, i + 1 < type->column_count ? "," : "\n");
    }
    for (uint32_t i = 0; i < count; i++) {
        facts f;
        RP_TRY(describe(type, names[i], arena, &f));
        write_record(type, names[i], &f, json, &document, stream);
    }
    if (json) {
        rp_json_end_array(&document);
        rp_json_end_document(&document);
    }
    return RP_OK;
}

rp_status rpsim_list_write(const char *kind, rpsim_format format, rp_arena *arena, FILE *stream)
{
    const list_type *type = types;
    const char **names = NULL;
    uint32_t count = 0;
    rp_table *table = NULL;
    while (strcmp(type->kind, kind) != 0) {
        type++;
    }
    RP_TRY(name_all(type, arena, &names, &count));
    bool json = format == RPSIM_FORMAT_JSON;
    if (json || format == RPSIM_FORMAT_CSV) {
        return write_data(type, names, count, json, arena, stream);
    }
    RP_TRY(rp_table_create(type->columns, type->column_count, count, arena, &table));
    for (uint32_t i = 0; i < count; i++) {
        facts f;
        RP_TRY(describe(type, names[i], arena, &f));
        RP_TRY(rp_table_print(table, "%s", names[i]));
        for (uint32_t k = 0; k < f.count; k++) {
            RP_TRY(rp_table_print(table, "%s", f.texts[k]));
        }
    }
    if (format == RPSIM_FORMAT_MD) {
        rp_table_write_markdown(table, stream);
    } else {
        rp_table_write(table, 0, rp_paragraph_columns(stream, RP_TABLE_COLUMNS), stream);
    }
    return RP_OK;
}
