#include "sim/run/kept.h"

#include "common/schedule/build.h"

#include <string.h>

/* Copies of all inputs that a program was built from. */
typedef struct origin {
    const rp_schedule_type *schedule; /* NULL: nothing is kept */
    rp_schedule_config config;
    rp_partition partition;
    rp_costs costs; /* set for schedules that plan with costs */
} origin;

typedef struct slot {
    rp_arena *arena; /* owns the origin */
    origin origin;
    rpsim_kept_program kept;
} slot;

struct rpsim_kept {
    rp_arena *arena;
    slot slots[2]; /* for one iteration, for several */
};

static void empty(slot *s)
{
    rp_program_destroy(s->kept.program);
    rp_arena_destroy(s->arena);
    *s = (slot){0};
}

rp_status rpsim_kept_create(rpsim_kept **kept_out)
{
    rp_arena *arena = NULL;
    *kept_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof **kept_out, kept_out);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    (*kept_out)->arena = arena;
    return RP_OK;
}

void rpsim_kept_destroy(rpsim_kept *kept)
{
    if (kept != NULL) {
        empty(&kept->slots[0]);
        empty(&kept->slots[1]);
        rp_arena_destroy(kept->arena);
    }
}

/* ---- the same origin ------------------------------------------------------------------------- */

static bool same_list(const void *a, const void *b, size_t count, size_t size)
{
    return count == 0 || memcmp(a, b, count * size) == 0;
}

static bool same_partition(const origin *o, const rp_schedule_config *config)
{
    const rp_partition *a = &o->partition;
    const rp_partition *b = config->partition;
    return a->forward_count == b->forward_count && a->backward_count == b->backward_count &&
           same_list(a->forward_layers, b->forward_layers, a->forward_count, sizeof(uint32_t)) &&
           same_list(a->backward_layers, b->backward_layers, a->backward_count, sizeof(uint32_t));
}

/* Only the result of a schedule's `prepare` depends on times. */
static bool same_costs(const origin *o, const rp_schedule_config *config)
{
    const rp_costs *a = &o->costs;
    const rp_costs *b = config->costs;
    return o->schedule->prepare == NULL ||
           (b != NULL && a->layers == b->layers && a->head_fwd_ps == b->head_fwd_ps &&
            a->head_bwd_ps == b->head_bwd_ps && a->hop_ps == b->hop_ps &&
            a->overlap_saving == b->overlap_saving &&
            same_list(a->fwd_ps, b->fwd_ps, a->layers, sizeof(int64_t)) &&
            same_list(a->bwd_ps, b->bwd_ps, a->layers, sizeof(int64_t)) &&
            same_list(a->bwd_input_ps, b->bwd_input_ps, a->layers, sizeof(int64_t)));
}

/* Orders are not compared: their programs are built again. */
static bool same_orders(const origin *o, const rp_schedule_config *config)
{
    (void)o;
    return config->orders == NULL;
}

/* True if a program would be built from the same inputs. */
static bool same_origin(const origin *o, const rp_schedule_type *schedule,
                        const rp_schedule_config *config)
{
    bool same = o->schedule == schedule;
#define VALUE(type, member) same = same && o->config.member == config->member;
#define POINTER(type, member) same = same && same_##member(o, config);
    RP_SCHEDULE_SETTINGS(VALUE, POINTER)
#undef POINTER
#undef VALUE
    return same;
}

static rp_status copy_list(rp_arena *arena, const void *from, size_t count, size_t size,
                           void *to_out)
{
    void *copy = NULL;
    RP_TRY(rp_arena_alloc(arena, count, size, &copy));
    if (count > 0) {
        memcpy(copy, from, count * size);
    }
    memcpy(to_out, &copy, sizeof copy); /* to_out is a T ** of any T */
    return RP_OK;
}

static rp_status copy_costs(rp_arena *arena, const rp_costs *from, rp_costs *to)
{
    *to = *from;
    to->name = to->source = NULL; /* not compared */
    RP_TRY(copy_list(arena, from->fwd_ps, from->layers, sizeof(int64_t), &to->fwd_ps));
    RP_TRY(copy_list(arena, from->bwd_ps, from->layers, sizeof(int64_t), &to->bwd_ps));
    return copy_list(arena, from->bwd_input_ps, from->layers, sizeof(int64_t), &to->bwd_input_ps);
}

static rp_status copy_origin(rp_arena *arena, const rp_schedule_type *schedule,
                             const rp_schedule_config *config, origin *o)
{
    const rp_partition *p = config->partition;
    *o = (origin){.config = *config, .partition = *p};
    RP_TRY(copy_list(arena, p->forward_layers, p->forward_count, sizeof(uint32_t),
                     &o->partition.forward_layers));
    RP_TRY(copy_list(arena, p->backward_layers, p->backward_count, sizeof(uint32_t),
                     &o->partition.backward_layers));
    if (schedule->prepare != NULL && config->costs != NULL) {
        RP_TRY(copy_costs(arena, config->costs, &o->costs));
    }
    o->schedule = schedule;
    return RP_OK;
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool same_program(const rp_program *a, const rp_program *b)
{
    return a->stage_count == b->stage_count && a->forward_count == b->forward_count &&
           a->backward_count == b->backward_count && a->queue_count == b->queue_count &&
           a->op_count == b->op_count && a->wait_count == b->wait_count &&
           a->buffer_count == b->buffer_count && a->microbatch_count == b->microbatch_count &&
           a->iteration_count == b->iteration_count && a->recompute == b->recompute &&
           a->asynchronous == b->asynchronous &&
           same_list(a->stages, b->stages, a->stage_count, sizeof *a->stages) &&
           same_list(a->forward_chain, b->forward_chain, a->forward_count,
                     sizeof *a->forward_chain) &&
           same_list(a->backward_chain, b->backward_chain, a->backward_count,
                     sizeof *a->backward_chain) &&
           same_list(a->queues, b->queues, a->queue_count, sizeof *a->queues) &&
           same_list(a->ops, b->ops, (size_t)a->op_count + 1, sizeof *a->ops) &&
           same_list(a->waits, b->waits, a->wait_count, sizeof *a->waits) &&
           same_list(a->buffers, b->buffers, a->buffer_count, sizeof *a->buffers);
}

static rp_status keep_origin(slot *s, const rp_schedule_type *schedule,
                             const rp_schedule_config *config)
{
    rp_arena_destroy(s->arena);
    s->arena = NULL;
    s->origin.schedule = NULL; /* until all of the origin is copied */
    RP_TRY(rp_arena_create(&s->arena));
    return copy_origin(s->arena, schedule, config, &s->origin);
}

/* Takes ownership of the program, also on failure. */
static rp_status keep_program(slot *s, rp_program *program)
{
    rp_program_destroy(s->kept.program);
    s->kept = (rpsim_kept_program){.program = program};
    RP_TRY(rp_program_check_but_cycles(program, program->arena, &s->kept.producers));
    s->kept.hash = rp_program_hash(program);
    return RP_OK;
}

rp_status rpsim_kept_stage(rpsim_kept *kept, const rp_schedule_type *schedule,
                           const rp_schedule_config *config, const rpsim_kept_program **program_out,
                           rp_reason *reason)
{
    slot *s = &kept->slots[config->iterations > 1 ? 1 : 0];
    rp_program *program = NULL;
    *program_out = &s->kept;
    if (same_origin(&s->origin, schedule, config)) {
        return RP_OK;
    }
    RP_TRY(rp_schedule_build(schedule, config, &program, reason));
    bool same = s->origin.schedule == schedule && same_program(s->kept.program, program);
    rp_status status = RP_OK;
    if (same) {
        rp_program_destroy(program);
    } else {
        s->origin.schedule = NULL;
        status = keep_program(s, program);
    }
    if (status == RP_OK) {
        status = keep_origin(s, schedule, config);
    }
    if (status != RP_OK) {
        empty(s);
    }
    return status;
}
