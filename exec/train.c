#include "exec/train.h"

#include "common/log.h"
#include "common/metrics.h"
#include "common/text.h"
#include "common/units.h"
#include "exec/backend.h"
#include "exec/checkpoint/weights.h"
#include "exec/program_in.h"
#include "exec/random.h"
#include "exec/train_inside.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Steps that one program has. With the asynchronous optimizer steps overlap inside of a program. */
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
    return RP_OK;
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
        RP_TRY(rpexec_predict_read(o->costs, t->config.layers, o->microbatch_size, o->seq_len,
                                   t->arena, &t->prediction));
        t->costs = t->prediction.costs;
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

/* What is left must be whole runs of a given program, and long enough to be measured. */
static rp_status check_steps(const rpexec_trainer *t)
{
    if (t->o->record != NULL && t->outcome->steps < 2) {
        rp_log_error("--record: %" PRIu32 " steps are left, and the first does not count; valid "
                     "are runs of 2 steps and more",
                     t->outcome->steps);
        return RP_USAGE;
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
                                          .staged = t->o->staged,
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
    return t->driver->attach(&config, &t->devices, &t->gpu_bytes);
}

static rp_status set_up(rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
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

/* When an iteration's work is done; an asynchronous optimizer works on beside the next one. */
static void set_times(const rpexec_trainer *t, const rp_timeline *timeline, uint32_t done)
{
    const rp_program *p = timeline->program;
    int64_t before = 0;
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        int64_t end = before;
        for (uint32_t op = 0; op < p->op_count; op++) {
            bool host = rp_op_kind_class((rp_op_kind)p->ops[op].kind) == RP_CLASS_HOST;
            bool counts = p->ops[op].iteration == i && !(host && t->o->asynchronous);
            end = counts && timeline->end_ps[op] > end ? timeline->end_ps[op] : end;
        }
        t->outcome->iteration_ms[done + i] = (double)(end - before) / 1e9;
        before = end;
    }
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
                                     .watchdog_s = t->o->watchdog_s},
                          .fail_op = RP_MAX_OPS,
                          .keep_gradients = t->o->check,
                          .losses = t->outcome->losses + done,
                          .timeline = timeline};
    t->slot_microbatches = plan->slot_microbatches;
    RP_TRY(rpexec_execute(&e));
    t->outcome->uploaded_bytes += e.uploaded_bytes;
    t->outcome->downloaded_bytes += e.downloaded_bytes;
    t->outcome->exchanged_bytes += e.exchanged_bytes;
    for (uint32_t i = 0; i < t->o->gpus; i++) {
        uint64_t bytes = plan->arena_bytes[i];
        uint64_t *peak = &t->outcome->peak_gpu_bytes[i];
        *peak = bytes > *peak ? bytes : *peak;
    }
    set_times(t, timeline, done);
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
    const rpexec_recorded recorded = {.model = t->config.name,
                                      .backend = t->o->backend,
                                      .machine = &t->machine,
                                      .gpu_bytes = t->gpu_bytes,
                                      .sharing_gpus = t->o->virtual_gpus};
    return rpexec_record_write(plan, timeline, &t->flops, skip, &recorded, t->arena, &t->record);
}

static rp_status run_segment(rpexec_trainer *t, uint32_t done, uint32_t steps, bool last,
                             rp_arena *arena)
{
    rpexec_plan plan;
    rpexec_batch *batches = NULL;
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    uint64_t cap_bytes = cap_of(t);
    t->work.iterations = steps;
    RP_TRY(read_batches(t, steps, arena, &batches));
    if (t->program == NULL) {
        RP_TRY(rpexec_work_program(&t->work, &t->model, &t->costs, &program));
    }
    const rp_program *runs = t->program != NULL ? t->program : program;
    rp_status status = rpexec_plan_create(runs, &t->model, cap_bytes, arena, &plan);
    if (status == RP_OK && t->program != NULL) {
        status = rpexec_program_in_check(&plan);
    }
    status = status == RP_OK ? rp_timeline_create(runs, &timeline) : status;
    status = status == RP_OK ? run_plan(t, &plan, batches, done, timeline) : status;
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
    t->progress.place += (uint64_t)steps * t->batch;
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

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
 * between programs, and a given program is as long as it is. */
static uint32_t segment_steps(const rpexec_trainer *t, uint32_t done)
{
    if (t->program != NULL) {
        return t->program->iteration_count;
    }
    uint32_t left = t->outcome->steps - done;
    uint32_t steps = left < SEGMENT_STEPS ? left : SEGMENT_STEPS;
    if (t->o->save != NULL) {
        uint32_t until_save =
            t->o->save_every - (uint32_t)((t->outcome->first_step + done) % t->o->save_every);
        steps = steps < until_save ? steps : until_save;
    }
    return t->o->check && done == 0 ? 1 : steps;
}

static rp_status train(rpexec_trainer *t)
{
    for (uint32_t done = 0; done < t->outcome->steps;) {
        rp_arena *arena = NULL;
        uint32_t steps = segment_steps(t, done);
        bool last = done + steps == t->outcome->steps;
        double begin_s = now_s();
        RP_TRY(rp_arena_create(&arena));
        rp_status status = run_segment(t, done, steps, last, arena);
        rp_arena_destroy(arena);
        RP_TRY(status);
        done += steps;
        t->seconds += now_s() - begin_s;
        show_progress(t, done, last);
        /* Steps of this segment. */
        bool due = rpexec_state_iterations(&t->state) % t->o->save_every < steps;
        if (t->o->save != NULL && (last || due)) {
            RP_TRY(rpexec_checkpoint_save(t->o->save, &t->state, &t->progress));
        }
    }
    t->outcome->tokens_per_s = tokens_per_s(t, t->outcome->steps);
    t->outcome->loss_scale = (double)t->state.scaler.scale;
    t->outcome->skipped_steps = t->state.skipped;
    return RP_OK;
}

/* Of the last program: its steps together, as it ran and as it is simulated. */
static rp_status predict(rpexec_trainer *t)
{
    double predicted_ms = 0;
    double measured_ms = 1e-9 * (double)rp_metrics_makespan_ps(t->timeline);
    const rp_program *program = t->timeline->program;
    const char *beside = NULL; /* the record's timeline, for rpdiff */
    if (t->o->record != NULL) {
        RP_TRY(rp_arena_print(t->arena, &beside, "%s/predicted.csv", t->o->record));
    }
    RP_TRY(rpexec_predict(&t->prediction, program, t->o->model, beside, t->arena, &predicted_ms));
    t->outcome->predicted_iteration_ms = predicted_ms / program->iteration_count;
    t->outcome->prediction_error_pct = 100 * (predicted_ms / measured_ms - 1);
    return RP_OK;
}

static rp_status leave(rpexec_trainer *t)
{
    if (t->o->predict && t->timeline != NULL) {
        RP_TRY(predict(t));
    }
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
    *outcome_out = (rpexec_outcome){
        .checked = options->check, .predicted_iteration_ms = NAN, .prediction_error_pct = NAN};
    rp_status status = RP_OK;
    if (options->program_in != NULL) {
        status = rpexec_program_in_read(options, arena, &t.program);
    }
    status = status == RP_OK ? set_up(&t) : status;
    status = status == RP_OK ? train(&t) : status;
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
