/* Results as JSON. */
#include "sim/study/columns.h"

void rpsim_field_write(const rpsim_study *study, const rpsim_row *row, const rpsim_field *field,
                       rp_json *json)
{
    switch (field->type) {
    case RPSIM_VALUE_NULL:
    case RPSIM_VALUE_ABSENT:
        rp_json_null(json);
        break;
    case RPSIM_VALUE_TEXT:
        rp_json_string(json, field->text);
        break;
    case RPSIM_VALUE_UINT:
        rp_json_uint(json, field->uint);
        break;
    case RPSIM_VALUE_BOOL:
        rp_json_bool(json, field->uint != 0);
        break;
    case RPSIM_VALUE_UINTS:
        rp_json_begin_array(json);
        for (uint32_t i = 0; i < field->count; i++) {
            rp_json_uint(json, field->uints[i]);
        }
        rp_json_end_array(json);
        break;
    case RPSIM_VALUE_MS:
        rp_json_ms(json, field->ps);
        break;
    case RPSIM_VALUE_REAL:
    case RPSIM_VALUE_REAL_MS:
        rp_json_double(json, rpsim_field_number(field));
        break;
    case RPSIM_VALUE_OBJECT:
        field->object(study, row, json);
        break;
    }
}

void rpsim_row_write_members(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    rpsim_field fields[RPSIM_MAX_FIELDS];
    uint32_t count = rpsim_row_fields(study, row, fields);
    for (uint32_t k = 0; k < count; k++) {
        rp_json_key(json, fields[k].key);
        rpsim_field_write(study, row, &fields[k], json);
    }
}

void rpsim_study_write_json(const rpsim_study *study, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < study->row_count; i++) {
        rp_json_begin_object(&json);
        rpsim_row_write_members(study, &study->rows[i], &json);
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    rp_json_end_document(&json);
}
