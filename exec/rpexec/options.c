#include "exec/rpexec/options_internal.h"

#include "common/base/log.h"
#include "exec/gpu/driver.h"
#include "exec/rpexec/arguments.h"
#include "exec/run/backend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- values with rules of their own ------------------------------------------------------------
 */

static rp_status take_schedule(const rp_option *row, const char *text, rp_arena *arena,
                               void *options)
{
    (void)row;
    (void)arena;
    return rp_schedule_require("--schedule", text, false, &((rpexec_options *)options)->schedule);
}

/* @param where the name was given */
static rp_status set_backend(const char *where, const char *name, rpexec_options *o)
{
    char names[128] = "";
    o->backend = name;
    if (rpexec_backend_find(name) != NULL) {
        return RP_OK;
    }
    for (uint32_t i = rpexec_backend_count; i-- > 0;) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used == 0 ? "" : " and ",
                 rpexec_backends[i]->name);
    }
    rp_log_error("%s: '%s' is not valid; valid values are %s", where, name, names);
    return RP_USAGE;
}

static rp_status take_backend(const rp_option *row, const char *text, rp_arena *arena,
                              void *options)
{
    (void)row;
    (void)arena;
    return set_backend("--backend", text, options);
}

static void write_link(const void *options, rp_json *json)
{
    double rate = ((const rpexec_options *)options)->link_gb_per_s;
    rp_json_key(json, "link_gb_per_s");
    if (rate > 0) {
        rp_json_double(json, rate);
    } else {
        rp_json_null(json);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { WORK, INPUTS, SCHEDULE, TRAINING, MACHINE, CUDA, CHECKPOINTS, OUTPUT, OTHER };

static const rp_option_group groups[] = {
    [WORK] = {"Work", true},
    [INPUTS] = {"Inputs", true},
    [SCHEDULE] = {"Behaviour of the schedule", true},
    [TRAINING] = {"Training", true},
    [MACHINE] = {"Machine", true},
    [CUDA] = {"Backend cuda", true},
    [CHECKPOINTS] = {"Checkpoints", false},
    [OUTPUT] = {"Checks and output", false},
    [OTHER] = {"Instead of a run", false},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpexec_options, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpexec_options, member)
/* The report begins with these settings, or they change no result. */
#define REPORTED .own_setting = true

static const rp_option rows[] = {
    {"schedule", "NAME", WORK, RP_OPTION_TAKE, .take = take_schedule, .names = "schedules",
     REPORTED, .help = "what to run (roundpipe)"},
    {"gpus", "N", WORK, RP_OPTION_U32, TO(gpus), .most = RPEXEC_MAX_GPUS, REPORTED,
     .help = "GPUs; on the host backend each is a set of threads (host: 4, cuda: all devices)"},
    {"steps", "K", WORK, RP_OPTION_U32, TO(steps), .most = INT32_MAX, REPORTED,
     .help = "optimizer steps (10, or those of --program-in)"},
    {"microbatches", "M", WORK, RP_OPTION_U32, TO(microbatches), .most = 65536, REPORTED,
     .help = "microbatches per call (2 N)"},
    {"microbatch-size", "B", WORK, RP_OPTION_U32, TO(microbatch_size), .most = 65536,
     .help = "sequences per microbatch (1)"},
    {"accumulate", "A", WORK, RP_OPTION_U32, TO(accumulate), .most = 65536,
     .help = "calls that a step is split into (1)"},
    {"seq-len", "S", WORK, RP_OPTION_U32, TO(seq_len), .most = 1048576,
     .help = "tokens per sequence (128)"},

    {"dtype", "fp32|bf16|fp16", TRAINING, RP_OPTION_CHOICE, TO(dtype), .choices = RPEXEC_DTYPES,
     .valid = "fp32, bf16 and fp16",
     .help = "storage of weights, activations and gradients; masters and sums are fp32 (fp32)"},

    {"optimizer", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(asynchronous), .choices = "sync|async",
     .help = "async: weights one step old, Adam beside the next step (sync)"},
    {"recompute", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(recompute), .choices = "none|wait|early",
     .valid = "none, wait and early", GIVEN(recompute_given),
     .help = "when a recompute may run (as published)"},
    {"grain", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(layer_grain), .choices = "stage|layer",
     .help = "recompute a stage at a time, or layer by layer from saved inputs of each (stage)"},
    {"partition", "P|even", SCHEDULE, RP_OPTION_TEXT, TO(partition), .none = "even",
     .help = "layers per stage: 3,3,4,… or fwd…|bwd… (even)"},
    {"round", "R|all", SCHEDULE, RP_OPTION_U32, TO(round), .most = RP_MAX_MICROBATCHES,
     .all = true, .help = "microbatches per RoundPipe round (all)"},

    {"peers", NULL, MACHINE, RP_OPTION_FLAG, TO(peers),
     .help = "pipelines: GPUs send boundary tensors to each other (where the platform says so)"},
    {"model", "NAME|FILE", INPUTS, RP_OPTION_TEXT, TO(model), .names = "models", REPORTED,
     .help = "the decoder; without --weights initialised from the seed (tiny)"},
    {"weights", "DIR", INPUTS, RP_OPTION_TEXT, TO(weights), REPORTED,
     .help = "a Hugging Face checkpoint: config.json and safetensors"},
    {"costs", "DIR|FILE", INPUTS, RP_OPTION_TEXT, TO(costs),
     .help = "costs that an earlier run has recorded, for partitions and --predict (FLOP counts)"},
    {"platform", "NAME|FILE", MACHINE, RP_OPTION_TEXT, TO(platform), .names = "platforms",
     .help = "server whose links the GPUs have, shared as it shares them (links as fast as "
             "memory)"},
    {"program-in", "F", INPUTS, RP_OPTION_TEXT, TO(program_in),
     .help = "run this program, as rpsim or rpexec writes it, instead of a schedule's"},
    {"data", "FILE", INPUTS, RP_OPTION_TEXT, TO(data),
     .help = "token file, or any text as byte tokens (random tokens)"},

    {"lr", "X", TRAINING, RP_OPTION_REAL, TO(lr), .most = 1e6,
     .help = "Adam's learning rate (0.001)"},
    {"weight-decay", "X", TRAINING, RP_OPTION_REAL, TO(weight_decay), .most = 1e6,
     .help = "decoupled, as AdamW has it (0)"},
    {"lora-rank", "R", TRAINING, RP_OPTION_U32, TO(lora_rank), .most = 65536,
     .help = "train adapters of rank R alone (what the model says: full training)"},
    {"lora-alpha", "X", TRAINING, RP_OPTION_REAL, TO(lora_alpha), .most = 1e6,
     .help = "adapters are scaled by X / R (R)"},

    {"backend", "host|cuda", MACHINE, RP_OPTION_TAKE, .take = take_backend, REPORTED,
     .help = "where to run (cuda where there is a GPU, else host)"},
    {"link-gb-per-s", "X", MACHINE, RP_OPTION_REAL, TO(link_gb_per_s), .most = 1e6,
     .write = write_link,
     .help = "rate of each GPU's link and direction (the platform's, otherwise not limited)"},
    {"gpu-memory-mb", "M", MACHINE, RP_OPTION_U32, TO(gpu_memory_mb), .most = 1048576,
     .help = "cap of each GPU's memory in MiB (the platform's, otherwise what is needed)"},
    {"piece-mb", "M", MACHINE, RP_OPTION_U32, TO(piece_mb), .most = 65536,
     .help = "largest piece of a parameter upload in MiB: what an activation may have to wait for "
             "(32)"},
    {"watchdog-s", "S", MACHINE, RP_OPTION_U32, TO(watchdog_s), .most = 86400, REPORTED,
     .help = "give up when nothing has ended for so long (60)"},

    {"virtual-gpus", "N", CUDA, RP_OPTION_U32, TO(virtual_gpus), .most = RPEXEC_MAX_GPUS,
     .help = "cuda: split one device into N GPUs of equally many multiprocessors (GPUs are "
             "devices)"},
    {"bind", NULL, MACHINE, RP_OPTION_FLAG, TO(bind),
     .help = "host, for measuring: each GPU's threads stay on one core, shared if there are more "
             "GPUs, and no core idles"},
    {"graphs", NULL, CUDA, RP_OPTION_FLAG, TO(graphs),
     .help = "cuda: operators that come again are launched as CUDA graphs"},
    {"staged", NULL, CUDA, RP_OPTION_FLAG, TO(staged), .help = "cuda: --transport staged"},
    {"transport", NULL, CUDA, RP_OPTION_CHOICE, TO(transport), .choices = RPEXEC_TRANSPORTS,
     .help = "cuda: GPUs exchange by copies, over host memory at need; always over it; by NCCL "
             "(auto: collectives by NCCL where there is one, the rest by copies)"},
    {"attention", NULL, CUDA, RP_OPTION_CHOICE, TO(attention), .choices = RPEXEC_ATTENTIONS,
     .help = "cuda: its forward by our own kernels; by cuDNN where that is there, agrees and is "
             "faster when the run begins; by cuDNN (own: the same bits in every run)"},
    {"half-accumulation", NULL, CUDA, RP_OPTION_FLAG, TO(half_accumulation),
     .help = "cuda with fp16: products add up in fp16, only to compare with runs that do (fp32)"},
    {"seed", "K", TRAINING, RP_OPTION_U64, TO(seed), .valid = "integers from 0 on",
     .help = "of weights and data (0)"},

    {"save", "DIR", CHECKPOINTS, RP_OPTION_TEXT, TO(save),
     .help = "checkpoints: every --save-every steps, at the end and after a signal"},
    {"save-every", "K", CHECKPOINTS, RP_OPTION_U32, TO(save_every), .most = INT32_MAX,
     .help = "steps (50)"},
    {"resume", NULL, CHECKPOINTS, RP_OPTION_FLAG, TO(resume),
     .help = "go on from the newest checkpoint of --save"},

    {"check", NULL, OUTPUT, RP_OPTION_FLAG, TO(check),
     .help = "compare losses and gradients with a run on one device"},
    {"format", NULL, OUTPUT, RP_OPTION_CHOICE, TO(json), .choices = "table|json",
     .help = "output on stdout (table)"},
    {"record", "DIR", OUTPUT, RP_OPTION_TEXT, TO(record),
     .help = "the timeline, and the measured costs and rates as files of rpsim"},
    {"predict", NULL, OUTPUT, RP_OPTION_FLAG, TO(predict),
     .help = "with --costs: simulate the same program, and print predicted against measured time"},
    {"loss-out", "F", OUTPUT, RP_OPTION_TEXT, TO(loss_out),
     .help = "CSV of step, loss and time, a line as each step ends; --resume goes on with it"},
    {"program-out", "F", OUTPUT, RP_OPTION_TEXT, TO(program_out),
     .help = "the program of the last part of the run in text form"},
    {"timeline-out", "F", OUTPUT, RP_OPTION_TEXT, TO(timeline_out),
     .help = "CSV of the ops and their times of the same part, for rpdiff"},
    {"trace-out", "F", OUTPUT, RP_OPTION_TEXT, TO(trace_out),
     .help = "Chrome/Perfetto trace of the last part of the run"},
    {"gantt-out", "F", OUTPUT, RP_OPTION_TEXT, TO(gantt_out),
     .help = "Gantt chart of the same: .svg, .png or .pdf"},
    {"db", "F", OUTPUT, RP_OPTION_TEXT, TO(db), .help = "add the run to this SQLite store"},
    {"db-ops", NULL, OUTPUT, RP_OPTION_FLAG, TO(db_ops),
     .help = "with --db: every op of the timeline, too"},

    {"list", NULL, OTHER, RP_OPTION_TEXT, TO(list), .choices = "backends|schedules", GIVEN(action),
     .means = RPEXEC_ACTION_LIST, .help = "what there is"},
};

/* ---- combinations ---------------------------------------------------------------------------- */

static const char *backend_of(const void *options)
{
    return ((const rpexec_options *)options)->backend;
}

static const char *dtype_of(const void *options)
{
    return rpexec_dtype_text(((const rpexec_options *)options)->dtype);
}

static const char *schedule_of(const void *options)
{
    return ((const rpexec_options *)options)->schedule->name;
}

static const char *transport_of(const void *options)
{
    return rpexec_transport_text(((const rpexec_options *)options)->transport);
}

static bool has_devices(const void *options)
{
    return rpexec_backend_find(backend_of(options))->driver()->attach != NULL;
}

static bool has_no_devices(const void *options)
{
    return !has_devices(options);
}

static bool is_not_staged(const void *options)
{
    return ((const rpexec_options *)options)->transport != RPEXEC_TRANSPORT_STAGED;
}

static bool is_not_fp16(const void *options)
{
    return ((const rpexec_options *)options)->dtype != RPEXEC_DTYPE_F16;
}

static bool has_cudnn_in_fp32(const void *options)
{
    const rpexec_options *o = options;
    return o->attention == RPEXEC_ATTENTION_CUDNN && o->dtype == RPEXEC_DTYPE_F32;
}

static bool limits_links_of_devices(const void *options)
{
    return has_devices(options) && ((const rpexec_options *)options)->link_gb_per_s > 0;
}

static bool has_two_numbers(const void *options)
{
    const rpexec_options *o = options;
    if (o->gpus != o->virtual_gpus) {
        rp_log_error("--virtual-gpus: %" PRIu32 " of them, and --gpus %" PRIu32
                     "; valid is the same number, or one of the two",
                     o->virtual_gpus, o->gpus);
    }
    return o->gpus != o->virtual_gpus;
}

static bool is_no_pipeline(const void *options)
{
    return ((const rpexec_options *)options)->schedule->traits.placement != RP_PLACEMENT_RESIDENT;
}

static const rp_option_rule rules[] = {
    {.given = "staged",
     .with = "transport",
     .when = is_not_staged,
     .subject = transport_of,
     .message = "--transport is @; valid is one of them"},
    {.given = "virtual-gpus transport staged graphs attention half-accumulation",
     .when = has_no_devices,
     .subject = backend_of,
     .message = "the @ backend has no devices; valid only with --backend cuda"},
    {.given = "bind",
     .when = has_devices,
     .subject = backend_of,
     .message = "GPUs of the @ backend are no threads; valid only with --backend host"},
    {.given = "half-accumulation",
     .when = is_not_fp16,
     .subject = dtype_of,
     .message = "products of @ add up in fp32; valid only with --dtype fp16"},
    {.when = has_cudnn_in_fp32,
     .message = "--attention cudnn: cuDNN has no attention in fp32; valid with fp32 are own and "
                "auto, with cudnn --dtype bf16 and fp16"},
    {.given = "link-gb-per-s",
     .when = limits_links_of_devices,
     .subject = backend_of,
     .message = "the links of the @ backend are as fast as they are; valid only with --backend "
                "host"},
    {.given = "virtual-gpus", .with = "gpus", .when = has_two_numbers},
    {.given = "schedule gpus microbatches partition recompute optimizer peers",
     .names_last = true,
     .with = "program-in",
     .message = "the program of --program-in fixes schedule, GPUs, microbatches, partition, "
                "recompute, optimizer and peers; valid is one of them"},
    {.given = "peers",
     .when = is_no_pipeline,
     .subject = schedule_of,
     .message = "@ does not hand boundary tensors from GPU to GPU; valid with pipelines whose "
                "weights stay on their GPUs, such as 1f1b"},
    {.given = "peers",
     .with = "platform",
     .message = "--platform says which GPUs reach each other; valid is one of them"},
    {.given = "predict",
     .without = "costs",
     .message = "valid only with --costs DIR, which an earlier run with --record DIR has written"},
    {.given = "predict",
     .with = "weights",
     .message = "rpsim does not read checkpoints; valid is --model"},
    {.given = "db-ops",
     .without = "db",
     .message = "valid only with --db F, the store that the ops go to"},
    {.given = "save-every", .without = "save", .message = "valid only with --save DIR"},
    {.given = "resume",
     .without = "save",
     .message = "valid only with --save DIR, whose newest checkpoint it takes"},
    {.given = "model",
     .with = "weights",
     .message = "--weights has a config.json of its own; valid is one of them"},
};

const rp_options_program rpexec_command_line = {
    .name = "rpexec",
    .purpose = "trains a decoder with a pipeline schedule",
    .usage = "rpexec [options]",
    .description = "Trains a decoder with a pipeline schedule, and can check it against plain "
                   "loops. Defaults are in parentheses.",
    .notes = "With --save SIGINT and SIGTERM end the run after its step, with a checkpoint; a "
             "second one ends it at once. One process at a time saves in a folder.\n"
             "RPEXEC_BACKEND in the environment is the backend of runs without --backend.",
    .exit_status = "0 success, 1 the run failed, 2 bad usage or bad input, 130 or 143 ended by "
                   "SIGINT or SIGTERM.",
    .example = "rpexec --schedule roundpipe --gpus 4 --model tiny --data README.md --steps 200",
    RP_OPTION_TABLES(groups, rows, rules),
};

/* ---- defaults that depend on others ------------------------------------------------------------
 */

/* All of the machine's devices; a backend that has none runs four GPUs. */
static uint32_t default_gpus(const rpexec_backend_type *backend)
{
    uint32_t count = backend->driver()->attach == NULL ? 4 : rpexec_backend_devices(backend);
    return count > 0 ? count : 1;
}

/* Of the environment where it says one, so that tests and scripts run where they are meant to. */
static rp_status default_backend(rpexec_options *o)
{
    const char *name = getenv("RPEXEC_BACKEND");
    if (name != NULL && *name != '\0') {
        return set_backend("the environment variable RPEXEC_BACKEND", name, o);
    }
    const rpexec_backend_type *type = rpexec_backend_default(rpexec_backends, rpexec_backend_count);
    o->backend = type != NULL ? type->name : "host";
    return RP_OK;
}

static rp_status complete(rpexec_options *o)
{
    rpexec_gpu_set_connections(o->virtual_gpus != 0); /* before a backend looks for devices */
    if (o->backend == NULL) {
        RP_TRY(default_backend(o));
    }
    RP_TRY(rp_options_check(&rpexec_command_line, o));
    o->transport = o->staged ? RPEXEC_TRANSPORT_STAGED : o->transport;
    o->staged = o->transport == RPEXEC_TRANSPORT_STAGED;
    if (o->gpus == 0) {
        o->gpus =
            o->virtual_gpus != 0 ? o->virtual_gpus : default_gpus(rpexec_backend_find(o->backend));
    }
    o->save_every = o->save_every == 0 ? 50 : o->save_every;
    o->model = o->model == NULL ? "tiny" : o->model;
    o->microbatches = o->microbatches == 0 ? 2 * o->gpus : o->microbatches;
    if (o->program_in == NULL) {
        o->microbatch_size = o->microbatch_size == 0 ? 1 : o->microbatch_size;
        o->accumulate = o->accumulate == 0 ? 1 : o->accumulate;
        o->steps = o->steps == 0 ? 10 : o->steps;
    }
    o->recompute = o->recompute_given ? o->recompute : o->schedule->default_recompute;
    return RP_OK;
}

rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out)
{
    rpexec_options o = {.schedule = rp_schedule_find("roundpipe"),
                        .seq_len = 128,
                        .round = RP_ROUND_ALL,
                        .piece_mb = RPEXEC_PIECE_MB,
                        .watchdog_s = 60,
                        .lr = 1e-3};
    RP_TRY(rp_options_parse(&rpexec_command_line, argc, argv, arena, &o));
    if (o.common.request == RP_OPTIONS_RUN && o.action == RPEXEC_ACTION_RUN) {
        RP_TRY(complete(&o));
    }
    *options_out = o;
    return RP_OK;
}

rp_status rpexec_arguments_check(int argc, char **argv, rp_arena *arena)
{
    rpexec_options options;
    return rpexec_options_parse(argc, argv, arena, &options);
}
