#include "sim/rppredict/prediction.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"

#include <math.h>
#include <string.h>

#define PLATFORM "rtx4090x8"
#define SEQ_LEN 2048u

/* A table with the bytes it was read from. */
typedef struct table {
    rp_csv csv;
    rp_text text;
} table;

typedef struct predictor {
    rp_arena *arena;
    rp_platform platform;
    rpsim_question *questions; /* of the cell with the same index */
    rpsim_prediction *out;
} predictor;

/* "-set": cells that set a constant are no predictions (sim/model.md section 5); a column of
 * traces/configs/paper.csv says which. */
static const char *const groups[] = {"async",
                                     "scaling-dense",
                                     "sync-dense",
                                     "sync-dense-set",
                                     "sync-moe",
                                     "scaling-gpt-oss-20b",
                                     "scaling-qwen3-235b-lora",
                                     "scaling-qwen3-235b-lora-set",
                                     "baselines",
                                     "baselines-set",
                                     "mobius"};

static rp_status read_table(const char *folder, const char *name, rp_arena *arena, table *t)
{
    const char *path = NULL;
    RP_TRY(rp_arena_print(arena, &path, "%s/%s", folder, name));
    RP_TRY(rp_text_read_file(path, RP_CSV_MAX_BYTES, &t->text));
    return rp_csv_parse(path, t->text.bytes, t->text.length, ',', arena, &t->csv);
}

/* ---- cells ------------------------------------------------------------------------------------
 */

static rp_status cell_u32(const rp_csv *csv, uint32_t row, const char *column, uint32_t *value_out)
{
    uint32_t index = 0;
    uint64_t value = 0;
    RP_TRY(rp_csv_column(csv, column, &index));
    RP_TRY(rp_csv_u64(csv, row, index, 1, 1000000, &value));
    *value_out = (uint32_t)value;
    return RP_OK;
}

static rp_status cell_text(const rp_csv *csv, uint32_t row, const char *column,
                           const char **text_out)
{
    uint32_t index = 0;
    RP_TRY(rp_csv_column(csv, column, &index));
    *text_out = rp_csv_cell(csv, row, index);
    return RP_OK;
}

static rp_status add_cell(predictor *p, const char *group, const char *framework, const char *model,
                          uint32_t gpus, double measured)
{
    rpsim_workload workload = {.seq_len = SEQ_LEN};
    const rp_schedule_type *schedule = NULL;
    bool asynchronous = strcmp(framework, "roundpipe") == 0;
    RP_TRY(rp_schedule_require("framework", rp_published_schedule(framework), false, &schedule));
    RP_TRY(rpsim_workload_published(schedule, model, true, asynchronous, &workload, &asynchronous));
    uint32_t set_at = workload.sets_gpus != 0 ? workload.sets_gpus : p->platform.gpus;
    if (workload.sets_constant && set_at == gpus) {
        RP_TRY(rp_arena_print(p->arena, &group, "%s-set", group));
    }
    p->questions[p->out->count] = (rpsim_question){.framework = framework,
                                                   .model = model,
                                                   .gpus = gpus,
                                                   .asynchronous = asynchronous,
                                                   .workload = workload};
    p->out->cells[p->out->count++] = (rpsim_cell){.group = group,
                                                  .framework = framework,
                                                  .model = model,
                                                  .gpus = gpus,
                                                  .measured_tokens_per_s = measured};
    return RP_OK;
}

static rp_status answer_cells(predictor *p)
{
    rpsim_answer *answers = NULL;
    RP_TRY(rp_arena_alloc(p->arena, p->out->count, sizeof *answers, &answers));
    RP_TRY(rpsim_answer_all(&p->platform, p->questions, p->out->count, answers));
    for (uint32_t i = 0; i < p->out->count; i++) {
        rpsim_cell *cell = &p->out->cells[i];
        cell->predicted_tokens_per_s = answers[i].tokens_per_s;
        cell->error_pct = 100 * (cell->predicted_tokens_per_s / cell->measured_tokens_per_s - 1);
    }
    return RP_OK;
}

static bool is_dense(const char *model, rp_arena *arena)
{
    rp_model loaded;
    return rp_model_load(model, arena, &loaded) == RP_OK && loaded.experts == 1;
}

static const char *group_of(const char *framework, bool dense)
{
    if (strcmp(framework, "roundpipe") == 0) {
        return "async";
    }
    if (strcmp(framework, "roundpipe-sync") == 0) {
        return dense ? "sync-dense" : "sync-moe";
    }
    return strcmp(framework, "mobius") == 0 ? "mobius" : "baselines";
}

static rp_status add_throughput(predictor *p, const rp_csv *csv)
{
    for (uint32_t row = 0; row < csv->rows; row++) {
        const char *framework = NULL;
        const char *model = NULL;
        const char *text = NULL;
        double measured = 0;
        RP_TRY(cell_text(csv, row, "framework", &framework));
        RP_TRY(cell_text(csv, row, "model", &model));
        RP_TRY(cell_text(csv, row, "tokens_per_s", &text));
        if (!rp_parse_double(text, 1e-3, 1e12, &measured)) {
            continue; /* OOM and N/A */
        }
        bool dense = is_dense(model, p->arena);
        if (strcmp(framework, "roundpipe") != 0 || dense) { /* MoE: in the scaling group */
            RP_TRY(add_cell(p, group_of(framework, dense), framework, model, 8, measured));
        }
    }
    return RP_OK;
}

static rp_status add_scaling(predictor *p, const rp_csv *csv)
{
    for (uint32_t column = 1; column < csv->columns; column++) {
        const char *model = csv->header[column];
        /* The MoE models apart: pooled, their errors would hide each other. */
        const char *group = "scaling-dense";
        if (!is_dense(model, p->arena)) {
            RP_TRY(rp_arena_print(p->arena, &group, "scaling-%s", model));
        }
        for (uint32_t row = 0; row < csv->rows; row++) {
            uint32_t gpus = 0;
            double measured = 0;
            RP_TRY(cell_u32(csv, row, "gpus", &gpus));
            RP_TRY(rp_csv_double(csv, row, column, 1e-3, 1e12, &measured));
            RP_TRY(add_cell(p, group, "roundpipe", model, gpus, measured));
        }
    }
    return RP_OK;
}

static rp_status predict_all(predictor *p, const char *folder, table *throughput, table *scaling)
{
    RP_TRY(rp_platform_load(PLATFORM, p->arena, &p->platform));
    RP_TRY(read_table(folder, "throughput_4090.csv", p->arena, throughput));
    RP_TRY(read_table(folder, "scaling_4090.csv", p->arena, scaling));
    size_t most = throughput->csv.rows + (size_t)scaling->csv.rows * scaling->csv.columns;
    RP_TRY(rp_arena_alloc(p->arena, most, sizeof(rpsim_cell), &p->out->cells));
    RP_TRY(rp_arena_alloc(p->arena, most, sizeof *p->questions, &p->questions));
    RP_TRY(add_throughput(p, &throughput->csv));
    RP_TRY(add_scaling(p, &scaling->csv));
    return answer_cells(p);
}

rp_status rpsim_predict(const char *folder, rp_arena *arena, rpsim_prediction *prediction_out)
{
    *prediction_out = (rpsim_prediction){0};
    predictor p = {.arena = arena, .out = prediction_out};
    table throughput = {0};
    table scaling = {0};
    rp_status status = predict_all(&p, folder, &throughput, &scaling);
    rp_text_fini(&throughput.text);
    rp_text_fini(&scaling.text);
    return status;
}

/* ---- the report -------------------------------------------------------------------------------
 */

double rpsim_prediction_mape(const rpsim_prediction *prediction, const char *group)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < prediction->count; i++) {
        if (strcmp(prediction->cells[i].group, group) == 0) {
            sum += fabs(prediction->cells[i].error_pct);
            count++;
        }
    }
    return count == 0 ? NAN : sum / count;
}

static void write_groups(const rpsim_prediction *prediction, FILE *stream)
{
    fputs("| group | cells | mean absolute error % | worst % |\n|---|---|---|---|\n", stream);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        uint32_t count = 0;
        double worst = 0;
        for (uint32_t i = 0; i < prediction->count; i++) {
            const rpsim_cell *cell = &prediction->cells[i];
            if (strcmp(cell->group, groups[g]) == 0) {
                count++;
                worst = fabs(cell->error_pct) > fabs(worst) ? cell->error_pct : worst;
            }
        }
        fprintf(stream, "| %s | %u | %.2f | %+.2f |\n", groups[g], count,
                rpsim_prediction_mape(prediction, groups[g]), worst);
    }
}

void rpsim_prediction_write(const rpsim_prediction *prediction, FILE *stream)
{
    write_groups(prediction, stream);
    fputs("\n| group | system | model | GPUs | measured tokens/s | predicted | error % |\n"
          "|---|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < prediction->count; i++) {
        const rpsim_cell *c = &prediction->cells[i];
        fprintf(stream, "| %s | %s | %s | %u | %.2f | %.2f | %+.2f |\n", c->group, c->framework,
                c->model, c->gpus, c->measured_tokens_per_s, c->predicted_tokens_per_s,
                c->error_pct);
    }
}
