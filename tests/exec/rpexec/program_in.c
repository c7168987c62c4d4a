/* --program-in: the same file runs in rpsim and rpexec. A program for another model, or a broken
 * program, is refused, and a slightly broken program has no worse effect than a message. */
#include "exec/rpexec/program_in.h"
#include "common/base/log.h"
#include "exec/host/driver.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/random_case.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(exec_program_in, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 500);

static rp_test_outcome rpexec(const char *line)
{
    return rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
}

/* Parses JSON text, which must be valid. */
static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    cr_assert(json != NULL, "%s", text);
    return json;
}

static const char *print(const char *format, const char *name)
{
    const char *text = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &text, format, name);
    return text;
}

static void write_costs(void)
{
    const char *path = rp_test_tool_expand("@DIR@/tiny.yaml", 15);
    FILE *file = fopen(path, "w");
    fputs("name: tiny@host\nlayers: 8\nfwd_ms: 1\nbwd_ms: 2\nhead_fwd_ms: 1\nhead_bwd_ms: 2\n"
          "hop_ms: 0.1\nmicrobatch_size: 1\nseq_len: 16\n",
          file);
    fclose(file);
}

/* rpsim writes a compute schedule; rpexec lowers it for its model and trains as plain loops do. */
Test(exec_program_in, a_schedule_of_rpsim_runs)
{
    static const char *const schedules[] = {"1f1b", "zbv", "roundpipe --round all", "mobius"};
    write_costs();
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        rp_test_rpsim_well(print("--fidelity stage --schedule %s --costs @DIR@/tiny.yaml --gpus 2 "
                                 "--microbatches 4 --program-out @DIR@/p.txt --format json",
                                 schedules[i]));
        rp_test_outcome run = rpexec("--program-in @DIR@/p.txt --seq-len 16 --check --format json");
        cr_assert(eq(int, run.status, 0), "%s: %s", schedules[i], run.messages);
        json_t *json = parse(run.output);
        cr_expect(le(dbl, rp_test_json_number(json, "max_grad_rel_err"), 1e-5));
        cr_expect(eq(dbl, rp_test_json_number(json, "gpus"), 2));
        cr_expect(eq(dbl, rp_test_json_number(json, "microbatches"), 4));
        cr_expect(eq(dbl, rp_test_json_number(json, "steps"), 1));
        json_decref(json);
        rp_test_outcome again =
            rp_test_rpsim_well("--fidelity stage --program-in @DIR@/p.txt --costs @DIR@/tiny.yaml");
        cr_expect(eq(int, again.status, 0));
    }
}

/* rpexec writes a lowered program: rpsim simulates it, and rpexec runs it again with the same
 * losses. */
Test(exec_program_in, a_program_of_rpexec_runs_in_both)
{
    rp_test_outcome first = rpexec("--gpus 3 --steps 2 --seq-len 16 --microbatches 3 --format json "
                                   "--program-out @DIR@/p.txt");
    cr_assert(eq(int, first.status, 0), "%s", first.messages);
    rp_test_outcome second = rpexec("--program-in @DIR@/p.txt --steps 4 --seq-len 16 --format json "
                                    "--program-out @DIR@/again.txt");
    cr_assert(eq(int, second.status, 0), "%s", second.messages);
    json_t *a = parse(first.output);
    json_t *b = parse(second.output);
    cr_expect(eq(sz, json_array_size(json_object_get(b, "loss")), 4));
    for (size_t i = 0; i < 2; i++) {
        cr_expect(eq(dbl, json_real_value(json_array_get(json_object_get(a, "loss"), i)),
                     json_real_value(json_array_get(json_object_get(b, "loss"), i))));
    }
    cr_expect(eq(dbl, 2 * rp_test_json_number(a, "uploaded_bytes"),
                 rp_test_json_number(b, "uploaded_bytes")));
    json_decref(a);
    json_decref(b);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/p.txt", 11));
    const char *again = rp_test_tool_read(rp_test_tool_expand("@DIR@/again.txt", 15));
    cr_expect(strcmp(text, again) == 0, "the same program comes out");
    rp_test_outcome simulated = rp_test_rpsim_well(
        "--program-in @DIR@/p.txt --model tiny --seq-len 16 --format json --platform rtx4090x8");
    json_t *row = parse(simulated.output);
    cr_expect(gt(dbl, rp_test_json_number(json_array_get(row, 0), "makespan_ms"), 0));
    json_decref(row);
}

/* In RoundPipe --round gives the length of rounds, and --accumulate makes them calls. */
Test(exec_program_in, rounds_are_calls)
{
    write_costs();
    rp_test_rpsim_well("--fidelity stage --schedule roundpipe --costs @DIR@/tiny.yaml --gpus 2 "
                       "--microbatches 4 --program-out @DIR@/p.txt");
    rp_test_outcome whole = rpexec("--program-in @DIR@/p.txt --seq-len 16");
    cr_expect(eq(int, whole.status, 2));
    rp_test_outcome calls = rpexec("--program-in @DIR@/p.txt --seq-len 16 --accumulate 2 --check");
    cr_expect(eq(int, calls.status, 0), "%s", calls.messages);
    rp_test_outcome rounds = rpexec("--program-in @DIR@/p.txt --seq-len 16 --round 2 --check");
    cr_expect(eq(int, rounds.status, 0), "%s", rounds.messages);
}

Test(exec_program_in, other_models_and_sizes_are_refused)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--program-in @DIR@/p.txt --seq-len 32", "which no boundary of tiny with --seq-len 32"},
        {"--program-in @DIR@/p.txt --model qwen3-0.6b",
         "has 8 layers, the model qwen3-0.6b has 28"},
        {"--program-in @DIR@/p.txt --seq-len 16 --steps 3", "valid are multiples of 2"},
        {"--program-in @DIR@/p.txt --seq-len 16 --microbatch-size 2", "is a lowered program"},
        {"--program-in @DIR@/p.txt --seq-len 16 --accumulate 2", "is a lowered program"},
        {"--program-in @DIR@/p.txt --seq-len 16 --dtype fp16", "are fp32; valid is that type"},
        {"--gpus 2 --schedule 1f1b --grain layer --recompute none", "1f1b recomputes nothing here"},
        {"--gpus 2 --partition paper", "the paper lists none for roundpipe with tiny"},
        {"--gpus 2 --trace-out @DIR@/x --db @DIR@/x", "valid is a file of its own"},
    };
    cr_assert(
        eq(int, rpexec("--gpus 2 --steps 2 --seq-len 16 --program-out @DIR@/p.txt").status, 0));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome run = rpexec(cases[i].line);
        cr_expect(eq(int, run.status, 2), "%s", cases[i].line);
        cr_expect(strstr(run.messages, cases[i].message) != NULL, "%s", run.messages);
        cr_expect(eq(str, (char *)run.output, ""));
    }
}

/* @return the results without the members that name the schedule or are measured */
static json_t *results_of(const char *output, const char *const *apart, size_t count)
{
    json_t *root = parse(output);
    json_t *one = json_is_array(root) ? json_array_get(root, 0) : root;
    for (size_t i = 0; i < count; i++) {
        json_object_del(one, apart[i]);
    }
    return root;
}

static void check_equal(const char *schedule, const char *const *apart, size_t count,
                        const rp_test_outcome *original, const rp_test_outcome *renamed)
{
    cr_assert(eq(int, original->status, 0), "%s: %s", schedule, original->messages);
    cr_assert(eq(int, renamed->status, 0), "%s: %s", schedule, renamed->messages);
    json_t *one = results_of(original->output, apart, count);
    json_t *other = results_of(renamed->output, apart, count);
    cr_expect(json_equal(one, other), "%s: %s\n%s", schedule, original->output, renamed->output);
    json_decref(one);
    json_decref(other);
}

/* Programs of all schedules run alike under a name that is not a schedule's: in rpsim, and in
 * rpexec to the last bit of the losses. The sample has systems of all placements. */
Test(exec_program_in, a_name_is_a_label)
{
    static const char *const simulated[] = {"schedule"};
    static const char *const executed[] = {
        "schedule",          "iteration_ms",        "tokens_per_s",    "program_in",
        "wall_tokens_per_s", "executed_flop_per_s", "peak_host_bytes", "busy_pct"};
    bool all = getenv("RP_LONG") != NULL && strcmp(getenv("RP_LONG"), "1") == 0;
    const char *from = rp_test_tool_expand("@DIR@/p.txt", 11);
    const char *to = rp_test_tool_expand("@DIR@/q.txt", 11);
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *s = rp_schedules[i];
        bool cuts = rp_cuts_layers(&s->traits);
        if (!all && i % 9 != 0 && strcmp(s->name, "fsdp") != 0 && !cuts) {
            continue;
        }
        rp_test_outcome made = rpexec(print("--seq-len 16 --gpus 2 --microbatches 8 --schedule %s "
                                            "--program-out @DIR@/p.txt --steps 1",
                                            s->name));
        cr_assert(eq(int, made.status, 0), "%s: %s", s->name, made.messages);
        const char *text = rp_test_tool_read(from);
        const char *rest = strchr(strstr(text, "\nschedule ") + 1, '\n');
        FILE *file = fopen(to, "w");
        fprintf(file, "rp-program 2\n# renamed\nschedule foo%s", rest);
        fclose(file);
        const char *in = "--program-in @DIR@/%s.txt --seq-len 16 --check --format json";
        rp_test_outcome original = rpexec(print(in, "p"));
        rp_test_outcome renamed = rpexec(print(in, "q"));
        check_equal(s->name, executed, sizeof executed / sizeof executed[0], &original, &renamed);
        in = "--program-in @DIR@/%s.txt --model tiny --seq-len 16 --platform rtx4090x8 --format "
             "json";
        original = rp_test_rpsim(print(in, "p"));
        renamed = rp_test_rpsim(print(in, "q"));
        check_equal(s->name, simulated, sizeof simulated / sizeof simulated[0], &original,
                    &renamed);
    }
}

/* ---- --check --------------------------------------------------------------------------------- */

/* @return the errors that --check reports for a program's first step */
static double first_error(const char *written, const char *steps)
{
    const char *line = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &line, "%s --steps %s --program-out @DIR@/p.txt",
                         written, steps);
    rp_test_outcome made = rpexec(line);
    if (made.status == 2 && strstr(made.messages, "valid is --optimizer sync") != NULL) {
        return 0;
    }
    cr_assert(eq(int, made.status, 0), "%s: %s", line, made.messages);
    rp_test_outcome run = rpexec(
        print("--program-in @DIR@/p.txt --seq-len 16 --steps %s --check --format json", steps));
    cr_expect(eq(int, run.status, 0), "%s: %s", line, run.messages);
    json_t *json = parse(run.output);
    double error = rp_test_json_number(json, "max_grad_rel_err") +
                   rp_test_json_number(json, "max_grad_rms_err");
    json_decref(json);
    return error;
}

/* The gradients of the first step do not depend on the number of later steps: --check reports the
 * same errors for them, within the limit of executor.md 3.1, whatever Adam does later. */
Test(exec_program_in, the_first_step_is_checked_whatever_follows)
{
    static const char *const steps[] = {"1", "2", "4", "16"};
    bool all = getenv("RP_LONG") != NULL && strcmp(getenv("RP_LONG"), "1") == 0;
    static const char *const sample[] = {"roundpipe --optimizer async", "megatron-tp --dtype fp16"};
    static const char *const more[] = {"", " --optimizer async", " --dtype bf16", " --dtype fp16"};
    size_t count = all ? rp_schedule_count : 2;
    for (size_t i = 0; i < count; i++) {
        const char *line = NULL;
        (void)rp_arena_print(rp_test_tool_arena(), &line,
                             "--gpus 2 --microbatches 4 --seq-len 16 --schedule %s%s",
                             all ? rp_schedules[i]->name : sample[i], all ? more[i % 4] : "");
        double one = first_error(line, steps[0]);
        for (size_t k = 1; k < (all ? 4 : 2); k++) {
            double error = first_error(line, steps[k]);
            cr_expect(eq(dbl, error, one), "%s, %s steps", line, steps[k]);
        }
    }
}

static void write_with(const char *text, const char *at, size_t length, const char *instead)
{
    FILE *file = fopen(rp_test_tool_expand("@DIR@/q.txt", 11), "w");
    fprintf(file, "%.*s%s%s", (int)(at - text), text, instead, at + length);
    fclose(file);
}

/* Backwards that run parts of a layer again are rpsim's alone. */
Test(exec_program_in, selective_recompute_is_refused)
{
    rp_test_outcome made = rpexec("--gpus 2 --schedule 1f1b --seq-len 16 --recompute none --steps "
                                  "1 --program-out @DIR@/p.txt");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/p.txt", 11));
    const char *at = strstr(text, "recompute none");
    cr_assert(at != NULL);
    write_with(text, at, strlen("recompute none"), "recompute selective");
    rp_test_outcome run = rpexec("--program-in @DIR@/q.txt --seq-len 16");
    cr_expect(eq(int, run.status, 2));
    cr_expect(strstr(run.messages, "recomputes selectively; valid are none") != NULL, "%s",
              run.messages);
}

/* Layers are left out, or keep the weights of the previous step, in the first step and in later
 * steps; or steps follow each other in another way than the program says. */
Test(exec_program_in, damaged_programs_fail)
{
    static const struct {
        const char *from, *to, *message;
    } damages[] = {
        {"\nCOLLECT4 ", "\nCOLLECT3 ", "--check: gradients differ by"},
        {"\nCOLLECT4@2 ", "\nCOLLECT3@2 ", "--check: gradients of step 3 differ by"},
        {"\nREFRESH4 ", "\nREFRESH3 ", "--check: gradients of step 2 differ by"},
        {"\nREFRESH4@2 ", "\nREFRESH3@2 ", "--check: gradients of step 4 differ by"},
        {"\nOPTIMIZER@1 ", "\nREFRESH@1 ", "--check: gradients of step 3 differ by"},
        {"\nasynchronous no", "\nasynchronous yes", "--check: gradients of step 2 differ by"},
    };
    rp_test_outcome made = rpexec("--gpus 2 --schedule roundpipe --seq-len 16 --microbatches 3 "
                                  "--steps 4 --program-out @DIR@/p.txt");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/p.txt", 11));
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const char *at = strstr(text, damages[i].from);
        cr_assert(at != NULL, "%s", damages[i].from);
        write_with(text, at, strlen(damages[i].from), damages[i].to);
        rp_test_outcome run = rpexec("--program-in @DIR@/q.txt --seq-len 16 --check");
        cr_expect(eq(int, run.status, 1), "%s: %s", damages[i].to, run.output);
        cr_expect(strstr(run.messages, damages[i].message) != NULL, "%s: %s", damages[i].to,
                  run.messages);
    }
}

/* Another order of microbatches is no damage, but does not give the same bits. */
Test(exec_program_in, another_order_is_rounded_otherwise)
{
    rp_test_outcome made = rpexec("--gpus 2 --schedule gpipe --seq-len 16 --microbatches 3 "
                                  "--steps 4 --program-out @DIR@/p.txt");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/p.txt", 11));
    const char *first = strstr(text, "\n1F0 ") + 1;
    const char *second = strstr(first, "\n1F1 ") + 1;
    int length = (int)(strchr(second, '\n') + 1 - second);
    const char *swapped = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &swapped, "%.*s%.*s", length, second,
                         (int)(second - first), first);
    write_with(text, first, strlen(swapped), swapped);
    rp_test_outcome run = rpexec("--program-in @DIR@/q.txt --seq-len 16 --check");
    cr_expect(eq(int, run.status, 0), "%s", run.messages);
    cr_expect(strstr(run.output, "the same bits") == NULL, "%s", run.output);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static char *text_of(const rp_program *program, size_t *length_out)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, length_out);
    rp_program_write(program, stream);
    fclose(stream);
    return text;
}

/* Replaces a number in the text by a small number, or by another number of the text. */
static void mutate(rp_random *random, const char *text, size_t length, char *to, size_t size)
{
    size_t at = rp_random_between(random, 0, (uint32_t)length - 1);
    at += strcspn(text + at, "0123456789");
    at = at >= length ? strcspn(text, "0123456789") : at;
    size_t other = rp_random_between(random, 0, (uint32_t)length - 1);
    other += strcspn(text + other, "0123456789");
    char number[16];
    snprintf(number, sizeof number, "%u", rp_random_between(random, 0, 5));
    if (other < length && rp_random_between(random, 0, 1) == 0) {
        snprintf(number, sizeof number, "%.*s", (int)strspn(text + other, "0123456789"),
                 text + other);
    }
    snprintf(to, size, "%.*s%s%s", (int)at, text, number,
             text + at + strspn(text + at, "0123456789"));
}

/* Runs a mutant if it is accepted: no memory may be read or written out of bounds (sanitizers).
 * @return true if it was accepted */
static bool run_mutant(const char *text, const rp_model *config)
{
    rp_arena *arena = NULL;
    rp_program *program = NULL;
    rpexec_model model;
    rpexec_state state;
    rpexec_plan plan;
    rpexec_batch *batches = NULL;
    uint32_t sequences = 0;
    rpexec_options o = {.program_in = "mutant",
                        .run = {.accumulate = 1, .microbatch_size = 1, .round = RP_ROUND_ALL}};
    if (rp_program_read("mutant", text, strlen(text), &program) != RP_OK) {
        return false;
    }
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpexec_model_create(config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    o.run.gpus = program->gpu_count;
    o.schedule = rp_schedule_find(program->schedule);
    bool fits = rpexec_program_in_fit(&o, &model, arena, &program) == RP_OK &&
                rpexec_plan_create(program, &model, &(rpexec_plan_limits){.cap_bytes = 1 << 26},
                                   arena, &plan, NULL) == RP_OK &&
                rpexec_program_in_check(&plan) == RP_OK;
    for (uint32_t m = 0; fits && m < program->microbatch_count; m++) {
        sequences += program->sequences[m];
    }
    if (fits && sequences < 64) {
        double losses[8];
        cr_assert(eq(int, rpexec_state_create(&model, arena, &state), RP_OK));
        rpexec_state_initialise(&state, 1, true);
        rp_test_batches(arena, &model, program->iteration_count, sequences, 1, &batches);
        rpexec_execution e = {.plan = &plan,
                              .state = &state,
                              .adam = rpexec_adam_defaults(),
                              .batches = batches,
                              .driver_type = &rpexec_host_driver,
                              .driver = {.watchdog_s = 5},
                              .fail_op = RP_MAX_OPS,
                              .losses = losses};
        (void)rpexec_execute(&e);
    }
    rp_program_destroy(program);
    rp_arena_destroy(arena);
    return fits;
}

static void check_mutants(const char *schedule, bool layer_grain, uint64_t seed)
{
    rp_random random = {seed};
    rp_arena *arena = NULL;
    rp_program *program = NULL;
    rpexec_model model;
    rp_costs costs;
    rp_model config = rp_test_decoder(4, false, false);
    rp_resolved work = rp_test_work(schedule, 2, 2, 2);
    work.recompute = RP_RECOMPUTE_WAIT;
    work.decided.layer_grain = layer_grain;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_work_costs(&model, 1, arena, &costs), RP_OK));
    cr_assert(eq(int, rpexec_work_program(&work, &model, &costs, &program, NULL), RP_OK));
    size_t length = 0;
    char *text = text_of(program, &length);
    char *mutant = NULL;
    char messages[4096];
    uint32_t accepted = 0;
    cr_assert(eq(int, rp_arena_alloc(arena, length + 64, 1, &mutant), RP_OK));
    for (int i = 0; i < 300; i++) {
        mutate(&random, text, length, mutant, length + 64);
        rp_log_capture_begin(messages, sizeof messages);
        accepted += run_mutant(mutant, &config) ? 1 : 0;
        rp_log_capture_end();
    }
    cr_expect(gt(u32, accepted, 0)); /* a number may have been replaced by itself */
    cr_expect(lt(u32, accepted, 200));
    free(text);
    rp_program_destroy(program);
    rp_arena_destroy(arena);
}

Test(exec_program_in, mutants_of_roundpipe_do_no_harm)
{
    check_mutants("roundpipe", false, 1);
    check_mutants("roundpipe", true, 3);
}

Test(exec_program_in, mutants_of_a_data_parallel_system_do_no_harm)
{
    check_mutants("zero-infinity", false, 5);
}

Test(exec_program_in, mutants_of_a_pipeline_do_no_harm)
{
    check_mutants("1f1b", false, 2);
    check_mutants("zbv", true, 4);
}
