#include "common/store/record.h"

#include "common/base/log.h"

#include <string.h>

#define TEXT_COUNT 15
#define ABSENT UINT64_MAX

/* Lists the members of a run that are texts. */
static void texts_of(rp_store_run *run, const char **texts[TEXT_COUNT])
{
    const char **const all[TEXT_COUNT] = {
        &run->created_utc, &run->host,     &run->program,   &run->version,   &run->command,
        &run->config_json, &run->schedule, &run->model,     &run->platform,  &run->costs,
        &run->partition,   &run->fidelity, &run->recompute, &run->optimizer, &run->git_commit};
    memcpy(texts, all, sizeof all);
}

rp_status rp_store_text_pack(const char *text, rp_text *bytes)
{
    uint64_t length = text != NULL ? strlen(text) : ABSENT;
    RP_TRY(rp_text_append(bytes, (const char *)&length, sizeof length));
    return text != NULL ? rp_text_append(bytes, text, length) : RP_OK;
}

rp_status rp_store_run_pack(const rp_store_run *run, rp_text *bytes)
{
    const char **texts[TEXT_COUNT];
    rp_store_run numbers = *run;
    texts_of(&numbers, texts);
    for (int i = 0; i < TEXT_COUNT; i++) {
        RP_TRY(rp_store_text_pack(*texts[i], bytes));
        *texts[i] = NULL; /* addresses have no meaning in another process */
    }
    numbers.metrics = NULL;
    RP_TRY(rp_text_append(bytes, (const char *)&numbers, sizeof numbers));
    for (size_t i = 0; i < run->metric_count; i++) {
        rp_store_metric metric = run->metrics[i];
        RP_TRY(rp_store_text_pack(metric.name, bytes));
        metric.name = NULL;
        RP_TRY(rp_text_append(bytes, (const char *)&metric, sizeof metric));
    }
    return RP_OK;
}

static rp_status take(const char *bytes, size_t length, size_t *at, void *to, size_t size)
{
    if (length - *at < size) {
        return rp_broken();
    }
    memcpy(to, bytes + *at, size);
    *at += size;
    return RP_OK;
}

rp_status rp_store_text_unpack(const char *bytes, size_t length, size_t *at, rp_arena *arena,
                               const char **text_out)
{
    uint64_t size = 0;
    *text_out = NULL;
    RP_TRY(take(bytes, length, at, &size, sizeof size));
    if (size == ABSENT) {
        return RP_OK;
    }
    if (length - *at < size) {
        return rp_broken();
    }
    RP_TRY(rp_arena_copy_text(arena, bytes + *at, size, text_out));
    *at += size;
    return RP_OK;
}

rp_status rp_store_run_unpack(const char *bytes, size_t length, size_t *at, rp_arena *arena,
                              rp_store_run *run_out)
{
    const char *kept[TEXT_COUNT];
    const char **texts[TEXT_COUNT];
    rp_store_metric *metrics = NULL;
    for (int i = 0; i < TEXT_COUNT; i++) {
        RP_TRY(rp_store_text_unpack(bytes, length, at, arena, &kept[i]));
    }
    RP_TRY(take(bytes, length, at, run_out, sizeof *run_out));
    texts_of(run_out, texts);
    for (int i = 0; i < TEXT_COUNT; i++) {
        *texts[i] = kept[i];
    }
    if (run_out->metric_count > (length - *at) / sizeof(rp_store_metric)) {
        return rp_broken();
    }
    RP_TRY(rp_arena_alloc(arena, run_out->metric_count, sizeof *metrics, &metrics));
    for (size_t i = 0; i < run_out->metric_count; i++) {
        const char *name = NULL;
        RP_TRY(rp_store_text_unpack(bytes, length, at, arena, &name));
        RP_TRY(take(bytes, length, at, &metrics[i], sizeof metrics[i]));
        metrics[i].name = name;
    }
    run_out->metrics = metrics;
    return RP_OK;
}
