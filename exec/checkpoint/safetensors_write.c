#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/json.h"
#include "exec/checkpoint/safetensors.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The reference writer pads the header so that data begins at a multiple of this. */
#define ALIGNMENT 8u
#define LENGTH_BYTES 8

uint64_t rpexec_writable_elements(const rpexec_writable *t)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        elements *= t->shape[i];
    }
    return elements;
}

static uint64_t bytes_of(const rpexec_writable *t)
{
    return rpexec_writable_elements(t) * rp_dtype_bytes(t->dtype);
}

static void write_header(FILE *stream, const rpexec_writable *tensors, uint32_t count,
                         const rpexec_metadata *metadata, uint32_t metadata_count)
{
    rp_json json;
    uint64_t at = 0;
    rp_json_begin_document(&json, stream, 0);
    rp_json_begin_object(&json);
    if (metadata_count > 0) {
        rp_json_key(&json, "__metadata__");
        rp_json_begin_object(&json);
        for (uint32_t i = 0; i < metadata_count; i++) {
            rp_json_member_string(&json, metadata[i].key, metadata[i].value);
        }
        rp_json_end_object(&json);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = bytes_of(&tensors[i]);
        rp_json_key(&json, tensors[i].name);
        rp_json_begin_object(&json);
        rp_json_member_string(&json, "dtype", rpexec_safetensors_dtype(tensors[i].dtype));
        rp_json_key(&json, "shape");
        rp_json_begin_array(&json);
        for (uint32_t k = 0; k < tensors[i].rank; k++) {
            rp_json_uint(&json, tensors[i].shape[k]);
        }
        rp_json_end_array(&json);
        rp_json_key(&json, "data_offsets");
        rp_json_begin_array(&json);
        rp_json_uint(&json, at);
        rp_json_uint(&json, at + bytes);
        rp_json_end_array(&json);
        rp_json_end_object(&json);
        at += bytes;
    }
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

static void write_little_endian(FILE *stream, uint64_t value)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    (void)fwrite(bytes, 1, sizeof bytes, stream);
}

/* Values in the byte order of the file, which is also the order of every machine with CUDA. */
static void write_values(FILE *stream, const rpexec_writable *t)
{
    (void)fwrite(t->values, 1, (size_t)bytes_of(t), stream);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "write_values copies values as they are");

rp_status rpexec_safetensors_write(const char *path, const rpexec_writable *tensors, uint32_t count,
                                   const rpexec_metadata *metadata, uint32_t metadata_count)
{
    rp_output output;
    RP_TRY(rp_output_open(path, &output));
    write_little_endian(output.stream, 0); /* place of the length, which is written once it is
                                              known */
    write_header(output.stream, tensors, count, metadata, metadata_count);
    long end = ftell(output.stream);
    if (end < LENGTH_BYTES || fseek(output.stream, --end, SEEK_SET) != 0) { /* over its newline */
        rp_log_error_at(path, 0, "cannot be written: %s", strerror(errno)); /* a full disk */
        rp_output_discard(&output);
        return RP_IO;
    }
    uint64_t length = (uint64_t)end - LENGTH_BYTES;
    uint64_t padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (uint64_t i = length; i < padded; i++) {
        (void)fputc(' ', output.stream);
    }
    if (padded == length) { /* the newline's byte belongs to the data now, or to nothing */
        (void)fflush(output.stream);
        (void)!ftruncate(fileno(output.stream), (off_t)end);
    }
    for (uint32_t i = 0; i < count; i++) {
        write_values(output.stream, &tensors[i]);
    }
    (void)fseek(output.stream, 0, SEEK_SET);
    write_little_endian(output.stream, padded);
    return rp_output_commit(&output);
}
