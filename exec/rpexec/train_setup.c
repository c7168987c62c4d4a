/* Preparations of a training run, before its first step. */
#include "common/base/log.h"
#include "common/inputs/huggingface/config.h"
#include "common/inputs/load/models.h"
#include "common/roofline/roofline.h"
#include "common/schedule/even.h"
#include "exec/checkpoint/links.h"
#include "exec/checkpoint/weights.h"
#include "exec/rpexec/program_in.h"
#include "exec/rpexec/train_internal.h"
#include "exec/run/backend.h"

#include <inttypes.h>
#include <string.h>

/* Finds the weights; for a folder of adapters these are the weights that they belong to. */
static rp_status find_weights(rpexec_trainer *t)
{
    const rpexec_options *o = t->o;
    bool found = false;
    t->origin.weights = o->weights;
    if (o->weights == NULL) {
        return RP_OK;
    }
    RP_TRY(rpexec_adapters_find(o->weights, t->arena, &t->adapters, &found));
    if (!found) {
        return RP_OK;
    }
    t->origin.weights = t->adapters.base;
    t->origin.adapters = o->weights;
    if ((o->lora_rank != 0 && o->lora_rank != t->adapters.rank) ||
        (o->lora_alpha != 0 && o->lora_alpha != t->adapters.alpha)) {
        rp_log_error("--lora-rank, --lora-alpha: the adapters of %s have rank %" PRIu32
                     " and alpha %g; valid are these, and neither option",
                     o->weights, t->adapters.rank, t->adapters.alpha);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status load_config(rpexec_trainer *t)
{
    const char *path = t->o->model;
    bool file = t->o->weights != NULL;
    RP_TRY(find_weights(t));
    if (file) {
        RP_TRY(rp_arena_print(t->arena, &path, "%s/config.json", t->origin.weights));
        RP_TRY(rpexec_links_check(path));
    }
    RP_TRY(file ? RP_OK : rp_hf_locate(path, t->arena, &path));
    file = file || rp_hf_is_config(path);
    RP_TRY(file ? rpexec_config_load(path, t->o->assume, t->arena, &t->config)
                : rp_model_load_as(path, t->o->assume, t->arena, &t->config));
    t->origin.config = file ? t->config.source : NULL;
    if (file && t->o->platform != NULL) { /* its times may be recorded */
        RP_TRY(rp_hf_find_recorded(t->arena, &t->config));
    }
    bool given = t->adapters.rank != 0;
    uint32_t rank = given ? t->adapters.rank : t->o->lora_rank;
    if (rank != 0) {
        rp_model_set_lora(&t->config, rank, t->adapters.linears);
    }
    RP_TRY(rpexec_adapters_check(&t->adapters, &t->config));
    if (t->o->lora_alpha != 0 && t->config.lora_rank == 0) {
        rp_log_error("--lora-alpha: %s has no adapters; valid only with --lora-rank",
                     t->config.name);
        return RP_USAGE;
    }
    t->config.lora_alpha = given ? t->adapters.alpha : t->o->lora_alpha;
    return rpexec_predict_conditions(t->o->run.dtype, &t->config, t->o->half_accumulation,
                                     t->o->attention, t->arena, &t->conditions);
}

/* Describes everything that decides the optimizer's steps, for people: a checkpoint keeps it. */
static rp_status set_adam(rpexec_trainer *t)
{
    static const char *const courses[] = {"constant", "linear", "cosine"};
    const rpexec_options *o = t->o;
    char end[32] = "";
    t->adam = (rpexec_adam){.lr = o->lr,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay,
                            .decoupled = o->weight_decay > 0,
                            .decays_matrices = !o->decays_all,
                            .clip_norm = o->clip_norm,
                            .warmup = o->warmup_steps,
                            .steps = o->steps,
                            .course = o->lr_schedule};
    if (o->lr_schedule != RPEXEC_RATE_CONSTANT) {
        (void)snprintf(end, sizeof end, " to 0 at step %" PRIu32, o->steps);
    }
    return rp_arena_print(t->arena, &t->progress.recipe,
                          "lr %.9g %s%s, %" PRIu32 " steps of warm-up, betas %.9g and %.9g, eps "
                          "%.9g, weight decay %.9g%s, clipped at %.9g",
                          o->lr, courses[o->lr_schedule], end, o->warmup_steps, o->beta1, o->beta2,
                          o->eps, o->weight_decay,
                          o->weight_decay == 0 ? ""
                          : o->decays_all      ? " of all"
                                               : " of matrices",
                          o->clip_norm);
}

/* Refuses other data than the checkpoint's: a place in the order of a file means nothing in another
 * file. */
static rp_status compare_data(const rpexec_trainer *t, const char *before)
{
    if (before == NULL || strcmp(t->progress.data, before) == 0) {
        return RP_OK;
    }
    rp_log_error("--resume: the checkpoint was trained on %s; %s has %s; valid are the same data, "
                 "or another --save and this checkpoint as --weights, which begins at step 0",
                 before, t->o->data != NULL ? t->o->data : "a run without --data",
                 t->progress.data);
    return RP_USAGE;
}

/* A run may go on with other settings than it began with, but not unnoticed. */
static void compare_recipes(const char *ours, const char *before)
{
    if (before != NULL && strcmp(ours, before) != 0) {
        rp_log_warning("--resume: the checkpoint was trained with %s; this run goes on with %s",
                       before, ours);
    }
}

static rp_status set_state(rpexec_trainer *t)
{
    RP_TRY(rpexec_state_create(&t->model, t->arena, &t->state));
    RP_TRY(rpexec_state_initialise(&t->state, t->o->seed, t->origin.weights == NULL));
    if (t->origin.weights != NULL) {
        RP_TRY(rpexec_weights_load(t->origin.weights, &t->state));
    }
    if (t->adapters.rank != 0) {
        RP_TRY(rpexec_adapters_load(t->o->weights, &t->state));
    }
    t->progress.seed = t->o->seed;
    t->progress.seq_len = t->o->run.seq_len;
    RP_TRY(rpexec_tokens_identity(&t->tokens, t->arena, &t->progress.data));
    rpexec_progress resumed = t->progress;
    bool found = false;
    RP_TRY(rpexec_trainer_compare_inputs(t));
    if (t->o->save != NULL && rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_checkpoints_open(t->o->save, t->o->keep, !t->o->resume, &t->checkpoints));
        t->origin.save = t->o->save;
        RP_TRY(rpexec_companions_gather(&t->origin, &t->model, t->arena, &t->companions));
    }
    if (t->o->resume && rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_checkpoint_resume(&t->checkpoints, &t->state, &resumed, t->arena, &found));
        t->progress.place = resumed.place;
    }
    if (t->o->save != NULL && rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_checkpoints_check_base(&t->checkpoints, &t->companions));
    }
    if (found && (resumed.seed != t->o->seed || resumed.seq_len != t->o->run.seq_len)) {
        rp_log_error("--resume: the checkpoint was made with --seed %" PRIu64 " --seq-len %" PRIu32
                     "; valid are the same ones",
                     resumed.seed, resumed.seq_len);
        return RP_USAGE;
    }
    if (found) {
        RP_TRY(compare_data(t, resumed.data));
        compare_recipes(t->progress.recipe, resumed.recipe);
    }
    if (t->o->resume && t->processes != NULL) {
        RP_TRY(rpexec_trainer_share_state(t));
    }
    t->outcome->first_step = rpexec_state_iterations(&t->state);
    return rpexec_trainer_finite(t, 0, 0, true);
}

rp_arithmetic rpexec_trainer_arithmetic(const rpexec_trainer *t)
{
    bool half = t->o->half_accumulation;
    return (rp_arithmetic){t->o->run.dtype, half ? RP_ACCUMULATION_F16 : RP_ACCUMULATION_F32};
}

/* Costs for a platform's GPU are as in rpsim: from a table of its times, or from its rates. Without
 * a platform, or without its rates, proportions of FLOP counts remain. */
static rp_status set_costs(rpexec_trainer *t)
{
    const rp_platform *platform = &t->machine.platform;
    rp_reason reason = {0};
    t->costs = t->flops;
    if (t->program != NULL || t->o->platform == NULL || t->o->costs != NULL) {
        return RP_OK;
    }
    rp_costs costs;
    const rp_roof roof = {platform, rpexec_trainer_arithmetic(t), NULL};
    rp_status status = rp_find_costs(&t->config, &roof, t->o->run.microbatch_size,
                                     t->o->run.seq_len, t->arena, &costs, &reason);
    if (status == RP_INPUT || status == RP_USAGE) {
        const char *why = reason.status == status ? reason.text : "its cost table cannot be read";
        rp_log_warning("partitions balance FLOP counts, not times of %s: %.*s", platform->name,
                       (int)strcspn(why, ";"), why);
        return RP_OK;
    }
    RP_TRY(status);
    t->costs = costs;
    return RP_OK;
}

static rp_status set_partition(rpexec_trainer *t)
{
    const rpexec_options *o = t->o;
    t->work.costs = &t->costs;
    t->work.decided.iterations = 1;
    const rp_schedule_config sizes = rp_resolved_view(&t->work);
    rp_partition even;
    t->work.partition = &t->partition;
    RP_TRY(rp_compile_partition(o->run.partition, RP_PARTITION_WORDS, t->config.name, 0,
                                o->schedule, &sizes, t->arena, &t->partition, NULL));
    if (o->run.partition != NULL) {
        return RP_OK;
    }
    RP_TRY(rp_partition_even(o->schedule, &t->costs, t->work.gpus, 0, t->arena, &even, NULL));
    if (rp_partition_equal(&t->partition, &even)) {
        return RP_OK;
    }
    return rp_partition_text(&t->partition, t->arena, &t->o->run.partition); /* of the paper */
}

/* Sums are as fast as in the record, unless the run is slower. */
static rp_status set_network(rpexec_trainer *t)
{
    double recorded = t->prediction.network_gb_per_s;
    double given = t->o->network_gb_per_s;
    t->prediction.network_gb_per_s = 0;
    if (!t->o->predict || t->o->run.nodes == 1) {
        return RP_OK;
    }
    if (recorded == 0 && given == 0) {
        rp_log_error("--predict: nothing says how fast the network is; valid with "
                     "--network-gb-per-s, or with a record of as many processes");
        return RP_USAGE;
    }
    if (recorded == 0 && rpexec_trainer_leads(t) && rpexec_processes_is_beside(t->processes, 1)) {
        rp_log_warning("--predict: the record is of a process that had this machine alone, and "
                       "several share it now; valid is a record of as many (mpirun)");
    }
    t->prediction.network_gb_per_s =
        recorded == 0 || (given > 0 && given < recorded) ? given : recorded;
    return RP_OK;
}

static rp_status set_work(rpexec_trainer *t)
{
    const rpexec_options *o = t->o;
    t->work = rp_resolved_of_run(&o->run, o->schedule, &t->config);
    t->work.peer_gpus = o->peers              ? UINT32_MAX
                        : o->platform != NULL ? rp_peer_gpus(&t->machine.platform)
                                              : 0;
    RP_TRY(
        rp_machine_peer_groups(&t->machine.machine, o->run.gpus, t->arena, &t->work.peer_groups));
    RP_TRY(rpexec_work_costs(&t->model, o->run.microbatch_size, t->arena, &t->flops));
    RP_TRY(set_costs(t));
    if (o->costs != NULL) {
        const rpexec_measured wanted = {.model = t->config.name,
                                        .backend = o->backend,
                                        .conditions = t->conditions,
                                        .layers = t->config.layers,
                                        .sequences = o->run.microbatch_size,
                                        .seq_len = o->run.seq_len};
        RP_TRY(rpexec_predict_read(o->costs, &wanted, t->arena, &t->prediction));
        t->costs = t->prediction.costs;
        RP_TRY(set_network(t));
        if (t->o->predict && t->prediction.bound != t->o->bind) {
            rp_log_warning("--predict: the record is of a run %s --bind, this one runs %s; what it "
                           "predicts is the other kind",
                           t->prediction.bound ? "with" : "without",
                           t->o->bind ? "with" : "without");
        }
    }
    if (t->program == NULL) {
        RP_TRY(set_partition(t));
    }
    RP_TRY(
        rp_arena_alloc(t->arena, rpexec_trainer_microbatches(t), sizeof(uint32_t), &t->sequences));
    const uint32_t *given = t->program != NULL ? t->program->sequences : NULL;
    for (uint32_t i = 0; i < rpexec_trainer_microbatches(t); i++) {
        uint32_t of_copy = i % (o->run.accumulate * o->run.microbatches);
        t->sequences[i] = given != NULL ? given[of_copy] : o->run.microbatch_size;
        t->batch += t->sequences[i];
    }
    return t->program == NULL ? RP_OK : rpexec_program_in_fit(o, &t->model, t->arena, &t->program);
}

/* The option whose result a run with no step left cannot give; NULL: none. */
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
               {o->html_out != NULL, "--html-out"},
               {o->db != NULL, "--db"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].is) {
            return all[i].option;
        }
    }
    return NULL;
}

/* Ranks of tensor parallelism sum inside of their compute ops, so that no op is only compute. */
static rp_status check_record(const rpexec_options *o)
{
    if (o->record == NULL || !rp_cuts_layers(&o->schedule->traits)) {
        return RP_OK;
    }
    rp_log_error("--record: GPUs of %s exchange inside of their compute ops, whose times are no "
                 "costs of layers; valid are schedules of whole layers, whose record --costs takes "
                 "for %s, too",
                 o->schedule->name, o->schedule->name);
    return RP_USAGE;
}

/* The remaining steps must be whole runs of a given program, and enough of them to be measured. */
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
    const rpexec_devices_config config = {.gpus = t->o->run.gpus,
                                          .is_virtual = t->o->virtual_gpus != 0,
                                          .graphs = t->o->graphs,
                                          .attention = t->o->attention,
                                          .transport = t->o->transport,
                                          .collectives =
                                              rp_is_data_parallel(&t->o->schedule->traits) ||
                                              rp_layout_gpus(&t->o->run.layout) > 1,
                                          .layout = t->o->run.layout,
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

static rp_status open_data(rpexec_trainer *t)
{
    const rpexec_tokens_wanted wanted = {.seq_len = t->o->run.seq_len,
                                         .vocab = t->config.vocab,
                                         .seed = t->o->seed,
                                         .bytes = t->o->bytes,
                                         .joined = t->o->join_documents,
                                         .padding = {.is_known = t->config.has_padding,
                                                     .token = t->config.padding_token,
                                                     .begins = t->config.padding_begins,
                                                     .ends = t->config.padding_ends}};
    if (t->o->data != NULL) {
        RP_TRY(rpexec_tokens_open(t->o->data, &wanted, t->arena, &t->tokens));
    }
    return t->o->eval_data == NULL
               ? RP_OK
               : rpexec_tokens_open(t->o->eval_data, &wanted, t->arena, &t->evaluated);
}

rp_status rpexec_trainer_set_up(rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
    RP_TRY(rpexec_trainer_compare_options(t));
    RP_TRY(check_record(t->o));
    RP_TRY(attach(t));
    RP_TRY(load_config(t));
    RP_TRY(
        rpexec_model_create(&t->config, t->o->run.seq_len, t->o->run.dtype, t->arena, &t->model));
    RP_TRY(open_data(t));
    RP_TRY(rpexec_machine_load(t->o->platform, t->o->link_gb_per_s, t->o->run.gpus, t->arena,
                               &t->machine));
    t->machine.machine.local_memory = rp_is_data_parallel(&t->o->schedule->traits);
    if (t->o->peers) { /* peer links are as fast as the links to the host, and separate */
        t->machine.machine.peer_Bps = t->machine.machine.upload_Bps;
        t->machine.machine.peer_pcie = true;
    }
    RP_TRY(set_work(t));
    RP_TRY(set_adam(t));
    RP_TRY(set_state(t));
    out->gpus = t->o->run.gpus * t->o->run.nodes;
    out->steps = t->o->steps > out->first_step ? (uint32_t)(t->o->steps - out->first_step) : 0;
    RP_TRY(check_steps(t));
    if (rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_artefacts_open(t->o, &t->artefacts));
    }
    if (t->o->loss_out != NULL && rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_loss_log_open(t->o->loss_out, out->first_step, &t->losses));
    }
    if (t->o->record != NULL && rpexec_trainer_leads(t)) {
        RP_TRY(rpexec_record_open(t->o->record, t->arena, &t->record));
    }
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->losses));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->iteration_ms));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->norms));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->rates));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->eval_steps));
    RP_TRY(rp_arena_alloc(t->arena, out->steps, sizeof(double), &out->eval_losses));
    RP_TRY(rp_arena_alloc(t->arena, out->gpus, sizeof(uint64_t), &out->peak_gpu_bytes));
    t->sent_before = t->processes != NULL ? rpexec_processes_sent_bytes(t->processes) : 0;
    return t->o->check ? rpexec_check_begin(t) : RP_OK;
}
