/* Before a run is built its memory is known within a factor of 2, and refused if this machine has
 * less. */
#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/schedule/build.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct shape {
    char line[120];
} shape;

/* Each 20 MB or more: in smaller runs memory counts that does not grow with the program. */
static const char *const lines[] = {
    "--schedule roundpipe --microbatches 256",
    "--schedule roundpipe --microbatches 128 --grain layer",
    "--schedule roundpipe --microbatches 8 --accumulate 32",
    "--schedule mobius --microbatches 128",
    "--schedule 1f1b --gpus 4 --microbatches 512",
    "--schedule 1f1b --gpus 4 --microbatches 128 --grain layer",
    "--schedule gpipe --microbatches 2048 --iterations 2",
    "--schedule zbv --microbatches 128",
    "--schedule interleaved-1f1b --microbatches 128",
    "--schedule pipedream --optimizer async --microbatches 256",
    "--schedule megatron-tp --microbatches 64 --gpus 4",
    "--schedule fsdp --microbatches 64",
    "--schedule zero2 --microbatches 64",
    "--schedule zero3 --microbatches 64",
    "--schedule zero-infinity --microbatches 64",
    "--schedule zero-offload --microbatches 64",
    "--schedule roundpipe --model qwen3-235b --microbatches 32",
    "--schedule 1f1b --fidelity stage --microbatches 4096 --iterations 8",
    "--schedule roundpipe --fidelity stage --microbatches 4096 --iterations 4",
};

ParameterizedTestParameters(footprint, bounds_hold)
{
    static shape shapes[sizeof lines / sizeof lines[0]];
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        strcpy(shapes[i].line, lines[i]);
    }
    return cr_make_param_array(shape, shapes, sizeof lines / sizeof lines[0]);
}

static rp_arena *arena;

static rp_status run(const char *line, rpsim_study *study)
{
    static char words[120];
    static rpsim_options options; /* the study points to its setup */
    char *arguments[32] = {"rpsim"};
    int count = 1;
    strcpy(words, line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        arguments[count++] = word;
    }
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpsim_options_parse(count, arguments, arena, &options, NULL), RP_OK));
    options.setup.intervals = 0;  /* they take memory of their own */
    options.setup.explain = true; /* of all GPUs: equal ranks are not simulated once */
    cr_assert(eq(int, rpsim_study_prepare(&options.setup, arena, study, NULL), RP_OK));
    return rpsim_study_run(study, NULL);
}

ParameterizedTest(shape *s, footprint, bounds_hold)
{
    rpsim_study study;
    cr_assert(eq(int, run(s->line, &study), RP_OK), "%s", s->line);
    const rpsim_row *row = &study.rows[0];
    const rp_schedule_config view = rp_resolved_view(&row->run);
    double estimate = rp_schedule_footprint(&view, !row->run.stage, row->run.decided.layer_grain);
    double ratio = estimate / (double)rp_mem_peak_bytes();
    cr_expect(ratio > 0.5 && ratio < 2, "%s: %.2f", s->line, ratio);
    rpsim_study_fini(&study);
    rp_test_end(arena);
}

/* More than any machine has, and than 32 bits count. */
Test(footprint, too_much_is_refused_before_it_is_built)
{
    static const char *const refused[] = {
        "--schedule roundpipe --microbatches 1048576 --iterations 65535",
        "--schedule 1f1b --microbatches 1048576 --iterations 65535",
        "--schedule 1f1b --fidelity stage --microbatches 1048576 --iterations 65535",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rpsim_study study;
        char messages[1024];
        rp_log_capture_begin(messages, sizeof messages);
        cr_expect(eq(int, run(refused[i], &study), RP_USAGE));
        rp_log_capture_end();
        cr_expect(strstr(messages, "GiB are available; valid are fewer --microbatches") != NULL,
                  "%s", messages);
        rpsim_study_fini(&study);
        rp_arena_destroy(arena);
    }
    cr_expect(lt(sz, rp_mem_peak_bytes(), (size_t)50 << 20));
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}
