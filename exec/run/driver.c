/* Common parts of drivers: the clock, random delays, messages of failures. */
#include "exec/run/driver.h"

#include "common/base/log.h"
#include "exec/operators/random.h"

#include <stdio.h>
#include <time.h>

const char *rpexec_attention_text(rpexec_attention_by by)
{
    static const char *const names[] = {"own", "auto", "cudnn"};
    return names[by];
}

const char *rpexec_transport_text(rpexec_transport transport)
{
    static const char *const names[] = {"auto", "copy", "staged", "nccl"};
    return names[transport];
}

int64_t rpexec_driver_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

const rpexec_operators *rpexec_driver_operators(const rpexec_driver_type *type,
                                                const rpexec_driver *driver, rp_dtype dtype)
{
    return (type->operators_of != NULL ? type->operators_of(driver) : type->operators)[dtype];
}

uint32_t rpexec_driver_missing(const rp_program *p, const bool *happened, uint32_t op)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        if (!happened[rp_wait_op(p->waits[w])]) {
            return rp_wait_op(p->waits[w]);
        }
    }
    return p->op_count;
}

bool rpexec_driver_waits_for(const rp_program *p, uint32_t op, uint32_t other)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        if (rp_wait_op(p->waits[w]) == other) {
            return true;
        }
    }
    return false;
}

static void sleep_until(int64_t time_ns)
{
    struct timespec t = {.tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

void rpexec_driver_delay(const rpexec_driver_config *config, uint32_t op)
{
    rp_op_class class = rp_op_kind_class((rp_op_kind)config->plan->program->ops[op].kind);
    bool meant = config->delay_classes == 0 || (config->delay_classes >> class & 1) != 0;
    if (config->delay_us != 0 && meant) {
        uint64_t bits = rpexec_random_bits(config->delay_seed, 0, op);
        sleep_until(rpexec_driver_now_ns() + (int64_t)(bits % (1000 * (uint64_t)config->delay_us)));
    }
}

bool rpexec_driver_is_idle(const rpexec_driver_config *config, void *context, int64_t *last_end_ns)
{
    int64_t now = rpexec_driver_now_ns();
    if (config->watchdog_s == 0 || now - *last_end_ns <= INT64_C(1000000000) * config->watchdog_s) {
        return false;
    }
    bool excused = config->excused != NULL && config->excused(context);
    *last_end_ns = excused ? now : *last_end_ns;
    return !excused;
}

void rpexec_driver_log_failure(const rpexec_plan *plan, uint32_t op, rp_status status)
{
    const rp_op *o = &plan->program->ops[op];
    char name[RP_OP_NAME_SIZE];
    if (status == RP_LOST) {
        return; /* logged by the code that noticed it */
    }
    rp_op_name(o, name);
    const rp_queue *at = &plan->program->queues[plan->order.queue_of[op]];
    char where[32] = "host";
    if (rp_queue_kind_on_gpu((rp_queue_kind)at->kind)) {
        snprintf(where, sizeof where, "GPU %u", at->gpu);
    }
    rp_log_error("%s failed (%s, stage %u, microbatch %u): %s", name, where, o->stage,
                 o->microbatch, rp_status_text(status));
}

void rpexec_driver_log_wait(const rpexec_plan *plan, uint32_t queue, uint32_t op, uint32_t other,
                            const char *text)
{
    const rp_program *p = plan->program;
    char name[RP_OP_NAME_SIZE];
    char other_name[RP_OP_NAME_SIZE];
    rp_op_name(&p->ops[op], name);
    if (other != p->op_count) {
        rp_op_name(&p->ops[other], other_name);
    }
    rp_log_error("  GPU %u, %s: %s waits for %s", p->queues[queue].gpu,
                 rp_queue_kind_text((rp_queue_kind)p->queues[queue].kind), name,
                 other != p->op_count ? other_name : text);
}
