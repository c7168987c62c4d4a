#include "common/base/units.h"
#include "sim/rpdiff/diff.h"

#include <inttypes.h>
#include <math.h>

#define PS_PER_MS 1e9

/* ---- for people -------------------------------------------------------------------------------
 */

/* Without the end of the line. */
static void print_three(const char *name, const rpsim_diff_time *time, FILE *stream)
{
    double pct = rpsim_diff_pct(time);
    fprintf(stream, "%-24s %14.3f %14.3f", name, time->predicted_ps / PS_PER_MS,
            time->measured_ps / PS_PER_MS);
    if (isnan(pct)) {
        fprintf(stream, " %9s", "-");
    } else {
        fprintf(stream, " %+8.1f%%", pct);
    }
}

static void print_time(const char *name, const rpsim_diff_time *time, FILE *stream)
{
    print_three(name, time, stream);
    fputc('\n', stream);
}

static void print_kinds(const rpsim_diff *d, FILE *stream)
{
    fprintf(stream, "\n%-24s %14s %14s %9s %7s %10s\n", "ops", "predicted ms", "measured ms",
            "error", "count", "mean |d|");
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        const rpsim_diff_kind *k = &d->kinds[kind];
        if (k->count > 0) {
            print_three(rp_op_kind_text((rp_op_kind)kind), &k->sum, stream);
            fprintf(stream, " %7" PRIu32 " %7.3f ms\n", k->count,
                    k->difference_ps / k->count / PS_PER_MS);
        }
    }
}

static void print_worst(const rpsim_diff *d, FILE *stream)
{
    const rp_program *p = d->measured->program;
    if (d->worst_count == 0) {
        return;
    }
    fprintf(stream, "\n%-24s %14s %14s %9s %7s\n", "worst ops", "predicted ms", "measured ms",
            "error", "op");
    for (uint32_t i = 0; i < d->worst_count; i++) {
        uint32_t op = d->worst[i];
        char name[RP_OP_NAME_SIZE];
        char line[RP_OP_NAME_SIZE + 32];
        const rp_queue *queue = &p->queues[rp_program_queue_of(p, op)];
        rp_op_name(&p->ops[op], name);
        snprintf(line, sizeof line, "%s, host", name);
        if (rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
            snprintf(line, sizeof line, "%s, GPU %u", name, queue->gpu);
        }
        const rpsim_diff_time time = {
            (double)(d->predicted->end_ps[op] - d->predicted->start_ps[op]),
            (double)(d->measured->end_ps[op] - d->measured->start_ps[op])};
        print_time(line, &time, stream);
    }
}

void rpsim_diff_print(const rpsim_diff *d, FILE *stream)
{
    const rp_program *p = d->measured->program;
    char name[48];
    fprintf(stream, "%-24s %14s %14s %9s\n", "", "predicted ms", "measured ms", "error");
    print_time("all", &d->makespan, stream);
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        snprintf(name, sizeof name, "iteration %" PRIu32, i);
        print_time(name, &d->iterations[i], stream);
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        snprintf(name, sizeof name, "GPU %" PRIu32 " computes", gpu);
        print_time(name, &d->gpus[gpu].busy, stream);
        snprintf(name, sizeof name, "GPU %" PRIu32 " ends", gpu);
        print_time(name, &d->gpus[gpu].end, stream);
    }
    print_kinds(d, stream);
    print_worst(d, stream);
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static void write_time(rp_json *json, const rpsim_diff_time *time)
{
    rp_json_member_double(json, "predicted_ms", time->predicted_ps / PS_PER_MS);
    rp_json_member_double(json, "measured_ms", time->measured_ps / PS_PER_MS);
    rp_json_member_double(json, "error_pct", rpsim_diff_pct(time));
}

static void write_kinds(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "kinds");
    rp_json_begin_array(json);
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        if (d->kinds[kind].count > 0) {
            rp_json_begin_object(json);
            rp_json_member_string(json, "kind", rp_op_kind_text((rp_op_kind)kind));
            rp_json_member_uint(json, "count", d->kinds[kind].count);
            write_time(json, &d->kinds[kind].sum);
            rp_json_member_double(json, "mean_difference_ms",
                                  d->kinds[kind].difference_ps / d->kinds[kind].count / PS_PER_MS);
            rp_json_end_object(json);
        }
    }
    rp_json_end_array(json);
}

static void write_gpus(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "gpus");
    rp_json_begin_array(json);
    for (uint32_t gpu = 0; gpu < d->measured->program->gpu_count; gpu++) {
        rp_json_begin_object(json);
        rp_json_member_uint(json, "gpu", gpu);
        rp_json_key(json, "busy");
        rp_json_begin_object(json);
        write_time(json, &d->gpus[gpu].busy);
        rp_json_end_object(json);
        rp_json_key(json, "end");
        rp_json_begin_object(json);
        write_time(json, &d->gpus[gpu].end);
        rp_json_end_object(json);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_worst(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "worst_ops");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < d->worst_count; i++) {
        uint32_t op = d->worst[i];
        char name[RP_OP_NAME_SIZE];
        rp_op_name(&d->measured->program->ops[op], name);
        const rpsim_diff_time time = {
            (double)(d->predicted->end_ps[op] - d->predicted->start_ps[op]),
            (double)(d->measured->end_ps[op] - d->measured->start_ps[op])};
        rp_json_begin_object(json);
        rp_json_member_uint(json, "op", op);
        rp_json_member_string(json, "name", name);
        write_time(json, &time);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

void rpsim_diff_write_json(const rpsim_diff *d, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 2);
    rp_json_begin_object(&json);
    write_time(&json, &d->makespan);
    rp_json_key(&json, "iterations");
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < d->measured->program->iteration_count; i++) {
        rp_json_begin_object(&json);
        write_time(&json, &d->iterations[i]);
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    write_gpus(d, &json);
    write_kinds(d, &json);
    write_worst(d, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}
