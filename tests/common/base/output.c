/* Outputs under signals; tests/checks/test_interrupts.py sends them to programs. */
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(output, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 30);

static int files_in(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    cr_assert(ne(ptr, entries, NULL));
    for (const struct dirent *e = readdir(entries); e != NULL; e = readdir(entries)) {
        count += e->d_name[0] != '.' || strstr(e->d_name, ".tmp") != NULL;
    }
    (void)closedir(entries);
    return count;
}

/* A child opens a file before or after a handler has removed open files. */
static void check(bool before)
{
    char path[512];
    snprintf(path, sizeof path, "%s/file", rp_test_tool_folder());
    pid_t child = fork();
    if (child == 0) {
        rp_output output;
        if (!before) {
            rp_output_remove_temporaries();
        }
        rp_status status = rp_output_open(path, &output);
        if (before) {
            rp_output_remove_temporaries();
        }
        _exit(status);
    }
    int state = 1;
    cr_assert(child > 0);
    cr_assert(eq(int, waitpid(child, &state, 0), (int)child));
    cr_expect(eq(int, state, 0), "%d", state);
    cr_expect(eq(int, files_in(rp_test_tool_folder()), 0), "before %d", before);
}

/* A signal may come while threads are about to open files. */
Test(output, a_signal_leaves_none_that_is_opened_before_or_after_its_handler)
{
    check(true);
    check(false);
}
