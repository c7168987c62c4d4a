/* Models, platforms and cost tables as objects of a caller. */
#include "common/base/units.h"
#include "common/inputs/changes.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/schedule/schedule_type.h"
#include "sim/library/library_internal.h"

#include <math.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static rp_status find_names(rp_kind kind, rp_arena *arena, const char ***names_out,
                            uint32_t *count_out)
{
    switch (kind) {
    case RP_KIND_MODEL:
        return rp_data_list(rp_data_models.folder, arena, names_out, count_out);
    case RP_KIND_PLATFORM:
        return rp_data_list(rp_data_platforms.folder, arena, names_out, count_out);
    case RP_KIND_COSTS:
        return rp_data_list(rp_data_costs.folder, arena, names_out, count_out);
    case RP_KIND_SCHEDULE:
        *count_out = rp_schedule_count;
        RP_TRY(rp_arena_alloc(arena, *count_out, sizeof **names_out, names_out));
        for (uint32_t i = 0; i < *count_out; i++) {
            (*names_out)[i] = rp_schedules[i]->name;
        }
        return RP_OK;
    }
    rp_log_error("rp_names: no kind %d; valid are those of rp_kind", (int)kind);
    return RP_USAGE;
}

/* Copies names into a single block: first the pointers, then the texts. */
static rp_status copy_names(const char *const *names, uint32_t count, char ***names_out)
{
    char **block = NULL;
    size_t size = (count + 1) * sizeof *block;
    for (uint32_t i = 0; i < count; i++) {
        size += strlen(names[i]) + 1;
    }
    RP_TRY(rp_mem_resize(&block, size));
    char *at = (char *)(block + count + 1);
    for (uint32_t i = 0; i < count; i++) {
        block[i] = at;
        at = stpcpy(at, names[i]) + 1;
    }
    block[count] = NULL;
    *names_out = block;
    return RP_OK;
}

static rp_status give_names(rp_kind kind, char ***names_out, uint32_t *count_out)
{
    rp_arena *arena = NULL;
    const char **names = NULL;
    if (names_out == NULL || count_out == NULL) {
        rp_log_error("rp_names: valid are names_out and count_out that are not NULL");
        return RP_USAGE;
    }
    *names_out = NULL;
    *count_out = 0;
    RP_TRY(rp_arena_create(&arena));
    uint32_t count = 0;
    rp_status status = find_names(kind, arena, &names, &count);
    status = status == RP_OK ? copy_names(names, count, names_out) : status;
    *count_out = status == RP_OK ? count : 0;
    rp_arena_destroy(arena);
    return status;
}

rp_code rp_names(rp_kind kind, char ***names_out, uint32_t *count_out)
{
    rp_call call;
    rp_call_begin(&call);
    return rp_call_end(&call, give_names(kind, names_out, count_out));
}

void rp_free_names(char **names)
{
    rp_mem_release(&names);
}

/* ---- loading --------------------------------------------------------------------------------- */

static rp_status read_input(rp_input *input)
{
    switch (input->kind) {
    case RP_KIND_MODEL:
        return rp_model_load(input->asked, input->arena, &input->model);
    case RP_KIND_PLATFORM:
        return rp_platform_load(input->asked, input->arena, &input->platform);
    case RP_KIND_COSTS:
        return rp_costs_load(input->asked, input->arena, &input->costs);
    case RP_KIND_SCHEDULE:
        break;
    }
    rp_log_error("rp_input_load: kind %d is no input; valid are models, platforms and cost tables",
                 (int)input->kind);
    return RP_USAGE;
}

static rp_status load(rp_kind kind, const char *name, rp_input **input_out)
{
    rp_arena *arena = NULL;
    rp_input *input = NULL;
    if (name == NULL || input_out == NULL) {
        rp_log_error("rp_input_load: valid are a name and an input_out that are not NULL");
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *input, &input);
    if (status == RP_OK) {
        input->arena = arena;
        input->kind = kind;
        atomic_init(&input->users, 1);
        status = rp_arena_copy_text(arena, name, strlen(name), &input->asked);
    }
    status = status == RP_OK ? read_input(input) : status;
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *input_out = input;
    return RP_OK;
}

rp_code rp_input_load(rp_kind kind, const char *name, rp_input **input_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (input_out != NULL) {
        *input_out = NULL;
    }
    return rp_call_end(&call, load(kind, name, input_out));
}

/* @return the count of an input's users, the only part of an input that changes */
static atomic_uint *users_of(const rp_input *input)
{
    return &((rp_input *)(uintptr_t)input)->users;
}

const rp_input *rp_input_share(const rp_input *input)
{
    atomic_fetch_add(users_of(input), 1);
    return input;
}

void rp_input_free(rp_input *input)
{
    if (input != NULL && atomic_fetch_sub(users_of(input), 1) == 1) {
        rp_arena_destroy(input->arena);
    }
}

/* ---- their values ---------------------------------------------------------------------------- */

rp_kind rp_input_kind(const rp_input *input)
{
    return input != NULL ? input->kind : RP_KIND_SCHEDULE;
}

const char *rp_input_name(const rp_input *input)
{
    return input == NULL                     ? NULL
           : input->kind == RP_KIND_MODEL    ? input->model.name
           : input->kind == RP_KIND_PLATFORM ? input->platform.name
                                             : input->costs.name;
}

/* X(key, value) of a model `m`. */
#define MODEL_FACTS(X)                                                                             \
    X(layers, m->layers)                                                                           \
    X(hidden, m->hidden)                                                                           \
    X(heads, m->heads)                                                                             \
    X(kv_heads, m->kv_heads)                                                                       \
    X(head_dim, m->head_dim)                                                                       \
    X(intermediate, m->intermediate)                                                               \
    X(experts, m->experts)                                                                         \
    X(active_experts, m->active_experts)                                                           \
    X(vocab, m->vocab)                                                                             \
    X(max_positions, m->max_positions)                                                             \
    X(lora_rank, m->lora_rank)                                                                     \
    X(parameters, m->total_parameters)                                                             \
    X(active_parameters, m->active_parameters)

/* X(key, value) of a cost table `c`. */
#define COST_FACTS(X)                                                                              \
    X(layers, c->layers)                                                                           \
    X(microbatch_size, c->microbatch_size)                                                         \
    X(seq_len, c->seq_len)                                                                         \
    X(hop_ms, rp_ps_to_ms(c->hop_ps))                                                              \
    X(fwd_ms, rp_ps_to_ms(sum_of(c->fwd_ps, c->layers) + c->head_fwd_ps))                          \
    X(bwd_ms, rp_ps_to_ms(sum_of(c->bwd_ps, c->layers) + c->head_bwd_ps))

#define MOST_FACTS RP_CONFIG_MAX_FIELDS

typedef struct fact {
    const char *key;
    double value;
} fact;

static int64_t sum_of(const int64_t *ps, uint32_t count)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += ps[i];
    }
    return sum;
}

static size_t facts_of_model(const rp_model *m, fact facts[MOST_FACTS])
{
    size_t count = 0;
#define FACT(name, number) facts[count++] = (fact){#name, (double)(number)};
    MODEL_FACTS(FACT)
    return count;
}

static size_t facts_of_costs(const rp_costs *c, fact facts[MOST_FACTS])
{
    size_t count = 0;
    COST_FACTS(FACT)
#undef FACT
    return count;
}

/* Collects the keys of a platform's file whose values are numbers. */
static size_t facts_of_platform(const rp_platform *platform, fact facts[MOST_FACTS])
{
    size_t count = 0;
    for (size_t i = 0; i < rp_platform_schema.field_count; i++) {
        const rp_config_field *field = &rp_platform_schema.fields[i];
        const char *member = (const char *)platform + field->offset;
        fact *f = &facts[count];
        f->key = field->key;
        if (field->type == RP_CONFIG_U32) {
            uint32_t number = 0;
            memcpy(&number, member, sizeof number);
            f->value = number;
        } else if (field->type == RP_CONFIG_DOUBLE) {
            memcpy(&f->value, member, sizeof f->value);
        }
        count += field->type == RP_CONFIG_U32 || field->type == RP_CONFIG_DOUBLE;
    }
    return count;
}

rp_status rp_refuse_key(const char *function, const char *key, const char *const *names,
                        size_t count)
{
    rp_text list = {0};
    rp_status status = RP_OK;
    for (size_t i = 0; i < count && status == RP_OK; i++) {
        status = rp_text_print(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    if (status == RP_OK) {
        rp_log_error("%s: no key '%.80s'; valid are %s", function, key, list.bytes);
    }
    rp_text_fini(&list);
    return status == RP_OK ? RP_USAGE : status;
}

static rp_status give_number(const rp_input *input, const char *key, double *number_out)
{
    fact facts[MOST_FACTS];
    const char *names[MOST_FACTS];
    if (input == NULL || key == NULL || number_out == NULL) {
        rp_log_error("rp_input_number: valid are arguments that are not NULL");
        return RP_USAGE;
    }
    *number_out = NAN;
    size_t count = input->kind == RP_KIND_MODEL      ? facts_of_model(&input->model, facts)
                   : input->kind == RP_KIND_PLATFORM ? facts_of_platform(&input->platform, facts)
                                                     : facts_of_costs(&input->costs, facts);
    for (size_t i = 0; i < count; i++) {
        names[i] = facts[i].key;
        if (strcmp(facts[i].key, key) == 0) {
            *number_out = facts[i].value;
            return RP_OK;
        }
    }
    return rp_refuse_key("rp_input_number", key, names, count);
}

rp_code rp_input_number(const rp_input *input, const char *key, double *number_out)
{
    rp_call call;
    rp_call_begin(&call);
    return rp_call_end(&call, give_number(input, key, number_out));
}
