/* The safetensors reader: crafted bad headers, each refused with its cause; values of all types
 * against their definition; files that are written and read back (executor.md section 4.4). */
#include "exec/checkpoint/safetensors.h"
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(exec_safetensors, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

typedef struct bad {
    const char *header;
    uint64_t data_bytes;
    const char *cause;
} bad;

static const bad headers[] = {
    {"[]", 0, "one JSON object, from its first byte on"},
    {" {}", 0, "one JSON object, from its first byte on"},
    {"{}\n", 0, "one JSON object, from its first byte on"},
    {"{} x", 0, "one JSON object, from its first byte on"},
    {"{}{}", 0, "end of file expected"},
    {"{\"a\":}", 0, "header, byte"},
    {"{" T("a", "F32", "[1]", "[0,4]") ",", 4, "one JSON object, from its first byte on"},
    {"{\"\xff\":1}", 0, "unable to decode byte"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[0,4]") "}", 4, "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "duplicate"},
    {"{\"a\":1}", 0, "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4,
     "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype must be a string"},
    {"{" T("a", "F64", "[1]", "[0,8]") "}", 8, "dtype F64 cannot be read"},
    {"{" T("a", "F8_E4M3", "[1]", "[0,1]") "}", 1, "dtype F8_E4M3 cannot be read"},
    {"{" T("a", "F32", "4", "[0,4]") "}", 4, "shape must be an array"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "at most 8 sizes"},
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "shape must hold integers"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "shape must hold integers"},
    {"{" T("a", "F32", "[1e0]", "[0,4]") "}", 4, "shape must hold integers"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,4]") "}", 4, "too big integer"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, "beyond 64 bits"},
    {"{" T("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, "beyond 64 bits"},
    {"{" T("a", "F32", "[1]", "[0,4,4]") "}", 4, "data_offsets must be two integers"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "data_offsets must be two integers"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "valid are ascending ones up to 4"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 4, "valid are ascending ones up to 4"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "4 bytes of data for a shape of 8 bytes"},
    {"{" T("a", "F16", "[2]", "[0,8]") "}", 8, "8 bytes of data for a shape of 4 bytes"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "begins at byte 4"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12,
     "begins at byte 8"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", 8,
     "begins at byte 4"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, "1 bytes behind the last tensor"},
    {"{" T("", "F32", "[1]", "[0,4]") "}", 4, "has no name"},
    {"{\"a\\u0000b\":1}", 0, "\\u0000"},
    {"{" T("a\\nb", "F32", "[1]", "[0,4]") "}", 4, "name has control characters"},
    {"{" T("a", "F\\n", "[1]", "[0,4]") "}", 4, "dtype F\\x0a cannot be read"},
    {"{\"for\\u\n0000\":1}", 0, "header, byte"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ must be an object of strings"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ must be an object of strings"},
};

static rp_status parse(const char *header, uint64_t said, uint64_t data_bytes,
                       rpexec_safetensors *file, char *message, size_t size)
{
    unsigned char bytes[4096];
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(said >> (8 * i));
    }
    memcpy(bytes + 8, header, length);
    rp_log_capture_begin(message, size);
    rp_status status = rpexec_safetensors_parse("bad.safetensors", bytes, 8 + length,
                                                8 + length + data_bytes, rp_test_arena, file);
    rp_log_capture_end();
    return status;
}

Test(exec_safetensors, bad_headers_are_refused_with_their_cause)
{
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        char message[512] = "";
        rpexec_safetensors file;
        const bad *b = &headers[i];
        rp_status status =
            parse(b->header, strlen(b->header), b->data_bytes, &file, message, sizeof message);
        cr_expect(eq(int, status, RP_INPUT), "%s", b->header);
        cr_expect(strstr(message, "bad.safetensors: ") == message, "%s: %s", b->header, message);
        cr_expect(strstr(message, b->cause) != NULL, "%s: %s", b->header, message);
        cr_expect(strchr(message, '\n') == message + strlen(message) - 1, "%s", message);
    }
}

Test(exec_safetensors, bad_lengths_are_refused)
{
    static const uint64_t lengths[] = {
        0, 1, 100, UINT64_C(100000001), UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char message[512] = "";
        rpexec_safetensors file;
        rp_status status = parse("{}", lengths[i], 0, &file, message, sizeof message);
        cr_expect(eq(int, status, RP_INPUT));
        cr_expect(strstr(message, "the header is said to have") != NULL, "%s", message);
    }
    unsigned char few[4] = {2, 0, 0, 0};
    char message[512] = "";
    rpexec_safetensors file;
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpexec_safetensors_parse("few", few, 4, 4, rp_test_arena, &file);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
}

Test(exec_safetensors, good_headers_are_read)
{
    char message[512] = "";
    rpexec_safetensors file;
    const char *header =
        "{" T("b", "BF16", "[2,3]", "[4,16]") "," T("a", "F32", "[]", "[0,4]") "," T(
            "none", "F16", "[0,7]", "[4,4]") ",\"__metadata__\":{\"format\":\"pt\"}}   ";
    cr_assert(eq(int, parse(header, strlen(header), 12 + 4, &file, message, sizeof message), RP_OK),
              "%s", message);
    cr_assert(eq(u32, file.count, 3));
    const rpexec_stored *b = rpexec_safetensors_find(&file, "b");
    cr_assert(b != NULL);
    cr_expect(eq(u64, b->elements, 6));
    cr_expect(eq(u64, b->begin, 8 + strlen(header) + 4));
    cr_expect(eq(u64, rpexec_safetensors_find(&file, "a")->elements, 1));
    cr_expect(eq(str, (char *)rpexec_safetensors_metadata(&file, "format"), "pt"));
    cr_expect(rpexec_safetensors_find(&file, "c") == NULL);
}

static const char *path_of(const char *name)
{
    const char *path = NULL;
    cr_assert(eq(
        int, rp_arena_print(rp_test_arena, &path, "/tmp/rp-safetensors-%d-%s", (int)getpid(), name),
        RP_OK));
    return path;
}

static void write_bytes(const char *path, const char *header, const void *data, size_t bytes)
{
    FILE *stream = fopen(path, "wb");
    cr_assert(stream != NULL);
    uint64_t length = strlen(header);
    cr_assert(eq(sz, fwrite(&length, 1, 8, stream), 8));
    cr_assert(eq(sz, fwrite(header, 1, length, stream), length));
    cr_assert(eq(sz, fwrite(data, 1, bytes, stream), bytes));
    cr_assert(eq(int, fclose(stream), 0));
}

/* Every half-precision number: value = (-1)^s 2^(e - 15) (1 + f / 1024), 2^-14 f / 1024 for e = 0.
 */
Test(exec_safetensors, all_half_precision_numbers)
{
    static uint16_t halves[65536];
    static float values[65536];
    rpexec_safetensors file;
    const char *path = path_of("half");
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
    }
    write_bytes(path, "{" T("h", "F16", "[65536]", "[0,131072]") "}", halves, sizeof halves);
    cr_assert(eq(int, rpexec_safetensors_open(path, rp_test_arena, &file), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_read(&file, &file.tensors[0], values), RP_OK));
    for (uint32_t i = 0; i < 65536; i++) {
        int exponent = (int)(i >> 10 & 31);
        double fraction = (i & 1023) / 1024.0;
        double size = exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);
        double value = (i & 0x8000) != 0 ? -size : size;
        if (exponent == 31) {
            bool right = fraction != 0 ? isnan(values[i]) : isinf(values[i]);
            cr_expect(right, "%x", i);
        } else {
            cr_expect(eq(dbl, (double)values[i], value));
        }
    }
    rpexec_safetensors_close(&file);
    (void)unlink(path);
}

Test(exec_safetensors, what_is_written_reads_back)
{
    const float a[6] = {1.5f, -0.0f, 3e38f, 1e-40f, 5, 6};
    const float b[1] = {7};
    const rpexec_writable tensors[] = {
        {.name = "model.a", .rank = 2, .shape = {2, 3}, .values = a},
        {.name = "model.b", .rank = 1, .shape = {1}, .values = b},
    };
    const rpexec_metadata metadata[] = {{"step", "12"}};
    const char *path = path_of("written");
    rpexec_safetensors file;
    float values[6];
    cr_assert(eq(int, rpexec_safetensors_write(path, tensors, 2, metadata, 1), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_open(path, rp_test_arena, &file), RP_OK));
    const rpexec_stored *stored = rpexec_safetensors_find(&file, "model.a");
    cr_assert(stored != NULL);
    cr_expect(eq(u64, stored->begin % 8, 0));
    cr_expect(eq(u64, stored->shape[1], 3));
    cr_assert(eq(int, rpexec_safetensors_read(&file, stored, values), RP_OK));
    cr_expect(memcmp(values, a, sizeof a) == 0);
    cr_expect(eq(str, (char *)rpexec_safetensors_metadata(&file, "step"), "12"));
    rpexec_safetensors_close(&file);
    (void)unlink(path);
}

Test(exec_safetensors, files_that_are_none_are_refused)
{
    static const char *const paths[] = {"/nowhere/x.safetensors", "/tmp", "/dev/null"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char message[512] = "";
        rpexec_safetensors file;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rpexec_safetensors_open(paths[i], rp_test_arena, &file);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT), "%s", paths[i]);
        cr_expect(strstr(message, paths[i]) == message, "%s", message);
    }
}
