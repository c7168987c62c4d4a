/* rpexec from the user's side: bad command lines (tests/bad/rpexec.tsv), artefacts, --list. */
#include "common/schedule/schedule_type.h"
#include "exec/checkpoint/safetensors.h"
#include "exec/run/backend.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMANDS RP_TEST_ROOT "/bad/rpexec.tsv"

TestSuite(exec_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
}

/* ---- bad command lines ----------------------------------------------------------------------- */

Test(exec_cli, bad_commands_are_refused)
{
    rp_test_refusals(COMMANDS, 5, run);
}

/* ---- --list ---------------------------------------------------------------------------------- */

/* The executor runs every schedule that the list does not call simulated only. */
Test(exec_cli, the_list_says_what_runs)
{
    rp_test_outcome list = run("--list schedules");
    cr_assert(eq(int, list.status, 0));
    uint32_t simulated = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const char *name = NULL;
        const char *command = NULL;
        (void)rp_arena_print(rp_test_tool_arena(), &name, "%s: ", rp_schedules[i]->name);
        (void)rp_arena_print(rp_test_tool_arena(), &command,
                             "--schedule %s --gpus 2 --steps 1 --seq-len 4", rp_schedules[i]->name);
        const char *line = list.output;
        while (line != NULL && strncmp(line, name, strlen(name)) != 0) {
            line = strchr(line, '\n');
            line = line == NULL ? NULL : line + 1;
        }
        cr_assert(line != NULL, "%s is not listed", name);
        const char *end = strchr(line, '\n');
        const char *only = strstr(line, "(simulated only: ");
        bool runs = only == NULL || only > end;
        simulated += runs ? 0 : 1;
        if (!runs || i % 8 == 0) { /* tests/exec/run/matrix.c runs them all */
            cr_expect(eq(int, run(command).status, runs ? 0 : 2), "%s", command);
        }
    }
    cr_expect(lt(u32, simulated, rp_schedule_count / 2));
}

/* ---- the backend of a run that names none ---------------------------------------------------- */

static uint32_t there; /* number of devices of the backend below */
static bool broken;

static rp_status probe(const rpexec_probe *p)
{
    for (uint32_t i = 0; i < there; i++) {
        p->device(p->context, &(rpexec_device){.index = i, .name = "a", .unit_name = "parts"});
    }
    if (there == 0) {
        p->absent(p->context, "none");
    }
    return broken ? RP_TOOL : RP_OK;
}

static rp_status attach(const rpexec_devices_config *config, rpexec_devices **devices_out,
                        uint64_t *gpu_bytes_out)
{
    (void)config;
    (void)devices_out;
    (void)gpu_bytes_out;
    return RP_TOOL;
}

static const rpexec_driver_type *driver_of_devices(void)
{
    static const rpexec_driver_type type = {.attach = attach};
    return &type;
}

Test(exec_cli, runs_are_on_gpus_where_there_are_any)
{
    const rpexec_backend_type devices = {
        .name = "devices", .probe = probe, .driver = driver_of_devices};
    const rpexec_backend_type *host = rpexec_backend_find("host");
    const rpexec_backend_type *const orders[][2] = {{&devices, host}, {host, &devices}};
    for (size_t i = 0; i < 2; i++) {
        there = 2;
        broken = false;
        cr_expect(eq(u32, rpexec_backend_devices(&devices), 2));
        cr_expect(rpexec_backend_default(orders[i], 2) == &devices);
        broken = true;
        cr_expect(rpexec_backend_default(orders[i], 2) == host);
        there = 0;
        broken = false;
        cr_expect(rpexec_backend_default(orders[i], 2) == host);
    }
    cr_expect(rpexec_backend_default(orders[0], 1) == NULL);
    /* The environment variable is for tests and scripts; the command line has the last word. */
    setenv("RPEXEC_BACKEND", "tpu", 1);
    rp_test_outcome bad = run("--steps 1");
    cr_expect(eq(int, bad.status, 2));
    cr_expect(strstr(bad.messages, "the environment variable RPEXEC_BACKEND: 'tpu' is not valid; "
                                   "valid values are host") != NULL,
              "%s", bad.messages);
    cr_expect(eq(int, run("--steps 1 --gpus 1 --seq-len 4 --backend host").status, 0));
    cr_expect(eq(int, run("--list schedules").status, 0));
}

/* ---- outputs --------------------------------------------------------------------------------- */

#define SMALL "--gpus 2 --microbatches 2 --steps 3 --seq-len 4 "

/* The keys of the contract, in their order and with their types. */
Test(exec_cli, json_has_the_keys_of_the_contract)
{
    static const struct {
        const char *key;
        json_type type;
    } keys[] = {{"schedule", JSON_STRING},
                {"backend", JSON_STRING},
                {"device", JSON_STRING},
                {"gpus", JSON_INTEGER},
                {"microbatches", JSON_INTEGER},
                {"model", JSON_STRING},
                {"steps", JSON_INTEGER},
                {"loss", JSON_ARRAY},
                {"iteration_ms", JSON_ARRAY},
                {"tokens_per_s", JSON_REAL},
                {"predicted_iteration_ms", JSON_NULL},
                {"prediction_error_pct", JSON_NULL},
                {"max_grad_rel_err", JSON_INTEGER}, /* 0: the same bits */
                {"peak_gpu_bytes", JSON_ARRAY},
                {"uploaded_bytes", JSON_INTEGER},
                {"downloaded_bytes", JSON_INTEGER},
                {"exchanged_bytes", JSON_INTEGER},
                {"exchanged_by", JSON_NULL}}; /* the host backend has no devices */
    rp_test_outcome result = run(SMALL "--check --format json");
    cr_assert(eq(int, result.status, 0), "%s", result.messages);
    json_t *json = json_loads(result.output, 0, NULL);
    cr_assert(json != NULL);
    void *at = json_object_iter(json);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        cr_assert(at != NULL);
        cr_expect(eq(str, (char *)json_object_iter_key(at), (char *)keys[i].key));
        cr_expect(eq(int, json_typeof(json_object_iter_value(at)), keys[i].type), "%s",
                  keys[i].key);
        at = json_object_iter_next(json, at);
    }
    cr_expect(eq(sz, json_array_size(json_object_get(json, "loss")), 3));
    cr_expect(eq(sz, json_array_size(json_object_get(json, "iteration_ms")), 3));
    cr_expect(eq(sz, json_array_size(json_object_get(json, "peak_gpu_bytes")), 2));
    json_decref(json);
}

static const char *ask(const char *query)
{
    const char *path = rp_test_tool_expand("@DIR@/runs.db", 13);
    const char *const arguments[] = {"sqlite3", path, query, NULL};
    rp_test_outcome result = rp_test_tool_execute("/usr/bin/sqlite3", arguments);
    cr_assert(eq(int, result.status, 0), "%s", result.messages);
    return result.output;
}

/* The store has a run that was executed, with its backend and results; a chart and a trace are
 * written. */
Test(exec_cli, artefacts_are_left)
{
    rp_test_outcome result =
        run(SMALL "--seed 5 --platform rtx4090x8 --db @DIR@/runs.db --db-ops --gantt-out "
                  "@DIR@/chart.svg --trace-out @DIR@/trace.json --loss-out @DIR@/loss.csv "
                  "--program-out @DIR@/program.txt");
    cr_assert(eq(int, result.status, 0), "%s", result.messages);
    cr_expect(eq(str, (char *)result.messages, ""), "no progress line where stderr is no terminal");
    cr_expect(eq(str,
                 (char *)ask("SELECT program, schedule, model, platform, fidelity, gpus, "
                             "microbatches, seq_len, iterations, seed FROM runs"),
                 "rpexec|roundpipe|tiny|rtx4090x8|host|2|2|4|3|5\n"));
    cr_expect(eq(str,
                 (char *)ask("SELECT json_extract(config_json, '$.backend'), "
                             "json_extract(config_json, '$.device') FROM runs"),
                 "host|host threads\n"));
    cr_expect(eq(str, (char *)ask("SELECT count(*) = (SELECT ops FROM runs) FROM ops"), "1\n"));
    cr_expect(eq(str,
                 (char *)ask("SELECT (SELECT value FROM metrics WHERE name = 'makespan_ps') = "
                             "(SELECT max(end_ps) FROM ops)"),
                 "1\n"));
    cr_expect(eq(str, (char *)ask("SELECT value FROM metrics WHERE name = 'steps'"), "3\n"));
    const char *losses = rp_test_tool_read(rp_test_tool_expand("@DIR@/loss.csv", 14));
    static const char header[] = "step,loss,iteration_ms,grad_norm,learning_rate,eval_loss\n1,";
    cr_expect(strncmp(losses, header, sizeof header - 1) == 0, "%s", losses);
    const char *chart = rp_test_tool_read(rp_test_tool_expand("@DIR@/chart.svg", 15));
    cr_expect(strstr(chart, "GPU 1") != NULL);
    json_t *trace = json_load_file(rp_test_tool_expand("@DIR@/trace.json", 16), 0, NULL);
    cr_expect(trace != NULL);
    json_decref(trace);
}

/* plots/loss.gp draws the curve of losses. */
Test(exec_cli, losses_are_drawn)
{
    const char *script = NULL;
    cr_assert(eq(int, run(SMALL "--loss-out @DIR@/loss.csv").status, 0));
    const char *folder = rp_test_tool_folder();
    (void)rp_arena_print(rp_test_tool_arena(), &script,
                         "root='" RP_SOURCE_ROOT "/plots'; data='%s/loss.csv'; out='%s/loss'; "
                         "ext='svg'",
                         folder, folder);
    const char *const arguments[] = {"gnuplot", "-e", script, RP_SOURCE_ROOT "/plots/loss.gp",
                                     NULL};
    rp_test_outcome result = rp_test_tool_execute("/usr/bin/gnuplot", arguments);
    cr_assert(eq(int, result.status, 0), "%s", result.messages);
    const char *curve = rp_test_tool_read(rp_test_tool_expand("@DIR@/loss.svg", 14));
    cr_expect(strstr(curve, "running mean") != NULL);
}

/* ---- weights that are not finite ------------------------------------------------------------- */

#define LLAMA RP_TEST_ROOT "/golden/decoders/llama"

static void write_bytes(const char *name, const char *bytes, size_t length)
{
    FILE *stream = fopen(rp_test_path(rp_test_tool_folder(), name), "wb");
    cr_assert(stream != NULL);
    cr_assert(eq(sz, fwrite(bytes, 1, length, stream), length));
    cr_assert(eq(int, fclose(stream), 0));
}

/* Makes a checkpoint in @DIR@ whose final norm begins with a NaN. */
static void make_nan_weights(void)
{
    static char bytes[4 << 20];
    FILE *stream = fopen(LLAMA "/model.safetensors", "rb");
    cr_assert(stream != NULL);
    size_t length = fread(bytes, 1, sizeof bytes - 1, stream);
    fclose(stream);
    cr_assert(lt(sz, length, sizeof bytes - 1));
    uint64_t header = 0;
    memcpy(&header, bytes, sizeof header);
    const char *tensor = strstr(bytes + sizeof header, "\"model.norm.weight\"");
    const char *offsets = tensor != NULL ? strstr(tensor, "\"data_offsets\"") : NULL;
    cr_assert(offsets != NULL);
    uint64_t begin = strtoull(strchr(offsets, '[') + 1, NULL, 10);
    memset(bytes + sizeof header + header + begin, 0xff, 4); /* the bits of a NaN in every type */
    write_bytes("model.safetensors", bytes, length);
    const char *config = rp_test_tool_read(LLAMA "/config.json");
    write_bytes("config.json", config, strlen(config));
}

static void expect_stopped(const char *line, const char *step, const char *tensor)
{
    rp_test_outcome result = run(line);
    cr_expect(eq(int, result.status, 1), "%s: %s", line, result.messages);
    cr_expect(eq(sz, strlen(result.output), 0), "%s: %s", line, result.output);
    cr_expect(strstr(result.messages, step) != NULL, "%s: %s", line, result.messages);
    cr_expect(strstr(result.messages, tensor) != NULL, "%s: %s", line, result.messages);
}

Test(exec_cli, weights_that_are_not_finite_stop_the_run)
{
    make_nan_weights();
    expect_stopped("--gpus 1 --weights @DIR@ --steps 2 --seq-len 4",
                   "step 1: ", "tensor model.norm.weight, the first of 1, is not finite");
#define TINY "--gpus 2 --model tiny --seq-len 4 --lr 1e6 "
#define EMBEDDING "tensor model.embed_tokens.weight, the first of "
    /* Masters of 1e6 overflow in fp16. The loss shows it a step later; if there is no later step,
     * the check at the end of the run does. */
    expect_stopped(TINY "--dtype fp16 --steps 6", "step 2: the loss is nan", EMBEDDING);
    expect_stopped(TINY "--dtype fp16 --steps 1", "step 1: the loss is 5.", EMBEDDING);
    expect_stopped(TINY "--dtype fp16 --steps 3 --save @DIR@/kept --save-every 1",
                   "step 1: the loss is 5.", EMBEDDING);
    cr_expect(ne(int, access(rp_test_path(rp_test_tool_folder(), "kept/step-1"), F_OK), 0));
}

/* ---- losses that fp16 cannot hold, folders of other users ------------------------------------ */

static void shell(const char *command)
{
    const char *whole = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &whole, "cd %s && %s", rp_test_tool_folder(),
                         command);
    cr_assert(eq(int, system(whole), 0), "%s", whole); // NOLINT(cert-env33-c)
}

static const char *joined(const char *a, const char *b)
{
    const char *text = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &text, "%s%s", a, b);
    return text;
}

/* Makes a checkpoint in @DIR@ whose final norm is finite in fp16 but has outputs that are not. */
static void make_large_weights(void)
{
    rpexec_safetensors file;
    rpexec_writable tensors[64];
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rpexec_safetensors_open(LLAMA "/model.safetensors", arena, &file), RP_OK));
    cr_assert(le(u32, file.count, 64));
    for (uint32_t i = 0; i < file.count; i++) {
        const rpexec_stored *t = &file.tensors[i];
        float *values = NULL;
        cr_assert(eq(int, rp_arena_alloc(arena, t->elements, sizeof *values, &values), RP_OK));
        cr_assert(eq(int, rpexec_safetensors_read(&file, t, values), RP_OK));
        for (uint64_t k = 0; strcmp(t->name, "model.norm.weight") == 0 && k < t->elements; k++) {
            values[k] = 6e4f;
        }
        tensors[i] = (rpexec_writable){.name = t->name, .rank = t->rank, .values = values};
        memcpy(tensors[i].shape, t->shape, sizeof t->shape);
    }
    cr_assert(eq(int,
                 rpexec_safetensors_write(rp_test_path(rp_test_tool_folder(), "model.safetensors"),
                                          tensors, file.count, NULL, 0),
                 RP_OK));
    rpexec_safetensors_close(&file);
    const char *config = rp_test_tool_read(LLAMA "/config.json");
    write_bytes("config.json", config, strlen(config));
}

/* Halved from 2^16, the scale is 1 in step 17, as in PyTorch's GradScaler and DeepSpeed. */
Test(exec_cli, overflows_at_the_smallest_scale_stop_the_run)
{
    static const char *const runs[] = {"--gpus 1", "--gpus 2 --schedule 1f1b",
                                       "--gpus 2 --schedule fsdp --save-every 100"};
    make_large_weights();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const char *line = NULL;
        (void)rp_arena_print(rp_test_tool_arena(), &line,
                             "%s --weights @DIR@ --seq-len 4 --steps 25 --save @DIR@/s --loss-out "
                             "@DIR@/loss.csv --dtype ",
                             runs[i]);
        expect_stopped(joined(line, "fp16"), "step 17: the loss is nan, and the forward ",
                       "valid are --dtype bf16, whose range");
        cr_expect(ne(int, access(rp_test_path(rp_test_tool_folder(), "s"), F_OK), 0));
        const char *losses = rp_test_tool_read(rp_test_tool_expand("@DIR@/loss.csv", 14));
        cr_expect(strstr(losses, "\n17,nan,") != NULL && strstr(losses, "\n19,") == NULL, "%s",
                  losses);
        /* No step was made until the end, or until a save: a later --steps or --save-every counts.
         */
        expect_stopped(joined(line, "fp16 --steps 3"), "step 3: the loss is nan, as in all steps",
                       "valid are --dtype bf16, whose range");
        expect_stopped(joined(line, "fp16 --save-every 2"), "step 2: the loss is nan, as in all ",
                       "nothing is saved");
        cr_expect(ne(int, access(rp_test_path(rp_test_tool_folder(), "s"), F_OK), 0));
        rp_test_outcome wide = run(joined(line, i % 2 == 0 ? "bf16" : "fp32"));
        cr_expect(eq(int, wide.status, 0), "%s", wide.messages);
        cr_expect(eq(int, access(rp_test_path(rp_test_tool_folder(), "s/step-25"), F_OK), 0));
        shell("rm -rf s");
    }
}

Test(exec_cli, saving_leaves_what_others_have_put_there)
{
#define SAVE "--gpus 1 --model tiny --seq-len 4 --save @DIR@/s --save-every 1 "
    shell("mkdir -p v s/.step-old && touch v/config.json v/model.safetensors s/.step-old/notes && "
          "ln -s ../v s/.step-99 && mkdir s/step-01 && touch s/step-01/mine");
    rp_test_outcome first = run(SAVE "--steps 3");
    cr_expect(eq(int, first.status, 0), "%s", first.messages);
    cr_expect(strstr(first.messages, "s/.step-99 is called as rpexec calls") != NULL, "%s",
              first.messages);
    shell("test -e v/config.json && test -e v/model.safetensors && test -L s/.step-99 && "
          "test -e s/.step-old/notes && test -e s/step-01/mine && touch s/step-2/mine && "
          "test ! -e s/step-1 && test -e s/step-3/config.json");
    rp_test_outcome second = run(SAVE "--steps 8 --resume --keep 3");
    cr_expect(eq(int, second.status, 0), "%s", second.messages);
    shell("test -e v/config.json && test -e s/step-2/mine && test -e s/step-2/config.json && "
          "test \"$(ls s | tr '\\n' ' ')\" = 'step-01 step-2 step-6 step-7 step-8 '");
#undef SAVE
}

Test(exec_cli, links_in_a_model_that_lead_elsewhere_are_refused)
{
    static const char *const files[] = {"tokenizer.json", "vocab.txt", "generation_config.json",
                                        "config.json", "model.safetensors"};
    shell("echo '{\"secret\": 1}' > secret");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *command = NULL;
        const char *expected = NULL;
        (void)rp_arena_print(rp_test_tool_arena(), &command,
                             "rm -rf m && cp -r " LLAMA " m && chmod -R u+w m && "
                             "ln -sf %s m/%s",
                             i == 0 ? "/proc/self/environ" : "../secret", files[i]);
        (void)rp_arena_print(rp_test_tool_arena(), &expected, "m/%s: a link to /", files[i]);
        shell(command);
        rp_test_outcome refused =
            run("--gpus 1 --weights @DIR@/m --steps 1 --seq-len 4 --save @DIR@/linked");
        cr_expect(eq(int, refused.status, 2), "%s: %s", files[i], refused.messages);
        cr_expect(strstr(refused.messages, expected) != NULL, "%s: %s", files[i], refused.messages);
        shell("test ! -e linked");
    }
    shell("rm -rf m && mkdir -p hub/blobs hub/snapshots/abc && cp " LLAMA "/* hub/blobs && "
          "for f in $(ls hub/blobs); do ln -s ../../blobs/$f hub/snapshots/abc/$f; done");
    rp_test_outcome taken =
        run("--gpus 1 --weights @DIR@/hub/snapshots/abc --steps 1 --seq-len 4 --save @DIR@/hf");
    cr_expect(eq(int, taken.status, 0), "%s", taken.messages);
    shell("test -e hf/step-1/config.json && test ! -L hf/step-1/config.json");
}

Test(exec_cli, full_outputs_fail_the_run)
{
    static const char *const outputs[] = {"--trace-out", "--loss-out", "--program-out"};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        const char *line = NULL;
        (void)rp_arena_print(rp_test_tool_arena(), &line, SMALL "%s /dev/full", outputs[i]);
        rp_test_outcome result = run(line);
        cr_expect(eq(int, result.status, 1), "%s", outputs[i]);
        cr_expect(strstr(result.messages, "/dev/full: cannot be written") != NULL, "%s",
                  result.messages);
    }
}

/* A platform without a GPU's rates gives no times of layers; the run goes on with FLOP counts and
 * warns. */
Test(exec_cli, a_platform_without_rates_leaves_flop_counts)
{
    FILE *file = fopen(rp_test_tool_expand("@DIR@/bare.yaml", 15), "w");
    cr_assert(file != NULL);
    fputs("name: bare\nsource: of a test\ngpu: none\ngpus: 2\nfp16_tflops_fp16_acc: 1\n"
          "fp16_tflops_fp32_acc: 1\nmemory_gb: 24\nmemory_gb_per_s: 1000\nlink_gb_per_s: 10\n"
          "link_efficiency: 0.5\npeer_gb_per_s: 0\nhost_optimizer_gb_per_s: 50\n",
          file);
    fclose(file);
    rp_test_outcome bare = run("--gpus 2 --steps 1 --seq-len 4 --platform @DIR@/bare.yaml");
    cr_expect(eq(int, bare.status, 0), "%s", bare.messages);
    cr_expect(strstr(bare.messages,
                     "partitions balance FLOP counts, not times of bare: --platform: "
                     "bare has no gemm_efficiency") != NULL,
              "%s", bare.messages);
}
