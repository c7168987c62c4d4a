/** @file protobuf.h  The wire format of Protocol Buffers, as far as Chakra traces need it: varints,
 * fixed-size numbers and length-delimited bytes (protobuf.dev, "Encoding").
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

/** Bytes that are being read; borrowed. */
typedef struct rp_protobuf {
    const uint8_t *at;
    const uint8_t *end;
} rp_protobuf;

/** One field of a message. */
typedef struct rp_protobuf_field {
    uint32_t number; /**< from 1 */
    rp_protobuf_wire wire;
    uint64_t value;    /**< of varints and fixed-size numbers */
    rp_protobuf bytes; /**< of length-delimited fields */
} rp_protobuf_field;

/** @return true where a varint was read; otherwise nothing is taken: it is cut, or has more than 64
 * bits. */
bool rp_protobuf_varint(rp_protobuf *bytes, uint64_t *value_out);

/** Takes a length and so many bytes. @return true where they are all there; otherwise nothing is
 * taken */
bool rp_protobuf_delimited(rp_protobuf *bytes, rp_protobuf *content_out);

typedef enum rp_protobuf_next {
    RP_PROTOBUF_FIELD,
    RP_PROTOBUF_END,
    RP_PROTOBUF_BAD, /**< no field begins here, or it is cut */
} rp_protobuf_next;

/** Takes the next field of a message; where it is bad, nothing. */
rp_protobuf_next rp_protobuf_take(rp_protobuf *message, rp_protobuf_field *field_out);

/** A message that is being written. The first error stays; then the rest is skipped. */
typedef struct rp_protobuf_writer {
    rp_text text;
    rp_status status; /**< RP_OK, RP_NO_MEMORY */
} rp_protobuf_writer;

/** Appends a varint without a field. */
void rp_protobuf_put_varint(rp_protobuf_writer *writer, uint64_t value);

/** Appends a varint field, also where it is 0. */
void rp_protobuf_put_number(rp_protobuf_writer *writer, uint32_t field, uint64_t value);

/** Appends a length-delimited field. */
void rp_protobuf_put_bytes(rp_protobuf_writer *writer, uint32_t field, const void *bytes,
                           size_t length);

/** Appends what `part` holds as a length-delimited field, and empties `part`. */
void rp_protobuf_put_part(rp_protobuf_writer *writer, uint32_t field, rp_protobuf_writer *part);

/** Gives the memory back. */
void rp_protobuf_writer_fini(rp_protobuf_writer *writer);
