/* Ranges of inputs: coverage of the shipped file, refusals, and a probability's factor. */
#include "sim/run/ranges.h"
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(ranges, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

/* A run may have inputs from anywhere. The measurement itself is nobody's value, but wider for
 * moved layer times. Assumed is never narrower than measured. */
Test(ranges, shipped_file_has_all)
{
    rpsim_ranges ranges;
    cr_assert(eq(int, rpsim_ranges_load(&ranges), RP_OK));
    for (int input = 0; input < RPSIM_INPUT_COUNT; input++) {
        const rpsim_range *of = ranges.of[input];
        const char *name = rpsim_input_names[input];
        for (int kind = 0; kind <= RP_SET; kind++) {
            bool needed = input == RPSIM_INPUT_RUN     ? kind == RP_ASSUMED || kind == RP_MOVED
                          : input == RPSIM_INPUT_STACK ? kind == RP_ASSUMED
                                                       : true;
            cr_expect(eq(int, of[kind].low > 0, needed), "%s %d", name, kind);
            cr_expect(of[kind].low <= 1 && (!needed || of[kind].high >= 1), "%s %d", name, kind);
        }
        cr_expect(of[RP_ASSUMED].low <= of[RP_MEASURED].low || input == RPSIM_INPUT_RUN ||
                      input == RPSIM_INPUT_LINK || input == RPSIM_INPUT_STACK,
                  "%s", name);
        cr_expect(of[RP_ASSUMED].high >= of[RP_MEASURED].high, "%s", name);
    }
}

/* p10 and p90 are the file's, the median is the value, the limits are the ends' 1.25th power. */
Test(ranges, factors)
{
    const rpsim_range r = {0.5, 1.5};
    cr_expect(epsilon_eq(dbl, rpsim_range_factor(&r, 0.1), 0.5, 1e-12));
    cr_expect(epsilon_eq(dbl, rpsim_range_factor(&r, 0.5), 1, 1e-12));
    cr_expect(epsilon_eq(dbl, rpsim_range_factor(&r, 0.9), 1.5, 1e-12));
    cr_expect(epsilon_eq(dbl, rpsim_range_factor(&r, 0.3), sqrt(0.5), 1e-12));
    cr_expect(epsilon_eq(dbl, rpsim_range_factor(&r, 0.7), sqrt(1.5), 1e-12));
    cr_expect(ge(dbl, rpsim_range_factor(&r, 1e-9), pow(0.5, 1.25) - 1e-9));
    cr_expect(le(dbl, rpsim_range_factor(&r, 1 - 1e-9), pow(1.5, 1.25) + 1e-9));
}

static rp_status parse(const char *text, rpsim_ranges *ranges_out)
{
    return rpsim_ranges_parse("r.csv", text, strlen(text), ranges_out);
}

Test(ranges, rows)
{
    rpsim_ranges ranges;
    cr_assert(
        eq(int, parse("source,low,high,kind,input\n\"a, b\",0.5,2,moved set,head_times\n", &ranges),
           RP_OK));
    cr_expect(eq(dbl, ranges.of[RPSIM_INPUT_HEAD][RP_MOVED].low, 0.5));
    cr_expect(eq(dbl, ranges.of[RPSIM_INPUT_HEAD][RP_SET].high, 2));
    cr_expect(eq(dbl, ranges.of[RPSIM_INPUT_HEAD][RP_ASSUMED].low, 0));
    static const char *const bad[][2] = {
        {"input,kind,low,high\nclock,set,0.9,1.1\n", "r.csv:2: 'clock' is no input"},
        {"input,kind,low,high\nrun,guessed,0.9,1.1\n", "kind 'guessed'"},
        {"input,kind,low,high\nrun,set,0.9,1.1\nrun,set,0.9,1.1\n", "r.csv:3: kind 'set'"},
        {"input,kind,low,high\nrun,set,1.1,1.2\n", "low"},
        {"input,kind,low,high\nrun,set,0.9,0.95\n", "high"},
        {"input,kind,low,high\nrun,set,0,1\n", "low"},
        {"input,kind,low\nrun,set,0.9\n", "high"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char messages[1024];
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = parse(bad[i][0], &ranges);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT), "%s", bad[i][0]);
        cr_expect(ne(ptr, strstr(messages, bad[i][1]), NULL), "%s", messages);
    }
}

/* Without the file of ranges numbers are refused. */
Test(ranges, no_file)
{
    rpsim_ranges ranges;
    char messages[1024];
    unsetenv("RP_TRACES");
    setenv("RP_DATA", "/nowhere", 1);
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpsim_ranges_load(&ranges);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(ne(ptr, strstr(messages, "ranges.csv"), NULL), "%s", messages);
}
