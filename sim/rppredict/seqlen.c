#include "sim/rppredict/seqlen.h"

#include "common/inputs/load/platforms.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"
#include "sim/run/seqlen.h"

#include <math.h>
#include <string.h>

#define PLATFORM "rtx4090x8"

static double error_pct(uint32_t predicted, uint32_t measured)
{
    if (predicted == 0 || measured == 0) {
        return predicted == measured ? 0 : predicted == 0 ? -100 : 100;
    }
    return 100 * ((double)predicted / measured - 1);
}

static rp_status ask(const rpsim_seqlen_cell *cell, const rp_platform *platform,
                     rpsim_question *question_out)
{
    *question_out = (rpsim_question){.framework = cell->framework,
                                     .model = cell->model,
                                     .longest = true,
                                     .run = {.gpus = platform->gpus}};
    RP_TRY(rp_schedule_require("framework", rp_published_schedule(cell->framework), false,
                               &question_out->run.schedule, NULL));
    return rp_resolve_longest(cell->model, &question_out->run, NULL);
}

static rp_status answer_cells(const rpsim_question *questions, const rp_platform *platform,
                              rp_arena *arena, rpsim_seqlens *out)
{
    rpsim_answer *answers = NULL;
    RP_TRY(rp_arena_alloc(arena, out->count, sizeof *answers, &answers));
    RP_TRY(rpsim_answer_all(platform, questions, out->count, answers));
    for (uint32_t i = 0; i < out->count; i++) {
        rpsim_seqlen_cell *cell = &out->cells[i];
        cell->predicted_tokens = answers[i].seq_len;
        cell->error_pct = error_pct(cell->predicted_tokens, cell->measured_tokens);
    }
    return RP_OK;
}

static rp_status predict_cells(const rp_csv *csv, rp_arena *arena, rpsim_seqlens *out)
{
    uint32_t framework = 0;
    uint32_t model = 0;
    uint32_t length = 0;
    rp_platform platform;
    rpsim_question *questions = NULL;
    RP_TRY(rp_csv_column(csv, "framework", &framework));
    RP_TRY(rp_csv_column(csv, "model", &model));
    RP_TRY(rp_csv_column(csv, "max_seqlen_k", &length));
    RP_TRY(rp_platform_load(PLATFORM, arena, &platform));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *out->cells, &out->cells));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *questions, &questions));
    for (uint32_t row = 0; row < csv->rows; row++) {
        rpsim_seqlen_cell cell = {.framework = rp_csv_cell(csv, row, framework),
                                  .model = rp_csv_cell(csv, row, model)};
        uint64_t steps = 0;
        const char *text = rp_csv_cell(csv, row, length);
        if (strcmp(text, "N/A") == 0) {
            continue; /* the cell was not run */
        }
        if (strcmp(text, "OOM") != 0) {
            RP_TRY(rp_csv_u64(csv, row, length, 1, RPSIM_SEQLEN_MAX_STEPS, &steps));
        }
        cell.group = cell.framework;
        cell.measured_tokens = (uint32_t)steps * RPSIM_SEQLEN_STEP;
        RP_TRY(ask(&cell, &platform, &questions[out->count]));
        if (questions[out->count].run.sets_constant) {
            RP_TRY(rp_arena_print(arena, &cell.group, "%s-set", cell.framework));
        }
        out->cells[out->count++] = cell;
    }
    return answer_cells(questions, &platform, arena, out);
}

rp_status rpsim_predict_seqlens(const char *folder, rp_arena *arena, rpsim_seqlens *seqlens_out)
{
    *seqlens_out = (rpsim_seqlens){0};
    rp_csv csv;
    RP_TRY(rpsim_read_published(folder, "max_seqlen_4090.csv", arena, &csv));
    return predict_cells(&csv, arena, seqlens_out);
}

static bool is_in(const rpsim_seqlen_cell *cell, const char *group)
{
    bool predicted = strcmp(cell->group, cell->framework) == 0;
    bool length = strcmp(group, "lengths") == 0 && cell->measured_tokens != 0;
    bool pooled = length || strcmp(group, "all") == 0;
    return (pooled && predicted) || strcmp(group, cell->group) == 0;
}

double rpsim_seqlens_mape(const rpsim_seqlens *seqlens, const char *group, uint32_t *cells_out)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < seqlens->count; i++) {
        if (is_in(&seqlens->cells[i], group)) {
            sum += fabs(seqlens->cells[i].error_pct);
            count++;
        }
    }
    if (cells_out != NULL) {
        *cells_out = count;
    }
    return count == 0 ? NAN : sum / count;
}

static void write_group(const rpsim_seqlens *seqlens, const char *group, FILE *stream)
{
    uint32_t cells = 0;
    uint32_t none = 0;
    double mape = rpsim_seqlens_mape(seqlens, group, &cells);
    for (uint32_t i = 0; i < seqlens->count; i++) {
        const rpsim_seqlen_cell *cell = &seqlens->cells[i];
        none += is_in(cell, group) && cell->measured_tokens == 0 ? 1 : 0;
    }
    fprintf(stream, "| %s | %u | %u | %.2f |\n", group, cells, none, mape);
}

/* Writes the groups; the cells of a group are adjacent. */
static void write_groups(const rpsim_seqlens *seqlens, FILE *stream)
{
    fputs("| group | cells | of these measured out of memory | mean absolute error % |\n"
          "|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < seqlens->count; i++) {
        const char *group = seqlens->cells[i].group;
        if (i == 0 || strcmp(seqlens->cells[i - 1].group, group) != 0) {
            write_group(seqlens, group, stream);
        }
    }
    write_group(seqlens, "lengths", stream);
    write_group(seqlens, "all", stream);
}

void rpsim_seqlens_write(const rpsim_seqlens *seqlens, FILE *stream)
{
    fputs("\nLongest sequences, in tokens; 0: out of memory.\n\n", stream);
    write_groups(seqlens, stream);
    fputs("\n| system | model | measured | predicted | error % |\n|---|---|---|---|---|\n", stream);
    for (uint32_t i = 0; i < seqlens->count; i++) {
        const rpsim_seqlen_cell *c = &seqlens->cells[i];
        fprintf(stream, "| %s | %s | %u | %u | %+.2f |\n", c->framework, c->model,
                c->measured_tokens, c->predicted_tokens, c->error_pct);
    }
}
