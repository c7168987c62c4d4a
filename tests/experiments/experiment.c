/* Experiment files: the points that they mean, and the mistakes in bad files. */
#include "experiments/experiment.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "experiments/point_run.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(experiment, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

static rp_status parse(const char *text, rpsweep_experiment *e)
{
    return rpsweep_experiment_parse("e.yaml", text, strlen(text), rp_test_arena, e);
}

static void expect_points(const char *text, const char *const *commands, uint32_t count)
{
    rpsweep_experiment e;
    uint32_t met = 0;
    cr_assert(eq(int, parse(text, &e), RP_OK), "%s", rp_test_messages);
    for (uint64_t number = 0; number < e.combinations; number++) {
        rpsweep_point point;
        bool included = false;
        const char *command = NULL;
        cr_assert(
            eq(int, rpsweep_experiment_point(&e, number, rp_test_arena, &point, &included), RP_OK),
            "%s", rp_test_messages);
        cr_assert(eq(int, rpsweep_point_command(&e, &point, rp_test_arena, &command), RP_OK));
        if (included) {
            cr_assert(lt(u32, met, count), "one too many: %s", command);
            cr_expect(eq(str, (char *)command, (char *)commands[met]));
            met++;
        }
    }
    cr_expect(eq(u32, met, count));
}

#define EXPECT_POINTS(text, ...)                                                                   \
    do {                                                                                           \
        static const char *const expected[] = {__VA_ARGS__};                                       \
        expect_points(text, expected, sizeof expected / sizeof expected[0]);                       \
    } while (0)

Test(experiment, last_option_varies_fastest)
{
    EXPECT_POINTS(
        "name: a\noptions: {gpus: 8}\n"
        "cross:\n  model: [m, n]\n  microbatches: [8, 16]\n",
        "rpsim --gpus 8 --microbatches 8 --model m", "rpsim --gpus 8 --microbatches 16 --model m",
        "rpsim --gpus 8 --microbatches 8 --model n", "rpsim --gpus 8 --microbatches 16 --model n");
}

Test(experiment, entries_of_a_list_override)
{
    EXPECT_POINTS("name: a\nprogram: rpexec\nlist:\n"
                  "  - {schedule: roundpipe, round: [all, 4], check: true}\n"
                  "  - {schedule: 1f1b, gpus: 2}\n"
                  "  - {gpus: null}\n"
                  "options: {gpus: 8}\n",
                  "rpexec --check --gpus 8 --round all --schedule roundpipe",
                  "rpexec --check --gpus 8 --round 4 --schedule roundpipe",
                  "rpexec --gpus 2 --schedule 1f1b", "rpexec");
}

Test(experiment, ranges)
{
    EXPECT_POINTS("name: a\ncross: {gpus: {from: 1, to: 8, times: 2}}\n", "rpsim --gpus 1",
                  "rpsim --gpus 2", "rpsim --gpus 4", "rpsim --gpus 8");
    EXPECT_POINTS("name: a\ncross: {jitter: {from: 0, to: 0.3, step: 0.1}}\n", "rpsim --jitter 0",
                  "rpsim --jitter 0.1", "rpsim --jitter 0.2", "rpsim --jitter 0.3");
    EXPECT_POINTS("name: a\ncross: {gpus: {from: 3, to: 8, step: 4}}\n", "rpsim --gpus 3",
                  "rpsim --gpus 7");
}

Test(experiment, conditions)
{
    EXPECT_POINTS("name: a\ncross: {schedule: [x, y, z], gpus: [2, 4], microbatches: [2, 4]}\n"
                  "exclude:\n"
                  "  - {schedule: [x, y], gpus: 4}\n"
                  "  - {schedule: z, microbatches: <=2}\n"
                  "only:\n"
                  "  - {microbatches: '>gpus'}\n"
                  "  - {schedule: z, gpus: '>= 4'}\n",
                  "rpsim --gpus 2 --microbatches 4 --schedule x",
                  "rpsim --gpus 2 --microbatches 4 --schedule y",
                  "rpsim --gpus 2 --microbatches 4 --schedule z",
                  "rpsim --gpus 4 --microbatches 4 --schedule z");
    EXPECT_POINTS("name: a\ncross: {round: [false, 4]}\nexclude: [{round: null}]\n",
                  "rpsim --round 4");
}

Test(experiment, repeats_have_seeds)
{
    EXPECT_POINTS("name: a\ncross: {gpus: [1, 2]}\nrepeats: 2\nseed: 7\n",
                  "rpsim --gpus 1 --seed 7", "rpsim --gpus 1 --seed 8", "rpsim --gpus 2 --seed 7",
                  "rpsim --gpus 2 --seed 8");
}

Test(experiment, values_are_quoted_for_a_shell)
{
    EXPECT_POINTS("name: a\noptions: {partition: \"3|4\", costs: \"it's\"}\n",
                  "rpsim --costs 'it'\\''s' --partition '3|4'");
}

Test(experiment, numbers_of_the_inputs_change)
{
    EXPECT_POINTS("name: e\noptions: {schedule: gpipe}\n"
                  "cross: {'costs.fwd_ms*': [0.9, 1.1], platform.gpus: [4]}\n"
                  "exclude: [{'costs.fwd_ms*': '>1', platform.gpus: 8}]\n",
                  "rpsim --set 'costs.fwd_ms*0.9' --set platform.gpus=4 --schedule gpipe",
                  "rpsim --set 'costs.fwd_ms*1.1' --set platform.gpus=4 --schedule gpipe");
    EXPECT_POINTS(
        "name: e\noptions: {schedule: gpipe, stack: torch}\n"
        "cross: {stack.loss_bytes: [6, 52], power-limit: [500]}\n",
        "rpsim --power-limit 500 --schedule gpipe --stack torch --set stack.loss_bytes=6",
        "rpsim --power-limit 500 --schedule gpipe --stack torch --set stack.loss_bytes=52");
    rpsweep_experiment e;
    cr_expect(
        eq(int, parse("name: e\nprogram: rpexec\noptions: {costs.fwd_ms: 1}\n", &e), RP_INPUT));
}

Test(experiment, comparison_needs_numbers)
{
    rpsweep_experiment e;
    rpsweep_point point;
    bool included = false;
    cr_assert(
        eq(int, parse("name: a\noptions: {gpus: many}\nexclude:\n  - {gpus: <8}\n", &e), RP_OK));
    cr_expect(eq(int, rpsweep_experiment_point(&e, 0, rp_test_arena, &point, &included), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "e.yaml:4: --gpus is many in point 0") != NULL, "%s",
              rp_test_messages);
}

/* Every mistake is reported with its line and the valid values. */
Test(experiment, bad_files)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "e.yaml:1: the file is empty"},
        {"- a\n", "e.yaml:1: expected a mapping"},
        {"name: a\n]\n", "e.yaml:2: bad YAML"},
        {"gpus: 4\n", "e.yaml:1: unknown key 'gpus'; valid keys are name, question"},
        {"options: {gpus: 4}\n", "the key name is missing"},
        {"name: a b\n", "e.yaml:1: bad name"},
        {"name: a\nname: b\n", "e.yaml:2: 'name' is there twice"},
        {"name: a\noptions:\n  gpus: 4\n  gpus: 8\n", "e.yaml:4: 'gpus' is there twice"},
        {"name: a\nprogram: rpdiff\n", "e.yaml:2: program 'rpdiff' is not valid; valid values are"},
        {"name: a\noptions: {--gpus: 4}\n", "e.yaml:2: '--gpus' is no option; valid are"},
        {"name: a\noptions: {db: x.db}\n", "e.yaml:2: --db has no place in an experiment"},
        {"name: a\noptions: {check: true}\n", "--check has no place in an experiment"},
        {"name: a\noptions: {html-out: a.html}\n", "--html-out has no place in an experiment"},
        {"name: a\noptions: {gantt-iterations: 1}\n",
         "--gantt-iterations has no place in an experiment"},
        {"name: a\noptions: {seed: 4}\n", "valid is the key seed beside options"},
        {"name: a\noptions: {gpus: [1, 2]}\n", "e.yaml:2: expected a text or a number"},
        {"name: a\noptions: 7\n", "e.yaml:2: expected a mapping of options"},
        {"name: a\noptions: {model: \"a\\nb\"}\n", "control characters"},
        {"name: a\ncross: {gpus: []}\n", "e.yaml:2: an empty or overlong list"},
        {"name: a\ncross: [gpus]\n", "expected a mapping of options and their values"},
        {"name: a\ncross: {gpus: {from: 1, to: 4}}\n", "bad range; valid is from <= to"},
        {"name: a\ncross: {gpus: {from: 0, to: 4, times: 2}}\n", "bad range"},
        {"name: a\ncross: {gpus: {from: 1, to: 4, step: 0}}\n", "bad range"},
        {"name: a\ncross: {gpus: {from: 1, to: 9e9, step: 1}}\n", "more than 1000000 values"},
        {"name: a\ncross: {gpus: {from: 1, to: x, step: 1}}\n", "'x' is not a number"},
        {"name: a\ncross: {gpus: {from: 1, until: 2}}\n", "unknown part of a range; valid are"},
        {"name: a\nlist: []\n", "e.yaml:2: expected a list of at least one entry"},
        {"name: a\nlist: [4]\n", "expected a mapping of options"},
        {"name: a\nexclude: [{}]\n", "an empty condition matches everything"},
        {"name: a\nexclude: [{gpus: [<4, 8]}]\n", "bad comparison; valid is one"},
        {"name: a\nexclude: [{gpus: '<'}]\n", "bad comparison"},
        {"name: a\nrepeats: 0\n", "'0' is not valid; valid are whole numbers from 1"},
        {"name: a\nseed: -1\n", "'-1' is not valid"},
        {"name: a\n---\nname: b\n", "a second document"},
        {"name: a\ncross:\n  gpus: {from: 1, to: 100000, step: 1}\n"
         "  microbatches: {from: 1, to: 100000, step: 1}\n",
         "more than 100000000 combinations"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpsweep_experiment e;
        rp_log_capture_begin(rp_test_messages, sizeof rp_test_messages);
        cr_expect(eq(int, parse(cases[i].text, &e), RP_INPUT), "%s", cases[i].text);
        cr_expect(strstr(rp_test_messages, cases[i].message) != NULL, "%s\nno '%s' in: %s",
                  cases[i].text, cases[i].message, rp_test_messages);
    }
}

/* The values of a point are those of its keys: none is read as another option. */
Test(experiment, bad_points)
{
    static const struct {
        const char *options;
        const char *message;
    } cases[] = {
        {"gpus: true, schedule: gpipe", "--gpus: the value is missing"},
        {"gpus: 0, schedule: gpipe",
         "--gpus: '0' is not valid; valid values are integers from 1 to"},
        {"max-seqlen: 3, schedule: gpipe", "--max-seqlen=3: unknown or incomplete option"},
        {"gpu: 2, schedul: gpipe, zero: 4", "--zero: '4' is not valid; valid "},
        {"scheduel: gpipe", "--scheduel=gpipe: unknown or incomplete option"},
        {"schedule: gpipe, fidelity: stage, zero: 0",
         "--zero: valid only with --fidelity hardware"},
        {"schedule: gpipe, usd-per-hour: 2", "--usd-per-hour: valid only with --tokens"},
        {"gpus: 8", "--schedule: give either"},
        {"schedule: gpipe, costs.fwd_mss: 2", "--set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpsweep_experiment e;
        rpsweep_point point;
        bool included = false;
        char text[256];
        (void)snprintf(text, sizeof text, "name: a\noptions: {%s}\n", cases[i].options);
        cr_assert(eq(int, parse(text, &e), RP_OK), "%s", rp_test_messages);
        cr_assert(
            eq(int, rpsweep_experiment_point(&e, 0, rp_test_arena, &point, &included), RP_OK));
        rp_log_capture_begin(rp_test_messages, sizeof rp_test_messages);
        cr_expect(eq(int, rpsweep_point_check(&e, &point, rp_test_arena, NULL), RP_USAGE), "%s",
                  text);
        cr_expect(strstr(rp_test_messages, cases[i].message) != NULL, "%s\nno '%s' in: %s", text,
                  cases[i].message, rp_test_messages);
    }
}

/* An alias to itself must not be followed for ever. */
Test(experiment, aliases)
{
    rpsweep_experiment e;
    cr_expect(eq(int, parse("name: a\ncross: {gpus: &x [*x, 1]}\n", &e), RP_INPUT), "%s",
              rp_test_messages);
    EXPECT_POINTS("name: &n a\noptions: {model: *n}\n", "rpsim --model a");
}

/* The process of the store reads the same outcome that a worker has sent. */
Test(experiment, outcomes_survive_the_way)
{
    rp_text message = {0};
    rpsweep_experiment e;
    rpsweep_outcome outcome;
    cr_assert(
        eq(int, parse("name: a\noptions: {schedule: '1f1b,gpipe', fidelity: stage, gpus: 4}\n", &e),
           RP_OK));
    rp_log_capture_end();
    cr_assert(eq(int, rpsweep_point_run(&e, "rpexec", NULL, 0, &message), RP_OK));
    cr_assert(eq(int,
                 rpsweep_outcome_unpack(message.bytes, message.length, rp_test_arena, &outcome),
                 RP_OK));
    cr_assert(outcome.failure == NULL, "%s", outcome.failure);
    cr_assert(eq(u32, outcome.run_count, 2));
    cr_expect(eq(str, (char *)outcome.runs[1].schedule, "gpipe"));
    cr_expect(eq(u32, outcome.runs[1].gpus, 4));
    cr_expect(outcome.runs[1].program_hash != 0);
    cr_expect(outcome.runs[1].metric_count > 10);
    for (size_t length = 0; length < message.length; length++) {
        cr_assert(
            ne(int, rpsweep_outcome_unpack(message.bytes, length, rp_test_arena, &outcome), RP_OK),
            "%zu of %zu bytes are taken for all", length, message.length);
    }
    rp_text_fini(&message);
}

/* If time grew with the square of the size, a megabyte would take minutes: then SIGALRM ends the
 * test. Criterion's own timeout sometimes leaks. */
Test(experiment, nested_files_are_refused_in_linear_time)
{
    (void)alarm(60);
    static const struct {
        const char *begin, *again, *message;
    } cases[] = {
        {"name: e\ncross: ", "[", "too deep"},
        {"name: e\noptions: ", "{a: ", "too deep"},
        {"name: e\ncross: ", "[[1], ", "too deep"},
        {"name: e\ncross:\n", "- ", "too deep"},
        {"name: e\ncross: {schedule: [", "&a%u x, ", "too many anchors"},
        {"name: e\noptions: {", "k%u: 1, ", "too many keys"},
        {"name: e\noptions: {a: ", "*a%u, ", "bad YAML"},
        {"", "%%TAG !%u! tag:e,2000:\n", "a directive"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpsweep_experiment e;
        rp_text text = {0};
        cr_assert(eq(int, rp_text_print(&text, "%s", cases[i].begin), RP_OK));
        for (uint32_t k = 0; text.length < 1000000; k++) {
            char part[32];
            snprintf(part, sizeof part, cases[i].again, k);
            cr_assert(eq(int, rp_text_append(&text, part, strlen(part)), RP_OK));
        }
        const char *closed = strchr(cases[i].begin, '{') != NULL && i > 3 ? "a: 1}\n" : "";
        cr_assert(eq(int, rp_text_append(&text, closed, strlen(closed)), RP_OK));
        rp_log_capture_begin(rp_test_messages, sizeof rp_test_messages);
        cr_expect(eq(int, parse(text.bytes, &e), RP_INPUT), "%s", cases[i].again);
        cr_expect(strstr(rp_test_messages, cases[i].message) != NULL, "%s: %s", cases[i].again,
                  rp_test_messages);
        rp_text_fini(&text);
    }
}
