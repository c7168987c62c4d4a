/* Reasons, and the spelling of settings in messages: braces in formats, and data that looks like
 * them. */
#include "common/base/reason.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void setup(void)
{
    rp_log_set_program(NULL);
}

TestSuite(reason, .init = setup);

static rp_status check(int batch, rp_reason *reason)
{
    return batch > 0 ? RP_OK
                     : rp_refuse(reason, RP_USAGE, "{global_batch}: %d; valid with {calls}", batch);
}

Test(reason, a_refusal_is_a_value_and_nothing_is_said)
{
    char messages[256];
    rp_reason reason = {0};
    rp_log_capture_begin(messages, sizeof messages);
    uint64_t before = rp_log_said();
    cr_expect(eq(int, check(1, &reason), RP_OK));
    cr_expect(eq(int, reason.status, RP_OK));
    cr_expect(eq(int, check(0, &reason), RP_USAGE));
    cr_expect(eq(u64, rp_log_said(), before));
    cr_expect(eq(str, messages, ""));
    cr_expect(eq(int, reason.status, RP_USAGE));
    cr_expect(eq(str, reason.subject, "global_batch"));
    cr_expect(eq(str, reason.text, "global_batch: 0; valid with calls"));
    cr_expect(eq(int, rp_reason_log(&reason), RP_USAGE));
    cr_expect(eq(u64, rp_log_said(), before + 1));
    rp_log_capture_end();
    cr_expect(eq(str, messages, "global_batch: 0; valid with calls\n"));
}

Test(reason, without_a_caller_who_decides_it_is_logged)
{
    char messages[256];
    rp_log_capture_begin(messages, sizeof messages);
    cr_expect(eq(int, check(-1, NULL), RP_USAGE));
    cr_expect(eq(int, rp_refuse_at(NULL, RP_INPUT, "a.csv", 3, "{no key}"), RP_INPUT));
    cr_expect(eq(int, rp_refuse_setting(NULL, RP_USAGE, "zero", "%u copies", 1u), RP_USAGE));
    rp_log_capture_end();
    cr_expect(eq(str, messages,
                 "global_batch: -1; valid with calls\na.csv:3: {no key}\nzero: 1 copies\n"));
}

Test(reason, places_and_settings_come_first)
{
    rp_reason reason = {0};
    rp_refuse_at(&reason, RP_INPUT, "a.csv", 3, "%s", "b");
    cr_expect(reason.placed);
    cr_expect(eq(str, reason.text, "a.csv:3: b"));
    cr_expect(eq(str, reason.subject, ""));
    rp_refuse_setting(&reason, RP_USAGE, "expert_parallel", "%s", "b");
    cr_expect(not(reason.placed));
    cr_expect(eq(str, reason.text, "expert_parallel: b"));
    cr_expect(eq(str, reason.subject, "expert_parallel"));
}

Test(reason, programs_spell_options)
{
    rp_reason reason = {0};
    rp_log_set_program("rpany");
    check(0, &reason);
    cr_expect(eq(str, reason.text, "--global-batch: 0; valid with --calls"));
    cr_expect(eq(str, reason.subject, "global_batch"));
}

Test(reason, braces_of_data_are_data)
{
    rp_reason reason = {0};
    rp_log_set_program("rpany");
    rp_refuse(&reason, RP_INPUT, "%s: {axes} of %s, {'descr'}, {}, {Key}, {a-b}, {", "{gpus}",
              "a{axes}b");
    cr_expect(eq(str, reason.text, "{gpus}: --axes of a{axes}b, {'descr'}, {}, {Key}, {a-b}, {"));
    cr_expect(eq(str, reason.subject, "axes"));
}

/* Words that are known only when printed, such as words shared by several messages. */
Test(reason, words_are_spelled)
{
    cr_expect(eq(str, rp_log_spell("fewer {gpus} or {seq_len}").text, "fewer gpus or seq_len"));
    rp_log_set_program("rpany");
    cr_expect(eq(str, rp_log_spell("fewer {gpus} or {seq_len}").text, "fewer --gpus or --seq-len"));
}

/* The cause stands between the subject and the valid values. */
Test(reason, causes_are_found)
{
    rp_reason reason = {0};
    size_t length = 0;
    rp_refuse(&reason, RP_USAGE, "{schedule}: %s: never ends: why; valid is none", "gpipe");
    const char *cause = rp_reason_cause(&reason, "gpipe", &length);
    cr_expect(eq(sz, length, strlen("never ends: why")));
    cr_expect(eq(int, strncmp(cause, "never ends: why", length), 0));
    rp_refuse(&reason, RP_USAGE, "ends: why");
    cause = rp_reason_cause(&reason, NULL, &length);
    cr_expect(eq(sz, length, strlen("ends: why")));
    cr_expect(eq(str, cause, "ends: why"));
}

/* Trials print no warnings, but count them for callers that ask. */
Test(reason, warnings_are_muted_and_counted)
{
    char messages[256];
    rp_log_capture_begin(messages, sizeof messages);
    uint64_t before = rp_log_said();
    cr_expect(not(rp_log_mute_warnings(true)));
    rp_log_warning("a");
    rp_log_error("b");
    cr_expect(rp_log_mute_warnings(false));
    rp_log_warning("c");
    rp_log_capture_end();
    cr_expect(eq(u64, rp_log_said(), before + 3));
    cr_expect(eq(str, messages, "b\nwarning: c\n"));
}

/* As in messages; lines without room are cut, even within the spelled format. */
Test(reason, lines_are_escaped_and_cut)
{
    char text[9000];
    rp_reason reason = {0};
    rp_refuse(&reason, RP_INPUT, "{axes}: %s", "a\nb");
    cr_expect(eq(str, reason.text, "axes: a\\x0ab"));
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rp_refuse(&reason, RP_INPUT, "%s", text);
    cr_expect(strstr(reason.text, "(7999 bytes)") != NULL, "%s", reason.text);
    memset(text, '\n', sizeof text - 1);
    rp_refuse(&reason, RP_INPUT, "a%sb", text);
    size_t length = strlen(reason.text);
    cr_expect(gt(sz, length, 2000));
    cr_expect(reason.text[length - 1] == 'b', "the end of the message is there");
    rp_log_set_program("rpany");
    for (size_t pad = 2000; pad < 2100; pad++) {
        memset(text, 'x', pad);
        (void)snprintf(text + pad, sizeof text - pad, "{global_batch}");
        rp_refuse_setting(&reason, RP_INPUT, "axes", "%s", text);
        cr_expect(strstr(reason.text, "{global_batch}") != NULL, "%s", reason.text);
    }
}

/* A message now and a reason later have the same text, however long when escaped. */
Test(reason, a_reason_is_logged_as_its_message_would_have_been)
{
    static char data[3001];
    static char at_once[16384];
    static char later[16384];
    static const size_t lengths[] = {10, 560, 1900, 3000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        rp_reason reason = {0};
        memset(data, '\001', sizeof data);
        data[lengths[i]] = '\0';
        rp_log_capture_begin(at_once, sizeof at_once);
        rp_refuse(NULL, RP_USAGE, "{partition}: '%s' is bad; valid are others", data);
        rp_log_capture_end();
        rp_refuse(&reason, RP_USAGE, "{partition}: '%s' is bad; valid are others", data);
        rp_log_capture_begin(later, sizeof later);
        rp_reason_log(&reason);
        rp_log_capture_end();
        cr_expect(eq(str, later, at_once), "%zu bytes", lengths[i]);
        cr_expect(ne(ptr, strstr(later, "valid are others\n"), NULL));
    }
}
