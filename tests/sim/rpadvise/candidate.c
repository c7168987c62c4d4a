/* Candidates as command lines: what is rpsim's default is left out, and rpsim takes the rest. */
#include "sim/rpadvise/candidate.h"
#include "sim/rpsim/arguments.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(candidate, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

static const rpadvise_work work = {.model = "tiny",
                                   .platform = "rtx4090x8",
                                   .arithmetic = {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}};

static rpadvise_candidate candidate_of(const char *schedule)
{
    const rp_schedule_type *type = rp_schedule_find(schedule);
    cr_assert(ne(ptr, (void *)type, NULL));
    return (rpadvise_candidate){.schedule = type,
                                .recompute = type->default_recompute,
                                .microbatch_size = 2,
                                .microbatches = 16,
                                .calls = 1};
}

static const char *command_of(const rpadvise_work *w, const rpadvise_candidate *c)
{
    const char *command = NULL;
    cr_assert(eq(int, rpadvise_candidate_command(w, c, rp_test_arena, &command), RP_OK));
    return command;
}

Test(candidate, defaults_are_left_out)
{
    rpadvise_candidate c = candidate_of("roundpipe");
    cr_expect(eq(str, (char *)command_of(&work, &c),
                 "rpsim --schedule roundpipe --model tiny --platform rtx4090x8 --optimizer sync "
                 "--microbatch-size 2 --microbatches 16"));
}

Test(candidate, everything_else_is_said)
{
    rpadvise_work all = {.model = "a model.yaml",
                         .platform = "p",
                         .gpus = 4,
                         .lora_rank = 8,
                         .assume = "llama",
                         .arithmetic = {RP_DTYPE_BF16, RP_ACCUMULATION_F32},
                         .seq_len = 512,
                         .global_batch = 60,
                         .seed = 7,
                         .change = "platform.gpus=9"};
    rpadvise_candidate c = candidate_of("1f1b");
    c.asynchronous = true;
    c.recompute = RP_RECOMPUTE_EARLY;
    c.layer_grain = true;
    c.calls = 3;
    c.partition = "1,2|2,1";
    cr_expect(eq(str, (char *)command_of(&all, &c),
                 "rpsim --schedule 1f1b --model 'a model.yaml' --assume llama --lora-rank 8 "
                 "--platform p --gpus 4 --dtype bf16 --accumulation fp32 --seq-len 512 "
                 "--set platform.gpus=9 --optimizer async --microbatch-size 2 --microbatches 16 "
                 "--accumulate 3 --global-batch 60 "
                 "--recompute early --grain layer --partition '1,2|2,1' --seed 7"));
}

/* A run of the candidate is a run of its command; what is run for the search alone says so. */
Test(candidate, manners)
{
    rpadvise_work batch = work;
    rpadvise_candidate c = candidate_of("gpipe");
    const rpadvise_manner manner = {.iterations = 2, .free_batch = true, .explain = true};
    rpsim_study study;
    int argc = 0;
    char **argv = NULL;
    batch.global_batch = 64;
    cr_assert(eq(int,
                 rpadvise_candidate_arguments(&batch, &c, &manner, rp_test_arena, &argc, &argv),
                 RP_OK));
    cr_assert(eq(int, rpsim_arguments_study(argc, argv, rp_test_arena, &study, NULL), RP_OK));
    cr_expect(eq(u32, study.row_count, 1));
    cr_expect(eq(u32, study.rows[0].run.global_batch, 32));
    cr_expect(eq(u32, study.rows[0].run.iterations, 2));
    cr_expect(eq(u32, study.setup->intervals, 0));
    cr_expect(study.setup->explain);
    rpsim_study_fini(&study);
}

Test(candidate, equal_in_all_options)
{
    rpadvise_candidate a = candidate_of("roundpipe");
    rpadvise_candidate b[8];
    for (int i = 0; i < 8; i++) {
        b[i] = a;
    }
    cr_expect(rpadvise_candidate_equal(&a, &b[0]));
    b[0].schedule = rp_schedule_find("gpipe");
    b[1].asynchronous = true;
    b[2].recompute = RP_RECOMPUTE_WAIT;
    b[3].layer_grain = !a.layer_grain;
    b[4].partition = "auto";
    b[5].microbatch_size++;
    b[6].microbatches++;
    b[7].calls++;
    for (int i = 0; i < 8; i++) {
        cr_expect(eq(int, rpadvise_candidate_equal(&a, &b[i]), 0), "%d", i);
    }
}
