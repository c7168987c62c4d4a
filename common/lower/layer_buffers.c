/* Buffers of units that go layer by layer, each with the ops between which it lives.
 *
 * Resident: a layer's input waits on the GPU from the op that computes it to the layer's backward
 * (to the weight part of a backward in two). Offload: it is on the GPU from there until the next
 * layer's input has gone down, which is after its own download and its layer's forward; then in
 * host memory until it has come up again. At any time a backward has a single layer's tape, without
 * the input that it contains, and temporaries. A pipeline's head has its tape from its forward
 * on. */
#include "common/lower/lower_internal.h"

typedef struct writer {
    const rp_lowering *l;
    rp_program *program;
    const rp_lower_unit *unit;
    const rp_op *op;
    uint32_t gpu;
    uint64_t sequences;
} writer;

static writer make_writer(const rp_lowering *l, rp_program *program, const rp_lower_unit *unit)
{
    const rp_op *op = &l->schedule->ops[unit->last];
    return (writer){l, program, unit, op, l->jobs[unit->job].gpu, l->sequences[op->microbatch]};
}

static void put(const writer *w, rp_buffer_kind kind, uint32_t place, uint64_t per_sequence,
                rp_handle from, rp_handle to)
{
    rp_lower_put(w->l, w->program, kind, place, rp_lower_scaled(per_sequence, w->sequences), from,
                 to);
}

static bool is_head(const writer *w, const rp_lower_part *part)
{
    return part->layer == w->l->config->sizes.layers + 1;
}

/* Tape of a layer, per sequence, without the layer's input. */
static uint64_t tape_of(const writer *w, const rp_lower_part *part)
{
    const rp_sizes *sizes = &w->l->config->sizes;
    uint64_t tape = rp_lower_at(sizes->tape_bytes, part->layer);
    bool ids = part->layer == 1 && rp_lower_from_ids(w->l, w->op->stage);
    return ids ? tape + rp_lower_at(sizes->tape_bytes, 0)
               : rp_lower_less(tape, sizes->tape_input_bytes);
}

/* The part of a layer's tape that its backward makes again; the head has none. */
static uint64_t rebuilt_of(const rp_lowering *l, const rp_lower_part *part)
{
    return rp_lower_at(l->config->sizes.rebuilt_bytes, part->layer);
}

/* True if the forward's tapes wait for the backward, not only the layers' inputs. */
static bool keeps_tapes(const rp_lowering *l)
{
    return rp_lower_keeps_tape(l) && !rp_recompute_has_ops(l->schedule->recompute);
}

size_t rp_lower_layer_buffers(const rp_lowering *l)
{
    size_t most = 0;
    for (uint32_t u = 0; u < l->unit_count; u++) {
        most += 4 * (size_t)l->units[u].part_count;
    }
    return most;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The op after which a layer's input has left the GPU: it follows the input's download and the
 * forward of its layer. */
static rp_handle flushed(const writer *w, uint32_t part_index)
{
    const rp_lower_unit *unit = w->unit;
    if (part_index + 1 < unit->part_count) {
        return unit->parts[part_index + 1].down;
    }
    return unit->down_out != RP_NO_HANDLE ? unit->down_out : unit->compute_last;
}

void rp_lower_put_layered_forward(const rp_lowering *l, rp_program *program,
                                  const rp_lower_unit *unit)
{
    writer w = make_writer(l, program, unit);
    uint64_t boundary = l->config->sizes.boundary_bytes;
    bool keeps = rp_lower_keeps_tape(l);
    put(&w, RP_BUFFER_ACTIVATION, w.gpu, boundary, unit->parts[0].first, unit->parts[0].down);
    for (uint32_t i = 0; i < unit->part_count; i++) {
        const rp_lower_part *part = &unit->parts[i];
        rp_handle kept = keeps ? rp_lower_kept_until(l, unit, i) : RP_NO_HANDLE;
        if (keeps && is_head(&w, part)) { /* the tape includes its input */
            put(&w, RP_BUFFER_TAPE, w.gpu, rp_lower_at(l->config->sizes.tape_bytes, part->layer),
                part->first, rp_lower_release(l, w.op, i));
            continue;
        }
        if (i > 0) {
            put(&w, RP_BUFFER_ACTIVATION, w.gpu, boundary, unit->parts[i - 1].first,
                keeps ? kept : flushed(&w, i));
        }
        bool embeds = i == 0 && keeps && !keeps_tapes(l) && rp_lower_from_ids(l, w.op->stage);
        put(&w, RP_BUFFER_ACTIVATION, w.gpu, embeds ? l->config->sizes.embedded_bytes : 0,
            part->first, kept);
        uint64_t tape = tape_of(&w, part) - rebuilt_of(l, part);
        put(&w, RP_BUFFER_TAPE, w.gpu, keeps_tapes(l) ? tape : 0, part->first, kept);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

void rp_lower_put_layered_backward(const rp_lowering *l, rp_program *program,
                                   const rp_lower_unit *unit, rp_handle release)
{
    writer w = make_writer(l, program, unit);
    const rp_sizes *sizes = &l->config->sizes;
    bool split = release != unit->compute_last;
    for (uint32_t i = 0; i < unit->part_count; i++) {
        const rp_lower_part *part = &unit->parts[i];
        /* The forward has put what it keeps. */
        bool kept = (rp_lower_keeps_tape(l) && is_head(&w, part)) || keeps_tapes(l);
        put(&w, RP_BUFFER_TAPE, w.gpu, kept ? rebuilt_of(l, part) : tape_of(&w, part), part->first,
            split ? release : part->last);
        put(&w, RP_BUFFER_TEMPORARY, w.gpu, rp_lower_at(sizes->temporary_bytes, part->layer),
            part->last, part->last);
        if (part->up != RP_NO_HANDLE) {
            uint64_t bytes = program->op_bytes[rp_assembly_number(l->assembly, part->up)];
            rp_lower_put(l, program, RP_BUFFER_ACTIVATION, w.gpu, bytes, part->up, part->last);
            put(&w, RP_BUFFER_ACTIVATION, RP_PLACE_HOST, sizes->boundary_bytes,
                rp_lower_layer_input(l, unit, part->layer), part->up);
        }
    }
}
