#include "sim/interchange/torch_sidecar.h"

#include "common/base/log.h"
#include "common/formats/json.h"
#include "common/formats/json_read.h"

#include <jansson.h>
#include <string.h>

#define VERSION_KEY "x-rpsim-schedule"
#define VERSION 2u /* version 1 had no traits but implied them by the schedule's name */
#define KEYS                                                                                       \
    VERSION_KEY ", schedule, placement, versions, traits, recompute, microbatches, layers, "       \
                "forward_layers, backward_layers, ranks"

#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-"

/* ---- which stages a rank runs ---------------------------------------------------------------- */

/* Lists the stages of a row, ascending. `seen` has room for all stages and is zero before and
 * after. */
static uint32_t stages_of_row(const rp_torch_csv *csv, uint32_t rank, uint8_t *seen,
                              uint32_t *stages)
{
    uint32_t count = 0;
    for (uint32_t i = csv->row_begin[rank]; i < csv->row_begin[rank + 1]; i++) {
        seen[csv->actions[i].stage] = 1;
    }
    for (uint32_t s = 0; s < csv->stage_count; s++) {
        if (seen[s] != 0) {
            stages[count++] = s;
            seen[s] = 0;
        }
    }
    return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_layers(rp_json *json, const rp_program *p, const uint16_t *chain, uint32_t count)
{
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < count; i++) {
        rp_json_begin_array(json);
        rp_json_uint(json, p->stages[chain[i]].layer_begin);
        rp_json_uint(json, p->stages[chain[i]].layer_end);
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static void write_ranks(rp_json *json, const rp_torch_csv *csv, uint8_t *seen, uint32_t *stages)
{
    rp_json_begin_array(json);
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        uint32_t count = stages_of_row(csv, rank, seen, stages);
        rp_json_begin_array(json);
        for (uint32_t i = 0; i < count; i++) {
            rp_json_uint(json, stages[i]);
        }
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static void write_traits(rp_json *json, const rp_traits *traits)
{
    rp_json_member_string(json, "placement", rp_placement_text(traits->placement));
    rp_json_member_string(json, "versions", rp_versions_text(traits->versions));
    rp_json_key(json, "traits");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < rp_trait_count; i++) { /* traits with numbers belong to a sharding */
        if (rp_trait_get(traits, &rp_trait_rows[i]) != 0) {
            rp_json_string(json, rp_trait_rows[i].text);
        }
    }
    rp_json_end_array(json);
}

rp_status rpsim_sidecar_write(const rp_program *p, const rp_torch_csv *csv, rp_arena *arena,
                              FILE *stream)
{
    uint8_t *seen = NULL;
    uint32_t *stages = NULL;
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, 1, &seen));
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, sizeof *stages, &stages));
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_object(&json);
    rp_json_member_uint(&json, VERSION_KEY, VERSION);
    rp_json_member_string(&json, "schedule", p->schedule);
    write_traits(&json, &p->traits);
    rp_json_member_string(&json, "recompute", rp_recompute_text(p->recompute));
    rp_json_member_uint(&json, "microbatches", p->microbatch_count);
    rp_json_member_uint(&json, "layers", p->layer_count);
    rp_json_key(&json, "forward_layers");
    write_layers(&json, p, p->forward_chain, p->forward_count);
    rp_json_key(&json, "backward_layers");
    if (csv->separate) {
        write_layers(&json, p, p->backward_chain, p->backward_count);
    } else {
        rp_json_null(&json);
    }
    rp_json_key(&json, "ranks");
    write_ranks(&json, csv, seen, stages);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    return RP_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static rp_status bad(const rpsim_sidecar *s, const char *key, const char *valid)
{
    rp_log_error_at(s->name, 0, "'%s' is missing or not valid; valid %s", key,
                    rp_log_spell(valid).text);
    return RP_INPUT;
}

static rp_status take_number(const rpsim_sidecar *s, const json_t *root, const char *key,
                             uint32_t high, uint32_t *number_out)
{
    const json_t *value = json_object_get(root, key);
    if (!rp_json_is_integer(value, 1, high)) {
        char valid[64];
        snprintf(valid, sizeof valid, "values are integers from 1 to %u", high);
        return bad(s, key, valid);
    }
    *number_out = (uint32_t)json_integer_value(value);
    return RP_OK;
}

static bool is_layer(const json_t *value, const rpsim_sidecar *s)
{
    return rp_json_is_integer(value, 0, s->layers);
}

/* Reads pairs [begin, end), each of which adjoins the pair before it: upwards from 0, or downwards
 * to 0. */
static rp_status take_layers(const rpsim_sidecar *s, const json_t *list, const char *key,
                             bool upwards, rp_arena *arena, uint32_t **layers_out,
                             uint32_t *count_out)
{
    const char *valid = upwards ? "are pairs of layers such as [[0, 7], [7, 14]], ascending from 0"
                                : "are null, or pairs of layers such as [[7, 14], [0, 7]], "
                                  "descending from the last layer to 0";
    size_t count = json_array_size(list);
    uint32_t at = upwards ? 0 : s->layers;
    if (!json_is_array(list) || count > RP_MAX_STAGES) {
        return bad(s, key, valid);
    }
    RP_TRY(rp_arena_alloc(arena, count, sizeof **layers_out, layers_out));
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *begin = json_array_get(pair, 0);
        const json_t *end = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !is_layer(begin, s) || !is_layer(end, s) ||
            json_integer_value(begin) > json_integer_value(end) ||
            json_integer_value(upwards ? begin : end) != (json_int_t)at) {
            return bad(s, key, valid);
        }
        at = (uint32_t)json_integer_value(upwards ? end : begin);
        (*layers_out)[i] = (uint32_t)(json_integer_value(end) - json_integer_value(begin));
    }
    if (!upwards && at != 0) {
        return bad(s, key, valid);
    }
    *count_out = (uint32_t)count;
    return RP_OK;
}

static rp_status take_ranks(rpsim_sidecar *s, const json_t *list, rp_arena *arena)
{
    const char *valid = "are one list of ascending stages per rank, such as [[0, 2], [1, 3]]";
    size_t ranks = json_array_size(list);
    uint32_t stages = s->partition.forward_count + s->partition.backward_count;
    if (ranks < 1 || ranks > RP_MAX_GPUS) {
        return bad(s, "ranks", valid);
    }
    s->rank_count = (uint32_t)ranks;
    RP_TRY(rp_arena_alloc(arena, ranks, sizeof *s->stage_counts, &s->stage_counts));
    RP_TRY(rp_arena_alloc(arena, ranks, sizeof *s->rank_stages, &s->rank_stages));
    for (size_t r = 0; r < ranks; r++) {
        const json_t *row = json_array_get(list, r);
        size_t count = json_array_size(row);
        if (!json_is_array(row) || count > stages) {
            return bad(s, "ranks", valid);
        }
        RP_TRY(rp_arena_alloc(arena, count, sizeof **s->rank_stages, &s->rank_stages[r]));
        s->stage_counts[r] = (uint32_t)count;
        for (size_t i = 0; i < count; i++) {
            const json_t *value = json_array_get(row, i);
            int64_t least = i == 0 ? 0 : (int64_t)s->rank_stages[r][i - 1] + 1;
            if (!rp_json_is_integer(value, least, (int64_t)stages - 1)) {
                return bad(s, "ranks", valid);
            }
            s->rank_stages[r][i] = (uint32_t)json_integer_value(value);
        }
    }
    return RP_OK;
}

static rp_status take_name(rpsim_sidecar *s, const json_t *root, rp_arena *arena)
{
    const char *name = json_string_value(json_object_get(root, "schedule"));
    const char *mode = json_string_value(json_object_get(root, "recompute"));
    if (name == NULL || *name == '\0' || strlen(name) > 63 ||
        strspn(name, NAME_BYTES) != strlen(name)) {
        return bad(s, "schedule", "are names of up to 63 letters, digits, '_', '+' and '-'");
    }
    if (mode == NULL || !rp_recompute_parse(mode, &s->recompute)) {
        return bad(s, "recompute", "values are \"none\", \"wait\", \"early\", \"selective\"");
    }
    return rp_arena_copy_text(arena, name, strlen(name), &s->schedule);
}

static rp_status take_traits(rpsim_sidecar *s, const json_t *root)
{
    const char *placement = json_string_value(json_object_get(root, "placement"));
    const char *versions = json_string_value(json_object_get(root, "versions"));
    const json_t *names = json_object_get(root, "traits");
    if (placement == NULL || !rp_placement_parse(placement, &s->traits.placement) ||
        rp_is_data_parallel(&s->traits)) {
        return bad(s, "placement", "values are \"resident\" and \"offload\"");
    }
    if (versions == NULL || !rp_versions_parse(versions, &s->traits.versions)) {
        return bad(s, "versions", "values are \"one\", \"two\", \"stashed\"");
    }
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *text = json_string_value(json_array_get(names, i));
        const rp_trait *row = text != NULL ? rp_trait_find(text) : NULL;
        if (row == NULL || row->placements != UINT32_MAX) {
            return bad(s, "traits", "are names of traits that a program of {program_out} has");
        }
        rp_trait_set(&s->traits, row, 1);
    }
    return json_is_array(names) ? RP_OK : bad(s, "traits", "is a list of names");
}

static rp_status take_version(const rpsim_sidecar *s, const json_t *root)
{
    uint32_t version = 0;
    RP_TRY(take_number(s, root, VERSION_KEY, VERSION, &version));
    if (version == VERSION) {
        return RP_OK;
    }
    rp_log_error_at(s->name, 0,
                    "version %u does not say where weights are and how the software runs; valid is "
                    "version %u: write the side-car anew with {torch_sidecar}",
                    version, VERSION);
    return RP_INPUT;
}

static rp_status check_keys(const rpsim_sidecar *s, json_t *root)
{
    if (!json_is_object(root)) {
        rp_log_error_at(s->name, 0, "not an object; valid is an object with the keys " KEYS);
        return RP_INPUT;
    }
    const char *key = rp_json_unknown_key(root, KEYS);
    if (key != NULL) {
        rp_log_error_at(s->name, 0, "unknown key '%.100s'; valid keys are " KEYS, key);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status take_all(json_t *root, rp_arena *arena, rpsim_sidecar *s)
{
    RP_TRY(check_keys(s, root));
    RP_TRY(take_version(s, root));
    RP_TRY(take_name(s, root, arena));
    RP_TRY(take_traits(s, root));
    RP_TRY(take_number(s, root, "microbatches", RP_MAX_MICROBATCHES, &s->microbatches));
    RP_TRY(take_number(s, root, "layers", RP_MAX_LAYERS, &s->layers));
    RP_TRY(take_layers(s, json_object_get(root, "forward_layers"), "forward_layers", true, arena,
                       &s->partition.forward_layers, &s->partition.forward_count));
    const json_t *backward = json_object_get(root, "backward_layers");
    if (!json_is_null(backward)) {
        RP_TRY(take_layers(s, backward, "backward_layers", false, arena,
                           &s->partition.backward_layers, &s->partition.backward_count));
        if (s->partition.backward_count == 0) {
            return bad(s, "backward_layers", "are null, or at least one pair of layers");
        }
    }
    return take_ranks(s, json_object_get(root, "ranks"), arena);
}

rp_status rpsim_sidecar_read(const char *name, const char *text, size_t length, rp_arena *arena,
                             rpsim_sidecar *sidecar_out)
{
    json_t *root = NULL;
    *sidecar_out = (rpsim_sidecar){.name = name};
    RP_TRY(
        rp_json_parse(name, text, length, "valid is one JSON object with the keys " KEYS, &root));
    rp_status status = take_all(root, arena, sidecar_out);
    json_decref(root);
    return status;
}

/* ---- beside a CSV ---------------------------------------------------------------------------- */

void rpsim_sidecar_apply(const rpsim_sidecar *sidecar, rp_torch_csv *csv)
{
    csv->separate = sidecar->partition.backward_count != 0;
    csv->forward_count = sidecar->partition.forward_count;
}

rp_status rpsim_sidecar_check(const rpsim_sidecar *s, const rp_torch_csv *csv, rp_arena *arena)
{
    uint8_t *seen = NULL;
    uint32_t *stages = NULL;
    const struct {
        const char *what;
        uint32_t here, there;
    } sizes[] = {
        {"stages", s->partition.forward_count + s->partition.backward_count, csv->stage_count},
        {"microbatches", s->microbatches, csv->microbatch_count},
        {"ranks", s->rank_count, csv->rank_count},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].here != sizes[i].there) {
            rp_log_error_at(s->name, 0, "%u %s, and %s has %u; valid is the side-car of that file",
                            sizes[i].here, sizes[i].what, csv->name, sizes[i].there);
            return RP_INPUT;
        }
    }
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, 1, &seen));
    RP_TRY(rp_arena_alloc(arena, csv->stage_count, sizeof *stages, &stages));
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        uint32_t count = stages_of_row(csv, rank, seen, stages);
        if (count != s->stage_counts[rank] ||
            memcmp(stages, s->rank_stages[rank], count * sizeof *stages) != 0) {
            rp_log_error_at(s->name, 0,
                            "'ranks' lists other stages for rank %u than row %u of %s has; valid "
                            "is the side-car of that file",
                            rank, rank + 1, csv->name);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

rp_status rpsim_sidecar_schedule(const rpsim_sidecar *sidecar, rp_arena *arena,
                                 const rp_schedule_type **schedule_out)
{
    rp_schedule_type *type = NULL;
    *schedule_out = &rp_torch_csv_schedule;
    if (sidecar == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *type, &type));
    *type = rp_torch_csv_schedule;
    type->name = sidecar->schedule;
    type->separate_backward = sidecar->partition.backward_count != 0;
    type->traits = sidecar->traits;
    *schedule_out = type;
    return RP_OK;
}
