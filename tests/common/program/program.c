/* The validator, the text form and the hash of programs. */
#include "common/program/program.h"
#include "common/base/log.h"
#include "common/program/check_internal.h"
#include "common/schedule/build.h"
#include "common/schedule/even.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(program, .init = begin, .fini = end, .timeout = 300);

/* ---- valid programs -----------------------------------------------------------------------------
 */

/* No schedule makes these transfers yet, so the text is written by hand. */
static const char transfers[] =
    "rp-program 2\nschedule by-hand\ngpus 2\nmicrobatches 1\niterations 1\nlayers 2\n"
    "recompute none\nasynchronous no\nplacement offload\nversions one\ntraits\n"
    "stage 0..1 forward backward\nstage 1..2 forward backward head\nforward-chain 0 "
    "1\nbackward-chain 1 0\n"
    "queue compute 0\n0F0\n0B0 after 3\nqueue compute 1\n1F0 after 0\n1B0\n"
    "queue peer 0\n0SEND0 order 0\n0RECV0 order 6\n"
    "queue peer 1\n1SEND0 order 3\n1RECV0 order 4\n"
    "queue param-upload 0\n0UPLOAD_PARAMS0 join\n0UPLOAD_PARAMS0\n"
    "queue act-upload 1\n1UPLOAD_ACT0\n1UPLOAD_GRAD0\n"
    "queue download 0\n0DOWNLOAD_ACT0 order 0\n0DOWNLOAD_GRAD0 order 1\n"
    "queue dispatch\nREFRESH\nqueue optimizer\nOPTIMIZER order 1 3 13\n"
    "buffer weight 1000000000000000 gpu 1 8 9\nbuffer gradient 5 host 12 13\nend\n";

/* Recompute layer by layer: two stages of two layers, the second with the head. */
static const char layered[] =
    "rp-program 2\nschedule by-hand\ngpus 2\nmicrobatches 1\niterations 1\nlayers 4\n"
    "recompute wait\nasynchronous no\nplacement resident\nversions one\ntraits\nlowered fp16 1\n"
    "stage 0..2 forward backward\nstage 2..4 forward backward head\nforward-chain 0 "
    "1\nbackward-chain 1 0\n"
    "queue compute 0\n0F0/1\n0F0/2\n0R0/2 join after 17\n0B0/2\n0R0/1 join\n0B0/1\n"
    "queue compute 1\n1F0/3 after 15\n1F0/4\n1F0/5\n1B0/5\n1R0/4 join\n1B0/4\n1R0/3 join\n"
    "1B0/3\nqueue download 0\n0DOWNLOAD_ACT0 bytes 7 after 1\n"
    "queue act-upload 1\n1UPLOAD_ACT0 bytes 7 after 14 order 1\n"
    "queue download 1\n1DOWNLOAD_GRAD0 bytes 7 after 13 order 0\n"
    "queue act-upload 0\n0UPLOAD_GRAD0 bytes 7 after 16 order 1\n"
    "buffer tape 9 gpu 0 2 3\nbuffer tape 9 gpu 1 10 11\nend\n";

/* Two stages on a GPU; the first's tapes wait in host memory. */
static const char offloaded[] =
    "rp-program 2\nschedule by-hand\ngpus 1\nmicrobatches 4\niterations 1\nlayers 2\n"
    "recompute none\nasynchronous no\nplacement resident\nversions one\ntraits\n"
    "lowered fp16 1 1 1 1\nstage 0..1 forward backward\nstage 1..2 forward backward head\n"
    "forward-chain 0 1\nbackward-chain 1 0\n"
    "queue compute 0\n0F0\n0F1\n0F2\n0F3\n1F0\n1F1\n1F2\n1F3\n1B0\n1B1\n1B2\n1B3\n"
    "0B0 after 20\n0B1 after 21\n0B2 after 22\n0B3 after 23\n"
    "queue saved-download 0\n0DOWNLOAD_SAVED0 bytes 7 after 0\n0DOWNLOAD_SAVED1 bytes 7 after 1\n"
    "0DOWNLOAD_SAVED2 bytes 7 after 2\n0DOWNLOAD_SAVED3 bytes 7 after 3\n"
    "queue saved-upload 0\n0UPLOAD_SAVED0 bytes 7 after 16\n0UPLOAD_SAVED1 bytes 7 after 17\n"
    "0UPLOAD_SAVED2 bytes 7 after 18\n0UPLOAD_SAVED3 bytes 7 after 19\n"
    "buffer tape 7 gpu 0 0 16\nbuffer tape 7 host 16 20\nbuffer tape 7 gpu 0 20 12\nend\n";

typedef enum base {
    GPIPE,     /* 2 stages, 2 microbatches, recompute wait, 2 iterations with a barrier: 25 ops */
    ROUNDPIPE, /* 2 + 3 stages, 2 microbatches, recompute early: 16 ops */
    TRANSFERS, /* every kind of queue: 16 ops */
    LAYERS,    /* lowered, units that go layer by layer: 18 ops */
    OFFLOADED, /* tapes go to the host and come back: 24 ops */
    BASE_COUNT,
} base;

static rp_program *build(const char *name, const char *partition_text, rp_recompute recompute,
                         uint32_t iterations)
{
    rp_costs costs;
    rp_partition partition;
    rp_program *program = NULL;
    rp_test_equal_costs(arena, 4, 1000, 2000, &costs);
    cr_assert(eq(int, rp_partition_parse(NULL, partition_text, arena, &partition, NULL), RP_OK));
    rp_schedule_config config = {.gpus = 2,
                                 .microbatches = 2,
                                 .iterations = iterations,
                                 .round = 2,
                                 .recompute = recompute,
                                 .layers = 4,
                                 .partition = &partition,
                                 .costs = &costs,
                                 .boundary_bytes = 100};
    rp_status status = rp_schedule_build(rp_schedule_find(name), &config, &program, NULL);
    cr_assert(eq(int, status, RP_OK));
    return program;
}

static rp_program *make_base(base which)
{
    rp_program *program = NULL;
    if (which == GPIPE) {
        return build("gpipe", "2,2", RP_RECOMPUTE_WAIT, 2);
    }
    if (which == ROUNDPIPE) {
        return build("roundpipe", "2,2|0,2,2", RP_RECOMPUTE_EARLY, 1);
    }
    const char *text = which == LAYERS ? layered : which == OFFLOADED ? offloaded : transfers;
    rp_status status = rp_program_read("hand", text, strlen(text), &program);
    cr_assert(eq(int, status, RP_OK));
    return program;
}

/* ---- single mutations ------------------------------------------------------------------------ */

/* A field of the program or of an element of its lists. */
typedef struct field {
    size_t list; /* offset of the list's pointer in rp_program, or NO_LIST */
    size_t item_size;
    size_t index;
    size_t offset;
    size_t size;
} field;

#define NO_LIST SIZE_MAX
#define MEMBER(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)
#define HEADER(member)                                                                             \
    {                                                                                              \
        NO_LIST, 0, 0, MEMBER(rp_program, member)                                                  \
    }
#define ITEM(list, index, type, member)                                                            \
    {                                                                                              \
        offsetof(rp_program, list), sizeof(type), index, MEMBER(type, member)                      \
    }
#define VALUE(list, index, type)                                                                   \
    {                                                                                              \
        offsetof(rp_program, list), sizeof(type), index, 0, sizeof(type)                           \
    }
#define STAGE(index, member) ITEM(stages, index, rp_stage, member)
#define QUEUE(index, member) ITEM(queues, index, rp_queue, member)
#define OP(index, member) ITEM(ops, index, rp_op, member)
#define WAIT(index) VALUE(waits, index, rp_wait)
#define BUFFER(index, member) ITEM(buffers, index, rp_buffer, member)

static char *address_of(rp_program *program, const field *f)
{
    char *list = (char *)program;
    if (f->list != NO_LIST) {
        memcpy(&list, (char *)program + f->list, sizeof list);
    }
    return list + f->index * f->item_size + f->offset;
}

/* Independent of byte order: writes a number of the right size. */
static void set_field(rp_program *program, const field *f, uint64_t value)
{
    char *address = address_of(program, f);
    uint8_t byte = (uint8_t)value;
    uint16_t half = (uint16_t)value;
    uint32_t word = (uint32_t)value;
    switch (f->size) {
    case 1:
        memcpy(address, &byte, 1);
        break;
    case 2:
        memcpy(address, &half, 2);
        break;
    case 4:
        memcpy(address, &word, 4);
        break;
    default:
        memcpy(address, &value, 8);
        break;
    }
}

typedef struct mutation {
    rp_rule rule;
    base from;
    field where;
    uint64_t value;
} mutation;

/* Numbers of ops and waits are those of the programs' text (rpsim --program-out). */
static const mutation mutations[] = {
    {RP_RULE_SIZES, GPIPE, HEADER(gpu_count), 0},
    {RP_RULE_SIZES, GPIPE, HEADER(gpu_count), RP_MAX_GPUS + 1},
    {RP_RULE_SIZES, GPIPE, HEADER(microbatch_count), 0},
    {RP_RULE_SIZES, GPIPE, HEADER(iteration_count), RP_MAX_ITERATIONS + 1},
    {RP_RULE_SIZES, GPIPE, HEADER(layer_count), RP_MAX_LAYERS + 1},
    {RP_RULE_MODE, GPIPE, HEADER(recompute), RP_RECOMPUTE_COUNT},
    {RP_RULE_TRAITS, GPIPE, HEADER(traits.placement), RP_PLACEMENT_SHARDED + 1},
    {RP_RULE_TRAITS, GPIPE, HEADER(traits.versions), RP_VERSIONS_STASHED + 1},
    {RP_RULE_CHAIN_SHARDED, ROUNDPIPE, HEADER(traits.placement), RP_PLACEMENT_SHARDED},
    {RP_RULE_OP_PLACEMENT, TRANSFERS, HEADER(traits.placement), RP_PLACEMENT_RESIDENT},
    {RP_RULE_STAGE_LAYERS, GPIPE, STAGE(0, layer_begin), 3},
    {RP_RULE_STAGE_LAYERS, GPIPE, STAGE(1, layer_end), 5},
    {RP_RULE_STAGE_ROLES, GPIPE, STAGE(0, roles), 0},
    {RP_RULE_STAGE_ROLES, GPIPE, STAGE(0, roles), 11},
    {RP_RULE_STAGE_UNUSED, ROUNDPIPE, HEADER(forward_count), 1},
    {RP_RULE_CHAIN_STAGE, GPIPE, VALUE(forward_chain, 1, uint16_t), 0},
    {RP_RULE_CHAIN_STAGE, GPIPE, VALUE(backward_chain, 0, uint16_t), 2},
    {RP_RULE_CHAIN_LAYERS, GPIPE, STAGE(0, layer_end), 1},
    {RP_RULE_CHAIN_LAYERS, ROUNDPIPE, STAGE(3, layer_begin), 1},
    {RP_RULE_CHAIN_LAYERS, ROUNDPIPE, STAGE(1, roles), RP_STAGE_BACKWARD_LAYERS},
    {RP_RULE_CHAIN_HEAD, GPIPE, STAGE(0, roles), 7},
    {RP_RULE_CHAIN_HEAD, GPIPE, STAGE(1, roles), 3},
    {RP_RULE_QUEUE_RANGE, GPIPE, QUEUE(1, op_begin), 13},
    {RP_RULE_QUEUE_RANGE, GPIPE, QUEUE(2, op_end), 24},
    {RP_RULE_QUEUE_GPU, GPIPE, QUEUE(1, gpu), 2},
    {RP_RULE_QUEUE_GPU, GPIPE, QUEUE(2, gpu), 1},
    {RP_RULE_QUEUE_GPU, GPIPE, QUEUE(0, kind), RP_QUEUE_KIND_COUNT},
    {RP_RULE_QUEUE_TWICE, GPIPE, QUEUE(1, gpu), 0},
    {RP_RULE_QUEUE_MISSING, GPIPE, HEADER(gpu_count), 3},
    {RP_RULE_QUEUE_MISSING, TRANSFERS, QUEUE(1, kind), RP_QUEUE_DOWNLOAD},
    {RP_RULE_OP_KIND, GPIPE, OP(0, kind), RP_OP_KIND_COUNT},
    {RP_RULE_OP_QUEUE, GPIPE, OP(0, kind), RP_OP_OPTIMIZER},
    {RP_RULE_OP_QUEUE, TRANSFERS, OP(4, kind), RP_OP_DOWNLOAD_ACT},
    {RP_RULE_OP_QUEUE, TRANSFERS, OP(8, kind), RP_OP_UPLOAD_ACT},
    {RP_RULE_OP_STAGE, GPIPE, OP(0, stage), 2},
    {RP_RULE_OP_STAGE, GPIPE, OP(24, stage), 1},
    {RP_RULE_OP_MICROBATCH, GPIPE, OP(0, microbatch), 2},
    {RP_RULE_OP_MICROBATCH, GPIPE, OP(24, microbatch), 1},
    {RP_RULE_OP_ITERATION, GPIPE, OP(0, iteration), 2},
    {RP_RULE_OP_FLAGS, GPIPE, OP(0, flags), 4},
    {RP_RULE_OVERLAP_SHAPE, GPIPE, OP(0, flags), RP_OP_OVERLAP},
    {RP_RULE_OP_LAYER, GPIPE, OP(0, part), 1},
    {RP_RULE_OP_LAYER, LAYERS, OP(0, part), 3},
    {RP_RULE_OP_LAYER, LAYERS, OP(5, part), 5},
    {RP_RULE_UPDATE_ORDER, GPIPE, OP(2, kind), RP_OP_UPDATE},
    {RP_RULE_JOIN_END, GPIPE, OP(11, flags), RP_OP_JOIN},
    {RP_RULE_JOIN_OTHER, GPIPE, OP(0, flags), RP_OP_JOIN},
    {RP_RULE_JOIN_OTHER, GPIPE, OP(3, iteration), 1},
    {RP_RULE_UNIT_SHAPE, GPIPE, HEADER(recompute), RP_RECOMPUTE_NONE},
    {RP_RULE_UNIT_SHAPE, ROUNDPIPE, OP(2, kind), RP_OP_RECOMPUTE},
    {RP_RULE_UNIT_LAYERS, LAYERS, OP(7, part), 3},
    {RP_RULE_UNIT_LAYERS, LAYERS, OP(2, flags), 0},
    {RP_RULE_UNIT_LAYERS, LAYERS, OP(9, kind), RP_OP_BACKWARD_INPUT},
    {RP_RULE_UNIT_LAYERS, LAYERS, HEADER(recompute), RP_RECOMPUTE_NONE},
    {RP_RULE_PREWORK_ALONE, GPIPE, OP(2, flags), 0},
    {RP_RULE_PREWORK_ALONE, ROUNDPIPE, OP(2, flags), 0},
    {RP_RULE_WAIT_RANGE, GPIPE, HEADER(wait_count), 13},
    {RP_RULE_WAIT_RANGE, GPIPE, OP(3, wait_begin), 13},
    {RP_RULE_WAIT_RANGE, GPIPE, OP(0, wait_begin), 1},
    {RP_RULE_WAIT_TARGET, GPIPE, WAIT(0), 25},
    {RP_RULE_WAIT_SELF, GPIPE, WAIT(0), 1},
    {RP_RULE_WAIT_ORDER, ROUNDPIPE, WAIT(3), 10},
    {RP_RULE_WAIT_DATA, GPIPE, WAIT(2), 24},
    {RP_RULE_WAIT_DATA, TRANSFERS, WAIT(2), 0},
    {RP_RULE_WAIT_DATA, GPIPE, HEADER(recompute), RP_RECOMPUTE_EARLY},
    {RP_RULE_RUNS_TWICE, GPIPE, OP(1, microbatch), 0},
    {RP_RULE_RUNS_TWICE, GPIPE, OP(1, iteration), 1},
    {RP_RULE_NEVER_RUNS, GPIPE, OP(0, kind), RP_OP_RECOMPUTE},
    {RP_RULE_NEVER_RUNS, GPIPE, OP(3, kind), RP_OP_BACKWARD_INPUT},
    {RP_RULE_NEVER_RUNS, GPIPE, HEADER(microbatch_count), 4},
    {RP_RULE_NEEDS, GPIPE, WAIT(5), RP_WAIT_CONTROL},
    {RP_RULE_NEEDS, ROUNDPIPE, WAIT(0), 11},
    {RP_RULE_NEEDS, LAYERS, WAIT(0), 17 | RP_WAIT_CONTROL},
    {RP_RULE_NEEDS, LAYERS, WAIT(1), 15 | RP_WAIT_CONTROL},
    {RP_RULE_RECV_MATCH, TRANSFERS, WAIT(3), 3 | RP_WAIT_CONTROL},
    {RP_RULE_SEND_MATCH, TRANSFERS, OP(7, kind), RP_OP_SEND},
    {RP_RULE_SAVED_MATCH, OFFLOADED, OP(16, microbatch), 1},
    {RP_RULE_SAVED_MATCH, OFFLOADED, OP(20, microbatch), 1},
    {RP_RULE_SAVED_MATCH, OFFLOADED, OP(20, part), 1},
    {RP_RULE_SAVED_MATCH, OFFLOADED, WAIT(0), 20 | RP_WAIT_CONTROL},
    {RP_RULE_SAVED_MATCH, OFFLOADED, WAIT(8), 16 | RP_WAIT_CONTROL},
    {RP_RULE_BUFFER_OP, GPIPE, BUFFER(0, free_op), 25},
    {RP_RULE_BUFFER_OP, GPIPE, BUFFER(0, alloc_op), 25},
    {RP_RULE_BUFFER_PLACE, GPIPE, BUFFER(0, place), 2},
    {RP_RULE_BUFFER_KIND, GPIPE, BUFFER(0, kind), RP_BUFFER_KIND_COUNT},
    {RP_RULE_BUFFER_KIND, GPIPE, BUFFER(0, unused), 1},
    {RP_RULE_BUFFER_LIFE, GPIPE, BUFFER(0, alloc_op), 16},
    {RP_RULE_CYCLE, GPIPE, WAIT(11), 23 | RP_WAIT_CONTROL},
};

Test(program, bases_are_valid)
{
    static const uint32_t ops[BASE_COUNT] = {25, 16, 16, 18, 24};
    for (int which = 0; which < BASE_COUNT; which++) {
        rp_program *program = make_base((base)which);
        cr_expect(eq(int, rp_program_check(program), RP_OK));
        cr_expect(eq(u32, program->op_count, ops[which]));
        rp_program_destroy(program);
    }
}

static void expect_violation(const rp_program *program, rp_rule rule, size_t number)
{
    char log[4096];
    const char *wanted = NULL;
    cr_assert(eq(int, rp_arena_print(arena, &wanted, ": %s\n", rp_rule_message(rule)), RP_OK));
    rp_log_capture_begin(log, sizeof log);
    rp_status status = rp_program_check(program);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INVALID_PROGRAM), "mutation %zu", number);
    cr_expect(strncmp(log, "program: ", 9) == 0, "mutation %zu: %s", number, log);
    cr_expect(strchr(log, '\n') == log + strlen(log) - 1, "one message: %s", log);
    const char *tail = log + strlen(log) - strlen(wanted);
    cr_expect(tail >= log && strcmp(tail, wanted) == 0, "mutation %zu: %s is not%s", number, log,
              wanted);
}

Test(program, every_rule_is_provoked_by_one_mutation)
{
    uint32_t provoked[256] = {0};
    for (size_t i = 0; i < COUNT(mutations); i++) {
        const mutation *m = &mutations[i];
        rp_program *program = make_base(m->from);
        set_field(program, &m->where, m->value);
        expect_violation(program, m->rule, i);
        provoked[m->rule]++;
        rp_program_destroy(program);
    }
#define EXPECT_PROVOKED(name, message)                                                             \
    cr_expect(provoked[RP_RULE_##name] > 0, "no mutation provokes %s: %s", #name, message);
    RP_RULE_LIST(EXPECT_PROVOKED)
#undef EXPECT_PROVOKED
}

Test(program, messages_of_rules_differ)
{
    const char *const messages[] = {
#define MESSAGE(name, message) message,
        RP_RULE_LIST(MESSAGE)
#undef MESSAGE
    };
    for (size_t i = 0; i < COUNT(messages); i++) {
        for (size_t k = 0; k < i; k++) {
            cr_expect(strcmp(messages[i], messages[k]) != 0, "%s", messages[i]);
        }
    }
}

/* ---- the text form --------------------------------------------------------------------------- */

typedef struct written {
    char *bytes;
    size_t length;
} written;

static written write_program(const rp_program *program)
{
    written text = {NULL, 0};
    FILE *stream = open_memstream(&text.bytes, &text.length);
    cr_assert(ne(ptr, stream, NULL));
    rp_program_write(program, stream);
    fclose(stream);
    return text;
}

static void check_round_trip(const rp_program *program, const char *what)
{
    rp_program *again = NULL;
    written first = write_program(program);
    rp_status status = rp_program_read("text", first.bytes, first.length, &again);
    cr_assert(eq(int, status, RP_OK), "%s", what);
    cr_expect(eq(u64, rp_program_hash(again), rp_program_hash(program)), "%s", what);
    written second = write_program(again);
    cr_expect(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0,
              "%s", what);
    free(first.bytes);
    free(second.bytes);
    rp_program_destroy(again);
}

Test(program, text_of_every_kind_of_op_survives)
{
    for (int which = 0; which < BASE_COUNT; which++) {
        rp_program *program = make_base((base)which);
        check_round_trip(program, "base");
        rp_program_destroy(program);
    }
}

/* @return whether the schedule allows the sizes */
static bool round_trip_case(const rp_schedule_type *schedule, const rp_schedule_config *config)
{
    char what[256];
    char log[1024];
    rp_program *program = NULL;
    snprintf(what, sizeof what, "%s, %u GPUs, %u microbatches, %u layers, %s, %u iterations %s",
             schedule->name, config->gpus, config->microbatches, config->layers,
             rp_recompute_text(config->recompute), config->iterations,
             config->asynchronous ? "async" : "sync");
    rp_log_capture_begin(log, sizeof log);
    rp_status status = rp_schedule_build(schedule, config, &program, NULL);
    rp_log_capture_end();
    if (status == RP_USAGE) {
        return false;
    }
    cr_assert(eq(int, status, RP_OK), "%s: %s", what, log);
    check_round_trip(program, what);
    rp_program_destroy(program);
    return true;
}

static uint32_t round_trip_sizes(const rp_schedule_type *schedule, uint32_t gpus, uint32_t layers,
                                 uint32_t stages)
{
    static const uint32_t microbatches[] = {1, 3, 6};
    uint32_t allowed = 0;
    rp_costs costs;
    rp_partition partition;
    rp_test_equal_costs(arena, layers, 1000, 2000, &costs);
    cr_assert(eq(int,
                 rp_partition_even(schedule, &costs, gpus, schedule->many_stages ? stages : 0,
                                   arena, &partition, NULL),
                 RP_OK));
    /* Every combination: 3 microbatches x 3 modes x 2 iterations x sync or async x 2 rounds. */
    for (uint32_t k = 0; k < 72; k++) {
        rp_schedule_config config = {.gpus = gpus,
                                     .microbatches = microbatches[k % 3],
                                     .recompute = (rp_recompute)(k / 3 % 3),
                                     .iterations = k / 9 % 2 == 0 ? 1 : 3,
                                     .asynchronous = k / 18 % 2 == 1,
                                     .round = k / 36 == 0 ? gpus : RP_ROUND_ALL,
                                     .layers = layers,
                                     .partition = &partition,
                                     .costs = &costs,
                                     .boundary_bytes = k};
        allowed += round_trip_case(schedule, &config) ? 1 : 0;
    }
    return allowed;
}

Test(program, text_of_every_schedule_survives)
{
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        uint32_t allowed = 0;
        for (uint32_t gpus = 1; gpus <= 4; gpus++) {
            allowed += round_trip_sizes(rp_schedules[s], gpus, 7, gpus);
            allowed += round_trip_sizes(rp_schedules[s], gpus, 2, 3 * gpus); /* empty stages */
        }
        uint32_t least = rp_traits_only_synchronous(&rp_schedules[s]->traits) != NULL ? 75 : 150;
        cr_expect(gt(u32, allowed, least), "%s is hardly ever allowed", rp_schedules[s]->name);
    }
}

Test(program, text_of_random_cases_survives)
{
    rp_random random = {20261};
    rp_random_case *c = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof *c, &c), RP_OK));
    for (uint32_t i = 0; i < 300; i++) {
        rp_random_case_draw(&random, 600, c);
        c->config.iterations = rp_random_between(&random, 1, 3);
        c->config.asynchronous = i % 2 == 0;
        cr_expect(round_trip_case(c->schedule, &c->config));
    }
}

/* A text cut anywhere is refused with a single message. */
Test(program, cut_texts_are_refused)
{
    rp_program *program = make_base(TRANSFERS);
    written text = write_program(program);
    rp_program_destroy(program);
    for (size_t length = 0; length + 1 < text.length; length++) {
        char log[1024];
        rp_log_capture_begin(log, sizeof log);
        rp_status status = rp_program_read("cut", text.bytes, length, &program);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT), "%zu bytes", length);
        cr_expect(strncmp(log, "cut:", 4) == 0, "%zu bytes: %s", length, log);
        cr_expect(eq(ptr, program, NULL));
    }
    free(text.bytes);
}

/* ---- the hash -------------------------------------------------------------------------------- */

static const field hashed[] = {
    HEADER(gpu_count),
    HEADER(microbatch_count),
    HEADER(iteration_count),
    HEADER(layer_count),
    HEADER(recompute),
    HEADER(asynchronous),
    STAGE(0, layer_begin),
    STAGE(0, layer_end),
    STAGE(0, roles),
    STAGE(1, layer_begin),
    STAGE(1, layer_end),
    STAGE(1, roles),
    QUEUE(0, op_end),
    QUEUE(1, op_begin),
    QUEUE(1, op_end),
    QUEUE(0, gpu),
    QUEUE(1, gpu),
    QUEUE(0, kind),
    QUEUE(1, kind),
    OP(0, microbatch),
    OP(0, stage),
    OP(0, iteration),
    OP(0, kind),
    OP(0, flags),
    OP(0, part),
    OP(3, wait_begin),
    OP(15, microbatch),
    OP(15, stage),
    OP(15, iteration),
    OP(15, kind),
    OP(15, flags),
    OP(15, wait_begin),
    WAIT(0),
    WAIT(7),
    BUFFER(0, bytes),
    BUFFER(0, alloc_op),
    BUFFER(0, free_op),
    BUFFER(0, place),
    BUFFER(0, kind),
    BUFFER(1, bytes),
    BUFFER(1, alloc_op),
    BUFFER(1, free_op),
    BUFFER(1, place),
    BUFFER(1, kind),
    HEADER(buffer_count),
    HEADER(wait_count),
    HEADER(queue_count),
    HEADER(forward_count),
    HEADER(backward_count),
    HEADER(stage_count),
    HEADER(op_count),
    VALUE(forward_chain, 0, uint16_t),
    VALUE(forward_chain, 1, uint16_t),
    VALUE(backward_chain, 1, uint16_t),
};

static uint64_t flip_and_hash(base which, const field *f)
{
    rp_program *program = make_base(which);
    uint64_t value = 0;
    memcpy(&value, address_of(program, f), f->size);
    bool count = f->list == NO_LIST && value > 1; /* one less: the lists have no more */
    set_field(program, f, count ? value - 1 : value ^ 1);
    uint64_t hash = rp_program_hash(program);
    rp_program_destroy(program);
    return hash;
}

Test(program, hash_sees_every_field)
{
    for (int which = 0; which < BASE_COUNT; which++) {
        uint64_t hashes[COUNT(hashed) + 1];
        rp_program *program = make_base((base)which);
        hashes[COUNT(hashed)] = rp_program_hash(program);
        rp_program_destroy(program);
        for (size_t i = 0; i < COUNT(hashed); i++) {
            hashes[i] = flip_and_hash((base)which, &hashed[i]);
            cr_expect(ne(u64, hashes[i], hashes[COUNT(hashed)]), "program %d, field %zu", which, i);
        }
    }
}
