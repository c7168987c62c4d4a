/* Columns of rpsim's output: the functions of their values, then a row for each column. */
#include "sim/study/columns.h"

#include "common/base/text.h"
#include "common/base/units.h"
#include "sim/study/explain_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- quantities of a row --------------------------------------------------------------------- */

double rpsim_row_microbatch_size(const rpsim_row *row)
{
    double microbatches = (double)row->run.decided.accumulate * row->run.decided.microbatches;
    return (double)row->run.global_batch / microbatches;
}

uint32_t rpsim_row_gpus(const rpsim_row *row)
{
    return row->run.gpus * rp_layout_gpus(&row->run.decided.layout);
}

uint32_t rpsim_row_global_batch(const rpsim_row *row)
{
    return row->run.global_batch * rp_layout_data(&row->run.decided.layout);
}

bool rpsim_row_of_one_iteration(const rpsim_row *row)
{
    return row->run.decided.iterations == 1 || !row->from_program;
}

bool rpsim_row_same_group(const rpsim_row *a, const rpsim_row *b)
{
    return strcmp(a->model_name, b->model_name) == 0 && a->compared == b->compared &&
           a->run.decided.seq_len == b->run.decided.seq_len;
}

/* At hardware fidelity the communication of several iterations is not known. */
static bool knows_communication(const rpsim_row *row)
{
    return rpsim_row_of_one_iteration(row) || row->run.stage;
}

/* ---- makers of fields ------------------------------------------------------------------------ */

static rpsim_field text(const char *value)
{
    return (rpsim_field){.type = value != NULL ? RPSIM_VALUE_TEXT : RPSIM_VALUE_NULL,
                         .text = value};
}

static rpsim_field whole(uint64_t value)
{
    return (rpsim_field){.type = RPSIM_VALUE_UINT, .uint = value};
}

static rpsim_field ms(int64_t ps)
{
    return (rpsim_field){.type = RPSIM_VALUE_MS, .ps = ps};
}

static rpsim_field real(double value)
{
    return (rpsim_field){.type = RPSIM_VALUE_REAL, .real = value};
}

static rpsim_field real_ms(double ps)
{
    return (rpsim_field){.type = RPSIM_VALUE_REAL_MS, .real = ps};
}

static rpsim_field object(rpsim_write_object write)
{
    return (rpsim_field){.type = RPSIM_VALUE_OBJECT, .object = write};
}

static rpsim_field known(bool is_known, rpsim_field field)
{
    return is_known ? field : (rpsim_field){.type = RPSIM_VALUE_NULL};
}

static rpsim_field asked(bool is_asked, rpsim_field field)
{
    return is_asked ? field : (rpsim_field){.type = RPSIM_VALUE_ABSENT};
}

/* ---- values that take more than an expression ------------------------------------------------ */

static rpsim_field round_of(const rpsim_row *row)
{
    if (row->from_program || !row->run.schedule->rounds) {
        return (rpsim_field){.type = RPSIM_VALUE_NULL};
    }
    bool all = row->run.decided.round == RP_ROUND_ALL || !row->run.stage;
    return all ? text("all") : whole(row->run.decided.round);
}

static double bucket_of(const rpsim_row *row)
{
    return (double)row->run.decided.layout.reduction_bucket;
}

/* The number of servers: successive GPUs fill a server before the next. */
static uint32_t nodes_of(const rpsim_row *row)
{
    uint32_t of_node = row->platform->gpus / row->platform->nodes;
    return (rpsim_row_gpus(row) - 1) / of_node + 1;
}

static double bubble_pct_of(const rpsim_row *row)
{
    const rp_metrics *m = &row->result.metrics;
    return 100.0 * (double)m->bubble_ps / ((double)m->makespan_ps * row->run.gpus);
}

static double paper_ps_of(const rpsim_row *row)
{
    const rp_metrics *m = &row->result.metrics;
    return (double)m->makespan_ps - (double)(m->fill_ps + m->drain_ps) / row->run.gpus;
}

/* Hours to train on the tokens of --tokens. */
static double hours_of(const rpsim_row *row, const rpsim_setup *o)
{
    return o->tokens / rpsim_row_tokens_per_s(row) / 3600;
}

static double usd_of(const rpsim_row *row, const rpsim_setup *o)
{
    double hours = hours_of(row, o);
    return o->usd_per_hour * hours + o->usd_per_kwh * rpsim_kwh(o->watts, hours);
}

/* A class's bound; null if it is unknown, which is clearer than a bound of 0. */
static rpsim_field bound_of(const rpsim_row *row, rpsim_bound_class of_class)
{
    int64_t ps = rpsim_bounds_of_class(&row->result.bounds, of_class);
    return known(ps > 0, ms(ps));
}

/* Null if the run fits on the GPUs but the platform does not say how much host memory it has. */
static rpsim_field fits_of(const rpsim_memory *m)
{
    return known(m->known && !(m->fits && m->host_bytes == 0),
                 (rpsim_field){.type = RPSIM_VALUE_BOOL, .uint = m->fits});
}

/* Traits of a row's schedule; a given program whose schedule is not registered has none. */
static const rp_traits *traits_of(const rpsim_row *row)
{
    static const rp_traits none = {0};
    return row->run.schedule != NULL ? &row->run.schedule->traits : &none;
}

static rpsim_field each_gpu(const rpsim_memory *m, const uint64_t *bytes)
{
    rpsim_field field = {.type = RPSIM_VALUE_UINTS, .uints = bytes, .count = m->gpu_count};
    for (uint32_t i = 0; bytes != NULL && i < m->gpu_count; i++) {
        field.uint = bytes[i] > field.uint ? bytes[i] : field.uint;
    }
    return known(m->known && bytes != NULL, field);
}

static const rp_types *types_of(const rpsim_row *row)
{
    return &row->run.decided.types;
}

static const char *frozen_of(const rpsim_row *row)
{
    rp_frozen frozen = (rp_frozen)types_of(row)->frozen;
    bool usual = frozen == RP_FROZEN_DTYPE;
    bool adapters = !row->run.stage && row->run.model != NULL && row->run.model->lora_rank != 0;
    const char *word = usual ? rp_dtype_text(row->run.decided.dtype) : rp_frozen_text(frozen);
    return adapters ? word : NULL;
}

/* Tokens per second at a percentile, `which` being 0 for p10, 1 for p50, 2 for p90. */
static rpsim_field speed(const rpsim_row *row, const rpsim_setup *o, int which)
{
    const rpsim_intervals *i = row->intervals;
    double relative = i == NULL    ? NAN
                      : which == 0 ? i->speed.p10
                      : which == 1 ? i->speed.p50
                                   : i->speed.p90;
    return asked(o->run.hardware, real(relative * rpsim_row_tokens_per_s(row)));
}

/* Writes an object for each input that the run uses. */
static void write_inputs(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    (void)study;
    if (row->intervals == NULL) {
        rp_json_null(json);
        return;
    }
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < row->intervals->input_count; i++) {
        const rpsim_input *input = &row->intervals->inputs[i];
        rp_json_begin_object(json);
        rp_json_key(json, "name");
        rp_json_string(json, rpsim_input_names[input->id]);
        rp_json_key(json, "kind");
        rp_json_string(json, rp_provenance_text(input->kind));
        rp_json_key(json, "matters_pct");
        rp_json_double(json, input->matters_pct);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

/* Writes the errors of measured runs of the row's stack and class. */
static void write_ledger(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    (void)study;
    if (row->error.rows == 0) {
        rp_json_null(json);
        return;
    }
    rp_json_begin_object(json);
    rp_json_member_uint(json, "rows", row->error.rows);
    rp_json_member_double(json, "mean_pct", row->error.mean_pct);
    rp_json_member_double(json, "worst_pct", row->error.worst_pct);
    rp_json_end_object(json);
}

/* Writes how often the row beats every other row of the same model, by that row's index in the
 * array. */
static void write_beats(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    rp_json_begin_object(json);
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *other = &study->rows[i];
        if (other != row && rpsim_row_same_group(row, other)) {
            char index[16];
            snprintf(index, sizeof index, "%" PRIu32, i);
            rp_json_key(json, index);
            rp_json_double(json, rpsim_row_beats(study, row, other));
        }
    }
    rp_json_end_object(json);
}

/* ---- what the tables show instead of a value ------------------------------------------------- */

/* Time as a percentage of the GPUs' time. */
static double share(const rpsim_field *field, const rpsim_row *row)
{
    int64_t makespan_ps = row->result.metrics.makespan_ps;
    double percent = makespan_ps > 0 ? 100.0 / ((double)makespan_ps * row->run.gpus) : 0.0;
    return percent * (double)field->ps;
}

/* Percent by which the makespan is above a lower bound. */
static double distance(const rpsim_field *field, const rpsim_row *row)
{
    double gap = (double)row->result.metrics.makespan_ps / (double)field->ps - 1.0;
    return field->ps > 0 ? 100.0 * gap : NAN;
}

/* Speed as a percentage of the speed limit. */
static double share_of_limit(const rpsim_field *field, const rpsim_row *row)
{
    return 100.0 * rpsim_row_tokens_per_s(row) / field->real;
}

static double gigabytes(const rpsim_field *field, const rpsim_row *row)
{
    (void)row;
    return 1e-9 * (double)field->uint;
}

/* ---- the columns ----------------------------------------------------------------------------- */

#define STORED(name) .metric = name
#define TABLE(which, where, head, digits)                                                          \
    .tables = RPSIM_TABLE_##which, .place = where, .heading = head, .decimals = digits
/* For columns that only the table of --columns contains. */
#define HEADED(head, digits) .heading = head, .decimals = digits

/* X(key, field, ...): a column's key, its value computed from the row `row`, its metrics `m` and
 * the setup `o`, and its other members. */
#define COLUMNS(X)                                                                                 \
    X(schedule, text(row->schedule_name), .help = "name", TABLE(ALL, 3, "schedule", 0))            \
    X(model, text(row->model_name),                                                                \
      .help = "name; of `--costs` alone, the table's name up to `@`")                              \
    X(platform, text(row->platform_name),                                                          \
      .help = "name, with what `--set` changed; null where none was used")                         \
    X(parameters,                                                                                  \
      known(row->run.model != NULL,                                                                \
            whole(row->run.model != NULL ? row->run.model->total_parameters : 0)),                 \
      .help = "of the model, all of them, a tied table once; null with `--costs` alone")           \
    X(gpus, whole(rpsim_row_gpus(row)), .help = "number of GPUs")                                  \
    X(data_parallel, whole(rp_layout_data(&row->run.decided.layout)),                              \
      .help = "copies of the pipeline; all do the same, and one is simulated")                     \
    X(tensor_parallel, whole(rp_layout_tensor(&row->run.decided.layout)),                          \
      .help = "GPUs that share each layer; likewise")                                              \
    X(sequence_parallel, whole(rp_layout_sequence(&row->run.decided.layout)),                      \
      .help = "of these, GPUs that share the tokens outside of matrices; 1: each has all")         \
    X(expert_parallel, whole(rp_layout_expert(&row->run.decided.layout)),                          \
      .help = "copies that share the experts of each layer")                                       \
    X(expert_tensor_parallel, whole(rp_layout_expert_tensor(&row->run.decided.layout)),            \
      .help = "GPUs that share each expert, or each layer's MLP")                                  \
    X(zero, whole(rp_layout_zero(&row->run.decided.layout)),                                       \
      .help = "what copies share: 1 the optimizer, 2 gradients, too, 3 weights, too; 0 nothing")   \
    X(bucket_mb, known(bucket_of(row) != 0, real(bucket_of(row) / (1u << 20))), .unit = "MiB",     \
      .help = "gradients that copies reduce while a backward goes on; null: all of a stage")       \
    X(simulated_gpus, whole(row->run.gpus),                                                        \
      .help = "of `gpus`, those of the program; each stands for as many that do the same")         \
    X(axes,                                                                                        \
      known(rp_layout_gpus(&row->run.decided.layout) > 1,                                          \
            text(rp_axes_text((rp_axes)row->run.decided.layout.axes))),                            \
      .help = "order of these on GPUs, neighbours first; null where there is one GPU of each")     \
    X(microbatches, whole(row->run.decided.microbatches),                                          \
      .help = "microbatches of a call, of one copy")                                               \
    X(microbatch_size, real(rpsim_row_microbatch_size(row)), .unit = "sequences",                  \
      .help = "average over the microbatches")                                                     \
    X(seq_len, whole(row->run.decided.seq_len), .unit = "tokens", .help = "length of a sequence")  \
    X(fidelity, text(!row->run.stage ? "hardware" : "stage"), .help = "as the option")             \
    X(partition, text(row->partition_text), .help = "layers of each stage")                        \
    X(recompute, text(rp_recompute_text(row->run.recompute)), .help = "as the option",             \
      TABLE(ALL, 4, "recompute", 0))                                                               \
    X(optimizer, text(row->run.decided.asynchronous ? "async" : "sync"), .help = "as the option",  \
      TABLE(ALL, 12, "optim", 0))                                                                  \
    X(round, round_of(row), .help = "as the option; null where the schedule has no rounds")        \
    X(grain, known(!row->run.stage, text(row->run.decided.layer_grain ? "layer" : "stage")),       \
      .help = "as the option; null at stage fidelity")                                             \
    X(iterations, whole(row->run.decided.iterations), .help = "iterations of the program")         \
    X(ops, whole(row->ops), .help = "ops of the program")                                          \
    X(makespan_ms, ms(m->makespan_ps), .unit = "ms", .help = "one iteration by itself",            \
      STORED("makespan_ps"), TABLE(RUNS, 14, "makespan ms", 3))                                    \
    X(busy_ms, ms(m->busy_ps), .stored_only = true, STORED("busy_ps"))                             \
    X(bubble_ms, ms(m->bubble_ps), .unit = "ms", .help = "GPU time without compute",               \
      STORED("bubble_ps"), TABLE(RUNS, 15, "bubble %", 3), .shown = share)                         \
    X(bubble_pct, real(bubble_pct_of(row)), .unit = "%",                                           \
      .help = "share of `bubble_ms` in makespan × GPUs")                                           \
    X(fill_ms, ms(m->fill_ps), .unit = "ms",                                                       \
      .help = "part of `bubble_ms` before each GPU's first op", STORED("fill_ps"),                 \
      TABLE(RUNS, 17, "fill", 3), .shown = share)                                                  \
    X(switch_ms, ms(m->switch_ps), .unit = "ms",                                                   \
      .help = "part between each GPU's last warm-up forward and first backward",                   \
      STORED("switch_ps"), TABLE(RUNS, 18, "switch", 3), .before = " + ", .shown = share)          \
    X(drain_ms, ms(m->drain_ps), .unit = "ms", .help = "part after each GPU's last backward",      \
      STORED("drain_ps"), TABLE(RUNS, 19, "drain", 3), .before = " + ", .shown = share)            \
    X(intra_ms, ms(m->intra_ps), .unit = "ms", .help = "the rest of `bubble_ms`",                  \
      STORED("intra_ps"), TABLE(RUNS, 20, "intra", 3), .before = " + ", .shown = share)            \
    X(comm_total_ms, known(knows_communication(row), ms(m->comm_total_ps)), .unit = "ms",          \
      .help = "stage: hop × data waits; hardware: time of all transfers", STORED("comm_total_ps")) \
    X(comm_exposed_ms, known(knows_communication(row), ms(m->comm_exposed_ps)), .unit = "ms",      \
      .help = "stage: delay of ops by hops; hardware: GPUs' waits for transfers, and for sums "    \
              "at the end",                                                                        \
      STORED("comm_exposed_ps"), TABLE(RUNS, 16, "hops ms", 3))                                    \
    X(lower_bound_ms, known(rpsim_row_of_one_iteration(row), ms(m->lower_bound_ps)), .unit = "ms", \
      .help = "on the makespan, from the program's own edges and placement",                       \
      STORED("lower_bound_ps"), TABLE(RUNS, 21, "bound %", 2), .shown = distance)                  \
    X(iteration_ms, real_ms(row->result.period_ps), .unit = "ms",                                  \
      .help = "period: of I iterations (end of the last - end of iteration I/2) / (I - I/2), I/2 " \
              "rounded down, an estimate below 16; null for a single asynchronous iteration",      \
      STORED("iteration_ps"), TABLE(RUNS, 13, "iteration ms", 3))                                  \
    X(iteration_paper_ms, known(rpsim_row_of_one_iteration(row), real_ms(paper_ps_of(row))),       \
      .unit = "ms", .help = "makespan - (fill + drain) / GPUs, the paper's estimate",              \
      TABLE(RUNS, 22, "paper est ms", 3))                                                          \
    X(tokens_per_s, real(rpsim_row_tokens_per_s(row)), .unit = "tokens/s",                         \
      .help = "tokens of a step / `iteration_ms`, never of the makespan", STORED("tokens_per_s"),  \
      TABLE(RUNS, 6, "tokens/s", 0))                                                               \
    X(tokens_per_s_p10, speed(row, o, 0), .unit = "tokens/s",                                      \
      .help = "10th percentile over the ranges of the inputs; null with `--intervals off`",        \
      STORED("tokens_per_s_p10"), TABLE(INTERVALS, 7, "p10", 0))                                   \
    X(tokens_per_s_p50, speed(row, o, 1), .unit = "tokens/s", .help = "their median, likewise",    \
      STORED("tokens_per_s_p50"))                                                                  \
    X(tokens_per_s_p90, speed(row, o, 2), .unit = "tokens/s",                                      \
      .help = "their 90th percentile, likewise", STORED("tokens_per_s_p90"),                       \
      TABLE(INTERVALS, 8, "p90", 0), .before = " - ")                                              \
    X(fits, fits_of(&row->memory),                                                                 \
      .help = "true, false, or null where the platform does not say its host memory",              \
      STORED("fits"), TABLE(HARDWARE, 11, "fits", 0))                                              \
    X(oom_reason, known(row->memory.known && !row->memory.fits, text(row->memory.oom_reason)),     \
      .help = "first allocation that does not fit, with the bytes needed and usable; else null")   \
    X(peak_gpu_bytes, each_gpu(&row->memory, row->memory.peak_gpu_bytes), .unit = "bytes",         \
      .help = "array, one per GPU", STORED("peak_gpu_bytes"), TABLE(HARDWARE, 9, "GPU GB", 1),     \
      .shown = gigabytes)                                                                          \
    X(reserved_gpu_bytes,                                                                          \
      asked(o->stack != NULL, each_gpu(&row->memory, row->memory.reserved_gpu_bytes)),             \
      .unit = "bytes",                                                                             \
      .help = "with `--stack` only: array, what PyTorch's allocator reserves (`peak_gpu_bytes` "   \
              "less `fixed_gpu_bytes` is what it allocates)")                                      \
    X(fixed_gpu_bytes,                                                                             \
      asked(o->stack != NULL, known(row->memory.known, whole(row->memory.gpu_fixed_bytes))),       \
      .unit = "bytes",                                                                             \
      .help = "with `--stack` only: context, workspace and communicators in `peak_gpu_bytes`")     \
    X(gpu_memory_bytes,                                                                            \
      asked(o->column_count != 0,                                                                  \
            known(row->memory.known,                                                               \
                  whole(rpsim_memory_limits_of(row->platform, traits_of(row), 1).gpu_bytes))),     \
      .unit = "bytes", .help = "with `--columns` only: limit of `peak_gpu_bytes`",                 \
      HEADED("GPU limit GB", 1), .shown = gigabytes)                                               \
    X(peak_host_bytes, known(row->memory.known, whole(row->memory.peak_host_bytes)),               \
      .unit = "bytes", .help = "peak of the host", STORED("peak_host_bytes"),                      \
      TABLE(HARDWARE, 10, "host GB", 1), .shown = gigabytes)                                       \
    X(host_memory_bytes, known(row->memory.host_bytes != 0, whole(row->memory.host_bytes)),        \
      .unit = "bytes", .help = "limit of `peak_host_bytes`; null where it is unknown",             \
      STORED("host_memory_bytes"), HEADED("host limit GB", 1), .shown = gigabytes)                 \
    X(hours, asked(o->tokens > 0, real(hours_of(row, o))), .unit = "h",                            \
      .help = "with `--tokens` only: that many take so long", TABLE(RUNS, 11, "hours", 1))         \
    X(kwh, asked(o->watts > 0, real(rpsim_kwh(o->watts, hours_of(row, o)))), .unit = "kWh",        \
      .help = "with `--watts` only: energy of these hours", TABLE(RUNS, 11, "kWh", 1))             \
    X(usd, asked(o->usd_per_hour > 0 || o->usd_per_kwh > 0, real(usd_of(row, o))), .unit = "USD",  \
      .help = "with `--usd-per-hour` or `--usd-per-kwh` only: what they cost",                     \
      TABLE(RUNS, 11, "USD", 2))                                                                   \
    X(max_seqlen, asked(o->run.max_seqlen, whole(row->max_seqlen)), .unit = "tokens",              \
      .help = "with `--max-seqlen` only; 0 where not even 1024 tokens fit", STORED("max_seqlen"),  \
      TABLE(RUNS, 5, "longest", 0))                                                                \
    X(seed, whole(o->seed), .help = "as the option")                                               \
    X(sim_wall_s, asked(o->timings, real(row->result.wall_s)), .unit = "s",                        \
      .help = "with `--timings` only: wall time of the simulation, which differs from run to run", \
      STORED("sim_wall_s"))                                                                        \
    X(jitter_cv, known(row->replica_ps != NULL, real(o->jitter)),                                  \
      .help = "coefficient of variation; null without `--jitter`")                                 \
    X(replicas, known(row->replica_ps != NULL, whole(o->replicas)),                                \
      .help = "number of replicas; null without `--jitter`")                                       \
    X(iteration_p05_ms, known(row->replica_ps != NULL, real_ms(row->quantiles.p05)), .unit = "ms", \
      .help = "5th percentile of the replicas; null without `--jitter`",                           \
      STORED("iteration_p05_ps"), TABLE(NOISE, 30, "p05 ms", 3))                                   \
    X(iteration_median_ms, known(row->replica_ps != NULL, real_ms(row->quantiles.median)),         \
      .unit = "ms", .help = "median of the replicas; null without `--jitter`",                     \
      STORED("iteration_median_ps"), TABLE(NOISE, 31, "median ms", 3))                             \
    X(iteration_p95_ms, known(row->replica_ps != NULL, real_ms(row->quantiles.p95)), .unit = "ms", \
      .help = "95th percentile of the replicas; null without `--jitter`",                          \
      STORED("iteration_p95_ps"), TABLE(NOISE, 32, "p95 ms", 3))                                   \
    X(slow_gpu, asked(o->slow_factor != 0, whole(o->slow_gpu)), .help = "with `--slow-gpu` only")  \
    X(slow_factor, asked(o->slow_factor != 0, real(o->slow_factor)),                               \
      .help = "with `--slow-gpu` only")                                                            \
    X(costs, text(row->run.costs->name), .help = "name, with what `--set` changed")                \
    X(global_batch, known(!row->run.stage, whole(rpsim_row_global_batch(row))),                    \
      .unit = "sequences", .help = "of a step; null at stage fidelity")                            \
    X(accumulate, known(!row->run.stage, whole(row->run.decided.accumulate)),                      \
      .help = "calls of a step; null at stage fidelity")                                           \
    X(lower_bound_any_ms, bound_of(row, RPSIM_BOUND_CLASS_ANY), .unit = "ms",                      \
      .help = "over any schedule; null where it is unknown")                                       \
    X(lower_bound_same_ms, bound_of(row, RPSIM_BOUND_CLASS_SAME), .unit = "ms",                    \
      .help = "over schedules of this placement; null where it is unknown")                        \
    X(rank, known(row->rank != 0, whole(row->rank)),                                               \
      .help = "with `--schedule all`: place by `tokens_per_s` among what fits, else null",         \
      TABLE(RANK, 1, "rank", 0))                                                                   \
    X(dtype, known(!row->run.stage, text(rp_dtype_text(row->run.decided.dtype))),                  \
      .help = "as the option, or of the program; null at stage fidelity")                          \
    X(accumulation,                                                                                \
      known(!row->run.stage, text(rp_accumulation_text(row->run.costs->arithmetic.accumulation))), \
      .help = "what products add up in; null at stage fidelity")                                   \
    X(states, known(!row->run.stage, text(rp_states_text((rp_states)types_of(row)->states))),      \
      .help = "type of Adam's moments; null at stage fidelity")                                    \
    X(master, known(!row->run.stage, text(rp_master_text((rp_master)types_of(row)->master))),      \
      .help = "type of the weights that the optimizer steps; null at stage fidelity")              \
    X(frozen, text(frozen_of(row)),                                                                \
      .help = "type of frozen linear layers; null without adapters, and at stage fidelity")        \
    X(compute,                                                                                     \
      known(!row->run.stage,                                                                       \
            text(row->run.costs->fp8_products ? "fp8" : rp_dtype_text(row->run.decided.dtype))),   \
      .help = "what linear layers multiply in; null at stage fidelity")                            \
    X(stack, text(row->run.costs->stack != NULL ? row->run.costs->stack->name : NULL),             \
      .help = "software of the layer times, with what `--set` changed; null: a cost table's",      \
      HEADED("stack", 0))                                                                          \
    X(tflops_per_gpu, real(rpsim_row_tflops(row)), .unit = "TFLOP/s",                              \
      .help = "products and attention that a GPU executes, recompute included; null at stage "     \
              "fidelity",                                                                          \
      STORED("tflops_per_gpu"), HEADED("TFLOP/s", 1))                                              \
    X(peak_share_pct, real(100 * rpsim_row_peak_share(row)), .unit = "%",                          \
      .help = "of the GPU's peak in this type; null where it is unknown, and at stage fidelity",   \
      STORED("peak_share_pct"), TABLE(HARDWARE, 12, "peak %", 1))                                  \
    X(speed_limit_tokens_per_s, real(rpsim_row_speed_limit(row)), .unit = "tokens/s",              \
      .help =                                                                                      \
          "with nothing but products and attention, forward and backward, on all GPUs all the "    \
          "time (stack `ideal`); null without a stack",                                            \
      HEADED("limit %", 1), .shown = share_of_limit)                                               \
    X(nodes, known(!row->run.stage, whole(nodes_of(row))),                                         \
      .help = "servers that the GPUs are in; null at stage fidelity")                              \
    X(beats, asked(row->replica_ps != NULL, object(write_beats)),                                  \
      .help =                                                                                      \
          "with `--jitter`, JSON only: per index of another run, how often this one is faster")    \
    X(explain, asked(row->explained != NULL, object(rpsim_explain_write_json)),                    \
      .help = "with `--explain`, JSON only: object, see Explanation")                              \
    X(inputs, asked(!row->run.stage, object(write_inputs)),                                        \
      .help = "JSON only: array of the prediction's inputs; null with `--intervals off`")          \
    X(ledger, asked(!row->run.stage, object(write_ledger)),                                        \
      .help = "JSON only: object, errors of measured runs of this stack and class of card; null "  \
              "where there are none, and without a stack")

#define VALUE(name, field, ...)                                                                    \
    static rpsim_field value_of_##name(const rpsim_study *study, const rpsim_row *row)             \
    {                                                                                              \
        const rpsim_setup *o = study->setup;                                                       \
        const rp_metrics *m = &row->result.metrics;                                                \
        (void)o;                                                                                   \
        (void)m;                                                                                   \
        return field;                                                                              \
    }
COLUMNS(VALUE)
#undef VALUE

const rpsim_column rpsim_columns[] = {
#define COLUMN(name, field, ...) {.key = #name, .value = value_of_##name, __VA_ARGS__},
    COLUMNS(COLUMN)
#undef COLUMN
};

const uint32_t rpsim_column_count = COUNT(rpsim_columns);
_Static_assert(COUNT(rpsim_columns) <= RPSIM_MAX_FIELDS, "room for all fields of a row");

double rpsim_field_number(const rpsim_field *field)
{
    switch (field->type) {
    case RPSIM_VALUE_UINT:
    case RPSIM_VALUE_BOOL:
    case RPSIM_VALUE_UINTS:
        return (double)field->uint;
    case RPSIM_VALUE_MS:
        return rp_ps_to_ms(field->ps);
    case RPSIM_VALUE_REAL:
        return field->real;
    case RPSIM_VALUE_REAL_MS:
        return field->real / (double)RP_PS_PER_MS;
    case RPSIM_VALUE_NULL:
    case RPSIM_VALUE_ABSENT:
    case RPSIM_VALUE_TEXT:
    case RPSIM_VALUE_OBJECT:
        break;
    }
    return NAN;
}

uint32_t rpsim_column_find(const char *key)
{
    uint32_t i = 0;
    while (i < rpsim_column_count &&
           (rpsim_columns[i].stored_only || strcmp(rpsim_columns[i].key, key) != 0)) {
        i++;
    }
    return i;
}

const char *rpsim_column_nearest(const char *key)
{
    const char *keys[RPSIM_MAX_FIELDS];
    size_t count = 0;
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        if (!rpsim_columns[i].stored_only) {
            keys[count++] = rpsim_columns[i].key;
        }
    }
    return rp_text_nearest(key, keys, count);
}

/* Lists the columns of --columns; a requested value that was not computed is null. */
static uint32_t asked_fields(const rpsim_study *study, const rpsim_row *row,
                             rpsim_field fields_out[static RPSIM_MAX_FIELDS])
{
    const rpsim_setup *o = study->setup;
    for (uint32_t k = 0; k < o->column_count; k++) {
        const rpsim_column *column = &rpsim_columns[rpsim_column_find(o->columns[k])];
        rpsim_field field = column->value(study, row);
        field.key = column->key;
        field.type = field.type == RPSIM_VALUE_ABSENT ? RPSIM_VALUE_NULL : field.type;
        fields_out[k] = field;
    }
    return o->column_count;
}

uint32_t rpsim_row_fields(const rpsim_study *study, const rpsim_row *row,
                          rpsim_field fields_out[static RPSIM_MAX_FIELDS])
{
    uint32_t count = 0;
    if (study->setup->column_count != 0) {
        return asked_fields(study, row, fields_out);
    }
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        rpsim_field field = rpsim_columns[i].value(study, row);
        field.key = rpsim_columns[i].key;
        if (field.type != RPSIM_VALUE_ABSENT && !rpsim_columns[i].stored_only) {
            fields_out[count++] = field;
        }
    }
    return count;
}
