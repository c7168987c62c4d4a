/** @file runtime.h  The CUDA backend's driver: exec/gpu through the CUDA runtime. */
#pragma once

#include "exec/driver.h"

/** @return the driver; not for several threads at a time. */
const rpexec_driver_type *rpexec_cuda_driver(void);
