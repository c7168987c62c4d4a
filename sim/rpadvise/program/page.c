#include "sim/rpadvise/program/page_internal.h"

#include "common/cli/paragraph.h"
#include "sim/study/columns.h"

#include <math.h>
#include <stdarg.h>

void rpadvise_say(const rpadvise_page *p, uint32_t indent, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rp_paragraph_write(text, 0, indent, p->columns, p->stream);
}

double rpadvise_gb(uint64_t bytes)
{
    return 1e-9 * (double)bytes;
}

double rpadvise_rounded(double tokens_per_s, double speed, const rpsim_interval *interval)
{
    double width = interval != NULL ? (interval->p90 - interval->p10) * speed : 0;
    if (!(width > 0)) {
        return tokens_per_s;
    }
    double unit = pow(10, floor(log10(width / 10)));
    return unit * round(tokens_per_s / unit);
}

const char *rpadvise_sizes_text(const rpadvise_search *s, const rpadvise_candidate *c,
                                char text[static RPADVISE_SIZES_TEXT])
{
    uint32_t copies = rpadvise_copies(c);
    uint32_t tensor = rpadvise_alike(c) / copies;
    uint32_t nodes = rpadvise_fewer_nodes(s, c);
    char layout[64] = "";
    char servers[32] = "";
    char calls[24] = "";
    if (copies * tensor > 1) {
        (void)snprintf(layout, sizeof layout, "%u cop%s x %u GPU%s per layer, each with ", copies,
                       copies == 1 ? "y" : "ies", tensor, tensor == 1 ? "" : "s");
    }
    if (nodes != 0) {
        (void)snprintf(servers, sizeof servers, "%u server%s, ", nodes, nodes == 1 ? "" : "s");
    }
    if (c->run.accumulate > 1) {
        (void)snprintf(calls, sizeof calls, " in %u calls", c->run.accumulate);
    }
    (void)snprintf(text, RPADVISE_SIZES_TEXT, "%s%s%u microbatches of %u sequence%s%s", servers,
                   layout, c->run.microbatches * c->run.accumulate, c->run.microbatch_size,
                   c->run.microbatch_size == 1 ? "" : "s", calls);
    return text;
}

rp_status rpadvise_add_layout(const rpadvise_search *s, const rpadvise_candidate *c,
                              rp_table *table)
{
    uint32_t nodes = rpadvise_fewer_nodes(s, c);
    uint32_t copies = rpadvise_copies(c);
    uint32_t tensor = rpadvise_alike(c) / copies;
    if (nodes != 0) {
        return rp_table_print(table, "%u x %u on %u", copies, tensor, nodes);
    }
    return rp_table_print(table, copies * tensor > 1 ? "%u x %u" : "", copies, tensor);
}

const char *rpadvise_mode_text(const rpadvise_candidate *c)
{
    return c->run.asynchronous ? "asynchronous" : "synchronous";
}

const rpsim_interval *rpadvise_interval_of(const rpadvise_row *row)
{
    const rpsim_intervals *intervals = row->study.rows[0].intervals;
    return intervals != NULL ? &intervals->speed : NULL;
}

bool rpadvise_lacks_gpu(const rpadvise_outcome *o)
{
    return o->gpu_bytes > o->gpu_limit_bytes || o->short_of == RPADVISE_SHORT_OF_GPU;
}

bool rpadvise_lacks_host(const rpadvise_outcome *o)
{
    return o->host_limit_bytes != 0 && o->host_bytes > o->host_limit_bytes;
}

const char *rpadvise_change_text(const rpadvise_change *change,
                                 char text[static RPADVISE_CHANGE_TEXT])
{
    const rpadvise_outcome *o = &change->outcome;
    switch (change->kind) {
    case RPADVISE_CHANGE_GPU_MEMORY:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT,
                       "%.1f GB of usable memory per GPU instead of %.1f",
                       rpadvise_gb(o->gpu_bytes), rpadvise_gb(o->gpu_limit_bytes));
        break;
    case RPADVISE_CHANGE_HOST_MEMORY:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "%.1f GB of host memory instead of %.1f",
                       rpadvise_gb(o->host_bytes), rpadvise_gb(o->host_limit_bytes));
        break;
    case RPADVISE_CHANGE_LINK:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "host links twice as fast");
        break;
    case RPADVISE_CHANGE_GPU:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "one GPU more");
        break;
    case RPADVISE_CHANGE_SERVER:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "one server more");
        break;
    case RPADVISE_CHANGE_ADAPTERS:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "adapters alone, --lora-rank %u", change->value);
        break;
    case RPADVISE_CHANGE_SEQ_LEN:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "shorter sequences, --seq-len %u",
                       change->value);
        break;
    case RPADVISE_CHANGE_GPUS:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "%u such GPUs in the server", change->value);
        break;
    case RPADVISE_CHANGE_SERVERS:
        (void)snprintf(text, RPADVISE_CHANGE_TEXT, "%u such servers, --nodes %u", change->value,
                       change->value);
        break;
    }
    return text;
}
