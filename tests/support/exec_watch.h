/** @file exec_watch.h  The host backend with an observer: it sees the memory before and after each
 * op, in the queue's own thread, while the run is on. */
#pragma once

#include "tests/support/exec_case.h"

/** Only one run at a time may be watched in a process. */
typedef struct rp_test_watch {
    /** Called immediately before and after an op, within its time. NULL: not called. */
    void (*before)(struct rp_test_watch *watch, uint32_t op);
    void (*after)(struct rp_test_watch *watch, uint32_t op);
    void (*opened)(struct rp_test_watch *watch); /**< memories exist, no op runs yet. May be NULL */
    const rpexec_operators *operators; /**< operators for fp32 in place of the host's; NULL: the
                                        * host's */
    void *context;                     /**< for the test */
    /* Set while the run is on: */
    const rpexec_plan *plan;
    rpexec_driver *driver;
    rpexec_perform perform;
    void *perform_context;
} rp_test_watch;

/** A backend for rp_test_twist.driver_type that calls `watch`. */
const rpexec_driver_type *rp_test_watched(rp_test_watch *watch);

/** @return the address of tensor `value` of the plan */
unsigned char *rp_test_watch_at(const rp_test_watch *watch, uint32_t value);

/** @return a hash of bytes (FNV-1a). */
uint64_t rp_test_hash(const void *bytes, size_t count);

/** A decoder so small that its runs are all scheduling: d = 8, heads 2/1 of 4, f = 12, V = 19. */
rp_model rp_test_small_decoder(uint32_t layers, bool tied, bool qk_norm);
