/* DeepSpeed's JSON. Names are those of DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py,
 * runtime/pipe/module.py). */
#include "common/formats/json.h"
#include "sim/rpadvise/export/files_internal.h"

/* Elements of 16 bits, as DeepSpeed counts buckets and live parameters. */
#define ELEMENT_BYTES 2

static void write_offload(rp_json *json, const char *key)
{
    rp_json_key(json, key);
    rp_json_begin_object(json);
    rp_json_member_string(json, "device", "cpu");
    rp_json_member_bool(json, "pin_memory", true);
    rp_json_end_object(json);
}

static void write_zero(const rp_sharding *sharding, rp_json *json)
{
    rp_json_key(json, "zero_optimization");
    rp_json_begin_object(json);
    rp_json_member_uint(json, "stage", sharding->forward_gathers != 0 ? 3 : 2);
    if (sharding->host_optimizer) {
        write_offload(json, "offload_optimizer");
    }
    if (sharding->host_weights) {
        write_offload(json, "offload_param");
    }
    if (sharding->bucket_bytes != 0) {
        rp_json_member_uint(json, "reduce_bucket_size", sharding->bucket_bytes / ELEMENT_BYTES);
    }
    if (sharding->live_bytes != 0) {
        rp_json_member_uint(json, "stage3_max_live_parameters",
                            sharding->live_bytes / ELEMENT_BYTES);
    }
    rp_json_end_object(json);
}

/* Layers between two inputs that are kept; 0: no recompute. */
static uint32_t interval(const rpsim_row *row)
{
    if (!rp_recompute_has_ops(row->run.recompute)) {
        return 0;
    }
    return row->run.decided.layer_grain ? 1 : rpadvise_most_layers(row->run.partition);
}

static void write_pipeline(const rpadvise_job *job, rp_json *json)
{
    rp_json_key(json, "pipeline");
    rp_json_begin_object(json);
    rp_json_member_uint(json, "stages", job->layout.stages);
    rp_json_member_string(json, "partition", "type:decoder");
    rp_json_member_uint(json, "activation_checkpoint_interval", interval(job->row));
    rp_json_end_object(json);
}

static void write_dtype(rp_dtype dtype, rp_json *json)
{
    if (dtype == RP_DTYPE_F32) {
        return;
    }
    rp_json_key(json, rp_dtype_text(dtype));
    rp_json_begin_object(json);
    rp_json_member_bool(json, "enabled", true);
    rp_json_end_object(json);
}

static void write_checkpointing(rp_json *json)
{
    rp_json_key(json, "activation_checkpointing");
    rp_json_begin_object(json);
    rp_json_member_bool(json, "partition_activations", false);
    rp_json_member_bool(json, "cpu_checkpointing", false);
    rp_json_member_bool(json, "contiguous_memory_optimization", false);
    rp_json_end_object(json);
}

static rp_status write_config(const rpadvise_job *job, FILE *stream)
{
    const rp_traits *traits = &job->row->run.schedule->traits;
    const rpadvise_layout *l = &job->layout;
    rp_json json;
    rp_json_begin_document(&json, stream, 2);
    rp_json_begin_object(&json);
    rp_json_member_string(&json, "_open", rpadvise_export_deepspeed.open);
    rp_json_member_uint(&json, "train_batch_size", l->batch);
    rp_json_member_uint(&json, "train_micro_batch_size_per_gpu", l->size);
    rp_json_member_uint(&json, "gradient_accumulation_steps", l->microbatches);
    if (rp_is_data_parallel(traits)) {
        write_zero(&traits->sharding, &json);
    } else {
        write_pipeline(job, &json);
    }
    write_dtype(job->row->run.decided.dtype, &json);
    if (rp_recompute_has_ops(job->row->run.recompute)) {
        write_checkpointing(&json);
    }
    rp_json_key(&json, "optimizer");
    rp_json_begin_object(&json);
    rp_json_member_string(&json, "type", "AdamW");
    rp_json_key(&json, "params");
    rp_json_begin_object(&json);
    rp_json_member_string(&json, "lr", "auto");
    rp_json_end_object(&json);
    rp_json_end_object(&json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    return RP_OK;
}

static void write_notes(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    if (rp_is_data_parallel(&row->run.schedule->traits)) {
        if (rp_recompute_has_ops(row->run.recompute)) {
            rpadvise_note(
                stream,
                "- The JSON says how activations are kept, and the model says which: it has to "
                "recompute each block (`deepspeed.checkpointing.checkpoint` or "
                "`gradient_checkpointing_enable`).\n");
        }
        rpadvise_note(
            stream,
            "- The simulation overlaps %s; DeepSpeed's `overlap_comm` is left at its default.\n"
            "- Units of the partition have no option: ZeRO works on buckets and on modules.\n",
            row->run.schedule->traits.sharding.overlap ? "gathers with compute"
                                                       : "no collective with compute");
    } else {
        rpadvise_note(
            stream,
            "- Stages are those of `PipelineModule(num_stages=%u, "
            "partition_method=\"type:decoder\", activation_checkpoint_interval=%u)`: the "
            "training script has to pass them. `decoder` stands for the class of a block, and "
            "embedding and head go to the first and last stage.\n",
            job->layout.stages, interval(row));
    }
    rpadvise_note_sizes(job, stream);
}

const rpadvise_exporter rpadvise_export_deepspeed = {
    .system = "deepspeed",
    .open = "the learning rate (\"auto\" is filled in by transformers and accelerate; DeepSpeed "
            "itself ends there, and wants a number), model, data and length of the training",
    .files = {{"deepspeed.json", write_config}},
    .notes = write_notes,
};
