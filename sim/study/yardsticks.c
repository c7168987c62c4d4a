/* Yardsticks of a row's speed: errors of measured runs, and the speed limit. */
#include "sim/study/study_internal.h"

#include "common/roofline/roofline.h"
#include "sim/study/columns.h"

#include <inttypes.h>
#include <string.h>

/* ---- errors of measured runs ----------------------------------------------------------------- */

rp_status rpsim_study_read_ledger(rpsim_study *study)
{
    const rpsim_setup *o = study->setup;
    rp_ledger *ledger = NULL;
    if (o->stack == NULL || o->unreported) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *ledger, &ledger));
    RP_TRY(rp_ledger_read(study->arena, ledger));
    study->ledger = ledger;
    return RP_OK;
}

rp_status rpsim_row_set_error(const rpsim_study *study, rpsim_row *row)
{
    const rp_stack *stack = row->run.costs->stack;
    const rp_model *model = row->run.model;
    const rp_traits *traits =
        row->run.schedule != NULL ? &row->run.schedule->traits : &row->given->traits;
    if (study->ledger == NULL || stack == NULL) {
        return RP_OK;
    }
    bool offloaded = traits->placement == RP_PLACEMENT_OFFLOAD || traits->sharding.host_optimizer;
    bool adapters = model != NULL && model->lora_rank != 0;
    RP_TRY(rp_ledger_class(row->platform->architecture, offloaded, adapters, study->arena,
                           &row->of_class));
    row->error = rp_ledger_error_of(study->ledger, stack->name, row->of_class);
    return RP_OK;
}

void rpsim_measured_add(rpsim_measured *measured, const rpsim_row *row)
{
    const uint32_t room = sizeof measured->of_class / sizeof measured->of_class[0];
    const rp_stack *stack = row->run.costs->stack;
    if (stack == NULL) {
        return;
    }
    measured->stack = stack->name;
    for (uint32_t i = 0; i < measured->classes && row->of_class != NULL; i++) {
        if (strcmp(measured->of_class[i], row->of_class) == 0) {
            return;
        }
    }
    if (row->of_class != NULL && measured->classes < room) {
        measured->of_class[measured->classes++] = row->of_class;
        measured->error = rp_ledger_error_both(measured->error, row->error);
    }
}

const char *rpsim_measured_text(const rpsim_measured *measured,
                                char text[static RPSIM_MEASURED_TEXT])
{
    const rp_ledger_error *e = &measured->error;
    text[0] = '\0';
    if (measured->stack != NULL && e->rows == 0) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "no run of this stack on such a card that has set no constant is known");
    } else if (e->rows == 1) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "1 measured run of %s on such a card: %.0f %% off (traces/ledger.csv)",
                       measured->stack, e->mean_pct);
    } else if (measured->stack != NULL) {
        (void)snprintf(text, RPSIM_MEASURED_TEXT,
                       "%" PRIu32 " measured runs of %s on such cards: %.0f %% off on the mean, "
                       "%.0f %% at worst (traces/ledger.csv)",
                       e->rows, measured->stack, e->mean_pct, e->worst_pct);
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
