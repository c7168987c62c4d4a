/* rpadvise: its rows, their commands, refusals, and the width of its output.
 * Sanitized builds leave out these thousands of simulations; search.c runs the same code. */
#include "common/base/hash.h"
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(advise_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 3000);

#define SMALL "--model qwen3-1.7b --gpus 2 --schedule gpipe,roundpipe,fsdp --seq-len 1024"

static rp_test_outcome advise(const char *line)
{
    return rp_test_tool_run(RPADVISE_PATH, "rpadvise", line);
}

static double number(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    cr_assert(eq(int, json_is_number(value), 1), "%s", key);
    return json_number_value(value);
}

static const char *text(const json_t *row, const char *key)
{
    const char *value = json_string_value(json_object_get(row, key));
    cr_assert(ne(ptr, (void *)value, NULL), "%s", key);
    return value;
}

/* rpsim prints exactly the row's tokens per second for the row's command. */
static void replay(const json_t *row)
{
    char command[2048];
    char *to = command;
    for (const char *c = text(row, "command"); *c != '\0'; c++) { /* no word has a blank */
        *to = *c;
        to += *c != '\'' ? 1 : 0;
    }
    *to = '\0';
    cr_assert(eq(int, strncmp(command, "rpsim ", 6), 0));
    json_t *rows = rp_test_rpsim_rows("--intervals off --format json", command + 6);
    cr_expect(eq(dbl, number(json_array_get(rows, 0), "tokens_per_s"), number(row, "tokens_per_s")),
              "%s", command);
    json_decref(rows);
}

/* Each system of a row stands once, with a run that is at least as fast and within its interval. */
static void expect_software(const json_t *rows)
{
    const json_t *software =
        json_object_get(json_object_get(json_array_get(rows, 0), "answer"), "software");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *systems = json_object_get(json_array_get(rows, i), "systems");
        for (size_t k = 0; k < json_array_size(systems); k++) {
            const char *name = json_string_value(json_array_get(systems, k));
            size_t found = 0;
            for (size_t n = 0; n < json_array_size(software); n++) {
                const json_t *one = json_array_get(software, n);
                double speed = number(one, "tokens_per_s");
                if (strstr(text(one, "systems"), name) != NULL) {
                    cr_expect(ge(dbl, speed, number(json_array_get(rows, i), "tokens_per_s")));
                    cr_expect(number(one, "tokens_per_s_p10") <= speed &&
                              speed <= number(one, "tokens_per_s_p90"));
                    found++;
                }
            }
            cr_expect(eq(sz, found, 1), "%s", name);
        }
    }
    cr_expect(ge(sz, json_array_size(software), 1));
}

/* The budget covers the whole search, or fronts would be missing; a plain run has no RoundPipe. */
Test(advise_cli, rows)
{
    static const char plain[] = "--model qwen3-1.7b --gpus 2 --schedule gpipe,fsdp --seq-len 1024";
    char line[256];
    (void)snprintf(line, sizeof line,
                   "%s --format json --tokens 2B --usd-per-hour 5 --watts 2000 --usd-per-kwh 0.3",
                   getenv("RP_LONG") != NULL ? SMALL : plain);
    rp_test_outcome outcome = advise(line);
    cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    cr_assert(json_array_size(rows) >= 2);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        cr_expect(eq(dbl, number(row, "rank"), (double)i + 1));
        cr_expect(eq(int, json_is_true(json_object_get(row, "fits")), 1));
        cr_expect(eq(int, json_is_boolean(json_object_get(row, "decided")), 1));
        cr_expect(eq(int, json_is_array(json_object_get(row, "systems")), 1));
        double speed = number(row, "tokens_per_s");
        cr_expect(i == 0 || speed <= number(json_array_get(rows, i - 1), "tokens_per_s"));
        cr_expect(number(row, "tokens_per_s_p10") <= speed &&
                  speed <= number(row, "tokens_per_s_p90"));
        cr_expect(lt(dbl, fabs(number(row, "hours") * speed * 3600 - 2e9), 1));
        cr_expect(lt(dbl, fabs(number(row, "usd") - 5.6 * number(row, "hours")), 1e-6));
        replay(row);
    }
    const json_t *answer = json_object_get(json_array_get(rows, 0), "answer");
    cr_expect(json_array_size(json_object_get(answer, "batch_front")) > 0);
    cr_expect(json_array_size(json_object_get(answer, "changes")) > 0);
    expect_software(rows);
    json_decref(rows);
}

static void write_config(const char *name, const char *type)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.json", rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file,
            "{\"model_type\": \"llama\", \"hidden_size\": 2048, \"num_hidden_layers\": 8, "
            "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"intermediate_size\": 8192, "
            "\"vocab_size\": 32000%s}",
            type);
    cr_assert(eq(int, fclose(file), 0));
}

/* The type is the requested or the model's own, as transformers 4 and 5 write it; commands repeat
 * it. */
Test(advise_cli, types)
{
    static const struct {
        const char *line, *dtype, *accumulation, *says;
    } cases[] = {
        {"--model @DIR@/old.json", "bf16", "fp32", "bf16 accumulated in fp32"},
        {"--model @DIR@/new.json", "bf16", "fp32", "bf16 accumulated in fp32"},
        {"--model @DIR@/plain.json", "fp16", "fp32", "fp16 accumulated in fp32"},
        {"--model @DIR@/old.json --dtype fp16 --accumulation fp16", "fp16", "fp16",
         "fp16 accumulated in fp16"},
        {"--model qwen3-1.7b", "fp16", "fp16", "fp16 accumulated in fp16"}, /* its cost table */
        {"--model qwen3-1.7b --dtype fp32", "fp32", "fp32", "fp32 accumulated in fp32"},
    };
    write_config("old", ", \"torch_dtype\": \"bfloat16\"");
    write_config("new", ", \"dtype\": \"bfloat16\"");
    write_config("plain", ", \"torch_dtype\": \"float32\"");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s --gpus 2 --schedule gpipe --seq-len 1024 --budget 60",
                 cases[i].line);
        rp_test_outcome outcome = advise(line);
        cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
        cr_expect(ne(ptr, (void *)strstr(outcome.output, cases[i].says), NULL), "%s",
                  outcome.output);
        strcat(line, " --format json");
        outcome = advise(line);
        cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
        json_t *rows = json_loads(outcome.output, 0, NULL);
        const json_t *row = json_array_get(rows, 0);
        cr_expect(eq(str, (char *)text(row, "dtype"), (char *)cases[i].dtype), "%s", line);
        cr_expect(eq(str, (char *)text(row, "accumulation"), (char *)cases[i].accumulation), "%s",
                  line);
        cr_expect(number(row, "peak_share_pct") > 0 && number(row, "peak_share_pct") <= 100);
        replay(row);
        json_decref(rows);
    }
}

/* Software and machine are changed as in rpsim, and commands repeat the changes. */
Test(advise_cli, another_machine)
{
#define POWERED "--platform h100x8 --gpus 2 --schedule gpipe,fsdp --budget 60 --format json "
    rp_test_outcome outcome =
        advise(POWERED "--stack torch-compile --set stack.loss_bytes=6 --power-limit 300 "
                       "--gpu-memory 60 --host-memory 256");
    cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    const char *command = text(json_array_get(rows, 0), "command");
    static const char *const says[] = {"--stack torch-compile", "--set stack.loss_bytes=6",
                                       "--power-limit 300", "--gpu-memory 60", "--host-memory 256"};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        cr_expect(ne(ptr, (void *)strstr(command, says[i]), NULL), "%s", command);
    }
    replay(json_array_get(rows, 0));
    json_decref(rows);
    rp_test_outcome idle = advise(POWERED "--stack torch --power-limit 90");
    cr_expect(eq(int, idle.status, 2));
    cr_expect(ne(ptr, strstr(idle.messages, "numbers above 100 W"), NULL), "%s", idle.messages);
    rp_test_outcome table = advise(POWERED "--power-limit 300");
    cr_expect(eq(int, table.status, 2));
    cr_expect(ne(ptr, strstr(table.messages, "only with --stack"), NULL), "%s", table.messages);
}

/* Except for rounding of microbatches, a third server adds at most half the speed. */
Test(advise_cli, one_server_more)
{
    rp_test_outcome outcome = advise("--model qwen3-1.7b --platform h100x8 --gpus 2 --nodes 2 "
                                     "--budget 150 --format json");
    cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    const json_t *best = json_array_get(rows, 0);
    const json_t *changes = json_object_get(json_object_get(best, "answer"), "changes");
    const json_t *server = NULL;
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        cr_expect(ne(str, (char *)text(change, "change"), (char *)"one_gpu_more"));
        server = strcmp(text(change, "change"), "one_server_more") == 0 ? change : server;
    }
    cr_assert(ne(ptr, (void *)server, NULL), "%s", outcome.output);
    double gain = number(server, "tokens_per_s") / number(best, "tokens_per_s");
    cr_expect(gt(dbl, gain, 1));
    cr_expect(lt(dbl, gain, 1.6), "%s", outcome.output);
    json_decref(rows);
}

/* ---- generated questions --------------------------------------------------------------------- */

static const char *drawn(uint64_t *state, const char *const *values, uint32_t count)
{
    *state += RP_SPLITMIX64_STEP;
    return values[rp_splitmix64(*state) % count];
}

#define DRAWN(state, ...)                                                                          \
    drawn(state, (const char *const[]){__VA_ARGS__},                                               \
          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Question 0 has a schedule that plans with times: with faster links it planned a slower order. */
static void draw_question(uint32_t number, char *line, size_t size)
{
    uint64_t state = number;
    if (number == 0) {
        (void)snprintf(line, size,
                       "--model qwen3-8b --lora-rank 16 --platform rtx3090x8 --gpus 4 "
                       "--schedule v-half-squeezed --format json");
        return;
    }
    const char *server = DRAWN(&state, "rtx4090x8", "rtx3090x8", "l40sx8", "h100x8", "a6000x8");
    const char *gpus = DRAWN(&state, "2", "3", "4");
    const char *nodes = strcmp(server, "h100x8") == 0 ? " --nodes 2" : "";
    const char *one = DRAWN(&state, "v-half-squeezed", "zbv-auto", "zb-auto-1p", "dualpipev",
                            "v-min-squeezed", "v-half", "interleaved-1f1b");
    const char *other = DRAWN(&state, "1f1b", "gpipe", "roundpipe", "zb-h1", "pipedream-2bw");
    const char *model = DRAWN(&state, "qwen3-0.6b", "qwen3-1.7b", "qwen3-8b --lora-rank 16",
                              "llama3.1-8b --lora-rank 8", "mpt-1b");
    const char *more = DRAWN(&state, "", " --optimizer sync", " --seq-len 4k", " --global-batch 24",
                             " --seq-len 1k --max-step-tokens 128k");
    (void)snprintf(line, size,
                   "--model %s --platform %s --gpus %s%s --schedule %s,%s%s --format "
                   "json --budget 1000",
                   model, server, gpus, nodes, one, other, more);
}

static json_t *answer_to(const char *line, uint32_t seed)
{
    char seeded[512];
    (void)snprintf(seeded, sizeof seeded, "%s --seed %u", line, seed);
    rp_test_outcome outcome = advise(seeded);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    cr_assert(gt(sz, json_array_size(rows), 0), "%s: %s", line, outcome.messages);
    return rows;
}

/* Additions to a server may stay unused, so that no addition makes the best run slower. */
static void expect_gains(const char *line, const json_t *best)
{
    const json_t *changes = json_object_get(json_object_get(best, "answer"), "changes");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        cr_expect(ge(dbl, number(change, "tokens_per_s"), number(best, "tokens_per_s")), "%s: %s",
                  line, text(change, "change"));
    }
}

/* Seeds change intervals only; the answer stays. */
Test(advise_cli, additions_never_slow_down_and_seeds_decide_nothing)
{
    bool all = getenv("RP_LONG") != NULL;
    uint32_t answered = 0;
    for (uint32_t i = 0; i < (all ? 60 : 2); i++) {
        char line[400];
        draw_question(i, line, sizeof line);
        json_t *rows = answer_to(line, 0);
        const json_t *best = json_array_get(rows, 0);
        if (json_is_true(json_object_get(best, "fits"))) {
            answered++;
            expect_gains(line, best);
            replay(best);
        }
        for (uint32_t seed = 1; seed < (all ? 4 : 2) && answered > 0; seed++) {
            json_t *others = answer_to(line, seed);
            const json_t *other = json_array_get(others, 0);
            cr_expect(eq(dbl, number(other, "tokens_per_s"), number(best, "tokens_per_s")), "%s",
                      line);
            cr_expect(eq(str, (char *)text(other, "partition"), (char *)text(best, "partition")));
            expect_gains(line, other);
            json_decref(others);
        }
        json_decref(rows);
    }
    cr_expect(ge(u32, answered, all ? 40 : 1));
}

static size_t widest_line(const char *output)
{
    size_t widest = 0;
    for (const char *at = output; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        size_t width = 0;
        for (size_t i = 0; i < length; i++) {
            width += ((unsigned char)at[i] & 0xC0) != 0x80 ? 1 : 0;
        }
        widest = width > widest ? width : widest;
        at += length + (at[length] == '\n');
    }
    return widest;
}

static size_t lines_of(const char *at)
{
    const char *next = strchr(at, '\n');
    return next == NULL ? 0 : 1 + lines_of(next + 1);
}

/* The answer fits a terminal of 24 lines and 80 columns; --why and --legend add to it. */
Test(advise_cli, as_wide_as_asked)
{
    static const char *const columns[] = {NULL, "100", "80", "72"};
    static const char *const adds[] = {"The fastest of each schedule:\n", "Not the others:\n",
                                       "What would change the answer:\n",
                                       "\n  D x T: ", "\n  GPU GB: "};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (columns[i] != NULL) {
            (void)setenv("COLUMNS", columns[i], 1);
        } else {
            (void)unsetenv("COLUMNS");
        }
        rp_test_outcome outcome = advise(SMALL " --tokens 2B --usd-per-hour 5 --budget 60");
        cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
        size_t most = columns[i] != NULL ? strtoul(columns[i], NULL, 10) : 100;
        cr_expect(le(sz, widest_line(outcome.output), most), "%s", outcome.output);
        cr_expect(ne(ptr, (void *)strstr(outcome.output, "rpsim --schedule"), NULL));
        cr_expect(ne(ptr, (void *)strstr(outcome.output, "\nwhat you can run "), NULL));
        cr_expect(most < 80 || lines_of(outcome.output) <= 24, "%s", outcome.output);
        char answer[8192] = "";
        (void)strncpy(answer, outcome.output, sizeof answer - 1);
        outcome = advise(SMALL " --tokens 2B --usd-per-hour 5 --budget 60 --why --legend");
        cr_expect(le(sz, widest_line(outcome.output), most), "%s", outcome.output);
        for (size_t k = 0; k < sizeof adds / sizeof adds[0]; k++) {
            cr_expect(eq(ptr, (void *)strstr(answer, adds[k]), NULL), "%s", adds[k]);
            cr_expect(ne(ptr, (void *)strstr(outcome.output, adds[k]), NULL), "%s", adds[k]);
        }
    }
    (void)unsetenv("COLUMNS");
}

/* Writes a server with so much host memory, in GB. */
static const char *server_with(const char *host_gb)
{
    const char *key = "host_memory_gb: ";
    const char *path = rp_test_tool_expand("@DIR@/server.yaml", strlen("@DIR@/server.yaml"));
    rp_text text = {0};
    cr_assert(eq(
        int, rp_text_read_file(RP_SOURCE_ROOT "/traces/platforms/rtx4090x8.yaml", SIZE_MAX, &text),
        RP_OK));
    const char *begin = strstr(text.bytes, key);
    cr_assert(ne(ptr, (void *)begin, NULL));
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file, "%.*s%s%s%s", (int)(begin - text.bytes), text.bytes, key, host_gb,
            strchr(begin, '\n'));
    cr_assert(eq(int, fclose(file), 0));
    rp_text_fini(&text);
    return path;
}

/* Full training, with more state than host memory: the answer names the gap and changes that fit.
 */
Test(advise_cli, nothing_fits)
{
    (void)server_with("16");
    rp_test_outcome outcome =
        advise("--model qwen3-1.7b --gpus 2 --schedule roundpipe --platform @DIR@/server.yaml");
    cr_expect(outcome.status == 1 && lines_of(outcome.output) <= 24, "%s", outcome.output);
    static const char *const says[] = {
        "Nothing fits. roundpipe comes nearest: it needs 3",
        " GB of host memory, ",
        "GB more than the 16.0",
        "What would fit:\n  adapters alone, --lora-rank 16: roundpipe, ",
        "\n  3",
        " GB of host memory instead of 16.0: roundpipe, ",
        "Tried, and nothing fits with it alone: shorter sequences, --seq-len 128; 64 such GPUs"};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        cr_expect(ne(ptr, (void *)strstr(outcome.output, says[i]), NULL), "%s: %s", says[i],
                  outcome.output);
    }
    cr_expect(ne(ptr, (void *)strstr(outcome.messages, "nothing fits"), NULL));
}

/* Options for the change; NULL for memory and larger servers, which have none. */
static const char *options_of(const json_t *change)
{
    static char options[64];
    static const struct {
        const char *change, *key, *option;
    } kinds[] = {{"adapters", "lora_rank", "--lora-rank"},
                 {"shorter_sequences", "seq_len", "--seq-len"},
                 {"more_gpus", "gpus", "--gpus"},
                 {"more_servers", "nodes", "--nodes"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(text(change, "change"), kinds[i].change) == 0 &&
            (i != 2 || number(change, "gpus") <= 8)) {
            (void)snprintf(options, sizeof options, "%s %.0f", kinds[i].option,
                           number(change, kinds[i].key));
            return options;
        }
    }
    return NULL;
}

/* A step has the sequences of its microbatches. */
static void expect_batches(const json_t *changes)
{
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *c = json_array_get(changes, i);
        double sequences = number(c, "microbatches") * number(c, "microbatch_size") *
                           number(c, "accumulate") * number(c, "data_parallel");
        cr_expect(eq(dbl, number(c, "global_batch"), sequences), "%s", text(c, "change"));
    }
}

/* The array has the nearest run and its gap (cli.md); its command prints the same. With each
 * proposed change some run fits. */
static void check_nothing(const char *line, const char *others, double host_limit, size_t changes)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s %s --format json", line, others);
    rp_test_outcome outcome = advise(whole);
    cr_expect(eq(int, outcome.status, 1), "%s", whole);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    cr_assert(eq(sz, json_array_size(rows), 1), "%s: %s", whole, outcome.messages);
    const json_t *row = json_array_get(rows, 0);
    const json_t *missing = json_object_get(row, "missing");
    cr_expect(eq(int, json_is_false(json_object_get(row, "fits")), 1));
    replay(row);
    double host = number(row, "peak_host_bytes") - host_limit;
    cr_expect(eq(dbl, number(missing, "host_bytes"), host > 0 ? host : 0), "%s", whole);
    cr_expect(number(missing, "host_bytes") > 0 || number(missing, "gpu_bytes") > 0);
    const json_t *list = json_object_get(json_object_get(row, "answer"), "changes");
    cr_expect(ge(sz, json_array_size(list), changes), "%s: %s", whole, outcome.output);
    expect_batches(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *change = json_array_get(list, i);
        const char *options = options_of(change);
        if (options != NULL) {
            bool server = strncmp(options, "--gpus", 6) == 0 || strncmp(options, "--nodes", 7) == 0;
            (void)snprintf(whole, sizeof whole, "%s %s --budget 200 %s", line, options,
                           server ? "--top 1" : others);
            cr_expect(eq(int, advise(whole).status, 0), "%s", whole);
        }
    }
    json_decref(rows);
}

Test(advise_cli, nothing_fits_has_the_nearest_and_what_helps)
{
    (void)server_with("16");
    check_nothing("--model qwen3-1.7b --schedule mobius,1f1b --platform @DIR@/server.yaml",
                  "--gpus 1", 16e9, 4);
    if (getenv("RP_LONG") != NULL) {
        check_nothing("--model llama3.1-70b --schedule fsdp,1f1b --platform h100x8", "--gpus 1",
                      INFINITY, 2);
        check_nothing("--model qwen3-8b --platform rtx4090x8 --seq-len 256k", "--gpus 1", INFINITY,
                      2);
        check_nothing("--model qwen3-8b --platform rtx4090x8 --seq-len 256k --global-batch 4",
                      "--gpus 1", INFINITY, 2);
        check_nothing("--model llama3.1-8b --platform a6000x8 --schedule 1f1b,zb-h1,fsdp",
                      "--gpus 1", INFINITY, 3);
        check_nothing("--model gpt-oss-20b --platform rtx3090x8 --schedule v-half,fsdp,zero2",
                      "--gpus 2 --optimizer sync", INFINITY, 1);
        check_nothing("--model qwen3-32b --platform h100x8 --schedule megatron-pp,zero2,zb1p",
                      "--gpus 2", INFINITY, 3);
        check_nothing("--model qwen3-235b --platform rtx3090x8", "--gpus 4", 800e9, 2);
    }
}

/* DeepSpeed's ZeRO divides a batch equally among all GPUs (deepspeed/runtime/config.py: train_batch
 * is micro_batch times accumulation times world size), so a sequence a step is impossible. The
 * proposed adapters fit, at least as fast; a single line names all schedules that the system lacks.
 */
Test(advise_cli, nothing_fits_of_a_system)
{
    static const char line[] = "--model qwen3-1.7b --gpus 2 --platform @DIR@/server.yaml --seq-len "
                               "1024 --max-step-tokens 8k --top 1 --runnable deepspeed --schedule "
                               "zero-infinity,mobius,roundpipe";
    (void)server_with("16");
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s --format json", line);
    json_t *rows = json_loads(advise(whole).output, 0, NULL);
    const json_t *answer = json_object_get(json_array_get(rows, 0), "answer");
    const json_t *change = json_array_get(json_object_get(answer, "changes"), 0);
    cr_assert(eq(str, (char *)text(change, "change"), (char *)"adapters"));
    (void)snprintf(whole, sizeof whole, "%s --format json --lora-rank 16", line);
    json_t *asked = json_loads(advise(whole).output, 0, NULL);
    cr_expect(
        ge(dbl, number(json_array_get(asked, 0), "tokens_per_s"), number(change, "tokens_per_s")));
    (void)snprintf(whole, sizeof whole, "%s --why", line);
    const char *output = advise(whole).output;
    cr_expect(
        ne(ptr, (void *)strstr(output, "\n  deepspeed: it has no such schedule: mobius, roundpipe"),
           NULL),
        "%s", output);
    json_decref(rows);
    json_decref(asked);
}

/* Slower systems' speeds come from runs as long as the winner's: short runs of PipeDream end before
 * its pipeline is full of weight versions. */
Test(advise_cli, slower_is_slower)
{
    rp_test_outcome outcome = advise("--model qwen3-8b --lora-rank 16 --platform rtx3090x8 "
                                     "--seq-len 4k --dtype bf16 --top 1 --schedule "
                                     "pipedream,1f1b,zb1p --format json");
    cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    const json_t *best = json_array_get(rows, 0);
    const json_t *others = json_object_get(json_object_get(best, "answer"), "others");
    for (size_t i = 0; i < json_array_size(others); i++) {
        const json_t *other = json_array_get(others, i);
        if (strcmp(text(other, "reason"), "slower") == 0) {
            cr_expect(le(dbl, number(other, "tokens_per_s"), number(best, "tokens_per_s")), "%s",
                      outcome.output);
        }
    }
    cr_expect(gt(sz, json_array_size(others), 0));
    json_decref(rows);
}

/* With a small budget the answer names the schedules left out. */
Test(advise_cli, small_budget)
{
    rp_test_outcome outcome = advise("--model qwen3-1.7b --gpus 2 --budget 40 --why");
    cr_expect(eq(int, outcome.status, 0));
    cr_expect(ne(ptr, (void *)strstr(outcome.output, "\nRun "), NULL));
    cr_expect(ne(ptr, (void *)strstr(outcome.output, "not tried within --budget"), NULL));
    cr_expect(ne(ptr, (void *)strstr(outcome.output, "The search was cut short"), NULL));
}

Test(advise_cli, budget_too_small)
{
    rp_test_outcome outcome = advise("--model qwen3-1.7b --gpus 2 --budget 2");
    cr_expect(eq(int, outcome.status, 1));
    cr_expect(ne(ptr, (void *)strstr(outcome.output, "Not known: the search ended"), NULL));
    cr_expect(ne(ptr, (void *)strstr(outcome.messages, "--budget: within 2 simulations"), NULL));
}

/* With a little more memory it fits, and nearly fills the host. */
Test(advise_cli, host_memory_is_a_limit)
{
    (void)server_with("40");
    rp_test_outcome outcome =
        advise("--model qwen3-1.7b --gpus 2 --schedule roundpipe --format json "
               "--platform @DIR@/server.yaml");
    cr_assert(eq(int, outcome.status, 0), "%s", outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        cr_expect(le(dbl, number(json_array_get(rows, i), "peak_host_bytes"), 40e9));
    }
    json_decref(rows);
}

Test(advise_cli, refused)
{
    static const struct {
        const char *line;
        const char *says;
    } cases[] = {
        {"--schedule none", "--schedule: unknown schedule 'none'"},
        {"--schedule roundpipe,", "--schedule"},
        {"--optimizer async", "--optimizer: 'async' is not valid; valid values are any, sync"},
        {"--gpus 9", "--gpus: rtx4090x8 has 8 GPUs; valid are 1 to 8"},
        {"--model nobody", "nobody"},
        {"--platform nowhere", "nowhere"},
        {"--runnable slurm", "--runnable: "},
        {"--tokens 3Q", "--tokens: '3Q' is not valid"},
        {"--tokens -1", "--tokens: '-1' is not valid"},
        {"--global-batch 8 --max-step-tokens 9", "--max-step-tokens: the batch is given"},
        {"--max-step-tokens 2047", "a sequence has 2048 tokens; valid are 2048 and more"},
        {"--usd-per-hour 3", "--usd-per-hour: valid only with --tokens"},
        {"--dtype bf16 --accumulation fp16", "--accumulation: products of bf16 add up in fp32"},
        {"--accumulation fp8",
         "--accumulation: 'fp8' is not valid; valid values are fp16 and fp32"},
        {"--export /no/such/folder", "--export"},
        {"llama", "valid are options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = advise(cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s: %s", cases[i].line, outcome.messages);
        cr_expect(ne(ptr, (void *)strstr(outcome.messages, cases[i].says), NULL), "%s: %s",
                  cases[i].line, outcome.messages);
        cr_expect(eq(int, *outcome.output, 0), "%s", cases[i].line);
    }
}
