#include "exec/measure/measure.h"

#include "common/base/log.h"
#include "common/base/median.h"
#include "exec/plan/plan.h"
#include "exec/run/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A sample of a group of ops; ops of the same stage, kind and layer take equally long. */
typedef struct group {
    uint64_t key;
    int64_t ps;
    uint32_t op;
} group;

/* A sum of estimates, each weighted with the number of its ops. */
typedef struct estimate {
    double sum_ps;
    double weight;
} estimate;

typedef struct measuring {
    const rpexec_plan *plan;
    const rp_timeline *timeline;
    const rp_costs *flops;
    uint32_t skip;
    group *samples; /* sorted by key, then time */
    uint32_t sample_count;
    estimate *of_tensors[RP_TENSOR_ALL + 1]; /* [RP_TENSOR_*][layers] */
    estimate head_fwd, head_bwd;
} measuring;

static void add(estimate *e, double ps, double weight)
{
    e->sum_ps += ps * weight;
    e->weight += weight;
}

static double value_of(const estimate *e)
{
    return e->weight > 0 ? e->sum_ps / e->weight : 0;
}

static int compare_groups(const void *a, const void *b)
{
    const group *x = a;
    const group *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->ps < y->ps ? -1 : x->ps > y->ps;
}

static double median_of_samples(const group *samples, uint32_t count)
{
    double low = (double)samples[(count - 1) / 2].ps;
    return (low + (double)samples[count / 2].ps) / 2;
}

static int64_t duration(const rp_timeline *t, uint32_t op)
{
    return t->work_ps != NULL ? t->work_ps[op] : t->end_ps[op] - t->start_ps[op];
}

/* ---- compute --------------------------------------------------------------------------------- */

static bool counts(const measuring *m, uint32_t op)
{
    const rp_program *p = m->plan->program;
    const rp_op *o = &p->ops[op];
    return rp_op_kind_is_pass((rp_op_kind)o->kind) && o->iteration >= m->skip &&
           p->sequences[o->microbatch] == m->flops->microbatch_size;
}

static rp_status take_samples(measuring *m, rp_arena *arena)
{
    const rp_program *p = m->plan->program;
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof *m->samples, &m->samples));
    for (uint32_t i = 0; i < p->op_count; i++) {
        const rp_op *o = &p->ops[i];
        if (counts(m, i)) {
            uint64_t key = ((uint64_t)o->stage << 16 | rp_op_layer(o)) << 8 | o->kind;
            m->samples[m->sample_count++] =
                (group){.key = key, .ps = duration(m->timeline, i), .op = i};
        }
    }
    qsort(m->samples, m->sample_count, sizeof *m->samples, compare_groups);
    return RP_OK;
}

/* The FLOP of a layer in an op of this kind, in the unit of the FLOP costs. */
static double flops_of(const rp_costs *flops, uint8_t kind, uint32_t layer)
{
    uint16_t tensors = rp_op_kinds[kind].tensors;
    int64_t input_ps = flops->bwd_input_ps[layer];
    int64_t weight_ps = flops->bwd_ps[layer] - input_ps;
    int64_t ps = (tensors & RP_TENSOR_ACTIVATION) != 0 ? flops->fwd_ps[layer] : 0;
    ps += (tensors & RP_TENSOR_GRADIENT) != 0 ? input_ps : 0;
    ps += (tensors & RP_TENSOR_PARAM_GRADIENT) != 0 ? weight_ps : 0;
    return (double)ps;
}

/* The blocks that an op goes through, counted from 1: none if it has only the head. */
static void blocks_of(const rpexec_task *task, uint8_t kind, uint32_t blocks, uint32_t *begin_out,
                      uint32_t *end_out)
{
    bool layers = rp_op_kind_is_backward(kind) || task->runs_layers;
    *begin_out = task->begin == 0 ? 1 : task->begin;
    *end_out = !layers ? *begin_out : task->end > blocks + 1 ? blocks + 1 : task->end;
}

/* Splits the median time of equal ops over the layers and the head that they run. */
static void split(measuring *m, const group *samples, uint32_t count)
{
    const rpexec_task *task = &m->plan->tasks[samples[0].op];
    uint8_t kind = m->plan->program->ops[samples[0].op].kind;
    bool backward = rp_op_kind_is_backward(kind);
    uint32_t begin = 0;
    uint32_t end = 0;
    blocks_of(task, kind, m->flops->layers, &begin, &end);
    double head = task->runs_head ? (double)(m->flops->head_fwd_ps + m->flops->head_bwd_ps) : 0;
    double all = head;
    for (uint32_t i = begin; i < end; i++) {
        all += flops_of(m->flops, kind, i - 1);
    }
    double per_flop = all > 0 ? median_of_samples(samples, count) / all : 0;
    for (uint32_t i = begin; i < end; i++) {
        add(&m->of_tensors[rp_op_kinds[kind].tensors][i - 1],
            per_flop * flops_of(m->flops, kind, i - 1), count);
    }
    if (task->runs_head) {
        add(backward ? &m->head_bwd : &m->head_fwd, per_flop * head, count);
    }
}

static rp_status set_costs(measuring *m, rp_arena *arena, rp_costs *costs)
{
    uint32_t layers = m->flops->layers;
    *costs = (rp_costs){.name = "",
                        .source = "",
                        .layers = layers,
                        .microbatch_size = m->flops->microbatch_size,
                        .seq_len = m->flops->seq_len,
                        .head_fwd_ps = (int64_t)value_of(&m->head_fwd),
                        .head_bwd_ps = (int64_t)value_of(&m->head_bwd)};
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->fwd_ps));
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_ps));
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_input_ps));
    const estimate *backward = m->of_tensors[RP_TENSOR_GRADIENTS];
    const estimate *inputs = m->of_tensors[RP_TENSOR_GRADIENT];
    const estimate *weights = m->of_tensors[RP_TENSOR_PARAM_GRADIENT];
    for (uint32_t i = 0; i < layers; i++) {
        bool parts = inputs[i].weight > 0 && weights[i].weight > 0;
        double input = value_of(&inputs[i]);
        double whole = parts ? input + value_of(&weights[i]) : value_of(&backward[i]);
        double share = (double)m->flops->bwd_input_ps[i] / (double)m->flops->bwd_ps[i];
        costs->fwd_ps[i] = (int64_t)value_of(&m->of_tensors[RP_TENSOR_ACTIVATION][i]);
        costs->bwd_ps[i] = (int64_t)whole;
        costs->bwd_input_ps[i] = (int64_t)(parts ? input : whole * share);
    }
    return RP_OK;
}

static rp_status measure_compute(measuring *m, rp_arena *arena, rp_costs *costs_out)
{
    uint32_t layers = m->flops->layers;
    RP_TRY(take_samples(m, arena));
    for (uint32_t i = 0; i <= RP_TENSOR_ALL; i++) {
        RP_TRY(rp_arena_alloc(arena, layers, sizeof(estimate), &m->of_tensors[i]));
    }
    for (uint32_t begin = 0, end = 0; begin < m->sample_count; begin = end) {
        while (end < m->sample_count && m->samples[end].key == m->samples[begin].key) {
            end++;
        }
        split(m, &m->samples[begin], end - begin);
    }
    return set_costs(m, arena, costs_out);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static bool moves(const measuring *m, uint32_t op)
{
    const rp_op *o = &m->plan->program->ops[op];
    rp_op_way way = rp_op_kinds[o->kind].way;
    return way != RP_WAY_NONE && way != RP_WAY_IN && o->iteration >= m->skip &&
           duration(m->timeline, op) > 0;
}

/* True if no other transfer runs at the same time. */
static bool alone(const measuring *m, uint32_t op)
{
    const rp_timeline *t = m->timeline;
    for (uint32_t i = 0; i < m->plan->program->op_count; i++) {
        if (i != op && moves(m, i) && t->start_ps[i] < t->end_ps[op] &&
            t->start_ps[op] < t->end_ps[i]) {
            return false;
        }
    }
    return true;
}

typedef bool (*choice)(const measuring *m, uint32_t op);

static bool goes(const measuring *m, uint32_t op, rp_op_way way)
{
    return moves(m, op) && rp_op_kinds[m->plan->program->ops[op].kind].way == way;
}

static bool goes_up(const measuring *m, uint32_t op)
{
    return goes(m, op, RP_WAY_UP);
}

static bool comes_down(const measuring *m, uint32_t op)
{
    return goes(m, op, RP_WAY_DOWN);
}

static bool is_sent(const measuring *m, uint32_t op)
{
    return goes(m, op, RP_WAY_OUT);
}

static bool is_collective(const measuring *m, uint32_t op)
{
    const rp_op *o = &m->plan->program->ops[op];
    return rp_op_kind_class((rp_op_kind)o->kind) == RP_CLASS_COLLECTIVE &&
           o->iteration >= m->skip && duration(m->timeline, op) > 0;
}

/* Short transfers are mostly overhead: only transfers with at least half of the most bytes
 * count. */
static double link_rate(const measuring *m, choice chosen, double *values)
{
    const rp_program *p = m->plan->program;
    uint64_t most = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        most = chosen(m, i) && p->op_bytes[i] > most ? p->op_bytes[i] : most;
    }
    for (int undisturbed = 1; undisturbed >= 0 && count == 0; undisturbed--) {
        for (uint32_t i = 0; i < p->op_count && most > 0; i++) {
            if (chosen(m, i) && 2 * p->op_bytes[i] >= most && (undisturbed == 0 || alone(m, i))) {
                values[count++] = 1e12 * (double)p->op_bytes[i] / (double)duration(m->timeline, i);
            }
        }
    }
    return rp_median(values, count);
}

/* The median time of a boundary tensor's way over the host, or of a SEND. */
static int64_t hop_ps(const measuring *m, double *values)
{
    const rp_op_kind kinds[] = {RP_OP_DOWNLOAD_ACT, RP_OP_UPLOAD_ACT, RP_OP_SEND};
    double sum = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < m->plan->program->op_count; i++) {
            bool boundary = m->plan->tasks[i].output != RPEXEC_NO_TENSOR;
            if (m->plan->program->ops[i].kind == kinds[k] && moves(m, i) && boundary) {
                values[count++] = (double)duration(m->timeline, i);
            }
        }
        sum += rp_median(values, count);
    }
    return (int64_t)sum;
}

static bool is_host(const rp_op *op)
{
    return rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_HOST &&
           !rp_op_kind_uses_port(op->kind);
}

static double host_rate(const measuring *m)
{
    const rp_program *p = m->plan->program;
    double bytes = 0;
    double ps = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (is_host(&p->ops[i]) && p->ops[i].iteration >= m->skip && p->op_bytes[i] > 0) {
            bytes += (double)p->op_bytes[i];
            ps += (double)duration(m->timeline, i);
        }
    }
    return ps > 0 ? 1e12 * bytes / ps : 0;
}

static double flop_rate(const int64_t *flop_ps, const int64_t *ps, uint32_t layers)
{
    double flop = 0;
    double time_ps = 0;
    for (uint32_t i = 0; i < layers; i++) {
        flop += (double)flop_ps[i] / RPEXEC_PS_PER_FLOP;
        time_ps += (double)ps[i];
    }
    return time_ps > 0 ? 1e12 * flop / time_ps : 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

rp_status rpexec_measure(const rpexec_plan *plan, const rp_timeline *timeline,
                         const rp_costs *flops, uint32_t skip, rp_arena *arena, rp_costs *costs_out,
                         rpexec_rates *rates_out)
{
    measuring m = {.plan = plan, .timeline = timeline, .flops = flops, .skip = skip};
    double *values = NULL;
    if (skip >= plan->program->iteration_count) {
        rp_log_error("{record}: the last program has %u iterations, of which the first does not "
                     "count; valid are {steps} from 2 on",
                     plan->program->iteration_count);
        return RP_USAGE;
    }
    RP_TRY(rp_arena_alloc(arena, plan->program->op_count, sizeof *values, &values));
    RP_TRY(measure_compute(&m, arena, costs_out));
    costs_out->hop_ps = hop_ps(&m, values);
    double forward = flop_rate(flops->fwd_ps, costs_out->fwd_ps, flops->layers);
    double backward = flop_rate(flops->bwd_ps, costs_out->bwd_ps, flops->layers);
    /* With adapters the head's table is not trained, and its gradient is not computed. */
    int64_t head = flops->head_fwd_ps + flops->head_bwd_ps / (plan->model->rank != 0 ? 2 : 1);
    int64_t head_ps = costs_out->head_fwd_ps + costs_out->head_bwd_ps;
    *rates_out =
        (rpexec_rates){.upload_Bps = link_rate(&m, goes_up, values),
                       .download_Bps = link_rate(&m, comes_down, values),
                       .peer_Bps = link_rate(&m, is_sent, values),
                       .collective_Bps = link_rate(&m, is_collective, values),
                       .host_Bps = host_rate(&m),
                       .forward_flops = forward,
                       .backward_flops = backward,
                       .most_flops = fmax(fmax(forward, backward), flop_rate(&head, &head_ps, 1))};
    return RP_OK;
}

/* ---- executed FLOP --------------------------------------------------------------------------- */

/* @param flops FLOP costs of a single sequence with the model of `op`'s GPU */
static double executed(const rpexec_plan *plan, const rp_costs *flops, uint32_t op)
{
    const rpexec_task *task = &plan->tasks[op];
    const rp_op *o = &plan->program->ops[op];
    uint32_t begin = 0;
    uint32_t end = 0;
    /* With adapters the head's table is not trained, and its gradient is not computed. */
    double head_bwd = (double)flops->head_bwd_ps / (plan->model->rank != 0 ? 2 : 1);
    double ps = task->runs_head ? (double)flops->head_fwd_ps + head_bwd : 0;
    blocks_of(task, o->kind, flops->layers, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        ps += flops_of(flops, o->kind, i - 1);
    }
    return ps / RPEXEC_PS_PER_FLOP * rpexec_plan_sequences(plan, o->microbatch);
}

rp_status rpexec_executed_flop(const rpexec_plan *plan, double *flop_out)
{
    const rp_program *p = plan->program;
    rp_arena *arena = NULL;
    rp_costs *flops = NULL; /* [gpus] */
    double flop = 0;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, p->gpu_count, sizeof *flops, &flops);
    for (uint32_t gpu = 0; status == RP_OK && gpu < p->gpu_count; gpu++) {
        status = rpexec_work_costs(rpexec_plan_model(plan, gpu), 1, arena, &flops[gpu]);
    }
    for (uint32_t op = 0; status == RP_OK && op < p->op_count; op++) {
        rp_op_kind kind = (rp_op_kind)p->ops[op].kind;
        if (rp_op_kind_is_pass(kind)) {
            flop += executed(plan, &flops[plan->jobs[plan->tasks[op].job].gpu], op);
        }
    }
    rp_arena_destroy(arena);
    *flop_out = flop;
    return status;
}
