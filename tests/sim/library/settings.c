/* Settings of the library have the limits and rules of rpsim's options, but their values are not
 * parsed again. */
#include "common/store/store.h"
#include "sim/library/rpsim.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(settings, .timeout = 120);

static void expect_freed(void)
{
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}

static rp_input *load(rp_kind kind, const char *name)
{
    rp_input *input = NULL;
    cr_assert(eq(int, rp_input_load(kind, name, &input), RP_CODE_OK), "%s", rp_last_error());
    return input;
}

static rp_simulation *simulate(const rp_settings *settings)
{
    rp_simulation *simulation = NULL;
    cr_assert(eq(int, rp_simulation_prepare(settings, &simulation), RP_CODE_OK), "%s",
              rp_last_error());
    cr_assert(eq(int, rp_simulation_run(simulation), RP_CODE_OK), "%s", rp_last_error());
    return simulation;
}

static void expect_refused(rp_code code, const char *needle)
{
    cr_expect(eq(int, code, RP_CODE_BAD_INPUT), "%s", needle);
    cr_expect(strstr(rp_last_error(), needle) != NULL, "no '%s' in: %s", needle, rp_last_error());
    cr_expect(strchr(rp_last_error(), '\n') == NULL, "%s", rp_last_error());
}

/* Numbers have the limits and messages of the options with the same names. */
Test(settings, numbers_beyond_their_limits_are_refused_in_the_words_of_rpsim)
{
    static const struct {
        size_t offset;
        uint32_t number;
        const char *words;
    } cases[] = {
        {offsetof(rp_settings, gpus), 100000,
         "--gpus: '100000' is not valid; valid values are integers from 1 to "},
        {offsetof(rp_settings, nodes), 1025,
         "--nodes: '1025' is not valid; valid values are integers from 1 to 1024"},
        {offsetof(rp_settings, microbatches), 4000000000,
         "--microbatches: '4000000000' is not valid"},
        {offsetof(rp_settings, lora_rank), 65537, "--lora-rank: '65537' is not valid"},
        {offsetof(rp_settings, intervals), 10001,
         "--intervals: '10001' is not valid; valid values are off, and counts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_simulation *simulation = NULL;
        rp_settings s = RP_SETTINGS_INIT;
        s.schedule = "gpipe";
        memcpy((char *)&s + cases[i].offset, &cases[i].number, sizeof cases[i].number);
        expect_refused(rp_simulation_prepare(&s, &simulation), cases[i].words);
    }
    expect_freed();
}

/* At stage fidelity settings for hardware fidelity are refused, as are options. */
Test(settings, settings_that_contradict_each_other_are_refused)
{
    rp_simulation *simulation = NULL;
    rp_settings s = RP_SETTINGS_INIT;
    s.schedule = "gpipe";
    s.fidelity = "stage";
    s.grain = "stage";
    expect_refused(rp_simulation_prepare(&s, &simulation),
                   "--grain: valid only with --fidelity hardware");
    s.grain = NULL;
    s.intervals = 3;
    expect_refused(rp_simulation_prepare(&s, &simulation),
                   "--intervals: valid only with --fidelity hardware");
    expect_freed();
}

/* A path is a value, not an option's list. */
Test(settings, a_model_may_have_a_comma_in_its_path)
{
    char path[] = "/tmp/library_XXXXXX,b.yaml";
    int file = mkstemps(path, (int)strlen(",b.yaml"));
    cr_assert(file >= 0);
    static const char *const text =
        "name: commas\nlayers: 8\nhidden: 256\nheads: 4\nkv_heads: 4\nhead_dim: 64\n"
        "intermediate: 512\nvocab: 1000\nsource: a test\nexperts: 1\nactive_experts: 1\n"
        "max_positions: 4096\nrope_theta: 10000\nrope_scaling: none\nnorm_eps: 1e-6\ntied_head: "
        "false\nqk_norm: false\n"
        "attention_bias: false\nexpert_bias: false\n";
    cr_assert(eq(sz, (size_t)write(file, text, strlen(text)), strlen(text)));
    (void)close(file);
    rp_input *model = load(RP_KIND_MODEL, path);
    (void)unlink(path);
    rp_settings s = RP_SETTINGS_INIT;
    s.schedule = "gpipe";
    s.model = model;
    rp_simulation *simulation = simulate(&s);
    rp_result result = RP_RESULT_INIT;
    cr_assert(eq(int, rp_simulation_result(simulation, 0, &result), RP_CODE_OK));
    cr_expect(eq(str, (char *)(uintptr_t)result.model, "commas"));
    rp_simulation_free(simulation);
    rp_input_free(model);
    expect_freed();
}

/* A store has a command line of the settings, then of the options. */
Test(settings, a_store_has_settings_as_a_command)
{
    char path[] = "/tmp/library_XXXXXX.db";
    int file = mkstemps(path, (int)strlen(".db"));
    cr_assert(file >= 0);
    (void)close(file);
    (void)unlink(path);
    const char *const options[] = {"--db", path};
    rp_arena *arena = NULL;
    rp_store *store = NULL;
    rp_store_run *runs = NULL;
    uint32_t count = 0;
    char expected[256];
    rp_settings s = RP_SETTINGS_INIT;
    s.schedule = "gpipe";
    s.dtype = "bf16";
    s.gpus = 4;
    s.seed = 9;
    s.options = options;
    s.option_count = 2;
    rp_simulation_free(simulate(&s));
    (void)snprintf(expected, sizeof expected,
                   "rpsim --format json --schedule gpipe --dtype bf16 --gpus 4 --seed 9 "
                   "--intervals off --db %s",
                   path);
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_read_runs(store, 0, arena, &runs, &count), RP_OK));
    cr_assert(eq(u32, count, 1));
    cr_expect(eq(str, (char *)(uintptr_t)runs[0].command, expected));
    rp_store_close(store);
    rp_arena_destroy(arena);
    (void)unlink(path);
    expect_freed();
}
