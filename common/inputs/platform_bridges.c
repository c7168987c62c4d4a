/* GPUs of a node that NVLink joins in groups. */
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/inputs/platform.h"
#include "common/program/limits.h"

#include <stdlib.h>
#include <string.h>

#define SEPARATORS " ,"
#define NO_GROUP UINT32_MAX

bool rp_platform_joins_all(const rp_platform *p)
{
    return p->nvlink_gpus == 0 && p->nvlink_first == NULL;
}

static rp_status refuse_groups(const char *name, const size_t *lines, const rp_platform *p,
                               rp_reason *reason)
{
    return rp_refuse_at(reason, RP_INPUT, name, lines[RP_PLATFORM_nvlink_groups],
                        "'nvlink_groups' is '%s'; valid values are groups of GPUs from 0 to %u, "
                        "each GPU in one group at most, such as '0-1 2-3', with 'peer: nvlink' and "
                        "without 'nvlink_gpus'",
                        p->nvlink_groups, p->gpus / p->nodes - 1);
}

/* Reads a group, as 0-1. @return its end; NULL if it is not valid */
static const char *read_group(const char *at, uint32_t of_node, uint32_t *first)
{
    uint32_t group = NO_GROUP;
    uint32_t members = 0;
    for (;; at++) {
        char *end = NULL;
        bool digit = *at >= '0' && *at <= '9';
        unsigned long gpu = digit ? strtoul(at, &end, 10) : of_node;
        if (gpu >= of_node || first[gpu] != NO_GROUP) {
            return NULL;
        }
        group = group == NO_GROUP ? (uint32_t)gpu : group;
        first[gpu] = group;
        members++;
        at = end;
        if (*at != '-') {
            return members > 1 ? at : NULL;
        }
    }
}

static rp_status read_groups(const char *name, const size_t *lines, const rp_platform *p,
                             uint32_t *first, rp_reason *reason)
{
    uint32_t of_node = p->gpus / p->nodes;
    memset(first, 0xFF, of_node * sizeof *first);
    for (const char *at = p->nvlink_groups; *(at += strspn(at, SEPARATORS)) != '\0';) {
        at = read_group(at, of_node, first);
        if (at == NULL || (*at != '\0' && strchr(SEPARATORS, *at) == NULL)) {
            return refuse_groups(name, lines, p, reason);
        }
    }
    for (uint32_t gpu = 0; gpu < of_node; gpu++) {
        first[gpu] = first[gpu] == NO_GROUP ? gpu : first[gpu];
    }
    return RP_OK;
}

rp_status rp_platform_set_bridges(const char *name, const size_t *lines, rp_arena *arena,
                                  rp_platform *p, rp_reason *reason)
{
    uint32_t of_node = p->gpus / p->nodes;
    bool nvlink = p->peer_access == RP_PEER_NVLINK;
    uint32_t key = p->nvlink_groups != NULL ? RP_PLATFORM_nvlink_groups : RP_PLATFORM_nvlink_gpus;
    uint32_t *first = NULL;
    if (p->nvlink_gpus != 0 && (!nvlink || p->nvlink_gpus > of_node)) {
        return rp_refuse_at(reason, RP_INPUT, name, lines[RP_PLATFORM_nvlink_gpus],
                            "'nvlink_gpus' is %u; valid values are 0, and with 'peer: nvlink' "
                            "numbers up to %u, the GPUs of a node",
                            p->nvlink_gpus, of_node);
    }
    if (p->nvlink_groups != NULL && (!nvlink || p->nvlink_gpus != 0)) {
        return refuse_groups(name, lines, p, reason);
    }
    if (p->nvlink_groups == NULL && (p->nvlink_gpus == 0 || of_node % p->nvlink_gpus == 0)) {
        return RP_OK;
    }
    if (of_node > RP_LISTED_GPUS) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[key],
            "'%s' makes groups that differ, of %u GPUs of a node; valid values are nodes "
            "of up to %u GPUs",
            rp_platform_schema.fields[key].key, of_node, RP_LISTED_GPUS);
    }
    RP_TRY(rp_arena_alloc(arena, of_node, sizeof *first, &first));
    for (uint32_t gpu = 0; gpu < of_node && p->nvlink_gpus != 0; gpu++) {
        first[gpu] = gpu / p->nvlink_gpus * p->nvlink_gpus;
    }
    p->nvlink_first = first;
    return p->nvlink_groups != NULL ? read_groups(name, lines, p, first, reason) : RP_OK;
}
