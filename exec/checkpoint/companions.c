#include "exec/checkpoint/companions.h"

#include "common/base/log.h"
#include "exec/checkpoint/links.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG "config.json"
#define ADAPTERS "adapter_config.json"

/* Tokenizers of many languages have tens of MB. */
#define LIMIT_BYTES ((size_t)256 << 20)

/* Files that transformers looks for, beside tensors and the model's configuration. */
static const char *const carried[] = {"generation_config.json",
                                      "tokenizer.json",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "vocab.json",
                                      "vocab.txt",
                                      "merges.txt",
                                      "tokenizer.model",
                                      "spiece.model",
                                      "chat_template.jinja",
                                      "chat_template.json"};

_Static_assert(sizeof carried / sizeof *carried < RPEXEC_MOST_COMPANIONS, "and a configuration");

bool rpexec_companion_is_file(const char *name)
{
    bool found = strcmp(name, CONFIG) == 0 || strcmp(name, ADAPTERS) == 0;
    for (size_t i = 0; i < sizeof carried / sizeof *carried && !found; i++) {
        found = strcmp(name, carried[i]) == 0;
    }
    return found;
}

static rp_status add(rpexec_companion_list *c, const char *name, const rp_text *text,
                     rp_arena *arena)
{
    char *bytes = NULL;
    RP_TRY(rp_arena_alloc_raw(arena, text->length + 1, 1, &bytes));
    memcpy(bytes, text->bytes, text->length);
    bytes[text->length] = '\0';
    c->files[c->count++] = (rpexec_companion){.name = name, .bytes = bytes, .length = text->length};
    return RP_OK;
}

/* ---- the configuration ----------------------------------------------------------------------- */

static rp_status print_config(const rpexec_origin *origin, const rpexec_model *model, rp_text *text,
                              bool *found_out)
{
    if (origin->config == NULL) {
        return rpexec_config_print(model->config, model->dtype, text, found_out);
    }
    rp_text from = {0};
    RP_TRY(rpexec_links_check(origin->config));
    rp_status status = rp_text_read_file(origin->config, LIMIT_BYTES, &from);
    status =
        status == RP_OK ? rpexec_config_carry(origin->config, &from, model->dtype, text) : status;
    rp_text_fini(&from);
    *found_out = true;
    return status;
}

/* @param found_out false: no family has the model's layers, so there is no config.json */
static rp_status add_config(const rpexec_origin *origin, const rpexec_model *model, rp_arena *arena,
                            rpexec_companion_list *list, bool *found_out)
{
    rp_text text = {0};
    rp_status status = print_config(origin, model, &text, found_out);
    if (status == RP_OK && !*found_out) {
        rp_log_warning("{save}: no family of Hugging Face's has the layers of %s: its checkpoints "
                       "are without " CONFIG,
                       model->config->name);
    } else if (status == RP_OK) {
        status = add(list, CONFIG, &text, arena);
    }
    rp_text_fini(&text);
    return status;
}

/* An absolute path, which other programs find from any folder. */
static rp_status whole_path(const char *path, rp_arena *arena, const char **whole_out)
{
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL) {
        rp_log_error("%s: realpath: %s", path, strerror(errno));
        return RP_IO;
    }
    return rp_arena_copy_text(arena, whole, strlen(whole), whole_out);
}

static rp_status add_adapters(const rpexec_origin *origin, const rpexec_model *model,
                              rp_arena *arena, rpexec_companions *c)
{
    bool found = false;
    const char *base = NULL;
    rp_text text = {0};
    if (origin->weights != NULL) {
        RP_TRY(whole_path(origin->weights, arena, &base));
    } else {
        RP_TRY(add_config(origin, model, arena, &c->base, &found));
    }
    if (found) {
        RP_TRY(whole_path(origin->save, arena, &base));
        RP_TRY(rp_arena_print(arena, &base, "%s/" RPEXEC_BASE, base));
    }
    rp_status status = rpexec_adapter_config_print(model, base, &text);
    status = status == RP_OK ? add(&c->step, ADAPTERS, &text, arena) : status;
    rp_text_fini(&text);
    return status;
}

/* ---- files that are carried along ------------------------------------------------------------ */

/* Only a file called config.json has its tokenizer beside it: a file of another name may lie among
 * tokenizers of other models. */
static bool has_neighbours(const char *config)
{
    const char *slash = config != NULL ? strrchr(config, '/') : NULL;
    return config != NULL && strcmp(slash != NULL ? slash + 1 : config, CONFIG) == 0;
}

static bool has(const rpexec_companion_list *list, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < list->count && !found; i++) {
        found = strcmp(list->files[i].name, name) == 0;
    }
    return found;
}

static rp_status carry(const char *path, const char *name, rp_arena *arena,
                       rpexec_companion_list *list)
{
    rp_text text = {0};
    struct stat about; /* a link to nothing is there, and is refused */
    if (has(list, name) || (lstat(path, &about) != 0 && (errno == ENOENT || errno == ENOTDIR))) {
        return RP_OK;
    }
    RP_TRY(rpexec_links_check(path));
    rp_status status = rp_text_read_file(path, LIMIT_BYTES, &text);
    status = status == RP_OK ? add(list, name, &text, arena) : status;
    rp_text_fini(&text);
    return status;
}

/* @param folder `length` bytes, its slash included */
static rp_status carry_all(const char *folder, int length, rp_arena *arena,
                           rpexec_companion_list *list)
{
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%.*s%s", length, folder, carried[i]));
        RP_TRY(carry(path, carried[i], arena, list));
    }
    return RP_OK;
}

rp_status rpexec_companions_gather(const rpexec_origin *origin, const rpexec_model *model,
                                   rp_arena *arena, rpexec_companions *companions_out)
{
    rpexec_companions *c = companions_out;
    const char *adapters = NULL;
    bool found = false;
    *c = (rpexec_companions){0};
    RP_TRY(model->rank != 0 ? add_adapters(origin, model, arena, c)
                            : add_config(origin, model, arena, &c->step, &found));
    if (origin->adapters != NULL) {
        RP_TRY(rp_arena_print(arena, &adapters, "%s/", origin->adapters));
        RP_TRY(carry_all(adapters, (int)strlen(adapters), arena, &c->step));
    }
    if (has_neighbours(origin->config)) {
        int length = (int)(strlen(origin->config) - strlen(CONFIG));
        RP_TRY(carry_all(origin->config, length, arena, &c->step));
        RP_TRY(c->base.count != 0 ? carry_all(origin->config, length, arena, &c->base) : RP_OK);
    }
    return RP_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

rp_status rpexec_companions_write(const rpexec_companion_list *list, const char *folder)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const rpexec_companion *file = &list->files[i];
        char path[PATH_MAX];
        rp_output output;
        int length = snprintf(path, sizeof path, "%s/%s", folder, file->name);
        if (length < 0 || (size_t)length >= sizeof path) {
            rp_log_error("%s/%s: %s", folder, file->name, strerror(ENAMETOOLONG));
            return RP_IO;
        }
        RP_TRY(rp_output_open(path, &output));
        (void)fwrite(file->bytes, 1, file->length, output.stream); /* rp_output_commit checks
                                                                      ferror */
        RP_TRY(rp_output_commit(&output));
    }
    return RP_OK;
}
