/** @file adapter_config.h  Folders of adapters, in PEFT's layout, which rpexec uses with LoRA too:
 * adapter_config.json and adapter_model.safetensors. Written by companions.h.
 */
#pragma once

#include "common/inputs/model.h"

typedef struct rpexec_adapters {
    const char *base; /**< folder of the weights under the adapters; it has a config.json */
    uint32_t rank;
    double alpha;
    uint32_t linears;    /**< linear layers with adapters, as rp_model.lora_linears; 0: all */
    uint32_t layers;     /**< layers with adapters; 0: there are no tensors, which
                              rpexec_adapters_load reports */
    const char *targets; /**< "path:line" of target_modules, for messages */
} rpexec_adapters;

/**
 * Reads a folder's adapter_config.json, and from the names of its tensors which linear layers have
 * adapters. All layers of the model must have adapters on the same linear layers, those that
 * target_modules names unless it is a pattern. Kinds of adapters that are not computed are refused
 * by key; an unknown key may only have null, false or an empty value.
 * @param found_out whether the folder has an adapter_config.json; otherwise nothing is read
 * @param adapters_out texts live in `arena`
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_adapters_find(const char *folder, rp_arena *arena, rpexec_adapters *adapters_out,
                               bool *found_out);

/** Compares the adapters with the model that they are on. @retval RP_OK, RP_INPUT (layers without
 * adapters; logged) */
rp_status rpexec_adapters_check(const rpexec_adapters *adapters, const rp_model *model);
