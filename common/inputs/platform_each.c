/* Values of a platform that are lists, with a number for each GPU of a node. */
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/inputs/platform.h"
#include "common/program/limits.h"

double rp_platform_share(const rp_config_numbers *list, uint32_t gpu)
{
    double least = list->count > 0 ? list->values[0] : 1;
    for (uint32_t i = 0; i < list->count; i++) {
        least = list->values[i] < least ? list->values[i] : least;
    }
    return list->count > 0 && least > 0 ? list->values[gpu % list->count] / least : 1;
}

bool rp_platform_lists(const rp_platform *p)
{
    return p->nvlink_first != NULL || p->each.link_gb_per_s.count > 0 ||
           p->each.link_effective_gb_per_s.count > 0 || p->each.upload_gb_per_s.count > 0 ||
           p->each.download_gb_per_s.count > 0;
}

static rp_status check_list(const char *name, const size_t *lines, rp_platform_key key,
                            const rp_platform *p, rp_reason *reason)
{
    const rp_config_field *field = &rp_platform_schema.fields[key];
    const rp_config_numbers *list = (const void *)((const char *)p + field->list);
    uint32_t of_node = p->nodes > 0 ? p->gpus / p->nodes : p->gpus;
    if (field->list == 0 || list->count == 0) {
        return RP_OK;
    }
    if (list->count != of_node || of_node > RP_LISTED_GPUS) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[key],
            "'%s' is a list of %u values for the %u GPUs of a node; valid values are a "
            "single value, and lists of as many values as a node has GPUs, up to "
            "%u",
            field->key, list->count, of_node, RP_LISTED_GPUS);
    }
    for (uint32_t gpu = 0; gpu < list->count; gpu++) {
        uint32_t lanes = key == RP_PLATFORM_pcie_lanes ? (uint32_t)list->values[gpu] : 1;
        if (!(list->values[gpu] > 0) || (lanes & (lanes - 1)) != 0) {
            return rp_refuse_at(reason, RP_INPUT, name, lines[key],
                                "'%s' is %.15g for GPU %u; valid values are lists of %s",
                                field->key, list->values[gpu], gpu,
                                key == RP_PLATFORM_pcie_lanes ? "1, 2, 4, 8 and 16"
                                                              : "positive numbers");
        }
    }
    return RP_OK;
}

/* Makes the list of a key from another key's, each number times a factor. */
static rp_status derive(const rp_config_numbers *from, double factor, rp_arena *arena,
                        rp_config_numbers *to)
{
    if (from->count == 0) {
        return RP_OK;
    }
    to->count = from->count;
    to->is_list = true;
    RP_TRY(rp_arena_alloc(arena, to->count, sizeof *to->values, &to->values));
    for (uint32_t gpu = 0; gpu < to->count; gpu++) {
        to->values[gpu] = from->values[gpu] * factor;
    }
    return RP_OK;
}

/* A rate that was measured is at most the GPU's nominal rate. */
static rp_status check_effective(const char *name, const size_t *lines, rp_platform_key key,
                                 const rp_config_numbers *list, const rp_platform *p,
                                 rp_reason *reason)
{
    for (uint32_t gpu = 0; gpu < list->count; gpu++) {
        double nominal = p->link_gb_per_s * rp_platform_share(&p->each.link_gb_per_s, gpu);
        if (list->values[gpu] > nominal) {
            return rp_refuse_at(reason, RP_INPUT, name, lines[key],
                                "'%s' is %.15g for GPU %u and exceeds its nominal rate; valid "
                                "values are numbers up to %.15g GB/s",
                                rp_platform_schema.fields[key].key, list->values[gpu], gpu,
                                nominal);
        }
    }
    return RP_OK;
}

rp_status rp_platform_set_each(const char *name, const size_t *lines, rp_arena *arena,
                               rp_platform *p, rp_reason *reason)
{
    for (size_t key = 0; key < rp_platform_schema.field_count; key++) {
        RP_TRY(check_list(name, lines, (rp_platform_key)key, p, reason));
    }
    RP_TRY(derive(&p->each.memory_gib, RP_GB_PER_GIB, arena, &p->each.memory_gb));
    RP_TRY(derive(&p->each.pcie_lanes, p->link_gb_per_s / p->pcie_lanes, arena,
                  &p->each.link_gb_per_s));
    RP_TRY(check_effective(name, lines, RP_PLATFORM_link_effective_gb_per_s,
                           &p->each.link_effective_gb_per_s, p, reason));
    RP_TRY(check_effective(name, lines, RP_PLATFORM_upload_gb_per_s, &p->each.upload_gb_per_s, p,
                           reason));
    return check_effective(name, lines, RP_PLATFORM_download_gb_per_s, &p->each.download_gb_per_s,
                           p, reason);
}
