#include "common/inputs/load/platforms.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/inputs/data.h"
#include "common/inputs/detect/detect.h"
#include "common/program/limits.h"

#include <stdio.h>
#include <string.h>

#define RTX "rtx"

/* ---- short names ----------------------------------------------------------------------------- */

/* @return the length of CARD in "CARDxCOUNT", and the count; 0: `name` has another form */
static size_t split(const char *name, uint64_t *count_out)
{
    const char *x = strrchr(name, 'x');
    bool digits = x != NULL && x[1] >= '1' && x[1] <= '9';
    return digits && rp_parse_u64(x + 1, 1, 4096, count_out) ? (size_t)(x - name) : 0;
}

static bool is_card(const char *card, size_t length, const char *name, size_t end)
{
    size_t rtx = end >= strlen(RTX) && strncmp(name, RTX, strlen(RTX)) == 0 ? strlen(RTX) : 0;
    return (end == length && strncmp(name, card, length) == 0) ||
           (rtx != 0 && end - rtx == length && strncmp(name + rtx, card, length) == 0);
}

/* Finds the smallest server among the files CARDxN. @param server_out NULL: there is none */
static rp_status find_server(const char *asked, size_t length, rp_arena *arena,
                             const char **server_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    uint32_t fewest = UINT32_MAX;
    *server_out = NULL;
    RP_TRY(rp_data_list(rp_data_platforms.folder, arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        rp_platform p;
        uint64_t gpus = 0;
        size_t end = split(names[i], &gpus);
        if (end == 0 || !is_card(asked, length, names[i], end)) {
            continue;
        }
        RP_TRY(rp_platform_read(names[i], NULL, arena, &p, NULL));
        if (p.nodes == 1 && p.gpus < fewest) {
            fewest = p.gpus;
            *server_out = names[i];
        }
    }
    return RP_OK;
}

/* Reads CARDxCOUNT if no file has that name. */
static rp_status load_short(const char *name, const rp_changes *changes, rp_arena *arena,
                            rp_platform *platform_out, bool *done_out, rp_reason *reason)
{
    const char *path = NULL;
    const char *server = NULL;
    uint64_t count = 0;
    bool found = true;
    size_t length = strpbrk(name, "/.") == NULL ? split(name, &count) : 0;
    *done_out = false;
    if (length == 0) {
        return RP_OK;
    }
    RP_TRY(rp_data_find(&rp_data_platforms, name, arena, &path, &found));
    RP_TRY(found ? RP_OK : find_server(name, length, arena, &server));
    if (server == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_platform_read(server, changes, arena, platform_out, reason));
    if (count > platform_out->gpus) {
        return rp_refuse(reason, RP_USAGE,
                         "{platform}: '%s': %s has %u GPUs; valid are up to %u, {nodes} for more "
                         "servers, or a platform file with more",
                         name, server, platform_out->gpus, platform_out->gpus);
    }
    *done_out = true;
    platform_out->used_gpus = (uint32_t)count;
    RP_TRY(rp_arena_copy_text(arena, name, strlen(name), &platform_out->name));
    return rp_changes_name(changes, &rp_platform_schema, arena, &platform_out->name);
}

/* ---- names of several cards ------------------------------------------------------------------ */

#define MOST_BYTES ((size_t)64 << 10) /* most bytes of a platform file that is written here */
#define OWN_NAME "cards"              /* of that file: typed names have commas */

/* GPUs of one card, as 4090x2. */
typedef struct part {
    rp_platform server;
    uint32_t gpus;
} part;

typedef struct mix {
    part parts[RP_LISTED_GPUS];
    uint32_t count;
    uint32_t gpus;
    const part *fastest;
} mix;

static rp_status add_part(const char *name, const char *word, rp_arena *arena, mix *m,
                          rp_reason *reason)
{
    uint64_t count = 0;
    const char *server = NULL;
    part *added = &m->parts[m->count];
    size_t length = split(word, &count);
    RP_TRY(length > 0 ? find_server(word, length, arena, &server) : RP_OK);
    if (server == NULL) {
        return rp_refuse(reason, RP_USAGE,
                         "{platform}: '%s': '%s' is no card's server; valid are CARDxCOUNT, as "
                         "5090x2,4090x3, of cards that have a platform CARDxN",
                         name, word);
    }
    RP_TRY(rp_platform_read(server, NULL, arena, &added->server, reason));
    if (count > added->server.gpus || m->gpus + count > RP_LISTED_GPUS) {
        return rp_refuse(
            reason, RP_USAGE,
            "{platform}: '%s': %s has %u GPUs; valid are up to %u, and %u of all cards", name,
            server, added->server.gpus, added->server.gpus, RP_LISTED_GPUS);
    }
    added->gpus = (uint32_t)count;
    m->gpus += added->gpus;
    m->count++;
    return RP_OK;
}

static rp_status read_parts(const char *name, rp_arena *arena, mix *m, rp_reason *reason)
{
    for (const char *at = name; at != NULL;) {
        const char *word = NULL;
        size_t length = strcspn(at, ",");
        RP_TRY(rp_arena_copy_text(arena, at, length, &word));
        RP_TRY(add_part(name, word, arena, m, reason));
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    m->fastest = &m->parts[0];
    for (uint32_t i = 1; i < m->count; i++) {
        bool faster =
            m->parts[i].server.fp16_tflops_fp32_acc > m->fastest->server.fp16_tflops_fp32_acc;
        m->fastest = faster ? &m->parts[i] : m->fastest;
    }
    return RP_OK;
}

/* Rates of a card's link, as its server has them; 0: not known. */
static double nominal_of(const rp_platform *p)
{
    return p->link_gb_per_s;
}

static double effective_of(const rp_platform *p)
{
    return p->link_effective_gb_per_s > 0 ? p->link_effective_gb_per_s
                                          : p->link_gb_per_s * p->link_efficiency;
}

static double upload_of(const rp_platform *p)
{
    return p->upload_gb_per_s > 0 ? p->upload_gb_per_s : effective_of(p);
}

static double download_of(const rp_platform *p)
{
    return p->download_gb_per_s > 0 ? p->download_gb_per_s : effective_of(p);
}

/* Lists a rate of each GPU. @return whether cards differ in it */
static bool list_rate(const mix *m, double (*rate_of)(const rp_platform *), double *values,
                      rp_config_numbers *list, double *member)
{
    bool differ = false;
    bool known = true;
    uint32_t gpu = 0;
    *list = (rp_config_numbers){.values = values, .is_list = true};
    *member = rate_of(&m->parts[0].server);
    for (uint32_t i = 0; i < m->count; i++) {
        double rate = rate_of(&m->parts[i].server);
        differ |= rate != rate_of(&m->parts[0].server);
        known &= rate > 0;
        *member = rate < *member ? rate : *member;
        for (uint32_t n = 0; n < m->parts[i].gpus; n++) {
            values[gpu++] = rate;
        }
    }
    list->count = differ && known ? gpu : 0;
    *member = known ? *member : 0;
    return differ;
}

/* Lists links, where they differ. */
static rp_status set_links(const mix *m, rp_arena *arena, rp_platform *p)
{
    double *values = NULL;
    rp_platform listed = *p;
    RP_TRY(rp_arena_alloc(arena, 4 * (size_t)m->gpus, sizeof *values, &values));
    bool differ =
        list_rate(m, nominal_of, values, &listed.each.link_gb_per_s, &listed.link_gb_per_s);
    differ |= list_rate(m, effective_of, values + m->gpus, &listed.each.link_effective_gb_per_s,
                        &listed.link_effective_gb_per_s);
    differ |= list_rate(m, upload_of, values + (size_t)2 * m->gpus, &listed.each.upload_gb_per_s,
                        &listed.upload_gb_per_s);
    differ |= list_rate(m, download_of, values + (size_t)3 * m->gpus,
                        &listed.each.download_gb_per_s, &listed.download_gb_per_s);
    bool by_direction = false;
    for (uint32_t i = 0; i < m->count; i++) {
        by_direction |=
            m->parts[i].server.upload_gb_per_s > 0 || m->parts[i].server.download_gb_per_s > 0;
    }
    if (!by_direction) {
        listed.upload_gb_per_s = listed.download_gb_per_s = 0;
        listed.each.upload_gb_per_s.count = listed.each.download_gb_per_s.count = 0;
    }
    listed.pcie_gen = 0;
    *p = differ ? listed : *p;
    return RP_OK;
}

/* Rate of collectives without NVLink. */
static double collective_of(const rp_platform *p)
{
    bool nvlink = p->peer_access == RP_PEER_NVLINK;
    return nvlink ? effective_of(p) : p->collective_gb_per_s;
}

/* Cards that differ share no NVLink. They reach each other over PCIe if all of them can. */
static void set_peers(const mix *m, rp_platform *p)
{
    bool differ = false;
    bool pcie = true;
    double peer_gb_per_s = p->peer_gb_per_s;
    for (uint32_t i = 0; i < m->count; i++) {
        const rp_platform *s = &m->parts[i].server;
        differ |= strcmp(s->gpu, p->gpu) != 0;
        pcie &= s->peer_access == RP_PEER_PCIE;
        peer_gb_per_s = s->peer_gb_per_s < peer_gb_per_s ? s->peer_gb_per_s : peer_gb_per_s;
    }
    if (!differ) {
        return;
    }
    p->collective_gb_per_s = collective_of(p);
    for (uint32_t i = 0; i < m->count; i++) {
        double rate = collective_of(&m->parts[i].server);
        p->collective_gb_per_s = rate < p->collective_gb_per_s ? rate : p->collective_gb_per_s;
    }
    p->collective_part_gb_per_s = 0;
    p->peer = pcie ? "pcie" : "none";
    p->peer_gb_per_s = pcie ? peer_gb_per_s : 0;
    p->nvlink_gpus = 0;
    p->nvlink_groups = NULL;
}

/* A server with fewer or more GPUs than the file's. */
static rp_status set_gpus(const mix *m, rp_platform *p, rp_reason *reason)
{
    if (m->gpus <= p->gpus) {
        RP_TRY(rp_platform_set_nodes(p, 1, m->gpus, reason));
    }
    p->gpus = m->gpus;
    p->gpus_per_switch = p->gpus_per_switch < m->gpus ? p->gpus_per_switch : m->gpus;
    p->gpus_per_root = p->gpus_per_root < m->gpus ? p->gpus_per_root : m->gpus;
    p->adapters = m->gpus % p->adapters == 0 ? p->adapters : 1;
    return RP_OK;
}

/* Describes the server as a platform: the fastest card's, with the GPUs in the order of `parts`. */
static rp_status describe(const mix *m, const char *name, rp_arena *arena, rp_platform *p,
                          rp_reason *reason)
{
    *p = m->fastest->server;
    RP_TRY(rp_arena_print(arena, &p->source, "%s: as %s, with the links of each card's server",
                          name, p->name));
    const char *list = "";
    for (uint32_t i = 0; i < m->count; i++) {
        for (uint32_t n = 0; n < m->parts[i].gpus; n++) {
            RP_TRY(rp_arena_print(arena, &list, "%s%s%s", list, list[0] != '\0' ? " " : "",
                                  m->parts[i].server.gpu));
        }
    }
    p->name = OWN_NAME;
    p->gpu_list = list;
    RP_TRY(set_links(m, arena, p));
    set_peers(m, p);
    return set_gpus(m, p, reason);
}

/* Reads CARDxCOUNT,CARDxCOUNT: written as a file, so that changes and checks are those of files. */
static rp_status load_mix(const char *name, const rp_changes *changes, rp_arena *arena,
                          rp_platform *platform_out, rp_reason *reason)
{
    mix *m = NULL;
    char *bytes = NULL;
    const char *place = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *m, &m));
    RP_TRY(rp_arena_alloc(arena, MOST_BYTES, 1, &bytes));
    RP_TRY(read_parts(name, arena, m, reason));
    RP_TRY(describe(m, name, arena, platform_out, reason));
    FILE *stream = fmemopen(bytes, MOST_BYTES, "w");
    if (stream == NULL) {
        rp_log_error("out of memory: a platform file of %s", name);
        return RP_NO_MEMORY;
    }
    rp_platform_write(platform_out, "", NULL, 0, stream);
    if (fclose(stream) != 0) {
        return rp_broken();
    }
    const rp_text text = {.bytes = bytes, .length = strlen(bytes)};
    RP_TRY(rp_arena_print(arena, &place, "%s %s", rp_log_spell("{platform}").text, name));
    RP_TRY(rp_platform_parse_changed(OWN_NAME, place, &text, changes, arena, platform_out, reason));
    RP_TRY(rp_arena_copy_text(arena, name, strlen(name), &platform_out->name));
    return rp_changes_name(changes, &rp_platform_schema, arena, &platform_out->name);
}

/* ---- any name -------------------------------------------------------------------------------- */

rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out)
{
    return rp_platform_load_changed(name_or_path, NULL, arena, platform_out, NULL);
}

rp_status rp_platform_load_changed(const char *name_or_path, const rp_changes *changes,
                                   rp_arena *arena, rp_platform *platform_out, rp_reason *reason)
{
    rp_text text = {0};
    bool done = false;
    if (strchr(name_or_path, ',') != NULL && strpbrk(name_or_path, "/.") == NULL) {
        return load_mix(name_or_path, changes, arena, platform_out, reason);
    }
    RP_TRY(load_short(name_or_path, changes, arena, platform_out, &done, reason));
    if (done) {
        return RP_OK;
    }
    if (strcmp(name_or_path, RP_PLATFORM_DETECT) != 0) {
        return rp_platform_read(name_or_path, changes, arena, platform_out, reason);
    }
    const char *place = NULL;
    RP_TRY(rp_arena_print(arena, &place, "%s", rp_log_spell("{platform} detect").text));
    rp_status status = rp_detect_text(arena, &text);
    if (status == RP_OK) {
        status = rp_platform_parse_changed(name_or_path, place, &text, changes, arena, platform_out,
                                           reason);
    }
    rp_text_fini(&text);
    return status;
}
