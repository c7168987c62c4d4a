#include "exec/checkpoint/safetensors.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/links.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH_BYTES 8u
#define PIECE_BYTES ((size_t)16 << 20)

static const struct {
    const char *name;
    uint64_t bytes;
} dtypes[] = {
#define DTYPE(name, stored, text, alias, bytes) {stored, bytes},
    RP_DTYPE_LIST(DTYPE)
#undef DTYPE
};

const char *rpexec_safetensors_dtype(rp_dtype dtype)
{
    return dtypes[dtype].name;
}

/* ---- the header ------------------------------------------------------------------------------ */

static rp_status refuse(const char *path, const char *cause)
{
    rp_log_error("%s: %s", path, cause);
    return RP_INPUT;
}

static rp_status refuse_tensor(const char *path, const char *name, const char *cause)
{
    rp_log_error("%s: tensor \"%s\": %s", path, name, cause);
    return RP_INPUT;
}

static uint64_t little_endian(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

/* The header's length, checked without an addition that could overflow. */
static rp_status header_length(const char *path, const unsigned char *bytes, size_t length,
                               uint64_t file_bytes, uint64_t *header_out)
{
    if (file_bytes < LENGTH_BYTES || length < LENGTH_BYTES) {
        return refuse(path, "shorter than the 8 bytes of a header's length; valid are safetensors "
                            "files");
    }
    uint64_t header = little_endian(bytes);
    if (header > RPEXEC_SAFETENSORS_MAX_HEADER || header < 2 ||
        header > file_bytes - LENGTH_BYTES) {
        rp_log_error("%s: the header is said to have %" PRIu64
                     " bytes; valid values are 2 to %" PRIu64 " and no more than the file has",
                     path, header, RPEXEC_SAFETENSORS_MAX_HEADER);
        return RP_INPUT;
    }
    if (header > length - LENGTH_BYTES) {
        return refuse(path, "the header is cut off");
    }
    *header_out = header;
    return RP_OK;
}

static bool multiply(uint64_t a, uint64_t b, uint64_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

static rp_status read_dtype(const char *path, const char *name, const json_t *value,
                            rpexec_stored *t)
{
    if (!json_is_string(value)) {
        return refuse_tensor(path, name, "dtype must be a string");
    }
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        if (strcmp(json_string_value(value), dtypes[i].name) == 0) {
            t->dtype = (rp_dtype)i;
            return RP_OK;
        }
    }
    t->is_bytes = strcmp(json_string_value(value), "U8") == 0;
    if (t->is_bytes) {
        return RP_OK;
    }
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%s", json_string_value(value));
    rp_log_error("%s: tensor \"%s\": dtype %s cannot be read; valid values are F32, F16, BF16 and "
                 "U8",
                 path, name, shown);
    return RP_INPUT;
}

static bool natural(const json_t *value, uint64_t *number_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(value);
    return true;
}

static rp_status read_shape(const char *path, const char *name, const json_t *value,
                            rpexec_stored *t)
{
    if (!json_is_array(value) || json_array_size(value) > RPEXEC_SAFETENSORS_MAX_RANK) {
        return refuse_tensor(path, name, "shape must be an array of at most 8 sizes");
    }
    t->rank = (uint32_t)json_array_size(value);
    t->elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (!natural(json_array_get(value, i), &t->shape[i])) {
            return refuse_tensor(path, name, "shape must hold integers from 0 on");
        }
        if (!multiply(t->elements, t->shape[i], &t->elements)) {
            return refuse_tensor(path, name, "the product of its shape is beyond 64 bits");
        }
    }
    return RP_OK;
}

/* Offsets count from the first byte after the header. */
static rp_status read_offsets(const char *path, const char *name, const json_t *value,
                              uint64_t data_bytes, rpexec_stored *t)
{
    if (!json_is_array(value) || json_array_size(value) != 2 ||
        !natural(json_array_get(value, 0), &t->begin) ||
        !natural(json_array_get(value, 1), &t->end)) {
        return refuse_tensor(path, name, "data_offsets must be two integers from 0 on");
    }
    uint64_t bytes;
    if (!multiply(t->elements, t->is_bytes ? 1 : dtypes[t->dtype].bytes, &bytes)) {
        return refuse_tensor(path, name, "its size is beyond 64 bits");
    }
    if (t->begin > t->end || t->end > data_bytes) {
        rp_log_error("%s: tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64
                     "); valid are ascending ones up to %" PRIu64,
                     path, name, t->begin, t->end, data_bytes);
        return RP_INPUT;
    }
    if (t->end - t->begin != bytes) {
        rp_log_error("%s: tensor \"%s\": %" PRIu64 " bytes of data for a shape of %" PRIu64
                     " bytes",
                     path, name, t->end - t->begin, bytes);
        return RP_INPUT;
    }
    return RP_OK;
}

static bool has_control(const char *text)
{
    while (*text != '\0' && (unsigned char)*text >= ' ' && *text != '\x7f') {
        text++;
    }
    return *text != '\0';
}

static rp_status read_tensor(const char *path, const char *name, const json_t *value,
                             uint64_t data_bytes, rpexec_stored *t)
{
    if (name[0] == '\0') {
        return refuse(path, "a tensor has no name");
    }
    if (has_control(name)) { /* messages quote names, on one line */
        return refuse(path, "a tensor's name has control characters");
    }
    if (!json_is_object(value) || json_object_size(value) != 3) {
        return refuse_tensor(path, name, "valid are exactly dtype, shape and data_offsets");
    }
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (dtype == NULL || shape == NULL || offsets == NULL) {
        return refuse_tensor(path, name, "valid are exactly dtype, shape and data_offsets");
    }
    RP_TRY(read_dtype(path, name, dtype, t));
    RP_TRY(read_shape(path, name, shape, t));
    return read_offsets(path, name, offsets, data_bytes, t);
}

static rp_status copy_text(rp_arena *arena, const char *text, const char **copy_out)
{
    char *copy = NULL;
    size_t size = strlen(text) + 1;
    RP_TRY(rp_arena_alloc(arena, size, 1, &copy));
    memcpy(copy, text, size);
    *copy_out = copy;
    return RP_OK;
}

static rp_status read_metadata(json_t *value, rp_arena *arena, rpexec_safetensors *file)
{
    if (!json_is_object(value)) {
        return refuse(file->path, "__metadata__ must be an object of strings");
    }
    RP_TRY(rp_arena_alloc(arena, json_object_size(value), sizeof *file->metadata, &file->metadata));
    const char *key;
    json_t *text;
    json_object_foreach(value, key, text)
    {
        if (!json_is_string(text)) {
            return refuse(file->path, "__metadata__ must be an object of strings");
        }
        rpexec_metadata *entry = &file->metadata[file->metadata_count++];
        RP_TRY(copy_text(arena, key, &entry->key));
        RP_TRY(copy_text(arena, json_string_value(text), &entry->value));
    }
    return RP_OK;
}

static int by_place(const void *a, const void *b)
{
    const rpexec_stored *x = a;
    const rpexec_stored *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const rpexec_stored *const *x = a;
    const rpexec_stored *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static rp_status sort_names(rp_arena *arena, rpexec_safetensors *file)
{
    RP_TRY(rp_arena_alloc(arena, file->count, sizeof *file->by_name, &file->by_name));
    for (uint32_t i = 0; i < file->count; i++) {
        file->by_name[i] = &file->tensors[i];
    }
    if (file->count > 0) {
        qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    }
    return RP_OK;
}

/* Tensors must have no holes between them, no overlap, and nothing after the last tensor. */
static rp_status check_cover(rpexec_safetensors *file, uint64_t data_bytes)
{
    uint64_t at = 0;
    if (file->count > 0) {
        qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    }
    for (uint32_t i = 0; i < file->count; i++) {
        const rpexec_stored *t = &file->tensors[i];
        if (t->begin != at) {
            rp_log_error("%s: tensor \"%s\" begins at byte %" PRIu64 " of the data; the one before "
                         "ends at %" PRIu64 " (holes and overlaps are not valid)",
                         file->path, t->name, t->begin, at);
            return RP_INPUT;
        }
        at = t->end;
    }
    if (at != data_bytes) {
        rp_log_error("%s: %" PRIu64 " bytes behind the last tensor", file->path, data_bytes - at);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status read_root(json_t *root, uint64_t data_bytes, rp_arena *arena,
                           rpexec_safetensors *file)
{
    RP_TRY(rp_arena_alloc(arena, json_object_size(root), sizeof *file->tensors, &file->tensors));
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            RP_TRY(read_metadata(value, arena, file));
            continue;
        }
        rpexec_stored *t = &file->tensors[file->count++];
        RP_TRY(copy_text(arena, key, &t->name));
        RP_TRY(read_tensor(file->path, t->name, value, data_bytes, t));
    }
    RP_TRY(check_cover(file, data_bytes));
    return sort_names(arena, file); /* after check_cover, which moves the tensors */
}

rp_status rpexec_safetensors_parse(const char *path, const unsigned char *bytes, size_t length,
                                   uint64_t file_bytes, rp_arena *arena,
                                   rpexec_safetensors *file_out)
{
    uint64_t header = 0;
    *file_out = (rpexec_safetensors){.path = path, .descriptor = -1};
    RP_TRY(header_length(path, bytes, length, file_bytes, &header));
    const char *text = (const char *)bytes + LENGTH_BYTES;
    size_t end = header;
    while (end > 0 && text[end - 1] == ' ') { /* the padding */
        end--;
    }
    if (text[0] != '{' || end == 0 || text[end - 1] != '}') {
        return refuse(path, "the header must be one JSON object, from its first byte on");
    }
    json_error_t error;
    json_t *root = json_loadb(text, end, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        rp_log_error("%s: header, byte %d: %s", path, error.position, error.text);
        return RP_INPUT;
    }
    uint64_t data = LENGTH_BYTES + header;
    rp_status status = json_is_object(root) ? read_root(root, file_bytes - data, arena, file_out)
                                            : refuse(path, "the header must be one JSON object");
    json_decref(root);
    for (uint32_t i = 0; status == RP_OK && i < file_out->count; i++) {
        file_out->tensors[i].begin += data;
        file_out->tensors[i].end += data;
    }
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

static rp_status read_at(const char *path, int descriptor, uint64_t at, size_t bytes, void *to)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(descriptor, (char *)to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            rp_log_error("%s: %s", path, got < 0 ? strerror(errno) : "became shorter while read");
            return RP_IO;
        }
        done += (size_t)got;
    }
    return RP_OK;
}

static rp_status parse_file(rp_arena *arena, uint64_t file_bytes, int descriptor,
                            rpexec_safetensors *file)
{
    unsigned char start[LENGTH_BYTES];
    unsigned char *header = NULL;
    uint64_t length = 0;
    rp_arena *scratch = NULL;
    if (file_bytes >= LENGTH_BYTES) {
        RP_TRY(read_at(file->path, descriptor, 0, LENGTH_BYTES, start));
        uint64_t said = little_endian(start);
        length = said > RPEXEC_SAFETENSORS_MAX_HEADER ? 0 : said;
        length += LENGTH_BYTES;
        length = length < file_bytes ? length : file_bytes;
    }
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = rp_arena_alloc(scratch, length + 1, 1, &header);
    status = status == RP_OK ? read_at(file->path, descriptor, 0, length, header) : status;
    if (status == RP_OK) {
        status = rpexec_safetensors_parse(file->path, header, length, file_bytes, arena, file);
    }
    rp_arena_destroy(scratch);
    return status;
}

rp_status rpexec_safetensors_open(const char *path, rp_arena *arena, rpexec_safetensors *file_out)
{
    struct stat about;
    *file_out = (rpexec_safetensors){.descriptor = -1};
    RP_TRY(copy_text(arena, path, &file_out->path));
    RP_TRY(rpexec_links_check(path));
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a FIFO, which
                                                                       is refused below */
    if (descriptor < 0 || fstat(descriptor, &about) != 0) {
        rp_log_error("%s: %s", path, strerror(errno));
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
        return RP_INPUT;
    }
    rp_status status = S_ISREG(about.st_mode)
                           ? parse_file(arena, (uint64_t)about.st_size, descriptor, file_out)
                           : refuse(path, "not a regular file; valid are safetensors files");
    if (status != RP_OK) {
        (void)close(descriptor);
        return status;
    }
    file_out->descriptor = descriptor;
    return RP_OK;
}

void rpexec_safetensors_close(rpexec_safetensors *file)
{
    if (file->descriptor >= 0) {
        (void)close(file->descriptor);
    }
    file->descriptor = -1;
}

const rpexec_stored *rpexec_safetensors_find(const rpexec_safetensors *file, const char *name)
{
    const rpexec_stored key = {.name = name};
    const rpexec_stored *wanted = &key;
    const rpexec_stored **found = file->count == 0 ? NULL
                                                   : bsearch(&wanted, file->by_name, file->count,
                                                             sizeof *file->by_name, by_name);
    return found != NULL ? *found : NULL;
}

const char *rpexec_safetensors_metadata(const rpexec_safetensors *file, const char *key)
{
    for (uint32_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0) {
            return file->metadata[i].value;
        }
    }
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are taken as they are");

rp_status rpexec_safetensors_read(const rpexec_safetensors *file, const rpexec_stored *tensor,
                                  float *to)
{
    rp_arena *scratch = NULL;
    unsigned char *piece = NULL;
    uint64_t total = tensor->end - tensor->begin;
    size_t most = total < PIECE_BYTES ? (size_t)total : PIECE_BYTES;
    if (tensor->is_bytes) {
        return refuse_tensor(file->path, tensor->name,
                             "dtype U8; valid here are F32, F16 and BF16");
    }
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = rp_arena_alloc(scratch, most + 1, 1, &piece);
    for (uint64_t done = 0; status == RP_OK && done < total;) {
        size_t bytes = total - done < most ? (size_t)(total - done) : most;
        status = read_at(file->path, file->descriptor, tensor->begin + done, bytes, piece);
        if (status == RP_OK) {
            uint64_t width = dtypes[tensor->dtype].bytes;
            rpexec_widen(tensor->dtype, bytes / width, piece, to + done / width);
            done += bytes;
        }
    }
    rp_arena_destroy(scratch);
    return status;
}

rp_status rpexec_safetensors_read_bytes(const rpexec_safetensors *file, const rpexec_stored *tensor,
                                        uint64_t first, uint64_t count, uint8_t *to)
{
    return read_at(file->path, file->descriptor, tensor->begin + first, count, to);
}
