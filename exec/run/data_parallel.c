/* Data-parallel systems: gathering, reducing and moving the ranks' shares, and their steps. */
#include "common/base/log.h"
#include "exec/run/execute_internal.h"
#include "exec/state/shard.h"

#define NO_JOB UINT32_MAX

/* The arrays of a collective while they are collected. */
typedef struct list {
    const rpexec_run *run;
    uint32_t gpu;
    rpexec_collective_array *arrays;
    uint32_t count;
} list;

static const rp_sharding *sharding_of(const rpexec_run *r)
{
    return r->plan->sharded->sharding;
}

static uint32_t gpu_of(const rpexec_run *r, uint32_t op)
{
    return r->program->queues[r->plan->order.queue_of[op]].gpu;
}

static rpexec_pieces pieces_of(const rpexec_run *r, uint32_t gpu, uint32_t begin, uint32_t end)
{
    return rpexec_pieces_of(r->plan->model, begin, end, r->program->gpu_count, gpu);
}

static uint64_t shard_values(const rpexec_run *r, uint32_t gpu, uint32_t begin, uint32_t end)
{
    return rpexec_shard_values(r->plan->model, begin, end, r->program->gpu_count, gpu);
}

static void *element(const rpexec_run *r, void *array, uint64_t index)
{
    return rpexec_element(r->plan->model->dtype, array, index);
}

static uint64_t bytes_of(const rpexec_run *r, uint64_t values)
{
    return values * rp_dtype_bytes(r->plan->model->dtype);
}

/* Factor that the loss of the op's iteration was multiplied by. */
static float scale_of(const rpexec_run *r, uint32_t op)
{
    return r->scales[r->program->ops[op].iteration];
}

/* True if embedding and head are trained as a single table. */
static bool trains_tied(const rpexec_run *r)
{
    return r->plan->model->config->tied_head && r->plan->model->rank == 0;
}

static uint64_t trained_values(const rpexec_run *r, uint32_t gpu, const rpexec_home *home)
{
    return rpexec_shard_trained(r->plan->model, home->begin, home->end, r->program->gpu_count, gpu);
}

static bool gathers(const rpexec_run *r)
{
    return sharding_of(r)->forward_gathers != 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

static list list_of(const rpexec_run *r, uint32_t gpu)
{
    size_t most = rpexec_most_pieces(r->plan->model);
    return (list){.run = r, .gpu = gpu, .arrays = r->arrays + gpu * most};
}

/* Gathers layers [begin, end), whose packed shares are at `shares`, to whole layers at `whole`. If
 * `shares` is NULL, gathers in place, and only the trained pieces. */
static void add_layers(list *l, uint32_t begin, uint32_t end, void *shares, void *whole)
{
    rpexec_pieces p = pieces_of(l->run, l->gpu, begin, end);
    while (rpexec_pieces_next(&p)) {
        void *from = shares != NULL ? element(l->run, shares, p.packed)
                                    : element(l->run, whole, p.at + p.begin);
        if (shares != NULL || p.trained) {
            l->arrays[l->count++] = (rpexec_collective_array){
                .from = from, .to = element(l->run, whole, p.at), .count = p.count};
        }
    }
}

/* Address at which the rank keeps the packed shares of layers [begin, ...) of a stage. */
static void *kept(const list *l, uint32_t stage, uint32_t begin)
{
    const rpexec_home *home = rpexec_plan_home(l->run->plan, l->gpu, stage);
    uint64_t before = shard_values(l->run, l->gpu, home->begin, begin);
    return element(l->run, rpexec_run_at(l->run, home->weights), before);
}

/* A job's weights, and with them embedding and head if those are kept apart. */
static void add_job(list *l, const rpexec_task *task)
{
    const rpexec_run *r = l->run;
    const rp_program *program = r->program;
    const rpexec_job *job = &r->plan->jobs[task->job];
    void *up = rpexec_run_at(r, task->input);
    uint32_t head = r->plan->model->layer_count - 1;
    uint32_t begin = 0;
    uint32_t end = 0;
    rpexec_plan_body(r->plan, job, &begin, &end);
    add_layers(l, begin, end, up != NULL ? up : kept(l, job->stage, begin),
               rpexec_run_at(r, job->weights));
    if (!task->moves_root) {
        return;
    }
    void *root = rpexec_run_at(r, job->root);
    void *first = kept(l, program->forward_chain[0], 0);
    void *last = kept(l, program->forward_chain[program->forward_count - 1], head);
    if (up != NULL) { /* they follow the body's */
        first = element(r, up, shard_values(r, l->gpu, begin, end));
        last = element(r, first, shard_values(r, l->gpu, 0, 1));
    }
    add_layers(l, 0, 1, first, root);
    add_layers(l, head, head + 1, last, element(r, root, r->plan->model->embedding.floats));
}

/* All new weights, from the shares that have been uploaded or that each rank has stepped. */
static void add_all(list *l, const rpexec_task *task)
{
    const rpexec_run *r = l->run;
    void *up = rpexec_run_at(r, task->input);
    for (uint32_t stage = 0; stage < r->program->stage_count; stage++) {
        const rpexec_home *home = rpexec_plan_home(r->plan, l->gpu, stage);
        void *shares = element(r, up, shard_values(r, l->gpu, 0, home->begin));
        add_layers(l, home->begin, home->end, shares, rpexec_run_at(r, home->weights));
    }
}

static rp_status run_collective(rpexec_run *r, uint32_t op, rpexec_collective_kind kind,
                                const list *l)
{
    const rpexec_task *task = &r->plan->tasks[op];
    uint64_t moved = 0;
    const rpexec_collective c = {
        .kind = kind,
        .dtype = r->plan->model->dtype,
        .arrays = l->arrays,
        .array_count = l->count,
        .scratch = rpexec_run_at(r, task->scratch),
        .scratch_bytes = kind == RPEXEC_ALL_GATHER ? 0 : r->plan->values[task->scratch].bytes};
    RP_TRY(r->e->driver_type->collective(r->driver, op, &c, &moved));
    atomic_fetch_add(&r->exchanged, moved);
    return RP_OK;
}

rp_status rpexec_run_sharded_gather(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    list l = list_of(r, gpu_of(r, op));
    (void)lane;
    if (task->job == NO_JOB) {
        add_all(&l, task);
    } else {
        add_job(&l, task);
    }
    return run_collective(r, op, RPEXEC_ALL_GATHER, &l);
}

/* Uploads the rank's shares of layers [begin, end). @return the place of the next shares */
static void *upload_layers(rpexec_run *r, uint32_t op, uint32_t begin, uint32_t end, void *to)
{
    void *from = rpexec_state_working(r->e->state, begin);
    rpexec_pieces p = pieces_of(r, gpu_of(r, op), begin, end);
    while (rpexec_pieces_next(&p)) {
        rpexec_run_copy(r, op, element(r, to, p.packed), element(r, from, p.at + p.begin),
                        bytes_of(r, p.share));
    }
    return element(r, to, p.packed);
}

rp_status rpexec_run_sharded_upload(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    uint32_t head = r->plan->model->layer_count - 1;
    uint32_t begin = 0;
    uint32_t end = head + 1;
    (void)lane;
    if (task->job != NO_JOB) {
        rpexec_plan_body(r->plan, &r->plan->jobs[task->job], &begin, &end);
    }
    void *to = upload_layers(r, op, begin, end, rpexec_run_at(r, task->output));
    if (task->moves_root) {
        to = upload_layers(r, op, 0, 1, to);
        upload_layers(r, op, head, head + 1, to);
    }
    return RP_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Sums in place, then adds this rank's shares of the sum to the step's. */
rp_status rpexec_run_sharded_reduce(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    const rpexec_operators *operators = r->operators;
    bool whole = rp_op_kinds[r->program->ops[op].kind].group == RP_GROUP_ALL;
    void *gradients = rpexec_run_at(r, task->input);
    void *shares = rpexec_run_at(r, task->output);
    list l = list_of(r, job->gpu);
    rpexec_pieces p = pieces_of(r, job->gpu, job->begin, job->end);
    while (rpexec_pieces_next(&p)) {
        void *at = element(r, gradients, p.trained_at);
        if (p.trained) {
            l.arrays[l.count++] = (rpexec_collective_array){
                .from = at, .to = element(r, at, whole ? 0 : p.begin), .count = p.count};
        }
    }
    RP_TRY(run_collective(r, op, whole ? RPEXEC_ALL_REDUCE : RPEXEC_REDUCE_SCATTER, &l));
    p = pieces_of(r, job->gpu, job->begin, job->end);
    while (rpexec_pieces_next(&p)) {
        const void *sum = element(r, gradients, p.trained_at + p.begin);
        void *to = element(r, shares, p.trained_packed);
        uint64_t values = p.trained ? p.share : 0;
        if (task->clears) {
            operators->copy(lane, values, sum, to);
        } else {
            operators->add(lane, values, to, sum, to);
        }
    }
    return RP_OK;
}

rp_status rpexec_run_sharded_download(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    void *shares = rpexec_run_at(r, task->input);
    void *slots = rpexec_state_slot(r->e->state, job->begin);
    rpexec_pieces p = pieces_of(r, job->gpu, job->begin, job->end);
    (void)lane;
    while (rpexec_pieces_next(&p)) {
        rpexec_run_copy(r, op, element(r, slots, p.trained_at + p.begin),
                        element(r, shares, p.trained_packed), bytes_of(r, p.trained ? p.share : 0));
    }
    return RP_OK;
}

/* Collects one microbatch per GPU of a stage; a tied table's two sums stay apart until the step. */
rp_status rpexec_run_sharded_collect(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    rpexec_state *state = r->e->state;
    (void)lane;
    for (uint32_t layer = job->begin; layer < job->end; layer++) {
        rpexec_state_collect_part(state, layer, scale_of(r, op), !task->clears);
    }
    return RP_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The host's step with all gradients that the ranks have sent down. This op does the whole step, so
 * that it may be a single pass, unless gradients have been collected as they came. If the GPUs have
 * stepped, it is only a barrier.
 */
rp_status rpexec_run_sharded_optimise(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    rpexec_state *state = r->e->state;
    uint32_t layers = r->plan->model->layer_count;
    bool collects = !sharding_of(r)->host_collects;
    (void)lane;
    if (!sharding_of(r)->host_optimizer) {
        return RP_OK;
    }
    rpexec_state_fuse(state, collects && !rpexec_run_wants_gradients(r->e));
    for (uint32_t layer = layers; collects && layer-- > 0;) {
        rpexec_state_collect(state, layer, scale_of(r, op));
    }
    if (!collects) {
        rpexec_state_sum_tables(state);
    }
    for (uint32_t layer = layers; layer-- > 0;) {
        rpexec_state_measure(state, layer);
    }
    rpexec_run_optimise(r, op);
    rpexec_run_note_norm(r, op, state->norm);
    for (uint32_t layer = 0; layer < layers; layer++) {
        rpexec_state_refresh(state, layer);
    }
    rpexec_state_fuse(state, false);
    r->scales[r->program->ops[op].iteration + 1] = state->scaler.next;
    return RP_OK;
}

/* This rank's shares of a tied table's two gradients become their sum, head's first. */
static void add_tables(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    uint32_t gpu = gpu_of(r, op);
    uint32_t last = r->program->forward_chain[r->program->forward_count - 1];
    uint32_t first = r->program->forward_chain[0];
    void *to = rpexec_run_at(r, *rpexec_plan_shard_gradients(r->plan, o, gpu, first));
    void *other = rpexec_run_at(r, *rpexec_plan_shard_gradients(r->plan, o, gpu, last));
    const rpexec_home *home = rpexec_plan_home(r->plan, gpu, last);
    rpexec_pieces p = pieces_of(r, gpu, home->begin, home->end);
    while (rpexec_pieces_next(&p)) {
        if (p.table && p.layer != 0) {
            void *shares = element(r, other, p.trained_packed);
            r->operators->add(lane, p.share, shares, to, to);
            r->operators->copy(lane, p.share, to, shares);
        }
    }
}

/* Adam's arrays for a rank's share of a trained piece: in its whole weights, or packed. */
static rpexec_update update_of(const rpexec_run *r, uint32_t gpu, uint32_t stage,
                               const rpexec_pieces *p)
{
    const rpexec_home *home = rpexec_plan_home(r->plan, gpu, stage);
    uint64_t values = trained_values(r, gpu, home);
    void *weights = rpexec_run_at(r, home->weights);
    void *own = element(r, weights, gathers(r) ? p->packed : p->at + p->begin);
    float *m = (float *)rpexec_run_at(r, home->moments) + p->trained_packed;
    bool wide = r->plan->model->dtype == RP_DTYPE_F32;
    return (rpexec_update){.master = wide ? own : m + 2 * values,
                           .weights = wide ? NULL : own,
                           .m = m,
                           .v = m + values,
                           .scale = 1,
                           .count = p->share};
}

/* Squares of this rank's gradient shares; a tied table's are counted only in the embedding's
 * place. */
static rpexec_squares squares_of(const rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t gpu = gpu_of(r, op);
    rpexec_squares sum = {0};
    for (uint32_t stage = 0; stage < r->program->stage_count; stage++) {
        const rpexec_home *home = rpexec_plan_home(r->plan, gpu, stage);
        void *gradients = rpexec_run_at(
            r, *rpexec_plan_shard_gradients(r->plan, &r->program->ops[op], gpu, stage));
        rpexec_pieces p = pieces_of(r, gpu, home->begin, home->end);
        while (rpexec_pieces_next(&p)) {
            bool again = trains_tied(r) && p.table && p.layer != 0;
            if (p.trained && p.share != 0 && !again) {
                r->operators->squares(lane, p.share, element(r, gradients, p.trained_packed), &sum);
            }
        }
    }
    return sum;
}

static rp_status update_stage(rpexec_run *r, uint32_t op, uint32_t stage,
                              const rpexec_run_step *step, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    uint32_t gpu = gpu_of(r, op);
    const rpexec_state *state = r->e->state;
    const rpexec_home *home = rpexec_plan_home(r->plan, gpu, stage);
    float *wanted = rpexec_run_wanted(r, op);
    void *gradients = rpexec_run_at(r, *rpexec_plan_shard_gradients(r->plan, o, gpu, stage));
    rpexec_pieces p = pieces_of(r, gpu, home->begin, home->end);
    while (rpexec_pieces_next(&p)) {
        rpexec_update update = update_of(r, gpu, stage, &p);
        update.gradients = element(r, gradients, p.trained_packed);
        update.scale = scale_of(r, op);
        if (p.trained && wanted != NULL) {
            uint64_t first = state->trained[home->begin] + p.trained_at + p.begin;
            RP_TRY(rpexec_run_keep(r, op, &update, wanted + first));
        }
        if (p.trained && step->number != 0) {
            const rpexec_layer *layer = rpexec_model_layer(r->plan->model, p.layer);
            rpexec_run_adam(r, lane, step, layer, p.inside - layer->frozen + p.begin, &update);
        }
    }
    return RP_OK;
}

rp_status rpexec_run_sharded_update(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    rpexec_run_step step;
    if (trains_tied(r)) {
        add_tables(r, op, lane);
    }
    const rpexec_squares squares = squares_of(r, op, lane);
    if (!rpexec_run_agree(r, op, &squares, &step)) {
        return RP_BROKEN; /* somebody else has failed */
    }
    for (uint32_t stage = 0; stage < r->program->stage_count; stage++) {
        RP_TRY(update_stage(r, op, stage, &step, lane));
    }
    return RP_OK;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* Moves Adam's arrays of a rank's share of a stage, masters and moments, from or to the state. */
static void move_piece(rpexec_run *r, const rpexec_update *update, uint64_t whole, uint64_t moments,
                       bool load)
{
    const rpexec_state *state = r->e->state;
    const struct {
        float *on_gpu, *in_state;
    } arrays[] = {{update->master, state->master + whole},
                  {update->m, state->m + moments},
                  {update->v, state->v + moments}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        float *to = load ? arrays[i].on_gpu : arrays[i].in_state;
        const float *from = load ? arrays[i].in_state : arrays[i].on_gpu;
        rpexec_run_transfer(r, to, from, update->count * sizeof(float));
    }
}

static void move_stage(rpexec_run *r, uint32_t gpu, uint32_t stage, bool load)
{
    const rpexec_state *state = r->e->state;
    const rpexec_home *home = rpexec_plan_home(r->plan, gpu, stage);
    rpexec_pieces p = pieces_of(r, gpu, home->begin, home->end);
    while (rpexec_pieces_next(&p)) {
        const rpexec_update update = update_of(r, gpu, stage, &p);
        uint64_t whole = state->trained[home->begin] + p.trained_at + p.begin;
        bool tied = p.table && trains_tied(r); /* counted in the embedding's place */
        if (p.trained) {
            move_piece(r, &update, load && tied ? p.begin : whole, tied ? p.begin : whole, load);
        }
    }
}

/* Loads the weights that stay on a GPU: its shares, or all of them. */
static void load_weights(rpexec_run *r, uint32_t gpu, const rpexec_home *home)
{
    void *to = rpexec_run_at(r, home->weights);
    void *from = rpexec_state_working(r->e->state, home->begin);
    rpexec_pieces p = pieces_of(r, gpu, home->begin, home->end);
    while (to != NULL && rpexec_pieces_next(&p)) {
        if (gathers(r)) {
            rpexec_run_transfer(r, element(r, to, p.packed), element(r, from, p.at + p.begin),
                                bytes_of(r, p.share));
        } else {
            rpexec_run_transfer(r, element(r, to, p.at), element(r, from, p.at),
                                bytes_of(r, p.count));
        }
    }
}

void rpexec_run_load_sharded(rpexec_run *r)
{
    for (uint32_t gpu = 0; gpu < r->program->gpu_count; gpu++) {
        for (uint32_t stage = 0; stage < r->program->stage_count; stage++) {
            load_weights(r, gpu, rpexec_plan_home(r->plan, gpu, stage));
            if (!sharding_of(r)->host_optimizer) {
                move_stage(r, gpu, stage, true);
            }
        }
    }
}

bool rpexec_run_shards_are_trained(const rpexec_run *r)
{
    return r->plan->sharded != NULL && !sharding_of(r)->host_optimizer;
}

void rpexec_run_store_sharded(rpexec_run *r)
{
    rpexec_state *state = r->e->state;
    if (!rpexec_run_shards_are_trained(r)) {
        return; /* the host has trained the state itself */
    }
    for (uint32_t gpu = 0; gpu < r->program->gpu_count; gpu++) {
        for (uint32_t stage = 0; stage < r->program->stage_count; stage++) {
            move_stage(r, gpu, stage, false);
        }
    }
    for (uint32_t layer = 0; layer < r->plan->model->layer_count; layer++) {
        rpexec_state_refresh(state, layer);
    }
}
