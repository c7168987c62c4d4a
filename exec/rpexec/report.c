#include "exec/rpexec/report.h"

#include "common/formats/json.h"
#include "exec/run/backend.h"

#include <inttypes.h>
#include <math.h>

#include <stdio.h>
#include <string.h>

/* The first device's name, where the backend has devices. */
static void note_device(void *context, const rpexec_device *device)
{
    rpexec_device_name *name = context;
    if (device->index == 0) {
        snprintf(name->text, sizeof name->text, "%s", device->name);
    }
}

static void note_absent(void *context, const char *reason)
{
    (void)context;
    (void)reason;
}

rpexec_device_name rpexec_report_device(const rpexec_options *o)
{
    rpexec_device_name name = {"host threads"};
    const rpexec_backend_type *backend = rpexec_backend_find(o->backend);
    const rpexec_probe probe = {.context = &name, .device = note_device, .absent = note_absent};
    if (backend->driver()->attach != NULL && backend->probe(&probe) == RP_OK &&
        o->virtual_gpus != 0) {
        size_t used = strlen(name.text);
        snprintf(name.text + used, sizeof name.text - used, ", split into %" PRIu32,
                 o->virtual_gpus);
    }
    return name;
}

static void write_array(rp_json *json, const char *key, const double *values, uint32_t count)
{
    rp_json_key(json, key);
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < count; i++) {
        rp_json_double(json, values[i]);
    }
    rp_json_end_array(json);
}

/* null: not measured. */
static void write_us(rp_json *json, const char *key, double seconds)
{
    rp_json_member_double(json, key, 1e6 * seconds);
}

static const char *model_of(const rpexec_options *o)
{
    return o->weights != NULL ? o->weights : o->model;
}

void rpexec_report_settings(const rpexec_options *o, FILE *stream)
{
    const rpexec_device_name device = rpexec_report_device(o);
    rp_json json;
    rp_json_begin_document(&json, stream, 0);
    rp_json_begin_object(&json);
    rp_json_member_string(&json, "schedule", o->schedule->name);
    rp_json_member_string(&json, "backend", o->backend);
    rp_json_member_string(&json, "device", device.text);
    rp_json_member_uint(&json, "gpus", o->gpus);
    rp_json_member_uint(&json, "microbatches", o->microbatches);
    rp_json_member_string(&json, "model", model_of(o));
    rp_json_member_uint(&json, "steps", o->steps);
    rp_options_write_settings(&rpexec_command_line, o, true, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

/* Results of --check that cli.md does not list; null without it. */
static void write_check(rp_json *json, const rpexec_outcome *out)
{
    bool checked = out->checked && out->steps > 0;
    rp_json_member_double(json, "max_grad_rms_err", checked ? out->max_grad_rms_err : NAN);
    rp_json_member_double(json, "max_loss_rel_err", checked ? out->max_loss_rel_err : NAN);
    rp_json_key(json, "same_bits");
    if (checked) {
        rp_json_bool(json, out->same_bits);
    } else {
        rp_json_null(json);
    }
}

static void write_json(const rpexec_options *o, const rpexec_outcome *out, FILE *stream)
{
    const rpexec_device_name device = rpexec_report_device(o);
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_object(&json);
    rp_json_member_string(&json, "schedule", o->schedule->name);
    rp_json_member_string(&json, "backend", o->backend);
    rp_json_member_string(&json, "device", device.text);
    rp_json_member_uint(&json, "gpus", out->gpus);
    rp_json_member_uint(&json, "microbatches", o->microbatches);
    rp_json_member_string(&json, "model", model_of(o));
    rp_json_member_uint(&json, "steps", out->steps);
    write_array(&json, "loss", out->losses, out->steps);
    write_array(&json, "iteration_ms", out->iteration_ms, out->steps);
    rp_json_member_double(&json, "tokens_per_s", out->tokens_per_s);
    rp_json_member_double(&json, "predicted_iteration_ms",
                          out->predicted_iteration_ms); /* null where it is none */
    rp_json_member_double(&json, "prediction_error_pct", out->prediction_error_pct);
    rp_json_member_double(&json, "max_grad_rel_err",
                          out->checked && out->steps > 0 ? out->max_grad_rel_err : NAN);
    rp_json_key(&json, "peak_gpu_bytes");
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < out->gpus; i++) {
        rp_json_uint(&json, out->peak_gpu_bytes[i]);
    }
    rp_json_end_array(&json);
    rp_json_member_uint(&json, "uploaded_bytes", out->uploaded_bytes);
    rp_json_member_uint(&json, "downloaded_bytes", out->downloaded_bytes);
    rp_json_member_uint(&json, "exchanged_bytes", out->exchanged_bytes);
    rp_json_member_string(&json, "exchanged_by", out->transport);
    rp_json_member_uint(&json, "processes", o->servers);
    rp_json_member_uint(&json, "network_bytes", out->network_bytes);
    write_array(&json, "grad_norm", out->norms, out->steps);
    write_array(&json, "learning_rate", out->rates, out->steps);
    write_array(&json, "eval_step", out->eval_steps, out->evaluations);
    write_array(&json, "eval_loss", out->eval_losses, out->evaluations);
    rp_json_member_double(&json, "wall_tokens_per_s", out->wall_tokens_per_s);
    rp_json_member_double(&json, "executed_flop", out->executed_flop);
    rp_json_member_double(&json, "executed_flop_per_s", out->executed_flop_per_s);
    rp_json_member_uint(&json, "pinned_bytes", out->pinning.pinned_bytes);
    rp_json_member_uint(&json, "pageable_bytes", out->pinning.pageable_bytes);
    write_check(&json, out);
    rp_json_member_double(&json, "loss_scale", out->loss_scale);
    rp_json_member_uint(&json, "skipped_steps", out->skipped_steps);
    rp_json_member_uint(&json, "first_step", out->first_step);
    rp_json_member_uint(&json, "graph_captures", out->graphs.captures);
    rp_json_member_uint(&json, "graph_launches", out->graphs.launches);
    rp_json_member_uint(&json, "graph_operators", out->graphs.replaced);
    rp_json_member_uint(&json, "single_operators", out->graphs.single);
    rp_json_member_string(&json, "attention_by", out->attention.by);
    rp_json_member_string(&json, "attention_why", out->attention.why);
    write_us(&json, "attention_own_us", out->attention.own_s);
    write_us(&json, "attention_cudnn_us", out->attention.cudnn_s);
    rp_json_member_double(&json, "busy_pct", out->busy_pct);
    rp_json_member_double(&json, "costs_busy_pct",
                          isnan(out->predicted_iteration_ms) ? NAN : out->costs_busy_pct);
    rp_options_write_settings(&rpexec_command_line, o, true, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

static void write_attention(const rpexec_attention_report *a, FILE *stream)
{
    fprintf(stream, "attention's forward by %s", a->by);
    if (!isnan(a->own_s)) {
        fprintf(stream, ": %.1f us by our own kernels, %.1f us by cuDNN", 1e6 * a->own_s,
                1e6 * a->cudnn_s);
    }
    fprintf(stream, "%s%s\n", a->why != NULL ? "; " : "", a->why != NULL ? a->why : "");
}

const char *rpexec_report_size(uint64_t bytes, char text[static RPEXEC_SIZE_TEXT])
{
    bool large = bytes >= 100000000;
    (void)snprintf(text, RPEXEC_SIZE_TEXT, "%.1f %s", (double)bytes * (large ? 1e-9 : 1e-6),
                   large ? "GB" : "MB");
    return text;
}

static void write_rate(const rpexec_outcome *out, FILE *stream)
{
    char sizes[4][RPEXEC_SIZE_TEXT];
    uint64_t peak = 0;
    for (uint32_t i = 0; i < out->gpus; i++) {
        peak = out->peak_gpu_bytes[i] > peak ? out->peak_gpu_bytes[i] : peak;
    }
    fprintf(stream, "%.0f tokens/s, fullest GPU %s; %s up, %s down, %s between GPUs%s%s\n",
            out->tokens_per_s, rpexec_report_size(peak, sizes[0]),
            rpexec_report_size(out->uploaded_bytes, sizes[1]),
            rpexec_report_size(out->downloaded_bytes, sizes[2]),
            rpexec_report_size(out->exchanged_bytes, sizes[3]), out->transport != NULL ? ": " : "",
            out->transport != NULL ? out->transport : "");
}

static void write_table(const rpexec_options *o, const rpexec_outcome *out, FILE *stream)
{
    fprintf(stream,
            "%s on %" PRIu32 " GPUs (%s): %s, %" PRIu32 " x %" PRIu32 " microbatches of %" PRIu32
            " x %" PRIu32 " tokens, %s, %s\n",
            o->schedule->name, out->gpus, rpexec_report_device(o).text, model_of(o), o->accumulate,
            o->microbatches, o->microbatch_size, o->seq_len, rp_dtype_text(o->dtype),
            o->asynchronous ? "asynchronous" : "synchronous");
    write_rate(out, stream);
    if (o->dtype != RP_DTYPE_F32) {
        fprintf(stream, "weights, activations and sums of gradients in %s, masters in fp32\n",
                rp_dtype_text(o->dtype));
    }
    uint32_t shown = out->steps < 10 ? out->steps : 10;
    for (uint32_t i = 0; i < shown; i++) { /* evenly spread, the last one always */
        uint32_t step = shown == 1 ? 0 : (uint32_t)((uint64_t)i * (out->steps - 1) / (shown - 1));
        fprintf(stream, "step %6" PRIu64 "  loss %10.6f  norm %9.4g  rate %9.4g  %10.3f ms\n",
                out->first_step + step + 1, out->losses[step], out->norms[step], out->rates[step],
                out->iteration_ms[step]);
    }
    for (uint32_t i = 0; i < out->evaluations; i++) {
        fprintf(stream, "evaluated after step %6.0f: loss %10.6f\n", out->eval_steps[i],
                out->eval_losses[i]);
    }
    fprintf(stream, "%.6g GFLOP executed per step, %.4g GFLOP/s; %.0f tokens/s of wall time\n",
            1e-9 * out->executed_flop, 1e-9 * out->executed_flop_per_s, out->wall_tokens_per_s);
    if (o->graphs) {
        fprintf(stream,
                "%" PRIu64 " graphs, launched %" PRIu64 " times for %" PRIu64 " operators; %" PRIu64
                " operators one by one\n",
                out->graphs.captures, out->graphs.launches, out->graphs.replaced,
                out->graphs.single);
    }
    if (out->attention.by != NULL && o->attention != RPEXEC_ATTENTION_OWN) {
        write_attention(&out->attention, stream);
    }
    if (rpexec_scaler_needed(o->dtype)) {
        fprintf(stream, "loss scale %.0f, %" PRIu64 " steps skipped because of an overflow\n",
                out->loss_scale, out->skipped_steps);
    }
    if (!isnan(out->predicted_iteration_ms) && out->costs_busy_pct > 0) {
        fprintf(
            stream,
            "no prediction to trust: its costs were recorded while other processes used %.0f %% "
            "of the processors\n",
            out->costs_busy_pct);
    }
    if (!isnan(out->predicted_iteration_ms)) {
        fprintf(stream, "predicted %.3f ms per iteration, measured %.3f ms: %+.1f %%\n",
                out->predicted_iteration_ms,
                out->predicted_iteration_ms / (1 + out->prediction_error_pct / 100),
                out->prediction_error_pct);
    }
    if (out->checked && out->steps > 0) {
        fprintf(
            stream,
            "check: gradients of the first step differ by %.3g at most (%.3g of a tensor's rms), "
            "losses by %.3g, from plain loops on one device%s\n",
            out->max_grad_rel_err, out->max_grad_rms_err, out->max_loss_rel_err,
            out->same_bits ? ": the same bits" : "");
    }
}

void rpexec_report(const rpexec_options *o, const rpexec_outcome *out, FILE *stream)
{
    if (o->json) {
        write_json(o, out, stream);
    } else {
        write_table(o, out, stream);
    }
}
