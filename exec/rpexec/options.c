#include "exec/rpexec/options.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "exec/gpu/driver.h"
#include "exec/run/backend.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(enumerator, option, argument (NULL: none), help). The long options, --help and the parser. */
#define OPTION_LIST(X)                                                                             \
    X(SCHEDULE, "schedule", "NAME", "what to run (roundpipe)")                                     \
    X(GPUS, "gpus", "N",                                                                           \
      "GPUs; on the host backend each is a set of threads (host: 4, cuda: all devices)")           \
    X(BACKEND, "backend", "host|cuda", "where to run (cuda where there is a GPU, else host)")      \
    X(VIRTUAL_GPUS, "virtual-gpus", "N",                                                           \
      "cuda: split one device into N GPUs of equally many multiprocessors (GPUs are devices)")     \
    X(BIND, "bind", NULL,                                                                          \
      "host, for measuring: each GPU's threads stay on one core, shared if there are more GPUs, "  \
      "and no core idles")                                                                         \
    X(GRAPHS, "graphs", NULL, "cuda: operators that come again are launched as CUDA graphs")       \
    X(ATTENTION, "attention", "own|auto|cudnn",                                                    \
      "cuda: its forward by our own kernels; by cuDNN where that is there, agrees and is faster "  \
      "when "                                                                                      \
      "the run begins; by cuDNN (own: the same bits in every run)")                                \
    X(TRANSPORT, "transport", "auto|copy|staged|nccl",                                             \
      "cuda: GPUs exchange by copies, over host memory at need; always over it; by NCCL (auto: "   \
      "collectives by NCCL where there is one, the rest by copies)")                               \
    X(STAGED, "staged", NULL, "cuda: --transport staged")                                          \
    X(MODEL, "model", "NAME|FILE",                                                                 \
      "the decoder; without --weights initialised from the seed "                                  \
      "(tiny)")                                                                                    \
    X(WEIGHTS, "weights", "DIR", "a Hugging Face checkpoint: config.json and safetensors")         \
    X(DATA, "data", "FILE", "token file, or any text as byte tokens (random tokens)")              \
    X(STEPS, "steps", "K", "optimizer steps (10, or those of --program-in)")                       \
    X(MICROBATCHES, "microbatches", "M", "microbatches per call (2 N)")                            \
    X(MICROBATCH_SIZE, "microbatch-size", "B", "sequences per microbatch (1)")                     \
    X(SEQ_LEN, "seq-len", "S", "tokens per sequence (128)")                                        \
    X(ACCUMULATE, "accumulate", "A", "calls that a step is split into (1)")                        \
    X(PARTITION, "partition", "P|even", "layers per stage: 3,3,4,… or fwd…|bwd… (even)")           \
    X(ROUND, "round", "R|all", "microbatches per RoundPipe round (all)")                           \
    X(RECOMPUTE, "recompute", "none|wait|early", "when a recompute may run (as published)")        \
    X(GRAIN, "grain", "stage|layer",                                                               \
      "recompute a stage at a time, or layer by layer from saved inputs of each (stage)")          \
    X(OPTIMIZER, "optimizer", "sync|async",                                                        \
      "async: weights one step old, Adam beside the next "                                         \
      "step (sync)")                                                                               \
    X(DTYPE, "dtype", "fp32|bf16|fp16",                                                            \
      "storage of weights, activations and gradients; masters and sums are fp32 (fp32)")           \
    X(LR, "lr", "X", "Adam's learning rate (0.001)")                                               \
    X(WEIGHT_DECAY, "weight-decay", "X", "decoupled, as AdamW has it (0)")                         \
    X(LORA_RANK, "lora-rank", "R",                                                                 \
      "train adapters of rank R alone (what the model "                                            \
      "says: full training)")                                                                      \
    X(LORA_ALPHA, "lora-alpha", "X", "adapters are scaled by X / R (R)")                           \
    X(SEED, "seed", "K", "of weights and data (0)")                                                \
    X(GPU_MEMORY_MB, "gpu-memory-mb", "M",                                                         \
      "cap of each GPU's memory in MiB (the platform's, otherwise what is needed)")                \
    X(PIECE_MB, "piece-mb", "M",                                                                   \
      "largest piece of a parameter upload in MiB: what an activation may have to wait for (32)")  \
    X(HALF_ACCUMULATION, "half-accumulation", NULL,                                                \
      "cuda with fp16: products add up in fp16, only to compare with runs that do (fp32)")         \
    X(PLATFORM, "platform", "NAME|FILE",                                                           \
      "server whose links the GPUs have, shared as it shares them (links as fast as memory)")      \
    X(PEERS, "peers", NULL,                                                                        \
      "pipelines: GPUs send boundary tensors to each other (where the platform says so)")          \
    X(LINK_GB_PER_S, "link-gb-per-s", "X",                                                         \
      "rate of each GPU's link and direction (the platform's, otherwise not limited)")             \
    X(WATCHDOG, "watchdog-s", "S", "give up when nothing has ended for so long (60)")              \
    X(SAVE, "save", "DIR", "checkpoints: every --save-every steps, at the end and after a signal") \
    X(SAVE_EVERY, "save-every", "K", "steps (50)")                                                 \
    X(RESUME, "resume", NULL, "go on from the newest checkpoint of --save")                        \
    X(CHECK, "check", NULL, "compare losses and gradients with a run on one device")               \
    X(FORMAT, "format", "table|json", "output on stdout (table)")                                  \
    X(PROGRAM_IN, "program-in", "F",                                                               \
      "run this program, as rpsim or rpexec writes it, instead of a schedule's")                   \
    X(PROGRAM_OUT, "program-out", "F", "the program of the last part of the run in text form")     \
    X(TIMELINE_OUT, "timeline-out", "F",                                                           \
      "CSV of the ops and their times of the same part, for rpdiff")                               \
    X(TRACE_OUT, "trace-out", "F", "Chrome/Perfetto trace of the last part of the run")            \
    X(GANTT_OUT, "gantt-out", "F", "Gantt chart of the same: .svg, .png or .pdf")                  \
    X(LOSS_OUT, "loss-out", "F",                                                                   \
      "CSV of step, loss and time, a line as each step ends; --resume goes on with it")            \
    X(RECORD, "record", "DIR", "the timeline, and the measured costs and rates as files of rpsim") \
    X(COSTS, "costs", "DIR|FILE",                                                                  \
      "costs that an earlier run has recorded, for partitions and --predict (FLOP counts)")        \
    X(PREDICT, "predict", NULL,                                                                    \
      "with --costs: simulate the same program, and print predicted against measured time")        \
    X(DB, "db", "F", "add the run to this SQLite store")                                           \
    X(DB_OPS, "db-ops", NULL, "with --db: every op of the timeline, too")                          \
    X(LIST, "list", "backends|schedules", "what there is")                                         \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")

RP_OPTION_TABLES(OPTION_LIST)

void rpexec_options_help(void)
{
    puts("Usage: rpexec [options]\n\n"
         "Trains a decoder with a pipeline schedule, and can check it against plain loops.\n\n"
         "Options (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nWith --save SIGINT and SIGTERM end the run after its step, with a checkpoint; a\n"
         "second one ends it at once. One process at a time saves in a folder.\n"
         "\nRPEXEC_BACKEND in the environment is the backend of runs without --backend.\n"
         "\nExit status: 0 success, 1 the run failed, 2 bad usage or bad input, 130 or 143\n"
         "ended by SIGINT or SIGTERM.\n"
         "Example: rpexec --schedule roundpipe --gpus 4 --model tiny --data README.md --steps 200");
}

static rp_status take_number(const char *option, double high, double *value_out)
{
    if (!rp_parse_double(optarg, 0, high, value_out)) {
        rp_log_error("--%s: '%s' is not valid; valid values are numbers from 0 to %g", option,
                     optarg, high);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status take_round(rpexec_options *o)
{
    o->round = RP_ROUND_ALL;
    return strcmp(optarg, "all") == 0
               ? RP_OK
               : rp_option_u32("round", optarg, RP_MAX_MICROBATCHES, &o->round);
}

static rp_status take_seed(rpexec_options *o)
{
    return rp_parse_u64(optarg, 0, UINT64_MAX, &o->seed)
               ? RP_OK
               : rp_option_bad("seed", optarg, "integers from 0 on");
}

/* @param where the name was given */
static rp_status take_backend(const char *where, const char *name, rpexec_options *o)
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

static rp_status take_choice(int option, rpexec_options *o)
{
    uint32_t index = 0;
    switch (option) {
    case OPTION_RECOMPUTE:
        o->recompute_given = true;
        return rp_recompute_parse(optarg, &o->recompute)
                   ? RP_OK
                   : rp_option_bad("recompute", optarg, "none, wait and early");
    case OPTION_GRAIN:
        RP_TRY(rp_option_choice("grain", optarg, "stage|layer", &index));
        o->layer_grain = index == 1;
        return RP_OK;
    case OPTION_DTYPE:
        return rpexec_dtype_parse(optarg, &o->dtype)
                   ? RP_OK
                   : rp_option_bad("dtype", optarg, "fp32, bf16 and fp16");
    case OPTION_OPTIMIZER:
        RP_TRY(rp_option_choice("optimizer", optarg, "sync|async", &index));
        o->asynchronous = index == 1;
        return RP_OK;
    case OPTION_FORMAT:
        RP_TRY(rp_option_choice("format", optarg, "table|json", &index));
        o->json = index == 1;
        return RP_OK;
    case OPTION_LIST:
        o->action = RPEXEC_ACTION_LIST;
        o->list = optarg;
        return rp_option_choice("list", optarg, "backends|schedules", &index);
    case OPTION_BACKEND:
        return take_backend("--backend", optarg, o);
    case OPTION_ATTENTION:
        RP_TRY(rp_option_choice("attention", optarg, RPEXEC_ATTENTIONS, &index));
        o->attention = (rpexec_attention_by)index;
        o->attention_given = true;
        return RP_OK;
    case OPTION_TRANSPORT:
        RP_TRY(rp_option_choice("transport", optarg, RPEXEC_TRANSPORTS, &index));
        o->transport = (rpexec_transport)index;
        o->transport_given = true;
        return RP_OK;
    default:
        return rp_schedule_require("--schedule", optarg, false, &o->schedule);
    }
}

static rp_status take_value(int option, rpexec_options *o)
{
    switch (option) {
    case OPTION_GPUS:
        return rp_option_u32("gpus", optarg, RPEXEC_MAX_GPUS, &o->gpus);
    case OPTION_VIRTUAL_GPUS:
        return rp_option_u32("virtual-gpus", optarg, RPEXEC_MAX_GPUS, &o->virtual_gpus);
    case OPTION_STEPS:
        return rp_option_u32("steps", optarg, INT32_MAX, &o->steps);
    case OPTION_MICROBATCHES:
        return rp_option_u32("microbatches", optarg, 65536, &o->microbatches);
    case OPTION_MICROBATCH_SIZE:
        return rp_option_u32("microbatch-size", optarg, 65536, &o->microbatch_size);
    case OPTION_SEQ_LEN:
        return rp_option_u32("seq-len", optarg, 1048576, &o->seq_len);
    case OPTION_ACCUMULATE:
        return rp_option_u32("accumulate", optarg, 65536, &o->accumulate);
    case OPTION_LORA_RANK:
        return rp_option_u32("lora-rank", optarg, 65536, &o->lora_rank);
    case OPTION_SAVE_EVERY:
        return rp_option_u32("save-every", optarg, INT32_MAX, &o->save_every);
    case OPTION_GPU_MEMORY_MB:
        return rp_option_u32("gpu-memory-mb", optarg, 1048576, &o->gpu_memory_mb);
    case OPTION_PIECE_MB:
        return rp_option_u32("piece-mb", optarg, 65536, &o->piece_mb);
    case OPTION_WATCHDOG:
        return rp_option_u32("watchdog-s", optarg, 86400, &o->watchdog_s);
    case OPTION_ROUND:
        return take_round(o);
    case OPTION_SEED:
        return take_seed(o);
    case OPTION_LR:
        return take_number("lr", 1e6, &o->lr);
    case OPTION_LORA_ALPHA:
        return take_number("lora-alpha", 1e6, &o->lora_alpha);
    case OPTION_WEIGHT_DECAY:
        return take_number("weight-decay", 1e6, &o->weight_decay);
    case OPTION_LINK_GB_PER_S:
        return take_number("link-gb-per-s", 1e6, &o->link_gb_per_s);
    default:
        return take_choice(option, o);
    }
}

/* Where a text goes as it is; NULL: it does not. */
static const char **text_of(int option, rpexec_options *o)
{
    switch (option) {
    case OPTION_MODEL:
        return &o->model;
    case OPTION_WEIGHTS:
        return &o->weights;
    case OPTION_DATA:
        return &o->data;
    case OPTION_PLATFORM:
        return &o->platform;
    case OPTION_SAVE:
        return &o->save;
    case OPTION_PROGRAM_IN:
        return &o->program_in;
    case OPTION_PROGRAM_OUT:
        return &o->program_out;
    case OPTION_TIMELINE_OUT:
        return &o->timeline_out;
    case OPTION_TRACE_OUT:
        return &o->trace_out;
    case OPTION_GANTT_OUT:
        return &o->gantt_out;
    case OPTION_LOSS_OUT:
        return &o->loss_out;
    case OPTION_DB:
        return &o->db;
    case OPTION_RECORD:
        return &o->record;
    case OPTION_COSTS:
        return &o->costs;
    default:
        return NULL;
    }
}

static rp_status take(int option, rpexec_options *o)
{
    const char **text = text_of(option, o);
    if (text != NULL) {
        *text = optarg;
        return RP_OK;
    }
    switch (option) {
    case OPTION_PARTITION:
        o->partition = strcmp(optarg, "even") == 0 ? NULL : optarg;
        return RP_OK;
    case OPTION_PEERS:
        o->peers = true;
        return RP_OK;
    case OPTION_HALF_ACCUMULATION:
        o->half_accumulation = true;
        return RP_OK;
    case OPTION_BIND:
        o->bind = true;
        return RP_OK;
    case OPTION_GRAPHS:
        o->graphs = true;
        return RP_OK;
    case OPTION_STAGED:
        o->staged = true;
        return RP_OK;
    case OPTION_RESUME:
        o->resume = true;
        return RP_OK;
    case OPTION_CHECK:
        o->check = true;
        return RP_OK;
    case OPTION_PREDICT:
        o->predict = true;
        return RP_OK;
    case OPTION_DB_OPS:
        o->db_ops = true;
        return RP_OK;
    case OPTION_HELP:
        o->action = RPEXEC_ACTION_HELP;
        return RP_OK;
    case OPTION_VERSION:
        o->action = RPEXEC_ACTION_VERSION;
        return RP_OK;
    default:
        return take_value(option, o);
    }
}

/* True for options that a given program decides. */
static bool shapes(int option)
{
    return option == OPTION_SCHEDULE || option == OPTION_GPUS || option == OPTION_MICROBATCHES ||
           option == OPTION_PARTITION || option == OPTION_RECOMPUTE || option == OPTION_OPTIMIZER ||
           option == OPTION_PEERS;
}

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
        return take_backend("the environment variable RPEXEC_BACKEND", name, o);
    }
    const rpexec_backend_type *type = rpexec_backend_default(rpexec_backends, rpexec_backend_count);
    o->backend = type != NULL ? type->name : "host";
    return RP_OK;
}

/* Options that only some backends know, and the number of GPUs. */
static rp_status complete_devices(rpexec_options *o)
{
    bool has_devices = rpexec_backend_find(o->backend)->driver()->attach != NULL;
    const char *of_devices = o->virtual_gpus != 0   ? "virtual-gpus"
                             : o->transport_given   ? "transport"
                             : o->staged            ? "staged"
                             : o->graphs            ? "graphs"
                             : o->attention_given   ? "attention"
                             : o->half_accumulation ? "half-accumulation"
                                                    : NULL;
    if (o->staged && o->transport_given && o->transport != RPEXEC_TRANSPORT_STAGED) {
        rp_log_error("--staged: --transport is %s; valid is one of them",
                     rpexec_transport_text(o->transport));
        return RP_USAGE;
    }
    o->transport = o->staged ? RPEXEC_TRANSPORT_STAGED : o->transport;
    if (!has_devices && of_devices != NULL) {
        rp_log_error("--%s: the %s backend has no devices; valid only with --backend cuda",
                     of_devices, o->backend);
        return RP_USAGE;
    }
    if (has_devices && o->bind) {
        rp_log_error(
            "--bind: GPUs of the %s backend are no threads; valid only with --backend host",
            o->backend);
        return RP_USAGE;
    }
    if (o->half_accumulation && o->dtype != RPEXEC_DTYPE_F16) {
        rp_log_error("--half-accumulation: products of %s add up in fp32; valid only with --dtype "
                     "fp16",
                     rpexec_dtype_text(o->dtype));
        return RP_USAGE;
    }
    if (o->attention == RPEXEC_ATTENTION_CUDNN && o->dtype == RPEXEC_DTYPE_F32) {
        rp_log_error(
            "--attention cudnn: cuDNN has no attention in fp32; valid with fp32 are own and "
            "auto, with cudnn --dtype bf16 and fp16");
        return RP_USAGE;
    }
    if (has_devices && o->link_gb_per_s > 0) {
        rp_log_error("--link-gb-per-s: the links of the %s backend are as fast as they are; valid "
                     "only with --backend host",
                     o->backend);
        return RP_USAGE;
    }
    if (o->virtual_gpus != 0 && o->gpus != 0 && o->gpus != o->virtual_gpus) {
        rp_log_error("--virtual-gpus: %" PRIu32 " of them, and --gpus %" PRIu32
                     "; valid is the same number, or one of the two",
                     o->virtual_gpus, o->gpus);
        return RP_USAGE;
    }
    if (o->gpus == 0) {
        o->gpus =
            o->virtual_gpus != 0 ? o->virtual_gpus : default_gpus(rpexec_backend_find(o->backend));
    }
    return RP_OK;
}

static rp_status complete(rpexec_options *o)
{
    rpexec_gpu_set_connections(o->virtual_gpus != 0); /* before a backend looks for devices */
    if (o->backend == NULL) {
        RP_TRY(default_backend(o));
    }
    RP_TRY(complete_devices(o));
    if (o->program_in != NULL && o->shaped_by != NULL) {
        rp_log_error("%s: the program of --program-in fixes schedule, GPUs, microbatches, "
                     "partition, recompute, optimizer and peers; valid is one of them",
                     o->shaped_by);
        return RP_USAGE;
    }
    if (o->peers && o->schedule->traits.placement != RP_PLACEMENT_RESIDENT) {
        rp_log_error("--peers: %s does not hand boundary tensors from GPU to GPU; valid with "
                     "pipelines whose weights stay on their GPUs, such as 1f1b",
                     o->schedule->name);
        return RP_USAGE;
    }
    if (o->peers && o->platform != NULL) {
        rp_log_error("--peers: --platform says which GPUs reach each other; valid is one of them");
        return RP_USAGE;
    }
    if (o->predict && o->costs == NULL) {
        rp_log_error("--predict: valid only with --costs DIR, which an earlier run with --record "
                     "DIR has written");
        return RP_USAGE;
    }
    if (o->predict && o->weights != NULL) {
        rp_log_error("--predict: rpsim does not read checkpoints; valid is --model");
        return RP_USAGE;
    }
    if (o->db_ops && o->db == NULL) {
        rp_log_error("--db-ops: valid only with --db F, the store that the ops go to");
        return RP_USAGE;
    }
    if (o->save_every != 0 && o->save == NULL) {
        rp_log_error("--save-every: valid only with --save DIR");
        return RP_USAGE;
    }
    o->save_every = o->save_every == 0 ? 50 : o->save_every;
    if (o->resume && o->save == NULL) {
        rp_log_error("--resume: valid only with --save DIR, whose newest checkpoint it takes");
        return RP_USAGE;
    }
    if (o->model != NULL && o->weights != NULL) {
        rp_log_error("--model: --weights has a config.json of its own; valid is one of them");
        return RP_USAGE;
    }
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

rp_status rpexec_options_parse(int argc, char **argv, rpexec_options *options_out)
{
    rpexec_options o = {.schedule = rp_schedule_find("roundpipe"),
                        .seq_len = 128,
                        .round = RP_ROUND_ALL,
                        .piece_mb = RPEXEC_PIECE_MB,
                        .watchdog_s = 60,
                        .lr = 1e-3};
    optind = 1; /* also when called again in the same process, after another program's options */
    opterr = 0;
    for (;;) {
        int at = optind;
        int option = getopt_long(argc, argv, ":", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return rp_option_unknown("rpexec", argv[at], option, long_options);
        }
        RP_TRY(take(option, &o));
        o.shaped_by = shapes(option) ? argv[at] : o.shaped_by;
    }
    if (optind < argc) {
        rp_log_error("'%s': valid are options only; see rpexec --help", argv[optind]);
        return RP_USAGE;
    }
    if (o.action == RPEXEC_ACTION_RUN) {
        RP_TRY(complete(&o));
    }
    *options_out = o;
    return RP_OK;
}
