/* PyTorch 2.15: schedule CSV of torch.distributed.pipelining with its side-car, and arguments of
 * torch.distributed.fsdp.fully_shard. */
#include "common/schedule/build.h"
#include "sim/interchange/torch_sidecar.h"
#include "sim/rpadvise/export/files_internal.h"

/* ---- pipelining ------------------------------------------------------------------------------ */

typedef rp_status print_orders(const rp_program *program, const rp_torch_csv *csv, rp_arena *arena,
                               FILE *stream);

/* Prints the program of a single call, which is a schedule of PyTorch. A step with several calls
 * runs the schedule several times. */
static rp_status print_of_call(const rpadvise_job *job, print_orders *print, FILE *stream)
{
    rp_schedule_config config = rp_resolved_view(&job->row->run);
    rp_program *program = NULL;
    rp_torch_csv csv;
    config.microbatches = job->row->run.decided.microbatches;
    config.iterations = 1;
    RP_TRY(rp_schedule_build(job->row->run.schedule, &config, &program, NULL));
    rp_status status = rp_torch_csv_of_program(program, false, job->arena, &csv);
    if (status == RP_OK) {
        status = print(program, &csv, job->arena, stream);
    }
    rp_program_destroy(program);
    return status;
}

static rp_status print_csv(const rp_program *program, const rp_torch_csv *csv, rp_arena *arena,
                           FILE *stream)
{
    (void)program;
    (void)arena;
    rp_torch_csv_print(csv, stream);
    return RP_OK;
}

static rp_status write_csv(const rpadvise_job *job, FILE *stream)
{
    return print_of_call(job, print_csv, stream);
}

static rp_status write_sidecar(const rpadvise_job *job, FILE *stream)
{
    return print_of_call(job, rpsim_sidecar_write, stream);
}

static void note_selective(const rpsim_row *row, FILE *stream)
{
    if (row->run.recompute == RP_RECOMPUTE_SELECTIVE) {
        rpadvise_note(stream, "- Recompute is the model's: each block has to be checkpointed with "
                              "a policy that saves attention and every other product "
                              "(`create_selective_checkpoint_contexts`).\n");
    }
}

static void write_pipelining_notes(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    rpadvise_note(
        stream,
        "- Reads as `_PipelineScheduleRuntime._load_csv(\"torch-pipelining.csv\")` in the "
        "compute-only format; PyTorch places transfers itself.\n"
        "- The CSV has no layers: `forward_layers` of the JSON are the layers of each stage, and "
        "`ranks` the stages of each rank.\n");
    if (rp_recompute_has_ops(row->run.recompute)) {
        rpadvise_note(stream,
                      "- Recompute has no action: modules of a stage have to checkpoint %s "
                      "(`torch.utils.checkpoint`).\n",
                      row->run.decided.layer_grain ? "each layer" : "the whole stage");
    }
    note_selective(row, stream);
    if (row->run.schedule->splits_backward && rp_recompute_has_ops(row->run.recompute)) {
        rpadvise_note(
            stream,
            "- The simulation recomputes once, before the gradient of the input; whether PyTorch "
            "does is not known here.\n");
    }
    rpadvise_note(stream, "- Parameters and activations are `torch.%s`%s.\n",
                  rpadvise_torch_dtype(row->run.decided.dtype),
                  row->run.decided.dtype == RP_DTYPE_F16
                      ? ": the loss has to be scaled (`torch.amp.GradScaler`)"
                      : "");
    rpadvise_note_sizes(job, stream);
}

const rpadvise_exporter rpadvise_export_torch_pipelining = {
    .system = "torch-pipelining",
    .open = "the type of parameters, the optimizer with its learning rate, data and length of the "
            "training",
    .files = {{"torch-pipelining.csv", write_csv}, {"torch-pipelining.json", write_sidecar}},
    .notes = write_pipelining_notes,
};

/* ---- FSDP ------------------------------------------------------------------------------------ */

static rp_status write_fsdp(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    const rp_resolved *w = &row->run;
    const rp_sharding *sharding = &row->run.schedule->traits.sharding;
    const rpadvise_layout *l = &job->layout;
    const rp_partition *p = row->run.partition;
    rp_dtype reduce =
        w->decided.reductions.dtype_given ? w->decided.reductions.dtype : w->decided.dtype;
    fprintf(
        stream,
        "# Open: %s.\n"
        "\"\"\"%s with PyTorch's FSDP2: arguments of fully_shard; README.md has the rest.\"\"\"\n"
        "import torch\n"
        "from torch.distributed.fsdp import %s, MixedPrecisionPolicy\n\n"
        "GPUS = %u\n"
        "MICROBATCHES_PER_GPU = %u  # of a step: gradients are accumulated over them\n"
        "SEQUENCES_PER_MICROBATCH = %u\n"
        "TOKENS_PER_SEQUENCE = %u\n"
        "# Blocks that are wrapped together, in order; the root has embedding, norm and head.\n"
        "BLOCKS_PER_UNIT = [",
        rpadvise_export_torch_fsdp.open, row->run.model->name,
        sharding->host_weights ? "CPUOffloadPolicy" : "OffloadPolicy", l->gpus, l->microbatches,
        l->size, w->decided.seq_len);
    rpadvise_write_counts(p->forward_layers, p->forward_count, stream);
    fprintf(stream,
            "]\n"
            "# fully_shard(blocks of a unit, **FULLY_SHARD), then fully_shard(model, **ROOT)\n"
            "FULLY_SHARD = {\n"
            "    \"reshard_after_forward\": %s,\n"
            "    \"mp_policy\": MixedPrecisionPolicy(\n"
            "        param_dtype=torch.%s, reduce_dtype=torch.%s\n"
            "    ),\n"
            "    \"offload_policy\": %s(),\n"
            "}\n"
            "ROOT = {**FULLY_SHARD, \"reshard_after_forward\": %s}\n"
            "# False: model.set_requires_gradient_sync(False) until the last microbatch of a step\n"
            "SYNC_EACH_MICROBATCH = %s\n",
            sharding->backward_gathers != 0 ? "True" : "False",
            rpadvise_torch_dtype(w->decided.dtype), rpadvise_torch_dtype(reduce),
            sharding->host_weights ? "CPUOffloadPolicy" : "OffloadPolicy",
            sharding->keeps_root ? "False" : "True",
            w->decided.reductions.each_given && w->decided.reductions.each_microbatch ? "True"
                                                                                      : "False");
    if (w->decided.dtype == RP_DTYPE_F16) {
        fputs("# fp16: gradients below 6e-8 are lost without torch.amp.GradScaler(**GRAD_SCALER)\n"
              "GRAD_SCALER = {\"device\": \"cuda\", \"enabled\": True}\n",
              stream);
    }
    return RP_OK;
}

static void write_fsdp_notes(const rpadvise_job *job, FILE *stream)
{
    note_selective(job->row, stream);
    if (rp_recompute_has_ops(job->row->run.recompute)) {
        rpadvise_note(stream, "- Recompute is the model's: each block has to be checkpointed "
                              "(`torch.utils.checkpoint`, or `apply_activation_checkpointing`).\n");
    }
    rpadvise_note(
        stream,
        "- The optimizer is made after `fully_shard`; with CPU offload it steps on the CPU.\n");
    rpadvise_note_sizes(job, stream);
}

const rpadvise_exporter rpadvise_export_torch_fsdp = {
    .system = "torch-fsdp",
    .open = "the optimizer with its learning rate, data and length of the training",
    .files = {{"torch_fsdp.py", write_fsdp}},
    .notes = write_fsdp_notes,
};
