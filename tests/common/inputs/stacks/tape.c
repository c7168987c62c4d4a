/* Tapes of the stack torch against the tensors that PyTorch saves (tests/golden/tapes.csv), to the
 * byte; and other software's against the lists in its sources. */
#include "common/inputs/stacks/tape.h"
#include "common/formats/csv.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
}

TestSuite(tape, .init = begin, .fini = end);

static const char *cell(const rp_csv *table, uint32_t row, const char *column)
{
    uint32_t index = 0;
    cr_assert(eq(int, rp_csv_column(table, column, &index), RP_OK));
    return rp_csv_cell(table, row, index);
}

static uint32_t number(const rp_csv *table, uint32_t row, const char *column)
{
    return (uint32_t)strtoul(cell(table, row, column), NULL, 10);
}

/* @param linears as "q+v" */
static uint32_t bits_of(const char *linears)
{
    static const char *const names[] = {RP_LORA_LINEARS};
    uint32_t bits = 0;
    while (*linears != '\0') {
        size_t length = strcspn(linears, "+");
        for (uint32_t i = 0; i < RP_LORA_LINEAR_COUNT; i++) {
            bool same = strlen(names[i]) == length && strncmp(names[i], linears, length) == 0;
            bits |= same ? UINT32_C(1) << i : 0;
        }
        linears += length + (linears[length] == '+' ? 1 : 0);
    }
    return bits;
}

static rp_model model_of(const rp_csv *table, uint32_t row)
{
    rp_model m = {.layers = 1,
                  .vocab = 32000,
                  .hidden = number(table, row, "hidden"),
                  .heads = number(table, row, "heads"),
                  .kv_heads = number(table, row, "kv_heads"),
                  .head_dim = number(table, row, "head_dim"),
                  .intermediate = number(table, row, "intermediate"),
                  .experts = 1,
                  .active_experts = 1,
                  .qk_norm = strcmp(cell(table, row, "family"), "qwen3") == 0};
    rp_model_set_lora(&m, number(table, row, "rank"), bits_of(cell(table, row, "linears")));
    return m;
}

/* What the stack's rules say of the row. Recomputed whole, a layer keeps nothing but its input. */
static uint64_t ruled(const rp_csv *table, uint32_t row, const rp_stack *torch)
{
    rp_model model = model_of(table, row);
    rp_stack stack = *torch;
    const char *adapters = cell(table, row, "adapters");
    bool wide = strcmp(adapters, "fp32") == 0; /* copies under autocast, no masks */
    stack.adapter_saved_bytes = strcmp(adapters, "fp32+dropout") == 0 ? 3 : wide ? 2 : 0;
    rp_tape tape = rp_stack_tape(&stack, &model, RP_DTYPE_BF16);
    return strcmp(cell(table, row, "recompute"), "full") == 0 ? 0 : rp_tape_bytes(&tape);
}

Test(tape, eager_pytorch_to_the_byte)
{
    rp_text text = {0};
    rp_csv table;
    rp_stack torch;
    const char *path = RP_TEST_ROOT "/golden/tapes.csv";
    cr_assert(eq(int, rp_text_read_file(path, RP_CSV_MAX_BYTES, &text), RP_OK));
    const char *lines = strchr(text.bytes, '\n') + 1; /* the first names the versions */
    size_t length = text.length - (size_t)(lines - text.bytes);
    cr_assert(eq(int, rp_csv_parse(path, lines, length, ',', arena, &table), RP_OK));
    cr_assert(eq(int, rp_stack_load("torch", arena, &torch), RP_OK));
    cr_assert(gt(u32, table.rows, 100));
    for (uint32_t row = 0; row < table.rows; row++) {
        cr_expect(eq(u64, ruled(&table, row, &torch), number(&table, row, "bytes_per_token")),
                  "row %u: %s %s %s", row, cell(&table, row, "family"),
                  cell(&table, row, "linears"), cell(&table, row, "adapters"));
    }
    rp_text_fini(&text);
}

static uint64_t tape_of(const char *name, const rp_model *model)
{
    rp_stack stack;
    cr_assert(eq(int, rp_stack_load(name, arena, &stack), RP_OK));
    rp_tape tape = rp_stack_tape(&stack, model, RP_DTYPE_BF16);
    return rp_tape_bytes(&tape);
}

/* Transformer Engine: inputs and outputs of both norms, q, k, v, attention's output, gate and up,
 * their product. nanotron's value is a view of the product of q, k and v, all of which it keeps
 * beside the rotated queries and keys, and its MLP is eager. */
Test(tape, fused_kernels_keep_less)
{
    rp_model m = {.layers = 1,
                  .vocab = 32000,
                  .hidden = 4096,
                  .heads = 32,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .intermediate = 14336,
                  .experts = 1,
                  .active_experts = 1};
    uint64_t q = 4096;
    uint64_t k = 1024;
    uint64_t small = 4 * 32 + 2 * 4;
    cr_expect(
        eq(u64, tape_of("megatron", &m), 8 * 4096 + 2 * (q + 2 * k) + 2 * q + 6 * 14336 + small));
    cr_expect(eq(u64, tape_of("nanotron", &m),
                 8 * 4096 + 2 * (q + 2 * k) + 2 * (q + k) + 2 * q + 8 * 14336 + small));
}
