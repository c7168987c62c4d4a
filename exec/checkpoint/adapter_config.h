/** @file adapter_config.h  Folders of adapters, as PEFT saves them and rpexec does with LoRA:
 * adapter_config.json and adapter_model.safetensors. Written by companions.h.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpexec_adapters {
    const char *base; /**< folder of the weights that they are on, which has a config.json */
    uint32_t rank;
    double alpha;
} rpexec_adapters;

/**
 * Reads a folder's adapter_config.json. Kinds of adapters that are not computed are refused by key:
 * of keys that are not known, null, false and empty values are taken.
 * @param found_out whether there is one; otherwise nothing is read
 * @param adapters_out texts live in `arena`
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_adapters_find(const char *folder, rp_arena *arena, rpexec_adapters *adapters_out,
                               bool *found_out);
