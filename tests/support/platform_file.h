/** @file platform_file.h  Platform files that tests derive from the files in traces/, and the least
 * time that a step can take on a platform. Assertions fail the test; there are no return values. */
#pragma once

#include "common/inputs/model.h"

/**
 * Writes a copy of traces/platforms/BASE.yaml with other keys into the tool's folder.
 * @param name name of the file, without .yaml
 * @param lines "key: value" lines; each replaces the base's line of that key or is added; a value
 * of "-" drops the key
 * @return the file's path, in the tool's arena
 */
const char *rp_test_platform_file(const char *base, const char *name, const char *lines);

/**
 * The least FLOP of training on `tokens` tokens (executor.md section 5): matrix products and
 * attention forward, and twice as many FLOP backward, without recomputation; frozen weights have no
 * gradients.
 * @param seq_len tokens per sequence
 */
double rp_test_training_flop(const rp_model *model, double tokens, double seq_len);
