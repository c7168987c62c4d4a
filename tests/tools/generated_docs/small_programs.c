/* Options and outputs of the programs beside rpsim, rpadvise, rpexec and rpsweep. */
#include "tests/tools/generated_docs/pages.h"

#include "sim/rpdiff/options.h"
#include "sim/rpimport/options.h"
#include "sim/rpplan/options.h"
#include "sim/rppredict/options.h"

static const docs_output of_rpdiff[] = {
#include "sim/rpdiff/output_rows.inc"
};
static const docs_output of_rpplan[] = {
#include "sim/rpplan/output_rows.inc"
};
static const docs_output of_rpimport[] = {
#include "sim/rpimport/output_rows.inc"
};
static const docs_output of_rppredict[] = {
#include "sim/rppredict/output_rows.inc"
};

void docs_write_rpdiff(FILE *stream)
{
    rp_options_markdown(&rpdiff_command_line, stream);
    WRITE_OUTPUTS(of_rpdiff, stream);
}

void docs_write_rpplan(FILE *stream)
{
    rp_options_markdown(&rpplan_command_line, stream);
    WRITE_OUTPUTS(of_rpplan, stream);
}

void docs_write_rpimport(FILE *stream)
{
    rp_options_markdown(&rpimport_command_line, stream);
    WRITE_OUTPUTS(of_rpimport, stream);
}

void docs_write_rppredict(FILE *stream)
{
    rp_options_markdown(&rppredict_command_line, stream);
    WRITE_OUTPUTS(of_rppredict, stream);
}
