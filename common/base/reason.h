/**
 * @file reason.h  The reason for a refusal, as a value: for callers that decide how to go on.
 *
 * A check takes an `rp_reason *` as its last parameter and refuses with rp_refuse. A caller that
 * tries several alternatives passes its own rp_reason, and nothing is logged. A caller that has
 * nothing to decide passes NULL, and the message is logged at once. Other failures (no memory, a
 * file that cannot be read) are logged where they happen and leave the reason as it is.
 */
#pragma once

#include "common/base/log.h"

#include <stdbool.h>

/** Room for a message of log.h and its place: a message has 2,000 bytes, each of which may be shown
 * as four. */
#define RP_REASON_BYTES 12288u

/** Longest key of a setting. */
#define RP_SETTING_BYTES 48u

/** Zero: nothing is refused. */
typedef struct rp_reason {
    rp_status status;               /**< as the check returned it; RP_OK: nothing is refused */
    bool placed;                    /**< `text` begins with "FILE:LINE: " */
    char subject[RP_SETTING_BYTES]; /**< key of the first setting that the format names; or "" */
    char text[RP_REASON_BYTES];     /**< the message as log.h writes it, without a program's name */
} rp_reason;

/**
 * Refuses: fills `reason`, or logs the message as rp_log_error does if `reason` is NULL.
 * @param format names settings by their keys in braces (log.h)
 * @return `status`
 */
rp_status rp_refuse(rp_reason *reason, rp_status status, const char *format, ...) RP_PRINTF(3, 4);

/** As rp_refuse, for an error about a place in a file: "FILE:LINE: message". @param line one-based;
 * 0: left out */
rp_status rp_refuse_at(rp_reason *reason, rp_status status, const char *file, size_t line,
                       const char *format, ...) RP_PRINTF(5, 6);

/** As rp_refuse, for a setting of which only the key is known: "SETTING: message". */
rp_status rp_refuse_setting(rp_reason *reason, rp_status status, const char *key,
                            const char *format, ...) RP_PRINTF(4, 5);

/** Logs a reason's message. @return its status */
rp_status rp_reason_log(const rp_reason *reason);

/**
 * Finds the cause in a reason's text: the words between the setting or place at its beginning and
 * the valid values at its end.
 * @param name skipped as well if the cause begins with it and a colon; NULL: none
 * @return the cause, which lies in `text` and is not terminated
 */
const char *rp_reason_cause(const rp_reason *reason, const char *name, size_t *length_out);

/**
 * Gives a failure to the caller, who decides: copies `own` to `reason`, or logs it if `reason` is
 * NULL.
 * @param status status of the failure; nothing happens if `own` has another status
 * @return `status`
 */
rp_status rp_reason_give(const rp_reason *own, rp_status status, rp_reason *reason);
