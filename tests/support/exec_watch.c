#include "tests/support/exec_watch.h"

#include "exec/host/driver.h"
#include "exec/host/lane.h"

#include <criterion/criterion.h>

static rp_test_watch *watching;
static rpexec_driver_type watched;
static const rpexec_operators *tables[RP_DTYPE_COUNT];

static rp_status perform(void *context, uint32_t op, rpexec_lane *lane)
{
    rp_test_watch *w = context;
    if (w->before != NULL) {
        w->before(w, op);
    }
    rp_status status = w->perform(w->perform_context, op, lane);
    if (w->after != NULL && status == RP_OK) {
        w->after(w, op);
    }
    return status;
}

static rp_status open_watched(const rpexec_driver_config *config, rpexec_perform real,
                              void *context, rpexec_driver **driver_out)
{
    watching->plan = config->plan;
    watching->perform = real;
    watching->perform_context = context;
    rp_status status = rpexec_host_driver.open(config, perform, watching, driver_out);
    watching->driver = *driver_out;
    if (status == RP_OK && watching->opened != NULL) {
        watching->opened(watching);
    }
    return status;
}

const rpexec_driver_type *rp_test_watched(rp_test_watch *watch)
{
    watching = watch;
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        tables[i] = rpexec_host_operators[i];
    }
    tables[RP_DTYPE_F32] = watch->operators != NULL ? watch->operators : tables[RP_DTYPE_F32];
    watched = rpexec_host_driver;
    watched.open = open_watched;
    watched.operators = tables;
    return &watched;
}

unsigned char *rp_test_watch_at(const rp_test_watch *watch, uint32_t value)
{
    const rpexec_value *v = &watch->plan->values[value];
    return rpexec_host_driver.memory(watch->driver, v->place) + v->offset;
}

uint64_t rp_test_hash(const void *bytes, size_t count)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

rp_model rp_test_small_decoder(uint32_t layers, bool tied, bool qk_norm)
{
    rp_model m = rp_test_decoder(layers, tied, qk_norm);
    m.hidden = 8;
    m.heads = 2;
    m.kv_heads = 1;
    m.head_dim = 4;
    m.intermediate = 12;
    m.vocab = 19;
    m.attention_parameters = (uint64_t)4 * m.hidden * m.heads * m.head_dim;
    m.mlp_parameters = (uint64_t)3 * m.hidden * m.intermediate;
    return m;
}
