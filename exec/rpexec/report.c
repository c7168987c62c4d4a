#include "exec/rpexec/report.h"

#include "common/formats/json.h"
#include "exec/rpexec/columns.h"
#include "exec/run/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Notes the first device's name, if the backend has devices. */
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

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_field(rp_json *json, const rpexec_field *field)
{
    switch (field->type) {
    case RPEXEC_VALUE_NULL:
        rp_json_null(json);
        return;
    case RPEXEC_VALUE_TEXT:
        rp_json_string(json, field->text);
        return;
    case RPEXEC_VALUE_UINT:
        rp_json_uint(json, field->uint);
        return;
    case RPEXEC_VALUE_BOOL:
        rp_json_bool(json, field->uint != 0);
        return;
    case RPEXEC_VALUE_REAL:
    case RPEXEC_VALUE_MS:
        rp_json_double(json, field->real);
        return;
    case RPEXEC_VALUE_PS:
        rp_json_int(json, field->ps);
        return;
    case RPEXEC_VALUE_UINTS:
    case RPEXEC_VALUE_REALS:
        rp_json_begin_array(json);
        for (uint32_t i = 0; i < field->count; i++) {
            if (field->type == RPEXEC_VALUE_UINTS) {
                rp_json_uint(json, field->uints[i]);
            } else {
                rp_json_double(json, field->reals[i]);
            }
        }
        rp_json_end_array(json);
        return;
    }
}

/* Writes the columns of a run, or only the columns of its settings, then the options. */
static void write_json(const rpexec_result *result, unsigned lines_depth, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, lines_depth);
    rp_json_begin_object(&json);
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        const rpexec_column *column = &rpexec_columns[i];
        if (!column->unlisted && (column->of_run || result->outcome != NULL)) {
            rpexec_field field = column->value(result);
            rp_json_key(&json, column->key);
            write_field(&json, &field);
        }
    }
    rp_options_write_settings(rpexec_setup_keys(), result->options, true, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

void rpexec_report_settings(const rpexec_options *o, FILE *stream)
{
    const rpexec_device_name device = rpexec_report_device(o);
    const rpexec_result result = {.options = o, .device = device.text};
    write_json(&result, 0, stream);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const rpexec_column *part_at(rpexec_line line, uint32_t place)
{
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        if (rpexec_columns[i].line == line && rpexec_columns[i].place == place) {
            return &rpexec_columns[i];
        }
    }
    return NULL;
}

static const char *shown(const rpexec_column *column, const rpexec_field *field,
                         char number[static RPEXEC_NUMBER_SIZE])
{
    if (field->type == RPEXEC_VALUE_TEXT) {
        return field->text;
    }
    if (field->type == RPEXEC_VALUE_BOOL) {
        return "";
    }
    double scale = column->scale != 0 ? column->scale : 1;
    return rpexec_print_number(column->number, 0, column->digits,
                               scale * rpexec_field_number(field), number);
}

/* Writes the parts that have a value, or nothing if the first part has none. */
static void write_line(const rpexec_result *result, rpexec_line line, FILE *stream)
{
    const rpexec_column *column = NULL;
    char number[RPEXEC_NUMBER_SIZE];
    for (uint32_t place = 1; (column = part_at(line, place)) != NULL; place++) {
        rpexec_field field = column->value(result);
        bool empty =
            field.type == RPEXEC_VALUE_NULL || (field.type == RPEXEC_VALUE_BOOL && field.uint == 0);
        if (empty && place == 1) {
            return;
        }
        if (!empty) {
            fprintf(stream, "%s%s%s", column->before, shown(column, &field, number), column->after);
        }
    }
    fputc('\n', stream);
}

static void write_step(const rpexec_loss_line *line, FILE *stream)
{
    char number[RPEXEC_NUMBER_SIZE];
    for (uint32_t place = 1; place <= rpexec_step_column_count; place++) {
        for (uint32_t i = 0; i < rpexec_step_column_count; i++) {
            const rpexec_step_column *c = &rpexec_step_columns[i];
            if (c->place == place) {
                fprintf(stream, "%s%s%s", c->before,
                        rpexec_print_number(c->number, c->width, c->digits, c->value(line), number),
                        c->after);
            }
        }
    }
    fputc('\n', stream);
}

static void write_steps(const rpexec_outcome *out, FILE *stream)
{
    uint32_t count = out->steps < 10 ? out->steps : 10;
    for (uint32_t i = 0; i < count; i++) { /* evenly spread, always with the last step */
        uint32_t step = count == 1 ? 0 : (uint32_t)((uint64_t)i * (out->steps - 1) / (count - 1));
        const rpexec_loss_line line = rpexec_outcome_step(out, step);
        write_step(&line, stream);
    }
    for (uint32_t i = 0; i < out->evaluations; i++) {
        fprintf(stream, "evaluated after step %6.0f: loss %10.6f\n", out->eval_steps[i],
                out->eval_losses[i]);
    }
}

static void write_text(const rpexec_result *result, FILE *stream)
{
    const rpexec_options *o = result->options;
    const rpexec_outcome *out = result->outcome;
    fprintf(stream,
            "%s on %" PRIu32 " GPUs (%s): %s, %" PRIu32 " x %" PRIu32 " microbatches of %" PRIu32
            " x %" PRIu32 " tokens, %s, %s\n",
            o->schedule->name, out->gpus, result->device,
            o->weights != NULL ? o->weights : o->model, o->run.accumulate, o->run.microbatches,
            o->run.microbatch_size, o->run.seq_len, rp_dtype_text(o->run.dtype),
            o->run.asynchronous ? "asynchronous" : "synchronous");
    write_line(result, RPEXEC_LINE_RATE, stream);
    if (o->run.dtype != RP_DTYPE_F32) {
        fprintf(stream, "weights, activations and sums of gradients in %s, masters in fp32\n",
                rp_dtype_text(o->run.dtype));
    }
    write_steps(out, stream);
    write_line(result, RPEXEC_LINE_WORK, stream);
    if (o->graphs) {
        write_line(result, RPEXEC_LINE_GRAPHS, stream);
    }
    if (o->attention != RPEXEC_ATTENTION_OWN) {
        write_line(result, RPEXEC_LINE_ATTENTION, stream);
    }
    if (rpexec_scaler_needed(o->run.dtype)) {
        write_line(result, RPEXEC_LINE_SCALE, stream);
    }
    if (out->costs_busy_pct > 0) {
        write_line(result, RPEXEC_LINE_DOUBT, stream);
    }
    write_line(result, RPEXEC_LINE_PREDICTION, stream);
    write_line(result, RPEXEC_LINE_CHECK, stream);
}

void rpexec_report(const rpexec_options *o, const rpexec_outcome *out, FILE *stream)
{
    const rpexec_device_name device = rpexec_report_device(o);
    const rpexec_result result = {.options = o, .outcome = out, .device = device.text};
    if (o->json) {
        write_json(&result, 1, stream);
    } else {
        write_text(&result, stream);
    }
}
