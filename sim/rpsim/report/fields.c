/* The keys of cli.md's JSON object, shared by JSON, CSV and the store. */
#include "sim/rpsim/report/report.h"

#include "common/base/units.h"

#include <math.h>
#include <string.h>

static rpsim_field text_field(const char *key, const char *text)
{
    return (rpsim_field){
        .key = key, .type = text != NULL ? RPSIM_VALUE_TEXT : RPSIM_VALUE_NULL, .text = text};
}

static rpsim_field uint_field(const char *key, uint64_t value)
{
    return (rpsim_field){.key = key, .type = RPSIM_VALUE_UINT, .uint = value};
}

static rpsim_field ms_field(const char *key, int64_t ps)
{
    return (rpsim_field){.key = key, .type = RPSIM_VALUE_MS, .ps = ps};
}

static rpsim_field real_field(const char *key, double value)
{
    return (rpsim_field){
        .key = key, .type = isnan(value) ? RPSIM_VALUE_NULL : RPSIM_VALUE_REAL, .real = value};
}

static rpsim_field null_field(const char *key)
{
    return (rpsim_field){.key = key};
}

/* Null where nothing is known: a bound of 0 would say so too, but not as clearly. */
static rpsim_field bound_field(const char *key, const rpsim_row *row, rpsim_bound_class of_class)
{
    int64_t ps = rpsim_bounds_of_class(&row->result.bounds, of_class);
    return ps > 0 ? ms_field(key, ps) : null_field(key);
}

static rpsim_field round_field(const rpsim_row *row)
{
    if (row->from_program || !row->schedule->rounds) {
        return null_field("round");
    }
    return row->config.round == RP_ROUND_ALL || row->hardware
               ? text_field("round", "all")
               : uint_field("round", row->config.round);
}

double rpsim_row_microbatch_size(const rpsim_row *row)
{
    double microbatches = (double)row->workload.calls * row->workload.microbatches;
    return (double)row->workload.global_batch / microbatches;
}

bool rpsim_row_of_one_iteration(const rpsim_row *row)
{
    return row->config.iterations == 1 || !row->from_program;
}

double rpsim_row_tokens_per_s(const rpsim_row *row)
{
    double period_ps = row->result.period_ps;
    uint32_t slices = row->workload.sequence_slices != 0 ? row->workload.sequence_slices : 1;
    double tokens = (double)row->workload.global_batch * row->workload.seq_len / slices;
    return period_ps > 0 ? tokens / (period_ps * 1e-12) : NAN;
}

static uint32_t config_fields(const rpsim_row *row, rpsim_field *f)
{
    uint32_t n = 0;
    const rp_schedule_config *config = &row->config;
    f[n++] = text_field("schedule", row->schedule_name);
    f[n++] = text_field("model", row->model_name);
    f[n++] = text_field("platform", row->platform_name);
    f[n++] = uint_field("gpus", config->gpus);
    f[n++] = uint_field("microbatches", row->workload.microbatches);
    f[n++] = real_field("microbatch_size", rpsim_row_microbatch_size(row));
    f[n++] = uint_field("seq_len", row->workload.seq_len);
    f[n++] = text_field("fidelity", row->hardware ? "hardware" : "stage");
    f[n++] = text_field("partition", row->partition_text);
    f[n++] = text_field("recompute", rp_recompute_text(config->recompute));
    f[n++] = text_field("optimizer", config->asynchronous ? "async" : "sync");
    f[n++] = round_field(row);
    f[n++] = row->hardware ? text_field("grain", row->workload.layer_grain ? "layer" : "stage")
                           : null_field("grain");
    f[n++] = uint_field("iterations", config->iterations);
    return n;
}

static uint32_t result_fields(const rpsim_row *row, rpsim_field *f)
{
    uint32_t n = 0;
    const rp_metrics *m = &row->result.metrics;
    double gpu_time_ps = (double)m->makespan_ps * row->config.gpus;
    double paper_ps =
        (double)m->makespan_ps - (double)(m->fill_ps + m->drain_ps) / row->config.gpus;
    f[n++] = uint_field("ops", row->ops);
    f[n++] = ms_field("makespan_ms", m->makespan_ps);
    f[n++] = ms_field("bubble_ms", m->bubble_ps);
    f[n++] = real_field("bubble_pct", 100.0 * (double)m->bubble_ps / gpu_time_ps);
    f[n++] = ms_field("fill_ms", m->fill_ps);
    f[n++] = ms_field("switch_ms", m->switch_ps);
    f[n++] = ms_field("drain_ms", m->drain_ps);
    f[n++] = ms_field("intra_ms", m->intra_ps);
    bool one = rpsim_row_of_one_iteration(row);
    bool comm = one || !row->hardware;
    f[n++] = comm ? ms_field("comm_total_ms", m->comm_total_ps) : null_field("comm_total_ms");
    f[n++] = comm ? ms_field("comm_exposed_ms", m->comm_exposed_ps) : null_field("comm_exposed_ms");
    f[n++] = one ? ms_field("lower_bound_ms", m->lower_bound_ps) : null_field("lower_bound_ms");
    f[n++] = real_field("iteration_ms", row->result.period_ps / (double)RP_PS_PER_MS);
    f[n++] = real_field("iteration_paper_ms", one ? paper_ps / (double)RP_PS_PER_MS : NAN);
    f[n++] = real_field("tokens_per_s", rpsim_row_tokens_per_s(row));
    return n;
}

/* Null at stage fidelity. Where the platform does not say how much host memory there is, nobody
 * knows whether what fits on the GPUs fits. */
static uint32_t memory_fields(const rpsim_row *row, rpsim_field *f)
{
    uint32_t n = 0;
    const rpsim_memory *m = &row->memory;
    rpsim_field fits = {.key = "fits", .type = RPSIM_VALUE_BOOL, .uint = m->fits};
    rpsim_field peaks = {.key = "peak_gpu_bytes",
                         .type = RPSIM_VALUE_UINTS,
                         .uints = m->peak_gpu_bytes,
                         .uint = m->gpu_count};
    bool unknown = !m->known || (m->fits && m->host_bytes == 0);
    f[n++] = unknown ? null_field("fits") : fits;
    f[n++] = text_field("oom_reason", m->known && !m->fits ? m->oom_reason : NULL);
    f[n++] = m->known ? peaks : null_field("peak_gpu_bytes");
    f[n++] = m->known ? uint_field("peak_host_bytes", m->peak_host_bytes)
                      : null_field("peak_host_bytes");
    f[n++] = m->host_bytes != 0 ? uint_field("host_memory_bytes", m->host_bytes)
                                : null_field("host_memory_bytes");
    return n;
}

uint32_t rpsim_row_fields(const rpsim_study *study, const rpsim_row *row,
                          rpsim_field fields_out[static RPSIM_MAX_FIELDS])
{
    rpsim_field *f = fields_out;
    uint32_t n = config_fields(row, f);
    n += result_fields(row, f + n);
    n += memory_fields(row, f + n);
    if (study->options->max_seqlen) {
        f[n++] = uint_field("max_seqlen", row->max_seqlen);
    }
    f[n++] = uint_field("seed", study->options->seed);
    f[n++] = real_field("sim_wall_s", row->result.wall_s);
    bool noise = row->replica_ps != NULL;
    const rpsim_quantiles *q = &row->quantiles;
    f[n++] = real_field("jitter_cv", noise ? study->options->jitter : NAN);
    f[n++] = noise ? uint_field("replicas", study->options->replicas) : null_field("replicas");
    f[n++] = real_field("iteration_p05_ms", noise ? q->p05 / (double)RP_PS_PER_MS : NAN);
    f[n++] = real_field("iteration_median_ms", noise ? q->median / (double)RP_PS_PER_MS : NAN);
    f[n++] = real_field("iteration_p95_ms", noise ? q->p95 / (double)RP_PS_PER_MS : NAN);
    if (study->options->slow_factor != 0) {
        f[n++] = uint_field("slow_gpu", study->options->slow_gpu);
        f[n++] = real_field("slow_factor", study->options->slow_factor);
    }
    f[n++] = text_field("costs", row->costs->name);
    f[n++] = row->hardware ? uint_field("global_batch", row->workload.global_batch)
                           : null_field("global_batch");
    f[n++] =
        row->hardware ? uint_field("accumulate", row->workload.calls) : null_field("accumulate");
    f[n++] = bound_field("lower_bound_any_ms", row, RPSIM_BOUND_CLASS_ANY);
    f[n++] = bound_field("lower_bound_same_ms", row, RPSIM_BOUND_CLASS_SAME);
    f[n++] = row->rank != 0 ? uint_field("rank", row->rank) : null_field("rank");
    return n;
}

rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out)
{
    const char *dash = strrchr(row->model_name, '-');
    const char *size = dash != NULL ? dash + 1 : row->model_name;
    return rp_arena_print(arena, name_out, "%s_%s.svg", size, row->schedule_name);
}
