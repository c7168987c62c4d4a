/** @file stack.h  Stacks: the software that runs a schedule, data in traces/stacks.
 *
 * A stack describes a layer in its software: which passes over activations are kernels of
 * their own, how many kernels the host launches and how long a launch takes, which attention kernel
 * runs. With a stack, times of layers are computed (common/roofline/stack.c) for any GPU whose file
 * has `product_share`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/formats/config.h"
#include "common/inputs/changes.h"

#include <stdbool.h>

/** What a selective recompute runs again in a layer's backward, OR-ed (rp_stack.selective). */
enum {
    RP_AGAIN_ATTENTION = 1,       /**< from queries, keys and values to attention's output */
    RP_AGAIN_NORMS = 2,           /**< norms of the layer, also on queries, keys and latents */
    RP_AGAIN_ACTIVATION = 4,      /**< the MLP's, from its first products to its last */
    RP_AGAIN_SECOND_PRODUCTS = 8, /**< all but attention and every other product, counted from the
                                     first, which is kept */
};

/** Members are the keys of its file, whose rows explain them. */
typedef struct rp_stack {
#define KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
#include "common/inputs/stacks/stack_rows.inc"
#undef KEY
    bool of_schedule; /**< nobody has asked for it: memory and program stay those of the schedule's
                           own rules (sim/model.md section 4), as rpexec has them */
} rp_stack;

/** @return what a selective recompute of the software runs again, RP_AGAIN_*; 0: it has none.
 * @param stack NULL: attention, norms and the MLP's activation */
uint32_t rp_stack_again(const rp_stack *stack);

typedef enum rp_attention_kernel {
    RP_ATTENTION_FLASH1, /**< FlashAttention of 2022, or its Triton form */
    RP_ATTENTION_FLASH2,
    RP_ATTENTION_CUDNN,
} rp_attention_kernel;

/** @return its attention kernel */
rp_attention_kernel rp_stack_attention(const rp_stack *stack);

/**
 * Reads a stack by its registered name (traces/stacks/NAME.yaml) or path.
 * @param stack_out its texts live in `arena`
 * @retval RP_OK, RP_INPUT (logged with file and line), RP_IO, RP_NO_MEMORY
 */
rp_status rp_stack_load(const char *name_or_path, rp_arena *arena, rp_stack *stack_out);

/** As rp_stack_load, with changes, which the stack's name lists. @param changes NULL: none */
rp_status rp_stack_load_changed(const char *name_or_path, const rp_changes *changes,
                                rp_arena *arena, rp_stack *stack_out, rp_reason *reason);
