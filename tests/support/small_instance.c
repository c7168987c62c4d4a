#include "tests/support/small_instance.h"

#include <string.h>

typedef struct stage_work {
    int64_t forward, backward, input;
} stage_work;

static stage_work add_layers(const rp_costs *costs, uint32_t begin, uint32_t end)
{
    stage_work w = {0};
    for (uint32_t i = begin; i < end; i++) {
        w.forward += costs->fwd_ps[i];
        w.backward += costs->bwd_ps[i];
        w.input += costs->bwd_input_ps[i];
    }
    return w;
}

static slow_job *add_job(slow_instance *in, int count, int64_t pre, int64_t work)
{
    slow_job *job = &in->jobs[in->job_count++];
    *job = (slow_job){.pre = pre, .work = work, .count = count, .gpu = SLOW_ANY_GPU, .with = -1};
    return job;
}

static void wait_for(slow_job *job, int other)
{
    if (other >= 0) {
        job->after[job->after_count++] = other;
    }
}

/* Adds all stages of some microbatches: forwards, then backwards with their weight parts. */
static void add_pipeline(const rp_schedule_config *c, bool split, rp_test_freedom freedom,
                         int count, slow_instance *out)
{
    const rp_partition *p = c->partition;
    int stages = (int)p->forward_count;
    int first = out->job_count;
    uint32_t layer = 0;
    stage_work works[SLOW_MOST_JOBS];
    for (int s = 0; s < stages; s++) {
        bool head = s + 1 == stages;
        works[s] = add_layers(c->costs, layer, layer + p->forward_layers[s]);
        layer += p->forward_layers[s];
        int64_t forward = works[s].forward + (head ? c->costs->head_fwd_ps : 0);
        slow_job *job = add_job(out, count, 0, forward);
        job->gpu = freedom == RP_TEST_FIXED ? s % (int)c->gpus : SLOW_ANY_GPU;
        wait_for(job, s > 0 ? first + s - 1 : -1);
    }
    int before = -1;
    for (int s = stages; s-- > 0;) {
        int64_t again = rp_recompute_has_ops(c->recompute) ? works[s].forward : 0;
        int64_t pre = c->recompute == RP_RECOMPUTE_EARLY ? again : 0;
        int64_t head = s + 1 == stages ? c->costs->head_bwd_ps : 0;
        int64_t own = split ? works[s].input : works[s].backward;
        slow_job *job = add_job(out, count, pre, again - pre + own + head);
        int index = out->job_count - 1;
        wait_for(job, first + s);
        wait_for(job, before);
        job->gpu = out->jobs[first + s].gpu;
        job->with = freedom == RP_TEST_ANY_GPU ? first + s : -1;
        before = index;
        if (split) {
            job = add_job(out, count, 0, works[s].backward - works[s].input);
            wait_for(job, index);
            job->gpu = out->jobs[first + s].gpu;
            job->with = freedom == RP_TEST_FIXED ? -1 : index;
        }
    }
}

bool rp_test_pipeline_instance(const rp_schedule_config *c, bool split, rp_test_freedom freedom,
                               slow_instance *out)
{
    uint32_t groups = freedom == RP_TEST_ANY_BATCH ? c->microbatches : 1;
    *out = (slow_instance){.gpus = (int)c->gpus, .hop = c->costs->hop_ps};
    if (groups * c->partition->forward_count * (split ? 3 : 2) > SLOW_MOST_JOBS ||
        c->microbatches > SLOW_MOST_COUNT) {
        return false;
    }
    for (uint32_t g = 0; g < groups; g++) {
        add_pipeline(c, split, freedom, (int)(c->microbatches / groups), out);
    }
    return true;
}

static void add_round(const rp_schedule_config *c, int count, slow_instance *out)
{
    const rp_partition *p = c->partition;
    uint32_t layer = 0;
    int last = -1; /* the last forward */
    int before = -1;
    for (uint32_t s = 0; s < p->forward_count; s++) {
        stage_work w = add_layers(c->costs, layer, layer + p->forward_layers[s]);
        layer += p->forward_layers[s];
        wait_for(add_job(out, count, 0, w.forward), last);
        last = out->job_count - 1;
    }
    bool fused = layer < c->costs->layers;
    uint32_t end = c->costs->layers;
    for (uint32_t j = 0; j < p->backward_count; j++) {
        stage_work w = add_layers(c->costs, end - p->backward_layers[j], end);
        end -= p->backward_layers[j];
        bool again = rp_recompute_has_ops(c->recompute) || (j == 0 && fused);
        int64_t ahead = (again ? w.forward : 0) + (j == 0 ? c->costs->head_fwd_ps : 0);
        int64_t pre = c->recompute == RP_RECOMPUTE_EARLY ? ahead : 0;
        int64_t head = j == 0 ? c->costs->head_bwd_ps : 0;
        slow_job *job = add_job(out, count, pre, ahead - pre + w.backward + head);
        wait_for(job, last);
        wait_for(job, before);
        before = out->job_count - 1;
    }
}

bool rp_test_roundpipe_instance(const rp_schedule_config *c, slow_instance *out)
{
    uint32_t rounds = (c->microbatches - 1) / c->round + 1;
    uint32_t stages = c->partition->forward_count + c->partition->backward_count;
    *out = (slow_instance){.gpus = (int)c->gpus, .hop = c->costs->hop_ps};
    if (rounds * stages > SLOW_MOST_JOBS || c->round > SLOW_MOST_COUNT) {
        return false;
    }
    for (uint32_t begin = 0; begin < c->microbatches; begin += c->round) {
        uint32_t left = c->microbatches - begin;
        add_round(c, (int)(left < c->round ? left : c->round), out);
    }
    return true;
}
