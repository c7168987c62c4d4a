#include "common/inputs/stacks/sizes.h"

#include "common/inputs/stacks/tape.h"

static void set_layers(const rp_stack *stack, const rp_model *model, uint64_t tokens,
                       rp_sizes *sizes)
{
    for (uint32_t i = 0; i < model->layers; i++) {
        const rp_model *layer = rp_model_of_layer(model, i);
        rp_tape tape = rp_stack_tape(stack, layer, sizes->dtype);
        sizes->tape_bytes[i + 1] = tokens * rp_tape_bytes(&tape);
        sizes->temporary_bytes[i + 1] = tokens * rp_stack_temporary(stack, layer, sizes->dtype);
    }
    if (model->lora_rank != 0 && model->layers > 0) { /* the embedding is frozen: no gradient */
        sizes->tape_bytes[1] -= tokens * rp_stack_norm_tape(stack, model, sizes->dtype);
    }
    sizes->tape_bytes[model->layers + 1] = tokens * rp_stack_head_tape(stack, model, sizes->dtype);
}

/* Logits of a microbatch at once, or of a chunk of tokens. */
static void set_loss(const rp_stack *stack, const rp_model *model, uint64_t tokens, rp_sizes *sizes)
{
    double wide = (double)rp_dtype_bytes(sizes->dtype) / 2;
    double logit = stack->logit_bytes * (sizes->dtype == RP_DTYPE_F32 ? wide : 1);
    uint64_t per_token = (uint64_t)(logit * model->vocab);
    double chunk = stack->loss_chunk_tokens;
    sizes->logits_bytes = tokens * per_token;
    sizes->unfused_loss = chunk <= 0;
    sizes->logits_chunk_bytes = chunk > 0 ? (uint64_t)chunk * per_token : UINT64_MAX;
}

void rp_stack_set_sizes(const rp_stack *stack, const rp_model *model, uint32_t seq_len,
                        rp_sizes *sizes)
{
    set_layers(stack, model, seq_len, sizes);
    if (!model->fused_loss) {
        set_loss(stack, model, seq_len, sizes);
    }
    if (stack->norm_saved_bytes > 2) { /* norms keep copies in fp32 in place of the input */
        sizes->tape_input_bytes = 0;
    }
    sizes->embedded_bytes = sizes->boundary_bytes;
    bool wide = sizes->types.master == RP_MASTER_F32;
    sizes->fp32_gradients = stack->gradient_bytes > 2 && wide;
    sizes->bucket_bytes = (uint64_t)stack->bucket_bytes;
    /* Lists of torch's foreach are of the moments' type; bitsandbytes steps tensor by tensor. */
    double share = sizes->types.states == RP_STATES_F32 ? 1 : 0.5;
    bool single = sizes->types.states == RP_STATES_8BIT;
    sizes->step_bytes = single ? 0 : (uint64_t)(share * stack->step_state_bytes);
}
