#include "sim/run/memory/host.h"

/* ---- DeepSpeed ------------------------------------------------------------------------------- */

/* sub_group_size of ZeRO-3: a group is closed by the tensor that fills it. */
#define SUB_GROUP UINT64_C(1000000000)

/* Elements of the shares that a process holds, and bytes of its buffers. */
typedef struct process {
    uint64_t v; /* bytes of an element */
    bool pins;
    uint64_t gpus;
    uint64_t trained; /* elements of all trained shares */
    uint64_t group;   /* elements of the sub-group that is being filled */
    uint64_t groups;  /* bytes of fp32 gradients of the closed sub-groups */
    uint64_t copies;  /* bytes of first copies */
    uint64_t whole;   /* bytes of gradients of whole tensors, over all processes */
    uint64_t largest; /* elements of the largest trained tensor */
} process;

/* Rounds as CachingHostAllocator does (c10::llvm::PowerOf2Ceil). */
static uint64_t pinned(uint64_t bytes)
{
    uint64_t power = 1;
    while (power < bytes) {
        power *= 2;
    }
    return bytes == 0 ? 0 : power;
}

static uint64_t held(const process *p, uint64_t bytes)
{
    return p->pins ? pinned(bytes) : bytes;
}

static void close_group(process *p)
{
    p->groups += held(p, sizeof(float) * p->group);
    p->group = 0;
}

static void add_tensor(process *p, uint64_t elements, bool trained)
{
    uint64_t share = (elements + p->gpus - 1) / p->gpus;
    p->copies += trained && !p->pins ? 0 : held(p, p->v * share);
    if (!trained) {
        return;
    }
    p->largest = elements > p->largest ? elements : p->largest;
    p->trained += share;
    p->group += share;
    p->whole += held(p, p->v * elements);
    if (p->group >= SUB_GROUP) {
        close_group(p);
    }
}

static void add_model(process *p, const rp_model *model)
{
    bool all = model->lora_rank == 0;
    uint64_t rest = rp_model_final_norm(model) + rp_model_positions(model, model->max_positions);
    add_tensor(p, model->embedding_parameters, all);
    for (uint32_t i = 0; i < model->layers; i++) {
        rp_model_tensor tensors[RP_MODEL_TENSORS];
        uint32_t count = rp_model_layer_tensors(rp_model_of_layer(model, i), tensors);
        for (uint32_t k = 0; k < count; k++) {
            for (uint32_t n = 0; n < tensors[k].count; n++) {
                add_tensor(p, tensors[k].elements, all || tensors[k].adapter);
            }
        }
    }
    add_tensor(p, rest, all);
    if (!model->tied_head) {
        add_tensor(p, model->embedding_parameters, all);
    }
    close_group(p);
}

uint64_t rpsim_zero_host_bytes(const rp_sharding *sharding, const rp_model *model, rp_dtype dtype,
                               uint32_t gpus, bool accumulates)
{
    process p = {.v = rp_dtype_bytes(dtype), .pins = sharding->pins, .gpus = gpus};
    add_model(&p, model);
    uint64_t weights = p.v * p.trained;
    uint64_t each = RPSIM_ZERO_PROCESS_BYTES;
    if (sharding->host_weights) {
        each += pinned(weights) + p.copies + held(&p, weights) + p.groups + 12 * p.trained;
        return gpus * each;
    }
    uint64_t master = sizeof(float) * p.trained;
    each += pinned(master) + held(&p, weights) + held(&p, master) + 8 * p.trained;
    each += held(&p, p.v * p.largest);
    return gpus * each + (accumulates ? p.whole : 0);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The number of gradient buffers per stage. A stage's gradients go down once per call. If calls
 * accumulate in the same slot, the gradients come up before; calls that overlap have a slot each.
 * In sharded systems the host adds up the gradients that come down. */
static uint32_t gradient_slots(const rp_program *program)
{
    uint32_t downs = 0;
    uint32_t ups = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        bool counts = op->iteration == 0 && op->stage == program->backward_chain[0];
        const rp_op_row *kind = &rp_op_kinds[op->kind];
        bool sums = (kind->tensors & RP_TENSOR_PARAM_GRADIENT) != 0;
        if (sums && kind->op_class == RP_CLASS_COLLECTIVE) {
            return 1;
        }
        downs += counts && rp_op_kind_downloads_sums(op->kind) ? 1 : 0;
        ups += counts && rp_op_kind_uploads_sums(op->kind) ? 1 : 0;
    }
    return downs > ups ? downs - ups : 1;
}

rp_status rpsim_host_bytes(const rp_program *program, const rp_model *model, uint32_t seq_len,
                           rp_arena *arena, uint64_t *bytes_out)
{
    const rp_sharding *sharding = &program->traits.sharding;
    rp_sizes sizes;
    *bytes_out = 0;
    if (!rp_program_has(program, rp_op_kind_uploads_weights)) {
        return RP_OK;
    }
    if (sharding->host_collects) {
        bool accumulates = program->microbatch_count > program->gpu_count;
        *bytes_out = rpsim_zero_host_bytes(sharding, model, program->dtype,
                                           rp_program_ranks(program), accumulates);
        return RP_OK;
    }
    RP_TRY(
        rp_sizes_of_types(model, seq_len, program->dtype, &program->traits.types, arena, &sizes));
    *bytes_out = rp_sizes_host_bytes(&sizes, gradient_slots(program));
    return RP_OK;
}
