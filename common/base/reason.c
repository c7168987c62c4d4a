#include "common/base/reason.h"

#include <stdio.h>
#include <string.h>

#define FORMAT_BYTES 1024u /* of ours, all of them */

/* @param file NULL: without a place */
RP_PRINTF(5, 0)
static rp_status refuse(rp_reason *reason, rp_status status, const char *file, size_t line,
                        const char *format, va_list arguments)
{
    if (reason == NULL) {
        rp_log_error_list(file, line, format, arguments);
        return status;
    }
    size_t length = 0;
    const char *key = rp_log_find_setting(format, &length);
    *reason = (rp_reason){.status = status, .placed = file != NULL};
    if (key != NULL && length < sizeof reason->subject) {
        memcpy(reason->subject, key, length);
    }
    rp_log_print(reason->text, sizeof reason->text, file, line, format, arguments);
    return status;
}

rp_status rp_refuse(rp_reason *reason, rp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    refuse(reason, status, NULL, 0, format, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_refuse_at(rp_reason *reason, rp_status status, const char *file, size_t line,
                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    refuse(reason, status, file, line, format, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_refuse_setting(rp_reason *reason, rp_status status, const char *key,
                            const char *format, ...)
{
    char whole[FORMAT_BYTES];
    va_list arguments;
    (void)snprintf(whole, sizeof whole, "{%s}: %s", key, format);
    va_start(arguments, format);
    refuse(reason, status, NULL, 0, whole, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_reason_log(const rp_reason *reason)
{
    if (reason->placed) {
        rp_log_error_at(NULL, 0, "%s", reason->text);
    } else {
        rp_log_error("%s", reason->text);
    }
    return reason->status;
}

/* Behind "HEAD: " where `text` begins so. */
static const char *behind(const char *text, const char *head, size_t length)
{
    bool begins = strncmp(text, head, length) == 0 && strncmp(text + length, ": ", 2) == 0;
    return begins ? text + length + 2 : text;
}

const char *rp_reason_cause(const rp_reason *reason, const char *name, size_t *length_out)
{
    const char *cause = behind(reason->text, reason->text, strcspn(reason->text, ": "));
    if (reason->subject[0] == '\0' && !reason->placed) {
        cause = reason->text;
    }
    if (name != NULL) {
        cause = behind(cause, name, strlen(name));
    }
    *length_out = strcspn(cause, ";");
    return cause;
}

rp_status rp_reason_give(const rp_reason *own, rp_status status, rp_reason *reason)
{
    if (status == RP_OK || own->status != status) {
        return status;
    }
    if (reason == NULL) {
        return rp_reason_log(own);
    }
    *reason = *own;
    return status;
}
