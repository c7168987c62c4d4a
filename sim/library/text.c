/* Output as a text. */
#define _GNU_SOURCE /* fopencookie */
#include "common/base/text.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "sim/library/in_process.h"

#include <string.h>

static ssize_t take(void *cookie, const char *bytes, size_t length)
{
    return rp_text_append(cookie, bytes, length) == RP_OK ? (ssize_t)length : 0;
}

rp_status rp_write_text(rp_status (*write)(void *context, FILE *stream), void *context,
                        char **text_out)
{
    rp_text text = {0};
    FILE *stream = fopencookie(&text, "w", (cookie_io_functions_t){.write = take});
    *text_out = NULL;
    if (stream == NULL) {
        rp_log_error("out of memory for the result");
        return RP_NO_MEMORY;
    }
    rp_status status = write(context, stream);
    bool whole = fclose(stream) == 0;
    status = status == RP_OK && !whole ? RP_NO_MEMORY : status;
    if (status == RP_OK) {
        *text_out = text.bytes;
    } else {
        rp_text_fini(&text);
    }
    return status;
}

void rp_free_json(char *json)
{
    rp_mem_release(&json);
}
