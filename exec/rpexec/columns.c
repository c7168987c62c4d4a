/* Columns of rpexec's output: the makers of their values, then a row for each column. */
#include "exec/rpexec/columns.h"

#include <math.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- makers of fields ------------------------------------------------------------------------ */

static rpexec_field text(const char *value)
{
    return (rpexec_field){.type = value != NULL ? RPEXEC_VALUE_TEXT : RPEXEC_VALUE_NULL,
                          .text = value};
}

static rpexec_field whole(uint64_t value)
{
    return (rpexec_field){.type = RPEXEC_VALUE_UINT, .uint = value};
}

static rpexec_field yes(bool value)
{
    return (rpexec_field){.type = RPEXEC_VALUE_BOOL, .uint = value};
}

static rpexec_field real(double value)
{
    return (rpexec_field){.type = RPEXEC_VALUE_REAL, .real = value};
}

static rpexec_field ps(int64_t value)
{
    return (rpexec_field){.type = RPEXEC_VALUE_PS, .ps = value};
}

static rpexec_field ms(double value)
{
    return (rpexec_field){.type = RPEXEC_VALUE_MS, .real = value};
}

static rpexec_field reals(const double *values, uint32_t count)
{
    return (rpexec_field){.type = RPEXEC_VALUE_REALS, .reals = values, .count = count};
}

static rpexec_field known(bool is_known, rpexec_field field)
{
    return is_known ? field : (rpexec_field){.type = RPEXEC_VALUE_NULL};
}

/* ---- values that take more than an expression ------------------------------------------------ */

static rpexec_field peaks_of(const rpexec_outcome *out)
{
    rpexec_field field = {
        .type = RPEXEC_VALUE_UINTS, .uints = out->peak_gpu_bytes, .count = out->gpus};
    for (uint32_t i = 0; i < out->gpus; i++) {
        field.uint = out->peak_gpu_bytes[i] > field.uint ? out->peak_gpu_bytes[i] : field.uint;
    }
    return field;
}

/* Null if the run was not compared. */
static rpexec_field checked(const rpexec_outcome *out, rpexec_field field)
{
    return known(out->checked && out->steps > 0, field);
}

static rpexec_field predicted(const rpexec_outcome *out, rpexec_field field)
{
    return known(!isnan(out->predicted_iteration_ms), field);
}

/* Null if it was not measured. */
static rpexec_field us(double seconds)
{
    return known(!isnan(seconds), real(1e6 * seconds));
}

static rpexec_field loss_at(const rpexec_outcome *out, uint32_t step)
{
    return real(step < out->steps ? out->losses[step] : NAN);
}

static double measured_ms(const rpexec_outcome *out)
{
    return out->predicted_iteration_ms / (1 + out->prediction_error_pct / 100);
}

/* ---- the columns of a run -------------------------------------------------------------------- */

#define STORED(name) .metric = name
#define LINE(which, at, text_before, style, count, text_after)                                     \
    .line = RPEXEC_LINE_##which, .place = at, .before = text_before, .number = RPEXEC_##style,     \
    .digits = count, .after = text_after
#define OF_RUN .of_run = true
#define UNLISTED .unlisted = true
#define MEASURE(member) known(m != NULL, ps(m != NULL ? m->member : 0))

/* X(key, field, ...): a column's key; its value, made from the result `r`, its options `o`, outcome
 * `out`, measures `m` and spread `s`; its other members. */
#define COLUMNS(X)                                                                                 \
    X(schedule, text(o->schedule->name), OF_RUN, .help = "name")                                   \
    X(backend, text(o->backend), OF_RUN, .help = "name")                                           \
    X(device, text(r->device), OF_RUN, .help = "what stands for a GPU")                            \
    X(gpus, whole(out != NULL ? out->gpus : o->run.gpus), OF_RUN,                                  \
      .help = "number of GPUs, of all processes")                                                  \
    X(microbatches, whole(o->run.microbatches), OF_RUN, .help = "microbatches of a call")          \
    X(model, text(o->weights != NULL ? o->weights : o->model), OF_RUN,                             \
      .help = "as `--weights`, or `--model`")                                                      \
    X(steps, whole(out != NULL ? out->steps : o->steps), OF_RUN, STORED("steps"),                  \
      .help = "steps that this run has made")                                                      \
    X(loss, reals(out->losses, out->steps), .help = "array, one per step")                         \
    X(iteration_ms, reals(out->iteration_ms, out->steps), .unit = "ms",                            \
      .help = "array, one per step")                                                               \
    X(tokens_per_s, real(out->tokens_per_s), .unit = "tokens/s", STORED("tokens_per_s"),           \
      .help = "of the steps after the first, by the timeline",                                     \
      LINE(RATE, 1, "", DECIMALS, 0, " tokens/s"))                                                 \
    X(predicted_iteration_ms, predicted(out, ms(out->predicted_iteration_ms)), .unit = "ms",       \
      .help = "with `--predict`, else null", STORED("predicted_iteration_ps"),                     \
      LINE(PREDICTION, 1, "predicted ", DECIMALS, 3, " ms per iteration"))                         \
    X(measured_iteration_ms, predicted(out, ms(measured_ms(out))), UNLISTED,                       \
      LINE(PREDICTION, 2, ", measured ", DECIMALS, 3, " ms"))                                      \
    X(prediction_error_pct, real(out->prediction_error_pct), .unit = "%",                          \
      .help = "with `--predict`, else null", LINE(PREDICTION, 3, ": ", SIGNED, 1, " %"))           \
    X(max_grad_rel_err, checked(out, real(out->max_grad_rel_err)), STORED("max_grad_rel_err"),     \
      .help = "with `--check`, else null: of the first step's gradients, over rms and value",      \
      LINE(CHECK, 1, "check: gradients of the first step differ by ", DIGITS, 3, " at most"))      \
    X(peak_gpu_bytes, peaks_of(out), .unit = "bytes", STORED("peak_gpu_bytes"),                    \
      .help = "array, one per GPU", LINE(RATE, 2, ", fullest GPU ", SIZE, 0, ""))                  \
    X(uploaded_bytes, whole(out->uploaded_bytes), .unit = "bytes", STORED("uploaded_bytes"),       \
      .help = "of all steps, to GPUs", LINE(RATE, 3, "; ", SIZE, 0, " up"))                        \
    X(downloaded_bytes, whole(out->downloaded_bytes), .unit = "bytes", STORED("downloaded_bytes"), \
      .help = "of all steps, from GPUs", LINE(RATE, 4, ", ", SIZE, 0, " down"))                    \
    X(exchanged_bytes, whole(out->exchanged_bytes), .unit = "bytes",                               \
      .help = "of all steps, between GPUs", LINE(RATE, 5, ", ", SIZE, 0, " between GPUs"))         \
    X(exchanged_by, text(out->transport), .help = "transport between GPUs; null on the host",      \
      LINE(RATE, 6, ": ", DECIMALS, 0, ""))                                                        \
    X(processes, whole(o->run.nodes), .help = "number of processes")                               \
    X(network_bytes, whole(out->network_bytes), .unit = "bytes",                                   \
      .help = "that processes have sent to each other to sum gradients, together")                 \
    X(grad_norm, reals(out->norms, out->steps),                                                    \
      .help = "array, one per step: of all gradients before clipping, null where not finite")      \
    X(learning_rate, reals(out->rates, out->steps), .help = "array, one per step")                 \
    X(eval_step, reals(out->eval_steps, out->evaluations),                                         \
      .help = "array, one per evaluation: the step before it, from 1 on")                          \
    X(eval_loss, reals(out->eval_losses, out->evaluations), .help = "array, one per evaluation")   \
    X(wall_tokens_per_s, real(out->wall_tokens_per_s), .unit = "tokens/s",                         \
      .help = "of all steps, by the host's clock",                                                 \
      LINE(WORK, 3, "; ", DECIMALS, 0, " tokens/s of wall time"))                                  \
    X(executed_flop, real(out->executed_flop), .unit = "FLOP", .help = "of a step",                \
      LINE(WORK, 1, "", DIGITS, 6, " GFLOP executed per step"), .scale = 1e-9)                     \
    X(executed_flop_per_s, real(out->executed_flop_per_s), .unit = "FLOP/s",                       \
      .help = "over the time of `tokens_per_s`", LINE(WORK, 2, ", ", DIGITS, 4, " GFLOP/s"),       \
      .scale = 1e-9)                                                                               \
    X(pinned_bytes, whole(out->pinning.pinned_bytes), .unit = "bytes",                             \
      .help = "pinned host memory that copies start from; 0 on the host")                          \
    X(pageable_bytes, whole(out->pinning.pageable_bytes), .unit = "bytes",                         \
      .help = "other host memory that copies start from; 0 on the host")                           \
    X(max_grad_rms_err, checked(out, real(out->max_grad_rms_err)), STORED("max_grad_rms_err"),     \
      .help = "with `--check`, else null: of whole tensors, rms of the difference over rms",       \
      LINE(CHECK, 2, " (", DIGITS, 3, " of a tensor's rms)"))                                      \
    X(max_loss_rel_err, checked(out, real(out->max_loss_rel_err)),                                 \
      .help = "with `--check`, else null: of the losses of all steps",                             \
      LINE(CHECK, 3, ", losses by ", DIGITS, 3, ", from plain loops on one device"))               \
    X(same_bits, checked(out, yes(out->same_bits)),                                                \
      .help = "with `--check`, else null: losses and first gradients are equal",                   \
      LINE(CHECK, 4, ": the same bits", DECIMALS, 0, ""))                                          \
    X(loss_scale, real(out->loss_scale), .help = "of the loss after the last step; 1 but in fp16", \
      LINE(SCALE, 1, "loss scale ", DECIMALS, 0, ""))                                              \
    X(skipped_steps, whole(out->skipped_steps), .help = "because of an overflow",                  \
      LINE(SCALE, 2, ", ", DECIMALS, 0, " steps skipped because of an overflow"))                  \
    X(first_step, whole(out->first_step), .help = "0, or the step of the checkpoint")              \
    X(graph_captures, whole(out->graphs.captures), .help = "with `--graphs`, else 0",              \
      LINE(GRAPHS, 1, "", DECIMALS, 0, " graphs"))                                                 \
    X(graph_launches, whole(out->graphs.launches), .help = "likewise",                             \
      LINE(GRAPHS, 2, ", launched ", DECIMALS, 0, " times"))                                       \
    X(graph_operators, whole(out->graphs.replaced), .help = "likewise: operators in graphs",       \
      LINE(GRAPHS, 3, " for ", DECIMALS, 0, " operators"))                                         \
    X(single_operators, whole(out->graphs.single), .help = "likewise: operators one by one",       \
      LINE(GRAPHS, 4, "; ", DECIMALS, 0, " operators one by one"))                                 \
    X(attention_by, text(out->attention.by), .help = "cuda: own or cudnn; null on the host",       \
      LINE(ATTENTION, 1, "attention's forward by ", DECIMALS, 0, ""))                              \
    X(attention_why, text(out->attention.why), .help = "cuda: why not cudnn; null on the host",    \
      LINE(ATTENTION, 4, "; ", DECIMALS, 0, ""))                                                   \
    X(attention_own_us, us(out->attention.own_s), .unit = "us",                                    \
      .help = "cuda: of our own kernels; null where they were not compared",                       \
      LINE(ATTENTION, 2, ": ", DECIMALS, 1, " us by our own kernels"))                             \
    X(attention_cudnn_us, us(out->attention.cudnn_s), .unit = "us", .help = "of cuDNN, likewise",  \
      LINE(ATTENTION, 3, ", ", DECIMALS, 1, " us by cuDNN"))                                       \
    X(busy_pct, real(out->busy_pct), .unit = "%",                                                  \
      .help = "of the processors, used by other processes during the run")                         \
    X(costs_busy_pct, predicted(out, real(out->costs_busy_pct)), .unit = "%",                      \
      .help =                                                                                      \
          "with `--predict`, else null: the same while its costs were recorded; 0: not marked",    \
      LINE(DOUBT, 1,                                                                               \
           "no prediction to trust: its costs were recorded while other processes used ",          \
           DECIMALS, 0, " % of the processors"))                                                   \
    X(makespan_ps, MEASURE(makespan_ps), UNLISTED, STORED("makespan_ps"))                          \
    X(busy_ps, MEASURE(busy_ps), UNLISTED, STORED("busy_ps"))                                      \
    X(bubble_ps, MEASURE(bubble_ps), UNLISTED, STORED("bubble_ps"))                                \
    X(fill_ps, MEASURE(fill_ps), UNLISTED, STORED("fill_ps"))                                      \
    X(switch_ps, MEASURE(switch_ps), UNLISTED, STORED("switch_ps"))                                \
    X(drain_ps, MEASURE(drain_ps), UNLISTED, STORED("drain_ps"))                                   \
    X(intra_ps, MEASURE(intra_ps), UNLISTED, STORED("intra_ps"))                                   \
    X(iteration_mean_ms, ms(s->mean_ms), UNLISTED, STORED("iteration_ps"))                         \
    X(iteration_median_ms, known(s->count > 0, ms(s->median_ms)), UNLISTED,                        \
      STORED("iteration_median_ps"))                                                               \
    X(iteration_min_ms, known(s->count > 0, ms(s->least_ms)), UNLISTED,                            \
      STORED("iteration_min_ps"))                                                                  \
    X(iteration_max_ms, known(s->count > 0, ms(s->most_ms)), UNLISTED, STORED("iteration_max_ps")) \
    X(first_loss, loss_at(out, 0), UNLISTED, STORED("first_loss"))                                 \
    X(last_loss, loss_at(out, out->steps - 1), UNLISTED, STORED("last_loss"))

#define VALUE(name, field, ...)                                                                    \
    static rpexec_field value_of_##name(const rpexec_result *r)                                    \
    {                                                                                              \
        const rpexec_options *o = r->options;                                                      \
        const rpexec_outcome *out = r->outcome;                                                    \
        const rp_metrics *m = r->metrics;                                                          \
        const rpexec_spread *s = r->spread;                                                        \
        (void)o;                                                                                   \
        (void)out;                                                                                 \
        (void)m;                                                                                   \
        (void)s;                                                                                   \
        return field;                                                                              \
    }
COLUMNS(VALUE)
#undef VALUE

const rpexec_column rpexec_columns[] = {
#define COLUMN(name, field, ...) {.key = #name, .value = value_of_##name, __VA_ARGS__},
    COLUMNS(COLUMN)
#undef COLUMN
};

const uint32_t rpexec_column_count = COUNT(rpexec_columns);
_Static_assert(COUNT(rpexec_columns) <= RPEXEC_MAX_COLUMNS, "room for all metrics of a run");

double rpexec_field_number(const rpexec_field *field)
{
    switch (field->type) {
    case RPEXEC_VALUE_UINT:
    case RPEXEC_VALUE_BOOL:
    case RPEXEC_VALUE_UINTS:
        return (double)field->uint;
    case RPEXEC_VALUE_REAL:
    case RPEXEC_VALUE_MS:
        return field->real;
    case RPEXEC_VALUE_PS:
        return (double)field->ps;
    case RPEXEC_VALUE_NULL:
    case RPEXEC_VALUE_TEXT:
    case RPEXEC_VALUE_REALS:
        break;
    }
    return NAN;
}

/* ---- the columns of a step ------------------------------------------------------------------- */

#define EXACT(style, count) .exact = RPEXEC_##style, .exact_digits = count
#define TABLE(at, text_before, columns, style, count, text_after)                                  \
    .place = at, .before = text_before, .width = columns, .number = RPEXEC_##style,                \
    .digits = count, .after = text_after

/* X(key, value, ...): a column's key; its value, made from the line `line`; its other members. */
#define STEP_COLUMNS(X)                                                                            \
    X(step, (double)line->step, .help = "number of the step, from 1", EXACT(DECIMALS, 0),          \
      TABLE(1, "step ", 6, DECIMALS, 0, ""), .heading = "step")                                    \
    X(loss, line->loss, .help = "mean loss of the step", EXACT(DIGITS, 9),                         \
      TABLE(2, "  loss ", 10, DECIMALS, 6, ""), .heading = "loss")                                 \
    X(iteration_ms, line->ms, .unit = "ms",                                                        \
      .help = "time since the step before, by the host's clock", EXACT(DECIMALS, 6),               \
      TABLE(5, "  ", 10, DECIMALS, 3, " ms"), .heading = "ms")                                     \
    X(grad_norm, line->norm, .help = "norm of all gradients before clipping", EXACT(DIGITS, 9),    \
      TABLE(3, "  norm ", 9, DIGITS, 4, ""))                                                       \
    X(learning_rate, line->rate, .help = "rate of the step", EXACT(DIGITS, 9),                     \
      TABLE(4, "  rate ", 9, DIGITS, 4, ""))                                                       \
    X(eval_loss, line->eval_loss,                                                                  \
      .help = "mean loss on `--eval-data`; empty: the step was not evaluated", EXACT(DIGITS, 9),   \
      .optional = true)

#define VALUE(name, value, ...)                                                                    \
    static double step_##name(const rpexec_loss_line *line)                                        \
    {                                                                                              \
        return value;                                                                              \
    }
STEP_COLUMNS(VALUE)
#undef VALUE

const rpexec_step_column rpexec_step_columns[] = {
#define COLUMN(name, field, ...) {.key = #name, .value = step_##name, __VA_ARGS__},
    STEP_COLUMNS(COLUMN)
#undef COLUMN
};

const uint32_t rpexec_step_column_count = COUNT(rpexec_step_columns);

const char *rpexec_step_keys(void)
{
#define KEY(name, field, ...) "," #name
    static const char keys[] = STEP_COLUMNS(KEY);
#undef KEY
    return keys + 1;
}

rpexec_loss_line rpexec_outcome_step(const rpexec_outcome *out, uint32_t index)
{
    return (rpexec_loss_line){.step = out->first_step + index + 1,
                              .loss = out->losses[index],
                              .ms = out->iteration_ms[index],
                              .norm = out->norms[index],
                              .rate = out->rates[index],
                              .eval_loss = NAN};
}

/* ---- numbers --------------------------------------------------------------------------------- */

const char *rpexec_print_size(double bytes, char text[static RPEXEC_SIZE_TEXT])
{
    bool large = bytes >= 100000000;
    (void)snprintf(text, RPEXEC_SIZE_TEXT, "%.1f %s", bytes * (large ? 1e-9 : 1e-6),
                   large ? "GB" : "MB");
    return text;
}

const char *rpexec_print_number(rpexec_number number, int width, int digits, double value,
                                char text[static RPEXEC_NUMBER_SIZE])
{
    switch (number) {
    case RPEXEC_DECIMALS:
        (void)snprintf(text, RPEXEC_NUMBER_SIZE, "%*.*f", width, digits, value);
        break;
    case RPEXEC_SIGNED:
        (void)snprintf(text, RPEXEC_NUMBER_SIZE, "%+*.*f", width, digits, value);
        break;
    case RPEXEC_DIGITS:
        (void)snprintf(text, RPEXEC_NUMBER_SIZE, "%*.*g", width, digits, value);
        break;
    case RPEXEC_SIZE:
        return rpexec_print_size(value, text);
    }
    return text;
}
