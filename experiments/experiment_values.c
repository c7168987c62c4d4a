/* Scalars, pairs and alternatives of an experiment file. */
#include "common/base/log.h"
#include "experiments/experiment_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t rpsweep_line_of(const yaml_node_t *node)
{
    return (uint32_t)node->start_mark.line + 1;
}

static yaml_node_t *node_at(rpsweep_reader *in, int index)
{
    return yaml_document_get_node(&in->document, index);
}

rp_status rpsweep_refuse(const rpsweep_reader *in, const yaml_node_t *node, const char *cause)
{
    rp_log_error_at(in->experiment->file, rpsweep_line_of(node), "%s", cause);
    return RP_INPUT;
}

/* ---- scalars --------------------------------------------------------------------------------- */

rp_status rpsweep_scalar_text(rpsweep_reader *in, const yaml_node_t *node, size_t most,
                              const char **text_out)
{
    const unsigned char *bytes = node->type == YAML_SCALAR_NODE ? node->data.scalar.value : NULL;
    size_t length = bytes != NULL ? node->data.scalar.length : 0;
    if (length == 0 || length > most) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node),
                        "expected a text or a number of 1 to %zu bytes", most);
        return RP_INPUT;
    }
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] < 0x20 || bytes[i] == 0x7f) {
            return rpsweep_refuse(in, node,
                                  "control characters in a text; valid is one line of text");
        }
    }
    return rp_arena_copy_text(in->arena, (const char *)bytes, length, text_out);
}

static bool is_plain(const yaml_node_t *node, const char *word)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)node->data.scalar.value, word) == 0;
}

/* `true` gives an option without a value; `false` and null give no option. */
rp_status rpsweep_option_value(rpsweep_reader *in, const yaml_node_t *node, const char **value_out)
{
    *value_out = NULL;
    if (is_plain(node, "false") || is_plain(node, "null") || is_plain(node, "~") ||
        is_plain(node, "")) {
        return RP_OK;
    }
    if (is_plain(node, "true")) {
        *value_out = "";
        return RP_OK;
    }
    return rpsweep_scalar_text(in, node, RPSWEEP_MOST_VALUE_BYTES, value_out);
}

rp_status rpsweep_whole_number(rpsweep_reader *in, const yaml_node_t *node, uint64_t low,
                               uint64_t high, uint64_t *value_out)
{
    const char *text = NULL;
    RP_TRY(rpsweep_scalar_text(in, node, 32, &text));
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node),
                        "'%s' is not valid; valid are whole numbers from %llu to %llu", text,
                        (unsigned long long)low, (unsigned long long)high);
        return RP_INPUT;
    }
    *value_out = value;
    return RP_OK;
}

static rp_status real_number(rpsweep_reader *in, const yaml_node_t *node, double *value_out)
{
    const char *text = NULL;
    RP_TRY(rpsweep_scalar_text(in, node, 64, &text));
    char *end = NULL;
    *value_out = strtod(text, &end);
    if (*end != '\0' || !isfinite(*value_out)) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node), "'%s' is not a number", text);
        return RP_INPUT;
    }
    return RP_OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

uint32_t rpsweep_pair_count(const yaml_node_t *node)
{
    return (uint32_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
}

/* Gives key and value of a pair; a key that occurs twice is refused. */
rp_status rpsweep_pair_at(rpsweep_reader *in, yaml_node_t *mapping, uint32_t index,
                          yaml_node_t **key_out, yaml_node_t **value_out)
{
    const yaml_node_pair_t *pairs = mapping->data.mapping.pairs.start;
    *key_out = node_at(in, pairs[index].key);
    *value_out = node_at(in, pairs[index].value);
    if ((*key_out)->type != YAML_SCALAR_NODE) {
        return rpsweep_refuse(in, *key_out, "expected a name as the key");
    }
    if (index >= RPSWEEP_MOST_KEYS) {
        return rpsweep_refuse(in, *key_out, "too many keys; valid are at most 1000");
    }
    for (uint32_t i = 0; i < index; i++) {
        const yaml_node_t *before = node_at(in, pairs[i].key);
        if (strcmp((const char *)before->data.scalar.value,
                   (const char *)(*key_out)->data.scalar.value) == 0) {
            rp_log_error_at(in->experiment->file, rpsweep_line_of(*key_out), "'%s' is there twice",
                            (const char *)before->data.scalar.value);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

bool rpsweep_key_is(const yaml_node_t *key, const char *name)
{
    return strcmp((const char *)key->data.scalar.value, name) == 0;
}

/* ---- alternatives of an option --------------------------------------------------------------- */

typedef struct range {
    double from, to, by;
    bool has_from, has_to, has_step, has_times;
} range;

static rp_status range_part(rpsweep_reader *in, const yaml_node_t *key, const yaml_node_t *value,
                            range *r)
{
    double number = 0;
    RP_TRY(real_number(in, value, &number));
    if (rpsweep_key_is(key, "from")) {
        r->from = number;
        r->has_from = true;
    } else if (rpsweep_key_is(key, "to")) {
        r->to = number;
        r->has_to = true;
    } else if (rpsweep_key_is(key, "step")) {
        r->by = number;
        r->has_step = true;
    } else if (rpsweep_key_is(key, "times")) {
        r->by = number;
        r->has_times = true;
    } else {
        return rpsweep_refuse(in, key,
                              "unknown part of a range; valid are from, to, and step or times");
    }
    return RP_OK;
}

/* The values of a range, including `to` if a step hits it. Steps are multiplied, not added up, so
 * that they do not drift. */
static rp_status range_values(rpsweep_reader *in, yaml_node_t *node, const char ***values_out,
                              uint32_t *count_out)
{
    range r = {0};
    for (uint32_t i = 0; i < rpsweep_pair_count(node); i++) {
        yaml_node_t *key = NULL;
        yaml_node_t *value = NULL;
        RP_TRY(rpsweep_pair_at(in, node, i, &key, &value));
        RP_TRY(range_part(in, key, value, &r));
    }
    bool one = r.has_step != r.has_times;
    bool grows = r.has_step ? r.by > 0 : r.by > 1 && r.from > 0;
    if (!r.has_from || !r.has_to || !one || !grows || r.to < r.from) {
        return rpsweep_refuse(in, node,
                              "bad range; valid is from <= to with step > 0, or with times > 1 "
                              "and from > 0");
    }
    double steps = r.has_step ? (r.to - r.from) / r.by : log(r.to / r.from) / log(r.by);
    if (steps >= RPSWEEP_MOST_VALUES) {
        return rpsweep_refuse(in, node, "a range of more than 1000000 values");
    }
    uint32_t count = (uint32_t)(steps + 1e-9) + 1;
    RP_TRY(rp_arena_alloc(in->arena, count, sizeof(char *), values_out));
    for (uint32_t i = 0; i < count; i++) {
        double value = r.has_step ? r.from + i * r.by : r.from * pow(r.by, i);
        RP_TRY(rp_arena_print(in->arena, &(*values_out)[i], "%.12g", value));
    }
    *count_out = count;
    return RP_OK;
}

/* Reads a value, a list, or a range. */
rp_status rpsweep_alternatives(rpsweep_reader *in, yaml_node_t *node, const char ***values_out,
                               uint32_t *count_out)
{
    if (node->type == YAML_MAPPING_NODE) {
        return range_values(in, node, values_out, count_out);
    }
    if (node->type == YAML_SCALAR_NODE) {
        *count_out = 1;
        RP_TRY(rp_arena_alloc(in->arena, 1, sizeof(char *), values_out));
        return rpsweep_option_value(in, node, &(*values_out)[0]);
    }
    const yaml_node_item_t *items = node->data.sequence.items.start;
    uint32_t count = (uint32_t)(node->data.sequence.items.top - items);
    if (count == 0 || count > RPSWEEP_MOST_VALUES) {
        return rpsweep_refuse(in, node, "an empty or overlong list; valid are 1 to 1000000 values");
    }
    RP_TRY(rp_arena_alloc(in->arena, count, sizeof(char *), values_out));
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rpsweep_option_value(in, node_at(in, items[i]), &(*values_out)[i]));
    }
    *count_out = count;
    return RP_OK;
}
