/** @file companions.h  Files beside a checkpoint's weights, with which transformers and PEFT open
 * it.
 *
 * config.json is the file that the model was read from, byte for byte except for the type of the
 * saved weights; for a model without such a file it is made from the model's sizes
 * (config_write.c). With LoRA there is PEFT's adapter_config.json instead; for adapters on random
 * weights it names a folder of those weights, which the run saves once. Files for tokenizers and
 * generation beside the model's config.json, or beside adapters, are carried along. All files are
 * read once, when a run begins: later checkpoints do not depend on files that somebody changes or
 * removes meanwhile.
 */
#pragma once

#include "common/base/text.h"
#include "exec/model/model.h"

/** Most files that a checkpoint has beside its tensors. */
#define RPEXEC_MOST_COMPANIONS 20u

typedef struct rpexec_companion {
    const char *name; /**< in the checkpoint's folder */
    const char *bytes;
    size_t length;
} rpexec_companion;

/** Files of a folder; zeroes: none. */
typedef struct rpexec_companion_list {
    uint32_t count;
    rpexec_companion files[RPEXEC_MOST_COMPANIONS];
} rpexec_companion_list;

/** Folder beside checkpoints of adapters: the random weights under the adapters. */
#define RPEXEC_BASE "base"

/** Files of a run's checkpoints; bytes live in the arena that they were gathered in. */
typedef struct rpexec_companions {
    rpexec_companion_list step; /**< files of every checkpoint */
    rpexec_companion_list base; /**< files of the folder RPEXEC_BASE; count 0: the run needs no such
                                     folder */
} rpexec_companions;

/** Sources of a run's model, and the folder of its checkpoints. */
typedef struct rpexec_origin {
    const char *config;   /**< Hugging Face's config.json that the model was read from; NULL:
                               none */
    const char *weights;  /**< folder of the weights, with LoRA of the frozen weights; NULL:
                               random */
    const char *adapters; /**< folder of the adapters that the run begins with; NULL: none */
    const char *save;     /**< folder of the run's checkpoints; it exists */
} rpexec_origin;

/**
 * Reads or makes all of a run's companions. A missing file is left out. If no family has the
 * model's layers, config.json is left out with a warning.
 * @param companions_out lives in `arena`
 * @retval RP_OK, RP_INPUT (an existing file cannot be read; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_companions_gather(const rpexec_origin *origin, const rpexec_model *model,
                                   rp_arena *arena, rpexec_companions *companions_out);

/** Writes all of a list into a folder, each atomically. @retval RP_OK, RP_INPUT, RP_IO,
 * RP_NO_MEMORY */
rp_status rpexec_companions_write(const rpexec_companion_list *list, const char *folder);

/** @return whether a file of a list may have this name. */
bool rpexec_companion_is_file(const char *name);

/* ---- inside of exec/checkpoint, and for tests ------------------------------------------------ */

/**
 * Prints a config.json from a model's sizes; rpexec_config_load reads it back as the same model.
 * @param found_out whether a family has such layers; otherwise nothing is printed
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_config_print(const rp_model *model, rp_dtype dtype, rp_text *text,
                              bool *found_out);

/**
 * Prints the text of a config.json with `dtype` as the type of the weights, in torch_dtype and in
 * dtype, as far as the text has these keys; all else stays as it was.
 * @param path for messages
 * @retval RP_OK, RP_INPUT (no object; logged), RP_NO_MEMORY
 */
rp_status rpexec_config_carry(const char *path, const rp_text *from, rp_dtype dtype, rp_text *text);

/** Prints adapter_config.json of a model with LoRA. @param base folder of its frozen weights, or
 * NULL @retval RP_OK, RP_INPUT (a name that JSON cannot have; logged), RP_NO_MEMORY */
rp_status rpexec_adapter_config_print(const rpexec_model *model, const char *base, rp_text *text);
