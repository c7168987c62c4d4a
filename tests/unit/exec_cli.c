/* rpexec as a user meets it: bad command lines (tests/bad/rpexec.tsv), artefacts, --list. */
#include "common/schedule.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#define COMMANDS RP_TEST_ROOT "/bad/rpexec.tsv"

TestSuite(exec_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
}

/* ---- bad command lines ---- */

Test(exec_cli, bad_commands_are_refused)
{
    rp_test_refusals(COMMANDS, 5, run);
}

/* ---- --list ---- */

/* What the list says of a schedule is what happens. */
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
        if (!runs || i % 8 == 0) { /* tests/unit/exec_matrix.c runs them all */
            cr_expect(eq(int, run(command).status, runs ? 0 : 2), "%s", command);
        }
    }
    cr_expect(lt(u32, simulated, rp_schedule_count / 2));
}
