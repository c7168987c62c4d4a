#include "sim/rppredict/fsdp.h"

#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "sim/rppredict/run.h"

#include <math.h>
#include <string.h>

#define FILE_NAME "fsdp_mpt_a100.csv"
#define SERVER_GPUS 8u
#define ITERATIONS 4u /* every step is like the others */
#define MOST_DRAWS 8u /* of the inputs; on 128 GPUs each takes a second */

enum {
    COLUMN_GPU,
    COLUMN_MODEL,
    COLUMN_SEQ_LEN,
    COLUMN_GPUS,
    COLUMN_SIZE,
    COLUMN_ACCUMULATION,
    COLUMN_MODE,
    COLUMN_CHECKPOINTING,
    COLUMN_TOKENS,
    COLUMN_SETS,
    COLUMNS
};

static const char *const columns[COLUMNS] = {"gpu",
                                             "model",
                                             "seq_len",
                                             "gpus",
                                             "microbatch_size",
                                             "accumulation",
                                             "mixed_precision_mode",
                                             "checkpointing",
                                             "tokens_per_s",
                                             "sets"};

static const struct {
    const char *gpu; /* as published */
    const char *platform;
    const char *group;
} servers[] = {{"a100_80gb", "a100-80x8", "fsdp-a100-80"},
               {"a100_40gb", "a100-40x8", "fsdp-a100-40"}};

static const char *const groups[] = {"fsdp-a100-80", "fsdp-a100-80-set", "fsdp-a100-40",
                                     "fsdp-a100-40-set"};

/* A row as a run. */
typedef struct run {
    const char *platform;
    uint32_t accumulation;
    bool fp32; /* gradients are reduced in fp32 */
} run;

typedef struct reader {
    rp_csv csv;
    uint32_t index[COLUMNS];
    rp_arena *arena;
    rpsim_fsdp *out;
    run *runs;
} reader;

/* ---- rows ------------------------------------------------------------------------------------ */

static rp_status whole(const reader *r, uint32_t row, int column, uint32_t least,
                       uint32_t *value_out)
{
    uint64_t value = 0;
    RP_TRY(rp_csv_u64(&r->csv, row, r->index[column], least, 1u << 20, &value));
    *value_out = (uint32_t)value;
    return RP_OK;
}

static rp_status refuse(const reader *r, uint32_t row, const char *what)
{
    rp_log_error_at(r->csv.name, r->csv.lines[row], "%s", what);
    return RP_INPUT;
}

static const char *cell(const reader *r, uint32_t row, int column)
{
    return rp_csv_cell(&r->csv, row, r->index[column]);
}

static rp_status read_row(reader *r, uint32_t row)
{
    rpsim_fsdp_row *of = &r->out->rows[row];
    run *as = &r->runs[row];
    uint32_t recomputes = 0;
    const char *mode = cell(r, row, COLUMN_MODE);
    size_t server = 0;
    size_t count = sizeof servers / sizeof servers[0];
    while (server < count && strcmp(cell(r, row, COLUMN_GPU), servers[server].gpu) != 0) {
        server++;
    }
    as->fp32 = strcmp(mode, "DEFAULT") == 0;
    if (server == count || (!as->fp32 && strcmp(mode, "PURE") != 0)) {
        return refuse(r, row,
                      "columns gpu and mixed_precision_mode; valid values are a100_80gb and "
                      "a100_40gb, DEFAULT and PURE");
    }
    as->platform = servers[server].platform;
    bool sets = cell(r, row, COLUMN_SETS)[0] != '\0';
    RP_TRY(rp_arena_print(r->arena, &of->group, "%s%s", servers[server].group, sets ? "-set" : ""));
    RP_TRY(rp_arena_print(r->arena, &of->model, "mpt-%s", cell(r, row, COLUMN_MODEL)));
    RP_TRY(whole(r, row, COLUMN_SEQ_LEN, 1, &of->seq_len));
    RP_TRY(whole(r, row, COLUMN_GPUS, 1, &of->gpus));
    RP_TRY(whole(r, row, COLUMN_SIZE, 1, &of->microbatch_size));
    RP_TRY(whole(r, row, COLUMN_ACCUMULATION, 1, &as->accumulation));
    RP_TRY(whole(r, row, COLUMN_CHECKPOINTING, 0, &recomputes));
    of->recomputes = recomputes != 0;
    return rp_csv_double(&r->csv, row, r->index[COLUMN_TOKENS], 1e-3, 1e12,
                         &of->measured_tokens_per_s);
}

static rp_status read_rows(reader *r)
{
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(&r->csv, columns[i], &r->index[i]));
    }
    r->out->count = r->csv.rows;
    RP_TRY(rp_arena_alloc(r->arena, r->csv.rows, sizeof *r->out->rows, &r->out->rows));
    RP_TRY(rp_arena_alloc(r->arena, r->csv.rows, sizeof *r->runs, &r->runs));
    for (uint32_t row = 0; row < r->csv.rows; row++) {
        RP_TRY(read_row(r, row));
    }
    return RP_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static rp_status draw(const rpsim_interval_run *drawn, uint32_t draws, double tokens_per_s,
                      rp_arena *arena, rpsim_interval *range_out)
{
    rpsim_intervals intervals;
    RP_TRY(rpsim_intervals_make(drawn, draws, 0, 1, false, arena, &intervals));
    *range_out = (rpsim_interval){.p10 = tokens_per_s * intervals.speed.p10,
                                  .p50 = tokens_per_s * intervals.speed.p50,
                                  .p90 = tokens_per_s * intervals.speed.p90};
    return RP_OK;
}

static rp_status predict(const run *as, uint32_t draws, rpsim_fsdp_row *of, rp_arena *arena)
{
    rp_platform platform;
    rp_model model;
    rp_costs costs;
    rp_partition partition;
    rpsim_result result;
    const rp_schedule_type *schedule = rp_schedule_find("fsdp");
    uint32_t servers_used = (of->gpus - 1) / SERVER_GPUS + 1;
    RP_TRY(rp_platform_load(as->platform, arena, &platform));
    RP_TRY(rp_platform_set_nodes(&platform, servers_used, of->gpus / servers_used, NULL));
    RP_TRY(rp_model_load(of->model, arena, &model));
    rp_model_set_seq_len(&model, of->seq_len);
    const rp_roof roof = {&platform, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL};
    RP_TRY(rp_find_costs(&model, &roof, of->microbatch_size, of->seq_len, arena, &costs, NULL));
    RP_TRY(rp_partition_even(schedule, &costs, platform.gpus, 0, arena, &partition, NULL));
    const rp_resolved resolved = {
        .schedule = schedule,
        .model = &model,
        .costs = &costs,
        .decided = {.accumulate = 1,
                    .microbatches = of->gpus * as->accumulation,
                    .seq_len = of->seq_len,
                    .iterations = ITERATIONS,
                    .round = RP_ROUND_ALL,
                    .layer_grain = rp_usual_layer_grain(schedule),
                    .dtype = RP_DTYPE_BF16,
                    .reductions = {.each_given = true,
                                   .each_microbatch = true,
                                   .dtype_given = true,
                                   .dtype = as->fp32 ? RP_DTYPE_F32 : RP_DTYPE_BF16}},
        .gpus = platform.gpus,
        .global_batch = of->gpus * as->accumulation * of->microbatch_size,
        .recompute = of->recomputes ? RP_RECOMPUTE_WAIT : RP_RECOMPUTE_NONE,
        .partition = &partition};
    RP_TRY(rpsim_hardware_case_run(&resolved, &platform, 0, &result, NULL));
    double tokens = (double)resolved.global_batch * of->seq_len;
    of->predicted_tokens_per_s = tokens / (result.period_ps * 1e-12);
    of->error_pct = 100 * (of->predicted_tokens_per_s / of->measured_tokens_per_s - 1);
    of->fits = result.memory.known && result.memory.fits;
    const rpsim_interval_run drawn = {.program = result.program,
                                      .platform = &platform,
                                      .resolved = &resolved,
                                      .period_ps = result.period_ps};
    rp_status status = draw(&drawn, draws, of->predicted_tokens_per_s, arena, &of->range);
    rpsim_result_fini(&result);
    return status;
}

static rp_status predict_row(void *context, uint32_t row, rp_arena *arena)
{
    reader *r = context;
    return predict(&r->runs[row], r->out->draws, &r->out->rows[row], arena);
}

rp_status rpsim_predict_fsdp(const char *folder, uint32_t draws, rp_arena *arena,
                             rpsim_fsdp *fsdp_out)
{
    *fsdp_out = (rpsim_fsdp){.draws = draws < MOST_DRAWS ? draws : MOST_DRAWS};
    reader r = {.arena = arena, .out = fsdp_out};
    RP_TRY(rpsim_read_published(folder, FILE_NAME, arena, &r.csv));
    RP_TRY(read_rows(&r));
    return rpsim_predict_rows(&r.csv, predict_row, &r);
}

/* ---- the report ------------------------------------------------------------------------------ */

double rpsim_fsdp_mape(const rpsim_fsdp *fsdp, const char *group)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < fsdp->count; i++) {
        bool in = strcmp(fsdp->rows[i].group, group) == 0;
        sum += in ? fabs(fsdp->rows[i].error_pct) : 0;
        count += in ? 1 : 0;
    }
    return count == 0 ? NAN : sum / count;
}

static bool is_inside(const rpsim_fsdp_row *row)
{
    return row->measured_tokens_per_s >= row->range.p10 &&
           row->measured_tokens_per_s <= row->range.p90;
}

void rpsim_fsdp_calibrate(const rpsim_fsdp *fsdp, rpsim_calibration *calibration)
{
    for (uint32_t i = 0; i < fsdp->count; i++) {
        const rpsim_fsdp_row *row = &fsdp->rows[i];
        if (strstr(row->group, "-set") == NULL) {
            calibration->cells++;
            calibration->inside += is_inside(row) ? 1 : 0;
            calibration->below += row->measured_tokens_per_s < row->range.p10 ? 1 : 0;
        }
    }
}

static void write_group(const rpsim_fsdp *fsdp, const char *group, FILE *stream)
{
    uint32_t count = 0;
    uint32_t inside = 0;
    double worst = 0;
    for (uint32_t i = 0; i < fsdp->count; i++) {
        const rpsim_fsdp_row *row = &fsdp->rows[i];
        bool in = strcmp(row->group, group) == 0;
        count += in ? 1 : 0;
        inside += in && is_inside(row) ? 1 : 0;
        worst = in && fabs(row->error_pct) > fabs(worst) ? row->error_pct : worst;
    }
    if (count > 0) {
        fprintf(stream, "| %s | %u | %.2f | %+.2f | %u |\n", group, count,
                rpsim_fsdp_mape(fsdp, group), worst, inside);
    }
}

static void write_calibration(const rpsim_fsdp *fsdp, const rpsim_calibration *others, FILE *stream)
{
    rpsim_calibration here = {0};
    rpsim_calibration all = *others;
    rpsim_fsdp_calibrate(fsdp, &here);
    rpsim_fsdp_calibrate(fsdp, &all);
    fprintf(stream,
            "\nIntervals, p10 to p90 over %u draws: %u of %u rows that set nothing lie inside; "
            "with the cells of the RTX 4090 %u of %u (%.0f %%; valid are 65 to 95).\n",
            fsdp->draws, here.inside, here.cells, all.inside, all.cells,
            100.0 * all.inside / all.cells);
}

void rpsim_fsdp_write(const rpsim_fsdp *fsdp, const rpsim_calibration *others, FILE *stream)
{
    fputs("\n| group | cells | mean absolute error % | worst % | inside p10 to p90 |\n"
          "|---|---|---|---|---|\n",
          stream);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        write_group(fsdp, groups[g], stream);
    }
    write_calibration(fsdp, others, stream);
    fputs("\n| group | model | GPUs | sequences x tokens | recomputes | measured tokens/s | "
          "predicted | error % | p10 | p90 | measured is | fits |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < fsdp->count; i++) {
        const rpsim_fsdp_row *r = &fsdp->rows[i];
        fprintf(stream,
                "| %s | %s | %u | %u x %u | %s | %.2f | %.2f | %+.2f | %.2f | %.2f | %s | %s |\n",
                r->group, r->model, r->gpus, r->microbatch_size, r->seq_len,
                r->recomputes ? "yes" : "no", r->measured_tokens_per_s, r->predicted_tokens_per_s,
                r->error_pct, r->range.p10, r->range.p90, is_inside(r) ? "inside" : "outside",
                r->fits ? "yes" : "no");
    }
}
