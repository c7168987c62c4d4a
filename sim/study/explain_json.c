/* --explain with --format json: the member "explain" of a row. */
#include "sim/study/explain_report.h"

static const char *const share_keys[RPSIM_SHARE_COUNT] = {
#define SHARE_KEY(name, key, text) key,
    RPSIM_SHARE_LIST(SHARE_KEY)
#undef SHARE_KEY
};

static const struct {
    rpsim_resource_kind kind;
    const char *key;
} resources[] = {
    {RPSIM_RESOURCE_COMPUTE, "compute"},     {RPSIM_RESOURCE_LINK_UP, "link_up"},
    {RPSIM_RESOURCE_LINK_DOWN, "link_down"}, {RPSIM_RESOURCE_HOST, "host"},
    {RPSIM_RESOURCE_PEER, "peer"},           {RPSIM_RESOURCE_MEMORY, "memory"},
    {RPSIM_RESOURCE_DISPATCH, "dispatch"},
};

/* Keys of the links that GPUs share. */
static const char *const shared_keys[RP_SHARED_COUNT] = {
#define SHARED_KEY(name, key, one, all) key,
    RP_SHARED_LIST(SHARED_KEY)
#undef SHARED_KEY
};

static void write_shares(const int64_t *share_ps, rp_json *json)
{
    rp_json_begin_object(json);
    for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
        rp_json_key(json, share_keys[s]);
        rp_json_ms(json, share_ps[s]);
    }
    rp_json_end_object(json);
}

/* Writes a number for each shared resource, and an array by GPU for each resource of GPUs. */
static void write_resources(const int64_t *resource_ps, uint32_t gpus, rp_json *json)
{
    rp_json_begin_object(json);
    for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
        const int64_t *ps = &resource_ps[rpsim_resource(resources[i].kind, 0, gpus)];
        rp_json_key(json, resources[i].key);
        if (resources[i].kind >= RPSIM_RESOURCE_HOST) {
            rp_json_ms(json, ps[0]);
            continue;
        }
        rp_json_begin_array(json);
        for (uint32_t gpu = 0; gpu < gpus; gpu++) {
            rp_json_ms(json, ps[gpu]);
        }
        rp_json_end_array(json);
    }
    rp_json_end_object(json);
}

static void begin_cause(rpsim_resource_kind kind, uint32_t gpu, rp_json *json)
{
    rp_json_begin_object(json);
    rp_json_key(json, "resource");
    for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
        if (resources[i].kind == kind) {
            rp_json_string(json, resources[i].key);
        }
    }
    bool shared = rpsim_resource_is_shared(kind);
    if (shared) {
        rp_json_string(json, shared_keys[(int)kind - RPSIM_RESOURCE_TIMED_COUNT]);
    }
    rp_json_key(json, "gpu");
    if (kind < RPSIM_RESOURCE_HOST) {
        rp_json_uint(json, gpu);
    } else {
        rp_json_null(json);
    }
    rp_json_key(json, "number");
    if (shared) {
        rp_json_uint(json, gpu);
    } else {
        rp_json_null(json);
    }
}

static void write_first_cause(const rpsim_explained *x, rp_json *json)
{
    rpsim_first_cause cause = rpsim_explain_first_cause(&x->explanation, &x->sensitivity);
    if (cause.kind == RPSIM_RESOURCE_KIND_COUNT) {
        rp_json_null(json);
        return;
    }
    begin_cause(cause.kind, cause.gpu, json);
    rp_json_key(json, "elasticity");
    rp_json_double(json, cause.elasticity);
    rp_json_end_object(json);
}

static void write_most_blamed(const rpsim_explanation *e, rp_json *json)
{
    uint32_t most = rpsim_explain_most_blamed(e);
    if (most == UINT32_MAX) {
        rp_json_null(json);
        return;
    }
    size_t i = sizeof resources / sizeof resources[0] - 1;
    while (i > 0 && most < rpsim_resource(resources[i].kind, 0, e->gpus)) {
        i--;
    }
    begin_cause(resources[i].kind, most % e->gpus, json);
    rp_json_key(json, "blame_ms");
    rp_json_ms(json, e->blame_ps[most]);
    rp_json_end_object(json);
}

static void write_kinds(const rpsim_explanation *e, rp_json *json)
{
    rp_json_begin_object(json);
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        if (e->path_kind_ps[kind] > 0) {
            rp_json_key(json, rp_op_kind_text((rp_op_kind)kind));
            rp_json_ms(json, e->path_kind_ps[kind]);
        }
    }
    rp_json_key(json, "hop");
    rp_json_ms(json, e->path_hop_ps);
    rp_json_end_object(json);
}

static void write_list(const char *key, const double *values, uint32_t count, rp_json *json)
{
    rp_json_key(json, key);
    if (values == NULL) {
        rp_json_null(json);
        return;
    }
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < count; i++) {
        rp_json_double(json, values[i]);
    }
    rp_json_end_array(json);
}

static void write_elasticities(const rpsim_sensitivity *s, uint32_t gpus, rp_json *json)
{
    rp_json_begin_object(json);
    rp_json_key(json, "links");
    rp_json_double(json, s->links);
    rp_json_key(json, "compute");
    rp_json_double(json, s->compute);
    rp_json_key(json, "host");
    rp_json_double(json, s->host);
    rp_json_key(json, "dispatch");
    rp_json_double(json, s->dispatch);
    rp_json_key(json, "peer");
    rp_json_double(json, s->peer);
    write_list("link_of_gpu", s->link_of, gpus, json);
    write_list("compute_of_gpu", s->compute_of, gpus, json);
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        rp_json_key(json, shared_keys[k]);
        rp_json_double(json, s->shared[k]);
    }
    rp_json_key(json, "of_shared");
    rp_json_begin_object(json);
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        write_list(shared_keys[k], s->shared_of[k], s->shared_count[k], json);
    }
    rp_json_end_object(json);
    rp_json_end_object(json);
}

/* Writes every term of the bounds; null if it is not modelled. */
static void write_bounds(const rpsim_bounds *bounds, rp_json *json)
{
    static const char *const keys[] = {
#define BOUND_KEY(name, key, of_class, words) key,
        RPSIM_BOUND_LIST(BOUND_KEY)
#undef BOUND_KEY
    };
    rp_json_begin_object(json);
    for (int t = 0; t < RPSIM_BOUND_COUNT; t++) {
        rp_json_key(json, keys[t]);
        if (bounds->ps[t] > 0) {
            rp_json_ms(json, bounds->ps[t]);
        } else {
            rp_json_null(json);
        }
    }
    rp_json_end_object(json);
}

void rpsim_explain_write_json(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    const rpsim_explanation *e = &row->explained->explanation;
    (void)study;
    rp_json_begin_object(json);
    rp_json_key(json, "makespan_ms");
    rp_json_ms(json, e->makespan_ps);
    rp_json_key(json, "gpu_time_ms");
    rp_json_ms(json, e->makespan_ps * e->gpus);
    rp_json_key(json, "attribution_ms");
    write_shares(e->share_ps, json);
    rp_json_key(json, "attribution_of_gpu_ms");
    rp_json_begin_array(json);
    for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
        write_shares(e->gpu_share_ps[gpu], json);
    }
    rp_json_end_array(json);
    rp_json_key(json, "first_cause");
    write_first_cause(row->explained, json);
    rp_json_key(json, "most_waited_for");
    write_most_blamed(e, json);
    rp_json_key(json, "blame_ms");
    write_resources(e->blame_ps, e->gpus, json);
    rp_json_key(json, "critical_path_ms");
    write_resources(e->path_ps, e->gpus, json);
    rp_json_key(json, "critical_path_kind_ms");
    write_kinds(e, json);
    rp_json_key(json, "elasticity");
    write_elasticities(&row->explained->sensitivity, e->gpus, json);
    rp_json_key(json, "bounds_ms");
    write_bounds(&row->result.bounds, json);
    rp_json_end_object(json);
}
