/* Type of values and partition, which shape a program beside its schedule. */
#include "common/compile/compile.h"
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "common/schedule/even.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

static rp_arena *arena;
static rp_model model;
static rp_platform platform;
static rp_costs costs;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
}

static void load(const char *name)
{
    cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(&model, &roof, 1, 128, arena, &costs, NULL), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(compile, .init = begin, .fini = end);

static rp_program *compile(const char *schedule, rp_dtype dtype)
{
    rp_program *program = NULL;
    const rp_resolved config = {.schedule = rp_schedule_find(schedule),
                                .model = &model,
                                .decided.seq_len = 128,
                                .decided.dtype = dtype,
                                .gpus = 4,
                                .decided.accumulate = 1,
                                .decided.microbatches = 8,
                                .decided.microbatch_size = 1,
                                .decided.iterations = 1,
                                .recompute = RP_RECOMPUTE_WAIT,
                                .costs = &costs};
    cr_assert(eq(int, rp_compile(&config, &program, NULL), RP_OK), "%s", schedule);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", schedule);
    cr_expect(eq(int, program->dtype, dtype));
    return program;
}

/* fp32 doubles `bytes` of 16-bit values, except for token ids, Adam's values and the rounding of a
 * collective's share. */
static void check_op(const rp_program *p, uint32_t op, uint64_t bytes, uint64_t wide)
{
    char name[RP_OP_NAME_SIZE];
    rp_op_name(&p->ops[op], name);
    uint64_t ids = 2 * 128 * sizeof(int32_t); /* and labels */
    switch (p->ops[op].kind) {
    case RP_OP_UPLOAD_ACT:
        cr_expect(le(u64, wide, 2 * bytes), "%s", name);
        cr_expect(ge(u64, wide + ids, 2 * bytes), "%s", name);
        break;
    case RP_OP_UPDATE:
    case RP_OP_OPTIMIZER:
    case RP_OP_REFRESH:
    case RP_OP_COLLECT:
        cr_expect(eq(u64, wide, bytes), "%s", name);
        break;
    default:
        cr_expect(le(u64, 2 * bytes, wide), "%s", name);
        cr_expect(le(u64, wide, 2 * bytes + 2 * p->layer_count * p->gpu_count), "%s", name);
    }
}

Test(compile, a_type_decides_bytes_and_nothing_else)
{
    static const char *const names[] = {"roundpipe", "mobius", "gpipe",
                                        "fsdp",      "zero2",  "megatron-tp"};
    load("small");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_program *half = compile(names[i], RP_DTYPE_F16);
        rp_program *brain = compile(names[i], RP_DTYPE_BF16);
        rp_program *single = compile(names[i], RP_DTYPE_F32);
        cr_assert(eq(u32, half->op_count, single->op_count), "%s", names[i]);
        cr_assert(eq(u32, half->wait_count, single->wait_count), "%s", names[i]);
        for (uint32_t op = 0; op < half->op_count; op++) {
            cr_expect(eq(u64, brain->op_bytes[op], half->op_bytes[op]), "%s", names[i]);
            check_op(half, op, half->op_bytes[op], single->op_bytes[op]);
        }
        rp_program_destroy(half);
        rp_program_destroy(brain);
        rp_program_destroy(single);
    }
}

static const char *choose(const char *text, const char *schedule, uint32_t gpus, uint32_t stages,
                          rp_status expected)
{
    rp_partition partition;
    const char *chosen = "";
    const rp_schedule_type *type = rp_schedule_find(schedule);
    const rp_schedule_config config = {.gpus = gpus,
                                       .microbatches = 2 * gpus,
                                       .iterations = 1,
                                       .layers = model.layers,
                                       .costs = &costs};
    rp_status status = rp_compile_partition(text, RP_PARTITION_WORDS, model.name, stages, type,
                                            &config, arena, &partition, NULL);
    cr_assert(eq(int, status, expected), "%s", text);
    if (status == RP_OK) {
        cr_assert(eq(int, rp_partition_text(&partition, arena, &chosen), RP_OK));
    }
    return chosen;
}

static const char *even(const char *schedule, uint32_t gpus, uint32_t stages)
{
    rp_partition partition;
    const char *text = NULL;
    cr_assert(eq(int,
                 rp_partition_even(rp_schedule_find(schedule), &costs, gpus, stages, arena,
                                   &partition, NULL),
                 RP_OK));
    cr_assert(eq(int, rp_partition_text(&partition, arena, &text), RP_OK));
    return text;
}

/* The paper's partition of 1F1B is for eight GPUs; other sizes and models are even. */
Test(compile, the_papers_partition_where_it_is_listed)
{
    rp_partition published;
    bool found = false;
    const char *paper = NULL;
    load("qwen3-1.7b");
    cr_assert(
        eq(int, rp_partition_published("1f1b", "qwen3-1.7b", arena, &published, &found), RP_OK));
    cr_assert(found);
    cr_assert(eq(int, rp_partition_text(&published, arena, &paper), RP_OK));
    cr_expect(eq(str, (char *)choose(NULL, "1f1b", 8, 0, RP_OK), (char *)paper));
    cr_expect(eq(str, (char *)choose("paper", "1f1b", 8, 0, RP_OK), (char *)paper));
    cr_expect(ne(str, (char *)even("1f1b", 8, 0), (char *)paper));
    cr_expect(eq(str, (char *)choose("even", "1f1b", 8, 0, RP_OK), (char *)even("1f1b", 8, 0)));
    cr_expect(eq(str, (char *)choose(NULL, "1f1b", 3, 0, RP_OK), (char *)even("1f1b", 3, 0)));
    cr_expect(eq(str, (char *)choose(NULL, "looped-bfs", 8, 16, RP_OK),
                 (char *)even("looped-bfs", 8, 16)));
    cr_expect(eq(str, (char *)choose("20,8", "1f1b", 2, 0, RP_OK), (char *)"20,8"));
    load("tiny");
    cr_expect(eq(str, (char *)choose(NULL, "1f1b", 2, 0, RP_OK), (char *)even("1f1b", 2, 0)));
}

Test(compile, partitions_that_do_not_exist_are_refused)
{
    char message[512];
    load("tiny");
    rp_log_capture_begin(message, sizeof message);
    choose("paper", "1f1b", 2, 0, RP_USAGE);
    rp_log_capture_end();
    cr_expect(strstr(message, "the paper lists none for 1f1b with tiny; valid values are even, and "
                              "lists") != NULL,
              "%s", message);
    rp_log_capture_begin(message, sizeof message);
    choose("best", "1f1b", 2, 0, RP_USAGE);
    rp_log_capture_end();
    cr_expect(strstr(message, "'best' is not valid; valid values are paper, even, and lists") !=
                  NULL,
              "%s", message);
}

/* Bytes of a program's ops of a kind, and their number. */
static double bytes_of(const rp_program *program, rp_op_kind kind, uint32_t *count_out)
{
    double bytes = 0;
    *count_out = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bool is = program->ops[i].kind == kind;
        bytes += is ? (double)program->op_bytes[i] : 0;
        *count_out += is ? 1 : 0;
    }
    return bytes;
}

/* DeepSpeed 0.17.5 adds gradients that lie in host memory up on the GPU (stage3.py,
 * partition_grads): of 2 microbatches a GPU sends the first's gradients, takes them back and sends
 * the sum, and then sends it in fp32, 5 times the gradients instead of 2; the host adds nothing.
 * With sharded weights transfers run beside compute. */
Test(compile, software_decides_who_adds_gradients)
{
    static const struct {
        const char *schedule;
        bool overlaps;
    } cases[] = {{"zero-offload", false}, {"zero-infinity", true}};
    rp_stack deepspeed;
    cr_assert(eq(int, rp_stack_load("deepspeed", arena, &deepspeed), RP_OK));
    load("tiny");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t downs[2];
        uint32_t collects[2];
        costs.stack = NULL;
        rp_program *plain = compile(cases[i].schedule, RP_DTYPE_F16);
        costs.stack = &deepspeed;
        rp_program *own = compile(cases[i].schedule, RP_DTYPE_F16);
        double before = bytes_of(plain, RP_OP_DOWNLOAD_PARAM_GRAD, &downs[0]);
        double after = bytes_of(own, RP_OP_DOWNLOAD_PARAM_GRAD, &downs[1]);
        (void)bytes_of(plain, RP_OP_COLLECT, &collects[0]);
        (void)bytes_of(own, RP_OP_COLLECT, &collects[1]);
        cr_expect(epsilon_eq(dbl, after, 2.5 * before, 1e-3 * after), "%g, %g", before, after);
        cr_expect(eq(u32, downs[0], downs[1]));
        cr_expect(gt(u32, collects[0], 0));
        cr_expect(eq(u32, collects[1], 0));
        cr_expect(not(plain->traits.sharding.overlap));
        cr_expect(eq(int, own->traits.sharding.overlap, cases[i].overlaps));
        rp_program_destroy(plain);
        rp_program_destroy(own);
    }
}
