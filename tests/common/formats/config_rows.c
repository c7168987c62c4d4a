/* A kind of file made of rows: members, keys, fields, and the origins of values. Ranges, words and
 * messages are those of common/formats/formats.md. */
#include "common/formats/config_rows.h"
#include "common/base/log.h"
#include "common/inputs/provenance.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(config_rows, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define ROWS                                                                                       \
    KEY(name, NAME, TABLE, 0, 16, NULL, REQUIRED, .help = "a name")                                \
    KEY(kernel_us, DOUBLE, TABLE, 0.5, 100, "us", DEFAULT(2.5), .help = "of one")                  \
    KEY(processes, U32, TABLE, 1, 8, NULL, DEFAULT(4), STATED, .help = "of a server")              \
    KEY(graphs, BOOL, TABLE, 0, 0, NULL, OPTIONAL, .help = "captured")                             \
    KEY(attention, TEXT, TABLE, 0, 16, NULL, OPTIONAL, WORDS("own", "flash"), .help = "kernel")    \
    KEY(measured, TEXT, TABLE, 0, 99, NULL, OPTIONAL, .help = "keys")                              \
    KEY(pass_us, NUMBERS, TABLE, 0, 9, "us", OPTIONAL, .help = "of each pass")

typedef struct software {
#define KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
    ROWS
#undef KEY
} software;

enum {
#define KEY(member, ...) KEY_##member,
    ROWS
#undef KEY
};

static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(software, member, #member, __VA_ARGS__),
    ROWS
#undef KEY
};

static const rp_config_schema schema = {.what = "a software", RP_CONFIG_FIELDS(fields)};

static rp_status read(const char *text, software *out, size_t *lines, char *log, size_t size)
{
    rp_log_capture_begin(log, size);
    *out = (software){0};
    rp_status status =
        rp_config_parse("f", text, strlen(text), &schema, rp_test_tool_arena(), out, lines);
    rp_log_capture_end();
    return status;
}

Test(config_rows, values_and_absent_keys)
{
    char log[1024] = "";
    size_t lines[RP_CONFIG_MAX_FIELDS];
    software s;
    cr_assert(eq(int, read("name: a\n", &s, lines, log, sizeof log), RP_OK), "%s", log);
    cr_expect(eq(dbl, s.kernel_us, 2.5));
    cr_expect(eq(u32, s.processes, 4));
    cr_expect(not(s.graphs));
    cr_expect(eq(ptr, (void *)s.attention, NULL));
    const char *file = "name: b\nprocesses: 2\nkernel_us: 7\ngraphs: true\nattention: own\n"
                       "pass_us: [1, 2]\n";
    cr_assert(eq(int, read(file, &s, lines, log, sizeof log), RP_OK), "%s", log);
    cr_expect(eq(str, (char *)s.name, "b"));
    cr_expect(eq(u32, s.processes, 2));
    cr_expect(eq(dbl, s.kernel_us, 7));
    cr_expect(s.graphs);
    cr_expect(eq(str, (char *)s.attention, "own"));
    cr_expect(eq(u32, s.pass_us.count, 2));
    cr_expect(eq(sz, lines[KEY_processes], 2));
    cr_expect(eq(sz, lines[KEY_measured], 0));
}

Test(config_rows, what_is_refused)
{
    static const struct {
        const char *text;
        const char *message;
    } files[] = {
        {"graphs: true\n", "f:1: a software needs the key 'name'"},
        {"name: a\nkernel_us: 0.25\n",
         "f:2: 'kernel_us' is '0.25'; valid values are numbers from 0.5 to 100 us"},
        {"name: a\nprocesses: 9\n", "valid values are whole numbers from 1 to 8"},
        {"name: a\nattention: other\n", "valid values are own, flash"},
        {"name: a\nkernel_ms: 1\n", "the unit must be us: 'kernel_us'"},
        {"name: a\nprocess: 1\n",
         "did you mean 'processes'?; valid values are name, kernel_us, processes, graphs, "
         "attention, measured, pass_us"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char log[1024] = "";
        software s;
        rp_status status = read(files[i].text, &s, NULL, log, sizeof log);
        cr_expect(eq(int, status, RP_INPUT), "%s", files[i].text);
        cr_expect(strstr(log, files[i].message) != NULL, "%s: %s", files[i].text, log);
    }
}

Test(config_rows, where_values_come_from)
{
    char log[1024] = "";
    size_t lines[RP_CONFIG_MAX_FIELDS];
    const uint8_t *kinds = NULL;
    software s;
    const char *good = "name: a\nkernel_us: 1\nmeasured: kernel_us processes\n";
    cr_assert(eq(int, read(good, &s, lines, log, sizeof log), RP_OK), "%s", log);
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_provenance_read("f", &schema, lines, &s, arena, &kinds), RP_OK));
    cr_expect(eq(u32, kinds[KEY_kernel_us], RP_MEASURED));
    cr_expect(eq(u32, kinds[KEY_processes], RP_MEASURED));
    cr_expect(eq(u32, kinds[KEY_pass_us], RP_ASSUMED));
    const char *bad = "name: a\nmeasured: graphs\n";
    cr_assert(eq(int, read(bad, &s, lines, log, sizeof log), RP_OK), "%s", log);
    rp_log_capture_begin(log, sizeof log);
    rp_status status = rp_provenance_read("f", &schema, lines, &s, arena, &kinds);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(strstr(log, "f:2: 'measured' names 'graphs'; valid values are keys of a software") !=
                  NULL,
              "%s", log);
}
