#include "sim/rppredict/prediction.h"

#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"

#include <math.h>
#include <string.h>

#define PLATFORM "rtx4090x8"
#define SEQ_LEN 2048u

/* Plausible configurations of a system whose own configuration is not published (mobius): sequences
 * of a microbatch, with RoundPipe's batch or with these numbers of microbatches for each GPU (from
 * four on GPipe calls the bubble negligible: Huang et al., 2019). */
static const uint32_t plausible_sizes[] = {1, 2, 4, 8};
static const uint32_t plausible_per_gpu[] = {1, 4};
#define SIZES (sizeof plausible_sizes / sizeof plausible_sizes[0])
#define PER_GPU (sizeof plausible_per_gpu / sizeof plausible_per_gpu[0])
#define PLAUSIBLE_DRAWS 4u /* of each configuration: the configurations make most of the range */
#define PLAUSIBLE_ITERATIONS 4u /* all steps of Mobius are alike */
#define MOST_QUESTIONS                                                                             \
    (1 + (1 + PER_GPU) * SIZES) /* of a cell; the first is the listed configuration */

typedef struct predictor {
    rp_arena *arena;
    rp_platform platform;
    rpsim_question *questions; /* [question_count] the questions of a cell are adjacent */
    uint32_t *cell_of;         /* [question_count] */
    uint32_t question_count;
    rpsim_prediction *out;
} predictor;

/* Groups that end in "-set" hold cells that set a constant; they are no predictions (sim/model.md
 * section 5). A column of traces/configs/paper.csv marks these cells. */
static const char *const groups[] = {"async",
                                     "async-set",
                                     "scaling-dense",
                                     "scaling-dense-set",
                                     "sync-dense",
                                     "sync-dense-set",
                                     "sync-moe",
                                     "scaling-gpt-oss-20b",
                                     "scaling-qwen3-235b-lora",
                                     "scaling-qwen3-235b-lora-set",
                                     "baselines",
                                     "baselines-set",
                                     "mobius"};

/* ---- cells ----------------------------------------------------------------------------------- */

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

/* Adds a question of the cell that is added next. */
static void add_question(predictor *p, const rpsim_question *question)
{
    p->cell_of[p->question_count] = p->out->count;
    p->questions[p->question_count++] = *question;
}

static uint32_t plausible_draws(const predictor *p)
{
    return p->out->draws < PLAUSIBLE_DRAWS ? p->out->draws : PLAUSIBLE_DRAWS;
}

static void add_plausible(predictor *p, const rpsim_question *listed)
{
    rpsim_question q = *listed;
    q.draws = plausible_draws(p);
    q.run.decided.iterations = PLAUSIBLE_ITERATIONS;
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t size = plausible_sizes[i];
        q.run.global_batch = listed->run.global_batch;
        q.run.decided.microbatches = listed->run.global_batch / size;
        add_question(p, &q);
        for (size_t k = 0; k < PER_GPU; k++) {
            q.run.decided.microbatches = plausible_per_gpu[k] * listed->run.gpus;
            q.run.global_batch = size * q.run.decided.microbatches;
            add_question(p, &q);
        }
    }
}

static rp_status add_cell(predictor *p, const char *group, const char *framework, const char *model,
                          uint32_t gpus, double measured)
{
    rpsim_question question = {
        .framework = framework,
        .model = model,
        .draws = p->out->draws,
        .run = {
            .gpus = gpus,
            .decided = {.seq_len = SEQ_LEN, .asynchronous = strcmp(framework, "roundpipe") == 0}}};
    RP_TRY(rp_schedule_require("framework", rp_published_schedule(framework), false,
                               &question.run.schedule, NULL));
    RP_TRY(rp_resolve_published(model, true, &question.run, NULL));
    rp_model loaded; /* refuses a bad name before minutes of simulation */
    RP_TRY(rp_model_load(model, p->arena, &loaded));
    uint32_t set_at = question.run.sets_gpus != 0 ? question.run.sets_gpus : p->platform.gpus;
    if (question.run.sets_constant && set_at == gpus) {
        RP_TRY(rp_arena_print(p->arena, &group, "%s-set", group));
    }
    add_question(p, &question);
    bool known = strcmp(framework, "mobius") != 0;
    if (!known) {
        add_plausible(p, &question);
    }
    p->out->cells[p->out->count++] = (rpsim_cell){.group = group,
                                                  .framework = framework,
                                                  .model = model,
                                                  .gpus = gpus,
                                                  .known = known,
                                                  .measured_tokens_per_s = measured};
    return RP_OK;
}

/* Finds the range of a cell. Configurations are not drawn: if the configuration is not known, the
 * range reaches from the p10 of the slowest plausible configuration that fits to the p90 of the
 * fastest. The listed configuration, whose question is the first, is among them. */
static rp_status find_range(const predictor *p, const rpsim_answer *answers, uint32_t question,
                            rpsim_cell *cell)
{
    bool found = false;
    uint32_t of_cell = p->cell_of[question];
    if (answers[question].fits) {
        RP_TRY(rpsim_noise_interval(answers[question].draws, p->out->draws, &cell->range));
    }
    for (uint32_t i = question + 1; i < p->question_count && p->cell_of[i] == of_cell; i++) {
        rpsim_interval one;
        if (answers[i].fits) {
            RP_TRY(rpsim_noise_interval(answers[i].draws, plausible_draws(p), &one));
            cell->range.p10 = found ? fmin(cell->range.p10, one.p10) : one.p10;
            cell->range.p90 = found ? fmax(cell->range.p90, one.p90) : one.p90;
            cell->range.p50 = sqrt(cell->range.p10 * cell->range.p90);
            found = true;
        }
    }
    return RP_OK;
}

static rp_status answer_cells(predictor *p)
{
    rpsim_answer *answers = NULL;
    RP_TRY(rp_arena_alloc(p->arena, p->question_count, sizeof *answers, &answers));
    RP_TRY(rpsim_answer_all(&p->platform, p->questions, p->question_count, answers));
    for (uint32_t i = 0; i < p->question_count; i++) {
        rpsim_cell *cell = &p->out->cells[p->cell_of[i]];
        if (i > 0 && p->cell_of[i - 1] == p->cell_of[i]) {
            continue;
        }
        cell->fits = answers[i].fits;
        double relative = answers[i].tokens_per_s / cell->measured_tokens_per_s;
        cell->predicted_tokens_per_s = answers[i].tokens_per_s;
        cell->error_pct = cell->known && cell->fits ? 100 * (relative - 1) : NAN;
        RP_TRY(find_range(p, answers, i, cell));
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
            continue; /* the cell is OOM or N/A */
        }
        bool dense = is_dense(model, p->arena);
        if (strcmp(framework, "roundpipe") != 0 || dense) { /* MoE: scaling group */
            RP_TRY(add_cell(p, group_of(framework, dense), framework, model, 8, measured));
        }
    }
    return RP_OK;
}

static rp_status add_scaling(predictor *p, const rp_csv *csv)
{
    for (uint32_t column = 1; column < csv->columns; column++) {
        const char *model = csv->header[column];
        /* Each MoE model has a group of its own: pooled, their errors would hide each other. */
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

rp_status rpsim_predict(const char *folder, uint32_t draws, rp_arena *arena,
                        rpsim_prediction *prediction_out)
{
    *prediction_out = (rpsim_prediction){.draws = draws};
    predictor p = {.arena = arena, .out = prediction_out};
    rp_csv throughput;
    rp_csv scaling;
    RP_TRY(rp_platform_load(PLATFORM, arena, &p.platform));
    RP_TRY(rpsim_read_published(folder, "throughput_4090.csv", arena, &throughput));
    RP_TRY(rpsim_read_published(folder, "scaling_4090.csv", arena, &scaling));
    size_t most = throughput.rows + (size_t)scaling.rows * scaling.columns;
    RP_TRY(rp_arena_alloc(arena, most, sizeof(rpsim_cell), &p.out->cells));
    size_t questions = most * MOST_QUESTIONS;
    RP_TRY(rp_arena_alloc(arena, questions, sizeof *p.questions, &p.questions));
    RP_TRY(rp_arena_alloc(arena, questions, sizeof *p.cell_of, &p.cell_of));
    RP_TRY(add_throughput(&p, &throughput));
    RP_TRY(add_scaling(&p, &scaling));
    return answer_cells(&p);
}

/* ---- the report ------------------------------------------------------------------------------ */

double rpsim_prediction_mape(const rpsim_prediction *prediction, const char *group,
                             uint32_t *cells_out)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < prediction->count; i++) {
        const rpsim_cell *cell = &prediction->cells[i];
        if (strcmp(cell->group, group) == 0 && isfinite(cell->error_pct)) {
            sum += fabs(cell->error_pct);
            count++;
        }
    }
    if (cells_out != NULL) {
        *cells_out = count;
    }
    return count == 0 ? NAN : sum / count;
}

static bool is_inside(const rpsim_cell *cell)
{
    return cell->measured_tokens_per_s >= cell->range.p10 &&
           cell->measured_tokens_per_s <= cell->range.p90;
}

/* @return true if the cell counts in the calibration. Cells that set a constant match by
 * construction, and the cells of "async" are in the scaling groups, too. */
static bool counts(const rpsim_cell *cell)
{
    size_t length = strlen(cell->group);
    bool sets = length > 4 && strcmp(cell->group + length - 4, "-set") == 0;
    return isfinite(cell->error_pct) && !sets && strcmp(cell->group, "async") != 0;
}

rp_status rpsim_prediction_calibrate(const rpsim_prediction *prediction, rp_arena *arena,
                                     rpsim_calibration *calibration_out)
{
    rpsim_calibration c = {0};
    rpsim_interval widths;
    double *dense = NULL;
    uint32_t dense_count = 0;
    RP_TRY(rp_arena_alloc(arena, prediction->count, sizeof *dense, &dense));
    for (uint32_t i = 0; i < prediction->count; i++) {
        const rpsim_cell *cell = &prediction->cells[i];
        if (!counts(cell)) {
            continue;
        }
        c.cells++;
        c.inside += is_inside(cell) ? 1 : 0;
        c.below += cell->measured_tokens_per_s < cell->range.p10 ? 1 : 0;
        if (is_dense(cell->model, arena)) {
            dense[dense_count++] = 100 * (cell->range.p90 - cell->range.p10) / cell->range.p50;
        }
    }
    if (dense_count > 0) {
        RP_TRY(rpsim_noise_interval(dense, dense_count, &widths));
        c.dense_width_pct = widths.p50;
    }
    *calibration_out = c;
    return RP_OK;
}

static void write_groups(const rpsim_prediction *prediction, FILE *stream)
{
    fputs("| group | cells | mean absolute error % | worst % | inside p10 to p90 |\n"
          "|---|---|---|---|---|\n",
          stream);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        uint32_t count = 0;
        uint32_t inside = 0;
        double worst = 0;
        double mape = rpsim_prediction_mape(prediction, groups[g], &count);
        for (uint32_t i = 0; i < prediction->count; i++) {
            const rpsim_cell *cell = &prediction->cells[i];
            if (strcmp(cell->group, groups[g]) == 0) {
                inside += (cell->fits || !cell->known) && is_inside(cell) ? 1 : 0;
                worst = fabs(cell->error_pct) > fabs(worst) ? cell->error_pct : worst;
            }
        }
        fprintf(stream, "| %s | %u | ", groups[g], count);
        if (count == 0) {
            fputs("- | - ", stream);
        } else {
            fprintf(stream, "%.2f | %+.2f ", mape, worst);
        }
        fprintf(stream, "| %u |\n", inside);
    }
}

static void write_cell(const rpsim_cell *c, FILE *stream)
{
    fprintf(stream, "| %s | %s | %s | %u | %.2f | ", c->group, c->framework, c->model, c->gpus,
            c->measured_tokens_per_s);
    if (c->fits) {
        fprintf(stream, "%.2f | ", c->predicted_tokens_per_s);
    } else {
        fputs("does not fit | ", stream);
    }
    if (isfinite(c->error_pct)) {
        fprintf(stream, "%+.2f | ", c->error_pct);
    } else {
        fputs("- | ", stream);
    }
    if (c->range.p50 > 0) {
        fprintf(stream, "%.2f | %.2f | %.2f | %s |\n", c->range.p10, c->range.p50, c->range.p90,
                is_inside(c) ? "inside" : "outside");
    } else {
        fputs("- | - | - | - |\n", stream);
    }
}

static void write_calibration(const rpsim_calibration *c, uint32_t draws, FILE *stream)
{
    fprintf(stream,
            "\nIntervals, p10 to p90 over %u draws of the inputs: %u of %u published cells that "
            "set nothing lie inside (%.0f %%; 80 %% would be right, valid are 65 to 95), %u below "
            "and %u above. Median width on dense models: %.1f %% of p50 (at most 12).\n",
            draws, c->inside, c->cells, 100.0 * c->inside / c->cells, c->below,
            c->cells - c->inside - c->below, c->dense_width_pct);
}

void rpsim_prediction_write(const rpsim_prediction *prediction,
                            const rpsim_calibration *calibration, FILE *stream)
{
    uint32_t full = 0;
    write_groups(prediction, stream);
    write_calibration(calibration, prediction->draws, stream);
    fputs("\n| group | system | model | GPUs | measured tokens/s | predicted | error % | p10 | p50 "
          "| p90 | measured is |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < prediction->count; i++) {
        write_cell(&prediction->cells[i], stream);
        full += prediction->cells[i].fits ? 0 : 1;
    }
    if (full > 0) {
        fprintf(stream,
                "\n%u of these cells were measured although they do not fit here; they "
                "count in no group.\n",
                full);
    }
}
