/* Keys of a GPU's file in a platform, and their mistakes. */
#include "common/inputs/gpu.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/provenance.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void begin(void)
{
    rp_test_tool_begin();
    (void)mkdir(rp_test_path(rp_test_tool_folder(), "gpus"), 0700);
    (void)setenv("RP_TRACES", rp_test_tool_folder(), 1);
}

TestSuite(gpu, .init = begin, .fini = rp_test_tool_end, .timeout = 60);

#define SERVER "name: p\nsource: s\ngpu: card\ngpus: 2\nlink_gb_per_s: 32\npeer_gb_per_s: 0\n"
#define PEAKS                                                                                      \
    "fp16_tflops_fp16_acc: 200\nfp16_tflops_fp32_acc: 100\nmemory_gb_per_s: 1000\n"                \
    "memory_gib: 10\n"
#define CARD "name: card\nsource: s\n" PEAKS "reserved_gib: 1\nattention_fwd_tflops: 60\n"

static void write_card(const char *text)
{
    FILE *file = fopen(rp_test_path(rp_test_tool_folder(), "gpus/card.yaml"), "w");
    cr_assert(ne(ptr, file, NULL));
    fputs(text, file);
    cr_assert(eq(int, fclose(file), 0));
}

static rp_status parse(const char *text, rp_platform *platform)
{
    return rp_platform_parse("p.yaml", text, strlen(text), rp_test_tool_arena(), platform);
}

static void expect_refusal(const char *text, const char *const reasons[2])
{
    char message[2048];
    rp_platform p;
    rp_log_capture_begin(message, sizeof message);
    rp_status status = parse(text, &p);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    for (int i = 0; i < 2; i++) {
        cr_expect(ne(ptr, strstr(message, reasons[i]), NULL), "%s in %s", reasons[i], message);
    }
}

/* A platform's own keys count, in either unit of memory; so do its origins. */
Test(gpu, fills_what_a_platform_lacks)
{
    rp_platform p;
    write_card(CARD "measured: reserved_gib\nmoved: attention_fwd_tflops\n");
    cr_assert(
        eq(int, parse(SERVER "reserved_gib: 2\nmemory_gb: 12\nset: reserved_gib\n", &p), RP_OK));
    cr_expect(eq(dbl, p.fp16_tflops_fp32_acc, 100));
    cr_expect(eq(dbl, p.attention_fwd_tflops, 60));
    cr_expect(eq(dbl, p.reserved_gib, 2));
    cr_expect(eq(dbl, p.memory_gb, 12));
    cr_expect(eq(dbl, p.memory_gib, 0));
    cr_expect(eq(int, rp_platform_provenance(&p, "reserved_gib"), RP_SET));
    cr_expect(eq(int, rp_platform_provenance(&p, "attention_fwd_tflops"), RP_MOVED));
    cr_expect(eq(int, rp_platform_provenance(&p, "memory_gb_per_s"), RP_ASSUMED));
}

/* Files from before there were files of GPUs mean the same as then. */
Test(gpu, whole_files_are_read_alone)
{
    rp_platform p;
    write_card(CARD);
    cr_assert(eq(int, parse(SERVER PEAKS, &p), RP_OK));
    cr_expect(eq(dbl, p.reserved_gib, 0));
    cr_expect(eq(dbl, p.attention_fwd_tflops, 0));
}

Test(gpu, mistakes_stand_where_they_were_made)
{
    write_card("name: card\nsource: s\n" PEAKS "sms: 3\n");
    expect_refusal(SERVER, (const char *const[]){"gpus/card.yaml:7: ", "'sms' is 3"});
    expect_refusal(SERVER "flash_fwd_tflops: 1\n",
                   (const char *const[]){"gpus/card.yaml:7: ", "'sms' is 3"});
    write_card("name: card\nsource: s\n" PEAKS);
    expect_refusal(SERVER "fp16_tflops_fp32_acc: 201\n",
                   (const char *const[]){"p.yaml:7: ", "exceeds the peak"});
    write_card("name: card\nsource: s\n" PEAKS "gpus: 2\n");
    expect_refusal(SERVER, (const char *const[]){"gpus/card.yaml:7: ", "unknown key 'gpus'"});
    write_card("name: card\nsource: s\n" PEAKS "moved: link_efficiency\n");
    expect_refusal(SERVER, (const char *const[]){"gpus/card.yaml:7: ", "names 'link_efficiency'"});
    write_card("name: card\nsource: s\nmemory_gb: 10\n");
    expect_refusal(SERVER, (const char *const[]){"gpus/card.yaml:1: ", "a GPU needs the keys"});
    write_card("name: other\nsource: s\n" PEAKS);
    expect_refusal(SERVER, (const char *const[]){"gpus/card.yaml: ", "calls itself 'other'"});
}

Test(gpu, unknown_names)
{
    expect_refusal("name: p\nsource: s\ngpu: rtx409\ngpus: 2\nlink_gb_per_s: 32\npeer_gb_per_s: 0",
                   (const char *const[]){"p.yaml:3: ", "did you mean 'rtx4090'?"});
    expect_refusal(SERVER "memory_gb: 2\n",
                   (const char *const[]){"p.yaml:1: ", "'fp16_tflops_fp16_acc'"});
}

/* ---- short names ----------------------------------------------------------------------------- */

/* CARDxCOUNT is COUNT GPUs of the card's smallest server, whatever else the answer says. */
Test(gpu, short_names_are_servers_with_fewer_gpus)
{
    static const char *const same[][2] = {{"3090x4", "rtx3090x8 --gpus 4"},
                                          {"rtx4090x2", "rtx4090x8 --gpus 2"},
                                          {"h200x4", "h200x8 --gpus 4"},
                                          {"h100x4 --nodes 2", "h100x8 --gpus 4 --nodes 2"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *rows[2];
        for (int side = 0; side < 2; side++) {
            char line[256];
            (void)snprintf(line, sizeof line,
                           "--schedule fsdp --model qwen3-1.7b --intervals off --format json "
                           "--platform %s",
                           same[i][side]);
            rows[side] = json_loads(rp_test_rpsim_well(line).output, 0, NULL);
            json_t *row = json_array_get(rows[side], 0);
            const char *name = json_string_value(json_object_get(row, "platform"));
            size_t length = strcspn(same[i][side], " ");
            cr_expect(strlen(name) == length && strncmp(name, same[i][side], length) == 0);
            cr_expect(eq(int, json_object_del(row, "platform"), 0));
        }
        cr_expect(json_equal(rows[0], rows[1]), "%s", same[i][0]);
        json_decref(rows[0]);
        json_decref(rows[1]);
    }
}

Test(gpu, short_names_that_are_refused)
{
    static const char *const refused[][2] = {
        {"4090x12", "'4090x12': rtx4090x8 has 8 GPUs; valid are up to 8, --nodes"},
        {"4090x4 --gpus 5", "4090x4 has 4 GPUs; valid at hardware fidelity are 1 to 4"},
        {"rtx4091x8", "unknown platform 'rtx4091x8', did you mean '"},
        {"4090x0", "unknown platform '4090x0'"},
        {"4090x2 --platform-out -", "valid is --set platform.gpus=2"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char line[256];
        const char *more = i == 4 ? "--gpu-memory 20" : "--schedule fsdp --model qwen3-1.7b";
        (void)snprintf(line, sizeof line, "%s --platform %s", more, refused[i][0]);
        rp_test_outcome outcome = rp_test_rpsim(line);
        cr_expect(eq(int, outcome.status, 2));
        cr_expect(strstr(outcome.messages, refused[i][1]) != NULL, "%s", outcome.messages);
    }
}
