/** @file adam.h  Adam on the host: vectorised, near memory bandwidth; by several threads in pass.h.
 *
 * executor.md 1.8: g += weight_decay * p unless decoupled; m := b1 m + (1 - b1) g;
 * v := b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps); decoupled
 * (AdamW): p *= 1 - lr * weight_decay first. It moves 28 B per parameter: p, m and v are read and
 * written, g is read. Results do not depend on the number of threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct rpexec_adam {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    bool decoupled; /**< AdamW */
} rpexec_adam;

/** lr 1e-3, betas 0.9 and 0.999, eps 1e-8, no weight decay. */
rpexec_adam rpexec_adam_defaults(void);

/** Factors of a step, in single precision as the arrays are. */
typedef struct rpexec_adam_factors {
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float rate;   /**< lr / (1 - b1^t) */
    float unbias; /**< 1 / sqrt(1 - b2^t) */
    float eps;
    float decay;  /**< of the gradient */
    float shrink; /**< of the parameter, decoupled */
} rpexec_adam_factors;

/** @return the factors of step t, from 1 on. */
rpexec_adam_factors rpexec_adam_factors_of(const rpexec_adam *adam, uint64_t step);

/** Parameters that are updated together: arrays of `count` floats. */
typedef struct rpexec_adam_slice {
    float *parameters;
    const float *gradients;
    float *m;
    float *v;
    uint64_t count;
} rpexec_adam_slice;

/**
 * One step of a slice, in this thread.
 * @param step t, from 1 on
 */
void rpexec_adam_step(const rpexec_adam *adam, uint64_t step, const rpexec_adam_slice *slice);

/** The same with factors that are there already, for slices that are steps of parts. */
void rpexec_adam_update(const rpexec_adam_factors *factors, const rpexec_adam_slice *slice);
