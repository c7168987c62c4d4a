/** @file runtime.h  The CUDA backend's driver: exec/gpu through the CUDA runtime. */
#pragma once

#include "exec/run/driver.h"

/** @return a text for people with the CUDA versions of driver and runtime, and with the remedy if
 * the driver is too old; valid until the next call. Not for several threads at a time. */
const char *rpexec_cuda_versions(void);

/** @return the driver; not for several threads at a time. With the environment variable RPEXEC_NVTX
 * set and not empty, ops are NVTX ranges. */
const rpexec_driver_type *rpexec_cuda_driver(void);
