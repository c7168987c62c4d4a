#include "sim/rpsim/report/table_notes.h"

#include "sim/study/columns.h"

#include <inttypes.h>
#include <string.h>

static void write_tuned_note(const rpsim_row *row, FILE *stream)
{
    if (row->tune_evaluations == 0) {
        return;
    }
    fprintf(stream, "  %s tuned: %s", row->schedule_name, row->partition_text);
    if (row->run.schedule->rounds && row->run.decided.round < rp_resolved_microbatches(&row->run)) {
        fprintf(stream, " in rounds of %" PRIu32 "%s", row->run.decided.round,
                row->run.schedule->traits.overlapping_rounds            ? ""
                : row->run.decided.round_start == RP_ROUND_START_ROTATE ? ", rotating"
                                                                        : ", free first");
    }
    fprintf(stream, "; %s of %" PRIu64 " simulations\n",
            row->tune_exact ? "optimal, the best" : "the best", row->tune_evaluations);
}

/* Notes that the period was measured before a steady state. At stage fidelity synchronous
 * iterations are all equal, and need no note. */
static void write_period_note(const rpsim_row *row, FILE *stream)
{
    uint32_t iterations = row->run.decided.iterations;
    bool alike = !row->run.decided.asynchronous && row->run.stage;
    if (alike || iterations >= RP_STEADY_ITERATIONS) {
        return;
    }
    if (row->run.decided.asynchronous && iterations == 1) {
        fprintf(stream,
                "  %s: one asynchronous iteration has no period; --iterations 2 gives an "
                "estimate, %u a steady state\n",
                row->schedule_name, RP_STEADY_ITERATIONS);
    } else {
        fprintf(stream,
                "  %s: iteration and tokens/s are an estimate from %u iteration%s; "
                "--iterations %u gives a steady state\n",
                row->schedule_name, iterations, iterations == 1 ? "" : "s", RP_STEADY_ITERATIONS);
    }
}

/* Writes need and limit at the worst moment on a single line. */
static void write_need(const rpsim_study *study, const rpsim_row *row, const rp_page *page)
{
    char text[RPSIM_OOM_REASON_SIZE];
    char name[96];
    bool all = study->setup->all_schedules || study->setup->run.recompute_count > 1;
    (void)snprintf(name, sizeof name, "  %s%s%s ", row->schedule_name, all ? ", recompute " : "",
                   all ? rp_recompute_text(row->run.recompute) : "");
    uint32_t width = (uint32_t)strlen(name);
    rpsim_memory_say_need(&row->memory.need, page->columns > width ? page->columns - width : 0,
                          text, sizeof text);
    fprintf(page->stream, "%s%s\n", name, text);
}

void rpsim_host_note_write(const rpsim_row *row, FILE *stream)
{
    if (!row->memory.known) {
        return;
    }
    if (row->memory.host_bytes == 0) {
        fprintf(stream,
                "  %s does not say its host memory (host_memory_gb): nobody knows whether what "
                "lies there fits\n",
                row->platform_name);
        return;
    }
    fprintf(stream, "  memory of the host: %.1f GB", 1e-9 * (double)row->memory.host_bytes);
    if (row->memory.host_servers > 1) {
        fprintf(stream, " of %u servers together", row->memory.host_servers);
    }
    fputc('\n', stream);
}

void rpsim_measured_note_write(const rpsim_study *study, uint32_t begin, uint32_t end, FILE *stream)
{
    rpsim_measured measured = {0};
    char text[RPSIM_MEASURED_TEXT];
    for (uint32_t i = begin; i < end; i++) {
        rpsim_measured_add(&measured, &study->rows[i]);
    }
    if (rpsim_software_text(&measured, text)[0] != '\0') {
        fprintf(stream, "  %s\n", text);
    }
    if (rpsim_measured_text(&measured, text)[0] != '\0') {
        fprintf(stream, "  %s\n", text);
    }
}

void rpsim_row_notes_write(const rpsim_study *study, const rpsim_row *row, const rp_page *page)
{
    if (row->memory.known && !row->memory.fits) {
        write_need(study, row, page);
    }
    write_tuned_note(row, page->stream);
    write_period_note(row, page->stream);
}

/* Explanations of columns, found by the first words of their headings; each is printed once. */
static const struct {
    const char *heading;
    const char *text;
    bool of_iterations; /* the sentence ends with the number of iterations */
} legend[] = {
    {"tokens/s", "tokens/s: of iteration, the steady-state period; * most of what fits.", false},
    {"peak", "peak: FLOP that GPUs execute over the peak of this type.", false},
    {"p10", "p10 - p90: over the ranges of the inputs.", false},
    {"makespan", "makespan, bubble and its parts, these in % of GPU time: of ", true},
    {"hops",
     "hops: time by which hops delay ops; at hardware fidelity GPU time between ops spent waiting "
     "for transfers.",
     false},
    {"bound",
     "bound: distance to the largest lower bound, mostly that of the same placement (--explain has "
     "all).",
     false},
    {"paper est", "paper est: makespan - (fill + drain) / GPUs.", false},
};
#define SENTENCES (sizeof legend / sizeof legend[0])

uint32_t rpsim_legend_of(const char *heading)
{
    bool bubble = strncmp(heading, "bubble", 6) == 0 || strncmp(heading, "fill", 4) == 0;
    const char *named = bubble ? "makespan" : heading;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < SENTENCES; i++) {
        bool same = strncmp(named, legend[i].heading, strlen(legend[i].heading)) == 0;
        bits |= same ? 1u << i : 0;
    }
    return bits;
}

void rpsim_legend_write(const rpsim_study *study, uint32_t sentences, FILE *stream)
{
    bool one = study->row_count == 0 || rpsim_row_of_one_iteration(&study->rows[0]);
    const char *before = "\n";
    for (uint32_t i = 0; i < SENTENCES; i++) {
        if ((sentences >> i & 1) != 0) {
            fprintf(stream, "%s%s%s", before, legend[i].text,
                    !legend[i].of_iterations ? ""
                    : one                    ? "one iteration."
                                             : "all iterations of the program.");
            before = " ";
        }
    }
    fputc('\n', stream);
    if (study->setup->run.hardware) {
        fputs("Hardware fidelity: RoundPipe, Mobius and the offloading systems keep weights and "
              "optimizer in host memory, the other schedules on the GPUs. Boundary tensors go from "
              "GPU to GPU where the platform has peers, else through the host. GPU GB: the fullest "
              "GPU, context included; host GB: of all servers, or of one where each runs a copy; - "
              "where memory is not modelled.\n",
              stream);
    }
    fputs("Columns that the width has no place for: --columns all, --format csv or json.\n",
          stream);
}
