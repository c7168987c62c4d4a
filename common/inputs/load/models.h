/** @file models.h  Models by the value of --model: a name or a file of traces/models (model.h), a
 * path that ends in ".json" or a folder of Hugging Face, a model's name on its Hub
 * (huggingface/config.h), or `gpt:HIDDENxHEADSxLAYERS`, a GPT of that size. Objects live in
 * `arena`.
 */
#pragma once

#include "common/inputs/model.h"

/**
 * Loads a model and checks its parameter counts against the published counts in the file.
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_model_load(const char *name_or_path, rp_arena *arena, rp_model *model_out);

/** As rp_model_load.
 * @param assume family as which a config.json of an unknown family is read; NULL: unknown families
 * are refused */
rp_status rp_model_load_as(const char *name_or_path, const char *assume, rp_arena *arena,
                           rp_model *model_out);
