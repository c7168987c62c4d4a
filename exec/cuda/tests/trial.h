/** @file trial.h  Runs an operator on the host and on a GPU with the same tensors, and compares the
 * results.
 *
 * A trial has tensors, each with its initial values and the error that is allowed in the end.
 * Without an allowed error no bit may differ, so inputs must stay as they are. On the GPU the
 * operator runs three times: twice with tensors aligned to 256 bytes, and once with all tensors
 * moved by a value (except for operators that require an alignment of 16 bytes). All runs must
 * leave the same bits, and none may touch the words around the tensors. In small trials of bf16
 * each tensor is also moved alone, which finds a tensor whose alignment a kernel forgets to check.
 * The emulator reverses its threads' turns in the second run.
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
    void *device[3]; /**< results of runs on the GPU: the first, the second, a later run */
    double length;   /**< length of the sums in it: the allowed error is 8 u sqrt(length) of the
                          rms, u = 2^-24 */
    double loose;    /**< additional absolute error that is allowed */
    double relative; /**< allowed relative error of doubles (raw, 8 bytes), instead of equality */
} trial_tensor;

typedef struct trial {
    const char *name;
    rp_dtype dtype; /**< type of the operators' table */
    uint32_t count;
    trial_tensor tensors[TRIAL_TENSORS];
    bool keep_aligned; /**< no run with moved tensors */
    bool once;         /**< only a single run on the GPU, for large sizes */
} trial;

/** Calls the operator on the trial's tensors, p[0] .. p[count - 1]. */
typedef void (*trial_operator)(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                               void **p);

/** Name of the compared device: a GPU, or the emulator. Defined once for each. */
extern const char *trial_device;

/** Opens device and lanes. @retval 0, 77 (no device, printed on stdout), 1 (logged) */
int trial_open(void);

/** Releases the tensors of all trials so far. @return whether there is memory to go on */
bool trial_forget(void);

/** Releases everything. */
void trial_close(void);

/** Implementations of matrix products. */
typedef enum trial_products {
    TRIAL_OWN,
    TRIAL_CUBLAS,
    TRIAL_CUBLAS_HALF, /**< cuBLAS; fp16 adds up in fp16 */
    TRIAL_PRODUCTS
} trial_products;

/** Makes lanes use this implementation from now on. @return false (logged) if cuBLAS is missing */
bool trial_use(trial_products by);

/** Reverses the emulator's turns; does nothing on a GPU. */
void trial_reverse(bool reverse);

/** @return true if races are found in any order of turns: then the run in reverse order, which
 * other builds have, is skipped. */
bool trial_goes_by_barriers(void);

/** @return whether sizes may be large. */
bool trial_is_fast(void);

/** A new trial without tensors. */
trial trial_begin(const char *name, rp_dtype dtype);

/** Adds a tensor of normally distributed values of a type, with standard deviation `size`. @return
 * the tensor's number */
uint32_t trial_normal(trial *t, rp_dtype dtype, uint64_t count, double size);

/** The same in the trial's type. */
uint32_t trial_values(trial *t, uint64_t count, double size);

/** Adds a tensor of other content, which is compared byte by byte. */
uint32_t trial_raw(trial *t, size_t bytes, const void *content);

/** Sets the allowed error of a tensor that the operator writes. A rounding to the tensor's type is
 * allowed in addition. */
void trial_allow(trial *t, uint32_t tensor, double length, double loose);

/** The largest error since trial_forget, divided by the allowed error. */
extern double trial_worst;

/** Only 1 of so many trials runs: 1 runs all, more is the everyday sample. */
extern uint32_t trial_share;

/** Runs the operator on the host and on the GPU and compares. @return whether all is well */
bool trial_run(trial *t, trial_operator operator, const void * context);

/* Functions of the two kinds of lanes, used by trial.c. */
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
/* Arenas: of lanes, until they are closed, and of tensors, until trial_forget. */
extern rp_arena *trial_lane_arena;
extern rp_arena *trial_arena;
