#include "common/inputs/write/platform_write.h"

#include "common/formats/json.h"
#include "common/inputs/provenance.h"

#include <math.h>
#include <string.h>

static const void *member_of(const rp_platform *p, const rp_config_field *field)
{
    return (const char *)p + field->offset;
}

void rp_platform_add_note(rp_noted_platform *p, const char *key, const char *text)
{
    if (p->note_count < RP_PLATFORM_NOTES) {
        p->notes[p->note_count++] = (rp_platform_note){key, text};
    }
}

double *rp_platform_rate(rp_platform *platform, const char *key)
{
    for (size_t i = 0; i < rp_platform_schema.field_count; i++) {
        const rp_config_field *field = &rp_platform_schema.fields[i];
        if (field->type == RP_CONFIG_DOUBLE && strcmp(field->key, key) == 0) {
            return (double *)((char *)platform + field->offset);
        }
    }
    return NULL;
}

/* @return whether the key is written in another way: by another key, or in a list at the end. */
static bool is_derived(const rp_platform *p, rp_platform_key key)
{
    rp_provenance list;
    const char *name = rp_platform_schema.fields[key].key;
    return rp_provenance_parse(name, strlen(name), &list) ||
           (key == RP_PLATFORM_memory_gb && p->memory_gib > 0) ||
           (key == RP_PLATFORM_host_memory_gb && p->host_memory_gib > 0) ||
           (key == RP_PLATFORM_link_gb_per_s && p->pcie_gen > 0) ||
           (key == RP_PLATFORM_pcie_lanes && p->pcie_gen == 0);
}

static void write_text(const char *text, bool quoted, FILE *stream)
{
    if (!quoted) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', stream);
        }
        fputc(*text, stream);
    }
    fputc('"', stream);
}

/* Writes a value for each GPU. @return false: the platform has one for all */
static bool write_list(const rp_platform *p, const rp_config_field *field, FILE *stream)
{
    rp_config_numbers list;
    char digits[RP_JSON_NUMBER_SIZE];
    memcpy(&list, (const char *)p + field->list, sizeof list);
    for (uint32_t gpu = 0; gpu < list.count; gpu++) {
        rp_json_print_double(list.values[gpu], digits);
        fprintf(stream, "%s%s%s", gpu == 0 ? "[" : ", ", digits, gpu + 1 == list.count ? "]" : "");
    }
    return list.count > 0;
}

/* Writes a key and its value. A number of 0 is left out, unless a note gives its origin, since some
 * rates measure as 0. So is the value that an absent key would have.
 * @return false if nothing was written */
static bool write_key(const rp_platform *p, const rp_config_field *field, bool noted, FILE *stream)
{
    const char *text = NULL;
    double number = 0;
    uint32_t count = 0;
    bool flag = false;
    char digits[RP_JSON_NUMBER_SIZE];
    if (field->type == RP_CONFIG_TEXT || field->type == RP_CONFIG_NAME) {
        memcpy(&text, member_of(p, field), sizeof text);
    } else if (field->type == RP_CONFIG_U32) {
        memcpy(&count, member_of(p, field), sizeof count);
    } else if (field->type == RP_CONFIG_BOOL) {
        memcpy(&flag, member_of(p, field), sizeof flag);
    } else {
        memcpy(&number, member_of(p, field), sizeof number);
    }
    double value = number + count;
    bool silent = value == field->standard && field->standard != 0 && !field->stated;
    bool zero = noted && field->type == RP_CONFIG_DOUBLE && field->low <= 0;
    if (silent || (text == NULL && value == 0 && !flag && field->optional && !zero)) {
        return false;
    }
    fprintf(stream, "%s: ", field->key);
    if (field->list != 0 && write_list(p, field, stream)) {
        return true;
    }
    if (text != NULL) {
        bool word = field->type == RP_CONFIG_NAME || field->choices != NULL;
        write_text(text, !word, stream);
    } else if (field->type == RP_CONFIG_U32) {
        fprintf(stream, "%u", count);
    } else if (field->type == RP_CONFIG_BOOL) {
        fputs(flag ? "true" : "false", stream);
    } else {
        rp_json_print_double(number, digits);
        fputs(digits, stream);
    }
    return true;
}

/* @return the key's last note, NULL: none */
static const char *note_of(const char *key, const rp_platform_note *notes, uint32_t count)
{
    while (count > 0) {
        count--;
        if (strcmp(notes[count].key, key) == 0) {
            return notes[count].text;
        }
    }
    return NULL;
}

/* Origin of a value: as its note says, which a new value has; otherwise as the platform was
 * read. */
static rp_provenance kind_of(const rp_platform *p, const char *key, const char *note)
{
    rp_provenance kind = rp_platform_provenance(p, key);
    if (note != NULL && !rp_provenance_parse(note, strcspn(note, " :"), &kind)) {
        kind = RP_ASSUMED;
    }
    return kind;
}

void rp_platform_write(const rp_platform *platform, const char *head, const rp_platform_note *notes,
                       uint32_t count, FILE *stream)
{
    bool written[RP_CONFIG_MAX_FIELDS];
    fputs(head, stream);
    for (size_t i = 0; i < rp_platform_schema.field_count; i++) {
        const rp_config_field *field = &rp_platform_schema.fields[i];
        const char *note = note_of(field->key, notes, count);
        written[i] = !is_derived(platform, (rp_platform_key)i) &&
                     write_key(platform, field, note != NULL, stream);
        if (!written[i]) {
            continue;
        }
        if (note != NULL) {
            fprintf(stream, "  # %s", note);
        }
        fputc('\n', stream);
    }
    for (rp_provenance kind = RP_MEASURED; kind <= RP_SET; kind++) {
        const char *before = ": ";
        for (size_t i = 0; i < rp_platform_schema.field_count; i++) {
            const char *key = rp_platform_schema.fields[i].key;
            if (written[i] && kind_of(platform, key, note_of(key, notes, count)) == kind) {
                fprintf(stream, "%s%s%s", before[0] == ':' ? rp_provenance_text(kind) : "", before,
                        key);
                before = " ";
            }
        }
        fputs(before[0] == ' ' ? "\n" : "", stream);
    }
}

double rp_platform_rounded(double value)
{
    double scale = value > 0 ? pow(10, 3 - floor(log10(value))) : 1;
    return round(value * scale) / scale;
}
