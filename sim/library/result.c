/* Results and timelines of runs. */
#include "common/base/units.h"
#include "sim/library/library_internal.h"
#include "sim/study/columns.h"

#include <math.h>
#include <string.h>

/* ---- results ----------------------------------------------------------------------------------
 * All values come from the columns of the JSON.
 */

typedef struct fields {
    rpsim_field items[RPSIM_MAX_FIELDS];
    uint32_t count;
} fields;

static const rpsim_field *find(const fields *f, const char *key)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (strcmp(f->items[i].key, key) == 0) {
            return &f->items[i];
        }
    }
    return NULL;
}

static bool is_null(const rpsim_field *field)
{
    return field == NULL || field->type == RPSIM_VALUE_NULL || field->type == RPSIM_VALUE_ABSENT;
}

static double number_of(const rpsim_field *field)
{
    return is_null(field) ? NAN : rpsim_field_number(field);
}

static const char *text_of(const rpsim_field *field)
{
    return !is_null(field) && field->type == RPSIM_VALUE_TEXT ? field->text : NULL;
}

static uint64_t whole_of(const rpsim_field *field)
{
    return is_null(field) ? 0 : field->uint;
}

static rp_result result_of(const fields *f)
{
    const rpsim_field *fits = find(f, "fits");
    const rpsim_field *peaks = find(f, "peak_gpu_bytes");
    return (rp_result){
        .schedule = text_of(find(f, "schedule")),
        .model = text_of(find(f, "model")),
        .platform = text_of(find(f, "platform")),
        .partition = text_of(find(f, "partition")),
        .tokens_per_s = number_of(find(f, "tokens_per_s")),
        .iteration_ms = number_of(find(f, "iteration_ms")),
        .makespan_ms = number_of(find(f, "makespan_ms")),
        .bubble_pct = number_of(find(f, "bubble_pct")),
        .lower_bound_ms = number_of(find(f, "lower_bound_ms")),
        .fits = is_null(fits)     ? RP_ANSWER_UNKNOWN
                : fits->uint != 0 ? RP_ANSWER_YES
                                  : RP_ANSWER_NO,
        .oom_reason = text_of(find(f, "oom_reason")),
        .gpus = (uint32_t)whole_of(find(f, "gpus")),
        .rank = (uint32_t)whole_of(find(f, "rank")),
        .peak_gpu_bytes = is_null(peaks) ? NULL : peaks->uints,
        .peak_host_bytes = whole_of(find(f, "peak_host_bytes")),
        .host_memory_bytes = whole_of(find(f, "host_memory_bytes")),
    };
}

static rp_status get_fields(const rp_simulation *s, uint32_t index, const char *function,
                            fields *fields_out)
{
    const rpsim_row *row = NULL;
    RP_TRY(rp_simulation_row(s, index, function, &row));
    fields_out->count = rpsim_row_fields(&s->study, row, fields_out->items);
    return RP_OK;
}

static rp_status give_result(const rp_simulation *s, uint32_t index, rp_result *result_out)
{
    fields f;
    RP_TRY(get_fields(s, index, "rp_simulation_result", &f));
    if (result_out == NULL || result_out->size == 0 || result_out->size > sizeof *result_out) {
        rp_log_error("rp_simulation_result: valid is RP_RESULT_INIT of a header that is not newer "
                     "than the library");
        return RP_USAGE;
    }
    rp_result result = result_of(&f);
    result.size = result_out->size;
    memcpy(result_out, &result, result.size);
    return RP_OK;
}

rp_code rp_simulation_result(const rp_simulation *simulation, uint32_t index, rp_result *result_out)
{
    rp_call call;
    rp_call_begin(&call);
    return rp_call_end(&call, give_result(simulation, index, result_out));
}

static rp_status get_field(const rp_simulation *s, uint32_t index, const char *function,
                           const char *key, const void *out, rpsim_field *field_out)
{
    fields f;
    const char *names[RPSIM_MAX_FIELDS];
    RP_TRY(get_fields(s, index, function, &f));
    if (key == NULL || out == NULL) {
        rp_log_error("%s: valid are arguments that are not NULL", function);
        return RP_USAGE;
    }
    const rpsim_field *field = find(&f, key);
    for (uint32_t i = 0; i < f.count; i++) {
        names[i] = f.items[i].key;
    }
    if (field == NULL) {
        return rp_refuse_key(function, key, names, f.count);
    }
    *field_out = *field;
    return RP_OK;
}

rp_code rp_simulation_number(const rp_simulation *simulation, uint32_t index, const char *key,
                             double *number_out)
{
    rp_call call;
    rpsim_field field;
    rp_call_begin(&call);
    rp_status status =
        get_field(simulation, index, "rp_simulation_number", key, number_out, &field);
    if (number_out != NULL) {
        *number_out = status == RP_OK ? number_of(&field) : NAN;
    }
    return rp_call_end(&call, status);
}

rp_code rp_simulation_text(const rp_simulation *simulation, uint32_t index, const char *key,
                           const char **text_out)
{
    rp_call call;
    rpsim_field field;
    rp_call_begin(&call);
    rp_status status = get_field(simulation, index, "rp_simulation_text", key, text_out, &field);
    if (text_out != NULL) {
        *text_out = status == RP_OK ? text_of(&field) : NULL;
    }
    return rp_call_end(&call, status);
}

/* ---- timelines ------------------------------------------------------------------------------- */

/* Finds the op that ends last among the op before in the queue and all ops that this op waits for.
 * In a tie it is the op before, because the queue is then busy without a gap. */
static uint32_t find_last(const rp_timeline *t, const rp_queue *queue, uint32_t op, int64_t hop_ps)
{
    const rp_program *p = t->program;
    uint32_t last = op > queue->op_begin ? op - 1 : RP_NO_OP;
    int64_t last_ps = last != RP_NO_OP ? t->end_ps[last] : INT64_MIN;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        int64_t ps =
            rp_timeline_result_ps(t, target) + (rp_wait_is_control(p->waits[w]) ? 0 : hop_ps);
        if (ps > last_ps) {
            last = target;
            last_ps = ps;
        }
    }
    return last;
}

static rp_timed_op timed_op(const rp_timeline *t, const rp_queue *queue, uint32_t index,
                            int64_t hop_ps)
{
    const rp_op *op = &t->program->ops[index];
    rp_queue_kind kind = (rp_queue_kind)queue->kind;
    return (rp_timed_op){
        .kind = rp_op_kind_text((rp_op_kind)op->kind),
        .meaning = rp_op_kind_meaning((rp_op_kind)op->kind),
        .queue = rp_queue_kind_text(kind),
        .gpu = rp_queue_kind_on_gpu(kind) ? queue->gpu : -1,
        .stage = op->stage,
        .microbatch = op->microbatch,
        .layer = op->part,
        .iteration = op->iteration,
        .waited_for = find_last(t, queue, index, hop_ps),
        .start_ms = rp_ps_to_ms(t->start_ps[index]),
        .end_ms = rp_ps_to_ms(t->end_ps[index]),
    };
}

static rp_status make_list(rp_simulation *s, const rpsim_row *row, rp_op_list *list)
{
    const rp_timeline *t = row->result.timeline;
    const rp_program *p = t->program;
    int64_t hop_ps = !row->run.stage ? 0 : row->run.costs->hop_ps;
    rp_timed_op *ops = NULL;
    RP_TRY(rp_arena_alloc(s->arena, p->op_count, sizeof *ops, &ops));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t op = p->queues[q].op_begin; op < p->queues[q].op_end; op++) {
            ops[op] = timed_op(t, &p->queues[q], op, hop_ps);
        }
    }
    *list = (rp_op_list){.ops = ops, .count = p->op_count};
    return RP_OK;
}

static rp_status give_ops(rp_simulation *s, uint32_t index, const rp_timed_op **ops_out,
                          uint32_t *count_out)
{
    const rpsim_row *row = NULL;
    RP_TRY(rp_simulation_row(s, index, "rp_simulation_ops", &row));
    if (ops_out == NULL || count_out == NULL || row->result.timeline == NULL) {
        rp_log_error("rp_simulation_ops: %s", row->result.timeline == NULL
                                                  ? "valid with settings that have keep_timeline"
                                                  : "valid are arguments that are not NULL");
        return RP_USAGE;
    }
    rp_op_list *list = &s->lists[index];
    if (list->ops == NULL) {
        RP_TRY(make_list(s, row, list));
    }
    *ops_out = list->ops;
    *count_out = list->count;
    return RP_OK;
}

rp_code rp_simulation_ops(rp_simulation *simulation, uint32_t index, const rp_timed_op **ops_out,
                          uint32_t *count_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (ops_out != NULL && count_out != NULL) {
        *ops_out = NULL;
        *count_out = 0;
    }
    return rp_call_end(&call, give_ops(simulation, index, ops_out, count_out));
}
