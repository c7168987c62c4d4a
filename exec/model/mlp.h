/** @file mlp.h  The second half of a block without its norm: an MLP, or a mixture of MLPs. Used
 * only in exec/model.
 *
 * Dense: y += Wd (act(Wg n) * Wu n), act SiLU or GELU. With experts (Qwen3-MoE): the router's
 * logits pass through a softmax over all experts in fp32, and each token's k largest values are its
 * experts' weights, divided by their sum (unless raw_routing). The tokens' rows are gathered by
 * expert, go through its MLP, and are added up in the tokens' own rows. No token is dropped: there
 * is memory for T k rows. The routing is part of the tape; a recompute routes again, from the same
 * bits to the same bits. There is no auxiliary loss that balances the experts. The router has no
 * adapter: with LoRA it is frozen. In gpt-oss, router and experts have biases, and gates have
 * another formula (rp_gate).
 */
#pragma once

#include "exec/model/cutter.h"
#include "exec/model/layers.h"

/** Results that the forward keeps. */
typedef struct rpexec_mlp_tape {
    void *gate; /**< [rows, f]; rows: T, or T k with experts */
    void *up;
    void *h[3];             /**< LoRA: h of gate, up and down, [rows, rank] (linear.h) */
    rpexec_routing routing; /**< with experts */
} rpexec_mlp_tape;

/** Results of the backward's input part for its weight part. */
typedef struct rpexec_mlp_weight_tape {
    void *dgate;
    void *dup;
    void *dh[3];
    void *dlogits; /**< [T, E], unless the router is frozen */
} rpexec_mlp_weight_tape;

/** @return the tape's tensors, taken from the cutter's memory. */
rpexec_mlp_tape rpexec_mlp_cut_tape(const rpexec_model *model, uint64_t tokens,
                                    rpexec_cutter *cutter);
/** @return the weight tape's tensors, taken from the cutter's memory. */
rpexec_mlp_weight_tape rpexec_mlp_cut_weight_tape(const rpexec_model *model, uint64_t tokens,
                                                  rpexec_cutter *cutter);

/** @return bytes of scratch of any of the three functions. */
uint64_t rpexec_mlp_scratch_bytes(const rpexec_model *model, uint64_t tokens);

/** y[T, hidden] = base + mlp(n[T, hidden]), base being another tensor or NULL; with ranks y is a
 * part of the ranks' sum. */
void rpexec_mlp_forward(const rpexec_compute *compute, const void *weights, uint64_t tokens,
                        const void *n, const void *base, void *y, const rpexec_mlp_tape *tape,
                        void *scratch);

/** Computes dn from dy; both [T, hidden]. With ranks dn is summed over them. */
void rpexec_mlp_backward_input(const rpexec_compute *compute, const void *weights, uint64_t tokens,
                               const void *dy, void *dn, const rpexec_mlp_tape *tape,
                               const rpexec_mlp_weight_tape *weight_tape, void *scratch);

/** Adds the gradients of the matrices. */
void rpexec_mlp_backward_weight(const rpexec_compute *compute, void *gradients, uint64_t tokens,
                                const void *n, const void *dy, const rpexec_mlp_tape *tape,
                                const rpexec_mlp_weight_tape *weight_tape, void *scratch);
