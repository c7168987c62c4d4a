/* Values of config.json, and messages about them. */
#include "common/base/log.h"
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 64u /* of a key, in a message */

/* ---- messages ---------------------------------------------------------------------------------
 */

/* Where the string at `at`, which begins with a quote, ends: behind its closing one. */
static size_t string_end(const rp_text *text, size_t at)
{
    at++;
    while (at < text->length && text->bytes[at] != '"') {
        at += text->bytes[at] == '\\' ? 2 : 1;
    }
    return at + 1;
}

static bool is_key(const rp_text *text, size_t begin, size_t end, const char *key)
{
    size_t colon = end;
    while (colon < text->length && strchr(" \t\r\n", text->bytes[colon]) != NULL) {
        colon++;
    }
    return colon < text->length && text->bytes[colon] == ':' && key != NULL &&
           end - begin == strlen(key) + 2 && memcmp(text->bytes + begin + 1, key, strlen(key)) == 0;
}

size_t rp_hf_line(const rp_hf_config *config, const char *key)
{
    size_t line = 1;
    uint32_t depth = 0;
    bool inside = false; /* of the reader's object */
    for (size_t at = 0; at < config->text->length; at++) {
        char c = config->text->bytes[at];
        line += c == '\n' ? 1 : 0;
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        if (c != '"') {
            continue;
        }
        size_t end = string_end(config->text, at);
        bool here = config->name == NULL ? depth == 1 : depth == 2 && inside;
        if (here && is_key(config->text, at, end, key)) {
            return line;
        }
        inside = depth == 1 ? is_key(config->text, at, end, config->name) : inside;
        at = end - 1;
    }
    return 0;
}

/* "OBJECT.KEY" of an object inside. */
static const char *show(const rp_hf_config *config, const char *key, char shown[static SHOWN_BYTES])
{
    bool inside = config->name != NULL;
    (void)snprintf(shown, SHOWN_BYTES, "%s%s%s", inside ? config->name : "", inside ? "." : "",
                   key);
    return shown;
}

rp_status rp_hf_refuse(const rp_hf_config *config, const char *key, const char *cause,
                       const char *valid)
{
    char shown[SHOWN_BYTES];
    rp_log_error_at(config->path, rp_hf_line(config, key), "%s: %s%svalid values are %s",
                    show(config, key, shown), cause, cause[0] != '\0' ? "; " : "", valid);
    return RP_INPUT;
}

/* ":12", or nothing where there is no line. */
static const char *place_of(const rp_hf_config *config, const char *key, char place[static 24])
{
    size_t line = rp_hf_line(config, key);
    place[0] = '\0';
    if (line != 0) {
        (void)snprintf(place, 24, ":%zu", line);
    }
    return place;
}

void rp_hf_warn(const rp_hf_config *config, const char *key, const char *effect)
{
    char shown[SHOWN_BYTES];
    char place[24];
    rp_log_warning("%s%s: %s: %s", config->path, place_of(config, key, place),
                   show(config, key, shown), effect);
}

void rp_hf_warn_unknown(const rp_hf_config *config, const char *key)
{
    char shown[SHOWN_BYTES];
    char place[24];
    rp_log_warning("%s%s: key '%s' is not known and was not used", config->path,
                   place_of(config, key, place), show(config, key, shown));
}

/* ---- values -----------------------------------------------------------------------------------
 */

rp_status rp_hf_copy_keys(rp_hf_config *config)
{
    config->rest = json_copy((json_t *)(uintptr_t)config->values);
    if (config->rest == NULL) {
        rp_log_error("out of memory: %s", config->path);
        return RP_NO_MEMORY;
    }
    return RP_OK;
}

const json_t *rp_hf_get(const rp_hf_config *config, const char *key)
{
    (void)json_object_del(config->rest, key);
    return json_object_get(config->values, key);
}

rp_status rp_hf_number(const rp_hf_config *config, const char *key, double *value_out)
{
    const json_t *value = rp_hf_get(config, key);
    double number = value == NULL ? *value_out : json_number_value(value);
    if (!(number > 0) || !isfinite(number)) {
        return rp_hf_refuse(config, key, "", "numbers above 0");
    }
    *value_out = number;
    return RP_OK;
}

rp_status rp_hf_flag(const rp_hf_config *config, const char *key, bool *value_out)
{
    const json_t *value = rp_hf_get(config, key);
    if (value != NULL && !json_is_boolean(value)) {
        return rp_hf_refuse(config, key, "", "true and false");
    }
    value = value == NULL ? json_object_get(config->defaults, key) : value;
    *value_out = json_is_true(value);
    return RP_OK;
}

rp_status rp_hf_count(const rp_hf_config *config, const char *key, uint32_t least, uint32_t most,
                      uint32_t null, bool null_is_valid, uint32_t *value_out)
{
    char valid[96];
    const json_t *own = rp_hf_get(config, key);
    const json_t *value = own == NULL ? json_object_get(config->defaults, key) : own;
    bool is_null = value == NULL || json_is_null(value);
    if (is_null && null != 0 && (own == NULL || null_is_valid)) {
        *value_out = null;
        return RP_OK;
    }
    if (!rp_json_is_integer(value, least, most)) {
        (void)snprintf(valid, sizeof valid, "integers from %" PRIu32 " to %" PRIu32, least, most);
        return rp_hf_refuse(config, key, "", valid);
    }
    *value_out = (uint32_t)json_integer_value(value);
    return RP_OK;
}

bool rp_hf_is_empty(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}
