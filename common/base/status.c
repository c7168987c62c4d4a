#include "common/base/status.h"

#include <stddef.h>

typedef struct status_row {
    const char *text;
    int exit_status;
} status_row;

static const status_row rows[] = {
#define STATUS_ROW(name, description, exit_code) [name] = {description, exit_code},
    RP_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static const status_row *find_row(rp_status status)
{
    size_t index = (size_t)status;
    return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

const char *rp_status_text(rp_status status)
{
    const status_row *row = find_row(status);
    return row ? row->text : "unknown status";
}

int rp_status_exit(rp_status status)
{
    const status_row *row = find_row(status);
    return row ? row->exit_status : 1;
}
