/* Decisions of a run: each row's values, its default, and its help. */
#include "common/run/run.h"
#include "common/base/text.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/run/resolve.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

TestSuite(run, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

static const rp_run undecided = RP_RUN_INIT;

static uint64_t number_at(const rp_run *run, rp_option_member member)
{
    uint64_t number = 0; /* of 1, 4 or 8 bytes, little-endian as everywhere here */
    cr_assert(member.size == 1 || member.size == 4 || member.size == 8);
    memcpy(&number, (const char *)run + member.offset, member.size);
    return number;
}

static void expect_taken(const rp_option *row, const char *text, uint64_t number)
{
    rp_run run = undecided;
    rp_reason reason = {0};
    cr_expect(eq(int, rp_run_set(&run, row->name, text, rp_test_arena, &reason), RP_OK),
              "%s %s: %s", row->name, text, reason.text);
    if (row->to.size != 0) {
        cr_expect(eq(u64, number_at(&run, row->to), number), "%s %s", row->name, text);
    }
    if (row->given.size != 0) {
        cr_expect(eq(u64, number_at(&run, row->given), 1), "%s", row->name);
    }
}

static void expect_refused(const rp_option *row, const char *text)
{
    rp_run run = undecided;
    rp_reason reason = {0};
    rp_status status = rp_run_set(&run, row->name, text, rp_test_arena, &reason);
    cr_expect(eq(int, status, RP_USAGE), "%s %s", row->name, text);
    cr_expect(eq(int, reason.status, RP_USAGE), "%s %s", row->name, text);
    cr_expect(strstr(reason.text, "valid values are") != NULL, "%s: %s", row->name, reason.text);
    cr_expect(row->given.size == 0 || number_at(&run, row->given) == 0, "%s", row->name);
}

static void expect_count(const rp_option *row)
{
    char most[32];
    char beyond[32];
    (void)snprintf(most, sizeof most, "%.0f", row->most);
    (void)snprintf(beyond, sizeof beyond, "%.0f", row->most + 1);
    uint64_t unit = row->kind == RP_OPTION_MIB ? UINT64_C(1) << 20 : 1;
    expect_taken(row, "1", unit);
    expect_taken(row, "1k", (row->binary ? 1024 : 1000) * unit);
    expect_taken(row, most, (uint64_t)row->most * unit);
    expect_refused(row, "0");
    expect_refused(row, beyond);
    expect_refused(row, "two");
    if (row->all) {
        expect_taken(row, "all", 0);
    } else {
        expect_refused(row, "all");
    }
}

static void expect_choices(const rp_option *row, const char *words)
{
    uint32_t count = 0;
    words += words[0] == '|'; /* lists made by macros begin with it */
    for (const char *word = words; word != NULL && *word != '\0'; count++) {
        const char *text = NULL;
        size_t length = strcspn(word, "|");
        cr_assert(eq(int, rp_arena_copy_text(rp_test_arena, word, length, &text), RP_OK));
        expect_taken(row, text, count);
        word += length + (word[length] == '|');
    }
    expect_refused(row, "neither");
    expect_refused(row, "");
}

/* Texts of rows with their own rules. */
static void expect_own(const rp_option *row)
{
    static const struct {
        const char *key;
        const char *text;
        bool valid;
        uint32_t first; /* the member's first part */
    } cases[] = {
        {"recompute", "none", true, RP_RECOMPUTE_NONE},
        {"recompute", "early,wait", true, RP_RECOMPUTE_EARLY},
        {"recompute", "all", true, RP_RECOMPUTE_WAIT},
        {"recompute", "wait,wait", false, 0},
        {"recompute", "none,wait,early,none", false, 0},
        {"recompute", "late", false, 0},
        {"accumulation", "fp16", true, RP_ACCUMULATION_F16},
        {"accumulation", "fp32", true, RP_ACCUMULATION_F32},
        {"accumulation", "fp64", false, 0},
    };
    uint32_t found = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].key, row->name) != 0) {
            continue;
        }
        found++;
        if (!cases[i].valid) {
            expect_refused(row, cases[i].text);
            continue;
        }
        rp_run run = undecided;
        uint32_t first = 0;
        rp_status status = rp_run_set(&run, row->name, cases[i].text, rp_test_arena, NULL);
        memcpy(&first, (const char *)&run + row->to.offset, sizeof first);
        cr_expect(eq(int, status, RP_OK), "%s %s", row->name, cases[i].text);
        cr_expect(eq(u32, first, cases[i].first), "%s %s", row->name, cases[i].text);
    }
    cr_expect(gt(u32, found, 1), "no case for %s", row->name);
}

Test(run, every_row_takes_what_it_says)
{
    for (uint32_t i = 0; i < rp_run_row_count; i++) {
        const rp_option *row = &rp_run_rows[i];
        rp_run run = undecided;
        const char *text = NULL;
        switch (row->kind) {
        case RP_OPTION_FLAG:
            expect_taken(row, NULL, 1);
            break;
        case RP_OPTION_U32:
        case RP_OPTION_MIB:
            expect_count(row);
            break;
        case RP_OPTION_CHOICE:
            expect_choices(row, row->choices);
            expect_choices(row, row->aliases != NULL ? row->aliases : row->choices);
            break;
        case RP_OPTION_TEXT:
            cr_expect(eq(int, rp_run_set(&run, row->name, "1,2", rp_test_arena, NULL), RP_OK));
            memcpy(&text, (const char *)&run + row->to.offset, sizeof text);
            cr_expect(eq(str, (char *)(uintptr_t)text, "1,2"), "%s", row->name);
            break;
        case RP_OPTION_TAKE:
            expect_own(row);
            break;
        case RP_OPTION_U64:
        case RP_OPTION_REAL:
        case RP_OPTION_LIST:
            cr_expect(false, "%s is of a kind without a case here", row->name);
            break;
        }
    }
    cr_expect(eq(str, rp_test_messages, ""));
}

Test(run, keys_are_names_with_either_stroke)
{
    rp_run run = undecided;
    rp_reason reason = {0};
    cr_expect(rp_run_row("data_parallel") == rp_run_row("data-parallel"));
    cr_expect(eq(int, rp_run_set(&run, "data_parallel", "4", rp_test_arena, NULL), RP_OK));
    cr_expect(eq(u32, run.layout.data_parallel, 4));
    static const char *const unknown[] = {"", "data", "data parallel", "data-parallels", "--gpus"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        rp_status status = rp_run_set(&run, unknown[i], "1", rp_test_arena, &reason);
        cr_expect(rp_run_row(unknown[i]) == NULL, "'%s'", unknown[i]);
        cr_expect(eq(int, status, RP_USAGE), "'%s'", unknown[i]);
        cr_expect(strstr(reason.text, "no decision of a run has this name") != NULL);
    }
    cr_expect(eq(str, rp_test_messages, ""));
}

Test(run, what_decisions_say_together)
{
    rp_run run = undecided;
    cr_expect(not(rp_run_is_tuned(&run)));
    run.partition = "even";
    cr_expect(not(rp_run_is_tuned(&run)));
    run.partition = "tuned";
    cr_expect(rp_run_is_tuned(&run));
    cr_expect(eq(int, rp_run_set(&run, "bucket-mb", "3", rp_test_arena, NULL), RP_OK));
    cr_expect(eq(u64, run.layout.reduction_bucket, 3 << 20));
    cr_expect(eq(int, rp_run_set(&run, "piece_mb", "65536", rp_test_arena, NULL), RP_OK));
    cr_expect(eq(u64, run.piece_bytes, UINT64_C(1) << 36));
    cr_expect(not(run.reductions.each_given || run.reductions.dtype_given));
    cr_expect(eq(int, rp_run_set(&run, "reduce-each", "microbatch", rp_test_arena, NULL), RP_OK));
    cr_expect(eq(int, rp_run_set(&run, "reduce-dtype", "bf16", rp_test_arena, NULL), RP_OK));
    const rp_reductions reductions = run.reductions;
    cr_expect(reductions.each_given && reductions.each_microbatch && reductions.dtype_given);
    cr_expect(eq(int, reductions.dtype, RP_DTYPE_BF16));
}

/* ---- omitted decisions ----------------------------------------------------------------------- */

/* All of a resolved run except inputs; 1 and 0 are the same layout. */
static const char *text_of(const rp_resolved *r)
{
    const rp_layout *l = &r->decided.layout;
    const char *text = NULL;
    uint64_t piece_bytes =
        r->decided.piece_bytes != 0 ? r->decided.piece_bytes : UINT64_C(256) << 20;
    cr_assert(eq(
        int,
        rp_arena_print(
            rp_test_arena, &text,
            "stage %d, layers %u, gpus %u, layout %u %u %u %u %u zero %u bucket %llu "
            "axes %d collectives %d, seq_len %u %u, dtype %d, batch %u = %u x %u (%u) x %u, "
            "iterations %u, round %u %d, async %d, recompute %d %d, peers %u, pieces %llu, "
            "planned %d, reductions %d %d %d %d, boundary %llu, sets %d %u",
            r->stage, r->layers, r->gpus, rp_layout_tensor(l), rp_layout_data(l),
            rp_layout_sequence(l), rp_layout_expert(l), rp_layout_expert_tensor(l),
            rp_layout_zero(l), (unsigned long long)l->reduction_bucket, (int)l->axes,
            (int)l->collectives, r->decided.seq_len, r->sequence_slices, (int)r->decided.dtype,
            r->global_batch, r->decided.accumulate, r->decided.microbatches, r->last_microbatches,
            r->decided.microbatch_size, r->decided.iterations, r->decided.round,
            (int)r->decided.round_start, r->decided.asynchronous, (int)r->recompute,
            r->decided.layer_grain, r->peer_gpus, (unsigned long long)piece_bytes, r->planned,
            r->decided.reductions.each_given, r->decided.reductions.each_microbatch,
            r->decided.reductions.dtype_given, (int)r->decided.reductions.dtype,
            (unsigned long long)r->boundary_bytes, r->sets_constant, r->sets_gpus),
        RP_OK));
    return text;
}

/* Sets defaults as written in rp_run, which means nothing set. */
Test(run, usual_values_are_what_resolve_gives)
{
    rp_platform platform;
    rp_model model;
    rp_costs costs;
    uint32_t compared = 0;
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", rp_test_arena, &costs), RP_OK));
    const rp_run_inputs inputs = {
        .platform = &platform, .costs = &costs, .model = &model, .recorded_name = model.name};
    static const char *const schedules[] = {"roundpipe", "1f1b", "fsdp"};
    for (uint32_t i = 0; i < rp_run_row_count * 6; i++) {
        const rp_option *row = &rp_run_rows[i / 6];
        bool hardware = i % 2 == 1;
        if (row->usual == NULL || (strcmp(row->name, "fidelity") == 0 && !hardware)) {
            continue;
        }
        const rp_schedule_type *schedule = rp_schedule_find(schedules[i / 2 % 3]);
        rp_run omitted = undecided;
        rp_resolved without;
        rp_resolved with;
        omitted.hardware = hardware;
        rp_run given = omitted;
        cr_assert(eq(int, rp_run_set(&given, row->name, row->usual, rp_test_arena, NULL), RP_OK));
        cr_assert(eq(int,
                     rp_resolve(&omitted, &inputs, schedule, RP_RECOMPUTE_WAIT, &without, NULL),
                     RP_OK));
        cr_assert(
            eq(int, rp_resolve(&given, &inputs, schedule, RP_RECOMPUTE_WAIT, &with, NULL), RP_OK));
        cr_expect(eq(str, (char *)(uintptr_t)text_of(&with), (char *)(uintptr_t)text_of(&without)),
                  "%s %s", row->name, row->usual);
        /* The member has the same value, or none. */
        uint32_t number = number_at(&omitted, row->to);
        cr_expect(number == 0 || number == number_at(&given, row->to), "%s", row->name);
        compared++;
    }
    cr_expect(gt(u32, compared, 60));
}

/* ---- help ------------------------------------------------------------------------------------ */

static bool has_word(const char *text, size_t length, const char *word)
{
    size_t size = strlen(word);
    for (size_t i = 0; i + size <= length; i++) {
        bool begins = i == 0 || !isalnum((unsigned char)text[i - 1]);
        bool ends = i + size == length || !isalnum((unsigned char)text[i + size]);
        if (begins && ends && strncmp(text + i, word, size) == 0) {
            return true;
        }
    }
    return false;
}

/* The parentheses have the value itself, or "default" after the words on the value. */
static bool names_usual(const char *help, const char *usual)
{
    size_t value = 0; /* from here on the help is about it */
    for (size_t i = 0; help[i] != '\0'; i++) {
        if (strncmp(help + i, usual, strlen(usual)) == 0 && help[i + strlen(usual)] == ':') {
            value = i + 1;
        }
        size_t length = help[i] == '(' ? strcspn(help + i, ")") : 0;
        if (has_word(help + i, length, usual)) {
            return true;
        }
        if (has_word(help + i, length, "default")) {
            return value != 0 && memchr(help + value, '(', i - value) == NULL;
        }
    }
    return false;
}

Test(run, help_names_what_is_usual)
{
    cr_expect(names_usual("a thing (hardware; 12)", "12"));
    cr_expect(not(names_usual("a thing of 1 (hardware; 12)", "1")));
    cr_expect(names_usual("one: this; other: that (default)", "other"));
    cr_expect(not(names_usual("one: this; two: that (default)", "other")));
    uint32_t said = 0;
    for (uint32_t i = 0; i < rp_run_row_count; i++) {
        const rp_option *row = &rp_run_rows[i];
        if (row->usual != NULL) {
            cr_expect(names_usual(row->help, row->usual), "%s: %s", row->name, row->usual);
            said++;
        }
    }
    cr_expect(gt(u32, said, 8));
}
