/** @file status.h  The status codes of the whole project.
 *
 * The first function that knows the cause of a failure logs it (log.h) or gives it as the reason
 * (reason.h); callers only propagate the status. User mistakes are RP_USAGE and RP_INPUT, never an
 * abort; a broken internal invariant is RP_BROKEN.
 */
#pragma once

/** X(enumerator, text, process exit status). Nothing else enumerates the status codes. */
#define RP_STATUS_LIST(X)                                                                          \
    X(RP_OK, "success", 0)                                                                         \
    X(RP_USAGE, "bad usage", 2)                                                                    \
    X(RP_INPUT, "bad input", 2)                                                                    \
    X(RP_NO_MEMORY, "out of memory", 1)                                                            \
    X(RP_IO, "input or output failed", 1)                                                          \
    X(RP_TOOL, "an external program failed", 1)                                                    \
    X(RP_DATABASE, "the database failed", 1)                                                       \
    X(RP_INTERRUPTED, "ended by a signal", 130)                                                    \
    X(RP_INVALID_PROGRAM, "the program breaks a rule", 1)                                          \
    X(RP_LOST, "another process of this run has failed", 1)                                        \
    X(RP_BROKEN, "internal invariant broken", 1)

typedef enum rp_status {
#define RP_STATUS_ENUM(name, text, exit_status) name,
    RP_STATUS_LIST(RP_STATUS_ENUM)
#undef RP_STATUS_ENUM
} rp_status;

/** @return a static English text for `status`; never NULL. */
const char *rp_status_text(rp_status status);

/** @return the process exit status of cli.md: 0 success, 1 the run failed, 2 bad usage or input. */
int rp_status_exit(rp_status status);

/** Propagates a failure to the caller; for functions that hold nothing to clean up. */
#define RP_TRY(expression)                                                                         \
    do {                                                                                           \
        rp_status rp_try_status_ = (expression);                                                   \
        if (rp_try_status_ != RP_OK) {                                                             \
            return rp_try_status_;                                                                 \
        }                                                                                          \
    } while (0)
