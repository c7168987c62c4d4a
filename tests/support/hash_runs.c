#include "tests/support/hash_runs.h"

#include "sim/run/case.h"
#include "tests/support/random_case.h"

#include <inttypes.h>
#include <stdlib.h>

#define RUNS 60u

rp_status rp_test_hash_runs(FILE *stream)
{
    rp_random random = {17};
    rp_random_case *c = malloc(sizeof *c);
    if (c == NULL) {
        return RP_NO_MEMORY;
    }
    rp_status status = RP_OK;
    fputs("run,schedule,ops,program_hash,timeline_hash\n", stream);
    for (uint32_t i = 0; i < RUNS && status == RP_OK; i++) {
        rp_random_case_draw(&random, 8000, c);
        rpsim_result result;
        status = rpsim_case_run(c->schedule, &c->config, &result, NULL);
        if (status == RP_OK) {
            fprintf(stream, "%u,%s,%u,%016" PRIx64 ",%016" PRIx64 "\n", i, c->schedule->name,
                    result.program->op_count, rp_program_hash(result.program),
                    rp_timeline_hash(result.timeline));
            rpsim_result_fini(&result);
        }
    }
    free(c);
    return status;
}
