#include "common/torch_csv.h"

#include "common/log.h"

#include <errno.h>
#include <string.h>

#define NO_RANK UINT32_MAX

static bool has_cell(const rp_op *op)
{
    return rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_COMPUTE &&
           op->kind != RP_OP_RECOMPUTE;
}

static rp_status check_stages(const rp_program *p)
{
    const uint32_t both = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
    if (p->iteration_count != 1) {
        rp_log_error("--torch-csv-out: the format has no iterations and the program has %u; valid "
                     "is --iterations 1",
                     p->iteration_count);
        return RP_USAGE;
    }
    for (uint32_t s = 0; s < p->stage_count; s++) {
        if ((p->stages[s].roles & both) != both) {
            rp_log_error("--torch-csv-out: stage %u of %s has no %s; valid are schedules whose "
                         "stages have both",
                         s, p->schedule,
                         (p->stages[s].roles & RP_STAGE_FORWARD_LAYERS) != 0 ? "backward"
                                                                             : "forward");
            return RP_USAGE;
        }
    }
    return RP_OK;
}

/* PyTorch takes the rank of a stage from the one row that has it. */
static rp_status check_ranks(const rp_program *p, rp_arena *arena)
{
    uint32_t *ranks = NULL;
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof *ranks, &ranks));
    for (uint32_t s = 0; s < p->stage_count; s++) {
        ranks[s] = NO_RANK;
    }
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &p->ops[i];
            if (!has_cell(op)) {
                continue;
            }
            if (ranks[op->stage] != NO_RANK && ranks[op->stage] != queue->gpu) {
                rp_log_error("--torch-csv-out: stage %u of %s runs on GPU %u and on GPU %u; valid "
                             "are schedules with each stage on one GPU",
                             op->stage, p->schedule, ranks[op->stage], queue->gpu);
                return RP_USAGE;
            }
            ranks[op->stage] = queue->gpu;
        }
    }
    return RP_OK;
}

static void write_row(const rp_program *p, uint32_t gpu, const uint32_t *numbers, FILE *stream)
{
    const char *separator = "";
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        if (queue->kind != RP_QUEUE_COMPUTE || queue->gpu != gpu) {
            continue;
        }
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &p->ops[i];
            if (has_cell(op)) {
                fprintf(stream, "%s%u%s%u", separator, numbers[op->stage],
                        rp_op_kind_text((rp_op_kind)op->kind), op->microbatch);
                separator = ",";
            }
        }
    }
    fputc('\n', stream);
}

rp_status rp_torch_csv_write(const rp_program *p, rp_arena *arena, FILE *stream)
{
    RP_TRY(check_stages(p));
    RP_TRY(check_ranks(p, arena));
    uint32_t *numbers = NULL;
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof *numbers, &numbers));
    for (uint32_t i = 0; i < p->forward_count; i++) {
        numbers[p->forward_chain[i]] = i;
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        write_row(p, gpu, numbers, stream);
    }
    if (fflush(stream) != 0 || ferror(stream) != 0) {
        rp_log_error("the schedule's CSV cannot be written: %s", strerror(errno));
        return RP_IO;
    }
    return RP_OK;
}
