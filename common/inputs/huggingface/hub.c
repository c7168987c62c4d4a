#define _GNU_SOURCE /* strcasestr */
/* Models of the Hugging Face Hub by their names, in the cache of its own programs
 * (huggingface_hub: constants.py, file_download.py, "Understand caching" of its guides). */
#include "common/base/log.h"
#include "common/inputs/data.h"
#include "common/inputs/huggingface/config.h"
#include "common/inputs/model.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_NAME 96u /* characters of each part */
#define MOST_REVISION 256u

/* A part has letters, digits, '-', '_' and '.'; it neither begins nor ends with '.'. */
static bool is_part(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr("-_.", text[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length <= MOST_NAME && text[0] != '.' && text[length - 1] != '.';
}

/* @return whether a text is ORG/NAME, and neither an existing path nor the path of a YAML file. */
static bool is_name(const char *text)
{
    size_t first = strcspn(text, "/");
    const char *name = text + first + (text[first] == '/' ? 1 : 0);
    const char *ending = strrchr(name, '.');
    return text[first] == '/' && is_part(text, first) && is_part(name, strlen(name)) &&
           (ending == NULL || strcmp(ending, ".yaml") != 0) && access(text, F_OK) != 0;
}

static const char *set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static rp_status find_cache(rp_arena *arena, const char **path_out)
{
    const char *hub = set("HF_HUB_CACHE");
    const char *home = set("HF_HOME");
    const char *cache = set("XDG_CACHE_HOME");
    const char *user = set("HOME");
    if (hub != NULL) {
        return rp_arena_copy_text(arena, hub, strlen(hub), path_out);
    }
    return home != NULL    ? rp_arena_print(arena, path_out, "%s/hub", home)
           : cache != NULL ? rp_arena_print(arena, path_out, "%s/huggingface/hub", cache)
                           : rp_arena_print(arena, path_out, "%s/.cache/huggingface/hub",
                                            user != NULL ? user : "");
}

/* Finds the folder of the revision that `main` names; NULL: the cache has none with a
 * config.json. */
static rp_status find_snapshot(const char *cache, const char *name, rp_arena *arena,
                               const char **path_out)
{
    const char *folder = NULL;
    const char *file = NULL;
    rp_text revision = {0};
    size_t first = strcspn(name, "/");
    *path_out = NULL;
    RP_TRY(rp_arena_print(arena, &folder, "%s/models--%.*s--%s", cache, (int)first, name,
                          name + first + 1));
    RP_TRY(rp_arena_print(arena, &file, "%s/refs/main", folder));
    if (access(file, F_OK) != 0) {
        return RP_OK;
    }
    RP_TRY(rp_text_read_file(file, MOST_REVISION, &revision));
    size_t length = revision.length > 0 ? strcspn(revision.bytes, " \n") : 0;
    rp_status status = rp_arena_print(arena, path_out, "%s/snapshots/%.*s", folder, (int)length,
                                      length > 0 ? revision.bytes : "");
    rp_text_fini(&revision);
    RP_TRY(status);
    RP_TRY(rp_arena_print(arena, &file, "%s/config.json", *path_out));
    *path_out = access(file, F_OK) == 0 ? *path_out : NULL;
    return RP_OK;
}

/* The registered model whose file says that it was made from this config.json; NULL: none. */
static rp_status find_registered(const char *name, rp_arena *arena, const char **found_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    *found_out = NULL;
    RP_TRY(rp_data_list("models", arena, &names, &count));
    for (uint32_t i = 0; i < count && *found_out == NULL; i++) {
        rp_model known;
        RP_TRY(rp_model_read(names[i], arena, &known));
        const char *said = known.source != NULL ? strcasestr(known.source, name) : NULL;
        char end = said != NULL ? said[strlen(name)] : '-';
        bool whole = !isalnum((unsigned char)end) && strchr("-_.", end) == NULL;
        *found_out = said != NULL && (end == '\0' || whole) ? names[i] : NULL;
    }
    return RP_OK;
}

rp_status rp_hf_locate(const char *name_or_path, rp_arena *arena, const char **path_out)
{
    const char *cache = NULL;
    const char *registered = NULL;
    *path_out = name_or_path;
    if (!is_name(name_or_path) || rp_hf_is_config(name_or_path)) {
        return RP_OK;
    }
    RP_TRY(find_cache(arena, &cache));
    RP_TRY(find_snapshot(cache, name_or_path, arena, path_out));
    if (*path_out != NULL) {
        return RP_OK;
    }
    RP_TRY(find_registered(name_or_path, arena, &registered));
    rp_log_error("{model}: there is no file or folder '%s', and no such model's config.json in "
                 "Hugging Face's cache, %s; 'hf download %s config.json' puts it there%s%s",
                 name_or_path, cache, name_or_path,
                 registered != NULL ? rp_log_spell("; this model is built in as {model} ").text
                                    : "",
                 registered != NULL ? registered : "");
    return RP_INPUT;
}
