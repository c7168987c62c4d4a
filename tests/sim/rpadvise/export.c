/* Exports of configurations: golden files of each system, option names against the packages' own
 * lists (golden/exports/packages.py), sizes, rpexec's command, the folder. */
#include "sim/rpadvise/export/export.h"
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(export, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define MOST_WORDS 48
#define GOLDEN RP_TEST_ROOT "/golden/exports"

static char messages[4096];

static const char *print(const char *format, const char *first, const char *second)
{
    const char *text = NULL;
    char line[4096];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(line, sizeof line, format, first, second);
#pragma GCC diagnostic pop
    cr_assert(eq(int, rp_arena_copy_text(rp_test_tool_arena(), line, strlen(line), &text), RP_OK));
    return text;
}

static rpsim_study study_of(const char *line)
{
    char words[1024];
    char *argv[MOST_WORDS] = {NULL};
    int argc = 0;
    rpsim_study study;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        const char *kept = NULL;
        size_t length = strlen(word);
        cr_assert(eq(int, rp_arena_copy_text(rp_test_tool_arena(), word, length, &kept), RP_OK));
        argv[argc++] = (char *)kept;
    }
    cr_assert(eq(int, rp_test_study_of(argc, argv, rp_test_tool_arena(), &study), RP_OK));
    return study;
}

static rp_status export_to(const char *dir, const char *line)
{
    rpsim_study study = study_of(line);
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpadvise_export(&study.rows[0], line, dir, rp_test_tool_arena());
    rp_log_capture_end();
    rpsim_study_fini(&study);
    return status;
}

static const char *in_folder(const char *name)
{
    return print("%s/%s", rp_test_tool_folder(), name);
}

/* Number of entries; -1: no such folder. */
static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    if (folder == NULL) {
        return -1;
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 2;
}

/* Names and lines of rpsim. */
static rp_csv golden_lines(void)
{
    return rp_test_tool_table("lines.tsv", rp_test_tool_read(GOLDEN "/lines.tsv"), '\t');
}

Test(export, files_are_the_golden_ones)
{
    rp_csv lines = golden_lines();
    for (uint32_t i = 0; i < lines.rows; i++) {
        const char *name = rp_test_tool_cell(&lines, i, "name");
        const char *golden = print("%s/%s", GOLDEN, name);
        const char *dir = in_folder(name);
        cr_assert(eq(int, export_to(dir, rp_test_tool_cell(&lines, i, "line")), RP_OK), "%s",
                  messages);
        cr_expect(eq(int, entries(dir), entries(golden)), "%s", name);
        DIR *folder = opendir(golden);
        for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (*entry->d_name != '.') {
                const char *expected = rp_test_tool_read(print("%s/%s", golden, entry->d_name));
                const char *found = rp_test_tool_read(print("%s/%s", dir, entry->d_name));
                cr_expect(eq(str, (char *)found, (char *)expected), "%s/%s", name, entry->d_name);
            }
        }
        closedir(folder);
    }
    cr_expect(eq(int, entries(rp_test_tool_folder()), (int)lines.rows));
}

/* ---- names of options ------------------------------------------------------------------------ */

static rp_csv options;

static bool is_option(const char *package, const char *of, const char *name)
{
    for (uint32_t i = 0; i < options.rows; i++) {
        if (strcmp(rp_test_tool_cell(&options, i, "package"), package) == 0 &&
            strcmp(rp_test_tool_cell(&options, i, "of"), of) == 0 &&
            strcmp(rp_test_tool_cell(&options, i, "option"), name) == 0) {
            return true;
        }
    }
    return false;
}

static void load_options(void)
{
    options = rp_test_tool_table("options.csv", rp_test_tool_read(GOLDEN "/options.csv"), ',');
    cr_expect(is_option("megatron-core", "argument", "--num-layers"));
    cr_expect(eq(int, is_option("megatron-core", "argument", "--number-of-layers"), false));
}

static const char *exported(const char *line, const char *file)
{
    static int count;
    char name[32];
    snprintf(name, sizeof name, "e%d", count++);
    const char *dir = in_folder(name);
    cr_assert(eq(int, export_to(dir, line), RP_OK), "%s: %s", line, messages);
    const char *path = print("%s/%s", dir, file);
    return access(path, R_OK) == 0 ? rp_test_tool_read(path) : NULL;
}

/* Checks words that begin with "--", not their values. */
static uint32_t expect_arguments(const char *text)
{
    char words[4096];
    uint32_t count = 0;
    snprintf(words, sizeof words, "%s", text);
    for (char *word = strtok(words, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        bool option = strncmp(word, "--", 2) == 0;
        count += option ? 1 : 0;
        bool known = !option || is_option("megatron-core", "argument", word);
        cr_expect(known, "%s", word);
    }
    return count;
}

Test(export, arguments_are_megatrons)
{
    static const char *const lines[] = {
        "rpsim --schedule 1f1b --gpus 4 --partition 8,8,8,4 --dtype bf16",
        "rpsim --schedule interleaved-1f1b --gpus 4 --partition 4,4,4,4,4,4,4,0",
        ("rpsim --schedule interleaved-1f1b --gpus 7 --microbatches 14 "
         "--partition 2,2,2,2,2,2,2,2,2,2,2,2,2,2"),
        "rpsim --schedule megatron-tp --model qwen3-235b --platform h100x8 --recompute none",
        "rpsim --schedule megatron-pp --model mpt-1b --platform a100-80x8",
        "rpsim --schedule megatron-pp --model llama3.1-8b --platform h100x8 --grain layer",
    };
    load_options();
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *text = exported(lines[i], "megatron-lm.sh");
        cr_assert(text != NULL, "%s", lines[i]);
        text = strstr(text, "pretrain_gpt.py");
        cr_assert(text != NULL);
        cr_expect(ge(u32, expect_arguments(text), 18));
    }
}

/* Checks the keys of an object and, by their own lists, of its objects; the first key is a comment.
 */
static void expect_keys(json_t *object, const char *of)
{
    const char *key;
    json_t *value;
    json_object_del(object, "_open");
    json_object_foreach(object, key, value)
    {
        cr_expect(is_option("deepspeed", of, key), "%s: %s", of, key);
        if (json_is_object(value)) {
            expect_keys(value, key);
        }
    }
}

Test(export, keys_are_deepspeeds)
{
    static const char *const lines[] = {
        "rpsim --schedule zero2 --dtype bf16",
        "rpsim --schedule zero3 --dtype bf16",
        "rpsim --schedule zero-offload --recompute none",
        "rpsim --schedule zero-infinity --dtype fp32",
        "rpsim --schedule 1f1b --gpus 4 --partition 7,7,7,7",
    };
    load_options();
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *config = json_loads(exported(lines[i], "deepspeed.json"), 0, NULL);
        cr_assert(config != NULL, "%s", lines[i]);
        expect_keys(config, "key");
        /* DeepSpeed's rule: the batch is micro * accumulation * replicas. */
        double replicas = json_object_get(config, "pipeline") != NULL ? 1 : 8;
        cr_expect(eq(dbl, rp_test_json_number(config, "train_batch_size"),
                     rp_test_json_number(config, "train_micro_batch_size_per_gpu") *
                         rp_test_json_number(config, "gradient_accumulation_steps") * replicas));
        json_decref(config);
    }
}

static void expect_words(const char *text, const char *package, const char *of,
                         const char *const *names)
{
    for (; *names != NULL; names++) {
        cr_expect(strstr(text, *names) != NULL, "%s", *names);
        cr_expect(is_option(package, of, *names), "%s: %s", of, *names);
    }
}

Test(export, names_are_roundpipes_and_fsdps)
{
    load_options();
    const char *text =
        exported("rpsim --schedule roundpipe --partition auto", "roundpipe_config.py");
    expect_words(text, "RoundPipe", "RoundPipeRunConfig",
                 (const char *[]){"num_microbatch", "recompute_grain", "execute_plan", NULL});
    expect_words(text, "RoundPipe", "ModelExecutePlan",
                 (const char *[]){"fwd_plan", "bwd_plan", NULL});
    expect_words(text, "RoundPipe", "RoundPipe", (const char *[]){"optim_dtype", NULL});
    expect_words(text, "RoundPipe", "step", (const char *[]){"is_async", NULL});
    text = exported("rpsim --schedule fsdp", "torch_fsdp.py");
    expect_words(text, "torch", "fully_shard",
                 (const char *[]){"reshard_after_forward", "mp_policy", "offload_policy", NULL});
    expect_words(text, "torch", "MixedPrecisionPolicy",
                 (const char *[]){"param_dtype", "reduce_dtype", NULL});
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Texts that must and must not be in each system's file for a type. Types have PyTorch's names.
 * fp16, whose least number is 2^-24 (IEEE 754), needs loss scaling, which DeepSpeed and Megatron-LM
 * do themselves. */
static const struct {
    const char *system, *file, *open; /* of its first comment */
    const char *there[RP_DTYPE_COUNT][2];
    const char *never[RP_DTYPE_COUNT][4];
} types[] = {
    {"roundpipe",
     "roundpipe_config.py",
     "# Open: the optimizer with its learning rate,",
     {[RP_DTYPE_F32] = {"torch.float32\n\n"},
      [RP_DTYPE_F16] = {"PARAM_DTYPE = torch.float16\n", "GRAD_SCALER = GradScaler()"},
      [RP_DTYPE_BF16] = {"PARAM_DTYPE = torch.bfloat16\n"}},
     {[RP_DTYPE_F32] = {"float16", "GradScaler"},
      [RP_DTYPE_F16] = {"bfloat16"},
      [RP_DTYPE_BF16] = {"torch.float16", "GradScaler"}}},
    {"deepspeed",
     "deepspeed.json",
     "{\n  \"_open\": \"the learning rate ",
     {[RP_DTYPE_F32] = {"\"lr\":\"auto\""},
      [RP_DTYPE_F16] = {"\"fp16\": {\n    \"enabled\": true", "\"lr\":\"auto\""},
      [RP_DTYPE_BF16] = {"\"bf16\": {\n    \"enabled\": true", "\"lr\":\"auto\""}},
     {[RP_DTYPE_F32] = {"fp16", "bf16"}, [RP_DTYPE_F16] = {"bf16"}, [RP_DTYPE_BF16] = {"fp16"}}},
    {"megatron-lm",
     "megatron-lm.sh",
     "#!/bin/sh\n# Open: --lr, ",
     {[RP_DTYPE_F32] = {"--num-layers "},
      [RP_DTYPE_F16] = {" --fp16 "},
      [RP_DTYPE_BF16] = {" --bf16 "}},
     {[RP_DTYPE_F32] = {"fp16", "bf16", " --lr 0"},
      [RP_DTYPE_F16] = {"bf16"},
      [RP_DTYPE_BF16] = {"fp16"}}},
    {"torch-fsdp",
     "torch_fsdp.py",
     "# Open: the optimizer with its learning rate,",
     {[RP_DTYPE_F32] = {"param_dtype=torch.float32, reduce_dtype=torch.float32"},
      [RP_DTYPE_F16] = {"param_dtype=torch.float16, reduce_dtype=torch.float16",
                        "\nGRAD_SCALER = "},
      [RP_DTYPE_BF16] = {"param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16"}},
     {[RP_DTYPE_F32] = {"float16", "SCALER"},
      [RP_DTYPE_F16] = {"bfloat16"},
      [RP_DTYPE_BF16] = {"torch.float16", "SCALER"}}},
    {"torch-pipelining",
     "README.md",
     "",
     {[RP_DTYPE_F32] = {"- Parameters and activations are `torch.float32`.\n"},
      [RP_DTYPE_F16] = {"activations are `torch.float16`: the loss has to be scaled"},
      [RP_DTYPE_BF16] = {"- Parameters and activations are `torch.bfloat16`.\n"}},
     {{NULL}}},
    {"rpexec",
     "rpexec.sh",
     "#!/bin/sh\n# Open: --lr (0.001), ",
     {[RP_DTYPE_F32] = {" --dtype fp32 "},
      [RP_DTYPE_F16] = {" --dtype fp16 "},
      [RP_DTYPE_BF16] = {" --dtype bf16 "}},
     {[RP_DTYPE_F32] = {"fp16", "bf16"}, [RP_DTYPE_F16] = {"bf16"}, [RP_DTYPE_BF16] = {"fp16"}}},
};

static void expect_type(const rpadvise_rule *rule, rp_dtype dtype, const char *line)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].system, rule->system) != 0) {
            continue;
        }
        const char *text = exported(line, types[i].file);
        cr_assert(text != NULL, "%s: %s", rule->system, line);
        cr_expect(eq(int, strncmp(text, types[i].open, strlen(types[i].open)), 0), "%s: %s",
                  types[i].file, text);
        for (size_t k = 0; k < 2; k++) {
            const char *there = types[i].there[dtype][k];
            cr_expect(there == NULL || strstr(text, there) != NULL, "%s: %s: %s", line, there,
                      text);
        }
        for (size_t k = 0; k < 4; k++) {
            const char *never = types[i].never[dtype][k];
            cr_expect(never == NULL || strstr(text, never) == NULL, "%s: %s: %s", line, never,
                      text);
        }
        return;
    }
    cr_expect(0, "%s has no types here", rule->system);
}

static const char *line_of_rule(const rpadvise_rule *rule, rp_dtype dtype)
{
    static char line[256];
    const char *partition = rule->partitions == RPADVISE_PARTITIONS_EVEN    ? "7,7,7,7"
                            : rule->partitions == RPADVISE_PARTITIONS_FUSED ? "auto"
                                                                            : NULL;
    const rp_schedule_type *schedule = rp_schedule_find(rule->schedule);
    bool none =
        rule->recomputes[RP_RECOMPUTE_NONE] && schedule->traits.placement != RP_PLACEMENT_OFFLOAD;
    (void)snprintf(line, sizeof line,
                   "rpsim --schedule %s --gpus 4 --microbatches 8 --dtype %s%s%s%s", rule->schedule,
                   rp_dtype_text(dtype), none ? " --recompute none" : "",
                   partition != NULL ? " --partition " : "", partition != NULL ? partition : "");
    return line;
}

/* Every system x schedule x type of systems.csv: the file has the run's type, and no default that
 * can ruin a training. A sample has a schedule per system. */
Test(export, types_are_the_runs)
{
    rpadvise_systems systems;
    const char *before = "";
    uint32_t count = 0;
    bool all = getenv("RP_LONG") != NULL;
    cr_assert(eq(int, rpadvise_systems_load(rp_test_tool_arena(), &systems), RP_OK));
    for (uint32_t i = 0; i < systems.rule_count; i++) {
        const rpadvise_rule *rule = &systems.rules[i];
        for (uint32_t k = 0; k < RP_DTYPE_COUNT; k++) {
            if (rule->dtypes[k] && (all || strcmp(rule->system, before) != 0)) {
                expect_type(rule, (rp_dtype)k, line_of_rule(rule, (rp_dtype)k));
                count++;
            }
        }
        before = rule->system;
    }
    cr_expect(ge(u32, count, all ? 3 * systems.rule_count : 18));
}

/* ---- rpexec ---------------------------------------------------------------------------------- */

/* The command trains with the program that rpsim simulates, byte for byte. */
Test(export, rpexec_runs_the_command)
{
    static const char *const lines[] = {
        "rpsim --schedule roundpipe --gpus 2 --model tiny --seq-len 32 --microbatch-size 1 "
        "--optimizer async --dtype fp32 --accumulate 2 --iterations 2",
        "rpsim --schedule fsdp --gpus 2 --model tiny --seq-len 32 --microbatch-size 1 --dtype bf16 "
        "--reduce-each microbatch --iterations 2",
        "rpsim --schedule 1f1b --gpus 2 --model " RP_SOURCE_ROOT
        "/traces/models/small.yaml --seq-len 16 --microbatch-size 2 --lora-rank 4 --grain layer "
        "--iterations 2",
    };
    setenv("RPEXEC", RPEXEC_PATH, 1);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *dir = in_folder("run");
        const char *script = print("%s/%s", dir, "rpexec.sh");
        const char *ours = in_folder("exec.program");
        const char *its = in_folder("sim.program");
        cr_assert(eq(int, export_to(dir, lines[i]), RP_OK), "%s", messages);
        rp_test_outcome run = rp_test_tool_execute(
            "/bin/sh", (const char *[]){"sh", script, "--backend", "host", "--steps", "2",
                                        "--program-out", ours, NULL});
        cr_assert(eq(int, run.status, 0), "%s: %s", lines[i], run.messages);
        rp_test_rpsim_well(print("%s --intervals off --program-out %s", lines[i] + 6, its));
        cr_expect(eq(str, (char *)rp_test_tool_read(ours), (char *)rp_test_tool_read(its)), "%s",
                  lines[i]);
        rp_test_tool_execute("/bin/rm", (const char *[]){"rm", "-r", dir, NULL});
    }
}

/* The search takes its model, and training its weights, from a checkpoint in any folder. */
Test(export, rpexec_starts_from_weights)
{
    const char *dir = in_folder("run");
    const char *script = print("%s/%s", dir, "rpexec.sh");
    const char *saved = in_folder("saved");
    const char *step = in_folder("step-1");
    setenv("RPEXEC", RPEXEC_PATH, 1);
    rp_test_outcome run = rp_test_tool_execute(
        RPEXEC_PATH,
        (const char *[]){"rpexec", "--backend", "host", "--gpus", "1", "--model", "tiny",
                         "--seq-len", "16", "--steps", "1", "--save", saved, NULL});
    cr_assert(eq(int, run.status, 0), "%s", run.messages);
    cr_assert(eq(int, rename(print("%s/%s", saved, "step-1"), step), 0));
    cr_assert(eq(int, chdir(rp_test_tool_folder()), 0)); /* a folder without a slash */
    cr_assert(eq(int,
                 export_to(dir, "rpsim --schedule 1f1b --gpus 2 --model step-1 --dtype fp32 "
                                "--seq-len 16 --microbatch-size 1"),
                 RP_OK),
              "%s", messages);
    cr_assert(eq(int, chdir("/"), 0));
    for (int weights = 0; weights < 2; weights++) {
        run = rp_test_tool_execute("/bin/sh",
                                   (const char *[]){"sh", script, "--backend", "host", "--steps",
                                                    "1", weights ? "--weights" : NULL, step, NULL});
        cr_expect(eq(int, run.status, 0), "%s", run.messages);
    }
    rp_test_tool_execute("/bin/rm", (const char *[]){"rm", "-r", dir, saved, step, NULL});
}

/* ---- the folder ------------------------------------------------------------------------------ */

#define LINE "rpsim --schedule 1f1b --gpus 4 --partition 7,7,7,7"

Test(export, an_empty_folder_is_taken)
{
    const char *dir = in_folder("empty");
    cr_assert(eq(int, mkdir(dir, 0777), 0));
    cr_expect(eq(int, export_to(print("%s/%s", dir, ""), LINE), RP_OK), "%s", messages);
    cr_expect(eq(int, entries(dir), 6));
    cr_expect(eq(int, entries(rp_test_tool_folder()), 1), "nothing else is left");
}

Test(export, a_folder_with_files_is_refused)
{
    const char *dir = in_folder("full");
    cr_assert(eq(int, export_to(dir, LINE), RP_OK), "%s", messages);
    cr_expect(eq(int, export_to(dir, LINE), RP_USAGE));
    cr_expect(strstr(messages, "has files; valid is a folder that does not exist") != NULL, "%s",
              messages);
    cr_expect(eq(int, export_to(print("%s/%s", dir, "README.md"), LINE), RP_USAGE));
    cr_expect(strstr(messages, "is no folder") != NULL, "%s", messages);
    cr_expect(eq(int, export_to(print("%s/%s", dir, "none/x"), LINE), RP_USAGE));
    cr_expect(eq(int, export_to(".", LINE), RP_USAGE));
    cr_expect(eq(int, export_to("/", LINE), RP_USAGE));
    cr_expect(eq(int, export_to(print("%s/%s", dir, ".."), LINE), RP_USAGE));
    cr_expect(eq(int, entries(dir), 6));
    cr_expect(eq(int, entries(rp_test_tool_folder()), 1));
}

/* An order that cannot be built, when files of DeepSpeed and Megatron-LM are already written. */
Test(export, all_files_or_none)
{
    rpsim_study study = study_of(LINE);
    study.rows[0].run.layers++;
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpadvise_export(&study.rows[0], LINE, in_folder("x"), rp_test_tool_arena());
    rp_log_capture_end();
    cr_expect(ne(int, status, RP_OK));
    cr_expect(eq(int, entries(rp_test_tool_folder()), 0));
    rpsim_study_fini(&study);
}
