/* Settings of a run as JSON, from the rows. */
#include "common/cli/options_internal.h"

#include <string.h>

#define MOST_KEY 128u   /* bytes of a key with a number or a choice */
#define MOST_ESCAPED 6u /* most bytes of JSON for a byte of text */

/* True if the member is not 0. */
static bool has_value(rp_option_member of, const void *object)
{
    const char *member = (const char *)object + of.offset;
    for (size_t i = 0; i < of.size; i++) {
        if (member[i] != 0) {
            return true;
        }
    }
    return false;
}

static void write_u32(const rp_option *row, uint32_t value, rp_json *json)
{
    if (row->all && value == 0) {
        rp_json_string(json, "all");
    } else {
        rp_json_uint(json, value);
    }
}

static void write_choice(const rp_option *row, const char *member, const char *given, rp_json *json)
{
    if (row->to.size == 0) {
        rp_json_string(json, given);
        return;
    }
    const char *choice = NULL;
    size_t length = rp_options_choice(row, member, &choice);
    rp_json_string_n(json, choice, length);
}

static void write_value(const rp_option *row, const void *options, const char *given, rp_json *json)
{
    const char *member = (const char *)options + row->to.offset;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    double real = 0;
    const char *text = NULL;
    bool flag = false;
    if (row->write_value != NULL) {
        row->write_value(options, json);
        return;
    }
    switch (row->kind) {
    case RP_OPTION_FLAG:
        memcpy(&flag, member, sizeof flag);
        rp_json_uint(json, flag ? 1 : 0);
        break;
    case RP_OPTION_U32:
        memcpy(&u32, member, sizeof u32);
        write_u32(row, u32, json);
        break;
    case RP_OPTION_U64:
        memcpy(&u64, member, sizeof u64);
        rp_json_uint(json, u64);
        break;
    case RP_OPTION_MIB:
        memcpy(&u64, member, sizeof u64);
        rp_json_uint(json, u64 >> 20);
        break;
    case RP_OPTION_REAL:
        memcpy(&real, member, sizeof real);
        rp_json_double(json, real);
        break;
    case RP_OPTION_TEXT:
        memcpy(&text, member, sizeof(void *));
        rp_json_string(json, text != NULL ? text : row->none);
        break;
    case RP_OPTION_CHOICE:
        write_choice(row, member, given, json);
        break;
    case RP_OPTION_LIST:
    case RP_OPTION_TAKE:
        rp_json_string(json, given);
        break;
    }
}

static void write_setting(const rp_option *row, const void *options, const char *given,
                          rp_json *json)
{
    char key[MOST_KEY / 2];
    if (row->write != NULL) {
        row->write(options, json);
        return;
    }
    (void)snprintf(key, sizeof key, "%s", row->key != NULL ? row->key : row->name);
    for (char *c = key; *c != '\0'; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    rp_json_key(json, key);
    write_value(row, options, given, json);
}

void rp_options_write_settings(const rp_options_program *program, const void *options, bool all,
                               rp_json *json)
{
    const rp_options *base = options;
    for (uint32_t i = 0; i < program->row_count; i++) {
        const rp_option *row = &program->rows[i];
        bool there = all || base->given[i].when != 0 || has_value(row->to, options);
        if (there && program->groups[row->group].settings && !row->own_setting) {
            write_setting(row, options, base->given[i].text, json);
        }
    }
}

void rp_option_write_members(const rp_option *rows, uint32_t count, const void *object,
                             rp_json *json)
{
    for (uint32_t i = 0; i < count; i++) {
        bool there = has_value(rows[i].to, object) || has_value(rows[i].given, object);
        if (there && !rows[i].own_setting) {
            write_setting(&rows[i], object, NULL, json);
        }
    }
}

size_t rp_options_settings_size(const rp_options_program *program, const void *options)
{
    const rp_options *base = options;
    size_t size = 0;
    for (uint32_t i = 0; i < program->row_count; i++) {
        const char *text = base->given[i].text;
        size += MOST_KEY + (text != NULL ? MOST_ESCAPED * strlen(text) : 0);
    }
    return size;
}

void rp_options_write_value(const rp_options_program *program, const void *options,
                            const rp_option *row, rp_json *json)
{
    const rp_options *base = options;
    write_value(row, options, base->given[row - program->rows].text, json);
}
