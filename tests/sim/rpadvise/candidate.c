/* Candidates as setups of a study and as command lines without defaults. */
#include "sim/rpadvise/candidate.h"
#include "sim/study/study.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(candidate, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

static const char *models[] = {"tiny"};

static rpsim_setup work_of(const char *const *model)
{
    rpsim_setup work = RPSIM_SETUP_INIT;
    work.models = (const char **)model;
    work.model_count = 1;
    work.platform = "rtx4090x8";
    return work;
}

static rpadvise_candidate candidate_of(const rpsim_setup *work, const char *schedule)
{
    const rp_schedule_type *type = rp_schedule_find(schedule);
    cr_assert(ne(ptr, (void *)type, NULL));
    rpadvise_candidate c = rpadvise_candidate_of(work, type);
    c.run.recomputes[0] = type->default_recompute;
    c.run.microbatch_size = 2;
    c.run.microbatches = 16;
    return c;
}

static const char *command_of(const rpsim_setup *w, const rpadvise_candidate *c)
{
    const char *command = NULL;
    cr_assert(eq(int, rpadvise_candidate_command(w, c, rp_test_arena, &command), RP_OK));
    return command;
}

Test(candidate, defaults_are_left_out)
{
    const rpsim_setup work = work_of(models);
    rpadvise_candidate c = candidate_of(&work, "roundpipe");
    cr_expect(eq(str, (char *)command_of(&work, &c),
                 "rpsim --schedule roundpipe --model tiny --platform rtx4090x8 --optimizer sync "
                 "--microbatch-size 2 --microbatches 16"));
}

Test(candidate, everything_else_is_said)
{
    static const char *file[] = {"a model.yaml"};
    rpsim_setup all = work_of(file);
    all.platform = "p";
    all.lora_rank = 8;
    all.assume = "llama";
    all.seed = 7;
    all.run.gpus = 4;
    all.run.dtype = RP_DTYPE_BF16;
    all.run.dtype_given = true;
    all.run.accumulation = RP_ACCUMULATION_F32;
    all.run.seq_len = 512;
    all.run.global_batch = 60;
    cr_assert(eq(int, rp_changes_add("set", "platform.gpus=9", rp_test_arena, &all.changes, NULL),
                 RP_OK));
    rpadvise_candidate c = candidate_of(&all, "1f1b");
    c.run.asynchronous = true;
    c.run.recomputes[0] = RP_RECOMPUTE_EARLY;
    c.run.layer_grain = true;
    c.run.accumulate = 3;
    c.run.partition = "1,2|2,1";
    const char *said =
        "rpsim --schedule 1f1b --model 'a model.yaml' --assume llama --lora-rank 8 "
        "--platform p --gpus 4 --dtype bf16 --accumulation fp32 --seq-len 512 "
        "--set platform.gpus=9 --optimizer async --microbatch-size 2 --microbatches 16 "
        "--accumulate 3 --global-batch 60 "
        "--recompute early --grain layer --partition '1,2|2,1' --seed 7";
    cr_expect(eq(str, (char *)command_of(&all, &c), (char *)said));
    c.run.piece_bytes = 64 << 20; /* settings that the search does not vary stand last */
    cr_expect(eq(int, strncmp(command_of(&all, &c), said, strlen(said)), 0));
    cr_expect(eq(str, (char *)command_of(&all, &c) + strlen(said), " --piece-mb 64"));
}

/* A trial runs the candidate's command, with its own iterations, batch and explanation. */
Test(candidate, manners)
{
    rpsim_setup batch = work_of(models);
    const rpadvise_manner manner = {.iterations = 2, .free_batch = true, .explain = true};
    rpsim_setup *setup = NULL;
    rpsim_study study;
    batch.run.global_batch = 64;
    rpadvise_candidate c = candidate_of(&batch, "gpipe");
    cr_assert(
        eq(int, rpadvise_candidate_setup(&batch, &c, &manner, rp_test_arena, &setup, NULL), RP_OK));
    cr_assert(eq(int, rpsim_study_prepare(setup, rp_test_arena, &study, NULL), RP_OK));
    cr_expect(eq(u32, study.row_count, 1));
    cr_expect(eq(u32, study.rows[0].run.global_batch, 32));
    cr_expect(eq(u32, study.rows[0].run.decided.iterations, 2));
    cr_expect(eq(u32, study.setup->intervals, 0));
    cr_expect(study.setup->explain);
    rpsim_study_fini(&study);
}

/* Values set in code bypass the options' parser. */
Test(candidate, sizes_out_of_range_are_refused)
{
    const rpsim_setup work = work_of(models);
    const rpadvise_manner manner = {0};
    rpsim_setup *setup = NULL;
    rpadvise_candidate c = candidate_of(&work, "gpipe");
    c.run.microbatches = 0;
    cr_expect(eq(int, rpadvise_candidate_setup(&work, &c, &manner, rp_test_arena, &setup, NULL),
                 RP_USAGE));
    c.run.microbatches = RP_MAX_MICROBATCHES + 1;
    cr_expect(eq(int, rpadvise_candidate_setup(&work, &c, &manner, rp_test_arena, &setup, NULL),
                 RP_USAGE));
    cr_expect(ne(ptr, strstr(rp_test_messages, "--microbatches: '1048577' is not valid"), NULL),
              "%s", rp_test_messages);
}

Test(candidate, equal_in_all_decisions)
{
    const rpsim_setup work = work_of(models);
    rpadvise_candidate a = candidate_of(&work, "roundpipe");
    rpadvise_candidate b[10];
    for (int i = 0; i < 10; i++) {
        b[i] = a;
    }
    cr_expect(rpadvise_candidate_equal(&a, &b[0]));
    b[0].schedule = rp_schedule_find("gpipe");
    b[1].run.asynchronous = true;
    b[2].run.recomputes[0] = RP_RECOMPUTE_WAIT;
    b[3].run.layer_grain = !a.run.layer_grain;
    b[4].run.partition = "auto";
    b[5].run.microbatch_size++;
    b[6].run.microbatches++;
    b[7].run.accumulate++;
    b[8].run.nodes = 1;
    b[9].run.layout.zero = 1;
    for (int i = 0; i < 10; i++) {
        cr_expect(eq(int, rpadvise_candidate_equal(&a, &b[i]), 0), "%d", i);
    }
    char word[] = "auto"; /* compares texts, not pointers */
    a.run.partition = word;
    cr_expect(rpadvise_candidate_equal(&a, &b[4]));
}
