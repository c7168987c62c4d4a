/** @file driver.h  The host backend's driver: threads as queues. */
#pragma once

#include "exec/run/driver.h"

extern const rpexec_driver_type rpexec_host_driver;
