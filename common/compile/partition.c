/* The partition for a value of --partition. */
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/compile/compile.h"
#include "common/schedule/even.h"

#include <string.h>

static const char *published_name(const rp_schedule_type *schedule)
{
    return schedule->published_as != NULL    ? schedule->published_as
           : schedule->partitions_of != NULL ? schedule->partitions_of
                                             : schedule->name;
}

static rp_status read_published(void *context, const char *schedule, const char *model,
                                rp_arena *arena, rp_partition *partition_out, bool *found_out)
{
    (void)context;
    return rp_partition_published(schedule, model, arena, partition_out, found_out);
}

static const rp_published_source file_source = {.find = read_published};

bool rp_partition_is_allowed(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_partition *partition)
{
    rp_reason unread;
    rp_schedule_config trial = *config;
    trial.partition = partition;
    return rp_schedule_check(schedule, &trial, &unread) == RP_OK;
}

static rp_status equal_layers(uint32_t layers, uint32_t stages, rp_arena *arena,
                              rp_partition *partition_out)
{
    *partition_out = (rp_partition){.forward_count = stages};
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(uint32_t), &partition_out->forward_layers));
    for (uint32_t i = 0; i < stages; i++) {
        partition_out->forward_layers[i] = layers / stages;
    }
    return RP_OK;
}

rp_status rp_compile_partition(const char *text, const char *words, const char *model,
                               uint32_t stages, const rp_schedule_type *schedule,
                               const rp_schedule_config *config, rp_arena *arena,
                               rp_partition *partition_out, rp_reason *reason)
{
    return rp_compile_partition_from(&file_source, text, words, model, stages, schedule, config,
                                     arena, partition_out, reason);
}

rp_status rp_compile_partition_from(const rp_published_source *source, const char *text,
                                    const char *words, const char *model, uint32_t stages,
                                    const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rp_arena *arena,
                                    rp_partition *partition_out, rp_reason *reason)
{
    bool paper = text != NULL && strcmp(text, "paper") == 0;
    bool even = text != NULL && strcmp(text, "even") == 0;
    bool found = false;
    if (text != NULL && !paper && !even) {
        if (strpbrk(text, "0123456789") != NULL) {
            return rp_partition_parse(NULL, text, arena, partition_out, reason);
        }
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: '%s' is not valid; valid values are %s, and lists such as 3,3,4 "
            "or 2,2|0,2,2",
            text, words);
    }
    if (paper || (!even && stages == 0)) {
        RP_TRY(source->find(source->context, published_name(schedule), model, arena, partition_out,
                            &found));
    }
    if (paper && !found) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: the paper lists none for %s with %s; valid values are even%s, "
            "and lists such as 3,3,4 or 2,2|0,2,2",
            schedule->name, model, strstr(words, "even") + strlen("even"));
    }
    if (paper || (found && rp_partition_is_allowed(schedule, config, partition_out))) {
        return RP_OK;
    }
    if (text == NULL && stages == 0 && schedule->equal_layers &&
        config->costs->layers % config->gpus == 0) {
        return equal_layers(config->costs->layers, config->gpus, arena, partition_out);
    }
    return rp_partition_even(schedule, config->costs, config->gpus, stages, arena, partition_out,
                             reason);
}
