#include "sim/interchange/json_keys.h"

#include <stdbool.h>
#include <string.h>

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

const char *rpsim_json_unknown_key(json_t *object, const char *keys)
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
