/* Chakra execution traces: our runs exported and imported, other programs' traces
 * (tests/golden/chakra), mistakes. checks.chakra reads exports with Google's library. */
#include "sim/interchange/chakra.h"
#include "common/base/log.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GOLDEN RP_TEST_ROOT "/golden/chakra/"

static rp_arena *arena;
static char messages[4096];
static rpsim_chakra_trace trace;
static rpsim_chakra_rank *ranks;
static const rpsim_chakra_rates rates = {.memory = 1e10, .peer = 1e9, .collective = 4e9};

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rpsim_chakra_fini(&trace);
    rp_test_end(arena);
}

static void again(void)
{
    rp_log_capture_end();
    rp_log_capture_begin(messages, sizeof messages);
    rpsim_chakra_fini(&trace);
}

TestSuite(chakra, .init = begin, .fini = end);

/* ---- the wire format ------------------------------------------------------------------------- */

Test(chakra, varints)
{
    static const struct {
        const char *bytes;
        size_t length;
        uint64_t value;
        bool good;
    } cases[] = {
        {"\x00", 1, 0, true},
        {"\x96\x01", 2, 150, true}, /* the example of protobuf.dev */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, UINT64_MAX, true},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, 0, false},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, 0, false},
        {"\x96", 1, 0, false},
        {"", 0, 0, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        rp_protobuf list = {bytes, bytes + cases[i].length};
        uint64_t value = 0;
        cr_expect(eq(int, rp_protobuf_varint(&list, &value), cases[i].good), "%zu", i);
        cr_expect(eq(u64, value, cases[i].value));
        cr_expect(list.at == (cases[i].good ? list.end : bytes));
        if (cases[i].good) {
            rp_protobuf_writer writer = {0};
            rp_protobuf_put_varint(&writer, cases[i].value);
            cr_expect(eq(sz, writer.text.length, cases[i].length));
            cr_expect(memcmp(writer.text.bytes, bytes, cases[i].length) == 0);
            rp_protobuf_writer_fini(&writer);
        }
    }
}

/* ---- traces of other programs ---------------------------------------------------------------- */

static rp_status add_file(const char *path)
{
    rp_text text = {0};
    const char *bytes = NULL;
    RP_TRY(rp_text_read_file(path, SIZE_MAX, &text));
    cr_assert(eq(int, rp_arena_copy_text(arena, text.bytes, text.length, &bytes), RP_OK));
    rp_status status = rpsim_chakra_add(&trace, path, bytes, text.length);
    rp_text_fini(&text);
    return status;
}

static int64_t run_trace(void)
{
    int64_t makespan_ps = 0;
    cr_assert(eq(int, rpsim_chakra_link(&trace, arena), RP_OK), "%s", messages);
    cr_assert(eq(int, rpsim_chakra_run(&trace, &rates, arena, &ranks, &makespan_ps), RP_OK), "%s",
              messages);
    return makespan_ps;
}

static int64_t run_golden(const char *name, uint32_t count)
{
    again();
    for (uint32_t rank = 0; rank < count; rank++) {
        const char *path = NULL;
        cr_assert(eq(int, rp_arena_print(arena, &path, GOLDEN "%s.%u.et", name, rank), RP_OK));
        cr_assert(eq(int, add_file(path), RP_OK), "%s", messages);
    }
    return run_trace();
}

Test(chakra, traces_of_other_programs)
{
    /* 2 (n - 1) / n of 1 MiB through each of 4 ranks at 4 GB/s */
    cr_expect(eq(i64, run_golden("all_reduce", 4), 393216000));
    cr_expect(eq(i64, ranks[3].collective_ps, 393216000));
    /* as computed in chakra.py, microseconds */
    cr_expect(eq(i64, run_golden("pipe", 2), 375000000));
    cr_expect(eq(i64, ranks[0].compute_ps, 150000000));
    cr_expect(eq(i64, ranks[0].send_ps, 25000000));
    cr_expect(eq(i64, ranks[1].compute_ps, 230000000));
    cr_expect(eq(i64, ranks[1].cpu_ps, 20000000));
    /* two loads of 3 GB at 10 GB/s, and a store beside them */
    cr_expect(eq(i64, run_golden("memory", 1), 300000000000));
    cr_expect(eq(i64, ranks[0].memory_ps, 400000000000));
}

/* ---- export ---------------------------------------------------------------------------------- */

static void export_all(const rp_timeline *timeline, int64_t hop_ps)
{
    rpsim_chakra_export *x = NULL;
    cr_assert(eq(int, rpsim_chakra_prepare(timeline, hop_ps, 64, RPSIM_CHAKRA_HOST_KEEP, arena, &x),
                 RP_OK));
    for (uint32_t rank = 0; rank < timeline->program->gpu_count; rank++) {
        rp_text file = {0};
        const char *bytes = NULL;
        cr_assert(eq(int, rpsim_chakra_encode(x, rank, arena, &file), RP_OK), "%s", messages);
        cr_assert(eq(int, rp_arena_copy_text(arena, file.bytes, file.length, &bytes), RP_OK));
        cr_assert(eq(int, rpsim_chakra_add(&trace, "exported", bytes, file.length), RP_OK), "%s",
                  messages);
        rp_text_fini(&file);
    }
}

/* Compares all start and end times: each rank must end with its GPU. */
static bool round_trip(const rp_schedule_type *schedule, uint32_t gpus, uint32_t microbatches,
                       rp_recompute recompute)
{
    rp_costs costs;
    rp_partition partition;
    rpsim_result result;
    uint32_t layers = 4 * gpus;
    rp_test_equal_costs(arena, layers, 1003, 2117, &costs);
    costs.hop_ps = 130;
    costs.head_fwd_ps = 701;
    costs.head_bwd_ps = 1507;
    costs.overlap_saving = 0.25;
    if (rp_partition_even(schedule, &costs, gpus, 0, arena, &partition, NULL) != RP_OK) {
        return false;
    }
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = 1,
                                 .round = gpus,
                                 .recompute = recompute,
                                 .layers = layers,
                                 .partition = &partition,
                                 .costs = &costs};
    if (rpsim_case_run(schedule, &config, &result, NULL) != RP_OK) {
        return false;
    }
    again();
    export_all(result.timeline, costs.hop_ps);
    cr_expect(eq(i64, run_trace(), result.metrics.makespan_ps), "%s %u %u", schedule->name, gpus,
              microbatches);
    const rp_program *p = result.program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        int64_t ps = 0;
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            bool overlaps = (p->ops[i].flags & RP_OP_OVERLAP) != 0;
            int64_t end_ps =
                overlaps ? result.timeline->start_ps[i + 1] : result.timeline->end_ps[i];
            ps += end_ps - result.timeline->start_ps[i];
        }
        if (p->queues[q].kind == RP_QUEUE_COMPUTE) {
            cr_expect(eq(i64, ranks[p->queues[q].gpu].compute_ps, ps), "%s", schedule->name);
        }
    }
    rpsim_result_fini(&result);
    return true;
}

Test(chakra, every_schedule_runs_as_it_ran)
{
    static const uint32_t gpus[] = {1, 2, 3, 4, 8};
    uint32_t checked = 0;
    for (uint32_t t = 0; t < rp_schedule_count; t++) {
        for (size_t i = 0; i < 2 * COUNT(gpus) * RP_RECOMPUTE_COUNT; i++) {
            uint32_t n = gpus[i % COUNT(gpus)];
            uint32_t m = n * (2 + (uint32_t)(i / COUNT(gpus) % 2));
            rp_recompute recompute = (rp_recompute)(i / COUNT(gpus) / 2);
            checked += round_trip(rp_schedules[t], n, m, recompute) ? 1 : 0;
        }
    }
    cr_expect(ge(u32, checked, 200), "%u", checked);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* A trace is a list of messages, each after its length. */
#define METADATA                                                                                   \
    "\x07\x0a\x05"                                                                                 \
    "0.0.4"
#define FILE_OF(text) METADATA text
/* COMP node with an id from 1 to 127 that waits for another. */
#define COMP(id) "\x04\x08" id "\x18\x04"
#define COMP_AFTER(id, parent) "\x07\x08" id "\x18\x04\x2a\x01" parent
/* SEND or RECV node with src, dst and tag 1 */
#define ATTRIBUTE(name, value) "\x52\x0c\x0a\x08" name "\x38" value
#define PEER(id, type, src, dst)                                                                   \
    "\x2e\x08" id "\x18" type ATTRIBUTE("comm_src", src) ATTRIBUTE("comm_dst", dst)                \
        ATTRIBUTE("comm_tag", "\x01")

static rp_status run_texts(const char *first, size_t first_length, const char *second,
                           size_t second_length)
{
    int64_t makespan_ps = 0;
    again();
    RP_TRY(rpsim_chakra_add(&trace, "t.0.et", first, first_length));
    if (second_length > 0) {
        RP_TRY(rpsim_chakra_add(&trace, "t.1.et", second, second_length));
    }
    RP_TRY(rpsim_chakra_link(&trace, arena));
    return rpsim_chakra_run(&trace, &rates, arena, &ranks, &makespan_ps);
}

Test(chakra, bad_traces)
{
#define CASE(first, second, message)                                                               \
    {                                                                                              \
        first, sizeof first - 1, second, sizeof second - 1, message                                \
    }
    static const struct {
        const char *first;
        size_t first_length;
        const char *second;
        size_t second_length;
        const char *message; /* NULL: accepted */
    } cases[] = {
        CASE(FILE_OF(COMP("\x01") COMP_AFTER("\x02", "\x01")), "", NULL),
        CASE(FILE_OF(PEER("\x01", "\x05", "\x00", "\x01")),
             FILE_OF(PEER("\x01", "\x06", "\x00", "\x01")), NULL),
        CASE("", "", "t.0.et: byte 0: the file is empty; valid are a GlobalMetadata"),
        CASE("\x1f\x8b\x08", "", "t.0.et: byte 0: compressed with gzip; valid is what gunzip"),
        CASE("\x05\x08\x01", "", "t.0.et: byte 0: no message begins here, or it is cut"),
        CASE("\xff\xff", "", "t.0.et: byte 0: no message begins here"),
        CASE(COMP("\x01"), "", "byte 1: the file does not begin with a GlobalMetadata message"),
        CASE("\x02\x0a\x05", "", "byte 1: the file does not begin with a GlobalMetadata"),
        CASE(FILE_OF("\x02\x08\x80"), "", "byte 9: no field of a node begins here, or it is cut"),
        CASE(FILE_OF("\x02\x0b\x01"), "", "byte 9: no field of a node"), /* a group */
        CASE(FILE_OF("\x02\x00\x01"), "", "byte 9: no field of a node"), /* field 0 */
        CASE(FILE_OF("\x05\x08\x01\x18\x04\x12"), "", "byte 13: no field of a node"),
        CASE(FILE_OF("\x02\x08\x05"), "",
             "t.0.et: node 5 (): has no known type; valid types are 1"),
        CASE(FILE_OF("\x07\x08\x05\x12\x01\n\x18\x08"), "", "node 5 (?): has no known type"),
        CASE(FILE_OF("\x07\x08\x01\x18\x04\x2a\x01\x81"), "", "byte 15: an id of a dependency"),
        CASE(FILE_OF("\x06\x08\x01\x18\x04\x28\x07"), "",
             "node 1: waits for node 7, which is not there; valid are nodes of its file"),
        CASE(FILE_OF(COMP("\x01") COMP("\x01")), "", "node 1: its id comes twice; valid is"),
        CASE(FILE_OF(COMP_AFTER("\x01", "\x01")), "", "node 1 never starts: it, or what it waits"),
        CASE(FILE_OF(COMP_AFTER("\x01", "\x02") COMP_AFTER("\x02", "\x01")), "",
             "node 1 never starts"),
        CASE(FILE_OF("\x0c\x08\x01\x18\x04\x38\xff\xff\xff\xff\xff\xff\x01"), "",
             "node 1 (): takes too long; valid durations are up to 1e12 microseconds"),
        CASE(FILE_OF("\x04\x08\x01\x18\x05"), "",
             "a SEND without comm_dst; valid are nodes that name the other rank"),
        CASE(FILE_OF("\x12\x08\x01\x18\x06" ATTRIBUTE("comm_dst", "\x00")), "",
             "a RECV without comm_src; valid are nodes that name the other rank"),
        CASE(FILE_OF("\x12\x08\x01\x18\x05" ATTRIBUTE("comm_dst", "\x00")), "",
             "its ranks do not fit; valid in this file are SENDs from rank 0 and another rank"),
        CASE(FILE_OF(PEER("\x01", "\x05", "\x01", "\x00")), "",
             "its ranks do not fit; valid in this file are SENDs from rank 0 and another rank"),
        CASE(FILE_OF(PEER("\x01", "\x06", "\x00", "\x01")), "", "RECVs to rank 0 and another"),
        CASE(FILE_OF(PEER("\x01", "\x05", "\x00", "\x00")), "", "its ranks do not fit"),
        CASE(FILE_OF(PEER("\x01", "\x05", "\x00", "\x01")), "",
             "t.0.et: node 1: a SEND from rank 0 to rank 1 with tag 1 and no RECV of these"),
        CASE(METADATA, FILE_OF(PEER("\x01", "\x06", "\x00", "\x01")),
             "t.1.et: node 1: a RECV from rank 0 to rank 1 with tag 1 and no SEND of these"),
        CASE(FILE_OF("\x04\x08\x01\x18\x07"), "", "a collective without duration and comm_type"),
        CASE(FILE_OF("\x06\x08\x01\x18\x07\x38\x01"
                     "\x06\x08\x02\x18\x07\x38\x01"),
             FILE_OF("\x06\x08\x01\x18\x07\x38\x01"), "do not all have; valid is the same number"),
        CASE(FILE_OF("\x13\x08\x01\x18\x07\x52\x0d\x0a\x09"
                     "comm_type\x48\x00"),
             FILE_OF("\x13\x08\x01\x18\x07\x52\x0d\x0a\x09"
                     "comm_type\x48\x02"),
             "t.1.et: node 1: its comm_type is not that of the collective that it meets"),
        CASE(FILE_OF("\x13\x08\x01\x18\x07\x52\x0d\x0a\x09"
                     "comm_type\x48\x0a"),
             "", "byte 17: the attribute comm_type is no valid integer; valid values are 0 to 9"),
        CASE(FILE_OF("\x0f\x08\x01\x18\x04\x52\x09\x0a\x05"
                     "rp_ns\x78\x01"),
             "", "byte 17: the attribute rp_ns is no valid integer"),
        CASE(FILE_OF("\x13\x08\x01\x18\x04\x52\x0d\x0a\x09"
                     "is_cpu_op\x48\x01"),
             "", "byte 17: the attribute is_cpu_op is no bool; valid values are true and false"),
        CASE(FILE_OF("\x08\x08\x01\x18\x04\x52\x02\x0a\x05"), "",
             "byte 15: no field of an attribute begins here, or it is cut"),
    };
#undef CASE
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_status status = run_texts(cases[i].first, cases[i].first_length, cases[i].second,
                                     cases[i].second_length);
        cr_expect(eq(int, status, cases[i].message == NULL ? RP_OK : RP_INPUT), "%zu: %s", i,
                  messages);
        if (cases[i].message != NULL) {
            cr_expect(strstr(messages, cases[i].message) != NULL, "%zu: %s: %s", i,
                      cases[i].message, messages);
            cr_expect(strstr(messages, "valid ") != NULL, "%zu: %s", i, messages);
            const char *newline = strchr(messages, '\n');
            cr_expect(newline != NULL && newline[1] == '\0', "%zu: %s", i, messages);
        }
    }
}

/* ---- rings of SENDs and RECVs ---------------------------------------------------------------- */

/* A ring, and the form of its nodes. */
typedef struct ring {
    uint32_t ranks;
    bool names_source; /* in RECVs as well as SENDs; destinations likewise */
    bool names_destination;
    bool names_tag;   /* the step; otherwise there are no tags */
    bool packed;      /* dependencies */
    uint32_t integer; /* field of the attributes' values */
} ring;

#define RING_BYTES 1000000u

static void put_integer(rp_protobuf_writer *node, const ring *r, const char *name, uint64_t value)
{
    rp_protobuf_writer attribute = {0};
    rp_protobuf_put_bytes(&attribute, RPSIM_CHAKRA_ATTRIBUTE_NAME, name, strlen(name));
    rp_protobuf_put_number(&attribute, r->integer, value);
    rp_protobuf_put_part(node, RPSIM_CHAKRA_NODE_ATTRIBUTE, &attribute);
    rp_protobuf_writer_fini(&attribute);
}

static void put_dependency(rp_protobuf_writer *node, const ring *r, uint64_t id)
{
    rp_protobuf_writer list = {0};
    if (!r->packed) {
        rp_protobuf_put_number(node, RPSIM_CHAKRA_NODE_DATA_DEPS, id);
        return;
    }
    rp_protobuf_put_varint(&list, id);
    rp_protobuf_put_part(node, RPSIM_CHAKRA_NODE_DATA_DEPS, &list);
    rp_protobuf_writer_fini(&list);
}

/* In each step a rank sends the part that it has just received. Ids: 2 step, 2 step + 1. */
static void put_step(rp_protobuf_writer *file, const ring *r, uint32_t rank, uint32_t step,
                     bool sends)
{
    rp_protobuf_writer node = {0};
    uint32_t next = (rank + 1) % r->ranks;
    uint32_t before = (rank + r->ranks - 1) % r->ranks;
    rp_protobuf_put_number(&node, RPSIM_CHAKRA_NODE_ID, 2 * step + (sends ? 0 : 1));
    rp_protobuf_put_number(&node, RPSIM_CHAKRA_NODE_TYPE,
                           sends ? RPSIM_CHAKRA_SEND : RPSIM_CHAKRA_RECV);
    if (step > 0) {
        put_dependency(&node, r, 2 * step - 1);
    }
    put_integer(&node, r, "comm_size", RING_BYTES / r->ranks);
    if (!sends || r->names_source) {
        put_integer(&node, r, "comm_src", sends ? rank : before);
    }
    if (sends || r->names_destination) {
        put_integer(&node, r, "comm_dst", sends ? next : rank);
    }
    if (r->names_tag) {
        put_integer(&node, r, "comm_tag", step);
    }
    rp_protobuf_put_varint(file, node.text.length);
    cr_assert(eq(int, rp_text_append(&file->text, node.text.bytes, node.text.length), RP_OK));
    rp_protobuf_writer_fini(&node);
}

static int64_t run_ring(const ring *r)
{
    again();
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        rp_protobuf_writer file = {0};
        const char *bytes = NULL;
        cr_assert(eq(int, rp_text_append(&file.text, METADATA, sizeof METADATA - 1), RP_OK));
        for (uint32_t step = 0; step < 2 * (r->ranks - 1); step++) {
            put_step(&file, r, rank, step, true);
            put_step(&file, r, rank, step, false);
        }
        cr_assert(
            eq(int, rp_arena_copy_text(arena, file.text.bytes, file.text.length, &bytes), RP_OK));
        cr_assert(eq(int, rpsim_chakra_add(&trace, "ring", bytes, file.text.length), RP_OK), "%s",
                  messages);
        rp_protobuf_writer_fini(&file);
    }
    return run_trace();
}

/* A ring's all-reduce takes 2 (n - 1) steps of a part each (Patarasuk and Yuan, Bandwidth optimal
 * all-reduce algorithms, 2009). Nodes of ASTRA-sim's custom collectives (examples/system/
 * custom_collectives) name the other end only, and mean the same ring. */
Test(chakra, rings_that_name_one_end)
{
    static const uint32_t integers[] = {RPSIM_CHAKRA_ATTRIBUTE_INT32, RPSIM_CHAKRA_ATTRIBUTE_INT64,
                                        RPSIM_CHAKRA_ATTRIBUTE_UINT32,
                                        RPSIM_CHAKRA_ATTRIBUTE_UINT64};
    static const uint32_t sizes[] = {2, 4, 5, 8};
    for (uint32_t way = 0; way < 16 * COUNT(integers) * COUNT(sizes); way++) {
        const ring r = {.ranks = sizes[way / 64],
                        .names_source = (way & 1) != 0,
                        .names_destination = (way & 2) != 0,
                        .names_tag = (way & 4) != 0,
                        .packed = (way & 8) != 0,
                        .integer = integers[way / 16 % 4]};
        int64_t part_ps = (int64_t)RING_BYTES / r.ranks * 1000; /* at rates.peer */
        cr_expect(eq(i64, run_ring(&r), 2 * ((int64_t)r.ranks - 1) * part_ps), "%u", way);
    }
}

/* ---- the programs; bad command lines of rpsim are in tests/bad/commands.tsv ------------------ */

TestSuite(chakra_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static json_t *imported(void)
{
    json_error_t error;
    rp_test_outcome run =
        rp_test_tool_run(RPIMPORT_PATH, "rpimport", "--chakra @DIR@/t --format json");
    cr_assert(eq(int, run.status, 0), "%s", run.messages);
    json_t *root = json_loads(run.output, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root != NULL, "%s", error.text);
    return root;
}

/* At hardware fidelity, where transfers queue and hosts launch late: equal to the picosecond. */
Test(chakra_cli, runs_as_it_ran)
{
    static const char *const cases[] = {
        "--schedule roundpipe --gpus 2 --microbatches 6 --iterations 1 --global-batch 24",
        "--schedule roundpipe --gpus 4 --iterations 1",
        "--schedule 1f1b --gpus 4 --iterations 1",
        "--schedule 1f1b --gpus 4 --iterations 1 --platform h200x8",
        "--schedule mobius --gpus 4 --iterations 1",
        "--schedule zero-infinity --gpus 4 --iterations 1",
        "--schedule fsdp --gpus 4 --iterations 1",
        "--schedule megatron-tp --gpus 4 --iterations 1",
        "--schedule dualpipev --gpus 4 --iterations 1 --recompute none",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        json_error_t error;
        rp_test_outcome run = rp_test_rpsim_after("--format json --chakra-out @DIR@/t", cases[i]);
        cr_assert(eq(int, run.status, 0), "%s: %s", cases[i], run.messages);
        json_t *rows = json_loads(run.output, 0, &error);
        json_t *ran = imported();
        cr_expect(eq(dbl, rp_test_json_number(ran, "makespan_ms"),
                     rp_test_json_number(json_array_get(rows, 0), "makespan_ms")),
                  "%s", cases[i]);
        json_decref(rows);
        json_decref(ran);
    }
}

/* Google's library reads and would write these bytes (tests/golden/chakra/README.md). */
Test(chakra_cli, writes_the_golden_bytes)
{
    rp_test_rpsim_well("--schedule 1f1b --gpus 2 --microbatches 2 --fidelity stage --chakra-out "
                       "@DIR@/1f1b");
    for (int rank = 0; rank < 2; rank++) {
        const char *paths[2];
        rp_text texts[2] = {{0}};
        rp_arena *names = rp_test_tool_arena();
        cr_assert(eq(int, rp_arena_print(names, &paths[0], GOLDEN "1f1b.%d.et", rank), RP_OK));
        cr_assert(eq(int,
                     rp_arena_print(names, &paths[1], "%s/1f1b.%d.et", rp_test_tool_folder(), rank),
                     RP_OK));
        for (int i = 0; i < 2; i++) {
            cr_assert(eq(int, rp_text_read_file(paths[i], SIZE_MAX, &texts[i]), RP_OK));
        }
        cr_assert(eq(sz, texts[0].length, texts[1].length));
        cr_expect(memcmp(texts[0].bytes, texts[1].bytes, texts[0].length) == 0);
        rp_text_fini(&texts[0]);
        rp_text_fini(&texts[1]);
    }
}

Test(chakra_cli, bad_command_lines)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--chakra " GOLDEN "pipe --kineto a.json",
         "one of --kineto F[,F…], --timer F and --chakra"},
        {"--chakra " GOLDEN "pipe --seq-len 3", "--chakra: makes no cost table; valid beside it"},
        {"--chakra " GOLDEN "pipe --out x", "--chakra: makes no cost table"},
        {"--chakra " GOLDEN "pipe --platform abacus", "abacus"},
        {"--chakra " GOLDEN "pipe --format xml", "--format: 'xml' is not valid; valid values are"},
        {"--chakra /nowhere/t", "/nowhere/t.0.et"},
        {"--chakra " RP_TEST_ROOT "/bad/chakra/cut", "cut.0.et: byte 8: no message begins here"},
        {"--kineto a.json --microbatch-size 1 --seq-len 1 --format json", "--format: valid only"},
        {"--kineto a.json --microbatch-size 1 --seq-len 1 --platform x", "--platform: valid only"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_test_outcome result = rp_test_tool_run(RPIMPORT_PATH, "rpimport", cases[i].line);
        cr_expect(eq(int, result.status, 2), "%s", cases[i].line);
        cr_expect(eq(str, (char *)result.output, ""), "%s", cases[i].line);
        cr_expect(strstr(result.messages, cases[i].message) != NULL, "%s: %s", cases[i].line,
                  result.messages);
    }
    rp_test_outcome two = rp_test_rpsim("--schedule gpipe,1f1b --chakra-out @DIR@/two");
    cr_expect(eq(int, two.status, 2));
    cr_expect(strstr(two.messages, "--chakra-out: one file cannot hold 2 runs") != NULL);
}
