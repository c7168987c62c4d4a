#include "exec/setup/setup.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/cli/option_values.h"
#include "exec/gpu/driver.h"
#include "exec/processes/processes.h"
#include "exec/run/backend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- values with rules of their own ---------------------------------------------------------- */

static rp_status take_schedule(const rp_option *row, const char *text, rp_arena *arena,
                               void *options, rp_reason *reason)
{
    (void)row;
    (void)arena;
    return rp_schedule_require(rp_log_spell("{schedule}").text, text, false,
                               &((rpexec_options *)options)->schedule, reason);
}

/* @param where place of the name: an option, or the environment */
static rp_status set_backend(const char *where, const char *name, rpexec_options *o,
                             rp_reason *reason)
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
    return rp_refuse(reason, RP_USAGE, "%s: '%s' is not valid; valid values are %s", where, name,
                     names);
}

static rp_status take_backend(const rp_option *row, const char *text, rp_arena *arena,
                              void *options, rp_reason *reason)
{
    (void)row;
    (void)arena;
    return set_backend(rp_log_spell("{backend}").text, text, options, reason);
}

static rp_status take_betas(const rp_option *row, const char *text, rp_arena *arena, void *options,
                            rp_reason *reason)
{
    rpexec_options *o = options;
    char first[32];
    const char *comma = strchr(text, ',');
    size_t length = comma != NULL ? (size_t)(comma - text) : 0;
    (void)arena;
    memcpy(first, text, length < sizeof first ? length : 0);
    first[length < sizeof first ? length : 0] = '\0';
    bool good = comma != NULL && rp_parse_double(first, 0, 1, &o->beta1) &&
                rp_parse_double(comma + 1, 0, 1, &o->beta2) && o->beta1 < 1 && o->beta2 < 1;
    return good ? RP_OK
                : rp_option_bad(row->name, text, "two numbers from 0 to below 1, as 0.9,0.95",
                                reason);
}

static void write_betas(const void *options, rp_json *json)
{
    const rpexec_options *o = options;
    rp_json_begin_array(json);
    rp_json_double(json, o->beta1);
    rp_json_double(json, o->beta2);
    rp_json_end_array(json);
}

static void write_schedule(const void *options, rp_json *json)
{
    rp_json_string(json, ((const rpexec_options *)options)->schedule->name);
}

static void write_backend(const void *options, rp_json *json)
{
    rp_json_string(json, ((const rpexec_options *)options)->backend);
}

static void write_data_parallel(const void *options, rp_json *json)
{
    rp_json_uint(json, rp_layout_data(&((const rpexec_options *)options)->run.layout));
}

static void write_tensor_parallel(const void *options, rp_json *json)
{
    rp_json_uint(json, rp_layout_tensor(&((const rpexec_options *)options)->run.layout));
}

static void write_link(const void *options, rp_json *json)
{
    double rate = ((const rpexec_options *)options)->link_gb_per_s;
    if (rate > 0) {
        rp_json_double(json, rate);
    } else {
        rp_json_null(json);
    }
}

static void write_network(const void *options, rp_json *json)
{
    double rate = ((const rpexec_options *)options)->network_gb_per_s;
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
/* Options that may differ between processes; all other options are compared (train_processes.c). */
#define OWN .own = true
#define ELSEWHERE .elsewhere = true
enum { IN_PROGRAM = 1 };
#define FIXED .marks = IN_PROGRAM /* by the program of --program-in */

static rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define RUN(name_, group_, ...) {.name = (name_), .group = (group_), __VA_ARGS__},
#include "exec/setup/setup_rows.inc"
#undef RUN
#undef OPTION
};

/* ---- combinations ---------------------------------------------------------------------------- */

static const char *backend_of(const void *options)
{
    return ((const rpexec_options *)options)->backend;
}

static const char *dtype_of(const void *options)
{
    return rp_dtype_text(((const rpexec_options *)options)->run.dtype);
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
    return ((const rpexec_options *)options)->run.dtype != RP_DTYPE_F16;
}

static bool has_cudnn_in_fp32(const void *options)
{
    const rpexec_options *o = options;
    return o->attention == RPEXEC_ATTENTION_CUDNN && o->run.dtype == RP_DTYPE_F32;
}

static bool limits_links_of_devices(const void *options)
{
    return has_devices(options) && ((const rpexec_options *)options)->link_gb_per_s > 0;
}

static bool has_two_numbers(const void *options)
{
    const rpexec_options *o = options;
    return o->run.gpus != o->virtual_gpus;
}

static const char *two_numbers_of(const void *options)
{
    static char numbers[sizeof(rp_log_words) + 64];
    const rpexec_options *o = options;
    (void)snprintf(numbers, sizeof numbers, "%" PRIu32 " of them, and %s %" PRIu32, o->virtual_gpus,
                   rp_log_spell("{gpus}").text, o->run.gpus);
    return numbers;
}

static bool is_no_pipeline(const void *options)
{
    return ((const rpexec_options *)options)->schedule->traits.placement != RP_PLACEMENT_RESIDENT;
}

static bool stands_for_several(const void *options)
{
    const rpexec_options *o = options;
    return rp_layout_gpus(&o->run.layout) > 1 && !is_no_pipeline(options);
}

static rp_status check_layout(const rpexec_options *o, rp_reason *reason)
{
    const rp_layout *layout = &o->run.layout;
    uint32_t copies = rp_layout_data(layout);
    bool resident = o->schedule->traits.placement == RP_PLACEMENT_RESIDENT;
    RP_TRY(rp_compile_check_layout(o->schedule, layout, NULL, o->run.seq_len, o->run.asynchronous,
                                   reason));
    if (resident && o->run.gpus * o->run.nodes % rp_layout_gpus(layout) != 0) {
        return rp_refuse_setting(
            reason, RP_USAGE,
            o->run.layout.tensor_parallel != 0 ? "tensor_parallel" : "data_parallel",
            "%" PRIu32 " copies x %" PRIu32 " GPUs per layer do not divide %" PRIu32
            " GPUs; valid are numbers whose product does",
            copies, rp_layout_tensor(layout), o->run.gpus * o->run.nodes);
    }
    if (!resident && copies != o->run.nodes) {
        return rp_refuse(
            reason, RP_USAGE,
            "{data_parallel}: copies of %s are servers, a process each, and this run has "
            "%" PRIu32 "; valid is mpirun -n %" PRIu32,
            o->schedule->name, o->run.nodes, copies);
    }
    if (resident && copies % o->run.nodes != 0) {
        return rp_refuse(
            reason, RP_USAGE,
            "{data_parallel}: %" PRIu32 " processes cannot have equally many of %" PRIu32
            " copies, and a pipeline is in one of them; valid are multiples of %" PRIu32,
            o->run.nodes, copies, o->run.nodes);
    }
    return RP_OK;
}

/* Servers, a process each, need copies of pipelines, or pools of GPUs whose weights are on the
 * host. */
static rp_status check_servers(const rpexec_options *o, rp_reason *reason)
{
    rp_placement placement = o->schedule->traits.placement;
    const struct {
        bool is;
        const char *message;
    } refused[] = {
        {placement == RP_PLACEMENT_SHARDED,
         "{schedule}: GPUs of data-parallel systems are those of one process; valid with several "
         "are pipelines, and schedules with weights in host memory"},
        {placement == RP_PLACEMENT_RESIDENT && has_devices(o),
         "{backend}: with several processes pipelines sum gradients in the host's memory; valid is "
         "host, or a schedule with weights in host memory"},
        {o->program_in != NULL, "{program_in}: a program is run by one process; valid is one"},
        {o->check, "{check}: a run of several processes is compared by its losses; valid with one"},
        {o->record != NULL && placement == RP_PLACEMENT_RESIDENT,
         "{record}: GPUs' sums wait for other processes, which is no cost of one; valid with one "
         "process, or with a schedule with weights in host memory"},
        {o->predict && placement == RP_PLACEMENT_RESIDENT,
         "{predict}: of GPUs that do the same none is simulated alone; valid with one process, or "
         "with a schedule with weights in host memory"},
    };
    for (size_t i = 0; o->run.nodes > 1 && i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].is) {
            return rp_refuse(reason, RP_USAGE, "%s", rp_log_spell(refused[i].message).text);
        }
    }
    if (o->run.nodes == 1 && o->network_gb_per_s > 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{network_gb_per_s}: there is one process; valid with several (mpirun)");
    }
    return RP_OK;
}

static const rp_option_rule rules[] = {
    {.given = "staged",
     .with = "transport",
     .when = is_not_staged,
     .subject = transport_of,
     .message = "{transport} is @; valid is one of them"},
    {.given = "virtual-gpus transport staged graphs attention half-accumulation",
     .when = has_no_devices,
     .subject = backend_of,
     .message = "the @ backend has no devices; valid only with {backend} cuda"},
    {.given = "bind",
     .when = has_devices,
     .subject = backend_of,
     .message = "GPUs of the @ backend are no threads; valid only with {backend} host"},
    {.given = "half-accumulation",
     .when = is_not_fp16,
     .subject = dtype_of,
     .message = "products of @ add up in fp32; valid only with {dtype} fp16"},
    {.when = has_cudnn_in_fp32,
     .message = "{attention} cudnn: cuDNN has no attention in fp32; valid with fp32 are own and "
                "auto, with cudnn {dtype} bf16 and fp16"},
    {.given = "link-gb-per-s",
     .when = limits_links_of_devices,
     .subject = backend_of,
     .message = "the links of the @ backend are as fast as they are; valid only with {backend} "
                "host"},
    {.given = "virtual-gpus",
     .with = "gpus",
     .when = has_two_numbers,
     .subject = two_numbers_of,
     .message = "@; valid is the same number, or one of the two"},
    {.given_mark = IN_PROGRAM,
     .with = "program-in",
     .message = "the program of {program_in} fixes it; valid is one of them"},
    {.given = "record predict",
     .when = stands_for_several,
     .message = "of several GPUs that do the same none is measured alone; valid without "
                "{data_parallel} and {tensor_parallel}"},
    {.given = "peers",
     .when = is_no_pipeline,
     .subject = schedule_of,
     .message = "@ does not hand boundary tensors from GPU to GPU; valid with pipelines whose "
                "weights stay on their GPUs, such as 1f1b"},
    {.given = "peers",
     .with = "platform",
     .message = "{platform} says which GPUs reach each other; valid is one of them"},
    {.given = "predict",
     .without = "costs",
     .message = "valid only with {costs} DIR, which an earlier run with {record} DIR has written"},
    {.given = "predict",
     .with = "weights",
     .message = "rpsim does not read checkpoints; valid is {model}"},
    {.given = "db-ops",
     .without = "db",
     .message = "valid only with {db} F, the store that the ops go to"},
    {.given = "bytes join-documents", .without = "data", .message = "valid only with {data} FILE"},
    {.given = "eval-every",
     .without = "eval-data",
     .message = "valid only with {eval_data} F, whose loss it asks for"},
    {.given = "save-every", .without = "save", .message = "valid only with {save} DIR"},
    {.given = "keep", .without = "save", .message = "valid only with {save} DIR"},
    {.given = "resume",
     .without = "save",
     .message = "valid only with {save} DIR, whose newest checkpoint it takes"},
    {.given = "model",
     .with = "weights",
     .message = "{weights} has a config.json of its own; valid is one of them"},
};

static const rp_options_program keys = {
    .name = "rpexec",
    RP_OPTION_TABLES(groups, rows, rules),
};

const rp_options_program *rpexec_setup_keys(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rp_run_row(rows[i].name) != NULL) {
            rp_run_complete_row(&rows[i], offsetof(rpexec_options, run));
        }
    }
    return &keys;
}

/* ---- defaults that depend on others ---------------------------------------------------------- */

/* All of the machine's devices; a backend without devices runs four GPUs. */
static uint32_t default_gpus(const rpexec_backend_type *backend)
{
    uint32_t count = backend->driver()->attach == NULL ? 4 : rpexec_backend_devices(backend);
    return count > 0 ? count : 1;
}

/* Takes the environment's backend if it names one, so that tests and scripts run on the intended
 * backend. */
static rp_status default_backend(rpexec_options *o, rp_reason *reason)
{
    const char *name = getenv("RPEXEC_BACKEND");
    if (name != NULL && *name != '\0') {
        return set_backend("the environment variable RPEXEC_BACKEND", name, o, reason);
    }
    const rpexec_backend_type *type = rpexec_backend_default(rpexec_backends, rpexec_backend_count);
    o->backend = type != NULL ? type->name : "host";
    return RP_OK;
}

/* Checks the rules, some of which ask the backend. */
static rp_status check(rpexec_options *o, rp_reason *reason)
{
    if (o->backend == NULL) {
        RP_TRY(default_backend(o, reason));
    }
    return rp_options_check(rpexec_setup_keys(), o, reason);
}

static rp_status complete(rpexec_options *o, rp_reason *reason)
{
    rpexec_gpu_set_connections(o->virtual_gpus != 0); /* before a backend looks for devices */
    RP_TRY(check(o, reason));
    o->transport = o->staged ? RPEXEC_TRANSPORT_STAGED : o->transport;
    o->staged = o->transport == RPEXEC_TRANSPORT_STAGED;
    if (o->run.gpus == 0) {
        o->run.gpus =
            o->virtual_gpus != 0 ? o->virtual_gpus : default_gpus(rpexec_backend_find(o->backend));
    }
    o->save_every = o->save_every == 0 ? 50 : o->save_every;
    o->keep = o->keep == 0 ? 2 : o->keep;
    o->model = o->model == NULL ? "tiny" : o->model;
    RP_TRY(check_servers(o, reason));
    if (o->run.nodes > 1 && o->run.layout.data_parallel == 0) {
        o->run.layout.data_parallel = o->run.nodes;
    }
    RP_TRY(check_layout(o, reason));
    if (o->program_in != NULL) { /* the program decides the rest when it is read */
        return RP_OK;
    }
    bool idle_grain = false;
    const rp_run given = o->run;
    o->steps = o->steps == 0 ? 10 : o->steps;
    rp_run_decide(&o->run, o->schedule);
    RP_TRY(rp_compile_check_grain(o->schedule, o->run.recomputes[0], given.layer_grain,
                                  given.recompute_count != 0, &idle_grain, reason));
    if (idle_grain) {
        rp_compile_warn_of_grain(o->schedule);
    }
    return RP_OK;
}

rpexec_options rpexec_setup_defaults(void)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    return (rpexec_options){.schedule = rp_schedule_find("roundpipe"),
                            .run = {.hardware = true,
                                    .nodes = rpexec_launch_started(),
                                    .seq_len = 128,
                                    .dtype = RP_DTYPE_F32,
                                    .round = RP_ROUND_ALL,
                                    .piece_bytes = RP_PIECE_BYTES},
                            .watchdog_s = 60,
                            .lr = adam.lr,
                            .beta1 = adam.beta1,
                            .beta2 = adam.beta2,
                            .eps = adam.eps};
}

rp_status rpexec_setup_complete(rpexec_options *o, rp_reason *reason)
{
    switch (o->action) {
    case RPEXEC_ACTION_RUN:
        return complete(o, reason);
    case RPEXEC_ACTION_DESCRIBE:
        return check(o, reason);
    case RPEXEC_ACTION_LIST:
        break;
    }
    return RP_OK;
}
