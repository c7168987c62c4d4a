/* Yardsticks of a row's speed: errors of measured runs, and the speed limit. */
#include "sim/study/study_internal.h"

#include "common/roofline/roofline.h"
#include "sim/study/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- errors of measured runs ----------------------------------------------------------------- */

static rp_status read_ledger(rpsim_study *study)
{
    rp_ledger *ledger = NULL;
    RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *ledger, &ledger));
    RP_TRY(rp_ledger_read(study->arena, ledger));
    study->ledger = ledger;
    return RP_OK;
}

rp_status rpsim_row_set_error(rpsim_study *study, rpsim_row *row)
{
    const rp_stack *stack = row->run.costs->stack;
    const rp_model *model = row->run.model;
    const rp_traits *traits =
        row->run.schedule != NULL ? &row->run.schedule->traits : &row->given->traits;
    if (stack == NULL || study->setup->unreported) {
        return RP_OK;
    }
    RP_TRY(study->ledger == NULL ? read_ledger(study) : RP_OK);
    bool offloaded = traits->placement == RP_PLACEMENT_OFFLOAD || traits->sharding.host_optimizer;
    bool adapters = model != NULL && model->lora_rank != 0;
    RP_TRY(rp_ledger_class(row->platform->architecture, offloaded, adapters, study->arena,
                           &row->of_class));
    row->error = rp_ledger_error_of(study->ledger, stack->name, row->of_class);
    return RP_OK;
}

/* Adds the stack's name if it is new and has a place. */
static void add_stack(rpsim_measured *measured, const char *name)
{
    for (uint32_t i = 0; i < measured->stack_count; i++) {
        if (strcmp(measured->stacks[i], name) == 0) {
            return;
        }
    }
    if (measured->stack_count < RPSIM_MEASURED_STACKS) {
        measured->stacks[measured->stack_count++] = name;
    }
}

void rpsim_measured_add(rpsim_measured *measured, const rpsim_row *row)
{
    const uint32_t room = sizeof measured->of_class / sizeof measured->of_class[0];
    const rp_stack *stack = row->run.costs->stack;
    if (stack == NULL) {
        measured->others = true;
        return;
    }
    add_stack(measured, stack->name);
    for (uint32_t i = 0; i < measured->classes && row->of_class != NULL; i++) {
        if (strcmp(measured->of_class[i].name, row->of_class) == 0 &&
            strcmp(measured->of_class[i].stack, stack->name) == 0) {
            return;
        }
    }
    if (row->of_class != NULL && measured->classes < room) {
        measured->of_class[measured->classes].stack = stack->name;
        measured->of_class[measured->classes++].name = row->of_class;
        measured->error = rp_ledger_error_both(measured->error, row->error);
    }
}

/* Writes the stacks' names. */
static const char *name_stacks(const rpsim_measured *measured,
                               char names[static RPSIM_MEASURED_TEXT])
{
    size_t length = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < measured->stack_count && length < RPSIM_MEASURED_TEXT; i++) {
        length += (size_t)snprintf(names + length, RPSIM_MEASURED_TEXT - length, "%s%.24s",
                                   i == 0                          ? ""
                                   : i + 1 < measured->stack_count ? ", "
                                                                   : " and ",
                                   measured->stacks[i]);
    }
    return names;
}

const char *rpsim_software_text(const rpsim_measured *measured,
                                char text[static RPSIM_MEASURED_TEXT])
{
    char names[RPSIM_MEASURED_TEXT];
    text[0] = '\0';
    if (measured->stack_count + (measured->others ? 1 : 0) > 1) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "rows differ in software, too (column stack: %.110s%s); --stack NAME gives "
                       "all the same",
                       name_stacks(measured, names), measured->others ? ", or none" : "");
    }
    return text;
}

const char *rpsim_measured_text(const rpsim_measured *measured,
                                char text[static RPSIM_MEASURED_TEXT])
{
    const rp_ledger_error *e = &measured->error;
    char names[RPSIM_MEASURED_TEXT];
    (void)name_stacks(measured, names);
    text[0] = '\0';
    if (measured->stack_count != 0 && e->rows == 0) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "no run of this stack on such a card that has set no constant is known");
    } else if (e->rows == 1) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "1 measured run of %.110s on such a card: %.0f %% off (traces/ledger.csv)",
                       names, e->mean_pct);
    } else if (measured->stack_count != 0) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "%" PRIu32 " measured runs of %.110s on such cards: %.0f %% off on the "
                       "mean, %.0f %% at worst (traces/ledger.csv)",
                       e->rows, names, e->mean_pct, e->worst_pct);
    }
    return text;
}

/* ---- the speed limit ------------------------------------------------------------------------- */

/* @return ideal_s of a row before this one with the same table and length; 0: there is none */
static double known_ideal_s(const rpsim_study *study, const rpsim_row *row)
{
    for (const rpsim_row *other = study->rows; other < row; other++) {
        if (other->ideal_s > 0 && rpsim_row_same_group(other, row)) {
            return other->ideal_s;
        }
    }
    return 0;
}

rp_status rpsim_row_set_ideal(const rpsim_study *study, rpsim_row *row, rp_reason *reason)
{
    const rp_resolved *run = &row->run;
    const rp_roof roof = {row->platform, run->costs->arithmetic, NULL};
    rp_arena *arena = NULL;
    if (study->ledger == NULL || run->costs->stack == NULL || run->model == NULL || run->stage) {
        return RP_OK;
    }
    row->ideal_s = known_ideal_s(study, row);
    if (row->ideal_s > 0) {
        return RP_OK;
    }
    double factor = row->platform->layer_time_factor;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_ideal_s(run->model, &roof, run->costs->microbatch_size,
                                  run->decided.seq_len, arena, &row->ideal_s, reason);
    row->ideal_s *= factor > 0 ? factor : 1;
    rp_arena_destroy(arena);
    return status;
}

double rpsim_row_tokens_per_s(const rpsim_row *row)
{
    double period_ps = row->result.period_ps;
    uint32_t slices = row->run.sequence_slices != 0 ? row->run.sequence_slices : 1;
    double tokens = (double)rpsim_row_global_batch(row) * row->run.decided.seq_len / slices *
                    rpsim_row_real_share(row);
    return period_ps > 0 ? tokens / (period_ps * 1e-12) : NAN;
}

double rpsim_row_tflops(const rpsim_row *row)
{
    double period_s = 1e-12 * row->result.period_ps;
    return !row->run.stage && period_s > 0 ? 1e-12 * row->result.gpu_flop / period_s : NAN;
}

double rpsim_row_peak_share(const rpsim_row *row)
{
    double peak = 1e-12 * row->result.peak_flops_per_s;
    return peak > 0 ? rpsim_row_tflops(row) / peak : NAN;
}

double rpsim_row_speed_limit(const rpsim_row *row)
{
    double tokens = (double)row->run.costs->microbatch_size * row->run.decided.seq_len *
                    rpsim_row_real_share(row);
    return row->ideal_s > 0 ? rpsim_row_gpus(row) * tokens / row->ideal_s : NAN;
}
