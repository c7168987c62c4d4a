/* rpexec as a user meets it: bad command lines (tests/bad/rpexec.tsv), artefacts, --list. */
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
