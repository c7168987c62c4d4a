/** @file layout.h  The tensors of a model's layers and their offsets. Used only in exec/model. */
#pragma once

#include "exec/model/model.h"

/**
 * Fills the three layers, block_tensors, linears, rank and adapter_scale of `model`.
 * @retval RP_OK, RP_INPUT (a layer has more tensors than streams of random numbers; logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_model_lay_out(const rp_model *config, rp_arena *arena, rpexec_model *model);
