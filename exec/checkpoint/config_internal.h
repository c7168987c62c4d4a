/* Shared by the reader of config.json (config.c) and its list of keys (config_keys.c). */
#pragma once

#include "common/inputs/huggingface/config.h"

/** Refuses every key of `rest` that training depends on, or might. @retval RP_OK, RP_INPUT */
rp_status rpexec_config_check_rest(const rp_hf_config *r);
