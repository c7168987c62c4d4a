#include "sim/rppredict/megatron.h"

#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "sim/rppredict/run.h"
#include "sim/run/hardware_case.h"

#include <math.h>
#include <string.h>

#define FILE_NAME "megatron_a100.csv"
#define SERVER_GPUS 8u
/* Platform of a single server, and of several servers, whose network is known (traces/platforms).
 */
static const char *const platforms[] = {"a100-80x8", "a100-80x8-hdr"};

static const char *const columns[] = {"hidden",
                                      "heads",
                                      "layers",
                                      "seq_len",
                                      "gpus",
                                      "tensor_parallel",
                                      "data_parallel",
                                      "pipeline_parallel",
                                      "microbatch_size",
                                      "global_batch"};

enum { HIDDEN, HEADS, LAYERS, SEQ_LEN, GPUS, TENSOR, DATA, PIPELINE, SIZE, BATCH, NUMBERS };

static const char *const groups[] = {"megatron-a100", "megatron-a100-set", "megatron-a100-servers",
                                     "megatron-a100-servers-set"};

typedef struct reader {
    rp_csv csv;
    rp_arena *arena;
    rpsim_megatron *out;
} reader;

static rp_status read_row(reader *r, const uint32_t *index, uint32_t time, uint32_t sets,
                          uint32_t row)
{
    rpsim_megatron_row *of = &r->out->rows[row];
    uint64_t numbers[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        RP_TRY(rp_csv_u64(&r->csv, row, index[i], 1, 1u << 20, &numbers[i]));
    }
    uint64_t gpus = numbers[TENSOR] * numbers[DATA] * numbers[PIPELINE];
    bool whole = numbers[BATCH] % (numbers[SIZE] * numbers[DATA]) == 0;
    if (gpus != numbers[GPUS] || !whole) {
        rp_log_error_at(r->csv.name, r->csv.lines[row],
                        "valid are as many gpus as tensor_parallel x data_parallel x "
                        "pipeline_parallel, and a global_batch of whole microbatches");
        return RP_INPUT;
    }
    of->run = (rp_run){.hardware = true,
                       .gpus = (uint32_t)gpus,
                       .layout = {.tensor_parallel = (uint32_t)numbers[TENSOR],
                                  .data_parallel = (uint32_t)numbers[DATA]},
                       .seq_len = (uint32_t)numbers[SEQ_LEN],
                       .microbatches = (uint32_t)(numbers[BATCH] / numbers[DATA] / numbers[SIZE]),
                       .microbatch_size = (uint32_t)numbers[SIZE],
                       .global_batch = (uint32_t)numbers[BATCH],
                       .accumulate = 1,
                       .iterations = 1, /* synchronous: all iterations are equal */
                       .round = RP_ROUND_ALL,
                       .recomputes = {RP_RECOMPUTE_WAIT},
                       .dtype = RP_DTYPE_F16};
    bool constant = rp_csv_cell(&r->csv, row, sets)[0] != '\0';
    RP_TRY(rp_arena_print(r->arena, &of->group, "%s%s", groups[gpus > SERVER_GPUS ? 2 : 0],
                          constant ? "-set" : ""));
    RP_TRY(rp_arena_print(r->arena, &of->model, "gpt:%llux%llux%llu",
                          (unsigned long long)numbers[HIDDEN], (unsigned long long)numbers[HEADS],
                          (unsigned long long)numbers[LAYERS]));
    return rp_csv_double(&r->csv, row, time, 1e-3, 1e9, &of->measured_ms);
}

static rp_status read_rows(reader *r)
{
    uint32_t index[NUMBERS];
    uint32_t time = 0;
    uint32_t sets = 0;
    for (int i = 0; i < NUMBERS; i++) {
        RP_TRY(rp_csv_column(&r->csv, columns[i], &index[i]));
    }
    RP_TRY(rp_csv_column(&r->csv, "iteration_ms", &time));
    RP_TRY(rp_csv_column(&r->csv, "sets", &sets));
    r->out->count = r->csv.rows;
    RP_TRY(rp_arena_alloc(r->arena, r->csv.rows, sizeof *r->out->rows, &r->out->rows));
    for (uint32_t row = 0; row < r->csv.rows; row++) {
        RP_TRY(read_row(r, index, time, sets, row));
    }
    return RP_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static rp_status predict(rpsim_megatron_row *of, rp_arena *arena)
{
    rp_platform platform;
    rp_model model;
    rp_model rank;
    rp_costs costs;
    rp_partition partition;
    rpsim_result result;
    const rp_schedule_type *schedule = rp_schedule_find("megatron-pp");
    const rp_run *run = &of->run;
    uint32_t servers = (run->gpus - 1) / SERVER_GPUS + 1;
    RP_TRY(rp_platform_load(platforms[servers > 1 ? 1 : 0], arena, &platform));
    RP_TRY(rp_platform_set_nodes(&platform, servers, run->gpus / servers, NULL));
    RP_TRY(rp_model_load(of->model, arena, &model));
    rp_model_set_seq_len(&model, run->seq_len);
    RP_TRY(rp_model_cut(&model, &run->layout, arena, &rank, NULL));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_F32}, NULL};
    RP_TRY(
        rp_roofline_costs(&rank, &roof, run->microbatch_size, run->seq_len, arena, &costs, NULL));
    costs.tensor_parallel = run->layout.tensor_parallel;
    rp_resolved resolved = rp_resolved_of_run(run, schedule, &model);
    resolved.costs = &costs;
    resolved.global_batch = run->global_batch / run->layout.data_parallel;
    const rp_schedule_config view = rp_resolved_view(&resolved);
    RP_TRY(rp_compile_partition(NULL, RP_PARTITION_WORDS, of->model, 0, schedule, &view, arena,
                                &partition, NULL));
    resolved.partition = &partition;
    RP_TRY(rpsim_hardware_case_run(&resolved, &platform, RPSIM_WITHOUT_CHECK, &result, NULL));
    of->predicted_ms = 1e-9 * result.period_ps;
    of->error_pct = 100 * (of->predicted_ms / of->measured_ms - 1);
    rpsim_result_fini(&result);
    return RP_OK;
}

static rp_status predict_row(void *context, uint32_t row, rp_arena *arena)
{
    reader *r = context;
    return predict(&r->out->rows[row], arena);
}

rp_status rpsim_predict_megatron(const char *folder, rp_arena *arena, rpsim_megatron *megatron_out)
{
    *megatron_out = (rpsim_megatron){0};
    reader r = {.arena = arena, .out = megatron_out};
    RP_TRY(rpsim_read_published(folder, FILE_NAME, arena, &r.csv));
    RP_TRY(read_rows(&r));
    return rpsim_predict_rows(&r.csv, predict_row, &r);
}

/* ---- the report ------------------------------------------------------------------------------ */

rpsim_megatron_errors rpsim_megatron_group(const rpsim_megatron *megatron, const char *group,
                                           uint32_t tensor_parallel)
{
    rpsim_megatron_errors errors = {0};
    for (uint32_t i = 0; i < megatron->count; i++) {
        const rpsim_megatron_row *row = &megatron->rows[i];
        bool in = tensor_parallel == 0 || row->run.layout.tensor_parallel == tensor_parallel;
        if (in && strcmp(row->group, group) == 0) {
            double error = row->error_pct;
            errors.count++;
            errors.mean_pct += error;
            errors.absolute_pct += fabs(error);
            errors.worst_pct = fabs(error) > fabs(errors.worst_pct) ? error : errors.worst_pct;
        }
    }
    errors.mean_pct /= errors.count != 0 ? errors.count : 1;
    errors.absolute_pct /= errors.count != 0 ? errors.count : 1;
    return errors;
}

static void write_errors(const rpsim_megatron *megatron, const char *group, uint32_t tensor,
                         FILE *stream)
{
    rpsim_megatron_errors e = rpsim_megatron_group(megatron, group, tensor);
    if (e.count != 0) {
        fprintf(stream, "| %s | ", group);
        fprintf(stream, tensor == 0 ? "all" : "%u", tensor);
        fprintf(stream, " | %u | %+.2f | %.2f | %+.2f |\n", e.count, e.mean_pct, e.absolute_pct,
                e.worst_pct);
    }
}

/* Writes the rows, with the columns in the order in which a narrow page keeps them. */
static void write_rows(const rpsim_megatron *megatron, FILE *stream)
{
    fputs("\n| group | model | GPUs | tensor x data x pipeline | microbatch | batch | error % "
          "| measured ms | predicted ms |\n|---|---|---|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < megatron->count; i++) {
        const rpsim_megatron_row *r = &megatron->rows[i];
        const rp_run *run = &r->run;
        fprintf(stream, "| %s | %s | %u | %u x %u x %u | %u | %u | %+.2f | %.2f | %.2f |\n",
                r->group, r->model + strlen("gpt:"), run->gpus, run->layout.tensor_parallel,
                run->layout.data_parallel, rp_run_places(run), run->microbatch_size,
                run->global_batch, r->error_pct, r->measured_ms, r->predicted_ms);
    }
}

void rpsim_megatron_write(const rpsim_megatron *megatron, FILE *stream)
{
    fputs("\n| group | tensor parallel | cells | mean error % | mean absolute error % | worst % |\n"
          "|---|---|---|---|---|---|\n",
          stream);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (uint32_t tensor = 0; tensor <= 2 * SERVER_GPUS; tensor++) {
            write_errors(megatron, groups[g], tensor, stream);
        }
    }
    write_rows(megatron, stream);
}
