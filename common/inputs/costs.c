#include "common/inputs/costs.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/formats/config_rows.h"
#include "common/inputs/changes.h"
#include "common/inputs/data.h"
#include "common/program/limits.h"

#include <inttypes.h>
#include <string.h>

/* A cost file as it is written; rp_costs is made of it. */
typedef struct cost_file {
#define KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
#include "common/inputs/costs_rows.inc"
#undef KEY
} cost_file;

/* Fields of the schema. */
enum {
#define KEY(member, ...) KEY_##member,
#include "common/inputs/costs_rows.inc"
#undef KEY
};

#define DTYPE_WORD(name, stored, text, alias, bytes) text,
static const char *const dtypes[] = {RP_DTYPE_LIST(DTYPE_WORD) NULL};

static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(cost_file, member, #member, __VA_ARGS__),
#include "common/inputs/costs_rows.inc"
#undef KEY
};

const rp_config_schema rp_costs_schema = {
    .what = "a cost table", .prefix = "costs.", RP_CONFIG_FIELDS(fields)};

/* Fills one time in ps for each layer, from a single number or from a list. */
static rp_status spread(const char *name, const size_t *lines, int field, uint32_t layers,
                        const rp_config_numbers *numbers, rp_arena *arena, int64_t **ps_out)
{
    if (numbers->is_list && numbers->count != layers) {
        rp_log_error_at(name, lines[field],
                        "'%s' lists %" PRIu32 " times, but there are %" PRIu32 " layers; valid "
                        "values are one number, or a list of %" PRIu32 " numbers",
                        fields[field].key, numbers->count, layers, layers);
        return RP_INPUT;
    }
    RP_TRY(rp_arena_alloc(arena, layers, sizeof **ps_out, ps_out));
    for (uint32_t i = 0; i < layers; i++) {
        (*ps_out)[i] = rp_ms_to_ps(numbers->values[numbers->is_list ? i : 0]);
    }
    return RP_OK;
}

static rp_status halve(const rp_costs *costs, rp_arena *arena, int64_t **ps_out)
{
    RP_TRY(rp_arena_alloc(arena, costs->layers, sizeof **ps_out, ps_out));
    for (uint32_t i = 0; i < costs->layers; i++) {
        (*ps_out)[i] = costs->bwd_ps[i] / 2;
    }
    return RP_OK;
}

static rp_status check_input_parts(const char *name, const size_t *lines, const rp_costs *costs)
{
    for (uint32_t i = 0; i < costs->layers; i++) {
        if (costs->bwd_input_ps[i] > costs->bwd_ps[i]) {
            rp_log_error_at(name, lines[KEY_bwd_input_ms],
                            "'bwd_input_ms' of layer %" PRIu32 " is %.15g, more than the whole "
                            "backward; valid values are numbers from 0 to bwd_ms, here %.15g ms",
                            i, rp_ps_to_ms(costs->bwd_input_ps[i]), rp_ps_to_ms(costs->bwd_ps[i]));
            return RP_INPUT;
        }
    }
    return RP_OK;
}

/* Every sum is checked before it is made: an int64 of ps ends at 106 days. */
static rp_status check_total(const char *name, const size_t *lines, const rp_costs *costs)
{
    int64_t total = costs->head_fwd_ps + costs->head_bwd_ps + costs->hop_ps;
    for (uint32_t i = 0; i < costs->layers && total <= RP_MAX_MICROBATCH_PS; i++) {
        total += 2 * costs->fwd_ps[i] + costs->bwd_ps[i]; /* forward, recompute, backward */
    }
    if (total > RP_MAX_MICROBATCH_PS) {
        rp_log_error_at(name, lines[KEY_fwd_ms],
                        "all layers together take too long for one microbatch; valid values are "
                        "times whose sum over forward, recompute, backward, head and hop is at "
                        "most %.0f ms",
                        rp_ps_to_ms(RP_MAX_MICROBATCH_PS));
        return RP_INPUT;
    }
    return RP_OK;
}

/* Products of bf16 and fp32 add up in fp32 only; a file with fp16 must say which type they add up
 * in. */
static rp_status set_arithmetic(const char *name, const size_t *lines, const cost_file *file,
                                rp_arithmetic *arithmetic)
{
    if (file->dtype == NULL && file->accumulation == NULL) {
        return RP_OK;
    }
    if (file->dtype == NULL) {
        rp_log_error_at(
            name, lines[KEY_accumulation],
            "'accumulation' without 'dtype'; valid values are fp16 and fp32 with 'dtype: fp16'");
        return RP_INPUT;
    }
    (void)rp_dtype_parse(file->dtype, &arithmetic->dtype);
    arithmetic->accumulation = RP_ACCUMULATION_F32;
    if (file->accumulation != NULL) {
        (void)rp_accumulation_parse(file->accumulation, &arithmetic->accumulation);
    } else if (arithmetic->dtype == RP_DTYPE_F16) {
        rp_log_error_at(name, lines[KEY_dtype],
                        "products of fp16 add up in fp16 or in fp32, and the file does not say "
                        "which; valid values are fp16 and fp32 of 'accumulation' beside it");
        return RP_INPUT;
    }
    if (!rp_arithmetic_exists(*arithmetic)) {
        rp_log_error_at(name, lines[KEY_accumulation],
                        "products of %s add up in fp32; valid values are fp32, or none",
                        file->dtype);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status convert(const char *name, const size_t *lines, const cost_file *file,
                         rp_arena *arena, rp_costs *costs)
{
    *costs = (rp_costs){.name = file->name,
                        .source = file->source,
                        .kind = RP_MEASURED,
                        .layers = file->layers,
                        .head_fwd_ps = rp_ms_to_ps(file->head_fwd_ms),
                        .head_bwd_ps = rp_ms_to_ps(file->head_bwd_ms),
                        .hop_ps = rp_ms_to_ps(file->hop_ms),
                        .overlap_saving = file->overlap_saving,
                        .microbatch_size = file->microbatch_size,
                        .seq_len = file->seq_len};
    RP_TRY(spread(name, lines, KEY_fwd_ms, file->layers, &file->fwd_ms, arena, &costs->fwd_ps));
    RP_TRY(spread(name, lines, KEY_bwd_ms, file->layers, &file->bwd_ms, arena, &costs->bwd_ps));
    if (lines[KEY_bwd_input_ms] == 0) {
        RP_TRY(halve(costs, arena, &costs->bwd_input_ps));
    } else {
        RP_TRY(spread(name, lines, KEY_bwd_input_ms, file->layers, &file->bwd_input_ms, arena,
                      &costs->bwd_input_ps));
    }
    RP_TRY(set_arithmetic(name, lines, file, &costs->arithmetic));
    RP_TRY(check_input_parts(name, lines, costs));
    return check_total(name, lines, costs);
}

static rp_status parse(const char *name, const rp_text *text, const rp_changes *changes,
                       rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    cost_file file = {.source = ""};
    RP_TRY(rp_config_parse(name, text->bytes, text->length, &rp_costs_schema, arena, &file, lines));
    RP_TRY(rp_changes_apply(changes, &rp_costs_schema, name, arena, &file, lines, reason));
    return convert(name, lines, &file, arena, costs_out);
}

rp_status rp_costs_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_costs *costs_out)
{
    const rp_text text = {.bytes = (char *)bytes, .length = length};
    return parse(name, &text, NULL, arena, costs_out, NULL);
}

rp_status rp_costs_load(const char *name_or_path, rp_arena *arena, rp_costs *costs_out)
{
    return rp_costs_load_changed(name_or_path, NULL, arena, costs_out, NULL);
}

rp_status rp_costs_load_changed(const char *name_or_path, const rp_changes *changes,
                                rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    const char *path;
    const char *shown = NULL;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_costs, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        shown = path;
        status = rp_changes_name(changes, &rp_costs_schema, arena, &shown);
    }
    if (status == RP_OK) {
        status = parse(shown, &text, changes, arena, costs_out, reason);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    RP_TRY(rp_data_check_name(name_or_path, path, costs_out->name));
    return rp_changes_name(changes, &rp_costs_schema, arena, &costs_out->name);
}
