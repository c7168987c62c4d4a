#include "exec/train.h"

#include "common/log.h"
#include "common/median.h"
#include "common/text.h"
#include "common/units.h"
#include "exec/backend.h"
#include "exec/checkpoint/weights.h"
#include "exec/host/awake.h"
#include "exec/program_in.h"
#include "exec/random.h"
#include "exec/train_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Steps that one program has at most. With the asynchronous optimizer steps overlap inside of a
 * program. */
#define SEGMENT_STEPS 8u

/* ---- setting up -------------------------------------------------------------------------------
 */

static rp_status load_config(rpexec_trainer *t)
{
    const char *path = NULL;
    if (t->o->weights == NULL) {
        RP_TRY(rp_model_load(t->o->model, t->arena, &t->config));
    } else {
        RP_TRY(rp_arena_print(t->arena, &path, "%s/config.json", t->o->weights));
        RP_TRY(rpexec_config_load(path, t->arena, &t->config));
    }
    if (t->o->lora_rank != 0) {
        rp_model_set_lora_rank(&t->config, t->o->lora_rank);
    }
    if (t->o->lora_alpha != 0 && t->config.lora_rank == 0) {
        rp_log_error("--lora-alpha: %s has no adapters; valid only with --lora-rank",
                     t->config.name);
        return RP_USAGE;
    }
    t->config.lora_alpha = t->o->lora_alpha;
    return rpexec_predict_conditions(t->o->dtype, t->config.lora_rank, t->o->half_accumulation,
                                     t->o->attention, t->arena, &t->conditions);
}

static rp_status set_state(rpexec_trainer *t)
{
    RP_TRY(rpexec_state_create(&t->model, t->arena, &t->state));
    RP_TRY(rpexec_state_initialise(&t->state, t->o->seed));
    if (t->o->weights != NULL) {
        RP_TRY(rpexec_weights_load(t->o->weights, &t->state));
    }
    t->progress = (rpexec_progress){.seed = t->o->seed, .seq_len = t->o->seq_len};
    bool found = false;
    if (t->o->save != NULL) {
        RP_TRY(rpexec_checkpoint_open(t->o->save, !t->o->resume));
    }
    if (t->o->resume) {
        RP_TRY(rpexec_checkpoint_resume(t->o->save, &t->state, &t->progress, &found));
    }
    if (found && (t->progress.seed != t->o->seed || t->progress.seq_len != t->o->seq_len)) {
        rp_log_error("--resume: the checkpoint was made with --seed %" PRIu64 " --seq-len %" PRIu32
                     "; valid are the same ones",
                     t->progress.seed, t->progress.seq_len);
        return RP_USAGE;
    }
    t->outcome->first_step = rpexec_state_iterations(&t->state);
    return RP_OK;
}

static rp_status set_work(rpexec_trainer *t)
{
    const rpexec_options *o = t->o;
    t->work = (rpexec_work){.schedule = o->schedule,
                            .gpus = o->gpus,
                            .calls = o->accumulate,
                            .microbatches = o->microbatches,
                            .microbatch_size = o->microbatch_size,
                            .round = o->round,
                            .asynchronous = o->asynchronous,
                            .recompute = o->recompute,
                            .layer_grain = o->layer_grain,
                            .peer_gpus = o->peers              ? UINT32_MAX
                                         : o->platform != NULL ? rp_peer_gpus(&t->machine.platform)
                                                               : 0,
                            .piece_bytes = (uint64_t)o->piece_mb << 20};
    RP_TRY(rpexec_work_costs(&t->model, o->microbatch_size, t->arena, &t->flops));
    t->costs = t->flops;
    if (o->costs != NULL) {
        const rpexec_measured wanted = {.model = t->config.name,
                                        .backend = o->backend,
                                        .conditions = t->conditions,
                                        .layers = t->config.layers,
                                        .sequences = o->microbatch_size,
                                        .seq_len = o->seq_len};
        RP_TRY(rpexec_predict_read(o->costs, &wanted, t->arena, &t->prediction));
        t->costs = t->prediction.costs;
        if (t->o->predict && t->prediction.bound != t->o->bind) {
            rp_log_warning("--predict: the record is of a run %s --bind, this one runs %s; what it "
                           "predicts is the other kind",
                           t->prediction.bound ? "with" : "without",
                           t->o->bind ? "with" : "without");
        }
    }
    if (o->partition != NULL) {
        RP_TRY(rp_partition_parse("--partition", o->partition, t->arena, &t->partition));
        t->work.partition = &t->partition;
    }
    RP_TRY(
        rp_arena_alloc(t->arena, rpexec_trainer_microbatches(t), sizeof(uint32_t), &t->sequences));
    const uint32_t *given = t->program != NULL ? t->program->sequences : NULL;
    for (uint32_t i = 0; i < rpexec_trainer_microbatches(t); i++) {
        t->sequences[i] = given != NULL ? given[i] : o->microbatch_size;
        t->batch += t->sequences[i];
    }
    return t->program == NULL ? RP_OK : rpexec_program_in_fit(o, &t->model, t->arena, &t->program);
}

/* What a run that has no step left cannot give. */
static const char *wants(const rpexec_options *o)
{
    const struct {
        bool is;
        const char *option;
    } all[] = {{o->check, "--check"},
               {o->predict, "--predict"},
               {o->program_out != NULL, "--program-out"},
               {o->timeline_out != NULL, "--timeline-out"},
               {o->trace_out != NULL, "--trace-out"},
               {o->gantt_out != NULL, "--gantt-out"},
               {o->loss_out != NULL, "--loss-out"},
               {o->db != NULL, "--db"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].is) {
            return all[i].option;
        }
    }
    return NULL;
}

/* Ranks of tensor parallelism sum inside of their compute ops, so that no op is compute alone. */
static rp_status check_record(const rpexec_options *o)
{
    if (o->record == NULL || !rp_schedule_cuts_layers(o->schedule)) {
        return RP_OK;
    }
    rp_log_error("--record: GPUs of %s exchange inside of their compute ops, whose times are no "
                 "costs of layers; valid are schedules of whole layers, whose record --costs takes "
                 "for %s, too",
                 o->schedule->name, o->schedule->name);
    return RP_USAGE;
}

/* What is left must be whole runs of a given program, and long enough to be measured. */
static rp_status check_steps(const rpexec_trainer *t)
{
    if (t->o->record != NULL && t->outcome->steps < 2) {
        rp_log_error("--record: %" PRIu32 " steps are left, and the first does not count; valid "
                     "are runs of 2 steps and more",
                     t->outcome->steps);
        return RP_USAGE;
    }
    if (t->outcome->steps == 0 && wants(t->o) != NULL) {
        rp_log_error("%s: the checkpoint is of step %" PRIu64 ", and no step is left; valid are "
                     "more --steps",
                     wants(t->o), t->outcome->first_step);
        return RP_USAGE;
    }
    if (t->outcome->steps == 0) {
        rp_log_warning("--resume: the checkpoint is of step %" PRIu64 ", and no step is left",
                       t->outcome->first_step);
    }
    if (t->program == NULL || t->outcome->steps % t->program->iteration_count == 0) {
        return RP_OK;
    }
    rp_log_error("--resume: the checkpoint is of step %" PRIu64 ", %" PRIu32 " are left, and %s "
                 "has %" PRIu32 " iterations; valid are checkpoints between runs of it",
                 t->outcome->first_step, t->outcome->steps, t->o->program_in,
                 t->program->iteration_count);
    return RP_USAGE;
}

static rp_status attach(rpexec_trainer *t)
{
    const rpexec_devices_config config = {.gpus = t->o->gpus,
                                          .is_virtual = t->o->virtual_gpus != 0,
                                          .graphs = t->o->graphs,
                                          .attention = t->o->attention,
                                          .transport = t->o->transport,
                                          .collectives = t->o->schedule->data_parallel,
                                          .half_accumulation = t->o->half_accumulation};
    t->driver = rpexec_backend_find(t->o->backend)->driver();
    if (t->driver->attach == NULL) {
        return RP_OK;
    }
    if (config.is_virtual && config.gpus != t->o->virtual_gpus) {
        rp_log_error("--virtual-gpus: the program has %" PRIu32 " GPUs; valid is that number",
                     config.gpus);
        return RP_USAGE;
    }
    RP_TRY(t->driver->attach(&config, &t->devices, &t->gpu_bytes));
    return rp_arena_print(t->arena, &t->outcome->transport, "%s", t->driver->transport(t->devices));
}

static rp_status set_up(rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
    RP_TRY(check_record(t->o));
    RP_TRY(attach(t));
    RP_TRY(load_config(t));
    RP_TRY(rpexec_model_create(&t->config, t->o->seq_len, t->o->dtype, t->arena, &t->model));
    if (t->o->data != NULL) {
        RP_TRY(
            rpexec_tokens_open(t->o->data, t->o->seq_len, t->config.vocab, t->o->seed, &t->tokens));
    }
    RP_TRY(rpexec_machine_load(t->o->platform, t->o->link_gb_per_s, t->o->gpus, t->arena,
                               &t->machine));
    t->machine.machine.local_memory = t->o->schedule->data_parallel;
    if (t->o->peers) { /* as fast as the links to the host, beside them */
        t->machine.machine.peer_Bps = t->machine.machine.upload_Bps;
        t->machine.machine.peer_pcie = true;
    }
    RP_TRY(set_work(t));
    RP_TRY(set_state(t));
    t->adam = rpexec_adam_defaults();
    t->adam.lr = t->o->lr;
    t->adam.weight_decay = t->o->weight_decay;
    t->adam.decoupled = t->o->weight_decay > 0;
    out->gpus = t->o->gpus;
    out->steps = t->o->steps > out->first_step ? (uint32_t)(t->o->steps - out->first_step) : 0;
    RP_TRY(check_steps(t));
    RP_TRY(rpexec_artefacts_open(t->o, &t->artefacts));
    if (t->o->record != NULL) {
        RP_TRY(rpexec_record_open(t->o->record, t->arena, &t->record));
    }
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->losses));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->iteration_ms));
    RP_TRY(rp_arena_alloc(t->arena, t->o->gpus, sizeof(uint64_t), &out->peak_gpu_bytes));
    return t->o->check ? rpexec_check_begin(t) : RP_OK;
}

/* ---- one segment ------------------------------------------------------------------------------
 */

static void fill_random(const rpexec_trainer *t, uint64_t place, uint32_t count, int32_t *ids,
                        int32_t *labels)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k <= t->o->seq_len; k++) {
            uint64_t bits = rpexec_random_bits(t->o->seed, place + i, k);
            int32_t token = (int32_t)(bits % t->config.vocab);
            size_t row = (size_t)i * t->o->seq_len;
            if (k < t->o->seq_len) {
                ids[row + k] = token;
            }
            if (k > 0) {
                labels[row + k - 1] = token;
            }
        }
    }
}

static rp_status read_batches(rpexec_trainer *t, uint32_t steps, rp_arena *arena,
                              rpexec_batch **batches_out)
{
    rpexec_batch *batches = NULL;
    uint32_t count = t->batch;
    uint64_t tokens = (uint64_t)count * t->o->seq_len;
    RP_TRY(rp_arena_alloc(arena, steps, sizeof *batches, &batches));
    for (uint32_t i = 0; i < steps; i++) {
        int32_t *ids = NULL;
        int32_t *labels = NULL;
        uint64_t place = t->progress.place + (uint64_t)i * count;
        RP_TRY(rp_arena_alloc(arena, tokens, sizeof *ids, &ids));
        RP_TRY(rp_arena_alloc(arena, tokens, sizeof *labels, &labels));
        if (t->tokens.mapping != NULL) {
            rpexec_tokens_read(&t->tokens, place, count, ids, labels);
        } else {
            fill_random(t, place, count, ids, labels);
        }
        batches[i] = (rpexec_batch){.ids = ids, .labels = labels, .valid_tokens = tokens};
    }
    *batches_out = batches;
    return RP_OK;
}

/* When an iteration's work is done; an asynchronous optimizer works on beside the next one.
 * @param ms_out [iterations] */
static void iteration_times(const rp_timeline *timeline, bool asynchronous, double *ms_out)
{
    const rp_program *p = timeline->program;
    int64_t before = 0;
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        int64_t end = before;
        for (uint32_t op = 0; op < p->op_count; op++) {
            bool host = rp_op_kind_class((rp_op_kind)p->ops[op].kind) == RP_CLASS_HOST;
            bool counts = p->ops[op].iteration == i && !(host && asynchronous);
            end = counts && timeline->end_ps[op] > end ? timeline->end_ps[op] : end;
        }
        ms_out[i] = (double)(end - before) / 1e9;
        before = end;
    }
}

/* Its texts go with the devices. */
static rp_status keep_attention(rpexec_trainer *t)
{
    rpexec_attention_report *kept = &t->outcome->attention;
    t->driver->attention(t->devices, kept);
    RP_TRY(rp_arena_print(t->arena, &kept->by, "%s", kept->by));
    return kept->why == NULL ? RP_OK : rp_arena_print(t->arena, &kept->why, "%s", kept->why);
}

static rp_status run_plan(rpexec_trainer *t, const rpexec_plan *plan, const rpexec_batch *batches,
                          uint32_t done, rp_timeline *timeline)
{
    rpexec_execution e = {.plan = plan,
                          .state = &t->state,
                          .adam = t->adam,
                          .batches = batches,
                          .driver_type = t->driver,
                          .driver = {.devices = t->devices,
                                     .machine = t->machine.limited ? &t->machine.machine : NULL,
                                     .watchdog_s = t->o->watchdog_s,
                                     .bound = t->o->bind},
                          .fail_op = RP_MAX_OPS,
                          .keep_gradients = t->o->check,
                          .losses = t->outcome->losses + done,
                          .timeline = timeline};
    t->slot_microbatches = plan->slot_microbatches;
    RP_TRY(rpexec_execute(&e));
    if (t->devices != NULL && t->driver->graphs != NULL) { /* --record launches more */
        t->driver->graphs(t->devices, &t->outcome->graphs);
        RP_TRY(keep_attention(t));
    }
    t->outcome->uploaded_bytes += e.uploaded_bytes;
    t->outcome->downloaded_bytes += e.downloaded_bytes;
    t->outcome->exchanged_bytes += e.exchanged_bytes;
    for (uint32_t i = 0; i < t->o->gpus; i++) {
        uint64_t bytes = plan->arena_bytes[i];
        uint64_t *peak = &t->outcome->peak_gpu_bytes[i];
        *peak = bytes > *peak ? bytes : *peak;
    }
    iteration_times(timeline, t->o->asynchronous, t->outcome->iteration_ms + done);
    return RP_OK;
}

static uint64_t cap_of(const rpexec_trainer *t)
{
    uint64_t platform = (uint64_t)(1e9 * t->machine.platform.memory_gb);
    uint64_t there =
        t->gpu_bytes == 0 || (platform != 0 && platform < t->gpu_bytes) ? platform : t->gpu_bytes;
    return t->o->gpu_memory_mb != 0 ? (uint64_t)t->o->gpu_memory_mb << 20 : there;
}

static rp_status record(rpexec_trainer *t, const rpexec_plan *plan, const rp_timeline *timeline,
                        uint32_t skip)
{
    const rpexec_site site = {.driver_type = t->driver,
                              .devices = t->devices,
                              .machine = t->machine.limited ? &t->machine.machine : NULL,
                              .model = &t->model,
                              .gpus = t->o->gpus,
                              .sequences = t->flops.microbatch_size,
                              .watchdog_s = t->o->watchdog_s,
                              .bound = t->o->bind,
                              .gpu_bytes = cap_of(t)};
    const rpexec_recorded recorded = {.model = t->config.name,
                                      .backend = t->o->backend,
                                      .conditions = t->conditions,
                                      .machine = &t->machine,
                                      .site = &site,
                                      .sharing_gpus = t->o->virtual_gpus};
    return rpexec_record_write(plan, timeline, &t->flops, skip, &recorded, t->arena, &t->record);
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static rp_status save_when_due(rpexec_trainer *t, uint32_t steps, bool last)
{
    bool due = rpexec_state_iterations(&t->state) % t->o->save_every < steps; /* one of these */
    return t->o->save != NULL && (last || due)
               ? rpexec_checkpoint_save(t->o->save, &t->state, &t->progress)
               : RP_OK;
}

/* What --check and --record do besides is not time of the run, and a checkpoint is made before
 * anything more can fail. */
static rp_status run_segment(rpexec_trainer *t, uint32_t done, uint32_t steps, bool last,
                             rp_arena *arena)
{
    rpexec_plan plan;
    rpexec_batch *batches = NULL;
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    const rpexec_plan_limits limits = {.cap_bytes = cap_of(t), .chunk = t->driver->chunk};
    double begin_s = now_s();
    t->work.iterations = steps;
    RP_TRY(read_batches(t, steps, arena, &batches));
    if (t->program == NULL) {
        RP_TRY(rpexec_work_program(&t->work, &t->model, &t->costs, &program));
    }
    const rp_program *runs = t->program != NULL ? t->program : program;
    rp_status status = rpexec_plan_create(runs, &t->model, &limits, arena, &plan);
    if (status == RP_OK && t->program != NULL) {
        status = rpexec_program_in_check(&plan);
    }
    status = status == RP_OK ? rp_timeline_create(runs, &timeline) : status;
    status = status == RP_OK ? run_plan(t, &plan, batches, done, timeline) : status;
    t->seconds += now_s() - begin_s;
    t->progress.place += (uint64_t)steps * t->batch;
    status = status == RP_OK ? save_when_due(t, steps, last) : status;
    if (status == RP_OK && t->o->check) {
        status = rpexec_check_segment(t, batches, done, steps);
    }
    if (status == RP_OK && last && t->o->record != NULL) {
        status = record(t, &plan, timeline, done == 0 || steps > 1 ? 1 : 0);
    }
    if (last) {
        t->last = program;
        t->timeline = timeline;
    } else {
        rp_timeline_destroy(timeline);
        rp_program_destroy(program);
    }
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static double tokens_per_s(const rpexec_trainer *t, uint32_t done)
{
    double tokens = (double)done * t->batch * t->o->seq_len;
    return t->seconds > 0 ? tokens / t->seconds : 0;
}

static void show_progress(const rpexec_trainer *t, uint32_t done, bool last)
{
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    double left = t->seconds / done * (t->outcome->steps - done);
    fprintf(stderr, "\rstep %" PRIu64 "/%" PRIu32 "  loss %.4f  %.0f tokens/s  %d:%02d left   %s",
            t->outcome->first_step + done, t->o->steps, t->outcome->losses[done - 1],
            tokens_per_s(t, done), (int)left / 60, (int)left % 60, last ? "\n" : "");
}

/* The first step stands alone with --check: its gradients are compared. Checkpoints are made
 * between programs, and a given program is as long as it is. Others are as long as each other: the
 * last one is measured, and one step of it does not count. */
static uint32_t segment_steps(const rpexec_trainer *t, uint32_t done)
{
    if (t->program != NULL) {
        return t->program->iteration_count;
    }
    uint32_t left = t->outcome->steps - done;
    if (t->o->save != NULL) {
        uint32_t until_save =
            t->o->save_every - (uint32_t)((t->outcome->first_step + done) % t->o->save_every);
        left = left < until_save ? left : until_save;
    }
    uint32_t programs = (left - 1) / SEGMENT_STEPS + 1;
    return t->o->check && done == 0 ? 1 : (left - 1) / programs + 1;
}

static rp_status train(rpexec_trainer *t)
{
    for (uint32_t done = 0; done < t->outcome->steps;) {
        rp_arena *arena = NULL;
        uint32_t steps = segment_steps(t, done);
        bool last = done + steps == t->outcome->steps;
        RP_TRY(rp_arena_create(&arena));
        rp_status status = run_segment(t, done, steps, last, arena);
        rp_arena_destroy(arena);
        RP_TRY(status);
        done += steps;
        show_progress(t, done, last);
    }
    t->outcome->tokens_per_s = tokens_per_s(t, t->outcome->steps);
    t->outcome->loss_scale = (double)t->state.scaler.scale;
    t->outcome->skipped_steps = t->state.skipped;
    return RP_OK;
}

/* The median of all but the first, in which memory is touched, kernels are loaded and, without an
 * iteration before it, pipelines are empty; of one, that one. */
static rp_status median_iteration(const rp_timeline *timeline, bool asynchronous, rp_arena *arena,
                                  double *ms_out)
{
    uint32_t count = timeline->program->iteration_count;
    uint32_t skip = count > 1 ? 1 : 0;
    double *ms = NULL;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *ms, &ms));
    iteration_times(timeline, asynchronous, ms);
    *ms_out = rp_median(ms + skip, count - skip);
    return RP_OK;
}

/* Of the last program, as it ran and as it is simulated. */
static rp_status predict(rpexec_trainer *t)
{
    double predicted_ms = 0;
    double measured_ms = 0;
    rp_timeline *predicted = NULL;
    const char *beside = NULL; /* the record's timeline, for rpdiff */
    if (t->o->record != NULL) {
        RP_TRY(rp_arena_print(t->arena, &beside, "%s/predicted.csv", t->o->record));
    }
    RP_TRY(rpexec_predict(&t->prediction, t->timeline->program, t->o->model, beside, t->arena,
                          &predicted));
    rp_status status = median_iteration(predicted, t->o->asynchronous, t->arena, &predicted_ms);
    rp_timeline_destroy(predicted);
    RP_TRY(status);
    RP_TRY(median_iteration(t->timeline, t->o->asynchronous, t->arena, &measured_ms));
    t->outcome->predicted_iteration_ms = predicted_ms;
    t->outcome->prediction_error_pct = 100 * (predicted_ms / measured_ms - 1);
    return RP_OK;
}

/* Of an earlier run in the same folder. */
static rp_status forget_prediction(const rpexec_trainer *t)
{
    const char *path = NULL;
    RP_TRY(rp_arena_print(t->arena, &path, "%s/predicted.csv", t->o->record));
    if (unlink(path) != 0 && errno != ENOENT) {
        rp_log_error("--record: %s: %s", path, strerror(errno));
        return RP_IO;
    }
    return RP_OK;
}

static rp_status leave(rpexec_trainer *t)
{
    rp_status status = t->o->predict && t->timeline != NULL ? predict(t) : RP_OK;
    if (t->o->record != NULL) { /* afterwards: --costs may be the same folder */
        RP_TRY(t->o->predict ? RP_OK : forget_prediction(t));
        RP_TRY(rpexec_record_commit(&t->record));
    }
    RP_TRY(status);
    const rpexec_run_made run = {.options = t->o,
                                 .outcome = t->outcome,
                                 .model = &t->config,
                                 .platform = t->machine.platform.name,
                                 .timeline = t->timeline};
    return rpexec_artefacts_write(&run, t->arena, &t->artefacts);
}

rp_status rpexec_train(rpexec_options *options, rp_arena *arena, rpexec_outcome *outcome_out)
{
    rpexec_trainer t = {.o = options, .arena = arena, .outcome = outcome_out};
    *outcome_out = (rpexec_outcome){.checked = options->check,
                                    .attention = {.own_s = (double)NAN, .cudnn_s = (double)NAN},
                                    .predicted_iteration_ms = NAN,
                                    .prediction_error_pct = NAN};
    rpexec_host_awake *awake = NULL;
    rp_status status = RP_OK;
    if (options->program_in != NULL) {
        status = rpexec_program_in_read(options, arena, &t.program);
    }
    status = status == RP_OK ? set_up(&t) : status;
    if (status == RP_OK && options->bind) {
        status = rpexec_host_awake_begin(arena, &awake);
    }
    status = status == RP_OK ? train(&t) : status;
    rpexec_host_awake_end(awake);
    status = status == RP_OK ? leave(&t) : status;
    status = status == RP_OK ? rpexec_check_end(&t) : status;
    if (t.devices != NULL) {
        t.driver->detach(t.devices);
    }
    rp_timeline_destroy(t.timeline);
    rp_program_destroy(t.last);
    rp_program_destroy(t.program);
    rpexec_tokens_close(&t.tokens);
    rpexec_artefacts_fini(&t.artefacts);
    rpexec_record_fini(&t.record);
    return status;
}
