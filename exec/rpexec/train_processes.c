/* Several processes that train together: what all of them need to know of process 0, and what it
 * reports of all. */
#include "common/base/interrupt.h"
#include "exec/rpexec/train_internal.h"

rp_status rpexec_trainer_share_state(rpexec_trainer *t)
{
    rpexec_state *s = &t->state;
    uint64_t trained = s->trained[t->model.layer_count] * sizeof(float);
    const struct {
        void *array;
        uint64_t bytes;
    } parts[] = {{s->working, s->offsets[t->model.layer_count] * rp_dtype_bytes(t->model.dtype)},
                 {s->master, trained},
                 {s->m, trained},
                 {s->v, trained},
                 {&s->step, sizeof s->step},
                 {&s->skipped, sizeof s->skipped},
                 {&s->scaler, sizeof s->scaler},
                 {&t->progress.place, sizeof t->progress.place}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        RP_TRY(rpexec_nodes_share(t->nodes, 0, parts[i].array, parts[i].bytes));
    }
    return RP_OK;
}

rp_status rpexec_trainer_look_for_signal(rpexec_trainer *t)
{
    t->signal = rp_interrupt_signal();
    return t->nodes == NULL ? RP_OK : rpexec_nodes_share(t->nodes, 0, &t->signal, sizeof t->signal);
}

/* Exact below 2^53. */
rp_status rpexec_trainer_add_bytes(const rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
    uint64_t *const bytes[] = {&out->uploaded_bytes, &out->downloaded_bytes, &out->exchanged_bytes,
                               &out->network_bytes};
    double all[RPEXEC_MAX_NODES];
    if (t->nodes == NULL) {
        return RP_OK;
    }
    out->network_bytes = rpexec_nodes_sent_bytes(t->nodes) - t->sent_before;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        double sum = 0;
        RP_TRY(rpexec_nodes_gather(t->nodes, RPEXEC_TAG_END, (double)*bytes[i], all));
        for (uint32_t k = 0; k < rpexec_nodes_count(t->nodes); k++) {
            sum += all[k];
        }
        *bytes[i] = (uint64_t)sum;
    }
    return RP_OK;
}
