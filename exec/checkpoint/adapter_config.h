/** @file adapter_config.h  Folders of adapters, as PEFT saves them and rpexec does with LoRA:
 * adapter_config.json and adapter_model.safetensors. Written by companions.h.
 */
#pragma once

#include "common/inputs/model.h"

typedef struct rpexec_adapters {
    const char *base; /**< folder of the weights that they are on, which has a config.json */
    uint32_t rank;
    double alpha;
    uint32_t linears;    /**< that they are on, as rp_model.lora_linears; 0: all */
    uint32_t layers;     /**< that have them; 0: there are no tensors, which their reader says */
    const char *targets; /**< "path:line" of target_modules, for messages */
} rpexec_adapters;

/**
 * Reads a folder's adapter_config.json, and from the names of its tensors which linear layers have
 * adapters: the same ones in all layers of the model, and those that target_modules names, unless
 * that is a pattern. Kinds of adapters that are not computed are refused by key: of keys that are
 * not known, null, false and empty values are taken.
 * @param found_out whether there is one; otherwise nothing is read
 * @param adapters_out texts live in `arena`
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_adapters_find(const char *folder, rp_arena *arena, rpexec_adapters *adapters_out,
                               bool *found_out);

/** Compares them with the model that they are on. @retval RP_OK, RP_INPUT (layers without adapters;
 * logged) */
rp_status rpexec_adapters_check(const rpexec_adapters *adapters, const rp_model *model);
