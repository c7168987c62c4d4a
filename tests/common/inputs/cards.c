/* Servers whose GPUs are of several cards: keys, names, memory. */
#include "common/inputs/load/platforms.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void begin(void)
{
    rp_test_tool_begin();
    (void)mkdir(rp_test_path(rp_test_tool_folder(), "gpus"), 0700);
    (void)setenv("RP_TRACES", rp_test_tool_folder(), 1);
}

TestSuite(cards, .init = begin, .fini = rp_test_tool_end, .timeout = 60);

static const char *write_file(const char *name, const char *text)
{
    const char *path = rp_test_path(rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fputs(text, file);
    cr_assert(eq(int, fclose(file), 0));
    return path;
}

/* Lines of rtx5090x8 that each server below has. */
#define HOST                                                                                       \
    "peer_gb_per_s: 0\npeer: none\nhost_optimizer_gb_per_s: 95\nhost_adam_gb_per_s: 161\n"         \
    "host_refresh_gb_per_s: 36\nlink_efficiency: 0.655\nlaunch_overhead_us: 2.5\n"                 \
    "context_gb: 0.75\nworkspace_gb: 0.033554432\nprocess_gb: 3\nhost_memory_gb: 800\n"            \
    "zero_gradient_gb_per_s: 12\nlaunch_queue_depth: 1024\ndispatch_us_per_module: 48\n"           \
    "optimizer_us_per_object: 5\n"

#define MIXED                                                                                      \
    "name: p\nsource: s\ngpu: rtx5090\ngpus: 3\ngpu_list: \"rtx4090 rtx5090 rtx3090\"\n"           \
    "link_gb_per_s: 32\ncollective_gb_per_s: 2.67\n" HOST

static rp_status parse(const char *text, const rp_changes *changes, rp_platform *platform)
{
    const rp_text bytes = {.bytes = (char *)text, .length = strlen(text)};
    return rp_platform_parse_changed("p", "p.yaml", &bytes, changes, rp_test_tool_arena(), platform,
                                     NULL);
}

static void expect_memory(const rp_platform *p, double a, double b, double c)
{
    const double values[] = {a, b, c};
    cr_assert(eq(u32, p->each.memory_gb.count, 3));
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect(epsilon_eq(dbl, p->memory_gb * rp_platform_share(&p->each.memory_gb, i),
                             values[i], 1e-9));
    }
}

#define GIB 1.073741824
#define GB_OF_4090 (23.98828125 * GIB)
#define GB_OF_5090 (31.8427734375 * GIB)

/* Keys of GPUs are each card's; keys in the platform's file are those of `gpu`, and so are changes,
 * but for a list of memory, as it can be in the file. */
Test(cards, keys_are_those_of_the_cards)
{
    rp_platform p;
    rp_platform card;
    cr_assert(eq(int, rp_platform_load("rtx3090x8", rp_test_tool_arena(), &card), RP_OK));
    double gb = card.memory_gb;
    cr_assert(eq(int, parse(MIXED "gemm_efficiency: 0.5\nreserved_gib: 1\n", NULL, &p), RP_OK));
    cr_assert(ne(ptr, (void *)p.cards, NULL));
    cr_expect(eq(dbl, p.gemm_efficiency, 0.5));
    cr_expect(eq(dbl, p.cards[1]->gemm_efficiency, 0.5));
    cr_expect(eq(dbl, p.cards[0]->gemm_efficiency, 0.82));
    cr_expect(eq(dbl, p.cards[0]->fp16_tflops_fp32_acc, 165.2));
    cr_expect(eq(dbl, p.cards[0]->reserved_gib, 0.41));
    cr_expect(eq(dbl, p.cards[1]->reserved_gib, 1));
    cr_expect(eq(dbl, p.cards[2]->fp16_tflops_fp32_acc, card.fp16_tflops_fp32_acc));
    cr_expect(eq(dbl, p.cards[2]->launch_overhead_us, 2.5));
    cr_expect(eq(str, (char *)p.cards[2]->gpu, "rtx3090"));
    expect_memory(&p, GB_OF_4090, GB_OF_5090, gb);
    cr_assert(eq(int, parse(MIXED "memory_gb: 20\n", NULL, &p), RP_OK));
    expect_memory(&p, GB_OF_4090, 20, gb);
    cr_assert(eq(int, parse(MIXED "memory_gb: [10, 20, 40]\n", NULL, &p), RP_OK));
    expect_memory(&p, 10, 20, 40);
    rp_changes changes = {0};
    cr_assert(eq(int,
                 rp_changes_add("set", "platform.memory_gib*0.5,platform.gemm_efficiency*0.5",
                                rp_test_tool_arena(), &changes, NULL),
                 RP_OK));
    cr_assert(eq(int, parse(MIXED, &changes, &p), RP_OK));
    expect_memory(&p, GB_OF_4090 / 2, GB_OF_5090 / 2, gb / 2);
    cr_expect(eq(dbl, p.gemm_efficiency, 0.41));
    cr_expect(eq(dbl, p.cards[0]->gemm_efficiency, 0.82));
}

static void expect_refusal(const char *text, const char *change, const char *place,
                           const char *cause)
{
    char message[2048];
    rp_platform p;
    rp_changes changes = {0};
    if (change != NULL) {
        cr_assert(
            eq(int, rp_changes_add("set", change, rp_test_tool_arena(), &changes, NULL), RP_OK));
    }
    rp_log_capture_begin(message, sizeof message);
    rp_status status = parse(text, &changes, &p);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(strstr(message, place) != NULL && strstr(message, cause) != NULL, "%s", message);
}

/* Others are rows of tests/bad/data/expected.tsv. */
Test(cards, mistakes)
{
    expect_refusal(MIXED, "platform.gpus=2", "p.yaml",
                   "'gpu_list' names 3 GPUs of the 2 of a node");
    expect_refusal(MIXED, "platform.fp16_tflops_fp32_acc*0.5", "p.yaml",
                   "'gpu' is 'rtx5090', not the fastest of 'gpu_list'; valid values are "
                   "names of the fastest: rtx4090");
    write_file("gpus/odd.yaml", "name: odd\nsource: s\nfp16_tflops_fp16_acc: 10\n"
                                "fp16_tflops_fp32_acc: 20\nmemory_gb: 10\nmemory_gb_per_s: 100\n");
    expect_refusal("name: p\nsource: s\ngpu: rtx5090\ngpus: 2\ngpu_list: odd rtx5090\n"
                   "link_gb_per_s: 32\n" HOST,
                   NULL, "gpus/odd.yaml:4: ", "exceeds the peak with fp16 accumulation");
}

#define LINE                                                                                       \
    "--schedule 1f1b,roundpipe,fsdp,megatron-tp --model qwen3-1.7b --intervals off --format json " \
    "--platform "

static const char *answer(const char *platform)
{
    char line[512];
    (void)snprintf(line, sizeof line, LINE "%s", platform);
    return rp_test_rpsim_well(line).output;
}

/* A list of equal cards says nothing new. */
Test(cards, equal_cards_are_one_card)
{
    static const char *const lists[] = {"", "gpu_list: \"rtx5090 rtx5090\"\n"};
    const char *texts[2];
    for (int i = 0; i < 2; i++) {
        char text[2048];
        (void)snprintf(text, sizeof text,
                       "name: p\nsource: s\ngpu: rtx5090\ngpus: 2\nlink_gb_per_s: 64\n"
                       "collective_gb_per_s: 2.67\n" HOST "%s",
                       lists[i]);
        texts[i] = answer(write_file("p.yaml", text));
    }
    cr_expect(eq(str, (char *)texts[0], (char *)texts[1]));
}

static json_t *rows_without_name(const char *text, const char *name)
{
    json_t *rows = json_loads(text, 0, NULL);
    cr_assert(ne(ptr, rows, NULL));
    cr_expect(gt(sz, json_array_size(rows), 3));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        cr_expect(
            eq(str, (char *)json_string_value(json_object_get(row, "platform")), (char *)name));
        cr_expect(eq(int, json_object_del(row, "platform"), 0));
    }
    return rows;
}

/* Names of several cards are servers that a file can describe: each card with its link. */
Test(cards, names_are_files)
{
    static const struct {
        const char *name;
        const char *gpus;
    } rows[] = {{"5090x1,4090x1", "gpus: 2\ngpu_list: rtx5090 rtx4090\nlink_gb_per_s: [64, 32]\n"
                                  "link_effective_gb_per_s: [41.92, 20.97]\n"},
                {"rtx4090x2,5090x1,4090x1",
                 "gpus: 4\ngpu_list: rtx4090 rtx4090 rtx5090 rtx4090\n"
                 "link_gb_per_s: [32, 32, 64, 32]\n"
                 "link_effective_gb_per_s: [20.97, 20.97, 41.92, 20.97]\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2048];
        (void)snprintf(text, sizeof text,
                       "name: p\nsource: s\ngpu: rtx5090\ncollective_gb_per_s: 2.67\n" HOST "%s",
                       rows[i].gpus);
        json_t *named = rows_without_name(answer(rows[i].name), rows[i].name);
        json_t *filed = rows_without_name(answer(write_file("p.yaml", text)), "p");
        cr_expect(json_equal(named, filed), "%s", rows[i].name);
        json_decref(named);
        json_decref(filed);
    }
    json_t *one = rows_without_name(answer("4090x1,4090x1"), "4090x1,4090x1");
    json_t *two = rows_without_name(answer("4090x2"), "4090x2");
    cr_expect(json_equal(one, two));
    json_decref(one);
    json_decref(two);
}

Test(cards, names_that_are_refused)
{
    static const char *const refused[][2] = {
        {"5090x1,4091x1", "'5090x1,4091x1': '4091x1' is no card's server; valid are CARDxCOUNT"},
        {"5090x1,", "'' is no card's server"},
        {"5090x9,4090x1", "rtx5090x8 has 8 GPUs; valid are up to 8"},
        {"5090x1,4090x1 --gpus 3", "has 2 GPUs; valid at hardware fidelity are 1 to 2"},
        {"4090x1,5090x1 --set platform.gpus=3", "names 2 GPUs of the 3 of a node"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, "--schedule fsdp --model qwen3-1.7b --platform %s",
                       refused[i][0]);
        rp_test_outcome outcome = rp_test_rpsim(line);
        cr_expect(eq(int, outcome.status, 2));
        cr_expect(strstr(outcome.messages, refused[i][1]) != NULL, "%s", outcome.messages);
    }
}
