#include "tests/support/platform_file.h"

#include "common/base/text.h"
#include "common/inputs/data.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static size_t key_length(const char *line)
{
    return strcspn(line, ":\n");
}

/* True if `lines` have a line with the key with which `line` begins. */
static bool has_key(const char *lines, const char *line)
{
    size_t length = key_length(line);
    for (const char *l = lines; *l != '\0'; l += strcspn(l, "\n") + (strchr(l, '\n') != NULL)) {
        if (key_length(l) == length && strncmp(l, line, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Appends the lines of `from`, except for lines with a key in `without` or with the value "-". */
static void append_lines(rp_text *text, const char *from, const char *without)
{
    for (const char *line = from; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool dropped = length >= 3 && strncmp(line + length - 3, ": -", 3) == 0;
        if (!dropped && !has_key(without, line)) {
            cr_assert(eq(int, rp_text_append(text, line, length), RP_OK));
            cr_assert(eq(int, rp_text_append(text, "\n", 1), RP_OK));
        }
        line += length + (line[length] == '\n' ? 1 : 0);
    }
}

const char *rp_test_platform_file(const char *base, const char *name, const char *lines)
{
    const char *source = NULL;
    const char *path = NULL;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_data_path(&rp_data_platforms, base, arena, &source), RP_OK));
    cr_assert(
        eq(int, rp_arena_print(arena, &path, "%s/%s.yaml", rp_test_tool_folder(), name), RP_OK));
    rp_text text = {0};
    append_lines(&text, rp_test_tool_read(source), lines);
    append_lines(&text, lines, "");
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    cr_assert(eq(sz, fwrite(text.bytes, 1, text.length, file), text.length));
    cr_assert(eq(int, fclose(file), 0));
    rp_text_fini(&text);
    return path;
}

double rp_test_training_flop(const rp_model *model, double tokens, double seq_len)
{
    double d = model->hidden;
    double qkvo = d * ((double)model->heads + 2.0 * model->kv_heads) * model->head_dim +
                  (double)model->heads * model->head_dim * d;
    double mlp = 3 * d * model->intermediate * model->active_experts;
    double passes = model->lora_rank != 0 ? 2 : 3;
    double flop = passes * 2 * d * model->vocab * tokens;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        double w = layer % 2 == 0 ? model->sliding_window : 0;
        double pairs = w > 0 && w < seq_len ? seq_len * w - w * w / 2 : seq_len * seq_len / 2;
        double attention = 4.0 * model->heads * model->head_dim * pairs / seq_len;
        flop += tokens * (passes * 2 * (qkvo + mlp) + 3 * attention);
    }
    return flop;
}
