/* rpadvise tries selective recompute where a stack has it. */
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(advise_selective, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 240);

static rp_test_outcome advise(const char *line)
{
    return rp_test_tool_run(RPADVISE_PATH, "rpadvise", line);
}

/* Nothing recomputed takes 97 GB, everything 47 at less speed; torchtitan's policy is between and
 * fits. Without a stack no software is known to have it. rpsim gives the same speed. */
Test(advise_selective, is_found)
{
    const char *line = "--model llama3.1-8b --platform h100x8 --seq-len 8192 --global-batch 64 "
                       "--schedule fsdp --gpu-memory 70 --budget 400 --format json";
    const char *notes = "@DIR@/e/README"
                        ".md";
    char with[512];
    snprintf(with, sizeof with, "%s --stack torch --export @DIR@/e", line);
    json_t *rows = json_loads(advise(with).output, 0, NULL);
    const json_t *best = json_array_get(rows, 0);
    const char *command = rp_test_json_text(best, "command");
    cr_assert(command != NULL && strncmp(command, "rpsim ", 6) == 0);
    cr_expect(strstr(command, " --recompute selective ") != NULL, "%s", command);
    json_t *again = rp_test_rpsim_rows("--intervals off --format json", command + 6);
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(again, 0), "tokens_per_s"),
                 rp_test_json_number(best, "tokens_per_s")));
    json_decref(again);
    json_decref(rows);
    const char *path = rp_test_tool_expand(notes, strlen(notes));
    cr_expect(strstr(rp_test_tool_read(path), "create_selective_checkpoint_contexts") != NULL);
    cr_expect(strstr(advise(line).output, "selective") == NULL);
}

/* Writes Megatron's stack with torchtitan's policy, which saves more than its own. */
static void write_stack(void)
{
    const char *file = "@DIR@/mine.yaml";
    const char *text = rp_test_tool_read(RP_SOURCE_ROOT "/traces/stacks/megatron.yaml");
    const char *key = strstr(text, "selective: attention\n");
    FILE *to = fopen(rp_test_tool_expand(file, strlen(file)), "w");
    cr_assert(key != NULL && to != NULL);
    fprintf(to, "%.*sselective: second-products\n%s", (int)(key - text), text,
            strchr(key, '\n') + 1);
    cr_assert(eq(int, fclose(to), 0));
}

/* Megatron-LM takes a granularity, without the numbers of layers that whole recompute has. */
Test(advise_selective, megatron_takes_it)
{
    const char *file = "@DIR@/m/megatron-lm.sh";
    write_stack();
    rp_test_outcome done =
        advise("--model llama3.1-8b --platform h100x8 --seq-len 8192 --global-batch 64 --schedule "
               "1f1b --stack @DIR@/mine.yaml --runnable megatron-lm --gpu-memory 50 --budget 400 "
               "--export @DIR@/m");
    cr_assert(eq(int, done.status, 0), "%s", done.messages);
    cr_assert(strstr(done.output, "--recompute selective") != NULL, "%s", done.output);
    const char *script = rp_test_tool_read(rp_test_tool_expand(file, strlen(file)));
    cr_expect(strstr(script, "--recompute-granularity selective") != NULL, "%s", script);
    cr_expect(strstr(script, "--recompute-num-layers") == NULL);
}
