#include "common/inputs/changes.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Kinds of files whose numbers can change. */
static const rp_config_schema *const kinds[] = {&rp_costs_schema, &rp_platform_schema,
                                                &rp_stack_schema};
#define KINDS (sizeof kinds / sizeof kinds[0])

static bool is_number(const rp_config_field *field)
{
    return field->type == RP_CONFIG_U32 || field->type == RP_CONFIG_DOUBLE ||
           field->type == RP_CONFIG_NUMBERS;
}

/* The key that `key` may be meant to be. A key without the prefix of its kind is compared with the
 * keys after their prefixes. */
static const char *find_nearest(const char *key, const char *const *keys, uint32_t count)
{
    const char *ends[KINDS * RP_CONFIG_MAX_FIELDS];
    if (strchr(key, '.') != NULL) {
        return rp_text_nearest(key, keys, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        ends[i] = strchr(keys[i], '.') + 1;
    }
    const char *end = rp_text_nearest(key, ends, count);
    for (uint32_t i = 0; i < count; i++) {
        if (ends[i] == end) {
            return keys[i];
        }
    }
    return NULL;
}

/* The keys that can change, of all kinds. @return their number */
static uint32_t list_keys(rp_arena *arena, const char *keys[KINDS * RP_CONFIG_MAX_FIELDS],
                          rp_status *status)
{
    uint32_t count = 0;
    *status = RP_OK;
    for (size_t kind = 0; kind < KINDS; kind++) {
        const rp_config_schema *schema = kinds[kind];
        for (size_t i = 0; i < schema->field_count && *status == RP_OK; i++) {
            if (is_number(&schema->fields[i])) {
                *status = rp_arena_print(arena, &keys[count], "%s%s", schema->prefix,
                                         schema->fields[i].key);
                count += *status == RP_OK;
            }
        }
    }
    return count;
}

static rp_status refuse_key(const char *key, rp_arena *arena, rp_reason *reason)
{
    const char *keys[KINDS * RP_CONFIG_MAX_FIELDS];
    rp_status status;
    rp_text valid = {0};
    uint32_t count = list_keys(arena, keys, &status);
    RP_TRY(status);
    const char *nearest = find_nearest(key, keys, count);
    for (uint32_t i = 0; i < count && status == RP_OK; i++) {
        status = rp_text_print(&valid, "%s%s", i == 0 ? "" : ", ", keys[i]);
    }
    if (status == RP_OK) {
        status =
            rp_refuse(reason, RP_USAGE, "{set}: unknown key '%s'%s%s%s; valid values are %s", key,
                      nearest != NULL ? ", did you mean '" : "", nearest != NULL ? nearest : "",
                      nearest != NULL ? "'?" : "", valid.bytes);
    }
    rp_text_fini(&valid);
    return status;
}

static bool find_key(const char *key, rp_change *change)
{
    for (size_t kind = 0; kind < KINDS; kind++) {
        const rp_config_schema *schema = kinds[kind];
        size_t length = strlen(schema->prefix);
        for (size_t i = 0; i < schema->field_count; i++) {
            if (is_number(&schema->fields[i]) && strncmp(key, schema->prefix, length) == 0 &&
                strcmp(key + length, schema->fields[i].key) == 0) {
                change->schema = schema;
                change->field = i;
                return true;
            }
        }
    }
    return false;
}

static rp_status read_change(const char *option, const char *text, rp_arena *arena,
                             rp_change *change, rp_reason *reason)
{
    const char *key = NULL;
    size_t length = strcspn(text, "=*");
    if (length == 0 || text[length] == '\0') {
        return rp_option_bad(option, text, "KEY=NUMBER and KEY*FACTOR, such as costs.fwd_ms*1.05",
                             reason);
    }
    RP_TRY(rp_arena_copy_text(arena, text, length, &key));
    change->multiply = text[length] == '*';
    if (!find_key(key, change)) {
        return refuse_key(key, arena, reason);
    }
    change->text = text + strlen(change->schema->prefix);
    const rp_config_field *field = &change->schema->fields[change->field];
    char valid[512];
    bool whole = field->type == RP_CONFIG_U32 && !change->multiply;
    uint64_t count = 0;
    if (change->multiply) {
        snprintf(valid, sizeof valid, "factors from 0 to 1000000");
    } else {
        (void)rp_config_valid_values(field, valid, sizeof valid);
    }
    double low = change->multiply ? 0 : field->low;
    double high = change->multiply ? 1e6 : field->high;
    bool good =
        whole ? rp_parse_u64(text + length + 1, (uint64_t)field->low, (uint64_t)field->high, &count)
              : rp_parse_double(text + length + 1, low, high, &change->number);
    if (!good) {
        return rp_option_bad(option, text, valid, reason);
    }
    change->number = whole ? (double)count : change->number + 0.0; /* -0 becomes 0 */
    return RP_OK;
}

rp_status rp_changes_add(const char *option, const char *text, rp_arena *arena, rp_changes *changes,
                         rp_reason *reason)
{
    const char **texts = NULL;
    uint32_t count = 0;
    rp_change *items = NULL;
    RP_TRY(rp_option_list(option, text, arena, &texts, &count, reason));
    RP_TRY(rp_arena_alloc(arena, (size_t)changes->count + count, sizeof *items, &items));
    if (changes->count > 0) {
        memcpy(items, changes->items, changes->count * sizeof *items);
    }
    changes->items = items;
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(read_change(option, texts[i], arena, &items[changes->count], reason));
        changes->count++;
    }
    return RP_OK;
}

bool rp_changes_any(const rp_changes *changes, const rp_config_schema *schema)
{
    for (uint32_t i = 0; changes != NULL && i < changes->count; i++) {
        if (changes->items[i].schema == schema) {
            return true;
        }
    }
    return false;
}

bool rp_changes_set(const rp_changes *changes, const rp_config_schema *schema, size_t field)
{
    for (uint32_t i = 0; changes != NULL && i < changes->count; i++) {
        const rp_change *change = &changes->items[i];
        if (change->schema == schema && change->field == field && !change->multiply) {
            return true;
        }
    }
    return false;
}

bool rp_changes_touch(const rp_changes *changes, const rp_config_schema *schema, size_t field)
{
    bool touched = false;
    for (uint32_t i = 0; changes != NULL && i < changes->count; i++) {
        const rp_change *change = &changes->items[i];
        touched |= change->schema == schema && change->field == field;
    }
    return touched;
}

static rp_status refuse_result(const rp_change *change, const char *name, double value,
                               rp_reason *reason)
{
    const rp_config_field *field = &change->schema->fields[change->field];
    char valid[512];
    return rp_refuse_at(reason, RP_INPUT, name, 0,
                        "{set} %s%s makes '%s' %.15g; valid values are %s", change->schema->prefix,
                        change->text, field->key, value,
                        rp_config_valid_values(field, valid, sizeof valid));
}

static rp_status multiply(const rp_change *change, const char *name, double *value,
                          rp_reason *reason)
{
    const rp_config_field *field = &change->schema->fields[change->field];
    double product = *value * change->number;
    bool whole = field->type != RP_CONFIG_U32 || product == floor(product);
    if (!(product >= field->low && product <= field->high) || !whole) {
        return refuse_result(change, name, product, reason);
    }
    *value = product;
    return RP_OK;
}

static rp_status set_list(const rp_change *change, rp_arena *arena, rp_config_numbers *numbers)
{
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *numbers->values, &numbers->values));
    numbers->values[0] = change->number;
    numbers->count = 1;
    numbers->is_list = false;
    return RP_OK;
}

/* Multiplies the list of a key that may have one, or drops it. */
static rp_status change_list(const rp_change *change, const char *name, void *object,
                             rp_reason *reason)
{
    size_t list = change->schema->fields[change->field].list;
    rp_config_numbers *numbers = (rp_config_numbers *)(void *)((char *)object + list);
    if (list == 0) {
        return RP_OK;
    }
    numbers->count = change->multiply ? numbers->count : 0;
    for (uint32_t i = 0; i < numbers->count; i++) {
        RP_TRY(multiply(change, name, &numbers->values[i], reason));
    }
    return RP_OK;
}

static rp_status change_one(const rp_change *change, const char *name, rp_arena *arena,
                            void *object, rp_reason *reason)
{
    const rp_config_field *field = &change->schema->fields[change->field];
    void *member = (char *)object + field->offset;
    RP_TRY(change_list(change, name, object, reason));
    if (field->type == RP_CONFIG_NUMBERS) {
        rp_config_numbers *numbers = member;
        if (!change->multiply) {
            return set_list(change, arena, numbers);
        }
        for (uint32_t i = 0; i < numbers->count; i++) {
            RP_TRY(multiply(change, name, &numbers->values[i], reason));
        }
        return RP_OK;
    }
    double value = change->number;
    if (change->multiply) {
        value = field->type == RP_CONFIG_U32 ? *(uint32_t *)member : *(double *)member;
        RP_TRY(multiply(change, name, &value, reason));
    }
    if (field->type == RP_CONFIG_U32) {
        *(uint32_t *)member = (uint32_t)value;
    } else {
        *(double *)member = value;
    }
    return RP_OK;
}

rp_status rp_changes_apply(const rp_changes *changes, const rp_config_schema *schema,
                           const char *name, rp_arena *arena, void *object, size_t *lines,
                           rp_reason *reason)
{
    for (uint32_t i = 0; changes != NULL && i < changes->count; i++) {
        const rp_change *change = &changes->items[i];
        if (change->schema != schema) {
            continue;
        }
        const rp_config_field *field = &schema->fields[change->field];
        if (change->multiply && lines[change->field] == 0) {
            return rp_refuse_at(
                reason, RP_INPUT, name, 0,
                "{set} %s%s: the file has no '%s' to multiply; valid is %s%s=NUMBER",
                schema->prefix, change->text, field->key, schema->prefix, field->key);
        }
        RP_TRY(change_one(change, name, arena, object, reason));
        lines[change->field] = lines[change->field] != 0 ? lines[change->field] : 1;
    }
    return RP_OK;
}

rp_status rp_changes_name(const rp_changes *changes, const rp_config_schema *schema,
                          rp_arena *arena, const char **name)
{
    const char *before = " with ";
    for (uint32_t i = 0; changes != NULL && i < changes->count; i++) {
        if (changes->items[i].schema == schema) {
            RP_TRY(rp_arena_print(arena, name, "%s%s%s", *name, before, changes->items[i].text));
            before = " ";
        }
    }
    return RP_OK;
}
