#include "common/formats/json_read.h"

#include "common/base/log.h"

#include <string.h>

rp_status rp_json_parse(const char *name, const char *bytes, size_t length, const char *valid,
                        json_t **document_out)
{
    json_error_t error;
    *document_out = json_loadb(bytes != NULL ? bytes : "", length, JSON_REJECT_DUPLICATES, &error);
    if (*document_out == NULL) {
        rp_log_error_at(name, error.line > 0 ? (size_t)error.line : 1, "%s; %s", error.text, valid);
        return RP_INPUT;
    }
    return RP_OK;
}

static bool is_listed(const char *key, const char *keys)
{
    size_t length = strlen(key);
    for (const char *at = keys; *at != '\0'; at += strspn(at, ", ")) {
        size_t word = strcspn(at, ",");
        if (word == length && memcmp(at, key, length) == 0) {
            return true;
        }
        at += word;
    }
    return false;
}

const char *rp_json_unknown_key(json_t *object, const char *keys)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value)
    {
        if (!is_listed(key, keys)) {
            return key;
        }
    }
    return NULL;
}

bool rp_json_is_integer(const json_t *value, int64_t low, int64_t high)
{
    return json_is_integer(value) && json_integer_value(value) >= low &&
           json_integer_value(value) <= high;
}
