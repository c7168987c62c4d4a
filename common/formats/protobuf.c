#include "common/formats/protobuf.h"

#define MAX_VARINT_BYTES 10
#define MAX_FIELD ((UINT32_C(1) << 29) - 1)

bool rp_protobuf_varint(rp_protobuf *bytes, uint64_t *value_out)
{
    uint64_t value = 0;
    const uint8_t *at = bytes->at;
    for (unsigned i = 0; i < MAX_VARINT_BYTES && at < bytes->end; i++) {
        uint8_t byte = *at++;
        if (i == MAX_VARINT_BYTES - 1 && byte > 1) {
            return false; /* more than 64 bits */
        }
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            bytes->at = at;
            *value_out = value;
            return true;
        }
    }
    return false;
}

bool rp_protobuf_delimited(rp_protobuf *bytes, rp_protobuf *content_out)
{
    rp_protobuf rest = *bytes;
    uint64_t length = 0;
    if (!rp_protobuf_varint(&rest, &length) || length > (size_t)(rest.end - rest.at)) {
        return false;
    }
    *content_out = (rp_protobuf){rest.at, rest.at + length};
    bytes->at = content_out->end;
    return true;
}

static bool take_fixed(rp_protobuf *bytes, size_t size, uint64_t *value_out)
{
    uint64_t value = 0;
    if ((size_t)(bytes->end - bytes->at) < size) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)*bytes->at++ << (8 * i);
    }
    *value_out = value;
    return true;
}

static bool take_value(rp_protobuf *bytes, rp_protobuf_field *field)
{
    switch (field->wire) {
    case RP_PROTOBUF_VARINT:
        return rp_protobuf_varint(bytes, &field->value);
    case RP_PROTOBUF_FIXED64:
        return take_fixed(bytes, 8, &field->value);
    case RP_PROTOBUF_FIXED32:
        return take_fixed(bytes, 4, &field->value);
    case RP_PROTOBUF_BYTES:
        return rp_protobuf_delimited(bytes, &field->bytes);
    }
    return false; /* groups and unknown wire types */
}

rp_protobuf_next rp_protobuf_take(rp_protobuf *message, rp_protobuf_field *field_out)
{
    rp_protobuf rest = *message;
    uint64_t key = 0;
    if (rest.at == rest.end) {
        return RP_PROTOBUF_END;
    }
    if (!rp_protobuf_varint(&rest, &key) || key >> 3 == 0 || key >> 3 > MAX_FIELD) {
        return RP_PROTOBUF_BAD;
    }
    *field_out =
        (rp_protobuf_field){.number = (uint32_t)(key >> 3), .wire = (rp_protobuf_wire)(key & 7)};
    if (!take_value(&rest, field_out)) {
        return RP_PROTOBUF_BAD;
    }
    *message = rest;
    return RP_PROTOBUF_FIELD;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put(rp_protobuf_writer *writer, const void *bytes, size_t length)
{
    if (writer->status == RP_OK && length > 0) {
        writer->status = rp_text_append(&writer->text, bytes, length);
    }
}

void rp_protobuf_put_varint(rp_protobuf_writer *writer, uint64_t value)
{
    char bytes[MAX_VARINT_BYTES];
    size_t length = 0;
    for (; value > 0x7f; value >>= 7) {
        bytes[length++] = (char)(uint8_t)(value | 0x80);
    }
    bytes[length++] = (char)(uint8_t)value;
    put(writer, bytes, length);
}

static void put_key(rp_protobuf_writer *writer, uint32_t field, rp_protobuf_wire wire)
{
    rp_protobuf_put_varint(writer, (uint64_t)field << 3 | (uint64_t)wire);
}

void rp_protobuf_put_number(rp_protobuf_writer *writer, uint32_t field, uint64_t value)
{
    put_key(writer, field, RP_PROTOBUF_VARINT);
    rp_protobuf_put_varint(writer, value);
}

void rp_protobuf_put_bytes(rp_protobuf_writer *writer, uint32_t field, const void *bytes,
                           size_t length)
{
    put_key(writer, field, RP_PROTOBUF_BYTES);
    rp_protobuf_put_varint(writer, length);
    put(writer, bytes, length);
}

void rp_protobuf_put_part(rp_protobuf_writer *writer, uint32_t field, rp_protobuf_writer *part)
{
    if (part->status != RP_OK) {
        writer->status = part->status;
        return;
    }
    rp_protobuf_put_bytes(writer, field, part->text.bytes, part->text.length);
    part->text.length = 0;
}

void rp_protobuf_writer_fini(rp_protobuf_writer *writer)
{
    rp_text_fini(&writer->text);
}
