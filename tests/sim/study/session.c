/* Each command line gives the same record in a shared session as alone. */
#include "sim/study/session.h"
#include "common/base/log.h"
#include "common/store/record.h"
#include "sim/study/record.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(session, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static rp_status read_setup(const char *line, rp_arena *arena, rpsim_setup *setup)
{
    const char *copy = NULL;
    *setup = (rpsim_setup)RPSIM_SETUP_INIT;
    RP_TRY(rp_arena_copy_text(arena, line, strlen(line), &copy));
    for (char *key = strtok((char *)(uintptr_t)copy, " "); key != NULL; key = strtok(NULL, " ")) {
        const char *value = strtok(NULL, " ");
        RP_TRY(rp_options_set(&rpsim_setup_keys, key + 2, value, arena, setup, NULL));
    }
    RP_TRY(rpsim_setup_check(&rpsim_setup_keys, setup, NULL));
    rpsim_setup_complete(setup);
    return RP_OK;
}

static rp_status run(rpsim_session *session, const char *line, rp_store_run **runs_out,
                     uint32_t *count_out)
{
    rp_arena *arena = rp_test_tool_arena();
    rpsim_setup setup;
    RP_TRY(read_setup(line, arena, &setup));
    setup.session = session;
    setup.hashes = true;
    setup.intervals = setup.intervals_given ? setup.intervals : 0;
    return rpsim_setup_record(&setup, line, arena, runs_out, count_out);
}

static void expect_same_record(const rp_store_run *a, const rp_store_run *b, const char *line)
{
    cr_expect(eq(str, (char *)a->config_json, (char *)b->config_json), "%s", line);
    cr_expect(eq(str, (char *)a->partition, (char *)b->partition), "%s", line);
    cr_expect(eq(str, (char *)a->costs, (char *)b->costs), "%s", line);
    cr_expect(eq(u64, a->program_hash, b->program_hash), "%s", line);
    cr_assert(eq(sz, a->metric_count, b->metric_count), "%s", line);
    for (size_t i = 0; i < a->metric_count; i++) {
        const rp_store_metric *left = &a->metrics[i];
        const rp_store_metric *right = &b->metrics[i];
        cr_expect(eq(str, (char *)left->name, (char *)right->name));
        bool unknown = isnan(left->real) && isnan(right->real);
        cr_expect(eq(i64, left->integer, right->integer), "%s: %s", line, left->name);
        cr_expect(unknown || left->real == right->real, "%s: %s", line, left->name);
    }
}

/* Each twice: from the file, then from the session. */
Test(session, gives_what_each_command_line_gives_alone)
{
    static const char *const lines[] = {
        "--fidelity stage --schedule 1f1b,roundpipe --model qwen3-1.7b --gpus 8",
        ("--fidelity stage --schedule 1f1b,roundpipe --model qwen3-1.7b --gpus 8 --set "
         "costs.fwd_ms*1.1"),
        "--fidelity stage --schedule roundpipe --model llama3.1-8b --gpus 8 --optimizer async",
        "--fidelity stage --schedule gpipe --model qwen3-1.7b --gpus 4 --partition even",
        "--fidelity stage --schedule looped-bfs --model qwen3-1.7b --platform rtx4090x16",
        "--schedule roundpipe,fsdp --model llama3.1-8b --iterations 2",
        "--schedule fsdp --model llama3.1-8b --iterations 2 --set platform.gpus=4",
        "--schedule roundpipe --model llama3.1-8b --iterations 2 --seq-len 4096",
        "--schedule 1f1b --model llama3.1-8b --nodes 2 --platform h100x8 --iterations 2",
    };
    rpsim_session *session = NULL;
    cr_assert(eq(int, rpsim_session_create(&session), RP_OK));
    for (size_t i = 0; i < 2 * sizeof lines / sizeof lines[0]; i++) {
        const char *line = lines[i % (sizeof lines / sizeof lines[0])];
        rp_store_run *alone = NULL;
        rp_store_run *shared = NULL;
        uint32_t count = 0;
        uint32_t shared_count = 0;
        cr_assert(eq(int, run(NULL, line, &alone, &count), RP_OK), "%s", line);
        cr_assert(eq(int, run(session, line, &shared, &shared_count), RP_OK), "%s", line);
        cr_assert(eq(u32, count, shared_count), "%s", line);
        for (uint32_t k = 0; k < count; k++) {
            expect_same_record(&alone[k], &shared[k], line);
        }
    }
    rpsim_session_destroy(session);
}

static const char *messages_of(rpsim_session *session, const char *line)
{
    static char text[2048];
    rp_store_run *runs = NULL;
    uint32_t count = 0;
    rp_log_capture_begin(text, sizeof text);
    cr_expect(ne(int, run(session, line, &runs, &count), RP_OK), "%s", line);
    rp_log_capture_end();
    return text;
}

/* Bad input is not kept, and gives the same message each time. */
Test(session, refusals_are_those_of_each_command_line)
{
    static const char *const lines[] = {
        "--schedule 1f1b --model nobody", "--schedule 1f1b --platform nobody --model qwen3-1.7b",
        "--fidelity stage --schedule 1f1b --gpus 3 --partition 1,2"};
    rpsim_session *session = NULL;
    cr_assert(eq(int, rpsim_session_create(&session), RP_OK));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char alone[2048];
        (void)snprintf(alone, sizeof alone, "%s", messages_of(NULL, lines[i]));
        cr_expect(gt(sz, strlen(alone), 20));
        cr_expect(eq(str, (char *)messages_of(session, lines[i]), alone));
        cr_expect(eq(str, (char *)messages_of(session, lines[i]), alone));
    }
    rpsim_session_destroy(session);
}
