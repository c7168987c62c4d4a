#include "sim/prediction_seqlen.h"

#include "common/csv.h"
#include "common/text.h"
#include "sim/prediction.h"
#include "sim/seqlen.h"

#include <math.h>
#include <string.h>

#define PLATFORM "rtx4090x8"
#define ITERATIONS 16u /* stages come to GPUs in another order in each */

/* Systems whose memory is modelled; the published names are the schedules'. */
static const char *const systems[] = {"roundpipe", "megatron-pp", "mobius"};

static bool is_modelled(const char *framework, const char *model)
{
    bool found = false;
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        found |= strcmp(systems[i], framework) == 0;
    }
    return found && strstr(model, "-lora") == NULL;
}

static rp_status search(const rpsim_seqlen_cell *cell, const rp_platform *platform, rp_arena *arena,
                        uint32_t *tokens_out)
{
    rp_model model;
    rp_costs costs;
    rp_partition partition;
    rpsim_workload workload = {0};
    rpsim_result result;
    bool asynchronous = false;
    const char *costs_name = NULL;
    const rp_schedule_type *schedule = rp_schedule_find(cell->framework);
    RP_TRY(rp_arena_print(arena, &costs_name, "%s@%s", cell->model, platform->gpu));
    RP_TRY(rp_model_load(cell->model, arena, &model));
    RP_TRY(rp_costs_load(costs_name, arena, &costs));
    RP_TRY(rpsim_workload_longest(cell->framework, cell->model, &workload, &asynchronous));
    workload.seq_len = RPSIM_SEQLEN_STEP;
    RP_TRY(rpsim_prediction_partition(platform, schedule, &model, &costs, &workload, platform->gpus,
                                      arena, &partition));
    rp_schedule_config config = {.gpus = platform->gpus,
                                 .microbatches = workload.calls * workload.microbatches,
                                 .iterations = ITERATIONS,
                                 .round = workload.microbatches,
                                 .round_start = RP_ROUND_START_ROTATE,
                                 .asynchronous = asynchronous,
                                 .recompute = schedule->default_recompute,
                                 .layers = model.layers,
                                 .partition = &partition,
                                 .costs = &costs};
    RP_TRY(rpsim_seqlen_search(schedule, schedule->separate_backward, &config, &workload, &model,
                               platform, arena, tokens_out, &result));
    rpsim_result_fini(&result);
    return RP_OK;
}

static double error_pct(uint32_t predicted, uint32_t measured)
{
    if (predicted == 0 || measured == 0) {
        return predicted == measured ? 0 : predicted == 0 ? -100 : 100;
    }
    return 100 * ((double)predicted / measured - 1);
}

static rp_status predict_cells(const rp_csv *csv, rp_arena *arena, rpsim_seqlens *out)
{
    uint32_t framework = 0;
    uint32_t model = 0;
    uint32_t length = 0;
    rp_platform platform;
    RP_TRY(rp_csv_column(csv, "framework", &framework));
    RP_TRY(rp_csv_column(csv, "model", &model));
    RP_TRY(rp_csv_column(csv, "max_seqlen_k", &length));
    RP_TRY(rp_platform_load(PLATFORM, arena, &platform));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *out->cells, &out->cells));
    for (uint32_t row = 0; row < csv->rows; row++) {
        rpsim_seqlen_cell cell = {.framework = rp_csv_cell(csv, row, framework),
                                  .model = rp_csv_cell(csv, row, model)};
        uint64_t steps = 0;
        const char *text = rp_csv_cell(csv, row, length);
        if (!is_modelled(cell.framework, cell.model)) {
            continue;
        }
        if (strcmp(text, "OOM") != 0) {
            RP_TRY(rp_csv_u64(csv, row, length, 1, RPSIM_SEQLEN_MAX_STEPS, &steps));
        }
        cell.group = strcmp(cell.framework, "roundpipe") == 0 ? "max-seqlen" : "max-seqlen-others";
        cell.measured_tokens = (uint32_t)steps * RPSIM_SEQLEN_STEP;
        RP_TRY(search(&cell, &platform, arena, &cell.predicted_tokens));
        cell.error_pct = error_pct(cell.predicted_tokens, cell.measured_tokens);
        out->cells[out->count++] = cell;
    }
    return RP_OK;
}

rp_status rpsim_predict_seqlens(const char *folder, rp_arena *arena, rpsim_seqlens *seqlens_out)
{
    *seqlens_out = (rpsim_seqlens){0};
    const char *path = NULL;
    rp_text text = {0};
    rp_csv csv;
    RP_TRY(rp_arena_print(arena, &path, "%s/max_seqlen_4090.csv", folder));
    rp_status status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    if (status == RP_OK) {
        status = rp_csv_parse(path, text.bytes, text.length, ',', arena, &csv);
    }
    if (status == RP_OK) {
        status = predict_cells(&csv, arena, seqlens_out);
    }
    rp_text_fini(&text);
    return status;
}

double rpsim_seqlens_mape(const rpsim_seqlens *seqlens, const char *group)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < seqlens->count; i++) {
        if (strcmp(seqlens->cells[i].group, group) == 0) {
            sum += fabs(seqlens->cells[i].error_pct);
            count++;
        }
    }
    return count == 0 ? NAN : sum / count;
}

void rpsim_seqlens_write(const rpsim_seqlens *seqlens, FILE *stream)
{
    fprintf(stream,
            "\nLongest sequences, in tokens; 0: out of memory. Mean absolute error: max-seqlen "
            "%.2f %%, max-seqlen-others %.2f %%.\n\n"
            "| group | system | model | measured | predicted | error %% |\n"
            "|---|---|---|---|---|---|\n",
            rpsim_seqlens_mape(seqlens, "max-seqlen"),
            rpsim_seqlens_mape(seqlens, "max-seqlen-others"));
    for (uint32_t i = 0; i < seqlens->count; i++) {
        const rpsim_seqlen_cell *c = &seqlens->cells[i];
        fprintf(stream, "| %s | %s | %s | %u | %u | %+.2f |\n", c->group, c->framework, c->model,
                c->measured_tokens, c->predicted_tokens, c->error_pct);
    }
}
