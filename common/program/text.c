/* Writes the text form of a program.
 *
 *   rp-program 2                      # format and version, first line; '#' begins a comment
 *   schedule roundpipe                # a label; nothing depends on it
 *   gpus 8
 *   microbatches 16                   # per iteration
 *   iterations 1
 *   layers 28
 *   recompute early                   # none, wait, early or selective
 *   asynchronous no                   # yes: no optimizer barrier between iterations
 *   placement offload                 # of weights: resident, offload or sharded
 *   versions one                      # of weights: one, two or stashed
 *   traits one-dispatcher             # traits.h: names of flags, names and values of numbers
 *   lowered fp16 13 13 12             # lowered programs only: type, sequences of each microbatch
 *   stage 0..7 forward                # layers [0, 7); roles forward, backward, head; from 0 on
 *   forward-chain 0 1 2 3             # stages in the order in which a microbatch passes them
 *   backward-chain 4 5 6
 *   queue compute 0                   # kind and GPU (host kinds have none), then its ops in order
 *   0F3                               # stage, kind, microbatch; numbered from 0 over all queues
 *   5R3 join                          # joined to the op after it
 *   5B3@1 after 17 34 order 99        # iteration 1; data waits, then control waits
 *   5B3/20@1                          # lowered programs only: layer 20 of the stage alone
 *   OPTIMIZER@1 order 7 15            # host ops have no stage and microbatch
 *   buffer activation 33554432 gpu 0 3 40   # kind, bytes, place (gpu N or host), alloc, free op
 */
#include "common/base/log.h"
#include "common/program/program.h"

static void write_header(const rp_program *p, FILE *stream)
{
    fprintf(stream, "rp-program %u\nschedule %s\n", RP_PROGRAM_VERSION, p->schedule);
    fprintf(stream, "gpus %u\nmicrobatches %u\niterations %u\nlayers %u\n", p->gpu_count,
            p->microbatch_count, p->iteration_count, p->layer_count);
    fprintf(stream, "recompute %s\nasynchronous %s\n", rp_recompute_text(p->recompute),
            p->asynchronous ? "yes" : "no");
    rp_traits_write(&p->traits, stream);
    if (p->op_bytes != NULL) {
        fprintf(stream, "lowered %s", rp_dtype_text(p->dtype));
        for (uint32_t m = 0; m < p->microbatch_count; m++) {
            fprintf(stream, " %u", p->sequences[m]);
        }
        fputc('\n', stream);
    }
    for (uint32_t s = 0; s < p->stage_count; s++) {
        const rp_stage *stage = &p->stages[s];
        fprintf(stream, "stage %u..%u%s%s%s\n", stage->layer_begin, stage->layer_end,
                (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0 ? " forward" : "",
                (stage->roles & RP_STAGE_BACKWARD_LAYERS) != 0 ? " backward" : "",
                (stage->roles & RP_STAGE_HEAD) != 0 ? " head" : "");
    }
}

static void write_chain(const char *name, const uint16_t *chain, uint32_t count, FILE *stream)
{
    fputs(name, stream);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, " %u", chain[i]);
    }
    fputc('\n', stream);
}

static void write_waits(const rp_program *p, const rp_op *op, bool control, const char *word,
                        FILE *stream)
{
    bool first = true;
    for (uint32_t w = op[0].wait_begin; w < op[1].wait_begin; w++) {
        if (rp_wait_is_control(p->waits[w]) == control) {
            fprintf(stream, "%s%u", first ? word : " ", rp_wait_op(p->waits[w]));
            first = false;
        }
    }
}

static void write_queue(const rp_program *p, const rp_queue *queue, FILE *stream)
{
    rp_queue_kind kind = (rp_queue_kind)queue->kind;
    fprintf(stream, "queue %s", rp_queue_kind_text(kind));
    if (rp_queue_kind_on_gpu(kind)) {
        fprintf(stream, " %u", queue->gpu);
    }
    fputc('\n', stream);
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        const rp_op *op = &p->ops[i];
        char name[RP_OP_NAME_SIZE];
        rp_op_name(op, name);
        fputs(name, stream);
        fputs((op->flags & RP_OP_JOIN) != 0 ? " join" : "", stream);
        fputs((op->flags & RP_OP_OVERLAP) != 0 ? " overlap" : "", stream);
        if (p->op_bytes != NULL && p->op_bytes[i] != 0) {
            fprintf(stream, " bytes %llu", (unsigned long long)p->op_bytes[i]);
        }
        write_waits(p, op, false, " after ", stream);
        write_waits(p, op, true, " order ", stream);
        fputc('\n', stream);
    }
}

void rp_program_write(const rp_program *p, FILE *stream)
{
    write_header(p, stream);
    write_chain("forward-chain", p->forward_chain, p->forward_count, stream);
    write_chain("backward-chain", p->backward_chain, p->backward_count, stream);
    for (uint32_t q = 0; q < p->queue_count; q++) {
        write_queue(p, &p->queues[q], stream);
    }
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const rp_buffer *buffer = &p->buffers[i];
        fprintf(stream, "buffer %s %llu ", rp_buffer_kind_text((rp_buffer_kind)buffer->kind),
                (unsigned long long)buffer->bytes);
        if (buffer->place == RP_PLACE_HOST) {
            fputs("host", stream);
        } else {
            fprintf(stream, "gpu %u", buffer->place);
        }
        fprintf(stream, " %u %u\n", buffer->alloc_op, buffer->free_op);
    }
    fputs("end\n", stream);
}

rp_status rp_program_read_file(const char *path, rp_program **program_out)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, SIZE_MAX, &text);
    if (status == RP_OK) {
        status =
            rp_program_read(path, text.bytes != NULL ? text.bytes : "", text.length, program_out);
    }
    rp_text_fini(&text);
    return status == RP_INVALID_PROGRAM ? RP_INPUT : status;
}
