/** @file trial.h  One operator on the host and on a GPU with the same tensors, and the comparison.
 *
 * A trial has tensors, each with what both begin with and what may differ in the end: nothing where
 * nothing is said, so that inputs must stay as they are. On the GPU the operator runs three times:
 * twice with tensors aligned to 256 bytes and once one value further on (operators of which 16-byte
 * alignment is asked: not), all must leave the same bits, and none may touch the words around the
 * tensors. Small ones of bf16 are also moved each alone: one that a kernel forgets when it looks at
 * alignments is found. The emulator reverses its threads' turns in the second run.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/operators/operators.h"

enum { TRIAL_TENSORS = 12 };

typedef struct trial_tensor {
    rp_dtype dtype;
    bool raw; /**< compared byte by byte: whole numbers, doubles */
    uint64_t count;
    size_t bytes;
    void *start;
    void *host;      /**< the array of the host's operator */
    void *device[3]; /**< results of runs on the GPU: the first, the second, a later one */
    double length;   /**< of the sums in it: allowed is 8 u sqrt(length) of the rms, u = 2^-24 */
    double loose;    /**< allowed in addition, absolutely */
    double relative; /**< of doubles (raw, 8 bytes): instead of equality */
} trial_tensor;

typedef struct trial {
    const char *name;
    rp_dtype dtype; /**< of the table */
    uint32_t count;
    trial_tensor tensors[TRIAL_TENSORS];
    bool keep_aligned; /**< no run with tensors one value further on */
    bool once;         /**< only one run on the GPU: large sizes */
} trial;

/** Calls the operator on the trial's tensors, p[0] .. p[count - 1]. */
typedef void (*trial_operator)(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                               void **p);

/** The device that is compared: a GPU, or the emulator. Implemented once for each lane type. */
extern const char *trial_device;

/** Opens device and lanes. @retval 0, 77 (no device, said on stdout), 1 (logged) */
int trial_open(void);

/** Gives back the tensors of all trials so far. @return true where there is memory to go on */
bool trial_forget(void);

/** Gives back everything. */
void trial_close(void);

/** Implementations of matrix products. */
typedef enum trial_products {
    TRIAL_OWN,
    TRIAL_CUBLAS,
    TRIAL_CUBLAS_HALF, /**< fp16 adds up in fp16 */
    TRIAL_PRODUCTS
} trial_products;

/** From now on lanes use these. @return false (logged) where cuBLAS is missing */
bool trial_use(trial_products by);

/** Reverses the emulator's turns; does nothing on a GPU. */
void trial_reverse(bool reverse);

/** @return true where races are found in any order of turns: the run in the reverse order, which
 * other builds have, is left out. */
bool trial_goes_by_barriers(void);

/** @return true where sizes may be large. */
bool trial_is_fast(void);

/** A new trial with no tensors. */
trial trial_begin(const char *name, rp_dtype dtype);

/** Normally distributed values of a type, standard deviation `size`. @return the tensor's number */
uint32_t trial_normal(trial *t, rp_dtype dtype, uint64_t count, double size);

/** The same in the trial's type. */
uint32_t trial_values(trial *t, uint64_t count, double size);

/** A tensor of other content, compared byte by byte. */
uint32_t trial_raw(trial *t, size_t bytes, const void *content);

/** The operator writes the tensor: what may differ. A tensor's type adds one rounding to it. */
void trial_allow(trial *t, uint32_t tensor, double length, double loose);

/** The largest error over what is allowed, since trial_forget. */
extern double trial_worst;

/** Of so many trials one runs: 1 all, more the sample of every day. */
extern uint32_t trial_share;

/** Runs the operator on the host and on the GPU and compares. @return true where all is well */
bool trial_run(trial *t, trial_operator operator, const void * context);

/* Of the two kinds of lanes; used by trial.c. */
rpexec_lane *trial_host_lane(rp_dtype dtype);
const rpexec_operators *trial_host_table(rp_dtype dtype);
rpexec_lane *trial_device_lane(rp_dtype dtype);
const rpexec_operators *trial_device_table(rp_dtype dtype);
rp_status trial_device_status(rp_dtype dtype);
bool trial_to_device(void *to, const void *from, size_t bytes);
bool trial_from_device(void *to, const void *from, size_t bytes);
void *trial_device_memory(size_t bytes);
void trial_device_memory_back(void *memory);
rp_status trial_host_open(void);
int trial_device_open(void);
void trial_device_close(void);
/* The lanes' arena lives as long as they, that of tensors until trial_forget. */
extern rp_arena *trial_lane_arena;
extern rp_arena *trial_arena;
