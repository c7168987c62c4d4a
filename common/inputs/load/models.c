#include "common/inputs/load/models.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/config.h"
#include "common/inputs/data.h"
#include "common/inputs/huggingface/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- GPTs by their size ---------------------------------------------------------------------- */

#define GPT "gpt:"
#define GPT_FILE "configs/gpt.yaml"

static rp_status load_gpt(rp_arena *arena, rp_model *model_out)
{
    const char *path = NULL;
    rp_text text = {0};
    rp_status status = rp_data_read_file(GPT_FILE, RP_CONFIG_MAX_BYTES, arena, &path, &text);
    if (status == RP_OK) {
        status = rp_model_parse(path, text.bytes, text.length, arena, model_out);
    }
    rp_text_fini(&text);
    return status;
}

static rp_status make_gpt(const char *name, rp_arena *arena, rp_model *model_out)
{
    uint32_t hidden = 0;
    uint32_t heads = 0;
    uint32_t layers = 0;
    int end = 0;
    bool plain = strspn(name + strlen(GPT), "0123456789x") == strlen(name) - strlen(GPT);
    int count = sscanf(name, GPT "%7" SCNu32 "x%5" SCNu32 "x%5" SCNu32 "%n", &hidden, &heads,
                       &layers, &end);
    bool sized = plain && count == 3 && name[end] == '\0' && hidden >= 2 && hidden <= 1048576 &&
                 heads > 0 && layers > 0 && layers <= RP_MAX_LAYERS && hidden % heads == 0 &&
                 hidden / heads % 2 == 0;
    if (!sized) {
        rp_log_error("{model}: '%.80s': valid are gpt:HIDDENxHEADSxLAYERS with heads of an even "
                     "size that divide HIDDEN (at most 1048576), and 1 to %u layers, as "
                     "gpt:1024x16x24",
                     name, RP_MAX_LAYERS);
        return RP_INPUT;
    }
    RP_TRY(load_gpt(arena, model_out));
    model_out->layers = layers;
    model_out->hidden = hidden;
    model_out->heads = heads;
    model_out->kv_heads = heads;
    model_out->head_dim = hidden / heads;
    model_out->intermediate = 4 * hidden;
    model_out->recorded = NULL;
    rp_model_count(model_out);
    return rp_arena_copy_text(arena, name, strlen(name), &model_out->name);
}

rp_status rp_model_load_as(const char *name_or_path, const char *assume, rp_arena *arena,
                           rp_model *model_out)
{
    if (assume == NULL && strncmp(name_or_path, GPT, strlen(GPT)) == 0) {
        return make_gpt(name_or_path, arena, model_out);
    }
    RP_TRY(rp_hf_locate(name_or_path, arena, &name_or_path));
    if (assume != NULL && !rp_hf_is_config(name_or_path)) {
        rp_log_error("{assume}: %.80s has no config.json; valid only with {model} "
                     "DIR|config.json",
                     name_or_path);
        return RP_USAGE;
    }
    return rp_hf_is_config(name_or_path) ? rp_hf_model_load(name_or_path, assume, arena, model_out)
                                         : rp_model_read(name_or_path, arena, model_out);
}

rp_status rp_model_load(const char *name_or_path, rp_arena *arena, rp_model *model_out)
{
    return rp_model_load_as(name_or_path, NULL, arena, model_out);
}
