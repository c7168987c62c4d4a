/* PyTorch's rules for a schedule CSV, in the order of the file; the dry run is run.c. */
#include "common/base/log.h"
#include "common/torch/torch_csv_internal.h"

#define NOT_LOWERED "valid in lowered files"

typedef struct checker {
    rp_torch_csv *csv;
    rp_torch_tables tables;
    uint32_t rank;          /* rank of the row being checked */
    uint8_t *sharding;      /* [stage] SHARDED_* */
    uint32_t *weight_count; /* [stage] number of B and W so far */
    /* Stage whose REDUCE_GRAD has not been waited for yet, or RP_TORCH_NONE. */
    uint32_t reducing;
    bool reduce_waits; /* the file has WAIT_REDUCE_GRAD */
} checker;

enum {
    STAGE_SHARDED = 1,   /* the stage has an UNSHARD or RESHARD somewhere */
    STAGE_UNSHARDED = 2, /* the stage is unsharded now */
    STAGE_REDUCED = 4,
};

/* @param prefix names the part of the file that alone breaks the rule; may be empty */
static void log_refusal(const rp_torch_csv *csv, uint32_t rank, const rp_torch_action *action,
                        const char *prefix, const char *format, va_list arguments)
{
    char cause[400];
    char name[RP_TORCH_NAME_SIZE];
    vsnprintf(cause, sizeof cause, format, arguments);
    rp_log_error_at(csv->name, rank + 1, "row %u, column %u: %s %s%s%s", rank + 1,
                    action->column + 1, rp_torch_action_name(action, name), cause, prefix,
                    csv->legacy ? " (legacy dialect: B is read as I, BW as B)" : "");
}

rp_status rp_torch_refuse(const rp_torch_csv *csv, uint32_t rank, const rp_torch_action *action,
                          const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_refusal(csv, rank, action, "", format, arguments);
    va_end(arguments);
    return RP_INPUT;
}

/* Refuses the action: the cells of the current row up to it break a rule. */
RP_PRINTF(3, 4)
static rp_status break_rule(const checker *c, const rp_torch_action *action, const char *format,
                            ...)
{
    char prefix[80];
    va_list arguments;
    snprintf(prefix, sizeof prefix,
             "; the smallest prefix that fails is columns 1 to %u of the row", action->column + 1);
    va_start(arguments, format);
    log_refusal(c->csv, c->rank, action, prefix, format, arguments);
    va_end(arguments);
    return RP_INPUT;
}

uint32_t rp_torch_table_of(uint8_t type)
{
    return type == RP_TORCH_BACKWARD_INPUT ? RP_TORCH_BACKWARD : type;
}

uint32_t rp_torch_at(const rp_torch_csv *csv, const rp_torch_tables *tables, uint8_t type,
                     uint32_t stage, uint32_t microbatch)
{
    const uint32_t *table = tables->at[rp_torch_table_of(type)];
    return table == NULL ? RP_TORCH_NONE
                         : table[(size_t)stage * csv->microbatch_count + microbatch];
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Type of the action that a stage has M times. */
static uint8_t work_of(const rp_torch_csv *csv, uint32_t stage)
{
    return csv->separate && stage >= csv->forward_count ? RP_TORCH_BACKWARD : RP_TORCH_FORWARD;
}

static const char *work_name(const rp_torch_csv *csv, uint32_t stage)
{
    return work_of(csv, stage) == RP_TORCH_FORWARD ? "forward" : "backward";
}

/* Checks that every stage has M forwards. This happens before tables are made, so that a wrong
 * number in a cell costs no memory: afterwards stages x microbatches is at most the number of
 * actions. */
static rp_status check_counts(const rp_torch_csv *csv, rp_arena *arena)
{
    uint32_t *counts = NULL;
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, sizeof *counts, &counts));
    uint32_t count = csv->row_begin[csv->rank_count];
    const rp_torch_action *most = &csv->actions[0];
    const rp_torch_action *last = &csv->actions[0];
    for (uint32_t i = 0; i < count; i++) {
        const rp_torch_action *a = &csv->actions[i];
        counts[a->stage] += a->type == work_of(csv, a->stage) ? 1 : 0;
        most = a->microbatch > most->microbatch ? a : most;
        last = a->stage > last->stage ? a : last;
    }
    for (uint32_t s = 0; s < csv->stage_count; s++) {
        if (counts[s] >= csv->microbatch_count) {
            continue;
        }
        const rp_torch_action *why = counts[s] == 0 ? last : most;
        uint32_t rank = 0;
        while (csv->actions + csv->row_begin[rank + 1] <= why) {
            rank++;
        }
        return rp_torch_refuse(
            csv, rank, why,
            "is of %s %u, and stage %u has %u %ss; valid are files whose "
            "stages 0 to %u have one %s for each of microbatches 0 to %u",
            counts[s] == 0 ? "stage" : "microbatch", counts[s] == 0 ? why->stage : why->microbatch,
            s, counts[s], work_name(csv, s), csv->stage_count - 1,
            csv->separate ? "computation" : "forward", csv->microbatch_count - 1);
    }
    return RP_OK;
}

static rp_status make_tables(const rp_torch_csv *csv, rp_arena *arena, rp_torch_tables *tables)
{
    bool has[RP_TORCH_TYPE_COUNT] = {false};
    uint32_t count = csv->row_begin[csv->rank_count];
    for (uint32_t i = 0; i < count; i++) {
        has[rp_torch_table_of(csv->actions[i].type)] = true;
    }
    size_t entries = (size_t)csv->stage_count * csv->microbatch_count;
    for (uint8_t t = 0; t < RP_TORCH_TYPE_COUNT; t++) {
        if (!has[t] || !rp_torch_type_has_microbatch((rp_torch_type)t)) {
            continue;
        }
        RP_TRY(rp_arena_alloc_raw(arena, entries, sizeof(uint32_t), &tables->at[t]));
        for (size_t i = 0; i < entries; i++) {
            tables->at[t][i] = RP_TORCH_NONE;
        }
    }
    return RP_OK;
}

/* ---- rules, cell by cell --------------------------------------------------------------------- */

static uint32_t find(const checker *c, rp_torch_type type, const rp_torch_action *a)
{
    return rp_torch_at(c->csv, &c->tables, (uint8_t)type, a->stage, a->microbatch);
}

/* Checks an action of a file with separate backward stages; the dry run checks the order across
 * ranks. */
static rp_status check_separate(checker *c, const rp_torch_action *a)
{
    const rp_torch_csv *csv = c->csv;
    if (a->type == work_of(csv, a->stage) && !a->overlaps_next &&
        (a == csv->actions || !a[-1].overlaps_next)) {
        return RP_OK;
    }
    return rp_torch_refuse(csv, c->rank, a,
                           "is not what its stage has; valid are F of stages below %u and B of "
                           "stages from %u on, no pairs",
                           csv->forward_count, csv->forward_count);
}

static rp_status check_rank(checker *c, const rp_torch_action *a)
{
    uint32_t *rank = &c->csv->stage_ranks[a->stage];
    if (*rank == RP_TORCH_NONE) {
        *rank = c->rank;
    }
    if (*rank != c->rank) {
        return rp_torch_refuse(c->csv, c->rank, a,
                               "is of a stage that row %u has, too; valid are schedules with each "
                               "stage on one rank",
                               *rank + 1);
    }
    return RP_OK;
}

static rp_status check_compute(checker *c, const rp_torch_action *a)
{
    uint8_t sharding = c->sharding[a->stage];
    if ((sharding & STAGE_SHARDED) != 0 && (sharding & STAGE_UNSHARDED) == 0) {
        return break_rule(c, a,
                          "runs while its stage is sharded; valid is between %uUNSHARD and "
                          "%uRESHARD",
                          a->stage, a->stage);
    }
    if (a->type == RP_TORCH_BACKWARD_WEIGHT) {
        uint32_t input = find(c, RP_TORCH_BACKWARD_INPUT, a);
        if (input == RP_TORCH_NONE || c->csv->actions[input].type != RP_TORCH_BACKWARD_INPUT) {
            return break_rule(c, a, "runs before %uI%u; valid is behind it", a->stage,
                              a->microbatch);
        }
    } else if (a->type != RP_TORCH_FORWARD && find(c, RP_TORCH_FORWARD, a) == RP_TORCH_NONE) {
        return break_rule(c, a, "runs before %uF%u; valid is behind it", a->stage, a->microbatch);
    }
    c->weight_count[a->stage] +=
        a->type == RP_TORCH_BACKWARD || a->type == RP_TORCH_BACKWARD_WEIGHT ? 1 : 0;
    return RP_OK;
}

static rp_status check_sharding(checker *c, const rp_torch_action *a)
{
    uint8_t *sharding = &c->sharding[a->stage];
    bool unshard = a->type == RP_TORCH_UNSHARD;
    if (((*sharding & STAGE_UNSHARDED) != 0) == unshard) {
        return break_rule(c, a,
                          unshard ? "is of a stage that is unsharded; valid is once before "
                                    "each RESHARD"
                                  : "is of a stage that is sharded; valid is once behind each "
                                    "UNSHARD");
    }
    *sharding ^= STAGE_UNSHARDED;
    return RP_OK;
}

static rp_status check_reduce(checker *c, const rp_torch_action *a)
{
    if (a->type == RP_TORCH_WAIT_REDUCE_GRAD) {
        if (c->reducing != a->stage) {
            return break_rule(c, a, "waits for nothing; valid is once behind %uREDUCE_GRAD",
                              a->stage);
        }
        c->reducing = RP_TORCH_NONE;
        return RP_OK;
    }
    if (c->weight_count[a->stage] < c->csv->microbatch_count) {
        return break_rule(c, a,
                          "comes when %u of %u gradients of its weights are there; valid is "
                          "behind the last B or W of the stage",
                          c->weight_count[a->stage], c->csv->microbatch_count);
    }
    if ((c->sharding[a->stage] & STAGE_REDUCED) != 0) {
        return break_rule(c, a, "is there a second time; valid is once");
    }
    if (c->reduce_waits && c->reducing != RP_TORCH_NONE) {
        return break_rule(c, a,
                          "begins while stage %u is reducing; valid is behind "
                          "%uWAIT_REDUCE_GRAD",
                          c->reducing, c->reducing);
    }
    c->sharding[a->stage] |= STAGE_REDUCED;
    c->reducing = c->reduce_waits ? a->stage : RP_TORCH_NONE;
    return RP_OK;
}

static rp_status check_transfer(checker *c, const rp_torch_action *a)
{
    bool forward = a->type == RP_TORCH_SEND_F || a->type == RP_TORCH_RECV_F;
    bool send = a->type == RP_TORCH_SEND_F || a->type == RP_TORCH_SEND_B;
    if (a->stage == (forward == send ? c->csv->stage_count - 1 : 0)) {
        return break_rule(c, a, "is of the %s stage, which has no peer there; %s",
                          forward == send ? "last" : "first",
                          forward == send ? "valid are SEND_F and RECV_B before it"
                                          : "valid are RECV_F and SEND_B behind it");
    }
    rp_torch_type work = forward ? RP_TORCH_FORWARD : RP_TORCH_BACKWARD;
    bool done = find(c, work, a) != RP_TORCH_NONE;
    if (send != done) {
        return break_rule(c, a, "stands %s; valid is %s it",
                          send ? "before what it sends is computed"
                               : "behind the computation that uses it",
                          send ? "behind" : "before");
    }
    return RP_OK;
}

static rp_status check_wait(checker *c, const rp_torch_action *a)
{
    rp_torch_type send = a->type == RP_TORCH_WAIT_SEND_F ? RP_TORCH_SEND_F : RP_TORCH_SEND_B;
    if (find(c, send, a) == RP_TORCH_NONE) {
        return break_rule(c, a, "waits for nothing; valid is behind %u%s%u", a->stage,
                          rp_torch_type_text(send), a->microbatch);
    }
    return RP_OK;
}

static rp_status check_action(checker *c, uint32_t index)
{
    const rp_torch_action *a = &c->csv->actions[index];
    RP_TRY(c->csv->separate ? check_separate(c, a) : check_rank(c, a));
    if (rp_torch_type_has_microbatch((rp_torch_type)a->type) &&
        find(c, (rp_torch_type)a->type, a) != RP_TORCH_NONE) {
        return break_rule(c, a,
                          "comes a second time; valid is each action once, and one full "
                          "backward B or one I and one W");
    }
    if (c->csv->separate) {
        /* no rules for a single row */
    } else if (rp_torch_type_computes((rp_torch_type)a->type)) {
        RP_TRY(check_compute(c, a));
    } else if (a->type == RP_TORCH_UNSHARD || a->type == RP_TORCH_RESHARD) {
        RP_TRY(check_sharding(c, a));
    } else if (a->type == RP_TORCH_REDUCE_GRAD || a->type == RP_TORCH_WAIT_REDUCE_GRAD) {
        RP_TRY(check_reduce(c, a));
    } else if (a->type == RP_TORCH_WAIT_SEND_F || a->type == RP_TORCH_WAIT_SEND_B) {
        RP_TRY(check_wait(c, a));
    } else {
        RP_TRY(check_transfer(c, a));
    }
    uint32_t *table = c->tables.at[rp_torch_table_of(a->type)];
    if (table != NULL) {
        table[(size_t)a->stage * c->csv->microbatch_count + a->microbatch] = index;
    }
    return RP_OK;
}

/* ---- actions that must be there in the end --------------------------------------------------- */

/* True if stages s and s + 1 exchange tensors because they are on different ranks. */
static bool crosses(const rp_torch_csv *csv, uint32_t stage)
{
    return csv->stage_ranks[stage] != csv->stage_ranks[stage + 1];
}

/* Checks that the result of an action that crosses ranks is transferred in both rows, and that no
 * other result is. */
static rp_status check_pair(const checker *c, uint32_t index, uint32_t from, uint32_t to)
{
    const rp_torch_csv *csv = c->csv;
    const rp_torch_action *a = &csv->actions[index];
    bool forward = to > from;
    bool wanted = csv->lowered && crosses(csv, forward ? from : to);
    const struct {
        rp_torch_type type;
        uint32_t stage;
    } ends[] = {{forward ? RP_TORCH_SEND_F : RP_TORCH_SEND_B, from},
                {forward ? RP_TORCH_RECV_F : RP_TORCH_RECV_B, to}};
    for (size_t e = 0; e < 2; e++) {
        uint32_t at =
            rp_torch_at(csv, &c->tables, (uint8_t)ends[e].type, ends[e].stage, a->microbatch);
        if (wanted && at == RP_TORCH_NONE) {
            return rp_torch_refuse(csv, csv->stage_ranks[a->stage], a,
                                   "has a result that stage %u on rank %u needs, and there is no "
                                   "%u%s%u; valid is one in row %u",
                                   to, csv->stage_ranks[to], ends[e].stage,
                                   rp_torch_type_text(ends[e].type), a->microbatch,
                                   csv->stage_ranks[ends[e].stage] + 1);
        }
        if (!wanted && at != RP_TORCH_NONE) {
            return rp_torch_refuse(csv, csv->stage_ranks[ends[e].stage], &csv->actions[at],
                                   "moves nothing: stages %u and %u are on the same rank; valid "
                                   "are transfers between ranks",
                                   from, to);
        }
    }
    return RP_OK;
}

static rp_status check_backward(const checker *c, const rp_torch_action *forward)
{
    const rp_torch_csv *csv = c->csv;
    uint32_t rank = csv->stage_ranks[forward->stage];
    uint32_t backward = find(c, RP_TORCH_BACKWARD, forward);
    if (backward == RP_TORCH_NONE) {
        return rp_torch_refuse(csv, rank, forward,
                               "has no backward; valid is a B, or an I and a W, behind it");
    }
    const rp_torch_action *a = &csv->actions[backward];
    if (a->type == RP_TORCH_BACKWARD_INPUT &&
        find(c, RP_TORCH_BACKWARD_WEIGHT, forward) == RP_TORCH_NONE) {
        return rp_torch_refuse(csv, rank, a, "has no %uW%u; valid is one W behind each I", a->stage,
                               a->microbatch);
    }
    return forward->stage == 0 ? RP_OK : check_pair(c, backward, a->stage, a->stage - 1);
}

static rp_status check_complete(const checker *c)
{
    const rp_torch_csv *csv = c->csv;
    uint32_t count = csv->row_begin[csv->rank_count];
    for (uint32_t i = 0; i < count; i++) {
        const rp_torch_action *a = &csv->actions[i];
        if (a->type == RP_TORCH_FORWARD) {
            RP_TRY(check_backward(c, a));
            if (a->stage + 1 < csv->stage_count) {
                RP_TRY(check_pair(c, i, a->stage, a->stage + 1));
            }
        }
    }
    return RP_OK;
}

static rp_status check_rows(checker *c)
{
    rp_torch_csv *csv = c->csv;
    uint32_t count = csv->row_begin[csv->rank_count];
    for (uint32_t i = 0; i < count; i++) {
        const rp_torch_action *a = &csv->actions[i];
        bool shards = a->type == RP_TORCH_UNSHARD || a->type == RP_TORCH_RESHARD;
        c->sharding[a->stage] |= shards ? STAGE_SHARDED : 0;
        c->reduce_waits = c->reduce_waits || a->type == RP_TORCH_WAIT_REDUCE_GRAD;
    }
    for (c->rank = 0; c->rank < csv->rank_count; c->rank++) {
        c->reducing = RP_TORCH_NONE;
        for (uint32_t i = csv->row_begin[c->rank]; i < csv->row_begin[c->rank + 1]; i++) {
            RP_TRY(check_action(c, i));
        }
        if (c->reducing != RP_TORCH_NONE) {
            const rp_torch_action *last = &csv->actions[csv->row_begin[c->rank + 1] - 1];
            return rp_torch_refuse(csv, c->rank, last,
                                   "is the row's last action and stage %u is still reducing; valid "
                                   "is %uWAIT_REDUCE_GRAD at the end",
                                   c->reducing, c->reducing);
        }
    }
    return RP_OK;
}

rp_status rp_torch_csv_check(rp_torch_csv *csv, rp_arena *arena)
{
    checker c = {.csv = csv};
    RP_TRY(check_counts(csv, arena));
    RP_TRY(make_tables(csv, arena, &c.tables));
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, 1, &c.sharding));
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, sizeof *c.weight_count, &c.weight_count));
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, sizeof *csv->stage_ranks, &csv->stage_ranks));
    for (uint32_t s = 0; s < csv->stage_count; s++) {
        csv->stage_ranks[s] = RP_TORCH_NONE;
    }
    RP_TRY(check_rows(&c));
    if (csv->separate) {
        csv->stage_ranks = NULL; /* a stage may have several ranks */
    } else {
        RP_TRY(check_complete(&c));
    }
    return rp_torch_dry_run(csv, &c.tables, arena);
}
