#include "sim/rpadvise/program/report.h"
#include "sim/study/columns.h"

#include <math.h>

static const char *const change_names[] = {
    [RPADVISE_CHANGE_GPU_MEMORY] = "gpu_memory",     [RPADVISE_CHANGE_HOST_MEMORY] = "host_memory",
    [RPADVISE_CHANGE_LINK] = "host_links_twice",     [RPADVISE_CHANGE_GPU] = "one_gpu_more",
    [RPADVISE_CHANGE_SERVER] = "one_server_more",    [RPADVISE_CHANGE_ADAPTERS] = "adapters",
    [RPADVISE_CHANGE_SEQ_LEN] = "shorter_sequences", [RPADVISE_CHANGE_GPUS] = "more_gpus",
    [RPADVISE_CHANGE_SERVERS] = "more_servers"};
/* Keys of the values, for changes that have a value. */
static const char *const value_names[] = {[RPADVISE_CHANGE_ADAPTERS] = "lora_rank",
                                          [RPADVISE_CHANGE_SEQ_LEN] = "seq_len",
                                          [RPADVISE_CHANGE_GPUS] = "gpus",
                                          [RPADVISE_CHANGE_SERVERS] = "nodes"};
static const char *const reason_names[] = {[RPADVISE_REASON_SLOWER] = "slower",
                                           [RPADVISE_REASON_MEMORY] = "memory",
                                           [RPADVISE_REASON_REFUSED] = "refused",
                                           [RPADVISE_REASON_UNTRIED] = "untried"};

static void write_run(const rpadvise_candidate *c, const rpadvise_outcome *o, rp_json *json)
{
    rp_json_member_string(json, "schedule", c->schedule->name);
    rp_json_member_string(json, "optimizer", c->run.asynchronous ? "async" : "sync");
    rp_json_member_uint(json, "data_parallel", rpadvise_copies(c));
    rp_json_member_uint(json, "tensor_parallel", rpadvise_alike(c) / rpadvise_copies(c));
    rp_json_member_uint(json, "microbatch_size", c->run.microbatch_size);
    rp_json_member_uint(json, "microbatches", c->run.microbatches);
    rp_json_member_uint(json, "accumulate", c->run.accumulate);
    rp_json_member_uint(json, "global_batch", o->batch);
    rp_json_member_double(json, "tokens_per_s", o->tokens_per_s);
    rp_json_member_uint(json, "gpu_bytes", o->gpu_bytes);
    rp_json_member_uint(json, "host_bytes", o->host_bytes);
}

static void write_front(const char *key, const rpadvise_trial *const *points, uint32_t count,
                        rp_json *json)
{
    rp_json_key(json, key);
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < count; i++) {
        rp_json_begin_object(json);
        write_run(&points[i]->candidate, &points[i]->outcome, json);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_changes(const rpadvise_advice *a, rp_json *json)
{
    rp_json_key(json, "changes");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < a->change_count; i++) {
        rp_json_begin_object(json);
        rp_json_member_string(json, "change", change_names[a->changes[i].kind]);
        if (a->changes[i].value != 0) {
            rp_json_member_uint(json, value_names[a->changes[i].kind], a->changes[i].value);
        }
        write_run(&a->changes[i].candidate, &a->changes[i].outcome, json);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_notes(const rpadvise_advice *a, rp_json *json)
{
    rp_json_key(json, "others");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < a->note_count; i++) {
        const rpadvise_note *note = &a->notes[i];
        rp_json_begin_object(json);
        rp_json_member_string(json, "schedule", note->schedule->name);
        rp_json_member_string(json, "reason", reason_names[note->reason]);
        rp_json_member_double(json, "tokens_per_s",
                              note->tokens_per_s > 0 ? note->tokens_per_s : NAN);
        rp_json_member_uint(json, "gpu_bytes", note->best.gpu_bytes);
        rp_json_member_uint(json, "host_bytes", note->best.host_bytes);
        rp_json_member_string(json, "cause", note->best.cause);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_software(const rpadvise_advice *a, rp_json *json)
{
    rp_json_key(json, "software");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < a->software_count; i++) {
        const rpadvise_software *software = &a->software[i];
        const rpsim_intervals *intervals = software->row->study.rows[0].intervals;
        double speed = software->trial->outcome.tokens_per_s;
        rp_json_begin_object(json);
        rp_json_member_string(json, "systems", software->names);
        rp_json_member_double(json, "tokens_per_s_p10",
                              intervals != NULL ? intervals->speed.p10 * speed : NAN);
        rp_json_member_double(json, "tokens_per_s_p90",
                              intervals != NULL ? intervals->speed.p90 * speed : NAN);
        write_run(&software->trial->candidate, &software->trial->outcome, json);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

/* Writes the members about the search as a whole; only the first row has them. */
static void write_answer(const rpadvise_advice *a, rp_json *json)
{
    rp_json_key(json, "answer");
    rp_json_begin_object(json);
    rp_json_member_uint(json, "simulations", a->search->bench->spent);
    rp_json_member_uint(json, "budget", a->search->bench->budget);
    rp_json_member_bool(json, "cut_short", a->search->cut_short);
    write_software(a, json);
    write_front("memory_front", a->memory_front, a->memory_count, json);
    write_front("batch_front", a->batch_front, a->batch_count, json);
    const rpadvise_trial *ages[2] = {a->fresh, a->late};
    bool none = a->fresh == NULL; /* true: only asynchronous runs fit */
    write_front("staleness_front", &ages[none], (!none ? 1 : 0) + (a->late != NULL), json);
    write_changes(a, json);
    write_notes(a, json);
    rp_json_end_object(json);
}

static void write_excess(const char *key, uint64_t need, uint64_t limit, bool known, rp_json *json)
{
    rp_json_key(json, key);
    if (known) {
        rp_json_uint(json, need > limit ? need - limit : 0);
    } else {
        rp_json_null(json);
    }
}

/* Writes the missing memory; a member is null if only an allocator's segments fall short. */
static void write_missing(const rpadvise_outcome *o, rp_json *json)
{
    bool segments = o->short_of == RPADVISE_SHORT_OF_GPU && o->gpu_bytes <= o->gpu_limit_bytes;
    uint64_t host = o->host_limit_bytes != 0 ? o->host_limit_bytes : UINT64_MAX;
    rp_json_key(json, "missing");
    rp_json_begin_object(json);
    write_excess("gpu_bytes", o->gpu_bytes, o->gpu_limit_bytes, !segments, json);
    write_excess("host_bytes", o->host_bytes, host, true, json);
    rp_json_end_object(json);
}

static void write_row(const rpadvise_advice *a, const rpadvise_row *row, bool first, rp_json *json)
{
    rp_json_begin_object(json);
    rpsim_row_write_members(&row->study, &row->study.rows[0], json);
    rp_json_member_bool(json, "decided", row->decided);
    rp_json_member_string(json, "command", row->command);
    rp_json_key(json, "systems");
    rp_json_begin_array(json);
    for (uint32_t k = 0; k < row->system_count; k++) {
        rp_json_string(json, row->systems[k]);
    }
    rp_json_end_array(json);
    rp_json_member_double(json, "hours", row->hours);
    rp_json_member_double(json, "kwh", row->kwh);
    rp_json_member_double(json, "usd", row->usd);
    if (row == a->nearest) {
        write_missing(&row->trial->outcome, json);
    }
    if (first) {
        write_answer(a, json);
    }
    rp_json_end_object(json);
}

void rpadvise_report_write_json(const rpadvise_advice *a, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < a->row_count; i++) {
        write_row(a, &a->rows[i], i == 0, &json);
    }
    if (a->nearest != NULL) {
        write_row(a, a->nearest, true, &json);
    }
    rp_json_end_array(&json);
    rp_json_end_document(&json);
}
