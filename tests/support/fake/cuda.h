/** @file cuda.h  The GPU driver on emulated devices (exec/cuda/emulator/machine/machine.h), whose
 * operators are the host backend's: each is performed when its stream comes to it.
 *
 * Stricter than CUDA: operators have to find all they read and write in memory that their device
 * reaches, and nothing but operators may be captured.
 */
#pragma once

#include "exec/cuda/emulator/machine/machine.h"
#include "exec/gpu/driver.h"

/** States of cuDNN on a machine that AUTO can meet. */
typedef enum rp_fake_cudnn {
    RP_FAKE_CUDNN_ABSENT,
    RP_FAKE_CUDNN_FASTER,
    RP_FAKE_CUDNN_SLOWER,
    RP_FAKE_CUDNN_DIFFERS,  /**< its results are half as far off again as they may be */
    RP_FAKE_CUDNN_RESTLESS, /**< they differ from run to run */
    RP_FAKE_CUDNN_NAN,      /**< they are not comparable */
    RP_FAKE_CUDNN_NO_SHAPE, /**< there is no plan */
    RP_FAKE_CUDNN_FAILS,    /**< the trial does */
} rp_fake_cudnn;

/** Sets the machine, without cuDNN. @return a driver on such a machine; `attach` works on what was
 * given last. */
const rpexec_driver_type *rp_fake_cuda_driver(const emulated_machine *machine);

/** Gives the machine cuDNN. @param cudnn on the last device, or on the first; the others' is
 * FASTER, but for ABSENT */
void rp_fake_give_cudnn(rp_fake_cudnn cudnn, bool on_first);
