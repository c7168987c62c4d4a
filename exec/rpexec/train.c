#include "exec/rpexec/train.h"

#include "common/base/log.h"
#include "common/base/median.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/cli/interrupt.h"
#include "exec/host/awake.h"
#include "exec/measure/measure.h"
#include "exec/operators/random.h"
#include "exec/rpexec/program_in.h"
#include "exec/rpexec/train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Most steps of a program. With the asynchronous optimizer steps overlap inside of a program. */
#define SEGMENT_STEPS 8u

/* ---- one segment ----------------------------------------------------------------------------- */

static void fill_random(const rpexec_trainer *t, uint64_t place, uint32_t count, int32_t *ids,
                        int32_t *labels)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k <= t->o->run.seq_len; k++) {
            uint64_t bits = rpexec_random_bits(t->o->seed, place + i, k);
            int32_t token = (int32_t)(bits % t->config.vocab);
            size_t row = (size_t)i * t->o->run.seq_len;
            if (k < t->o->run.seq_len) {
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
    uint64_t tokens = (uint64_t)count * t->o->run.seq_len;
    RP_TRY(rp_arena_alloc(arena, steps, sizeof *batches, &batches));
    for (uint32_t i = 0; i < steps; i++) {
        int32_t *ids = NULL;
        int32_t *labels = NULL;
        uint64_t place = t->progress.place + (uint64_t)i * count;
        RP_TRY(rp_arena_alloc(arena, tokens, sizeof *ids, &ids));
        RP_TRY(rp_arena_alloc(arena, tokens, sizeof *labels, &labels));
        uint64_t valid = tokens;
        if (t->tokens.mapping != NULL) {
            valid = rpexec_tokens_read(&t->tokens, place, count, ids, labels);
        } else {
            fill_random(t, place, count, ids, labels);
        }
        valid += valid == 0 ? 1 : 0; /* without labels the loss is 0, not a quotient by 0 */
        batches[i] = (rpexec_batch){.ids = ids, .labels = labels, .valid_tokens = valid};
        rpexec_trainer_take_part(t, &batches[i]);
    }
    *batches_out = batches;
    return RP_OK;
}

/* Times of iterations up to the end of their compute; an asynchronous optimizer goes on beside the
 * next iteration.
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

/* Keeps copies of the report's texts, since the originals are freed with the devices. */
static rp_status keep_attention(rpexec_trainer *t)
{
    rpexec_attention_report *kept = &t->outcome->attention;
    t->driver->attention(t->devices, kept);
    RP_TRY(rp_arena_print(t->arena, &kept->by, "%s", kept->by));
    return kept->why == NULL ? RP_OK : rp_arena_print(t->arena, &kept->why, "%s", kept->why);
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Shows tokens per second of the steps that have ended; the time includes planning of segments. */
static void show_progress(const rpexec_trainer *t, double loss, double norm)
{
    if (!isatty(STDERR_FILENO) || !rpexec_trainer_leads(t)) {
        return;
    }
    double seconds = now_s() - t->began_s;
    double left = seconds / t->ended * (t->outcome->steps - t->ended);
    fprintf(stderr,
            "\rstep %" PRIu64 "/%" PRIu32
            "  loss %.4f  norm %.4g  %.0f tokens/s  %d:%02d left   %s",
            t->outcome->first_step + t->ended, t->o->steps, loss, norm,
            (double)t->ended * t->batch * t->o->run.seq_len / seconds, (int)left / 60,
            (int)left % 60, t->ended == t->outcome->steps ? "\n" : "");
}

static const rp_program *program_of(const rpexec_trainer *t)
{
    return t->program != NULL ? t->program : t->session.program;
}

/* A signal does not stop a given program midway, since checkpoints are made between its runs. */
static bool iteration_begins(void *context, uint32_t iteration)
{
    (void)context;
    return iteration == 0 || rp_interrupt_signal() == 0;
}

/* Rate of the optimizer's next step, after `before` steps. A skipped step does not change it. */
static double rate_after(const rpexec_trainer *t, uint64_t before)
{
    return rpexec_adam_rate(&t->adam, before + 1);
}

/* The line of a step that is evaluated is written only after the evaluation. */
static void step_ended(void *context, uint32_t iteration, double loss, double norm)
{
    rpexec_trainer *t = context;
    uint32_t steps = program_of(t)->iteration_count;
    uint32_t step = t->ended;
    uint32_t begin = step - iteration;
    bool waits = iteration + 1 == steps && rpexec_trainer_evaluates(t, begin, steps);
    double now = now_s();
    double ms = 1e3 * (now - t->step_began_s);
    t->step_began_s = now;
    t->ended++;
    t->outcome->rates[step] = rate_after(t, t->steps_before);
    bool skipped = rpexec_scaler_needed(t->model.dtype) && !isfinite(norm);
    t->steps_before += skipped ? 0 : 1;
    t->line = (rpexec_loss_line){.step = t->outcome->first_step + t->ended,
                                 .loss = loss,
                                 .ms = ms,
                                 .norm = norm,
                                 .rate = t->outcome->rates[step],
                                 .eval_loss = NAN};
    if (!waits) {
        rpexec_loss_log_add(&t->losses, &t->line);
    }
    if (t->processes != NULL) {
        rpexec_processes_note_step(t->processes, t->line.step + 1);
    }
    show_progress(t, loss, norm);
}

static uint64_t cap_of(const rpexec_trainer *t)
{
    uint64_t platform = (uint64_t)(1e9 * t->machine.platform.memory_gb);
    uint64_t there =
        t->gpu_bytes == 0 || (platform != 0 && platform < t->gpu_bytes) ? platform : t->gpu_bytes;
    return t->o->gpu_memory_mb != 0 ? (uint64_t)t->o->gpu_memory_mb << 20 : there;
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* Gives devices and memory back; program and plan stay. Afterwards the state is complete. */
static rp_status stop_session(rpexec_trainer *t)
{
    rpexec_session *s = &t->session;
    rp_status status = s->run != NULL ? rpexec_execution_keep(s->run) : RP_OK;
    rpexec_execution_close(s->run);
    s->run = NULL;
    return status;
}

static void drop_session(rpexec_trainer *t)
{
    rpexec_execution_close(t->session.run);
    rp_program_destroy(t->session.program);
    rp_arena_destroy(t->session.arena);
    t->session = (rpexec_session){0};
}

static rp_status plan_session(rpexec_trainer *t, uint32_t steps)
{
    rpexec_session *s = &t->session;
    const rpexec_plan_limits limits = {.cap_bytes = cap_of(t),
                                       .chunk = t->driver->chunk,
                                       .clips = t->adam.clip_norm > 0,
                                       .servers = t->o->run.nodes};
    RP_TRY(rp_arena_create(&s->arena));
    t->work.decided.iterations = steps;
    if (t->program == NULL) {
        RP_TRY(rpexec_work_program(&t->work, &t->model, &t->costs, &s->program, NULL));
    }
    RP_TRY(rpexec_plan_create(program_of(t), &t->model, &limits, s->arena, &s->plan, NULL));
    RP_TRY(t->program != NULL ? rpexec_program_in_check(&s->plan) : RP_OK);
    double flop = 0;
    RP_TRY(rpexec_executed_flop(&s->plan, &flop));
    t->outcome->executed_flop = t->o->run.nodes * flop / program_of(t)->iteration_count;
    t->slot_microbatches = s->plan.slot_microbatches;
    t->job_microbatches = s->plan.job_microbatches;
    return RP_OK;
}

static rp_status open_session(rpexec_trainer *t, uint32_t steps)
{
    rpexec_session *s = &t->session;
    if (s->run != NULL && program_of(t)->iteration_count == steps) {
        return RP_OK;
    }
    RP_TRY(stop_session(t));
    drop_session(t);
    RP_TRY(plan_session(t, steps));
    s->execution =
        (rpexec_execution){.plan = &s->plan,
                           .state = &t->state,
                           .adam = t->adam,
                           .driver_type = t->driver,
                           .driver = {.devices = t->devices,
                                      .machine = t->machine.limited ? &t->machine.machine : NULL,
                                      .watchdog_s = t->o->watchdog_s,
                                      .bound = t->o->bind},
                           .fail_op = RP_MAX_OPS,
                           .fuses = t->program == NULL,
                           .processes = t->processes,
                           .follower = {.context = t,
                                        .begins = t->program == NULL ? iteration_begins : NULL,
                                        .ended = step_ended}};
    return rpexec_execution_open(&s->execution, &s->run);
}

/* @param iterations_out iterations that have run */
static rp_status run_session(rpexec_trainer *t, const rpexec_batch *batches, uint32_t done,
                             rp_timeline *timeline, uint32_t *iterations_out)
{
    rpexec_execution *e = &t->session.execution;
    e->batches = batches;
    e->losses = t->outcome->losses + done;
    e->norms = t->outcome->norms + done;
    e->first_gradients = done == 0 ? t->gradients[0] : NULL;
    t->steps_before = t->state.step;
    e->timeline = timeline;
    t->step_began_s = now_s();
    RP_TRY(rpexec_execution_run(t->session.run));
    *iterations_out = e->iterations;
    if (t->devices != NULL && t->driver->graphs != NULL) { /* before --record launches more */
        t->driver->graphs(t->devices, &t->outcome->graphs);
        t->outcome->pinning = t->driver->pinning(t->devices);
        RP_TRY(keep_attention(t));
    }
    t->outcome->uploaded_bytes += e->uploaded_bytes;
    t->outcome->downloaded_bytes += e->downloaded_bytes;
    t->outcome->exchanged_bytes += e->exchanged_bytes;
    for (uint32_t i = 0; i < t->outcome->gpus; i++) {
        uint64_t bytes =
            e->plan->arena_bytes[i % t->o->run.gpus]; /* each process has the same plan */
        uint64_t *peak = &t->outcome->peak_gpu_bytes[i];
        *peak = bytes > *peak ? bytes : *peak;
    }
    iteration_times(timeline, t->o->run.asynchronous, t->outcome->iteration_ms + done);
    return RP_OK;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Small programs are measured on the same devices, so the session gives them back first. */
static rp_status record(rpexec_trainer *t, const rp_timeline *timeline, uint32_t skip)
{
    RP_TRY(stop_session(t));
    const rpexec_site site = {.driver_type = t->driver,
                              .devices = t->devices,
                              .machine = t->machine.limited ? &t->machine.machine : NULL,
                              .model = &t->model,
                              .gpus = t->o->run.gpus,
                              .sequences = t->flops.microbatch_size,
                              .watchdog_s = t->o->watchdog_s,
                              .bound = t->o->bind,
                              .gpu_bytes = cap_of(t)};
    const rpexec_recorded recorded = {.model = t->config.name,
                                      .backend = t->o->backend,
                                      .conditions = t->conditions,
                                      .arithmetic = rpexec_trainer_arithmetic(t),
                                      .machine = &t->machine,
                                      .site = &site,
                                      .sharing_gpus = t->o->virtual_gpus,
                                      .load = &t->load,
                                      .processes = t->processes};
    return rpexec_record_write(&t->session.plan, timeline, &t->flops, skip, &recorded, t->arena,
                               &t->record);
}

static bool all_finite(const rpexec_trainer *t, uint32_t done, uint32_t steps)
{
    bool finite = true;
    for (uint32_t i = done; i < done + steps; i++) {
        finite &= isfinite(t->outcome->losses[i]) != 0;
    }
    return finite;
}

/* Saves when a checkpoint is due. Resident weights are copied back only if they are needed. */
static rp_status save_when_due(rpexec_trainer *t, uint32_t done, uint32_t steps, bool last)
{
    bool due = rpexec_state_iterations(&t->state) % t->o->save_every < steps; /* within these */
    bool saves = t->o->save != NULL && (last || due || t->signal != 0);
    if (last || saves || t->o->check || !all_finite(t, done, steps)) {
        RP_TRY(rpexec_execution_keep(t->session.run));
    }
    RP_TRY(rpexec_trainer_finite(t, done, steps, last || saves));
    RP_TRY(t->losses.status); /* every step of a checkpoint has its line */
    return saves && rpexec_trainer_leads(t)
               ? rpexec_checkpoint_save(&t->checkpoints, &t->companions, &t->state, &t->progress)
               : RP_OK;
}

/* Work of --check and --record does not count as time of the run, and a checkpoint is made before
 * it can fail.
 * @param steps_inout in: wanted steps, out: steps that were made, fewer if a signal has ended the
 *        run */
static rp_status run_segment(rpexec_trainer *t, uint32_t done, uint32_t *steps_inout, bool last,
                             rp_arena *arena)
{
    uint32_t steps = *steps_inout;
    rpexec_batch *batches = NULL;
    rp_timeline *timeline = NULL;
    double begin_s = now_s();
    RP_TRY(open_session(t, steps));
    RP_TRY(read_batches(t, steps, arena, &batches));
    RP_TRY(rp_timeline_create(t->session.plan.program, &timeline));
    rp_status status = run_session(t, batches, done, timeline, &steps);
    t->seconds += now_s() - begin_s;
    status = status == RP_OK ? rpexec_trainer_look_for_signal(t) : status;
    bool whole = steps == *steps_inout;
    *steps_inout = steps;
    t->progress.place += (uint64_t)steps * t->batch;
    if (status == RP_OK && whole && rpexec_trainer_evaluates(t, done, steps)) {
        status = rpexec_trainer_evaluate(t, done, steps);
        t->line.eval_loss =
            status == RP_OK ? t->outcome->eval_losses[t->outcome->evaluations - 1] : NAN;
        rpexec_loss_log_add(&t->losses, &t->line);
    }
    status = status == RP_OK ? save_when_due(t, done, steps, last) : status;
    if (status == RP_OK && whole && t->o->check) {
        status = rpexec_check_segment(t, batches, done, steps);
    }
    if (status == RP_OK && whole && last && t->o->record != NULL) {
        status = record(t, timeline, done == 0 || steps > 1 ? 1 : 0);
    }
    if (last) {
        t->timeline = timeline;
    } else {
        rp_timeline_destroy(timeline);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Sets rates by the timeline, without the first step if there are more: it touches memory and loads
 * kernels. The other time of segments counts only in wall_tokens_per_s. */
static void set_rates(const rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
    double tokens = (double)t->batch * t->o->run.seq_len;
    uint32_t skip = out->steps > 1 ? 1 : 0;
    double ms = 0;
    for (uint32_t i = skip; i < out->steps; i++) {
        ms += out->iteration_ms[i];
    }
    double steps_per_s = ms > 0 ? 1e3 * (out->steps - skip) / ms : 0;
    out->tokens_per_s = tokens * steps_per_s;
    out->executed_flop_per_s = out->executed_flop * steps_per_s;
    out->wall_tokens_per_s = t->seconds > 0 ? tokens * out->steps / t->seconds : 0;
}

/* Steps of the next segment. Checkpoints are made between programs, and a given program has a fixed
 * length. Segments of others have equal lengths, since the last is measured, and its first step
 * does not count. */
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
    if (t->o->eval_every != 0) {
        uint32_t until_eval =
            t->o->eval_every - (uint32_t)((t->outcome->first_step + done) % t->o->eval_every);
        left = left < until_eval ? left : until_eval;
    }
    uint32_t programs = (left - 1) / SEGMENT_STEPS + 1;
    return (left - 1) / programs + 1;
}

static rp_status interrupted(const rpexec_trainer *t)
{
    const char *signal = t->signal == SIGINT ? "SIGINT" : "SIGTERM";
    if (!rpexec_trainer_leads(t)) {
        return RP_INTERRUPTED;
    }
    if (isatty(STDERR_FILENO)) {
        fputc('\n', stderr); /* after the progress */
    }
    rp_log_warning("%s: step %" PRIu64 " is saved in %s; the same command with --resume goes on "
                   "from there",
                   signal, rpexec_state_iterations(&t->state), t->o->save);
    return RP_INTERRUPTED;
}

static rp_status run_segments(rpexec_trainer *t)
{
    for (uint32_t done = 0; done < t->outcome->steps;) {
        rp_arena *arena = NULL;
        uint32_t steps = segment_steps(t, done);
        bool last = done + steps == t->outcome->steps;
        RP_TRY(rp_arena_create(&arena));
        rp_status status = run_segment(t, done, &steps, last, arena);
        rp_arena_destroy(arena);
        RP_TRY(status);
        RP_TRY(t->losses.status);
        if (t->signal != 0) {
            return interrupted(t);
        }
        done += steps;
    }
    return RP_OK;
}

/* Runs all segments. Without --save there is nothing to keep, and a signal ends the run at once. */
static rp_status train(rpexec_trainer *t)
{
    if (t->outcome->steps > 0) {
        RP_TRY(rpexec_loss_log_begin(&t->losses));
    }
    if (t->processes != NULL) {
        rpexec_processes_note_step(t->processes, t->outcome->first_step + 1);
    }
    t->began_s = now_s();
    t->load = rpexec_load_begin();
    if (t->o->save != NULL) {
        rp_interrupt_heed();
    }
    rp_status status = run_segments(t);
    rp_interrupt_exits();
    RP_TRY(status);
    double siblings_s = 0;
    RP_TRY(rpexec_load_siblings(&t->load, t->processes, RPEXEC_TAG_END, &siblings_s));
    t->outcome->busy_pct = rpexec_load_others_pct(&t->load, siblings_s);
    set_rates(t);
    t->outcome->loss_scale = (double)t->state.scaler.scale;
    t->outcome->skipped_steps = t->state.skipped;
    return RP_OK;
}

/* The median of all iterations but the first, which touches memory, loads kernels and begins with
 * empty pipelines; a single iteration is the median itself. */
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

/* Compares the last program as it ran with its simulation. */
static rp_status predict(rpexec_trainer *t)
{
    double predicted_ms = 0;
    double measured_ms = 0;
    const char *beside = NULL; /* the record's timeline, for rpdiff to compare */
    if (t->o->record != NULL) {
        RP_TRY(rp_arena_print(t->arena, &beside, "%s/predicted.csv", t->o->record));
    }
    RP_TRY(rpexec_predict(&t->prediction, t->timeline->program, t->o->model, beside, t->arena,
                          &t->predicted));
    RP_TRY(median_iteration(t->predicted, t->o->run.asynchronous, t->arena, &predicted_ms));
    RP_TRY(median_iteration(t->timeline, t->o->run.asynchronous, t->arena, &measured_ms));
    t->outcome->predicted_iteration_ms = predicted_ms;
    t->outcome->prediction_error_pct = 100 * (predicted_ms / measured_ms - 1);
    t->outcome->costs_busy_pct = t->prediction.busy_pct;
    if (t->outcome->busy_pct > RPEXEC_BUSY_PCT) {
        rp_log_warning("--predict: other processes used %.0f %% of the processors during this run: "
                       "its measured time is not that of an idle machine",
                       t->outcome->busy_pct);
    }
    return RP_OK;
}

/* Removes the prediction of an earlier run in the same folder. */
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
    RP_TRY(rpexec_trainer_add_bytes(t));
    if (!rpexec_trainer_leads(t)) {
        return RP_OK;
    }
    rp_status status = t->o->predict && t->timeline != NULL ? predict(t) : RP_OK;
    if (t->o->record != NULL) { /* only now: --costs may be the same folder */
        RP_TRY(t->o->predict ? RP_OK : forget_prediction(t));
        RP_TRY(rpexec_record_commit(&t->record));
    }
    RP_TRY(status);
    const rpexec_run_made run = {.options = t->o,
                                 .outcome = t->outcome,
                                 .model = &t->config,
                                 .platform = t->machine.platform.name,
                                 .timeline = t->timeline,
                                 .program = t->timeline != NULL ? program_of(t) : NULL,
                                 .predicted = t->predicted};
    return rpexec_artefacts_write(&run, t->arena, &t->artefacts);
}

rp_status rpexec_train(rpexec_options *options, rp_arena *arena, rpexec_processes *processes,
                       rpexec_outcome *outcome_out)
{
    rpexec_trainer t = {.o = options,
                        .arena = arena,
                        .processes = processes,
                        .outcome = outcome_out,
                        .checkpoints.lock = -1};
    *outcome_out = (rpexec_outcome){.checked = options->check,
                                    .attention = {.own_s = (double)NAN, .cudnn_s = (double)NAN},
                                    .predicted_iteration_ms = NAN,
                                    .prediction_error_pct = NAN};
    rpexec_host_awake *awake = NULL;
    rp_status status = RP_OK;
    rp_interrupt_exits();
    if (options->program_in != NULL) {
        status = rpexec_program_in_read(options, arena, &t.program);
    }
    status = status == RP_OK ? rpexec_trainer_set_up(&t) : status;
    if (status == RP_OK && options->bind) {
        status = rpexec_host_awake_begin(arena, &awake);
    }
    status = status == RP_OK ? train(&t) : status;
    rpexec_host_awake_end(awake);
    status = status == RP_OK ? leave(&t) : status;
    status = status == RP_OK ? rpexec_check_end(&t) : status;
    rp_timeline_destroy(t.timeline);
    rp_timeline_destroy(t.predicted);
    drop_session(&t);
    if (t.devices != NULL) {
        t.driver->detach(t.devices);
    }
    rp_program_destroy(t.program);
    rpexec_tokens_close(&t.tokens);
    rpexec_tokens_close(&t.evaluated);
    rpexec_artefacts_fini(&t.artefacts);
    rpexec_record_fini(&t.record);
    rpexec_loss_log_close(&t.losses);
    rpexec_checkpoints_close(&t.checkpoints);
    return status;
}
