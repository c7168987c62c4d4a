#include "common/inputs/load/platforms.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/inputs/data.h"
#include "common/inputs/detect/detect.h"

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
