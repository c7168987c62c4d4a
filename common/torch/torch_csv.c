/* Makes rows of actions from a program and writes them as CSV. */
#include "common/torch/torch_csv_internal.h"

#include <string.h>

static bool has_cell(const rp_op *op)
{
    return rp_op_kind_is_pass(op->kind) && !rp_op_kind_is_recompute(op->kind);
}

static rp_status check_stages(const rp_program *p, bool separate)
{
    const uint32_t both = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
    if (p->iteration_count != 1) {
        rp_log_error("{torch_csv_out}: the format has no iterations and the program has %u; valid "
                     "is {iterations} 1",
                     p->iteration_count);
        return RP_USAGE;
    }
    for (uint32_t s = 0; s < p->stage_count && !separate; s++) {
        if ((p->stages[s].roles & both) != both) {
            rp_log_error("{torch_csv_out}: stage %u of %s has no %s; valid are schedules whose "
                         "stages have both, and with {torch_sidecar} F and "
                         "{allow_multi_rank_stages} RoundPipe's, too",
                         s, p->schedule,
                         (p->stages[s].roles & RP_STAGE_FORWARD_LAYERS) != 0 ? "backward"
                                                                             : "forward");
            return RP_USAGE;
        }
    }
    return RP_OK;
}

/* Sets the rank of each stage: PyTorch takes it from the only row that has the stage. */
static rp_status set_ranks(const rp_program *p, rp_torch_csv *csv)
{
    for (uint32_t r = 0; r < csv->rank_count; r++) {
        for (uint32_t i = csv->row_begin[r]; i < csv->row_begin[r + 1]; i++) {
            uint32_t stage = csv->actions[i].stage;
            uint32_t *rank = &csv->stage_ranks[stage];
            if (*rank != RP_TORCH_NONE && *rank != r) {
                rp_log_error("{torch_csv_out}: stage %u of %s runs on GPU %u and on GPU %u; valid "
                             "are schedules with each stage on one GPU",
                             stage, p->schedule, *rank, r);
                return RP_USAGE;
            }
            *rank = r;
        }
    }
    return RP_OK;
}

static uint8_t type_of(const rp_op *op)
{
    return rp_op_kind_is_forward(op->kind)       ? RP_TORCH_FORWARD
           : rp_op_kind_is_weight_part(op->kind) ? RP_TORCH_BACKWARD_WEIGHT
           : rp_op_kind_leaves_weights(op->kind) ? RP_TORCH_BACKWARD_INPUT
                                                 : RP_TORCH_BACKWARD;
}

/* Appends the actions of a GPU; `numbers` are the stages' numbers along the model. */
static void add_row(const rp_program *p, uint32_t gpu, const uint32_t *numbers, rp_torch_csv *csv)
{
    uint32_t count = csv->row_begin[gpu];
    uint32_t column = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        if (queue->kind != RP_QUEUE_COMPUTE || queue->gpu != gpu) {
            continue;
        }
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &p->ops[i];
            bool overlaps = (op->flags & RP_OP_OVERLAP) != 0;
            /* A backward stage that first computes the head's forward does so within its
             * backward. */
            bool pre_work =
                csv->separate && rp_op_kind_is_forward(op->kind) && op->stage >= csv->forward_count;
            if (has_cell(op) && !pre_work) {
                csv->actions[count] = (rp_torch_action){.stage = numbers[op->stage],
                                                        .microbatch = op->microbatch,
                                                        .column = column,
                                                        .type = type_of(op),
                                                        .overlaps_next = overlaps};
                column += overlaps ? 0 : 1;
                count++;
            }
        }
    }
    csv->row_begin[gpu + 1] = count;
}

rp_status rp_torch_csv_of_program(const rp_program *p, bool side_car, rp_arena *arena,
                                  rp_torch_csv *csv_out)
{
    bool separate = side_car && rp_program_has_separate_backward(p);
    RP_TRY(check_stages(p, separate));
    *csv_out = (rp_torch_csv){.name = p->schedule,
                              .rank_count = p->gpu_count,
                              .stage_count = p->stage_count,
                              .microbatch_count = p->microbatch_count,
                              .separate = separate,
                              .forward_count = p->forward_count};
    uint32_t *numbers = NULL;
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof *numbers, &numbers));
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof(uint32_t), &csv_out->stage_ranks));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count + 1, sizeof(uint32_t), &csv_out->row_begin));
    RP_TRY(rp_arena_alloc_raw(arena, p->op_count, sizeof(rp_torch_action), &csv_out->actions));
    memset(csv_out->stage_ranks, 0xff, p->stage_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < p->stage_count; i++) {
        numbers[i] = i;
    }
    for (uint32_t i = 0; i < p->forward_count && !separate; i++) {
        numbers[p->forward_chain[i]] = i;
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        add_row(p, gpu, numbers, csv_out);
    }
    if (separate) {
        csv_out->stage_ranks = NULL;
        return RP_OK;
    }
    return set_ranks(p, csv_out);
}

/* The name of a whole action or of a part of a pair, in the file's dialect. */
static const char *name_of(const rp_torch_csv *csv, const rp_torch_action *a,
                           char text[static RP_TORCH_NAME_SIZE])
{
    if (csv->legacy && a->type == RP_TORCH_BACKWARD) {
        snprintf(text, RP_TORCH_NAME_SIZE, "%uBW%u", a->stage, a->microbatch);
        return text;
    }
    rp_torch_action written = *a;
    if (csv->legacy && a->type == RP_TORCH_BACKWARD_INPUT) {
        written.type = RP_TORCH_BACKWARD;
    }
    return rp_torch_action_name(&written, text);
}

void rp_torch_csv_print(const rp_torch_csv *csv, FILE *stream)
{
    for (uint32_t r = 0; r < csv->rank_count; r++) {
        bool second = false; /* the action is the second part of a pair */
        for (uint32_t i = csv->row_begin[r]; i < csv->row_begin[r + 1]; i++) {
            char text[RP_TORCH_NAME_SIZE];
            const rp_torch_action *a = &csv->actions[i];
            const char *before = i == csv->row_begin[r] ? "" : ",";
            fprintf(stream, "%s%s%s%s", second ? ";" : before, a->overlaps_next ? "(" : "",
                    name_of(csv, a, text), second ? ")OVERLAP_F_B" : "");
            second = a->overlaps_next;
        }
        fputc('\n', stream);
    }
}

rp_status rp_torch_csv_write(const rp_program *program, rp_arena *arena, FILE *stream)
{
    rp_torch_csv csv;
    RP_TRY(rp_torch_csv_of_program(program, false, arena, &csv));
    rp_torch_csv_print(&csv, stream);
    return RP_OK;
}
