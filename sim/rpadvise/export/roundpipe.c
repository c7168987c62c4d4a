/* Configuration of RoundPipe's library. The library reads no files, so this is a Python module with
 * its classes. Names are those of RoundPipe 0.1.1 (run_config.py, scheduler.py, roundpipe.py). */
#include "sim/rpadvise/export/files_internal.h"

/* Writes ranges of layers. In the library's preset the embedding is the first layer, and norm and
 * head are the last. */
static void write_ranges(const char *name, const uint32_t *counts, uint32_t count, uint32_t begin,
                         bool descending, uint32_t head, FILE *stream)
{
    fprintf(stream, "%s = [\n", name);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = counts[i] + (i == 0 ? (descending ? head : 1) : 0);
        length += descending && i + 1 == count ? 1 : 0; /* the embedding's backward */
        begin -= descending ? length : 0;
        fprintf(stream, "    range(%u, %u),\n", begin, begin + length);
        begin += descending ? 0 : length;
    }
    fputs("]\n", stream);
}

static rp_status write_module(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    const rp_partition *p = row->run.partition;
    const rpadvise_layout *l = &job->layout;
    bool scaled = row->run.decided.dtype == RP_DTYPE_F16;
    fprintf(stream,
            "# Open: %s.\n"
            "\"\"\"%s with RoundPipe 0.1.1: options of the library; README.md has the rest.\"\"\"\n"
            "import torch\n"
            "from roundpipe import %sModelExecutePlan, RoundPipeRunConfig\n\n"
            "GPUS = %u\n"
            "CALLS_PER_STEP = %u  # of forward_backward, before each step\n"
            "SEQUENCES_PER_STEP = %u\n"
            "TOKENS_PER_SEQUENCE = %u\n"
            "PARAM_DTYPE = torch.%s\n\n"
            "# Layer 0 is the embedding, the last one the final norm with the head.\n"
            "EXECUTE_PLAN = ModelExecutePlan()\n",
            rpadvise_export_roundpipe.open, row->run.model->name, scaled ? "GradScaler, " : "",
            l->gpus, l->calls, l->batch, row->run.decided.seq_len,
            rpadvise_torch_dtype(row->run.decided.dtype));
    write_ranges("EXECUTE_PLAN.fwd_plan", p->forward_layers, p->forward_count, 0, false, 0, stream);
    write_ranges("EXECUTE_PLAN.bwd_plan", p->backward_layers, p->backward_count,
                 row->run.layers + 2, true, 1, stream);
    fprintf(stream,
            "\n# RoundPipe(model, **MODEL), model.forward_backward(..., run_config=RUN_CONFIG),\n"
            "# model.step(step_fn, **STEP)\n"
            "MODEL = {\"optim_dtype\": torch.float32}\n"
            "RUN_CONFIG = RoundPipeRunConfig(\n"
            "    recompute_grain=\"%s\",\n"
            "    num_microbatch=%u,\n"
            "    execute_plan=EXECUTE_PLAN,\n"
            ")\n"
            "STEP = {\"is_async\": %s}\n%s",
            row->run.decided.layer_grain ? "layer" : "stage", row->run.decided.microbatches,
            row->run.decided.asynchronous ? "True" : "False",
            scaled ? "# fp16: gradients below 6e-8 are lost without it\n"
                     "GRAD_SCALER = GradScaler()\n"
                   : "");
    return RP_OK;
}

static void write_notes(const rpadvise_job *job, FILE *stream)
{
    const rp_model *m = job->row->run.model;
    rpadvise_note(
        stream,
        "- The layers of the plan are those of the library's presets for Hugging Face models "
        "(`wrap_model_to_roundpipe`): embedding, %u blocks, final norm with head.\n"
        "- When a recompute begins is the library's own; %s has no option.\n",
        m->layers, job->row->run.recompute == RP_RECOMPUTE_WAIT ? "`wait`" : "`early`");
    if (!job->layout.even) {
        rpadvise_note(
            stream,
            "- The library splits the sequences of a call by itself; microbatches differ in "
            "size.\n");
    }
    if (m->lora_rank != 0) {
        rpadvise_note(stream,
                      "- Adapters of rank %u are put into the model before it is wrapped.\n",
                      m->lora_rank);
    }
    rpadvise_note_sizes(job, stream);
}

const rpadvise_exporter rpadvise_export_roundpipe = {
    .system = "roundpipe",
    .open = "the optimizer with its learning rate, data and length of the training",
    .files = {{"roundpipe_config.py", write_module}},
    .notes = write_notes,
};
