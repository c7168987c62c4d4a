#include "common/formats/config_key_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <stdio.h>
#include <string.h>

/* Ends of keys that people use for units, the longest first; "" stands for no unit. */
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

/* Length of the key without the end that looks like a unit. */
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

/* The field that differs from `key` in its unit only; NULL if there is none. */
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
        /* memory_gib_per_s matches memory_gb_per_s rather than memory_gb */
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
    char keys[RP_CONFIG_KEYS_SIZE];
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

/* A missing key, or a missing pair of keys of which a file needs either. */
typedef struct missing_key {
    const rp_config_field *field;
    const rp_config_field *other; /* NULL: none */
} missing_key;

static size_t find_missing(const rp_config_schema *schema, const size_t *lines, missing_key *keys)
{
    size_t count = 0;
    for (size_t i = 0; i < schema->field_count; i++) {
        if (lines[i] == 0 && !schema->fields[i].optional) {
            keys[count++] = (missing_key){.field = &schema->fields[i]};
        }
    }
    for (size_t i = 0; i < schema->either_count; i++) {
        const size_t *pair = schema->either[i].fields;
        if (lines[pair[0]] == 0 && lines[pair[1]] == 0) {
            keys[count++] = (missing_key){&schema->fields[pair[0]], &schema->fields[pair[1]]};
        }
    }
    return count;
}

static rp_status list_key(const missing_key *key, const char *before, rp_text *text)
{
    RP_TRY(rp_text_print(text, "%s'%s'", before, key->field->key));
    return key->other != NULL ? rp_text_print(text, " or '%s'", key->other->key) : RP_OK;
}

/* Appends the valid values, such as "numbers from 0 to 1", after the key if several keys are
 * listed. */
static rp_status list_values(const rp_config_field *field, bool named, rp_text *text)
{
    char valid[512];
    rp_config_valid_values(field, valid, sizeof valid);
    return named ? rp_text_print(text, "%s: %s", field->key, valid)
                 : rp_text_print(text, "%s", valid);
}

rp_status rp_config_list_missing(const rp_config_schema *schema, const size_t *lines,
                                 rp_text *text_out)
{
    missing_key keys[2 * RP_CONFIG_MAX_FIELDS];
    size_t count = find_missing(schema, lines, keys);
    if (count == 0) {
        return RP_OK;
    }
    bool named = count > 1 || keys[0].other != NULL;
    RP_TRY(rp_text_print(text_out, count > 1 ? "the keys " : "the key "));
    for (size_t i = 0; i < count; i++) {
        RP_TRY(list_key(&keys[i], i == 0 ? "" : i + 1 < count ? ", " : " and ", text_out));
    }
    RP_TRY(rp_text_print(text_out, "; valid values are "));
    for (size_t i = 0; i < count; i++) {
        RP_TRY(rp_text_print(text_out, i > 0 ? "; " : ""));
        RP_TRY(list_values(keys[i].field, named, text_out));
        if (keys[i].other != NULL) {
            RP_TRY(rp_text_print(text_out, ", or "));
            RP_TRY(list_values(keys[i].other, true, text_out));
        }
    }
    return RP_OK;
}
