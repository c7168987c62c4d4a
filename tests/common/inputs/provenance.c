/* Origins of a platform's values: lists of its own keys. */
#include "common/inputs/provenance.h"
#include "common/base/log.h"
#include "common/inputs/data.h"
#include "common/inputs/load/platforms.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(provenance, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

static rp_status parse(const char *lines, rp_platform *platform_out)
{
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "name: p\nsource: s\ngpu: g\ngpus: 8\nfp16_tflops_fp16_acc: 100\n"
                          "fp16_tflops_fp32_acc: 100\nmemory_gb: 24\nmemory_gb_per_s: 1000\n"
                          "link_gb_per_s: 32\npeer_gb_per_s: 0\nlink_effective_gb_per_s: 20\n"
                          "attention_fwd_tflops: 50\n%s",
                          lines);
    return rp_platform_parse("p", text, (size_t)length, rp_test_tool_arena(), platform_out);
}

Test(provenance, lists_of_keys)
{
    rp_platform p;
    cr_assert(eq(int, parse("measured: link_effective_gb_per_s\nmoved: attention_fwd_tflops\n", &p),
                 RP_OK));
    cr_expect(eq(int, rp_platform_provenance(&p, "link_effective_gb_per_s"), RP_MEASURED));
    cr_expect(eq(int, rp_platform_provenance(&p, "attention_fwd_tflops"), RP_MOVED));
    cr_expect(eq(int, rp_platform_provenance(&p, "link_gb_per_s"), RP_ASSUMED));
    cr_expect(eq(int, rp_platform_provenance(&p, "no_such_key"), RP_ASSUMED));
    const rp_platform unread = {.name = "by hand"};
    cr_expect(eq(int, rp_platform_provenance(&unread, "link_gb_per_s"), RP_ASSUMED));
}

Test(provenance, what_is_refused)
{
    static const char *const rows[][2] = {
        {"set: gpu\n", "'set' names 'gpu'"},
        {"moved: bandwidth\n", "'moved' names 'bandwidth'"},
        {"measured: gpus\nset: gpus\n", "'set' names 'gpus', which 'measured' has named"},
        {"measured: gpus, gpus\n", "'measured' names 'gpus', which 'measured' has named"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rp_platform p;
        char messages[1024];
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = parse(rows[i][0], &p);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT), "%s", rows[i][0]);
        cr_expect(ne(ptr, strstr(messages, rows[i][1]), NULL), "%s: %s", rows[i][0], messages);
        cr_expect(ne(ptr, strstr(messages, "valid"), NULL), "%s", messages);
    }
}

/* A change counts as a file with another value: the value's kind stays. */
Test(provenance, changes_keep_the_kind)
{
    rp_changes changes = {0};
    rp_platform p;
    rp_arena *arena = rp_test_tool_arena();
    const char *text = "platform.link_effective_gb_per_s=25,platform.launch_overhead_us*2";
    cr_assert(eq(int, rp_changes_add("set", text, arena, &changes, NULL), RP_OK));
    cr_assert(eq(int, rp_platform_load_changed("rtx4090x8", &changes, arena, &p, NULL), RP_OK));
    cr_expect(eq(int, rp_platform_provenance(&p, "link_effective_gb_per_s"), RP_MEASURED));
    cr_expect(eq(int, rp_platform_provenance(&p, "launch_overhead_us"), RP_ASSUMED));
    cr_expect(eq(int, rp_platform_provenance(&p, "host_optimizer_gb_per_s"), RP_SET));
}

/* Without origins a platform would be all assumption. */
Test(provenance, shipped_platforms_say_it)
{
    rp_arena *arena = rp_test_tool_arena();
    const char **names = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    cr_assert(gt(u32, count, 0));
    for (uint32_t i = 0; i < count; i++) {
        rp_platform p;
        cr_assert(eq(int, rp_platform_load(names[i], arena, &p), RP_OK));
        cr_expect(p.measured != NULL || p.moved != NULL || p.set != NULL, "%s", names[i]);
    }
}

Test(provenance, words)
{
    rp_provenance kind;
    for (int i = RP_ASSUMED; i <= RP_SET; i++) {
        const char *word = rp_provenance_text((rp_provenance)i);
        cr_assert(rp_provenance_parse(word, strlen(word), &kind));
        cr_expect(eq(int, kind, i));
    }
    cr_expect(not(rp_provenance_parse("guessed", 7, &kind)));
}
