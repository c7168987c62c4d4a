/** @file cuda.h  The GPU driver on emulated devices (exec/cuda/emulator/machine/machine.h), with
 * the operators of the host backend: each is performed when its stream comes to it.
 *
 * The fake is stricter than CUDA: all memory that an operator reads or writes must be within its
 * device's reach, and only operators may be captured.
 */
#pragma once

#include "exec/cuda/emulator/machine/machine.h"
#include "exec/gpu/driver.h"

/** States of cuDNN on a machine that AUTO can meet. */
typedef enum rp_fake_cudnn {
    RP_FAKE_CUDNN_ABSENT,
    RP_FAKE_CUDNN_FASTER,
    RP_FAKE_CUDNN_SLOWER,
    RP_FAKE_CUDNN_DIFFERS,  /**< its errors are 1.5 times the allowed errors */
    RP_FAKE_CUDNN_RESTLESS, /**< its results differ from run to run */
    RP_FAKE_CUDNN_NAN,      /**< its results are NaN and cannot be compared */
    RP_FAKE_CUDNN_NO_SHAPE, /**< it has no plan for the shape */
    RP_FAKE_CUDNN_FAILS,    /**< its trial fails */
} rp_fake_cudnn;

/** Sets the machine, without cuDNN. @return a driver for this machine; `attach` uses the machine
 * that was set last */
const rpexec_driver_type *rp_fake_cuda_driver(const emulated_machine *machine);

/** Gives the machine cuDNN. @param cudnn state on the last device or, with on_first, on the first;
 * the other devices' state is FASTER, except for ABSENT */
void rp_fake_give_cudnn(rp_fake_cudnn cudnn, bool on_first);
