#include "common/formats/config.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/config_key_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define SHOWN_BYTES 48u /* most bytes of a bad value in a message */

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* current event; all zero (YAML_NO_EVENT) before the first */
    const char *name;
    const char *bytes;
    size_t length;
    const rp_config_schema *schema;
    rp_arena *arena;
    char *object;
    size_t lines[RP_CONFIG_MAX_FIELDS];
} reader;

/* A printable copy of an untrusted text, for messages. */
typedef struct shown {
    char text[SHOWN_BYTES + 4];
} shown;

static shown show(const unsigned char *bytes, size_t length)
{
    shown result = {{0}};
    size_t kept = length < SHOWN_BYTES ? length : SHOWN_BYTES;
    while (kept < length && kept > 0 && (bytes[kept] & 0xC0) == 0x80) {
        kept--; /* not inside a UTF-8 sequence */
    }
    for (size_t i = 0; i < kept; i++) {
        bool control = bytes[i] < 0x20 || bytes[i] == 0x7F;
        result.text[i] = control ? '?' : (char)bytes[i];
    }
    memcpy(result.text + kept, kept < length ? "..." : "", kept < length ? 4 : 1);
    return result;
}

static shown show_scalar(const reader *in)
{
    return show(in->event.data.scalar.value, in->event.data.scalar.length);
}

const char *rp_config_valid_values(const rp_config_field *field, char *buffer, size_t size)
{
    const char *blank = field->unit ? " " : "";
    const char *unit = field->unit ? field->unit : "";
    switch (field->type) {
    case RP_CONFIG_BOOL:
        snprintf(buffer, size, "true, false");
        break;
    case RP_CONFIG_U32:
    case RP_CONFIG_U64:
        snprintf(buffer, size, "whole numbers from %.0f to %.0f%s%s", field->low, field->high,
                 blank, unit);
        break;
    case RP_CONFIG_DOUBLE:
        snprintf(buffer, size, "numbers from %.15g to %.15g%s%s", field->low, field->high, blank,
                 unit);
        break;
    case RP_CONFIG_NUMBERS:
        snprintf(buffer, size, "one number, or a list of numbers, from %.15g to %.15g%s%s",
                 field->low, field->high, blank, unit);
        break;
    case RP_CONFIG_NAME:
        snprintf(buffer, size, "1 to %.0f letters, digits and . _ + - @, the first none of + - @",
                 field->high);
        break;
    case RP_CONFIG_TEXT:
        if (field->choices) {
            rp_config_join_choices(field->choices, buffer, size);
        } else {
            snprintf(buffer, size, "texts of 1 to %.0f bytes without control characters",
                     field->high);
        }
        break;
    }
    return buffer;
}

/* Positions. */

static size_t event_line(const reader *in)
{
    return in->event.start_mark.line + 1;
}

/* Line of an offset: for some errors libyaml gives no line. */
static size_t line_of_offset(const reader *in, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset && i < in->length; i++) {
        line += in->bytes[i] == '\n';
    }
    return line;
}

static rp_status refuse_syntax(const reader *in)
{
    const yaml_parser_t *parser = &in->parser;
    if (parser->error == YAML_MEMORY_ERROR) {
        rp_log_error("out of memory: libyaml cannot read '%s'", in->name);
        return RP_NO_MEMORY;
    }
    bool in_bytes = parser->error == YAML_READER_ERROR;
    size_t line =
        in_bytes ? line_of_offset(in, parser->problem_offset) : parser->problem_mark.line + 1;
    char context[160] = "";
    if (!in_bytes && parser->context) {
        snprintf(context, sizeof context, " %s that begins in line %zu", parser->context,
                 parser->context_mark.line + 1);
    }
    rp_log_error_at(in->name, line, "not YAML: %s%s; valid values are UTF-8 lines 'key: value'",
                    parser->problem ? parser->problem : "unknown problem", context);
    return RP_INPUT;
}

static rp_status next_event(reader *in)
{
    yaml_event_delete(&in->event); /* harmless on zeroes */
    if (!yaml_parser_parse(&in->parser, &in->event)) {
        return refuse_syntax(in);
    }
    return RP_OK;
}

/* Values. */

static rp_status refuse_value(const reader *in, const rp_config_field *field, const char *cause)
{
    char valid[512];
    rp_log_error_at(in->name, event_line(in), "'%s' %s; valid values are %s%s", field->key, cause,
                    rp_config_valid_values(field, valid, sizeof valid),
                    field->list != 0 ? ", or a list [A, B, …] with a number for each GPU" : "");
    return RP_INPUT;
}

static rp_status refuse_scalar(const reader *in, const rp_config_field *field, const char *cause)
{
    char text[256];
    snprintf(text, sizeof text, "is '%s'%s%s", show_scalar(in).text, *cause ? ", " : "", cause);
    return refuse_value(in, field, text);
}

/* True for texts such as "7.4 ms", whose unit belongs into the key. */
static bool carries_unit(const char *text)
{
    size_t number = strspn(text, "+-0123456789.");
    const char *rest = text + number + strspn(text + number, " _");
    bool digits = strcspn(text, "0123456789") < number;
    bool letter = (*rest >= 'a' && *rest <= 'z') || (*rest >= 'A' && *rest <= 'Z');
    bool exponent = (*rest == 'e' || *rest == 'E') && strspn(rest + 1, "+-0123456789") > 0;
    bool hexadecimal = *rest == 'x' || *rest == 'X' || *rest == 'o';
    return digits && ((letter && !exponent && !hexadecimal) || *rest == '%');
}

static rp_status refuse_number(const reader *in, const rp_config_field *field)
{
    const char *text = (const char *)in->event.data.scalar.value;
    char cause[128] = "";
    if (in->event.data.scalar.length != strlen(text)) {
        snprintf(cause, sizeof cause, "not a number");
    } else if (in->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        snprintf(cause, sizeof cause, "a quoted text");
    } else if (in->event.start_mark.line != in->event.end_mark.line) {
        snprintf(cause, sizeof cause, "a text of several lines");
    } else if (carries_unit(text)) {
        snprintf(cause, sizeof cause, "which carries a unit, but the unit is always %s%s",
                 field->unit ? field->unit : "1", field->unit ? ", as the key says" : "");
    }
    return refuse_scalar(in, field, cause);
}

/* Such numbers are octal in YAML 1.1 but decimal to a reader, so they are refused. */
static bool has_leading_zero(const char *text)
{
    text += *text == '-' || *text == '+';
    return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

static bool is_plain_number(const reader *in)
{
    const char *text = (const char *)in->event.data.scalar.value;
    return in->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && *text != '+' &&
           in->event.data.scalar.length == strlen(text) && !has_leading_zero(text);
}

static rp_status read_double(reader *in, const rp_config_field *field, double *value_out)
{
    const char *text = (const char *)in->event.data.scalar.value;
    if (!is_plain_number(in) || !rp_parse_double(text, field->low, field->high, value_out)) {
        return refuse_number(in, field);
    }
    *value_out += 0.0; /* -0 becomes 0 */
    return RP_OK;
}

static rp_status read_whole(reader *in, const rp_config_field *field, uint64_t *value_out)
{
    const char *text = (const char *)in->event.data.scalar.value;
    uint64_t low = (uint64_t)field->low;
    uint64_t high = (uint64_t)field->high;
    if (!is_plain_number(in) || !rp_parse_u64(text, low, high, value_out)) {
        return refuse_number(in, field);
    }
    return RP_OK;
}

static rp_status read_bool(reader *in, const rp_config_field *field, bool *value_out)
{
    const char *text = (const char *)in->event.data.scalar.value;
    bool plain = in->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    *value_out = strcmp(text, "true") == 0;
    if (!plain || (!*value_out && strcmp(text, "false") != 0)) {
        return refuse_scalar(in, field, plain ? "" : "a quoted text");
    }
    return RP_OK;
}

static bool has_control(const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] < 0x20 || bytes[i] == 0x7F) {
            return true;
        }
    }
    return false;
}

bool rp_config_is_name(const char *text, size_t length)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._+-@"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return length > 0 && strspn(text, allowed) >= length && strchr("+-@", *text) == NULL;
}

static bool is_choice(const rp_config_field *field, const char *text)
{
    for (size_t i = 0; field->choices && field->choices[i]; i++) {
        if (strcmp(field->choices[i], text) == 0) {
            return true;
        }
    }
    return !field->choices;
}

static rp_status read_text(reader *in, const rp_config_field *field, const char **value_out)
{
    const unsigned char *bytes = in->event.data.scalar.value;
    const char *text = (const char *)bytes;
    size_t length = in->event.data.scalar.length;
    bool plain = in->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (length == 0 || (plain && (strcmp(text, "~") == 0 || strcmp(text, "null") == 0))) {
        return refuse_value(in, field, "has no value");
    }
    if (length > (size_t)field->high) {
        return refuse_scalar(in, field, "too long");
    }
    if (has_control(bytes, length)) {
        return refuse_scalar(in, field, "with control characters");
    }
    if ((field->type == RP_CONFIG_NAME && !rp_config_is_name(text, length)) ||
        !is_choice(field, text)) {
        return refuse_scalar(in, field, "");
    }
    return rp_arena_copy_text(in->arena, text, length, value_out);
}

/* Refuses anchors, aliases and tags: no file needs them, and aliases make small files expand to
 * huge ones. */
static rp_status check_plain_node(const reader *in, const rp_config_field *field)
{
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    if (in->event.type == YAML_SCALAR_EVENT) {
        anchor = in->event.data.scalar.anchor;
        tag = in->event.data.scalar.tag;
    } else if (in->event.type == YAML_SEQUENCE_START_EVENT) {
        anchor = in->event.data.sequence_start.anchor;
        tag = in->event.data.sequence_start.tag;
    } else if (in->event.type == YAML_MAPPING_START_EVENT) {
        return refuse_value(in, field, "is a mapping");
    }
    if (in->event.type == YAML_ALIAS_EVENT || anchor) {
        return refuse_value(in, field, "uses an anchor or alias, which are not supported");
    }
    return tag ? refuse_value(in, field, "has a tag, which are not supported") : RP_OK;
}

static rp_status add_number(reader *in, const rp_config_field *field, uint32_t count,
                            uint32_t *capacity, double **values)
{
    if (count == RP_CONFIG_MAX_ITEMS) {
        rp_log_error_at(in->name, event_line(in),
                        "'%s' is too long; valid values are lists of at "
                        "most %u numbers",
                        field->key, RP_CONFIG_MAX_ITEMS);
        return RP_INPUT;
    }
    if (count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 64;
        RP_TRY(rp_mem_resize(values, *capacity * sizeof **values));
    }
    return read_double(in, field, &(*values)[count]);
}

/* Reads items up to the end of the list into a heap block that the caller releases. */
static rp_status read_items(reader *in, const rp_config_field *field, uint32_t *count_out,
                            double **values)
{
    uint32_t capacity = 0;
    *count_out = 0;
    for (;;) {
        RP_TRY(next_event(in));
        if (in->event.type == YAML_SEQUENCE_END_EVENT) {
            break;
        }
        RP_TRY(check_plain_node(in, field));
        if (in->event.type != YAML_SCALAR_EVENT) {
            return refuse_value(in, field, "has a list inside the list");
        }
        RP_TRY(add_number(in, field, *count_out, &capacity, values));
        ++*count_out;
    }
    return *count_out > 0 ? RP_OK : refuse_value(in, field, "is an empty list");
}

static rp_status read_list(reader *in, const rp_config_field *field, rp_config_numbers *numbers)
{
    double *items = NULL;
    uint32_t count;
    rp_status status = read_items(in, field, &count, &items);
    if (status == RP_OK) {
        status = rp_arena_alloc(in->arena, count, sizeof *items, &numbers->values);
    }
    if (status == RP_OK) {
        memcpy(numbers->values, items, count * sizeof *items);
        numbers->count = count;
        numbers->is_list = true;
    }
    rp_mem_release(&items);
    return status;
}

/* Reads a list into its place, and the least of its numbers into the member. */
static rp_status read_each(reader *in, const rp_config_field *field, void *member)
{
    rp_config_numbers *numbers = (rp_config_numbers *)(void *)(in->object + field->list);
    RP_TRY(read_list(in, field, numbers));
    double least = numbers->values[0];
    for (uint32_t i = 0; i < numbers->count; i++) {
        least = fmin(least, numbers->values[i]);
        if (field->type == RP_CONFIG_U32 && numbers->values[i] != floor(numbers->values[i])) {
            return refuse_value(in, field, "has a fraction");
        }
    }
    const uint32_t whole = (uint32_t)least;
    bool counts = field->type == RP_CONFIG_U32;
    memcpy(member, counts ? (const void *)&whole : &least, counts ? sizeof whole : sizeof least);
    return RP_OK;
}

static rp_status read_numbers(reader *in, const rp_config_field *field, rp_config_numbers *numbers)
{
    if (in->event.type == YAML_SEQUENCE_START_EVENT) {
        return read_list(in, field, numbers);
    }
    RP_TRY(rp_arena_alloc(in->arena, 1, sizeof *numbers->values, &numbers->values));
    numbers->count = 1;
    numbers->is_list = false;
    return read_double(in, field, numbers->values);
}

static rp_status read_u32(reader *in, const rp_config_field *field, uint32_t *value_out)
{
    uint64_t whole;
    RP_TRY(read_whole(in, field, &whole));
    *value_out = (uint32_t)whole;
    return RP_OK;
}

static rp_status read_value(reader *in, const rp_config_field *field)
{
    void *member = in->object + field->offset;
    RP_TRY(check_plain_node(in, field));
    bool list = in->event.type == YAML_SEQUENCE_START_EVENT;
    if (list && field->list != 0) {
        return read_each(in, field, member);
    }
    if (list && field->type != RP_CONFIG_NUMBERS) {
        return refuse_value(in, field, "is a list");
    }
    if (!list && in->event.data.scalar.length == 0) {
        return refuse_value(in, field, "has no value");
    }
    switch (field->type) {
    case RP_CONFIG_TEXT:
    case RP_CONFIG_NAME:
        return read_text(in, field, member);
    case RP_CONFIG_BOOL:
        return read_bool(in, field, member);
    case RP_CONFIG_U32:
        return read_u32(in, field, member);
    case RP_CONFIG_U64:
        return read_whole(in, field, member);
    case RP_CONFIG_DOUBLE:
        return read_double(in, field, member);
    case RP_CONFIG_NUMBERS:
        return read_numbers(in, field, member);
    }
    return rp_broken();
}

/* Keys. */

static rp_status find_field(const reader *in, size_t *index_out)
{
    const char *key = (const char *)in->event.data.scalar.value;
    for (size_t i = 0; i < in->schema->field_count; i++) {
        if (strcmp(in->schema->fields[i].key, key) == 0) {
            *index_out = i;
            return RP_OK;
        }
    }
    rp_config_refuse_key(in->name, event_line(in), show_scalar(in).text, in->schema);
    return RP_INPUT;
}

static rp_status check_key(const reader *in)
{
    bool scalar = in->event.type == YAML_SCALAR_EVENT;
    if (!scalar || in->event.data.scalar.anchor || in->event.data.scalar.tag ||
        has_control(in->event.data.scalar.value, in->event.data.scalar.length)) {
        rp_log_error_at(in->name, event_line(in),
                        "a key is no plain word; valid values are lines 'key: value'");
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status read_pair(reader *in)
{
    size_t index;
    RP_TRY(check_key(in));
    RP_TRY(find_field(in, &index));
    const rp_config_field *field = &in->schema->fields[index];
    if (in->lines[index] != 0) {
        rp_log_error_at(in->name, event_line(in),
                        "duplicate key '%s', first in line %zu; valid values are keys used once",
                        field->key, in->lines[index]);
        return RP_INPUT;
    }
    in->lines[index] = event_line(in);
    RP_TRY(next_event(in));
    return read_value(in, field);
}

/* Documents. */

static rp_status refuse_document(const reader *in, const char *cause)
{
    char keys[RP_CONFIG_KEYS_SIZE];
    rp_config_join_keys(in->schema, keys, sizeof keys);
    rp_log_error_at(in->name, event_line(in),
                    "%s; valid values are the keys of %s, one per line: %s", cause,
                    in->schema->what, keys);
    return RP_INPUT;
}

static rp_status begin_mapping(reader *in)
{
    RP_TRY(next_event(in)); /* begin of the stream */
    RP_TRY(next_event(in));
    if (in->event.type != YAML_DOCUMENT_START_EVENT) {
        return refuse_document(in, "the file is empty");
    }
    RP_TRY(next_event(in));
    if (in->event.type != YAML_MAPPING_START_EVENT) {
        bool empty = in->event.type == YAML_SCALAR_EVENT && in->event.data.scalar.length == 0;
        return refuse_document(in, empty ? "the document is empty"
                                         : "the document is no mapping of keys to values");
    }
    if (in->event.data.mapping_start.anchor || in->event.data.mapping_start.tag) {
        return refuse_document(in, "the document has an anchor or a tag");
    }
    return RP_OK;
}

static rp_status end_stream(reader *in)
{
    RP_TRY(next_event(in)); /* end of the document */
    RP_TRY(next_event(in));
    if (in->event.type != YAML_STREAM_END_EVENT) {
        rp_log_error_at(in->name, event_line(in),
                        "a second document begins; valid values are files with one document");
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rp_config_check_missing(const char *name, size_t first_line,
                                  const rp_config_schema *schema, const size_t *lines)
{
    rp_text missing = {0};
    rp_status status = rp_config_list_missing(schema, lines, &missing);
    if (status == RP_OK && missing.length > 0) {
        rp_log_error_at(name, first_line, "%s needs %s", schema->what, missing.bytes);
        status = RP_INPUT;
    }
    rp_text_fini(&missing);
    return status;
}

static void set_standard(char *object, const rp_config_field *field)
{
    if (field->standard != 0 && field->type == RP_CONFIG_U32) {
        *(uint32_t *)(void *)(object + field->offset) = (uint32_t)field->standard;
    } else if (field->standard != 0 && field->type == RP_CONFIG_DOUBLE) {
        *(double *)(void *)(object + field->offset) = field->standard;
    }
}

static rp_status read_document(reader *in, size_t *first_line_out)
{
    for (size_t i = 0; i < in->schema->field_count; i++) {
        set_standard(in->object, &in->schema->fields[i]);
    }
    RP_TRY(begin_mapping(in));
    *first_line_out = event_line(in);
    RP_TRY(next_event(in));
    while (in->event.type != YAML_MAPPING_END_EVENT) {
        RP_TRY(read_pair(in));
        RP_TRY(next_event(in));
    }
    return end_stream(in);
}

static rp_status check_bytes(const reader *in)
{
    if (in->length > RP_CONFIG_MAX_BYTES) {
        rp_log_error_at(in->name, 0, "the file is too long; valid values are at most %zu bytes",
                        RP_CONFIG_MAX_BYTES);
        return RP_INPUT;
    }
    const char *nul = in->length > 0 ? memchr(in->bytes, '\0', in->length) : NULL;
    if (nul) {
        rp_log_error_at(in->name, line_of_offset(in, (size_t)(nul - in->bytes)),
                        "a NUL byte; valid values are UTF-8 text");
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rp_config_parse_part(const char *name, const char *bytes, size_t length,
                               const rp_config_schema *schema, rp_arena *arena, void *object_out,
                               size_t *lines_out, size_t *first_line_out)
{
    reader in = {.name = name,
                 .bytes = bytes,
                 .length = length,
                 .schema = schema,
                 .arena = arena,
                 .object = object_out};
    RP_TRY(check_bytes(&in));
    if (!yaml_parser_initialize(&in.parser)) {
        rp_log_error("out of memory: libyaml cannot read '%s'", name);
        return RP_NO_MEMORY;
    }
    yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&in.parser, (const unsigned char *)bytes, length);
    rp_status status = read_document(&in, first_line_out);
    yaml_event_delete(&in.event);
    yaml_parser_delete(&in.parser);
    if (status == RP_OK) {
        memcpy(lines_out, in.lines, schema->field_count * sizeof *lines_out);
    }
    return status;
}

rp_status rp_config_parse(const char *name, const char *bytes, size_t length,
                          const rp_config_schema *schema, rp_arena *arena, void *object_out,
                          size_t *lines_out)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    size_t first_line;
    RP_TRY(
        rp_config_parse_part(name, bytes, length, schema, arena, object_out, lines, &first_line));
    RP_TRY(rp_config_check_missing(name, first_line, schema, lines));
    if (lines_out) {
        memcpy(lines_out, lines, schema->field_count * sizeof *lines_out);
    }
    return RP_OK;
}
