#include "common/config.h"
#include "common/data.h"
#include "common/log.h"
#include "common/model.h"

#define NAME(member, bytes)                                                                        \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_NAME, .high = bytes,                                     \
        .offset = offsetof(rp_platform, member)                                                    \
    }
#define RATE(member, is_optional, least, most, of)                                                 \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_DOUBLE, .optional = is_optional, .low = least,           \
        .high = most, .unit = of, .offset = offsetof(rp_platform, member)                          \
    }

enum {
    FIELD_FP32_ACC = 5,
    FIELD_LINK_EFFECTIVE = 9,
    FIELD_GPUS_PER_SWITCH = 25,
    FIELD_SWITCH = 26,
};

static const rp_config_field fields[] = {
    NAME(name, 64),
    {.key = "source",
     .type = RP_CONFIG_TEXT,
     .high = 1000,
     .offset = offsetof(rp_platform, source)},
    NAME(gpu, 64),
    {.key = "gpus",
     .type = RP_CONFIG_U32,
     .low = 1,
     .high = 4096,
     .offset = offsetof(rp_platform, gpus)},
    RATE(fp16_tflops_fp16_acc, false, 0.001, 1e6, "TFLOP/s"),
    [FIELD_FP32_ACC] = RATE(fp16_tflops_fp32_acc, false, 0.001, 1e6, "TFLOP/s"),
    RATE(memory_gb, false, 0.001, 1e5, "GB"),
    RATE(memory_gb_per_s, false, 0.001, 1e6, "GB/s"),
    RATE(link_gb_per_s, false, 0.001, 1e5, "GB/s"),
    [FIELD_LINK_EFFECTIVE] = RATE(link_effective_gb_per_s, true, 0, 1e5, "GB/s"),
    RATE(peer_gb_per_s, false, 0, 1e5, "GB/s"),
    RATE(attention_fwd_tflops, true, 0, 1e6, "TFLOP/s"),
    RATE(attention_bwd_tflops, true, 0, 1e6, "TFLOP/s"),
    RATE(memory_effective_gb_per_s, true, 0, 1e6, "GB/s"),
    RATE(host_optimizer_gb_per_s, true, 0, 1e5, "GB/s"),
    RATE(usable_memory_gb, true, 0, 1e5, "GB"),
    RATE(context_gb, true, 0, 1e4, "GB"),
    RATE(workspace_gb, true, 0, 1e4, "GB"),
    RATE(allocator_overhead_pct, true, 0, 1000, "%"),
    RATE(host_memory_gb, true, 0, 1e7, "GB"),
    RATE(collective_gb_per_s, true, 0, 1e5, "GB/s"),
    RATE(zero_gradient_gb_per_s, true, 0, 1e5, "GB/s"),
    RATE(gemm_efficiency, true, 0, 1, NULL),
    RATE(link_efficiency, true, 0, 1, NULL),
    RATE(launch_overhead_us, true, 0, 1000, "us"),
    [FIELD_GPUS_PER_SWITCH] = {.key = "gpus_per_switch",
                               .type = RP_CONFIG_U32,
                               .optional = true,
                               .high = 4096,
                               .offset = offsetof(rp_platform, gpus_per_switch)},
    [FIELD_SWITCH] = RATE(switch_gb_per_s, true, 0, 1e5, "GB/s"),
    {.key = "launch_queue_depth",
     .type = RP_CONFIG_U32,
     .optional = true,
     .high = 1u << 20,
     .offset = offsetof(rp_platform, launch_queue_depth)},
    RATE(dispatch_us_per_module, true, 0, 1e6, "us"),
};

static const rp_config_schema schema = {
    .what = "a platform", .fields = fields, .field_count = sizeof fields / sizeof *fields};

static rp_status check_switches(const char *name, const size_t *lines, const rp_platform *platform)
{
    uint32_t per_switch = platform->gpus_per_switch;
    if (per_switch != 0 && platform->gpus % per_switch != 0) {
        rp_log_error_at(name, lines[FIELD_GPUS_PER_SWITCH],
                        "'gpus_per_switch' is %u, which does not divide 'gpus'; valid values are "
                        "divisors of %u, or 0 where there are no switches",
                        per_switch, platform->gpus);
        return RP_INPUT;
    }
    if (per_switch != 0 && !(platform->switch_gb_per_s > 0)) {
        rp_log_error_at(name, lines[FIELD_GPUS_PER_SWITCH],
                        "'gpus_per_switch' is %u without a 'switch_gb_per_s'; valid values are 0, "
                        "or any divisor of %u with a positive 'switch_gb_per_s'",
                        per_switch, platform->gpus);
        return RP_INPUT;
    }
    if (per_switch == 0 && platform->switch_gb_per_s > 0) {
        rp_log_error_at(name, lines[FIELD_SWITCH],
                        "'switch_gb_per_s' is %.15g without 'gpus_per_switch'; valid values are 0, "
                        "or any positive number with a divisor of %u as 'gpus_per_switch'",
                        platform->switch_gb_per_s, platform->gpus);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status check_sums(const char *name, const size_t *lines, const rp_platform *platform)
{
    if (platform->fp16_tflops_fp32_acc > platform->fp16_tflops_fp16_acc) {
        rp_log_error_at(name, lines[FIELD_FP32_ACC],
                        "'fp16_tflops_fp32_acc' exceeds the peak with fp16 accumulation; valid "
                        "values are numbers up to %.15g TFLOP/s",
                        platform->fp16_tflops_fp16_acc);
        return RP_INPUT;
    }
    if (platform->link_effective_gb_per_s > platform->link_gb_per_s) {
        rp_log_error_at(name, lines[FIELD_LINK_EFFECTIVE],
                        "'link_effective_gb_per_s' exceeds the nominal rate; valid values are "
                        "numbers up to %.15g GB/s, or 0 where nobody has measured it",
                        platform->link_gb_per_s);
        return RP_INPUT;
    }
    return check_switches(name, lines, platform);
}

rp_status rp_platform_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            rp_platform *platform_out)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    *platform_out = (rp_platform){.context_gb = 0.75, .workspace_gb = 0.033554432};
    RP_TRY(rp_config_parse(name, bytes, length, &schema, arena, platform_out, lines));
    return check_sums(name, lines, platform_out);
}

rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out)
{
    const char *path;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_platforms, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        status = rp_platform_parse(path, text.bytes, text.length, arena, platform_out);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    return rp_data_check_name(name_or_path, path, platform_out->name);
}
