/** @file adam.h  Adam on the host: vectorised, near memory bandwidth; pass.h uses it in several
 * threads.
 *
 * Formulas of executor.md 1.8: g *= clip; g += weight_decay * p unless decoupled; m := b1 m + (1 -
 * b1) g; v := b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps);
 * decoupled (AdamW): p *= 1 - lr * weight_decay first. It moves 28 B per parameter: p, m and v are
 * read and written, g is read. Results do not depend on the number of threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Courses of the learning rate after the warm-up. */
typedef enum rpexec_rate_course {
    RPEXEC_RATE_CONSTANT,
    RPEXEC_RATE_LINEAR, /**< falls evenly to 0 */
    RPEXEC_RATE_COSINE, /**< falls to 0 along half a wave */
} rpexec_rate_course;

/** Their names in that order, as choices of an option (common/cli/options.h). */
#define RPEXEC_RATE_COURSES "constant|linear|cosine"

typedef struct rpexec_adam {
    double lr; /**< highest learning rate */
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    bool decoupled;       /**< AdamW */
    bool decays_matrices; /**< only matrices have weight decay; false: all weights */
    double clip_norm;     /**< limit of the gradients' global norm; 0: none */
    double clip;          /**< factor of this step's gradients (rpexec_adam_clip); 0: 1 */
    uint64_t warmup;      /**< steps in which the rate grows from 0 */
    uint64_t steps;       /**< steps after which linear and cosine are 0 */
    rpexec_rate_course course;
} rpexec_adam;

/** lr 1e-3, betas 0.9 and 0.999, eps 1e-8, no weight decay. */
rpexec_adam rpexec_adam_defaults(void);

/** @return the learning rate of step t, from 1 on: as in LambdaLR with get_constant_, get_linear_
 * and get_cosine_schedule_with_warmup of transformers. */
double rpexec_adam_rate(const rpexec_adam *adam, uint64_t step);

/** @return the factor that clips gradients of a norm, as torch.nn.utils.clip_grad_norm_ does; 1 if
 * nothing is clipped. */
double rpexec_adam_clip(const rpexec_adam *adam, double norm);

/** Factors of a step, in single precision as the arrays are. */
typedef struct rpexec_adam_factors {
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float clip;   /**< of the gradient */
    float rate;   /**< lr / (1 - b1^t) */
    float unbias; /**< 1 / sqrt(1 - b2^t) */
    float eps;
    float decay;  /**< of the gradient */
    float shrink; /**< decoupled decay: part of the parameter that is lost */
} rpexec_adam_factors;

/** @return the factors of step t, from 1 on, for weights that are decayed. */
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
 * Takes a step of a slice, in this thread.
 * @param step t, from 1 on
 */
void rpexec_adam_step(const rpexec_adam *adam, uint64_t step, const rpexec_adam_slice *slice);

/** The same with given factors, for slices that are steps of parts. */
void rpexec_adam_update(const rpexec_adam_factors *factors, const rpexec_adam_slice *slice);
