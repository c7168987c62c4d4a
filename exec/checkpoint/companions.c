#include "exec/checkpoint/companions.h"

#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG "config.json"

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

static rp_status add(rpexec_companions *c, const char *name, const rp_text *text, rp_arena *arena)
{
    char *bytes = NULL;
    RP_TRY(rp_arena_alloc_raw(arena, text->length + 1, 1, &bytes));
    memcpy(bytes, text->bytes, text->length);
    bytes[text->length] = '\0';
    c->files[c->count++] = (rpexec_companion){.name = name, .bytes = bytes, .length = text->length};
    return RP_OK;
}

/* ---- the configuration ------------------------------------------------------------------------
 */

static rp_status print_config(const rpexec_origin *origin, const rpexec_model *model, rp_text *text,
                              bool *found_out)
{
    if (origin->config == NULL) {
        return rpexec_config_print(model->config, model->dtype, text, found_out);
    }
    rp_text from = {0};
    rp_status status = rp_text_read_file(origin->config, LIMIT_BYTES, &from);
    status =
        status == RP_OK ? rpexec_config_carry(origin->config, &from, model->dtype, text) : status;
    rp_text_fini(&from);
    *found_out = true;
    return status;
}

static rp_status print_adapters(const rpexec_origin *origin, const rpexec_model *model,
                                rp_text *text)
{
    char base[PATH_MAX]; /* as other programs find it, wherever they are started */
    if (origin->weights != NULL && realpath(origin->weights, base) == NULL) {
        rp_log_error("%s: realpath: %s", origin->weights, strerror(errno));
        return RP_IO;
    }
    return rpexec_adapter_config_print(model, origin->weights != NULL ? base : NULL, text);
}

static rp_status add_configuration(const rpexec_origin *origin, const rpexec_model *model,
                                   rp_arena *arena, rpexec_companions *c)
{
    rp_text text = {0};
    bool found = true;
    bool adapters = model->rank != 0;
    rp_status status = adapters ? print_adapters(origin, model, &text)
                                : print_config(origin, model, &text, &found);
    if (status == RP_OK && !found) {
        rp_log_warning("--save: no family of Hugging Face's has the layers of %s: its checkpoints "
                       "are without " CONFIG,
                       model->config->name);
    } else if (status == RP_OK) {
        status = add(c, adapters ? "adapter_config.json" : CONFIG, &text, arena);
    }
    rp_text_fini(&text);
    return status;
}

/* ---- files that are carried along -------------------------------------------------------------
 */

/* A file of another name may stand among others' tokenizers. */
static bool has_neighbours(const char *config)
{
    const char *slash = config != NULL ? strrchr(config, '/') : NULL;
    return config != NULL && strcmp(slash != NULL ? slash + 1 : config, CONFIG) == 0;
}

static rp_status carry(const char *path, const char *name, rp_arena *arena, rpexec_companions *c)
{
    rp_text text = {0};
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return RP_OK;
    }
    rp_status status = rp_text_read_file(path, LIMIT_BYTES, &text);
    status = status == RP_OK ? add(c, name, &text, arena) : status;
    rp_text_fini(&text);
    return status;
}

rp_status rpexec_companions_gather(const rpexec_origin *origin, const rpexec_model *model,
                                   rp_arena *arena, rpexec_companions *companions_out)
{
    *companions_out = (rpexec_companions){0};
    RP_TRY(add_configuration(origin, model, arena, companions_out));
    if (!has_neighbours(origin->config)) {
        return RP_OK;
    }
    int folder = (int)(strlen(origin->config) - strlen(CONFIG));
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%.*s%s", folder, origin->config, carried[i]));
        RP_TRY(carry(path, carried[i], arena, companions_out));
    }
    return RP_OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

rp_status rpexec_companions_write(const rpexec_companions *companions, const char *folder)
{
    for (uint32_t i = 0; i < companions->count; i++) {
        const rpexec_companion *file = &companions->files[i];
        char path[PATH_MAX];
        rp_output output;
        int length = snprintf(path, sizeof path, "%s/%s", folder, file->name);
        if (length < 0 || (size_t)length >= sizeof path) {
            rp_log_error("%s/%s: %s", folder, file->name, strerror(ENAMETOOLONG));
            return RP_IO;
        }
        RP_TRY(rp_output_open(path, &output));
        (void)fwrite(file->bytes, 1, file->length, output.stream); /* ferror: at the commit */
        RP_TRY(rp_output_commit(&output));
    }
    return RP_OK;
}
