/* docs_pages FOLDER: writes the pages of docs/generated into FOLDER. After a change of rows:
 * `cmake --build build/release --target generated_docs`; checks.generated_docs compares.
 * Exit status 1: a row lacks its meaning, or a store has a column without a row. */
#include "tests/tools/generated_docs/pages.h"

#define DOCS_END ".md" /* end of a page's name */

static int failures = 0;

void docs_fail(const char *what, const char *name)
{
    fprintf(stderr, "docs_pages: %s: %s\n", name, what);
    failures++;
}

static const struct {
    const char *name;
    const char *heading;
    const char *rows; /* sources of the page */
    void (*write)(FILE *stream);
} pages[] = {
    {"rpsim", "rpsim", "common/run/run_rows.inc, sim/rpsim, sim/study", docs_write_rpsim},
    {"rpadvise", "rpadvise", "sim/rpadvise", docs_write_rpadvise},
    {"rpexec", "rpexec", "exec/rpexec, exec/measure", docs_write_rpexec},
    {"rpdiff", "rpdiff", "sim/rpdiff", docs_write_rpdiff},
    {"rpsweep", "rpsweep", "experiments", docs_write_rpsweep},
    {"rpplan", "rpplan", "sim/rpplan", docs_write_rpplan},
    {"rpimport", "rpimport", "sim/rpimport", docs_write_rpimport},
    {"rppredict", "rppredict", "sim/rppredict", docs_write_rppredict},
    {"models", "Keys of models", "common/inputs/model_rows.inc", docs_write_models},
    {"platforms", "Keys of platforms", "common/inputs/platform_rows.inc", docs_write_platforms},
    {"stacks", "Keys of stacks", "common/inputs/stacks/stack_rows.inc", docs_write_stacks},
    {"costs", "Keys of cost tables", "common/inputs/costs_rows.inc", docs_write_costs},
    {"store", "Tables of a store", "common/store", docs_write_store},
    {"ops", "Ops, queues and buffers", "common/program", docs_write_ops},
    {"torch", "Actions of PyTorch's schedules", "common/torch/torch_csv.h", docs_write_torch},
    {"operators", "Operators", "exec/operators/operators.h", docs_write_operators},
};

static void write_index(FILE *stream)
{
    fputs("Options, keys, columns and operators of this version; [the command line](" DOCS_ROOT
          "common/cli/cli.md) has the rules that hold for all programs. The pages are written from "
          "the "
          "rows that the programs themselves read, and are not edited by hand. After a change of "
          "rows `cmake --build build/release --target generated_docs` writes them; "
          "`checks.generated_docs` compares.\n\n| page | made of the rows in |\n|---|---|\n",
          stream);
    for (size_t i = 0; i < COUNT(pages); i++) {
        fprintf(stream, "| [%s](%s" DOCS_END ") | %s |\n", pages[i].heading, pages[i].name,
                pages[i].rows);
    }
}

static void write_page(const char *folder, const char *name, const char *heading,
                       void (*write)(FILE *stream))
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s" DOCS_END, folder, name);
    FILE *stream = fopen(path, "w");
    if (stream == NULL) {
        docs_fail("cannot be written", path);
        return;
    }
    fprintf(stream, "# %s\n\n", heading);
    write(stream);
    if (ferror(stream) != 0 || fclose(stream) != 0) {
        docs_fail("cannot be written", path);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: docs_pages FOLDER\n", stderr);
        return 2;
    }
    write_page(argv[1], "README", "Generated reference", write_index);
    for (size_t i = 0; i < COUNT(pages); i++) {
        write_page(argv[1], pages[i].name, pages[i].heading, pages[i].write);
    }
    return failures > 0 ? 1 : 0;
}
