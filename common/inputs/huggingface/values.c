/* Values of config.json, and messages about them. */
#include "common/base/log.h"
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 64u  /* most bytes of a key in a message */
#define MOST_MISSES 256u /* most searches through a whole file */

/* ---- messages -------------------------------------------------------------------------------- */

/* The end of the string that begins with the quote at `at`: the position after its closing
 * quote. */
static size_t string_end(const rp_text *text, size_t at)
{
    at++;
    while (at < text->length && text->bytes[at] != '"') {
        at += text->bytes[at] == '\\' ? 2 : 1;
    }
    return at + 1 < text->length ? at + 1 : text->length;
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

/* Moves on to a key of the reader's object that begins before `end`; false: there is none. */
static bool search(const rp_hf_config *config, const char *key, size_t end, rp_hf_cursor *c)
{
    const rp_text *text = config->text;
    while (c->at < text->length && c->at < end) {
        char byte = text->bytes[c->at];
        size_t next = byte == '"' ? string_end(text, c->at) : c->at + 1;
        c->line += byte == '\n' ? 1 : 0;
        c->depth += byte == '{' || byte == '[' ? 1 : 0;
        c->depth -= byte == '}' || byte == ']' ? 1 : 0;
        bool here = config->name == NULL ? c->depth == 1 : c->depth == 2 && c->inside;
        bool found = byte == '"' && here && is_key(text, c->at, next, key);
        if (byte == '"' && c->depth == 1) {
            c->inside = is_key(text, c->at, next, config->name);
        }
        c->at = next;
        if (found) {
            return true;
        }
    }
    return false;
}

/* Finds the line of a key. Most keys are asked for in the order of the file, so the search begins
 * at the end of the last search. A key with escapes is not found; after MOST_MISSES such keys the
 * search is given up. */
static size_t find_line(const rp_hf_config *config, const char *key)
{
    rp_hf_cursor none = {0};
    rp_hf_cursor *last = config->cursor != NULL ? config->cursor : &none;
    rp_hf_cursor begin = {.line = 1, .name = config->name, .misses = last->misses};
    rp_hf_cursor from = last->at > 0 && last->name == config->name ? *last : begin;
    rp_hf_cursor found = from;
    if (last->misses >= MOST_MISSES) {
        return 0;
    }
    if (search(config, key, SIZE_MAX, &found)) {
        *last = found;
        return found.line;
    }
    found = begin;
    if (search(config, key, from.at, &found)) {
        *last = found;
        return found.line;
    }
    last->misses++;
    return 0;
}

/* Reads the next "NAME=KEY" of a list; false: there is none. */
static bool next_name(const char **list, char name[static SHOWN_BYTES],
                      char key[static SHOWN_BYTES])
{
    int length = 0;
    bool found = *list != NULL && sscanf(*list, " %63[^=]=%63s%n", name, key, &length) == 2;
    if (found) {
        *list += length;
    }
    return found;
}

/* A key by the name that the file uses for it, and its place in the file. */
typedef struct place {
    char shown[2 * SHOWN_BYTES]; /* "OBJECT.KEY" for a key of an inner object */
    char line[24];               /* ":12", or empty without a line */
    size_t number;
} place;

static place place_of(const rp_hf_config *config, const char *key)
{
    char name[SHOWN_BYTES];
    char own[SHOWN_BYTES];
    place p = {.number = find_line(config, key)};
    const char *list = config->family != NULL ? config->family->also : NULL;
    bool inside = config->name != NULL;
    while (p.number == 0 && next_name(&list, name, own)) {
        p.number = strcmp(own, key) == 0 ? find_line(config, name) : 0;
        key = p.number != 0 ? name : key;
    }
    (void)snprintf(p.shown, sizeof p.shown, "%.63s%s%.63s", inside ? config->name : "",
                   inside ? "." : "", key);
    if (p.number != 0) {
        (void)snprintf(p.line, sizeof p.line, ":%zu", p.number);
    }
    return p;
}

size_t rp_hf_line(const rp_hf_config *config, const char *key)
{
    return place_of(config, key).number;
}

rp_status rp_hf_refuse(const rp_hf_config *config, const char *key, const char *cause,
                       const char *valid)
{
    place p = place_of(config, key);
    return rp_refuse_at(config->reason, RP_INPUT, config->path, p.number,
                        "%s: %s%svalid values are %s", p.shown, cause, cause[0] != '\0' ? "; " : "",
                        valid);
}

void rp_hf_warn(const rp_hf_config *config, const char *key, const char *effect)
{
    place p = place_of(config, key);
    if (config->reason == NULL) {
        rp_log_warning("%s%s: %s: %s", config->path, p.line, p.shown, effect);
    }
}

void rp_hf_warn_unknown(const rp_hf_config *config, const char *key)
{
    place p = place_of(config, key);
    if (config->reason == NULL) {
        rp_log_warning("%s%s: key '%s' is not known and was not used", config->path, p.line,
                       p.shown);
    }
}

void rp_hf_warn_not_finite(const rp_hf_config *config, const char *key)
{
    place p = place_of(config, key);
    if (config->reason == NULL) {
        rp_log_warning("%s%s: key '%s' holds %s, which JSON has not, and was not used",
                       config->path, p.line, p.shown,
                       rp_hf_not_finite(json_object_get(config->values, key)));
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Python writes numbers that JSON does not have. They are passed to jansson as strings that begin
 * with a private-use character. */
#define MARK "\xEE\x80\x80"

static const char *const not_finite[] = {"-Infinity", "Infinity", "NaN"};

/* The number of this kind at position `at`, which is outside of strings; NULL: none. */
static const char *not_finite_at(const rp_text *text, size_t at)
{
    for (size_t i = 0; i < sizeof not_finite / sizeof not_finite[0]; i++) {
        size_t length = strlen(not_finite[i]);
        if (length <= text->length - at && memcmp(text->bytes + at, not_finite[i], length) == 0) {
            return not_finite[i];
        }
    }
    return NULL;
}

/* Replaces such numbers by marked strings; the lines stay the same. */
static rp_status mark_numbers(const rp_text *text, rp_text *marked)
{
    size_t done = 0;
    size_t end = 0;
    for (size_t at = 0; at < text->length; at = end) {
        char c = text->bytes[at];
        const char *number = c == '-' || c == 'I' || c == 'N' ? not_finite_at(text, at) : NULL;
        end = c == '"' ? string_end(text, at) : at + (number != NULL ? strlen(number) : 1);
        if (number != NULL) {
            RP_TRY(rp_text_append(marked, text->bytes + done, at - done));
            RP_TRY(rp_text_print(marked, "\"" MARK "%s\"", number));
            done = end;
        }
    }
    return rp_text_append(marked, text->bytes + done, text->length - done);
}

rp_status rp_hf_parse(const char *path, const rp_text *text, json_t **root_out)
{
    rp_text marked = {0};
    json_error_t error;
    *root_out = NULL;
    rp_status status = mark_numbers(text, &marked);
    if (status == RP_OK) {
        *root_out = json_loadb(marked.length > 0 ? marked.bytes : "", marked.length,
                               JSON_REJECT_DUPLICATES, &error);
        if (*root_out == NULL) {
            rp_log_error("%s:%d: %s; valid values are one JSON object", path,
                         error.line > 0 ? error.line : 1, error.text);
            status = RP_INPUT;
        }
    }
    rp_text_fini(&marked);
    return status;
}

const char *rp_hf_not_finite(const json_t *value)
{
    const char *found = NULL;
    const char *text = json_string_value(value);
    if (text != NULL && strncmp(text, MARK, strlen(MARK)) == 0) {
        return text + strlen(MARK);
    }
    for (size_t i = 0; i < json_array_size(value) && found == NULL; i++) {
        found = rp_hf_not_finite(json_array_get(value, i));
    }
    const char *key;
    json_t *own;
    json_object_foreach((json_t *)(uintptr_t)value, key, own)
    {
        found = found != NULL ? found : rp_hf_not_finite(own);
    }
    return found;
}

/* ---- objects --------------------------------------------------------------------------------- */

static rp_status no_memory(const rp_hf_config *config)
{
    rp_log_error("out of memory: %s", config->path);
    return RP_NO_MEMORY;
}

rp_status rp_hf_rewind(rp_hf_config *config)
{
    json_decref(config->rest);
    config->rest = json_copy(config->values);
    return config->rest != NULL ? RP_OK : no_memory(config);
}

rp_status rp_hf_open(const rp_hf_config *outer, const char *name, const json_t *object,
                     rp_hf_config *inner_out)
{
    *inner_out = *outer;
    inner_out->name = name;
    inner_out->values = json_copy((json_t *)(uintptr_t)object);
    inner_out->rest = NULL;
    inner_out->defaults = NULL;
    return inner_out->values != NULL ? rp_hf_rewind(inner_out) : no_memory(outer);
}

void rp_hf_close(rp_hf_config *config)
{
    json_decref(config->values);
    json_decref(config->rest);
    json_decref(config->defaults);
    config->values = config->rest = config->defaults = NULL;
}

/* Renames a key that the file calls by another name of the family, "NAME=KEY". */
static rp_status rename_key(rp_hf_config *config, const char *name, const char *key)
{
    json_t *value = json_object_get(config->values, name);
    const json_t *own = json_object_get(config->values, key);
    if (value == NULL) {
        return RP_OK;
    }
    if (own != NULL && !json_equal(value, (json_t *)(uintptr_t)own)) {
        char cause[2 * SHOWN_BYTES];
        (void)snprintf(cause, sizeof cause, "differs from %s", name);
        return rp_hf_refuse(config, key, cause, "equal ones");
    }
    if (json_object_set(config->values, key, value) != 0) {
        return no_memory(config);
    }
    (void)json_object_del(config->values, name);
    return RP_OK;
}

rp_status rp_hf_set_family(rp_hf_config *config, const rp_hf_family *family)
{
    char name[SHOWN_BYTES];
    char key[SHOWN_BYTES];
    const char *list = family->also;
    config->family = family;
    json_decref(config->defaults);
    config->defaults = json_loads(family->keys, 0, NULL);
    if (config->defaults == NULL) {
        return no_memory(config);
    }
    RP_TRY(rp_hf_check_types(config));
    while (next_name(&list, name, key)) {
        RP_TRY(rename_key(config, name, key));
    }
    return rp_hf_rewind(config);
}

/* ---- values ---------------------------------------------------------------------------------- */

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
        const char *cause = rp_hf_not_finite(value);
        return rp_hf_refuse(config, key, cause != NULL ? cause : "", "numbers above 0");
    }
    *value_out = number;
    return RP_OK;
}

rp_status rp_hf_flag(const rp_hf_config *config, const char *key, bool *value_out)
{
    const json_t *value = rp_hf_get(config, key);
    if (value != NULL && !json_is_boolean(value) && !json_is_null(value)) {
        return rp_hf_refuse(config, key, "", "true and false");
    }
    value = value == NULL ? json_object_get(config->defaults, key) : value;
    *value_out = json_is_true(value);
    return RP_OK;
}

rp_status rp_hf_count(const rp_hf_config *config, const char *key, uint32_t null,
                      bool null_is_valid, uint32_t *value_out)
{
    char valid[96];
    int64_t least = 0;
    int64_t most = 0;
    const json_t *own = rp_hf_get(config, key);
    const json_t *value = own == NULL ? json_object_get(config->defaults, key) : own;
    bool is_null = value == NULL || json_is_null(value);
    if (is_null && null != 0 && (own == NULL || null_is_valid)) {
        *value_out = null;
        return RP_OK;
    }
    rp_hf_range(key, &least, &most);
    if (!rp_json_is_integer(value, least, most)) {
        (void)snprintf(valid, sizeof valid, "integers from %" PRId64 " to %" PRId64, least, most);
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
