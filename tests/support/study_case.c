#include "tests/support/study_case.h"

#include "sim/rpsim/options_internal.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

rp_status rp_test_study_of(int argc, char **argv, rp_arena *arena, rpsim_study *study_out)
{
    rpsim_options *options = NULL; /* the study borrows the setup of its options */
    *study_out = (rpsim_study){.arena = arena};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *options, &options));
    RP_TRY(rpsim_options_parse(argc, argv, arena, options, NULL));
    return rpsim_study_prepare(&options->setup, arena, study_out, NULL);
}

void rp_test_study(const char *line, rpsim_study *study)
{
    char *argv[40] = {"rpsim"};
    int argc = 1;
    rp_arena *arena = rp_test_tool_arena();
    const char *copy = NULL;
    cr_assert(eq(int, rp_arena_copy_text(arena, line, strlen(line), &copy), RP_OK));
    char *rest = NULL;
    for (char *word = strtok_r((char *)(uintptr_t)copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    cr_assert(eq(int, rp_test_study_of(argc, argv, arena, study), RP_OK), "%s", line);
}

rp_test_run rp_test_run_row(const rpsim_row *row)
{
    rp_test_run run = {0};
    cr_assert(eq(int, rpsim_hardware_lower(&row->run, row->platform, &run.program, NULL), RP_OK),
              "%s", row->schedule_name);
    cr_assert(eq(int,
                 rpsim_hardware_inputs(run.program, row->run.costs, row->run.model, row->platform,
                                       row->run.decided.seq_len, rp_test_tool_arena(), &run.costs,
                                       &run.machine, NULL),
                 RP_OK));
    cr_assert(eq(int,
                 rpsim_hardware_run(run.program, &run.costs, &run.machine, &run.timeline, NULL),
                 RP_OK));
    return run;
}

rp_test_run rp_test_run_line(const char *line)
{
    rpsim_study study;
    rp_test_study(line, &study);
    rp_test_run run = rp_test_run_row(&study.rows[0]);
    rpsim_study_fini(&study);
    return run;
}

void rp_test_run_fini(rp_test_run *run)
{
    rp_timeline_destroy(run->timeline);
    rp_program_destroy(run->program);
}

double rp_test_row_number(const char *line, const char *key)
{
    rp_test_outcome outcome = rp_test_rpsim_after("--intervals off --format json ", line);
    cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    double value = rp_test_json_number(json_array_get(rows, 0), key);
    json_decref(rows);
    return value;
}

double rp_test_queue_bytes(const rp_program *p, rp_queue_kind kind)
{
    double sum = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            sum += p->queues[q].kind == kind ? (double)p->op_bytes[i] : 0;
        }
    }
    return sum;
}

static uint32_t gpu_of_stage(const rp_program *p, uint32_t stage)
{
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == RP_OP_FORWARD && p->ops[i].stage == stage) {
            return p->queues[rp_program_queue_of(p, i)].gpu;
        }
    }
    return UINT32_MAX;
}

bool rp_test_ends_meet(const rp_program *p)
{
    return gpu_of_stage(p, p->forward_chain[0]) ==
           gpu_of_stage(p, p->forward_chain[p->forward_count - 1]);
}

double rp_test_lasting_bytes(const rp_program *p, rp_buffer_kind kind)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const rp_buffer *buffer = &p->buffers[i];
        const rp_queue *from = &p->queues[rp_program_queue_of(p, buffer->alloc_op)];
        bool lasts = from->kind == RP_QUEUE_COMPUTE && buffer->alloc_op == from->op_begin &&
                     buffer->free_op + 1 == from->op_end;
        sum += buffer->kind == kind && lasts ? (double)buffer->bytes : 0;
    }
    return sum;
}
