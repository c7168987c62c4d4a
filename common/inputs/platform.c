#include "common/inputs/platform.h"
#include "common/base/log.h"
#include "common/formats/config_rows.h"
#include "common/inputs/changes.h"
#include "common/inputs/data.h"
#include "common/inputs/gpu.h"
#include "common/inputs/provenance.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Transfer rate of a lane in GT/s, a bit per transfer: PCI Express Base Specification 3.0, 4.0 and
 * 5.0. */
static const double pcie_gt_per_s[] = {[3] = 8, [4] = 16, [5] = 32};

#define EACH(key) .list = offsetof(rp_platform, each.key)
static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(rp_platform, member, #member, __VA_ARGS__),
#include "common/inputs/platform_rows.inc"
#undef KEY
};

static const rp_config_either either[] = {{{RP_PLATFORM_link_gb_per_s, RP_PLATFORM_pcie_gen}},
                                          {{RP_PLATFORM_memory_gb, RP_PLATFORM_memory_gib}}};

const rp_config_schema rp_platform_schema = {.what = "a platform",
                                             .prefix = "platform.",
                                             RP_CONFIG_FIELDS(fields),
                                             .either = either,
                                             .either_count = sizeof either / sizeof *either};

/* A count, which at the value `none` describes nothing, and the rate that belongs to it. */
typedef struct count_and_rate {
    uint32_t count_field;
    uint32_t rate_field;
    uint32_t none;
    uint32_t count;
    double rate;
    uint32_t whole; /* number that the count must divide; 0: any count */
    const char *of; /* for messages: owner of the GPUs that the count must divide */
} count_and_rate;

static void print_counts(const count_and_rate *c, size_t size, char *text)
{
    if (c->whole != 0) {
        snprintf(text, size, "divisor of %u", c->whole);
    } else {
        snprintf(text, size, "whole number above %u", c->none);
    }
}

static rp_status check_count(const char *name, const size_t *lines, const count_and_rate *c,
                             rp_reason *reason)
{
    const char *count_key = fields[c->count_field].key;
    const char *rate_key = fields[c->rate_field].key;
    char counts[64];
    print_counts(c, sizeof counts, counts);
    if (c->whole != 0 && c->count != c->none && c->whole % c->count != 0) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[c->count_field],
            "'%s' is %u, which does not divide 'gpus'%s; valid values are divisors of "
            "%u, or %u where there are none",
            count_key, c->count, c->of, c->whole, c->none);
    }
    if (c->count != c->none && !(c->rate > 0)) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[c->count_field],
            "'%s' is %u without a '%s'; valid values are %u, or any %s with a positive "
            "'%s'",
            count_key, c->count, rate_key, c->none, counts, rate_key);
    }
    /* The file of a single server may give the rate of a network, for runs with --nodes. */
    if (c->count == c->none && c->rate > 0 && c->count_field != RP_PLATFORM_nodes) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[c->rate_field],
            "'%s' is %.15g without '%s'; valid values are 0, or any positive number "
            "with a %s as '%s'",
            rate_key, c->rate, count_key, counts, count_key);
    }
    return RP_OK;
}

static rp_status check_topology(const char *name, const size_t *lines, const rp_platform *p,
                                rp_reason *reason)
{
    const count_and_rate nodes = {RP_PLATFORM_nodes,
                                  RP_PLATFORM_network_gb_per_s,
                                  1,
                                  p->nodes,
                                  p->network_gb_per_s,
                                  p->gpus,
                                  ""};
    const char *of = p->nodes == 1 ? "" : " of a node";
    RP_TRY(check_count(name, lines, &nodes, reason));
    uint32_t of_node = p->gpus / p->nodes;
    const count_and_rate counts[] = {
        {RP_PLATFORM_gpus_per_switch, RP_PLATFORM_switch_gb_per_s, 0, p->gpus_per_switch,
         p->switch_gb_per_s, of_node, of},
        {RP_PLATFORM_gpus_per_root, RP_PLATFORM_root_gb_per_s, 0, p->gpus_per_root,
         p->root_gb_per_s, of_node, of},
        {RP_PLATFORM_sockets, RP_PLATFORM_intersocket_gb_per_s, 1, p->sockets,
         p->intersocket_gb_per_s, 0, ""},
        {RP_PLATFORM_optimizer_threads, RP_PLATFORM_optimizer_thread_gb_per_s, 0,
         p->optimizer_threads, p->optimizer_thread_gb_per_s, 0, ""},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        RP_TRY(check_count(name, lines, &counts[i], reason));
    }
    bool both = p->gpus_per_switch != 0 && p->gpus_per_root != 0;
    if (both && p->gpus_per_root % p->gpus_per_switch != 0) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_gpus_per_root],
            "'gpus_per_root' is %u, not a multiple of 'gpus_per_switch'; valid values "
            "are 0 and multiples of %u",
            p->gpus_per_root, p->gpus_per_switch);
    }
    return RP_OK;
}

/* Checks that `peer` and the rate agree. */
static rp_status check_peers(const char *name, const size_t *lines, const rp_platform *p,
                             rp_reason *reason)
{
    bool reach = p->peer_access != RP_PEER_NONE;
    if (reach != (p->peer_gb_per_s > 0)) {
        return rp_refuse_at(reason, RP_INPUT, name, lines[RP_PLATFORM_peer_gb_per_s],
                            "'peer_gb_per_s' is %.15g but 'peer' is %s; valid values are %s",
                            p->peer_gb_per_s, p->peer, reach ? "positive numbers" : "0");
    }
    if (p->peer_access == RP_PEER_PCIE && p->peer_gb_per_s > p->link_gb_per_s) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_peer_gb_per_s],
            "'peer_gb_per_s' exceeds the PCIe link of 'peer: pcie'; valid values are "
            "numbers up to %.15g GB/s",
            p->link_gb_per_s);
    }
    return RP_OK;
}

static void set_peer(rp_platform *p)
{
    if (p->peer == NULL) {
        p->peer = p->peer_gb_per_s > 0 ? "nvlink" : "none";
    }
    p->peer_access = strcmp(p->peer, "nvlink") == 0 ? RP_PEER_NVLINK
                     : strcmp(p->peer, "pcie") == 0 ? RP_PEER_PCIE
                                                    : RP_PEER_NONE;
}

/* Sets the nominal rate of the host link: as written, or from the PCIe lanes. */
static rp_status set_link(const char *name, const size_t *lines, rp_platform *p, rp_reason *reason)
{
    bool lanes = lines[RP_PLATFORM_pcie_gen] != 0;
    bool rate = lines[RP_PLATFORM_link_gb_per_s] != 0;
    if (lanes && rate) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_pcie_gen],
            "a platform needs only one of the keys 'link_gb_per_s' and 'pcie_gen'; "
            "valid values are link_gb_per_s from 0.001 to 100000 GB/s, or pcie_gen 3, "
            "4 or 5");
    }
    if (lines[RP_PLATFORM_pcie_lanes] != 0 && !lanes) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_pcie_lanes],
            "'pcie_lanes' without 'pcie_gen'; valid values are 1, 2, 4, 8 and 16 with a "
            "'pcie_gen' of 3, 4 or 5");
    }
    if ((p->pcie_lanes & (p->pcie_lanes - 1)) != 0) {
        return rp_refuse_at(reason, RP_INPUT, name, lines[RP_PLATFORM_pcie_lanes],
                            "'pcie_lanes' is %u; valid values are 1, 2, 4, 8 and 16",
                            p->pcie_lanes);
    }
    if (lanes) {
        p->each.link_gb_per_s.count = 0;
        p->link_gb_per_s = pcie_gt_per_s[p->pcie_gen] * p->pcie_lanes / 8;
    }
    return RP_OK;
}

typedef struct two_units {
    uint32_t decimal;
    uint32_t binary;
    double *gb; /* the member that the rest of the program reads */
    double *gib;
    rp_config_numbers *each_gb; /* NULL: no lists */
    rp_config_numbers *each_gib;
} two_units;

static void convert(const rp_config_numbers *from, double factor, rp_config_numbers *to)
{
    *to = *from; /* the list of a key that is no longer read */
    for (uint32_t i = 0; i < to->count; i++) {
        to->values[i] *= factor;
    }
}

/* A file gives memory in decimal or in binary units. A change of either key replaces the other
 * key's value. */
static void use_changed_unit(const rp_changes *changes, size_t *lines, const two_units *u)
{
    bool gb = rp_changes_touch(changes, &rp_platform_schema, u->decimal);
    bool gib = rp_changes_touch(changes, &rp_platform_schema, u->binary);
    if (gb && !gib && lines[u->binary] != 0 && lines[u->decimal] == 0) {
        *u->gb = *u->gib * RP_GB_PER_GIB;
        if (u->each_gib != NULL) {
            convert(u->each_gib, RP_GB_PER_GIB, u->each_gb);
            u->each_gib->count = 0;
        }
        lines[u->decimal] = lines[u->binary];
        lines[u->binary] = 0;
        *u->gib = 0;
    } else if (gib && !gb && lines[u->decimal] != 0 && lines[u->binary] == 0) {
        *u->gib = *u->gb / RP_GB_PER_GIB;
        if (u->each_gb != NULL) {
            convert(u->each_gb, 1 / RP_GB_PER_GIB, u->each_gib);
        }
        lines[u->binary] = lines[u->decimal];
        lines[u->decimal] = 0;
    }
}

static rp_status set_memory(const rp_platform_lines *at, const two_units *u, rp_reason *reason)
{
    if (at->lines[u->decimal] != 0 && at->lines[u->binary] != 0) {
        return rp_refuse_at(
            reason, RP_INPUT, rp_platform_file_of(at, u->binary), at->lines[u->binary],
            "'%s' beside '%s'; valid values are those of one key alone, 1 GiB being "
            "%.9f GB",
            fields[u->binary].key, fields[u->decimal].key, RP_GB_PER_GIB);
    }
    *u->gb = at->lines[u->binary] != 0 ? *u->gib * RP_GB_PER_GIB : *u->gb;
    return RP_OK;
}

/* Emulated GPUs are threads of a single socket: other cases are not modelled. */
static rp_status check_cores(const char *name, const size_t *lines, const rp_platform *p,
                             rp_reason *reason)
{
    if (p->host_cores > 0 && (p->sockets > 1 || p->nodes > 1)) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_host_cores],
            "'host_cores' with %u sockets and %u nodes; valid values are one of each", p->sockets,
            p->nodes);
    }
    if (p->copies_on_cores && !(p->host_cores > 0)) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_copies],
            "'copies: cores' needs 'host_cores'; valid values are links, or cores with "
            "a positive 'host_cores'");
    }
    if (p->bound_cores > 0 && !(p->host_cores > 0)) {
        return rp_refuse_at(
            reason, RP_INPUT, name, lines[RP_PLATFORM_bound_cores],
            "'bound_cores' needs 'host_cores'; valid values are 0, or a count with a "
            "positive 'host_cores'");
    }
    return RP_OK;
}

/* A clock belongs to multiprocessors, and rates of their kernels are given all or none. */
static rp_status check_sms(const rp_platform_lines *at, const rp_platform *p, rp_reason *reason)
{
    const struct {
        size_t field;
        double value;
        bool needed;
    } with[] = {
        {RP_PLATFORM_sm_clock_ghz, p->sm_clock_ghz, p->sms > 0},
        {RP_PLATFORM_sms, p->sms, p->gemm_fp32_acc_efficiency > 0},
        {RP_PLATFORM_flash_fwd_tflops, p->flash_fwd_tflops, p->gemm_fp32_acc_efficiency > 0},
        {RP_PLATFORM_flash_bwd_tflops, p->flash_bwd_tflops, p->gemm_fp32_acc_efficiency > 0}};
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        bool allowed = with[i].field == RP_PLATFORM_sms || with[i].value <= 0 || with[i].needed;
        if ((with[i].needed && with[i].value <= 0) || !allowed) {
            size_t key = at->lines[with[i].field] != 0 ? with[i].field
                         : i == 0                      ? RP_PLATFORM_sms
                                                       : RP_PLATFORM_gemm_fp32_acc_efficiency;
            return rp_refuse_at(
                reason, RP_INPUT, rp_platform_file_of(at, key), at->lines[key],
                "'sms' is %u, '%s' %g; valid values are positive ones of sms and sm_clock_ghz "
                "or none, and with them of gemm_fp32_acc_efficiency, flash_fwd_tflops and "
                "flash_bwd_tflops or none",
                p->sms, fields[with[i].field].key, with[i].value);
        }
    }
    if (p->collective_sms > 0 && p->collective_sms >= p->sms) {
        return rp_refuse_at(reason, RP_INPUT, at->file, at->lines[RP_PLATFORM_collective_sms],
                            "'collective_sms' is %u of %u 'sms'; valid values are numbers below",
                            p->collective_sms, p->sms);
    }
    return RP_OK;
}

/* Without power beyond the idle card's, products would take for ever. */
static rp_status check_power(const rp_platform_lines *at, const rp_platform *p, rp_reason *reason)
{
    if (p->power_limit_w > 0 && p->power_limit_w <= p->idle_power_w) {
        return rp_refuse_at(reason, RP_INPUT, rp_platform_file_of(at, RP_PLATFORM_power_limit_w),
                            at->lines[RP_PLATFORM_power_limit_w],
                            "'power_limit_w' is %.15g, 'idle_power_w' %.15g; valid values are "
                            "numbers above %.15g W, or 0 where nobody knows it",
                            p->power_limit_w, p->idle_power_w, p->idle_power_w);
    }
    return RP_OK;
}

/* A rate of 0 is an unknown rate. A positive rate below all real rates is refused, as a run with it
 * may never end. */
static rp_status check_rates(const rp_platform_lines *at, const rp_platform *platform,
                             rp_reason *reason)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *unit = fields[i].unit;
        double rate = 0;
        if (unit == NULL || (strcmp(unit, "GB/s") != 0 && strcmp(unit, "TFLOP/s") != 0)) {
            continue;
        }
        memcpy(&rate, (const char *)platform + fields[i].offset, sizeof rate);
        if (rate > 0 && rate < 1e-3) {
            return rp_refuse_at(reason, RP_INPUT, rp_platform_file_of(at, i), at->lines[i],
                                "'%s' is %g; valid values are 0 where it is not known, and numbers "
                                "from 0.001 to %.15g %s",
                                fields[i].key, rate, fields[i].high, unit);
        }
    }
    return RP_OK;
}

static rp_status check_sums(const rp_platform_lines *at, const rp_platform *platform,
                            rp_reason *reason)
{
    const char *name = at->file;
    const size_t *lines = at->lines;
    if (platform->fp16_tflops_fp32_acc > platform->fp16_tflops_fp16_acc) {
        return rp_refuse_at(reason, RP_INPUT,
                            rp_platform_file_of(at, RP_PLATFORM_fp16_tflops_fp32_acc),
                            lines[RP_PLATFORM_fp16_tflops_fp32_acc],
                            "'fp16_tflops_fp32_acc' exceeds the peak with fp16 accumulation; valid "
                            "values are numbers up to %.15g TFLOP/s",
                            platform->fp16_tflops_fp16_acc);
    }
    const struct {
        int field;
        double rate;
    } effective[] = {{RP_PLATFORM_link_effective_gb_per_s, platform->link_effective_gb_per_s},
                     {RP_PLATFORM_upload_gb_per_s, platform->upload_gb_per_s},
                     {RP_PLATFORM_download_gb_per_s, platform->download_gb_per_s}};
    for (size_t i = 0; i < sizeof effective / sizeof effective[0]; i++) {
        if (effective[i].rate > platform->link_gb_per_s) {
            return rp_refuse_at(
                reason, RP_INPUT, name, lines[effective[i].field],
                "'%s' exceeds the nominal rate; valid values are numbers up to %.15g "
                "GB/s, or 0 where nobody has measured it",
                fields[effective[i].field].key, platform->link_gb_per_s);
        }
    }
    RP_TRY(check_rates(at, platform, reason));
    RP_TRY(check_sms(at, platform, reason));
    RP_TRY(check_power(at, platform, reason));
    RP_TRY(check_topology(name, lines, platform, reason));
    RP_TRY(rp_platform_check_network(name, lines, platform, reason));
    RP_TRY(check_cores(name, lines, platform, reason));
    return check_peers(name, lines, platform, reason);
}

/* A change that sets the rate replaces the lanes, and a change of the lanes replaces the rate. */
static void replace_link(const rp_changes *changes, size_t *lines, rp_platform *p)
{
    bool rate = rp_changes_set(changes, &rp_platform_schema, RP_PLATFORM_link_gb_per_s);
    bool lanes = rp_changes_set(changes, &rp_platform_schema, RP_PLATFORM_pcie_gen);
    if (lanes && !rate) {
        lines[RP_PLATFORM_link_gb_per_s] = 0;
    }
    if (rate && !lanes && !rp_changes_set(changes, &rp_platform_schema, RP_PLATFORM_pcie_lanes)) {
        lines[RP_PLATFORM_pcie_gen] = 0;
        lines[RP_PLATFORM_pcie_lanes] = 0;
        p->pcie_lanes = (uint32_t)fields[RP_PLATFORM_pcie_lanes].standard;
        p->each.pcie_lanes.count = 0;
    }
}

/* Origins of the keys; the list of the platform's own file counts more than the GPU's. */
static rp_status set_provenance(const rp_platform_lines *at, const uint8_t *of_gpu, rp_arena *arena,
                                rp_platform *p)
{
    size_t count = rp_platform_schema.field_count;
    uint8_t *kinds = NULL;
    RP_TRY(rp_provenance_read(at->file, &rp_platform_schema, at->lines, p, arena, &p->provenance));
    if (of_gpu == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, count, sizeof *kinds, &kinds));
    for (size_t i = 0; i < count; i++) {
        kinds[i] = p->provenance[i] != RP_ASSUMED ? p->provenance[i] : of_gpu[i];
    }
    p->provenance = kinds;
    return RP_OK;
}

static void warn_if_busy(const rp_platform_lines *at, const rp_platform *p)
{
    static atomic_flag said = ATOMIC_FLAG_INIT; /* platforms are read several times */
    if (p->recorded_busy_pct > 0 && !atomic_flag_test_and_set(&said)) {
        rp_log_warning("%s:%zu: recorded while other processes used %.0f %% of the processors: "
                       "times are too long, and predictions with it are wrong",
                       at->file, at->lines[RP_PLATFORM_recorded_busy_pct], p->recorded_busy_pct);
    }
}

static rp_status parse(const char *name, const rp_text *text, const rp_changes *changes,
                       rp_arena *arena, rp_platform *platform_out, rp_reason *reason)
{
    rp_platform_lines at = {.file = name};
    const uint8_t *of_gpu = NULL;
    rp_platform_cards *cards = NULL;
    size_t first_line = 0;
    *platform_out = (rp_platform){0};
    RP_TRY(rp_config_parse_part(name, text->bytes, text->length, &rp_platform_schema, arena,
                                platform_out, at.lines, &first_line));
    RP_TRY(rp_platform_add_gpu(first_line, changes, arena, platform_out, &at, &of_gpu));
    if (platform_out->gpu != NULL) {
        RP_TRY(rp_products_load(platform_out->gpu, arena, &platform_out->products));
    }
    RP_TRY(rp_platform_read_cards(&at, arena, platform_out, &cards));
    const two_units units[] = {
        {RP_PLATFORM_memory_gb, RP_PLATFORM_memory_gib, &platform_out->memory_gb,
         &platform_out->memory_gib, &platform_out->each.memory_gb, &platform_out->each.memory_gib},
        {RP_PLATFORM_host_memory_gb, RP_PLATFORM_host_memory_gib, &platform_out->host_memory_gb,
         &platform_out->host_memory_gib, NULL, NULL}};
    use_changed_unit(changes, at.lines, &units[0]);
    use_changed_unit(changes, at.lines, &units[1]);
    RP_TRY(rp_changes_apply(changes, &rp_platform_schema, name, arena, platform_out, at.lines,
                            reason));
    RP_TRY(rp_platform_check_cards(cards, &at, platform_out, reason));
    replace_link(changes, at.lines, platform_out);
    RP_TRY(set_link(name, at.lines, platform_out, reason));
    RP_TRY(set_memory(&at, &units[0], reason));
    RP_TRY(set_memory(&at, &units[1], reason));
    RP_TRY(rp_platform_set_each(name, at.lines, arena, platform_out, reason));
    RP_TRY(set_provenance(&at, of_gpu, arena, platform_out));
    warn_if_busy(&at, platform_out);
    set_peer(platform_out);
    platform_out->copies_on_cores =
        platform_out->copies != NULL && strcmp(platform_out->copies, "cores") == 0;
    RP_TRY(check_sums(&at, platform_out, reason));
    RP_TRY(rp_platform_set_bridges(name, at.lines, arena, platform_out, reason));
    return rp_platform_set_cards(cards, &at, check_sums, arena, platform_out, reason);
}

rp_status rp_platform_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            rp_platform *platform_out)
{
    const rp_text text = {.bytes = (char *)bytes, .length = length};
    return parse(name, &text, NULL, arena, platform_out, NULL);
}

rp_status rp_platform_parse_changed(const char *name_or_path, const char *path, const rp_text *text,
                                    const rp_changes *changes, rp_arena *arena,
                                    rp_platform *platform_out, rp_reason *reason)
{
    const char *shown = path;
    RP_TRY(rp_changes_name(changes, &rp_platform_schema, arena, &shown));
    RP_TRY(parse(shown, text, changes, arena, platform_out, reason));
    RP_TRY(rp_data_check_name(name_or_path, path, platform_out->name));
    return rp_changes_name(changes, &rp_platform_schema, arena, &platform_out->name);
}

rp_status rp_platform_read(const char *name_or_path, const rp_changes *changes, rp_arena *arena,
                           rp_platform *platform_out, rp_reason *reason)
{
    const char *path = NULL;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_platforms, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        status = rp_platform_parse_changed(name_or_path, path, &text, changes, arena, platform_out,
                                           reason);
    }
    rp_text_fini(&text);
    return status;
}
