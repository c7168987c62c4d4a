#include "common/formats/config_key_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <stdio.h>
#include <string.h>

/* Ends of keys that people use for units; "" is the key without any. Longest first. */
static const char *const unit_ends[] = {
    "_gbit_per_s", "_tflop_per_s", "_gib_per_s", "_mib_per_s", "_tib_per_s", "_kib_per_s",
    "_gb_per_s",   "_mb_per_s",    "_tb_per_s",  "_kb_per_s",  "_seconds",   "_gb_per_sec",
    "_millis",     "_micros",      "_nanos",     "_tflops",    "_gflops",    "_pflops",
    "_bytes",      "_gbps",        "_mbps",      "_gb_s",      "_gibps",     "_msec",
    "_usec",       "_nsec",        "_sec",       "_gib",       "_mib",       "_kib",
    "_tib",        "_gb",          "_mb",        "_kb",        "_tb",        "_ms",
    "_us",         "_ns",          "_ps",        "_s",
};

static void join(const char *piece, bool first, char *buffer, size_t size)
{
    size_t length = strlen(buffer);
    snprintf(buffer + length, size - length, "%s%s", first ? "" : ", ", piece);
}

void rp_config_join_choices(const char *const *choices, char *buffer, size_t size)
{
    buffer[0] = '\0';
    for (size_t i = 0; choices[i]; i++) {
        join(choices[i], i == 0, buffer, size);
    }
}

void rp_config_join_keys(const rp_config_schema *schema, char *buffer, size_t size)
{
    buffer[0] = '\0';
    for (size_t i = 0; i < schema->field_count; i++) {
        join(schema->fields[i].key, i == 0, buffer, size);
    }
}

/* Length of the key without what looks like a unit. */
static size_t stem_length(const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 0; i < sizeof unit_ends / sizeof *unit_ends; i++) {
        size_t end = strlen(unit_ends[i]);
        if (length > end && strcmp(key + length - end, unit_ends[i]) == 0) {
            return length - end;
        }
    }
    return length;
}

/* The field that differs from `key` in its unit only; NULL when there is none. */
static const rp_config_field *find_other_unit(const rp_config_schema *schema, const char *key)
{
    size_t stem = stem_length(key);
    bool rate = strstr(key + stem, "per_s") || strstr(key + stem, "ps");
    const rp_config_field *found = NULL;
    bool found_same = false;
    for (size_t i = 0; i < schema->field_count; i++) {
        const rp_config_field *field = &schema->fields[i];
        if (!field->unit || stem_length(field->key) != stem ||
            strncmp(field->key, key, stem) != 0) {
            continue;
        }
        /* memory_gib_per_s is memory_gb_per_s rather than memory_gb */
        bool same = (strstr(field->key + stem, "per_s") != NULL) == rate;
        if (!found || (same && !found_same)) {
            found = field;
            found_same = same;
        }
    }
    return found;
}

static const char *find_nearest(const rp_config_schema *schema, const char *key)
{
    const char *keys[RP_CONFIG_MAX_FIELDS];
    for (size_t i = 0; i < schema->field_count; i++) {
        keys[i] = schema->fields[i].key;
    }
    return rp_text_nearest(key, keys, schema->field_count);
}

void rp_config_refuse_key(const char *file, size_t line, const char *key,
                          const rp_config_schema *schema)
{
    char keys[1024];
    char hint[160] = "";
    const rp_config_field *other = find_other_unit(schema, key);
    const char *nearest = other ? NULL : find_nearest(schema, key);
    if (other) {
        snprintf(hint, sizeof hint, ", the unit must be %s: '%s'", other->unit, other->key);
    } else if (nearest) {
        snprintf(hint, sizeof hint, ", did you mean '%s'?", nearest);
    }
    rp_config_join_keys(schema, keys, sizeof keys);
    rp_log_error_at(file, line, "unknown key '%s'%s; valid values are %s", key, hint, keys);
}
