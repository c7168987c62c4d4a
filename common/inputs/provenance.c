#include "common/inputs/provenance.h"

#include "common/base/log.h"

#include <string.h>

#define SEPARATORS " ,"

static const char *const words[] = {
#define WORD(name, word) [RP_##name] = word,
    RP_PROVENANCES(WORD)
#undef WORD
};

const char *rp_provenance_text(rp_provenance kind)
{
    return words[kind];
}

bool rp_provenance_parse(const char *word, size_t length, rp_provenance *kind_out)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) == length && strncmp(words[i], word, length) == 0) {
            *kind_out = (rp_provenance)i;
            return true;
        }
    }
    return false;
}

/* Index of a key that holds a number; the number of fields if there is no such key. */
static size_t find_key(const rp_config_schema *schema, const char *key, size_t length)
{
    size_t i = 0;
    while (i < schema->field_count && !(strlen(schema->fields[i].key) == length &&
                                        strncmp(schema->fields[i].key, key, length) == 0 &&
                                        (schema->fields[i].type == RP_CONFIG_DOUBLE ||
                                         schema->fields[i].type == RP_CONFIG_U32))) {
        i++;
    }
    return i;
}

/* Reads a list of keys into `kinds`. @param line the list's, for messages */
static rp_status read_list(const char *name, size_t line, const rp_config_schema *schema,
                           rp_provenance kind, const char *list, uint8_t *kinds)
{
    for (const char *at = list; list != NULL && *(at += strspn(at, SEPARATORS)) != '\0';) {
        size_t length = strcspn(at, SEPARATORS);
        size_t field = find_key(schema, at, length);
        if (field == schema->field_count) {
            rp_log_error_at(name, line,
                            "'%s' names '%.*s'; valid values are keys of %s that have a number, "
                            "with blanks between them",
                            words[kind], (int)length, at, schema->what);
            return RP_INPUT;
        }
        if (kinds[field] != RP_ASSUMED) {
            rp_log_error_at(name, line,
                            "'%s' names '%.*s', which '%s' has named; valid is each key in one "
                            "list, once",
                            words[kind], (int)length, at, words[kinds[field]]);
            return RP_INPUT;
        }
        kinds[field] = (uint8_t)kind;
        at += length;
    }
    return RP_OK;
}

rp_status rp_provenance_read(const char *name, const rp_config_schema *schema, const size_t *lines,
                             const void *object, rp_arena *arena, const uint8_t **kinds_out)
{
    uint8_t *kinds = NULL;
    RP_TRY(rp_arena_alloc(arena, schema->field_count, sizeof *kinds, &kinds));
    memset(kinds, RP_ASSUMED, schema->field_count);
    for (size_t i = 0; i < schema->field_count; i++) {
        const rp_config_field *field = &schema->fields[i];
        rp_provenance kind;
        const char *list = NULL;
        if (field->type == RP_CONFIG_TEXT &&
            rp_provenance_parse(field->key, strlen(field->key), &kind)) {
            memcpy(&list, (const char *)object + field->offset, sizeof list);
            RP_TRY(read_list(name, lines[i], schema, kind, list, kinds));
        }
    }
    *kinds_out = kinds;
    return RP_OK;
}

rp_provenance rp_platform_provenance(const rp_platform *platform, const char *key)
{
    size_t field = find_key(&rp_platform_schema, key, strlen(key));
    bool known = platform->provenance != NULL && field < rp_platform_schema.field_count;
    return known ? (rp_provenance)platform->provenance[field] : RP_ASSUMED;
}
