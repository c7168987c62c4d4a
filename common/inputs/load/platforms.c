#include "common/inputs/load/platforms.h"

#include "common/inputs/detect/detect.h"

#include <string.h>

rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out)
{
    return rp_platform_load_changed(name_or_path, NULL, arena, platform_out, NULL);
}

rp_status rp_platform_load_changed(const char *name_or_path, const rp_changes *changes,
                                   rp_arena *arena, rp_platform *platform_out, rp_reason *reason)
{
    rp_text text = {0};
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
