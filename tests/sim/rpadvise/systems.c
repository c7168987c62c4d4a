/* Systems that can run a configuration: the table against executor, PyTorch's CSV and schedules,
 * and each condition. */
#include "sim/rpadvise/export/systems.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/schedule/build.h"
#include "common/torch/torch_csv.h"
#include "exec/run/runs.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(systems, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

#define MOST_WORDS 48

static rpadvise_systems systems;

static void load(void)
{
    cr_assert(eq(int, rpadvise_systems_load(rp_test_arena, &systems), RP_OK));
}

/* The study of a line of rpsim, words separated by single blanks. */
static rpsim_study study_of(const char *line)
{
    static char words[512];
    char *argv[MOST_WORDS] = {"rpsim", "--intervals", "off"};
    int argc = 3;
    rpsim_study study;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    rp_status status = rp_test_study_of(argc, argv, rp_test_arena, &study);
    cr_assert(eq(int, status, RP_OK), "%s: %s", line, rp_test_messages);
    return study;
}

/* The executor itself lowers and plans a small program. */
Test(systems, rpexec_is_what_the_executor_runs)
{
    load();
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        const rpadvise_rule *rule = rpadvise_systems_rule(&systems, "rpexec", schedule->name);
        for (int async = 0; async < 2; async++) {
            const char *never = NULL;
            rp_status status = rpexec_runs(schedule, async != 0, rp_test_arena, &never);
            cr_assert(eq(int, status, RP_OK));
            bool runs = never == NULL &&
                        (async == 0 || rp_traits_only_synchronous(&schedule->traits) == NULL);
            bool said = rule != NULL && (async == 0 || rule->asynchronous);
            cr_expect(eq(int, said, runs), "%s, async %d", schedule->name, async);
        }
    }
}

/* PyTorch's CSV holds orders of pipelines with resident weights of a single version and a process
 * per GPU; schedules that another system publishes under its own name belong to that system. */
Test(systems, torch_pipelining_is_what_its_csv_holds)
{
    load();
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        const rpadvise_rule *rule =
            rpadvise_systems_rule(&systems, "torch-pipelining", schedule->name);
        char line[128];
        snprintf(line, sizeof line, "--gpus 4 --microbatches 8 --model tiny --schedule %s",
                 schedule->name);
        rpsim_study study = study_of(line);
        rp_program *program = NULL;
        rp_torch_csv csv;
        rp_schedule_config config = rp_resolved_view(&study.rows[0].run);
        config.iterations = 1;
        cr_assert(eq(int, rp_schedule_build(schedule, &config, &program, NULL), RP_OK));
        bool holds = rp_torch_csv_of_program(program, false, rp_test_arena, &csv) == RP_OK &&
                     schedule->traits.placement == RP_PLACEMENT_RESIDENT &&
                     schedule->traits.versions == RP_VERSIONS_ONE && schedule->published_as == NULL;
        cr_expect(eq(int, rule != NULL, holds), "%s", schedule->name);
        rp_program_destroy(program);
        rpsim_study_fini(&study);
    }
}

/* Each row differs in a single setting from a row that runs. Partitions are of qwen3-1.7b's 28
 * layers. */
static const struct {
    const char *system;
    const char *line;
    const char *why; /* part of it; NULL: it runs */
} cases[] = {
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,7,7", NULL},
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,8,6", "same number of layers"},
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --optimizer async", "synchronous"},
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --accumulate 2", "one call"},
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --recompute early", "never before"},
    {"deepspeed", "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --global-batch 33",
     "same number of sequences"},
    {"deepspeed", "--schedule gpipe --gpus 4 --partition 7,7,7,7", "no such schedule"},
    {"deepspeed", "--schedule zero2", NULL},
    {"deepspeed", "--schedule zero2 --grain stage", "layer by layer"},
    {"deepspeed", "--schedule zero2 --grain stage --recompute none", NULL},
    {"deepspeed", "--schedule zero2 --global-batch 65", "same number of sequences"},
    {"megatron-lm", "--schedule 1f1b --gpus 4 --partition 7,7,8,6", NULL},
    {"megatron-lm", "--schedule 1f1b --lora-rank 8", "adapters"},
    {"megatron-lm", "--schedule 1f1b --model gpt-oss-20b", "sinks"},
    {"megatron-lm", "--schedule 1f1b --model mpt-1b --gpus 8", NULL},
    {"torch-fsdp", "--schedule fsdp --lora-rank 8", NULL},
    {"torch-pipelining", "--schedule zbv --accumulate 3", NULL},
    {"roundpipe", "--schedule roundpipe --partition auto", NULL},
    {"roundpipe", "--schedule roundpipe --global-batch 65", NULL},
    {"roundpipe", "--schedule roundpipe --partition 14,14|1,13,14", "where the forward ends"},
    {"roundpipe", "--schedule roundpipe --platform h100x8 --nodes 2", "one server"},
    {"rpexec", "--schedule 1f1b --model llama3.1-8b", NULL},
    {"rpexec", "--schedule 1f1b --model mpt-1b", "not covered"},
    {"rpexec", "--schedule 1f1b --model gpt-oss-20b", NULL},
    {"rpexec", "--schedule fsdp --platform h100x8 --nodes 2", "one server"},
};

static void expect_runs(const char *system, const char *line, const char *expected)
{
    rpsim_study study = study_of(line);
    const char *why = NULL;
    bool runs = rpadvise_runs(&systems, system, &study.rows[0], &why);
    cr_expect(eq(int, runs, expected == NULL), "%s %s: %s", system, line, runs ? "runs" : why);
    cr_expect(eq(int, runs, why == NULL));
    cr_expect(runs || expected == NULL || strstr(why, expected) != NULL, "%s %s: %s", system, line,
              why);
    rpsim_study_fini(&study);
}

Test(systems, each_condition_decides)
{
    load();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_runs(cases[i].system, cases[i].line, cases[i].why);
    }
}

/* Families of Hugging Face that Megatron-LM's exported options and the executor cover (NULL) or
 * refuse. */
Test(systems, families_are_covered_or_refused)
{
    static const struct {
        const char *config, *megatron, *rpexec;
    } families[] = {
        {"llama3.1-8b", NULL, NULL},
        {"qwen3-32b", NULL, NULL},
        {"qwen3-30b-a3b", NULL, NULL},
        {"mixtral-8x7b", NULL, NULL},
        {"qwen2.5-7b", NULL, NULL},
        {"llama-biases", "biases of outputs", NULL},
        {"gemma2-2b", "not covered", "not covered"},
        {"gemma3-1b", "not covered", "not covered"},
        {"olmo2-7b", "norms over all heads", "norms over all heads"},
        {"deepseek-v3-defaults", "not covered", "not covered"},
        {"qwen2-moe-defaults", "shared experts", "not covered"},
        {"gpt-oss-20b", "sinks", NULL},
    };
    load();
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "--schedule 1f1b --platform h100x8 --gpus 4 --model " RP_TEST_ROOT
                 "/golden/hf/%s.json",
                 families[i].config);
        expect_runs("megatron-lm", line, families[i].megatron);
        expect_runs("rpexec", line, families[i].rpexec);
        expect_runs("torch-pipelining", line, NULL);
    }
}

/* sim/model.md section 1: 512 sequences in microbatches of 16 on all GPUs, as 8 slices of 2. */
Test(systems, layout_of_tensor_parallelism_counts_whole_microbatches)
{
    rpsim_study study = study_of("--schedule megatron-tp --config paper");
    rpadvise_layout l = rpadvise_layout_of(&study.rows[0]);
    cr_expect(eq(u32, l.tensor, 8));
    cr_expect(eq(u32, l.pipeline, 1));
    cr_expect(eq(u32, l.batch, 512));
    cr_expect(eq(u32, l.size, 16));
    cr_expect(eq(u32, l.microbatches, 32));
    rpsim_study_fini(&study);
}

/* The same table: per GPU ZeRO-2 has 2 sequences a microbatch, and 32 microbatches a step. */
Test(systems, layout_of_replicas_counts_those_of_a_gpu)
{
    rpsim_study study = study_of("--schedule zero2 --config paper");
    rpadvise_layout l = rpadvise_layout_of(&study.rows[0]);
    cr_expect(eq(u32, l.data, 8));
    cr_expect(eq(u32, l.size, 2));
    cr_expect(eq(u32, l.microbatches, 32));
    cr_expect(l.even);
    rpsim_study_fini(&study);
}

/* The message names a type that a system cannot train in. */
Test(systems, types_that_are_not_supported_are_refused_by_name)
{
    static const char table[] =
        "system,schedule,optimizer,partition,recompute,grain,dtype,calls,batch,servers,gpus,"
        "without\n"
        "deepspeed,1f1b,any,any,none wait early,any,fp32,any,any,any,,\n"
        "rpexec,1f1b,any,any,none wait early,any,bf16 fp32,any,any,any,,\n";
    cr_assert(
        eq(int, rpadvise_systems_parse("t", table, strlen(table), rp_test_arena, &systems), RP_OK));
    expect_runs("deepspeed", "--schedule 1f1b --dtype bf16", "it does not train in bf16");
    expect_runs("deepspeed", "--schedule 1f1b --dtype fp16", "it does not train in fp16");
    expect_runs("deepspeed", "--schedule 1f1b --dtype fp32", NULL);
    expect_runs("rpexec", "--schedule 1f1b --dtype fp16", "it does not train in fp16");
    expect_runs("rpexec", "--schedule 1f1b --dtype bf16", NULL);
}

#define HEAD                                                                                       \
    "system,schedule,optimizer,partition,recompute,grain,dtype,calls,batch,servers,gpus,without\n"
#define GOOD "a,gpipe,sync,any,none wait,any,fp16,any,even,any,,\n"

Test(systems, mistakes_have_their_line)
{
    static const struct {
        const char *text, *line, *message;
    } tables[] = {
        {HEAD GOOD "a,gpip,sync,any,wait,any,fp16,any,even,any,,\n", "t:3", "schedule: 'gpip'"},
        {HEAD GOOD GOOD, "t:3", "does not have yet"},
        {HEAD "a,all,sync,any,none wait,any,fp16,any,even,any,,\n" GOOD, "t:3",
         "does not have yet"},
        {HEAD "a,gpipe,async,any,wait,any,fp16,any,even,any,,\n", "t:2", "one of sync any"},
        {HEAD "a,gpipe,sync any,any,wait,any,fp16,any,even,any,,\n", "t:2", "one of sync any"},
        {HEAD "a,gpipe,,any,wait,any,fp16,any,even,any,,\n", "t:2", "one of sync any"},
        {HEAD "a,gpipe,sync,any,late,any,fp16,any,even,any,,\n", "t:2", "none wait early"},
        {HEAD "a,gpipe,sync,any,wait,any,fp8,any,even,any,,\n", "t:2", "fp32 fp16 bf16"},
        {HEAD "a,gpipe,sync,any,wait,any,fp16,any,even,any,0,\n", "t:2", "gpus"},
        {HEAD "a,gpipe,sync,any,wait,any,fp16,any,even,any,,wings\n", "t:2", "adapters sinks"},
        {HEAD ",gpipe,sync,any,wait,any,fp16,any,even,any,,\n", "t:2", "system"},
        {"system\na\n", "t", "schedule"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        rp_test_log_again();
        rp_status status = rpadvise_systems_parse("t", tables[i].text, strlen(tables[i].text),
                                                  rp_test_arena, &systems);
        cr_expect(eq(int, status, RP_INPUT), "%s", tables[i].text);
        cr_expect(strstr(rp_test_messages, tables[i].line) != NULL, "%s", rp_test_messages);
        cr_expect(strstr(rp_test_messages, tables[i].message) != NULL, "%s", rp_test_messages);
    }
}

Test(systems, an_unknown_one_is_named_with_those_there_are)
{
    load();
    cr_expect(eq(int, rpadvise_systems_require(&systems, "deepspeed"), RP_OK));
    cr_expect(eq(int, rpadvise_systems_require(&systems, "colossal"), RP_USAGE));
    cr_expect(strstr(rp_test_messages, "--runnable: there is no system 'colossal'") != NULL);
    cr_expect(strstr(rp_test_messages, "roundpipe, deepspeed, megatron-lm, torch-pipelining, "
                                       "torch-fsdp, rpexec") != NULL);
}
