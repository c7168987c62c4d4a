/** @file protobuf.h  The part of the wire format of Protocol Buffers that Chakra traces need:
 * varints, fixed-size numbers and length-delimited bytes (protobuf.dev, "Encoding").
 *
 * A library would bring a compiler and generated code along for three dozen lines of reading.
 * Groups (wire types 3 and 4), which proto3 does not have, are refused.
 */
#pragma once

#include "common/base/text.h"

typedef enum rp_protobuf_wire {
    RP_PROTOBUF_VARINT = 0,
    RP_PROTOBUF_FIXED64 = 1,
    RP_PROTOBUF_BYTES = 2,
    RP_PROTOBUF_FIXED32 = 5,
} rp_protobuf_wire;

/** The bytes that are still to be read; borrowed. */
typedef struct rp_protobuf {
    const uint8_t *at;
    const uint8_t *end;
} rp_protobuf;

/** A field of a message. */
typedef struct rp_protobuf_field {
    uint32_t number; /**< from 1 */
    rp_protobuf_wire wire;
    uint64_t value;    /**< value of a varint or fixed-size number */
    rp_protobuf bytes; /**< content of a length-delimited field */
} rp_protobuf_field;

/** Takes a varint. @return false, and nothing is taken, if it is cut or has more than 64 bits. */
bool rp_protobuf_varint(rp_protobuf *bytes, uint64_t *value_out);

/** Takes a length and that many bytes. @return false, and nothing is taken, if bytes are missing */
bool rp_protobuf_delimited(rp_protobuf *bytes, rp_protobuf *content_out);

typedef enum rp_protobuf_next {
    RP_PROTOBUF_FIELD,
    RP_PROTOBUF_END,
    RP_PROTOBUF_BAD, /**< the bytes are no field, or the field is cut */
} rp_protobuf_next;

/** Takes the next field of a message; takes nothing if the field is bad. */
rp_protobuf_next rp_protobuf_take(rp_protobuf *message, rp_protobuf_field *field_out);

/** A message that is being written. The first error stays in `status`, and later calls do
 * nothing. */
typedef struct rp_protobuf_writer {
    rp_text text;
    rp_status status; /**< RP_OK, RP_NO_MEMORY */
} rp_protobuf_writer;

/** Appends a varint without a field. */
void rp_protobuf_put_varint(rp_protobuf_writer *writer, uint64_t value);

/** Appends a varint field, even if it is 0. */
void rp_protobuf_put_number(rp_protobuf_writer *writer, uint32_t field, uint64_t value);

/** Appends a length-delimited field. */
void rp_protobuf_put_bytes(rp_protobuf_writer *writer, uint32_t field, const void *bytes,
                           size_t length);

/** Appends the content of `part` as a length-delimited field, and empties `part`. */
void rp_protobuf_put_part(rp_protobuf_writer *writer, uint32_t field, rp_protobuf_writer *part);

/** Gives the memory back. */
void rp_protobuf_writer_fini(rp_protobuf_writer *writer);
