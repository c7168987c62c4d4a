/** @file backend.h  The plug-in interface of an executor backend, and the table of all backends.
 *
 * Each backend is a file in exec/backends/; CMake generates the table from that folder. A backend
 * runs the ops of a program on real hardware: it finds the devices and has a driver for them.
 */
#pragma once

#include "common/base/status.h"
#include "exec/run/driver.h"

#include <stdint.h>

/** A device that a backend could run on. Its texts are valid only during the report. */
typedef struct rpexec_device {
    uint32_t index;        /**< number that the backend gives the device, from 0 */
    const char *name;      /**< the vendor's name of the device */
    const char *detail;    /**< further identification ("compute capability 9.0"); may be "" */
    uint32_t units;        /**< processors: cores of a host, multiprocessors of a GPU */
    const char *unit_name; /**< name of the units, plural */
    uint64_t memory_bytes; /**< physical memory; 0: the system does not tell */
} rpexec_device;

/** Receiver of a probe's report. Both functions are set; `context` is handed back to them. */
typedef struct rpexec_probe {
    void *context;
    /** Called once per device, in order of `index`. */
    void (*device)(void *context, const rpexec_device *device);
    /** Called at most once, and only without a device: the reason, with the failing call's text. */
    void (*absent)(void *context, const char *reason);
} rpexec_probe;

typedef struct rpexec_backend_type {
    const char *name;    /**< its name on the command line (--backend) */
    const char *summary; /**< one line for --list */
    const char *source;  /**< the interface that it is written against */
    /**
     * Reports every device to `probe`, or the reason why there is no device. A machine without
     * devices of this kind is no failure: rpexec must work everywhere. Touches no device's memory
     * or settings.
     * @retval RP_OK (also without devices)
     * @retval RP_TOOL a device is there but cannot be asked (logged, with the failing call's text)
     */
    rp_status (*probe)(const rpexec_probe *probe);
    /** @return the driver that runs programs on the backend's devices; it lives as long as the
     * process. */
    const rpexec_driver_type *(*driver)(void);
} rpexec_backend_type;

/** All backends of this build, sorted by file name; rpexec_backend_count (at least 1) of them. */
extern const rpexec_backend_type *const rpexec_backends[];
extern const uint32_t rpexec_backend_count;

/** @return the backend called `name`, or NULL (nothing is logged). */
const rpexec_backend_type *rpexec_backend_find(const char *name);

/** @return number of devices that the backend sees; 0 also if they cannot be asked (logged). */
uint32_t rpexec_backend_devices(const rpexec_backend_type *backend);

/**
 * The backend that rpexec takes unless it is told: GPUs if there are any (cli.md).
 * @param types [count] at least one backend, such as the host, always has a device
 * @return the first backend with devices of its own (its driver attaches to them) that sees a
 *         device; otherwise the first backend that sees any device; NULL if none does
 */
const rpexec_backend_type *rpexec_backend_default(const rpexec_backend_type *const *types,
                                                  uint32_t count);
