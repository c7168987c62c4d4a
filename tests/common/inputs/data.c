/* The data in traces/, their loaders, and refusals. */
#include "common/inputs/data.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/formats/csv.h"
#include "common/inputs/costs.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/model.h"
#include "common/inputs/partition.h"
#include "common/inputs/platform.h"
#include "common/inputs/published.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUBLISHED RP_SOURCE_ROOT "/paper-figures/published/"

static rp_arena *arena;

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(data, .init = begin, .fini = end);

static bool contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static rp_csv read_table(const char *path, char separator)
{
    rp_text text = {0};
    rp_csv table;
    cr_assert(eq(int, rp_text_read_file(path, RP_CSV_MAX_BYTES, &text), RP_OK));
    cr_assert(
        eq(int, rp_csv_parse(path, text.bytes, text.length, separator, arena, &table), RP_OK));
    rp_text_fini(&text);
    return table;
}

static const char *cell(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    return rp_csv_cell(table, row, column);
}

/* Parameter counts of the design's section 4.2, computed there from config.json. */
typedef struct counts {
    const char *name;
    uint64_t attention, mlp, norms, layer, embedding, total;
} counts;

static const counts count_rows[] = {
    {"qwen3-0.6b", 6291456, 9437184, 2304, 15730944, 155582464, 596049920},
    {"qwen3-8b", 41943040, 150994944, 8448, 192946432, 622329856, 8190735360},
    {"qwen3-1.7b", 12582912, 37748736, 4352, 50336000, 311164928, 1720574976},
    {"llama3.1-8b", 41943040, 176160768, 8192, 218112000, 525336576, 8030261248},
    {"llama3.1-70b", 150994944, 704643072, 16384, 855654400, 1050673152, 70553706496},
    {"gpt-oss-20b", 26550144, 796631072, 5760, 823186976, 579133440, 20914757184},
    {"qwen3-32b", 94371840, 393216000, 10496, 487598336, 777912320, 32762123264},
    {"qwen3-235b", 71303168, 2416443392, 8448, 2487755008, 622329856, 235093634560},
};

Test(data, models_have_the_published_parameters)
{
    for (size_t i = 0; i < sizeof count_rows / sizeof *count_rows; i++) {
        const counts *row = &count_rows[i];
        rp_model model;
        cr_assert(eq(int, rp_model_load(row->name, arena, &model), RP_OK));
        cr_expect(eq(u64, model.attention_parameters, row->attention), "%s", row->name);
        cr_expect(eq(u64, model.mlp_parameters, row->mlp), "%s", row->name);
        cr_expect(eq(u64, model.norm_parameters, row->norms), "%s", row->name);
        cr_expect(eq(u64, model.layer_parameters, row->layer), "%s", row->name);
        cr_expect(eq(u64, model.embedding_parameters, row->embedding), "%s", row->name);
        cr_expect(eq(u64, model.total_parameters, row->total), "%s", row->name);
    }
}

/* Same table: 22.19B and, without the input table, 3.61B. */
Test(data, active_parameters)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load("qwen3-235b", arena, &model), RP_OK));
    cr_expect(eq(u64, (model.active_parameters + 5000000) / 10000000, 2219));
    cr_assert(eq(int, rp_model_load("gpt-oss-20b", arena, &model), RP_OK));
    uint64_t counted = model.active_parameters - model.embedding_parameters;
    cr_expect(eq(u64, (counted + 5000000) / 10000000, 361));
    cr_assert(eq(int, rp_model_load("llama3.1-8b", arena, &model), RP_OK));
    cr_expect(eq(u64, model.active_parameters, model.total_parameters));
}

static uint32_t whole(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column;
    uint64_t value;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    cr_assert(eq(int, rp_csv_u64(table, row, column, 0, UINT32_MAX, &value), RP_OK));
    return (uint32_t)value;
}

Test(data, models_equal_the_published_table)
{
    rp_csv table = read_table(PUBLISHED "models.csv", ',');
    cr_assert(eq(u32, table.rows, 5));
    for (uint32_t row = 0; row < table.rows; row++) {
        rp_model model;
        cr_assert(eq(int, rp_model_load(cell(&table, row, "model"), arena, &model), RP_OK));
        cr_expect(eq(u32, model.layers, whole(&table, row, "layers")));
        cr_expect(eq(u32, model.hidden, whole(&table, row, "hidden")));
        cr_expect(eq(u32, model.heads, whole(&table, row, "heads")));
        cr_expect(eq(u32, model.kv_heads, whole(&table, row, "kv_heads")));
        cr_expect(eq(u32, model.intermediate, whole(&table, row, "intermediate")));
        cr_expect(eq(u32, model.active_experts, whole(&table, row, "active_experts")));
        cr_expect(eq(u32, model.experts, whole(&table, row, "experts")));
        cr_expect(eq(u32, model.vocab, whole(&table, row, "vocab")));
    }
}

/* Exact conversion: decimal digits to picoseconds without floating point. */
static int64_t exact_ps(const char *ms)
{
    int64_t ps = 0;
    int decimals = -1;
    for (const char *c = ms; *c; c++) {
        if (*c == '.') {
            decimals = 0;
            continue;
        }
        ps = ps * 10 + (*c - '0');
        decimals += decimals >= 0;
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 9; i++) {
        ps *= 10;
    }
    return ps;
}

static void check_costs(const rp_csv *table, uint32_t row)
{
    const char *name;
    rp_costs costs;
    cr_assert(
        eq(int, rp_arena_print(arena, &name, "%s@rtx4090", cell(table, row, "model")), RP_OK));
    cr_assert(eq(int, rp_costs_load(name, arena, &costs), RP_OK));
    cr_expect(eq(str, (char *)costs.name, (char *)name));
    cr_assert(eq(u32, costs.layers, whole(table, row, "layers")));
    for (uint32_t i = 0; i < costs.layers; i++) {
        cr_assert(eq(i64, costs.fwd_ps[i], exact_ps(cell(table, row, "fwd_ms"))));
        cr_assert(eq(i64, costs.bwd_ps[i], exact_ps(cell(table, row, "bwd_ms"))));
        cr_assert(eq(i64, costs.bwd_input_ps[i], exact_ps(cell(table, row, "bwd_ms")) / 2));
    }
    cr_expect(eq(i64, costs.head_fwd_ps, exact_ps(cell(table, row, "lmhead_fwd_ms"))));
    cr_expect(eq(i64, costs.head_bwd_ps, exact_ps(cell(table, row, "lmhead_bwd_ms"))));
    cr_expect(eq(i64, costs.hop_ps, exact_ps(cell(table, row, "hop_ms"))));
    cr_expect(eq(u32, costs.microbatch_size, whole(table, row, "microbatch_seqs")));
    cr_expect(eq(u32, costs.seq_len, whole(table, row, "seq_len")));
}

Test(data, costs_equal_the_published_table_exactly)
{
    rp_csv table = read_table(PUBLISHED "layer_times_4090.csv", ',');
    cr_assert(eq(u32, table.rows, 5));
    for (uint32_t row = 0; row < table.rows; row++) {
        check_costs(&table, row);
    }
}

Test(data, costs_take_lists_and_input_parts)
{
    static const char text[] = "name: c\nlayers: 3\nfwd_ms: [1, 0, 2.5]\nbwd_ms: 4\n"
                               "bwd_input_ms: [1, 4, 0]\nhead_fwd_ms: 0\nhead_bwd_ms: 0\n"
                               "hop_ms: 1e-3\nmicrobatch_size: 1\nseq_len: 1\n";
    rp_costs costs;
    cr_assert(eq(int, rp_costs_parse("c", text, sizeof text - 1, arena, &costs), RP_OK));
    cr_expect(eq(i64, costs.fwd_ps[2], 5 * RP_PS_PER_MS / 2));
    cr_expect(eq(i64, costs.bwd_ps[2], 4 * RP_PS_PER_MS));
    cr_expect(eq(i64, costs.bwd_input_ps[0], RP_PS_PER_MS));
    cr_expect(eq(i64, costs.bwd_input_ps[1], 4 * RP_PS_PER_MS));
    cr_expect(eq(i64, costs.hop_ps, RP_PS_PER_MS / 1000));
    cr_expect(eq(str, (char *)costs.source, ""));
}

/* The design's table of datasheet values. */
Test(data, platforms)
{
    static const struct {
        const char *name, *gpu;
        uint32_t gpus;
        double fp16_acc, fp32_acc, memory, bandwidth, link, effective, peer;
    } rows[] = {
        {"rtx3090x8", "rtx3090", 8, 142, 71, 24, 936, 32, 0, 56.25},
        {"rtx3090x8-pcie3", "rtx3090", 8, 142, 71, 24, 936, 16, 0, 0},
        {"rtx4090x8", "rtx4090", 8, 330.3, 165.2, 24564 / 1024.0, 1008, 32, 20.97, 0},
        {"rtx4090x16", "rtx4090", 16, 330.3, 165.2, 24564 / 1024.0, 1008, 32, 20.97, 0},
        {"rtx4090x64", "rtx4090", 64, 330.3, 165.2, 24564 / 1024.0, 1008, 32, 20.97, 0},
        {"rtx5090x8", "rtx5090", 8, 419, 209.5, 32607 / 1024.0, 1792, 64, 0, 0},
        {"a800x8", "a800", 8, 312, 312, 80, 2039, 32, 0, 200},
        {"h100x8", "h100", 8, 989.5, 989.5, 81559 / 1024.0, 3350, 64, 0, 450},
        {"h100x64", "h100", 64, 989.5, 989.5, 81559 / 1024.0, 3350, 64, 0, 450},
        {"h100x1024", "h100", 1024, 989.5, 989.5, 81559 / 1024.0, 3350, 64, 0, 450},
        {"h200", "h200", 1, 989.5, 989.5, 143771 / 1024.0, 4800, 64, 0, 450},
        {"h200x8", "h200", 8, 989.5, 989.5, 143771 / 1024.0, 4800, 64, 0, 450},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_platform platform;
        cr_assert(eq(int, rp_platform_load(rows[i].name, arena, &platform), RP_OK));
        cr_expect(eq(str, (char *)platform.gpu, (char *)rows[i].gpu));
        cr_expect(eq(u32, platform.gpus, rows[i].gpus));
        cr_expect(eq(dbl, platform.fp16_tflops_fp16_acc, rows[i].fp16_acc));
        cr_expect(eq(dbl, platform.fp16_tflops_fp32_acc, rows[i].fp32_acc));
        cr_expect(epsilon_eq(dbl, platform.memory_gb, rows[i].memory * 1.073741824, 1e-9));
        cr_expect(eq(dbl, platform.memory_gb_per_s, rows[i].bandwidth));
        cr_expect(eq(dbl, platform.link_gb_per_s, rows[i].link));
        cr_expect(eq(dbl, platform.link_effective_gb_per_s, rows[i].effective));
        cr_expect(eq(dbl, platform.peer_gb_per_s, rows[i].peer));
    }
}

Test(data, everything_listed_loads)
{
    const char **names;
    uint32_t count;
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    cr_assert(eq(int, rp_data_list("models", arena, &names, &count), RP_OK));
    cr_expect(ge(u32, count, 5));
    for (uint32_t i = 0; i < count; i++) {
        cr_expect(eq(int, rp_model_load(names[i], arena, &model), RP_OK), "%s", names[i]);
        cr_expect(i == 0 || strcmp(names[i - 1], names[i]) < 0);
    }
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    cr_expect(ge(u32, count, 6));
    for (uint32_t i = 0; i < count; i++) {
        cr_expect(eq(int, rp_platform_load(names[i], arena, &platform), RP_OK), "%s", names[i]);
        const double stated[] = {platform.host_memory_gb, platform.memory_gib,
                                 platform.reserved_gib, platform.process_gb};
        for (size_t k = 0; k < sizeof stated / sizeof stated[0]; k++) {
            cr_expect(gt(dbl, stated[k], 0), "%s: what its memory is, %zu", names[i], k);
        }
        cr_expect(eq(dbl, platform.usable_memory_gb, 0), "%s: one rule for all", names[i]);
    }
    cr_assert(eq(int, rp_data_list("costs", arena, &names, &count), RP_OK));
    cr_expect(ge(u32, count, 5));
    for (uint32_t i = 0; i < count; i++) {
        cr_expect(eq(int, rp_costs_load(names[i], arena, &costs), RP_OK), "%s", names[i]);
    }
}

static uint32_t sum(const uint32_t *layers, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += layers[i];
    }
    return total;
}

Test(data, published_partitions_round_trip)
{
    rp_csv table = read_table(PUBLISHED "partitions.csv", ';');
    cr_assert(eq(u32, table.rows, 25));
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *schedule = cell(&table, row, "schedule");
        const char *name = cell(&table, row, "model");
        const char *text;
        rp_partition partition;
        rp_model model;
        bool found;
        cr_assert(
            eq(int, rp_partition_published(schedule, name, arena, &partition, &found), RP_OK));
        cr_assert(found);
        cr_assert(eq(int, rp_partition_text(&partition, arena, &text), RP_OK));
        cr_expect(eq(str, (char *)text, (char *)cell(&table, row, "layers_per_stage")));
        cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK));
        cr_expect(eq(u32,
                     sum(partition.forward_layers, partition.forward_count) +
                         (partition.backward_count ? partition.backward_layers[0] : 0),
                     model.layers));
        cr_expect(partition.backward_count == 0 ||
                  sum(partition.backward_layers, partition.backward_count) == model.layers);
    }
}

Test(data, unlisted_partition_is_not_found)
{
    rp_partition partition;
    bool found = true;
    cr_expect(eq(int, rp_partition_published("gpipe", "none", arena, &partition, &found), RP_OK));
    cr_expect(not(found));
}

Test(data, unknown_names_list_the_known)
{
    char log[4096];
    rp_model model;
    rp_costs costs;
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_model_load("qwen3-1.7", arena, &model), RP_INPUT));
    cr_expect(contains(log, "--model: unknown model 'qwen3-1.7', did you mean 'qwen3-1.7b'?; "
                            "valid values are gpt-oss-20b, gpt-oss-20b-lora, "),
              "%s", log);
    cr_expect(contains(log, ", or the path of a file NAME.yaml, a config.json or its folder\n"),
              "%s", log);
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_costs_load("x@h200", arena, &costs), RP_INPUT));
    cr_expect(contains(log, "--costs: unknown cost table 'x@h200'; valid values are "), "%s", log);
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_model_load("./none.yaml", arena, &model), RP_INPUT));
    cr_expect(contains(log, "./none.yaml: cannot be read: "), "%s", log);
    rp_log_capture_end();
}

Test(data, missing_folders_are_named)
{
    char log[1024];
    rp_model model;
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces:/nowhere", 1);
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_OK), "the first has it");
    cr_expect(eq(int, rp_model_load("none", arena, &model), RP_INPUT));
    cr_expect(contains(log, "RP_TRACES: '/nowhere' is no folder; valid values are "), "%s", log);
    unsetenv("RP_TRACES");
    setenv("RP_DATA", "/nowhere", 1);
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_INPUT));
    cr_expect(contains(log, "/nowhere/traces/models: cannot be read: "), "%s", log);
    rp_log_capture_end();
}

static const char *write_model(const char *folder, const char *name, const char *source)
{
    const char *path = NULL;
    cr_assert(eq(int, rp_arena_print(arena, &path, "%s/models", folder), RP_OK));
    (void)mkdir(folder, 0700);
    (void)mkdir(path, 0700);
    cr_assert(eq(int, rp_arena_print(arena, &path, "%s/models/%s.yaml", folder, name), RP_OK));
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    (void)fprintf(file,
                  "name: %s\nsource: %s\nlayers: 1\nhidden: 8\nheads: 2\nkv_heads: 2\n"
                  "head_dim: 4\nintermediate: 8\nexperts: 1\nactive_experts: 1\nvocab: 16\n"
                  "max_positions: 16\nrope_theta: 10000\nnorm_eps: 0.00001\ntied_head: false\n"
                  "qk_norm: false\nattention_bias: false\nexpert_bias: false\n"
                  "rope_scaling: none\n",
                  name, source);
    cr_assert(eq(int, fclose(file), 0));
    return path;
}

static uint32_t count_name(const char *const *names, uint32_t count, const char *name)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        found += strcmp(names[i], name) == 0 ? 1 : 0;
    }
    return found;
}

/* Two folders over the shipped data: the first folder with a name wins, each name is listed once,
 * and other names come from the shipped data. */
Test(data, folders_lie_over_the_shipped_ones)
{
    char work[] = "/tmp/rp-data-XXXXXX";
    const char *over = NULL;
    const char *under = NULL;
    const char *list = NULL;
    cr_assert(mkdtemp(work) != NULL);
    cr_assert(eq(int, rp_arena_print(arena, &over, "%s/over", work), RP_OK));
    cr_assert(eq(int, rp_arena_print(arena, &under, "%s/under", work), RP_OK));
    const char *files[] = {write_model(over, "own", "first"), write_model(under, "own", "second"),
                           write_model(under, "tiny", "third")};
    cr_assert(eq(int, rp_arena_print(arena, &list, ":%s::%s:", over, under), RP_OK));
    setenv("RP_TRACES", list, 1);
    unsetenv("RP_DATA");

    rp_model model;
    cr_expect(eq(int, rp_model_load("own", arena, &model), RP_OK));
    cr_expect(eq(u32, model.hidden, 8));
    const char *path = NULL;
    bool found = false;
    cr_expect(eq(int, rp_data_find(&rp_data_models, "own", arena, &path, &found), RP_OK));
    cr_expect(eq(str, (char *)(uintptr_t)path, (char *)(uintptr_t)files[0]));
    cr_expect(eq(int, rp_data_find(&rp_data_models, "tiny", arena, &path, &found), RP_OK));
    cr_expect(eq(str, (char *)(uintptr_t)path, (char *)(uintptr_t)files[2]));
    cr_expect(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_OK), "as shipped");
    cr_expect(eq(int, rp_data_file("configs/paper.csv", arena, &path, &found), RP_OK));
    cr_expect(found && strncmp(path, work, strlen(work)) != 0, "%s", path);
    cr_expect(eq(int, rp_data_find(&rp_data_models, "none", arena, &path, &found), RP_OK));
    cr_expect(eq(int, found, 0));

    const char **names = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_data_list("models", arena, &names, &count), RP_OK));
    cr_expect(eq(u32, count_name(names, count, "own"), 1));
    cr_expect(eq(u32, count_name(names, count, "tiny"), 1));
    cr_expect(eq(u32, count_name(names, count, "qwen3-1.7b"), 1));
    for (uint32_t i = 1; i < count; i++) {
        cr_expect(strcmp(names[i - 1], names[i]) < 0, "%s", names[i]);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *folder = strdup(files[i]);
        (void)unlink(folder);
        (void)rmdir(dirname(folder));
        (void)rmdir(dirname(folder));
        free(folder);
    }
    cr_expect(eq(int, rmdir(work), 0));
}

Test(data, published_counts_round_half_up)
{
    static const struct {
        const char *text;
        uint64_t count;
        bool valid, matches;
    } rows[] = {
        {"1.7B", 1720574976, true, true},
        {"1.7B", 1650000000, true, true},
        {"1.7B", 1649999999, true, false},
        {"1.7B", 1750000000, true, false},
        {"0.44B", 440466432, true, true},
        {"15", 15, true, true},
        {"1,015", 1015, true, true},
        {"1015", 1015, true, true},
        {"1,15", 115, false, false},
        {"1015,000", 1015000, false, false},
        {"1.7", 2, false, false},
        {"B", 0, false, false},
        {"1.B", 1000000000, false, false},
        {"1.7BB", 0, false, false},
        {"-1", 1, false, false},
        {"99999999999999999999", 0, false, false},
        {"1.0000000001B", 0, false, false},
        {"", 0, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[64];
        bool valid;
        bool matches =
            rp_published_matches(rows[i].text, rows[i].count, expected, sizeof expected, &valid);
        cr_expect(valid == rows[i].valid && matches == rows[i].matches, "%s", rows[i].text);
    }
}

/* Bad inputs: tests/bad/data/expected.tsv; files with line 0 and no message must load. */

static rp_status load_text(const char *kind, const char *path, const rp_text *text)
{
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_partition partition;
    bool found;
    if (strcmp(kind, "model") == 0) {
        return rp_model_parse(path, text->bytes, text->length, arena, &model);
    }
    if (strcmp(kind, "platform") == 0) {
        return rp_platform_parse(path, text->bytes, text->length, arena, &platform);
    }
    if (strcmp(kind, "costs") == 0) {
        return rp_costs_parse(path, text->bytes, text->length, arena, &costs);
    }
    return rp_partition_find(path, text->bytes, text->length, "1f1b", "tiny", arena, &partition,
                             &found);
}

/* Each bad file from memory, in a block that ends with the file, and by its path. */
static rp_status load_path(const char *kind, const char *path)
{
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_text text = {0};
    if (strcmp(kind, "model") == 0) {
        return rp_model_load(path, arena, &model);
    }
    if (strcmp(kind, "platform") == 0) {
        return rp_platform_load(path, arena, &platform);
    }
    if (strcmp(kind, "costs") == 0) {
        return rp_costs_load(path, arena, &costs);
    }
    rp_status status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    status = status == RP_OK ? load_text(kind, path, &text) : status;
    rp_text_fini(&text);
    return status;
}

static rp_status load_exact(const char *kind, const char *path)
{
    rp_text file = {0};
    rp_text exact = {0};
    cr_assert(eq(int, rp_text_read_file(path, RP_CSV_MAX_BYTES, &file), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, file.length, 1, &exact.bytes), RP_OK));
    memcpy(exact.bytes, file.bytes, file.length);
    exact.length = file.length;
    rp_text_fini(&file);
    return load_text(kind, path, &exact);
}

static void check_refusal(const rp_csv *table, uint32_t row, const char *path, rp_status status,
                          const char *log)
{
    const char *line = cell(table, row, "line");
    const char *wanted = cell(table, row, "message contains");
    const char *prefix;
    if (strcmp(line, "0") == 0) {
        cr_expect(status == RP_OK && *log == '\0', "%s: %s", path, log);
        return;
    }
    cr_assert(eq(int, rp_arena_print(arena, &prefix, "%s:%s: ", path, line), RP_OK));
    cr_expect(eq(int, status, RP_INPUT), "%s", path);
    cr_expect(strncmp(log, prefix, strlen(prefix)) == 0, "%s begins with %s", log, prefix);
    cr_expect(contains(log, wanted), "%s contains %s", log, wanted);
    cr_expect(contains(log, "; valid values are "), "%s", log);
    const char *line_end = strchr(log, '\n');
    cr_expect(line_end && line_end[1] == '\0', "one line only: %s", log);
}

Test(data, bad_files_are_refused)
{
    rp_csv table = read_table(RP_TEST_ROOT "/bad/data/expected.tsv", '\t');
    cr_assert(ge(u32, table.rows, 45));
    for (uint32_t row = 0; row < table.rows; row++) {
        char log[4096];
        const char *path;
        const char *kind = cell(&table, row, "kind");
        cr_assert(
            eq(int,
               rp_arena_print(arena, &path, RP_TEST_ROOT "/bad/data/%s", cell(&table, row, "file")),
               RP_OK));
        rp_log_capture_begin(log, sizeof log);
        rp_status status = load_exact(kind, path);
        rp_log_capture_end();
        check_refusal(&table, row, path, status, log);
        rp_log_capture_begin(log, sizeof log);
        status = load_path(kind, path);
        rp_log_capture_end();
        check_refusal(&table, row, path, status, log);
    }
}

Test(data, registered_files_call_themselves_by_their_name)
{
    char log[1024];
    rp_log_capture_begin(log, sizeof log);
    cr_expect(eq(int, rp_data_check_name("a", "traces/models/a.yaml", "b"), RP_INPUT));
    rp_log_capture_end();
    cr_expect(contains(log, "the file calls itself 'b'"), "%s", log);
    cr_expect(eq(int, rp_data_check_name("a", "a.yaml", "a"), RP_OK));
    cr_expect(eq(int, rp_data_check_name("./a.yaml", "./a.yaml", "b"), RP_OK));
}
