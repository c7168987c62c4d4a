/* Partitions with stages that have no transformer layer, as `even` makes them if there are more
 * GPUs than layers: every stage that needs the embedding's output gets it. The bits are those of
 * plain loops. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define LAYERS 8u
#define SEQ_LEN 3u
#define STEPS 2u

TestSuite(exec_partitions, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static void compare(const rp_model *config, rp_resolved *work, const char *what)
{
    rp_test_run plain;
    cr_assert(eq(int, rp_test_single(rp_test_arena, config, SEQ_LEN, work, &plain), RP_OK));
    for (uint32_t layers = 0; layers < 2; layers++) {
        rp_test_run run;
        work->decided.layer_grain = layers != 0;
        cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, NULL, &run), RP_OK),
                  "%s", what);
        cr_expect(rp_test_same(&run, &plain, STEPS), "%s on %u GPUs, grain %s", what, work->gpus,
                  layers != 0 ? "layer" : "stage");
    }
}

Test(exec_partitions, stages_without_layers_change_nothing)
{
    static const char *const partitions[] = {
        "8|0,8,0",     "0,8|0,8,0",       "0|8,0",         "8|8,0",
        "1,4|3,5,0",   "1,4|3,4,1,0",     "1,4|3,3,2,0,0", "0,2|6,2,0",
        "1,3,0|4,0,4", "4,0|4,0,2,2,0,0", "2,3|3,1,4,0",   "1,1,1,1|4,4,0",
    };
    for (size_t i = 0; i < sizeof partitions / sizeof partitions[0]; i++) {
        rp_model config = rp_test_decoder(LAYERS, i % 2 == 0, true);
        rp_partition partition;
        cr_assert(eq(int,
                     rp_partition_parse("test", partitions[i], rp_test_arena, &partition, NULL),
                     RP_OK));
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            rp_resolved work = rp_test_work("roundpipe", gpus, 1 + (uint32_t)i % 3, STEPS);
            work.decided.asynchronous = i % 3 == 0;
            work.recompute = i % 2 == 0 ? RP_RECOMPUTE_EARLY : RP_RECOMPUTE_WAIT;
            work.partition = &partition;
            compare(&config, &work, partitions[i]);
        }
    }
}

/* A pipeline's first stage may have only the embedding; in Mobius the stage is uploaded and
 * downloaded. */
Test(exec_partitions, pipelines_without_layers_in_front)
{
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_partition partition;
    cr_assert(eq(int, rp_partition_parse("test", "0,0,8", rp_test_arena, &partition, NULL), RP_OK));
    rp_resolved work = rp_test_work("1f1b", 3, 4, STEPS);
    work.partition = &partition;
    work.recompute = RP_RECOMPUTE_WAIT;
    compare(&config, &work, "1f1b");
    work = rp_test_work("mobius", 3, 1, STEPS); /* a single microbatch: no order of additions */
    work.partition = &partition;
    compare(&config, &work, "mobius");
}

/* The paper's 8 GPUs and a model of 12 layers: the last backward stage has no layer. */
Test(exec_partitions, even_on_more_gpus_than_layers_allow)
{
    rp_model config = rp_test_decoder(12, true, true);
    rp_resolved work = rp_test_work("roundpipe", 8, 9, STEPS);
    compare(&config, &work, "even");
}

/* No stage would have the embedding's output. */
Test(exec_partitions, one_forward_for_all_and_an_embedding_alone)
{
    char message[512] = "";
    rp_test_run run;
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_partition partition;
    cr_assert(eq(int, rp_partition_parse("test", "|8,0", rp_test_arena, &partition, NULL), RP_OK));
    rp_resolved work = rp_test_work("roundpipe", 2, 2, STEPS);
    work.partition = &partition;
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_USAGE));
    cr_expect(strstr(message, "valid is one backward stage") != NULL, "%s", message);
}
