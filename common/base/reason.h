/**
 * @file reason.h  Why something is refused, as a value: for callers that decide what follows.
 *
 * A check takes an `rp_reason *` as its last parameter and refuses with rp_refuse. A caller that
 * tries several things gives one, and nothing is logged. A caller that has nothing to decide gives
 * NULL, and the message is logged at once. Other failures (no memory, a file that cannot be read)
 * are logged where they happen and leave the reason as it is.
 */
#pragma once

#include "common/base/log.h"

#include <stdbool.h>

/** Room for a message of log.h, of whose 2,000 bytes each may be shown as four, and its place. */
#define RP_REASON_BYTES 12288u

/** Longest key of a setting. */
#define RP_SETTING_BYTES 48u

/** Zero: nothing is refused. */
typedef struct rp_reason {
    rp_status status;               /**< as the check returned it; RP_OK: nothing is refused */
    bool placed;                    /**< `text` begins with "FILE:LINE: " */
    char subject[RP_SETTING_BYTES]; /**< key of the first setting that the format names; or "" */
    char text[RP_REASON_BYTES];     /**< one line as log.h has it, without a program's name */
} rp_reason;

/**
 * Refuses: fills `reason`, or logs the message as rp_log_error does where that is NULL.
 * @param format names settings by their keys in braces (log.h)
 * @return `status`
 */
rp_status rp_refuse(rp_reason *reason, rp_status status, const char *format, ...) RP_PRINTF(3, 4);

/** As rp_refuse, of a place in a file: "FILE:LINE: message". @param line one-based; 0: left out */
rp_status rp_refuse_at(rp_reason *reason, rp_status status, const char *file, size_t line,
                       const char *format, ...) RP_PRINTF(5, 6);

/** As rp_refuse, of a setting that is known by its key only: "SETTING: message". */
rp_status rp_refuse_setting(rp_reason *reason, rp_status status, const char *key,
                            const char *format, ...) RP_PRINTF(4, 5);

/** Logs what a reason says. @return its status */
rp_status rp_reason_log(const rp_reason *reason);

/**
 * Finds what is wrong: what stands between the setting or place that the text begins with, and what
 * would be valid.
 * @param name left out before it as well, with its colon; NULL: none
 * @return in `text`, not terminated
 */
const char *rp_reason_cause(const rp_reason *reason, const char *name, size_t *length_out);

/**
 * Gives a failure to the caller, who decides: `own` becomes its reason, or is logged where that is
 * NULL.
 * @param status of the failure; nothing is done where `own` is not its reason
 * @return `status`
 */
rp_status rp_reason_give(const rp_reason *own, rp_status status, rp_reason *reason);
