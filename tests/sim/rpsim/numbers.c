/* Numbers in every text format: a value that is too large or negative is refused with its line, or
 * read exactly; none wraps. Plain tests put each value once in each kind of place, RP_LONG in every
 * place. */
#include "common/base/log.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "common/inputs/write/platform_write.h"
#include "common/timeline/timeline_csv.h"
#include "common/timeline/timeline_rows.h"
#include "common/torch/torch_csv.h"
#include "sim/interchange/chakra.h"
#include "sim/run/memory/memory.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST_KEYS 4096u

static const char *const values[] = {"2147483648",
                                     "4294967296",
                                     "9007199254740992",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "-1",
                                     "1e30"};

static char messages[4096];
static rp_program *program; /* of the timeline being read */

TestSuite(numbers, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

/* ---- readers, which write the read text again ------------------------------------------------ */

typedef rp_status (*reread)(const char *text, size_t length, FILE *again);

static rp_status read_program(const char *text, size_t length, FILE *again)
{
    rp_program *read = NULL;
    RP_TRY(rp_program_read("numbers", text, length, &read));
    double bytes = 0; /* of all that a reader may sum */
    for (uint32_t i = 0; i < read->buffer_count; i++) {
        bytes += (double)read->buffers[i].bytes;
    }
    for (uint32_t i = 0; i < read->op_count && read->op_bytes != NULL; i++) {
        bytes += (double)read->op_bytes[i];
    }
    cr_expect(lt(dbl, bytes, 0x1p63));
    rp_program_write(read, again);
    rp_program_destroy(read);
    return RP_OK;
}

static rp_status read_timeline(const char *text, size_t length, FILE *again)
{
    rp_timeline *timeline = NULL;
    RP_TRY(rp_timeline_read_csv("numbers", text, length, program, &timeline));
    rp_timeline_write_csv(timeline, again);
    rp_timeline_destroy(timeline);
    return RP_OK;
}

/* From a file, without its program, as in rpdiff. */
static rp_status read_rows(const char *text, size_t length, FILE *again)
{
    rp_read_timeline read = {0};
    FILE *stream = fopen("numbers", "w"); /* in the test's folder */
    cr_assert(stream != NULL && fwrite(text, 1, length, stream) == length && fclose(stream) == 0);
    rp_status status = rp_timeline_read_file("numbers", &read);
    if (status == RP_OK) {
        rp_timeline_write_csv(read.timeline, again);
    }
    rp_read_timeline_fini(&read);
    return status;
}

static rp_status read_torch(const char *text, size_t length, FILE *again)
{
    rp_torch_csv csv;
    RP_TRY(rp_torch_csv_parse("numbers", text, length, rp_test_tool_arena(), &csv));
    rp_torch_csv_print(&csv, again);
    return RP_OK;
}

static rp_status read_platform(const char *text, size_t length, FILE *again)
{
    rp_platform platform;
    RP_TRY(rp_platform_parse("numbers", text, length, rp_test_tool_arena(), &platform));
    rp_platform_write(&platform, "", NULL, 0, again);
    return RP_OK;
}

static rp_status read_costs(const char *text, size_t length, FILE *again)
{
    rp_costs costs;
    RP_TRY(rp_costs_parse("numbers", text, length, rp_test_tool_arena(), &costs));
    fprintf(again, "%s %s %u %u\n", costs.name, costs.source, costs.microbatch_size, costs.seq_len);
    return RP_OK;
}

static rp_status read_model(const char *text, size_t length, FILE *again)
{
    rp_model model;
    RP_TRY(rp_model_parse("numbers", text, length, rp_test_tool_arena(), &model));
    fprintf(again, "%s %s %.17g\n", model.name, model.source, model.rope_theta);
    return RP_OK;
}

/* ---- every place of a text ------------------------------------------------------------------- */

/* A number: position, line, and the key shared by all lines of its kind. */
typedef struct place {
    size_t begin, end, line;
    char key[96];
} place;

static bool is_number_byte(char c)
{
    return c >= '0' && c <= '9';
}

/* Lines of a kind differ in digits only. */
static void name_place(const char *text, size_t begin_of_line, place *p)
{
    size_t used = 0;
    for (size_t i = begin_of_line; i < p->begin && used + 2 < sizeof p->key; i++) {
        if (!is_number_byte(text[i]) || (i > begin_of_line && !is_number_byte(text[i - 1]))) {
            p->key[used++] = is_number_byte(text[i]) ? '#' : text[i];
        }
    }
    p->key[used] = '\0';
}

static bool next_place(const char *text, place *p)
{
    size_t at = p->end;
    while (text[at] != '\0' && !is_number_byte(text[at])) {
        if (text[at] == '#') { /* a comment */
            at += strcspn(text + at, "\n");
            continue;
        }
        p->line += text[at] == '\n' ? 1 : 0;
        at++;
    }
    p->begin = at;
    while (is_number_byte(text[at]) || (text[at] == '.' && is_number_byte(text[at + 1]))) {
        at++;
    }
    p->end = at;
    size_t line = p->begin;
    while (line > 0 && text[line - 1] != '\n') {
        line--;
    }
    name_place(text, line, p);
    return p->begin < p->end;
}

static const char *with(const char *text, const place *p, const char *value)
{
    const char *copy = NULL;
    cr_assert(eq(int,
                 rp_arena_print(rp_test_tool_arena(), &copy, "%.*s%s%s", (int)p->begin, text, value,
                                text + p->end),
                 RP_OK));
    return copy;
}

/* True if `again` has the value, as text or as the same double. */
static bool has_value(const char *again, const char *value)
{
    char number[64];
    snprintf(number, sizeof number, "%.17g", strtod(value, NULL));
    return strstr(again, value) != NULL || strstr(again, number) != NULL;
}

static void try_place(const char *what, reread read, const char *text, const place *p)
{
    for (size_t v = 0; v < COUNT(values); v++) {
        char *again = NULL;
        size_t length = 0;
        char wanted[64];
        char after[64];
        const char *changed = with(text, p, values[v]);
        FILE *stream = open_memstream(&again, &length);
        cr_assert(stream != NULL);
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = read(changed, strlen(changed), stream);
        rp_log_capture_end();
        fclose(stream);
        snprintf(wanted, sizeof wanted, "numbers:%zu: ", p->line);
        snprintf(after, sizeof after, "numbers:%zu: ", p->line + 1);
        if (status == RP_OK) {
            cr_expect(has_value(again, values[v]), "%s: '%s' is read and is not there: %s", what,
                      values[v], p->key);
        } else {
            cr_expect(eq(int, status, RP_INPUT), "%s: %s, %s", what, p->key, values[v]);
            bool there = strncmp(messages, wanted, strlen(wanted)) == 0;
            bool behind = strncmp(messages, after, strlen(after)) == 0 || /* the next op begins */
                          strncmp(messages, "numbers: op", strlen("numbers: op")) == 0;
            cr_expect(there || behind, "%s: %s at %s: %s", what, values[v], p->key, messages);
        }
        free(again);
    }
}

static uint32_t try_text(const char *what, reread read, const char *text)
{
    static char keys[MOST_KEYS][sizeof((place *)0)->key];
    uint32_t count = 0;
    uint32_t tried = 0;
    bool all = getenv("RP_LONG") != NULL;
    place p = {.line = 1};
    while (next_place(text, &p)) {
        uint32_t k = 0;
        while (k < count && strcmp(keys[k], p.key) != 0) {
            k++;
        }
        bool another = k == count && count < MOST_KEYS;
        if (another) {
            memcpy(keys[count++], p.key, sizeof p.key);
        }
        if (another || all) {
            try_place(what, read, text, &p);
            tried++;
        }
    }
    return tried;
}

static const char *file(const char *name)
{
    const char *path = NULL;
    cr_assert(eq(int,
                 rp_arena_print(rp_test_tool_arena(), &path, "%s/%s", rp_test_tool_folder(), name),
                 RP_OK));
    return rp_test_tool_read(path);
}

Test(numbers, of_programs_timelines_and_schedules)
{
    rp_test_rpsim_well("--schedule zb1p --gpus 2 --microbatches 2 --iterations 1 --intervals off "
                       "--program-out @DIR@/p.txt --timeline-out @DIR@/t.csv");
    rp_test_rpsim_well("--schedule roundpipe --gpus 2 --microbatches 2 --iterations 2 --model tiny "
                       "--platform rtx3090x8 --intervals off --program-out @DIR@/r.txt");
    const char *text = file("p.txt");
    cr_assert(eq(int, rp_program_read("p", text, strlen(text), &program), RP_OK));
    cr_expect(ge(u32, try_text("zb1p", read_program, text), 20));
    cr_expect(ge(u32, try_text("roundpipe", read_program, file("r.txt")), 40));
    cr_expect(ge(u32, try_text("timeline", read_timeline, file("t.csv")), 8));
    cr_assert(eq(int, chdir(rp_test_tool_folder()), 0));
    cr_expect(ge(u32, try_text("rows", read_rows, file("t.csv")), 8));
    rp_program_destroy(program);
    const char *torch = RP_TEST_ROOT "/golden/torch/zbv-p4v2m8.asap.csv";
    cr_expect(ge(u32, try_text("torch", read_torch, rp_test_tool_read(torch)), 8));
}

Test(numbers, of_models_platforms_and_costs)
{
    static const struct {
        const char *path;
        reread read;
        uint32_t least;
    } files[] = {{"platforms/h100x64.yaml", read_platform, 25},
                 {"platforms/rtx4090x8.yaml", read_platform, 15},
                 {"costs/qwen3-1.7b@rtx4090.yaml", read_costs, 8},
                 {"models/gpt-oss-20b.yaml", read_model, 12}};
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *path = NULL;
        cr_assert(eq(
            int,
            rp_arena_print(rp_test_tool_arena(), &path, RP_SOURCE_ROOT "/traces/%s", files[i].path),
            RP_OK));
        cr_expect(ge(u32, try_text(path, files[i].read, rp_test_tool_read(path)), files[i].least));
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Reads a program with `count` more buffers of `bytes` each. */
static rp_status read_buffers(uint32_t count, uint64_t bytes, rp_program **program_out)
{
    rp_program *small = NULL;
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    cr_assert(eq(int, rp_test_make_program(&small), RP_OK));
    rp_program_write(small, stream);
    rp_program_destroy(small);
    fseek(stream, -(long)strlen("end\n"), SEEK_CUR);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "buffer weight %llu gpu 0 0 0\n", (unsigned long long)bytes);
    }
    fputs("end\n", stream);
    fclose(stream);
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_program_read("numbers", text, length, program_out);
    rp_log_capture_end();
    free(text);
    return status;
}

/* The highest allowed count is summed exactly, with the most that an allocator may take. The next
 * buffer is refused at its place. */
Test(numbers, sums_of_buffers)
{
    rp_program *p = NULL;
    rp_timeline *timeline = NULL;
    rpsim_memory memory;
    const rpsim_memory_limits limits = {.gpu_bytes = 1000, .gpu_overhead = 10};
    uint32_t most = (uint32_t)(RP_MAX_TOTAL_BYTES / RP_MAX_BYTES);
    cr_assert(eq(int, read_buffers(most, RP_MAX_BYTES, &p), RP_OK), "%s", messages);
    cr_assert(eq(int, rp_test_make_timeline(p, &timeline), RP_OK));
    cr_assert(
        eq(int, rpsim_memory_measure(timeline, &limits, rp_test_tool_arena(), &memory), RP_OK));
    double expected = 11.0 * most * (double)RP_MAX_BYTES;
    cr_expect(not(memory.fits));
    cr_expect(lt(dbl, fabs((double)memory.peak_gpu_bytes[0] / expected - 1), 1e-9), "%llu",
              (unsigned long long)memory.peak_gpu_bytes[0]);
    rp_timeline_destroy(timeline);
    rp_program_destroy(p);
    cr_expect(eq(int, read_buffers(most + 1, RP_MAX_BYTES, &p), RP_INPUT));
    cr_expect(strstr(messages, "the buffers up to here have 1153") != NULL, "%s", messages);
    cr_expect(eq(int, read_buffers(1, UINT64_MAX, &p), RP_INPUT));
    cr_expect(strstr(messages, "bytes of the buffer: '18446744073709551615' is not valid; valid "
                               "values are 0 to 1000000000000000") != NULL,
              "%s", messages);
}

/* ---- binary files and JSON ------------------------------------------------------------------- */

/* Two consecutive nodes of a rank, each with an attribute. */
static rp_status run_chakra(const char *name, rpsim_chakra_type type, uint64_t value,
                            int64_t *makespan_ps)
{
    static const rpsim_chakra_rates rates = {.memory = 1e12, .peer = 1e12, .collective = 1e12};
    rpsim_chakra_trace trace = {0};
    rpsim_chakra_rank *ranks = NULL;
    rp_protobuf_writer f = {0};
    rp_protobuf_put_varint(&f, 0); /* metadata without a version */
    for (uint32_t id = 0; id < 2; id++) {
        rp_protobuf_writer node = {0};
        rp_protobuf_writer attribute = {0};
        rp_protobuf_put_number(&node, RPSIM_CHAKRA_NODE_ID, id);
        rp_protobuf_put_number(&node, RPSIM_CHAKRA_NODE_TYPE, type);
        if (strcmp(name, "duration") == 0) {
            rp_protobuf_put_number(&node, RPSIM_CHAKRA_NODE_DURATION, value);
        }
        rp_protobuf_put_bytes(&attribute, RPSIM_CHAKRA_ATTRIBUTE_NAME, name, strlen(name));
        rp_protobuf_put_number(&attribute, RPSIM_CHAKRA_ATTRIBUTE_UINT64, value);
        rp_protobuf_put_part(&node, RPSIM_CHAKRA_NODE_ATTRIBUTE, &attribute);
        rp_protobuf_put_varint(&f, node.text.length);
        cr_assert(eq(int, rp_text_append(&f.text, node.text.bytes, node.text.length), RP_OK));
        rp_protobuf_writer_fini(&attribute);
        rp_protobuf_writer_fini(&node);
    }
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpsim_chakra_add(&trace, "numbers", f.text.bytes, f.text.length);
    status = status == RP_OK ? rpsim_chakra_link(&trace, rp_test_tool_arena()) : status;
    status = status == RP_OK
                 ? rpsim_chakra_run(&trace, &rates, rp_test_tool_arena(), &ranks, makespan_ps)
                 : status;
    rp_log_capture_end();
    rpsim_chakra_fini(&trace);
    rp_protobuf_writer_fini(&f);
    return status;
}

/* Times of traces: both nodes in turn take the GPU, or the link of 1e12 bytes per second. All nodes
 * together take at most 4e18 ps. */
Test(numbers, of_chakra)
{
    static const struct {
        const char *name;
        rpsim_chakra_type type;
        double ps; /* of a node */
        int turns;
    } numbers[] = {{"duration", RPSIM_CHAKRA_COMP, 1e6, 2},
                   {"rp_ns", RPSIM_CHAKRA_COMP, 1e3, 1}, /* as recorded: side by side */
                   {"tensor_size", RPSIM_CHAKRA_MEM_LOAD, 1, 2}};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        for (size_t v = 0; v < COUNT(values); v++) {
            int64_t ps = 0;
            uint64_t value = strtoull(values[v], NULL, 10);
            double all = numbers[i].ps * 2 * (double)value;
            double expected = numbers[i].ps * numbers[i].turns * (double)value;
            rp_status status = run_chakra(numbers[i].name, numbers[i].type, value, &ps);
            cr_expect(eq(int, status, all < 4e18 ? RP_OK : RP_INPUT), "%s %s: %s", numbers[i].name,
                      values[v], messages);
            cr_expect(status != RP_OK || fabs((double)ps / expected - 1) < 1e-12, "%s %s: %lld",
                      numbers[i].name, values[v], (long long)ps);
            cr_expect(status == RP_OK || strncmp(messages, "numbers: ", 9) == 0, "%s", messages);
        }
    }
}

static rp_test_outcome run_file(const char *program_name, const char *options, const char *text)
{
    const char *line = NULL;
    const char *path = NULL;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_arena_print(arena, &path, "%s/n.json", rp_test_tool_folder()), RP_OK));
    cr_assert(eq(int, rp_arena_print(arena, &line, "%s @DIR@/n.json", options), RP_OK));
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fputs(text, stream);
    fclose(stream);
    return rp_test_tool_run(strcmp(program_name, "rpplan") == 0 ? RPPLAN_PATH : RPSIM_PATH,
                            program_name, line);
}

/* A flow alone on its link takes bytes / capacity. */
Test(numbers, of_flows)
{
    static const double plain[] = {8, 1, 4}; /* capacity, start, bytes */
    for (size_t n = 0; n < COUNT(plain) * COUNT(values); n++) {
        char text[512];
        char number[COUNT(plain)][32];
        double value[COUNT(plain)];
        for (size_t i = 0; i < COUNT(plain); i++) {
            snprintf(number[i], sizeof number[i], "%g", plain[i]);
            if (i == n / COUNT(values)) {
                snprintf(number[i], sizeof number[i], "%s", values[n % COUNT(values)]);
            }
            value[i] = strtod(number[i], NULL);
        }
        snprintf(text, sizeof text,
                 "{\"name\": \"n\", \"link_capacity_Bps\": {\"l\": %s}, \"flows\": [{\"id\": 1, "
                 "\"start_s\": %s, \"bytes\": %s, \"route\": [\"l\"]}]}",
                 number[0], number[1], number[2]);
        rp_test_outcome out = run_file("rpsim", "--format json --flows", text);
        const char *end = strstr(out.output, "\"end_s\":");
        if (out.status == 0) {
            cr_assert(end != NULL, "%s", out.output);
            double expected = value[1] + value[2] / value[0];
            double found = strtod(end + strlen("\"end_s\":"), NULL);
            cr_expect(lt(dbl, fabs(found - expected), 1e-6 * expected + 1e-9), "%s: %g", text,
                      found);
        } else {
            cr_expect(eq(int, out.status, 2), "%s", out.messages);
            cr_expect(strstr(out.messages, "n.json:") != NULL, "%s", out.messages);
        }
    }
}

/* A GPU's plan of three layers in a stage: its workload is their sum (planner.md). */
Test(numbers, of_plans)
{
    for (size_t v = 0; v < COUNT(values); v++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"mode\": \"infer\", \"fwd_time\": [3, %s, 5], \"fwd_bytes\": [1, 1, 1], "
                 "\"memory_limit\": null, \"min_stages\": 1, \"threshold_num\": 11, "
                 "\"threshold_den\": 10}",
                 values[v]);
        rp_test_outcome out = run_file("rpplan", "--instance", text);
        const char *most = strstr(out.output, "\"max_stage_workload\":");
        if (out.status == 0) {
            cr_assert(most != NULL, "%s", out.output);
            uint64_t value = strtoull(values[v], NULL, 10);
            uint64_t found = strtoull(most + strlen("\"max_stage_workload\":"), NULL, 10);
            cr_expect(ge(u64, found, value), "%s: %s", values[v], out.output);
            cr_expect(le(u64, found, value + 8), "%s: %s", values[v], out.output);
        } else {
            cr_expect(eq(int, out.status, 2), "%s", out.messages);
            cr_expect(strstr(out.messages, "n.json") != NULL, "%s", out.messages);
        }
    }
}
